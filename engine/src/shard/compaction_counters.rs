//! Counts of a shard's compactions since it was opened.

use std::cell::Cell;
use std::iter::Sum;
use std::time::Duration;

/// The counts in the making.
#[derive(Debug, Default)]
pub(super) struct CompactionCounters {
    pub merges: Cell<u64>,
    pub failed: Cell<u64>,
    pub dropped_files: Cell<u64>,
    pub moved_files: Cell<u64>,
    pub input_bytes: Cell<u64>,
    pub output_bytes: Cell<u64>,
    pub duration: Cell<Duration>,
    pub verification: Cell<Duration>,
    pub large_rows: Cell<u64>,
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

impl Sum for CompactionStatistics {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |left, right| Self {
            merges: left.merges + right.merges,
            failed: left.failed + right.failed,
            dropped_files: left.dropped_files + right.dropped_files,
            moved_files: left.moved_files + right.moved_files,
            input_bytes: left.input_bytes + right.input_bytes,
            output_bytes: left.output_bytes + right.output_bytes,
            duration: left.duration + right.duration,
            verification: left.verification + right.verification,
            large_rows: left.large_rows + right.large_rows,
        })
    }
}

impl CompactionCounters {
    pub fn add_merge(&self, input_bytes: u64, output_bytes: u64, duration: Duration, verification: Duration) {
        self.merges.set(self.merges.get() + 1);
        self.input_bytes.set(self.input_bytes.get() + input_bytes);
        self.output_bytes.set(self.output_bytes.get() + output_bytes);
        self.duration.set(self.duration.get() + duration);
        self.verification.set(self.verification.get() + verification);
    }

    pub fn statistics(&self) -> CompactionStatistics {
        CompactionStatistics {
            merges: self.merges.get(),
            failed: self.failed.get(),
            dropped_files: self.dropped_files.get(),
            moved_files: self.moved_files.get(),
            input_bytes: self.input_bytes.get(),
            output_bytes: self.output_bytes.get(),
            duration: self.duration.get(),
            verification: self.verification.get(),
            large_rows: self.large_rows.get(),
        }
    }
}
