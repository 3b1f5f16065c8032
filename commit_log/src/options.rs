//! Settings of a commit log.

use std::path::PathBuf;
use std::time::Duration;

/// When a record counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After the `fdatasync` of its group. The writer lets all ready tasks append before it starts.
    Group,
    /// After the `fdatasync` of its group. The group is written as soon as the disk is free.
    Batch,
    /// Immediately. The log is written every few milliseconds and synced every `period`.
    Periodic { period: Duration },
}

/// How replay handles damage in the middle of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagePolicy {
    /// Refuse to open the log.
    Refuse,
    /// Log a warning for each damaged place and continue behind it. The records there are lost.
    Skip,
}

/// The archive of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// The directory that must be there: a disk that is not mounted must not be written to.
    pub root: PathBuf,
    /// The directory of this log, below the root. It is made if missing.
    pub below: PathBuf,
}

/// Settings of a log. They may change from one opening to the next.
#[derive(Debug, Clone)]
pub struct CommitLogOptions {
    pub sync: SyncMode,
    /// Size of new segment files: 4 KiB to 2 GiB.
    pub segment_bytes: u64,
    /// `admit` waits while more appended bytes than this are unwritten.
    pub unwritten_bytes_max: usize,
    /// Files kept for reuse; further ones are removed.
    pub spare_segments_max: usize,
    pub damage: DamagePolicy,
    /// Where a copy of each complete segment goes; see `archive`. `None`: nowhere.
    pub archive: Option<ArchiveOptions>,
}

impl Default for CommitLogOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::Group,
            segment_bytes: 32 << 20,
            unwritten_bytes_max: 8 << 20,
            spare_segments_max: 4,
            damage: DamagePolicy::Refuse,
            archive: None,
        }
    }
}
