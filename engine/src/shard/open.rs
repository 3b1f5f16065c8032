//! Opening a shard (manifest, files, commit-log replay) and closing it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::lock::Mutex;
use hashbrown::HashMap;

use super::flush::build_table;
use super::options::{ShardOptions, TableOptions};
use super::state::Shard;
use super::table_state::{LiveFile, TableState, file_name};
use super::tasks::{keep_compacting, keep_flushing};
use crate::commit_log::{CommitLog, LogPosition, Replay};
use crate::error::EngineError;
use crate::invariant::{Watch, broken};
use crate::io::Environment;
use crate::manifest::{Manifest, ManifestError, ManifestFile, ReplaceError};
use crate::mutation::{MutationRef, TableId};
use crate::table::{BlockCache, TableReader};

/// A shard during recovery, without the log and the tasks.
struct Recovery {
    environment: Environment,
    options: ShardOptions,
    manifest: Manifest,
    tables: HashMap<TableId, Rc<TableState>>,
}

impl Shard {
    /// Opens the shard in `options.directory` and recovers its contents: every mutation whose durability was acknowledged, and no
    /// mutation in part. Call it on a tokio `LocalSet`, where it spawns its tasks.
    pub async fn open(environment: Environment, options: ShardOptions) -> Result<Rc<Self>, EngineError> {
        let disk = environment.disk.clone();
        let directory = options.directory.clone();
        disk.create_directory(&directory.join("tables")).await?;
        disk.sync_directory(&directory).await?;
        let lock = disk.lock(&directory.join("lock")).await?;
        let manifest = Manifest::read(&disk, &directory).await?;
        let mut recovery = Recovery { environment, options, manifest, tables: HashMap::new() };
        recovery.remove_orphans().await?;
        recovery.open_tables().await?;
        let log_directory = directory.join("commit-log");
        let clock = Rc::clone(&recovery.environment.clock);
        let log_options = recovery.options.commit_log.clone();
        let mut replay = CommitLog::open(disk, &log_directory, log_options, clock).await?;
        recovery.replay(&mut replay).await?;
        let log = replay.finish().await?;
        recovery.clamp_positions(log.end_position()).await?;
        let Recovery { environment, options, manifest, tables } = recovery;
        let memtable_bytes = tables.values().map(|table| table.active_bytes()).sum();
        let block_cache_bytes = options.block_cache_bytes;
        let shard = Rc::new(Self {
            environment,
            options,
            directory,
            tables: RefCell::new(tables),
            log: Rc::clone(&log),
            next_generation: Cell::new(manifest.next_generation),
            last_segment: Cell::new(0),
            manifest: Mutex::new(manifest),
            memtable_bytes: Cell::new(memtable_bytes),
            flush_hurries: Arc::default(),
            watch: Watch::default(),
            failure: RefCell::default(),
            flush_failure: RefCell::default(),
            is_closing: Cell::new(false),
            is_closed: Cell::new(false),
            scan_buffers: RefCell::default(),
            block_cache: Rc::new(BlockCache::new(block_cache_bytes)),
            fetches: RefCell::default(),
            signals: Rc::default(),
            tasks: RefCell::default(),
            log_task: RefCell::default(),
            _lock: lock,
        });
        let log_task = tokio::task::spawn_local(async move {
            if let Err(error) = log.run().await {
                tracing::error!(%error, "the commit log has stopped");
            }
        });
        shard.log_task.replace(Some(log_task));
        let flushing =
            tokio::task::spawn_local(keep_flushing(Rc::downgrade(&shard), Rc::clone(&shard.signals)));
        let compacting =
            tokio::task::spawn_local(keep_compacting(Rc::downgrade(&shard), Rc::clone(&shard.signals)));
        shard.tasks.replace(vec![flushing, compacting]);
        Ok(shard)
    }
}

impl Shard {
    /// Flushes all tables, so that the next start has nothing to replay, and stops. Afterwards only reads work.
    pub async fn close(&self) -> Result<(), EngineError> {
        if self.is_closed.get() {
            return Ok(());
        }
        let mut outcome = Ok(());
        self.is_closing.set(true);
        self.flush_hurries.store(true, Ordering::Relaxed);
        for table in self.all_tables() {
            let flushed = self.flush(table.id).await;
            outcome = outcome.and(flushed);
        }
        self.is_closed.set(true);
        for task in self.tasks.take() {
            task.abort();
        }
        self.signals.space.notify_waiters();
        outcome.and(self.log.close().await.map_err(EngineError::from))
    }
}

