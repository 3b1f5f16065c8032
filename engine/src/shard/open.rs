//! Opening a shard and closing it.
//!
//! Steps of a start:
//!
//! 1. The manifest is read. What was read is made durable, and a harmed copy of its changes is mended. It is written again if a copy is not as
//!    it should be then, or its version is old. If the disk is full, one copy of each file is enough, unless one of them is of an old version.
//! 2. What else lies in the directory is looked at ([`Remains::find`]).
//! 3. The files that the manifest names are opened, and the log is replayed. A start that fails until here has changed nothing but the
//!    copies of the manifest.
//! 4. What is useless is removed, and what is unknown goes to the quarantine.
//! 5. The manifest is written with what these steps have changed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::lock::Mutex;
use hashbrown::HashMap;

use super::backup::back_up;
use super::candidates::Candidates;
use super::compaction_choice::Lane;
use super::compaction_counters::CompactionCounters;
use super::damaged_file::is_damage;
use super::directories::{Directories, table_directory};
use super::directory::{has_entries, make_directories};
use super::examination::ExaminationState;
use super::files::{discard_output, entry_of};
use super::flush::{Flushed, build_table};
use super::leftovers::Leftovers;
use super::memory::MemtableMemory;
use super::memtable_index::MemtableIndex;
use super::options::{ShardOptions, TableOptions};
use super::remains::Remains;
use super::room::keep_measuring;
use super::running_compactions::RunningCompactions;
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::tasks::{keep_compacting, keep_flushing, keep_indexing, keep_looking_at_files};
use super::write_pressure::WritePressure;
use crate::commit_log::{CommitLog, LogEnvironment, LogPosition, Replay};
use crate::error::{DiskFailures, EngineError};
use crate::invariant::{Watch, broken};
use crate::io::{Disk, DiskLock, Environment, LendingShare, ReplaceError};
use crate::manifest::{FileId, Manifest, ManifestError, ManifestFiles, StoredManifest};
use crate::memtable::Memtable;
use crate::mutation::{MutationRef, TableId};
use crate::table::{BlockCache, ResidentParts, TableReader};

/// A shard during recovery, without the log and the tasks.
struct Recovery {
    environment: Environment,
    options: ShardOptions,
    manifest: Manifest,
    manifest_files: ManifestFiles,
    directories: Directories,
    /// The manifest as it is on the disk.
    stored: Manifest,
    /// The directory of the commit log.
    log_directory: PathBuf,
    tables: HashMap<TableId, Rc<TableState>>,
    /// Tables, dropped ones included, of which the log has records.
    logged: BTreeSet<TableId>,
    disk_failures: DiskFailures,
    /// For filters and indexes of the table files.
    resident: ResidentParts,
}

impl Shard {
    /// Opens the shard in `options.directory`, or makes a new one if the directory has nothing of a shard ([`Shard::create`]). Recovers
    /// every mutation whose durability was acknowledged, and no mutation in part. Call it on a tokio `LocalSet`, where it spawns its
    /// tasks.
    pub async fn open(environment: Environment, options: ShardOptions) -> Result<Rc<Self>, EngineError> {
        if !ManifestFiles::exists(&*environment.disk, &options.directory).await? {
            Self::create(&environment.disk, &options.directory).await?;
        }
        Self::open_existing(environment, options).await
    }

    /// As [`Shard::open`], but a directory without a manifest is refused, and not touched.
    pub async fn open_existing(
        environment: Environment,
        options: ShardOptions,
    ) -> Result<Rc<Self>, EngineError> {
        if !ManifestFiles::exists(&*environment.disk, &options.directory).await? {
            return Err(ManifestError::Missing { path: ManifestFiles::path(&options.directory) }.into());
        }
        make_directories(&environment.disk, &options.directory).await?;
        let lock = environment.disk.lock(&options.directory.join("lock")).await?;
        Recovery::begin(environment, options).await?.open(lock).await
    }

    /// Flushes tables, so that the next start has less to replay, and stops. Afterwards only reads work. All rows that are not in the commit
    /// log are flushed; of the others as many as [`ShardOptions::close_flush_max`] allows, those with the largest memtables first.
    pub async fn close(&self) -> Result<(), EngineError> {
        if self.is_closed.get() {
            return Ok(());
        }
        self.is_closing.set(true);
        self.flush_hurries.store(true, Ordering::Relaxed);
        let outcome = self.flush_to_close().await;
        self.is_closed.set(true);
        // An edit that is under way comes to its end. Those that wait behind it find that the shard is closed.
        drop(self.manifest.lock().await);
        for task in self.tasks.take() {
            task.abort();
        }
        self.signals.space.notify_waiters();
        self.signals.indexes_built.notify_waiters();
        outcome.and(self.log.close().await.map_err(EngineError::from))
    }

