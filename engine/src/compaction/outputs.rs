//! The files that a compaction writes.
//!
//! Invariant: an output is complete, synced, and was read back: all its blocks can be unpacked, and its rows, keys and counts are
//! those that were written. Only then may its inputs go. Where several jobs share a compaction, they also share the reading
//! ([`Unverified`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::choice::Split;
use super::key_sample::KeySample;
use super::large_rows::LargeRows;
use super::merging::MergeOutput;
use super::overlap::part_of;
use super::row_parts;
use crate::cell::Deletion;
use crate::invariant::broken;
use crate::io::{JobContext, yield_now};
use crate::row::RowRef;
use crate::table::{
    TableError, TableOptions, TablePiece, TableReader, TableStatistics, TableWriter, WrittenTable, verify,
};

/// A complete output.
#[derive(Debug)]
pub(crate) struct Output {
    pub generation: u64,
    pub sample: KeySample,
    /// It holds a part of a row that is too large for one file, and nothing else.
    pub is_part: bool,
}

/// The result of a compaction.
#[derive(Debug)]
pub(crate) struct Compacted {
    pub outputs: Vec<Output>,
    pub output_bytes: u64,
    /// The whole time, and the part of it in which the outputs were read back.
    pub duration: Duration,
    pub verification: Duration,
    pub large_rows: LargeRows,
}

/// An output that is to be read back by others.
#[derive(Debug)]
pub(crate) struct Unverified {
    pub reader: Arc<TableReader>,
    pub written: TableStatistics,
}

/// A piece has at most this part of what an output has, so that outputs are hardly larger than they would be without pieces.
const PIECES_PER_OUTPUT: u64 = 16;
/// The pieces of a subrange, about.
const PIECES_PER_SUBRANGE: u64 = 8;

/// Generations and paths for the greatest number of outputs that the compaction can need.
pub(crate) type OutputNames = Vec<(u64, PathBuf)>;

/// The outputs of a running compaction.
pub(super) struct Outputs {
    pub names: OutputNames,
    pub split: Split,
    pub file_options: TableOptions,
    /// Larger rows are cut into parts.
    pub row_bytes_max: usize,
    written: Vec<Output>,
    next: usize,
    writer: Option<TableWriter>,
    /// The part of the token space that the current output lies in.
    part: u64,
    /// Bytes of the complete outputs.
    finished_bytes: u64,
    verification: Duration,
    large_rows: LargeRows,
    /// `None`: each output is verified when it is complete.
    unverified: Option<Vec<Unverified>>,
}

impl Outputs {
    pub fn new(names: OutputNames, split: Split, file_options: TableOptions, row_bytes_max: usize) -> Self {
        Self {
            names,
            split,
            file_options,
            row_bytes_max,
            written: Vec::new(),
            next: 0,
            writer: None,
            part: 0,
            finished_bytes: 0,
            verification: Duration::ZERO,
            large_rows: LargeRows::default(),
            unverified: None,
        }
    }

    /// Outputs that are read back by others.
    #[must_use]
    pub fn verified_later(self) -> Self {
        Self { unverified: Some(Vec::new()), ..self }
    }

    /// The size of a piece in bytes.
    pub fn piece_bytes(&self, subrange_bytes: u64) -> usize {
        let bytes = subrange_bytes / PIECES_PER_SUBRANGE;
        let bytes = match self.split {
            Split::Bytes(limit) => bytes.min(limit / PIECES_PER_OUTPUT),
            Split::Never | Split::Parts(_) => bytes,
        };
        bytes.max(1) as usize
    }

    /// Appends a piece. Another output may begin with it.
    pub async fn append(&mut self, piece: &TablePiece, context: &JobContext) -> Result<(), TableError> {
        if piece.begins_partition() {
            self.begin_partition(piece.min_key(), context).await?;
        }
        self.writer(context).await?.append(piece).await
    }

    /// Takes note of the large rows of a subrange.
    pub fn add_large_rows(&mut self, large_rows: LargeRows) {
        self.large_rows.add_all(large_rows);
    }

