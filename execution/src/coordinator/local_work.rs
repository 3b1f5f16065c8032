//! What a shard has read and written of its own rows, by table: how long it took, and what it met.
//!
//! A read that lacks blocks of the disk is done again when they are there: only the last attempt counts. So the durations are those of
//! the work, without what it waits for.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hashbrown::HashMap;
use helenus_engine::key::KeyRef;
use helenus_engine::{MutationRef, TableId, key};
use helenus_observe::metrics::{CountHistogram, CountSnapshot, Timings, TimingsSnapshot};

use crate::coordinator::top_partitions::{Figures, Period, ReadFigures, TopPartitions, WINDOW, Warning};
use crate::shard::context::ShardContext;
use crate::shard::partition_names::PartitionNames;

/// Most tables of a shard whose partitions are compared. Others get a place when the requests of one of these are hours ago.
const COMPARED_TABLES_MAX: usize = 256;

/// A kind of work on rows of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalKind {
    /// A read within one partition.
    Read,
    /// A read of a wider range.
    Scan,
    Write,
}

impl LocalKind {
    /// Of a read of a range of full keys.
    pub fn of_range(start: &[u8], end: &[u8]) -> Self {
        let prefix = key::prefix_length(start).and_then(|length| start.get(..length));
        if prefix.is_some_and(|prefix| end.starts_with(prefix)) { Self::Read } else { Self::Scan }
    }
}

/// The work of a shard on a table.
#[derive(Debug, Default)]
struct OfTable {
    /// In the order of [`LocalKind`].
    timings: [Timings; 3],
    rows: CountHistogram,
    tombstones: CountHistogram,
    /// `None`: no place was free.
    top: RefCell<Option<Box<TopPartitions>>>,
}

/// What is counted of each read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetByReads {
    Rows,
    /// The deletions that were met.
    Tombstones,
}

/// The work of a shard since its start.
#[derive(Debug, Default)]
pub struct LocalWork {
    tables: RefCell<HashMap<TableId, Box<OfTable>>>,
    /// Tables whose partitions are compared.
    compared: Cell<usize>,
}

impl LocalWork {
    /// Records a read of a range of full keys, which began at `started` (monotonic time). `met`: rows and deletions.
    #[inline]
    pub fn note_read(
        context: &ShardContext,
        table: TableId,
        (start, end): (&[u8], &[u8]),
        started: Duration,
        (rows, tombstones): (u64, u64),
    ) {
        let kind = LocalKind::of_range(start, end);
        Self::note(context, table, kind, started, |known, now, time_us| {
            known.rows.record(rows);
            known.tombstones.record(tombstones);
            if kind == LocalKind::Read
                && let Some(top) = known.top.borrow_mut().as_mut()
                && let Some(warning) = top.note_read(now, start, ReadFigures { rows, tombstones, time_us })
                && let Ok(read) = KeyRef::parse(start)
            {
                warn(context, table, warning, "reads", read.partition_key);
            }
        });
    }

    /// Records a write that began at `started` (monotonic time).
    #[inline]
    pub fn note_write(context: &ShardContext, write: &MutationRef<'_>, started: Duration) {
        Self::note(context, write.table, LocalKind::Write, started, |known, now, _| {
            let (key, bytes) = (write.partition_key, write.own_bytes() as u64);
            if let Some(top) = known.top.borrow_mut().as_mut()
                && let Some(warning) = top.note_write(now, write.token, key, bytes)
            {
                warn(context, write.table, warning, "writes", key);
            }
        });
    }

    /// `more` gets the present time (monotonic), and the duration in microseconds.
    fn note(
        context: &ShardContext,
        table: TableId,
        kind: LocalKind,
        started: Duration,
        more: impl FnOnce(&OfTable, Duration, u64),
    ) {
        let now = context.clock.monotonic();
        let duration_us = u64::try_from(now.saturating_sub(started).as_micros()).unwrap_or(u64::MAX);
        let record = |known: &OfTable| {
            known.timings[kind as usize].record(duration_us, now);
            more(known, now, duration_us);
        };
        let work = context.layers.get::<Self>();
        let mut tables = work.tables.borrow_mut();
        if let Some(known) = tables.get(&table) {
            return record(known);
        }
        work.forget_dropped(context, &mut tables);
        let known = tables.entry(table).or_default();
        work.compare(context, known, now);
        record(known);
    }

