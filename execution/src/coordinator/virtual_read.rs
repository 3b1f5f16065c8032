//! SELECT on virtual tables: their rows are computed, encoded like stored rows, and read in the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_engine::key;
use helenus_engine::mutation::Operation;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::modify::{ModifyKind, ModifyPlan, fill_insert};
use helenus_query::plan::restrictions::Values;
use helenus_query::plan::term::{Bindings, Term};
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{MutationSet, PartitionMutation, WriteContext};
use helenus_query::run::select::{Flow, ResultPage, SelectRun};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::virtual_tables::Row;
use helenus_query::stored_key::PartitionKey;

use super::key_ranges::KeyRange;
use super::row_batch::BatchRow;

/// Reads ranges of a virtual table from `rows`, whose values are in the order of the table's columns. Only rows of partitions
/// that the page reaches are encoded.
pub fn read(
    table: &Arc<Table>,
    rows: Vec<Row>,
    ranges: &[KeyRange],
    mut run: SelectRun<'_>,
) -> Result<ResultPage> {
    let mut partitions = by_partition(table, rows)?;
    let mut skip: Option<Vec<u8>> = None;
    for range in ranges {
        // The partitions of the range, and those in which it begins or ends.
        let is_touched = |prefix: &[u8]| {
            let begins = range.start.as_slice() <= prefix || range.start.starts_with(prefix);
            begins && prefix < range.end.as_slice()
        };
        let touched = partitions.iter_mut().filter(|(prefix, _)| is_touched(prefix));
        let ordered: Box<dyn Iterator<Item = _>> =
            if range.reversed { Box::new(touched.rev()) } else { Box::new(touched) };
        for (prefix, partition) in ordered {
            if skip.as_ref() == Some(prefix) {
                continue;
            }
            let stored = partition.stored(table)?.iter();
            let ordered: Box<dyn Iterator<Item = _>> =
                if range.reversed { Box::new(stored.rev()) } else { Box::new(stored) };
            for row in ordered.filter(|row| range.start <= row.key && row.key < range.end) {
                match run.row(&BatchRow { key: &row.key, row: &row.row }.source()?)? {
                    Flow::Continue => {}
                    Flow::SkipPartition => {
                        skip = Some(prefix.clone());
                        break;
                    }
                    Flow::PageFull => return run.page(true),
                    Flow::Done => return run.page(false),
                }
            }
        }
    }
    run.finish()
}

/// The rows of a partition.
#[derive(Default)]
struct Partition {
    /// Those that are not encoded yet.
    rows: Vec<Row>,
    stored: Vec<StoredRow>,
}

impl Partition {
    /// The encoded rows, in the order of their keys. They are encoded once, whatever the number of ranges that reach them.
    fn stored(&mut self, table: &Arc<Table>) -> Result<&[StoredRow]> {
        if !self.rows.is_empty() {
            self.stored = stored_form(table, std::mem::take(&mut self.rows))?;
        }
        Ok(&self.stored)
    }
}

/// The rows by the prefix of their partition.
fn by_partition(table: &Arc<Table>, rows: Vec<Row>) -> Result<BTreeMap<Vec<u8>, Partition>> {
    let call = CallContext::at(0);
    let bindings = Bindings { values: &[], call: &call };
    let mut partitions: BTreeMap<Vec<u8>, Partition> = BTreeMap::new();
    for row in rows {
        let values = row.iter().take(table.partition_key_count);
        let values: Vec<Values> = values.map(|value| Values::One(Term::Constant(value.clone()))).collect();
        // One value of each column of the key: one key.
        let [PartitionKey { token, bytes }] = &partition_keys(&values, table, &bindings)?[..] else {
            return Err(RequestError::Server("a row of a virtual table has no key".to_owned()));
        };
        let mut prefix = Vec::new();
        key::put_partition_prefix(&mut prefix, *token, bytes)
            .map_err(|error| RequestError::Server(error.to_string()))?;
        partitions.entry(prefix).or_default().rows.push(row);
    }
    Ok(partitions)
}

/// A row as a table would have it: its full key and its encoding with base 0.
struct StoredRow {
    key: Vec<u8>,
    row: Vec<u8>,
}

fn stored_form(table: &Arc<Table>, rows: Vec<Row>) -> Result<Vec<StoredRow>> {
    let call = CallContext::at(0);
    let bindings = Bindings { values: &[], call: &call };
    let write = WriteContext {
        timestamp: 0,
        now_seconds: 0,
        now_micros: 1,
        is_exact: false,
        counter_id: [0; 16],
        // These rows are only read.
        mutation_bytes_max: usize::MAX,
    };
    let mut stored = Vec::with_capacity(rows.len());
    for row in rows {
        let mut plan = ModifyPlan {
            table: table.clone(),
            kind: ModifyKind::Insert,
            partition: Vec::new(),
            clustering: Vec::new(),
            operations: Vec::new(),
            timestamp: None,
            time_to_live: None,
            timeout: None,
            conditions: None,
            json: None,
        };
        let terms = row
            .into_iter()
            .zip(&table.columns)
            .map(|(value, column)| {
                (value.is_some() || column.is_primary_key()).then_some(Term::Constant(value))
            })
            .collect();
        fill_insert(&mut plan, terms)?;
        let mut set = MutationSet::default();
        set.add(&plan, partition_keys(&plan.partition, &plan.table, &bindings)?, &bindings, &write, None)?;
        let malformed = |error: helenus_engine::DecodeError| RequestError::Server(error.to_string());
        for PartitionMutation { mutation, .. } in set.finish(&write, None)? {
            let view = mutation.view().map_err(malformed)?;
            for operation in view.operations() {
                if let Operation::Row { position, row } = operation.map_err(malformed)? {
                    let key = key::full_key(view.token, view.partition_key, position)
                        .map_err(|error| RequestError::Server(error.to_string()))?;
                    stored.push(StoredRow { key, row: row.bytes.to_vec() });
                }
            }
        }
    }
    stored.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(stored)
}
