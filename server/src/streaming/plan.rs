//! Computes which member streams which ranges from which sources while members join or leave, or the replication of a keyspace
//! changes. Without I/O.
//!
//! For each range of tokens there are the replicas before the transition and those after it. A replica that *gains*
//! the range is paired with one that *loses* it (of the same data center) and takes its replica slot:
//!
//! * It streams from the replica that loses the range. Then for any quorum of the old replicas that has a write, the
//!   replicas in the same slots are a quorum of the new ones that has it.
//! * If that replica is dead, it streams from enough of the other old replicas that at least one of them has every
//!   write that a quorum has acknowledged: of `n` old replicas with a quorum of `q`, from `n - q + 1` (and likewise
//!   within the data center, for its local quorums). Nobody waits for dead replicas that leave, too: what only they had
//!   is lost.
//! * If it takes no other replica's slot (the keyspace has more replicas than the cluster had members), any two
//!   quorums of the old replicas and itself intersect among the old ones anyway. It streams from one of them, so that
//!   it has the data.
//! * If no replica takes a slot (the cluster shrinks below the keyspace's replication factor), the data that only the
//!   old replica has goes to a replica that stays.
//!
//! A change of replication has other quorums afterwards, so slots prove nothing ([`plan_change`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::{Keyspace, Replication};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::placement::{Placement, TokenRange};
use helenus_ring::topology::Topology;

use super::fetch_plan::{FetchPlan, Replications, enough};
use super::plan_change::plan_change;

/// The members before and after the present transition.
#[derive(Debug, Clone)]
pub struct Sides {
    before: Topology,
    after: Topology,
}

impl Sides {
    /// `None`: no range changes hands.
    pub fn of(topology: &Topology) -> Option<Self> {
        if topology.is_settled() {
            return None;
        }
        let (mut before, mut after) = (topology.clone(), topology.clone());
        for member in topology.moving() {
            let (with, without) = match member.state {
                MemberState::Leaving(_) => (&mut before, &mut after),
                MemberState::Joining(_) | MemberState::Normal => (&mut after, &mut before),
            };
            let settled = Arc::new(Member { state: MemberState::Normal, ..Member::clone(member) });
            with.members.insert(member.host_id, settled);
            without.members.remove(&member.host_id);
        }
        Some(Self { before, after })
    }

    /// `None`: the keyspace has no ranges that change hands.
    pub fn replications(&self, keyspace: &Keyspace) -> Option<Replications> {
        if keyspace.is_virtual || keyspace.replication == Replication::Local {
            return None;
        }
        let change = self.before.replication_changes.get(&keyspace.name);
        let sides = |before: &Replication, after: &Replication| {
            Some(Replications { before: before.clone(), after: after.clone() })
        };
        match (self.before.replication_phase(), change) {
            (None, _) => {
                let replication = self.before.replication_of(keyspace);
                sides(replication, replication)
            }
            (Some(_), Some(change)) if change.phase.is_some() => sides(&change.before, &change.after),
            (Some(_), _) => None,
        }
    }

    /// Where the replicas are before and after the transition.
    pub fn placements(&self, replications: &Replications) -> [Placement; 2] {
        [Placement::new(&self.before, &replications.before), Placement::new(&self.after, &replications.after)]
    }

    /// The plan of every member that gains ranges, given the live members.
    pub fn plan(&self, replications: &Replications, alive: &BTreeSet<HostId>) -> BTreeMap<HostId, FetchPlan> {
        let [before, after] = self.placements(replications);
        let mut plans: BTreeMap<HostId, FetchPlan> = BTreeMap::new();
        for range in before.common_ranges(&after) {
            let old = &before.replicas(range.end).read;
            let new = &after.replicas(range.end).read;
            if replications.before == replications.after {
                let stays = |member: &Member| self.after.members.contains_key(&member.host_id);
                plan_range(range, old, new, &replications.before, alive, &stays, &mut plans);
            } else {
                plan_change(range, old, new, replications, alive, &mut plans);
            }
        }
        for plan in plans.values_mut() {
            for ranges in plan.sources.values_mut().chain([&mut plan.blocked, &mut plan.lost]) {
                join_neighbours(ranges);
            }
        }
        plans
    }
}

/// Joins adjacent ranges. The ranges are sorted by their ends.
fn join_neighbours(ranges: &mut Vec<TokenRange>) {
    let mut joined: Vec<TokenRange> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match joined.last_mut() {
            Some(last) if last.end == range.start && last.start != last.end => last.end = range.end,
            _ => joined.push(range),
        }
    }
    *ranges = joined;
}

