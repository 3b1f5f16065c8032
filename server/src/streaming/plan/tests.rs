//! Plans of streams.

use std::collections::BTreeMap;

use helenus_ring::member::TransitionPhase;
use helenus_ring::replication_change::ReplicationChange;
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
        encrypts_tables: false,
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

/// The replications of a keyspace that keeps its own.
fn unchanged(replication: &Replication) -> Replications {
    Replications { before: replication.clone(), after: replication.clone() }
}

fn replication() -> impl Strategy<Value = Replication> {
    prop_oneof![
        (1_u32..6).prop_map(|replication_factor| Replication::Simple { replication_factor }),
        (0_u32..4, 0_u32..4).prop_map(|(first, second)| Replication::NetworkTopology {
            data_centers: [("dc0", first), ("dc1", second)]
                .into_iter()
                .filter(|(_, factor)| *factor > 0)
                .map(|(name, factor)| (name.to_owned(), factor))
                .collect()
        }),
    ]
}

/// Where quorums are counted (`None`: everywhere), with their sizes.
fn quorums(replication: &Replication) -> BTreeMap<Option<String>, usize> {
    match replication {
        Replication::Local => BTreeMap::new(),
        Replication::Simple { replication_factor } => [(None, *replication_factor as usize / 2 + 1)].into(),
        Replication::NetworkTopology { data_centers } => data_centers
            .iter()
            .map(|(name, factor)| (Some(name.clone()), *factor as usize / 2 + 1))
            .chain([(None, data_centers.values().sum::<u32>() as usize / 2 + 1)])
            .collect(),
    }
}

