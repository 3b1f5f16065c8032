//! Rows of partitions that this shard owns, for statements that read before they write.

use helenus_engine::key::{REGULAR_END, REGULAR_START};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{RowRef, key, transcode};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use crate::shard::context::ShardContext;
use crate::shard::receipt::{self, RowMeter};

/// Rows of the shard of this thread.
pub struct ShardRows<'a> {
    pub context: &'a ShardContext,
    pub now_seconds: u32,
}

impl ShardRows<'_> {
    /// The first row of a range of full keys that `is_there` accepts: its position, and its content with base 0.
    fn first(
        &self,
        table: &Table,
        (start, end): &(Vec<u8>, Vec<u8>),
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut scan = self.context.shard.scan(&ScanRequest {
            table: table.engine_id(),
            start,
            end,
            reversed: false,
            now_seconds: self.now_seconds,
            budget: Budget::UNLIMITED,
        })?;
        receipt::count_range(1);
        let mut meter = RowMeter::begin();
        while let Step::Row(view) = scan.next()? {
            meter.add(view.partition_key, view.position, view.row, None);
            if is_there(view.row) {
                let position = view.position.to_vec();
                let mut row = Vec::new();
                transcode(view.row, 0, &mut row).map_err(|error| RequestError::Server(error.to_string()))?;
                return Ok(Some((position, row)));
            }
        }
        Ok(None)
    }
}

impl ExistingRows for ShardRows<'_> {
    fn row(&self, table: &Table, partition: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.first(table, &row_range(partition, position)?, &|_| true)?;
        Ok(row.map(|(_, row)| row))
    }

    fn first_row(
        &self,
        table: &Table,
        partition: &PartitionKey,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.first(table, &regular_rows(partition)?, is_there)
    }
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
    let bound = |position: &[u8]| {
        key::full_key(partition.token, &partition.bytes, position)
            .map_err(|error| RequestError::invalid(error.to_string()))
    };
    Ok((bound(REGULAR_START)?, bound(REGULAR_END)?))
}
