//! The participants of the metadata log and its voters: the leader keeps them in step with the members.
//!
//! The first five `Normal` members in the order of their joining vote, every other member is a learner. A node that
//! is not a member any more stays a participant for a short time, so that it learns of its removal, and is then taken
//! out.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use helenus_query::error::Result;
use helenus_ring::HostId;

use super::propose::within;
use super::raft::{LogError, MetadataLog};
use helenus_execution::shard::context::ShardContext;

/// Interval of the leader's checks, in addition to one after each change.
const VOTER_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Time for which a node that is not a member participates: one that joins, or one that has left and must learn of
/// it.
const GRACE: Duration = Duration::from_secs(30);
/// Time limit for one change of the participants.
const CHANGE_DEADLINE: Duration = Duration::from_secs(10);

/// Keeps the participants in step with the members as long as the node runs.
pub async fn keep(context: Rc<ShardContext>) {
    let mut stopping = context.node.stopping.subscribe();
    let mut applied = context.node.applied.subscribe();
    // The time since which nodes participate that are not members.
    let mut strangers: BTreeMap<HostId, Duration> = BTreeMap::new();
    loop {
        let Ok(log) = MetadataLog::of(&context) else { return };
        if let Err(error) = adjust(&context, &log, &mut strangers).await {
            tracing::debug!(%error, "the participants of the metadata log could not be changed");
        }
        drop(log);
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            _ = applied.changed() => {}
            () = context.clock.sleep(VOTER_CHECK_PERIOD) => {}
        }
    }
}

async fn adjust(
    context: &ShardContext,
    log: &MetadataLog,
    strangers: &mut BTreeMap<HostId, Duration>,
) -> Result<(), String> {
    if log.leader() != Some(context.node.host_id) || !log.is_leader() {
        strangers.clear();
        return Ok(());
    }
    let state = log.state();
    if !state.is_founded() {
        return Ok(());
    }
    let (voters, learners) = log.participants();
    let takes_part = |host_id: &HostId| voters.contains(host_id) || learners.contains(host_id);
    for host_id in state.topology.members.keys().filter(|host_id| !takes_part(host_id)) {
        done(within(context, CHANGE_DEADLINE, log.add_learner(*host_id)).await)?;
    }
    let wanted = state.voters();
    if !wanted.is_empty() && (wanted != voters || log.is_changing_voters()) {
        done(within(context, CHANGE_DEADLINE, log.set_voters(wanted)).await)?;
    }
    let now = context.clock.monotonic();
    strangers.retain(|host_id, _| !state.topology.members.contains_key(host_id));
    for host_id in &learners {
        if !state.topology.members.contains_key(host_id) {
            strangers.entry(*host_id).or_insert(now);
        }
    }
    let gone = strangers.iter().filter(|(_, since)| now.saturating_sub(**since) >= GRACE);
    let gone: std::collections::BTreeSet<HostId> = gone.map(|(host_id, _)| *host_id).collect();
    if !gone.is_empty() {
        done(within(context, CHANGE_DEADLINE, log.remove_learners(gone.clone())).await)?;
        for host_id in gone {
            strangers.remove(&host_id);
            log.addresses.borrow_mut().remove(&host_id);
        }
    }
    Ok(())
}

fn done(result: Option<Result<(), LogError>>) -> Result<(), String> {
    match result {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("no majority answered in time".to_owned()),
    }
}
