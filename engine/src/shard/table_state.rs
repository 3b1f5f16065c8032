//! The state of one table in a shard: the active memtable, frozen memtables, and files.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::lock::Mutex;

use super::compaction_failures::Failure;
use super::damaged_file::DamagedFile;
use super::directories::Directories;
use super::file_index::FileIndex;
use super::names::{file_name, temporary_name};
use super::options::{ShardOptions, TableOptions, TableStatistics, TombstoneGc};
use super::write_pressure::Backlog;
use crate::commit_log::LogPosition;
use crate::compaction::{KeySample, TableSummary};
use crate::error::EngineError;
use crate::invariant::{BrokenInvariant, broken};
use crate::key;
use crate::manifest::{FileId, ManifestFile};
use crate::memtable::{Memtable, SharedMemtable};
use crate::mutation::{TableId, ValidMutation, WRITE_BYTES_MAX};
use crate::reconcile::{GROWTH_MAX, Purge};
use crate::table::{ROW_BYTES_MAX, ResidentParts, TableReader, TableStatistics as FileStatistics};

const _: () = assert!(
    WRITE_BYTES_MAX * GROWTH_MAX <= ROW_BYTES_MAX,
    "a row of a memtable can be merged once more, and has room in a block"
);

/// A table file that readers use.
pub(super) struct LiveFile {
    pub place: ManifestFile,
    pub reader: Arc<TableReader>,
    /// `None`: not known, for a file from before the last start.
    pub sample: Option<Arc<KeySample>>,
    /// Whether a compaction is reading it.
    pub is_busy: Cell<bool>,
    /// Whether no strategy may choose it, because a merge would give the same file again.
    pub is_left_alone: Cell<bool>,
    /// The failure of the last compaction that the file has caused.
    pub failure: RefCell<Option<Failure>>,
    /// The finding of a verification: the reason why a part of the file cannot be read.
    pub damage: RefCell<Option<String>>,
    /// Those that are made, in no order.
    pub indexes: RefCell<Vec<FileIndex>>,
}

/// A memtable that is no longer written to.
pub(super) struct FrozenMemtable {
    pub memtable: Rc<SharedMemtable>,
    /// All log records of the table before this position are in this memtable, an older one, or in files.
    pub flushed_to: LogPosition,
}

pub(super) struct TableState {
    pub id: TableId,
    /// The shard's memory for filters and indexes of files.
    pub resident: ResidentParts,
    /// By number; see [`super::directories`].
    pub directories: Vec<PathBuf>,
    pub options: RefCell<TableOptions>,
    /// All replicas have the deletions from before this second, as far as the shard has been told.
    pub known_everywhere_seconds: Cell<u32>,
    /// False for a recovered table whose options have not been set yet. It is not compacted.
    pub is_configured: Cell<bool>,
    /// Whether the strategy chooses compactions: an operator can disable that.
    pub is_auto_compacted: Cell<bool>,
    pub is_logged: Cell<bool>,
    pub writes_once: Cell<bool>,
    /// The failure of the last compaction, if no file has caused it.
    pub failure: RefCell<Option<Failure>>,
    /// The second at which expired files were last looked for.
    pub expired_checked: Cell<Option<u32>>,
    /// The usual size of a flushed file: a moving average. 0 before the first flush.
    pub flush_bytes: Cell<u64>,
    /// The end of the log when the table was created, or recovered without any record of it in the log. `None`: the log may have older
    /// records of it.
    pub logged_since: Cell<Option<LogPosition>>,
    pub active: RefCell<Rc<SharedMemtable>>,
    /// Whether the active memtable has a logged row, and is listed for it ([`super::memtable_index`]).
    pub needs_log: Cell<bool>,
    /// Oldest first.
    pub frozen: RefCell<Vec<Rc<FrozenMemtable>>>,
    /// By generation, newest first.
    pub files: RefCell<Vec<Rc<LiveFile>>>,
    /// Files of the manifest that could not be opened.
    pub damaged: RefCell<Vec<DamagedFile>>,
    /// How often files came into the table from a snapshot.
    pub restores: Cell<u64>,
    /// The files of compactions under way that the strategy has chosen, by generation.
    pub merging: RefCell<BTreeSet<u64>>,
    /// Whether the last compaction that the strategy chose found no room on the disk.
    pub lacks_room: Cell<bool>,
    /// How far compaction is behind. `None`: the table is not compacted now.
    pub backlog: Cell<Option<Backlog>>,
    /// Whether a memtable may have rows that are not in the commit log.
    pub has_unlogged: Cell<bool>,
    /// Whether files of indexes may lie in the table's directories.
    pub has_index_files: Cell<bool>,
    /// Whether some of them may be of no use.
    pub looks_for_stray_indexes: Cell<bool>,
    /// The error of the last failed index build. [`super::Shard::rebuild_indexes`] takes it.
    pub index_failure: RefCell<Option<EngineError>>,
    /// Held while indexes are made anew for an operator.
    pub rebuilding: Mutex<()>,
    /// Held while a memtable of the table is flushed. Memtables are flushed in order.
    pub flushing: Mutex<()>,
}