    async fn flush_to_close(&self) -> Result<(), EngineError> {
        let memory = |table: &TableState| {
            let mut bytes = 0;
            table.for_each_memtable(|memtable| bytes += memtable.read(Memtable::size_bytes));
            bytes
        };
        let mut tables = self.all_tables();
        tables.retain(|table| !table.has_empty_memtables());
        tables.sort_by_cached_key(|table| Reverse((table.has_unlogged.get(), memory(table))));
        let (clock, mut outcome, mut left_tables) = (&self.environment.clock, Ok(()), 0_u64);
        let end = clock.monotonic() + self.options.close_flush_max;
        for table in tables {
            if table.has_unlogged.get() || clock.monotonic() < end {
                outcome = outcome.and(self.flush(table.id).await);
            } else {
                left_tables += 1;
            }
        }
        if left_tables > 0 {
            tracing::info!(
                tables = left_tables,
                "the next start reads the newest rows of tables from the commit log"
            );
        }
        outcome
    }
}

/// The directory of the commit log. A shard that has run before must have a log where the options say, and only there: a log that
/// the start does not find holds acknowledged writes.
async fn commit_log_directory(
    disk: &Arc<dyn Disk>,
    options: &ShardOptions,
    manifest: &Manifest,
) -> Result<PathBuf, EngineError> {
    let own = options.directory.join("commit-log");
    let Some(chosen) = options.commit_log_directory.clone() else { return Ok(own) };
    if has_entries(&**disk, &own).await? {
        return Err(EngineError::CommitLogElsewhere { found: own, configured: chosen });
    }
    // The log is there before the first table.
    if !manifest.tables.is_empty() && !has_entries(&**disk, &chosen).await? {
        return Err(EngineError::MissingDirectory { path: chosen, what: "the commit log" });
    }
    Ok(chosen)
}

impl Recovery {
    /// Reads the manifest.
    async fn begin(environment: Environment, options: ShardOptions) -> Result<Self, EngineError> {
        let Some(mut loaded) = ManifestFiles::load(&*environment.disk, &options.directory).await? else {
            return Err(ManifestError::Missing { path: ManifestFiles::path(&options.directory) }.into());
        };
        for defect in loaded.defects().filter(|_| loaded.manifest.sequence > 0) {
            tracing::warn!(%defect, "a copy of the manifest is not as it was left; the other one is used, and both are written again");
        }
        if loaded.is_old {
            tracing::info!(directory = %options.directory.display(), "the manifest is written in the present version");
        }
        let mut manifest = loaded.manifest.clone();
        let stored = manifest.clone();
        let directories = Directories::new(&options, &mut manifest);
        directories.check(&environment.disk, &manifest).await?;
        let log_directory = commit_log_directory(&environment.disk, &options, &manifest).await?;
        let manifest_files = ManifestFiles::new(&options.directory);
        let (tables, logged, disk_failures) = (HashMap::new(), BTreeSet::new(), DiskFailures::default());
        let resident = ResidentParts::new(options.resident_bytes_max());
        let mut recovery = Self {
            environment,
            options,
            manifest,
            manifest_files,
            directories,
            stored,
            log_directory,
            tables,
            logged,
            disk_failures,
            resident,
        };
        if recovery.manifest.sequence == 0 {
            recovery.list_dropped_tables().await?;
        }
        let disk = Arc::clone(&recovery.environment.disk);
        loaded.mend(&*disk).await.map_err(ManifestError::Disk)?;
        // New directories are named before anything is written there: what a crash leaves must not look foreign.
        let has_new = recovery.directories.has_new();
        if has_new || loaded.must_be_written() {
            match recovery.replace_manifest().await {
                Err(ReplaceError::Unchanged(error))
                    if error.is_full() && !has_new && loaded.can_wait_for_room() =>
                {
                    tracing::warn!(%error, "a copy of the manifest is not written again until there is room");
                    let relied = recovery.manifest_files.rely_on_one_copy(&*disk, &loaded).await;
                    relied.map_err(ManifestError::Disk)?;
                }
                replaced => replaced.map_err(|error| ManifestError::Disk(error.into_disk_error()))?,
            }
        }
        Ok(recovery)
    }

