//! Counts of a shard's compactions since it was opened.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::running_compactions::CompactionKind;
use crate::mutation::TableId;

/// Compactions that are remembered.
const ENDED_MAX: usize = 100;

/// The counts in the making, and the last compactions.
#[derive(Debug, Default)]
pub(super) struct CompactionCounters {
    pub counts: Cell<CompactionStatistics>,
    pub ended: RefCell<Vec<EndedCompaction>>,
}

/// A compaction that has merged or rewritten files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedCompaction {
    pub table: TableId,
    pub kind: CompactionKind,
    pub ended_micros: i64,
    pub input_bytes: u64,
    pub output_bytes: u64,
}

/// Counts of a shard's compactions since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStatistics {
    /// Compactions that have merged or rewritten files.
    pub merges: u64,
    pub failed: u64,
    /// Files removed unread, because everything in them had expired.
    pub dropped_files: u64,
    /// Files that went to another level as they were.
    pub moved_files: u64,
    /// Bytes of the merged files, and of those that took their place.
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// The time of the merges, and the part of it in which outputs were read back.
    pub duration: Duration,
    pub verification: Duration,
    /// Rows above an eighth of what a reader can merge, once for each merge that met them.
    pub large_rows: u64,
}

impl CompactionCounters {
    pub fn note(&self, change: impl FnOnce(&mut CompactionStatistics)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub fn remember(&self, ended: EndedCompaction) {
        let mut known = self.ended.borrow_mut();
        known.truncate(ENDED_MAX - 1);
        known.insert(0, ended);
    }
}
