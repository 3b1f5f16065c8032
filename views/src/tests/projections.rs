//! Projections: expressions, groups and joins.

use super::*;

/// A projection of a SELECT of the table `t`, which is `b` where the table `users` is joined as `u`.
fn projection(select: &str, on: Option<&str>, key: &str) -> String {
    let joined = on.map(|on| select.replace(" FROM t", &format!(" FROM t AS b JOIN users AS u ON {on}")));
    format!("CREATE PROJECTION pr AS {} PRIMARY KEY ({key})", joined.as_deref().unwrap_or(select))
}

const USERS: &str = "CREATE TABLE users (id int PRIMARY KEY, name text, n int)";
const ON: Option<&str> = Some("b.v = u.id");

#[test]
fn expressions_have_names_and_types() {
    let mut schema = Schema::of(&[TABLE]);
    let of = |items: &str| projection(&format!("SELECT {items} FROM t WHERE w = 'a'"), None, "sum, p, c");
    schema.run(&of("p, c AS c, v + 1 AS sum, w AS text")).unwrap();
    assert_eq!(
        schema.columns("pr"),
        ["sum int partition_key", "p int clustering", "c int clustering", "text text regular"]
    );
    assert_eq!(schema.columns("pr$rows"), ["u0 int partition_key", "u1 int clustering", "v0 int clustering"]);
    let definition = schema.definition("pr");
    assert_eq!(definition.outputs[0].source, Source::Expression("v + 1".to_owned()));
    assert_eq!(definition.conditions_of_rows[0].relation.to_string(), "w = 'a'");
}

#[test]
fn a_constant_in_the_key_and_a_cap_keep_the_first_rows_of_all() {
    let mut schema = Schema::of(&[TABLE]);
    let select = "SELECT 'all' AS feed, p, c, substring(w, 1, 2) AS short FROM t";
    let options = "WITH CLUSTERING ORDER BY (p DESC, c ASC) AND cap = 5";
    schema.run(&format!("{} {options}", projection(select, None, "feed, p, c"))).unwrap();
    assert_eq!(
        schema.columns("pr"),
        ["feed text partition_key", "p int clustering desc", "c int clustering", "short text regular"]
    );
    let statements = Statements::of(&schema.definition("pr"));
    assert_eq!(
        statements.read_last.as_deref(),
        Some("SELECT feed, p, c FROM ks.pr WHERE feed = ? ORDER BY p ASC LIMIT 1")
    );
}

#[test]
fn refused_expressions_of_projections() {
    for (items, error) in [
        ("p, c, v + 1", "v + 1 needs a name in a projection: write v + 1 AS name"),
        ("p, c, now() AS sum", "now() can give another value for the same row, and cannot be in a view"),
        ("p, c, ttl(v) AS sum", "ttl(v) changes with time, and cannot be in a view"),
        ("p, c, sum(v) AS sum", "sum(v) is an aggregate, which needs GROUP BY in a projection"),
        (
            "p, c, v AS sum, w AS sum",
            "Two columns of the projection 'pr' would have the name sum: give one of them another name with AS",
        ),
        ("p, v AS sum", "Unknown column 'c' referenced in PRIMARY KEY for projection 'pr'"),
        ("p, c, x AS sum", "Undefined column name x in table ks.t"),
    ] {
        let mut schema = Schema::of(&[TABLE]);
        let statement = projection(&format!("SELECT {items} FROM t"), None, "sum, p, c");
        assert_eq!(schema.error(&statement), error, "{items}");
        assert!(schema.hidden().is_empty());
    }
}

#[test]
fn groups_are_named_by_the_first_columns_of_the_key() {
    let mut schema = Schema::of(&[TABLE]);
    let select =
        "SELECT p, count(*) AS n, sum(v) AS total, max(v) + p AS top FROM t WHERE v > 0 AND c < 9 GROUP BY p";
    schema.run(&projection(select, None, "p")).unwrap();
    assert_eq!(
        schema.columns("pr"),
        ["p int partition_key", "n bigint regular", "top int regular", "total int regular"]
    );
    assert_eq!(schema.columns("pr$rows"), ["u0 int partition_key"]);
    let definition = schema.definition("pr");
    assert!(definition.is_aggregate);
    assert_eq!((definition.unit_columns, definition.conditions_of_rows.len()), (1, 2));
    for (select, key, error) in [
        (
            "SELECT c, count(*) AS n FROM t GROUP BY c",
            "c",
            "GROUP BY of a projection takes the partition key of ks.t and then clustering columns in their order",
        ),
        ("SELECT p, v FROM t GROUP BY p", "p", "v is neither a column of GROUP BY nor in an aggregate"),
        (
            "SELECT p, v + 1 AS x FROM t GROUP BY p",
            "p",
            "v is neither a column of GROUP BY nor in an aggregate",
        ),
        (
            "SELECT p, count(*) AS n FROM t GROUP BY p",
            "n",
            "Cannot create projection 'pr' without GROUP BY columns p from base table 't'",
        ),
    ] {
        let mut schema = Schema::of(&[TABLE]);
        let text = schema.error(&projection(select, None, key));
        assert!(text.starts_with(error), "{select}: {text}");
    }
    assert!(schema.error("ALTER TABLE t WITH default_time_to_live = 5").contains("GROUP BY"));
}

