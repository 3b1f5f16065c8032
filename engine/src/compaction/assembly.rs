//! The assembly of a compaction that several jobs share: it writes what the merges of the subranges give, in the order of keys, to the
//! outputs. So there are the outputs of a single merge, and they are finished one after the other.
//!
//! The assembly alone writes. It keeps the rate of compactions and the room on the disk, and holds up the merges while it waits.

use futures::StreamExt;
use futures::channel::mpsc;

use super::merging::{KeyRange, MergeOutput, Pace};
use super::outputs::{Compacted, Outputs, Unverified};
use super::subrange_task::{SubrangeOutput, SubrangeOutputs, SubrangeTask, SubrangeTasks};
use crate::io::JobContext;
use crate::row::RowRef;
use crate::table::TableError;

/// A message to the assembly.
enum Next {
    /// A subrange has begun, behind those before.
    Subrange(SubrangeOutputs),
    /// There are no more. Without it the compaction has failed elsewhere.
    End,
}

/// The way to the assembly.
pub(crate) struct ToAssembly(mpsc::UnboundedSender<Next>);

/// What comes to the assembly. How many subranges wait is bounded by who begins them.
pub(super) struct FromSubranges(mpsc::UnboundedReceiver<Next>);

pub(super) fn assembly_channel() -> (ToAssembly, FromSubranges) {
    let (sender, receiver) = mpsc::unbounded();
    (ToAssembly(sender), FromSubranges(receiver))
}

impl ToAssembly {
    /// Begins with a subrange, which comes behind those before. `None`: the assembly has ended.
    pub fn begin(&self, tasks: &SubrangeTasks, range: KeyRange) -> Option<SubrangeTask> {
        let (task, outputs) = tasks.task(range);
        self.0.unbounded_send(Next::Subrange(outputs)).is_ok().then_some(task)
    }

    /// All subranges have been begun.
    pub fn end(&self) {
        // An assembly that has ended says itself why.
        let _ = self.0.unbounded_send(Next::End);
    }
}

/// The job that writes.
pub(crate) struct Assembly {
    pub(super) outputs: Outputs,
    pub(super) pace: Pace,
    pub(super) subranges: FromSubranges,
    /// Gets a message for each subrange that is written.
    pub(super) taken: mpsc::UnboundedSender<()>,
}

impl Assembly {
    /// Writes the outputs, complete and synced, but not read back. After an error, files of any of the reserved names may exist.
    /// [`TableError::Stopped`] also if the merge of a subrange has failed.
    pub async fn run(mut self, context: JobContext) -> Result<(Compacted, Vec<Unverified>), TableError> {
        let begun = context.clock.monotonic();
        while let Some(next) = self.subranges.0.next().await {
            let Next::Subrange(outputs) = next else {
                return self.outputs.end_unverified(begun, &context).await;
            };
            self.write(outputs, &context).await?;
            // Who began the subranges may have given up.
            let _ = self.taken.unbounded_send(());
        }
        Err(TableError::Stopped)
    }

    async fn write(&mut self, mut subrange: SubrangeOutputs, context: &JobContext) -> Result<(), TableError> {
        while let Some(output) = subrange.next().await {
            match output {
                SubrangeOutput::Piece(piece) => self.outputs.append(&piece, context).await?,
                SubrangeOutput::LargeRow { key, row, base, taken } => {
                    self.outputs.write_row(&key, RowRef::new(&row, base), context).await?;
                    // A merge that has been given up waits for nothing.
                    let _ = taken.send(());
                }
                SubrangeOutput::End(large_rows) => {
                    self.outputs.add_large_rows(large_rows);
                    return Ok(());
                }
            }
            self.pace.pause(self.outputs.bytes(), 0, context).await?;
        }
        Err(TableError::Stopped)
    }
}
