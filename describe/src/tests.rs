//! The answers of DESCRIBE, and that they create an equal schema.

use cql_lite::syntax::ast::Statement;
use cql_lite::syntax::parse;
use uuid::Uuid;

use super::*;
use helenus_query::schema::ddl::{DdlContext, execute};
use helenus_query::schema::system_tables;

/// A new node.
fn node() -> Catalog {
    system_tables::initial_catalog(Uuid::nil())
}

fn run(catalog: &Catalog, statement: &str, number: u128) -> Catalog {
    let context = DdlContext {
        now_micros: 1_700_000_000_000_000,
        new_id: Uuid::from_u128(number),
        new_version: Uuid::from_u128(number << 64),
        data_centers: BTreeMap::from([("datacenter1".to_owned(), 1)]),
        user_functions: &helenus_query::schema::test_catalog::EveryFunction,
        may_drop_compact_storage: false,
    };
    let parsed = parse(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    let change = execute(catalog, &parsed, Some("ks"), &context);
    Catalog::clone(&change.unwrap_or_else(|error| panic!("{statement}: {error}")).catalog)
}

/// A node with the keyspace `ks` and the elements that the statements create.
fn catalog(statements: &[&str]) -> Catalog {
    let keyspace =
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    let all = std::iter::once(&keyspace).chain(statements);
    all.zip(1..).fold(node(), |catalog, (statement, number)| run(&catalog, statement, number))
}

fn answer(catalog: &Catalog, current: Option<&str>, statement: &str) -> Result<Description> {
    let range_ownership = BTreeMap::from([("-1".to_owned(), vec!["127.0.0.1:7000".to_owned()])]);
    let cluster = ClusterSummary {
        name: "Test Cluster",
        partitioner: "Murmur3Partitioner",
        snitch: "SimpleSnitch",
        range_ownership: &range_ownership,
    };
    let Ok(Statement::Describe(statement)) = parse(statement) else { panic!("{statement}") };
    describe(catalog, current, cluster, &statement)
}

fn value_text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// The rows, with blanks between their texts.
fn lines(catalog: &Catalog, current: Option<&str>, statement: &str) -> Vec<String> {
    let description = answer(catalog, current, statement).unwrap();
    let line = |row: Vec<Value>| row.iter().map(value_text).collect::<Vec<_>>().join(" ");
    description.rows.into_iter().map(line).collect()
}

/// The CREATE statements.
fn texts(catalog: &Catalog, statement: &str) -> Vec<String> {
    let description = answer(catalog, Some("ks"), statement).unwrap();
    description.rows.iter().map(|row| value_text(&row[3]).to_owned()).collect()
}

fn error(catalog: &Catalog, current: Option<&str>, statement: &str) -> String {
    answer(catalog, current, statement).unwrap_err().to_string()
}

const DEFAULT_OPTIONS: &str = "additional_write_policy = '99p'
    AND allow_auto_snapshot = true
    AND bloom_filter_fp_chance = 0.01
    AND caching = {'keys': 'ALL', 'rows_per_partition': 'NONE'}
    AND cdc = false
    AND comment = ''
    AND compaction = {'class': 'org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy', \
                                'max_threshold': '32', 'min_threshold': '4'}
    AND compression = {'chunk_length_in_kb': '16', 'class': 'org.apache.cassandra.io.compress.LZ4Compressor'}
    AND memtable = 'default'
    AND crc_check_chance = 1.0
    AND default_time_to_live = 0
    AND extensions = {}
    AND gc_grace_seconds = 864000
    AND incremental_backups = true
    AND max_index_interval = 2048
    AND memtable_flush_period_in_ms = 0
    AND min_index_interval = 128
    AND read_repair = 'BLOCKING'
    AND speculative_retry = '99p';";

#[test]
fn a_keyspace_is_described_as_in_cassandra() {
    let catalog = run(
        &catalog(&[]),
        "CREATE KEYSPACE \"Two\" WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND \
         durable_writes = false",
        9,
    );
    assert_eq!(
        lines(&catalog, None, "DESCRIBE KEYSPACE ks"),
        ["ks keyspace ks CREATE KEYSPACE ks WITH replication = \
          {'class': 'SimpleStrategy', 'replication_factor': '1'}  AND durable_writes = true;"]
    );
    assert_eq!(
        lines(&catalog, None, "DESCRIBE ONLY KEYSPACE \"Two\""),
        ["\"Two\" keyspace \"Two\" CREATE KEYSPACE \"Two\" WITH replication = \
          {'class': 'NetworkTopologyStrategy', 'datacenter1': '1'}  AND durable_writes = false;"]
    );
    assert_eq!(
        lines(&catalog, None, "DESCRIBE ONLY KEYSPACE system_views"),
        [
            "system_views keyspace system_views /*\nWarning: Keyspace system_views is a virtual keyspace and cannot be \
          recreated with CQL.\nStructure, for reference:\nVIRTUAL KEYSPACE system_views;\n*/"
        ]
    );
}

#[test]
fn a_table_is_described_as_in_cassandra() {
    let catalog = catalog(&[
        "CREATE TABLE users (userid text PRIMARY KEY, \"Age\" int, email set<text>, name text)",
        "CREATE TABLE \"Events\" (a int, b int, c timeuuid, d int, s map<int, text> static, t int static, v text,
         PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'it''s'",
    ]);
    assert_eq!(
        texts(&catalog, "DESCRIBE TABLE users"),
        [format!(
            "CREATE TABLE ks.users (
    userid text PRIMARY KEY,
    \"Age\" int,
    name text,
    email set<text>
) WITH {DEFAULT_OPTIONS}"
        )]
    );
    assert_eq!(
        texts(&catalog, "DESCRIBE TABLE \"Events\""),
        [format!(
            "CREATE TABLE ks.\"Events\" (
    a int,
    b int,
    c timeuuid,
    d int,
    t int static,
    s map<int, text> static,
    v text,
    PRIMARY KEY ((a, b), c, d)
) WITH CLUSTERING ORDER BY (c DESC, d ASC)
    AND {}",
            DEFAULT_OPTIONS.replace("comment = ''", "comment = 'it''s'")
        )]
    );
}

