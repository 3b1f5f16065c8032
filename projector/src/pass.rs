//! A pass over the log of a followed table in a slice: everything that it names is recomputed.
//!
//! Entries may come late, as long as a write may take after its time. So a *whole* pass reads again what is younger than
//! [`LATE_MICROS`], and leaves out what it has seen; other passes go on shortly before the begin of the last one, and now and then a bit further
//! back. A node alone knows the oldest entry that has arrived since its last pass ([`Arrived`]), and begins there: each of its passes has all that had arrived,
//! and an entry is never seen before its write.
//!
//! An entry may also be seen before its write is at a quorum of replicas: a single one has both then, the read of the log asks it, and the read of
//! the base table does not. So an entry is *settled* when it was carried out [`UNDER_WAY_MICROS`] after its time. Until then it is carried out again: once
//! when it is that old, and in each pass that somebody waits for. After such a pass, all that was acknowledged before its begin is in the views.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use cql_lite::types::timeuuid;
use helenus_change_feed::bounds::Bound;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Column;
use helenus_views::computation::Values;

use crate::arrived::Arrived;
use crate::changes::{self, Changed, Entry, Generations, Window};
use crate::live_view::LiveView;
use crate::recompute::recompute;
use crate::state::{Followed, SliceState, UNITS_TOGETHER_MAX, ViewsState};
use crate::timers;
use crate::unit::{components, stored_unit};

/// An entry is not later than this behind its time: longer than a write may take, and half a second for timestamps of clients.
pub const LATE_MICROS: i64 = 10_000_000;
/// The write of an entry is acknowledged until then behind the entry's time, or never: a transaction may have begun five seconds before its commit.
const UNDER_WAY_MICROS: i64 = 8_000_000;
/// Entries may be this far ahead of the clock.
const AHEAD_MICROS: i64 = 1_000_000;
/// A pass that is not whole begins so long before the begin of the last one …
const OVERLAP_MICROS: i64 = 30_000;
/// … and so often it begins so long before the begin of the last one of its kind.
const WIDE_PERIOD_MICROS: i64 = 100_000;
const WIDE_OVERLAP_MICROS: i64 = 300_000;
/// Most units that are collected before they are recomputed.
const UNITS_MAX: usize = 2_000;
/// Most entries of which it is remembered that they were seen. Above it they are read again, which costs time and changes nothing.
const SEEN_MAX: usize = 500_000;
/// From this number of remembered entries on, whole passes run less often: each reads all of them again.
const SEEN_MANY: usize = 20_000;
/// It is not worth to look through fewer.
const SEEN_LOOKED_THROUGH_MIN: usize = 1_000;
/// Fewer units are recomputed together when it took longer.
const LONG: Duration = Duration::from_secs(1);

/// How far the log of a followed table was read in a slice, by this holder.
#[derive(Debug)]
pub struct Progress {
    /// Everything before this time was read, and nothing comes there any more.
    pub checkpoint_micros: i64,
    /// When the last pass, the last one with a wide overlap, and the last whole one have begun.
    last_begun_micros: i64,
    last_wide_micros: i64,
    pub last_whole_micros: i64,
    /// Whether everything had arrived on this node in the last pass.
    had_all: bool,
    /// What was acknowledged before this time was carried out.
    pub fresh_micros: i64,
    /// When the last entry was seen that had not been seen before.
    pub last_new_micros: i64,
    /// What had expired up to this second was recomputed.
    expired_seconds: i64,
    seen: HashMap<u64, Seen>,
    /// How many were left when it was looked for those that are too old.
    seen_after_last_look: usize,
}

/// An entry that was carried out.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Its time.
    micros: i64,
    /// When the pass began in which it was carried out the last time.
    last_micros: i64,
}

/// Which entries a pass carries out. On a node alone, all passes carry out what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those since the begin of the last pass that were not seen.
    New,
    /// Also those that have come late, and those that are old enough to be settled.
    Whole,
    /// Also those that are not settled and may be acknowledged by now.
    Awaited,
}

