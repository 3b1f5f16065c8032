//! Statements against a catalog: their effects and their refusals.

use std::collections::BTreeMap;

use cql_lite::syntax::parse;

use super::*;
use crate::schema::catalog::{ColumnKind, Replication};
use crate::schema::system_tables;

/// A catalog on which statements are executed one after the other.
pub(crate) struct Session {
    pub catalog: Arc<Catalog>,
    keyspace: Option<&'static str>,
    statements: u128,
}

impl Session {
    /// A new node.
    pub fn new() -> Self {
        Self {
            catalog: Arc::new(system_tables::initial_catalog(Uuid::nil())),
            keyspace: Some("ks"),
            statements: 0,
        }
    }

    /// A node with the keyspace `ks`, in use, and the given tables and types.
    pub fn with(statements: &[&str]) -> Self {
        let mut session = Self::new();
        session.run(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        );
        for statement in statements {
            session.run(statement);
        }
        session
    }

    /// What the next statement takes from outside.
    fn context(&mut self) -> DdlContext {
        self.statements += 1;
        DdlContext {
            now_micros: 1_700_000_000_000_000,
            new_id: Uuid::from_u128(self.statements),
            new_version: Uuid::from_u128(self.statements << 64),
            data_centers: BTreeMap::from([("datacenter1".to_owned(), 1)]),
            user_functions: &crate::schema::test_catalog::EveryFunction,
            may_drop_compact_storage: true,
        }
    }

    pub fn try_run(&mut self, statement: &str) -> Result<Change> {
        let context = self.context();
        let statement = parse(statement).unwrap();
        let change = execute(&self.catalog, &statement, self.keyspace, &context)?;
        assert_eq!(change.effect.is_some(), change.catalog.version != self.catalog.version);
        self.catalog = change.catalog.clone();
        Ok(change)
    }

