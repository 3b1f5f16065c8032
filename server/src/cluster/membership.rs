//! Joining and leaving: proposes the steps of transitions.
//!
//! Every node runs three tasks on its first shard. The first *receives*: while a transition is in its first phase, it
//! streams the ranges that this node gains ([`crate::streaming::receiver`]), repeatedly until it has everything. The
//! second *drives*: it proposes the next step when its conditions are met. The third *cleans* up after transitions (`cleaning`). All depend
//! only on the agreed state, so after a restart they continue from there.
//!
//! * A joining member drives its own join, a leaving one its own leaving. The removal of a dead member is driven by
//!   the node on which an operator requested it (after a restart of that node, the operator must request it again).
//! * Dead members may be removed together: they take each step together, driven by any node that was asked.
//! * A change of replication is driven by the leader of the metadata log.
//! * A member that is being removed and turns out to be alive stays: it cancels its removal itself, and so does the
//!   driver. The proposal may have been applied long after it was reported as failed. From `ReadNew` on the removal
//!   continues: by then the others have its ranges.
//! * Where a new member takes the place of a dead one, the new one drives both. Should the dead one turn out to be alive, only it takes that
//!   back: a new node hears late who is dead, and could take one for alive that is not.
//! * `WriteBoth` → `ReadNew`: every live member has applied `WriteBoth`, and enough of the owners (`agreement`); all members that gain
//!   ranges have streamed them.
//! * `ReadNew` → the end: every live member has applied `ReadNew`, and enough of the owners; the leaving member does not vote in the
//!   metadata log any more, and has handed over its hints and batches.
//! * A step that is proposed twice has one effect: it names the state that it starts from.
//!
//! Requests of operators are in `requests`.

mod agreement;
mod cleaning;
mod driving;
mod requests;

use crate::streaming::progress::Transfers;
use std::rc::Rc;
use std::time::Duration;

use helenus_internode::endpoint::Endpoint;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::{Command, CommandOutcome, MemberUpdate, Refusal};

pub use self::agreement::waited_for;
pub use self::cleaning::{clean_up, start_cleaning, uncleaned};
pub use self::driving::start;
pub use self::requests::{Consent, abort_join, decommission, removenode};
use super::join::{JoinError, join};
use super::log_throttle::LogThrottle;
use super::propose::propose;
use crate::cluster::own_member::{own_member, version_as_member};
use crate::cluster::raft::MetadataLog;
use crate::streaming::{self, progress, receiver, replicated_tables};
use helenus_execution::coordinator::{paxos, transaction_tokens};
use helenus_execution::shard::context::ShardContext;

/// Timeout of a proposal.
const PROPOSAL_DEADLINE: Duration = Duration::from_secs(30);
/// Pause before a failed transfer is retried, and before a busy cluster is asked again.
const TRANSITION_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a failed cleanup is tried again: of a damaged file, or on a full disk.
const CLEANUP_RETRY_PAUSE: Duration = Duration::from_mins(1);
/// Interval at which a waiting task checks the state even without a notification.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// Time without news from the metadata log after which a joining node reports itself.
const NEWS_PATIENCE: Duration = Duration::from_secs(30);
/// Time after which a node that asks its seeds gives up with an error.
const JOIN_DEADLINE: Duration = Duration::from_hours(24);

/// The reason why a member could not join or leave.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    #[error(
        "this node ({host_id}) was removed from the cluster for good; to use the machine again, start it with an empty data directory"
    )]
    Removed { host_id: HostId },
    #[error("the join of this node was aborted")]
    JoinAborted,
    #[error("the leaving of {host_id} was aborted")]
    LeaveAborted { host_id: HostId },
    #[error("node {host_id} stays a member: it is alive, or its removal was aborted")]
    RemovalTakenBack { host_id: HostId },
    #[error("no other normal nodes in the ring; decommission would be pointless")]
    LastMember,
    #[error(
        "Not enough live nodes to maintain replication factor in keyspace {keyspace} (RF = {factor}, N = {members}). Perform a forceful decommission to ignore."
    )]
    TooFewMembers { keyspace: String, factor: u32, members: u32 },
    #[error("node {host_id} is {state:?}: it can only leave when it is normal")]
    NotNormal { host_id: HostId, state: MemberState },
    #[error("Node in {mode} state; wait for status to become normal or restart")]
    NotServing { mode: &'static str },
    #[error("Host ID {host_id} not found.")]
    UnknownMember { host_id: HostId },
    #[error("Cannot remove self")]
    OwnRemoval,
    #[error(transparent)]
    OnlyCopy(Refusal),
    #[error("Node {host_id} is alive and owns this ID. Use decommission command to remove it from the ring")]
    StillAlive { host_id: HostId },
    #[error("node {host_id} neither joins nor leaves")]
    NotInTransition { host_id: HostId },
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Node(#[from] RequestError),
}

type Result<T> = std::result::Result<T, MembershipError>;

/// Waits for a later version of the metadata to be applied, at most `patience`. Returns false when the node stops. A
/// shard may see a version before all of it is applied.
async fn wait_for_change(context: &ShardContext, seen_version: u64, patience: Duration) -> bool {
    let mut applied = context.node.applied.subscribe();
    let mut stopping = context.node.stopping.subscribe();
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => false,
        // An error means that the node has ended, and this task with it.
        changed = applied.wait_for(|version| *version > seen_version) => changed.is_ok(),
        () = context.clock.sleep(patience) => true,
    }
}