impl Progress {
    pub fn from(checkpoint_micros: i64) -> Self {
        Self {
            checkpoint_micros,
            last_begun_micros: i64::MIN,
            last_wide_micros: i64::MIN,
            last_whole_micros: i64::MIN,
            had_all: false,
            fresh_micros: i64::MIN,
            last_new_micros: i64::MIN,
            expired_seconds: checkpoint_micros.div_euclid(1_000_000).saturating_sub(1),
            seen: HashMap::new(),
            seen_after_last_look: SEEN_LOOKED_THROUGH_MIN,
        }
    }

    /// Whether a whole pass reads many entries again.
    pub fn has_seen_many(&self) -> bool {
        self.seen.len() >= SEEN_MANY
    }

    /// Reads the log, and recomputes what it names. `arrived`: what has arrived on this node since the last pass.
    pub async fn pass(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        followed: &Followed,
        reach: Reach,
        arrived: Arrived,
    ) -> Result<()> {
        let begun_micros = context.clock.now_micros();
        let Arrived { looked_micros, oldest_micros, is_all } = arrived;
        let is_first_of_kind = self.last_begun_micros == i64::MIN || is_all && !self.had_all;
        let is_wanted_whole = reach == Reach::Whole || reach == Reach::Awaited && !is_all;
        let is_whole = is_wanted_whole && !context.has_bug(PlantedBug::SkipLateEntries) || is_first_of_kind;
        // What has waited for long before it was written is behind the checkpoint.
        let oldest_micros = oldest_micros
            .filter(|_| is_all)
            .map(|micros| if micros == i64::MIN { self.checkpoint_micros } else { micros });
        let from_micros = if is_whole {
            Some(oldest_micros.map_or(self.checkpoint_micros, |micros| micros.min(self.checkpoint_micros)))
        } else if is_all {
            oldest_micros
        } else {
            Some(self.behind_last(begun_micros).max(self.checkpoint_micros))
        };
        let window = from_micros.map(|from_micros| Window {
            from_micros,
            until_micros: begun_micros.saturating_add(AHEAD_MICROS),
        });
        let generations = if is_whole || is_all { Generations::All } else { Generations::Active };
        // The time of the oldest entry that was seen before, is not settled, and is not carried out now.
        let mut oldest_open_micros = i64::MAX;
        let each = async |entries: Vec<Entry>| {
            context.metrics.view_entries_read.add(entries.len() as u64);
            let is_new = |entry: &&Entry| !self.seen.contains_key(&number_of(entry));
            let new: Vec<&Entry> = entries.iter().filter(is_new).collect();
            let open = entries.iter().filter(|entry| !is_all && self.is_open(context, entry));
            let is_due = |entry: &&Entry| match reach {
                Reach::New => false,
                Reach::Whole => begun_micros >= over_micros(entry),
                Reach::Awaited => true,
            };
            let (due, left): (Vec<&Entry>, Vec<&Entry>) = open.partition(is_due);
            let left = left.into_iter().map(|entry| timeuuid::unix_micros(&entry.time));
            oldest_open_micros = left.min().unwrap_or(i64::MAX).min(oldest_open_micros);
            let concerned: Vec<&Entry> = new.iter().copied().chain(due).collect();
            if concerned.is_empty() {
                return Ok(());
            }
            if !new.is_empty() {
                let timers = &ViewsState::of(context).timers;
                timers::set(context, timers, &followed.table, slice.lease.slice, &new).await?;
                self.last_new_micros = begun_micros;
            }
            let changed: Vec<&Changed> = concerned.iter().map(|entry| &entry.changed).collect();
            carry_out(context, slice, followed, &changed).await?;
            if self.seen.len() < SEEN_MAX {
                self.seen.extend(concerned.into_iter().map(|entry| {
                    let micros = timeuuid::unix_micros(&entry.time);
                    (number_of(entry), Seen { micros, last_micros: begun_micros })
                }));
            }
            Ok(())
        };
        if let Some(window) = window {
            followed.reader.read(context, slice.lease.slice, window, generations, each).await?;
        }
        self.expire(context, slice, followed).await?;
        self.last_begun_micros = begun_micros;
        self.had_all = is_all;
        if !is_whole && is_all {
            // A write that was acknowledged since then belongs to the next pass.
            self.fresh_micros = self.fresh_micros.max(looked_micros);
        }
        if is_whole {
            self.fresh_micros = begun_micros.min(oldest_open_micros);
            self.last_whole_micros = begun_micros;
            self.last_wide_micros = begun_micros;
            let checkpoint = begun_micros.saturating_sub(LATE_MICROS);
            if checkpoint > self.checkpoint_micros {
                self.checkpoint_micros = checkpoint;
                // What is older is not read any more.
                if self.seen.len() > 2 * self.seen_after_last_look {
                    self.seen.retain(|_, seen| seen.micros >= checkpoint);
                    self.seen_after_last_look = self.seen.len().max(SEEN_LOOKED_THROUGH_MIN);
                }
            }
        }
        Ok(())
    }

