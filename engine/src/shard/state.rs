//! The state of a shard, and the operations on it that several parts of the shard share.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::lock::Mutex;
use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::candidates::Candidates;
use super::compaction_counters::CompactionCounters;
use super::directories::Directories;
use super::examination::ExaminationState;
use super::fetches::Fetches;
use super::leftovers::Leftovers;
use super::memory::MemtableMemory;
use super::memtable_index::MemtableIndex;
use super::options::{ShardOptions, TableStatistics};
use super::running_compactions::RunningCompactions;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::WritePressure;
use crate::commit_log::CommitLog;
use crate::error::{DiskFailure, DiskFailures, EngineError};
use crate::invariant::Watch;
use crate::io::{DiskLock, Environment, LendingShare};
use crate::manifest::StoredManifest;
use crate::mutation::TableId;
use crate::read::BufferPool;
use crate::table::BlockCache;

/// The storage of one shard. See [`Shard::open`].
pub struct Shard {
    pub(super) environment: Environment,
    pub(super) options: ShardOptions,
    pub(super) directory: PathBuf,
    pub(super) directories: Directories,
    pub(super) tables: RefCell<HashMap<TableId, Rc<TableState>>>,
    pub(super) memtable_index: MemtableIndex,
    pub(super) candidates: Candidates,
    pub(super) log: Rc<CommitLog>,
    /// Held while an edit is prepared and made.
    pub(super) manifest: Mutex<StoredManifest>,
    pub(super) leftovers: Leftovers,
    pub(super) next_generation: Cell<u64>,
    /// Files with this generation or a later one were written since the shard was opened.
    pub(super) first_own_generation: u64,
    /// The log segment of the newest mutation.
    pub(super) last_segment: Cell<u64>,
    /// Memory of all memtables, frozen ones included.
    pub(super) memory: MemtableMemory,
    /// What they took when the room on the disk was measured last.
    pub(super) measured_memtable_bytes: Cell<usize>,
    /// A compaction waits for room on the disk.
    pub(super) compaction_lacks_room: Cell<bool>,
    /// The rate of flushes is not limited: memory is short, or the shard is being closed.
    pub(super) flush_hurries: Arc<AtomicBool>,
    pub(super) compaction_counters: CompactionCounters,
    pub(super) running_compactions: RunningCompactions,
    /// Held by a compaction that several jobs share.
    pub(super) shared_compaction: Mutex<()>,
    pub(super) write_pressure: WritePressure,
    /// The shard's share of the room for the commit log.
    pub(super) log_share: LendingShare,
    /// Stops the shard when an invariant is broken.
    pub(super) watch: Watch,
    /// The failure after which writes are refused.
    pub(super) failure: RefCell<Option<String>>,
    pub(super) disk_failures: DiskFailures,
    pub(super) examination: ExaminationState,
    /// The failure of the last flush, if it failed.
    pub(super) flush_failure: RefCell<Option<EngineError>>,
    pub(super) is_closing: Cell<bool>,
    pub(super) is_closed: Cell<bool>,
    pub(super) scan_buffers: RefCell<BufferPool>,
    pub(super) block_cache: Rc<BlockCache>,
    /// Files that reads have looked into, and filters of partitions that they have asked.
    pub(super) files_asked: Cell<u64>,
    pub(super) filters_asked: Cell<u64>,
    pub(super) fetches: RefCell<Fetches>,
    pub(super) signals: Rc<Signals>,
    pub(super) tasks: RefCell<Vec<JoinHandle<()>>>,
    pub(super) log_task: RefCell<Option<JoinHandle<()>>>,
    /// Released when the shard is dropped.
    pub(super) _locks: Vec<Box<dyn DiskLock>>,
}