fn plan_range(
    range: TokenRange,
    old: &[Arc<Member>],
    new: &[Arc<Member>],
    replication: &Replication,
    alive: &BTreeSet<HostId>,
    stays: &impl Fn(&Member) -> bool,
    plans: &mut BTreeMap<HostId, FetchPlan>,
) {
    let is_in = |members: &[Arc<Member>], member: &Member| {
        members.iter().any(|known| known.host_id == member.host_id)
    };
    // Those that could ever be asked.
    let lasting: Vec<&Arc<Member>> =
        old.iter().filter(|member| stays(member) || alive.contains(&member.host_id)).collect();
    let mut given_up: Vec<&Arc<Member>> = old.iter().filter(|member| !is_in(new, member)).collect();
    let by_center = matches!(replication, Replication::NetworkTopology { .. });
    for gaining in new.iter().filter(|member| !is_in(old, member)) {
        let replica = given_up
            .iter()
            .position(|member| !by_center || member.data_center == gaining.data_center)
            .map(|index| given_up.remove(index));
        let plan = plans.entry(gaining.host_id).or_default();
        match replica {
            Some(replica) if alive.contains(&replica.host_id) => plan.fetch(range, replica),
            Some(replica) => {
                let others = lasting.iter().copied().filter(|member| member.host_id != replica.host_id);
                let others: Vec<_> = others.collect();
                fetch_from_others(plan, range, old, &others, replica, gaining, replication, alive);
            }
            None => match nearest(old, gaining, alive) {
                Some(source) => plan.fetch(range, source),
                // No replica had it before: the keyspace has no replica in the cluster.
                None if old.is_empty() => {}
                None if lasting.is_empty() => plan.lost.push(range),
                None => plan.blocked.push(range),
            },
        }
    }
    for replica in given_up.into_iter().filter(|replica| alive.contains(&replica.host_id)) {
        let near = new.iter().find(|member| is_in(old, member) && member.data_center == replica.data_center);
        if let Some(heir) = near.or_else(|| new.iter().find(|member| is_in(old, member))) {
            plans.entry(heir.host_id).or_default().fetch(range, replica);
        }
    }
}

/// The live member that is nearest to `to`: in its rack, its data center, or any.
fn nearest<'a>(members: &'a [Arc<Member>], to: &Member, alive: &BTreeSet<HostId>) -> Option<&'a Arc<Member>> {
    members
        .iter()
        .filter(|member| alive.contains(&member.host_id))
        .min_by_key(|member| (member.data_center != to.data_center, member.rack != to.rack))
}

/// Plans to stream from enough of the `others`, old replicas beside `replica`, which is dead, to cover every write that a quorum has
/// acknowledged.
#[allow(clippy::too_many_arguments, reason = "all describe the one range")]
fn fetch_from_others(
    plan: &mut FetchPlan,
    range: TokenRange,
    old: &[Arc<Member>],
    others: &[&Arc<Member>],
    replica: &Member,
    gaining: &Member,
    replication: &Replication,
    alive: &BTreeSet<HostId>,
) {
    let in_center = |member: &Member| member.data_center == replica.data_center;
    let (wanted, mut wanted_local) = match replication {
        Replication::Local => (0, 0),
        Replication::Simple { replication_factor } => (enough(old.len(), *replication_factor as usize), 0),
        Replication::NetworkTopology { data_centers } => {
            let all: u32 = data_centers.values().sum();
            let local = data_centers.get(&replica.data_center).copied().unwrap_or(0);
            let old_local = old.iter().filter(|member| in_center(member)).count();
            (enough(old.len(), all as usize), enough(old_local, local as usize))
        }
    };
    if others.is_empty() {
        plan.lost.push(range);
        return;
    }
    // A replica that was the only one of its data center acknowledged its local quorums alone: they are lost with
    // it.
    wanted_local = wanted_local.min(others.iter().filter(|member| in_center(member)).count());
    let wanted = wanted.clamp(1, others.len());
    let mut living: Vec<_> = others.iter().filter(|member| alive.contains(&member.host_id)).collect();
    // The sort is stable: members that compare equal stay in the order of the ring.
    living.sort_by_key(|member| (!in_center(member), member.rack != gaining.rack));
    let living_local = living.iter().filter(|member| in_center(member)).count();
    if living.len() < wanted || living_local < wanted_local {
        plan.blocked.push(range);
        return;
    }
    for source in living.into_iter().take(wanted.max(wanted_local)) {
        plan.fetch(range, source);
    }
}

#[cfg(test)]
mod tests;
