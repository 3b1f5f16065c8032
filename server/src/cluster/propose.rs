//! Puts commands into the metadata log, and waits until versions are applied.
//!
//! A command is sent to the leader, on whichever node it is, until its outcome is known or the deadline has passed.
//! It may enter the log more than once; commands are designed so that this does no harm ([`helenus_ring::metadata`]).

use crate::cluster::raft::MetadataLog;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::{Command, CommandOutcome, MemberUpdate, Refusal};
use uuid::Uuid;

use super::message::{ClusterRequest, ClusterResponse};
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;

/// Pause before a command is sent again.
const PROPOSAL_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Timeout of one request to another member.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of one question for the newest version: the leader may be another one meanwhile.
const QUESTION_PATIENCE: Duration = Duration::from_secs(2);
/// Timeout of one query whether a member has applied a version.
const APPLIED_PATIENCE: Duration = Duration::from_secs(1);
/// Added to the timeout of another member for the network round trip.
const ROUND_TRIP: Duration = Duration::from_millis(500);

/// The version of the topology that every shard of this node has installed.
pub fn applied_version(context: &ShardContext) -> u64 {
    *context.node.applied.borrow()
}

/// Waits until every shard of this node has installed a version of the topology, or a later one.
pub async fn wait_applied(context: &Rc<ShardContext>, version: u64, deadline: Duration) -> Result<()> {
    wait_until(context, deadline, |context| applied_version(context) >= version).await.map_err(|()| {
        RequestError::Server(format!(
            "this node has not applied version {version} of the cluster's metadata within {} ms",
            deadline.as_millis()
        ))
    })
}

/// Waits until this shard has installed an epoch of the topology, or a later one.
pub async fn catch_up(context: &Rc<ShardContext>, epoch: u64, deadline: Duration) -> Result<()> {
    wait_until(context, deadline, |context| context.cluster_view().topology.epoch >= epoch).await.map_err(
        |()| {
            RequestError::Server(format!(
                "this node has not reached epoch {epoch} of the ring within {} ms",
                deadline.as_millis()
            ))
        },
    )
}

async fn wait_until(
    context: &Rc<ShardContext>,
    deadline: Duration,
    is_reached: impl Fn(&ShardContext) -> bool,
) -> Result<(), ()> {
    if is_reached(context) {
        return Ok(());
    }
    let mut applied = context.node.applied.subscribe();
    let reached = async {
        // An error means that the node has ended, and this task with it.
        let _ = applied.wait_for(|_| is_reached(context)).await;
    };
    within(context, deadline, reached).await.ok_or(())
}

/// Returns a future's result, unless the deadline passes first.
pub async fn within<F: Future>(context: &ShardContext, deadline: Duration, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = context.clock.sleep(deadline) => None,
    }
}

/// The members that have applied a version, and the live ones that have not.
#[derive(Debug, Clone, Default)]
pub struct AppliedBy {
    pub applied: BTreeSet<HostId>,
    pub behind: Vec<HostId>,
}

/// Waits until every live member has applied a version, each for at most `patience`. Those behind were alive, but did not answer in time.
pub async fn wait_applied_everywhere(
    context: &Rc<ShardContext>,
    version: u64,
    patience: Duration,
) -> AppliedBy {
    let cluster = context.cluster();
    let others = cluster.topology.members.values().filter(|member| member.host_id != context.node.host_id);
    let waits = others.filter(|member| cluster.is_alive(&member.host_id)).map(|member| async move {
        let end = context.clock.monotonic() + patience;
        loop {
            // A member that is found dead meanwhile is not waited for. It asks for the missed changes when it is
            // back.
            if !context.cluster_view().is_alive(&member.host_id) {
                return None;
            }
            let left = end.saturating_sub(context.clock.monotonic());
            if left.is_zero() {
                return Some((member.host_id, false));
            }
            match applied_at(context, member, version, left.min(APPLIED_PATIENCE)).await {
                Ok(applied) if applied >= version => return Some((member.host_id, true)),
                Ok(_) => {}
                Err(_) => context.clock.sleep(PROPOSAL_RETRY_PAUSE).await,
            }
        }
    });
    let mut by = AppliedBy::default();
    if context.cluster_view().topology.version >= version {
        by.applied.insert(context.node.host_id);
    }
    for (host_id, has_applied) in futures::future::join_all(waits).await.into_iter().flatten() {
        if has_applied {
            by.applied.insert(host_id);
        } else {
            tracing::warn!(%host_id, version, "a live member has not applied a change of the cluster's metadata in time");
            by.behind.push(host_id);
        }
    }
    by
}

