//! The errors of a shard.

use std::path::PathBuf;

use thiserror::Error;

use crate::codec::DecodeError;
use crate::commit_log::CommitLogError;
use crate::invariant::BrokenInvariant;
use crate::io::{BackgroundError, DiskError};
use crate::manifest::ManifestError;
use crate::mutation::TableId;
use crate::table::TableError;

/// Why an operation of the engine failed. A failed operation has no partial effect. After [`EngineError::Refusing`] and
/// [`EngineError::BrokenInvariant`] the shard must be opened anew.
#[derive(Debug, Clone, Error)]
pub enum EngineError {
    #[error("the shard has no table {0}")]
    UnknownTable(TableId),
    #[error("malformed mutation: {0}")]
    Mutation(DecodeError),
    #[error("malformed row in {table}: {reason}")]
    Row { table: TableId, reason: DecodeError },
    #[error(transparent)]
    CommitLog(#[from] CommitLogError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Background(#[from] BackgroundError),
    #[error(
        "the commit log in {} begins with segment {first}, and segment {segment} is needed too: acknowledged writes are missing; restore \
         the segment",
        directory.display()
    )]
    MissingLog { directory: PathBuf, segment: u64, first: u64 },
    #[error(
        "{} is unknown to the manifest and could not be moved to {}: {source}; it was not removed",
        path.display(), to.display()
    )]
    Quarantine { path: PathBuf, to: PathBuf, source: DiskError },
    #[error("the shard refuses writes after a failure whose outcome is unknown: {0}")]
    Refusing(String),
    #[error("the memtable budget is spent and flushing fails: {0}")]
    FlushFailed(String),
    #[error("{0:?} is not a valid snapshot name: it must be a plain file name")]
    SnapshotName(String),
    #[error("the table already has a snapshot named {0:?}")]
    SnapshotExists(String),
    /// The shard has stopped: a defect was noticed, and nothing it holds in memory can be relied on.
    #[error(transparent)]
    BrokenInvariant(#[from] BrokenInvariant),
    /// A directory that an earlier run has filled is not there. Nothing was changed.
    #[error(
        "{what} should be in {}, and is not: mount or restore the directory, or set it to where the files are", path.display()
    )]
    MissingDirectory { path: PathBuf, what: &'static str },
    /// Nothing was changed.
    #[error(
        "{} is new to the shard as a directory of table files, and holds some: name an empty directory", path.display()
    )]
    ForeignDirectory { path: PathBuf },
    /// Nothing was changed.
    #[error(
        "the commit log lies in {}, and the settings name {}: move its files there, or set the directory back",
        found.display(), configured.display()
    )]
    CommitLogElsewhere { found: PathBuf, configured: PathBuf },
    #[error("the shard is closed")]
    Closed,
}
