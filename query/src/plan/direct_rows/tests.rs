//! Rows written directly, compared with rows written through slots.

use cql_lite::syntax;
use helenus_engine::key::{REGULAR_START, STATIC_POSITION};
use helenus_engine::{Cell, CellKind, Expiry, Liveness, RowBuilder, RowRef};

use crate::functions::CallContext;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;
use crate::plan::{Plan, plan};
use crate::run::keys;
use crate::run::paging::PagingState;
use crate::run::select::{Flow, PageBounds, ResultPage, SelectRun};
use crate::schema::catalog::{CatalogView, Table};
use crate::schema::test_catalog::catalog_of;
use crate::stored_key::SourceRow;

const NOW_SECONDS: u32 = 1_000;

/// In `later` the id of `a` is the last. Rows of `dropped` have cells of a dropped column. In `again` the cells of `a` are older than
/// the drop of that column, those of `c` are newer.
const SCHEMA: [&str; 15] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE k.plain (p int, q text, x int, y text, a text, b text, c text, PRIMARY KEY ((p, q), x, y)) \
     WITH CLUSTERING ORDER BY (x DESC, y ASC)",
    "CREATE TABLE k.later (p int, q text, x int, y text, b text, c text, PRIMARY KEY ((p, q), x, y))",
    "ALTER TABLE k.later ADD a text",
    "CREATE TABLE k.with_static (p int, q text, x int, y text, a text, b text, c text, s text static, \
     PRIMARY KEY ((p, q), x, y))",
    "CREATE TABLE k.dropped (p int, q text, x int, y text, a text, b text, c text, d text, \
     PRIMARY KEY ((p, q), x, y))",
    "ALTER TABLE k.dropped DROP d",
    "CREATE TABLE k.again (p int, q text, x int, y text, a text, b text, c text, PRIMARY KEY ((p, q), x, y))",
    "ALTER TABLE k.again DROP a USING TIMESTAMP 5",
    "ALTER TABLE k.again ADD a text",
    "ALTER TABLE k.again DROP c USING TIMESTAMP 4",
    "ALTER TABLE k.again ADD c text",
    "CREATE TABLE k.collections (p int, q text, x int, y text, a text, b text, c text, l list<int>, \
     PRIMARY KEY ((p, q), x, y))",
    "CREATE TABLE k.single (p int PRIMARY KEY, a text, b text, c text)",
    "CREATE TABLE k.counters (p int, q text, x int, y text, n counter, PRIMARY KEY ((p, q), x, y))",
];

/// The expiry of its liveness, and its cells: column, kind, value.
type RowContent<'a> = (Option<Expiry>, &'a [(&'a str, CellKind, &'a str)]);

struct StoredRow {
    partition_key: Vec<u8>,
    position: Vec<u8>,
    row: Vec<u8>,
}

/// Rows of three partitions: complete, with an empty value, with cells that are expired, deleted or missing, with
/// only a liveness, and with an expired liveness. The third partition has only static content.
fn rows(table: &Table) -> Vec<StoredRow> {
    let column = |name: &str| table.column(name).unwrap().id;
    let expiry = |expires_at| Expiry { ttl: 10, expires_at };
    let (young, old) = (expiry(NOW_SECONDS + 1), expiry(NOW_SECONDS));
    let tombstone = CellKind::Tombstone { local_deletion_time: 1 };
    let contents: [RowContent<'_>; 6] = [
        (None, &[("a", CellKind::Live, "a"), ("b", CellKind::Live, ""), ("c", CellKind::Live, "c")]),
        (None, &[("a", CellKind::Expiring(young), "a"), ("c", CellKind::Expiring(old), "c")]),
        (None, &[("b", tombstone, ""), ("c", CellKind::Live, "some more bytes")]),
        (Some(old), &[("c", CellKind::Live, "c")]),
        (Some(young), &[]),
        (None, &[]),
    ];
    let mut rows = Vec::new();
    for (number, name) in (0..).zip(["one", "two", "three"]) {
        let partition_key = if table.partition_key_count == 1 {
            i32::to_be_bytes(number).to_vec()
        } else {
            [&[0, 4, 0, 0, 0, 7, 0, 0, name.len() as u8][..], name.as_bytes(), &[0]].concat()
        };
        let mut add = |position: Vec<u8>, row: &mut RowBuilder| {
            rows.push(StoredRow { partition_key: partition_key.clone(), position, row: row.to_bytes() });
        };
        if table.has_static_columns() {
            let mut row = RowBuilder::new();
            let column = column("s");
            row.cell(Cell { column, path: &[], timestamp: 3, kind: CellKind::Live, value: b"static" });
            add(STATIC_POSITION.to_vec(), &mut row);
            if name == "three" {
                continue;
            }
        }
        for (number, (expiry, cells)) in contents.into_iter().enumerate() {
            let mut position = REGULAR_START.to_vec();
            let number = (number as i32).to_be_bytes();
            for (column, value) in table.clustering_key().iter().zip([&number[..], b"y"]) {
                keys::encode(column, value, &mut position).unwrap();
            }
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp: 5, expiry });
            for &(name, kind, value) in cells {
                let value = value.as_bytes();
                row.cell(Cell { column: column(name), path: &[], timestamp: 5, kind, value });
            }
            for gone in table.dropped_columns.iter().filter(|gone| table.column(&gone.name).is_none()) {
                let (column, kind) = (gone.id, CellKind::Live);
                row.cell(Cell { column, path: &[], timestamp: 5, kind, value: b"gone" });
            }
            add(position, &mut row);
            if table.clustering_key_count == 0 {
                break;
            }
        }
    }
    rows
}

