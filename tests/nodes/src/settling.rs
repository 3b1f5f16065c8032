//! The state of idle transactions is forgotten, and no other state is.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use tokio::time::Instant;

use super::transactions::{INSERT, is_applied, serial_read, swap};
use crate::cluster::{Cluster, host_id, with_cluster};
use helenus_execution::coordinator::paxos::message::PartitionName;
use helenus_execution::coordinator::paxos::state::Registers;
use helenus_execution::coordinator::paxos::{settle, store};

pub(super) const IDLE: Duration = Duration::from_mins(1);

pub(super) fn config() -> Config {
    Config { transaction_state_idle_seconds: IDLE.as_secs(), ..Config::default() }
}

/// The transaction state on all shards of a node.
pub(super) fn states(cluster: &Cluster, node: usize) -> Vec<(PartitionName, Registers)> {
    let shards = cluster.nodes[node].iter();
    shards.flat_map(|context| store::load_part(&context.shard, &[], 1_000).unwrap().states).collect()
}

/// The number of partitions whose state a node still has.
pub(super) fn remembered(cluster: &Cluster, node: usize) -> usize {
    states(cluster, node).iter().filter(|(_, registers)| !registers.is_empty()).count()
}

/// Makes all shards of the first nodes scan their state. Returns the number of partitions settled.
pub(super) async fn rounds(cluster: &Cluster, nodes: usize) -> u64 {
    let mut settled = 0;
    for context in cluster.nodes.iter().take(nodes).flatten() {
        settled += settle::round(context).await.unwrap();
    }
    settled
}

#[test]
fn idle_state_is_forgotten_by_all_replicas_and_transactions_continue() {
    with_cluster(3, &config(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        assert!(swap(&cluster, 1, 1, 2).await);
        for node in 0..3 {
            assert_eq!(remembered(&cluster, node), 1);
        }
        assert_eq!(rounds(&cluster, 3).await, 0);
        for round in 0..3_i64 {
            tokio::time::advance(4 * IDLE).await;
            assert_eq!(rounds(&cluster, 3).await, 1, "{round}");
            for node in 0..3 {
                assert_eq!(remembered(&cluster, node), 0);
                assert!(states(&cluster, node).iter().all(|(_, registers)| registers.low_bound_micros > 0));
                assert_eq!(cluster.stored(node, "three", "t").get(&1), Some(&(round + 2)));
            }
            assert!(!is_applied(cluster.query(2, INSERT, Consistency::Quorum).await));
            assert!(swap(&cluster, 2, round + 2, round + 3).await);
            assert_eq!(serial_read(&cluster, 0).await, Some(round + 3));
        }
    });
}

#[test]
fn a_partition_serves_transactions_when_its_low_bound_has_expired_and_its_file_was_rewritten() {
    with_cluster(3, &config(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        tokio::time::advance(4 * IDLE).await;
        assert_eq!(rounds(&cluster, 3).await, 1);
        tokio::time::advance(4 * IDLE).await;
        for context in cluster.nodes.iter().flatten() {
            context.shard.flush(store::TABLE).await.unwrap();
            context.shard.compact(store::TABLE).await.unwrap();
        }
        assert!(swap(&cluster, 1, 1, 2).await);
        assert_eq!(serial_read(&cluster, 2).await, Some(2));
    });
}

#[test]
fn nothing_is_forgotten_while_a_replica_is_away() {
    with_cluster(3, &config(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        cluster.set_alive(2, false);
        assert!(swap(&cluster, 0, 1, 2).await);
        tokio::time::advance(4 * IDLE).await;
        assert_eq!(rounds(&cluster, 3).await, 0);
        assert_eq!(remembered(&cluster, 0), 1);
        cluster.set_alive(2, true);
        // Silent, and no other node has noticed.
        cluster.set_silent(2, true);
        assert_eq!(rounds(&cluster, 2).await, 0);
        assert_eq!(remembered(&cluster, 1), 1);
        cluster.set_silent(2, false);
        tokio::time::advance(4 * IDLE).await;
        assert!(rounds(&cluster, 3).await > 0);
        for node in 0..3 {
            assert_eq!(remembered(&cluster, node), 0, "{node}: {:?}", states(&cluster, node));
            // By then the replica that was away knows the agreed mutation.
            assert_eq!(cluster.stored(node, "three", "t").get(&1), Some(&2));
        }
    });
}

#[test]
fn a_coordinator_whose_clock_is_far_behind_writes_nothing_that_is_hidden_by_what_was_forgotten() {
    with_cluster(3, &config(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        let before = states(&cluster, 0);
        tokio::time::advance(4 * IDLE).await;
        rounds(&cluster, 3).await;
        let name = &before[0].0;
        for context in cluster.nodes.iter().flatten() {
            // As if the low bound had expired.
            store::remove(&context.shard, name, context.now_seconds()).unwrap();
        }
        let (_, old) = &before[0];
        let context =
            cluster.nodes[0].iter().find(|context| context.index == context.node.shard_of(name.token));
        let request = helenus_execution::coordinator::paxos::message::PaxosRequest {
            epoch: cluster.topology().epoch,
            partition: name.clone(),
            order: helenus_execution::coordinator::paxos::message::PaxosOrder::Ask {
                question: helenus_execution::coordinator::paxos::proposer::Question::Prepare {
                    ballot: old.promised.unwrap(),
                    is_write: true,
                    commit: None,
                },
                read: None,
            },
        };
        let answer = helenus_execution::coordinator::paxos::replica::receive(context.unwrap(), request).await;
        assert!(
            matches!(
                answer,
                Ok(helenus_execution::coordinator::paxos::message::PaxosResponse::Rejected { .. })
            ),
            "{answer:?}"
        );
    });
}

/// A transaction on each of these keys.
async fn insert_keys(cluster: &Cluster, keys: std::ops::Range<i32>) {
    for key in keys {
        let insert = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1) IF NOT EXISTS");
        assert!(is_applied(cluster.query(0, &insert, Consistency::Quorum).await));
    }
    cluster.settle().await;
}

#[test]
fn partitions_that_cannot_be_settled_do_not_keep_others_from_it() {
    with_cluster(4, &config(), |cluster| async move {
        insert_keys(&cluster, 0..300).await;
        // No other node has noticed.
        cluster.set_silent(3, true);
        tokio::time::advance(6 * IDLE).await;
        let view = cluster.view();
        let placement = view.placement("three").unwrap();
        let can_be_settled = |name: &PartitionName| !placement.replicas(name.token).contains(&host_id(3));
        let left = |cluster: &Cluster| {
            let states = states(cluster, 0).into_iter();
            let left = states.filter(|(name, registers)| can_be_settled(name) && !registers.is_empty());
            left.count()
        };
        assert!(left(&cluster) > 20, "{}", left(&cluster));
        for _ in 0..4 {
            rounds(&cluster, 3).await;
        }
        assert_eq!(left(&cluster), 0);
    });
}

#[test]
fn many_partitions_are_settled_at_once() {
    with_cluster(3, &config(), |cluster| async move {
        insert_keys(&cluster, 0..60).await;
        cluster.set_silent(2, true);
        tokio::time::advance(6 * IDLE).await;
        let begun = Instant::now();
        assert_eq!(rounds(&cluster, 1).await, 0);
        // Each of them has taken a second to fail.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        // The silent node asks others, too, and may have settled some by itself.
        let left = remembered(&cluster, 0);
        assert!(left > 32, "more than are settled at once: {left}");
    });
}
