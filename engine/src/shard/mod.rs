//! One shard: the owner that joins commit log, memtables, table files, compaction and reads.
//!
//! A shard belongs to one thread. Its methods take `&self`; writes, reads and their combination within one turn
//! are not async, so nothing can come in between. Everything that waits (durability, back-pressure, flush,
//! compaction, schema) is.
//!
//! # Invariants
//!
//! * A mutation is in the commit log before it is in a memtable, and in both within one turn: readers and
//!   replay see all of it or nothing. What was loaded past the log ([`Shard::load`]) is only in the memtable.
//! * A table's manifest entry says which files hold it and up to which log position they contain everything.
//!   Files are complete and synced before the manifest names them; they are removed only after the manifest
//!   has stopped naming them.
//! * Log segments are given up only when no memtable needs them, and a memtable is given up only when the
//!   manifest names its file.
//! * After a failed write or sync of the log, or a replacement of the manifest with an unknown outcome, the
//!   shard refuses every further write.

mod cleanup;
mod compact;
mod flush;
mod look_up;
mod manifest;
mod open;
mod options;
mod scan;
mod schema;
mod snapshot;
mod table_state;
mod versions;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::lock::Mutex;
use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::manifest::{Manifest, ReplaceError};
use self::table_state::TableState;
use crate::commit_log::{CommitLog, LogPosition};
use crate::error::EngineError;
use crate::io::{DiskLock, Environment};
use crate::mutation::{MutationRef, TableId};
use crate::read::BufferPool;
use crate::table::BlockCache;

pub use self::cleanup::Dropped;
pub use self::look_up::{Lookup, RowRequest};
pub use self::manifest::ManifestError;
pub use self::options::{ShardOptions, TableOptions, TableStatistics};

/// The storage of one shard. See [`Shard::open`].
pub struct Shard {
    environment: Environment,
    options: ShardOptions,
    directory: PathBuf,
    tables: RefCell<HashMap<TableId, Rc<TableState>>>,
    log: Rc<CommitLog>,
    /// Held while a change of the manifest is prepared and written.
    manifest: Mutex<Manifest>,
    next_generation: Cell<u64>,
    /// The log segment of the newest mutation.
    last_segment: Cell<u64>,
    /// Memory of all memtables, frozen ones included.
    memtable_bytes: Cell<usize>,
    /// A flush is to be as fast as it goes: memory is short, or the shard is being closed.
    flush_hurries: Arc<AtomicBool>,
    /// Why no write is accepted any more.
    failure: RefCell<Option<String>>,
    /// Why the last flush did not succeed.
    flush_failure: RefCell<Option<String>>,
    is_closing: Cell<bool>,
    is_closed: Cell<bool>,
    scan_buffers: RefCell<BufferPool>,
    block_cache: Rc<BlockCache>,
    signals: Rc<Signals>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
    log_task: RefCell<Option<JoinHandle<()>>>,
    /// Released when the shard is dropped.
    _lock: Box<dyn DiskLock>,
}

/// Where [`Shard::load`] puts a mutation besides the memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Into the commit log, where its table is logged.
    Logged,
    /// Nowhere.
    PastLog,
}

/// What the tasks of a shard sleep on; apart from the shard, so that sleeping does not keep it alive.
#[derive(Default)]
struct Signals {
    flush_wanted: Notify,
    compaction_wanted: Notify,
    /// Memtable memory was freed, its rows are in files; or waiting for that has become pointless.
    space: Notify,
}

impl Shard {
    fn table(&self, id: TableId) -> Result<Rc<TableState>, EngineError> {
        self.tables.borrow().get(&id).cloned().ok_or(EngineError::UnknownTable(id))
    }

