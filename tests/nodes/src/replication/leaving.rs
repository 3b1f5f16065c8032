//! A member that is about to leave: batches and hints that others store on it, and operations that it coordinates.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_ring::member::{MemberState, TransitionPhase};

use super::{BATCH, INSERT, changes, row};
use crate::cluster::{Cluster, host_id, with_cluster};
use helenus_execution::coordinator::batch_log::batch_id::BatchId;
use helenus_execution::coordinator::batch_log::store;
use helenus_execution::coordinator::replica::message::ReplicaRequest;
use helenus_execution::shard::status_table::ServingState;

fn is_quiet(cluster: &Cluster, node: usize) -> bool {
    cluster.nodes[node].iter().all(|shard| shard.replication().is_quiet())
}

#[test]
fn a_node_is_quiet_only_when_the_last_hint_of_its_writes_is_stored() {
    with_cluster(3, &Config::default(), |cluster| async move {
        assert!(is_quiet(&cluster, 0));
        cluster.set_silent(2, true);
        cluster.execute(0, INSERT, Consistency::One).await.unwrap();
        assert_eq!((cluster.hinted_bytes(0, 2), is_quiet(&cluster, 0)), (0, false));
        cluster.pass(Duration::from_millis(2_500)).await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        assert!(is_quiet(&cluster, 0));
    });
}

#[test]
fn a_commit_of_a_transaction_is_waited_for() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_silent(2, true);
        let insert = "INSERT INTO three.t (k, v) VALUES (1, 10) IF NOT EXISTS";
        cluster.query(0, insert, Consistency::One).await.unwrap();
        assert!(!is_quiet(&cluster, 0));
        cluster.pass(Duration::from_millis(2_500)).await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        assert!(is_quiet(&cluster, 0));
    });
}

#[test]
fn batches_are_kept_by_members_that_stay() {
    // If no other member stays, the coordinator keeps the batches itself.
    for nodes in [3, 2] {
        with_cluster(nodes, &Config::default(), |cluster| async move {
            let leaving = nodes - 1;
            cluster.change_ring(&[(leaving, Some(MemberState::Leaving(TransitionPhase::ReadNew)))]);
            (0..nodes).for_each(|node| cluster.show(node));
            // If the leaving member were asked to keep the batch, it would refuse, and the batch would not start.
            cluster.nodes[leaving]
                .iter()
                .for_each(|shard| shard.node.status.set_state(ServingState::Leaving));
            cluster.execute(0, BATCH, Consistency::One).await.unwrap();
            assert_eq!(cluster.stored(0, "three", "t").len(), 2);
        });
    }
}

#[test]
fn a_leaving_member_is_a_replica_but_keeps_nothing_for_others_any_more() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let context = &cluster.nodes[0][0];
        let member = context.cluster().topology.member(&host_id(2)).unwrap().clone();
        let changes = changes(&cluster, &[INSERT]);
        let mutation = changes[0].mutation.bytes().to_vec();
        let batch =
            ReplicaRequest::StoreBatch { id: BatchId::new(context), mutations: store::encode(&changes) };
        let hint = ReplicaRequest::KeepHint { target: host_id(1), created_micros: 1, mutation };
        cluster.nodes[2][0].node.status.set_state(ServingState::Leaving);
        for request in [batch, hint] {
            let answer = context.ask(&member, 0, &request, Duration::from_secs(1)).await;
            assert!(matches!(answer, Err(PeerError::Failed(Failure::Overloaded(_)))), "{answer:?}");
        }
        cluster.execute(0, INSERT, Consistency::All).await.unwrap();
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
        assert_eq!((cluster.logged_batches(), cluster.hinted_bytes(2, 1)), (0, 0));
    });
}

#[test]
fn hints_of_others_do_not_wait_for_a_member_that_is_dead_and_being_removed() {
    let config = Config { max_hint_window_ms: 60_000, ..Config::default() };
    with_cluster(4, &config, |cluster| async move {
        cluster.set_alive(3, false);
        cluster.pass(Duration::from_mins(2)).await;
        cluster.change_ring(&[(3, Some(MemberState::Leaving(TransitionPhase::WriteBoth)))]);
        cluster.show_all();
        cluster.set_alive(1, false);
        for key in 0..40 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::One).await.unwrap();
        }
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 1) > 0);
        assert_eq!(cluster.hinted_bytes(0, 3), 0, "it has been away for too long");
        cluster.set_alive(1, true);
        cluster.pass(Duration::from_secs(20)).await;
        assert_eq!(cluster.hinted_bytes(0, 1), 0);
        assert!(cluster.stored(1, "three", "t").len() > 20);
    });
}

#[test]
fn a_batch_waits_for_a_replica_that_has_been_away_for_too_long() {
    let config = Config { max_hint_window_ms: 60_000, ..Config::default() };
    with_cluster(3, &config, |cluster| async move {
        cluster.set_alive(2, false);
        cluster.pass(Duration::from_mins(2)).await;
        // Left behind by a coordinator that has died.
        let context = &cluster.nodes[0][0];
        let member = context.cluster().topology.member(&host_id(1)).unwrap().clone();
        let mutations = store::encode(&changes(&cluster, &[INSERT]));
        let batch = ReplicaRequest::StoreBatch { id: BatchId::new(context), mutations };
        context.ask(&member, 0, &batch, Duration::from_secs(1)).await.unwrap();
        cluster.pass(Duration::from_mins(2)).await;
        assert_eq!(cluster.stored(0, "three", "t"), row(1, 10));
        assert_eq!(cluster.logged_batches(), 1);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_mins(2)).await;
        assert_eq!(cluster.logged_batches(), 0);
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
    });
}
