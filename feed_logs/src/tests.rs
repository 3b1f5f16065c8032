//! Logs after statements about their base tables.

use std::sync::Arc;

use cql_lite::syntax;
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, EveryFunction, KEYSPACE, catalog_of};
use uuid::Uuid;

use super::*;

/// A catalog to which statements are done, one after the other.
struct Schema {
    catalog: Arc<Catalog>,
    statements: u128,
}

impl Schema {
    fn of(statements: &[&str]) -> Self {
        let mut schema = Self { catalog: catalog_of(&[CREATE_KEYSPACE]).catalog, statements: 1 };
        for statement in statements {
            schema.run(statement).unwrap();
        }
        schema
    }

    fn run(&mut self, text: &str) -> Result<()> {
        self.statements += 1;
        let context = DdlContext {
            now_micros: 1_700_000_000_000_000,
            new_id: Uuid::from_u128(self.statements),
            new_version: Uuid::from_u128(self.statements << 64),
            data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
            user_functions: &EveryFunction,
            may_drop_compact_storage: true,
        };
        let statement = syntax::parse(text).unwrap();
        let change = ddl::execute(&self.catalog, &statement, Some(KEYSPACE), &context)?;
        self.catalog = followed(&self.catalog, change, &context)?.catalog;
        Ok(())
    }

    fn error(&mut self, text: &str) -> String {
        self.run(text).unwrap_err().to_string()
    }

    fn log(&self, base: &str) -> Option<&Arc<Table>> {
        self.catalog.keyspace(KEYSPACE).unwrap().feed_log(base)
    }

    /// The names of the columns of a log behind those that all logs have, with their ids.
    fn columns(&self, base: &str) -> Vec<(String, u32)> {
        let log = self.log(base).unwrap();
        let own = log.columns.iter().filter(|column| !META.contains(&column.name.as_str()));
        own.map(|column| (column.name.clone(), column.id)).collect()
    }
}

const META: [&str; 6] = [
    columns::STREAM_ID,
    columns::TIME,
    columns::BATCH_SEQ_NO,
    columns::OPERATION,
    columns::TTL,
    columns::END_OF_BATCH,
];
const TABLE: &str =
    "CREATE TABLE t (p int, c int, s text static, v list<int>, PRIMARY KEY (p, c)) WITH cdc = true";

#[test]
fn a_table_with_a_feed_has_a_log_whose_files_expire() {
    let schema = Schema::of(&[TABLE]);
    let log = schema.log("t").unwrap();
    assert_eq!((log.partition_key_count, log.clustering_key_count), (1, 2));
    let key: Vec<String> =
        log.columns[..3].iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    assert_eq!(key, ["cdc$stream_id blob", "cdc$time timeuuid", "cdc$batch_seq_no int"]);
    let names: Vec<String> = schema.columns("t").into_iter().map(|(name, _)| name).collect();
    let expected =
        ["c", "cdc$deleted_elements_v", "cdc$deleted_s", "cdc$deleted_v", "p", "s", "v"].map(str::to_owned);
    assert_eq!(names, expected);
    assert!(log.columns.iter().all(|column| !column.is_static()));
    let options = &log.options;
    assert_eq!((options.gc_grace_seconds, options.comment.as_str()), (0, "CDC log for ks.t"));
    let compaction = options.compaction.to_map();
    assert_eq!(
        (&*compaction["compaction_window_size"], &*compaction["compaction_window_unit"]),
        ("60", "MINUTES")
    );
    assert_ne!(log.id, schema.catalog.table(KEYSPACE, "t").unwrap().id);
}

#[test]
fn a_log_follows_the_columns_of_its_base_table() {
    let mut schema = Schema::of(&[TABLE]);
    let before = schema.columns("t");
    let id = |columns: &[(String, u32)], name: &str| {
        columns.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    };
    schema.run("ALTER TABLE t ADD w int").unwrap();
    let added = schema.columns("t");
    assert!(before.iter().all(|column| added.contains(column)));
    assert!(id(&added, "w").is_some() && id(&added, "cdc$deleted_w").is_some());
    schema.run("ALTER TABLE t RENAME c TO d").unwrap();
    assert_eq!(id(&schema.columns("t"), "d"), id(&added, "c"));
    schema.run("ALTER TABLE t DROP w").unwrap();
    assert_eq!(id(&schema.columns("t"), "w"), None);
    assert_eq!(schema.log("t").unwrap().dropped_columns.len(), 2);
    // It comes back with what it had, and the same id.
    schema.run("ALTER TABLE t ADD w int").unwrap();
    assert_eq!(id(&schema.columns("t"), "w"), id(&added, "w"));
}

