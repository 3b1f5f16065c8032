//! The rows of the log for a mutation, and their encoding.
//!
//! Invariant: the entries of a group have one time in one stream, and consecutive numbers; the last one has `cdc$end_of_batch`.

use std::convert::Infallible;

use cql_lite::types::token::Partitioner;
use cql_lite::types::{CqlType, ordered, timeuuid};
use helenus_feed_tables::{ChangeFeedOptions, Delta, Preimage};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::{PartitionKey, key_components};
use helenus_rows::cell::{Cell, CellKind, Expiry};
use helenus_rows::key::{REGULAR_TAG, STATIC_POSITION};
use helenus_rows::mutation::{Mutation, MutationBuilder, MutationRef, Operation as Written, TableId};
use smallvec::SmallVec;
use uuid::Uuid;

use crate::bounds::{clustering_of, end_bound, start_bound};
use crate::delta::{ChangeKind, Columns, changes};
use crate::image::{ImageColumn, named_rows};
use crate::layout::LogLayout;
use crate::parts::Parts;
use crate::values::{elements_value, keys_value};

/// The value of `cdc$operation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    Preimage = 0,
    Update = 1,
    Insert = 2,
    DeleteRow = 3,
    DeletePartition = 4,
    RangeStartInclusive = 5,
    RangeStartExclusive = 6,
    RangeEndInclusive = 7,
    RangeEndExclusive = 8,
    Postimage = 9,
}

impl Operation {
    /// The operation with this value.
    pub fn of_value(value: u8) -> Option<Self> {
        const ALL: [Operation; 10] = [
            Operation::Preimage,
            Operation::Update,
            Operation::Insert,
            Operation::DeleteRow,
            Operation::DeletePartition,
            Operation::RangeStartInclusive,
            Operation::RangeStartExclusive,
            Operation::RangeEndInclusive,
            Operation::RangeEndExclusive,
            Operation::Postimage,
        ];
        ALL.get(usize::from(value)).copied()
    }
}

/// A row of the log that has no place yet.
#[derive(Debug)]
pub struct Entry {
    /// That of the write, in microseconds.
    pub timestamp: i64,
    pub operation: Operation,
    /// The log's columns: id, and where the value ends in `values`. It begins where the one before ends.
    cells: Vec<(u32, usize)>,
    values: Vec<u8>,
}

impl Entry {
    fn new(timestamp: i64, operation: Operation, cells: usize) -> Self {
        const VALUE_BYTES: usize = 16;
        let values = Vec::with_capacity(cells * VALUE_BYTES);
        Self { timestamp, operation, cells: Vec::with_capacity(cells), values }
    }

    fn put(&mut self, column: u32, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.cells.push((column, self.values.len()));
    }

    /// The columns and their values, by the ids of the columns.
    fn sorted(&self) -> SmallVec<[(u32, &[u8]); CELLS]> {
        let mut begin = 0;
        let mut cells: SmallVec<[(u32, &[u8]); CELLS]> = SmallVec::with_capacity(self.cells.len());
        for &(column, end) in &self.cells {
            cells.push((column, &self.values[begin..end]));
            begin = end;
        }
        cells.sort_by_key(|(column, _)| *column);
        cells
    }
}

/// Most entries have no more cells.
const CELLS: usize = 16;

/// Where entries of a group are put.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The partition of the log.
    pub stream: [u8; 16],
    pub time: Uuid,
    /// The number of the first of the entries.
    pub first_number: i32,
    /// Whether the last of the entries is the last of its group.
    pub ends_group: bool,
    /// When the entries disappear.
    pub expiry: Option<Expiry>,
}

/// A table with a feed, and its log.
#[derive(Debug, Clone, Copy)]
pub struct Feed<'a> {
    pub table: &'a Table,
    pub options: &'a ChangeFeedOptions,
    pub layout: &'a LogLayout,
}

