//! A metadata log that has lost the majority of its voters for good: an operator makes one of the members that are left its only voter.
//!
//! Without a majority the log changes nothing any more: no schema, no members, so the dead could not even be removed. Raft cannot tell dead
//! voters from voters that are cut off; the operator says that they are dead. The member
//! 1. asks all others how far their logs go. It checks that no majority of the voters answers, and that no other member that answers is to do it
//!    instead: one whose log goes further, or as far with a lower host id.
//! 2. appends a change of the participants to its own log, as a leader of a later term would: it alone votes, all others listen,
//! 3. elects itself. The leader lets other members that answer vote again soon (`voters`).
//!
//! Invariants:
//! * What a majority had agreed on is kept as far as any member that answers knows it.
//! * The failure detector is not believed: it may have just begun. A member that it takes for alive and that does not answer ends the attempt.
//! * No two recoveries write the same entry: a part of the term is random.
//! * A former voter that has applied what no member that is left knew does not follow: it refuses the log (`raft/network.rs`) until it is removed
//!   and joins anew. Members that were only cut off may even go on by themselves if they were a majority. This is why the operator decides.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use thiserror::Error;

use super::message::{ClusterRequest, ClusterResponse};
use super::propose::within;
use super::raft::{LogEnd, LogError, MetadataLog};
use helenus_execution::shard::context::ShardContext;

/// Time limit for the answer of a member.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for the election.
const ELECTION_DEADLINE: Duration = Duration::from_secs(30);
/// The terms that are skipped at least: more than the former voters can have begun without a majority.
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
        "member {host_id} at {address} knows more of the metadata log, or as much and comes first: run the command there"
    )]
    Behind { host_id: HostId, address: SocketAddr },
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
    let here = log.end().await?;
    let others = view.topology.members.values().filter(|member| member.host_id != own);
    let asked = others.map(|member| async move { (member, end_of(context, member).await) });
    let mut answering = BTreeSet::from([own]);
    let (mut term, mut first, mut unknown) = (here.term, None, None);
    for (member, end) in futures::future::join_all(asked).await {
        match end {
            Ok(end) => {
                answering.insert(member.host_id);
                term = term.max(end.term);
                if end.last > here.last || (end.last == here.last && member.host_id < own) {
                    first = Some(member);
                }
            }
            Err(error) if view.is_alive(&member.host_id) => unknown = Some(error),
            Err(_) => {}
        }
    }
    // While the voters change, both sets need a majority.
    let has_majority = |voters: &BTreeSet<HostId>| 2 * voters.intersection(&answering).count() > voters.len();
    let (voters, learners) = log.participants();
    if log.voter_sets().iter().all(has_majority) {
        let alive = voters.intersection(&answering).count();
        return Err(RecoveryError::HasMajority { alive, voters: voters.len() });
    }
    if let Some(error) = unknown {
        return Err(error);
    }
    if let Some(member) = first {
        return Err(RecoveryError::Behind { host_id: member.host_id, address: member.internode_address });
    }
    let members = view.topology.members.keys();
    let all: BTreeSet<HostId> = voters.union(&learners).chain(members).copied().collect();
    let term = term + SKIPPED_TERMS + context.random.borrow_mut().below(SKIPPED_TERMS);
    tracing::warn!(?voters, term, "the metadata log goes on without a majority, because an operator says so");
    log.force_only_voter(own, all, here, term).await?;
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
    let members = &context.cluster().topology.members;
    Ok(members.keys().filter(|host_id| !answering.contains(host_id)).copied().collect())
}

/// How far the log of a member goes.
async fn end_of(context: &Rc<ShardContext>, member: &Member) -> Result<LogEnd, RecoveryError> {
    let unknown = |reason: String| RecoveryError::Unknown { host_id: member.host_id, reason };
    match context.ask(member, 0, &ClusterRequest::LogEnd, ANSWER_DEADLINE).await {
        Ok(ClusterResponse::LogEnd { end }) => {
            serde_json::from_str(&end).map_err(|error| unknown(error.to_string()))
        }
        Ok(_) => Err(unknown("it has not answered the question".to_owned())),
        Err(error) => Err(unknown(error.to_string())),
    }
}
