//! Computes which member streams which ranges from which sources while a member joins or leaves. Without I/O.
//!
//! For each range of tokens there are the replicas before the transition and those after it. A replica that *gains*
//! the range is paired with one that *loses* it (of the same data center) and takes its replica slot:
//!
//! * It streams from the replica that loses the range. Then for any quorum of the old replicas that has a write, the
//!   replicas in the same slots are a quorum of the new ones that has it.
//! * If that replica is dead, it streams from enough of the other old replicas that at least one of them has every
//!   write that a quorum has acknowledged: of `n` old replicas with a quorum of `q`, from `n - q + 1` (and likewise
//!   within the data center, for its local quorums).
//! * If it takes no other replica's slot (the keyspace has more replicas than the cluster had members), any two
//!   quorums of the old replicas and itself intersect among the old ones anyway. It streams from one of them, so that
//!   it has the data.
//! * If no replica takes a slot (the cluster shrinks below the keyspace's replication factor), the data that only the
//!   old replica has goes to a replica that stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState, TransitionPhase};
use helenus_ring::placement::{Placement, TokenRange};
use helenus_ring::topology::Topology;

/// The ranges that one member has to stream for the keyspaces of one replication strategy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// Ranges by source. A range may be streamed from several sources: the union of their data is needed.
    pub sources: BTreeMap<HostId, Vec<TokenRange>>,
    /// Ranges that cannot be streamed until more of their replicas are alive.
    pub blocked: Vec<TokenRange>,
    /// Ranges whose only replica that ever had the data is dead.
    pub lost: Vec<TokenRange>,
}

/// The members before and after the present transition.
#[derive(Debug, Clone)]
pub struct Sides {
    pub before: Topology,
    pub after: Topology,
}

impl Sides {
    /// `None`: no member joins or leaves.
    pub fn of(topology: &Topology) -> Option<Self> {
        let member = topology.in_transition()?;
        let mut with = topology.clone();
        with.members
            .insert(member.host_id, Arc::new(Member { state: MemberState::Normal, ..Member::clone(member) }));
        let mut without = topology.clone();
        without.members.remove(&member.host_id);
        match member.state {
            MemberState::Leaving(TransitionPhase::WriteBoth | TransitionPhase::ReadNew) => {
                Some(Self { before: with, after: without })
            }
            MemberState::Joining(_) | MemberState::Normal => Some(Self { before: without, after: with }),
        }
    }

    /// The plan of every member that gains ranges, given the live members.
    pub fn plan(&self, replication: &Replication, alive: &BTreeSet<HostId>) -> BTreeMap<HostId, FetchPlan> {
        let before = Placement::new(&self.before, replication);
        let after = Placement::new(&self.after, replication);
        let mut plans: BTreeMap<HostId, FetchPlan> = BTreeMap::new();
        for range in common_ranges(&before, &after) {
            let old = &before.replicas(range.end).read;
            let new = &after.replicas(range.end).read;
            plan_range(range, old, new, replication, alive, &mut plans);
        }
        for plan in plans.values_mut() {
            for ranges in plan.sources.values_mut().chain([&mut plan.blocked, &mut plan.lost]) {
                join_neighbours(ranges);
            }
        }
        plans
    }
}

