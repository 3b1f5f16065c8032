//! The indexes of table files: each is a file beside the table file, `<n>-<index>.index`, derived from that alone.
//!
//! A flush and a compaction make the indexes of their output before they install it, so an index that is complete stays so. What lacks an index is given
//! one by a task of the shard: files from before the index was created, restored ones, and those whose index is missing or damaged.
//!
//! Invariants:
//! * An index file is complete and synced before it gets its name. So what has the name is complete, or damaged, which its checksums show.
//! * An index file that cannot be made or read harms no other read or write. Searches are refused until it has been made again.
//! * No index file is the only copy of anything: one that belongs to no file and index in use is removed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::file_index::FileIndex;
use super::files::discard_file;
use super::names::{Name, index_name};
use super::remains::list;
use super::running_compactions::{CompactionKind, RunningCompaction};
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use crate::compaction::CompactionProgress;
use crate::error::EngineError;
use crate::io::{Environment, JobKind, RateLimiter, run_in_background};
use crate::manifest::FileId;
use crate::mutation::TableId;
use crate::secondary_index::build::{IndexBuild, check_index};
use crate::secondary_index::{IndexDefinition, IndexId};
use crate::table::{ResidentParts, TableError, TableReader};

/// Pause before an index that could not be made is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Pause of the task while no index is missing, unless it is woken.
const IDLE_PAUSE: Duration = Duration::from_hours(1);

/// How far an index of a table is built on a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexStatus {
    pub id: IndexId,
    pub files: usize,
    /// Those that have the index.
    pub indexed_files: usize,
    /// Bytes of the index's files.
    pub disk_bytes: u64,
    /// The index has everything, and can be searched.
    pub is_complete: bool,
    /// Some of it is missing, or is being made anew.
    pub is_building: bool,
}

impl LiveFile {
    /// Takes indexes that were made of this file.
    pub fn with_indexes(self, indexes: Vec<FileIndex>) -> Self {
        self.indexes.replace(indexes);
        self
    }

    /// The index of the file.
    pub fn index(&self, id: IndexId) -> Option<Arc<TableReader>> {
        self.indexes.borrow().iter().find(|index| index.id == id).map(|index| Arc::clone(&index.reader))
    }

    /// Whether an index of the file is there and to be made anew.
    fn has_outdated(&self, id: IndexId) -> bool {
        self.indexes.borrow().iter().any(|index| index.id == id && index.is_outdated.get())
    }

    /// Takes an index into use, in the place of the one before, which is returned.
    fn set_index(&self, index: FileIndex) -> Option<FileIndex> {
        let mut indexes = self.indexes.borrow_mut();
        if let Some(former) = indexes.iter_mut().find(|former| former.id == index.id) {
            return Some(std::mem::replace(former, index));
        }
        indexes.push(index);
        None
    }

    fn lacks_any(&self, definitions: &[IndexDefinition]) -> bool {
        let indexes = self.indexes.borrow();
        definitions.iter().any(|definition| indexes.iter().all(|index| index.id != definition.id))
    }
}

impl TableState {
    fn index_path(&self, file: FileId, index: IndexId) -> PathBuf {
        self.directory(file.directory).join(index_name(file.generation, index))
    }

    fn definitions(&self) -> Vec<IndexDefinition> {
        self.options.borrow().indexes.clone()
    }

    pub(super) fn has_definition(&self, id: IndexId) -> bool {
        self.options.borrow().indexes.iter().any(|definition| definition.id == id)
    }

    fn is_live(&self, generation: u64) -> bool {
        self.files.borrow().iter().any(|live| live.place.generation == generation)
    }

    pub(super) fn definition(&self, id: IndexId) -> Option<IndexDefinition> {
        self.options.borrow().indexes.iter().find(|definition| definition.id == id).cloned()
    }

    /// How far an index is built.
    fn index_status(&self, definition: &IndexDefinition) -> IndexStatus {
        let id = definition.id;
        let mut is_in_memory = true;
        self.for_each_memtable(|memtable| {
            is_in_memory &= memtable.read(|memtable| memtable.is_empty() || memtable.has_index(definition));
        });
        let files = self.files.borrow();
        let (mut indexed_files, mut disk_bytes) = (0, 0);
        for reader in files.iter().filter_map(|file| file.index(id)) {
            indexed_files += 1;
            disk_bytes += reader.file_bytes();
        }
        let is_complete = is_in_memory && indexed_files == files.len();
        let is_building = !is_complete || files.iter().any(|file| file.has_outdated(id));
        IndexStatus { id, files: files.len(), indexed_files, disk_bytes, is_complete, is_building }
    }

