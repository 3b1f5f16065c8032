//! Reads while ranges change hands: what a QUORUM read has answered, the quorums of the next owners have as well.

use std::collections::BTreeMap;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::RequestError;
use helenus_ring::member::{MemberState, TransitionPhase};

use crate::cluster::{Cluster, host_id, with_cluster};

/// Without hints: a replica gets a missed write by read repair or not at all.
fn config() -> Config {
    Config { hinted_handoff_enabled: false, ..Config::default() }
}

/// A key that node 3 takes over from one of the others, while it joins, and its replicas: the two that stay, and the one that gives it up.
struct Moving {
    key: i32,
    stays: [usize; 2],
    gives_up: usize,
}

fn begin_join(cluster: &Cluster) -> Moving {
    cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
    (0..4).for_each(|node| cluster.show(node));
    let view = cluster.nodes[0][0].cluster();
    let placement = view.placement("three").unwrap();
    let replicas = |key: &i32| placement.replicas(cql_lite::types::token::token(&key.to_be_bytes()));
    let key = (0..1_000).find(|key| !replicas(key).pending.is_empty()).unwrap();
    let old: Vec<usize> =
        (0..3).filter(|node| replicas(&key).read.iter().any(|it| it.host_id == host_id(*node))).collect();
    cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::ReadNew)))]);
    (0..4).for_each(|node| cluster.show(node));
    let view = cluster.nodes[0][0].cluster();
    let next = view.placement("three").unwrap().replicas(cql_lite::types::token::token(&key.to_be_bytes()));
    let gives_up = next.pending.iter().map(|it| it.host_id).collect::<Vec<_>>();
    cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
    (0..4).for_each(|node| cluster.show(node));
    let (left, stays): (Vec<usize>, Vec<usize>) =
        old.into_iter().partition(|node| gives_up.contains(&host_id(*node)));
    Moving { key, stays: stays.try_into().unwrap(), gives_up: left[0] }
}

/// Writes the value at ONE through a node, while only these nodes receive it.
async fn write_to(cluster: &Cluster, nodes: &[usize], key: i32, value: i32) {
    let others: Vec<usize> = (0..4).filter(|node| !nodes.contains(node)).collect();
    for &node in &others {
        cluster.set_silent(node, true);
    }
    let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, {value})");
    // A pending replica raises what ONE needs: the write may fail, and has reached these nodes all the same.
    let outcome = cluster.execute(nodes[0], &text, Consistency::One).await;
    assert!(matches!(outcome, Ok(()) | Err(RequestError::WriteTimeout { .. })), "{outcome:?}");
    cluster.pass(Duration::from_secs(10)).await;
    for &node in &others {
        cluster.set_silent(node, false);
    }
}

async fn select(cluster: &Cluster, node: usize, key: i32) -> Vec<Vec<Option<i64>>> {
    let text = format!("SELECT v FROM three.t WHERE k = {key}");
    cluster.page(node, &text, Consistency::Quorum, None, None).await.unwrap().integers()
}

/// Ends the join as far as reads go, and reads from the new member and one that stays.
async fn read_from_next_owners(cluster: &Cluster, moving: &Moving, down: usize) -> Vec<Vec<Option<i64>>> {
    cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::ReadNew)))]);
    (0..4).for_each(|node| cluster.show(node));
    cluster.set_alive(down, false);
    select(cluster, 3, moving.key).await
}

#[test]
fn what_a_quorum_read_repairs_reaches_the_pending_replica() {
    with_cluster(4, &config(), |cluster| async move {
        let moving = begin_join(&cluster);
        let [first, second] = moving.stays;
        write_to(&cluster, &[first], moving.key, 7).await;
        assert_eq!(cluster.stored(3, "three", "t"), BTreeMap::new());
        // The one that gives up the range and the first are asked: the second does not answer.
        cluster.set_alive(second, false);
        assert_eq!(select(&cluster, moving.gives_up, moving.key).await, [[Some(7)]]);
        cluster.set_alive(second, true);
        assert_eq!(cluster.stored(3, "three", "t"), BTreeMap::from([(moving.key, 7)]));
        // The new member and the second are a quorum of the next owners.
        assert_eq!(read_from_next_owners(&cluster, &moving, first).await, [[Some(7)]]);
    });
}

#[test]
fn what_two_owners_agree_on_is_not_lost_with_the_one_that_gives_it_up() {
    with_cluster(4, &config(), |cluster| async move {
        let moving = begin_join(&cluster);
        let [first, second] = moving.stays;
        write_to(&cluster, &[first, moving.gives_up], moving.key, 7).await;
        assert_eq!(cluster.stored(second, "three", "t"), BTreeMap::new());
        // Two of the three owners agree, and the third is away: nothing seems to need a repair.
        cluster.set_alive(second, false);
        assert_eq!(select(&cluster, first, moving.key).await, [[Some(7)]]);
        cluster.set_alive(second, true);
        assert_eq!(read_from_next_owners(&cluster, &moving, first).await, [[Some(7)]]);
    });
}

#[test]
fn a_quorum_read_of_a_range_that_changes_hands_needs_what_a_write_needs() {
    with_cluster(4, &config(), |cluster| async move {
        let moving = begin_join(&cluster);
        let text = format!("SELECT v FROM three.t WHERE k = {}", moving.key);
        cluster.set_alive(moving.stays[0], false);
        // The pending replica and two owners.
        cluster.query(moving.stays[1], &text, Consistency::Quorum).await.unwrap();
        cluster.set_alive(3, false);
        match cluster.query(moving.stays[1], &text, Consistency::Quorum).await {
            Err(RequestError::Unavailable { required: 3, alive: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        // A level of one replica promises nothing that could be lost.
        cluster.query(moving.stays[1], &text, Consistency::One).await.unwrap();
        // Without read repair nothing is promised either.
        let unrepaired = format!("SELECT v FROM three.unrepaired WHERE k = {}", moving.key);
        cluster.query(moving.stays[1], &unrepaired, Consistency::Quorum).await.unwrap();
    });
}

#[test]
fn rows_of_ranges_that_change_hands_are_found_by_scans() {
    with_cluster(4, &config(), |cluster| async move {
        let keys = 0..60;
        cluster.change_ring(&[(3, None)]);
        (0..4).for_each(|node| cluster.show(node));
        for key in keys.clone() {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        let moving = begin_join(&cluster);
        for down in [None, Some(moving.stays[0])] {
            if let Some(down) = down {
                cluster.set_alive(down, false);
            }
            let text = "SELECT k FROM three.t";
            let page = cluster.page(3, text, Consistency::Quorum, None, None).await.unwrap();
            let mut found: Vec<i64> = page.integers().into_iter().filter_map(|row| row[0]).collect();
            found.sort_unstable();
            assert_eq!(found, keys.clone().map(i64::from).collect::<Vec<_>>(), "down: {down:?}");
        }
    });
}
