//! Repairs by themselves: each node repairs the ranges of which it is the first replica, one table after the other.
//!
//! A range is due
//! * when two fifths of its table's `gc_grace_seconds` have passed since its last repair, or since this node first watched the table. So it is
//!   repaired within half of them, before a deletion that a replica has missed can be purged elsewhere.
//! * when a replica is back that has missed writes for which no hints were kept: it was away for longer than the hint window, or there are
//!   no hints at all.
//!
//! Invariants:
//! * A range with a replica that is down waits until it is back: such a repair would not count.
//! * A replica that was away for longer than the table's `gc_grace_seconds` may have rows whose deletions are purged everywhere else, unless
//!   they wait for repairs (`tombstone_gc`). Its ranges are not repaired by themselves, which would bring the rows back: an operator decides.
//! * A table whose repair has failed is tried again after a pause.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_observe::RepairRanges;
use helenus_query::schema::catalog::{Keyspace, Table, TableKind};
use helenus_query::schema::options::TombstoneGcMode;
use helenus_ring::HostId;
use helenus_ring::intervals::{difference, intervals, union};
use helenus_ring::metadata::REPAIRS;
use helenus_ring::view::ClusterView;

use super::history::{self, RepairHistory};
use super::runs::{RepairScope, RunState};
use super::watched::{self, Watched};
use super::{job, purging};
use crate::shard::context::ShardContext;
use crate::shard::status_table::ServingState;

/// How often the node looks for what is due.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// After that time from its start a node knows who is down. Those may have been so for long.
const START_PERIOD: Duration = Duration::from_secs(30);
/// Pause before a table is tried again whose repair has failed.
const RETRY_PAUSE: Duration = Duration::from_mins(10);
/// `gc_grace_seconds` of a table that has 0, for the schedule: its deletions are purged at once, and repair is for its rows.
const GRACE_OF_NONE_SECONDS: u64 = 864_000;
/// A table is not repaired more often.
const INTERVAL_MIN: Duration = Duration::from_secs(30);
/// Tables that are looked at in one turn.
pub const TABLES_OF_TURN: usize = 64;

/// A member that was away and has missed writes.
#[derive(Debug, Clone, Copy)]
struct Returned {
    /// Microseconds since the epoch.
    at_micros: i64,
    away: Duration,
}

/// What the schedule knows, on the first shard.
#[derive(Debug, Default)]
pub struct Schedule {
    watched: RefCell<Watched>,
    /// Members that are down, with the monotonic time since which they are.
    down_since: RefCell<BTreeMap<HostId, Duration>>,
    returned: RefCell<BTreeMap<HostId, Returned>>,
    /// Tables whose repair has failed, with the monotonic time at which they are tried again.
    retries: RefCell<BTreeMap<TableId, Duration>>,
    has_looked: Cell<bool>,
    /// Monotonic time at which the node is not new any more; `None`: it is not.
    is_new_until: Cell<Option<Duration>>,
}

/// When a range of a table is due after its last repair.
pub fn interval(table: &Table) -> Duration {
    (grace(table) * 2 / 5).max(INTERVAL_MIN)
}

/// After how long deletions of a table may be purged, for the schedule.
pub fn grace(table: &Table) -> Duration {
    Duration::from_secs(match u64::from(table.options.gc_grace_seconds) {
        0 => GRACE_OF_NONE_SECONDS,
        seconds => seconds,
    })
}

/// Loads the history, goes on with what the last run has not finished, and starts the schedule. Call on the first shard.
pub async fn start(context: &Rc<ShardContext>) {
    history::load(context).await;
    let schedule = &context.repair().schedule;
    schedule.is_new_until.set(Some(context.clock.monotonic() + START_PERIOD));
    // A node that dies at once knows later that it was away.
    watch_or_warn(context).await;
    let weak = Rc::downgrade(context);
    tokio::task::spawn_local(async move {
        let Some(context) = weak.upgrade() else { return };
        if let Err(error) = job::go_on(&context).await {
            tracing::warn!(%error, "repairs of the last run cannot be gone on with");
        }
    });
    // Not in the same task as the repairs, which may take days.
    context.repeat(LOOK_AGAIN, watch_or_warn);
    if context.node.config.automatic_repair {
        context.repeat(LOOK_AGAIN, repair_due);
    }
}

async fn watch_or_warn(context: &Rc<ShardContext>) {
    if let Err(error) = watch(context).await {
        tracing::warn!(%error, "the schedule of repairs cannot note what it has seen");
    }
}

