//! The state of one table in a shard: the active memtable, frozen memtables, and files.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use futures::lock::Mutex;

use super::names::{file_name, temporary_name};
use super::options::{TableOptions, TableStatistics};
use crate::commit_log::LogPosition;
use crate::compaction::TableSummary;
use crate::invariant::BrokenInvariant;
use crate::key;
use crate::manifest::ManifestFile;
use crate::memtable::SharedMemtable;
use crate::mutation::{TableId, ValidMutation};
use crate::table::{TableReader, TableStatistics as FileStatistics};

/// A table file that readers use.
pub(super) struct LiveFile {
    pub place: ManifestFile,
    pub reader: Arc<TableReader>,
    /// Whether a compaction is reading it.
    pub is_busy: Cell<bool>,
}

/// A memtable that is no longer written to.
pub(super) struct FrozenMemtable {
    pub memtable: Rc<SharedMemtable>,
    /// All log records of the table before this position are in this memtable, an older one, or in files.
    pub flushed_to: LogPosition,
}

pub(super) struct TableState {
    pub id: TableId,
    pub directory: PathBuf,
    pub options: RefCell<TableOptions>,
    /// False for a recovered table whose options have not been set yet. It is not compacted.
    pub is_configured: Cell<bool>,
    pub is_logged: Cell<bool>,
    /// The end of the log when the table was created, or recovered without any record of it in the log. `None`: the log may have older
    /// records of it.
    pub logged_since: Cell<Option<LogPosition>>,
    pub active: RefCell<Rc<SharedMemtable>>,
    /// Oldest first.
    pub frozen: RefCell<Vec<Rc<FrozenMemtable>>>,
    /// By generation, newest first.
    pub files: RefCell<Vec<Rc<LiveFile>>>,
    /// Held while a memtable of the table is flushed. Memtables are flushed in order.
    pub flushing: Mutex<()>,
}

/// The directory of a table's files.
pub(super) fn table_directory(shard: &Path, id: TableId) -> PathBuf {
    shard.join("tables").join(id.to_string())
}

impl LiveFile {
    pub fn new(place: ManifestFile, reader: Arc<TableReader>) -> Self {
        Self { place, reader, is_busy: Cell::new(false) }
    }
}

impl TableState {
    pub fn new(shard: &Path, id: TableId, options: TableOptions, is_configured: bool) -> Self {
        Self {
            id,
            directory: table_directory(shard, id),
            is_logged: Cell::new(options.is_logged),
            options: RefCell::new(options),
            is_configured: Cell::new(is_configured),
            logged_since: Cell::new(None),
            active: RefCell::default(),
            frozen: RefCell::default(),
            files: RefCell::default(),
            flushing: Mutex::new(()),
        }
    }

    pub fn path(&self, generation: u64) -> PathBuf {
        self.directory.join(file_name(generation))
    }

    /// The path of a file that is being written.
    pub fn temporary_path(&self, generation: u64) -> PathBuf {
        self.directory.join(temporary_name(generation))
    }

    pub fn configure(&self, options: TableOptions) {
        self.is_logged.set(options.is_logged);
        self.options.replace(options);
        self.is_configured.set(true);
    }

