//! Writing a table, front to back, from rows in ascending order.
//!
//! Memory use: one block, one write buffer, and 8 bytes per row and per partition until the filters are built at the end.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::block::BlockBuilder;
use super::compression::{BLOCK_BYTES_MAX, Compression};
use super::error::TableError;
use super::filter::{self, LINE_BYTES};
use super::format::{FOOTER_BYTES, Footer, Section, VERSION, put_block};
use super::index::{BlockHandle, LEAF_ENTRIES_MAX, NodeBuilder, separator};
use super::range_tombstones::{RangeTombstoneRef, RangeTombstonesBuilder};
use super::statistics::TableStatistics;
use crate::cell::Deletion;
use crate::io::{Disk, DiskError, DiskFile};
use crate::key;
use crate::partition_watch::{PartitionMeasure, PartitionWatch};
use crate::row::RowRef;

/// Size of the write buffer.
const WRITE_BYTES: usize = 256 << 10;

/// The largest row with its key, in bytes. Such a row has a block of its own.
pub const ROW_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;

/// Blocks are closed at this size at the latest. This leaves room for the overhead of the last row.
const BLOCK_BYTES_CLOSED: usize = BLOCK_BYTES_MAX / 2;
const _: () = assert!(BLOCK_BYTES_CLOSED <= BLOCK_BYTES_MAX && ROW_BYTES_MAX < BLOCK_BYTES_MAX);

/// How a table is laid out, and who looks at its partitions.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub compression: Compression,
    /// The size at which blocks are closed, uncompressed.
    pub block_bytes: usize,
    /// The intended rate of false positives of the filters. 1 or more: no filters.
    pub bloom_filter_fp_chance: f64,
    pub partition_watch: Option<Arc<dyn PartitionWatch>>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            block_bytes: 16 << 10,
            bloom_filter_fp_chance: 0.01,
            partition_watch: None,
        }
    }
}

/// A complete, synced table.
#[derive(Debug)]
pub struct WrittenTable {
    pub statistics: TableStatistics,
    /// The hashes of the full keys of its rows, in their order.
    pub row_hashes: Vec<u64>,
}

/// The output file. Appends are collected into large writes.
struct Output {
    file: Arc<dyn DiskFile>,
    written: u64,
    buffer: BytesMut,
}

impl Output {
    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    async fn flush(&mut self) -> Result<(), DiskError> {
        let data: Bytes = self.buffer.split().freeze();
        let length = data.len() as u64;
        self.file.write_at(self.written, data).await?;
        self.written += length;
        self.buffer.reserve(WRITE_BYTES);
        Ok(())
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn section(&mut self, bytes: &[u8]) -> Result<Section, DiskError> {
        let section = Section::of(self.position(), bytes);
        self.append(bytes).await?;
        Ok(section)
    }

    /// As `section`, aligned to a cache line.
    async fn aligned_section(&mut self, bytes: &[u8]) -> Result<Section, DiskError> {
        if !bytes.is_empty() {
            let padding = self.position().next_multiple_of(LINE_BYTES as u64) - self.position();
            self.append(&[0; LINE_BYTES][..padding as usize]).await?;
        }
        self.section(bytes).await
    }
}

/// Writes one table. If it is dropped before `finish`, an incomplete file is left, which readers refuse.
pub struct TableWriter {
    options: TableOptions,
    output: Output,
    block: BlockBuilder,
    /// A buffer for stored blocks and sections.
    scratch: Vec<u8>,
    /// The separator between the previous block and the current one.
    block_separator: Vec<u8>,
    leaf: NodeBuilder,
    leaves: Vec<u8>,
    /// First key and place of each leaf. Offsets are relative to `leaves`, whose place in the file is not known yet.
    root: Vec<(Vec<u8>, BlockHandle)>,
    range_tombstones: RangeTombstonesBuilder,
    first_range_tombstone_start: Vec<u8>,
    partition_hashes: Vec<u64>,
    row_hashes: Vec<u64>,
    /// Length of the partition prefix of the last key.
    partition_length: usize,
    partition_rows: u64,
    partition_bytes: u64,
    /// `None`: nobody looks at the partitions.
    measure: Option<PartitionMeasure>,
    statistics: TableStatistics,
}

impl TableWriter {
    /// Creates the file, which must not exist yet.
    pub async fn create(disk: &dyn Disk, path: &Path, options: TableOptions) -> Result<Self, TableError> {
        let file = disk.create(path).await?;
        let block_bytes = options.block_bytes.min(BLOCK_BYTES_CLOSED);
        let measure = options.partition_watch.as_ref().map(|watch| PartitionMeasure::new(watch, path));
        Ok(Self {
            options: TableOptions { block_bytes, ..options },
            output: Output { file, written: 0, buffer: BytesMut::with_capacity(WRITE_BYTES) },
            block: BlockBuilder::new(),
            scratch: Vec::new(),
            block_separator: Vec::new(),
            leaf: NodeBuilder::default(),
            leaves: Vec::new(),
            root: Vec::new(),
            range_tombstones: RangeTombstonesBuilder::default(),
            first_range_tombstone_start: Vec::new(),
            partition_hashes: Vec::new(),
            row_hashes: Vec::new(),
            partition_length: 0,
            partition_rows: 0,
            partition_bytes: 0,
            measure,
            statistics: TableStatistics::default(),
        })
    }

