//! The errors of table files.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::codec::DecodeError;
use crate::invariant::BrokenInvariant;
use crate::io::DiskError;

/// Why a table could not be written or read.
#[derive(Debug, Clone, Error)]
pub enum TableError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("table {} is damaged at offset {offset}: {reason}", path.display())]
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
    /// A read that may not wait for the disk needs a block that is in no cache. See `Shard::attempt` of the engine.
    #[error("table {}: the block at offset {offset} is in no cache", path.display())]
    NotCached { path: PathBuf, offset: u64 },
    #[error("table {} has format version {version}; this program reads versions up to {newest}", path.display())]
    UnsupportedVersion { path: PathBuf, version: u32, newest: u32 },
    #[error("{what} were not given to the table writer in ascending order")]
    Disorder { what: &'static str },
    #[error("a key given to the table writer is no full key")]
    InvalidKey,
    #[error("a row given to the table writer cannot be read: {0}")]
    InvalidRow(#[from] DecodeError),
    #[error("the {what} of a table are larger than the format has room for")]
    TooLarge { what: &'static str },
    #[error("a row of {bytes} bytes is larger than the limit of {limit}")]
    RowTooLarge { bytes: usize, limit: usize },
    /// An operator has stopped the compaction that was writing the table.
    #[error("the compaction was stopped")]
    Stopped,
    #[error(transparent)]
    BrokenInvariant(#[from] BrokenInvariant),
}

impl TableError {
    pub fn damaged(path: &Path, offset: u64, reason: &'static str) -> Self {
        Self::Damaged { path: path.to_path_buf(), offset, reason }
    }
}
