//! Writing a table, front to back, from rows in ascending order.
//!
//! The rows come one by one, or encoded as pieces ([`super::piece`]).
//!
//! Memory use: one block, one write buffer, and 8 bytes per row and per partition until the filters are built at the end.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::error::TableError;
use super::filter::{self, LINE_BYTES};
use super::filter_parts;
use super::format::{FOOTER_BYTES, Footer, Section, VERSION};
use super::index::{BlockHandle, LEAF_ENTRIES_MAX, NodeBuilder, separator};
use super::options::TableOptions;
use super::piece::{PieceBlock, PieceOfPartition, TablePiece};
use super::range_tombstones::{RangeTombstoneRef, RangeTombstonesBuilder};
use super::rows_encoder::{EncodedBlock, RowsEncoder};
use super::statistics::TableStatistics;
use crate::cell::Deletion;
use crate::io::{Disk, DiskError, DiskFile};
use crate::key;
use crate::partition_watch::PartitionMeasure;
use crate::range_tombstone::RangeTombstone;
use crate::row::RowRef;

/// Size of the write buffer.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes after which a file is synced while it is written. What a sync at the end has to write would hold up the syncs of the commit log, which
/// wait for the same disk.
const SYNC_BYTES: u64 = 16 << 20;

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
    synced: u64,
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
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync_data().await?;
            self.synced = self.written;
        }
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

    /// As `section`, for a filter, which is aligned to a cache line. It may be empty.
    async fn filter_section(&mut self, mut filter: Vec<u8>) -> Result<Section, DiskError> {
        if filter.is_empty() {
            return self.section(&[]).await;
        }
        let padding = self.position().next_multiple_of(LINE_BYTES as u64) - self.position();
        self.append(&[0; LINE_BYTES][..padding as usize]).await?;
        let offset = self.position();
        let checked = filter_parts::make_section(&mut filter);
        self.append(&filter).await?;
        Ok(Section { offset, length: filter.len() as u64, crc32: crc32fast::hash(&filter[checked]) })
    }
}

/// Writes one table. If it is dropped before `finish`, an incomplete file is left, which readers refuse.
pub struct TableWriter {
    bloom_filter_fp_chance: f64,
    output: Output,
    rows: RowsEncoder,
    leaf: NodeBuilder,
    leaves: Vec<u8>,
    /// First key and place of each leaf. Offsets are relative to `leaves`, whose place in the file is not known yet.
    root: Vec<(Vec<u8>, BlockHandle)>,
    range_tombstones: RangeTombstonesBuilder,
    first_range_tombstone_start: Vec<u8>,
    /// `None`: nobody looks at the partitions.
    measure: Option<PartitionMeasure>,
}

impl TableWriter {
    /// Creates the file, which must not exist yet.
    pub async fn create(disk: &dyn Disk, path: &Path, options: TableOptions) -> Result<Self, TableError> {
        let file = disk.create(path).await?;
        let measure = options.partition_watch.as_ref().map(|watch| PartitionMeasure::new(watch, path));
        Ok(Self {
            bloom_filter_fp_chance: options.bloom_filter_fp_chance,
            output: Output { file, written: 0, synced: 0, buffer: BytesMut::with_capacity(WRITE_BYTES) },
            rows: RowsEncoder::new(options.compression, options.block_bytes),
            leaf: NodeBuilder::default(),
            leaves: Vec::new(),
            root: Vec::new(),
            range_tombstones: RangeTombstonesBuilder::default(),
            first_range_tombstone_start: Vec::new(),
            measure,
        })
    }

    /// Bytes written or buffered so far.
    pub fn size_bytes(&self) -> u64 {
        self.output.position() + self.rows.block_bytes() as u64
    }

    /// Appends a row. Keys must be full keys in strictly ascending order.
    pub async fn add(&mut self, full_key: &[u8], row: RowRef<'_>) -> Result<(), TableError> {
        if self.rows.begin_row(full_key, row)? {
            self.end_block().await?;
        }
        let (prefix, tombstones) = self.rows.add_row(full_key, row)?;
        if let Some(measure) = &mut self.measure {
            measure.add(prefix, (full_key.len() + row.bytes.len()) as u64, tombstones);
        }
        Ok(())
    }

