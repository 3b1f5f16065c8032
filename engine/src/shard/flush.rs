//! Flushing: a frozen memtable is written to a table file, and its part of the log is released.
//!
//! While memory is not short, the rate of a flush is limited: it need not be faster than writers fill memtables, and requests
//! need the core.

use std::iter;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use smallvec::SmallVec;

use super::backup::back_up;
use super::edit::Edited;
use super::file_index::FileIndex;
use super::files::{discard_output, entry_of, give_name, open_aside};
use super::index_files::discard_indexes_of;
use super::state::Shard;
use super::table_state::{FrozenMemtable, LiveFile, TableState};
use super::write_pressure::Change;
use crate::compaction::KeySample;
use crate::error::EngineError;
use crate::io::{Environment, JobContext, JobKind, RateLimiter, run_in_background};
use crate::manifest::{FileId, ManifestEdit, ManifestFile};
use crate::memtable::{Memtable, Tail};
use crate::mutation::TableId;
use crate::range_tombstone::RangeTombstoneRef;
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;
use crate::table::{TableError, TableOptions as FileOptions, TableReader, TableWriter};

/// The rate of a flush while memory is not short.
const BYTES_PER_SECOND: u64 = 256 << 20;
/// Bytes written between two checks of the rate.
const BYTES_PER_TURN: u64 = 64 << 10;

/// A file made of a memtable.
pub(super) struct Flushed {
    pub place: ManifestFile,
    pub reader: Arc<TableReader>,
    pub sample: Arc<KeySample>,
    pub indexes: Vec<FileIndex>,
    /// Its link among the backups.
    backup: Option<PathBuf>,
}

/// The oldest frozen memtable of a table.
struct Unflushed {
    table: Rc<TableState>,
    frozen: Rc<FrozenMemtable>,
}

/// The file of a memtable, which is not installed yet.
struct WrittenFile {
    unflushed: Unflushed,
    id: FileId,
    /// `None`: there was nothing to write.
    built: Result<Option<Flushed>, EngineError>,
}

/// Writes a frozen memtable to this file, which is not installed yet; `None` if there is nothing to write. The rate is not limited while
/// `hurries` is true.
pub(super) async fn build_table(
    environment: &Environment,
    table: &TableState,
    memtable: Arc<Memtable>,
    id: FileId,
    hurries: Arc<AtomicBool>,
) -> Result<Option<Flushed>, EngineError> {
    if memtable.is_empty() {
        return Ok(None);
    }
    let options = table.options.borrow().writer.clone();
    let target = table.temporary_path(id);
    let written = run_in_background(&*environment.background, JobKind::Soon, move |context| {
        Box::pin(write_memtable(context, memtable, target, options, hurries))
    })
    .await??;
    let Some(sample) = written else { return Ok(None) };
    give_name(environment, table, id).await?;
    environment.disk.sync_directory(table.directory(id.directory)).await?;
    let reader = open_aside(environment, table, id).await?;
    let place = entry_of(id, 0, environment.clock.now_seconds(), &reader);
    Ok(Some(Flushed { place, reader, sample: Arc::new(sample), indexes: Vec::new(), backup: None }))
}