#[test]
fn a_log_stays_until_either_table_is_dropped() {
    let mut schema = Schema::of(&[TABLE, "ALTER TABLE t WITH cdc = {'enabled': 'false'}"]);
    let id = schema.log("t").unwrap().id;
    schema.run("ALTER TABLE t ADD w int").unwrap();
    schema.run("ALTER TABLE t WITH cdc = {'enabled': true, 'ttl': 0}").unwrap();
    assert_eq!(schema.log("t").unwrap().id, id);
    assert!(schema.columns("t").iter().any(|(name, _)| name == "w"));
    assert_eq!(schema.error("DROP TABLE t_scylla_cdc_log"), "Cannot DROP cdc log table t_scylla_cdc_log");
    schema.run("ALTER TABLE t WITH cdc = false").unwrap();
    schema.run("DROP TABLE t_scylla_cdc_log").unwrap();
    assert!(schema.log("t").is_none());
    schema.run("ALTER TABLE t WITH cdc = true").unwrap();
    assert_ne!(schema.log("t").unwrap().id, id);
    schema.run("DROP TABLE t").unwrap();
    assert!(schema.log("t").is_none());
    assert!(schema.catalog.table(KEYSPACE, "t_scylla_cdc_log").is_none());
}

#[test]
fn what_cannot_be_is_refused_in_scylladbs_words() {
    let mut schema = Schema::of(&[
        TABLE,
        "CREATE TABLE n (k int PRIMARY KEY, c counter)",
        "CREATE TABLE u (k int PRIMARY KEY)",
        "CREATE TABLE u_scylla_cdc_log (k int PRIMARY KEY)",
    ]);
    assert_eq!(
        schema.error("ALTER TABLE n WITH cdc = true"),
        "Cannot create CDC log for table ks.n. Counter support not implemented"
    );
    assert_eq!(
        schema.error("ALTER TABLE u WITH cdc = true"),
        "Cannot create CDC log table for table ks.u because a table of name ks.u_scylla_cdc_log already exists"
    );
    let log = "t_scylla_cdc_log";
    for change in ["ADD x int", "DROP v", "RENAME \"cdc$time\" TO x"] {
        assert_eq!(
            schema.error(&format!("ALTER TABLE {log} {change}")),
            "You cannot modify the set of columns of a CDC log table directly. Modify the base table instead."
        );
    }
    schema.run(&format!("ALTER TABLE {log} WITH gc_grace_seconds = 5")).unwrap();
    assert_eq!(schema.log("t").unwrap().options.gc_grace_seconds, 5);
    assert!(schema.error(&format!("ALTER TABLE {log} WITH cdc = true")).contains("CDC log table"));
    assert!(schema.error(&format!("CREATE INDEX ON {log} (s)")).starts_with("Secondary indexes"));
    let long = format!("CREATE TABLE {} (k int PRIMARY KEY) WITH cdc = true", "x".repeat(215));
    assert!(schema.error(&long).contains("Table name must not be more than 222 characters long"));
    let clash = "CREATE TABLE w (k int PRIMARY KEY, \"cdc$time\" int) WITH cdc = true";
    assert!(schema.error(clash).ends_with("two columns of the log would have the name cdc$time"));
}

#[test]
fn copies_of_a_base_table_and_of_a_log_are_tables_of_their_own() {
    let schema = Schema::of(&[TABLE, "CREATE TABLE copy LIKE t", "CREATE TABLE plain LIKE t_scylla_cdc_log"]);
    assert_ne!(schema.log("copy").unwrap().id, schema.log("t").unwrap().id);
    assert!(!schema.catalog.table(KEYSPACE, "plain").unwrap().options.is_feed_log);
}

#[test]
fn the_log_of_an_encrypted_table_is_encrypted() {
    let mut schema = Schema::of(&[TABLE, "ALTER TABLE t WITH encryption = {'enabled': true}"]);
    assert!(schema.log("t").unwrap().options.is_encrypted);
    let plain = "ALTER TABLE t_scylla_cdc_log WITH encryption = {'enabled': false}";
    assert!(schema.error(plain).contains("encrypted"));
}

#[test]
fn a_log_that_a_feed_has_left_follows_keys_and_encryption() {
    let mut schema = Schema::of(&[TABLE, "ALTER TABLE t WITH cdc = false"]);
    let id = |schema: &Schema, name: &str| schema.columns("t").into_iter().find(|(known, _)| known == name);
    let (_, before) = id(&schema, "p").unwrap();
    schema.run("ALTER TABLE t RENAME p TO q").unwrap();
    assert_eq!(id(&schema, "q"), Some(("q".to_owned(), before)));
    schema.run("ALTER TABLE t WITH encryption = {'enabled': true}").unwrap();
    assert!(schema.log("t").unwrap().options.is_encrypted);
    schema.run("ALTER TABLE t WITH cdc = true").unwrap();
    assert_eq!(id(&schema, "q"), Some(("q".to_owned(), before)));
}

#[test]
fn fields_that_a_user_type_gets_are_those_of_the_log_too() {
    let schema = Schema::of(&[
        "CREATE TYPE a (x int)",
        "CREATE TABLE t (k int PRIMARY KEY, f frozen<a>, u a) WITH cdc = true",
        "ALTER TYPE a ADD y text",
    ]);
    let log = schema.log("t").unwrap();
    for name in ["f", "u"] {
        let CqlType::UserType { definition, frozen: true } = &log.column(name).unwrap().column_type else {
            panic!("a frozen user type")
        };
        assert_eq!(definition.field_names.len(), 2);
    }
    assert!(log.dropped_columns.is_empty());
}