    /// Bytes written or buffered so far.
    pub fn size_bytes(&self) -> u64 {
        self.output.position() + self.block.size_bytes() as u64
    }

    /// Appends a row. Keys must be full keys in strictly ascending order.
    pub async fn add(&mut self, full_key: &[u8], row: RowRef<'_>) -> Result<(), TableError> {
        let bytes = full_key.len() + row.bytes.len();
        if bytes > ROW_BYTES_MAX {
            return Err(TableError::RowTooLarge { bytes, limit: ROW_BYTES_MAX });
        }
        if self.statistics.rows > 0 && full_key <= self.block.last_key() {
            return Err(TableError::Disorder { what: "rows" });
        }
        self.begin_row(full_key)?;
        if !self.block.is_empty() && self.block.size_bytes() + bytes > self.options.block_bytes {
            self.end_block().await?;
        }
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
        if let Some(measure) = &mut self.measure {
            let tombstones = self.statistics.tombstones - tombstones_before;
            measure.add(&full_key[..self.partition_length], bytes as u64, tombstones);
        }
        if let Some(positions) = &mut self.statistics.positions {
            positions.add(&full_key[self.partition_length..]);
        }
        self.block.add(full_key, row, base)?;
        self.row_hashes.push(filter::row_hash(full_key));
        self.partition_rows += 1;
        self.partition_bytes += bytes as u64;
        Ok(())
    }

    /// Handles the beginning of a new partition.
    fn begin_row(&mut self, full_key: &[u8]) -> Result<(), TableError> {
        let prefix_length = key::prefix_length(full_key)
            .filter(|length| *length < full_key.len())
            .ok_or(TableError::InvalidKey)?;
        let same_partition = self.statistics.rows > 0
            && prefix_length == self.partition_length
            && full_key.get(..prefix_length) == self.block.last_key().get(..prefix_length);
        if !same_partition {
            self.end_partition();
            self.partition_length = prefix_length;
            self.statistics.partitions += 1;
            self.partition_hashes.push(filter::partition_hash(full_key));
        }
        Ok(())
    }

    fn end_partition(&mut self) {
        let statistics = &mut self.statistics;
        statistics.largest_partition_rows = statistics.largest_partition_rows.max(self.partition_rows);
        statistics.largest_partition_bytes = statistics.largest_partition_bytes.max(self.partition_bytes);
        self.partition_rows = 0;
        self.partition_bytes = 0;
    }

    /// Adds a range tombstone for the keys `[start, end)` of one partition. Range tombstones must ascend and must not overlap. Their
    /// order relative to the rows does not matter, but [`TableOptions::partition_watch`] sees a partition as a whole only if they come next
    /// to its rows.
    pub fn add_range_tombstone(
        &mut self,
        start: &[u8],
        end: &[u8],
        deletion: Deletion,
    ) -> Result<(), TableError> {
        let prefix = filter::partition_of(start);
        if key::prefix_length(start).is_none() || filter::partition_of(end) != prefix {
            return Err(TableError::InvalidKey);
        }
        let new_partition = !self.range_tombstones.last_end().starts_with(prefix);
        if !self.range_tombstones.add(&RangeTombstoneRef { start, end, deletion }) {
            return Err(TableError::Disorder { what: "range tombstones" });
        }
        if new_partition {
            self.partition_hashes.push(filter::partition_hash(start));
        }
        if self.statistics.range_tombstones == 0 {
            self.first_range_tombstone_start = start.to_vec();
        }
        if let Some(measure) = &mut self.measure {
            measure.add(prefix, (start.len() + end.len()) as u64, 1);
        }
        self.statistics.range_tombstones += 1;
        self.statistics.add_deletion(deletion);
        Ok(())
    }

