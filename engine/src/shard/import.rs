//! Import: finds table files and archived logs from elsewhere and reads their versions. The caller writes these to their present replicas.
//!
//! The files may come from any shard of any node. They are only read, and stay where they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::names::Name;
use super::remains::list;
use super::state::Shard;
use crate::error::EngineError;
use crate::io::DirectoryEntry;
use crate::memtable::{CursorBuffers, Memtable, MemtableCursor, SharedMemtable};
use crate::mutation::TableId;
use crate::read::{
    Bounds, RangeTombstoneSource, Scan, ScanBuffers, Source, TableSource, TableSourceBuffers, VersionScan,
    VersionScanRequest, Versions,
};
use crate::reconcile::Purpose;
use crate::table::{ReadPattern, TableCursor, TableReader};

/// Directories below the one that is imported.
const DEPTH_MAX: usize = 8;

/// A directory with files of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportDirectory {
    pub path: PathBuf,
    /// The table that had the files, if the directory is named after one.
    pub table: Option<TableId>,
    /// The table files, in order.
    pub files: Vec<PathBuf>,
    /// The names of the other files.
    pub others: Vec<String>,
}

/// What an import reads: rows and deletions of one table, from elsewhere.
#[derive(Debug, Clone)]
pub struct ImportSource(pub(super) Rows);

#[derive(Debug, Clone)]
pub(super) enum Rows {
    File(Arc<TableReader>),
    /// Made of records of a log. It is frozen.
    Log(Rc<SharedMemtable>),
}

impl ImportSource {
    /// Bytes of the file or of the memory.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Rows::File(reader) => reader.file_bytes(),
            Rows::Log(memtable) => memtable.borrow().size_bytes() as u64,
        }
    }
}

impl Shard {
    /// The files in each directory at and below `root`, by path.
    pub async fn files_below(&self, root: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>, EngineError> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![(root.to_owned(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let mut files = Vec::new();
            for DirectoryEntry { name, is_directory } in list(&*self.environment.disk, &path).await? {
                if !is_directory {
                    files.push(name);
                } else if depth < DEPTH_MAX {
                    waiting.push((path.join(name), depth + 1));
                }
            }
            files.sort();
            found.insert(path, files);
        }
        Ok(found)
    }

    /// The directories with table files at and below `root`, by path.
    pub async fn find_imports(&self, root: &Path) -> Result<Vec<ImportDirectory>, EngineError> {
        let mut found = Vec::new();
        for (path, names) in self.files_below(root).await? {
            let is_table_file = |name: &String| matches!(Name::parse(name), Some(Name::File(_)));
            let (files, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_table_file);
            if !files.is_empty() {
                found.push(ImportDirectory {
                    table: path.file_name().and_then(|name| TableId::parse(name.to_str()?)),
                    files: files.iter().map(|name| path.join(name)).collect(),
                    others,
                    path,
                });
            }
        }
        Ok(found)
    }

    /// The contents of a small file beside table files.
    pub async fn read_beside_import(&self, path: &Path) -> Result<Bytes, EngineError> {
        Ok(self.environment.disk.read(path).await?)
    }

    /// Opens a table file from elsewhere.
    pub async fn open_import(&self, path: &Path) -> Result<ImportSource, EngineError> {
        // The number of a file is its key in the cache of blocks.
        let (disk, number) = (&*self.environment.disk, self.new_generation());
        let reader = TableReader::open_file_within(disk, path, number, self.block_cache.resident()).await;
        reader
            .map(|reader| ImportSource(Rows::File(reader)))
            .map_err(|error| EngineError::ImportFile { path: path.to_owned(), error: Box::new(error.into()) })
    }

    /// As [`Shard::scan_versions`], of one source from elsewhere. The mutations are of the request's table, which need not exist. All
    /// deletions are kept, and their grace period begins now.
    pub fn scan_import(
        &self,
        source: &ImportSource,
        request: &VersionScanRequest<'_>,
    ) -> Result<Versions, EngineError> {
        self.check_open()?;
        let bounds = Bounds { start: request.start, end: request.end, reversed: false };
        let mut buffers = ScanBuffers::default();
        let mut range_tombstones = Vec::new();
        match &source.0 {
            Rows::File(reader) => {
                let TableSourceBuffers { cursor: spare, bound } = TableSourceBuffers::default();
                let cache = Rc::clone(&self.block_cache);
                let cursor =
                    TableCursor::for_pattern(Arc::clone(reader), cache, ReadPattern::LongRange, spare);
                buffers.sources.push(Source::Table(TableSource::open(cursor, bound, bounds)?));
                if !reader.range_tombstones().is_empty() {
                    range_tombstones.push(RangeTombstoneSource::Table(Arc::clone(reader)));
                }
            }
            Rows::Log(memtable) => {
                let spare = CursorBuffers::default();
                let (start, end) = (request.start, request.end);
                let cursor = MemtableCursor::new(Rc::clone(memtable), start, end, None, false, spare);
                buffers.sources.push(Source::Memtable(cursor));
                if memtable.read(Memtable::has_range_tombstones) {
                    range_tombstones.push(RangeTombstoneSource::Memtable(Rc::clone(memtable)));
                }
            }
        }
        let scan = Scan::new(
            &self.scan_buffers,
            &self.watch,
            &self.disk_failures,
            buffers,
            &request.scan_request(),
            None,
        );
        // A deletion that is imported long after its grace period must not be purged before the data that it shadows has arrived
        // from another file.
        let purpose = Purpose::Renew { now_seconds: request.now_seconds };
        let versions = VersionScan::new(request, scan, range_tombstones, purpose, None).run();
        self.watch.check()?;
        versions
    }
}