/// An empty memtable with the indexes of its table.
fn new_memtable(options: &TableOptions) -> Rc<SharedMemtable> {
    Rc::new(Memtable::with_indexes(&options.indexes).into())
}

impl LiveFile {
    pub fn new(place: ManifestFile, reader: Arc<TableReader>, sample: Option<Arc<KeySample>>) -> Self {
        Self {
            place,
            reader,
            sample,
            is_busy: Cell::new(false),
            is_left_alone: Cell::new(false),
            failure: RefCell::new(None),
            damage: RefCell::new(None),
            indexes: RefCell::default(),
        }
    }
}

impl TableState {
    pub fn new(
        directories: &Directories,
        resident: &ResidentParts,
        id: TableId,
        options: TableOptions,
        is_configured: bool,
    ) -> Self {
        Self {
            id,
            resident: resident.clone(),
            active: RefCell::new(new_memtable(&options)),
            directories: directories.of_table(id),
            is_logged: Cell::new(options.is_logged),
            writes_once: Cell::new(options.writes_once),
            failure: RefCell::default(),
            expired_checked: Cell::new(None),
            flush_bytes: Cell::new(0),
            options: RefCell::new(options),
            known_everywhere_seconds: Cell::new(0),
            is_configured: Cell::new(is_configured),
            is_auto_compacted: Cell::new(true),
            logged_since: Cell::new(None),
            needs_log: Cell::new(false),
            frozen: RefCell::default(),
            files: RefCell::default(),
            damaged: RefCell::default(),
            restores: Cell::new(0),
            merging: RefCell::default(),
            lacks_room: Cell::new(false),
            backlog: Cell::new(None),
            has_unlogged: Cell::new(false),
            has_index_files: Cell::new(false),
            looks_for_stray_indexes: Cell::new(false),
            index_failure: RefCell::default(),
            rebuilding: Mutex::new(()),
            flushing: Mutex::new(()),
        }
    }

    /// A directory of the table's files by its number.
    pub fn directory(&self, number: u32) -> &Path {
        let Some(directory) = self.directories.get(number as usize) else {
            broken!("a file's directory is one of the shard's");
            return Path::new("");
        };
        directory
    }

    pub fn path(&self, id: FileId) -> PathBuf {
        self.directory(id.directory).join(file_name(id.generation))
    }

    /// The path of a file that is being written.
    pub fn temporary_path(&self, id: FileId) -> PathBuf {
        self.directory(id.directory).join(temporary_name(id.generation))
    }

    pub fn configure(&self, options: TableOptions) {
        self.is_logged.set(options.is_logged);
        self.writes_once.set(options.writes_once);
        self.options.replace(options);
        self.is_configured.set(true);
    }

    /// Deletions from before this second may be purged, seen from `now_seconds`.
    pub fn deleted_before_seconds(&self, now_seconds: u32) -> u32 {
        match self.options.borrow().tombstone_gc {
            TombstoneGc::AfterGrace => self.expired_before_seconds(now_seconds),
            TombstoneGc::Immediate => now_seconds,
            TombstoneGc::Never => 0,
            TombstoneGc::KnownEverywhere => {
                self.expired_before_seconds(now_seconds).min(self.known_everywhere_seconds.get())
            }
        }
    }

    /// What has expired and was written before this second may be purged.
    pub fn expired_before_seconds(&self, now_seconds: u32) -> u32 {
        now_seconds.saturating_sub(self.options.borrow().gc_grace_seconds)
    }

    /// What may be purged, seen from `now_seconds`, if nothing outside is older.
    pub fn purge(&self, now_seconds: u32) -> Purge {
        Purge {
            now_seconds,
            deleted_before_seconds: self.deleted_before_seconds(now_seconds),
            expired_before_seconds: self.expired_before_seconds(now_seconds),
            max_purgeable_timestamp: i64::MAX,
        }
    }

    /// Whether the active memtable must be frozen before this mutation, so that no row in it grows beyond what a file can hold.
    #[inline]
    pub fn must_freeze_before(&self, mutation: &ValidMutation<'_>, options: &ShardOptions) -> bool {
        let limit = options.row_version_bytes_max.min(WRITE_BYTES_MAX);
        self.active.borrow().read(|memtable| memtable.outgrows(mutation, limit))
    }