impl Feed<'_> {
    /// The entries of a mutation: images of before, its changes, images of after. `existing`: the rows of before, for a feed with images.
    pub fn entries(
        &self,
        mutation: &MutationRef<'_>,
        existing: Option<&dyn ExistingRows>,
        now_seconds: u32,
    ) -> Result<Vec<Entry>> {
        let Self { table, options, layout } = *self;
        let parts = Parts::of(mutation)?;
        let changes = changes(layout, &parts)?;
        let Some(newest) = changes.iter().map(|change| change.timestamp).max() else { return Ok(Vec::new()) };
        let writer = EntryWriter::new(layout, table, mutation.partition_key)?;
        let mut entries = Vec::with_capacity(changes.len());
        let named = if options.needs_row_of_before() {
            let existing = existing.ok_or_else(|| {
                RequestError::Server("images of rows are made where their partition is read".to_owned())
            })?;
            let key = PartitionKey { token: mutation.token, bytes: mutation.partition_key.to_vec() };
            named_rows(&parts, table, &key, existing)?
        } else {
            Vec::new()
        };
        if options.preimage != Preimage::Off {
            let all = options.preimage == Preimage::Full;
            for row in &named {
                if let Some(columns) = row.before(layout, all, now_seconds)? {
                    let mut entry = writer.of_row(newest, Operation::Preimage, row.position)?;
                    put_image(&mut entry, columns, true);
                    entries.push(entry);
                }
            }
        }
        for change in &changes {
            writer.put_change(change.timestamp, &change.kind, options.delta, &mut entries)?;
        }
        if options.postimage {
            for row in &named {
                if let Some(columns) = row.after(layout, &parts, now_seconds)? {
                    let mut entry = writer.of_row(newest, Operation::Postimage, row.position)?;
                    put_image(&mut entry, columns, false);
                    entries.push(entry);
                }
            }
        }
        Ok(entries)
    }
}