    async fn writer(&mut self, context: &JobContext) -> Result<&mut TableWriter, TableError> {
        if self.writer.is_none() {
            let Some((_, path)) = self.names.get(self.next) else {
                return Err(broken!("as many outputs are reserved as a compaction needs").into());
            };
            let writer = TableWriter::create(&*context.disk, path, self.file_options.clone()).await?;
            self.next += 1;
            return Ok(self.writer.insert(writer));
        }
        self.writer.as_mut().ok_or_else(|| broken!("a compaction that writes has a writer").into())
    }

    /// Completes the current output, if there is one, and reads it back.
    async fn finish(&mut self, is_part: bool, context: &JobContext) -> Result<(), TableError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let WrittenTable { statistics, row_hashes } = writer.finish().await?;
        let name = self.next.checked_sub(1).and_then(|index| self.names.get(index));
        let Some((generation, path)) = name else {
            return Err(broken!("a compaction writes to an output that was reserved").into());
        };
        let begun = context.clock.monotonic();
        let reader = TableReader::open_file(&*context.disk, path, *generation).await?;
        self.finished_bytes += reader.file_bytes();
        if let Some(unverified) = &mut self.unverified {
            unverified.push(Unverified { reader, written: statistics });
        } else {
            verify(&reader, &statistics, async |_| yield_now().await).await?;
            self.verification += context.clock.monotonic().saturating_sub(begun);
        }
        self.written.push(Output { generation: *generation, sample: KeySample::of(row_hashes), is_part });
        Ok(())
    }

    /// Completes the last output. `begun`: when the merge began, in the clock of the context.
    pub async fn end(self, begun: Duration, context: &JobContext) -> Result<Compacted, TableError> {
        Ok(self.end_unverified(begun, context).await?.0)
    }

    /// As [`Self::end`]. Also the outputs that are not verified yet.
    pub async fn end_unverified(
        mut self,
        begun: Duration,
        context: &JobContext,
    ) -> Result<(Compacted, Vec<Unverified>), TableError> {
        self.finish(false, context).await?;
        let compacted = Compacted {
            outputs: self.written,
            output_bytes: self.finished_bytes,
            duration: context.clock.monotonic().saturating_sub(begun),
            verification: self.verification,
            large_rows: self.large_rows,
        };
        Ok((compacted, self.unverified.unwrap_or_default()))
    }
}

impl MergeOutput for Outputs {
    fn bytes(&self) -> u64 {
        self.finished_bytes + self.writer.as_ref().map_or(0, TableWriter::size_bytes)
    }

    /// Ends the current output if the partition with this prefix begins a new one.
    async fn begin_partition(&mut self, prefix: &[u8], context: &JobContext) -> Result<(), TableError> {
        let is_due = match (&self.split, &self.writer) {
            (_, None) | (Split::Never, _) => false,
            (Split::Bytes(limit), Some(writer)) => writer.size_bytes() >= *limit,
            (Split::Parts(parts), Some(_)) => part_of(*parts, prefix) != self.part,
        };
        // The last output takes all remaining partitions.
        if is_due && self.next < self.names.len() {
            self.finish(false, context).await?;
        }
        if self.writer.is_none()
            && let Split::Parts(parts) = self.split
        {
            self.part = part_of(parts, prefix);
        }
        Ok(())
    }

    async fn write_row(
        &mut self,
        key: &[u8],
        row: RowRef<'_>,
        context: &JobContext,
    ) -> Result<(), TableError> {
        self.large_rows.note(key, row.bytes.len());
        if key.len() + row.bytes.len() <= self.row_bytes_max {
            return self.writer(context).await?.add(key, row).await;
        }
        let parts = row_parts::cut(row, self.row_bytes_max / 2)?;
        tracing::info!(
            row_bytes = row.bytes.len(),
            parts = parts.len(),
            "a row is too large for one file; it is cut into parts"
        );
        self.finish(false, context).await?;
        for part in parts {
            self.writer(context).await?.add(key, RowRef::new(&part, row.base)).await?;
            self.finish(true, context).await?;
        }
        Ok(())
    }

    async fn write_range_tombstone(
        &mut self,
        start: &[u8],
        end: &[u8],
        deletion: Deletion,
        context: &JobContext,
    ) -> Result<(), TableError> {
        self.writer(context).await?.add_range_tombstone(start, end, deletion)
    }
}
