//! Documents of changes: over the catalog before they give the catalog after, and are as large as the change.

use proptest::prelude::*;

use super::*;
use crate::schema::catalog::CatalogView;
use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed};

/// Statements that can be executed in this order, each with those before it.
const STATEMENTS: [&str; 34] = [
    "CREATE TYPE inner (x int)",
    "CREATE TYPE outer (z frozen<inner>)",
    "CREATE TABLE a (k int PRIMARY KEY, v text)",
    "CREATE TABLE b (k int, c frozen<outer>, s int STATIC, m map<text, frozen<outer>>, PRIMARY KEY (k, c))",
    "CREATE TABLE n (k int PRIMARY KEY, c counter)",
    "CREATE TABLE s (k int PRIMARY KEY, c int) WITH COMPACT STORAGE",
    "CREATE TABLE d (k int, c int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
    "ALTER TABLE s DROP COMPACT STORAGE",
    "ALTER TABLE a ADD w int",
    "ALTER TABLE a DROP v",
    "CREATE INDEX ON a (w)",
    "CREATE INDEX ON a (w) USING 'sai'",
    "CREATE INDEX k ON b (keys(m))",
    "CREATE FUNCTION f (a outer, b list<int>) CALLED ON NULL INPUT RETURNS inner LANGUAGE lua AS 'return nil'",
    "CREATE FUNCTION state (s tuple<int, text>, v int) CALLED ON NULL INPUT RETURNS tuple<int, text> LANGUAGE lua AS $$return s$$",
    "CREATE FUNCTION final (s tuple<int, text>) RETURNS NULL ON NULL INPUT RETURNS text LANGUAGE lua AS 'return s[2]'",
    "CREATE AGGREGATE a (int) SFUNC state STYPE tuple<int, text> FINALFUNC final INITCOND (1, 'x')",
    "ALTER TYPE inner ADD y text",
    "ALTER TABLE b WITH comment = 'it''s' AND gc_grace_seconds = 7 AND rate_limit = {'max_reads_per_second': 5} AND max_charge = 9",
    "ALTER TABLE b ALTER s CHECK s > 5 AND s < 10 AND NOT NULL",
    "ALTER TABLE b ADD t text MASKED WITH mask_inner(1, null, '#') CHECK REGEXP() = 'a..b' AND LENGTH() < 5 AND JSON",
    "ALTER TABLE a WITH extensions = {'x': 0xff} AND compression = {'class': 'SnappyCompressor'}",
    "CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}",
    "CREATE TABLE other.o (k int PRIMARY KEY)",
    "ALTER TABLE other.o WITH encryption = {'enabled': 'true'}",
    "ALTER KEYSPACE other WITH durable_writes = false",
    "DROP INDEX a_w_idx",
    "DROP TABLE n",
    "ALTER KEYSPACE system_auth WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "DROP AGGREGATE a",
    "CREATE OR REPLACE FUNCTION final (s tuple<int, text>) RETURNS NULL ON NULL INPUT RETURNS text LANGUAGE lua AS ''",
    "DROP FUNCTION f",
    "DROP TABLE b",
    "DROP TYPE outer",
];

fn after_each() -> Vec<CatalogView> {
    let mut views = vec![catalog_of(&[CREATE_KEYSPACE])];
    for (number, text) in (100..).zip(STATEMENTS) {
        let next = changed(views.last().unwrap(), number, text);
        views.push(next);
    }
    views
}