    pub fn run(&mut self, statement: &str) -> Change {
        self.try_run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    pub fn error(&mut self, statement: &str) -> String {
        match self.try_run(statement) {
            Ok(_) => panic!("{statement} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    pub fn table(&self, name: &str) -> &Table {
        self.catalog.table("ks", name).unwrap()
    }

    /// Asserts that every statement is refused with a text that contains the given one.
    pub fn refuses(&mut self, cases: &[(&str, &str)]) {
        for (statement, expected) in cases {
            let error = self.error(statement);
            assert!(error.contains(expected), "{statement}\n  expected: {expected}\n  got:      {error}");
        }
    }
}

fn column_names(table: &Table) -> Vec<&str> {
    table.columns.iter().map(|column| column.name.as_str()).collect()
}

#[test]
fn a_keyspace_is_created_altered_and_dropped() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let altered = session.run(
        "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3} AND durable_writes = false",
    );
    assert_eq!(altered.effect, Some(event(ChangeType::Updated, ChangeTarget::Keyspace, "ks", "")));
    // More replicas than nodes.
    assert_eq!(altered.warnings.len(), 1);
    let keyspace = session.catalog.keyspace("ks").unwrap();
    assert!(!keyspace.durable_writes);
    let data_centers = BTreeMap::from([("datacenter1".to_owned(), 3)]);
    assert_eq!(keyspace.replication, Replication::NetworkTopology { data_centers });

    let id = session.table("t").id;
    let dropped = session.run("DROP KEYSPACE ks");
    assert!(matches!(dropped.table_actions.as_slice(), [TableAction::Drop(dropped)] if *dropped == id));
    assert!(session.catalog.keyspace("ks").is_none());
}

#[test]
fn keyspace_statements_that_are_refused() {
    let mut session = Session::with(&[]);
    let simple = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    session.refuses(&[
        (&format!("CREATE KEYSPACE ks WITH {simple}"), "Cannot add existing keyspace \"ks\""),
        (&format!("CREATE KEYSPACE {} WITH {simple}", "k".repeat(49)), "more than 48 characters long"),
        ("CREATE KEYSPACE other WITH durable_writes = true", "Missing mandatory option 'replication'"),
        ("CREATE KEYSPACE other WITH wrong = true", "Unknown property 'wrong'"),
        ("ALTER KEYSPACE other WITH durable_writes = true", "Keyspace 'other' doesn't exist"),
        ("DROP KEYSPACE other", "Keyspace 'other' doesn't exist"),
        ("DROP KEYSPACE system", "system keyspace is not user-modifiable."),
        ("ALTER KEYSPACE system_schema WITH durable_writes = false", "not user-modifiable"),
        ("DROP TABLE system_auth.roles", "system_auth keyspace is not user-modifiable."),
    ]);
    assert!(matches!(session.try_run("DROP KEYSPACE system"), Err(RequestError::Unauthorized(_))));
    session.run("ALTER KEYSPACE system_auth WITH durable_writes = false");
}

#[test]
fn if_exists_and_if_not_exists_make_no_change() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TYPE p (x int)"]);
    for statement in [
        "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy'}",
        "DROP KEYSPACE IF EXISTS other",
        "CREATE TABLE IF NOT EXISTS t (a int PRIMARY KEY)",
        "DROP TABLE IF EXISTS other.t",
        "ALTER TABLE IF EXISTS other ADD v int",
        "ALTER TABLE t ADD IF NOT EXISTS v int",
        "ALTER TABLE t DROP IF EXISTS w",
        "ALTER TABLE t WITH comment = ''",
        "CREATE TYPE IF NOT EXISTS p (y text)",
        "DROP TYPE IF EXISTS q",
        "ALTER TYPE p ADD IF NOT EXISTS x int",
        "DROP INDEX IF EXISTS j",
        "DROP MATERIALIZED VIEW IF EXISTS v",
        "DROP FUNCTION IF EXISTS f",
        "DROP TRIGGER IF EXISTS x ON t",
    ] {
        let change = session.run(statement);
        assert!(change.effect.is_none() && change.table_actions.is_empty(), "{statement}");
    }
}

#[test]
fn a_table_has_its_columns_in_order_with_their_kinds() {
    let mut session = Session::with(&[]);
    let created = session.run(
        "CREATE TABLE t (z int, s text STATIC, c2 int, a int, c1 timeuuid, k2 text, k1 int, \
         PRIMARY KEY ((k1, k2), c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC) AND comment = 'x'",
    );
    assert_eq!(created.effect, Some(event(ChangeType::Created, ChangeTarget::Table, "ks", "t")));
    assert!(matches!(created.table_actions.as_slice(), [TableAction::Create(_)]));
    let table = session.table("t");
    assert_eq!(column_names(table), ["k1", "k2", "c1", "c2", "s", "a", "z"]);
    assert_eq!((table.partition_key_count, table.clustering_key_count), (2, 2));
    assert_eq!(table.columns[2].kind, ColumnKind::Clustering { position: 0, descending: true });
    assert_eq!(table.columns[4].kind, ColumnKind::Static);
    assert_eq!(table.next_column_id, 7);
    assert_eq!(table.options.comment, "x");
}

#[test]
fn an_id_may_be_chosen_once() {
    let id = "5bc52802-de25-35ed-aeab-188eecebb091";
    let mut session = Session::with(&[&format!("CREATE TABLE t (k int PRIMARY KEY) WITH id = '{id}'")]);
    assert_eq!(session.table("t").id.to_string(), id);
    let again = session.error(&format!("CREATE TABLE u (k int PRIMARY KEY) WITH id = '{id}'"));
    assert!(again.contains("belongs to the table ks.t"));
}

#[test]
fn tables_that_are_refused() {
    let mut session = Session::with(&[
        "CREATE TABLE there (k int PRIMARY KEY)",
        "CREATE TYPE nested (l list<int>)",
        "CREATE TYPE timed (d duration)",
    ]);
    session.refuses(&[
        (
            "CREATE TABLE there (k int PRIMARY KEY)",
            "Cannot add already existing table \"there\" to keyspace \"ks\"",
        ),
        ("CREATE TABLE other.t (k int PRIMARY KEY)", "Keyspace 'other' doesn't exist"),
        ("CREATE TABLE t (k int)", "No PRIMARY KEY"),
        ("CREATE TABLE t (k int PRIMARY KEY, c int PRIMARY KEY)", "Multiple PRIMARY KEY"),
        ("CREATE TABLE t (k int PRIMARY KEY, k text)", "Duplicate column 'k' declaration for table 't'"),
        (
            "CREATE TABLE t (k int, PRIMARY KEY (k, c))",
            "Unknown column 'c' referenced in PRIMARY KEY for table 't'",
        ),
        (
            "CREATE TABLE t (k int, PRIMARY KEY (k, k))",
            "Duplicate column 'k' in PRIMARY KEY clause for table 't'",
        ),
        (
            "CREATE TABLE t (k list<int> PRIMARY KEY)",
            "Invalid non-frozen collection type list<int> for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE t (k nested PRIMARY KEY)",
            "Non-frozen UDTs with nested non-frozen collections are not supported",
        ),
        (
            "CREATE TABLE t (k timed PRIMARY KEY)",
            "Invalid non-frozen user-defined type timed for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE t (k counter PRIMARY KEY)",
            "counter type is not supported for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE t (k duration PRIMARY KEY)",
            "duration type is not supported for PRIMARY KEY column 'k'",
        ),
        (
            "CREATE TABLE t (k frozen<map<text, list<tuple<int, duration>>>> PRIMARY KEY)",
            "duration type is not supported for PRIMARY KEY column 'k'",
        ),
        ("CREATE TABLE t (k frozen<timed> PRIMARY KEY)", "duration type is not supported"),
        (
            "CREATE TABLE t (k int, c int STATIC, PRIMARY KEY (k, c))",
            "Static column 'c' cannot be part of the PRIMARY KEY",
        ),
        (
            "CREATE TABLE t (k int PRIMARY KEY, s int STATIC)",
            "Static columns are only useful (and thus allowed)",
        ),
        ("CREATE TABLE t (k int PRIMARY KEY, v nothing)", "Unknown type ks.nothing"),
        (
            "CREATE TABLE t (k int PRIMARY KEY, v int, c counter)",
            "Cannot mix counter and non counter columns in the same table",
        ),
        (
            "CREATE TABLE t (k int PRIMARY KEY, c counter) WITH default_time_to_live = 5",
            "Cannot set default_time_to_live on a table with counters",
        ),
        (
            "CREATE TABLE \"a-b\" (k int PRIMARY KEY)",
            "Table name must not be empty or not contain non-alphanumeric-underscore characters",
        ),
        (
            "CREATE TABLE t (k int PRIMARY KEY) WITH default_validation = int",
            "Unknown property 'default_validation'",
        ),
        (
            "CREATE TABLE t (k int PRIMARY KEY) WITH CLUSTERING ORDER BY (k DESC)",
            "Only clustering key columns can be defined",
        ),
    ]);
    let mut order = |order: &str| {
        session.error(&format!(
            "CREATE TABLE t (k int, a int, b int, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY ({order})"
        ))
    };
    assert_eq!(order("b DESC"), "Missing CLUSTERING ORDER for column a");
    assert!(order("b ASC, a DESC").ends_with("(a must appear before b)"));
    assert!(order("a ASC, b DESC, c ASC").starts_with("Only clustering key columns"));
    assert!(order("a ASC, a DESC").starts_with("Duplicate column 'a' in CLUSTERING ORDER BY clause"));
}

#[test]
fn types_are_resolved_and_impossible_ones_refused() {
    let mut session = Session::with(&["CREATE TYPE p (x int, y int)"]);
    let good = [
        ("list<int>", "list<int>"),
        ("varchar", "text"),
        ("frozen<list<list<int>>>", "frozen<list<frozen<list<int>>>>"),
        ("list<frozen<p>>", "list<frozen<p>>"),
        ("map<text, frozen<set<int>>>", "map<text, frozen<set<int>>>"),
        ("set<tuple<int, text>>", "set<frozen<tuple<int, text>>>"),
        ("p", "p"),
        ("ks.p", "p"),
        ("vector<float, 3>", "vector<float, 3>"),
        ("'org.apache.cassandra.db.marshal.Int32Type'", "int"),
        ("'UTF8Type'", "text"),
    ];
    for (number, (written, shown)) in good.iter().enumerate() {
        session.run(&format!("CREATE TABLE t{number} (k int PRIMARY KEY, v {written})"));
        let table = session.table(&format!("t{number}"));
        assert_eq!(table.column("v").unwrap().column_type.to_string(), *shown, "{written}");
    }
    let bad = [
        ("list<set<int>>", "Non-frozen collections are not allowed inside collections: list<set<int>>"),
        ("map<int, p>", "Non-frozen UDTs are not allowed inside collections: map<int, p>"),
        ("list<counter>", "Counters are not allowed inside collections: list<counter>"),
        ("tuple<int, counter>", "Counters are not allowed inside tuples"),
        ("map<duration, text>", "Durations are not allowed as map keys: map<duration, text>"),
        ("set<duration>", "Durations are not allowed inside sets: set<duration>"),
        ("frozen<set<duration>>", "Durations are not allowed inside sets: frozen<set<duration>>"),
        ("frozen<int>", "frozen<> is only allowed on collections, tuples, and user-defined types (got int)"),
        ("vector<float, 0>", "vectors may only have positive dimensions; given 0"),
        ("other.p", "Statement on keyspace ks cannot refer to a user type in keyspace other"),
        ("'Nothing'", "Error setting type Nothing: Unable to find abstract-type class"),
    ];
    for (written, expected) in bad {
        let statement = format!("CREATE TABLE t (k int PRIMARY KEY, v {written})");
        // The parser already refuses some of these.
        let Ok(parsed) = parse(&statement) else { continue };
        let error = match execute(&session.catalog, &parsed, Some("ks"), &context()) {
            Ok(_) => panic!("{written} was accepted"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with(expected), "{written}: {error}");
    }
}

fn context() -> DdlContext {
    DdlContext {
        now_micros: 0,
        new_id: Uuid::from_u128(u128::MAX),
        new_version: Uuid::from_u128(10),
        data_centers: BTreeMap::new(),
        user_functions: &crate::schema::test_catalog::EveryFunction,
        may_drop_compact_storage: false,
    }
}

#[test]
fn columns_are_dropped_and_added_again_with_their_ids() {
    let mut session = Session::with(&["CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))"]);
    session.run("ALTER TABLE t ADD (b list<int>, a int STATIC)");
    assert_eq!(column_names(session.table("t")), ["k", "c", "a", "b", "v"]);
    let changed = session.run("ALTER TABLE t DROP (a, b)");
    assert!(matches!(changed.table_actions.as_slice(), [TableAction::Alter(_)]));
    session.run("ALTER TABLE t DROP v USING TIMESTAMP 20000");
    session.run("ALTER TABLE t ADD b list<int>");
    let table = session.table("t");
    assert_eq!(column_names(table), ["k", "c", "b"]);
    assert_eq!(table.column("b").unwrap().id, 3);
    assert_eq!(table.dropped_columns.len(), 3);
    assert_eq!(table.dropped_columns[0].dropped_at_micros, 1_700_000_000_000_000);
    assert_eq!(table.dropped_columns[2].dropped_at_micros, 20_000);
    assert_eq!(table.hidden_until(3), Some(1_700_000_000_000_000));
    session.run("ALTER TABLE t DROP b USING TIMESTAMP 30000");
    session.run("ALTER TABLE t ADD (n int, b list<int>)");
    let table = session.table("t");
    assert_eq!((table.column("b").unwrap().id, table.column("n").unwrap().id), (3, 5));
    assert_eq!(table.hidden_until(3), Some(30_000), "the latest drop counts");
    assert_eq!(table.hidden_until(5), None);
}

#[test]
fn keys_are_renamed_and_options_altered() {
    let mut session = Session::with(&["CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))"]);
    session.run("ALTER TABLE t RENAME k TO key AND c TO clustering");
    assert_eq!(column_names(session.table("t")), ["key", "clustering", "v"]);
    session.run(
        "ALTER TABLE t WITH gc_grace_seconds = 5 AND compaction = {'class': 'LeveledCompactionStrategy'}",
    );
    let options = &session.table("t").options;
    assert_eq!(options.gc_grace_seconds, 5);
    assert_eq!(options.compaction.class.simple_name(), "LeveledCompactionStrategy");
}

#[test]
fn alterations_that_are_refused() {
    let mut session = Session::with(&[
        "CREATE TYPE p (x int)",
        "CREATE TYPE q (l list<int>)",
        "CREATE TABLE t (k int, c int, v text, u p, d list<text>, s int STATIC, w int, PRIMARY KEY (k, c))",
        "CREATE TABLE n (k int PRIMARY KEY, c counter, d counter)",
        "ALTER TABLE t ADD (e set<ascii>, f set<int>, g map<text, int>)",
        "ALTER TABLE t DROP (d, s, w, e, f, g)",
        "ALTER TABLE n DROP d",
    ]);
    session.refuses(&[
        ("ALTER TABLE missing ADD a int", "Table 'ks.missing' doesn't exist"),
        ("ALTER TABLE t ADD v int", "Column with name 'v' already exists"),
        ("ALTER TABLE t ADD (a int, a int)", "Column with name 'a' already exists"),
        ("ALTER TABLE t ADD x q", "nested non-frozen collections are not supported for column x"),
        ("ALTER TABLE t ADD x counter", "Cannot have a counter column (\"x\") in a non counter table"),
        ("ALTER TABLE n ADD x int", "Cannot have a non counter column (\"x\") in a counter table"),
        ("ALTER TABLE n ADD s counter STATIC", "Static columns are only useful (and thus allowed)"),
        (
            "ALTER TABLE t ADD d map<int, int>",
            "Cannot re-add previously dropped column 'd' of type map<int, int>, incompatible with previous type list<text>",
        ),
        (
            "ALTER TABLE t ADD s int",
            "Cannot re-add previously dropped column 's' of kind REGULAR, incompatible with previous kind STATIC",
        ),
        (
            "ALTER TABLE t ADD w int STATIC",
            "Cannot re-add previously dropped column 'w' of kind STATIC, incompatible with previous kind REGULAR",
        ),
        (
            "ALTER TABLE t ADD f set<varint>",
            "Cannot re-add previously dropped column 'f' of type set<varint>, incompatible with previous type set<int>",
        ),
        (
            "ALTER TABLE t ADD g map<ascii, int>",
            "Cannot re-add previously dropped column 'g' of type map<ascii, int>, incompatible with previous type map<text, int>",
        ),
        ("ALTER TABLE n ADD d counter", "Cannot re-add previously dropped counter column d"),
        ("ALTER TABLE t DROP missing", "Column missing was not found in table 'ks.t'"),
        ("ALTER TABLE t DROP k", "Cannot drop PRIMARY KEY column k"),
        ("ALTER TABLE t DROP u", "Cannot drop non-frozen column u of user type p"),
        ("ALTER TABLE t RENAME v TO x", "Cannot rename non PRIMARY KEY column v"),
        ("ALTER TABLE t RENAME k TO v", "another column with that name already exists"),
        ("ALTER TABLE t RENAME missing TO x", "Undefined column name missing in table ks.t"),
        ("ALTER TABLE t ALTER k TYPE blob", "Altering column types is no longer supported"),
        ("ALTER TABLE n WITH default_time_to_live = 5", "Cannot set default_time_to_live on a table with counters"),
        ("ALTER TABLE t WITH id = '5bc52802-de25-35ed-aeab-188eecebb091'", "Cannot alter table id."),
        ("ALTER TABLE system.local ADD a int", "system keyspace is not user-modifiable."),
        ("DROP TABLE missing", "Table 'ks.missing' doesn't exist"),
    ]);
    session.run("ALTER TABLE t ADD (e set<text>, g map<blob, varint>)");
}

#[test]
fn a_type_is_altered_wherever_it_is_used() {
    let mut session = Session::with(&[
        "CREATE TYPE inner (x int)",
        "CREATE TYPE outer (i frozen<inner>, l list<int>)",
        "CREATE TABLE t (k int PRIMARY KEY, v frozen<list<frozen<outer>>>)",
        "CREATE TABLE unrelated (k int PRIMARY KEY)",
    ]);
    let changed = session.run("ALTER TYPE inner ADD y text");
    assert_eq!(changed.effect, Some(event(ChangeType::Updated, ChangeTarget::Type, "ks", "inner")));
    assert!(matches!(changed.table_actions.as_slice(), [TableAction::Alter(table)] if table.name == "t"));
    session.run("ALTER TYPE inner RENAME x TO z");
    let keyspace = session.catalog.keyspace("ks").unwrap();
    let inner = keyspace.user_type("inner").unwrap();
    assert_eq!(inner.field_index("z"), Some(0));
    assert_eq!(inner.field_index("y"), Some(1));
    let in_table = |candidate: &cql_lite::types::CqlType| matches!(candidate, cql_lite::types::CqlType::UserType { definition, .. } if definition == inner);
    assert!(session.table("t").columns[1].column_type.any(&in_table));
}

#[test]
fn types_that_are_refused() {
    let mut session = Session::with(&[
        "CREATE TYPE p (x int)",
        "CREATE TYPE q (p frozen<p>)",
        "CREATE TABLE t (k frozen<q> PRIMARY KEY, v int)",
        "CREATE TYPE free (x int)",
    ]);
    session.refuses(&[
        ("CREATE TYPE p (y int)", "A user type with name 'p' already exists"),
        ("CREATE TYPE r (a int, a int)", "Duplicate field name 'a' in type 'r'"),
        ("CREATE TYPE r (a counter)", "A user type cannot contain counters"),
        ("CREATE TYPE r (a p)", "A user type cannot contain non-frozen UDTs"),
        ("CREATE TYPE r (a frozen<missing>)", "Unknown type ks.missing"),
        ("ALTER TYPE missing ADD a int", "Type ks.missing doesn't exist"),
        ("ALTER TYPE p ADD x int", "a field with name x already exists"),
        ("ALTER TYPE free ADD f frozen<list<frozen<free>>>", "would create a circular reference"),
        ("ALTER TYPE p ADD q frozen<q>", "would create a circular reference"),
        (
            "ALTER TYPE p ADD y int",
            "as the type is being used in partition key by the following tables: ks.t",
        ),
        ("ALTER TYPE p RENAME a TO b", "Unknown field a in user type ks.p"),
        ("ALTER TYPE p ALTER x TYPE text", "Altering field types is no longer supported"),
        ("DROP TYPE missing", "Type 'ks.missing' doesn't exist"),
        ("DROP TYPE p", "Cannot drop user type 'ks.p' as it is still used by user types q"),
        ("DROP TYPE q", "Cannot drop user type 'ks.q' as it is still used by tables t"),
    ]);
    session.run("DROP TYPE free");
}

#[test]
fn unsupported_features_are_named() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    session.refuses(&[
        (
            "CREATE MATERIALIZED VIEW w AS SELECT * FROM t WHERE k IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, k)",
            "Materialized views are not supported by Helenus yet",
        ),
        ("DROP MATERIALIZED VIEW w", "Materialized view 'ks.w' doesn't exist"),
        (
            "CREATE FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return a;'",
            "Language 'java' is not supported: user-defined functions are written in Lua (LANGUAGE lua)",
        ),
        ("CREATE AGGREGATE a (int) SFUNC f STYPE int", "State function ks.f(int, int) doesn't exist"),
        ("DROP FUNCTION f", "Function 'ks.f' doesn't exist"),
        ("CREATE TRIGGER x ON t USING 'X'", "Triggers are not supported by Helenus yet"),
        ("CREATE ROLE r", "does not change the schema"),
        ("SELECT * FROM t", "does not change the schema"),
    ]);
}

#[test]
fn a_name_without_a_keyspace_needs_one_in_use() {
    let catalog = system_tables::initial_catalog(Uuid::nil());
    let statement = parse("CREATE TABLE t (k int PRIMARY KEY)").unwrap();
    let error = execute(&catalog, &statement, None, &context()).unwrap_err();
    assert!(error.to_string().starts_with("No keyspace has been specified. USE a keyspace"));
}

#[test]
fn a_mask_with_a_value_that_is_too_large_is_refused() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let column = "v vector<frozen<vector<frozen<vector<int, 8000>>, 8000>>, 8000> MASKED WITH DEFAULT";
    let refusal = "its value has more than 1048576 bytes";
    session.refuses(&[
        (&format!("CREATE TABLE u (k int PRIMARY KEY, {column})"), refusal),
        (&format!("ALTER TABLE t ADD {column}"), refusal),
    ]);
}

