//! Compaction: choosing the tables to merge (pure functions, one file per strategy), the merge ([`task`]), and its rate
//! ([`rate_limiter`]).

mod choice;
mod dropped;
mod leveled;
mod options;
mod rate_limiter;
mod size_tiered;
mod strategy;
mod task;
mod time_window;
mod unified;

pub use choice::{Choice, TableSummary};
pub(crate) use dropped::DroppedRanges;
pub use leveled::Leveled;
pub use options::CompactionOptionsError;
pub use rate_limiter::RateLimiter;
pub use size_tiered::SizeTiered;
pub use strategy::{CompactionOptions, Strategy, TombstoneOptions};
pub(crate) use task::CompactionTask;
pub use time_window::{TimeUnit, TimeWindow};
pub use unified::Unified;