    /// Compares the partitions of a table from now on, if there is a place.
    fn compare(&self, context: &ShardContext, known: &OfTable, now: Duration) {
        let mut top = known.top.borrow_mut();
        if top.is_none() && self.compared.get() < COMPARED_TABLES_MAX {
            let config = &context.node.config;
            let new = TopPartitions::new(now, config.hot_partition_warn_requests_per_second);
            *top = Some(Box::new(new.warning_of_tombstones(config.tombstone_warn_threshold)));
            self.compared.set(self.compared.get() + 1);
        }
    }

    /// How long work of this kind has taken this shard, by table.
    pub fn timings(context: &ShardContext, kind: LocalKind) -> Vec<(TableId, TimingsSnapshot)> {
        let now = context.clock.monotonic();
        Self::of_tables(context, |known| known.timings[kind as usize].snapshot(now))
    }

    /// What the reads of this shard have met, by table.
    pub fn met(context: &ShardContext, what: MetByReads) -> Vec<(TableId, CountSnapshot)> {
        Self::of_tables(context, |known| match what {
            MetByReads::Rows => known.rows.snapshot(),
            MetByReads::Tombstones => known.tombstones.snapshot(),
        })
    }

    /// The partitions that were asked for most, and those with the heaviest requests, by table.
    pub fn top_partitions(context: &ShardContext, period: Period) -> Vec<(TableId, Figures)> {
        let now = context.clock.monotonic();
        let figures = Self::of_tables(context, |known| {
            known.top.borrow_mut().as_mut().map(|top| top.figures(period, now))
        });
        figures.into_iter().filter_map(|(id, figures)| Some((id, figures?))).collect()
    }

    fn of_tables<T>(context: &ShardContext, snapshot: impl Fn(&OfTable) -> T) -> Vec<(TableId, T)> {
        let work = context.layers.get::<Self>();
        let mut tables = work.tables.borrow_mut();
        work.forget_dropped(context, &mut tables);
        work.give_places(context, &tables);
        tables.iter().map(|(id, known)| (*id, snapshot(known))).collect()
    }

    /// Forgets tables that do not exist any more.
    #[cold]
    fn forget_dropped(&self, context: &ShardContext, tables: &mut HashMap<TableId, Box<OfTable>>) {
        let view = context.catalog_view();
        tables.retain(|id, _| view.table(*id).is_some());
        self.compared.set(tables.values().filter(|known| known.top.borrow().is_some()).count());
    }

    /// Takes the places of tables that were not asked for hours, and gives them to others.
    fn give_places(&self, context: &ShardContext, tables: &HashMap<TableId, Box<OfTable>>) {
        let now = context.clock.monotonic();
        for known in tables.values() {
            let mut top = known.top.borrow_mut();
            if top.as_ref().is_some_and(|top| top.is_over(now)) {
                *top = None;
                self.compared.set(self.compared.get() - 1);
            }
        }
        for known in tables.values() {
            self.compare(context, known, now);
        }
    }
}

/// Warns that a partition has more requests than is good for the one shard that has it, or that a read of it has passed too many deletions.
/// `what`: the requests.
#[cold]
fn warn(context: &ShardContext, table: TableId, warning: Warning, what: &str, partition_key: &[u8]) {
    let view = context.catalog_view();
    let Some(table) = view.table(table) else { return };
    let config = &context.node.config;
    let message = match warning {
        Warning::Hot => format!(
            "a partition has more {what} than {} a second (hot_partition_warn_requests_per_second), over {} minutes",
            config.hot_partition_warn_requests_per_second,
            WINDOW.as_secs() / 60
        ),
        Warning::Tombstones(tombstones) => format!(
            "a read of a partition has passed {tombstones} tombstones, more than {} (tombstone_warn_threshold)",
            config.tombstone_warn_threshold
        ),
    };
    let partition_key = PartitionNames::of(table).text_of(partition_key);
    tracing::warn!(keyspace = %table.keyspace, table = %table.name, %partition_key, "{message}");
}