/// Streams the ranges that this node gains.
async fn receive(context: Rc<ShardContext>) {
    let mut is_clear = false;
    let mut notices = LogThrottle::default();
    let mut estimates = receiver::Estimates::default();
    loop {
        let view = context.cluster();
        let topology = &view.topology;
        let transfers = Transfers::of(&context.node);
        let mut patience = IDLE_PAUSE;
        let phase = match topology.in_transition().map(|member| member.state) {
            Some(MemberState::Joining(phase) | MemberState::Leaving(phase)) => Some(phase),
            Some(MemberState::Normal) | None => topology.replication_phase(),
        };
        match phase {
            Some(TransitionPhase::WriteBoth) if !transfers.is_done(topology.epoch) => {
                is_clear = false;
                let is_removal =
                    MetadataLog::of(&context).is_ok_and(|log| !log.state().removals().is_empty());
                match receiver::run(&context, &mut estimates, is_removal).await {
                    Ok(()) => continue,
                    Err(error) => {
                        transfers.note_waiting(topology.epoch, Some(error.to_string()));
                        if notices.is_due(&"receiving", &error, context.clock.monotonic()) {
                            tracing::warn!(%error, "streaming of ranges failed; it will be retried");
                        }
                        patience = TRANSITION_RETRY_PAUSE;
                    }
                }
            }
            Some(_) => is_clear = false,
            None if is_clear => {}
            None => {
                is_clear = true;
                transfers.end(context.clock.monotonic());
                // The progress would only take up space.
                if let Err(error) = progress::forget_others(&context, 0).await {
                    tracing::warn!(%error, "the progress of a completed transfer could not be removed");
                }
            }
        }
        if !wait_for_change(&context, topology.version, patience).await {
            return;
        }
    }
}

/// Makes this node a member: joins through the seeds if it is not one yet. Call on the first shard, when the metadata
/// log is open.
pub async fn enter(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<()> {
    check_removed(context)?;
    if version_as_member(context).is_none() {
        discard_ranges(context).await?;
        join(context, seeds, JOIN_DEADLINE).await?;
    }
    Ok(())
}

/// Waits until this node has streamed all ranges that it gains, in this run or in earlier ones. Call from any shard,
/// after [`enter`], and before clients are served.
pub async fn wait_until_normal(context: &Rc<ShardContext>) -> Result<()> {
    let host_id = context.node.host_id;
    let mut news = (0, context.clock.monotonic());
    loop {
        let (version, state) = {
            let topology = &context.cluster_view().topology;
            (topology.version, topology.member(&host_id).map(|member| member.state))
        };
        match state {
            Some(MemberState::Normal | MemberState::Leaving(_)) => return Ok(()),
            Some(state @ MemberState::Joining(_)) => {
                report_progress(context);
                let now = context.clock.monotonic();
                if news.0 != version {
                    news = (version, now);
                } else if now.saturating_sub(news.1) >= NEWS_PATIENCE {
                    ask_for_news(context, state).await;
                    news.1 = context.clock.monotonic();
                }
            }
            None => {
                check_removed(context)?;
                return Err(MembershipError::JoinAborted);
            }
        }
        if !wait_for_change(context, version, IDLE_PAUSE).await {
            return Err(RequestError::Server("the node is shutting down".to_owned()).into());
        }
    }
}

/// A node whose join was cancelled while it could not be reached is no member for the others any more, and they do not send it
/// the log. The leader sends the log to nodes that report themselves ([`mod@super::propose`]); in the log the node finds the end
/// of its membership.
async fn ask_for_news(context: &Rc<ShardContext>, state: MemberState) {
    let update = MemberUpdate::of(&own_member(context, state));
    match propose(context, Command::Update(update), PROPOSAL_DEADLINE).await {
        Ok(CommandOutcome::Refused(refusal)) => {
            tracing::warn!(%refusal, "the other members do not accept this node as a member");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "no member answered a query about the join of this node"),
    }
}

/// Logs the progress of a join.
fn report_progress(context: &ShardContext) {
    let Some(progress) = streaming::progress(context).receiving else {
        tracing::info!("joining the cluster");
        return;
    };
    tracing::info!(
        percent = %format_args!("{:.1}", progress.percent),
        bytes = progress.bytes,
        seconds_left = ?progress.seconds_left,
        waiting_for = progress.waiting_for.as_deref().unwrap_or("nothing"),
        "joining the cluster: streaming the ranges that this node gains"
    );
}

/// Returns an error if this node has left the cluster, or was removed.
pub fn check_removed(context: &ShardContext) -> Result<()> {
    let host_id = context.node.host_id;
    if context.cluster_view().topology.removed.contains(&host_id) {
        return Err(MembershipError::Removed { host_id });
    }
    Ok(())
}

/// Empties the tables of the ring, and those of transactions: data of a node that is not a member remains from a join that was aborted.
async fn discard_ranges(context: &Rc<ShardContext>) -> Result<()> {
    let tables: Vec<_> = {
        let catalog = context.catalog();
        let keyspaces = catalog
            .keyspaces
            .values()
            .filter(|keyspace| !keyspace.is_virtual && keyspace.replication != Replication::Local);
        let of_ring = keyspaces.flat_map(|keyspace| replicated_tables(keyspace));
        [paxos::store::TABLE, transaction_tokens::TABLE].into_iter().chain(of_ring).collect()
    };
    for shard in 0..context.node.shard_count() {
        let tables = tables.clone();
        context
            .run_on(shard, move |context| {
                Box::pin(async move {
                    for table in tables {
                        if context.shard.statistics(table)? != helenus_engine::TableStatistics::default() {
                            context.shard.truncate(table).await?;
                        }
                    }
                    Ok::<_, RequestError>(())
                })
            })
            .await??;
    }
    Ok(())
}
