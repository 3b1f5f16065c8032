//! How long ago the ranges of a node's tables were repaired: for operators, and for a warning before deletions can no longer wait.
//!
//! Invariant: ranges with one replica are left out. There is nothing to repair.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_query::schema::catalog::{Table, TableKind};
use helenus_query::schema::virtual_tables::RepairedRange;
use helenus_ring::intervals::intervals;
use helenus_ring::placement::{Placement, Replicas, TokenRange};

use super::history::RepairHistory;
use super::schedule::{self, TABLES_OF_TURN};
use crate::shard::context::ShardContext;

/// How often the node looks for tables whose repair is late.
pub const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// How long ago the ranges of a table were repaired of which the node is a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairAge {
    pub keyspace: String,
    pub table: String,
    /// When the oldest of the last repairs of these ranges began, in microseconds; `None`: some were never repaired.
    pub repaired_micros: Option<i64>,
    /// How long what some range has waits for a repair: since its last one, or else since the node first saw the table, or last gained ranges.
    pub unrepaired: Duration,
    /// After how long the schedule repairs a range again.
    pub interval: Duration,
    /// After how long deletions may be purged.
    pub grace: Duration,
}

impl RepairAge {
    /// Whether an operator should look: the schedule repairs long before, unless a replica stays down or repairs fail.
    pub fn is_late(&self) -> bool {
        self.unrepaired > self.grace / 4 * 3
    }
}

/// The ranges of a keyspace of which the node is one of several replicas.
fn shared_ranges<'a>(
    context: &ShardContext,
    placement: &'a Placement,
) -> impl Iterator<Item = (TokenRange, &'a Replicas)> + use<'a> {
    let own = context.node.host_id;
    placement.ranges().filter(move |(_, replicas)| replicas.contains(&own) && replicas.read.len() > 1)
}

/// The age of each table's repairs, ordered by keyspace and table. Call on the first shard, when the schedule has been started.
pub async fn ages(context: &ShardContext) -> Vec<RepairAge> {
    let (catalog, view) = (context.catalog(), context.cluster());
    let mut ages = Vec::new();
    for (name, keyspace) in &catalog.keyspaces {
        let Some(placement) = view.placement(name) else { continue };
        let held = intervals(&shared_ranges(context, placement).map(|(range, _)| range).collect::<Vec<_>>());
        if held.is_empty() {
            continue;
        }
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            // There may be 10,000 tables.
            if ages.len() % TABLES_OF_TURN == TABLES_OF_TURN - 1 {
                tokio::task::yield_now().await;
            }
            ages.push(age(context, table, &held));
        }
    }
    ages
}

fn age(context: &ShardContext, table: &Table, held: &[RangeInclusive<i64>]) -> RepairAge {
    let (repaired_micros, known) = RepairHistory::of(&context.node)
        .with(table.engine_id(), |segments| (segments.oldest(held), segments.oldest_known(held)));
    let now_micros = context.clock.now_micros();
    // Of ranges that the node has gained nobody has told it whether they were repaired.
    let of_others = repaired_micros.is_none().then(|| schedule::unrepaired_since(context, table));
    let since_micros = known.into_iter().chain(of_others).min().unwrap_or(now_micros).min(now_micros);
    RepairAge {
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        repaired_micros,
        unrepaired: Duration::from_micros(now_micros.saturating_sub(since_micros).max(0) as u64),
        interval: schedule::interval(table),
        grace: schedule::grace(table),
    }
}

/// Counts the tables whose repair is late, and warns of them.
pub async fn look_for_late(context: &Rc<ShardContext>) {
    let late: Vec<RepairAge> = ages(context).await.into_iter().filter(RepairAge::is_late).collect();
    RepairHistory::of(&context.node).set_late_tables(late.len());
    let Some(oldest) = late.iter().max_by_key(|age| age.unrepaired) else { return };
    tracing::warn!(
        tables = late.len(), keyspace = oldest.keyspace, table = oldest.table, unrepaired = ?oldest.unrepaired, grace = ?oldest.grace,
        "ranges of tables have not been repaired for long: `helenus admin repair --status` says what they wait for"
    );
}

/// The last repair of each range of which this node is a replica, for `system_distributed.repair_history`; ranges of which a part was never
/// repaired are left out.
pub async fn repaired_ranges(context: &ShardContext) -> Vec<RepairedRange> {
    let (catalog, view) = (context.catalog(), context.cluster());
    let history = RepairHistory::of(&context.node);
    let (mut repaired, mut count) = (Vec::new(), 0_usize);
    for (name, keyspace) in &catalog.keyspaces {
        let Some(placement) = view.placement(name) else { continue };
        let held: Vec<_> = shared_ranges(context, placement).collect();
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            count += 1;
            if count % TABLES_OF_TURN == 0 {
                tokio::task::yield_now().await;
            }
            history.with(table.engine_id(), |segments| {
                repaired.extend(held.iter().filter_map(|(range, replicas)| {
                    Some(RepairedRange {
                        keyspace: name.clone(),
                        table: table.name.clone(),
                        range_start: range.start,
                        range_end: range.end,
                        began_micros: segments.oldest(&intervals(&[*range]))?,
                        participants: replicas.read.iter().map(|member| member.internode_address).collect(),
                    })
                }));
            });
        }
    }
    repaired
}