    /// Applies a mutation. Returns the growth of the memtable in bytes.
    #[inline]
    pub fn apply(
        &self,
        mutation: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<usize, BrokenInvariant> {
        // The active memtable is frozen and replaced in one critical section, so it is never frozen here.
        self.active.borrow().apply(mutation, position)
    }

    pub fn for_each_memtable(&self, mut visit: impl FnMut(&Rc<SharedMemtable>)) {
        visit(&self.active.borrow());
        for frozen in self.frozen.borrow().iter().rev() {
            visit(&frozen.memtable);
        }
    }

    /// The newest memtable that is not empty.
    pub fn newest_memtable(&self) -> Option<Rc<SharedMemtable>> {
        let active = self.active.borrow();
        if active.read(crate::memtable::Memtable::is_empty) {
            self.frozen.borrow().last().map(|frozen| Rc::clone(&frozen.memtable))
        } else {
            Some(Rc::clone(&active))
        }
    }

    pub fn has_memtable(&self, memtable: &Rc<SharedMemtable>) -> bool {
        let mut is_there = false;
        self.for_each_memtable(|known| is_there |= Rc::ptr_eq(known, memtable));
        is_there
    }

    /// Freezes the active memtable, unless it is empty, and replaces it by a new one.
    pub fn freeze(&self, flushed_to: LogPosition) {
        if self.active.borrow().read(crate::memtable::Memtable::is_empty) {
            return;
        }
        let memtable = self.active.take();
        memtable.freeze();
        self.frozen.borrow_mut().push(Rc::new(FrozenMemtable { memtable, flushed_to }));
    }

    /// The lowest log position that a memtable needs.
    pub fn lowest_position(&self) -> Option<LogPosition> {
        self.lowest_position_behind(0)
    }

    /// The lowest log position that a memtable needs, the `frozen_count` oldest frozen ones left out.
    pub fn lowest_position_behind(&self, frozen_count: usize) -> Option<LogPosition> {
        let of_memtable =
            |memtable: &SharedMemtable| memtable.read(crate::memtable::Memtable::lowest_position);
        let frozen = self.frozen.borrow();
        let positions = frozen.iter().skip(frozen_count).map(|frozen| of_memtable(&frozen.memtable));
        positions.chain([of_memtable(&self.active.borrow())]).flatten().min()
    }

    /// Whether there are no rows in memory.
    pub fn has_empty_memtables(&self) -> bool {
        self.newest_memtable().is_none()
    }

    pub fn active_bytes(&self) -> usize {
        self.active.borrow().read(crate::memtable::Memtable::size_bytes)
    }

    /// The oldest timestamp in any memtable.
    pub fn min_memtable_timestamp(&self) -> Option<i64> {
        let mut least: Option<i64> = None;
        self.for_each_memtable(|memtable| {
            let timestamp = memtable.read(crate::memtable::Memtable::min_timestamp);
            least = least.into_iter().chain(timestamp).min();
        });
        least
    }

    /// Adds a file in the order of generations.
    pub fn add_file(&self, file: LiveFile) {
        let mut files = self.files.borrow_mut();
        files.push(Rc::new(file));
        files.sort_by_key(|file| std::cmp::Reverse(file.place.generation));
    }

    /// The files that a compaction may choose from.
    pub fn summaries(&self, deleted_before_seconds: u32) -> Vec<TableSummary> {
        self.files
            .borrow()
            .iter()
            .filter(|file| !file.is_busy.get())
            .map(|file| summary(file, deleted_before_seconds))
            .collect()
    }

    pub fn statistics(&self) -> TableStatistics {
        let mut sum = TableStatistics::default();
        let mut note_timestamps = |least: Option<i64>, most: Option<i64>| {
            sum.min_timestamp = sum.min_timestamp.into_iter().chain(least).min();
            sum.max_timestamp = sum.max_timestamp.max(most);
        };
        let (mut memtable_bytes, mut rows, mut partitions) = (0, 0, 0);
        self.for_each_memtable(|memtable| {
            memtable.read(|memtable| {
                note_timestamps(memtable.min_timestamp(), memtable.max_timestamp());
                memtable_bytes += memtable.size_bytes();
                rows += memtable.row_count() as u64;
                partitions += memtable.partition_count() as u64;
            });
        });
        let files = self.files.borrow();
        let (mut disk_bytes, mut tombstones) = (0, 0);
        for file in files.iter() {
            let statistics = file.reader.statistics();
            note_timestamps(Some(statistics.min_timestamp), Some(statistics.max_timestamp));
            disk_bytes += file.reader.file_bytes();
            rows += statistics.rows;
            partitions += statistics.partitions;
            tombstones += statistics.tombstones;
        }
        TableStatistics {
            file_count: files.len(),
            disk_bytes,
            memtable_bytes,
            row_versions: rows,
            partition_versions: partitions,
            tombstones,
            ..sum
        }
    }
}

fn summary(file: &LiveFile, deleted_before_seconds: u32) -> TableSummary {
    let statistics = file.reader.statistics();
    TableSummary {
        generation: file.place.generation,
        size_bytes: file.reader.file_bytes(),
        min_timestamp: statistics.min_timestamp,
        max_timestamp: statistics.max_timestamp,
        first_key: statistics.min_key.clone(),
        last_key: statistics.max_key.clone(),
        level: file.place.level,
        created_seconds: file.place.created_seconds,
        droppable_ratio: droppable_ratio(statistics, deleted_before_seconds),
    }
}

/// The estimated share of deletions and expiring cells that are past their grace period. It assumes that their times are
/// distributed evenly between the first and the last.
fn droppable_ratio(statistics: &FileStatistics, deleted_before_seconds: u32) -> f64 {
    let (Some(first), Some(last)) = (statistics.min_deletion_time, statistics.max_deletion_time) else {
        return 0.0;
    };
    if deleted_before_seconds <= first {
        return 0.0;
    }
    let mortal = (statistics.tombstones + statistics.expiring) as f64;
    let share = if last < deleted_before_seconds {
        1.0
    } else {
        f64::from(deleted_before_seconds - first) / f64::from(last - first + 1)
    };
    share * mortal / (mortal + statistics.permanent as f64).max(1.0)
}

/// The length of the common partition prefix of both bounds, if the range lies within one partition.
#[inline]
pub(super) fn shared_prefix_length(start: &[u8], end: &[u8]) -> Option<usize> {
    let length = key::prefix_length(start)?;
    (end.get(..length)? == start.get(..length)?).then_some(length)
}