#[test]
fn a_table_with_internals_has_its_id_and_dropped_columns() {
    let catalog = catalog(&[
        "CREATE TABLE t (k int PRIMARY KEY, a int, b list<int>, c text)",
        "ALTER TABLE t DROP a USING TIMESTAMP 1500000000000001",
        "ALTER TABLE t DROP b USING TIMESTAMP 1500000000000002",
        "ALTER TABLE t ADD a int",
    ]);
    let id = catalog.table("ks", "t").unwrap().id;
    let [text] = texts(&catalog, "DESCRIBE TABLE t WITH INTERNALS").try_into().unwrap();
    let head = format!(
        "CREATE TABLE ks.t (
    k int PRIMARY KEY,
    c text,
    a int,
    b list<int>
) WITH ID = {id}
    AND additional_write_policy = '99p'
"
    );
    assert!(text.starts_with(&head), "{text}");
    let tail = "
ALTER TABLE ks.t DROP a USING TIMESTAMP 1500000000000001;
ALTER TABLE ks.t ADD a int;
ALTER TABLE ks.t DROP b USING TIMESTAMP 1500000000000002;";
    assert!(text.ends_with(tail), "{text}");
    assert!(!texts(&catalog, "DESCRIBE TABLE t")[0].contains("b list<int>"));
}

#[test]
fn types_are_described_as_in_cassandra() {
    let catalog = catalog(&[
        "CREATE TYPE zone (name text, \"Id\" int)",
        "CREATE TYPE address (street text, zones list<frozen<zone>>, pair tuple<int, text>)",
        "CREATE TABLE t (k int PRIMARY KEY, a int, m map<text, text>, \"V\" text, home frozen<address>)",
    ]);
    assert_eq!(
        texts(&catalog, "DESCRIBE TYPE ks.address"),
        ["CREATE TYPE ks.address (
    street text,
    zones list<frozen<zone>>,
    pair frozen<tuple<int, text>>
);"]
    );
    let kinds: Vec<_> = answer(&catalog, None, "DESCRIBE ks").unwrap().rows;
    let kinds: Vec<_> =
        kinds.iter().map(|row| format!("{} {}", value_text(&row[1]), value_text(&row[2]))).collect();
    assert_eq!(kinds, ["keyspace ks", "type zone", "type address", "table t"]);
}

