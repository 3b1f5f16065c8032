//! The errors of the commit log.

use std::path::PathBuf;

use thiserror::Error;

use helenus_io::DiskError;
use helenus_io::invariant::BrokenInvariant;

/// Why an operation of the log failed.
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
    #[error("a file of the commit log is missing: {}; acknowledged writes were in it", path.display())]
    Missing { path: PathBuf },
    #[error(
        "{} and {} are two segments of one number: keep the one of the history that is wanted, take the other away",
        left.display(), right.display()
    )]
    Ambiguous { left: PathBuf, right: PathBuf },
    #[error("the commit log waits for room on the disk: {0}")]
    NoRoom(DiskError),
    #[error(
        "two reads of the end of the commit log differ, in {}; nothing was changed, another start may succeed",
        path.display()
    )]
    Unstable { path: PathBuf },
    #[error(transparent)]
    BrokenInvariant(#[from] BrokenInvariant),
}