    /// Applies a mutation. Returns the growth of the memtable in bytes.
    #[inline]
    pub fn apply(
        &self,
        mutation: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<usize, BrokenInvariant> {
        // The active memtable is frozen and replaced in one critical section, so it is never frozen here.
        if self.writes_once.get() {
            return self.active.borrow().apply::<true>(mutation, position);
        }
        self.active.borrow().apply::<false>(mutation, position)
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
        if active.read(Memtable::is_empty) {
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

    /// Replaces the active memtable by a new one.
    pub fn replace_active(&self) -> Rc<SharedMemtable> {
        self.active.replace(new_memtable(&self.options.borrow()))
    }

    /// Freezes the active memtable, unless it is empty, and replaces it by a new one. Returns whether it did. Call [`super::Shard::freeze`].
    pub fn freeze(&self, flushed_to: LogPosition) -> bool {
        if self.active.borrow().read(Memtable::is_empty) {
            return false;
        }
        let memtable = self.replace_active();
        memtable.freeze();
        self.needs_log.set(false);
        self.frozen.borrow_mut().push(Rc::new(FrozenMemtable { memtable, flushed_to }));
        true
    }

    /// The lowest log position that a memtable needs.
    pub fn lowest_position(&self) -> Option<LogPosition> {
        self.lowest_position_behind(0)
    }

    /// The lowest log position that a memtable needs, the `frozen_count` oldest frozen ones left out.
    pub fn lowest_position_behind(&self, frozen_count: usize) -> Option<LogPosition> {
        let of_memtable = |memtable: &SharedMemtable| memtable.read(Memtable::lowest_position);
        let frozen = self.frozen.borrow();
        let positions = frozen.iter().skip(frozen_count).map(|frozen| of_memtable(&frozen.memtable));
        positions.chain([of_memtable(&self.active.borrow())]).flatten().min()
    }

    /// Whether there are no rows in memory.
    pub fn has_empty_memtables(&self) -> bool {
        self.newest_memtable().is_none()
    }

    pub fn active_bytes(&self) -> usize {
        self.active.borrow().read(Memtable::size_bytes)
    }

    /// Memory of the memtable that is flushed next.
    pub fn oldest_memtable_bytes(&self) -> usize {
        let frozen = self.frozen.borrow();
        let oldest = frozen.first().map(|frozen| frozen.memtable.read(Memtable::size_bytes));
        oldest.unwrap_or_else(|| self.active_bytes())
    }

    /// The oldest timestamp in any memtable.
    pub fn min_memtable_timestamp(&self) -> Option<i64> {
        let mut least: Option<i64> = None;
        self.for_each_memtable(|memtable| {
            let timestamp = memtable.read(Memtable::min_timestamp);
            least = least.into_iter().chain(timestamp).min();
        });
        least
    }

    /// As [`Memtable::visit_old_partitions`], for all memtables.
    pub fn visit_old_partitions(&self, timestamp: i64, mut visit: impl FnMut(&[u8], i64)) {
        self.for_each_memtable(|memtable| {
            let memtable = memtable.borrow();
            if memtable.min_timestamp().is_some_and(|oldest| oldest <= timestamp) {
                memtable.visit_old_partitions(timestamp, &mut visit);
            }
        });
    }

    /// Adds the size of a flushed file to the average.
    pub fn note_flush(&self, bytes: u64) {
        let average = self.flush_bytes.get();
        self.flush_bytes.set(if average == 0 { bytes } else { (3 * average + bytes) / 4 });
    }

    /// Adds a file in the order of generations.
    pub fn add_file(&self, file: LiveFile) {
        let mut files = self.files.borrow_mut();
        files.push(Rc::new(file));
        files.sort_by_key(|file| std::cmp::Reverse(file.place.generation));
    }

    /// Has a file read by another reader from now on. Returns false if the file is gone, or if a compaction is reading it.
    pub fn replace_reader(&self, file: &Rc<LiveFile>, reader: Arc<TableReader>) -> bool {
        if file.is_busy.get() {
            return false;
        }
        let mut files = self.files.borrow_mut();
        let Some(live) = files.iter_mut().find(|live| Rc::ptr_eq(live, file)) else { return false };
        let indexes = file.indexes.borrow().clone();
        let renewed = LiveFile::new(file.place, reader, file.sample.clone()).with_indexes(indexes);
        renewed.is_left_alone.set(file.is_left_alone.get());
        *live = Rc::new(renewed);
        true
    }

    /// The files that a compaction may choose from, and the busy ones. `now`: on the monotonic clock.
    pub fn summaries(&self, now_seconds: u32, now: Duration) -> Vec<TableSummary> {
        let files = self.files.borrow();
        files.iter().map(|file| self.summary(file, now_seconds, now)).collect()
    }

    fn summary(&self, file: &LiveFile, now_seconds: u32, now: Duration) -> TableSummary {
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
            droppable_ratio: self.droppable_ratio(statistics, now_seconds),
            purgeable_from_seconds: self.purgeable_from_seconds(statistics),
            rows: statistics.rows,
            tombstones: statistics.tombstones,
            sample: file.sample.clone(),
            is_busy: file.is_busy.get()
                || file.is_left_alone.get()
                || file.damage.borrow().is_some()
                || file.failure.borrow().as_ref().is_some_and(|failure| failure.waits(now)),
        }
    }

    /// The estimated share of a file's deletions and expiring cells that may be purged.
    pub fn droppable_ratio(&self, statistics: &FileStatistics, now_seconds: u32) -> f64 {
        let expired_before = self.expired_before_seconds(now_seconds);
        let before = match statistics.tombstones {
            0 => expired_before,
            _ => self.deleted_before_seconds(now_seconds).min(expired_before),
        };
        droppable_ratio(statistics, before)
    }

    /// The second from which a compaction would purge everything in a file, if nothing outside is older; see [`crate::reconcile`].
    fn purgeable_from_seconds(&self, statistics: &FileStatistics) -> Option<u32> {
        let options = self.options.borrow();
        let last = statistics.max_deletion_time.filter(|_| statistics.permanent == 0)?;
        let is_kept = match options.tombstone_gc {
            TombstoneGc::AfterGrace | TombstoneGc::Immediate => false,
            TombstoneGc::Never => true,
            TombstoneGc::KnownEverywhere => last >= self.known_everywhere_seconds.get(),
        };
        if is_kept && statistics.tombstones > 0 {
            return None;
        }
        // The grace period of a deletion begins with it, that of expiring data when it was written.
        let last_begin = match statistics.min_ttl {
            Some(ttl) if statistics.tombstones == 0 => last.saturating_sub(ttl),
            _ => last,
        };
        Some(last.max(last_begin.saturating_add(options.gc_grace_seconds).saturating_add(1)))
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
        let (mut disk_bytes, mut index_bytes, mut tombstones, mut missing_indexes) = (0, 0, 0, 0);
        let (mut filter_bytes, mut key_index_bytes, mut resident_bytes) = (0, 0, 0);
        let (mut max_file_bytes, mut max_partition_bytes, mut max_file_micros) = (0, 0, 0);
        let options = self.options.borrow();
        let with_damage = files.iter().filter(|file| file.damage.borrow().is_some()).count();
        let damaged_files = self.damaged.borrow().len() + with_damage;
        for file in files.iter() {
            let statistics = file.reader.statistics();
            note_timestamps(Some(statistics.min_timestamp), Some(statistics.max_timestamp));
            disk_bytes += file.reader.file_bytes();
            max_file_bytes = file.reader.file_bytes().max(max_file_bytes);
            max_partition_bytes = statistics.largest_partition_bytes.max(max_partition_bytes);
            let micros = statistics.max_timestamp.saturating_sub(statistics.min_timestamp);
            max_file_micros = micros.max(max_file_micros);
            let indexes = file.indexes.borrow();
            index_bytes += indexes.iter().map(|index| index.reader.file_bytes()).sum::<u64>();
            let readers = || std::iter::once(&file.reader).chain(indexes.iter().map(|index| &index.reader));
            filter_bytes += readers().map(|reader| reader.filter_bytes()).sum::<u64>();
            key_index_bytes += readers().map(|reader| reader.index_bytes()).sum::<u64>();
            resident_bytes += readers().map(|reader| reader.memory_bytes()).sum::<u64>();
            let is_missing = |id| indexes.iter().all(|index| index.id != id);
            missing_indexes += options.indexes.iter().filter(|definition| is_missing(definition.id)).count();
            rows += statistics.rows;
            partitions += statistics.partitions;
            tombstones += statistics.tombstones;
        }
        TableStatistics {
            file_count: files.len(),
            disk_bytes,
            index_bytes,
            filter_bytes,
            key_index_bytes,
            resident_bytes,
            missing_indexes,
            memtable_bytes,
            row_versions: rows,
            partition_versions: partitions,
            tombstones,
            damaged_files,
            max_file_bytes,
            max_partition_bytes,
            max_file_micros,
            ..sum
        }
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