#[test]
fn indexes_are_described_as_in_cassandra() {
    let catalog = catalog(&[
        "CREATE TABLE t (k int PRIMARY KEY, v text, \"V\" text, m map<int, text>, f frozen<list<int>>)",
        "CREATE INDEX b ON t (v)",
        "CREATE INDEX a ON t (entries(m))",
        "CREATE INDEX \"C\" ON t (\"V\")",
        "CREATE INDEX d ON t (full(f))",
        "CREATE INDEX e ON t (v) USING 'sai' WITH OPTIONS = {'normalize': 'true', 'case_sensitive': 'false'}",
        "CREATE CUSTOM INDEX f ON t (m) USING 'StorageAttachedIndex'",
        "CREATE TABLE u (k int PRIMARY KEY)",
    ]);
    let indexes = [
        "CREATE INDEX \"C\" ON ks.t (\"V\");",
        "CREATE INDEX a ON ks.t (entries(m));",
        "CREATE INDEX b ON ks.t (v);",
        "CREATE INDEX d ON ks.t (full(f));",
        "CREATE CUSTOM INDEX e ON ks.t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false', 'normalize': 'true'};",
        "CREATE CUSTOM INDEX f ON ks.t (values(m)) USING 'StorageAttachedIndex';",
    ];
    assert_eq!(texts(&catalog, "DESCRIBE TABLE t")[1..], indexes);
    assert_eq!(texts(&catalog, "DESCRIBE ks.t")[1..], indexes);
    assert_eq!(texts(&catalog, "DESCRIBE INDEX ks.b"), [indexes[2]]);
    assert_eq!(texts(&catalog, "DESCRIBE e"), [indexes[4]]);
    let rows = answer(&catalog, None, "DESCRIBE KEYSPACE ks").unwrap().rows;
    let names: Vec<_> = rows.iter().map(|row| [value_text(&row[1]), value_text(&row[2])].join(" ")).collect();
    let expected = [
        "keyspace ks",
        "table t",
        "index \"C\"",
        "index a",
        "index b",
        "index d",
        "index e",
        "index f",
        "table u",
    ];
    assert_eq!(names, expected);
    assert_eq!(lines(&catalog, Some("ks"), "DESCRIBE TABLES"), ["ks table t", "ks table u"]);
}

#[test]
fn a_virtual_table_is_shown_in_a_comment() {
    let catalog = node();
    let table = catalog.keyspaces["system_virtual_schema"].tables.keys().next().unwrap().clone();
    let [text] = texts(&catalog, &format!("DESCRIBE system_virtual_schema.{table}")).try_into().unwrap();
    let head = format!(
        "/*\nWarning: Table system_virtual_schema.{table} is a virtual table and cannot be recreated with CQL.\n\
         Structure, for reference:\nVIRTUAL TABLE system_virtual_schema.{table} (\n"
    );
    assert!(text.starts_with(&head), "{text}");
    assert!(text.ends_with("';\n*/"), "{text}");
}

