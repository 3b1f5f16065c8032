//! The merge of one subrange of a compaction, by a job of its own: what it writes goes to the assembly in pieces.
//!
//! A job is ahead of the assembly by [`PIECES_AHEAD`] pieces and one large row at most. Then it waits for its turn.

use std::sync::Arc;

use futures::SinkExt;
use futures::channel::{mpsc, oneshot};

use super::large_rows::LargeRows;
use super::merging::{KeyRange, Merge, MergeOutput, MergeSources, Pace};
use crate::cell::Deletion;
use crate::io::JobContext;
use crate::row::RowRef;
use crate::table::{PieceBuilder, TableError, TableOptions, TablePiece};

/// Pieces that wait for the assembly: a little more than a subrange has, so that a job mostly need not wait for its turn.
const PIECES_AHEAD: usize = 12;
/// How often a piece may exceed its size before it ends within a partition.
const PIECE_EXCESS_MAX: usize = 4;

/// What the merge of a subrange gives, in the order of keys.
#[derive(Debug)]
pub(super) enum SubrangeOutput {
    Piece(Box<TablePiece>),
    /// A row that is too large for one file.
    LargeRow {
        key: Vec<u8>,
        row: Vec<u8>,
        base: i64,
        taken: oneshot::Sender<()>,
    },
    /// There is no more. Without it the merge has failed.
    End(LargeRows),
}

/// The output of a subrange, as it comes.
pub(super) type SubrangeOutputs = mpsc::Receiver<SubrangeOutput>;

/// Makes the jobs of a compaction's subranges.
pub(crate) struct SubrangeTasks {
    pub(super) sources: Arc<MergeSources>,
    pub(super) file_options: TableOptions,
    pub(super) piece_bytes: usize,
    pub(super) row_bytes_max: usize,
}

/// A subrange to be merged.
pub(crate) struct SubrangeTask {
    sources: Arc<MergeSources>,
    range: KeyRange,
    outputs: PieceOutput,
}

impl SubrangeTasks {
    /// The job of a subrange, and what it will give.
    pub(super) fn task(&self, range: KeyRange) -> (SubrangeTask, SubrangeOutputs) {
        let (sender, outputs) = mpsc::channel(PIECES_AHEAD);
        let output = PieceOutput {
            pieces: PieceBuilder::new(&self.file_options),
            sender,
            piece_bytes: self.piece_bytes,
            row_bytes_max: self.row_bytes_max,
            large_rows: LargeRows::default(),
        };
        (SubrangeTask { sources: Arc::clone(&self.sources), range, outputs: output }, outputs)
    }
}

impl SubrangeTask {
    /// Merges the subrange. [`TableError::Stopped`] also if nobody wants the output any more.
    pub async fn run(self, context: JobContext) -> Result<(), TableError> {
        let pace = Pace::unlimited(Arc::clone(&self.sources.progress));
        let mut merge = Merge::new(self.sources, self.outputs, pace, self.range, context);
        merge.run().await?;
        merge.outputs.end().await
    }
}

/// Makes pieces of what a merge writes.
struct PieceOutput {
    pieces: PieceBuilder,
    sender: mpsc::Sender<SubrangeOutput>,
    /// A piece ends with the first partition at this size.
    piece_bytes: usize,
    row_bytes_max: usize,
    large_rows: LargeRows,
}

impl PieceOutput {
    async fn send(&mut self, output: SubrangeOutput) -> Result<(), TableError> {
        // Only an assembly that has ended takes nothing, and it says why.
        self.sender.send(output).await.map_err(|_| TableError::Stopped)
    }

    async fn end_piece(&mut self, ends_partition: bool) -> Result<(), TableError> {
        match self.pieces.take(ends_partition)? {
            Some(piece) => self.send(SubrangeOutput::Piece(Box::new(piece))).await,
            None => Ok(()),
        }
    }

    async fn end_if_too_large(&mut self) -> Result<(), TableError> {
        if self.pieces.piece_bytes() >= self.piece_bytes.saturating_mul(PIECE_EXCESS_MAX) {
            self.end_piece(false).await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<(), TableError> {
        self.end_piece(true).await?;
        let large_rows = std::mem::take(&mut self.large_rows);
        self.send(SubrangeOutput::End(large_rows)).await
    }
}

impl MergeOutput for PieceOutput {
    fn bytes(&self) -> u64 {
        self.pieces.size_bytes()
    }

    async fn begin_partition(&mut self, _prefix: &[u8], _context: &JobContext) -> Result<(), TableError> {
        if self.pieces.piece_bytes() >= self.piece_bytes {
            self.end_piece(true).await?;
        }
        Ok(())
    }

    async fn write_row(
        &mut self,
        key: &[u8],
        row: RowRef<'_>,
        _context: &JobContext,
    ) -> Result<(), TableError> {
        if key.len() + row.bytes.len() <= self.row_bytes_max {
            self.large_rows.note(key, row.bytes.len());
            self.pieces.add(key, row)?;
            return self.end_if_too_large().await;
        }
        // What follows is in another file, and so is the rest of the partition.
        self.end_piece(true).await?;
        let (taken, is_taken) = oneshot::channel();
        let (key, base) = (key.to_vec(), row.base);
        self.send(SubrangeOutput::LargeRow { key, row: row.bytes.to_vec(), base, taken }).await?;
        is_taken.await.map_err(|_| TableError::Stopped)
    }

    async fn write_range_tombstone(
        &mut self,
        start: &[u8],
        end: &[u8],
        deletion: Deletion,
        _context: &JobContext,
    ) -> Result<(), TableError> {
        self.pieces.add_range_tombstone(start, end, deletion);
        self.end_if_too_large().await
    }
}
