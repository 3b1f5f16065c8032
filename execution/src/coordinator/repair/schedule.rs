//! Repairs by themselves: each node repairs the ranges of which it is the first replica, one table after the other.
//!
//! A range is due
//! * when two fifths of its table's `gc_grace_seconds` have passed since its last repair, or since this node first saw the table without
//!   one. So it is repaired within half of them, before a deletion that a replica has missed can be purged elsewhere.
//! * when a replica is back that has missed writes for which no hints were kept: it was away for longer than the hint window, or there are
//!   no hints at all.
//!
//! Invariants:
//! * A range with a replica that is down waits until it is back: such a repair would not count.
//! * A table whose repair has failed is tried again after a pause.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::TableId;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_ring::HostId;
use helenus_ring::intervals::{intervals, union};
use helenus_ring::metadata::REPAIRS;
use helenus_ring::placement::Placement;
use helenus_ring::view::ClusterView;

use super::history::{self, RepairHistory};
use super::job;
use super::runs::{RepairScope, RunState, ScopeTokens};
use super::watched::{self, Watched};
use crate::shard::context::ShardContext;

/// How often the node looks for what is due.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Pause before a table is tried again whose repair has failed.
const RETRY_PAUSE: Duration = Duration::from_mins(10);
/// `gc_grace_seconds` of a table that has 0, for the schedule: its deletions are purged at once, and repair is for its rows.
const GRACE_OF_NONE_SECONDS: u64 = 864_000;

/// What the schedule knows, on the first shard.
#[derive(Debug, Default)]
pub struct Schedule {
    watched: RefCell<Watched>,
    /// Members that are down, with the monotonic time at which this node saw it.
    down_since: RefCell<BTreeMap<HostId, Duration>>,
    /// Members that are back and have missed writes, with the time at which they were back, in microseconds.
    returned: RefCell<BTreeMap<HostId, i64>>,
    /// Tables whose repair has failed, with the monotonic time at which they are tried again.
    retries: RefCell<BTreeMap<TableId, Duration>>,
    is_running: Cell<bool>,
}

/// When a range of a table is due after its last repair.
pub fn interval(table: &Table) -> Duration {
    let grace = match u64::from(table.options.gc_grace_seconds) {
        0 => GRACE_OF_NONE_SECONDS,
        seconds => seconds,
    };
    Duration::from_secs(grace) * 2 / 5
}

/// Starts the history, what the last run has not finished, and the schedule. Call on the first shard.
pub fn start(context: &Rc<ShardContext>) {
    let weak = Rc::downgrade(context);
    tokio::task::spawn_local(async move {
        let Some(context) = weak.upgrade() else { return };
        if let Err(error) = history::load(&context).await {
            tracing::warn!(%error, "the history of repairs cannot be read: its ranges count as never repaired");
        }
        if let Err(error) = job::go_on(&context).await {
            tracing::warn!(%error, "repairs of the last run cannot be gone on with");
        }
    });
    if context.node.config.automatic_repair {
        context.repeat(LOOK_AGAIN, look);
    }
}

/// Repairs what is due.
async fn look(context: &Rc<ShardContext>) {
    let schedule = &context.repair().schedule;
    // A repair may take longer than the pause.
    if schedule.is_running.replace(true) {
        return;
    }
    if let Err(error) = repair_due(context).await {
        tracing::warn!(%error, "the schedule of repairs cannot go on");
    }
    schedule.is_running.set(false);
}

