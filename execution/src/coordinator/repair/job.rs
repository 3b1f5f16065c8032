//! Carries a repair out: table by table, ranges with the same replicas together.
//!
//! Invariants:
//! * Ranges that cannot be repaired (a replica is down, a file is damaged) do not hold up the others. They are repaired by the next
//!   repair, and the result names them.
//! * When ownership changes, the ranges that are left are repaired among their new replicas. While a transition is under way, repairs wait.
//! * A repair that an operator asked for is kept until it has ended: after a restart the node goes on with what is left.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_ring::intervals::{difference, intervals, ranges, share_of_ring, union};
use helenus_ring::member::Member;
use helenus_ring::metadata::REPAIRS;
use helenus_ring::placement::{Placement, TokenRange};
use helenus_ring::view::ClusterView;

use super::compare::{Batch, FIRST_PART_BYTES, RangeError, repair_batch};
use super::digests::PARTS_MAX;
use super::history::{self, RepairHistory};
use super::message::RepairRequest;
use super::runs::{Cancelled, RepairRun, RepairRuns, RepairScope, RunReport, RunState, ScopeTokens};
use super::unfinished;
use crate::shard::context::{ShardContext, from_every_shard};

/// Most ranges that are compared at once …
const BATCH_RANGES_MAX: usize = 512;
/// … and about as many bytes on each replica.
const BATCH_BYTES: f64 = (32 << 20) as f64;
/// Pause while a transition is under way.
const SETTLING_PAUSE: Duration = Duration::from_secs(1);
/// How long a node that goes on with repairs after its start waits for the other members.
const MEMBERS_PATIENCE: Duration = Duration::from_mins(2);
/// How long a replica may take to note what was repaired.
const NOTE_DEADLINE: Duration = Duration::from_secs(30);
/// A table counts as at least this many bytes for the progress: small ones take time too.
const TABLE_WEIGHT_MIN: f64 = (64 << 10) as f64;

/// Why a repair was not begun, or has not repaired everything.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("keyspace '{0}' does not exist")]
    UnknownKeyspace(String),
    #[error("table '{keyspace}.{table}' does not exist")]
    UnknownTable { keyspace: String, table: String },
    #[error("no member of the cluster is in data center '{0}'")]
    UnknownDataCenter(String),
    #[error("repairs begin when all members support them (feature level {REPAIRS}; it is {level})")]
    NotSupportedYet { level: u16 },
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("some ranges were not repaired: {}", failures_text(.0))]
    Incomplete(Box<RunReport>),
    #[error(transparent)]
    Node(#[from] RequestError),
}

fn failures_text(report: &RunReport) -> String {
    let known = report.failures.join("; ");
    let more = report.failure_count.saturating_sub(report.failures.len() as u64);
    if more > 0 { format!("{known}; and {more} more") } else { known }
}

/// A table to repair, and its tokens that are left.
struct Target {
    keyspace: String,
    table: Arc<Table>,
    left: Vec<RangeInclusive<i64>>,
    /// Its approximate size on a replica that has the whole ring.
    ring_bytes: f64,
    /// Its part of the whole repair, for the progress.
    weight: f64,
}

/// Repairs as an operator asks. A repair of the same scope that is under way is waited for instead. Call on the first shard.
pub async fn repair(context: &Rc<ShardContext>, scope: RepairScope) -> Result<RunReport, RepairError> {
    check(context, &scope)?;
    let runs = RepairRuns::of(&context.node);
    if let Some(run) = runs.running_with(&scope) {
        while run.report().state == RunState::Running {
            context.clock.sleep(SETTLING_PAUSE).await;
        }
        return outcome(&run);
    }
    let began_micros = context.clock.now_micros();
    unfinished::keep(context, &scope, began_micros).await?;
    let run = runs.begin(scope, false, began_micros);
    carry_out(context, &run).await;
    // One that ends with the node goes on after its next start.
    if !*context.node.stopping.borrow() {
        unfinished::forget(context, run.began_micros).await?;
    }
    outcome(&run)
}

