//! Sorted tables on disk (SSTables): immutable files of rows in key order, and of span deletions.
//!
//! A [`TableWriter`] is fed rows in ascending order and writes the file front to back; a [`TableReader`] works on a
//! mapping of the finished file. Everything that decides where to look (footer, index, filters, spans, statistics) is
//! checked against its checksum when the table is opened, each data block when it is read: damage is an error that names
//! file and offset, never data. `docs/formats.md` describes the layout, the encoders stand in `format` and the modules
//! named after the sections.
//!
//! A point read goes row filter, index root, index leaf, block cache, restart search: no allocation on the way.

mod block;
mod cache;
mod compression;
mod cursor;
mod filter;
mod format;
mod index;
mod packing;
mod reader;
mod spans;
mod statistics;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::codec::DecodeError;
use crate::io::DiskError;

pub use block::{BlockBuilder, BlockView, EntryRef, Found, Place};
pub use cache::{BlockCache, CacheStatistics};
pub use compression::Compression;
pub use cursor::{TableCursor, TableCursorBuffers};
pub use filter::KeyHash;
pub use packing::unpack as unpack_block;
pub use reader::{TableReader, TableRow};
pub use spans::{SpanRef, Spans};
pub use statistics::{Positions, TableStatistics};
pub use writer::{TableOptions, TableWriter};

/// Why a table could not be written or read.
#[derive(Debug, Clone, Error)]
pub enum TableError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("table {} is damaged at offset {offset}: {reason}", path.display())]
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
    #[error("table {} has format version {version}; this program reads versions up to {newest}", path.display())]
    UnsupportedVersion { path: PathBuf, version: u32, newest: u32 },
    #[error("{what} were not given to the table writer in ascending order")]
    Disorder { what: &'static str },
    #[error("a key given to the table writer is no full key")]
    InvalidKey,
    #[error("a row given to the table writer cannot be read: {0}")]
    InvalidRow(#[from] DecodeError),
    #[error("a row of {bytes} bytes is larger than the limit of {limit}")]
    RowTooLarge { bytes: usize, limit: usize },
}

impl TableError {
    pub(crate) fn damaged(path: &Path, offset: u64, reason: &'static str) -> Self {
        Self::Damaged { path: path.to_path_buf(), offset, reason }
    }
}
