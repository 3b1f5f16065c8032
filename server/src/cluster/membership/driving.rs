//! The task that proposes the next step of a transition when its conditions are met.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_query::error::RequestError;
use helenus_query::schema::catalog::Catalog;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState, TransitionPhase};
use helenus_ring::metadata::{ClusterState, Command, CommandOutcome, REMOVALS_TOGETHER, Refusal};
use helenus_ring::topology::Topology;

use super::{
    IDLE_PAUSE, PROPOSAL_DEADLINE, Result, TRANSITION_RETRY_PAUSE, agreement, receive, wait_for_change,
};
use crate::cluster::liveness::LivenessMonitor;
use crate::cluster::log_throttle::LogThrottle;
use crate::cluster::propose::propose;
use crate::cluster::raft::MetadataLog;
use crate::cluster::wait_applied_everywhere;
use crate::streaming;
use crate::streaming::fetch_plan::Replications;
use crate::streaming::message::{StreamRequest, StreamResponse, TransferStatus};
use crate::streaming::plan::Sides;
use crate::streaming::progress::Transfers;
use helenus_execution::coordinator::batch_log;
use helenus_execution::coordinator::replica::hints;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::ServingState;

/// Time that the driver waits for members to apply a version before it checks the state again.
const APPLIED_PATIENCE: Duration = Duration::from_secs(10);
const STATUS_DEADLINE: Duration = Duration::from_secs(5);
/// Pause between two checks of the members that stream: starts with this one and grows up to the second one.
const POLL_PAUSE: Duration = Duration::from_millis(20);
const POLL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Starts the tasks that receive and drive, which end when the node stops. Call on the first shard, when the metadata log is open.
pub fn start(context: &Rc<ShardContext>) {
    tokio::task::spawn_local(receive(context.clone()));
    tokio::task::spawn_local(drive(context.clone()));
}

/// A transition that this node drives.
#[derive(Debug, Clone)]
enum Driven {
    Member(Arc<Member>),
    Replication(TransitionPhase),
}

impl Driven {
    fn of(context: &ShardContext, log: &MetadataLog, state: &ClusterState) -> Option<Self> {
        let topology = &state.topology;
        if let Some(phase) = topology.replication_phase() {
            let leads = log.leader() == Some(context.node.host_id) && log.is_leader();
            return leads.then_some(Self::Replication(phase));
        }
        let mut moving = topology.moving();
        moving.find(|member| is_driver(context, state, member)).cloned().map(Self::Member)
    }

    fn phase(&self) -> Option<TransitionPhase> {
        match self {
            Self::Replication(phase) => Some(*phase),
            Self::Member(member) => match member.state {
                MemberState::Joining(phase) | MemberState::Leaving(phase) => Some(phase),
                MemberState::Normal => None,
            },
        }
    }
}

/// Proposes the steps of the transition that this node has to drive.
async fn drive(context: Rc<ShardContext>) {
    let mut pause = POLL_PAUSE;
    let mut notices = LogThrottle::default();
    loop {
        // This does not use the shard's view, which shows the next version a little earlier and does not mark removals.
        let Ok(log) = MetadataLog::of(&context) else { return };
        let state = log.state();
        let driven = Driven::of(&context, &log, &state);
        drop(log);
        let patience = match driven {
            None => {
                pause = POLL_PAUSE;
                IDLE_PAUSE
            }
            Some(driven) => match step(&context, &state, &driven, &mut notices).await {
                Ok(true) => {
                    pause = POLL_PAUSE;
                    continue;
                }
                Ok(false) => {
                    pause = (pause + POLL_PAUSE).min(POLL_PAUSE_MAX);
                    pause
                }
                Err(error) => {
                    if notices.is_due(&"step", &error, context.clock.monotonic()) {
                        tracing::warn!(%error, "the next step of a transition failed; it will be retried");
                    }
                    TRANSITION_RETRY_PAUSE
                }
            },
        };
        if !wait_for_change(&context, state.topology.version, patience).await {
            return;
        }
    }
}

