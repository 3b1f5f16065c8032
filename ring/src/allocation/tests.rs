//! Shares of members that join one by one, and after some have left.

use std::sync::Arc;

use helenus_query::schema::catalog::Replication;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::member::HostId;
use crate::placement::Placement;
use crate::placement::tests::member;

fn allocated(topology: &Topology, new: &NewMember<'_>) -> Vec<i64> {
    futures::executor::block_on(allocate(topology, new))
}

/// Lets members join one by one; the rack of each is a function of its number.
struct Cluster {
    topology: Topology,
    joined: u128,
    replication_factor: usize,
    token_count: usize,
    rack: fn(u128) -> String,
}

impl Cluster {
    fn new(replication_factor: usize, rack: fn(u128) -> String) -> Self {
        Self {
            topology: Topology::default(),
            joined: 0,
            replication_factor,
            token_count: DEFAULT_TOKENS,
            rack,
        }
    }

    fn join(&mut self) {
        let rack = (self.rack)(self.joined);
        let new = NewMember {
            data_center: "dc1",
            rack: &rack,
            token_count: self.token_count,
            replication_factor: self.replication_factor,
            offset: 0x1234_5678_9abc_def0,
        };
        let tokens = allocated(&self.topology, &new);
        assert_eq!(tokens.len(), self.token_count);
        let id = Uuid::from_u128(self.joined);
        self.topology.members.insert(id, Arc::new(member(id, "dc1", &rack, &tokens)));
        self.joined += 1;
    }

    fn leave(&mut self, id: &HostId) {
        self.topology.members.remove(id);
    }

    /// The smallest and the largest share under a replication strategy; 1 is fair.
    fn extremes(&self, replication: &Replication) -> (f64, f64) {
        let shares = Placement::new(&self.topology, replication).ownership();
        let fair = shares.values().sum::<f64>() / self.topology.members.len() as f64;
        let relative = |limit: f64, pick: fn(f64, f64) -> f64| {
            self.topology
                .members
                .keys()
                .map(|id| shares.get(id).copied().unwrap_or(0.0) / fair)
                .fold(limit, pick)
        };
        (relative(f64::INFINITY, f64::min), relative(0.0, f64::max))
    }
}

fn one_rack(_: u128) -> String {
    "rack1".to_owned()
}

fn three_racks(number: u128) -> String {
    format!("rack{}", number % 3)
}

fn network(replication_factor: u32) -> Replication {
    Replication::NetworkTopology { data_centers: [("dc1".to_owned(), replication_factor)].into() }
}

fn simple(replication_factor: u32) -> Replication {
    Replication::Simple { replication_factor }
}

#[track_caller]
fn assert_even(cluster: &Cluster, replication: &Replication, bound: f64) {
    let (least, most) = cluster.extremes(replication);
    assert!(
        least >= 1.0 - bound && most <= 1.0 + bound,
        "{} members: shares from {least:.3} to {most:.3} under {replication:?}",
        cluster.topology.members.len()
    );
}

#[test]
fn shares_of_3_to_100_members_in_one_rack_are_within_5_percent_of_even() {
    let mut cluster = Cluster::new(3, one_rack);
    for count in 1..=100 {
        cluster.join();
        if count >= 3 {
            assert_even(&cluster, &network(3), 0.05);
            assert_even(&cluster, &simple(3), 0.05);
            assert_even(&cluster, &simple(1), 0.05);
        }
    }
}

#[test]
fn shares_in_three_racks_are_within_5_percent_of_even_whenever_racks_are_of_one_size() {
    let mut cluster = Cluster::new(3, three_racks);
    for count in 1..=99 {
        cluster.join();
        if count % 3 == 0 {
            assert_even(&cluster, &network(3), 0.05);
        }
    }
}

