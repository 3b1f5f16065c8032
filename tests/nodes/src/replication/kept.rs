//! What waits to be delivered, on nodes whose clocks differ and that are started again: TRUNCATE removes what precedes it and nothing else, and
//! the window of hints goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_execution::coordinator::batch_log::batch_id::BatchId;
use helenus_execution::coordinator::batch_log::store;
use helenus_execution::coordinator::replica::message::ReplicaRequest;

use super::{INSERT, changes, row};
use crate::cluster::{Cluster, host_id, with_cluster};

const TRUNCATE: &str = "TRUNCATE three.t";
const SECOND_MICROS: i64 = 1_000_000;

/// Asks node 1 as node 0 does, whose clock differs by so much from that of node 1.
async fn ask_keeper(cluster: &Cluster, request: &ReplicaRequest) {
    let context = &cluster.nodes[0][0];
    let member = context.cluster().topology.member(&host_id(1)).unwrap().clone();
    context.ask(&member, 0, request, Duration::from_secs(1)).await.unwrap();
}

/// A batch of a coordinator whose clock is ahead by so much. It dies before it has applied the batch.
async fn leave_batch(cluster: &Cluster, ahead_micros: i64) {
    leave_batch_of(cluster, ahead_micros, INSERT).await;
}

async fn leave_batch_of(cluster: &Cluster, ahead_micros: i64, text: &str) {
    let context = &cluster.nodes[0][0];
    let id = BatchId { created_micros: context.next_timestamp() + ahead_micros, ..BatchId::new(context) };
    let mutations = store::encode(&changes(cluster, &[text]));
    ask_keeper(cluster, &ReplicaRequest::StoreBatch { id, mutations }).await;
}

#[test]
fn a_batch_that_follows_a_truncation_is_replayed_though_its_coordinator_is_behind() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        leave_batch(&cluster, -3 * SECOND_MICROS).await;
        cluster.pass(Duration::from_secs(30)).await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), row(1, 10), "node {node}");
        }
        assert_eq!(cluster.logged_batches(), 0);
    });
}

#[test]
fn a_batch_that_precedes_a_truncation_is_not_replayed_though_its_coordinator_is_ahead() {
    with_cluster(3, &Config::default(), |cluster| async move {
        leave_batch(&cluster, 3 * SECOND_MICROS).await;
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        cluster.pass(Duration::from_secs(30)).await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), BTreeMap::new(), "node {node}");
        }
        assert_eq!(cluster.logged_batches(), 0);
    });
}

/// A deletion of its rows may be purged everywhere an hour after the write, which is the grace period of the table.
#[test]
fn the_hints_of_a_batch_that_is_replayed_late_expire_with_the_batch() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        let forty_minutes = Duration::from_mins(40);
        let text = "INSERT INTO three.graced (k, v) VALUES (1, 10)";
        leave_batch_of(&cluster, -(forty_minutes.as_micros() as i64), text).await;
        cluster.pass(Duration::from_secs(30)).await;
        assert_eq!(cluster.stored(1, "three", "graced"), row(1, 10));
        assert!(cluster.hinted_bytes(1, 2) > 0);
        cluster.pass(forty_minutes).await;
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(5)).await;
        assert_eq!(cluster.hinted_bytes(1, 2), 0);
        assert_eq!(cluster.stored(2, "three", "graced"), BTreeMap::new());
    });
}

/// A hint for node 2 that node 0 hands over to node 1, while node 0 leaves. Its clock is ahead by so much.
async fn hand_over(cluster: &Cluster, ahead_micros: i64, age: Duration) {
    let mutation = changes(cluster, &[INSERT])[0].mutation.bytes().to_vec();
    let age_micros = age.as_micros() as u64;
    let created_micros = cluster.nodes[0][0].next_timestamp() + ahead_micros - age.as_micros() as i64;
    let request = ReplicaRequest::KeepAgedHint { target: host_id(2), created_micros, age_micros, mutation };
    ask_keeper(cluster, &request).await;
}

#[test]
fn hints_that_are_handed_over_precede_a_truncation_by_their_age() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.execute(1, TRUNCATE, Consistency::One).await.unwrap();
        cluster.pass(Duration::from_secs(5)).await;
        // Of before, by a member whose clock is ahead.
        hand_over(&cluster, 8 * SECOND_MICROS, Duration::from_secs(6)).await;
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
        // Of afterwards, by a member whose clock is behind.
        hand_over(&cluster, -9 * SECOND_MICROS, Duration::from_secs(1)).await;
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
        assert_eq!(cluster.hinted_bytes(1, 2), 0);
    });
}

#[test]
fn the_window_of_hints_goes_on_after_a_restart() {
    let config = Config { max_hint_window_ms: 120_000, ..Config::default() };
    with_cluster(3, &config, |mut cluster| async move {
        cluster.set_alive(2, false);
        cluster.pass(Duration::from_secs(100)).await;
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        let bytes = cluster.hinted_bytes(0, 2);
        assert!(bytes > 0);
        for pause_seconds in [1, 60] {
            cluster.restart(0).await;
            cluster.show(0);
            cluster.pass(Duration::from_secs(pause_seconds)).await;
        }
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (2, 20)", Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert_eq!(cluster.hinted_bytes(0, 2), bytes, "the window is over");
        // The window begins anew when the member has been back.
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        cluster.set_alive(2, false);
        cluster.restart(0).await;
        cluster.show(0);
        cluster.pass(Duration::from_secs(3)).await;
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (3, 30)", Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
    });
}