/// Announces to every live member that all of them, except those in `behind`, have applied a version and with it a
/// version of the schema. So `system.peers` of each agrees with `system.local` of the others when a schema change is
/// acknowledged.
pub async fn announce_agreed(
    context: &Rc<ShardContext>,
    version: u64,
    schema_version: Uuid,
    behind: &[HostId],
) {
    let cluster = context.cluster();
    let agreed = |host_id: &HostId| cluster.is_alive(host_id) && !behind.contains(host_id);
    let members: Vec<HostId> = cluster.topology.members.keys().copied().filter(agreed).collect();
    note_agreed(context, version, schema_version, &members);
    let request = ClusterRequest::Agreed { version, schema_version, members: members.clone() };
    let others = members.iter().filter(|host_id| **host_id != context.node.host_id);
    let announcements = others.filter_map(|host_id| cluster.topology.member(host_id)).map(|member| {
        // A member that misses this message learns it from the announcements of the others.
        context.ask(member, 0, &request, APPLIED_PATIENCE)
    });
    futures::future::join_all(announcements).await;
}

/// Executes [`ClusterRequest::Agreed`].
pub fn note_agreed(context: &ShardContext, version: u64, schema_version: Uuid, members: &[HostId]) {
    for host_id in members {
        context.node.status.learn_applied(host_id, version, schema_version);
    }
}

async fn applied_at(
    context: &Rc<ShardContext>,
    member: &Member,
    version: u64,
    patience: Duration,
) -> Result<u64, PeerError> {
    let request = ClusterRequest::Applied { version, patience_ms: patience.as_millis() as u64 };
    match context.ask(member, 0, &request, patience + ROUND_TRIP).await? {
        ClusterResponse::Applied { version } => Ok(version),
        _ => Err(Failure::Internal("an answer to another request".to_owned()).into()),
    }
}

/// Waits until this node has applied the newest version that was committed when this was called: the leader tells it, once a majority has
/// confirmed that it still leads.
pub async fn catch_up_with_leader(context: &Rc<ShardContext>, deadline: Duration) -> Result<()> {
    if context.cluster_view().is_alone() {
        return Ok(());
    }
    let newest = context.run_on(0, move |context| Box::pin(newest_version(context, deadline))).await??;
    wait_applied(context, newest, deadline).await
}

async fn newest_version(context: Rc<ShardContext>, deadline: Duration) -> Result<u64> {
    let end = context.clock.monotonic() + deadline;
    loop {
        let left = end.saturating_sub(context.clock.monotonic());
        let log = MetadataLog::of(&context)?;
        if log.differs() {
            return Err(RequestError::Server(
                "this node has applied what the cluster has not agreed on; its versions mean nothing to others".to_owned(),
            ));
        }
        let leader = log.leader();
        let member = leader.and_then(|leader| context.cluster_view().topology.member(&leader).cloned());
        let patience = left.min(QUESTION_PATIENCE);
        if leader == Some(context.node.host_id) {
            if let Some(version) = newest_as_leader(&context).await? {
                return Ok(version);
            }
        } else if let Some(member) = member {
            let request = ClusterRequest::NewestVersion;
            if let Ok(ClusterResponse::Applied { version }) =
                context.ask(&member, 0, &request, patience).await
            {
                return Ok(version);
            }
        }
        if left.is_zero() {
            return Err(no_leader(deadline));
        }
        context.clock.sleep(PROPOSAL_RETRY_PAUSE.min(left)).await;
    }
}