/// The ranges within which neither placement changes.
fn common_ranges(before: &Placement, after: &Placement) -> Vec<TokenRange> {
    let ends: BTreeSet<i64> = before.ranges().chain(after.ranges()).map(|(range, _)| range.end).collect();
    let Some(&last) = ends.last() else { return Vec::new() };
    let starts = std::iter::once(last).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| TokenRange { start, end }).collect()
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
    plans: &mut BTreeMap<HostId, FetchPlan>,
) {
    let is_in = |members: &[Arc<Member>], member: &Member| {
        members.iter().any(|known| known.host_id == member.host_id)
    };
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
            Some(replica) => plan.fetch_from_others(range, old, replica, gaining, replication, alive),
            None => match nearest(old, gaining, alive) {
                Some(source) => plan.fetch(range, source),
                // No replica had it before: the keyspace has no replica in the cluster.
                None if old.is_empty() => {}
                None => plan.blocked.push(range),
            },
        }
    }
    for replica in given_up.into_iter().filter(|replica| alive.contains(&replica.host_id)) {
        let stays = new.iter().find(|member| is_in(old, member) && member.data_center == replica.data_center);
        if let Some(heir) = stays.or_else(|| new.iter().find(|member| is_in(old, member))) {
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

impl FetchPlan {
    fn fetch(&mut self, range: TokenRange, source: &Member) {
        self.sources.entry(source.host_id).or_default().push(range);
    }

    /// Plans to stream from enough old replicas other than `replica`, which is dead, to cover every write that a quorum
    /// has acknowledged.
    fn fetch_from_others(
        &mut self,
        range: TokenRange,
        old: &[Arc<Member>],
        replica: &Member,
        gaining: &Member,
        replication: &Replication,
        alive: &BTreeSet<HostId>,
    ) {
        let in_center = |member: &Member| member.data_center == replica.data_center;
        let (wanted, mut wanted_local) = match replication {
            Replication::Local => (0, 0),
            Replication::Simple { replication_factor } => {
                (enough(old.len(), *replication_factor as usize), 0)
            }
            Replication::NetworkTopology { data_centers } => {
                let all: u32 = data_centers.values().sum();
                let local = data_centers.get(&replica.data_center).copied().unwrap_or(0);
                let old_local = old.iter().filter(|member| in_center(member)).count();
                (enough(old.len(), all as usize), enough(old_local, local as usize))
            }
        };
        let others: Vec<_> = old.iter().filter(|member| member.host_id != replica.host_id).collect();
        if others.is_empty() {
            self.lost.push(range);
            return;
        }
        // A replica that was the only one of its data center acknowledged its local quorums alone: they are lost with
        // it.
        wanted_local = wanted_local.min(others.iter().filter(|member| in_center(member)).count());
        let wanted = wanted.clamp(1, others.len());
        let mut living: Vec<_> =
            others.into_iter().filter(|member| alive.contains(&member.host_id)).collect();
        // The sort is stable: members that compare equal stay in the order of the ring.
        living.sort_by_key(|member| (!in_center(member), member.rack != gaining.rack));
        let living_local = living.iter().filter(|member| in_center(member)).count();
        if living.len() < wanted || living_local < wanted_local {
            self.blocked.push(range);
            return;
        }
        for source in living.into_iter().take(wanted.max(wanted_local)) {
            self.fetch(range, source);
        }
    }
}

/// How many of `count` replicas together have every write that a quorum of `factor` has acknowledged.
fn enough(count: usize, factor: usize) -> usize {
    let quorum = factor / 2 + 1;
    (count + 1).saturating_sub(quorum)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn member(number: u128, state: MemberState, center: u8, rack: u8, tokens: Vec<i64>) -> Arc<Member> {
        let address = "127.0.0.1:1".parse().unwrap();
        Arc::new(Member {
            host_id: Uuid::from_u128(number),
            internode_address: address,
            native_address: address,
            shard_aware_port: 0,
            shard_count: 1,
            data_center: format!("dc{center}"),
            rack: format!("rack{rack}"),
            tokens,
            state,
            release_version: String::new(),
            protocol_version: 1,
            feature_version: 1,
        })
    }

    fn topology(members: Vec<Arc<Member>>) -> Topology {
        Topology {
            members: members.into_iter().map(|member| (member.host_id, member)).collect(),
            ..Topology::default()
        }
    }

    fn subsets(items: &[HostId], size: usize) -> Vec<BTreeSet<HostId>> {
        (0_u32..1 << items.len())
            .filter(|bits| bits.count_ones() as usize == size)
            .map(|bits| {
                let chosen = items.iter().enumerate().filter(|(index, _)| bits & (1 << index) != 0);
                chosen.map(|(_, id)| *id).collect()
            })
            .collect()
    }

    fn ids<'a>(members: impl IntoIterator<Item = &'a Arc<Member>>) -> Vec<HostId> {
        members.into_iter().map(|member| member.host_id).collect()
    }

    #[derive(Debug, Clone)]
    struct Case {
        topology: Topology,
        replication: Replication,
        dead: BTreeSet<HostId>,
    }

    fn case() -> impl Strategy<Value = Case> {
        let members = prop::collection::vec((0_u8..2, 0_u8..3, 1_usize..4), 1..8);
        let tokens = prop::collection::btree_set(-1000_i64..1000, 32).prop_map(Vec::from_iter);
        let replication = prop_oneof![
            (1_u32..6).prop_map(|replication_factor| Replication::Simple { replication_factor }),
            (1_u32..4, 0_u32..4).prop_map(|(first, second)| Replication::NetworkTopology {
                data_centers: [("dc0", first), ("dc1", second)]
                    .into_iter()
                    .filter(|(_, factor)| *factor > 0)
                    .map(|(name, factor)| (name.to_owned(), factor))
                    .collect()
            }),
        ];
        (members, tokens.prop_shuffle(), replication, any::<bool>(), prop::collection::vec(0_u128..8, 0..2))
            .prop_map(|(members, tokens, replication, joins, dead)| {
                let mut tokens = tokens.into_iter();
                let mut count = 0_u128;
                let members = members.into_iter().map(|(center, rack, token_count)| {
                    let state = match (count, joins) {
                        (0, true) => MemberState::Joining(TransitionPhase::WriteBoth),
                        (0, false) => MemberState::Leaving(TransitionPhase::WriteBoth),
                        _ => MemberState::Normal,
                    };
                    let tokens = tokens.by_ref().take(token_count).collect();
                    let made = member(count, state, center, rack, tokens);
                    count += 1;
                    made
                });
                let topology = topology(members.collect());
                let dead = dead.into_iter().filter(|number| *number < count && (!joins || *number > 0));
                Case { topology, replication, dead: dead.map(Uuid::from_u128).collect() }
            })
    }

    /// The replicas that have a write, acknowledged by the given ones, after all streams have completed.
    fn holders(
        acknowledged: &BTreeSet<HostId>,
        token: i64,
        plans: &BTreeMap<HostId, FetchPlan>,
    ) -> BTreeSet<HostId> {
        let mut holders = acknowledged.clone();
        for (receiver, plan) in plans {
            for (source, ranges) in &plan.sources {
                if acknowledged.contains(source) && ranges.iter().any(|range| range.contains(token)) {
                    holders.insert(*receiver);
                }
            }
        }
        holders
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// A write acknowledged by any quorum of the old replicas is read by every quorum of the new ones: overall,
        /// and in each data center.
        #[test]
        fn a_quorum_before_is_seen_by_every_quorum_after(case in case()) {
            let Some(sides) = Sides::of(&case.topology) else { return Ok(()) };
            let alive: BTreeSet<_> =
                case.topology.members.keys().copied().filter(|id| !case.dead.contains(id)).collect();
            let plans = sides.plan(&case.replication, &alive);
            let before = Placement::new(&sides.before, &case.replication);
            let after = Placement::new(&sides.after, &case.replication);
            let quorums: Vec<(Option<String>, usize)> = match &case.replication {
                Replication::Local => vec![],
                Replication::Simple { replication_factor } => vec![(None, *replication_factor as usize / 2 + 1)],
                Replication::NetworkTopology { data_centers } => data_centers
                    .iter()
                    .map(|(name, factor)| (Some(name.clone()), *factor as usize / 2 + 1))
                    .chain([(None, data_centers.values().sum::<u32>() as usize / 2 + 1)])
                    .collect(),
            };
            for range in common_ranges(&before, &after) {
                let token = range.end;
                let stopped = plans.values().any(|plan| {
                    plan.blocked.iter().chain(&plan.lost).any(|range| range.contains(token))
                });
                for (center, quorum) in &quorums {
                    let of = |placement: &Placement| -> Vec<HostId> {
                        let members = placement.replicas(token).read.iter();
                        ids(members.filter(|m| center.as_ref().is_none_or(|name| m.data_center == *name)))
                    };
                    let (old, new) = (of(&before), of(&after));
                    // The only replica of its data center has died: no other replica has its local quorums.
                    let is_gone = center.is_some() && old.len() == 1 && old.iter().all(|id| case.dead.contains(id));
                    if stopped || is_gone || new.len() < *quorum {
                        continue;
                    }
                    for acknowledged in subsets(&old, *quorum) {
                        let holders = holders(&acknowledged, token, &plans);
                        for read in subsets(&new, *quorum) {
                            prop_assert!(
                                !read.is_disjoint(&holders),
                                "token {token} {center:?}: written to {acknowledged:?}, read from {read:?}"
                            );
                        }
                    }
                }
            }
        }

        /// With all members alive no range is blocked or lost, every member that gains a range gets it from a former
        /// replica, and together the new replicas have all data of the old ones.
        #[test]
        fn with_all_alive_nothing_is_missing(case in case()) {
            let Some(sides) = Sides::of(&case.topology) else { return Ok(()) };
            let plans = sides.plan(&case.replication, &case.topology.members.keys().copied().collect());
            let before = Placement::new(&sides.before, &case.replication);
            let after = Placement::new(&sides.after, &case.replication);
            prop_assert!(plans.values().all(|plan| plan.blocked.is_empty() && plan.lost.is_empty()));
            for range in common_ranges(&before, &after) {
                let (old, new) = (ids(&before.replicas(range.end).read), ids(&after.replicas(range.end).read));
                for plan in plans.values() {
                    for (source, ranges) in &plan.sources {
                        prop_assert!(!ranges.iter().any(|r| r.contains(range.end)) || old.contains(source));
                    }
                }
                for holder in &old {
                    let holders = holders(&BTreeSet::from([*holder]), range.end, &plans);
                    prop_assert!(new.is_empty() || new.iter().any(|id| holders.contains(id)));
                }
                let everyone: BTreeSet<_> = old.iter().copied().collect();
                let holders = holders(&everyone, range.end, &plans);
                prop_assert!(old.is_empty() || new.iter().all(|id| holders.contains(id)));
            }
        }
    }

    #[test]
    fn a_joiner_streams_from_the_replicas_that_lose_ranges() {
        let normal = |number, token| member(number, MemberState::Normal, 0, 0, vec![token]);
        let joining = member(4, MemberState::Joining(TransitionPhase::WriteBoth), 0, 0, vec![15]);
        let topology = topology(vec![normal(1, 10), normal(2, 20), normal(3, 30), joining]);
        let sides = Sides::of(&topology).unwrap();
        let replication = Replication::Simple { replication_factor: 1 };
        let alive: BTreeSet<_> = topology.members.keys().copied().collect();
        let plans = sides.plan(&replication, &alive);
        let expected = FetchPlan {
            sources: BTreeMap::from([(Uuid::from_u128(2), vec![TokenRange { start: 10, end: 15 }])]),
            ..FetchPlan::default()
        };
        assert_eq!(plans, BTreeMap::from([(Uuid::from_u128(4), expected)]));
        let without: BTreeSet<_> = alive.into_iter().filter(|id| *id != Uuid::from_u128(2)).collect();
        let lost = &sides.plan(&replication, &without)[&Uuid::from_u128(4)].lost;
        assert_eq!(*lost, [TokenRange { start: 10, end: 15 }]);
    }

    #[test]
    fn a_dead_replica_is_replaced_by_a_majority_of_the_others() {
        let normal = |number, token| member(number, MemberState::Normal, 0, 0, vec![token]);
        let leaving = member(1, MemberState::Leaving(TransitionPhase::WriteBoth), 0, 0, vec![10]);
        let topology = topology(vec![leaving, normal(2, 20), normal(3, 30), normal(4, 40)]);
        let sides = Sides::of(&topology).unwrap();
        let replication = Replication::Simple { replication_factor: 3 };
        let alive: BTreeSet<_> = [2, 3, 4].map(Uuid::from_u128).into();
        let plans = sides.plan(&replication, &alive);
        // Of the range that ends at 10, members 1, 2 and 3 were replicas; member 4 becomes one.
        let fourth = &plans[&Uuid::from_u128(4)];
        let from: Vec<_> = fourth
            .sources
            .iter()
            .filter(|(_, ranges)| ranges.iter().any(|range| range.contains(5)))
            .map(|(source, _)| *source)
            .collect();
        assert_eq!(from, [2, 3].map(Uuid::from_u128));
        let too_few: BTreeSet<_> = [3, 4].map(Uuid::from_u128).into();
        assert!(!sides.plan(&replication, &too_few)[&Uuid::from_u128(4)].blocked.is_empty());
    }
}