#[test]
fn constraints_have_bounds() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY, v text, n int)"]);
    let unequal = |count: usize| (0..count).map(|n| format!("n != {n}")).collect::<Vec<_>>().join(" AND ");
    session.run(&format!("ALTER TABLE t ALTER n CHECK {}", unequal(64)));
    let patterns =
        |count: usize| (0..count).map(|n| format!("REGEXP() != '{n}'")).collect::<Vec<_>>().join(" AND ");
    session.run(&format!("ALTER TABLE t ALTER v CHECK {}", patterns(64)));
    let many = |count: usize| {
        let columns = (0..count).map(|n| format!("v{n} text CHECK {}", patterns(5)));
        columns.collect::<Vec<_>>().join(", ")
    };
    let long = "x".repeat(70_000);
    session.refuses(&[
        (
            &format!("ALTER TABLE t ALTER n CHECK {}", unequal(65)),
            "Column 'n' has 65 constraints; at most 64 are possible",
        ),
        (
            &format!("ALTER TABLE t ALTER v CHECK REGEXP() = '{long}'"),
            "The constants in the constraints of column 'v' have 70000 bytes; at most 65536 are possible",
        ),
        (
            "ALTER TABLE t ALTER v CHECK REGEXP() = '((\\w{100}){100}){100}'",
            "is too large: it takes more than 1048576 bytes when it is compiled",
        ),
        ("ALTER TABLE t ALTER v CHECK REGEXP() = '('", "String '(' is not a valid regular expression"),
        (
            "ALTER TABLE t ADD w text CHECK REGEXP() = 'a'",
            "Table t has 65 constraints with regular expressions; at most 64 are possible",
        ),
        (
            &format!("CREATE TABLE u (k int PRIMARY KEY, {})", many(13)),
            "The statement has 65 constraints with regular expressions; at most 64 are possible",
        ),
    ]);
}

#[test]
fn the_extensions_of_a_table_have_a_bound() {
    let mut session = Session::with(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let context = session.context();
    let set = |catalog: &Catalog, bytes: usize| {
        set_extensions(catalog, "ks", "t", &BTreeMap::from([("a".to_owned(), vec![0; bytes])]), &context)
    };
    assert!(set(&session.catalog, (1 << 20) - 1).is_ok());
    let refusal = set(&session.catalog, 1 << 20).unwrap_err().to_string();
    assert_eq!(refusal, "The extensions of table t have 1048577 bytes; at most 1048576 are possible");
}