    /// Whether an index has everything that memtables and files have.
    pub fn is_index_complete(&self, id: IndexId) -> bool {
        self.definition(id).is_some_and(|definition| self.index_status(&definition).is_complete)
    }
}

/// Removes what may have been written of the indexes of a file that is not in use.
pub(super) async fn discard_indexes_of(environment: &Environment, table: &TableState, file: FileId) {
    for definition in table.definitions() {
        let path = table.index_path(file, definition.id);
        discard_file(environment, &temporary(&path)).await;
        discard_file(environment, &path).await;
    }
}

/// The file of an error after which an index file has to be made again. `None`: the file may be sound.
pub(super) fn path_of_useless(error: &TableError) -> Option<&Path> {
    match error {
        TableError::Damaged { path, .. } | TableError::UnsupportedVersion { path, .. } => Some(path),
        TableError::Disk(error) if error.is_of_medium() => Some(&error.path),
        _ => None,
    }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("index.tmp")
}

impl Shard {
    /// How far the indexes of a table are built.
    pub fn index_statuses(&self, table: TableId) -> Result<Vec<IndexStatus>, EngineError> {
        let table = self.table(table)?;
        Ok(table.definitions().iter().map(|definition| table.index_status(definition)).collect())
    }

    /// Resolves when all indexes of a table are complete.
    #[cfg(test)]
    pub async fn indexes_built(&self, id: TableId) -> Result<(), EngineError> {
        loop {
            let built = self.signals.indexes_built.notified();
            let table = self.table(id)?;
            if table.definitions().iter().all(|definition| table.is_index_complete(definition.id)) {
                return Ok(());
            }
            self.check_open()?;
            built.await;
        }
    }

    /// Takes the present definitions of a table: what is written from now on is indexed.
    pub(super) fn adopt_indexes(&self, table: &TableState) {
        let definitions = table.definitions();
        let has_all = table
            .active
            .borrow()
            .read(|memtable| definitions.iter().all(|definition| memtable.has_index(definition)));
        if !has_all {
            let end = self.log.end_position();
            self.freeze(table, end);
            // An empty one was not frozen.
            table.replace_active();
            self.signals.flush_wanted.notify_one();
        }
        if !definitions.is_empty() || table.has_index_files.get() {
            table.looks_for_stray_indexes.set(true);
            self.signals.indexes_wanted.notify_one();
        }
    }

    /// Puts a file into use, which gets the indexes that it lacks later.
    pub(super) fn add_live_file(&self, table: &TableState, file: LiveFile) {
        let definitions = table.definitions();
        let is_dropped = |index: &FileIndex| definitions.iter().all(|definition| definition.id != index.id);
        if file.indexes.borrow().iter().any(is_dropped) {
            table.looks_for_stray_indexes.set(true);
            self.signals.indexes_wanted.notify_one();
        }
        if file.lacks_any(&definitions) {
            self.signals.indexes_wanted.notify_one();
        }
        table.add_file(file);
        self.signals.indexes_built.notify_waiters();
    }

    /// Makes the indexes of a file that is not in use yet. One that cannot be made is left to the task.
    pub(super) async fn index_output(
        &self,
        table: &TableState,
        file: FileId,
        reader: &Arc<TableReader>,
        job: JobKind,
    ) -> Vec<FileIndex> {
        let mut indexes = Vec::new();
        for definition in table.definitions() {
            let id = definition.id;
            match self.make_index(table, file, reader, definition, None, job).await {
                Ok(index) if table.has_definition(id) => indexes.push(index),
                Ok(_) => {
                    discard_file(&self.environment, &table.index_path(file, id)).await;
                }
                Err(error) => {
                    tracing::warn!(table = %table.id, index = %id, %error, "a new file has no index yet; it is made later");
                }
            }
        }
        indexes
    }