async fn repair_due(context: &Rc<ShardContext>) -> Result<(), helenus_internode::service::Failure> {
    let schedule = &context.repair().schedule;
    watched::update(context, &schedule.watched).await?;
    note_returned(context);
    let view = context.cluster();
    if view.topology.members.len() < 2 || view.topology.feature_level < REPAIRS {
        return Ok(());
    }
    history::forget_dropped(context).await?;
    let catalog = context.catalog();
    for (name, keyspace) in &catalog.keyspaces {
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            let view = context.cluster();
            let id = table.engine_id();
            let waits = schedule.retries.borrow().get(&id).is_some_and(|at| *at > context.clock.monotonic());
            let Some(placement) = view.placement(name).filter(|_| view.topology.is_settled() && !waits)
            else {
                continue;
            };
            let due = due(context, &view, placement, table);
            if due.is_empty() || *context.node.stopping.borrow() {
                continue;
            }
            let scope = RepairScope {
                keyspace: Some(name.clone()),
                tables: vec![table.name.clone()],
                tokens: ScopeTokens::PrimaryOfThisNode,
                ..RepairScope::default()
            };
            let report = job::repair_due(context, scope, table, due).await;
            if report.state == RunState::Done {
                schedule.retries.borrow_mut().remove(&id);
            } else {
                schedule.retries.borrow_mut().insert(id, context.clock.monotonic() + RETRY_PAUSE);
            }
        }
        // There may be 10,000 tables.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Notes members that are back after they have missed writes.
fn note_returned(context: &ShardContext) {
    let schedule = &context.repair().schedule;
    let (view, config) = (context.cluster_view(), &context.node.config);
    let (now, now_micros) = (context.clock.monotonic(), context.clock.now_micros());
    let window = Duration::from_millis(config.max_hint_window_ms);
    let mut down_since = schedule.down_since.borrow_mut();
    let mut returned = schedule.returned.borrow_mut();
    down_since.retain(|host_id, _| view.topology.member(host_id).is_some());
    returned.retain(|host_id, _| view.topology.member(host_id).is_some());
    for host_id in view.topology.members.keys() {
        if !view.is_alive(host_id) {
            down_since.entry(*host_id).or_insert(now);
        } else if let Some(since) = down_since.remove(host_id) {
            if !config.hinted_handoff_enabled || now.saturating_sub(since) >= window {
                returned.insert(*host_id, now_micros);
            }
        }
    }
    // This node itself, after a start.
    if let Some(away) = schedule.watched.borrow_mut().take_away() {
        if !config.hinted_handoff_enabled || away >= window {
            returned.insert(context.node.host_id, now_micros);
        }
    }
}

/// The tokens of a table that are due and can be repaired now.
fn due(
    context: &ShardContext,
    view: &ClusterView,
    placement: &Placement,
    table: &Table,
) -> Vec<RangeInclusive<i64>> {
    let schedule = &context.repair().schedule;
    let returned = schedule.returned.borrow();
    let own = context.node.host_id;
    let mut primary = Vec::new();
    let mut of_returned: BTreeMap<HostId, Vec<_>> = BTreeMap::new();
    for (range, replicas) in placement.ranges() {
        let is_primary = replicas.read.first().is_some_and(|first| first.host_id == own);
        let is_complete = replicas.read.iter().all(|member| view.is_alive(&member.host_id));
        if !is_primary || !is_complete || replicas.read.len() < 2 {
            continue;
        }
        primary.push(range);
        for member in replicas.read.iter().filter(|member| returned.contains_key(&member.host_id)) {
            of_returned.entry(member.host_id).or_default().push(range);
        }
    }
    if primary.is_empty() {
        return Vec::new();
    }
    let segments = RepairHistory::of(&context.node).segments(table.engine_id());
    let interval_micros = interval(table).as_micros() as i64;
    let now_micros = context.clock.now_micros();
    let is_new = schedule.watched.borrow().since(table.engine_id()) > now_micros - interval_micros;
    let mut due =
        if is_new { Vec::new() } else { segments.due(&intervals(&primary), now_micros - interval_micros) };
    for (host_id, ranges) in of_returned {
        let since = returned.get(&host_id).copied().unwrap_or(i64::MIN);
        due = union(&due, &segments.due(&intervals(&ranges), since));
    }
    due
}

/// The members that the schedule waits for, because ranges of this node have a replica that is down.
pub fn waits_for(context: &ShardContext) -> BTreeSet<HostId> {
    let view = context.cluster_view();
    let down = view.topology.members.keys().filter(|host_id| !view.is_alive(host_id));
    down.copied().collect()
}