/// Goes on with the repairs that the last run has not finished. Call on the first shard.
pub async fn go_on(context: &Rc<ShardContext>) -> Result<(), RepairError> {
    let kept = unfinished::load(context).await?;
    if !kept.is_empty() {
        wait_for_members(context).await;
    }
    for (scope, began_micros) in kept {
        if check(context, &scope).is_ok() {
            tracing::info!(?scope, "goes on with a repair");
            let run = RepairRuns::of(&context.node).begin(scope, false, began_micros);
            carry_out(context, &run).await;
        }
        if *context.node.stopping.borrow() {
            return Ok(());
        }
        unfinished::forget(context, began_micros).await?;
    }
    Ok(())
}

/// Waits until all members are alive, but not for long: one may be dead.
async fn wait_for_members(context: &Rc<ShardContext>) {
    let deadline = context.clock.monotonic() + MEMBERS_PATIENCE;
    while context.clock.monotonic() < deadline && !*context.node.stopping.borrow() {
        {
            let view = context.cluster_view();
            if view.topology.members.keys().all(|host_id| view.is_alive(host_id)) {
                return;
            }
        }
        context.clock.sleep(SETTLING_PAUSE).await;
    }
}

/// Repairs a table's tokens because it is time to. Call on the first shard.
pub async fn repair_due(
    context: &Rc<ShardContext>,
    scope: RepairScope,
    table: &Arc<Table>,
    due: Vec<RangeInclusive<i64>>,
) -> RunReport {
    let run = RepairRuns::of(&context.node).begin(scope, true, context.clock.now_micros());
    let ring_bytes = ring_bytes(context, &context.cluster(), table).await.unwrap_or_default();
    let keyspace = table.keyspace.clone();
    let mut target = Target { keyspace, table: table.clone(), left: due, ring_bytes, weight: 1.0 };
    let repaired = repair_table(context, &run, &mut target, (0.0, 1.0)).await;
    end(context, &run, repaired);
    run.report()
}

fn outcome(run: &RepairRun) -> Result<RunReport, RepairError> {
    let report = run.report();
    match report.state {
        RunState::Done => Ok(report),
        RunState::Cancelled => Err(RepairError::Cancelled(Cancelled::ByOperator)),
        RunState::Running | RunState::Incomplete => Err(RepairError::Incomplete(Box::new(report))),
    }
}

/// Refuses a scope that names what does not exist.
fn check(context: &ShardContext, scope: &RepairScope) -> Result<(), RepairError> {
    let (catalog, view) = (context.catalog(), context.cluster_view());
    let level = view.topology.feature_level;
    if level < REPAIRS {
        return Err(RepairError::NotSupportedYet { level });
    }
    if let Some(name) = &scope.keyspace {
        let keyspace = catalog.keyspace(name).ok_or_else(|| RepairError::UnknownKeyspace(name.clone()))?;
        if let Some(table) = scope.tables.iter().find(|table| !keyspace.tables.contains_key(*table)) {
            return Err(RepairError::UnknownTable { keyspace: name.clone(), table: table.clone() });
        }
    }
    for name in &scope.data_centers {
        if !view.topology.members.values().any(|member| member.data_center == *name) {
            return Err(RepairError::UnknownDataCenter(name.clone()));
        }
    }
    Ok(())
}

async fn carry_out(context: &Rc<ShardContext>, run: &RepairRun) {
    let repaired = repair_tables(context, run).await;
    end(context, run, repaired);
}

fn end(context: &ShardContext, run: &RepairRun, repaired: Result<(), Cancelled>) {
    let state = match repaired {
        Err(_) => RunState::Cancelled,
        Ok(()) if run.report().failure_count > 0 => RunState::Incomplete,
        Ok(()) => RunState::Done,
    };
    RepairRuns::of(&context.node).end(run, state, context.clock.now_micros());
}