/// The newest version that is committed. `None`: this node does not lead, no majority confirms that it does, or it cannot apply its own log.
pub async fn newest_as_leader(context: &Rc<ShardContext>) -> Result<Option<u64>> {
    let log = MetadataLog::of(context)?;
    if context.has_bug(PlantedBug::UnconfirmedLeader) {
        return Ok(log.is_leader().then(|| applied_version(context)));
    }
    // A node whose disk is full goes on leading without applying anything.
    let newest = within(context, QUESTION_PATIENCE, log.newest_version()).await.unwrap_or(Ok(None));
    newest
        .map_err(|error| RequestError::Server(format!("the metadata log of this node has stopped: {error}")))
}

fn no_leader(deadline: Duration) -> RequestError {
    RequestError::Server(format!(
        "no leader of the cluster's metadata answered within {} ms; a majority of the voting members must be alive",
        deadline.as_millis()
    ))
}

/// The error for a proposal with an unknown outcome: a leader that has lost its majority may have it in its log, and
/// the proposal may be committed later.
fn outcome_unknown(deadline: Duration) -> RequestError {
    RequestError::Server(format!(
        "{}; the change may still be carried out once they are: see whether it was before asking for it again",
        no_leader(deadline)
    ))
}

/// Puts a command into the metadata log and resolves with its outcome. Call from any shard of any member. If the
/// outcome is `Applied`, this node has applied the command as well.
pub async fn propose(
    context: &Rc<ShardContext>,
    command: Command,
    deadline: Duration,
) -> Result<CommandOutcome> {
    let end = context.clock.monotonic() + deadline;
    let outcome = context
        .run_on(0, move |context| {
            Box::pin(async move { propose_here(&context, Arc::new(command), deadline).await })
        })
        .await??;
    if let CommandOutcome::Applied { version } | CommandOutcome::Conflict { version } = outcome {
        let left = end.saturating_sub(context.clock.monotonic()).max(ANSWER_PATIENCE);
        wait_applied(context, version, left).await?;
    }
    Ok(outcome)
}

async fn propose_here(
    context: &Rc<ShardContext>,
    command: Arc<Command>,
    deadline: Duration,
) -> Result<CommandOutcome> {
    let end = context.clock.monotonic() + deadline;
    let mut attempts = 0;
    loop {
        let left = end.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return Err(outcome_unknown(deadline));
        }
        let patience = left.min(ANSWER_PATIENCE);
        let leader = MetadataLog::of(context)?.leader();
        if leader == Some(context.node.host_id) {
            if let Some(outcome) = commit(context, &command, patience).await? {
                return Ok(outcome);
            }
        } else if let Some(member) = whom_to_ask(context, leader, attempts) {
            let request = ClusterRequest::Propose {
                command: serde_json::to_vec(&*command)
                    .map_err(|error| RequestError::Server(error.to_string()))?,
                // Members other than the leader forward it.
                forward: leader != Some(member.host_id),
                patience_ms: patience.as_millis() as u64,
            };
            match context.ask(&member, 0, &request, patience + ROUND_TRIP).await {
                Ok(ClusterResponse::Outcome(outcome)) => return Ok(outcome),
                Ok(_) => {}
                Err(error) => tracing::debug!(member = %member.host_id, %error, "a member refused a command"),
            }
        }
        attempts += 1;
        let left = end.saturating_sub(context.clock.monotonic());
        context.clock.sleep(PROPOSAL_RETRY_PAUSE.min(left)).await;
    }
}

