//! What DESCRIBE shows of views creates them again.

use std::collections::BTreeMap;

use cql_lite::types::value::Value;
use helenus_describe::{ClusterSummary, describe};

use super::*;

const USERS: &str = "CREATE TABLE users (id int PRIMARY KEY, name text)";
const JOINED: &str = "CREATE PROJECTION named AS SELECT b.p, c AS place, u.name AS user, v * 2 AS twice FROM t AS b JOIN users AS u ON b.v = u.id \
                      WHERE u.name IS NOT NULL AND b.c > 5 PRIMARY KEY (user, p, place) WITH CLUSTERING ORDER BY (p DESC, place ASC)";
const GROUPED: &str = "CREATE PROJECTION sums AS SELECT p, count(*) AS n, sum(v) AS total FROM t WHERE w = 'a' GROUP BY p PRIMARY KEY (p)";

impl Schema {
    /// Kinds, names and CREATE statements.
    fn described(&self, text: &str) -> Result<Vec<[String; 3]>> {
        let Ok(Statement::Describe(statement)) = syntax::parse(text) else { panic!("{text}") };
        let summary =
            ClusterSummary { name: "", partitioner: "", snitch: "", range_ownership: &BTreeMap::new() };
        let text = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let description = describe(&self.catalog, Some(KEYSPACE), summary, &statement)?;
        let rows = description.rows.iter().map(|row| {
            let create = row.get(3).map_or_else(String::new, text);
            [text(&row[1]), text(&row[2]), create]
        });
        Ok(rows.collect())
    }
}

#[test]
fn views_stand_behind_their_base_tables_and_are_created_again() {
    let schema = Schema::of(&[TABLE, USERS, VIEW, JOINED, GROUPED]);
    let shown = schema.described("DESCRIBE KEYSPACE").unwrap();
    let names: Vec<String> = shown.iter().map(|[kind, name, _]| format!("{kind} {name}")).collect();
    assert_eq!(
        names,
        [
            "keyspace ks",
            "table t",
            "materialized_view mv",
            "projection sums",
            "table users",
            "projection named"
        ]
    );
    let view = &schema.described("DESCRIBE MATERIALIZED VIEW mv").unwrap()[0][2];
    let beginning = "CREATE MATERIALIZED VIEW ks.mv AS\n    SELECT *\n    FROM ks.t\n    WHERE p IS NOT NULL AND c IS NOT NULL AND \
                     v IS NOT NULL\n    PRIMARY KEY (v, p, c)\n WITH CLUSTERING ORDER BY (p ASC, c ASC)\n    AND additional_write_policy";
    assert!(view.starts_with(beginning), "{view}");
    assert!(!view.contains("default_time_to_live") && !view.contains("cdc"));

    let mut again = Schema::of(&["DROP KEYSPACE ks"]);
    for [_, _, create] in &shown {
        again.run(create.trim_end_matches(';')).unwrap_or_else(|error| panic!("{create}: {error}"));
    }
    assert_eq!(again.described("DESCRIBE KEYSPACE").unwrap(), shown);
    for view in ["mv", "named", "sums"] {
        assert_eq!(again.columns(view), schema.columns(view), "{view}");
        let (one, other) = (schema.definition(view), again.definition(view));
        assert_eq!(format!("{:?}", one.outputs), format!("{:?}", other.outputs));
        assert_eq!(one.conditions_of_units, other.conditions_of_units);
        assert_eq!(one.conditions_of_rows, other.conditions_of_rows);
    }
}

#[test]
fn a_view_of_all_columns_of_a_table_with_static_ones_is_created_again() {
    let mut schema = Schema::of(&[TABLE, VIEW]);
    schema.run("ALTER TABLE t ADD s int static").unwrap();
    let create = schema.described("DESCRIBE MATERIALIZED VIEW mv").unwrap().remove(0)[2].clone();
    schema.run("DROP MATERIALIZED VIEW mv").unwrap();
    schema.run(create.trim_end_matches(';')).unwrap();
}

#[test]
fn what_is_beside_views_is_not_shown() {
    let schema = Schema::of(&[TABLE, VIEW]);
    let error = |text: &str| schema.described(text).unwrap_err().to_string();
    assert_eq!(error("DESCRIBE TABLE \"t$changes\""), "Table 't$changes' not found in keyspace 'ks'");
    assert_eq!(error("DESCRIBE TABLE mv"), "Table 'mv' not found in keyspace 'ks'");
    assert_eq!(error("DESCRIBE MATERIALIZED VIEW t"), "Materialized view 't' not found in 'ks'");
    assert_eq!(error("DESCRIBE PROJECTION mv"), "Projection 'mv' not found in 'ks'");
    assert_eq!(schema.described("DESCRIBE TABLES").unwrap().len(), 1);
    assert_eq!(schema.described("DESCRIBE mv").unwrap()[0][0], "materialized_view");
    assert_eq!(schema.described("DESCRIBE TABLE t").unwrap().len(), 2);
}

#[test]
fn clients_cannot_write_views_and_what_is_beside_them() {
    use helenus_query::plan::plan;
    let schema = Schema::of(&[TABLE, VIEW]);
    for text in [
        "INSERT INTO ks.mv (v, p, c) VALUES (1, 1, 1)",
        "UPDATE ks.mv SET w = 'a' WHERE v = 1 AND p = 1 AND c = 1",
        "DELETE FROM ks.mv WHERE v = 1 AND p = 1 AND c = 1 IF EXISTS",
        "DELETE FROM ks.mv WHERE v = 1",
        "INSERT INTO ks.\"mv$rows\" (u0, u1, v0) VALUES (1, 1, 1)",
        "BEGIN BATCH INSERT INTO ks.mv (v, p, c) VALUES (1, 1, 1) APPLY BATCH",
    ] {
        let error = plan(syntax::parse(text).unwrap(), &schema.catalog, None).unwrap_err().to_string();
        assert_eq!(error, "Cannot directly modify a materialized view", "{text}");
    }
    let select = "SELECT * FROM ks.mv WHERE v = 1";
    assert!(plan(syntax::parse(select).unwrap(), &schema.catalog, None).is_ok());
}
