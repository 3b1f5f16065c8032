//! Cleaning up after transitions, so that no member has old data of a range when it gains it: rows that were deleted since would come
//! back with it ([`helenus_ring::metadata::Uncleaned`]).
//!
//! A member that the agreed state names removes its data of the ranges that it has given up, and says so in the metadata log. After a
//! restart, or when ownership has changed meanwhile, it begins again, and finds little left to do.

use std::collections::BTreeSet;
use std::rc::Rc;

use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::member::MemberState;
use helenus_ring::metadata::{Command, CommandOutcome};

use super::{CLEANUP_RETRY_PAUSE, IDLE_PAUSE, PROPOSAL_DEADLINE, wait_for_change};
use crate::cluster::log_throttle::LogThrottle;
use crate::cluster::propose::propose;
use crate::cluster::raft::MetadataLog;
use crate::streaming::cleanup::{self, CleanupError, Extent};

type Result<T> = std::result::Result<T, CleanupError>;

/// What this node has to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Due {
    because_of: BTreeSet<HostId>,
    epoch: u64,
}

/// What this node has to remove, if it is a member that can do so now.
fn due(context: &ShardContext) -> Option<Due> {
    let state = MetadataLog::of(context).ok()?.state();
    let (topology, own) = (&state.topology, &context.node.host_id);
    let is_normal = topology.member(own).is_some_and(|member| member.state == MemberState::Normal);
    let because_of = state.uncleaned().of(own).filter(|_| is_normal && topology.is_settled())?;
    Some(Due { because_of: because_of.clone(), epoch: topology.epoch })
}

/// Starts the task that cleans up whenever this node has given up ranges, if it is to do so by itself. It ends with the node. Call on the first
/// shard, when the metadata log is open.
pub fn start_cleaning(context: &Rc<ShardContext>) {
    if context.node.config.cleanup_after_transition {
        tokio::task::spawn_local(clean(context.clone()));
    }
}

async fn clean(context: Rc<ShardContext>) {
    let mut notices = LogThrottle::default();
    loop {
        let Ok(version) = MetadataLog::of(&context).map(|log| log.state().topology.version) else { return };
        let mut is_to_go_on = true;
        if let Some(due) = due(&context) {
            match remove(&context, &due).await {
                // When the ring is settled it begins again.
                Ok(()) | Err(CleanupError::RingIsChanging) => {}
                Err(error) => {
                    if notices.is_due(&"cleaning", &error, context.clock.monotonic()) {
                        tracing::warn!(%error, "data of ranges that were given up could not be removed; it will be retried");
                    }
                    // Whatever changes: what has failed may cost much.
                    is_to_go_on = wait_for_change(&context, u64::MAX, CLEANUP_RETRY_PAUSE).await;
                }
            }
        }
        if !is_to_go_on || !wait_for_change(&context, version, IDLE_PAUSE).await {
            return;
        }
    }
}

async fn remove(context: &Rc<ShardContext>, due: &Due) -> Result<()> {
    let Due { because_of, epoch } = due.clone();
    if !context.has_bug(PlantedBug::KeepOldRange) {
        let files = cleanup::cleanup(context, None, Extent::GivenUp { because_of, epoch }).await?;
        if files > 0 {
            tracing::info!(files, epoch, "removed the data of ranges that this node has given up");
        }
    }
    say_cleaned(context, due).await
}

/// Cleans up as an operator asks: all that this node does not own. Call on the first shard. Returns the number of files that were rewritten or
/// removed.
pub async fn clean_up(context: &Rc<ShardContext>, keyspace: Option<String>) -> Result<usize> {
    let due = due(context).filter(|_| keyspace.is_none());
    let files = cleanup::cleanup(context, keyspace, Extent::NotOwned).await?;
    if let Some(due) = due {
        say_cleaned(context, &due).await?;
    }
    Ok(files)
}

/// The members that may still have data of ranges that they have given up. Call on the first shard.
pub fn uncleaned(context: &ShardContext) -> Vec<HostId> {
    MetadataLog::of(context)
        .map_or_else(|_| Vec::new(), |log| log.state().uncleaned().members().copied().collect())
}

async fn say_cleaned(context: &Rc<ShardContext>, due: &Due) -> Result<()> {
    let Due { because_of, epoch } = due.clone();
    let command = Command::Cleaned { host_id: context.node.host_id, because_of, epoch };
    match propose(context, command, PROPOSAL_DEADLINE).await? {
        CommandOutcome::Applied { .. } => Ok(()),
        CommandOutcome::Conflict { .. } | CommandOutcome::Busy { .. } => Err(CleanupError::RingIsChanging),
        CommandOutcome::Refused(refusal) => {
            Err(CleanupError::Node(RequestError::Server(refusal.to_string())))
        }
    }
}
