//! Views after statements about them and their tables.

use std::sync::Arc;

use cql_lite::syntax;
use cql_lite::syntax::ast::Statement;
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::ddl::DdlContext;
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, EveryFunction, KEYSPACE, catalog_of};
use uuid::Uuid;

use crate::definition::{Definition, Source};
use crate::following::followed;
use crate::statement::{check_truncate, execute};
use crate::statements::Statements;

mod projections;
mod shown;

const TABLE: &str = "CREATE TABLE t (p int, c int, v int, w text, m map<int, int>, PRIMARY KEY (p, c))";
const VIEW: &str = "CREATE MATERIALIZED VIEW mv AS SELECT * FROM t WHERE p IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL \
                    PRIMARY KEY (v, p, c)";

/// A catalog to which statements are done, one after the other.
struct Schema {
    catalog: Arc<Catalog>,
    statements: u128,
}

impl Schema {
    fn of(statements: &[&str]) -> Self {
        let mut schema = Self { catalog: catalog_of(&[CREATE_KEYSPACE]).catalog, statements: 1 };
        for statement in statements {
            schema.run(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        schema
    }

    fn run(&mut self, text: &str) -> Result<()> {
        let statement = syntax::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        self.statements += 1;
        let context = DdlContext {
            now_micros: 1_700_000_000_000_000,
            new_id: Uuid::from_u128(self.statements),
            new_version: Uuid::from_u128(self.statements << 64),
            data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
            user_functions: &EveryFunction,
            may_drop_compact_storage: true,
        };
        let change = execute(&self.catalog, &statement, Some(KEYSPACE), &context)?;
        let change = helenus_feed_logs::followed(&self.catalog, change, &context)?;
        self.catalog = followed(&self.catalog, change, &context)?.catalog;
        Ok(())
    }

    fn error(&mut self, text: &str) -> String {
        self.run(text).unwrap_err().to_string()
    }

    fn table(&self, name: &str) -> Option<&Arc<Table>> {
        self.catalog.table(KEYSPACE, name)
    }

    fn hidden(&self) -> Vec<&str> {
        let tables = self.catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.filter(|table| table.is_hidden()).map(|table| table.name.as_str()).collect()
    }

    /// The columns of a table: names, types and kinds.
    fn columns(&self, name: &str) -> Vec<String> {
        let columns = self.table(name).unwrap().columns.iter();
        columns
            .map(|column| {
                let order = if column.is_descending() { " desc" } else { "" };
                format!("{} {} {}{order}", column.name, column.column_type, column.kind_name())
            })
            .collect()
    }

    fn definition(&self, view: &str) -> Definition {
        Definition::new(&self.catalog, self.table(view).unwrap()).unwrap()
    }
}

#[test]
fn a_materialized_view_has_the_columns_of_its_base_table_and_tables_beside_it() {
    let schema = Schema::of(&[TABLE, VIEW]);
    assert_eq!(
        schema.columns("mv"),
        [
            "v int partition_key",
            "p int clustering",
            "c int clustering",
            "m map<int, int> regular",
            "w text regular"
        ]
    );
    assert_eq!(schema.hidden(), ["mv$rows", "t$changes"]);
    assert_eq!(schema.columns("mv$rows"), ["u0 int partition_key", "u1 int clustering", "v0 int clustering"]);
    let log = schema.table("t$changes").unwrap();
    assert!(log.options.is_feed_log);
    assert_eq!((log.options.gc_grace_seconds, log.options.allow_auto_snapshot), (0, false));
    assert_eq!(log.column("cdc$time").unwrap().column_type.to_string(), "timeuuid");
    let definition = schema.definition("mv");
    assert_eq!(definition.unit_columns, 2);
    let sources: Vec<_> = definition.outputs.iter().map(|output| output.source.clone()).collect();
    let base = schema.table("t").unwrap();
    let of = |name: &str| Source::Base(base.column_index(name).unwrap());
    assert_eq!(sources, [of("v"), of("p"), of("c"), of("m"), of("w")]);
    assert!(definition.conditions_of_units.is_empty() && definition.conditions_of_rows.is_empty());
}

#[test]
fn views_are_declared_as_in_cassandra() {
    let mut schema = Schema::of(&[
        TABLE,
        "CREATE TABLE s (p int, c int, s int static, v int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
        "CREATE TABLE n (k int PRIMARY KEY, n counter)",
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    ]);
    let view = |rest: &str| format!("CREATE MATERIALIZED VIEW mv AS SELECT {rest}");
    let not_null = "p IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL";
    for (rest, error) in [
        ("* FROM x WHERE p IS NOT NULL PRIMARY KEY (p)".to_owned(), "Base table 'x' doesn't exist"),
        (
            "* FROM other.t WHERE p IS NOT NULL PRIMARY KEY (p)".to_owned(),
            "Cannot create a materialized view on a table in a different keyspace",
        ),
        (
            "* FROM n WHERE k IS NOT NULL PRIMARY KEY (k)".to_owned(),
            "Materialized views are not supported on counter tables",
        ),
        (
            format!("* FROM s WHERE {not_null} PRIMARY KEY (v, p, c)"),
            "Cannot include static column 's' in materialized view 'mv'",
        ),
        (
            format!("p, c, v, s FROM s WHERE {not_null} PRIMARY KEY (v, p, c)"),
            "Cannot include static column 's' in materialized view 'mv'",
        ),
        (
            format!("p, c FROM t WHERE {not_null} PRIMARY KEY (v, p, c)"),
            "Unknown column 'v' referenced in PRIMARY KEY for materialized view 'mv'",
        ),
        (
            format!("p, c, v AS x FROM t WHERE {not_null} PRIMARY KEY (p, c)"),
            "Cannot use aliases when defining a materialized view (got v as x)",
        ),
        (
            format!("p, c, v + 1 FROM t WHERE {not_null} PRIMARY KEY (p, c)"),
            "Can only select columns by name when defining a materialized view (got v + 1)",
        ),
        (
            format!("* FROM t WHERE {not_null} PRIMARY KEY (v, p)"),
            "Cannot create materialized view 'mv' without primary key columns c from base table 't'",
        ),
        (
            format!("* FROM t WHERE {not_null} AND w IS NOT NULL PRIMARY KEY (v, w, p, c)"),
            "Cannot include more than one non-primary key column in materialized view primary key (got v, w)",
        ),
        (
            format!("* FROM t WHERE {not_null} PRIMARY KEY (v, p, p, c)"),
            "Duplicate column 'p' in PRIMARY KEY clause for materialized view 'mv'",
        ),
        (
            format!("* FROM t WHERE {not_null} AND m IS NOT NULL PRIMARY KEY (m, p, c)"),
            "Invalid non-frozen collection type map<int, int> for PRIMARY KEY column 'm'",
        ),
        (
            "* FROM t WHERE p IS NOT NULL PRIMARY KEY (v, p, c)".to_owned(),
            "Primary key columns c, v must be restricted with 'IS NOT NULL' or otherwise",
        ),
        (
            format!("* FROM t WHERE {not_null} AND w = 'a' PRIMARY KEY (v, p, c)"),
            "Non-primary key columns can only be restricted with 'IS NOT NULL' (got: w restricted illegally)",
        ),
        (
            format!("* FROM t WHERE {not_null} AND token(p) > 5 PRIMARY KEY (v, p, c)"),
            "Cannot use token relation when defining a materialized view",
        ),
        (
            format!("* FROM t WHERE {not_null} PRIMARY KEY (v, p, c) WITH CLUSTERING ORDER BY (c DESC)"),
            "Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive",
        ),
        (
            format!("* FROM t WHERE {not_null} PRIMARY KEY (v, p, c) WITH default_time_to_live = 5"),
            "Cannot set default_time_to_live for a materialized view. Data in a materialized view always expire at the same time \
             than the corresponding data in the parent table.",
        ),
        (
            format!("* FROM t WHERE {not_null} PRIMARY KEY (v, p, c) WITH cdc = true"),
            "cdc is not supported on a materialized view: its base table can have a change feed",
        ),
    ] {
        assert_eq!(schema.error(&view(&rest)), error, "{rest}");
    }
    // The order of the base table is that of the view, if none is given.
    schema.run(&view(&format!("p, c, v FROM s WHERE {not_null} PRIMARY KEY (v, p, c)"))).unwrap();
    assert_eq!(schema.columns("mv"), ["v int partition_key", "p int clustering", "c int clustering desc"]);
    assert_eq!(
        schema.error(&view("* FROM mv WHERE p IS NOT NULL PRIMARY KEY (p)").replace("VIEW mv", "VIEW w")),
        "Materialized views cannot be created against other materialized views"
    );
    schema.run(&VIEW.replace("VIEW mv", "VIEW IF NOT EXISTS mv")).unwrap();
    assert!(schema.error(VIEW).contains("existing table ks.mv") || schema.error(VIEW).contains("mv"));
    assert_eq!(
        schema.error(&VIEW.replace("VIEW mv", "VIEW t")),
        "Cannot create materialized view 't' - a table with the same name already exists"
    );
    assert_eq!(
        schema.error(
            "CREATE MATERIALIZED VIEW system.v AS SELECT * FROM local WHERE key IS NOT NULL PRIMARY KEY (key)"
        ),
        "System keyspace 'system' is not user-modifiable"
    );
    assert!(schema.error(&VIEW.replace("VIEW mv", "VIEW \"a$b\"")).contains("non-alphanumeric-underscore"));
    assert!(
        schema
            .error("CREATE TABLE \"t$changes\" (k int PRIMARY KEY)")
            .contains("non-alphanumeric-underscore")
    );
}

#[test]
fn conditions_are_of_units_or_of_rows() {
    let mut schema = Schema::of(&[TABLE]);
    schema
        .run(
            "CREATE MATERIALIZED VIEW mv AS SELECT p, c, v FROM t WHERE p IN (1, 2) AND c > 3 AND v IS NOT NULL AND w IS NOT NULL \
             PRIMARY KEY (c, p)",
        )
        .unwrap();
    let definition = schema.definition("mv");
    let texts = |conditions: &[crate::definition::Condition]| -> Vec<String> {
        conditions.iter().map(|condition| condition.relation.to_string()).collect()
    };
    assert_eq!(texts(&definition.conditions_of_units), ["p IN (1, 2)", "c > 3"]);
    assert_eq!(texts(&definition.conditions_of_rows), ["v IS NOT NULL", "w IS NOT NULL"]);
}

#[test]
fn tables_beside_views_go_with_the_last_view() {
    let mut schema = Schema::of(&[TABLE, VIEW, &VIEW.replace("mv", "other")]);
    assert_eq!(schema.hidden(), ["mv$rows", "other$rows", "t$changes"]);
    let log = schema.table("t$changes").unwrap().id;
    schema.run("DROP MATERIALIZED VIEW mv").unwrap();
    assert_eq!(schema.hidden(), ["other$rows", "t$changes"]);
    assert_eq!(schema.table("t$changes").unwrap().id, log);
    schema.run("DROP MATERIALIZED VIEW other").unwrap();
    assert!(schema.hidden().is_empty());
    schema.run("DROP MATERIALIZED VIEW IF EXISTS other").unwrap();
    assert_eq!(schema.error("DROP MATERIALIZED VIEW other"), "Materialized view 'ks.other' doesn't exist");
    assert_eq!(schema.error("DROP MATERIALIZED VIEW t"), "Materialized view 'ks.t' doesn't exist");
    schema.run(VIEW).unwrap();
    schema.run("DROP KEYSPACE ks").unwrap();
    assert!(schema.hidden().is_empty());
}

#[test]
fn views_follow_the_columns_of_their_base_table() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    schema
        .run("CREATE MATERIALIZED VIEW named AS SELECT v, p, c FROM t WHERE p IS NOT NULL AND c > 1 PRIMARY KEY (c, p)")
        .unwrap();
    let id =
        |schema: &Schema, view: &str, column: &str| schema.table(view).unwrap().column(column).unwrap().id;
    let before = (id(&schema, "mv", "c"), id(&schema, "mv", "w"));
    schema.run("ALTER TABLE t ADD x int").unwrap();
    assert!(schema.table("mv").unwrap().column("x").is_some());
    assert!(schema.table("named").unwrap().column("x").is_none());
    assert!(schema.table("t$changes").unwrap().column("x").is_some());
    schema.run("ALTER TABLE t ADD s int static").unwrap();
    assert!(schema.table("mv").unwrap().column("s").is_none());
    schema.run("ALTER TABLE t RENAME c TO d").unwrap();
    assert_eq!((id(&schema, "mv", "d"), id(&schema, "mv", "w")), before);
    assert_eq!(schema.columns("mv")[..3], ["v int partition_key", "p int clustering", "d int clustering"]);
    assert_eq!(schema.columns("named"), ["d int partition_key", "p int clustering", "v int regular"]);
    let statement = schema.table("named").unwrap().view.as_ref().unwrap().statement.to_string();
    assert_eq!(
        statement,
        "CREATE MATERIALIZED VIEW ks.named AS SELECT v, p, d FROM ks.t WHERE p IS NOT NULL AND d > 1 PRIMARY KEY (d, p)"
    );
    assert!(schema.table("t$changes").unwrap().column("d").is_some());
    assert!(schema.table("t$changes").unwrap().column("c").is_none());
    assert_eq!(schema.definition("named").conditions_of_units[0].relation.to_string(), "d > 1");
    assert_eq!(
        schema.error("ALTER TABLE t DROP w"),
        "Cannot drop column w on base table t with materialized views"
    );
    assert!(
        schema
            .error("ALTER TABLE t WITH gc_grace_seconds = 0")
            .starts_with("Cannot alter gc_grace_seconds of the base")
    );
}

#[test]
fn other_statements_cannot_change_views_and_what_is_beside_them() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    for (statement, error) in [
        (
            "ALTER TABLE mv ADD x int",
            "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead",
        ),
        (
            "DROP TABLE mv",
            "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead.",
        ),
        ("DROP TABLE t", "Cannot drop a table when materialized views still depend on it (mv)"),
        ("CREATE INDEX ON mv (w)", "Secondary indexes on materialized views aren't supported"),
        ("CREATE TABLE n LIKE mv", "Cannot use CREATE TABLE LIKE on a materialized view 'ks.mv'."),
        ("ALTER MATERIALIZED VIEW t WITH comment = 'a'", "Materialized view 'ks.t' doesn't exist"),
        ("DROP TABLE \"t$changes\"", "ks.t$changes is kept by the node for views, and cannot be dropped"),
        (
            "ALTER TABLE \"mv$rows\" ADD x int",
            "ks.mv$rows is kept by the node for views, and cannot be altered",
        ),
        (
            "CREATE INDEX ON \"mv$rows\" (v0)",
            "ks.mv$rows is kept by the node for views, and cannot be indexed",
        ),
        ("CREATE TABLE n LIKE \"mv$rows\"", "ks.mv$rows is kept by the node for views, and cannot be copied"),
    ] {
        assert_eq!(schema.error(statement), error, "{statement}");
    }
    let error = |name: &str| check_truncate(schema.table(name).unwrap()).unwrap_err().to_string();
    assert_eq!(error("mv"), "Cannot TRUNCATE materialized view directly; must truncate base table instead");
    assert_eq!(error("mv$rows"), "ks.mv$rows is kept by the node for views, and cannot be truncated");
    check_truncate(schema.table("t").unwrap()).unwrap();
}