#[test]
fn columns_of_a_joined_table_are_looked_up() {
    let mut schema = Schema::of(&[TABLE, USERS]);
    let select = "SELECT b.p, c, u.name, u.n AS score FROM t WHERE name IS NOT NULL AND n > 3";
    schema.run(&projection(select, ON, "name, p, c")).unwrap();
    assert_eq!(
        schema.columns("pr"),
        ["name text partition_key", "p int clustering", "c int clustering", "score int regular"]
    );
    assert_eq!(schema.hidden(), ["pr$lookups", "pr$rows", "t$changes", "users$changes"]);
    assert_eq!(
        schema.columns("pr$lookups"),
        ["j0 int partition_key", "u0 int clustering", "u1 int clustering"]
    );
    let definition = schema.definition("pr");
    let v = definition.base.column_index("v").unwrap();
    assert_eq!(definition.joined.unwrap().on, [v]);
    assert_eq!(definition.conditions_of_units.len(), 1);
    assert_eq!(
        schema.error("DROP TABLE users"),
        "Cannot drop a table when materialized views still depend on it (pr)"
    );
    assert_eq!(
        schema.error("ALTER TABLE users DROP n"),
        "Cannot drop column n on base table users with materialized views"
    );
    schema.run("ALTER TABLE users RENAME id TO user").unwrap();
    let statement = schema.table("pr").unwrap().view.clone().unwrap().statement.clone();
    assert_eq!(statement.join.unwrap().on[0].1.to_string(), "u.user");
    schema.run("DROP PROJECTION pr").unwrap();
    assert!(schema.hidden().is_empty());
}

#[test]
fn a_join_gives_the_whole_key_once() {
    for (on, error) in [
        (
            "b.v = u.n",
            "JOIN … ON takes equalities of a column of ks.t and a column of the primary key of ks.users",
        ),
        ("b.w = u.id", "b.w = u.id compares values of different types"),
        ("b.v = u.id AND b.p = u.id", "id is given twice in JOIN … ON"),
    ] {
        let mut schema = Schema::of(&[TABLE, USERS]);
        let select = "SELECT p, c, name FROM t";
        let statement = projection(select, Some(on), "p, c");
        let text = schema.error(&statement);
        assert!(text.starts_with(error), "{text}");
    }
    let mut schema =
        Schema::of(&[TABLE, "CREATE TABLE users (id int, day int, n int, PRIMARY KEY (id, day))"]);
    let of = |select: &str| projection(select, ON, "p, c");
    assert_eq!(
        schema.error(&of("SELECT p, c, n FROM t")),
        "JOIN … ON must give the whole primary key of ks.users: day is missing"
    );
    let mut schema = Schema::of(&[TABLE, USERS]);
    let text = schema.error(&of("SELECT p, c, n + 1 AS x FROM t"));
    assert_eq!(
        text,
        "n is a column of the joined table: it can be selected as it is, and not be part of an expression"
    );
    assert!(
        schema.run(&of("SELECT * FROM t")).unwrap_err().to_string().starts_with("SELECT * is not possible")
    );
}

#[test]
fn a_keyspace_is_kept_while_another_one_joins_its_tables() {
    let mut schema = Schema::of(&[
        TABLE,
        "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE other.users (id int PRIMARY KEY, name text)",
    ]);
    schema
        .run(&projection("SELECT p, c, name FROM t", ON, "p, c").replace("JOIN users", "JOIN other.users"))
        .unwrap();
    assert!(schema.catalog.table("other", "users$changes").is_some());
    assert_eq!(
        schema.error("DROP KEYSPACE other"),
        "Cannot drop a table when materialized views still depend on it (pr)"
    );
    schema.run("DROP KEYSPACE ks").unwrap();
    assert!(schema.hidden().is_empty());
    schema.run("DROP KEYSPACE other").unwrap();
}
