//! TRUNCATE and deletions bind transactions: what was agreed on before comes back nowhere, and what is agreed on afterwards is there.

use std::collections::BTreeMap;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_ring::topology::Topology;

use super::settling::{IDLE, config, rounds, states};
use super::transactions::{INSERT, is_applied, serial_read};
use crate::cluster::{Cluster, with_centers, with_cluster};
use helenus::testing::client;
use helenus_execution::coordinator::RequestOptions;
use helenus_execution::coordinator::paxos::message::{PaxosOrder, PaxosRequest, PaxosResponse};
use helenus_execution::coordinator::paxos::replica;

const TRUNCATE: &str = "TRUNCATE three.t";

/// Lets a transaction be agreed on while a replica is away. The replica gets the row by a hint, and knows of no commit.
async fn insert_without(cluster: &Cluster, coordinator: usize, away: usize) {
    cluster.set_alive(away, false);
    assert!(is_applied(cluster.query(coordinator, INSERT, Consistency::Quorum).await));
    cluster.settle().await;
    cluster.set_alive(away, true);
    cluster.pass(Duration::from_secs(3)).await;
    assert_eq!(cluster.stored(away, "three", "t"), BTreeMap::from([(1, 1)]));
}

/// Settles what is idle, and checks that a table is empty on all nodes.
async fn settle_to_nothing(cluster: &Cluster, keyspace: &str) {
    tokio::time::advance(4 * IDLE).await;
    rounds(cluster, cluster.nodes.len()).await;
    for node in 0..cluster.nodes.len() {
        assert_eq!(cluster.stored(node, keyspace, "t"), BTreeMap::new(), "node {node}");
    }
}

#[test]
fn settling_brings_back_nothing_from_before_a_truncation() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 0, 2).await;
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        settle_to_nothing(&cluster, "three").await;
        assert!(is_applied(cluster.query(2, INSERT, Consistency::Quorum).await));
        assert_eq!(serial_read(&cluster, 1).await, Some(1));
    });
}

#[test]
fn settling_brings_nothing_back_in_the_other_data_center() {
    with_centers(&["near", "near", "far", "far"], &config(), |cluster| async move {
        let insert = "INSERT INTO centers.t (k, v) VALUES (1, 1) IF NOT EXISTS";
        let local = RequestOptions {
            serial_consistency: Some(Consistency::LocalSerial),
            ..client::options(Consistency::LocalQuorum)
        };
        assert!(is_applied(cluster.ask(0, insert, local.clone()).await.unwrap()));
        cluster.settle().await;
        assert_eq!(cluster.stored(3, "centers", "t"), BTreeMap::from([(1, 1)]));
        cluster.execute(2, "TRUNCATE centers.t", Consistency::One).await.unwrap();
        settle_to_nothing(&cluster, "centers").await;
        assert!(is_applied(cluster.ask(1, insert, local).await.unwrap()));
    });
}

#[test]
fn the_next_transaction_brings_back_nothing_from_before_a_truncation() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 0, 2).await;
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        // These two replicas do not know the commit both.
        cluster.set_alive(0, false);
        assert_eq!(serial_read(&cluster, 2).await, None);
        assert!(is_applied(cluster.query(2, INSERT, Consistency::Quorum).await));
        assert_eq!(serial_read(&cluster, 1).await, Some(1));
    });
}

#[test]
fn a_truncation_binds_transactions_whose_coordinator_has_a_clock_ahead_of_all_others() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.machine(0).clock.skew.offset_micros.set(30_000_000);
        insert_without(&cluster, 0, 2).await;
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        cluster.set_alive(0, false);
        assert_eq!(serial_read(&cluster, 2).await, None);
        // The clocks of these two are behind the truncation.
        assert!(is_applied(cluster.query(1, INSERT, Consistency::Quorum).await));
        assert_eq!(serial_read(&cluster, 2).await, Some(1));
    });
}

#[test]
fn a_late_commit_from_before_a_truncation_is_noted_and_not_applied_after_a_restart_either() {
    with_cluster(3, &config(), |mut cluster| async move {
        insert_without(&cluster, 0, 2).await;
        let (name, registers) = states(&cluster, 0).remove(0);
        let commit = registers.committed.unwrap();
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        cluster.restart(2).await;
        cluster.show(2);
        for _ in 0..2 {
            let request = PaxosRequest {
                epoch: cluster.topology().epoch,
                partition: name.clone(),
                order: PaxosOrder::Commit(commit.clone()),
            };
            let answer = replica::receive(&cluster.nodes[2][0], request).await.unwrap();
            assert!(matches!(answer, PaxosResponse::Committed), "{answer:?}");
            assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
        }
        assert!(is_applied(cluster.query(2, INSERT, Consistency::All).await));
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), BTreeMap::from([(1, 1)]), "node {node}");
        }
    });
}

#[test]
fn settling_brings_back_nothing_whose_deletion_may_be_purged() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 0, 2).await;
        cluster.execute(1, "DELETE FROM three.t WHERE k = 1", Consistency::All).await.unwrap();
        let table = cluster.table("three", "t");
        let grace = Duration::from_secs(u64::from(table.options.gc_grace_seconds));
        tokio::time::advance(grace + IDLE).await;
        for context in cluster.nodes.iter().flatten() {
            // As if all ranges had been repaired since.
            context.shard.set_known_everywhere(table.engine_id(), u32::MAX).unwrap();
            context.shard.compact(table.engine_id()).await.unwrap();
        }
        // The nodes may have done so by themselves meanwhile.
        rounds(&cluster, 3).await;
        settle_to_nothing(&cluster, "three").await;
        assert!(is_applied(cluster.query(2, INSERT, Consistency::Quorum).await));
    });
}

#[test]
fn transactions_of_a_table_whose_deletions_are_purged_at_once_are_applied() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let insert = "INSERT INTO three.brief (k, v) VALUES (1, 1) IF NOT EXISTS";
        cluster.set_alive(2, false);
        assert!(is_applied(cluster.query(0, insert, Consistency::Quorum).await));
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_mins(1)).await;
        let swap = "UPDATE three.brief SET v = 2 WHERE k = 1 IF v = 1";
        assert!(is_applied(cluster.query(1, swap, Consistency::All).await));
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "brief"), BTreeMap::from([(1, 2)]), "node {node}");
        }
    });
}

#[test]
fn a_cluster_with_older_programs_truncates_without_an_agreed_time() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 0, 2).await;
        let view = cluster.view_of(Topology { feature_level: 8, ..cluster.topology() });
        (0..3).for_each(|node| cluster.install(node, &view));
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        for (node, contexts) in cluster.nodes.iter().enumerate() {
            assert_eq!(cluster.stored(node, "three", "t"), BTreeMap::new(), "node {node}");
            let table = cluster.table("three", "t").engine_id();
            for context in contexts {
                assert_eq!(context.replication().hints.agreed_truncation(&table), None);
            }
        }
    });
}
