//! The participants of the metadata log and its voters: the leader keeps them in step with the members.
//!
//! Who votes is said by [`ClusterState::voters`](helenus_ring::metadata::ClusterState::voters); every other member is a learner. A node that
//! is not a member any more stays a participant for a short time, so that it learns of its removal, and is then taken
//! out.
//!
//! Invariant: voters are changed only to such a set of which a majority answers.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use helenus_query::error::Result;
use helenus_ring::HostId;
use helenus_ring::metadata::SeenMembers;

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
/// A voter that has not answered for that time is replaced, if another member can vote in its place.
const LOST_AFTER: Duration = Duration::from_mins(1);

/// What a leader has seen of the members.
#[derive(Default)]
struct Watched {
    /// The time since which nodes participate that are not members.
    strangers: BTreeMap<HostId, Duration>,
    /// The time since which members do not answer.
    down: BTreeMap<HostId, Duration>,
}

/// Keeps the participants in step with the members as long as the node runs.
pub async fn keep(context: Rc<ShardContext>) {
    let mut stopping = context.node.stopping.subscribe();
    let mut applied = context.node.applied.subscribe();
    let mut watched = Watched::default();
    loop {
        let Ok(log) = MetadataLog::of(&context) else { return };
        if let Err(error) = adjust(&context, &log, &mut watched).await {
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

impl Watched {
    fn see(&mut self, context: &ShardContext, voters: BTreeSet<HostId>, now: Duration) -> SeenMembers {
        let view = context.cluster_view();
        let is_alive = |host_id: &HostId| *host_id == context.node.host_id || view.is_alive(host_id);
        let (alive, down): (BTreeSet<HostId>, BTreeSet<HostId>) =
            view.topology.members.keys().copied().partition(|host_id| is_alive(host_id));
        self.down.retain(|host_id, _| down.contains(host_id));
        for host_id in down {
            self.down.entry(host_id).or_insert(now);
        }
        let is_lost = |(_, since): &(&HostId, &Duration)| now.saturating_sub(**since) >= LOST_AFTER;
        let lost = self.down.iter().filter(is_lost).map(|(host_id, _)| *host_id).collect();
        SeenMembers { voters, alive, lost }
    }
}

async fn adjust(context: &ShardContext, log: &MetadataLog, watched: &mut Watched) -> Result<(), String> {
    if log.leader() != Some(context.node.host_id) || !log.is_leader() {
        *watched = Watched::default();
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
    let now = context.clock.monotonic();
    let seen = watched.see(context, voters, now);
    let wanted = state.voters(&seen);
    let answering = wanted.intersection(&seen.alive).count();
    if 2 * answering > wanted.len() && (wanted != seen.voters || log.is_changing_voters()) {
        done(within(context, CHANGE_DEADLINE, log.set_voters(wanted)).await)?;
    }
    let strangers = &mut watched.strangers;
    strangers.retain(|host_id, _| !state.topology.members.contains_key(host_id));
    for host_id in &learners {
        if !state.topology.members.contains_key(host_id) {
            strangers.entry(*host_id).or_insert(now);
        }
    }
    let gone = strangers.iter().filter(|(_, since)| now.saturating_sub(**since) >= GRACE);
    let gone: BTreeSet<HostId> = gone.map(|(host_id, _)| *host_id).collect();
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
