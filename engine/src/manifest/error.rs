//! Why the manifest could not be read or changed.

use std::path::PathBuf;

use thiserror::Error;

use crate::codec::DecodeError;
use crate::commit_log::LogPosition;
use crate::io::DiskError;
use crate::mutation::TableId;

/// Why the manifest could not be read or changed.
#[derive(Debug, Clone, Error)]
pub enum ManifestError {
    #[error("manifest: {0}")]
    Disk(#[from] DiskError),
    #[error("manifest {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: DecodeError },
    #[error("manifest {}: the checksum is wrong", path.display())]
    Checksum { path: PathBuf },
    #[error(
        "manifest {} has version {version}; this program knows versions up to {known}: run a newer one",
        path.display()
    )]
    Version { path: PathBuf, version: u8, known: u8 },
    #[error(
        "manifest {} and its copy are missing, and without them the shard's files mean nothing; nothing was changed: restore either \
         from a backup",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error("manifest: {0}; it is unknown which one is right: remove the wrong one")]
    Differ(String),
    #[error(
        "manifest {} is older than the commit log: it does not know table {table}, which {position} of the log belongs to; restore \
         the newest manifest",
        path.display()
    )]
    Older { path: PathBuf, table: TableId, position: LogPosition },
    #[error(
        "{} and its copy are missing, and without them the manifest is older than what the shard has done; nothing was changed: restore \
         either from a backup",
        path.display()
    )]
    MissingChanges { path: PathBuf },
    #[error(
        "changes of the manifest: {reason}; nothing was changed: restore the file or its copy from a backup"
    )]
    DamagedChanges { reason: String },
    #[error("change {sequence} of the manifest in {}: {reason}", path.display())]
    DamagedChange { path: PathBuf, sequence: u64, reason: String },
    #[error(
        "manifest {} is older than {} beside it: it is not as it was left; nothing was changed: restore the newest manifest",
        path.display(), changes.display()
    )]
    OlderThanChanges { path: PathBuf, changes: PathBuf },
}
