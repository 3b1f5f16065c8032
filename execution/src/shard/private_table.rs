//! Tables of a shard's engine in which the server keeps rows of its own: hints, the batch log, the metadata log, the
//! progress of streaming. Clients never see them, and they do not move with the ring.
//!
//! Invariants:
//! * A row has one value, in one cell. Its position is chosen by the owner of the table.
//! * All partitions have the token 0: the keys of the table sort by partition and position alone.

use helenus_engine::commit_log::LogPosition;
use helenus_engine::error::EngineError;
use helenus_engine::key::{PARTITION_START, REGULAR_END, REGULAR_START, behind, full_key};
use helenus_engine::read::{Budget, Scan, ScanRequest, Step};
use helenus_engine::{Cell, CellKind, Deletion, MutationBuilder, RowBuilder, Shard, TableId};

const COLUMN: u32 = 1;
const TOKEN: i64 = 0;
/// Behind the full keys of all partitions.
const END_OF_TABLE: [u8; 9] = [0xFF; 9];

/// A table of private rows.
#[derive(Debug, Clone, Copy)]
pub struct PrivateTable(pub TableId);

/// A stored row.
#[derive(Debug, Clone, Copy)]
pub struct PrivateRow<'a> {
    pub partition: &'a [u8],
    pub position: &'a [u8],
    pub timestamp: i64,
    pub value: &'a [u8],
}

/// A half-open range of full keys.
#[derive(Debug, Clone)]
pub struct PrivateRange {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// Changes of one partition, which become one mutation.
pub struct PrivateChange {
    builder: MutationBuilder,
}

/// A scan of a range.
pub struct PrivateScan<'s> {
    scan: Scan<'s>,
}

impl PrivateTable {
    /// Begins a change of a partition.
    pub fn change(self, partition: &[u8]) -> PrivateChange {
        match MutationBuilder::new(self.0, TOKEN, partition) {
            Ok(builder) => PrivateChange { builder },
            Err(error) => unreachable!("a partition of {} is named by its owner: {error}", self.0),
        }
    }

    /// Reads the rows of a range in the order of their keys, until the budget is spent.
    pub fn scan<'s>(
        self,
        shard: &'s Shard,
        range: &PrivateRange,
        now_seconds: u32,
        budget: Budget,
    ) -> Result<PrivateScan<'s>, EngineError> {
        let request = self.request(range, now_seconds, budget);
        Ok(PrivateScan { scan: shard.scan(&request)? })
    }

    /// As [`Self::scan`], from the end of the range on.
    pub fn scan_backwards<'s>(
        self,
        shard: &'s Shard,
        range: &PrivateRange,
        now_seconds: u32,
        budget: Budget,
    ) -> Result<PrivateScan<'s>, EngineError> {
        let request = ScanRequest { reversed: true, ..self.request(range, now_seconds, budget) };
        Ok(PrivateScan { scan: shard.scan(&request)? })
    }

    fn request(self, range: &PrivateRange, now_seconds: u32, budget: Budget) -> ScanRequest<'_> {
        ScanRequest {
            table: self.0,
            start: &range.start,
            end: &range.end,
            reversed: false,
            now_seconds,
            budget,
        }
    }
}

impl PrivateRange {
    /// The whole table.
    pub fn all() -> Self {
        Self { start: PARTITION_START.to_vec(), end: END_OF_TABLE.to_vec() }
    }

    /// All rows of a partition.
    pub fn partition(partition: &[u8]) -> Self {
        Self::from_position(partition, REGULAR_START)
    }

    /// The rows of a partition from a position on.
    pub fn from_position(partition: &[u8], position: &[u8]) -> Self {
        Self { start: key(partition, position), end: key(partition, REGULAR_END) }
    }

    /// One row.
    pub fn row(partition: &[u8], position: &[u8]) -> Self {
        let start = key(partition, position);
        Self { end: behind(&start), start }
    }

    /// The rest of the range, behind what a scan has read.
    #[must_use]
    pub fn rest(self, resume_bound: Vec<u8>) -> Self {
        Self { start: resume_bound, ..self }
    }
}

fn key(partition: &[u8], position: &[u8]) -> Vec<u8> {
    match full_key(TOKEN, partition, position) {
        Ok(key) => key,
        Err(error) => unreachable!("a partition of a private table is named by its owner: {error}"),
    }
}

impl PrivateChange {
    /// Sets the value of a row.
    pub fn put(&mut self, position: &[u8], timestamp: i64, value: &[u8]) {
        let mut row = RowBuilder::new();
        row.cell(Cell { column: COLUMN, path: &[], timestamp, kind: CellKind::Live, value });
        self.builder.row(position, &mut row);
    }

    pub fn delete(&mut self, position: &[u8], deletion: Deletion) {
        let mut row = RowBuilder::new();
        row.set_deletion(deletion);
        self.builder.row(position, &mut row);
    }

    /// Deletes the rows from one position up to another, without the latter.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        self.builder.delete_range(start, end, deletion);
    }

    pub fn delete_partition(&mut self, deletion: Deletion) {
        self.builder.delete_partition(deletion);
    }

    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Applies the changes as one mutation. They are durable when the commit log is, up to the position.
    pub fn apply(self, shard: &Shard) -> Result<LogPosition, EngineError> {
        let mutation = self.builder.build();
        shard.apply(&mutation.view().map_err(EngineError::Mutation)?)
    }
}

impl PrivateScan<'_> {
    /// The next row. `None`: the range has no more, or the budget is spent ([`Self::resume_bound`]).
    #[allow(clippy::should_implement_trait, reason = "a row borrows from the scan")]
    pub fn next(&mut self) -> Result<Option<PrivateRow<'_>>, EngineError> {
        match self.scan.next()? {
            Step::Row(view) => {
                let Some(cell) = view.row.cells().next() else {
                    unreachable!("a private row without a value is never shown: {:?}", view.position)
                };
                Ok(Some(PrivateRow {
                    partition: view.partition_key,
                    position: view.position,
                    timestamp: cell.timestamp,
                    value: cell.value,
                }))
            }
            Step::Exhausted | Step::End => Ok(None),
        }
    }

    /// Leaves out the other rows of the partition of the last row.
    pub fn skip_partition(&mut self) -> Result<(), EngineError> {
        self.scan.skip_partition()
    }

    /// Where reading goes on after the budget was spent. `None`: the range was read to its end.
    pub fn resume_bound(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.scan.resume_bound()
    }
}