    /// Appends a piece, which must come behind all that is there.
    pub async fn append(&mut self, piece: &TablePiece) -> Result<(), TableError> {
        for RangeTombstone { start, end, deletion } in &piece.range_tombstones {
            self.put_range_tombstone(start, end, *deletion)?;
        }
        if let Some(measure) = &mut self.measure {
            for PieceOfPartition { prefix, bytes, tombstones } in &piece.partitions {
                measure.add(prefix, *bytes, *tombstones);
            }
        }
        if piece.blocks.is_empty() {
            return Ok(());
        }
        self.end_block().await?;
        if piece.first_key.as_slice() <= self.rows.last_key() {
            return Err(TableError::Disorder { what: "rows" });
        }
        let first = separator(self.rows.last_key(), &piece.first_key);
        let separators =
            std::iter::once(first).chain(piece.blocks.iter().skip(1).map(|block| &*block.separator));
        let mut offset = self.output.position();
        for (separator, &PieceBlock { length, .. }) in separators.zip(&piece.blocks) {
            self.leaf.add(separator, BlockHandle { offset, length });
            offset += u64::from(length);
            if self.leaf.len() == LEAF_ENTRIES_MAX {
                self.end_leaf()?;
            }
        }
        self.output.append(&piece.stored).await?;
        let TablePiece { statistics, partition_hashes, row_hashes, last_key, .. } = piece;
        self.rows.add_encoded(statistics, partition_hashes, row_hashes, last_key);
        Ok(())
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
        self.put_range_tombstone(start, end, deletion)?;
        if let Some(measure) = &mut self.measure {
            measure.add(filter::partition_of(start), (start.len() + end.len()) as u64, 1);
        }
        Ok(())
    }

    fn put_range_tombstone(
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
        let RowsEncoder { statistics, partition_hashes, .. } = &mut self.rows;
        if new_partition {
            partition_hashes.push(filter::partition_hash(start));
        }
        if statistics.range_tombstones == 0 {
            self.first_range_tombstone_start = start.to_vec();
        }
        statistics.range_tombstones += 1;
        statistics.add_deletion(deletion);
        Ok(())
    }

    async fn end_block(&mut self) -> Result<(), TableError> {
        let Some(EncodedBlock { separator, stored }) = self.rows.end_block() else { return Ok(()) };
        let offset = self.output.position();
        let length = u32::try_from(stored.len()).map_err(|_| TableError::TooLarge { what: "blocks" })?;
        self.leaf.add(separator, BlockHandle { offset, length });
        self.output.append(stored).await?;
        if self.leaf.len() == LEAF_ENTRIES_MAX {
            self.end_leaf()?;
        }
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
        let checksum = crc32fast::hash(&self.leaves[offset..]);
        self.leaves.extend_from_slice(&checksum.to_le_bytes());
        self.root.push((first_key, BlockHandle { offset: offset as u64, length }));
        Ok(())
    }

    /// Writes the remaining parts and syncs the file. Its name is durable only after the caller has synced the directory.
    pub async fn finish(mut self) -> Result<WrittenTable, TableError> {
        self.end_block().await?;
        self.end_leaf()?;
        self.rows.end_partition();
        if let Some(measure) = self.measure.take() {
            measure.end();
        }
        let data_bytes = self.output.position();
        let max_key = self.rows.last_key().max(self.range_tombstones.last_end()).to_vec();
        let RowsEncoder { mut statistics, partition_hashes, row_hashes, .. } = self.rows;
        if statistics.range_tombstones > 0
            && (statistics.rows == 0 || self.first_range_tombstone_start < statistics.min_key)
        {
            statistics.min_key = std::mem::take(&mut self.first_range_tombstone_start);
        }
        statistics.max_key = max_key;

        let mut section = Vec::new();
        self.range_tombstones.write_to(&mut section)?;
        let range_tombstones = self.output.section(&section).await?;

        let chance = self.bloom_filter_fp_chance;
        let partition_filter = self.output.filter_section(filter::build(&partition_hashes, chance)).await?;
        let has_wide_partitions = statistics.largest_partition_rows > 1;
        let filtered_rows = if has_wide_partitions { row_hashes.as_slice() } else { &[] };
        let row_filter = self.output.filter_section(filter::build(filtered_rows, chance)).await?;

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
        let statistics_section = self.output.section(&section).await?;

        let file_bytes = self.output.position() + FOOTER_BYTES as u64;
        let footer = Footer {
            range_tombstones,
            partition_filter,
            row_filter,
            index_leaves,
            index_root,
            statistics: statistics_section,
            data_bytes,
            file_bytes,
            version: VERSION,
        };
        section.clear();
        footer.write_to(&mut section);
        self.output.append(&section).await?;
        self.output.flush().await?;
        self.output.file.sync_data().await?;
        Ok(WrittenTable { statistics, row_hashes })
    }
}