async fn repair_tables(context: &Rc<ShardContext>, run: &RepairRun) -> Result<(), Cancelled> {
    let mut targets = targets(context, run).await;
    let total: f64 = targets.iter().map(|target| target.weight).sum();
    let mut done = 0.0;
    for target in &mut targets {
        let share = target.weight / total;
        repair_table(context, run, target, (done, share)).await?;
        done += share;
    }
    run.note_progress(1.0, String::new());
    Ok(())
}

/// The tables of a repair.
async fn targets(context: &Rc<ShardContext>, run: &RepairRun) -> Vec<Target> {
    let (catalog, view) = (context.catalog(), context.cluster());
    let history = RepairHistory::of(&context.node);
    let mut targets = Vec::new();
    let wanted = |name: &&String| run.scope.keyspace.as_ref().is_none_or(|wanted| wanted == *name);
    for name in catalog.keyspaces.keys().filter(wanted) {
        let (Some(keyspace), Some(placement)) = (catalog.keyspace(name), view.placement(name)) else {
            continue;
        };
        let tokens = tokens_of(context, &run.scope, placement);
        for table in keyspace.tables.values() {
            let is_wanted = run.scope.tables.is_empty() || run.scope.tables.contains(&table.name);
            if table.kind != TableKind::Stored || !is_wanted {
                continue;
            }
            // What a repair of the same scope has done before a restart is left out.
            let left = history.segments(table.engine_id()).due(&tokens, run.began_micros);
            let ring_bytes = ring_bytes(context, &view, table).await.unwrap_or_default();
            let weight = (ring_bytes * share_of_ring(&tokens)).max(TABLE_WEIGHT_MIN);
            targets.push(Target { keyspace: name.clone(), table: table.clone(), left, ring_bytes, weight });
        }
    }
    targets
}

fn tokens_of(context: &ShardContext, scope: &RepairScope, placement: &Placement) -> Vec<RangeInclusive<i64>> {
    let own = context.node.host_id;
    let ranges = placement.ranges();
    let chosen: Vec<TokenRange> = match scope.tokens {
        ScopeTokens::All => ranges.map(|(range, _)| range).collect(),
        ScopeTokens::OfThisNode => {
            ranges.filter(|(_, replicas)| replicas.contains(&own)).map(|(range, _)| range).collect()
        }
        ScopeTokens::PrimaryOfThisNode => {
            let is_first =
                |members: &[Arc<Member>]| members.first().is_some_and(|first| first.host_id == own);
            ranges.filter(|(_, replicas)| is_first(&replicas.read)).map(|(range, _)| range).collect()
        }
        ScopeTokens::Range { start, end } => vec![TokenRange { start, end }],
    };
    intervals(&chosen)
}

/// The approximate size of a table on a replica of the whole ring, judged by what this node has of it.
async fn ring_bytes(context: &Rc<ShardContext>, view: &ClusterView, table: &Table) -> Option<f64> {
    let placement = view.placement(&table.keyspace)?;
    let own = context.node.host_id;
    let held = placement.ranges().filter(|(_, replicas)| replicas.contains(&own)).map(|(range, _)| range);
    let share = share_of_ring(&intervals(&held.collect::<Vec<_>>()));
    let id = table.engine_id();
    let sizes = from_every_shard(context, move |context| {
        Box::pin(async move {
            let statistics = context.shard.statistics(id)?;
            Ok(statistics.disk_bytes + statistics.memtable_bytes as u64)
        })
    });
    let bytes: u64 = sizes.await.ok()?.into_iter().sum();
    (share > 0.0).then(|| bytes as f64 / share)
}