/// The replicas of a token in a data center; `None`: everywhere.
fn replicas_in(placement: &Placement, token: i64, center: Option<&String>) -> Vec<HostId> {
    let members = placement.replicas(token).read.iter();
    ids(members.filter(|member| center.is_none_or(|name| member.data_center == *name)))
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
    (members, tokens.prop_shuffle(), replication(), any::<bool>(), prop::collection::vec(0_u128..8, 0..2))
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

/// All members of the case, settled, while the replication of a keyspace changes.
fn changing(case: &Case, replications: &Replications) -> Topology {
    let mut topology = case.topology.clone();
    for member in topology.members.values_mut() {
        *member = Arc::new(Member { state: MemberState::Normal, ..Member::clone(member) });
    }
    let Replications { before, after } = replications.clone();
    let change = ReplicationChange { before, after, phase: Some(TransitionPhase::WriteBoth) };
    topology.replication_changes.insert("ks".to_owned(), change);
    topology
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

/// Checks that a write acknowledged by any quorum of the old replicas is read by every quorum of the new ones: overall, and in each data
/// center.
fn check_quorums(
    topology: &Topology,
    replication: &Replication,
    dead: &BTreeSet<HostId>,
) -> Result<(), TestCaseError> {
    let Some(sides) = Sides::of(topology) else { return Ok(()) };
    let alive: BTreeSet<_> = topology.members.keys().copied().filter(|id| !dead.contains(id)).collect();
    let replications = unchanged(replication);
    let plans = sides.plan(&replications, &alive);
    let [before, after] = sides.placements(&replications);
    for range in before.common_ranges(&after) {
        let token = range.end;
        let stopped = plans
            .values()
            .any(|plan| plan.blocked.iter().chain(&plan.lost).any(|range| range.contains(token)));
        for (center, quorum) in &quorums(replication) {
            let of = |placement| replicas_in(placement, token, center.as_ref());
            let (old, new) = (of(&before), of(&after));
            // The only replica of its data center has died: no other replica has its local quorums.
            let is_gone = center.is_some() && old.len() == 1 && old.iter().all(|id| dead.contains(id));
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
    Ok(())
}

/// The first member of the case has died, and a new one takes its place.
fn replacing(case: &Case) -> (Topology, BTreeSet<HostId>) {
    let mut topology = case.topology.clone();
    let (old, new) = (Uuid::from_u128(0), Uuid::from_u128(100));
    let with_state =
        |host_id, phase| Member { host_id, state: phase, ..Member::clone(&case.topology.members[&old]) };
    let phase = TransitionPhase::WriteBoth;
    topology.members.insert(old, Arc::new(with_state(old, MemberState::Leaving(phase))));
    topology.members.insert(new, Arc::new(with_state(new, MemberState::Joining(phase))));
    let dead = case.dead.iter().copied().chain([old]).collect();
    (topology, dead)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A write acknowledged by any quorum of the old replicas is read by every quorum of the new ones: overall,
    /// and in each data center.
    #[test]
    fn a_quorum_before_is_seen_by_every_quorum_after(case in case()) {
        check_quorums(&case.topology, &case.replication, &case.dead)?;
    }

    /// So it is where a new member takes the place of a dead one, which alone streams.
    #[test]
    fn a_quorum_before_a_replacement_is_seen_by_every_quorum_after(case in case()) {
        let (topology, dead) = replacing(&case);
        check_quorums(&topology, &case.replication, &dead)?;
        let alive = topology.members.keys().copied().filter(|id| !dead.contains(id)).collect();
        let sides = Sides::of(&topology).unwrap();
        let plans = sides.plan(&unchanged(&case.replication), &alive);
        prop_assert!(plans.keys().all(|receiver| *receiver == Uuid::from_u128(100)));
    }

    /// A write acknowledged by any quorum before a change of replication is read by every quorum after it: overall, and in each data
    /// center that has replicas before and after.
    #[test]
    fn a_quorum_before_a_change_of_replication_is_seen_by_every_quorum_after(
        case in case(),
        after in replication(),
    ) {
        let before = case.replication.clone();
        let replications = Replications { before: before.clone(), after: after.clone() };
        let topology = changing(&case, &replications);
        let sides = Sides::of(&topology).unwrap();
        let alive: BTreeSet<_> =
            topology.members.keys().copied().filter(|id| !case.dead.contains(id)).collect();
        let plans = sides.plan(&replications, &alive);
        let [old_placement, new_placement] = sides.placements(&replications);
        if case.dead.is_empty() {
            prop_assert!(plans.values().all(|plan| plan.blocked.is_empty() && plan.lost.is_empty()));
        }
        let (quorums_before, quorums_after) = (quorums(&before), quorums(&after));
        for range in old_placement.common_ranges(&new_placement) {
            let token = range.end;
            let is_blocked =
                plans.values().any(|plan| plan.blocked.iter().any(|range| range.contains(token)));
            for (center, quorum) in &quorums_before {
                let old = replicas_in(&old_placement, token, center.as_ref());
                let new = replicas_in(&new_placement, token, center.as_ref());
                let Some(quorum_after) = quorums_after.get(center).filter(|_| !is_blocked) else { continue };
                for acknowledged in subsets(&old, *quorum) {
                    let holders = holders(&acknowledged, token, &plans);
                    for read in subsets(&new, *quorum_after) {
                        prop_assert!(
                            !read.is_disjoint(&holders),
                            "token {token} {center:?}: written to {acknowledged:?}, read from {read:?}"
                        );
                    }
                }
            }
            // What a data center that is given up has acknowledged by itself is not lost with it.
            for (center, quorum) in quorums_before.iter().filter(|(center, _)| !quorums_after.contains_key(*center)) {
                let old = replicas_in(&old_placement, token, center.as_ref());
                let new = replicas_in(&new_placement, token, None);
                let is_lost = old.iter().all(|id| case.dead.contains(id));
                let is_kept = !replicas_in(&new_placement, token, center.as_ref()).is_empty();
                if is_blocked || is_lost || is_kept || new.is_empty() {
                    continue;
                }
                for acknowledged in subsets(&old, *quorum) {
                    let holders = holders(&acknowledged, token, &plans);
                    prop_assert!(new.iter().all(|id| holders.contains(id)), "token {token} {center:?}");
                }
            }
        }
    }

    /// Of what members that are removed together have had, all that any other replica has is streamed.
    #[test]
    fn members_that_are_removed_together_lose_only_what_nobody_else_has(case in case(), second in 1_u128..8) {
        let mut topology = case.topology.clone();
        let leaving = [0, second].map(Uuid::from_u128);
        for member in topology.members.values_mut() {
            let leaves = leaving.contains(&member.host_id);
            let state =
                if leaves { MemberState::Leaving(TransitionPhase::WriteBoth) } else { MemberState::Normal };
            *member = Arc::new(Member { state, ..Member::clone(member) });
        }
        let alive: BTreeSet<_> =
            topology.members.keys().copied().filter(|id| !leaving.contains(id)).collect();
        if alive.is_empty() {
            return Ok(());
        }
        let sides = Sides::of(&topology).unwrap();
        let replications = unchanged(&case.replication);
        let plans = sides.plan(&replications, &alive);
        let [before, after] = sides.placements(&replications);
        prop_assert!(plans.values().all(|plan| plan.blocked.is_empty()));
        for range in before.common_ranges(&after) {
            let (old, new) = (ids(&before.replicas(range.end).read), ids(&after.replicas(range.end).read));
            let survivors: BTreeSet<_> = old.iter().copied().filter(|id| alive.contains(id)).collect();
            let holders = holders(&survivors, range.end, &plans);
            prop_assert!(survivors.is_empty() || new.iter().all(|id| holders.contains(id)));
            let is_lost = plans.values().any(|plan| plan.lost.iter().any(|lost| lost.contains(range.end)));
            let is_gone = survivors.is_empty() && !old.is_empty() && !new.is_empty();
            prop_assert_eq!(is_lost, is_gone);
        }
    }

    /// With all members alive no range is blocked or lost, every member that gains a range gets it from a former
    /// replica, and together the new replicas have all data of the old ones.
    #[test]
    fn with_all_alive_nothing_is_missing(case in case()) {
        let Some(sides) = Sides::of(&case.topology) else { return Ok(()) };
        let replications = unchanged(&case.replication);
        let plans = sides.plan(&replications, &case.topology.members.keys().copied().collect());
        let [before, after] = sides.placements(&replications);
        prop_assert!(plans.values().all(|plan| plan.blocked.is_empty() && plan.lost.is_empty()));
        for range in before.common_ranges(&after) {
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
    let replication = unchanged(&Replication::Simple { replication_factor: 1 });
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
    let replication = unchanged(&Replication::Simple { replication_factor: 3 });
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
