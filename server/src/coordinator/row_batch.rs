//! Batches of rows on their way between shards: merged rows with their full keys, in the order of the table.

use std::collections::VecDeque;

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
    /// Read only the first row of each partition.
    pub first_of_partition: bool,
}

/// A row with its full key. The encoding has base 0.
#[derive(Debug, Clone)]
pub struct BatchRow {
    pub key: Vec<u8>,
    pub row: Vec<u8>,
}

/// The rows of one response.
#[derive(Debug, Default)]
pub struct RowBatch {
    pub rows: VecDeque<BatchRow>,
    /// The new start (or, reversed, end) of the unread rest of the range; `None` when the range is complete.
    pub resume: Option<Vec<u8>>,
}

impl BatchRow {
    /// The row as input for a SELECT.
    pub fn source(&self) -> Result<SourceRow<'_>> {
        let key = KeyRef::parse(&self.key).map_err(|error| RequestError::Server(error.to_string()))?;
        Ok(SourceRow {
            partition_key: key.partition_key,
            position: key.position,
            row: RowRef::new(&self.row, 0),
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
                let mut row = Vec::with_capacity(view.row.bytes.len() + 8);
                transcode(view.row, 0, &mut row).map_err(|error| RequestError::Server(error.to_string()))?;
                block.rows.push_back(BatchRow { key: view.key.to_vec(), row });
                if request.first_of_partition {
                    scan.skip_partition()?;
                }
                if block.rows.len() >= request.max_rows {
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