/// Repairs what is left of a table. `part`: how much of the whole repair is done, and what the table adds.
async fn repair_table(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    target: &mut Target,
    (done, share): (f64, f64),
) -> Result<(), Cancelled> {
    let name = format!("{}.{}", target.keyspace, target.table.name);
    let total = share_of_ring(&target.left);
    while !target.left.is_empty() {
        run.check(&context.node)?;
        let left = share_of_ring(&target.left);
        let of_table = if total > 0.0 { 1.0 - left / total } else { 1.0 };
        run.note_progress(done + share * of_table, name.clone());
        let view = context.cluster();
        if context.catalog_view().table(target.table.engine_id()).is_none() {
            return Ok(());
        }
        if !view.topology.is_settled() {
            context.clock.sleep(SETTLING_PAUSE).await;
            continue;
        }
        let Some(Chosen { batch, absent, tokens }) = next_batch(context, &view, &run.scope, target) else {
            // No token that is left has a replica.
            return Ok(());
        };
        match repair_chosen(context, run, &batch, &absent).await {
            Ok(()) => {
                let is_whole = absent.is_empty() && run.scope.data_centers.is_empty();
                if is_whole {
                    note_repaired(context, run, &batch, &tokens).await;
                }
            }
            Err(RangeError::RingChanged) => {
                context.clock.sleep(SETTLING_PAUSE).await;
                continue;
            }
            Err(RangeError::Cancelled(cancelled)) => return Err(cancelled),
            Err(RangeError::TableDropped) => return Ok(()),
            Err(error) => {
                let is_dropped = context.catalog_view().table(target.table.engine_id()).is_none();
                if !is_dropped {
                    tracing::warn!(table = name, %error, "ranges were not repaired");
                    run.note_failure(format!("{name}: {error}"));
                }
            }
        }
        target.left = difference(&target.left, &tokens);
    }
    Ok(())
}

async fn repair_chosen(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    absent: &[Arc<Member>],
) -> Result<(), RangeError> {
    if !absent.is_empty() && !run.scope.without_dead {
        return Err(RangeError::ReplicasDown(absent.iter().map(|member| member.host_id).collect()));
    }
    if batch.members.len() < 2 {
        return Ok(());
    }
    repair_batch(context, run, batch).await
}

/// Ranges that are repaired together.
struct Chosen {
    batch: Batch,
    /// Replicas that would take part, and are down.
    absent: Vec<Arc<Member>>,
    /// The tokens of the batch.
    tokens: Vec<RangeInclusive<i64>>,
}

/// The first ranges of what is left that have the same replicas.
fn next_batch(
    context: &ShardContext,
    view: &ClusterView,
    scope: &RepairScope,
    target: &Target,
) -> Option<Chosen> {
    let placement = view.placement(&target.keyspace)?;
    let own = context.node.host_id;
    let takes_part = |member: &&Arc<Member>| {
        scope.data_centers.is_empty()
            || scope.data_centers.contains(&member.data_center)
            || scope.and_this_node && member.host_id == own
    };
    let mut members: Option<Vec<Arc<Member>>> = None;
    let mut tokens: Vec<RangeInclusive<i64>> = Vec::new();
    let mut bytes = 0.0;
    for (range, replicas) in placement.ranges() {
        let of_range = intervals(&[range]);
        let left = common(&target.left, &of_range);
        if left.is_empty() {
            continue;
        }
        let mut participants: Vec<_> = replicas.read.iter().filter(takes_part).cloned().collect();
        participants.sort_by_key(|member| member.host_id);
        if participants.is_empty() && replicas.read.is_empty() {
            continue;
        }
        let is_same = members.as_ref().is_none_or(|known| {
            known.len() == participants.len()
                && known.iter().zip(&participants).all(|(one, other)| one.host_id == other.host_id)
        });
        if !is_same {
            continue;
        }
        members.get_or_insert(participants);
        let (added, is_full) = fitting(left, target.ring_bytes, BATCH_BYTES - bytes);
        bytes += target.ring_bytes * share_of_ring(&added);
        tokens = union(&tokens, &added);
        if is_full || tokens.len() >= BATCH_RANGES_MAX {
            break;
        }
    }
    let (members, absent) = members?.into_iter().partition(|member| view.is_alive(&member.host_id));
    let largest = tokens.iter().map(|interval| share_of_ring(std::slice::from_ref(interval)));
    let largest = largest.fold(0.0, f64::max) * target.ring_bytes;
    let parts_max = (PARTS_MAX / tokens.len().max(1)).max(1) as f64;
    let parts = (largest / FIRST_PART_BYTES as f64).ceil().clamp(1.0, parts_max) as u32;
    let batch = Batch {
        epoch: view.topology.epoch,
        table: target.table.engine_id(),
        ranges: tokens.iter().map(|interval| (*interval.start(), *interval.end())).collect(),
        parts,
        members,
        now_seconds: context.now_seconds(),
    };
    Some(Chosen { batch, absent, tokens })
}