    /// Where a pass that is not whole begins.
    fn behind_last(&mut self, begun_micros: i64) -> i64 {
        if begun_micros.saturating_sub(self.last_wide_micros) < WIDE_PERIOD_MICROS {
            return self.last_begun_micros.saturating_sub(OVERLAP_MICROS);
        }
        let last_micros = std::mem::replace(&mut self.last_wide_micros, begun_micros);
        last_micros.saturating_sub(WIDE_OVERLAP_MICROS)
    }

    /// Whether an entry was seen and is not settled.
    fn is_open(&self, context: &ShardContext, entry: &Entry) -> bool {
        self.seen.get(&number_of(entry)).is_some_and(|seen| seen.last_micros < over_micros(entry))
            && !context.has_bug(PlantedBug::TrustFirstLook)
    }

    /// Recomputes what has expired since the last time.
    async fn expire(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        followed: &Followed,
    ) -> Result<()> {
        let now_seconds = i64::from(context.now_seconds());
        let seconds = (self.expired_seconds.saturating_add(1), now_seconds);
        if seconds.0 > seconds.1 {
            return Ok(());
        }
        let timers = &ViewsState::of(context).timers;
        let each = async |due: Vec<Changed>| {
            carry_out(context, slice, followed, &due.iter().collect::<Vec<_>>()).await
        };
        timers::due(context, timers, &followed.table, slice.lease.slice, seconds, each).await?;
        self.expired_seconds = now_seconds;
        Ok(())
    }
}

/// When the write of an entry is acknowledged, if it ever is.
fn over_micros(entry: &Entry) -> i64 {
    timeuuid::unix_micros(&entry.time).saturating_add(UNDER_WAY_MICROS)
}

/// A number that tells entries from each other.
fn number_of(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    entry.time.hash(&mut hasher);
    entry.ttl_seconds.hash(&mut hasher);
    entry.changed.hash(&mut hasher);
    hasher.finish()
}

/// Recomputes what changes concern, and tells the base tables of views that look up rows here.
async fn carry_out(
    context: &Rc<ShardContext>,
    slice: &SliceState,
    followed: &Followed,
    changes: &[&Changed],
) -> Result<()> {
    for view in &followed.views {
        let mut units = BTreeSet::new();
        for changed in changes {
            take_units(context, view, changed, &mut units, slice).await?;
            if units.len() >= UNITS_MAX {
                recompute_all(context, view, std::mem::take(&mut units), slice).await?;
            }
        }
        recompute_all(context, view, units, slice).await?;
    }
    for view in &followed.joined_in {
        for changed in changes {
            touch_lookups(context, view, followed, changed).await?;
        }
    }
    Ok(())
}