/// Writes the entries of one partition.
struct EntryWriter<'a> {
    layout: &'a LogLayout,
    /// The columns of the partition key.
    key: SmallVec<[(u32, &'a [u8]); 2]>,
}

impl<'a> EntryWriter<'a> {
    fn new(layout: &'a LogLayout, table: &Table, partition_key: &'a [u8]) -> Result<Self> {
        let components = key_components(partition_key, table.partition_key_count)?;
        let columns = layout.partition_key.iter().copied().zip(components);
        let key = columns.map(|(column, range)| (column, &partition_key[range])).collect();
        Ok(Self { layout, key })
    }

    /// An entry with the first clustering columns.
    fn entry(&self, timestamp: i64, operation: Operation, clustering: &[Vec<u8>]) -> Entry {
        let mut entry = Entry::new(timestamp, operation, CELLS);
        for (column, value) in &self.key {
            entry.put(*column, value);
        }
        for (column, value) in self.layout.clustering.iter().zip(clustering) {
            entry.put(column.log, value);
        }
        entry.put(self.layout.operation, &[operation as u8]);
        entry
    }

    /// An entry of a regular row, or of the static one.
    fn of_row(&self, timestamp: i64, operation: Operation, position: &[u8]) -> Result<Entry> {
        let clustering =
            if position == STATIC_POSITION { Vec::new() } else { clustering_of(self.layout, position)? };
        Ok(self.entry(timestamp, operation, &clustering))
    }

    fn put_change(
        &self,
        timestamp: i64,
        kind: &ChangeKind<'_>,
        delta: Delta,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let (operation, position, columns) = match kind {
            ChangeKind::Static(columns) => (Operation::Update, STATIC_POSITION, Some(columns)),
            ChangeKind::Insert { position, columns } => (Operation::Insert, *position, Some(columns)),
            ChangeKind::Update { position, columns } => (Operation::Update, *position, Some(columns)),
            ChangeKind::DeleteRow { position } => (Operation::DeleteRow, *position, None),
            ChangeKind::DeletePartition => {
                entries.push(self.entry(timestamp, Operation::DeletePartition, &[]));
                return Ok(());
            }
            ChangeKind::DeleteRange(range) => {
                let (start, end) =
                    (start_bound(self.layout, range.start)?, end_bound(self.layout, range.end)?);
                let of_start = if start.is_inclusive {
                    Operation::RangeStartInclusive
                } else {
                    Operation::RangeStartExclusive
                };
                let of_end = if end.is_inclusive {
                    Operation::RangeEndInclusive
                } else {
                    Operation::RangeEndExclusive
                };
                entries.push(self.entry(timestamp, of_start, &start.clustering));
                entries.push(self.entry(timestamp, of_end, &end.clustering));
                return Ok(());
            }
        };
        let mut entry = self.of_row(timestamp, operation, position)?;
        if let Some(columns) = columns {
            if let Some(seconds) = columns.ttl_seconds {
                entry.put(self.layout.ttl, &i64::from(seconds).to_be_bytes());
            }
            if delta == Delta::Full {
                self.put_columns(&mut entry, columns)?;
            }
        }
        entries.push(entry);
        Ok(())
    }

    fn put_columns(&self, entry: &mut Entry, columns: &Columns<'_>) -> Result<()> {
        for (id, change) in &columns.changes {
            let Some(column) = self.layout.column(*id) else { continue };
            if change.is_deleted {
                entry.put(column.deleted, &TRUE);
            }
            if let Some(value) = change.value {
                entry.put(column.value, value);
            }
            if !change.added.is_empty() {
                entry.put(column.value, &elements_value(&column.column_type, &change.added)?);
            }
            if let Some(deleted_elements) = column.deleted_elements
                && !change.removed.is_empty()
            {
                entry.put(deleted_elements, &keys_value(&column.column_type, &change.removed)?);
            }
        }
        Ok(())
    }
}

/// `marks_nulls`: columns that are null are told from those that are left out.
fn put_image(entry: &mut Entry, columns: Vec<ImageColumn<'_>>, marks_nulls: bool) {
    for (column, value) in columns {
        match value {
            Some(value) => entry.put(column.value, &value),
            None if marks_nulls => entry.put(column.deleted, &TRUE),
            None => {}
        }
    }
}

/// The wire bytes of true.
const TRUE: [u8; 1] = [1];

/// The mutation of the log that puts entries into their place.
pub fn log_mutation(layout: &LogLayout, entries: Vec<Entry>, place: &Place) -> Result<Mutation> {
    let token = Partitioner::Stream.token(&place.stream);
    let bytes = entries.iter().map(|entry| entry.values.len() + CELL_BYTES * entry.cells.len()).sum();
    let mut builder = MutationBuilder::with_capacity(layout.table, token, &place.stream, bytes)
        .map_err(|error| RequestError::Server(error.to_string()))?;
    let kind = place.expiry.map_or(CellKind::Live, CellKind::Expiring);
    let count = entries.len();
    for ((index, mut entry), number) in entries.into_iter().enumerate().zip(place.first_number..) {
        if place.ends_group && index + 1 == count {
            entry.put(layout.end_of_batch, &TRUE);
        }
        let position = position(place.time, number)?;
        let Ok(()) = builder.row_in_order(&position, None, |row| {
            for (column, value) in entry.sorted() {
                row.cell(&Cell { column, path: &[], timestamp: entry.timestamp, kind, value });
            }
            Ok::<_, Infallible>(())
        });
    }
    Ok(builder.build())
}

/// About what a cell takes beside its value.
const CELL_BYTES: usize = 8;

/// The position of an entry: `cdc$time` and `cdc$batch_seq_no`.
fn position(time: Uuid, number: i32) -> Result<Vec<u8>> {
    let mut position = vec![REGULAR_TAG];
    let failed = |error: ordered::OrderedError| RequestError::Server(error.to_string());
    ordered::encode(&CqlType::Timeuuid, time.as_bytes(), false, &mut position).map_err(failed)?;
    ordered::encode(&CqlType::Int, &number.to_be_bytes(), false, &mut position).map_err(failed)?;
    Ok(position)
}

/// The time of the entries that a mutation has in a log, in microseconds. `None`: it has none.
pub fn time_in(mutation: &MutationRef<'_>, log: TableId) -> Option<i64> {
    let mut companions = mutation.companions().filter_map(std::result::Result::ok);
    let first = companions.find(|entries| entries.table == log)?.operations().next()?;
    match first.ok()? {
        Written::Row { position, .. } => time_at(position).map(|time| timeuuid::unix_micros(&time)),
        Written::RangeTombstone { .. } => None,
    }
}

/// The time of an entry, `cdc$time`, by its position. `None`: it is not the position of an entry.
fn time_at(position: &[u8]) -> Option<Uuid> {
    let mut rest = position.strip_prefix(&[REGULAR_TAG])?;
    let mut time = Vec::with_capacity(size_of::<Uuid>());
    ordered::decode(&CqlType::Timeuuid, &mut rest, false, &mut time).ok()?;
    Uuid::from_slice(&time).ok()
}
