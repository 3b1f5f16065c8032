//! Hand-made placements, and properties of every placement.

use std::collections::BTreeSet;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::member::{MemberState, TransitionPhase};
use crate::topology::Replacement;

/// A member that is `Normal`.
pub fn member(host_id: HostId, data_center: &str, rack: &str, tokens: &[i64]) -> Member {
    let number = host_id.as_u128() as u32;
    let address = |port| (std::net::Ipv4Addr::from(0x7f00_0001 + number), port).into();
    Member {
        host_id,
        internode_address: address(7000),
        native_address: address(9042),
        shard_aware_port: 19042,
        shard_count: 1,
        data_center: data_center.to_owned(),
        rack: rack.to_owned(),
        tokens: tokens.to_vec(),
        state: MemberState::Normal,
        release_version: "1".to_owned(),
        protocol_version: 1,
        feature_version: 1,
        encrypts_tables: false,
    }
}

/// Members by number, with data center, rack and tokens.
fn topology(members: &[(u128, &str, &str, &[i64])]) -> Topology {
    let members = members.iter().map(|&(number, data_center, rack, tokens)| {
        let id = Uuid::from_u128(number);
        (id, Arc::new(member(id, data_center, rack, tokens)))
    });
    Topology { version: 1, epoch: 1, members: members.collect(), ..Topology::default() }
}

fn with_state(mut topology: Topology, number: u128, state: MemberState) -> Topology {
    let id = Uuid::from_u128(number);
    let changed = Member { state, ..Member::clone(&topology.members[&id]) };
    topology.members.insert(id, Arc::new(changed));
    topology
}

fn numbers(members: &[Arc<Member>]) -> Vec<u128> {
    members.iter().map(|member| member.host_id.as_u128()).collect()
}

fn read(placement: &Placement, token: i64) -> Vec<u128> {
    numbers(&placement.replicas(token).read)
}

fn pending(placement: &Placement, token: i64) -> Vec<u128> {
    numbers(&placement.replicas(token).pending)
}

fn simple(replication_factor: u32) -> Replication {
    Replication::Simple { replication_factor }
}

fn network(data_centers: &[(&str, u32)]) -> Replication {
    let data_centers = data_centers.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
    Replication::NetworkTopology { data_centers }
}

/// Five members at 0, 10, 20, 30, 40 in one rack.
fn five() -> Topology {
    topology(&[
        (1, "dc1", "r", &[0]),
        (2, "dc1", "r", &[10]),
        (3, "dc1", "r", &[20]),
        (4, "dc1", "r", &[30]),
        (5, "dc1", "r", &[40]),
    ])
}

#[test]
fn a_member_that_is_replaced_has_the_new_one_on_the_other_side_of_just_its_ranges() {
    let both = |phase| {
        let mut members = five();
        let old = Uuid::from_u128(3);
        let (new, tokens) = (Uuid::from_u128(9), members.members[&old].tokens.clone());
        members.members.insert(new, Arc::new(member(new, "dc1", "r1", &tokens)));
        members.replacement = Some(Replacement { old, new, accepts_loss: false });
        with_state(with_state(members, 3, MemberState::Leaving(phase)), 9, MemberState::Joining(phase))
    };
    let sets = |placement: &Placement, token| {
        let other = placement.replicas(token).other.clone();
        let other = other.map(|other| other.members.iter().map(HostId::as_u128).collect::<Vec<_>>());
        (read(placement, token), pending(placement, token), other)
    };
    let before = Placement::new(&five(), &simple(2));
    let (write_both, read_new) = (both(TransitionPhase::WriteBoth), both(TransitionPhase::ReadNew));
    let [first, second] = [&write_both, &read_new].map(|topology| Placement::new(topology, &simple(2)));
    for token in (0..50).step_by(10) {
        let is_replaced = |number: u128| if number == 3 { 9 } else { number };
        let old = read(&before, token);
        let new: Vec<u128> = old.iter().copied().map(is_replaced).collect();
        if old == new {
            assert_eq!(sets(&first, token), (old.clone(), vec![], None));
            assert_eq!(sets(&second, token), (old, vec![], None));
        } else {
            assert_eq!(sets(&first, token), (old.clone(), vec![9], Some(new.clone())));
            assert_eq!(sets(&second, token), (new, vec![3], Some(old)));
        }
    }
}

