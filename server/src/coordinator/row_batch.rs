//! Batches of rows on their way between shards: merged rows with their full keys, in the order of the table.

use helenus_engine::key::KeyRef;
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{RowRef, TableId, transcode};
use helenus_query::error::{RequestError, Result};
use helenus_query::stored_key::SourceRow;

use crate::shard::context::ShardContext;

/// A request to a shard for the rows of a range of full keys.
#[derive(Debug, Clone)]
pub struct RowBatchRequest {
    pub table: TableId,
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    pub reversed: bool,
    pub now_seconds: u32,
    pub max_rows: usize,
    pub max_bytes: usize,
    pub max_tombstones: u64,
    /// Read only the first row of each partition. Every row must be one that readers see.
    pub first_of_partition: bool,
}

/// A row with its full key. The encoding has base 0.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow<'a> {
    pub key: &'a [u8],
    pub row: &'a [u8],
}

/// The rows of one response, which are taken one after the other. All lie in one buffer.
#[derive(Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    /// Where the key and the encoding of each row end.
    ends: Vec<(usize, usize)>,
    /// The number of the first row that was not taken.
    next: usize,
    /// The new start (or, reversed, end) of the unread rest of the range; `None` when the range is complete.
    pub resume: Option<Vec<u8>>,
}

impl RowBatch {
    fn push(&mut self, key: &[u8], row: RowRef<'_>) -> Result<()> {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        transcode(row, 0, &mut self.bytes).map_err(|error| RequestError::Server(error.to_string()))?;
        self.ends.push((key_end, self.bytes.len()));
        Ok(())
    }

    /// The first row that was not taken.
    pub fn first(&self) -> Option<BatchRow<'_>> {
        let (key_end, row_end) = *self.ends.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some(BatchRow { key: &self.bytes[start..key_end], row: &self.bytes[key_end..row_end] })
    }

    /// Takes the first row.
    pub fn take_first(&mut self) {
        self.next += 1;
    }

    /// Whether all rows were taken.
    pub fn is_empty(&self) -> bool {
        self.next >= self.ends.len()
    }
}

impl BatchRow<'_> {
    /// The row as input for a SELECT.
    pub fn source(&self) -> Result<SourceRow<'_>> {
        let key = KeyRef::parse(self.key).map_err(|error| RequestError::Server(error.to_string()))?;
        Ok(SourceRow {
            partition_key: key.partition_key,
            position: key.position,
            row: RowRef::new(self.row, 0),
        })
    }
}

/// Reads a batch of rows from the shard of this thread.
pub async fn read_row_batch(context: &ShardContext, request: &RowBatchRequest) -> Result<RowBatch> {
    context.shard.read_cold(|| read_in_turn(context, request)).await
}

fn read_in_turn(context: &ShardContext, request: &RowBatchRequest) -> Result<RowBatch> {
    let mut scan = context.shard.scan(&ScanRequest {
        table: request.table,
        start: &request.start,
        end: &request.end,
        reversed: request.reversed,
        now_seconds: request.now_seconds,
        budget: Budget { bytes: request.max_bytes as u64, tombstones: request.max_tombstones },
    })?;
    let mut block = RowBatch::default();
    loop {
        match scan.next()? {
            Step::Row(view) => {
                block.push(view.key, view.row)?;
                if request.first_of_partition {
                    scan.skip_partition()?;
                }
                if block.ends.len() >= request.max_rows {
                    block.resume = scan.resume_bound()?;
                    return Ok(block);
                }
            }
            Step::Exhausted => {
                block.resume = scan.resume_bound()?;
                return Ok(block);
            }
            Step::End => return Ok(block),
        }
    }
}