#[test]
fn lists_are_of_the_keyspace_in_use_or_of_all() {
    let catalog = catalog(&["CREATE TYPE u (a int)", "CREATE TABLE \"T\" (k int PRIMARY KEY)"]);
    assert_eq!(
        lines(&catalog, None, "DESCRIBE KEYSPACES"),
        [
            "ks keyspace ks",
            "system keyspace system",
            "system_auth keyspace system_auth",
            "system_distributed keyspace system_distributed",
            "system_schema keyspace system_schema",
            "system_traces keyspace system_traces",
            "system_views keyspace system_views",
            "system_virtual_schema keyspace system_virtual_schema",
        ]
    );
    assert_eq!(lines(&catalog, Some("ks"), "DESCRIBE TABLES"), ["ks table \"T\""]);
    assert!(lines(&catalog, None, "DESCRIBE TABLES").contains(&"system_schema table tables".to_owned()));
    assert_eq!(lines(&catalog, Some("ks"), "DESCRIBE TYPES"), ["ks type u"]);
    assert_eq!(lines(&catalog, None, "DESCRIBE TYPES"), ["ks type u"]);
    for statement in ["DESCRIBE FUNCTIONS", "DESCRIBE AGGREGATES"] {
        assert!(lines(&catalog, None, statement).is_empty());
        assert_eq!(error(&catalog, Some("gone"), statement), "'gone' not found in keyspaces");
    }
    let columns = answer(&catalog, None, "DESCRIBE TABLES").unwrap().columns;
    assert_eq!(columns.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["keyspace_name", "type", "name"]);
}

#[test]
fn the_cluster_shows_ranges_if_a_keyspace_of_users_is_in_use() {
    let catalog = catalog(&[]);
    let summary = ["Test Cluster Murmur3Partitioner SimpleSnitch"];
    assert_eq!(lines(&catalog, None, "DESCRIBE CLUSTER"), summary);
    assert_eq!(lines(&catalog, Some("system"), "DESCRIBE CLUSTER"), summary);
    let description = answer(&catalog, Some("ks"), "DESC CLUSTER").unwrap();
    let (name, column_type) = &description.columns[3];
    assert_eq!(
        (*name, column_type.to_string().as_str()),
        ("range_ownership", "map<text, frozen<list<text>>>")
    );
    let expected = Value::Map(vec![(text("-1"), Value::List(vec![text("127.0.0.1:7000")]))]);
    assert_eq!(description.rows[0][3], expected);
}

#[test]
fn unknown_elements_are_named_as_in_cassandra() {
    let catalog = catalog(&[]);
    for (statement, message) in [
        ("DESCRIBE KEYSPACE x", "'x' not found in keyspaces"),
        ("DESCRIBE TABLE x.t", "'x' not found in keyspaces"),
        ("DESCRIBE TABLE t", "Table 't' not found in keyspace 'ks'"),
        ("DESCRIBE INDEX i", "Table for existing index 'i' not found in 'ks'"),
        ("DESCRIBE MATERIALIZED VIEW v", "Materialized view 'v' not found in 'ks'"),
        ("DESCRIBE TYPE u", "User defined type 'u' not found in 'ks'"),
        ("DESCRIBE FUNCTION f", "User defined function 'f' not found in 'ks'"),
        ("DESCRIBE AGGREGATE a", "User defined aggregate 'a' not found in 'ks'"),
        ("DESCRIBE x", "'x' not found in keyspace 'ks'"),
        ("DESCRIBE ks.x", "'x' not found in keyspace 'ks'"),
        ("DESCRIBE y.x", "'y' not found in keyspaces"),
    ] {
        assert_eq!(error(&catalog, Some("ks"), statement), message);
    }
    assert_eq!(error(&catalog, None, "DESCRIBE x"), "'x' not found in keyspaces");
    for statement in ["DESCRIBE TABLE t", "DESCRIBE KEYSPACE", "DESCRIBE FUNCTION f"] {
        assert_eq!(error(&catalog, None, statement), "No keyspace specified and no current keyspace");
    }
}