/// What another member makes of the document.
fn sent(document: &CatalogDocument) -> CatalogDocument {
    serde_json::from_slice(&serde_json::to_vec(document).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn changes_over_the_catalog_before_give_the_one_after(first in 0..STATEMENTS.len(), steps in 0..STATEMENTS.len()) {
        let views = after_each();
        let (old, new) = (&views[first].catalog, &views[(first + steps).min(STATEMENTS.len())].catalog);
        let changed = sent(&CatalogDocument::delta(old, new)).over(old).unwrap();
        prop_assert_eq!(format!("{changed:?}"), format!("{new:?}"));
        let replaced = sent(&CatalogDocument::difference(old, new)).over(old).unwrap();
        prop_assert_eq!(format!("{replaced:?}"), format!("{new:?}"));
    }
}

#[test]
fn what_does_not_change_is_shared_and_not_written() {
    let many: Vec<String> = std::iter::once(CREATE_KEYSPACE.to_owned())
        .chain((0..500).map(|number| format!("CREATE TABLE t{number} (k int PRIMARY KEY, v text)")))
        .collect();
    let old = catalog_of(&many);
    let new = changed(&old, 1000, "ALTER TABLE t7 ADD w int");
    let document = CatalogDocument::delta(&old.catalog, &new.catalog);
    let bytes = serde_json::to_vec(&document).unwrap().len();
    assert!(bytes < 4096, "{bytes} bytes");
    let applied = document.over(&old.catalog).unwrap();
    let tables = |catalog: &Catalog| catalog.keyspaces["ks"].tables.clone();
    let shared = tables(&applied).into_iter().filter(|(name, table)| {
        tables(&old.catalog).get(name).is_some_and(|known| Arc::ptr_eq(known, table))
    });
    assert_eq!(shared.count(), 499);
}

#[test]
fn indexes_are_read_back_and_tables_without_are_written_as_before() {
    let start = [CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v text, m map<int, text>)"];
    let written = |catalog: &Catalog| serde_json::to_string(&CatalogDocument::of(catalog)).unwrap();
    let without = catalog_of(&start);
    assert!(
        !written(&without.catalog).contains("indexes") && !written(&without.catalog).contains("compact\":")
    );
    let indexes = [
        "CREATE INDEX ON t (v)",
        "CREATE INDEX ON t (entries(m))",
        "CREATE INDEX ON t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
        "CREATE CUSTOM INDEX s ON t (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'",
    ];
    let with = catalog_of(&[&start[..], &indexes].concat());
    let document: CatalogDocument = serde_json::from_str(&written(&with.catalog)).unwrap();
    let read = document.catalog().unwrap();
    assert_eq!(read.table("ks", "t").unwrap().indexes.len(), indexes.len());
    assert_eq!(format!("{read:?}"), format!("{:?}", with.catalog));
}

#[test]
fn caps_are_read_back_with_those_of_before() {
    let written = |catalog: &Catalog| serde_json::to_string(&CatalogDocument::of(catalog)).unwrap();
    let table = "CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))";
    let start = [CREATE_KEYSPACE, &format!("{table} WITH cap = 5")];
    assert!(!written(&catalog_of(&[CREATE_KEYSPACE, table]).catalog).contains("\"cap\""));
    assert!(written(&catalog_of(&start).catalog).contains(r#""cap":{"rows":5}"#));
    let raised = catalog_of(&[&start[..], &["ALTER TABLE t WITH cap = 7"]].concat());
    let text = written(&raised.catalog);
    assert!(text.contains(r#""cap":{"rows":7,"earlier":[{"rows":5,"until_micros":"#), "{text}");
    let read = serde_json::from_str::<CatalogDocument>(&text).unwrap().catalog().unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", raised.catalog));
}

#[test]
fn rate_limits_are_read_back_and_tables_without_are_written_as_before() {
    let written = |catalog: &Catalog| serde_json::to_string(&CatalogDocument::of(catalog)).unwrap();
    let table = "CREATE TABLE t (k int PRIMARY KEY) WITH";
    let without = catalog_of(&[CREATE_KEYSPACE, &format!("{table} rate_limit = {{}}")]);
    assert!(!written(&without.catalog).contains("rate_limit"));
    let option = "rate_limit = {'max_writes_per_second': 2, 'max_reads_per_second': 1}";
    let with = catalog_of(&[
        CREATE_KEYSPACE,
        &format!("{table} {option} AND per_partition_rate_limit = {{'max_writes_per_second': 0}}"),
    ]);
    let text = written(&with.catalog);
    let expected = r#""per_partition_rate_limit":{"max_writes_per_second":0},"rate_limit":{"max_reads_per_second":1,"max_writes_per_second":2}"#;
    assert!(text.contains(expected), "{text}");
    let read = serde_json::from_str::<CatalogDocument>(&text).unwrap().catalog().unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", with.catalog));
}

#[test]
fn an_index_without_its_column_is_refused() {
    let catalog = catalog_of(&[
        CREATE_KEYSPACE,
        "CREATE TABLE t (k int PRIMARY KEY, v int)",
        "CREATE INDEX i ON t (v)",
    ]);
    let text = serde_json::to_string(&CatalogDocument::of(&catalog.catalog)).unwrap();
    let damaged = text.replace("\"column_id\":1", "\"column_id\":7");
    let document: CatalogDocument = serde_json::from_str(&damaged).unwrap();
    assert!(
        matches!(document.catalog(), Err(DocumentError::IndexWithoutColumn { index, table }) if index == "i" && table == "ks.t")
    );
}

#[test]
fn changes_of_a_keyspace_that_is_not_there_are_refused() {
    let old = catalog_of(&[CREATE_KEYSPACE]);
    let new = changed(&old, 7, "CREATE TABLE t (k int PRIMARY KEY)");
    let document = CatalogDocument::delta(&old.catalog, &new.catalog);
    let refused = document.over(&system_tables::initial_catalog(Uuid::nil()));
    assert!(matches!(refused, Err(DocumentError::MissingKeyspace(name)) if name == "ks"));
}

#[test]
fn what_rules_for_declarations_refuse_is_read_back() {
    let catalog = catalog_of(&[
        CREATE_KEYSPACE,
        "CREATE TABLE t (k int PRIMARY KEY, v text CHECK REGEXP() = 'a' AND LENGTH() < 5, w int MASKED WITH mask_replace(7))",
    ]);
    let text = serde_json::to_string(&CatalogDocument::of(&catalog.catalog)).unwrap();
    let [constraints, mask] = ["REGEXP() = 'a' AND LENGTH() < 5", "MASKED WITH system.mask_replace(7)"];
    assert!(text.contains(constraints) && text.contains(mask), "{text}");
    let many = (0..100).map(|n| format!("REGEXP() != '{n}'")).collect::<Vec<_>>().join(" AND ");
    for (stored, value_is_taken) in [
        (many.as_str(), true),
        ("LENGTH() < 5 AND LENGTH() < 6 AND LENGTH() < 7", true),
        ("LENGTH() < 1 AND LENGTH() > 2", false),
        ("REGEXP() = '((\\w{100}){100}){100}'", false),
        ("REGEXP() = '('", false),
        ("SHINES() = 'new'", false),
        ("v < 5", false),
    ] {
        for masked in ["mask_outer(1, 'x', null)", "mask_default(1, 2, 3)", "mask_gently(1.5, 'it''s')"] {
            let masked = format!("MASKED WITH system.{masked}");
            let json = serde_json::to_string(stored).unwrap();
            let text = text.replace(constraints, json.trim_matches('"')).replace(mask, &masked);
            let document: CatalogDocument = serde_json::from_str(&text).unwrap();
            let read = document.catalog().unwrap();
            let table = read.table("ks", "t").unwrap();
            let (v, w) = (table.column("v").unwrap(), table.column("w").unwrap());
            let rules = &table.constraints[&v.id];
            assert_eq!(rules.to_cql("v"), stored);
            assert_eq!(rules.check(v.constraint_target(), Some(b"x")).is_ok(), value_is_taken, "{stored}");
            assert_eq!(table.masks[&w.id].to_cql(), masked);
            let again: CatalogDocument =
                serde_json::from_str(&serde_json::to_string(&CatalogDocument::of(&read)).unwrap()).unwrap();
            assert_eq!(format!("{:?}", again.catalog().unwrap()), format!("{read:?}"));
        }
    }
}
