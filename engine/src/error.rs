//! The errors of a shard, and what they say about its disk.

use std::cell::RefCell;
use std::io;

use std::path::PathBuf;

use thiserror::Error;

use crate::codec::DecodeError;
use crate::commit_log::CommitLogError;
use crate::invariant::BrokenInvariant;
use crate::io::{BackgroundError, DiskError, NoRoom};
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
    /// Nothing was written.
    #[error("a mutation of {bytes} bytes is larger than the limit of {limit}")]
    MutationTooLarge { bytes: usize, limit: usize },
    /// The row has grown cell by cell. Its partition and the other rows can be read, and the row can be deleted.
    #[error(
        "a row of the table {table} has grown to more than {limit} bytes and cannot be read as a whole; its key has {key_bytes} bytes"
    )]
    RowTooLarge { table: TableId, key_bytes: usize, limit: usize },
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
    /// The range may have rows in a file that could not be opened. Other ranges can be read.
    #[error(
        "table file {} may hold rows of this range and cannot be used: {reason}; restore the file from a backup, or give its rows up with \
         a scrub",
        path.display()
    )]
    DamagedFile { path: PathBuf, reason: String },
    #[error(
        "{} is unknown to the manifest and could not be moved to {}: {source}; it was not removed",
        path.display(), to.display()
    )]
    Quarantine { path: PathBuf, to: PathBuf, source: DiskError },
    #[error("the shard refuses writes after a failure whose outcome is unknown: {0}")]
    Refusing(String),
    #[error("the memtable budget is spent and flushing fails: {0}")]
    FlushFailed(String),
    /// Nothing was changed. The same will succeed when compactions have caught up.
    #[error("compactions are behind: {files} files of a table wait for them")]
    Backlog { files: usize },
    /// Nothing was changed. The same will succeed when there is room again.
    #[error("the disk is full: {0}")]
    NoRoom(String),
    #[error("{0:?} is not a valid snapshot name: it must be a plain file name")]
    SnapshotName(String),
    #[error("the table already has a snapshot named {0:?}")]
    SnapshotExists(String),
    #[error("{path} of the snapshot cannot be restored: {error}")]
    SnapshotFile { path: PathBuf, error: Box<EngineError> },
    #[error("{path} cannot be imported: {error}")]
    ImportFile { path: PathBuf, error: Box<EngineError> },
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
    /// An index is not built yet, or is being made again. Later the same will succeed.
    #[error("an index of the table {table} is not complete yet")]
    IndexIncomplete { table: TableId },
    #[error("a search by an index of the table {table} takes too long")]
    SearchTooLong { table: TableId },
    #[error("the files of the shard are being verified or scrubbed already")]
    ExaminationRuns,
    #[error("the shard is closed")]
    Closed,
}

impl From<NoRoom> for EngineError {
    fn from(error: NoRoom) -> Self {
        Self::NoRoom(error.to_string())
    }
}

impl EngineError {
    /// Whether the operation failed because the disk is full. It may succeed when there is room again.
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoRoom(_) | Self::CommitLog(CommitLogError::NoRoom(_)) => true,
            _ => self.disk_error().is_some_and(DiskError::is_full),
        }
    }

    /// The failure of the disk that caused the error, if one did.
    pub(crate) fn disk_error(&self) -> Option<&DiskError> {
        match self {
            Self::Disk(error)
            | Self::CommitLog(CommitLogError::Disk(error))
            | Self::Manifest(ManifestError::Disk(error))
            | Self::Table(TableError::Disk(error)) => Some(error),
            _ => None,
        }
    }
}

/// The kind of a failure of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFailureKind {
    /// A file could not be read or written. A full disk is no failure.
    Io,
    /// A file is not what was written, or is missing.
    Damage,
}

/// A failure of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFailure {
    pub kind: DiskFailureKind,
    /// Names the file.
    pub message: String,
}

impl DiskFailure {
    /// The disk failure that an error reports, if it reports one.
    pub fn of(error: &EngineError) -> Option<Self> {
        let kind = match error {
            EngineError::Disk(error)
            | EngineError::Manifest(ManifestError::Disk(error))
            | EngineError::Table(TableError::Disk(error)) => match error.kind() {
                _ if error.is_full() => return None,
                io::ErrorKind::NotFound => DiskFailureKind::Damage,
                _ => DiskFailureKind::Io,
            },
            EngineError::Manifest(_)
            | EngineError::DamagedFile { .. }
            | EngineError::Table(TableError::Damaged { .. } | TableError::UnsupportedVersion { .. }) => {
                DiskFailureKind::Damage
            }
            _ => return None,
        };
        Some(Self { kind, message: error.to_string() })
    }
}

/// The failures of data files that a shard has met: the first one of each kind. What is done about them is for the owner of the shard
/// to decide; the shard itself goes on.
#[derive(Debug, Default)]
pub(crate) struct DiskFailures {
    known: RefCell<Vec<DiskFailure>>,
}

impl DiskFailures {
    /// Remembers the disk failure that an error reports, if it reports one. Call it wherever work on data files has failed.
    #[cold]
    pub fn note(&self, error: &EngineError) {
        let Some(failure) = DiskFailure::of(error) else { return };
        let mut known = self.known.borrow_mut();
        if known.iter().all(|known| known.kind != failure.kind) {
            known.push(failure);
        }
    }

    pub fn known(&self) -> Vec<DiskFailure> {
        self.known.borrow().clone()
    }
}