    async fn make_index(
        &self,
        table: &TableState,
        file: FileId,
        reader: &Arc<TableReader>,
        definition: IndexDefinition,
        limiter: Option<RateLimiter>,
        job: JobKind,
    ) -> Result<FileIndex, EngineError> {
        let id = definition.id;
        let path = table.index_path(file, id);
        let unfinished = temporary(&path);
        // Of an attempt that has failed.
        discard_file(&self.environment, &unfinished).await;
        let bytes = reader.file_bytes();
        // The index of a flushed file may take what is kept for flushes: without it searches are refused.
        let _room = match job {
            JobKind::Soon => self.reserve().claim_for_flush(bytes)?,
            JobKind::Short | JobKind::Long | JobKind::Part => self.reserve().claim_for_compaction(bytes)?,
        };
        let build = IndexBuild { reader: Arc::clone(reader), definition, path: unfinished.clone(), limiter };
        table.has_index_files.set(true);
        run_in_background(&*self.environment.background, job, move |context| Box::pin(build.run(context)))
            .await??;
        self.environment.disk.rename(&unfinished, &path).await?;
        self.open_index(&path, id, reader).await
    }

    async fn open_index(
        &self,
        path: &Path,
        id: IndexId,
        table_file: &Arc<TableReader>,
    ) -> Result<FileIndex, EngineError> {
        let file = self.environment.disk.open_complete(path).await?;
        // The number of a file is its key in the cache of blocks.
        let (path, number) = (path.to_owned(), self.new_generation());
        let table_file = Arc::clone(table_file);
        // Searches are planned by it, which waits for no disk. It takes nothing from the files of rows.
        let resident = ResidentParts::unlimited();
        let opened = run_in_background(&*self.environment.background, JobKind::Soon, move |_| {
            Box::pin(async move {
                let reader = Arc::new(TableReader::open_within(file, &path, number, &resident)?);
                let content = check_index(&reader, &table_file)?;
                Ok::<_, TableError>((reader, content))
            })
        });
        let (reader, content) = opened.await??;
        Ok(FileIndex::new(id, reader, content))
    }