#[test]
fn simple_takes_the_next_members_clockwise() {
    let placement = Placement::new(&five(), &simple(3));
    assert_eq!(read(&placement, 10), [2, 3, 4]);
    assert_eq!(read(&placement, 11), [3, 4, 5]);
    assert_eq!(read(&placement, 35), [5, 1, 2]);
    assert_eq!(read(&placement, 41), [1, 2, 3]);
    assert_eq!(read(&placement, i64::MAX), [1, 2, 3]);
    assert_eq!(read(&placement, i64::MIN), [1, 2, 3]);
}

#[test]
fn simple_passes_over_more_tokens_of_one_member() {
    let topology = topology(&[(1, "dc1", "r", &[0, 10, 20]), (2, "dc1", "r", &[30]), (3, "dc1", "r", &[15])]);
    let placement = Placement::new(&topology, &simple(2));
    assert_eq!(read(&placement, 0), [1, 3]);
    assert_eq!(read(&placement, 16), [1, 2]);
    assert_eq!(read(&placement, 25), [2, 1]);
}

#[test]
fn more_replicas_than_members_are_all_members() {
    assert_eq!(read(&Placement::new(&five(), &simple(9)), 25), [4, 5, 1, 2, 3]);
    assert_eq!(read(&Placement::new(&five(), &network(&[("dc1", 9)])), 25), [4, 5, 1, 2, 3]);
}

/// Racks of a data center: 1 and 2 in rack a, 3 and 4 in b, 5 in c.
fn racks() -> Topology {
    topology(&[
        (1, "dc1", "a", &[0]),
        (2, "dc1", "a", &[10]),
        (3, "dc1", "b", &[20]),
        (4, "dc1", "b", &[30]),
        (5, "dc1", "c", &[40]),
    ])
}

#[test]
fn network_topology_takes_a_member_of_each_rack_first() {
    let placement = Placement::new(&racks(), &network(&[("dc1", 3)]));
    assert_eq!(read(&placement, 0), [1, 3, 5]);
    assert_eq!(read(&placement, 10), [2, 3, 5]);
    assert_eq!(read(&placement, 30), [4, 5, 1]);
    assert_eq!(read(&placement, 50), [1, 3, 5]);
}

#[test]
fn network_topology_repeats_racks_where_there_are_fewer_than_replicas() {
    let placement = Placement::new(&racks(), &network(&[("dc1", 4)]));
    // 1 (a), 2 repeats a, 3 (b), 4 would be a second repetition, 5 (c).
    assert_eq!(read(&placement, 0), [1, 2, 3, 5]);
    // 4 (b), 5 (c), 1 (a), 2 repeats a.
    assert_eq!(read(&placement, 30), [4, 5, 1, 2]);
}

#[test]
fn two_racks_and_three_replicas_share_them_out() {
    let topology = topology(&[
        (1, "dc1", "a", &[0]),
        (2, "dc1", "a", &[10]),
        (3, "dc1", "a", &[20]),
        (4, "dc1", "b", &[30]),
    ]);
    let placement = Placement::new(&topology, &network(&[("dc1", 3)]));
    assert_eq!(read(&placement, 0), [1, 2, 4]);
    assert_eq!(read(&placement, 30), [4, 1, 2]);
}

#[test]
fn data_centers_count_for_themselves() {
    // The layout of Cassandra's own test: three data centers with (1, 2), (2, 2, 2) and (1) members in racks.
    let topology = topology(&[
        (1, "dc1", "r1", &[0]),
        (2, "dc1", "r2", &[100]),
        (3, "dc1", "r2", &[200]),
        (4, "dc2", "r1", &[10]),
        (5, "dc2", "r1", &[110]),
        (6, "dc2", "r2", &[210]),
        (7, "dc2", "r2", &[310]),
        (8, "dc2", "r3", &[410]),
        (9, "dc2", "r3", &[510]),
        (10, "dc3", "r1", &[20]),
    ]);
    let replication = network(&[("dc1", 3), ("dc2", 2), ("dc3", 1)]);
    let placement = Placement::new(&topology, &replication);
    for (_, replicas) in placement.ranges() {
        let count = |name: &str| replicas.read.iter().filter(|member| member.data_center == name).count();
        assert_eq!((count("dc1"), count("dc2"), count("dc3")), (3, 2, 1));
    }
    // In the order of the ring: 4 at 10, 10 at 20, 2 at 100, (5 shares a rack with 4), 3 at 200 repeats a rack of
    // dc1, 6 at 210, and around the ring 1 at 0.
    assert_eq!(read(&placement, 5), [4, 10, 2, 3, 6, 1]);
}

