//! Rows of partitions that this shard owns, for statements that read before they write.

use helenus_engine::key::{REGULAR_END, REGULAR_START};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{RowRef, key, transcode};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::keys::Slice;
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use crate::shard::context::ShardContext;
use crate::shard::receipt::{self, RowMeter};

/// Most bytes of rows that a transaction reads in a slice of its partition.
pub const SLICE_BYTES_MAX: u64 = 16 << 20;

/// Rows of the shard of this thread.
pub struct ShardRows<'a> {
    pub context: &'a ShardContext,
    pub now_seconds: u32,
}

impl ShardRows<'_> {
    /// The first rows of a range of full keys that `is_there` accepts, at most `rows_max`: their positions, and their contents with base 0.
    fn first(
        &self,
        table: &Table,
        (start, end): &(Vec<u8>, Vec<u8>),
        rows_max: usize,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut scan = self.context.shard.scan(&ScanRequest {
            table: table.engine_id(),
            start,
            end,
            reversed: false,
            now_seconds: self.now_seconds,
            budget: Budget::UNLIMITED,
        })?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        receipt::count_range(1);
        let mut meter = RowMeter::begin();
        while let Step::Row(view) = scan.next()? {
            meter.add(view.partition_key, view.position, view.row, None);
            if is_there(view.row) {
                let position = view.position.to_vec();
                let mut row = Vec::new();
                transcode(view.row, 0, &mut row).map_err(|error| RequestError::Server(error.to_string()))?;
                bytes += position.len() + row.len();
                // One row is read whatever its size.
                if !found.is_empty() && bytes as u64 > SLICE_BYTES_MAX {
                    return Err(too_many_rows());
                }
                found.push((position, row));
                if found.len() >= rows_max {
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl ExistingRows for ShardRows<'_> {
    fn row(&self, table: &Table, partition: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut rows = self.first(table, &row_range(partition, position)?, 1, &|_| true)?;
        Ok(rows.pop().map(|(_, row)| row))
    }

    fn rows_of(
        &self,
        table: &Table,
        partition: &PartitionKey,
        slice: &Slice,
        rows_max: usize,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.first(table, &slice_range(partition, slice)?, rows_max, is_there)
    }
}

/// The error for a transaction that reads too much.
pub fn too_many_rows() -> RequestError {
    RequestError::invalid(format!(
        "A transaction may read rows of at most {SLICE_BYTES_MAX} bytes by a part of their primary key"
    ))
}

/// The half-open range of full keys of a slice of a partition.
pub fn slice_range(partition: &PartitionKey, slice: &Slice) -> Result<(Vec<u8>, Vec<u8>)> {
    let bound = |position: &[u8]| {
        key::full_key(partition.token, &partition.bytes, position)
            .map_err(|error| RequestError::invalid(error.to_string()))
    };
    Ok((bound(&slice.start)?, bound(&slice.end)?))
}

/// The half-open range of full keys that holds one row of a partition.
pub fn row_range(partition: &PartitionKey, position: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let start = key::full_key(partition.token, &partition.bytes, position)
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let end = key::behind(&start);
    Ok((start, end))
}

/// The half-open range of full keys of a partition's regular rows.
pub fn regular_rows(partition: &PartitionKey) -> Result<(Vec<u8>, Vec<u8>)> {
    slice_range(partition, &Slice { start: REGULAR_START.to_vec(), end: REGULAR_END.to_vec() })
}
