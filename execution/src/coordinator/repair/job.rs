//! Carries a repair out: table by table, ranges with the same replicas together.
//!
//! Invariants:
//! * Ranges that cannot be repaired (a replica is down, a file is damaged) do not hold up the others. They are repaired by the next
//!   repair, and the result names them.
//! * When ownership changes, the ranges that are left are repaired among their new replicas. Ranges that change hands wait until they have.
//! * A repair that an operator asked for is kept until it has ended: after a restart the node goes on with what is left.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_observe::RepairRanges;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_ring::HostId;
use helenus_ring::intervals::{difference, intervals, overlaps, ranges, share_of_ring, union};
use helenus_ring::member::Member;
use helenus_ring::metadata::REPAIRS;
use helenus_ring::placement::{Placement, TokenRange};
use helenus_ring::view::ClusterView;

use super::batch::{Batch, RangeError};
use super::compare::{FIRST_PART_BYTES, Failed, repair_batch};
use super::digests::PARTS_MAX;
use super::history::{self, RepairHistory};
use super::message::RepairRequest;
use super::runs::{Cancelled, Cause, RepairRun, RepairRuns, RepairScope, RunReport, RunState};
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
/// How often this node notes what it has repaired for others, to go on from there.
const OWN_NOTE_PERIOD: Duration = Duration::from_secs(10);
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
        return outcome(context, &run);
    }
    let began_micros = context.clock.now_micros();
    unfinished::keep(context, &scope, began_micros).await?;
    let run = runs.begin(scope, Cause::Operator, began_micros);
    carry_out(context, &run).await;
    // One that ends with the node goes on after its next start.
    if !*context.node.stopping.borrow() {
        unfinished::forget(context, run.began_micros).await?;
    }
    outcome(context, &run)
}