#[test]
fn options_of_views_change_as_in_cassandra() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    schema.run("ALTER MATERIALIZED VIEW mv WITH comment = 'a' AND gc_grace_seconds = 100").unwrap();
    assert_eq!(schema.table("mv").unwrap().options.comment, "a");
    for (option, error) in [
        ("gc_grace_seconds = 0", "Cannot alter gc_grace_seconds of a materialized view to 0"),
        ("default_time_to_live = 5", "Forbidden default_time_to_live detected for a materialized view"),
        ("cdc = true", "cdc is not supported on a materialized view"),
        ("cap = 5", "A cap can only be given when a table is created"),
        ("rate_limit = {'max_reads_per_second': 5}", "Limits of rates are not supported"),
    ] {
        let text = schema.error(&format!("ALTER MATERIALIZED VIEW mv WITH {option}"));
        // The cap is refused in either of two places.
        assert!(text.starts_with(error) || text.starts_with("The cap of a"), "{text}");
    }
}

#[test]
fn encryption_reaches_views_and_what_is_beside_them() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    schema.run("ALTER TABLE t WITH encryption = {'enabled': 'true'}").unwrap();
    for table in ["mv", "mv$rows", "t$changes"] {
        assert!(schema.table(table).unwrap().options.is_encrypted, "{table}");
    }
    assert_eq!(
        schema.error("ALTER MATERIALIZED VIEW mv WITH encryption = {'enabled': 'false'}"),
        "A materialized view of an encrypted table is encrypted, and stays so"
    );
}

#[test]
fn masks_are_those_of_the_base_table() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    schema.run("ALTER TABLE t ALTER w MASKED WITH DEFAULT").unwrap();
    let view = schema.table("mv").unwrap();
    assert!(view.masks.contains_key(&view.column("w").unwrap().id));
    schema.run("ALTER TABLE t ALTER w DROP MASKED").unwrap();
    assert!(schema.table("mv").unwrap().masks.is_empty());
}

#[test]
fn a_stored_catalog_has_its_views() {
    use helenus_query::schema::document::CatalogDocument;
    let schema = Schema::of(&[TABLE, VIEW]);
    let nothing = Catalog { version: Uuid::nil(), keyspaces: [].into() };
    let read = CatalogDocument::of(&schema.catalog).over(&nothing).unwrap();
    for table in ["t", "mv", "mv$rows", "t$changes"] {
        assert_eq!(read.table(KEYSPACE, table), schema.table(table), "{table}");
    }
}
