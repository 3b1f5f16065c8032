//! Carries a repair out: table by table, ranges with the same replicas together.
//!
//! Invariants:
//! * Ranges that cannot be repaired (a replica is down, a file is damaged) do not hold up the others. They are repaired by the next
//!   repair, and the result names them.
//! * When ownership changes, the ranges that are left are repaired among their new replicas. Ranges that change hands wait until they have.
//! * Files of a replica that could not be opened are mended by the repair of an operator, by one replica at a time ([`super::mending`]).
//! * A repair that an operator asked for is kept until it has ended: after a restart the node goes on with what is left.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_observe::RepairRanges;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_ring::HostId;
use helenus_ring::intervals::{difference, intervals, ranges, share_of_ring, union};
use helenus_ring::member::Member;
use helenus_ring::metadata::{MENDING, REPAIRS};
use helenus_ring::placement::{Placement, TokenRange};
use helenus_ring::repair_groups::{fitting, grouped};
use helenus_ring::view::ClusterView;

use super::batch::{Batch, RangeError, ask};
use super::compare::{FIRST_PART_BYTES, Failed, repair_batch};
use super::digests::PARTS_MAX;
use super::history::RepairHistory;
use super::message::{RepairRequest, RepairResponse};
use super::notes::OwnNotes;
use super::runs::{Cancelled, Cause, RepairRun, RepairRuns, RepairScope, RunReport, RunState};
use super::{transactions, unfinished};
use crate::shard::context::{ShardContext, from_every_shard};

/// Pause while a transition is under way.
const SETTLING_PAUSE: Duration = Duration::from_secs(1);
/// How long a node that goes on with repairs after its start waits for the other members.
const MEMBERS_PATIENCE: Duration = Duration::from_mins(2);
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
#[derive(Clone)]
struct Target {
    keyspace: String,
    table: Arc<Table>,
    left: Vec<RangeInclusive<i64>>,
    /// Its approximate size on a replica that has the whole ring.
    ring_bytes: f64,
    /// Its part of the whole repair, for the progress.
    weight: f64,
    /// What is done for a replica whose files are damaged.
    mended: Option<HostId>,
}

/// What has become of the ranges of a table.
#[derive(Default)]
struct Pass {
    own: OwnNotes,
    /// The tokens for which a replica has got what damaged files may hold.
    fetched: Vec<RangeInclusive<i64>>,
    /// What a replica could not read or write, where that may be mended; `None`: it is a failure.
    failed: Option<Vec<Failed>>,
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
    let target = Target { keyspace, table: table.clone(), left: due, ring_bytes, weight: 1.0, mended: None };
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
            let (keyspace, table) = (name.clone(), table.clone());
            targets.push(Target { keyspace, table, left, ring_bytes, weight, mended: None });
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
    let mut pass = Pass { failed: may_mend(context, run).then(Vec::new), ..Pass::default() };
    let repaired = repair_groups(context, run, &target, (done, share), &mut pass).await;
    pass.own.write(context, run).await;
    repaired?;
    let mut by_replica: BTreeMap<HostId, Vec<Failed>> = BTreeMap::new();
    for failed in pass.failed.into_iter().flatten() {
        match &failed.1 {
            RangeError::Replica { host_id, .. } => by_replica.entry(*host_id).or_default().push(failed),
            error => note_failure(run, &target.name(), error),
        }
    }
    for (host_id, failed) in by_replica {
        let left = difference(&target.left, &without(&target.left, &failed));
        let target = Target { left, ..target.clone() };
        if !mend(context, run, &target, (done + share, 0.0), host_id).await? {
            for (_, error) in &failed {
                note_failure(run, &target.name(), error);
            }
        }
    }
    Ok(())
}

/// Whether damaged files of replicas may be mended: never without some replicas.
fn may_mend(context: &ShardContext, run: &RepairRun) -> bool {
    let is_whole = run.scope.data_centers.is_empty() && !run.scope.without_dead;
    let level = context.cluster_view().topology.feature_level;
    is_whole && run.cause != Cause::Schedule && level >= MENDING
}