async fn write_memtable(
    context: JobContext,
    memtable: Arc<Memtable>,
    path: PathBuf,
    options: FileOptions,
    hurries: Arc<AtomicBool>,
) -> Result<Option<KeySample>, TableError> {
    // All rows may have been taken back.
    if memtable.row_count() == 0 && !memtable.has_range_tombstones() {
        return Ok(None);
    }
    let mut limiter = RateLimiter::new(Some(BYTES_PER_SECOND));
    let mut paced_bytes = 0;
    let mut writer = TableWriter::create(&*context.disk, &path, options).await?;
    let mut key = Vec::new();
    let mut merged = Vec::new();
    for partition in memtable.partitions() {
        let prefix = partition.prefix();
        for RangeTombstoneRef { start, end, deletion } in partition.range_tombstones() {
            let full = |position: &[u8]| [prefix, position].concat();
            writer.add_range_tombstone(&full(start), &full(end), deletion)?;
        }
        let mut covering = partition.covering_walk();
        for (position, row, tail) in partition.rows() {
            key.clear();
            key.extend_from_slice(prefix);
            key.extend_from_slice(position);
            let fresh_bytes = writer.size_bytes().saturating_sub(paced_bytes);
            if fresh_bytes >= BYTES_PER_TURN {
                paced_bytes += fresh_bytes;
                if !hurries.load(Ordering::Relaxed) {
                    limiter.spend(fresh_bytes, &*context.clock).await;
                }
            }
            let shadow = covering.as_mut().and_then(|covering| covering.at(position));
            if shadow.is_none() && tail.is_none() {
                writer.add(&key, row).await?;
                continue;
            }
            let changes = tail.map(Tail::merged).transpose()?;
            let versions: SmallVec<[RowRef<'_>; 2]> =
                iter::once(row).chain(changes.as_deref().map(|bytes| RowRef::new(bytes, 0))).collect();
            // Data that the partition's own range tombstones shadow is not written.
            merged.clear();
            if merge_rows(&versions, shadow, Purpose::Keep, 0, &mut merged)?.is_written {
                writer.add(&key, RowRef::new(&merged, 0)).await?;
            }
        }
    }
    let written = writer.finish().await?;
    Ok(Some(KeySample::of(written.row_hashes)))
}

impl Shard {
    /// Flushes a table. Returns when all data written before the call is in files.
    pub async fn flush(&self, id: TableId) -> Result<(), EngineError> {
        let table = self.table(id)?;
        self.check_open()?;
        self.freeze(&table, self.log.end_position());
        let flushed = self.flush_frozen(&table).await;
        if flushed.is_err() {
            // The flush task tries the memtable again.
            self.signals.flush_wanted.notify_one();
        }
        flushed
    }

    /// Waits until all data that was written to a table before the first poll is in files. It does not cause a flush, so it can take
    /// long for a table with few writes. An error means that the shard refuses writes, is closed, or that its last flush has
    /// failed (and is tried again).
    pub async fn in_files(&self, id: TableId) -> Result<(), EngineError> {
        let newest = match self.table(id)?.newest_memtable() {
            Some(memtable) => Rc::downgrade(&memtable),
            None => return Ok(()),
        };
        loop {
            let space = self.signals.space.notified();
            let Ok(table) = self.table(id) else {
                // A drop that is under way may fail, and the table comes back.
                drop(self.manifest.lock().await);
                if self.table(id).is_ok() {
                    continue;
                }
                // A dropped table has no data to wait for.
                return Ok(());
            };
            if newest.upgrade().is_none_or(|memtable| !table.has_memtable(&memtable)) {
                return Ok(());
            }
            self.check_open()?;
            if let Some(failure) = &*self.flush_failure.borrow() {
                return Err(EngineError::FlushFailed(failure.to_string()));
            }
            space.await;
        }
    }

    /// Flushes all frozen memtables of a table.
    async fn flush_frozen(&self, table: &Rc<TableState>) -> Result<(), EngineError> {
        let _flushing = table.flushing.lock().await;
        loop {
            let oldest = table.frozen.borrow().first().cloned();
            let Some(frozen) = oldest else { return Ok(()) };
            self.flush_memtables(vec![Unflushed { table: Rc::clone(table), frozen }]).await?;
        }
    }

    /// Flushes the oldest frozen memtable of each of these tables.
    async fn flush_together(&self, tables: Vec<Rc<TableState>>) -> Result<(), EngineError> {
        // Whoever else waits for one of these locks holds no other.
        let flushing = tables.iter().map(|table| table.flushing.lock());
        let _flushing = join_all(flushing).await;
        let oldest = |table: &Rc<TableState>| {
            let frozen = table.frozen.borrow().first().cloned()?;
            Some(Unflushed { table: Rc::clone(table), frozen })
        };
        self.flush_memtables(tables.iter().filter_map(oldest).collect()).await
    }

    /// Writes the oldest frozen memtables of tables to files side by side, and installs those that were written with one edit. Returns the
    /// first error; the others are installed nevertheless.
    async fn flush_memtables(&self, memtables: Vec<Unflushed>) -> Result<(), EngineError> {
        let outcome = self.write_and_install(memtables).await;
        outcome.inspect_err(|error| self.note_disk_failure(error))
    }

    async fn write_and_install(&self, mut memtables: Vec<Unflushed>) -> Result<(), EngineError> {
        let bytes = |unflushed: &Unflushed| unflushed.frozen.memtable.read(Memtable::size_bytes);
        // Another flush, a TRUNCATE or a DROP may have taken them while the locks were waited for.
        let Some(first_bytes) = memtables.first().map(bytes) else { return Ok(()) };
        let all_bytes = memtables.iter().map(bytes).sum();
        let _room = match self.room_for_flush(all_bytes, memtables.len()).await {
            // One frees a part of the log for others.
            Err(error) if error.is_full() && memtables.len() > 1 => {
                memtables.truncate(1);
                self.room_for_flush(first_bytes, 1).await?
            }
            claimed => claimed?,
        };
        self.flush_hurries.store(self.is_flush_urgent(), Ordering::Relaxed);
        let written = join_all(memtables.into_iter().map(|unflushed| self.write_file(unflushed))).await;
        let mut manifest = self.manifest.lock().await;
        let mut edit = ManifestEdit::default();
        let (mut installed, mut edited, mut first_error) = (Vec::new(), Vec::new(), None);
        for WrittenFile { unflushed, id, built } in written {
            let Unflushed { table, frozen } = &unflushed;
            let is_wanted = table.frozen.borrow().first().is_some_and(|first| Rc::ptr_eq(first, frozen));
            let entry = edit.table(&manifest, table.id).filter(|_| is_wanted);
            let Some(entry) = entry else {
                // The table was truncated or dropped meanwhile: the file is not needed.
                self.discard_flushed(table, id, built.ok().flatten().as_ref()).await;
                continue;
            };
            match built {
                Ok(flushed) => {
                    entry.flushed_to = entry.flushed_to.max(frozen.flushed_to);
                    entry.files.extend(flushed.iter().map(|flushed| flushed.place));
                    edited.push(Edited { table: table.id, released_memtables: 1 });
                    installed.push((unflushed, id, flushed));
                }
                Err(error) => {
                    self.discard_flushed(table, id, None).await;
                    if first_error.is_none() {
                        first_error = Some(error);
                    } else {
                        self.note_disk_failure(&error);
                    }
                }
            }
        }
        if !installed.is_empty() {
            if let Err(error) = self.edit_manifest(&mut manifest, edit, &edited).await {
                first_error.inspect(|first_error| self.note_disk_failure(first_error));
                if self.failure.borrow().is_none() {
                    for (Unflushed { table, .. }, id, flushed) in &installed {
                        self.discard_flushed(table, *id, flushed.as_ref()).await;
                    }
                }
                return Err(error);
            }
            let mut outputs = Vec::new();
            for (Unflushed { table, .. }, id, flushed) in installed {
                if let Some(Flushed { place, reader, sample, indexes, .. }) = flushed {
                    table.note_flush(reader.file_bytes());
                    let file = LiveFile::new(place, reader, Some(sample)).with_indexes(indexes);
                    self.add_live_file(&table, file);
                    self.look_at_backlog(&table, Change::Flush);
                } else {
                    // Less may shadow what files have.
                    self.candidates.add(table.id);
                }
                self.release_memtables(&table, 1);
                outputs.push((table, id));
            }
            drop(manifest);
            self.discard_log();
            for (table, id) in outputs {
                discard_output(&self.environment, &table, id, true).await;
            }
            self.signals.want_compaction();
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Writes a memtable to a file that is not installed yet.
    async fn write_file(&self, unflushed: Unflushed) -> WrittenFile {
        let Unflushed { table, frozen } = &unflushed;
        let directory = self.directories.choose(&self.environment).await;
        let id = FileId { generation: self.new_generation(), directory };
        let hurries = Arc::clone(&self.flush_hurries);
        let mut built = build_table(&self.environment, table, frozen.memtable.freeze(), id, hurries).await;
        if let Ok(Some(flushed)) = &mut built {
            match back_up(&self.environment, table, id, self.options.keeps_backups).await {
                Ok(link) => {
                    flushed.backup = link;
                    flushed.indexes = self.index_output(table, id, &flushed.reader, JobKind::Soon).await;
                }
                Err(error) => built = Err(error),
            }
        }
        WrittenFile { unflushed, id, built }
    }

    /// Removes a file that is not installed, and its link among the backups.
    async fn discard_flushed(&self, table: &TableState, id: FileId, flushed: Option<&Flushed>) {
        discard_indexes_of(&self.environment, table, id).await;
        discard_output(&self.environment, table, id, false).await;
        self.discard_backup(flushed.and_then(|flushed| flushed.backup.as_deref())).await;
    }

    /// Flushes until memory and log are within their bounds.
    pub(super) async fn flush_if_needed(&self) -> Result<(), EngineError> {
        loop {
            let tables = self.choose_flush();
            if tables.is_empty() {
                return Ok(());
            }
            self.check_open()?;
            for table in &tables {
                // A memtable that waits already is reason enough; the active one need not follow it yet.
                if table.frozen.borrow().is_empty() {
                    self.freeze(table, self.log.end_position());
                }
            }
            self.flush_together(tables).await?;
            // Under load the loop may go on for long. Writers need not wait for its end to be admitted.
            self.flush_failure.take();
        }
    }

    /// Whether the log takes more room than it may.
    fn log_needs_flush(&self) -> bool {
        let log_bytes = self.log.total_bytes();
        self.log_share.use_bytes(log_bytes);
        log_bytes > self.log_share.bound_bytes()
    }

    /// Gives back what the shard has borrowed of other shards' budgets and may not keep, because they use more than they did. A shard that
    /// does nothing else learns it this way.
    pub(super) fn give_back(&self) {
        if self.memory.needs_flush() || self.log_needs_flush() {
            self.signals.flush_wanted.notify_one();
        }
        if !self.memory.is_full() {
            // Others may have given back what a writer of this shard waits for.
            self.signals.space.notify_waiters();
        }
        self.block_cache.give_back();
    }

    /// The tables to flush next. None: memory and log are within their bounds.
    fn choose_flush(&self) -> Vec<Rc<TableState>> {
        let waiting = self.tables_with_frozen();
        if !waiting.is_empty() {
            return waiting;
        }
        if self.memory.needs_flush() {
            return self.tables_with_large();
        }
        self.forget_large();
        if self.log_needs_flush() || self.log.lacks_room() {
            return self.tables_with_oldest(self.log.end_position().segment);
        }
        Vec::new()
    }
}