impl Recovery {
    fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// Removes the files that the manifest does not name: outputs of incomplete flushes and compactions, and files of dropped
    /// tables.
    async fn remove_orphans(&self) -> Result<(), EngineError> {
        let disk = &self.environment.disk;
        let root = self.directory().join("tables");
        for entry in disk.list(&root).await? {
            let known = self.manifest.tables.iter().find(|table| table.id.to_string() == entry.name);
            let path = root.join(&entry.name);
            let Some(table) = known else {
                if entry.is_directory {
                    disk.remove_directory(&path).await?;
                } else {
                    disk.remove(&path).await?;
                }
                continue;
            };
            let named: BTreeSet<_> = table.files.iter().map(|file| file_name(file.generation)).collect();
            for file in disk.list(&path).await? {
                if !named.contains(&file.name) && !file.is_directory {
                    disk.remove(&path.join(&file.name)).await?;
                }
            }
        }
        Ok(())
    }

    async fn open_tables(&mut self) -> Result<(), EngineError> {
        for entry in &self.manifest.tables {
            let table = TableState::new(self.directory(), entry.id, TableOptions::default(), false);
            // The directory of a table without files may be missing after a crash.
            self.environment.disk.create_directory(&table.directory).await?;
            for file in &entry.files {
                let path = table.path(file.generation);
                let reader = TableReader::open_file(&*self.environment.disk, &path, file.generation).await?;
                table.add_file(LiveFile::new(*file, reader));
            }
            self.tables.insert(entry.id, Rc::new(table));
        }
        Ok(())
    }

    async fn replay(&mut self, replay: &mut Replay) -> Result<(), EngineError> {
        let flushed_to: HashMap<TableId, LogPosition> =
            self.manifest.tables.iter().map(|table| (table.id, table.flushed_to)).collect();
        let mut memtable_bytes = 0;
        while let Some((position, record)) = replay.next().await? {
            let mutation = MutationRef::parse(&record).map_err(EngineError::Mutation)?;
            let valid = mutation.validate().map_err(EngineError::Mutation)?;
            // A table that is not in the manifest was dropped.
            let Some(table) = self.tables.get(&mutation.table) else { continue };
            if flushed_to.get(&mutation.table).is_some_and(|flushed_to| position < *flushed_to) {
                continue;
            }
            memtable_bytes += table.apply(&valid, Some(position))?;
            if memtable_bytes > self.options.memtable_bytes_max {
                self.flush_all(LogPosition { offset: position.offset + 1, ..position }).await?;
                memtable_bytes = 0;
            }
        }
        Ok(())
    }

    /// Writes all memtables to files during replay, when the log is larger than the memory for memtables.
    async fn flush_all(&mut self, flushed_to: LogPosition) -> Result<(), EngineError> {
        let mut tables: Vec<_> = self.tables.values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        for table in tables {
            let memtable = table.active.take();
            let memtable = memtable.freeze();
            let generation = self.manifest.next_generation;
            self.manifest.next_generation += 1;
            let built =
                build_table(&self.environment, &table, memtable, generation, Arc::new(AtomicBool::new(true)))
                    .await?;
            let Some(entry) = self.manifest.table(table.id) else {
                return Err(broken!("a table that is recovered is in the manifest").into());
            };
            entry.flushed_to = flushed_to;
            if let Some(reader) = built {
                let created_seconds = self.environment.clock.now_seconds();
                let place = ManifestFile { generation, level: 0, created_seconds };
                entry.files.push(place);
                table.add_file(LiveFile::new(place, reader));
            }
        }
        self.write_manifest().await
    }

    async fn write_manifest(&self) -> Result<(), EngineError> {
        match self.manifest.replace(&self.environment.disk, self.directory()).await {
            Ok(()) => Ok(()),
            Err(ReplaceError::Unchanged(error) | ReplaceError::Unknown(error)) => {
                Err(ManifestError::Disk(error).into())
            }
        }
    }

    /// Lowers recorded positions that lie behind the end of the log. Such a position exists if records were flushed before the log
    /// was written, or if the log was removed from outside. New records will get the positions behind the end, and must not be
    /// taken for flushed ones.
    async fn clamp_positions(&mut self, end: LogPosition) -> Result<(), EngineError> {
        let mut is_changed = false;
        for table in self.manifest.tables.iter_mut().filter(|table| table.flushed_to > end) {
            table.flushed_to = end;
            is_changed = true;
        }
        if is_changed { self.write_manifest().await } else { Ok(()) }
    }
}