    async fn end_block(&mut self) -> Result<(), TableError> {
        let offset = self.output.position();
        let (compression, scratch) = (self.options.compression, &mut self.scratch);
        scratch.clear();
        self.block.finish(|body| put_block(compression, body, scratch));
        let length =
            u32::try_from(self.scratch.len()).map_err(|_| TableError::TooLarge { what: "blocks" })?;
        self.leaf.add(&self.block_separator, BlockHandle { offset, length });
        if self.leaf.len() == LEAF_ENTRIES_MAX {
            self.end_leaf()?;
        }
        self.output.append(&self.scratch).await?;
        Ok(())
    }

    fn end_leaf(&mut self) -> Result<(), TableError> {
        if self.leaf.is_empty() {
            return Ok(());
        }
        let first_key = self.leaf.first_key().to_vec();
        let offset = self.leaves.len();
        self.leaf.write_to(&mut self.leaves)?;
        let length = u32::try_from(self.leaves.len() - offset)
            .map_err(|_| TableError::TooLarge { what: "index nodes" })?;
        self.root.push((first_key, BlockHandle { offset: offset as u64, length }));
        Ok(())
    }

    /// Writes the remaining parts and syncs the file. Its name is durable only after the caller has synced the directory.
    pub async fn finish(mut self) -> Result<WrittenTable, TableError> {
        if !self.block.is_empty() {
            self.end_block().await?;
        }
        self.end_leaf()?;
        self.end_partition();
        if let Some(measure) = self.measure.take() {
            measure.end();
        }
        let data_bytes = self.output.position();
        let statistics = &mut self.statistics;
        if statistics.range_tombstones > 0
            && (statistics.rows == 0 || self.first_range_tombstone_start < statistics.min_key)
        {
            statistics.min_key = std::mem::take(&mut self.first_range_tombstone_start);
        }
        statistics.max_key = self.block.last_key().max(self.range_tombstones.last_end()).to_vec();

        let mut section = std::mem::take(&mut self.scratch);
        section.clear();
        self.range_tombstones.write_to(&mut section)?;
        let range_tombstones = self.output.section(&section).await?;

        let chance = self.options.bloom_filter_fp_chance;
        let partition_filter = filter::build(&self.partition_hashes, chance);
        let partition_filter = self.output.aligned_section(&partition_filter).await?;
        let has_wide_partitions = statistics.largest_partition_rows > 1;
        let row_hashes = if has_wide_partitions { self.row_hashes.as_slice() } else { &[] };
        let row_filter = self.output.aligned_section(&filter::build(row_hashes, chance)).await?;

        let index_leaves = self.output.section(&self.leaves).await?;
        let mut root = NodeBuilder::default();
        for (first_key, leaf) in &self.root {
            root.add(
                first_key,
                BlockHandle { offset: index_leaves.offset + leaf.offset, length: leaf.length },
            );
        }
        section.clear();
        root.write_to(&mut section)?;
        let index_root = self.output.section(&section).await?;

        section.clear();
        statistics.write_to(&mut section);
        let statistics = self.output.section(&section).await?;

        let file_bytes = self.output.position() + FOOTER_BYTES as u64;
        let footer = Footer {
            range_tombstones,
            partition_filter,
            row_filter,
            index_leaves,
            index_root,
            statistics,
            data_bytes,
            file_bytes,
            version: VERSION,
        };
        section.clear();
        footer.write_to(&mut section);
        self.output.append(&section).await?;
        self.output.flush().await?;
        self.output.file.sync_data().await?;
        Ok(WrittenTable { statistics: self.statistics, row_hashes: self.row_hashes })
    }
}
