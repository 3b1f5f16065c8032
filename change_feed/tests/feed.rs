//! The entries of writes, as text (`tests/feed/*.txt`): what ScyllaDB's documentation of CDC says of each kind of write.
//!
//! `schema` runs statements on a new catalog. `write` runs statements as one request, one a line, and prints its entries: number, operation,
//! columns, and `+n` or `-n` where the timestamp of its cells is not that of the request, in microseconds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

use cql_lite::types::{CqlType, literal, ordered};
use datadriven::TestCase;
use helenus_change_feed::entry::{Feed, Place, log_mutation};
use helenus_change_feed::layout::LogLayout;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::plan::term::Bindings;
use helenus_query::run::keys::{Slice, partition_keys};
use helenus_query::run::modify::{ExistingRows, MutationSet, PartitionMutation, WriteContext};
use helenus_query::schema::catalog::{CatalogView, Table};
use helenus_query::schema::ddl::{Change, DdlContext};
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, EveryFunction, KEYSPACE, catalog_of};
use helenus_query::statement::Statement;
use helenus_query::stored_key::PartitionKey;
use helenus_rows::mutation::{MutationRef, Operation};
use helenus_rows::reconcile::{Purpose, merge_rows};
use helenus_rows::row::RowRef;
use uuid::Uuid;

const NOW_SECONDS: u32 = 1_700_000_000;
const STREAM: [u8; 16] = [7; 16];

/// The rows of one table, by partition key and position.
#[derive(Default)]
struct Rows(BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>);

impl Rows {
    fn apply(&mut self, mutation: &MutationRef<'_>) {
        let merged = |versions: &[RowRef<'_>], shadow| {
            let mut out = Vec::new();
            let purpose = Purpose::Read { now_seconds: NOW_SECONDS };
            merge_rows(versions, shadow, purpose, 0, &mut out).unwrap().is_written.then_some(out)
        };
        let key = mutation.partition_key.to_vec();
        for operation in mutation.operations().map(std::result::Result::unwrap) {
            match operation {
                Operation::Row { position, row } => {
                    let name = (key.clone(), position.to_vec());
                    let before = self.0.remove(&name);
                    let before = before.as_deref().map(|bytes| RowRef::new(bytes, 0));
                    let versions: Vec<RowRef<'_>> = before.into_iter().chain([row]).collect();
                    if let Some(after) = merged(&versions, None) {
                        self.0.insert(name, after);
                    }
                }
                Operation::RangeTombstone { start, end, deletion } => {
                    let range = (key.clone(), start.to_vec())..(key.clone(), end.to_vec());
                    let names: Vec<_> = self.0.range(range).map(|(name, _)| name.clone()).collect();
                    for name in names {
                        let before = self.0.remove(&name).unwrap();
                        if let Some(after) = merged(&[RowRef::new(&before, 0)], Some(deletion)) {
                            self.0.insert(name, after);
                        }
                    }
                }
            }
        }
    }
}

impl ExistingRows for Rows {
    fn row(&self, _: &Table, key: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(&(key.bytes.clone(), position.to_vec())).cloned())
    }

    fn rows_of(
        &self,
        _: &Table,
        _: &PartitionKey,
        _: &Slice,
        _: usize,
        _: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        panic!("no condition is evaluated here")
    }
}

struct Session {
    catalog: CatalogView,
    rows: Rows,
    timestamp: i64,
}

impl Session {
    fn new(statements: &str) -> Self {
        let statements = statements.lines().filter(|line| !line.is_empty());
        let none: [&str; 0] = [];
        let before = catalog_of(&none);
        let after = catalog_of(&[CREATE_KEYSPACE].into_iter().chain(statements).collect::<Vec<_>>());
        let change =
            Change { catalog: after.catalog, effect: None, warnings: Vec::new(), table_actions: Vec::new() };
        let context = DdlContext {
            now_micros: 0,
            new_id: Uuid::from_u128(1),
            new_version: Uuid::nil(),
            data_centers: DataCenters::new(),
            user_functions: &EveryFunction,
            may_drop_compact_storage: true,
        };
        let catalog = helenus_feed_logs::followed(&before.catalog, change, &context).unwrap().catalog;
        Self { catalog: CatalogView::new(1, catalog), rows: Rows::default(), timestamp: 1_000_000 }
    }

