//! What a shard has read and written of its own rows, by table: how long it took, and what it met.
//!
//! A read that lacks blocks of the disk is done again when they are there: only the last attempt counts. So the durations are those of
//! the work, without what it waits for.

use std::cell::RefCell;
use std::time::Duration;

use hashbrown::HashMap;
use helenus_engine::{TableId, key};
use helenus_observe::metrics::{CountHistogram, CountSnapshot, Timings, TimingsSnapshot};

use crate::shard::context::ShardContext;

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
pub struct LocalWork(RefCell<HashMap<TableId, Box<OfTable>>>);

impl LocalWork {
    /// Records a read that began at `started` (monotonic time).
    #[inline]
    pub fn note_read(
        context: &ShardContext,
        table: TableId,
        kind: LocalKind,
        started: Duration,
        (rows, tombstones): (u64, u64),
    ) {
        Self::note(context, table, kind, started, |known| {
            known.rows.record(rows);
            known.tombstones.record(tombstones);
        });
    }

    /// Records a write that began at `started` (monotonic time).
    #[inline]
    pub fn note_write(context: &ShardContext, table: TableId, started: Duration) {
        Self::note(context, table, LocalKind::Write, started, |_| {});
    }

    fn note(
        context: &ShardContext,
        table: TableId,
        kind: LocalKind,
        started: Duration,
        more: impl FnOnce(&OfTable),
    ) {
        let now = context.clock.monotonic();
        let duration_us = u64::try_from(now.saturating_sub(started).as_micros()).unwrap_or(u64::MAX);
        let record = |known: &OfTable| {
            known.timings[kind as usize].record(duration_us, now);
            more(known);
        };
        let mut tables = context.layers.get::<Self>().0.borrow_mut();
        if let Some(known) = tables.get(&table) {
            return record(known);
        }
        forget_dropped(context, &mut tables);
        record(tables.entry(table).or_default());
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

    /// Forgets tables that do not exist any more.
    fn of_tables<T>(context: &ShardContext, snapshot: impl Fn(&OfTable) -> T) -> Vec<(TableId, T)> {
        let mut tables = context.layers.get::<Self>().0.borrow_mut();
        forget_dropped(context, &mut tables);
        tables.iter().map(|(id, known)| (*id, snapshot(known))).collect()
    }
}

#[cold]
fn forget_dropped(context: &ShardContext, tables: &mut HashMap<TableId, Box<OfTable>>) {
    let view = context.catalog_view();
    tables.retain(|id, _| view.table(*id).is_some());
}