    fn directory(&self) -> &Path {
        &self.options.directory
    }

    async fn open_log(&self) -> Result<Replay, EngineError> {
        let environment = LogEnvironment {
            disk: Arc::clone(&self.environment.disk),
            clock: Rc::clone(&self.environment.clock),
            random: Rc::clone(&self.environment.random),
        };
        let options = self.options.commit_log.clone();
        Ok(CommitLog::open(environment, &self.log_directory, options, self.manifest.log_needed_from).await?)
    }

    /// Version 1 of the manifest did not list dropped tables. A table that the log knows and the manifest does not was dropped.
    async fn list_dropped_tables(&mut self) -> Result<(), EngineError> {
        let mut replay = self.open_log().await?;
        while let Some((_, record)) = replay.next().await? {
            for part in MutationRef::parse(&record).map_err(EngineError::Mutation)?.parts() {
                let id = part.map_err(EngineError::Mutation)?.table;
                if !self.manifest.tables.contains_key(&id) {
                    self.manifest.dropped.insert(id);
                }
            }
        }
        Ok(())
    }

    async fn open(mut self, lock: Box<dyn DiskLock>) -> Result<Rc<Shard>, EngineError> {
        let disk = Arc::clone(&self.environment.disk);
        let mut locks = self.directories.lock(&disk).await?;
        locks.push(lock);
        let remains = Remains::find(&*disk, &self.directories, &self.manifest).await?;
        // No new file gets the name of one that is there.
        self.manifest.next_generation = self.manifest.next_generation.max(remains.highest_generation + 1);
        self.open_tables().await?;
        for table in remains.indexed.iter().filter_map(|id| self.tables.get(id)) {
            table.has_index_files.set(true);
        }
        let mut replay = self.open_log().await?;
        self.replay(&mut replay).await?;
        let log = replay.finish().await?;
        let now_millis = self.environment.clock.now_micros() / 1_000;
        let quarantines = self.directories.quarantines(&self.options.quarantine);
        let kept = remains.clear(&*disk, &quarantines, now_millis).await?;
        self.settle(&kept, &log).await?;
        let Self {
            environment,
            options,
            manifest,
            manifest_files,
            directories,
            tables,
            logged,
            disk_failures,
            resident,
            ..
        } = self;
        for (id, entry) in manifest.tables.iter().filter(|(id, _)| !logged.contains(*id)) {
            if let Some(table) = tables.get(id) {
                table.logged_since.set(Some(entry.flushed_to));
            }
        }
        let is_kept = |id| directories.of_table(id).iter().any(|directory| kept.contains(directory));
        let memtable_index = MemtableIndex::of_recovered(tables.values());
        let memtable_bytes = tables.values().map(|table| table.active_bytes()).sum();
        let leftovers = Leftovers::of(&manifest, log.end_position(), is_kept);
        let (common, shards) = (&options.common, options.shards_of_node);
        common.compaction_rate.set(options.compaction_bytes_per_second);
        let memory = MemtableMemory::new(&options, memtable_bytes);
        let log_share = LendingShare::new(options.commit_log_bytes_max, shards, common.commit_log.clone());
        let cache_share =
            LendingShare::new(options.block_cache_bytes as u64, shards, common.block_cache.clone());
        let shard = Rc::new(Shard {
            environment,
            directory: options.directory.clone(),
            options,
            directories,
            tables: RefCell::new(tables),
            memtable_index,
            candidates: Candidates::default(),
            leftovers,
            log: Rc::clone(&log),
            next_generation: Cell::new(manifest.next_generation),
            first_own_generation: manifest.next_generation,
            last_segment: Cell::new(0),
            manifest: Mutex::new(StoredManifest::new(manifest, manifest_files)),
            memory,
            measured_memtable_bytes: Cell::new(0),
            compaction_lacks_room: Cell::new(false),
            flush_hurries: Arc::default(),
            compaction_counters: CompactionCounters::default(),
            running_compactions: RunningCompactions::default(),
            shared_compaction: Mutex::new(()),
            write_pressure: WritePressure::default(),
            log_share,
            watch: Watch::default(),
            failure: RefCell::default(),
            disk_failures,
            examination: ExaminationState::default(),
            flush_failure: RefCell::default(),
            is_closing: Cell::new(false),
            is_closed: Cell::new(false),
            scan_buffers: RefCell::default(),
            block_cache: Rc::new(BlockCache::with_share(cache_share, resident)),
            files_asked: Cell::new(0),
            filters_asked: Cell::new(0),
            fetches: RefCell::default(),
            signals: Rc::default(),
            tasks: RefCell::default(),
            log_task: RefCell::default(),
            _locks: locks,
        });
        let log_task = tokio::task::spawn_local(async move {
            if let Err(error) = log.run().await {
                tracing::error!(%error, "the commit log has stopped");
            }
        });
        shard.log_task.replace(Some(log_task));
        let flushing =
            tokio::task::spawn_local(keep_flushing(Rc::downgrade(&shard), Rc::clone(&shard.signals)));
        let [compacting, compacting_small] = [Lane::All, Lane::Small].map(|lane| {
            let signals = Rc::clone(&shard.signals);
            tokio::task::spawn_local(keep_compacting(Rc::downgrade(&shard), signals, lane))
        });
        let expiring = tokio::task::spawn_local(keep_looking_at_files(Rc::downgrade(&shard)));
        shard.measure_room().await;
        let measuring =
            tokio::task::spawn_local(keep_measuring(Rc::downgrade(&shard), Rc::clone(&shard.signals)));
        let indexing =
            tokio::task::spawn_local(keep_indexing(Rc::downgrade(&shard), Rc::clone(&shard.signals)));
        shard.tasks.replace(vec![flushing, compacting, compacting_small, expiring, measuring, indexing]);
        Ok(shard)
    }

