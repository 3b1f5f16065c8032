//! Rows become blocks: what the writer of a table and the pieces of a table in memory ([`super::piece`]) have in common.
//!
//! Invariant: a partition counts once, in the statistics that were current when it began.

use super::block::BlockBuilder;
use super::compression::{BLOCK_BYTES_MAX, Compression};
use super::error::TableError;
use super::filter;
use super::format::put_block;
use super::index::separator;
use super::statistics::TableStatistics;
use crate::key;
use crate::row::RowRef;

/// The largest row with its key, in bytes. Such a row has a block of its own.
pub const ROW_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;

/// Blocks are closed at this size at the latest. This leaves room for the overhead of the last row.
const BLOCK_BYTES_CLOSED: usize = BLOCK_BYTES_MAX / 2;
const _: () = assert!(BLOCK_BYTES_CLOSED <= BLOCK_BYTES_MAX && ROW_BYTES_MAX < BLOCK_BYTES_MAX);

/// A block that is complete.
pub struct EncodedBlock<'a> {
    /// Greater than every key of the blocks before, at most the first key of this one.
    pub separator: &'a [u8],
    /// As it is stored.
    pub stored: &'a [u8],
}

/// Encodes rows in ascending order, and counts them.
pub struct RowsEncoder {
    compression: Compression,
    block_bytes: usize,
    block: BlockBuilder,
    /// A buffer for stored blocks.
    stored: Vec<u8>,
    /// The separator between the previous block and the current one.
    block_separator: Vec<u8>,
    /// Length of the partition prefix of the last key. 0: the next row begins a partition.
    partition_length: usize,
    partition_rows: u64,
    partition_bytes: u64,
    pub statistics: TableStatistics,
    pub partition_hashes: Vec<u64>,
    pub row_hashes: Vec<u64>,
}

impl RowsEncoder {
    /// `block_bytes`: the size at which blocks are closed, uncompressed.
    pub fn new(compression: Compression, block_bytes: usize) -> Self {
        Self {
            compression,
            block_bytes: block_bytes.min(BLOCK_BYTES_CLOSED),
            block: BlockBuilder::new(),
            stored: Vec::new(),
            block_separator: Vec::new(),
            partition_length: 0,
            partition_rows: 0,
            partition_bytes: 0,
            statistics: TableStatistics::default(),
            partition_hashes: Vec::new(),
            row_hashes: Vec::new(),
        }
    }

    /// Bytes of the current block.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        self.block.size_bytes()
    }

    #[inline]
    pub fn last_key(&self) -> &[u8] {
        self.block.last_key()
    }

    /// Checks a row that is to be added, and begins its partition. True: the current block must be ended before.
    #[inline]
    pub fn begin_row(&mut self, full_key: &[u8], row: RowRef<'_>) -> Result<bool, TableError> {
        let bytes = full_key.len() + row.bytes.len();
        if bytes > ROW_BYTES_MAX {
            return Err(TableError::RowTooLarge { bytes, limit: ROW_BYTES_MAX });
        }
        let last_key = self.block.last_key();
        if !last_key.is_empty() && full_key <= last_key {
            return Err(TableError::Disorder { what: "rows" });
        }
        let prefix_length = key::prefix_length(full_key)
            .filter(|length| *length < full_key.len())
            .ok_or(TableError::InvalidKey)?;
        let same_partition = prefix_length == self.partition_length
            && full_key.get(..prefix_length) == last_key.get(..prefix_length);
        if !same_partition {
            self.end_partition();
            self.partition_length = prefix_length;
            self.statistics.partitions += 1;
            self.partition_hashes.push(filter::partition_hash(full_key));
        }
        Ok(!self.block.is_empty() && self.block.size_bytes() + bytes > self.block_bytes)
    }

    /// Adds a row that was begun. Returns the partition prefix of its key, and the number of its tombstones.
    #[inline]
    pub fn add_row<'k>(
        &mut self,
        full_key: &'k [u8],
        row: RowRef<'_>,
    ) -> Result<(&'k [u8], u64), TableError> {
        if self.block.is_empty() {
            let between = separator(self.block.last_key(), full_key);
            self.block_separator.clear();
            self.block_separator.extend_from_slice(between);
        }
        if self.statistics.rows == 0 {
            self.statistics.min_key = full_key.to_vec();
        }
        let tombstones_before = self.statistics.tombstones;
        let base = self.statistics.add_row(full_key, row)?.unwrap_or(0);
        let tombstones = self.statistics.tombstones - tombstones_before;
        let (prefix, position) =
            full_key.split_at_checked(self.partition_length).ok_or(TableError::InvalidKey)?;
        if let Some(positions) = &mut self.statistics.positions {
            positions.add(position);
        }
        self.block.add(full_key, row, base)?;
        self.row_hashes.push(filter::row_hash(full_key));
        self.partition_rows += 1;
        self.partition_bytes += (full_key.len() + row.bytes.len()) as u64;
        Ok((prefix, tombstones))
    }

    /// Ends the current partition, if there is one, and takes note of its size.
    pub fn end_partition(&mut self) {
        self.note_partition();
        self.leave_partition();
    }

    /// Takes note of the size of the current partition so far.
    pub fn note_partition(&mut self) {
        let statistics = &mut self.statistics;
        statistics.largest_partition_rows = statistics.largest_partition_rows.max(self.partition_rows);
        statistics.largest_partition_bytes = statistics.largest_partition_bytes.max(self.partition_bytes);
    }

    /// The next row begins another partition, or a part of this one in another table.
    pub fn leave_partition(&mut self) {
        self.partition_length = 0;
        self.partition_rows = 0;
        self.partition_bytes = 0;
    }

    /// Ends the current block. `None`: it has no rows.
    pub fn end_block(&mut self) -> Option<EncodedBlock<'_>> {
        if self.block.is_empty() {
            return None;
        }
        let (compression, stored) = (self.compression, &mut self.stored);
        stored.clear();
        self.block.finish(|body| put_block(compression, body, stored));
        Some(EncodedBlock { separator: &self.block_separator, stored: &self.stored })
    }

    /// Counts rows that were encoded elsewhere, of whole partitions or of parts of one. They come behind all others, and `last_key` is
    /// the last one.
    pub fn add_encoded(
        &mut self,
        statistics: &TableStatistics,
        partition_hashes: &[u64],
        row_hashes: &[u64],
        last_key: &[u8],
    ) {
        self.statistics.add_later(statistics);
        self.partition_hashes.extend_from_slice(partition_hashes);
        self.row_hashes.extend_from_slice(row_hashes);
        self.block.set_last_key(last_key);
    }
}
