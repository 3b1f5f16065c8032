//! Compaction: choosing the tables to merge (pure functions, one file per strategy), the merge ([`task`], [`merging`]), by several jobs if
//! it is a large one ([`mod@subranges`], [`assembly`]), what it may purge ([`purging`]).

mod assembly;
mod backlog;
mod choice;
mod dropped;
mod expired;
mod garbage;
mod key_sample;
mod large_rows;
mod leveled;
mod merged_size;
mod merging;
mod options;
mod outputs;
mod overlap;
mod progress;
mod purging;
mod row_parts;
mod size_tiered;
mod strategy;
mod subrange_task;
mod subranges;
mod task;
#[cfg(test)]
mod tests;
mod time_window;
mod unified;

pub(crate) use assembly::ToAssembly;
pub use choice::{Choice, Merge, Situation, Split, TableSummary};
pub(crate) use dropped::DroppedRanges;
pub(crate) use garbage::GarbageSources;
pub use garbage::Granularity;
pub use helenus_rows::dropped_columns::DroppedColumns;
pub use key_sample::KeySample;
pub(crate) use large_rows::LargeRows;
pub use leveled::Leveled;
pub(crate) use merging::{KeyRange, LeftOut};
pub use options::{CompactionOptionsError, parse_bytes};
pub(crate) use outputs::{Compacted, Output, OutputNames, Unverified};
pub use overlap::OverlapInclusion;
pub use progress::CompactionProgress;
pub(crate) use purging::{OldPartitions, Purging};
pub use size_tiered::SizeTiered;
pub use strategy::{CompactionOptions, Strategy, TombstoneOptions};
pub(crate) use subrange_task::SubrangeTasks;
pub(crate) use subranges::subranges;
pub(crate) use task::{CompactionTask, SharedCompaction};
pub use time_window::{TimeUnit, TimeWindow};
pub use unified::Unified;
