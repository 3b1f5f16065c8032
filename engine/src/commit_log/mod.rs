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

mod format;
mod log;
mod replay;
mod segments;
mod signal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::io::DiskError;

pub use format::{GROUP_HEADER_BYTES, RECORD_HEADER_BYTES};
pub use log::{CommitLog, Durable};
pub use replay::{Replay, read_segment};

/// Where a record begins. Ordered as the records are; stable across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The number of the segment; the first is 1.
    pub segment: u64,
    /// Bytes from the start of the segment's file.
    pub offset: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.segment, self.offset)
    }
}

/// When a record counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After the `fdatasync` of its group; the writer lets ready tasks append first.
    Group,
    /// After the `fdatasync` of its group, which is written as soon as the disk is free.
    Batch,
    /// At once. The log is written every few milliseconds and synced every `period`.
    Periodic { period: Duration },
}

/// What replay does about damage in the middle of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagePolicy {
    /// Refuse to open the log.
    Refuse,
    /// Log a warning for each damaged place and go on behind it; the records there are lost.
    Skip,
}

/// Settings of a log. They may change from one opening to the next.
#[derive(Debug, Clone)]
pub struct CommitLogOptions {
    pub sync: SyncMode,
    /// Size of new segment files; at least 4 KiB.
    pub segment_bytes: u64,
    /// `admit` waits while more than this is appended but not yet written.
    pub unwritten_bytes_max: usize,
    /// Files kept for reuse; further ones are removed.
    pub spare_segments_max: usize,
    pub damage: DamagePolicy,
}

impl Default for CommitLogOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::Group,
            segment_bytes: 32 << 20,
            unwritten_bytes_max: 8 << 20,
            spare_segments_max: 4,
            damage: DamagePolicy::Refuse,
        }
    }
}

/// Why the log could not do what it was asked.
#[derive(Debug, Clone, Error)]
pub enum CommitLogError {
    #[error("commit log: {0}")]
    Disk(#[from] DiskError),
    #[error("a mutation of {bytes} bytes is larger than the limit of {limit} (half of a commit-log segment)")]
    RecordTooLarge { bytes: usize, limit: usize },
    #[error("the commit log accepts no more writes after a failure: {0}")]
    Poisoned(DiskError),
    #[error("the commit log is closed")]
    Closed,
    #[error(
        "the commit log is damaged in the middle: {} at offset {offset}: {reason}; acknowledged writes are lost there",
        path.display()
    )]
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
}