#[test]
fn a_data_center_without_members_or_replicas_has_none() {
    let placement = Placement::new(&five(), &network(&[("dc1", 1), ("dc9", 3)]));
    assert_eq!(read(&placement, 15), [3]);
    let placement = Placement::new(&five(), &network(&[("dc9", 3)]));
    assert!(placement.replicas(15).read.is_empty());
    assert!(Placement::new(&Topology::default(), &simple(3)).replicas(7).read.is_empty());
}

#[test]
fn a_joining_member_is_written_and_then_read() {
    let write_both = with_state(five(), 3, MemberState::Joining(TransitionPhase::WriteBoth));
    let placement = Placement::new(&write_both, &simple(3));
    assert_eq!((read(&placement, 15), pending(&placement, 15)), (vec![4, 5, 1], vec![3]));
    assert_eq!((read(&placement, 5), pending(&placement, 5)), (vec![2, 4, 5], vec![3]));
    assert_eq!((read(&placement, 45), pending(&placement, 45)), (vec![1, 2, 4], vec![3]));
    assert_eq!((read(&placement, 25), pending(&placement, 25)), (vec![4, 5, 1], vec![]));

    let read_new = with_state(five(), 3, MemberState::Joining(TransitionPhase::ReadNew));
    let placement = Placement::new(&read_new, &simple(3));
    // The old owner gets the writes for the ranges that it gives up until all members know.
    assert_eq!((read(&placement, 15), pending(&placement, 15)), (vec![3, 4, 5], vec![1]));
    assert_eq!((read(&placement, 5), pending(&placement, 5)), (vec![2, 3, 4], vec![5]));
    assert_eq!((read(&placement, 25), pending(&placement, 25)), (vec![4, 5, 1], vec![]));
}

#[test]
fn a_leaving_member_is_read_until_the_others_have_its_data() {
    let write_both = with_state(five(), 3, MemberState::Leaving(TransitionPhase::WriteBoth));
    let placement = Placement::new(&write_both, &simple(3));
    assert_eq!((read(&placement, 15), pending(&placement, 15)), (vec![3, 4, 5], vec![1]));
    let read_new = with_state(five(), 3, MemberState::Leaving(TransitionPhase::ReadNew));
    let placement = Placement::new(&read_new, &simple(3));
    assert_eq!((read(&placement, 15), pending(&placement, 15)), (vec![4, 5, 1], vec![3]));
}

#[test]
fn ownership_adds_up() {
    let quarter = i64::MAX / 2 + 1;
    let topology = topology(&[
        (1, "dc1", "r", &[-quarter]),
        (2, "dc1", "r", &[0]),
        (3, "dc1", "r", &[quarter]),
        (4, "dc1", "r", &[i64::MAX]),
    ]);
    for (count, share) in [(1, 0.25), (3, 0.75), (4, 1.0)] {
        let ownership = Placement::new(&topology, &simple(count)).ownership();
        assert_eq!(ownership.len(), 4);
        assert!(ownership.values().all(|owned| (owned - share).abs() < 1e-9), "{ownership:?}");
    }
}

#[derive(Debug, Clone)]
struct Sketch {
    members: Vec<(u8, u8, u8)>,
    tokens: BTreeSet<i64>,
    state: u8,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let members = proptest::collection::vec((0_u8..3, 0_u8..4, 1_u8..5), 1..10);
    (members, proptest::collection::btree_set(any::<i64>(), 40), 0_u8..5)
        .prop_map(|(members, tokens, state)| Sketch { members, tokens, state })
}

