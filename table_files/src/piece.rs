//! A piece of a table in memory: consecutive rows as finished blocks, with their range tombstones, counts and hashes.
//!
//! Several threads encode pieces of one table at the same time, and a [`TableWriter`](super::TableWriter) puts them into its file one after
//! the other. So the file is the one that a single thread would have written, but for blocks that end with a piece.
//!
//! Invariant: a piece that does not begin a partition goes into the same file as the one before it.

use super::error::TableError;
use super::filter::partition_of;
use super::options::TableOptions;
use super::rows_encoder::RowsEncoder;
use super::statistics::TableStatistics;
use crate::cell::Deletion;
use crate::range_tombstone::RangeTombstone;
use crate::row::RowRef;

/// A block of a piece.
#[derive(Debug)]
pub(crate) struct PieceBlock {
    pub separator: Box<[u8]>,
    /// Bytes.
    pub length: u32,
}

/// What a piece has of a partition, for [`TableOptions::partition_watch`].
#[derive(Debug)]
pub(crate) struct PieceOfPartition {
    pub prefix: Box<[u8]>,
    pub bytes: u64,
    pub tombstones: u64,
}

/// A piece of a table.
#[derive(Debug)]
pub struct TablePiece {
    pub(crate) begins_partition: bool,
    /// Empty without rows. The separator of the first block is not used: it depends on what comes before.
    pub(crate) first_key: Vec<u8>,
    pub(crate) last_key: Vec<u8>,
    /// The blocks as they are stored, one after the other.
    pub(crate) stored: Vec<u8>,
    pub(crate) blocks: Vec<PieceBlock>,
    /// Between full keys.
    pub(crate) range_tombstones: Vec<RangeTombstone>,
    /// Of the rows alone.
    pub(crate) statistics: TableStatistics,
    pub(crate) partition_hashes: Vec<u64>,
    pub(crate) row_hashes: Vec<u64>,
    pub(crate) partitions: Vec<PieceOfPartition>,
}

impl TablePiece {
    /// Whether another file can begin with it.
    pub fn begins_partition(&self) -> bool {
        self.begins_partition
    }

    /// The least full key that it has something at.
    pub fn min_key(&self) -> &[u8] {
        match self.range_tombstones.first() {
            Some(first) if self.first_key.is_empty() || *first.start < *self.first_key => &first.start,
            _ => &self.first_key,
        }
    }
}

/// Encodes pieces of a table, in the order of keys.
pub struct PieceBuilder {
    rows: RowsEncoder,
    is_watched: bool,
    begins_partition: bool,
    first_key: Vec<u8>,
    stored: Vec<u8>,
    blocks: Vec<PieceBlock>,
    range_tombstones: Vec<RangeTombstone>,
    partitions: Vec<PieceOfPartition>,
    range_tombstone_bytes: usize,
    taken_bytes: u64,
}

impl PieceBuilder {
    /// The first piece begins a partition.
    pub fn new(options: &TableOptions) -> Self {
        Self {
            rows: RowsEncoder::new(options.compression, options.block_bytes),
            is_watched: options.partition_watch.is_some(),
            begins_partition: true,
            first_key: Vec::new(),
            stored: Vec::new(),
            blocks: Vec::new(),
            range_tombstones: Vec::new(),
            partitions: Vec::new(),
            range_tombstone_bytes: 0,
            taken_bytes: 0,
        }
    }

    /// Bytes of the current piece.
    pub fn piece_bytes(&self) -> usize {
        self.stored.len() + self.range_tombstone_bytes + self.rows.block_bytes()
    }

    /// Bytes of all pieces so far.
    pub fn size_bytes(&self) -> u64 {
        self.taken_bytes + self.piece_bytes() as u64
    }

    /// Appends a row. Keys must be full keys in strictly ascending order.
    pub fn add(&mut self, full_key: &[u8], row: RowRef<'_>) -> Result<(), TableError> {
        if self.rows.begin_row(full_key, row)? {
            self.end_block()?;
        }
        if self.first_key.is_empty() {
            self.first_key.extend_from_slice(full_key);
        }
        let (prefix, tombstones) = self.rows.add_row(full_key, row)?;
        self.measure(prefix, full_key.len() + row.bytes.len(), tombstones);
        Ok(())
    }

    /// Adds a range tombstone for the full keys `[start, end)`. Those of a partition come before its rows.
    pub fn add_range_tombstone(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        self.measure(partition_of(start), start.len() + end.len(), 1);
        self.range_tombstone_bytes += start.len() + end.len() + size_of::<RangeTombstone>();
        self.range_tombstones.push(RangeTombstone { start: start.into(), end: end.into(), deletion });
    }

    fn measure(&mut self, prefix: &[u8], bytes: usize, tombstones: u64) {
        if !self.is_watched {
            return;
        }
        match self.partitions.last_mut() {
            Some(last) if *last.prefix == *prefix => {
                last.bytes += bytes as u64;
                last.tombstones += tombstones;
            }
            _ => {
                let of_partition =
                    PieceOfPartition { prefix: prefix.into(), bytes: bytes as u64, tombstones };
                self.partitions.push(of_partition);
            }
        }
    }

    fn end_block(&mut self) -> Result<(), TableError> {
        let Some(block) = self.rows.end_block() else { return Ok(()) };
        let length =
            u32::try_from(block.stored.len()).map_err(|_| TableError::TooLarge { what: "blocks" })?;
        self.blocks.push(PieceBlock { separator: block.separator.into(), length });
        self.stored.extend_from_slice(block.stored);
        Ok(())
    }

    /// Ends the current piece. `None`: it has nothing. `ends_partition`: whether the next one begins another partition, or the same one in
    /// another file.
    pub fn take(&mut self, ends_partition: bool) -> Result<Option<TablePiece>, TableError> {
        self.end_block()?;
        if !self.blocks.is_empty() {
            // Of a partition that goes on, the next piece has the whole size; but that may be the end of it.
            self.rows.note_partition();
        }
        if ends_partition {
            self.rows.leave_partition();
        }
        let begins_partition = std::mem::replace(&mut self.begins_partition, ends_partition);
        if self.blocks.is_empty() && self.range_tombstones.is_empty() {
            // What is taken next still begins where this one did.
            self.begins_partition |= begins_partition;
            return Ok(None);
        }
        self.taken_bytes += (self.stored.len() + std::mem::take(&mut self.range_tombstone_bytes)) as u64;
        Ok(Some(TablePiece {
            begins_partition,
            first_key: std::mem::take(&mut self.first_key),
            last_key: if self.blocks.is_empty() { Vec::new() } else { self.rows.last_key().to_vec() },
            stored: std::mem::take(&mut self.stored),
            blocks: std::mem::take(&mut self.blocks),
            range_tombstones: std::mem::take(&mut self.range_tombstones),
            statistics: std::mem::take(&mut self.rows.statistics),
            partition_hashes: std::mem::take(&mut self.rows.partition_hashes),
            row_hashes: std::mem::take(&mut self.rows.row_hashes),
            partitions: std::mem::take(&mut self.partitions),
        }))
    }
}
