//! What edits of the manifest have left on the disk and in the log, as far as this run of the shard knows it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::commit_log::LogPosition;
use crate::manifest::{FileId, Manifest};
use crate::mutation::TableId;

/// A dropped table that the manifest still lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct DroppedTable {
    /// The log may have records of it in segments below this one.
    pub logged_below: u64,
    pub directory: DirectoryState,
}

/// The state of the directory of a dropped table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DirectoryState {
    Present,
    Removed,
    /// The removal is durable.
    Gone,
}

/// The leftovers of earlier edits.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Obsolete files that were removed, perhaps not durably, by table.
    removed_files: RefCell<BTreeMap<TableId, BTreeSet<FileId>>>,
    dropped: RefCell<BTreeMap<TableId, DroppedTable>>,
    /// As the manifest on the disk states it.
    log_needed_from: Cell<u64>,
}

impl Leftovers {
    /// The leftovers of a start: `manifest` is as the start has written it, and the log ends at `log_end`. `is_present`: whether
    /// the directory of a dropped table could not be removed.
    pub fn of(manifest: &Manifest, log_end: LogPosition, is_present: impl Fn(TableId) -> bool) -> Self {
        let dropped = manifest.dropped.iter().map(|id| {
            let directory = if is_present(*id) { DirectoryState::Present } else { DirectoryState::Gone };
            (*id, DroppedTable { logged_below: log_end.segment, directory })
        });
        Self {
            removed_files: RefCell::default(),
            dropped: RefCell::new(dropped.collect()),
            log_needed_from: Cell::new(manifest.log_needed_from),
        }
    }

    pub fn note_removed_file(&self, table: TableId, file: FileId) {
        self.removed_files.borrow_mut().entry(table).or_default().insert(file);
    }

    pub fn note_dropped(&self, id: TableId, dropped: DroppedTable) {
        self.dropped.borrow_mut().insert(id, dropped);
    }

    /// The files of a table that is dropped go with its directory.
    pub fn forget_files(&self, table: TableId) {
        self.removed_files.borrow_mut().remove(&table);
    }

    /// The dropped table was created again.
    pub fn forget_dropped(&self, id: TableId) {
        self.dropped.borrow_mut().remove(&id);
    }

    /// The removal of all directories that were removed so far is durable.
    pub fn note_directories_synced(&self) {
        for dropped in self.dropped.borrow_mut().values_mut() {
            if dropped.directory == DirectoryState::Removed {
                dropped.directory = DirectoryState::Gone;
            }
        }
    }

    /// The number of removed directories whose removal may not be durable.
    pub fn unsynced_directories(&self) -> usize {
        let dropped = self.dropped.borrow();
        dropped.values().filter(|dropped| dropped.directory == DirectoryState::Removed).count()
    }

    /// Whether a dropped table can leave the manifest, if the log is needed from this segment on.
    pub fn is_over(&self, id: TableId, log_needed_from: u64) -> bool {
        self.dropped.borrow().get(&id).is_some_and(|dropped| {
            dropped.directory == DirectoryState::Gone && dropped.logged_below <= log_needed_from
        })
    }

    /// Takes the obsolete files of a table that were removed.
    pub fn take_removed_files(&self, table: TableId) -> Option<BTreeSet<FileId>> {
        self.removed_files.borrow_mut().remove(&table)
    }

    /// An edit has taken effect.
    pub fn note_edit(&self, manifest: &Manifest) {
        self.log_needed_from.set(manifest.log_needed_from);
        self.dropped.borrow_mut().retain(|id, _| manifest.dropped.contains(id));
    }

    /// The lowest log segment that the manifest on the disk needs.
    pub fn log_needed_from(&self) -> u64 {
        self.log_needed_from.get()
    }
}
