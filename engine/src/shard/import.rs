//! Import: finds table files from elsewhere and reads their versions. The caller writes these to their present replicas.
//!
//! The files may come from any shard of any node. They are only read, and stay where they are.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::names::Name;
use super::remains::list;
use super::state::Shard;
use crate::error::EngineError;
use crate::io::DirectoryEntry;
use crate::mutation::TableId;
use crate::read::{
    Bounds, RangeTombstoneSource, Scan, ScanBuffers, Source, TableSource, TableSourceBuffers, VersionScan,
    VersionScanRequest, Versions,
};
use crate::reconcile::Purpose;
use crate::table::{TableCursor, TableReader};

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

/// A table file from elsewhere.
#[derive(Debug, Clone)]
pub struct ImportFile(Arc<TableReader>);

impl ImportFile {
    pub fn bytes(&self) -> u64 {
        self.0.file_bytes()
    }
}

impl Shard {
    /// The directories with table files at and below `root`, by path.
    pub async fn find_imports(&self, root: &Path) -> Result<Vec<ImportDirectory>, EngineError> {
        let mut found = Vec::new();
        let mut waiting = vec![(root.to_owned(), 0)];
        while let Some((path, depth)) = waiting.pop() {
            let mut directory = ImportDirectory {
                table: path.file_name().and_then(|name| TableId::parse(name.to_str()?)),
                files: Vec::new(),
                others: Vec::new(),
                path,
            };
            for DirectoryEntry { name, is_directory } in
                list(&*self.environment.disk, &directory.path).await?
            {
                if is_directory && depth < DEPTH_MAX {
                    waiting.push((directory.path.join(name), depth + 1));
                } else if matches!(Name::parse(&name), Some(Name::File(_))) {
                    directory.files.push(directory.path.join(name));
                } else if !is_directory {
                    directory.others.push(name);
                }
            }
            directory.files.sort();
            if !directory.files.is_empty() {
                found.push(directory);
            }
        }
        found.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(found)
    }

    /// The contents of a small file beside table files.
    pub async fn read_beside_import(&self, path: &Path) -> Result<Bytes, EngineError> {
        Ok(self.environment.disk.read(path).await?)
    }

    /// Opens a table file from elsewhere.
    pub async fn open_import(&self, path: &Path) -> Result<ImportFile, EngineError> {
        // The number of a file is its key in the cache of blocks.
        let reader = TableReader::open_file(&*self.environment.disk, path, self.new_generation()).await;
        reader
            .map(ImportFile)
            .map_err(|error| EngineError::ImportFile { path: path.to_owned(), error: Box::new(error.into()) })
    }

    /// As [`Shard::scan_versions`], of one file from elsewhere. The mutations are of the request's table, which need not exist.
    /// All deletions are kept, and their grace period begins now.
    pub fn scan_import(
        &self,
        file: &ImportFile,
        request: &VersionScanRequest<'_>,
    ) -> Result<Versions, EngineError> {
        self.check_open()?;
        let reader = &file.0;
        let bounds = Bounds { start: request.start, end: request.end, reversed: false };
        let TableSourceBuffers { cursor: spare, bound } = TableSourceBuffers::default();
        let cursor = TableCursor::for_long_read(Arc::clone(reader), Rc::clone(&self.block_cache), spare);
        let mut buffers = ScanBuffers::default();
        buffers.sources.push(Source::Table(TableSource::open(cursor, bound, bounds)?));
        let mut range_tombstones = Vec::new();
        if !reader.range_tombstones().is_empty() {
            range_tombstones.push(RangeTombstoneSource::Table(Arc::clone(reader)));
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