#[test]
fn each_rack_is_even_in_itself_while_racks_differ_in_size() {
    let mut cluster = Cluster::new(3, three_racks);
    for _ in 0..31 {
        cluster.join();
        let shares = Placement::new(&cluster.topology, &network(3)).ownership();
        for rack in ["rack0", "rack1", "rack2"] {
            let in_rack: Vec<f64> = cluster
                .topology
                .members
                .values()
                .filter(|member| member.rack == rack)
                .filter_map(|member| shares.get(&member.host_id).copied())
                .collect();
            let fair = in_rack.iter().sum::<f64>() / in_rack.len() as f64;
            assert!(in_rack.iter().all(|share| (share / fair - 1.0).abs() <= 0.05), "{in_rack:?}");
        }
    }
}

#[test]
fn more_racks_than_replicas_stay_near_even() {
    let mut cluster = Cluster::new(3, |number| format!("rack{}", number % 5));
    for count in 1..=40 {
        cluster.join();
        if count >= 5 && count % 5 == 0 {
            assert_even(&cluster, &network(3), 0.10);
        }
    }
}

#[test]
fn one_replica_is_even_too() {
    let mut cluster = Cluster::new(1, one_rack);
    for count in 1..=100 {
        cluster.join();
        if count >= 3 {
            assert_even(&cluster, &simple(1), 0.05);
        }
    }
}

#[test]
fn members_that_join_after_others_have_left_even_it_out() {
    let mut cluster = Cluster::new(3, one_rack);
    for _ in 0..30 {
        cluster.join();
    }
    for number in [3, 4, 11, 17, 29] {
        cluster.leave(&Uuid::from_u128(number));
    }
    // Shares depend on the remaining tokens.
    assert_even(&cluster, &network(3), 0.25);
    for _ in 0..15 {
        cluster.join();
    }
    assert_even(&cluster, &network(3), 0.10);
    for _ in 0..20 {
        cluster.join();
    }
    assert_even(&cluster, &network(3), 0.05);
}

#[test]
fn the_same_topology_gets_the_same_tokens() {
    let mut clusters = [Cluster::new(3, one_rack), Cluster::new(3, one_rack)];
    for cluster in &mut clusters {
        for _ in 0..6 {
            cluster.join();
        }
    }
    assert_eq!(clusters[0].topology, clusters[1].topology);
}

#[test]
fn another_data_center_is_another_ring_without_common_tokens() {
    let mut topology = Topology::default();
    for (number, data_center) in ["dc1", "dc2", "dc3"].into_iter().enumerate() {
        let new = NewMember { data_center, rack: "r", token_count: 16, replication_factor: 3, offset: 7 };
        let tokens = allocated(&topology, &new);
        let id = Uuid::from_u128(number as u128);
        topology.members.insert(id, Arc::new(member(id, data_center, "r", &tokens)));
    }
    let all: BTreeSet<i64> = topology.members.values().flat_map(|member| member.tokens.clone()).collect();
    assert_eq!(all.len(), 48);
}

#[test]
fn the_smallest_token_is_never_given() {
    // With an offset of 0 the first token would be the smallest one.
    let new = NewMember { data_center: "d", rack: "r", token_count: 4, replication_factor: 3, offset: 0 };
    assert!(!allocated(&Topology::default(), &new).contains(&i64::MIN));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn tokens_have_the_requested_number_and_are_free(
        members in proptest::collection::vec((0_u8..3, 0_u8..4), 0..7),
        token_count in 1_usize..10,
        replication_factor in 1_usize..5,
        offset: u64,
    ) {
        let mut topology = Topology::default();
        for (number, (data_center, rack)) in members.into_iter().enumerate() {
            let (data_center, rack) = (format!("dc{data_center}"), format!("rack{rack}"));
            let new = NewMember { data_center: &data_center, rack: &rack, token_count, replication_factor, offset };
            let tokens = allocated(&topology, &new);
            prop_assert_eq!(tokens.len(), token_count);
            prop_assert!(tokens.is_sorted());
            let before: BTreeSet<i64> = topology.members.values().flat_map(|member| member.tokens.clone()).collect();
            let after: BTreeSet<i64> = before.iter().chain(&tokens).copied().collect();
            prop_assert_eq!(after.len(), before.len() + token_count);
            let id = Uuid::from_u128(number as u128);
            topology.members.insert(id, Arc::new(member(id, &data_center, &rack, &tokens)));
        }
    }
}