/// Mends the damaged files of a replica, if that is what has failed there, and repairs the ranges. False: they were not repaired.
async fn mend(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    target: &Target,
    share: (f64, f64),
    host_id: HostId,
) -> Result<bool, Cancelled> {
    let Some(member) = context.cluster().topology.member(&host_id).cloned() else { return Ok(false) };
    let table_id = u128::from_be_bytes(target.table.engine_id().0);
    let asked = ask(context, run, &member, &RepairRequest::DamagedFiles { table_id }).await;
    let files = match asked {
        Ok(RepairResponse::DamagedFiles(files)) if !files.is_empty() => files,
        Err(RangeError::Cancelled(cancelled)) => return Err(cancelled),
        _ => return Ok(false),
    };
    let fetching = Target { mended: Some(host_id), ..target.clone() };
    let mut pass = Pass::default();
    repair_groups(context, run, &fetching, share, &mut pass).await?;
    let request = RepairRequest::GiveUp { table_id, files, fetched: ranges(&pass.fetched) };
    match ask(context, run, &member, &request).await {
        Ok(RepairResponse::GivenUp { files }) if files > 0 => {
            tracing::info!(table = target.name(), replica = %host_id, files, "damaged files of a replica are mended");
            let mut pass = Pass::default();
            let repaired = repair_groups(context, run, target, share, &mut pass).await;
            pass.own.write(context, run).await;
            repaired.map(|()| true)
        }
        Err(RangeError::Cancelled(cancelled)) => Err(cancelled),
        _ => Ok(false),
    }
}

async fn repair_groups(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    target: &Target,
    (done, share): (f64, f64),
    pass: &mut Pass,
) -> Result<(), Cancelled> {
    let name = target.name();
    let total = share_of_ring(&target.left);
    let mut left = target.left.clone();
    let mut repaired = 0.0;
    while !left.is_empty() {
        let view = context.cluster();
        let epoch = view.topology.epoch;
        // The table, or its keyspace, may have been dropped meanwhile: nothing is left to repair.
        let Some(placement) = view.placement(&target.keyspace).filter(|_| !target.is_dropped(context)) else {
            return Ok(());
        };
        let own_id = context.node.host_id;
        let (mut groups, moving) = grouped(placement, &left, |member| run.scope.includes(member, own_id));
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
            let batch = batch_of(context, &view, target, &group.members, &tokens);
            match repair_chosen(context, run, &view, &batch, &group.members).await {
                Ok(failed) => {
                    let is_whole =
                        batch.members.len() == group.members.len() && run.scope.data_centers.is_empty();
                    if is_whole {
                        let repaired = without(&tokens, &failed);
                        if pass.take(context, run, target, &batch, repaired).await? == Taken::Moved {
                            group.tokens = union(&group.tokens, &tokens);
                            groups.push_front(group);
                            continue;
                        }
                    }
                    pass.note_failed(run, &name, failed);
                }
                Err(RangeError::RingChanged) => {
                    // This node may hear of it later than the replica that has said so.
                    context.clock.sleep(SETTLING_PAUSE).await;
                    group.tokens = union(&group.tokens, &tokens);
                    groups.push_front(group);
                    continue;
                }
                Err(RangeError::Cancelled(cancelled)) => return Err(cancelled),
                Err(_) if target.is_dropped(context) => return Ok(()),
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

impl Target {
    fn name(&self) -> String {
        format!("{}.{}", self.keyspace, self.table.name)
    }

    fn is_dropped(&self, context: &ShardContext) -> bool {
        context.catalog_view().table(self.table.engine_id()).is_none()
    }
}

/// What became of tokens that were repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Done,
    /// Others own some of them now: they are repaired among these.
    Moved,
}

impl Pass {
    /// Takes tokens that were repaired among all of their replicas.
    async fn take(
        &mut self,
        context: &Rc<ShardContext>,
        run: &RepairRun,
        target: &Target,
        batch: &Batch,
        repaired: Vec<RangeInclusive<i64>>,
    ) -> Result<Taken, Cancelled> {
        if target.mended.is_some() {
            // A replica that is alone has got nothing back.
            let fetched = if batch.members.len() < 2 { Vec::new() } else { repaired };
            self.fetched = union(&self.fetched, &fetched);
            return Ok(Taken::Done);
        }
        match transactions::settle(context, run, &target.table, batch).await {
            Ok(open) => {
                if !open.is_empty() {
                    let partitions = format!("{} partitions", open.len());
                    note_failure(run, &target.name(), &RangeError::Unsettled(partitions));
                }
                let open = open.iter().fold(Vec::new(), |open, token| union(&open, &[*token..=*token]));
                self.own.add(context, run, batch, difference(&repaired, &open)).await;
            }
            Err(RangeError::RingChanged) => return Ok(Taken::Moved),
            Err(RangeError::Cancelled(cancelled)) => return Err(cancelled),
            Err(_) if target.is_dropped(context) => {}
            Err(error) => note_failure(run, &target.name(), &error),
        }
        Ok(Taken::Done)
    }

    fn note_failed(&mut self, run: &RepairRun, table: &str, failed: Vec<Failed>) {
        match &mut self.failed {
            Some(all) => all.extend(failed),
            None => {
                for (_, error) in &failed {
                    note_failure(run, table, error);
                }
            }
        }
    }
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
        mended: target.mended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_is_not_noted() {
        let error = RangeError::RingChanged;
        let failed = [((5, 9), error.clone()), ((0, 2), error)];
        assert_eq!(without(&[0..=19], &failed), [3..=4, 10..=19]);
    }
}