    async fn open_tables(&mut self) -> Result<(), EngineError> {
        for (id, entry) in &mut self.manifest.tables {
            let table =
                TableState::new(&self.directories, &self.resident, *id, TableOptions::default(), false);
            // They hold nothing if the manifest names no files.
            for directory in &table.directories {
                self.environment.disk.create_directory(directory).await?;
            }
            for file in &mut entry.files {
                let path = table.path(file.id());
                let (disk, resident) = (&*self.environment.disk, &self.resident);
                let open = || TableReader::open_file_within(disk, &path, file.generation, resident);
                let mut opened = open().await;
                if opened.as_ref().is_err_and(is_damage) {
                    // A bit that only one read flips is no damage.
                    opened = open().await;
                }
                match opened {
                    Ok(reader) => {
                        // Version 1 of the manifest had no tokens.
                        *file = entry_of(file.id(), file.level, file.created_seconds, &reader);
                        table.add_file(LiveFile::new(*file, reader, None));
                    }
                    Err(error) if is_damage(&error) => {
                        tracing::error!(
                            table = %id, path = %path.display(), %error,
                            "a table file cannot be used; the keys that it may hold are not served"
                        );
                        table.add_damaged(*file, &path, &error);
                        self.disk_failures.note(&error.into());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.tables.insert(*id, Rc::new(table));
        }
        Ok(())
    }

    async fn replay(&mut self, replay: &mut Replay) -> Result<(), EngineError> {
        let flushed_to: HashMap<TableId, LogPosition> =
            self.manifest.tables.iter().map(|(id, table)| (*id, table.flushed_to)).collect();
        let mut memtable_bytes = 0;
        while let Some((position, record)) = replay.next().await? {
            for part in MutationRef::parse(&record).map_err(EngineError::Mutation)?.parts() {
                let mutation = part.map_err(EngineError::Mutation)?;
                let valid = mutation.validate().map_err(EngineError::Mutation)?;
                self.logged.insert(mutation.table);
                let Some(table) = self.tables.get(&mutation.table) else {
                    self.check_dropped(mutation.table, position)?;
                    continue;
                };
                if flushed_to.get(&mutation.table).is_some_and(|flushed_to| position < *flushed_to) {
                    continue;
                }
                if table.must_freeze_before(&valid, &self.options) {
                    // Parts of this record that are in these files are not behind the new position: they may be applied again.
                    self.flush_all(position).await?;
                    memtable_bytes = 0;
                }
                let Some(table) = self.tables.get(&mutation.table) else { continue };
                memtable_bytes += table.apply(&valid, Some(position))?;
            }
            if memtable_bytes > self.options.memtable_bytes_max / self.options.shards_of_node {
                self.flush_all(LogPosition { offset: position.offset + 1, ..position }).await?;
                memtable_bytes = 0;
            }
        }
        Ok(())
    }

    /// Checks that a table which the manifest does not name was dropped.
    fn check_dropped(&self, table: TableId, position: LogPosition) -> Result<(), EngineError> {
        if self.manifest.dropped.contains(&table) || position.segment < self.manifest.log_needed_from {
            return Ok(());
        }
        Err(ManifestError::Older { path: ManifestFiles::path(self.directory()), table, position }.into())
    }

    /// Writes all memtables to files during replay, when the log is larger than the memory for memtables.
    async fn flush_all(&mut self, flushed_to: LogPosition) -> Result<(), EngineError> {
        let mut tables: Vec<_> = self.tables.values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        let mut installed = Vec::new();
        for table in tables {
            let memtable = table.active.take();
            let memtable = memtable.freeze();
            let directory = self.directories.choose(&self.environment).await;
            let id = FileId { generation: self.manifest.next_generation, directory };
            self.manifest.next_generation += 1;
            let hurries = Arc::new(AtomicBool::new(true));
            let built = build_table(&self.environment, &table, memtable, id, hurries).await?;
            if built.is_some() {
                back_up(&self.environment, &table, id, self.options.keeps_backups).await?;
            }
            let Some(entry) = self.manifest.tables.get_mut(&table.id) else {
                return Err(broken!("a table that is recovered is in the manifest").into());
            };
            entry.flushed_to = flushed_to;
            if let Some(Flushed { place, reader, sample, .. }) = built {
                entry.files.push(place);
                table.add_file(LiveFile::new(place, reader, Some(sample)));
                installed.push((table, id));
            }
        }
        self.write_manifest().await?;
        for (table, id) in installed {
            discard_output(&self.environment, &table, id, true).await;
        }
        Ok(())
    }

    async fn write_manifest(&mut self) -> Result<(), EngineError> {
        let replaced = self.replace_manifest().await;
        Ok(replaced.map_err(|error| ManifestError::Disk(error.into_disk_error()))?)
    }

    async fn replace_manifest(&mut self) -> Result<(), ReplaceError> {
        let next = Manifest { sequence: self.manifest.sequence + 1, ..self.manifest.clone() };
        self.manifest_files.write(&*self.environment.disk, &next).await?;
        self.stored = next.clone();
        self.manifest = next;
        Ok(())
    }

    /// Brings the manifest up to date before the shard works with it. `kept`: useless paths that could not be removed.
    async fn settle(&mut self, kept: &BTreeSet<PathBuf>, log: &CommitLog) -> Result<(), EngineError> {
        let end = log.end_position();
        for (id, entry) in &mut self.manifest.tables {
            // A position behind the end of the log exists if records were flushed before the log was written, or if the log was
            // removed from outside. New records will get the positions behind the end, and must not be taken for flushed ones.
            entry.flushed_to = entry.flushed_to.min(end);
            if let Some(table) = self.tables.get(id) {
                entry.obsolete.retain(|file| kept.contains(&table.path(*file)));
            }
        }
        let (logged, roots) = (&self.logged, self.directories.roots());
        let is_kept = |id: TableId| roots.iter().any(|root| kept.contains(&table_directory(root, id)));
        let is_left = |id: &TableId| logged.contains(id) || is_kept(*id);
        self.manifest.dropped.retain(is_left);
        let needed = self.tables.values().filter_map(|table| table.lowest_position()).min();
        self.manifest.log_needed_from = log.lowest_needed(needed);
        if self.manifest == self.stored {
            return Ok(());
        }
        match self.replace_manifest().await {
            Err(ReplaceError::Unchanged(error)) if error.is_full() && self.can_settle_later() => {
                tracing::warn!(%error, "the manifest is not brought up to date until there is room");
                // The first edit writes all of it. Changes that an earlier step has begun are those of the manifest on the disk, which
                // still lists what is not in memory any more.
                self.manifest_files = ManifestFiles::new(&self.options.directory);
                // The log is released only up to where the manifest on the disk says.
                self.manifest.log_needed_from = self.stored.log_needed_from;
                Ok(())
            }
            replaced => Ok(replaced.map_err(|error| ManifestError::Disk(error.into_disk_error()))?),
        }
    }

    /// Whether the first edit may bring the manifest on the disk up to date. Until then what is useless stays listed, and more of the log
    /// is kept than is needed. Positions of the log that were lost must not be those of flushed records when new records get them.
    fn can_settle_later(&self) -> bool {
        let flushed_to = |manifest: &Manifest| -> Vec<LogPosition> {
            manifest.tables.values().map(|table| table.flushed_to).collect()
        };
        flushed_to(&self.manifest) == flushed_to(&self.stored)
    }
}
