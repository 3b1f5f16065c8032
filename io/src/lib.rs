//! The engine's interface to the outside: disk, time, randomness and background threads. And what a defect in the engine's own state does
//! ([`mod@invariant`]): a report travels with the result of a background job. Beside them stands what the engine's formats and reads begin
//! with and what knows nothing of rows: numbers in bytes ([`mod@codec`]) and the merge of sorted sources ([`mod@merge`]).
//!
//! The engine never calls the operating system directly. It receives an [`Environment`]. The real implementations are in one file
//! each (`disk_real` with `read_pool` and `read_ring`, `clock_real`, `background_real`, `random_real`), the simulated ones in `disk_simulated`,
//! `clock`, `background` and `random`. Every disk call that writes or looks at names is a future, so that a simulation can crash, fail or interleave at each
//! of them.

mod background;
mod background_real;
mod clock;
mod clock_real;
pub mod codec;
mod disk;
mod disk_real;
mod disk_simulated;
mod environment;
pub mod invariant;
mod lending;
pub mod merge;
mod part_read;
mod priority;
mod random;
mod random_real;
mod rate_limiter;
mod read_pool;
mod read_ring;
mod record_log;
mod reserve;
mod signal;
mod thread_budget;
mod two_copies;
mod yield_now;

pub use background::{
    Background, BackgroundError, InlineBackground, Job, JobContext, JobKind, JobOutput, run_in_background,
};
pub use background_real::{BackgroundPool, PartThreads};
pub use clock::{Clock, ManualClock, whole_seconds};
pub use clock_real::RealClock;
pub use disk::{CompleteFile, DirectoryEntry, Disk, DiskError, DiskFile, DiskFuture, DiskLock, DiskRoom};
pub use disk_real::{DirectDisk, ThreadedDisk};
pub use disk_simulated::{CrashStyle, Fault, FileContents, Persistence, ReadCorruption, SimulatedDisk};
pub use environment::Environment;
pub use lending::{LendingShare, Lent};
pub use random::{RandomSource, SeededRandom, SplitMix64};
pub use random_real::SystemRandom;
pub use rate_limiter::RateLimiter;
pub use read_pool::ReadPool;
pub use record_log::{Mended, RecordLog, RecordLogError, RecordLogKind, RecordLogPlace, Records};
pub use reserve::{Claim, DiskReserve, NoRoom, ReserveSize};
pub use signal::Signal;
pub use thread_budget::{ThreadBudget, ThreadClaim};
pub use two_copies::{Defect, LoadError, Newest, ReplaceError, Replaced, TwoCopies, Unusable};
pub use yield_now::yield_now;