fn built(sketch: &Sketch) -> Topology {
    let mut tokens = sketch.tokens.iter().copied();
    let mut topology = Topology::default();
    for (number, &(data_center, rack, count)) in sketch.members.iter().enumerate() {
        let mut own: Vec<i64> = tokens.by_ref().step_by(3).take(count as usize).collect();
        own.sort_unstable();
        if own.is_empty() {
            break;
        }
        let id = Uuid::from_u128(number as u128 + 1);
        let member = member(id, &format!("dc{data_center}"), &format!("rack{rack}"), &own);
        topology.members.insert(id, Arc::new(member));
    }
    let states = [
        MemberState::Normal,
        MemberState::Joining(TransitionPhase::WriteBoth),
        MemberState::Joining(TransitionPhase::ReadNew),
        MemberState::Leaving(TransitionPhase::WriteBoth),
        MemberState::Leaving(TransitionPhase::ReadNew),
    ];
    with_state(topology, 1, states[sketch.state as usize])
}

/// The replicas if only these members existed.
fn alone(
    topology: &Topology,
    owners: &BTreeSet<HostId>,
    replication: &Replication,
    token: i64,
) -> BTreeSet<u128> {
    let mut settled = topology.clone();
    settled.members.retain(|id, _| owners.contains(id));
    for id in owners {
        settled = with_state(settled, id.as_u128(), MemberState::Normal);
    }
    read(&Placement::new(&settled, replication), token).into_iter().collect()
}

proptest! {
    #[test]
    fn replicas_are_distinct_enough_and_spread_over_racks(sketch in sketch(), factor in 1_u32..5, token: i64) {
        let topology = built(&sketch);
        let owners: Vec<&Arc<Member>> = topology.owners().collect();
        let placement = Placement::new(&topology, &simple(factor));
        let found: BTreeSet<u128> = read(&placement, token).into_iter().collect();
        prop_assert_eq!(found.len(), placement.replicas(token).read.len());
        prop_assert_eq!(found.len(), owners.len().min(factor as usize));

        let placement = Placement::new(&topology, &network(&[("dc0", factor), ("dc1", 2)]));
        let replicas = &placement.replicas(token).read;
        for (name, wanted) in [("dc0", factor as usize), ("dc1", 2)] {
            let there: Vec<_> = owners.iter().filter(|member| member.data_center == name).collect();
            let racks: BTreeSet<&str> = there.iter().map(|member| member.rack.as_str()).collect();
            let chosen: Vec<_> = replicas.iter().filter(|member| member.data_center == name).collect();
            let ids: BTreeSet<HostId> = chosen.iter().map(|member| member.host_id).collect();
            let chosen_racks: BTreeSet<&str> = chosen.iter().map(|member| member.rack.as_str()).collect();
            prop_assert_eq!(ids.len(), chosen.len());
            prop_assert_eq!(chosen.len(), wanted.min(there.len()));
            prop_assert_eq!(chosen_racks.len(), chosen.len().min(racks.len()));
        }
        prop_assert!(replicas.iter().all(|member| member.data_center != "dc2"));
    }

    #[test]
    fn pending_replicas_are_those_that_only_the_other_side_has(sketch in sketch(), factor in 1_u32..5, token: i64) {
        let topology = built(&sketch);
        let owners: BTreeSet<HostId> = topology.owners().map(|member| member.host_id).collect();
        let others: BTreeSet<HostId> = topology.other_owners().map(|member| member.host_id).collect();
        for replication in [simple(factor), network(&[("dc0", factor), ("dc1", 2)])] {
            let placement = Placement::new(&topology, &replication);
            let read: BTreeSet<u128> = read(&placement, token).into_iter().collect();
            let pending: BTreeSet<u128> = pending(&placement, token).into_iter().collect();
            let before = alone(&topology, &owners, &replication, token);
            let after = alone(&topology, &others, &replication, token);
            prop_assert_eq!(&read, &before);
            prop_assert_eq!(&pending, &after.difference(&before).copied().collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn ranges_cover_the_ring_once(sketch in sketch(), token: i64) {
        let placement = Placement::new(&built(&sketch), &simple(2));
        let ranges: Vec<(TokenRange, &Replicas)> = placement.ranges().collect();
        let holding: Vec<_> = ranges.iter().filter(|(range, _)| range.contains(token)).collect();
        if ranges.is_empty() {
            prop_assert!(placement.replicas(token).read.is_empty());
        } else {
            prop_assert_eq!(holding.len(), 1);
            prop_assert_eq!(numbers(&holding[0].1.read), read(&placement, token));
            let width: u128 = ranges.iter().map(|(range, _)| range.width()).sum();
            prop_assert_eq!(width, 1 << 64);
        }
    }
}