    /// Opens the index of a file. `None`: there is none, or it cannot be used and is removed.
    async fn find_index(
        &self,
        table: &TableState,
        file: &LiveFile,
        id: IndexId,
    ) -> Result<Option<FileIndex>, EngineError> {
        let path = table.index_path(file.place.id(), id);
        match self.open_index(&path, id, &file.reader).await {
            Ok(index) => return Ok(Some(index)),
            Err(EngineError::Disk(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(EngineError::Table(error)) if path_of_useless(&error).is_some() => {
                tracing::warn!(table = %table.id, %error, "the index of a file cannot be used, and is made again");
                discard_file(&self.environment, &path).await;
            }
            Err(EngineError::Disk(error)) if error.is_of_medium() => {
                tracing::warn!(table = %table.id, %error, "the index of a file cannot be read, and is made again");
                discard_file(&self.environment, &path).await;
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Makes what is missing of the indexes of all tables. Returns the pause until it should be called again.
    pub(super) async fn complete_indexes(&self) -> Duration {
        let mut pause = IDLE_PAUSE;
        let tables: Vec<_> = self
            .all_tables()
            .into_iter()
            .filter(|table| !table.options.borrow().indexes.is_empty() || table.has_index_files.get())
            .collect();
        for table in &tables {
            if table.looks_for_stray_indexes.get() && table.is_configured.get() {
                self.remove_stray_indexes(table).await;
            }
        }
        // What is there is opened before anything is made, which may take hours.
        for makes in [false, true] {
            for table in &tables {
                for definition in table.definitions() {
                    let files = table.files.borrow().clone();
                    for file in files {
                        if self.check_open().is_err() {
                            self.signals.indexes_built.notify_waiters();
                            return IDLE_PAUSE;
                        }
                        if let Err(error) = self.complete_index(table, &file, &definition, makes).await {
                            self.note_failed_index(table, &error);
                            table.index_failure.replace(Some(error));
                            pause = RETRY_PAUSE;
                        }
                    }
                }
                self.signals.indexes_built.notify_waiters();
            }
        }
        pause
    }

    fn note_failed_index(&self, table: &TableState, error: &EngineError) {
        if error.is_full() {
            tracing::debug!(table = %table.id, %error, "an index waits for room on the disk");
        } else {
            self.note_disk_failure(error);
            tracing::error!(table = %table.id, %error, "an index could not be made; it is tried again");
        }
    }

    /// Gives a file an index that it lacks, if that is wanted. `makes`: if it is not there it is made.
    async fn complete_index(
        &self,
        table: &Rc<TableState>,
        file: &Rc<LiveFile>,
        definition: &IndexDefinition,
        makes: bool,
    ) -> Result<(), EngineError> {
        let id = definition.id;
        // The file may be merged, or moved to another level, meanwhile.
        let live = || {
            let files = table.files.borrow();
            let live = files.iter().find(|live| live.place.generation == file.place.generation).cloned();
            let lacks = |live: &Rc<LiveFile>| live.index(id).is_none() || live.has_outdated(id);
            live.filter(|live| table.has_definition(id) && lacks(live))
        };
        if live().is_none() || file.damage.borrow().is_some() {
            return Ok(());
        }
        let mut outcome =
            if file.has_outdated(id) { Ok(None) } else { self.find_index(table, file, id).await };
        if makes && matches!(outcome, Ok(None)) {
            let limiter = Some(self.compaction_rate().clone());
            let is_small = file.reader.file_bytes() <= self.small_bytes();
            let job = if is_small { JobKind::Short } else { JobKind::Long };
            // What is small need not wait behind it.
            let progress = Arc::new(CompactionProgress::of(file.reader.statistics().raw_bytes));
            let begun = self.environment.clock.monotonic();
            let kind = CompactionKind::IndexBuild;
            let _listed = self.running_compactions.list(RunningCompaction {
                table: table.id,
                kind,
                progress,
                job,
                begun,
            });
            self.signals.want_compaction();
            let made =
                self.make_index(table, file.place.id(), &file.reader, definition.clone(), limiter, job).await;
            outcome = made.map(Some);
        }
        match (live(), outcome) {
            (Some(live), Ok(Some(index))) => {
                // Searches of this moment may still read the former one.
                if let Some(former) = live.set_index(index) {
                    self.block_cache.remove_table(former.reader.id());
                }
            }
            (Some(_), Ok(None)) => {}
            (Some(live), Err(EngineError::Table(error)))
                if path_of_useless(&error) == Some(live.reader.path()) =>
            {
                // The table file itself: it is no use to read it again before it is mended.
                live.damage.replace(Some(error.to_string()));
                return Err(error.into());
            }
            (Some(_), Err(error)) => return Err(error),
            // What was made, or could not be, is not wanted any more.
            (None, _) => {
                let is_in_use = table.has_definition(id) && table.is_live(file.place.generation);
                if !is_in_use {
                    discard_file(&self.environment, &table.index_path(file.place.id(), id)).await;
                }
            }
        }
        Ok(())
    }

    /// Removes the files of indexes that were dropped, and of table files that are gone.
    async fn remove_stray_indexes(&self, table: &TableState) {
        let mut has_failed = false;
        for file in table.files.borrow().iter() {
            file.indexes.borrow_mut().retain(|index| {
                let is_kept = table.has_definition(index.id);
                if !is_kept {
                    self.block_cache.remove_table(index.reader.id());
                }
                is_kept
            });
        }
        for directory in &table.directories {
            let entries = match list(&*self.environment.disk, directory).await {
                Ok(entries) => entries,
                Err(error) => {
                    tracing::warn!(table = %table.id, %error, "files of dropped indexes may be left");
                    has_failed = true;
                    continue;
                }
            };
            for entry in entries {
                let Some(Name::Index { generation, index }) = Name::parse(&entry.name) else { continue };
                // A file that is being written has an index before it is in use.
                let is_new = generation >= self.first_own_generation;
                if !table.has_definition(index) || !(is_new || table.is_live(generation)) {
                    discard_file(&self.environment, &directory.join(&entry.name)).await;
                }
            }
        }
        table.looks_for_stray_indexes.set(has_failed);
    }

    /// Gives up an index file because of an error, unless another one has taken its place. It is made again.
    pub(super) async fn give_up_index(
        &self,
        table: &TableState,
        reader: &Arc<TableReader>,
        error: &TableError,
    ) {
        let mut is_given_up = false;
        for file in table.files.borrow().iter() {
            file.indexes.borrow_mut().retain(|index| {
                let is_kept = !Arc::ptr_eq(&index.reader, reader);
                is_given_up |= !is_kept;
                is_kept
            });
        }
        if is_given_up {
            tracing::warn!(table = %table.id, %error, "an index file is damaged, and is made again");
            self.block_cache.remove_table(reader.id());
            discard_file(&self.environment, reader.path()).await;
            self.signals.indexes_wanted.notify_one();
        }
    }
}