    fn run(&mut self, case: &TestCase) -> String {
        match case.directive.as_str() {
            "schema" => {
                *self = Self::new(&case.input);
                String::new()
            }
            "write" => self.write(&case.input),
            other => panic!("unknown directive {other}"),
        }
    }

    fn write(&mut self, statements: &str) -> String {
        self.timestamp += 1_000;
        let write = WriteContext {
            timestamp: self.timestamp,
            now_seconds: NOW_SECONDS,
            now_micros: self.timestamp,
            is_exact: true,
            counter_id: [0; 16],
            mutation_bytes_max: 1 << 20,
        };
        let call = CallContext::at(write.now_micros);
        let mut set = MutationSet::default();
        for text in statements.lines() {
            let Statement::Modify(statement) = Statement::new(text, Some(KEYSPACE), &self.catalog).unwrap()
            else {
                panic!("{text} changes nothing")
            };
            let (plan, bindings) = (&statement.plan, Bindings { values: &[], call: &call });
            let keys = partition_keys(&plan.partition, &plan.table, &bindings).unwrap();
            set.add(plan, keys, &bindings, &write, Some(&self.rows)).unwrap();
        }
        let mut out = String::new();
        for PartitionMutation { table, mutation, .. } in set.finish(&write, None).unwrap() {
            let keyspace = self.catalog.catalog.keyspace(KEYSPACE).unwrap();
            let log = keyspace.feed_log(&table.name).unwrap();
            let layout = LogLayout::new(&table, log).unwrap();
            let feed = Feed { table: &table, options: table.options.feed().unwrap(), layout: &layout };
            let view = mutation.view().unwrap();
            let entries = feed.entries(&view, Some(&self.rows), NOW_SECONDS).unwrap();
            let place =
                Place { stream: STREAM, time: Uuid::nil(), first_number: 0, ends_group: true, expiry: None };
            let entry = log_mutation(&layout, entries, &place).unwrap();
            show(log, &entry.view().unwrap(), self.timestamp, &mut out);
            self.rows.apply(&view);
        }
        out
    }
}

/// Prints the rows of a mutation of a log.
fn show(log: &Table, mutation: &MutationRef<'_>, timestamp: i64, out: &mut String) {
    mutation.validate().unwrap();
    assert_eq!(mutation.partition_key, STREAM);
    assert_eq!(mutation.token.to_be_bytes(), STREAM[..8]);
    for operation in mutation.operations() {
        let Operation::Row { position, row } = operation.unwrap() else { panic!("a deletion in the log") };
        assert!(row.liveness().is_none() && row.is_plain());
        let mut rest = &position[1..];
        let mut number = Vec::new();
        ordered::decode(&CqlType::Timeuuid, &mut rest, false, &mut Vec::new()).unwrap();
        ordered::decode(&CqlType::Int, &mut rest, false, &mut number).unwrap();
        write!(out, "{}", literal::to_text(&CqlType::Int, &number)).unwrap();
        let mut values: BTreeMap<&str, String> = BTreeMap::new();
        let mut written = timestamp;
        for cell in row.cells() {
            let column = log.columns.iter().find(|column| column.id == cell.column).unwrap();
            values.insert(&column.name, literal::to_text(&column.column_type, cell.value));
            written = cell.timestamp;
        }
        let operation = match values.remove("cdc$operation").unwrap().as_str() {
            "0" => "before",
            "1" => "update",
            "2" => "insert",
            "3" => "delete row",
            "4" => "delete partition",
            "5" => "from inclusive",
            "6" => "from exclusive",
            "7" => "to inclusive",
            "8" => "to exclusive",
            "9" => "after",
            _ => panic!("unknown operation"),
        };
        write!(out, " {operation}").unwrap();
        let end = values.remove("cdc$end_of_batch");
        for (name, value) in values {
            let name = name.strip_prefix("cdc$").unwrap_or(name);
            write!(out, " {name}={value}").unwrap();
        }
        if written != timestamp {
            write!(out, " {:+}", written - timestamp).unwrap();
        }
        out.push_str(if end.is_some() { " end\n" } else { "\n" });
    }
}

#[test]
fn entries_are_those_of_the_documentation() {
    datadriven::walk("tests/feed", |file| {
        let session = RefCell::new(Session::new(""));
        file.run(|case| session.borrow_mut().run(case));
    });
}