/// The member to ask: the leader, alternating with the other members in order, because this node's knowledge of the
/// leader may be outdated.
fn whom_to_ask(context: &ShardContext, leader: Option<HostId>, attempts: usize) -> Option<Arc<Member>> {
    let cluster = context.cluster_view();
    let leader = leader.and_then(|leader| cluster.topology.member(&leader));
    if let Some(leader) = leader.filter(|_| attempts.is_multiple_of(2)) {
        return Some(leader.clone());
    }
    let others: Vec<_> =
        cluster.topology.members.values().filter(|member| member.host_id != context.node.host_id).collect();
    let turn = if leader.is_some() { attempts / 2 } else { attempts };
    others.get(turn % others.len().max(1)).map(|member| Arc::clone(member))
}

/// Commits a command in this node's log. `None`: this node does not lead (any more), or a majority is missing.
pub async fn commit(
    context: &Rc<ShardContext>,
    command: &Command,
    patience: Duration,
) -> Result<Option<CommandOutcome>> {
    let log = MetadataLog::of(context)?;
    let committed = within(context, patience, log.commit(command.clone())).await.unwrap_or(Ok(None));
    committed
        .map_err(|error| RequestError::Server(format!("the metadata log of this node has stopped: {error}")))
}

/// Executes [`ClusterRequest::Propose`].
pub async fn handle_propose(
    context: &Rc<ShardContext>,
    command: &[u8],
    forward: bool,
    patience: Duration,
) -> Result<ClusterResponse, Failure> {
    let decoded: Command =
        serde_json::from_slice(command).map_err(|error| Failure::Malformed(error.to_string()))?;
    let failed = |error: RequestError| Failure::Internal(error.to_string());
    let leader = MetadataLog::of(context).map_err(failed)?.leader();
    if leader == Some(context.node.host_id) {
        let outcome = commit(context, &decoded, patience).await.map_err(failed)?;
        if let (Command::Update(update), Some(CommandOutcome::Refused(Refusal::UnknownMember { .. }))) =
            (&decoded, &outcome)
        {
            show_the_log(context, update, patience).await;
        }
        return Ok(outcome.map_or(ClusterResponse::NoLeader, ClusterResponse::Outcome));
    }
    let member = leader.and_then(|leader| context.cluster_view().topology.member(&leader).cloned());
    let (true, Some(member)) = (forward, member) else { return Ok(ClusterResponse::NoLeader) };
    let request = ClusterRequest::Propose {
        command: command.to_vec(),
        forward: false,
        patience_ms: patience.as_millis() as u64,
    };
    forward_to(context, &member, request, patience).await
}

/// Lets a node receive the log for a while if it takes itself for a member but is not one: in the log it finds the end of its
/// membership.
async fn show_the_log(context: &Rc<ShardContext>, update: &MemberUpdate, patience: Duration) {
    let Ok(log) = MetadataLog::of(context) else { return };
    log.addresses.borrow_mut().insert(update.host_id, update.internode_address);
    let (voters, learners) = log.participants();
    if voters.contains(&update.host_id) || learners.contains(&update.host_id) {
        return;
    }
    let added = log.add_learner(update.host_id);
    if !matches!(within(context, patience, added).await, Some(Ok(()))) {
        tracing::debug!(host_id = %update.host_id, "the metadata log could not be sent to a former member: it will ask again");
    }
}

/// Forwards a request to another member and returns its answer.
pub async fn forward_to(
    context: &Rc<ShardContext>,
    member: &Member,
    request: ClusterRequest,
    patience: Duration,
) -> Result<ClusterResponse, Failure> {
    match context.ask(member, 0, &request, patience + ROUND_TRIP).await {
        Ok(response) => Ok(response),
        Err(PeerError::Failed(failure)) => Err(failure),
        Err(PeerError::Call(_)) => Ok(ClusterResponse::NoLeader),
    }
}

/// Executes [`ClusterRequest::Applied`].
pub async fn handle_applied(context: &Rc<ShardContext>, version: u64, patience: Duration) -> ClusterResponse {
    // The answer shows whether the version was reached.
    let _ = wait_applied(context, version, patience).await;
    ClusterResponse::Applied { version: applied_version(context) }
}
