//! What a manifest says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::commit_log::LogPosition;
use crate::mutation::TableId;

/// A file of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    pub generation: u64,
    pub level: u32,
    /// Seconds since the epoch.
    pub created_seconds: u32,
    /// 0: the shard's own directory; else the number of one of [`Manifest::directories`], from 1 on.
    pub directory: u32,
    /// The tokens that the file has data of. `None`: not known, in a file that was made under version 1.
    pub tokens: Option<TokenSpan>,
}

/// All tokens from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenSpan {
    pub first: i64,
    pub last: i64,
}

impl ManifestFile {
    pub fn id(&self) -> FileId {
        FileId { generation: self.generation, directory: self.directory }
    }
}

/// Which file of a table. The generation alone names it; the directory says where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    pub generation: u64,
    /// The number of its directory.
    pub directory: u32,
}

/// A table of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestTable {
    /// Log records of this table before this position are in the files (or were truncated).
    pub flushed_to: LogPosition,
    /// By generation.
    pub files: Vec<ManifestFile>,
    /// Files that the table had. They may still be on the disk.
    pub obsolete: BTreeSet<FileId>,
}

impl ManifestTable {
    /// A table without files.
    pub fn new(flushed_to: LogPosition) -> Self {
        Self { flushed_to, files: Vec::new(), obsolete: BTreeSet::new() }
    }
}

/// The contents of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// The number of edits and replacements so far. 0: read from version 1.
    pub sequence: u64,
    /// Greater than the generation of any file so far.
    pub next_generation: u64,
    /// The lowest log segment that may hold a record which is in no file. 0: unknown (version 1).
    pub log_needed_from: u64,
    /// Further directories of table files. One that was named once keeps its number.
    pub directories: Vec<PathBuf>,
    pub tables: BTreeMap<TableId, ManifestTable>,
    /// Tables that were dropped. Their directories may still be on the disk, and their records in the log.
    pub dropped: BTreeSet<TableId>,
}

impl Manifest {
    /// The manifest of a new shard.
    pub fn new() -> Self {
        Self { next_generation: 1, ..Self::default() }
    }

    /// Whether a file may lie in the directory of this number.
    pub fn has_directory(&self, number: u32) -> bool {
        number as usize <= self.directories.len()
    }
}
