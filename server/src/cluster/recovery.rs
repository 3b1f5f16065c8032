//! A metadata log that has lost the majority of its voters for good: an operator makes one of the members that are left its only voter.
//!
//! Without a majority the log changes nothing any more: no schema, no members, so the dead could not even be removed. Raft cannot tell dead
//! voters from voters that are cut off; the operator says that they are dead. The member
//! 1. checks that no majority of the voters answers, and that no other member that answers has a log that goes further than its own,
//! 2. appends a change of the participants to its own log, as a leader of a later term would: it alone votes, all others listen,
//! 3. elects itself. The leader lets other members that answer vote again soon (`voters`).
//!
//! Invariants:
//! * What a majority had agreed on is kept as far as any member that answers knows it.
//! * The new term is far above all known ones: whatever the former voters began, those that are back follow this log.
//! * Members that were only cut off may have agreed on something else meanwhile, as long as a majority of the former voters was among them. Such
//!   a node must not come back with its data: this is why the operator decides.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_internode::transport::PeerError;
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::LOG_ENDS;
use thiserror::Error;

use super::message::{ClusterRequest, ClusterResponse};
use super::propose::within;
use super::raft::{LogEnd, LogError, MetadataLog};
use helenus_execution::shard::context::ShardContext;

/// Time limit for the answer of a member.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for the election.
const ELECTION_DEADLINE: Duration = Duration::from_secs(30);
/// The terms that are skipped: more than the former voters can have begun without a majority.
const SKIPPED_TERMS: u64 = 1_000_000;

/// The reason why the log is not recovered.
#[derive(Debug, Error)]
pub enum RecoveryError {
    #[error(
        "a majority of the voters answers ({alive} of {voters}): the metadata log recovers by itself, and nothing must be forced"
    )]
    HasMajority { alive: usize, voters: usize },
    #[error("this node is no member of a cluster")]
    NoMember,
    #[error(
        "members with older programs have taken part until the majority was lost (feature level {level}, {LOG_ENDS} is needed)"
    )]
    Level { level: u16 },
    #[error("member {host_id} at {address} knows more of the metadata log: run the command there")]
    Behind { host_id: HostId, address: std::net::SocketAddr },
    #[error("member {host_id} is up and has not said how far its metadata log goes: {reason}")]
    Unknown { host_id: HostId, reason: String },
    #[error("the log does not lead within {} s", ELECTION_DEADLINE.as_secs())]
    NoLeader,
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Makes this node the only voter. Returns the members that do not answer: they are to be removed. Call on the first shard.
pub async fn recover(context: &Rc<ShardContext>) -> Result<Vec<HostId>, RecoveryError> {
    let log = MetadataLog::of(context)?;
    let view = context.cluster();
    let own = context.node.host_id;
    if view.topology.member(&own).is_none() {
        return Err(RecoveryError::NoMember);
    }
    let level = view.topology.feature_level;
    if level < LOG_ENDS {
        return Err(RecoveryError::Level { level });
    }
    let is_alive = |host_id: &HostId| *host_id == own || view.is_alive(host_id);
    for voters in log.voter_sets() {
        let alive = voters.iter().filter(|host_id| is_alive(host_id)).count();
        // During a change of the voters both sets need a majority.
        if 2 * alive <= voters.len() {
            return force(context, &log, is_alive).await;
        }
    }
    let (voters, _) = log.participants();
    let alive = voters.iter().filter(|host_id| is_alive(host_id)).count();
    Err(RecoveryError::HasMajority { alive, voters: voters.len() })
}

async fn force(
    context: &Rc<ShardContext>,
    log: &Rc<MetadataLog>,
    is_alive: impl Fn(&HostId) -> bool,
) -> Result<Vec<HostId>, RecoveryError> {
    let view = context.cluster();
    let own = context.node.host_id;
    let members = &view.topology.members;
    let others = members.values().filter(|member| member.host_id != own && is_alive(&member.host_id));
    let ends = futures::future::join_all(others.map(|member| end_of(context, member))).await;
    let here = log.end().await?;
    let mut term = here.term;
    for end in ends {
        let (member, end) = end?;
        if end.last > here.last {
            return Err(RecoveryError::Behind { host_id: member.host_id, address: member.internode_address });
        }
        term = term.max(end.term);
    }
    let (voters, learners) = log.participants();
    let all: BTreeSet<HostId> = voters.union(&learners).copied().chain(members.keys().copied()).collect();
    tracing::warn!(?voters, term, "the metadata log goes on without a majority, because an operator says so");
    log.force_only_voter(own, all, term + SKIPPED_TERMS).await?;
    log.elect().await?;
    let mut leaders = log.watch_leader();
    let end = context.clock.monotonic() + ELECTION_DEADLINE;
    while !log.is_leader() {
        let left = end.saturating_sub(context.clock.monotonic());
        match within(context, left, leaders.changed()).await {
            Some(changed) => changed?,
            None => return Err(RecoveryError::NoLeader),
        }
    }
    Ok(members.keys().filter(|host_id| !is_alive(host_id)).copied().collect())
}

/// How far the log of a member goes.
async fn end_of(
    context: &Rc<ShardContext>,
    member: &Arc<Member>,
) -> Result<(Arc<Member>, LogEnd), RecoveryError> {
    let unknown = |reason: String| RecoveryError::Unknown { host_id: member.host_id, reason };
    let answer: Result<ClusterResponse, PeerError> =
        context.ask(member, 0, &ClusterRequest::LogEnd, ANSWER_DEADLINE).await;
    match answer {
        Ok(ClusterResponse::LogEnd { end }) => {
            let end = serde_json::from_str(&end).map_err(|error| unknown(error.to_string()))?;
            Ok((member.clone(), end))
        }
        Ok(_) => Err(unknown("it has not answered the question".to_owned())),
        Err(error) => Err(unknown(error.to_string())),
    }
}
