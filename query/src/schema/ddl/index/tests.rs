//! Statements about indexes: their effects and their refusals.

use crate::schema::ddl::tests::Session;
use crate::schema::ddl::{ChangeTarget, ChangeType, TableAction, event};
use crate::schema::index::{CLASS_NAME, IndexKind, IndexedPart};

const SASI: &str = "org.apache.cassandra.index.sasi.SASIIndex";
const TABLE: &str = "CREATE TABLE t (k1 int, k2 text, c int, s text static, v text, w int, b blob, \"Odd name\" int, \
     l list<text>, m map<text, int>, fl frozen<list<int>>, fm frozen<map<text, int>>, \
     PRIMARY KEY ((k1, k2), c))";

fn session() -> Session {
    Session::with(&[TABLE])
}

/// Names, parts and kinds of the indexes of `t`, each with its column.
fn indexes(session: &Session) -> Vec<(String, String, IndexKind)> {
    let table = session.table("t");
    table.indexes.iter().map(|index| (index.name.clone(), table.index_target(index), index.kind)).collect()
}

fn names(session: &Session) -> Vec<String> {
    indexes(session).into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn an_index_is_created_and_dropped() {
    let mut session = session();
    let before = session.catalog.clone();
    let updated = Some(event(ChangeType::Updated, ChangeTarget::Table, "ks", "t"));
    let created = session.run("CREATE INDEX i ON t (v)");
    assert_eq!(created.effect, updated);
    assert!(
        matches!(created.table_actions.as_slice(), [TableAction::Alter(table)] if table.indexes.len() == 1)
    );
    let first = session.table("t").indexes[0].clone();
    assert_eq!((first.kind, first.part), (IndexKind::Legacy, IndexedPart::Value));
    assert_eq!(session.table("t").indexed_column(&first).name, "v");
    assert!(first.options.is_empty());
    assert_eq!(session.run("DROP INDEX i").effect, updated);
    assert_eq!(session.table("t"), &**before.table("ks", "t").unwrap());
    session.run("CREATE INDEX i ON t (v)");
    assert_ne!(session.table("t").indexes[0].id, first.id);
    session.run("DROP INDEX ks.i");
    assert!(names(&session).is_empty());
}

#[test]
fn using_names_the_kind_of_an_index() {
    let mut session = session();
    for (number, (statement, kind)) in [
        ("CREATE INDEX i ON t (v)", IndexKind::Legacy),
        ("CREATE INDEX i ON t (v) USING 'Legacy_Local_Table'", IndexKind::Legacy),
        ("CREATE INDEX i ON t (v) USING 'SAI'", IndexKind::StorageAttached),
        ("CREATE CUSTOM INDEX i ON t (v) USING 'storageattachedindex'", IndexKind::StorageAttached),
        (
            "CREATE CUSTOM INDEX i ON t (v) USING 'org.apache.cassandra.index.sai.StorageAttachedIndex'",
            IndexKind::StorageAttached,
        ),
        (&format!("CREATE CUSTOM INDEX i ON t (v) USING '{SASI}'"), IndexKind::Sasi),
    ]
    .into_iter()
    .enumerate()
    {
        let warnings = session.run(statement).warnings;
        assert_eq!(warnings.len(), usize::from(kind == IndexKind::Sasi), "{number}");
        assert_eq!(session.table("t").indexes[0].kind, kind, "{statement}");
        session.run("DROP INDEX i");
    }
    session.run("CREATE INDEX i ON t (v) USING 'SAI' WITH OPTIONS = {'case_sensitive': false}");
    let options = &session.table("t").indexes[0].options;
    let expected = [("case_sensitive", "false"), (CLASS_NAME, "SAI")];
    assert!(options.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
}

#[test]
fn a_name_is_made_of_table_and_column_and_is_unique_in_the_keyspace() {
    let mut session = session();
    session.run("CREATE TABLE t_v (k int PRIMARY KEY, idx int, v_idx int)");
    for statement in [
        "CREATE INDEX ON t (v)",
        "CREATE INDEX ON t (v) USING 'sai'",
        "CREATE INDEX ON t (\"Odd name\")",
        "CREATE INDEX t_w_idx ON t_v (idx)",
        "CREATE INDEX ON t (w)",
        "CREATE INDEX IF NOT EXISTS t_w_idx ON t (k1)",
    ] {
        session.run(statement);
    }
    assert_eq!(names(&session), ["t_Oddname_idx", "t_v_idx", "t_v_idx_1", "t_w_idx_1"]);
    session.refuses(&[
        ("CREATE INDEX t_w_idx ON t (k1)", "Index 't_w_idx' already exists"),
        ("CREATE INDEX again ON t (w)", "Index again is a duplicate of existing index t_w_idx_1"),
        ("CREATE INDEX \"no name\" ON t (k1)", "Illegal index name no name"),
    ]);
    assert!(session.run("CREATE INDEX IF NOT EXISTS ON t (w)").effect.is_none());
    assert!(session.run("DROP INDEX IF EXISTS missing").effect.is_none());
    session.refuses(&[
        ("DROP INDEX missing", "Index 'ks.missing' doesn't exist"),
        ("DROP INDEX nowhere.i", "Index 'nowhere.i' doesn't exist"),
    ]);
}

#[test]
fn parts_of_collections_are_indexed() {
    let mut session = session();
    for target in ["l", "values(m)", "keys(m)", "entries(m)", "full(fl)", "full(fm)", "s", "k2", "c"] {
        session.run(&format!("CREATE INDEX ON t ({target})"));
        session.run(&format!("CREATE INDEX ON t ({target}) USING 'sai'"));
    }
    let mut targets: Vec<String> = indexes(&session).into_iter().map(|(_, target, _)| target).collect();
    targets.sort();
    targets.dedup();
    let expected =
        ["c", "entries(m)", "full(fl)", "full(fm)", "k2", "keys(m)", "s", "values(l)", "values(m)"];
    assert_eq!(targets, expected);
    assert_eq!(names(&session).len(), 2 * expected.len());
    session.refuses(&[
        ("CREATE INDEX ON t (m)", "Index t_m_idx_6 is a duplicate of existing index t_m_idx"),
        (
            "CREATE INDEX ON t (keys(m)) USING 'StorageAttachedIndex'",
            "Cannot create more than one storage-attached index on the same column: m",
        ),
    ]);
}

#[test]
fn targets_that_are_refused() {
    let mut session = session();
    for statement in [
        "CREATE TYPE u (x int)",
        "CREATE TYPE d (x duration)",
        "CREATE TABLE one (k int PRIMARY KEY, u u, fu frozen<u>, d duration, ld list<frozen<tuple<duration>>>, \
         td tuple<duration>, ud frozen<d>, e vector<float, 2>, le list<frozen<vector<float, 2>>>, \
         es vector<float, 1>, ei vector<int, 2>)",
        "CREATE TABLE of_keys (k int, e vector<float, 2>, s vector<float, 2> STATIC, PRIMARY KEY (k, e))",
        "CREATE TABLE counts (k int PRIMARY KEY, n counter)",
    ] {
        session.run(statement);
    }
    session.run("CREATE INDEX ON one (fu)");
    session.refuses(&[
        ("CREATE INDEX ON missing (v)", "Table 'missing' doesn't exist"),
        ("CREATE INDEX ON nowhere.t (v)", "Keyspace 'nowhere' doesn't exist"),
        ("CREATE INDEX ON t (missing)", "Undefined column name missing in table ks.t"),
        ("CREATE INDEX ON counts (n)", "Secondary indexes on counter tables aren't supported"),
        ("CREATE INDEX ON system_auth.roles (role)", "System keyspace 'system_auth' is not user-modifiable"),
        ("CREATE INDEX ON system_views.clients (port)", "'system_views' is not user-modifiable"),
        ("DROP INDEX system.i", "System keyspace 'system' is not user-modifiable"),
        ("CREATE INDEX ON one (k)", "Cannot create secondary index on the only partition key column k"),
        ("CREATE INDEX ON one (u)", "Cannot create index on non-frozen UDT column u"),
        ("CREATE INDEX ON one (d)", "Secondary indexes are not supported on duration columns"),
        ("CREATE INDEX ON one (ld)", "not supported on collections containing durations"),
        ("CREATE INDEX ON one (td)", "not supported on tuples containing durations"),
        ("CREATE INDEX ON one (ud)", "not supported on UDTs containing durations"),
        ("CREATE INDEX ON one (e)", "Only storage-attached indexes are supported on vectors"),
        (
            "CREATE CUSTOM INDEX ON one (e) USING 'SASIIndex'",
            "Only storage-attached indexes are supported on vectors",
        ),
        ("CREATE INDEX ON one (le)", "Indexes on vectors in collections are not supported by Helenus yet"),
        (
            "CREATE INDEX ON one (ei) USING 'sai'",
            "SAI ANN indexes are only allowed on vector columns with float elements",
        ),
        (
            "CREATE INDEX ON one (es) USING 'sai'",
            "Cosine similarity is not supported for single-dimension vectors",
        ),
        ("CREATE INDEX ON of_keys (e) USING 'sai'", "Indexes on vectors are supported on regular columns only"),
        ("CREATE INDEX ON of_keys (s) USING 'sai'", "Indexes on vectors are supported on regular columns only"),
        (
            "CREATE INDEX ON t (fl)",
            "Cannot create values() index on frozen column fl. Frozen collections are immutable and must be fully \
             indexed by using the 'full(fl)' modifier",
        ),
        ("CREATE INDEX ON t (keys(fm))", "Cannot create keys() index on frozen column fm."),
        ("CREATE INDEX ON t (full(l))", "full() indexes can only be created on frozen collections"),
        ("CREATE INDEX ON t (full(v))", "full() indexes can only be created on frozen collections"),
        (
            "CREATE INDEX ON t (values(v))",
            "Cannot create values() index on v. Non-collection columns only support simple indexes",
        ),
        ("CREATE INDEX ON t (keys(l))", "Cannot create index on keys of column l with non-map type"),
        ("CREATE INDEX ON t (entries(l))", "Cannot create index on entries of column l with non-map type"),
        ("CREATE INDEX ON t ()", "Only CUSTOM indexes can be created without specifying a target column"),
        ("CREATE INDEX ON t (v, w)", "Only CUSTOM indexes support multiple columns"),
        ("CREATE INDEX ON t (v, v) USING 'sai'", "Duplicate column 'v' in index target list"),
        (
            "CREATE INDEX ON t (v, l) USING 'sai'",
            "A storage-attached index cannot be created over multiple columns: v, values(l)",
        ),
        ("CREATE INDEX ON t () USING 'sai'", "Failed to retrieve target column for: "),
        (
            "CREATE INDEX ON t (\"Odd name\") USING 'sai'",
            "Column 'Odd name' is longer than the permissible name length of 48 characters or contains \
             non-alphanumeric-underscore characters",
        ),
    ]);
}

#[test]
fn classes_and_options_that_are_refused() {
    let mut session = session();
    let with = |target: &str, class: &str, options: &str| {
        format!("CREATE CUSTOM INDEX ON t ({target}) USING '{class}' WITH OPTIONS = {{{options}}}")
    };
    let analyzer =
        |name: &str| format!("'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.{name}'");
    for (statement, refusal) in [
        ("CREATE CUSTOM INDEX ON t (v)".to_owned(), "CUSTOM index requires specifiying the index class"),
        (with("v", "some.Class", ""), "Unable to find custom indexer class 'some.Class'"),
        (with("v", "legacy_local_table", ""), "Unable to find custom indexer class 'legacy_local_table'"),
        (
            "CREATE INDEX ON t (v) WITH OPTIONS = {'a': 'b'}".to_owned(),
            "Cannot specify options for a non-CUSTOM index",
        ),
        ("CREATE INDEX ON t (v) USING 'sai' WITH comment = ''".to_owned(), "Unknown property 'comment'"),
        (with("v", "sai", "'class_name': 'x'"), "Cannot specify class_name as a CUSTOM option"),
        (with("v", "sai", "'target': 'x'"), "Cannot specify target as a CUSTOM option"),
        (
            with("v", "sai", "'mode': 'x', 'a': 'y'"),
            "Properties specified [a, mode] are not understood by StorageAttachedIndex",
        ),
        (with("v", "sai", "'ascii': 'maybe'"), "Illegal value for boolean option 'ascii': maybe"),
        (with("l", "sai", "'normalize': ''"), "Empty value for boolean option 'normalize'"),
        (with("w", "sai", "'case_sensitive': 'false'"), "CQL type int cannot be analyzed."),
        (
            with("k2", "sai", "'case_sensitive': 'false'"),
            "Cannot specify index analyzer on primary key column: k2",
        ),
        (with("v", "sai", "'similarity_function': 'cosine'"), "CQL type text cannot have vector options"),
        (with("b", "sai", ""), "Unsupported type for SAI: blob"),
        (with("l", SASI, ""), "complex columns are not yet supported by SASI"),
        (with("k1", SASI, ""), "partition key columns are not yet supported by SASI"),
        (with("v, w", SASI, ""), "failed to retrieve target column for: v, w"),
        (with("v", SASI, "'mode': 'SUFFIX'"), "Incorrect index mode: SUFFIX"),
        (with("v", SASI, "'mode': 'sparse'"), "SPARSE mode is only supported on non-literal columns."),
        (
            with("w", SASI, "'mode': 'SPARSE'"),
            "The mode SPARSE of SASI indexes is not supported by Helenus yet",
        ),
        (with("v", SASI, "'other': 'x'"), "Properties specified [other] are not understood by SASIIndex"),
        (with("v", SASI, "'analyzer_class': 'X'"), "Invalid analyzer class option specified [X]"),
        (
            with("v", SASI, &analyzer("StandardAnalyzer")),
            "The analyzer StandardAnalyzer of SASI indexes is not supported by Helenus yet",
        ),
        (with("v", SASI, "'analyzed': 'true'"), "The analyzer StandardAnalyzer of SASI indexes"),
        (
            with("w", SASI, &analyzer("NonTokenizingAnalyzer")),
            "NonTokenizingAnalyzer does not support type int",
        ),
    ] {
        session.refuses(&[(&statement, refusal)]);
    }
    session.run(&with(
        "v",
        SASI,
        &format!("'mode': 'contains', 'case_sensitive': 'false', {}", analyzer("NonTokenizingAnalyzer")),
    ));
    session.run(&with("v", "sai", "'case_sensitive': 'FALSE', 'normalize': 'true', 'ascii': 'false'"));
    session.run(&with("k2", "sai", "'case_sensitive': 'true'"));
}

#[test]
fn an_indexed_column_stays_with_its_name() {
    let mut session = session();
    for statement in
        ["CREATE INDEX a ON t (v)", "CREATE INDEX b ON t (v) USING 'sai'", "CREATE INDEX ON t (c)"]
    {
        session.run(statement);
    }
    session.refuses(&[
        ("ALTER TABLE t DROP v", "Cannot drop column v because it has dependent secondary indexes (a, b)"),
        (
            "ALTER TABLE t RENAME c TO d",
            "Cannot rename column c because it has dependent secondary indexes (t_c_idx)",
        ),
    ]);
    session.run("ALTER TABLE t RENAME k2 TO k3");
    session.run("ALTER TABLE t DROP w");
    session.run("DROP INDEX a");
    session.run("DROP INDEX b");
    session.run("ALTER TABLE t DROP v");
    assert_eq!(names(&session), ["t_c_idx"]);
}

#[test]
fn indexes_go_with_their_table() {
    let mut session = session();
    session.run("CREATE INDEX i ON t (v)");
    session.run("DROP TABLE t");
    session.refuses(&[("DROP INDEX i", "Index 'ks.i' doesn't exist")]);
    session.run(TABLE);
    assert!(names(&session).is_empty());
    session.run("CREATE INDEX i ON t (v)");
}

#[test]
fn indexes_on_vectors() {
    let mut session = session();
    session.run("CREATE TABLE vectors (k int PRIMARY KEY, a vector<float, 2>, b vector<float, 1>)");
    let with = |target: &str, options: &str| {
        format!(
            "CREATE CUSTOM INDEX i ON vectors ({target}) USING 'StorageAttachedIndex' WITH OPTIONS = {{{options}}}"
        )
    };
    for (options, refusal) in [
        (
            "'similarity_function': 'manhattan'",
            "Similarity function MANHATTAN was not recognized for index i. Valid values are: EUCLIDEAN, DOT_PRODUCT, COSINE",
        ),
        (
            "'optimize_for': 'x'",
            "optimize_for 'X' was not recognized for index i. Valid values are: LATENCY, RECALL",
        ),
        ("'maximum_node_connections': '16'", "Maximum node connections cannot be set"),
        ("'construction_beam_width': '100'", "Construction beam width cannot be set"),
        ("'case_sensitive': 'false'", "CQL type vector<float, 2> cannot be analyzed."),
        ("'trees': '1'", "Properties specified [trees] are not understood by StorageAttachedIndex"),
    ] {
        session.refuses(&[(&with("a", options), refusal)]);
    }
    session.run(&with("a", "'similarity_function': 'dot_product', 'optimize_for': 'recall'"));
    session.run("CREATE CUSTOM INDEX j ON vectors (b) USING 'sai' WITH OPTIONS = {'similarity_function': 'EUCLIDEAN'}");
    session.refuses(&[(
        "CREATE INDEX ON vectors (a) USING 'sai'",
        "Cannot create more than one storage-attached index on the same column: a",
    )]);
}

#[test]
fn indexes_on_vectors_of_compact_tables_are_refused_as_such() {
    let mut session = Session::with(&[
        "CREATE TABLE st (k int PRIMARY KEY, v int, e vector<float, 2>) WITH COMPACT STORAGE",
    ]);
    session.run("CREATE INDEX ON st (v) USING 'sai'");
    session.refuses(&[
        (
            "CREATE INDEX ON st (e) USING 'sai'",
            "Indexes on vectors are not supported on COMPACT STORAGE tables by Helenus yet",
        ),
        ("CREATE INDEX ON st (e)", "Only storage-attached indexes are supported on vectors"),
    ]);
}
