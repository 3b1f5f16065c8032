//! The account of how far the compactions of a shard's tables are behind, and the writes that wait for them ([`super::write_pressure`]).
//!
//! Invariant: a write that waits is woken by what it waits for: files that go, the end of the shard.

use std::pin::pin;
use std::time::Duration;

use futures::future::select;

use super::state::Shard;
use super::table_state::TableState;
use super::write_pressure::{Backlog, Change, FIRST_RATE, SLOW_PAUSE_MAX, WriteWaits};
use crate::error::EngineError;
use crate::mutation::TableId;

/// The resolution of timers.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// Writes may be slowed and not slowed many times a minute.
const WARNING_PERIOD: Duration = Duration::from_mins(1);
/// The longest pause without a look at the shard: a broken invariant wakes nobody.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a write waits for compactions where it has to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct PaceWait {
    pub longest: Duration,
    /// Whether it counts as a refused write after that.
    pub is_counted: bool,
}

impl TableState {
    /// The most files that one read may have to look at, of those that wait for compaction. 0 if the table is not compacted.
    pub(super) fn backlog_files(&self) -> usize {
        self.backlog.get().map_or(0, |backlog| backlog.files)
    }
}

impl Shard {
    /// How long writes have waited, and why.
    pub fn write_waits(&self) -> WriteWaits {
        self.write_pressure.waits.get()
    }

    /// The part of [`Shard::compaction_backlog`] that counts against writes, of the table that holds them up most.
    pub fn counted_backlog(&self) -> usize {
        self.write_pressure.files.get()
    }

    /// The most files that one read may have to look at, of those that wait for compaction.
    pub fn compaction_backlog(&self) -> usize {
        self.tables.borrow().values().map(|table| table.backlog_files()).max().unwrap_or(0)
    }

    /// Takes note of how far the compaction of a table is behind: after each change of its files, or of what keeps it from being compacted.
    pub(super) fn look_at_backlog(&self, table: &TableState, change: Change) {
        self.candidates.add(table.id);
        let before = table.backlog.get();
        let slow_files = self.options.backlog.slow_files;
        let present = self.files_due(table).map(|files| Backlog::after(before, files, change, slow_files));
        table.backlog.set(present);
        if present.unwrap_or_default() != before.unwrap_or_default() {
            self.sum_up_backlogs();
        }
    }

    /// Takes note of the largest backlog of all tables.
    pub(super) fn sum_up_backlogs(&self) {
        let counted = |backlog: Option<Backlog>| backlog.map_or(0, Backlog::counted);
        let (most, table) = self
            .tables
            .borrow()
            .values()
            .map(|table| (counted(table.backlog.get()), Some(table.id)))
            .max()
            .unwrap_or_default();
        let pressure = &self.write_pressure;
        let before = pressure.files.replace(most);
        let is_on = most >= self.options.backlog.slow_files;
        if is_on && !pressure.is_on.replace(is_on) {
            pressure.counted_bytes.set(self.written_bytes());
            self.warn_of_backlog(table);
        }
        pressure.is_on.set(is_on);
        if most < before {
            self.signals.space.notify_waiters();
        }
    }

    fn warn_of_backlog(&self, table: Option<TableId>) {
        let now = self.environment.clock.monotonic();
        let is_due = |warned: Duration| now.saturating_sub(warned) >= WARNING_PERIOD;
        let pressure = &self.write_pressure;
        if let Some(table) = table.filter(|_| pressure.warned.get().is_none_or(is_due)) {
            pressure.warned.set(Some(now));
            let files = self.compaction_backlog();
            tracing::warn!(%table, files, "compactions of a table are behind; writes to its shard are slowed");
        }
    }

    /// The files of a table that wait for compaction. `None`: it is not compacted now.
    fn files_due(&self, table: &TableState) -> Option<usize> {
        let now = self.environment.clock.monotonic();
        let options = table.options.borrow();
        if !self.is_compacted(table) || !options.compaction.enabled || table.lacks_room.get() {
            return None;
        }
        let summaries = table.summaries(self.environment.clock.now_seconds(), now);
        let merging = table.merging.borrow();
        let counted: Vec<_> =
            summaries.iter().filter(|file| !file.is_busy || merging.contains(&file.generation)).collect();
        Some(options.compaction.backlog(&counted, table.flush_bytes.get()))
    }

    /// Growth of memtables since the shard was opened.
    fn written_bytes(&self) -> u64 {
        self.write_pressure.released_bytes.get() + self.memory.used_bytes() as u64
    }

    /// Waits as the backlog of compactions asks for.
    #[cold]
    pub(super) async fn wait_for_compactions(&self, wait: PaceWait) -> Result<(), EngineError> {
        let (clock, pressure, limits) = (&self.environment.clock, &self.write_pressure, self.options.backlog);
        let begun = clock.monotonic();
        // What compactions of this shard have while all shards compact.
        let rate_of_shards = self.compaction_rate().bytes_per_second();
        let first_rate = rate_of_shards.map_or(FIRST_RATE, |rate| rate / self.options.shards_of_node as u64);
        while pressure.is_on.get() {
            self.check_open()?;
            let now = clock.monotonic();
            let waited = now.saturating_sub(begun);
            let files = pressure.files.get();
            let is_stopped = files >= limits.stop_files;
            let pause = if is_stopped {
                let left = wait.longest.saturating_sub(waited);
                if left.is_zero() {
                    pressure.note(|waits| waits.refused += u64::from(wait.is_counted));
                    return Err(EngineError::Backlog { files });
                }
                left
            } else {
                let pause = pressure.pause(now, self.written_bytes(), limits.rate(files, first_rate));
                let left = SLOW_PAUSE_MAX.saturating_sub(waited);
                if pause < LEAST_PAUSE || left.is_zero() {
                    return Ok(());
                }
                pause.min(left)
            };
            // Woken without a pause, too: nothing is awaited between the look and the wait.
            select(pin!(self.signals.space.notified()), clock.sleep(pause.min(LONGEST_PAUSE))).await;
            let paused = clock.monotonic().saturating_sub(now);
            pressure.note(|waits| {
                let reason = if is_stopped { &mut waits.stopped } else { &mut waits.slowed };
                *reason += paused;
            });
        }
        Ok(())
    }
}