/// The page that a run makes of the rows. `paging_state`: the end of the page before.
fn page(
    plan: &SelectPlan,
    rows: &[StoredRow],
    bounds: PageBounds,
    paging_state: Option<&PagingState>,
) -> ResultPage {
    let call = CallContext::at(1);
    let bindings = Bindings { values: &[], call: &call };
    let mut run = SelectRun::new(plan, bindings, NOW_SECONDS, bounds, paging_state).unwrap();
    let is_passed = |row: &&StoredRow| {
        paging_state
            .is_some_and(|at| (&row.partition_key, &row.position) != (&at.partition_key, &at.position))
    };
    let passed = paging_state.map_or(0, |_| rows.iter().take_while(is_passed).count() + 1);
    for StoredRow { partition_key, position, row } in &rows[passed..] {
        let source = SourceRow { partition_key, position, row: RowRef::new(row, 0) };
        match run.row(&source).unwrap() {
            Flow::Continue | Flow::SkipPartition => {}
            Flow::PageFull => return run.page(true).unwrap(),
            Flow::Done => return run.page(false).unwrap(),
        }
    }
    run.finish().unwrap()
}

fn select(catalog: &CatalogView, text: &str) -> SelectPlan {
    let statement = syntax::parse(text).unwrap();
    match plan(statement, &catalog.catalog, None).unwrap().plan {
        Plan::Select(select) => select,
        _ => panic!("{text} is no SELECT"),
    }
}

#[test]
fn rows_written_directly_equal_those_written_through_slots() {
    let catalog = catalog_of(&SCHEMA);
    for (table, selection, is_direct) in [
        ("plain", "*", true),
        ("plain", "p, q, x, y, a, b, c", true),
        ("plain", "c, y, a, q", true),
        ("plain", "x, c, c, x", false),
        ("plain", "c, c, q, q, y", true),
        ("plain", "y, x, a", false),
        ("plain", "a", true),
        ("plain", "writetime(a), a", false),
        ("plain", "JSON a, b", false),
        ("later", "*", true),
        ("later", "a, b", true),
        ("with_static", "x, a", true),
        ("with_static", "x, s, a", false),
        ("single", "*", true),
        ("single", "c, p", true),
        ("dropped", "*", true),
        ("dropped", "c, a", true),
        ("again", "*", true),
        ("again", "c, x, a", true),
        ("again", "a", true),
        ("collections", "x, a, b", true),
        ("collections", "*", false),
    ] {
        let mut some_rows = 0;
        for rest in ["", " LIMIT 3", " PER PARTITION LIMIT 2"] {
            let text = format!("SELECT {selection} FROM k.{table}{rest}");
            let mut select = select(&catalog, &text);
            assert_eq!(select.direct_rows.is_some(), is_direct, "{text}");
            let rows = rows(&select.table);
            for bounds in [
                PageBounds { rows: None, bytes: usize::MAX },
                PageBounds { rows: Some(4), bytes: usize::MAX },
                PageBounds { rows: Some(100), bytes: 60 },
            ] {
                let mut paging_state: Option<PagingState> = None;
                loop {
                    let directly = page(&select, &rows, bounds, paging_state.as_ref());
                    let direct_rows = select.direct_rows.take();
                    let through_slots = page(&select, &rows, bounds, paging_state.as_ref());
                    select.direct_rows = direct_rows;
                    assert_eq!(directly.rows, through_slots.rows, "{text}");
                    assert_eq!(directly.row_count, through_slots.row_count, "{text}");
                    assert_eq!(directly.paging_state, through_slots.paging_state, "{text}");
                    some_rows += directly.row_count;
                    paging_state = directly.paging_state;
                    if paging_state.is_none() {
                        break;
                    }
                }
            }
        }
        assert!(some_rows >= 27, "{selection} of {table}: {some_rows}");
    }
}

#[test]
fn statements_with_filters_or_collections_go_through_slots() {
    let catalog = catalog_of(&SCHEMA);
    for text in [
        "SELECT DISTINCT p, q FROM k.plain",
        "SELECT a FROM k.plain WHERE b = 'x' ALLOW FILTERING",
        "SELECT count(*) FROM k.plain",
        "SELECT x, a FROM k.plain GROUP BY p, q, x",
        "SELECT x, a FROM k.plain WHERE p IN (1, 2) AND q = 'x' ORDER BY x",
        "SELECT * FROM k.counters",
    ] {
        assert!(select(&catalog, text).direct_rows.is_none(), "{text}");
    }
}

#[test]
fn more_cells_than_are_kept_at_once_go_through_slots() {
    let columns = |count: usize| (0..count).map(|number| format!("c{number}")).collect::<Vec<_>>().join(", ");
    let table =
        format!("CREATE TABLE k.wide (p int PRIMARY KEY, {} text)", columns(20).replace(", ", " text, "));
    let catalog = catalog_of(&[SCHEMA[0], &table]);
    for (count, is_direct) in [(16, true), (17, false)] {
        let select = select(&catalog, &format!("SELECT {} FROM k.wide", columns(count)));
        assert_eq!(select.direct_rows.is_some(), is_direct, "{count} columns");
    }
}
