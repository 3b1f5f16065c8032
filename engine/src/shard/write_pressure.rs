//! Back-pressure by the number of files: when flushes outrun compactions, writes are slowed, and wait in the end, so that the number of files
//! that one read has to look at stays bounded.
//!
//! What counts is the backlog of each table (`compaction/backlog.rs`), of which [`super::backlog`] keeps account. As it grows:
//! 1. From half of [`BacklogLimits::slow_files`] on the table comes first, and gets relief beside a large compaction ([`super::compact`]): so a
//!    backlog sinks however long others take.
//! 2. From [`BacklogLimits::slow_files`] on writes to the shard share a rate, which sinks by steps from that of compactions to a [`RATE_RANGE`]th of it.
//! 3. From [`BacklogLimits::stop_files`] on they wait until files have gone, at most [`BacklogLimits::wait_max`]. Then they are refused.
//!
//! A table that is not compacted holds up no write, because waiting would not help: one with compaction disabled (by its options or by an
//! operator), one that waits after a failure or after an operator has stopped a compaction, or for room on the disk. Of the files that it has
//! when it is compacted again, those from [`BacklogLimits::slow_files`] on do not count.
//!
//! Invariant: what counts against writes of a table's backlog grows by flushes only, and by a few files with each. A table that is found
//! with many files (at a start, when compaction is enabled again, after a restore or a change of the strategy, when a compaction that an
//! operator asked for has been given up, when a window of time has closed) slows writes, and stops none until they have added to it.

use std::cell::Cell;
use std::time::Duration;

/// When the backlog of a table slows the writes to its shard.
#[derive(Debug, Clone, Copy)]
pub struct BacklogLimits {
    /// Files from which on writes are slowed. A strategy merges up to 32 at a time, so a table that is not behind has fewer.
    pub slow_files: usize,
    /// Files from which on writes wait.
    pub stop_files: usize,
    /// The longest wait of a write.
    pub wait_max: Duration,
}

impl Default for BacklogLimits {
    fn default() -> Self {
        Self { slow_files: 48, stop_files: 96, wait_max: Duration::from_secs(2) }
    }
}

/// The files that a flush may add to what counts: its own, and those of its size that waited for one more.
const FILES_OF_FLUSH: usize = 4;

/// The rate of writes at the beginning of slowing, where compactions have no limit.
pub(super) const FIRST_RATE: u64 = 64 << 20;
/// The lowest rate is the first divided by this.
const RATE_RANGE: f64 = 64.0;
/// The longest pause of a write that is only slowed. It stays far below any timeout.
pub(super) const SLOW_PAUSE_MAX: Duration = Duration::from_millis(100);

/// What has changed of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Flush,
    Other,
}

/// The backlog of a table that is compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    /// The most files that one read may have to look at, of those that wait for compaction.
    pub files: usize,
    /// Those of them that no flush has added.
    inherited: usize,
}

impl Backlog {
    /// What counts against writes.
    pub fn counted(self) -> usize {
        self.files - self.inherited
    }

    /// The backlog after a change. `before`: `None` if the table was not compacted. `slow_files`: those that count in any case.
    pub fn after(before: Option<Self>, files: usize, change: Change, slow_files: usize) -> Self {
        let added = if before.is_some() && change == Change::Flush { FILES_OF_FLUSH } else { 0 };
        let before = before.unwrap_or_default();
        let counted_max = (before.counted() + added).max(slow_files);
        let inherited = before.inherited.max(files.saturating_sub(counted_max));
        Self { files, inherited: inherited.min(files.saturating_sub(slow_files)) }
    }
}

/// How long writes have waited since the shard was opened, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteWaits {
    /// For memory of memtables.
    pub memory: Duration,
    /// Slowed because compactions were behind.
    pub slowed: Duration,
    /// Stopped because they were far behind.
    pub stopped: Duration,
    /// Writes refused after such a wait.
    pub refused: u64,
}

impl std::iter::Sum for WriteWaits {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |left, right| Self {
            memory: left.memory + right.memory,
            slowed: left.slowed + right.slowed,
            stopped: left.stopped + right.stopped,
            refused: left.refused + right.refused,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct WritePressure {
    /// Whether writes are slowed or wait.
    pub is_on: Cell<bool>,
    /// The largest backlog of a table, as far as it counts against writes.
    pub files: Cell<usize>,
    /// Memory of memtables that were released since the shard was opened.
    pub released_bytes: Cell<u64>,
    /// What memtables had grown by when the rate was last looked at.
    pub counted_bytes: Cell<u64>,
    /// When what has been written is paid for, on the monotonic clock.
    paid: Cell<Duration>,
    pub waits: Cell<WriteWaits>,
    /// When it was last said that writes are slowed, on the monotonic clock.
    pub warned: Cell<Option<Duration>>,
}

impl WritePressure {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.get()
    }

    pub fn note_released(&self, bytes: usize) {
        self.released_bytes.set(self.released_bytes.get() + bytes as u64);
    }