/// Recomputes units, some of them together: fewer where that takes long, so that the lease is prolonged in time, or has failed, so that one unit does not
/// hold up those before it.
pub async fn recompute_all(
    context: &Rc<ShardContext>,
    view: &LiveView,
    units: BTreeSet<Values>,
    slice: &SliceState,
) -> Result<()> {
    let mut units = units.into_iter().peekable();
    while units.peek().is_some() {
        let (together, begun) = (slice.together.get(), context.clock.monotonic());
        let outcome = recompute(context, view, units.by_ref().take(together).collect(), slice).await;
        let is_slow = context.clock.monotonic().saturating_sub(begun) > LONG;
        slice.together.set(match outcome {
            Err(_) => 1,
            Ok(()) if is_slow => (together / 2).max(1),
            Ok(()) => (together * 2).min(UNITS_TOGETHER_MAX),
        });
        outcome?;
        if !slice.lease.is_long(context) {
            slice.lease.keep(context, &ViewsState::of(context).leases, true).await?;
        }
    }
    Ok(())
}

/// Takes the units that a change concerns. Where rows were deleted together, these are those that may have rows in the view, some of which are
/// recomputed here if they are many.
async fn take_units(
    context: &Rc<ShardContext>,
    view: &LiveView,
    changed: &Changed,
    units: &mut BTreeSet<Values>,
    slice: &SliceState,
) -> Result<()> {
    let definition = &view.computation.definition;
    let base = &definition.base;
    let partition_key = components(changed.key(), base.partition_key_count)?;
    let bounds = match changed {
        // Views have no static columns.
        Changed::Static { .. } => return Ok(()),
        Changed::Row { clustering, .. } => {
            let unit = partition_key.iter().chain(clustering).take(definition.unit_columns);
            units.insert(unit.cloned().collect());
            return Ok(());
        }
        Changed::Range { start, end, .. } => {
            let first = |bound: &Bound| bound.clustering.first().cloned();
            let is_descending = base.clustering_key().first().is_some_and(Column::is_descending);
            if is_descending { (first(end), first(start)) } else { (first(start), first(end)) }
        }
        Changed::Partition { .. } => (None, None),
    };
    if definition.unit_columns == base.partition_key_count {
        units.insert(partition_key);
        return Ok(());
    }
    let mut from = None;
    loop {
        let (found, next) = view.units(context, &partition_key, &bounds, from).await?;
        units.extend(found);
        if units.len() >= UNITS_MAX {
            recompute_all(context, view, std::mem::take(units), slice).await?;
        }
        match next {
            Some(next) => from = Some(next),
            None => return Ok(()),
        }
    }
}

/// Puts the units that have looked up a changed row into the log of their base table.
async fn touch_lookups(
    context: &Rc<ShardContext>,
    view: &LiveView,
    followed: &Followed,
    changed: &Changed,
) -> Result<()> {
    let partition_key = components(changed.key(), followed.table.partition_key_count)?;
    let clustering = match changed {
        Changed::Row { clustering, .. } => Some(clustering),
        Changed::Static { .. } | Changed::Range { .. } | Changed::Partition { .. } => None,
    };
    let base = view.base();
    let log = {
        let view = context.catalog_view();
        view.catalog.keyspace(&base.keyspace).and_then(|keyspace| keyspace.view_log(&base.name)).cloned()
    };
    let Some(log) = log else {
        // The catalog has changed since the turn began. Otherwise the units would be left as they are.
        return Err(RequestError::Server(format!("the log of changes of {} is gone", base.full_name())));
    };
    let mut from = None;
    loop {
        let (units, next) = view.lookups(context, &partition_key, clustering, from).await?;
        let units = units.iter().map(|unit| stored_unit(base, unit)).collect::<Result<Vec<_>>>()?;
        changes::touch(context, base, &log, &units).await?;
        match next {
            Some(next) => from = Some(next),
            None => return Ok(()),
        }
    }
}