/// As much of these intervals, from the start, as fits into the bytes; at least something. Also whether something was left out.
fn fitting(
    all: Vec<RangeInclusive<i64>>,
    ring_bytes: f64,
    mut room: f64,
) -> (Vec<RangeInclusive<i64>>, bool) {
    let mut taken = Vec::new();
    for interval in all {
        let bytes = share_of_ring(std::slice::from_ref(&interval)) * ring_bytes;
        if bytes <= room {
            room -= bytes;
            taken.push(interval);
            continue;
        }
        if taken.is_empty() || room > 0.0 {
            let width = (*interval.end() as i128 - *interval.start() as i128) as f64;
            // At least one token, and at least a thousandth, so that a repair makes progress whatever the sizes are.
            let part = (room / bytes).clamp(1e-3, 1.0);
            let last = (*interval.start() as i128 + (width * part) as i128).min(*interval.end() as i128);
            taken.push(*interval.start()..=last as i64);
        }
        return (taken, true);
    }
    (taken, false)
}

/// The tokens that are in both lists.
fn common(one: &[RangeInclusive<i64>], other: &[RangeInclusive<i64>]) -> Vec<RangeInclusive<i64>> {
    difference(one, &difference(one, other))
}

/// Tells all replicas that these tokens are repaired. One that does not note it takes them for older than they are.
async fn note_repaired(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    tokens: &[RangeInclusive<i64>],
) {
    let table_id = u128::from_be_bytes(batch.table.0);
    let token_ranges = ranges(tokens);
    let own = context.node.host_id;
    // This node goes on from here after a restart, also if it is no replica.
    if let Err(error) = history::note(context, table_id, &token_ranges, run.began_micros).await {
        tracing::warn!(%error, "a repair could not be noted");
    }
    let request = RepairRequest::Repaired { table_id, ranges: token_ranges, began_micros: run.began_micros };
    let others = batch.members.iter().filter(|member| member.host_id != own);
    let told = others.map(|member| {
        let request = &request;
        async move {
            if let Err(error) = context.ask(member, 0, request, NOTE_DEADLINE).await {
                tracing::debug!(replica = %member.host_id, %error, "a replica has not noted a repair");
            }
        }
    });
    futures::future::join_all(told).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_what_fits_and_at_least_something() {
        let ring = vec![i64::MIN + 1..=i64::MAX];
        let (taken, is_full) = fitting(ring.clone(), 100.0, 200.0);
        assert_eq!((taken, is_full), (ring.clone(), false));
        let (taken, is_full) = fitting(ring.clone(), 1000.0, 250.0);
        assert!(is_full);
        assert!((share_of_ring(&taken) - 0.25).abs() < 1e-6, "{taken:?}");
        let (taken, is_full) = fitting(vec![5..=5, 9..=9], 1e30, 0.0);
        assert_eq!((taken, is_full), (vec![5..=5], true));
        let mut left = ring;
        let mut rounds = 0;
        while !left.is_empty() {
            let (taken, _) = fitting(left.clone(), 1e18, 1.0);
            assert!(!taken.is_empty());
            left = difference(&left, &taken);
            rounds += 1;
            if rounds > 100 {
                break;
            }
        }
    }

    #[test]
    fn common_tokens_are_in_both_lists() {
        assert_eq!(common(&[0..=9, 20..=29], &[5..=24]), [5..=9, 20..=24]);
        assert!(common(&[0..=9], &[10..=24]).is_empty());
    }
}
