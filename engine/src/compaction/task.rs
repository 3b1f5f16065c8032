//! A compaction as a job: one that does all of it, or several that share the work ([`super::assembly`], [`super::subrange_task`]).

use std::sync::Arc;

use futures::channel::mpsc;
use helenus_rows::dropped_columns::DroppedColumns;

use super::assembly::{Assembly, ToAssembly, assembly_channel};
use super::choice::Split;
use super::merging::{KeyRange, LeftOut, Merge, MergeSources, Pace};
use super::outputs::{Compacted, OutputNames, Outputs};
use super::progress::CompactionProgress;
use super::purging::Purging;
use super::subrange_task::SubrangeTasks;
use crate::io::{Claim, JobContext, RateLimiter};
use crate::table::{TableError, TableOptions, TableReader};

/// A compaction, independent of the shard's thread.
pub(crate) struct CompactionTask {
    pub inputs: Vec<Arc<TableReader>>,
    pub left_out: LeftOut,
    pub dropped_columns: DroppedColumns,
    pub purging: Purging,
    pub outputs: OutputNames,
    pub split: Split,
    pub file_options: TableOptions,
    /// Larger rows are cut into parts, which get files of their own.
    pub row_bytes_max: usize,
    pub limiter: RateLimiter,
    /// Room on the disk for the outputs.
    pub room: Option<Claim>,
    pub progress: Arc<CompactionProgress>,
}

/// A compaction whose subranges are merged by jobs of their own.
pub(crate) struct SharedCompaction {
    pub assembly: Assembly,
    pub subranges: SubrangeTasks,
    pub to_assembly: ToAssembly,
    /// A message for each subrange that is in the file.
    pub assembled: mpsc::UnboundedReceiver<()>,
}

impl CompactionTask {
    /// Merges the inputs into complete, synced, verified outputs. After an error, files of any of the reserved names may exist.
    pub async fn run(self, context: JobContext) -> Result<Compacted, TableError> {
        let begun = context.clock.monotonic();
        let (sources, outputs, pace) = self.into_parts();
        let mut merge = Merge::new(Arc::new(sources), outputs, pace, KeyRange::default(), context);
        merge.run().await?;
        let Merge { outputs, context, .. } = merge;
        outputs.end(begun, &context).await
    }

    /// The same as several jobs. `subrange_bytes`: about what a subrange has.
    pub fn share(self, subrange_bytes: u64) -> SharedCompaction {
        let (piece_options, row_bytes_max) = (self.file_options.clone(), self.row_bytes_max);
        let (sources, outputs, pace) = self.into_parts();
        let piece_bytes = outputs.piece_bytes(subrange_bytes);
        let subranges = SubrangeTasks {
            sources: Arc::new(sources),
            file_options: piece_options,
            piece_bytes,
            row_bytes_max,
        };
        let (to_assembly, from_subranges) = assembly_channel();
        let (taken, assembled) = mpsc::unbounded();
        let assembly = Assembly { outputs: outputs.verified_later(), pace, subranges: from_subranges, taken };
        SharedCompaction { assembly, subranges, to_assembly, assembled }
    }

    fn into_parts(self) -> (MergeSources, Outputs, Pace) {
        // Without deletions and expiries there is nothing to purge, and the other files need not be checked.
        let mut purging = self.purging;
        purging.purge =
            purging.purge.filter(|_| self.inputs.iter().any(|input| input.statistics().has_mortal()));
        let sources = MergeSources {
            inputs: self.inputs,
            left_out: self.left_out,
            dropped_columns: self.dropped_columns,
            purging,
            progress: Arc::clone(&self.progress),
        };
        let outputs = Outputs::new(self.outputs, self.split, self.file_options, self.row_bytes_max);
        (sources, outputs, Pace::new(self.limiter, self.room, self.progress))
    }
}
