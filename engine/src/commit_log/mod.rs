//! The commit log of one shard: every mutation, in order, on disk before it is acknowledged.
//!
//! The log is a sequence of *groups*, numbered without gaps, laid out in *segment* files of a fixed size. Everything
//! that is appended while one group is being written becomes the next group, so concurrency turns into larger writes,
//! not more of them. `docs/formats.md` shows the layout, `format` encodes it.
//!
//! # Why replay finds every acknowledged record
//!
//! Assumptions about the medium: `io::disk`'s contract (synced data and names survive; of un-synced data any subset of
//! sectors may), and rewriting a sector with equal bytes does no harm (a group may start in the middle of the sector
//! where the one before it ended).
//!
//! * A group is written only after the write of the group before it is complete; in group and batch mode only after
//!   its `fdatasync` is. A segment is opened for groups only after the one before it was synced and after its own name
//!   is durable.
//! * A group's checksum covers its segment's number and its own, so what an earlier use of a recycled file left behind
//!   is never taken for a group. Segment numbers are never used twice.
//! * A group states up to which group the log was durable when it was written. So when group *n* cannot be read but a
//!   later valid group says that *n* was durable, or a later segment has groups that do not start with *n*, then
//!   something acknowledged was destroyed: replay refuses, naming file and offset. When no such witness exists, *n* is
//!   the torn end of the log, and nothing after it was ever acknowledged as durable: replay stops there.
//! * After a replay that stopped at a torn group *n*, the log goes on with group *n* in a new segment, after the old
//!   tail was written again and synced (what was replayed must not vanish in the next crash, also where a sync has failed
//!   before and left it clean in the cache) and segments without a replayed group were taken out of the log. So the next replay finds *n* at the start of a later segment and goes on there.
//! * Segments leave the log oldest first, by renaming, and only when the owner has said that it does not need them.
//!
//! After a failed write or sync the log is poisoned: nothing more is appended or acknowledged until it is opened anew.

mod error;
mod format;
mod log;
mod options;
mod position;
mod replay;
mod segments;
mod signal;
#[cfg(test)]
mod tests;
mod writer;

pub use error::CommitLogError;
pub use format::{GROUP_HEADER_BYTES, RECORD_HEADER_BYTES};
pub use log::{CommitLog, Durable};
pub use options::{CommitLogOptions, DamagePolicy, SyncMode};
pub use position::LogPosition;
pub use replay::{Replay, read_segment};
