//! Which compaction begins next: of which table, and which of its files.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::candidates::LOOK_PAUSE;
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use crate::compaction::{Choice, Merge, Situation};
use crate::io::JobKind;
use crate::mutation::TableId;

/// A large compaction has at least this many times the bytes of a small one.
const LARGE_TO_SMALL: u64 = 4;

/// The two tasks that compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    All,
    /// Only small ones, and only beside a large one.
    Small,
}

/// A compaction that may begin.
pub(super) struct Next {
    pub table: Rc<TableState>,
    pub choice: Choice,
    /// The threads for it. `None`: as its size asks for.
    pub job: Option<JobKind>,
}

/// Bytes of the keys and rows of files, before compression.
pub(super) fn raw_bytes(files: &[Rc<LiveFile>]) -> u64 {
    files.iter().map(|file| file.reader.statistics().raw_bytes).sum()
}

impl Shard {
    /// The tables that may have something to compact, ordered by id.
    pub(super) fn candidates(&self) -> Vec<Rc<TableState>> {
        let now = self.environment.clock.monotonic();
        let listed = &self.candidates;
        let tables = self.tables.borrow();
        if now >= listed.next_look_at_all.get() {
            listed.next_look_at_all.set(now + LOOK_PAUSE);
            let with_files = tables.values().filter(|table| !table.files.borrow().is_empty());
            listed.tables.borrow_mut().extend(with_files.map(|table| table.id));
        }
        let mut listed = listed.tables.borrow_mut();
        let mut found = Vec::with_capacity(listed.len());
        // A dropped table is listed no more.
        listed.retain(|id| {
            tables.get(id).is_some_and(|table| {
                found.push(Rc::clone(table));
                true
            })
        });
        found
    }

    /// The time until which a look at the candidates finds nothing new, unless a signal comes.
    pub(super) fn pause_to_next_look(&self) -> Duration {
        let now = self.environment.clock.monotonic();
        let (listed, tables) = (self.candidates.tables.borrow(), self.tables.borrow());
        let retries = listed.iter().filter_map(|id| tables.get(id)?.next_retry(now));
        let next = retries.fold(self.candidates.next_look_at_all.get(), Duration::min);
        next.saturating_sub(now)
    }

    /// The choice of the first table after `last` that has one, then of those before it: no table waits for the end of another's work.
    /// Tables that will slow writers come before all. The tables that have found no room on the disk are left out.
    pub(super) fn choose_next(
        &self,
        lane: Lane,
        last: Option<TableId>,
        without_room: &BTreeSet<TableId>,
    ) -> Option<Next> {
        let mut tables = self.candidates();
        if let Some(last) = last {
            let next = tables.partition_point(|table| table.id <= last);
            tables.rotate_left(next);
        }
        tables.sort_by_key(|table| Reverse(self.urgency(table)));
        let is_free = |table: &TableState| match lane {
            Lane::All => table.merging.borrow().is_empty(),
            Lane::Small => true,
        };
        let mut ready =
            tables.into_iter().filter(|table| is_free(table) && !without_room.contains(&table.id));
        ready.find_map(|table| {
            if !self.is_compacted(&table) {
                self.leave_out_if_settled(&table);
                return None;
            }
            let choice = self.choice_of_strategy(&table);
            if let Some(relief) = self.relief(&table, choice.as_ref()) {
                return Some(Next { table, choice: Choice::Merge(relief), job: Some(JobKind::Short) });
            }
            if choice.is_none() {
                self.leave_out_if_settled(&table);
            }
            let choice = choice?;
            let may_run = lane == Lane::All || self.is_small(&table, &choice);
            may_run.then_some(Next { table, choice, job: None })
        })
    }

    /// Looks at a table no more until something changes, unless the time of a retry will come, or its backlog is large.
    fn leave_out_if_settled(&self, table: &TableState) {
        let now = self.environment.clock.monotonic();
        if self.urgency(table).is_none() && table.next_retry(now).is_none() {
            self.candidates.remove(table.id);
        }
    }

    /// How much a table holds up writes, then how many files reads look at; `None`: it is not urgent.
    fn urgency(&self, table: &TableState) -> Option<(usize, usize)> {
        let backlog = table.backlog.get()?;
        (backlog.files >= self.options.backlog.urgent_files()).then(|| (backlog.counted(), backlog.files))
    }

    /// The part of a choice that an urgent table gets while a large compaction is under way.
    fn relief(&self, table: &TableState, choice: Option<&Choice>) -> Option<Merge> {
        if self.urgency(table).is_none() || !self.has_long_work() {
            return None;
        }
        let bytes_max = self.options.large_compaction_bytes;
        self.with_situation(table, |situation| {
            table.options.borrow().compaction.relief(choice, situation.tables, bytes_max)
        })
    }

    /// Whether what needs the threads for long work may have to wait for hours.
    pub(super) fn has_long_work(&self) -> bool {
        let is_examined = self.examination.progress.borrow().is_running;
        is_examined || self.running_compactions.has_large(self.options.large_compaction_bytes)
    }

    /// Whether a choice is small enough to run beside a large compaction, and no other compaction of the table is under way.
    fn is_small(&self, table: &TableState, choice: &Choice) -> bool {
        let files = table.files.borrow();
        let is_input = |file: &&Rc<LiveFile>| choice.inputs().contains(&file.place.generation);
        let inputs: Vec<Rc<LiveFile>> = files.iter().filter(is_input).cloned().collect();
        raw_bytes(&inputs) <= self.small_bytes() && files.iter().all(|file| !file.is_busy.get())
    }

    /// Bytes of inputs, before compression, up to which a compaction is a small one.
    pub(super) fn small_bytes(&self) -> u64 {
        self.options.large_compaction_bytes / LARGE_TO_SMALL
    }

    /// The present choice of the strategy of a table. `None` also while the table waits after a failure.
    pub(super) fn choice_of(&self, table: &TableState) -> Option<Choice> {
        if self.is_compacted(table) { self.choice_of_strategy(table) } else { None }
    }

    fn choice_of_strategy(&self, table: &TableState) -> Option<Choice> {
        self.with_situation(table, |situation| table.options.borrow().compaction.choose(&situation))
    }

    /// Whether the strategy of a table may choose compactions now.
    pub(super) fn is_compacted(&self, table: &TableState) -> bool {
        let now = self.environment.clock.monotonic();
        table.is_configured.get()
            && table.is_auto_compacted.get()
            && table.failure.borrow().as_ref().is_none_or(|failure| !failure.waits(now))
    }

    pub(super) fn with_situation<T>(&self, table: &TableState, choose: impl FnOnce(Situation<'_>) -> T) -> T {
        let clock = &self.environment.clock;
        let now_seconds = clock.now_seconds();
        let writes_once = table.options.borrow().writes_once;
        choose(Situation {
            tables: &table.summaries(now_seconds, clock.monotonic()),
            now_seconds,
            memtable_min_timestamp: table.min_memtable_timestamp(),
            flush_bytes: table.flush_bytes.get(),
            seeks_expired: false,
            writes_once,
        })
    }
}
