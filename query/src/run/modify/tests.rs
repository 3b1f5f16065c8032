//! Statements and their mutations.

use helenus_engine::key::STATIC_POSITION;
use helenus_engine::{CellKind, Liveness, Operation as EngineOperation};

use super::*;
use crate::functions::CallContext;
use crate::plan::term::{BindValue, Bindings};
use crate::run::keys::partition_keys;
use crate::schema::catalog::CatalogView;
use crate::schema::test_catalog::catalog_of;
use crate::statement::Statement;
use crate::stored_key::PartitionKey;

const WRITE: WriteContext = WriteContext {
    timestamp: 1_000,
    now_seconds: 50,
    now_micros: 50_000_000,
    is_exact: false,
    counter_id: [0; 16],
    mutation_bytes_max: 1 << 20,
};

/// In `in_order` the ids of the columns ascend with their names; in `added_later` the id of `a` is the last.
const SCHEMA: [&str; 5] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE k.in_order (k int PRIMARY KEY, a text, b text, c text)",
    "CREATE TABLE k.added_later (k int PRIMARY KEY, b text, c text)",
    "ALTER TABLE k.added_later ADD a text",
    "CREATE TABLE k.with_static (k int, n int, s text static, t text static, v text, PRIMARY KEY (k, n))",
];

fn catalog() -> CatalogView {
    catalog_of(&SCHEMA)
}

