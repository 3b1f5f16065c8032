//! The commit log of one shard: every mutation, in order, on disk before it is acknowledged.
//!
//! The log is a sequence of *groups*, numbered without gaps, stored in *segment* files of a fixed size. Records that
//! are appended while one group is being written become the next group. So concurrency leads to larger writes, not to more
//! writes. `docs/formats.md` shows the layout, `format` encodes it.
//!
//! # Why replay finds every acknowledged record
//!
//! Assumptions about the medium: the contract of `io::disk` (synced data and names survive; any subset of the sectors of
//! un-synced data may survive). Rewriting a sector with equal bytes is harmless: a group may start in the sector in which the
//! previous group ends.
//!
//! * A group is written only after the write of the previous group has completed; in group and batch mode only after its
//!   `fdatasync`. A segment receives groups only after the previous segment was synced and its own name is durable.
//! * Each life of a segment's file has a header with a random salt, which is durable before the file has the name of a segment. A
//!   group's checksum covers the salt, the number of its segment and its own number. So what a recycled file contained before is
//!   never read as a group, not even what clients have put there on purpose: they cannot know the salt.
//! * A segment exists from the moment when its name is durable until it is released. Numbers of segments have no gaps. So replay
//!   notices a file that was lost, and by its header one that is shorter than it was.
//! * A group records up to which group the log was durable when it was written. Suppose group *n* cannot be read. If a later
//!   valid group states that *n* was durable, or a later segment has groups that do not start with *n*, acknowledged records
//!   are damaged: replay refuses, naming file and offset. Without such a witness, *n* is the torn end of the log, and no record
//!   behind it was acknowledged as durable: replay stops there.
//! * After a replay that stopped at a torn group *n*, the old tail is written again and synced, because replayed records must
//!   survive the next crash (a failed sync may have left them clean in the page cache). Then the log continues with group *n* in the
//!   segment behind the tail. So the next replay finds *n* at the start of a later segment and continues there. If that segment exists
//!   already, it has no replayed group. It is written if there is no complete group in it at all; otherwise it gets a new life first.
//! * The end of the log has no witness. So the files there are read twice: a bit that only one read flips is an error, not a torn
//!   end. The bytes that are written again are those whose checksums were checked.
//! * No byte is written twice without a sync in between, except by that rewriting, in files that a dead process has written to,
//!   and when a full disk has cut a write off. All of these write what is not acknowledged yet, or what is there already; so the order
//!   in which such writes reach the disk does not matter.
//! * Segments leave the log oldest first, by renaming, and only after the owner has released them and the archive, if there is one, has
//!   their copies.
//!
//! After a failed write or sync the log is poisoned: no record is appended or acknowledged until the log is opened anew. A full disk
//! poisons nothing unless a sync fails: see `room`.

#[cfg(any(test, feature = "fuzzing"))]
pub mod adversary;
mod archive;
mod archived;
mod archiver;
mod error;
mod format;
mod keeper;
mod layout;
mod log;
mod options;
mod position;
mod reading;
mod replay;
mod room;
mod segments;
#[cfg(test)]
mod tests;
mod version_1;
mod writer;

pub use archive::{ArchivedLog, ArchivedSegment};
pub use archived::ArchiveReader;
pub use error::CommitLogError;
pub use log::CommitLog;
pub use options::{ArchiveOptions, CommitLogOptions, DamagePolicy, SyncMode};
pub use position::LogPosition;
pub use reading::read_segment;
pub use replay::{LogEnvironment, Replay};