/// Notes tables that come and go, and until when the node was up.
async fn watch(context: &Rc<ShardContext>) -> Result<(), Failure> {
    let schedule = &context.repair().schedule;
    // First, because it makes room where the rest may find none.
    purging::tell(context).await.map_err(|error| Failure::Internal(error.to_string()))?;
    watched::update(context, &schedule.watched).await?;
    note_returned(context, &context.cluster());
    schedule.has_looked.set(true);
    history::forget_dropped(context).await
}

/// Notes who is down in the next view of the cluster: an outage may be shorter than the pause between two looks.
pub fn view_changes(context: &ShardContext, view: &ClusterView) {
    if context.index == 0 {
        note_returned(context, view);
    }
}

/// Notes members that are back after they have missed writes.
fn note_returned(context: &ShardContext, view: &ClusterView) {
    let schedule = &context.repair().schedule;
    let config = &context.node.config;
    let (now, at_micros) = (context.clock.monotonic(), context.clock.now_micros());
    let window = Duration::from_millis(config.max_hint_window_ms);
    let settings = &context.node.settings;
    let has_missed =
        |away: Duration| away >= window || !settings.has_kept_hints_since(now.saturating_sub(away));
    let mut down_since = schedule.down_since.borrow_mut();
    let mut returned = schedule.returned.borrow_mut();
    down_since.retain(|host_id, _| view.topology.member(host_id).is_some());
    returned.retain(|host_id, _| view.topology.member(host_id).is_some());
    for host_id in view.topology.members.keys() {
        if !view.is_alive(host_id) {
            down_since.entry(*host_id).or_insert(now);
        } else if let Some(since) = down_since.remove(host_id) {
            let away = now.saturating_sub(since);
            if has_missed(away) {
                tracing::info!(member = %host_id, ?away, "a member is back that has missed writes: its ranges are repaired");
                returned.insert(*host_id, Returned { at_micros, away });
            }
        }
    }
    if schedule.is_new_until.get().is_some_and(|until| now >= until) {
        schedule.is_new_until.set(None);
        down_since.values_mut().for_each(|since| *since = now.saturating_sub(window));
    }
    // This node itself, after a start.
    if let Some(away) = schedule.watched.borrow_mut().take_away().filter(|away| has_missed(*away)) {
        tracing::info!(?away, "this node is back and has missed writes: its ranges are repaired");
        returned.insert(context.node.host_id, Returned { at_micros, away });
    }
}

/// Repairs what is due.
async fn repair_due(context: &Rc<ShardContext>) {
    let schedule = &context.repair().schedule;
    if !schedule.has_looked.get() {
        return;
    }
    let keyspaces: Vec<String> = context.catalog().keyspaces.keys().cloned().collect();
    for name in keyspaces {
        let mut ranges: Option<PrimaryRanges> = None;
        let Some(keyspace) = context.catalog().keyspace(&name).cloned() else { continue };
        let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
        for (count, table) in stored.enumerate() {
            // There may be 10,000 tables.
            if count % TABLES_OF_TURN == TABLES_OF_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let view = context.cluster();
            let is_ready = view.topology.members.len() > 1 && view.topology.feature_level >= REPAIRS;
            // A node that leaves, or is drained, begins nothing any more.
            if !is_ready || context.node.status.state() > ServingState::Serving {
                return;
            }
            let id = table.engine_id();
            if schedule.retries.borrow().get(&id).is_some_and(|at| *at > context.clock.monotonic()) {
                continue;
            }
            let ranges = match &mut ranges {
                Some(known) if Arc::ptr_eq(&known.view, &view) => known,
                other => other.insert(PrimaryRanges::new(context, view, &name)),
            };
            let due = due(context, ranges, table);
            if due.is_empty() || context.catalog_view().table(id).is_none() {
                continue;
            }
            let scope = RepairScope {
                keyspace: Some(name.clone()),
                tables: vec![table.name.clone()],
                ranges: RepairRanges::PrimaryOfNode,
                ..RepairScope::default()
            };
            let report = job::repair_due(context, scope, table, due).await;
            if report.state == RunState::Done {
                schedule.retries.borrow_mut().remove(&id);
            } else {
                schedule.retries.borrow_mut().insert(id, context.clock.monotonic() + RETRY_PAUSE);
            }
        }
    }
}

/// The ranges of a keyspace of which this node is the first replica, and that can be repaired now.
struct PrimaryRanges {
    view: Arc<ClusterView>,
    /// Replicas of a row.
    replica_count: u32,
    tokens: Vec<RangeInclusive<i64>>,
    /// Those of members that have missed writes.
    of_returned: Vec<(Returned, Vec<RangeInclusive<i64>>)>,
}