/// Goes on with the repairs that the last run has not finished. Call on the first shard.
pub async fn go_on(context: &Rc<ShardContext>) -> Result<(), RepairError> {
    let mut begun = Vec::new();
    for (scope, began_micros) in unfinished::load(context).await? {
        match check(context, &scope) {
            Ok(()) => begun.push(RepairRuns::of(&context.node).begin(scope, Cause::Resumed, began_micros)),
            Err(error) => {
                tracing::warn!(?scope, %error, "a repair that was not finished is given up");
                unfinished::forget(context, began_micros).await?;
            }
        }
    }
    if !begun.is_empty() {
        wait_for_members(context).await;
    }
    for run in begun {
        tracing::info!(scope = ?run.scope, "goes on with a repair");
        carry_out(context, &run).await;
        if !*context.node.stopping.borrow() {
            unfinished::forget(context, run.began_micros).await?;
        }
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
    let run = RepairRuns::of(&context.node).begin(scope, Cause::Schedule, context.clock.now_micros());
    let ring_bytes = ring_bytes(context, &context.cluster(), table).await;
    let keyspace = table.keyspace.clone();
    let target = Target { keyspace, table: table.clone(), left: due, ring_bytes, weight: 1.0 };
    let repaired = repair_table(context, &run, target, (0.0, 1.0)).await;
    end(context, &run, repaired);
    run.report()
}

fn outcome(context: &ShardContext, run: &RepairRun) -> Result<RunReport, RepairError> {
    let report = run.report();
    match report.state {
        RunState::Done => Ok(report),
        RunState::Cancelled => Err(run.check(&context.node).err().unwrap_or(Cancelled::ByOperator).into()),
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
    let targets = targets(context, run).await;
    let total: f64 = targets.iter().map(|target| target.weight).sum();
    let mut done = 0.0;
    for target in targets {
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
            let left = if run.cause == Cause::Resumed {
                history.with(table.engine_id(), |segments| segments.due(&tokens, run.began_micros))
            } else {
                tokens.clone()
            };
            let ring_bytes = ring_bytes(context, &view, table).await;
            let weight = (ring_bytes * share_of_ring(&tokens)).max(TABLE_WEIGHT_MIN);
            targets.push(Target { keyspace: name.clone(), table: table.clone(), left, ring_bytes, weight });
        }
    }
    targets
}

fn tokens_of(context: &ShardContext, scope: &RepairScope, placement: &Placement) -> Vec<RangeInclusive<i64>> {
    let own = context.node.host_id;
    let ranges = placement.ranges();
    let chosen: Vec<TokenRange> = match scope.ranges {
        RepairRanges::All => ranges.map(|(range, _)| range).collect(),
        RepairRanges::OfNode => {
            ranges.filter(|(_, replicas)| replicas.contains(&own)).map(|(range, _)| range).collect()
        }
        RepairRanges::PrimaryOfNode => {
            let is_first =
                |members: &[Arc<Member>]| members.first().is_some_and(|first| first.host_id == own);
            ranges.filter(|(_, replicas)| is_first(&replicas.read)).map(|(range, _)| range).collect()
        }
        RepairRanges::Range { start, end } => vec![TokenRange { start, end }],
    };
    intervals(&chosen)
}

/// The approximate size of a table on a replica of the whole ring, judged by what this node has of it. 0 if that is nothing, or not known:
/// then the first comparison has larger parts.
async fn ring_bytes(context: &Rc<ShardContext>, view: &ClusterView, table: &Table) -> f64 {
    let Some(placement) = view.placement(&table.keyspace) else { return 0.0 };
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
    match sizes.await {
        Ok(sizes) if share > 0.0 => sizes.into_iter().sum::<u64>() as f64 / share,
        Ok(_) => 0.0,
        Err(error) => {
            tracing::debug!(table = table.name, %error, "the size of a table that is to be repaired is not known");
            0.0
        }
    }
}

/// Repairs what is left of a table. `done` and `share`: how much of the whole repair is done, and what the table adds.
async fn repair_table(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    target: Target,
    (done, share): (f64, f64),
) -> Result<(), Cancelled> {
    let mut own = OwnNotes::default();
    let repaired = repair_groups(context, run, target, (done, share), &mut own).await;
    own.write(context, run).await;
    repaired
}

async fn repair_groups(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    target: Target,
    (done, share): (f64, f64),
    own: &mut OwnNotes,
) -> Result<(), Cancelled> {
    let name = format!("{}.{}", target.keyspace, target.table.name);
    let is_dropped = || context.catalog_view().table(target.table.engine_id()).is_none();
    let total = share_of_ring(&target.left);
    let mut left = target.left.clone();
    let mut repaired = 0.0;
    while !left.is_empty() {
        let view = context.cluster();
        let epoch = view.topology.epoch;
        // The table, or its keyspace, may have been dropped meanwhile: nothing is left to repair.
        let Some(placement) = view.placement(&target.keyspace).filter(|_| !is_dropped()) else {
            return Ok(());
        };
        let (mut groups, moving) = grouped(context, placement, &run.scope, &left);
        if groups.is_empty() && !moving.is_empty() {
            run.check(&context.node)?;
            run.note_progress(
                done + share * repaired / total,
                format!("{name}: waits while ranges change hands"),
            );
            context.clock.sleep(SETTLING_PAUSE).await;
            left = moving;
            continue;
        }
        // Tokens without any replica are left out.
        left = moving;
        while let Some(mut group) = groups.pop_front() {
            run.check(&context.node)?;
            // Members may have died or come back since the last batch.
            let view = context.cluster();
            if view.topology.epoch != epoch {
                groups.push_front(group);
                left = groups.into_iter().fold(left, |left, group| union(&left, &group.tokens));
                break;
            }
            run.note_progress(done + share * repaired / total, name.clone());
            let (tokens, rest) = fitting(group.tokens, target.ring_bytes);
            group.tokens = rest;
            let batch = batch_of(context, &view, &target, &group.members, &tokens);
            match repair_chosen(context, run, &view, &batch, &group.members).await {
                Ok(failed) => {
                    let is_whole =
                        batch.members.len() == group.members.len() && run.scope.data_centers.is_empty();
                    if is_whole {
                        own.add(context, run, &batch, without(&tokens, &failed)).await;
                    }
                    for (_, error) in &failed {
                        note_failure(run, &name, error);
                    }
                }
                Err(RangeError::RingChanged) => {
                    // This node may hear of it later than the replica that has said so.
                    context.clock.sleep(SETTLING_PAUSE).await;
                    group.tokens = union(&group.tokens, &tokens);
                    groups.push_front(group);
                    continue;
                }
                Err(RangeError::Cancelled(cancelled)) => return Err(cancelled),
                Err(_) if is_dropped() => return Ok(()),
                Err(error) => note_failure(run, &name, &error),
            }
            repaired += share_of_ring(&tokens);
            if !group.tokens.is_empty() {
                groups.push_front(group);
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

fn note_failure(run: &RepairRun, table: &str, error: &RangeError) {
    if run.note_failure(format!("{table}: {error}")) {
        tracing::warn!(table, %error, "ranges were not repaired");
    }
}

/// These tokens without those that have failed.
fn without(tokens: &[RangeInclusive<i64>], failed: &[Failed]) -> Vec<RangeInclusive<i64>> {
    let failed: Vec<_> = failed
        .iter()
        .map(|((first, last), _)| *first..=*last)
        .fold(Vec::new(), |all, one| union(&all, &[one]));
    difference(tokens, &failed)
}

async fn repair_chosen(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    view: &ClusterView,
    batch: &Batch,
    members: &[Arc<Member>],
) -> Result<Vec<Failed>, RangeError> {
    let is_down = |member: &&Arc<Member>| !view.is_alive(&member.host_id);
    let absent: Vec<HostId> = members.iter().filter(is_down).map(|member| member.host_id).collect();
    if !absent.is_empty() && !run.scope.without_dead {
        return Err(RangeError::ReplicasDown(absent));
    }
    if batch.members.len() < 2 {
        return Ok(Vec::new());
    }
    repair_batch(context, run, batch).await
}

/// Tokens with the same replicas.
struct Group {
    /// Those that are to take part.
    members: Vec<Arc<Member>>,
    tokens: Vec<RangeInclusive<i64>>,
}

/// What is left, by the replicas; and the tokens that are changing hands.
fn grouped(
    context: &ShardContext,
    placement: &Placement,
    scope: &RepairScope,
    left: &[RangeInclusive<i64>],
) -> (VecDeque<Group>, Vec<RangeInclusive<i64>>) {
    let own = context.node.host_id;
    let takes_part = |member: &&Arc<Member>| {
        scope.data_centers.is_empty()
            || scope.data_centers.contains(&member.data_center)
            || scope.and_this_node && member.host_id == own
    };
    let mut groups: BTreeMap<Vec<HostId>, Group> = BTreeMap::new();
    let mut moving = Vec::new();
    for (range, replicas) in placement.ranges() {
        let found = intervals(&[range]).into_iter().flat_map(|interval| overlaps(left, &interval));
        let found: Vec<_> = found.collect();
        if found.is_empty() || replicas.read.is_empty() {
            continue;
        }
        if !replicas.pending.is_empty() || replicas.other.is_some() {
            moving.extend(found);
            continue;
        }
        let mut members: Vec<_> = replicas.read.iter().filter(takes_part).cloned().collect();
        members.sort_by_key(|member| member.host_id);
        let ids = members.iter().map(|member| member.host_id).collect();
        let group = groups.entry(ids).or_insert_with(|| Group { members, tokens: Vec::new() });
        group.tokens.extend(found);
    }
    moving.sort_unstable_by_key(|interval| *interval.start());
    for group in groups.values_mut() {
        // The range of the smallest token wraps around the ring.
        group.tokens.sort_unstable_by_key(|interval| *interval.start());
    }
    (groups.into_values().collect(), moving)
}

fn batch_of(
    context: &ShardContext,
    view: &ClusterView,
    target: &Target,
    members: &[Arc<Member>],
    tokens: &[RangeInclusive<i64>],
) -> Batch {
    let largest = tokens.iter().map(|interval| share_of_ring(std::slice::from_ref(interval)));
    let largest = largest.fold(0.0, f64::max) * target.ring_bytes;
    let parts_max = (PARTS_MAX / tokens.len().max(1)).max(1) as f64;
    Batch {
        epoch: view.topology.epoch,
        table: target.table.engine_id(),
        ranges: tokens.iter().map(|interval| (*interval.start(), *interval.end())).collect(),
        parts: (largest / FIRST_PART_BYTES as f64).ceil().clamp(1.0, parts_max) as u32,
        members: members.iter().filter(|member| view.is_alive(&member.host_id)).cloned().collect(),
        now_seconds: context.now_seconds(),
    }
}

/// As much of these intervals, from the start, as is compared at once, at least something; and the rest.
fn fitting(
    all: Vec<RangeInclusive<i64>>,
    ring_bytes: f64,
) -> (Vec<RangeInclusive<i64>>, Vec<RangeInclusive<i64>>) {
    let mut room = BATCH_BYTES;
    let (mut taken, mut rest) = (Vec::new(), Vec::new());
    for interval in all {
        let bytes = share_of_ring(std::slice::from_ref(&interval)) * ring_bytes;
        if !rest.is_empty() || taken.len() >= BATCH_RANGES_MAX {
            rest.push(interval);
        } else if bytes <= room {
            room -= bytes;
            taken.push(interval);
        } else if taken.is_empty() {
            let (start, end) = (i128::from(*interval.start()), i128::from(*interval.end()));
            // At least one token, and at least a thousandth, so that a repair makes progress whatever the sizes are.
            let part = (room / bytes).clamp(1e-3, 1.0);
            let last = (start + ((end - start) as f64 * part) as i128).min(end);
            taken.push(*interval.start()..=last as i64);
            if last < end {
                rest.push((last + 1) as i64..=*interval.end());
            }
        } else {
            rest.push(interval);
        }
    }
    (taken, rest)
}

/// What this node is to note of its repairs. It notes also what it has repaired for others, to go on from there after a restart, but not
/// each batch of it: there may be very many.
#[derive(Default)]
struct OwnNotes {
    table_id: Option<u128>,
    tokens: Vec<RangeInclusive<i64>>,
    written: Duration,
}

impl OwnNotes {
    /// Tells all other replicas that these tokens are repaired, and notes them here soon. One that does not note it takes them for older than they are.
    async fn add(
        &mut self,
        context: &Rc<ShardContext>,
        run: &RepairRun,
        batch: &Batch,
        tokens: Vec<RangeInclusive<i64>>,
    ) {
        let table_id = u128::from_be_bytes(batch.table.0);
        let request =
            RepairRequest::Repaired { table_id, ranges: ranges(&tokens), began_micros: run.began_micros };
        let own = context.node.host_id;
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
        self.table_id = Some(table_id);
        self.tokens = union(&self.tokens, &tokens);
        if context.clock.monotonic() >= self.written + OWN_NOTE_PERIOD {
            self.write(context, run).await;
        }
    }

    async fn write(&mut self, context: &Rc<ShardContext>, run: &RepairRun) {
        self.written = context.clock.monotonic();
        let Some(table_id) = self.table_id.filter(|_| !self.tokens.is_empty()) else { return };
        let tokens = ranges(&std::mem::take(&mut self.tokens));
        if let Err(error) = history::note(context, table_id, &tokens, run.began_micros).await {
            tracing::warn!(%error, "a repair could not be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_what_fits_and_at_least_something() {
        let ring = vec![i64::MIN + 1..=i64::MAX];
        assert_eq!(fitting(ring.clone(), BATCH_BYTES / 2.0), (ring.clone(), Vec::new()));
        let (taken, rest) = fitting(ring.clone(), BATCH_BYTES * 4.0);
        assert!((share_of_ring(&taken) - 0.25).abs() < 1e-6, "{taken:?}");
        assert_eq!(union(&taken, &rest), ring);
        let many: Vec<_> = (0..1_000).map(|token| 2 * token..=2 * token).collect();
        let (taken, rest) = fitting(many.clone(), 1.0);
        assert_eq!((taken.len(), rest.len()), (BATCH_RANGES_MAX, 1_000 - BATCH_RANGES_MAX));
        let (taken, rest) = fitting(vec![5..=5, 9..=9], f64::MAX);
        assert_eq!((taken, rest), (vec![5..=5], vec![9..=9]));
        let mut left = ring;
        let mut rounds = 0;
        while !left.is_empty() && rounds < 100 {
            let (taken, rest) = fitting(left.clone(), 1e30);
            assert!(!taken.is_empty());
            assert_eq!(difference(&left, &taken), rest);
            left = rest;
            rounds += 1;
        }
    }

    #[test]
    fn what_has_failed_is_not_noted() {
        let error = RangeError::RingChanged;
        let failed = [((5, 9), error.clone()), ((0, 2), error)];
        assert_eq!(without(&[0..=19], &failed), [3..=4, 10..=19]);
    }
}