/// The signals that a shard's tasks wait for. They are separate from the shard, so that a waiting task does not keep it alive.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) flush_wanted: Notify,
    /// For the task of all compactions, and for that of small ones.
    pub(super) compaction_wanted: [Notify; 2],
    /// Memtable memory was freed (its rows are in files), or will not be freed because of a failure.
    pub(super) space: Notify,
    /// An index of a file may be missing.
    pub(super) indexes_wanted: Notify,
    /// Indexes may be complete.
    pub(super) indexes_built: Notify,
}

impl Signals {
    pub(super) fn want_compaction(&self) {
        self.compaction_wanted.iter().for_each(Notify::notify_one);
    }
}

/// What reads have done since the shard was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWork {
    pub files: u64,
    pub filters: u64,
    pub blocks_from_cache: u64,
    pub blocks_from_disk: u64,
}

impl Shard {
    /// What reads have done so far.
    pub fn read_work(&self) -> ReadWork {
        let (blocks_from_cache, blocks_from_disk) = self.block_cache.looks();
        let (files, filters) = (self.files_asked.get(), self.filters_asked.get());
        ReadWork { files, filters, blocks_from_cache, blocks_from_disk }
    }

    #[inline]
    pub(super) fn count_read(&self, files: u64, filters: u64) {
        self.files_asked.set(self.files_asked.get() + files);
        self.filters_asked.set(self.filters_asked.get() + filters);
    }

    pub(super) fn table(&self, id: TableId) -> Result<Rc<TableState>, EngineError> {
        self.tables.borrow().get(&id).cloned().ok_or(EngineError::UnknownTable(id))
    }

    pub(super) fn all_tables(&self) -> Vec<Rc<TableState>> {
        let mut tables: Vec<_> = self.tables.borrow().values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// The statistics of a table.
    pub fn statistics(&self, id: TableId) -> Result<TableStatistics, EngineError> {
        Ok(self.table(id)?.statistics())
    }

    /// Whether the shard has a table of this id.
    pub fn has_table(&self, id: TableId) -> bool {
        self.tables.borrow().contains_key(&id)
    }

    /// The tables of the shard, ordered by id.
    pub fn table_ids(&self) -> Vec<TableId> {
        self.all_tables().iter().map(|table| table.id).collect()
    }

    /// Memory of all memtables, in bytes.
    pub fn memtable_bytes(&self) -> usize {
        self.memory.used_bytes()
    }

    /// Bytes of the commit log's files.
    pub fn commit_log_bytes(&self) -> u64 {
        self.log.total_bytes()
    }

    /// The failure after which the shard refuses work, if there was one.
    pub fn failure(&self) -> Option<String> {
        let broken = self.watch.broken().map(|broken| broken.to_string());
        broken
            .or_else(|| self.failure.borrow().clone())
            .or_else(|| self.log.failure().map(|failure| failure.to_string()))
    }

    /// The failures of data files that the shard has met since it was opened: the first one of each kind. It goes on nevertheless.
    pub fn disk_failures(&self) -> Vec<DiskFailure> {
        self.disk_failures.known()
    }

    pub(super) fn check_open(&self) -> Result<(), EngineError> {
        self.watch.check()?;
        if self.is_closed.get() {
            return Err(EngineError::Closed);
        }
        match &*self.failure.borrow() {
            Some(failure) => Err(EngineError::Refusing(failure.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn new_generation(&self) -> u64 {
        let generation = self.next_generation.get();
        self.next_generation.set(generation + 1);
        generation
    }

    /// Whether a flush should not limit its rate: the shard is being closed, or writers will soon have to wait for memory.
    pub(super) fn is_flush_urgent(&self) -> bool {
        self.is_closing.get() || self.memory.is_nearly_full()
    }

    /// Removes the cached blocks of files that are no longer read.
    pub(super) fn retire_files<'a>(&self, files: impl Iterator<Item = &'a Rc<LiveFile>>) {
        for file in files {
            self.block_cache.remove_table(file.reader.id());
            for index in file.indexes.borrow().iter() {
                self.block_cache.remove_table(index.reader.id());
            }
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        for task in self.tasks.take().into_iter().chain(self.log_task.take()) {
            task.abort();
        }
    }
}