#[test]
fn the_schema_leaves_system_keyspaces_out_unless_asked_for() {
    let catalog = catalog(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    assert_eq!(texts(&catalog, "DESCRIBE SCHEMA").len(), 2);
    assert!(texts(&catalog, "DESCRIBE FULL SCHEMA").len() > 20);
}

#[test]
fn described_statements_create_an_equal_schema() {
    let original = catalog(&[
        "CREATE TYPE \"a.b\" (x int, \"select\" text)",
        "CREATE TYPE aa (f frozen<\"a.b\">, l list<frozen<map<text, frozen<tuple<int, blob>>>>>)",
        "CREATE TABLE counters (k int, \"C 1\" text, n counter, PRIMARY KEY (k, \"C 1\")) \
         WITH compaction = {'class': 'LeveledCompactionStrategy'} AND comment = 'a ''quoted'' comment' \
         AND compression = {'enabled': 'false'} AND speculative_retry = 'NONE' AND default_time_to_live = 0 \
         AND rate_limit = {'max_reads_per_second': 0, 'max_writes_per_second': 4294967295} AND max_charge = 4294967296 \
         AND per_partition_rate_limit = {'max_writes_per_second': 7}",
        "CREATE TABLE all_types (p uuid, q inet, c1 date, c2 decimal, a frozen<aa>, b \"a.b\", d vector<float, 3>, \
         e duration, f set<timestamp>, g timeuuid static, h varint, i smallint, j tinyint, \
         PRIMARY KEY ((p, q), c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC) AND gc_grace_seconds = 5 \
         AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '2'}",
        "CREATE TABLE capped (k int, c int, PRIMARY KEY (k, c)) WITH cap = 5",
        "ALTER TABLE all_types DROP i USING TIMESTAMP 5",
        "ALTER TABLE all_types DROP j USING TIMESTAMP 6",
        "ALTER TABLE all_types ADD j tinyint",
        "CREATE INDEX ON all_types (f)",
        "CREATE INDEX ON all_types (q)",
        "CREATE INDEX \"Named\" ON all_types (a) USING 'SAI'",
        "CREATE CUSTOM INDEX ON all_types (h) USING 'org.apache.cassandra.index.sasi.SASIIndex' \
         WITH OPTIONS = {'mode': 'CONTAINS'}",
    ]);
    for describe in ["DESCRIBE SCHEMA", "DESCRIBE SCHEMA WITH INTERNALS"] {
        let described = texts(&original, describe);
        let statements = described.iter().flat_map(|text| text.split_inclusive(";\n")).collect::<Vec<_>>();
        let again =
            statements.iter().zip(100..).fold(node(), |catalog, (text, number)| run(&catalog, text, number));
        assert_eq!(texts(&again, describe), described);
    }
}

#[test]
fn the_schema_of_a_snapshot_creates_its_table_again() {
    let original = catalog(&[
        "CREATE TYPE inner (x int)",
        "CREATE TYPE outer (i frozen<inner>)",
        "CREATE TYPE of_dropped (x int)",
        "CREATE TYPE unused (x int)",
        "CREATE TABLE t (k int PRIMARY KEY, v map<int, frozen<list<frozen<outer>>>>, gone frozen<of_dropped>, w map<int, int>) \
         WITH per_partition_rate_limit = {'max_reads_per_second': 123}",
        "ALTER TABLE t DROP gone USING TIMESTAMP 5",
        "CREATE TABLE other (k int PRIMARY KEY)",
        "CREATE INDEX ON t (entries(w))",
        "CREATE INDEX ON t (w) USING 'sai'",
    ]);
    let keyspace = original.keyspace("ks").unwrap();
    let table = original.table("ks", "t").unwrap();
    let schema = snapshot_schema(keyspace, table);
    let (comment, statements) = schema.split_once('\n').unwrap();
    assert!(comment.starts_with("-- CREATE KEYSPACE ks WITH replication = "), "{comment}");
    let statements: Vec<&str> = statements.split_inclusive(";\n").collect();
    let kinds: Vec<String> =
        statements.iter().map(|text| text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect();
    // A dropped column has tuples in place of user types.
    let expected = [
        "CREATE TYPE ks.inner",
        "CREATE TYPE ks.outer",
        "CREATE TABLE ks.t",
        "ALTER TABLE ks.t",
        "CREATE INDEX t_w_idx",
        "CREATE CUSTOM INDEX",
    ];
    assert_eq!(kinds, expected);
    let again = statements
        .iter()
        .zip(100..)
        .fold(catalog(&[]), |catalog, (text, number)| run(&catalog, text, number));
    assert_eq!(snapshot_schema(again.keyspace("ks").unwrap(), again.table("ks", "t").unwrap()), schema);
}