impl PrimaryRanges {
    fn new(context: &ShardContext, view: Arc<ClusterView>, keyspace: &str) -> Self {
        let returned = context.repair().schedule.returned.borrow();
        let own = context.node.host_id;
        let mut primary = Vec::new();
        let mut of_returned: BTreeMap<HostId, Vec<_>> = BTreeMap::new();
        let ranges = view.placement(keyspace).into_iter().flat_map(|placement| placement.ranges());
        for (range, replicas) in ranges {
            let is_primary = replicas.read.first().is_some_and(|first| first.host_id == own);
            let is_complete = replicas.read.iter().all(|member| view.is_alive(&member.host_id));
            let is_moving = !replicas.pending.is_empty() || replicas.other.is_some();
            if !is_primary || !is_complete || is_moving || replicas.read.len() < 2 {
                continue;
            }
            primary.push(range);
            for member in replicas.read.iter().filter(|member| returned.contains_key(&member.host_id)) {
                of_returned.entry(member.host_id).or_default().push(range);
            }
        }
        let of_returned = of_returned
            .into_iter()
            .filter_map(|(host_id, ranges)| Some((*returned.get(&host_id)?, intervals(&ranges))))
            .collect();
        let replica_count =
            view.placement(keyspace).map_or(1, |placement| placement.replication().replica_count());
        Self { tokens: intervals(&primary), replica_count, of_returned, view }
    }
}

/// Whether no replica purges a deletion before all have it.
fn deletions_wait(table: &Table, replica_count: u32) -> bool {
    let mode = table.options.tombstone_gc(replica_count).mode;
    matches!(mode, TombstoneGcMode::Repair | TombstoneGcMode::Disabled)
}

/// The tokens of a table that are due.
fn due(context: &ShardContext, ranges: &PrimaryRanges, table: &Table) -> Vec<RangeInclusive<i64>> {
    if ranges.tokens.is_empty() {
        return Vec::new();
    }
    let interval_micros = interval(table).as_micros() as i64;
    let before_micros = context.clock.now_micros() - interval_micros;
    let is_new = watched_since(context, table) > before_micros;
    RepairHistory::of(&context.node).with(table.engine_id(), |segments| {
        let mut due = if is_new { Vec::new() } else { segments.due(&ranges.tokens, before_micros) };
        let mut not_by_itself = Vec::new();
        for (returned, tokens) in &ranges.of_returned {
            let missed = segments.due(tokens, returned.at_micros);
            if returned.away >= grace(table) && !deletions_wait(table, ranges.replica_count) {
                not_by_itself = union(&not_by_itself, &missed);
            } else {
                due = union(&due, &missed);
            }
        }
        difference(&due, &not_by_itself)
    })
}

/// Since when the node has watched a table, in microseconds; a table that it has not seen yet is new.
fn watched_since(context: &ShardContext, table: &Table) -> i64 {
    let watched = context.repair().schedule.watched.borrow();
    watched.since(table.engine_id(), interval(table).as_micros() as i64)
}

/// Since when ranges without a repair have waited for one, in microseconds: since the node has watched their table, or since it last gained
/// ranges.
pub fn unrepaired_since(context: &ShardContext, table: &Table) -> i64 {
    watched_since(context, table).max(context.repair().schedule.watched.borrow().ring_since())
}

/// The members that are down: the ranges that they share with this node are not repaired.
pub fn waits_for(context: &ShardContext) -> BTreeSet<HostId> {
    let view = context.cluster_view();
    let down = view.topology.members.keys().filter(|host_id| !view.is_alive(host_id));
    down.copied().collect()
}

/// The members that were away for longer than the shortest `gc_grace_seconds` of any table whose deletions do not wait for repairs: their
/// ranges of such tables are repaired only by command.
pub fn away_too_long(context: &ShardContext) -> Vec<HostId> {
    let catalog = context.catalog();
    let of_keyspace = |keyspace: &Arc<Keyspace>| {
        let replica_count = keyspace.replication.replica_count();
        let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
        stored.filter(|table| !deletions_wait(table, replica_count)).map(|table| grace(table)).min()
    };
    let Some(shortest) = catalog.keyspaces.values().filter_map(of_keyspace).min() else { return Vec::new() };
    let returned = context.repair().schedule.returned.borrow();
    returned.iter().filter(|(_, member)| member.away >= shortest).map(|(host_id, _)| *host_id).collect()
}