fn is_driver(context: &ShardContext, state: &ClusterState, member: &Member) -> bool {
    let is_removal = state.is_removal(&member.host_id);
    if member.host_id == context.node.host_id {
        // A member that runs but has stopped serving counts as dead, and may be removed.
        return !is_removal || context.node.status.state() < ServingState::Failed;
    }
    let is_asked = matches!(member.state, MemberState::Leaving(_))
        && Transfers::of(&context.node).is_removal_asked(&member.host_id);
    // A member that was asked to leave, and is back, drives its leaving itself.
    is_asked && (is_removal || !context.cluster_view().is_alive(&member.host_id))
}

/// Proposes the next step if its conditions are met. Returns whether the step was taken.
async fn step(
    context: &Rc<ShardContext>,
    state: &ClusterState,
    driven: &Driven,
    notices: &mut LogThrottle,
) -> Result<bool> {
    let topology = &state.topology;
    let is_first = driven.phase() == Some(TransitionPhase::WriteBoth);
    // Later the others have their ranges.
    let replaced = topology.replacement.map(|replacement| replacement.old);
    let removed = state.removals().iter().filter(|host_id| {
        // One that is replaced takes that back itself.
        is_first && (replaced != Some(**host_id) || **host_id == context.node.host_id)
    });
    let is_alive = |host_id: &&HostId| context.cluster_view().is_alive(host_id);
    if let Some(host_id) = removed.chain(&topology.given_up).find(is_alive) {
        return take_back_removal(context, topology, *host_id).await;
    }
    let by = wait_applied_everywhere(context, topology.version, APPLIED_PATIENCE).await;
    if !by.behind.is_empty() {
        return Ok(false);
    }
    let missing = agreement::missing(state, &by.applied);
    if !missing.is_empty() {
        let waits_for = missing.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ");
        if notices.is_due(&"agreement", &waits_for, context.clock.monotonic()) {
            tracing::warn!(
                %waits_for,
                "a transition waits for members that are not alive: without them stale reads would be possible"
            );
        }
        return Ok(false);
    }
    if is_first
        && !context.has_bug(PlantedBug::ReadBeforeStreaming)
        && !all_have_fetched(context, state).await
    {
        return Ok(false);
    }
    let is_last = |member: &Arc<Member>| member.state == MemberState::Leaving(TransitionPhase::ReadNew);
    if let Driven::Member(member) = driven
        && topology.moving().any(is_last)
        && !may_end(context, topology, member).await?
    {
        return Ok(false);
    }
    let command = match driven {
        Driven::Member(member) => {
            let (host_id, from, epoch) = (member.host_id, member.state, topology.epoch);
            if topology.feature_level >= REMOVALS_TOGETHER {
                Command::AdvanceMembers { host_id, from, epoch }
            } else {
                Command::Advance { host_id, from }
            }
        }
        Driven::Replication(phase) => Command::AdvanceReplication { from: *phase, epoch: topology.epoch },
    };
    match propose(context, command, PROPOSAL_DEADLINE).await? {
        CommandOutcome::Applied { .. } => Ok(true),
        // Another node has taken the step, or cancelled the transition: the state will show it.
        CommandOutcome::Refused(Refusal::WrongState { .. } | Refusal::UnknownMember { .. })
        | CommandOutcome::Busy { .. }
        | CommandOutcome::Conflict { .. } => Ok(false),
        CommandOutcome::Refused(refusal) => Err(refusal.into()),
    }
}

/// Whether the members that leave are needed for nothing any more. `member`: the one that is driven.
async fn may_end(context: &Rc<ShardContext>, topology: &Topology, member: &Member) -> Result<bool> {
    // The leader removes their votes first. A voter that has ended would be missing from majorities.
    let (voters, _) = MetadataLog::of(context)?.participants();
    if topology.moving().any(|leaving| voters.contains(&leaving.host_id)) {
        return Ok(false);
    }
    let leaves = matches!(member.state, MemberState::Leaving(_)) && member.host_id == context.node.host_id;
    if leaves { hand_over(context).await } else { Ok(true) }
}