    pub fn note(&self, change: impl FnOnce(&mut WriteWaits)) {
        let mut waits = self.waits.get();
        change(&mut waits);
        self.waits.set(waits);
    }

    /// How long a write has to wait for those before it to be paid for. `written`: growth of memtables so far.
    pub fn pause(&self, now: Duration, written: u64, bytes_per_second: f64) -> Duration {
        let fresh = written.saturating_sub(self.counted_bytes.replace(written));
        let cost = Duration::try_from_secs_f64(fresh as f64 / bytes_per_second).unwrap_or(SLOW_PAUSE_MAX);
        // No debt is kept for longer than it can be paid by pauses.
        let paid = (self.paid.get().max(now) + cost).min(now + SLOW_PAUSE_MAX);
        self.paid.set(paid);
        paid.saturating_sub(now)
    }
}

impl BacklogLimits {
    /// The files from which on a table comes before others.
    pub(super) fn urgent_files(&self) -> usize {
        self.slow_files / 2
    }

    /// The bytes a second that writes share at this backlog.
    pub(super) fn rate(&self, files: usize, first: u64) -> f64 {
        let steps = self.stop_files.saturating_sub(self.slow_files).max(1);
        let share = files.saturating_sub(self.slow_files) as f64 / steps as f64;
        (first as f64 / RATE_RANGE.powf(share.min(1.0))).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: usize = 48;

    fn counted(backlog: Backlog) -> (usize, usize) {
        (backlog.files, backlog.counted())
    }

    #[test]
    fn only_what_flushes_add_counts() {
        // Found at a start.
        let mut backlog = Backlog::after(None, 500, Change::Other, SLOW);
        assert_eq!(counted(backlog), (500, 48));
        for files in 501..=510 {
            backlog = Backlog::after(Some(backlog), files, Change::Flush, SLOW);
        }
        assert_eq!(counted(backlog), (510, 58));
        // Files of a snapshot come, and are merged.
        backlog = Backlog::after(Some(backlog), 600, Change::Other, SLOW);
        assert_eq!(counted(backlog), (600, 58));
        backlog = Backlog::after(Some(backlog), 595, Change::Other, SLOW);
        assert_eq!(counted(backlog), (595, 53));
        // What has gone does not come back for nothing.
        backlog = Backlog::after(Some(backlog), 300, Change::Other, SLOW);
        assert_eq!(counted(backlog), (300, 48));
        backlog = Backlog::after(Some(backlog), 10, Change::Other, SLOW);
        assert_eq!(counted(backlog), (10, 10));
        for files in 11..=100 {
            backlog = Backlog::after(Some(backlog), files, Change::Flush, SLOW);
        }
        assert_eq!(counted(backlog), (100, 100));
    }

    #[test]
    fn a_flush_into_a_table_that_was_not_compacted_is_held_against_nobody() {
        assert_eq!(counted(Backlog::after(None, 200, Change::Flush, SLOW)), (200, 48));
        assert_eq!(counted(Backlog::after(None, 30, Change::Flush, SLOW)), (30, 30));
    }

    #[test]
    fn files_that_become_due_at_once_are_held_against_nobody() {
        // An operator's compaction of 200 files begins, is given up, and a flush comes.
        let mut backlog = Backlog::after(None, 200, Change::Other, SLOW);
        backlog = Backlog::after(Some(backlog), 1, Change::Flush, SLOW);
        assert_eq!(counted(backlog), (1, 1));
        backlog = Backlog::after(Some(backlog), 201, Change::Flush, SLOW);
        assert_eq!(counted(backlog), (201, 48));
        backlog = Backlog::after(Some(backlog), 202, Change::Flush, SLOW);
        assert_eq!(counted(backlog), (202, 49));
        // With `min_threshold` 100 the hundredth flush makes a hundred files due.
        assert_eq!(counted(Backlog::after(Some(Backlog::default()), 100, Change::Flush, SLOW)), (100, 48));
    }

    #[test]
    fn the_rate_sinks_with_the_backlog() {
        let limits = BacklogLimits { slow_files: 10, stop_files: 20, ..BacklogLimits::default() };
        let rates = [10, 15, 20, 30].map(|files| limits.rate(files, 64_000) as u64);
        assert_eq!(rates, [64_000, 8_000, 1_000, 1_000]);
    }

    #[test]
    fn a_write_waits_for_those_before_it() {
        let pressure = WritePressure::default();
        let second = Duration::from_secs(1);
        assert_eq!(pressure.pause(second, 0, 1000.0), Duration::ZERO);
        assert_eq!(pressure.pause(second, 50, 1000.0), Duration::from_millis(50));
        // Time has paid a part of it, and nothing new was written.
        assert_eq!(pressure.pause(second + Duration::from_millis(30), 50, 1000.0), Duration::from_millis(20));
        assert_eq!(pressure.pause(second * 2, 50, 1000.0), Duration::ZERO);
        assert_eq!(pressure.pause(second * 2, 1_000_000, 1000.0), SLOW_PAUSE_MAX);
    }
}