fn mutations(catalog: &CatalogView, statements: &[(&str, &[BindValue<'_>])]) -> Vec<PartitionMutation> {
    let call = CallContext::at(WRITE.now_micros);
    let mut set = MutationSet::default();
    for (text, values) in statements {
        let statement = Statement::new(text, None, catalog).unwrap();
        let Statement::Modify(statement) = statement else { panic!("{text} changes nothing") };
        let bindings = Bindings { values, call: &call };
        let expanded = expand(&statement.plan, &bindings).unwrap();
        let plan = expanded.as_ref().unwrap_or(&statement.plan);
        let keys = partition_keys(&plan.partition, &plan.table, &bindings).unwrap();
        set.add(plan, keys, &bindings, &WRITE, None).unwrap();
    }
    set.finish(&WRITE, None).unwrap()
}

#[derive(Debug, PartialEq)]
struct WrittenRow {
    position: Vec<u8>,
    liveness: Option<Liveness>,
    /// By the name of the column.
    cells: Vec<(String, CellKind, i64, Vec<u8>)>,
}

fn rows_of(change: &PartitionMutation) -> Vec<WrittenRow> {
    let view = change.mutation.view().unwrap();
    view.validate().unwrap();
    let row = |operation| {
        let EngineOperation::Row { position, row } = operation else { panic!("a deletion: {operation:?}") };
        let name = |id| change.table.columns.iter().find(|column| column.id == id).unwrap().name.clone();
        let mut cells: Vec<_> = row
            .cells()
            .map(|cell| (name(cell.column), cell.kind, cell.timestamp, cell.value.to_vec()))
            .collect();
        cells.sort_by(|left, right| left.0.cmp(&right.0));
        WrittenRow { position: position.to_vec(), liveness: row.liveness(), cells }
    };
    view.operations().map(|operation| row(operation.unwrap())).collect()
}

#[test]
fn the_order_in_which_columns_were_created_does_not_affect_mutations() {
    let catalog = catalog();
    let values = [BindValue::Bytes(b"given"), BindValue::Unset, BindValue::Null];
    for (text, values, cells) in [
        ("INSERT INTO k.T (k, a, b, c) VALUES (1, 'x', 'y', 'z')", &[][..], 3),
        ("INSERT INTO k.T (k, c, b, a) VALUES (1, null, '', 'x')", &[], 3),
        ("INSERT INTO k.T (k, a, b, c) VALUES (1, 'x', null, 'z') USING TTL 10 AND TIMESTAMP 7", &[], 3),
        ("INSERT INTO k.T (k, a, b, c) VALUES (1, ?, ?, ?)", &values, 2),
        ("INSERT INTO k.T (k) VALUES (1)", &[], 0),
        ("INSERT INTO k.T JSON '{\"k\": 1, \"b\": \"y\"}'", &[], 3),
        ("INSERT INTO k.T JSON '{\"k\": 1, \"b\": \"y\"}' DEFAULT UNSET", &[], 1),
        ("UPDATE k.T SET c = 'z', a = 'x' WHERE k = 1", &[], 2),
        ("UPDATE k.T USING TTL 5 SET a = ?, b = ?, c = ? WHERE k = 1", &values, 2),
        ("DELETE a, b FROM k.T WHERE k = 1", &[], 2),
    ] {
        let written = ["in_order", "added_later"].map(|table| {
            let text = text.replace("k.T", &format!("k.{table}"));
            let changes = mutations(&catalog, &[(&text, values)]);
            assert_eq!(changes.len(), 1, "{text}");
            rows_of(&changes[0])
        });
        assert_eq!(written[0], written[1], "{text}");
        assert_eq!(written[0].len(), 1, "{text}");
        assert_eq!(written[0][0].cells.len(), cells, "{text}: {:?}", written[0]);
        assert_eq!(written[0][0].liveness.is_some(), text.starts_with("INSERT"), "{text}");
    }
}

#[test]
fn an_update_with_only_unset_values_writes_nothing() {
    let catalog = catalog();
    for table in ["in_order", "added_later"] {
        let text = format!("UPDATE k.{table} SET a = ?, b = ? WHERE k = 1");
        assert!(mutations(&catalog, &[(&text, &[BindValue::Unset; 2])]).is_empty(), "{table}");
    }
}

#[test]
fn static_and_regular_columns_of_one_statement_become_two_rows() {
    let catalog = catalog();
    let text = "INSERT INTO k.with_static (k, n, v, t, s) VALUES (1, 2, 'v', 't', 's')";
    let changes = mutations(&catalog, &[(text, &[])]);
    let [of_static, of_regular] = &rows_of(&changes[0])[..] else { panic!("{changes:?}") };
    assert_eq!((&of_static.position[..], of_static.liveness), (STATIC_POSITION, None));
    let names = |row: &WrittenRow| row.cells.iter().map(|cell| cell.0.clone()).collect::<Vec<_>>();
    assert_eq!((names(of_static), names(of_regular)), (vec!["s".into(), "t".into()], vec!["v".into()]));
    assert!(of_regular.liveness.is_some());
    let only_static = mutations(&catalog, &[("INSERT INTO k.with_static (k, s) VALUES (1, 's')", &[])]);
    assert_eq!(rows_of(&only_static[0]).len(), 1);
}

#[test]
fn a_batch_becomes_one_mutation_a_partition_and_table_in_their_order() {
    let catalog = catalog();
    let insert = |table: &str, key: i32, column: &str| {
        format!("INSERT INTO k.{table} (k, {column}) VALUES ({key}, '{column}')")
    };
    let texts = [
        insert("added_later", 1, "a"),
        insert("in_order", 1, "a"),
        insert("in_order", 2, "a"),
        insert("in_order", 1, "b"),
        insert("added_later", 1, "b"),
        insert("in_order", 1, "c"),
    ];
    let statements: Vec<_> = texts.iter().map(|text| (text.as_str(), &[][..])).collect();
    let changes = mutations(&catalog, &statements);
    let found: Vec<_> = changes
        .iter()
        .map(|change| (change.table.name.as_str(), change.token, rows_of(change).len()))
        .collect();
    let mut keys = [1, 2].map(|key: i32| PartitionKey::new(key.to_be_bytes().to_vec()).token);
    let first = keys[0];
    keys.sort_unstable();
    let rows = |token| if token == first { 3 } else { 1 };
    assert_eq!(
        found,
        [
            ("in_order", keys[0], rows(keys[0])),
            ("in_order", keys[1], rows(keys[1])),
            ("added_later", first, 2)
        ]
    );
}