    fn all_tables(&self) -> Vec<Rc<TableState>> {
        let mut tables: Vec<_> = self.tables.borrow().values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// Appends the mutation to the commit log (buffered) and applies it to the memtable. Readers see it at once;
    /// [`Shard::durable`] of the result says when it may be acknowledged. Call [`Shard::admit`] before.
    pub fn apply(&self, mutation: &MutationRef<'_>) -> Result<LogPosition, EngineError> {
        Ok(self.load(mutation, Load::Logged)?.unwrap_or_default())
    }

    /// As [`Shard::apply`] for data that can be had again. `None`: the commit log does not have it (nor those of a table that is
    /// not logged). Then it is durable when it is in files, which [`Shard::flush`] brings about and [`Shard::in_files`] waits
    /// for; a crash before may leave any part of it.
    #[inline]
    pub fn load(&self, mutation: &MutationRef<'_>, load: Load) -> Result<Option<LogPosition>, EngineError> {
        if let Some(failure) = &*self.failure.borrow() {
            return Err(EngineError::Refusing(failure.clone()));
        }
        if self.is_closed.get() {
            return Err(EngineError::Closed);
        }
        let tables = self.tables.borrow();
        let table = tables.get(&mutation.table).ok_or(EngineError::UnknownTable(mutation.table))?;
        let valid = mutation.validate().map_err(EngineError::Mutation)?;
        let is_logged = load == Load::Logged && table.is_logged.get();
        let position = if is_logged {
            Some(self.log.append(mutation.bytes)?)
        } else if let Some(failure) = self.log.failure() {
            return Err(EngineError::Refusing(failure.to_string()));
        } else {
            None
        };
        let grown = table.apply(&valid, position).map_err(EngineError::Mutation)?;
        let bytes = self.memtable_bytes.get() + grown;
        self.memtable_bytes.set(bytes);
        let segment = position.unwrap_or_default().segment;
        let is_new_segment = segment > self.last_segment.replace(segment.max(self.last_segment.get()));
        if is_new_segment || (grown > 0 && bytes >= self.options.memtable_bytes_max / 2) {
            if self.is_flush_urgent() {
                self.flush_hurries.store(true, Ordering::Relaxed);
            }
            self.signals.flush_wanted.notify_one();
        }
        Ok(position)
    }

    /// Resolves when everything up to and including the mutation at `position` is durable (in periodic mode at
    /// once), or can no longer become so.
    pub fn durable(&self, position: LogPosition) -> impl Future<Output = Result<(), EngineError>> + use<> {
        let durable = self.log.durable(position);
        async move { durable.await.map_err(EngineError::from) }
    }

    /// What [`Shard::durable`] would say at once, if it need not wait.
    #[inline]
    pub fn durable_at_once(&self, position: LogPosition) -> Option<Result<(), EngineError>> {
        Some(self.log.durable_at_once(position)?.map_err(EngineError::from))
    }

    /// Resolves when everything up to and including the mutation at `position` is on disk, in every mode, or can no
    /// longer come there.
    pub fn on_disk(&self, position: LogPosition) -> impl Future<Output = Result<(), EngineError>> + use<> {
        let on_disk = self.log.on_disk(position);
        async move { on_disk.await.map_err(EngineError::from) }
    }

    /// Waits while the memtable budget is spent or the log has too much to write. An error means that waiting
    /// longer would not help.
    pub async fn admit(&self) -> Result<(), EngineError> {
        while self.memtable_bytes.get() > self.options.memtable_bytes_max {
            if let Some(failure) = &*self.failure.borrow() {
                return Err(EngineError::Refusing(failure.clone()));
            }
            if let Some(failure) = &*self.flush_failure.borrow() {
                return Err(EngineError::FlushFailed(failure.clone()));
            }
            if self.is_closed.get() {
                return Err(EngineError::Closed);
            }
            let space = self.signals.space.notified();
            self.signals.flush_wanted.notify_one();
            space.await;
        }
        Ok(self.log.admit().await?)
    }

    /// Numbers about a table.
    pub fn statistics(&self, id: TableId) -> Result<TableStatistics, EngineError> {
        Ok(self.table(id)?.statistics())
    }

    /// The tables of the shard, ordered by id.
    pub fn table_ids(&self) -> Vec<TableId> {
        self.all_tables().iter().map(|table| table.id).collect()
    }

    /// Memory of all memtables, in bytes.
    pub fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.get()
    }

    /// Bytes of the commit log's files.
    pub fn commit_log_bytes(&self) -> u64 {
        self.log.total_bytes()
    }

    /// Why the shard accepts no writes, if so.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone().or_else(|| self.log.failure().map(|failure| failure.to_string()))
    }

    fn check_open(&self) -> Result<(), EngineError> {
        if self.is_closed.get() {
            return Err(EngineError::Closed);
        }
        match &*self.failure.borrow() {
            Some(failure) => Err(EngineError::Refusing(failure.clone())),
            None => Ok(()),
        }
    }

    /// Makes `changed` the manifest; `current` is what the held lock guards.
    async fn replace_manifest(
        &self,
        current: &mut Manifest,
        mut changed: Manifest,
    ) -> Result<(), EngineError> {
        self.check_open()?;
        changed.next_generation = self.next_generation.get();
        match changed.replace(&self.environment.disk, &self.directory).await {
            Ok(()) => {
                *current = changed;
                Ok(())
            }
            Err(ReplaceError::Unchanged(error)) => Err(ManifestError::Disk(error).into()),
            Err(ReplaceError::Unknown(error)) => {
                self.failure.borrow_mut().get_or_insert_with(|| error.to_string());
                self.signals.space.notify_waiters();
                Err(ManifestError::Disk(error).into())
            }
        }
    }

    fn new_generation(&self) -> u64 {
        let generation = self.next_generation.get();
        self.next_generation.set(generation + 1);
        generation
    }

    /// Lets the log give up what no memtable needs any more.
    fn discard_log(&self) {
        let needed = self.tables.borrow().values().filter_map(|table| table.lowest_position()).min();
        self.log.discard_before(needed.unwrap_or_else(|| self.log.end_position()));
    }

    /// Flushes everything, so that the next start has nothing to replay, and stops. Afterwards only reads work.
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

impl Drop for Shard {
    fn drop(&mut self) {
        for task in self.tasks.take().into_iter().chain(self.log_task.take()) {
            task.abort();
        }
    }
}