/// Cancels the removal of a member that is alive: the removal was requested when it was down, and its ranges have not
/// been handed over.
async fn take_back_removal(context: &Rc<ShardContext>, topology: &Topology, host_id: HostId) -> Result<bool> {
    let command = Command::TakeBackRemoval { host_id, epoch: topology.epoch };
    match propose(context, command, PROPOSAL_DEADLINE).await? {
        CommandOutcome::Applied { .. } => {
            tracing::warn!(%host_id, "a removal was cancelled: the member is alive");
            Ok(true)
        }
        // The removal has advanced, or has ended: the state will show it.
        CommandOutcome::Refused(_) | CommandOutcome::Busy { .. } | CommandOutcome::Conflict { .. } => {
            Ok(false)
        }
    }
}

/// Hands over the hints and batches that this node keeps for others, because it leaves. Before that it finishes the
/// requests of its last clients, so that nothing is added any more.
async fn hand_over(context: &Rc<ShardContext>) -> Result<bool> {
    if context.node.status.state() < ServingState::Leaving {
        tracing::info!("this node is about to leave: it accepts no more clients");
        context.node.status.set_state(ServingState::Leaving);
        LivenessMonitor::of(context).wake();
    }
    // Twice: operations that one shard has started on another are seen the second time.
    let shards = 0..context.node.shard_count();
    for shard in shards.clone().chain(shards) {
        let is_quiet = context
            .run_on(shard, |context| Box::pin(std::future::ready(context.replication().is_quiet())))
            .await?;
        if !is_quiet {
            return Ok(false);
        }
    }
    let mut is_done = true;
    for shard in 0..context.node.shard_count() {
        is_done &= context
            .run_on(shard, |context| {
                Box::pin(async move {
                    // Mutations of a batch that cannot be delivered become hints.
                    let batches_are_over = batch_log::store::replay_all(&context).await?;
                    Ok::<_, RequestError>(hints::replay::hand_over(&context).await? && batches_are_over)
                })
            })
            .await??;
    }
    Ok(is_done)
}

/// The members that gain ranges in the present transition.
fn gaining(topology: &Topology, catalog: &Catalog) -> BTreeSet<HostId> {
    let Some(sides) = Sides::of(topology) else { return BTreeSet::new() };
    let everyone: BTreeSet<HostId> = topology.members.keys().copied().collect();
    let mut seen: Vec<Replications> = Vec::new();
    let mut gaining = BTreeSet::new();
    for replications in catalog.keyspaces.values().filter_map(|keyspace| sides.replications(keyspace)) {
        if !seen.contains(&replications) {
            gaining.extend(sides.plan(&replications, &everyone).into_keys());
            seen.push(replications);
        }
    }
    gaining
}

async fn all_have_fetched(context: &Rc<ShardContext>, state: &ClusterState) -> bool {
    let topology = &state.topology;
    let epoch = topology.epoch;
    // Programs from before that was asked for lose what the system keeps with one replica, too.
    let may_lose = topology.feature_level < REMOVALS_TOGETHER
        || topology.replacement.is_some_and(|replacement| replacement.accepts_loss)
        || Transfers::of(&context.node).is_loss_accepted(state.removals());
    // Those that are given up, too: what comes back must not be read without its rows.
    let asked = gaining(topology, &state.catalog).into_iter();
    let asked = asked.filter_map(|host_id| topology.member(&host_id));
    let asked = asked.map(|gaining| async move {
        let status = status_of(context, gaining, epoch).await?;
        let has_all = status.is_done || (may_lose && status.lost_ranges > 0);
        (status.epoch == epoch && has_all).then_some(status.lost_ranges)
    });
    let answers: Option<Vec<u32>> = futures::future::join_all(asked).await.into_iter().collect();
    let lost: u32 = answers.iter().flatten().sum();
    if lost > 0 {
        tracing::warn!(
            ranges = lost,
            "the removed members were the only replicas of some ranges: their data is lost"
        );
    }
    answers.is_some()
}

async fn status_of(context: &Rc<ShardContext>, member: &Arc<Member>, epoch: u64) -> Option<TransferStatus> {
    if member.host_id == context.node.host_id {
        return Some(streaming::status(context, epoch));
    }
    let request = StreamRequest::Status { epoch };
    match context.ask(member, 0, &request, STATUS_DEADLINE).await {
        Ok(StreamResponse::Status(status)) => Some(status),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(host_id = %member.host_id, %error, "a member did not report its progress");
            None
        }
    }
}
