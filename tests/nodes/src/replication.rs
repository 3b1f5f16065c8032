//! Writes to several nodes: acknowledgements, hints and batches kept for replicas that missed a write, and their
//! replay. Reads and members that leave have their own files.

mod damage;
mod deadlines;
mod full_disks;
mod kept;
mod large;
mod leaving;
mod pending_reads;
mod reads;

use std::collections::BTreeMap;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_config::Config;
use helenus_query::error::{FailureReason, RequestError};
use helenus_query::plan::term::Bindings;
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{MutationSet, PartitionMutation};
use helenus_query::statement::Statement;
use helenus_ring::member::{MemberState, TransitionPhase};
use tokio::time::Instant;

use super::cluster::{Cluster, host_id, with_cluster};
use helenus::testing::client;
use helenus_execution::coordinator::batch_log::batch_id::BatchId;
use helenus_execution::coordinator::batch_log::store;
use helenus_execution::coordinator::replica::hints;
use helenus_execution::coordinator::replica::message::ReplicaRequest;

const INSERT: &str = "INSERT INTO three.t (k, v) VALUES (1, 10)";

fn row(key: i32, value: i64) -> BTreeMap<i32, i64> {
    BTreeMap::from([(key, value)])
}

/// The mutations of statements on different partitions.
pub(super) fn changes(cluster: &Cluster, texts: &[&str]) -> Vec<PartitionMutation> {
    let context = &cluster.nodes[0][0];
    let call = context.call_context();
    let options = client::options(Consistency::One);
    let write = helenus_execution::coordinator::local_write::write_context(context, &options);
    let mut set = MutationSet::default();
    for text in texts {
        let statement = Statement::new(text, None, &context.catalog_view()).unwrap();
        let Statement::Modify(statement) = statement else { panic!("{text} changes nothing") };
        let bindings = Bindings { values: &[], call: &call };
        let keys = partition_keys(&statement.plan.partition, &statement.plan.table, &bindings).unwrap();
        set.add(&statement.plan, keys, &bindings, &write, None).unwrap();
    }
    set.finish(&write, None).unwrap()
}

#[test]
fn a_write_reaches_all_replicas_whatever_its_level() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for (key, level) in [Consistency::One, Consistency::Quorum, Consistency::All].into_iter().enumerate()
        {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 5)");
            cluster.execute(key, &text, level).await.unwrap();
        }
        for node in 0..3 {
            let expected: BTreeMap<i32, i64> = (0..3).map(|key| (key, 5)).collect();
            assert_eq!(cluster.stored(node, "three", "t"), expected, "node {node}");
        }
    });
}

#[test]
fn a_level_that_the_live_replicas_cannot_satisfy_is_refused_before_anything_is_written() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        match cluster.execute(0, INSERT, Consistency::All).await {
            Err(RequestError::Unavailable { consistency: Consistency::All, required: 3, alive: 2 }) => {}
            other => panic!("{other:?}"),
        }
        cluster.set_alive(1, false);
        match cluster.execute(0, INSERT, Consistency::Quorum).await {
            Err(RequestError::Unavailable { required: 2, alive: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(cluster.stored(0, "three", "t"), BTreeMap::new());
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        cluster.execute(0, INSERT, Consistency::One).await.unwrap();
        assert_eq!(cluster.stored(0, "three", "t"), row(1, 10));
    });
}

#[test]
fn a_silent_replica_delays_only_levels_that_need_it() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_silent(2, true);
        let before = Instant::now();
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        assert_eq!(Instant::now(), before, "no time has passed");
        expect_timeout(&cluster, 1, INSERT).await;
    });
}

/// Executes a write at level ALL that one of the three replicas does not answer in time.
async fn expect_timeout(cluster: &Cluster, node: usize, text: &str) {
    match cluster.execute(node, text, Consistency::All).await {
        Err(RequestError::WriteTimeout {
            consistency: Consistency::All,
            received: 2,
            required: 3,
            write_type: WriteType::Simple,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replica_that_is_down_has_not_failed_where_another_is_silent() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(1, false);
        cluster.set_silent(2, true);
        match cluster.execute(0, INSERT, Consistency::Quorum).await {
            Err(RequestError::WriteTimeout { received: 1, required: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn hints_are_delivered_when_the_replica_is_back() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        cluster.pass(Duration::from_secs(5)).await;
        assert!(cluster.hinted_bytes(0, 2) > 0, "no hint is stored");
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn a_replica_that_did_not_answer_in_time_gets_a_hint() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_silent(2, true);
        cluster.execute(0, INSERT, Consistency::One).await.unwrap();
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        cluster.pass(Duration::from_millis(2_500)).await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        cluster.set_silent(2, false);
        cluster.pass(Duration::from_secs(4)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
    });
}

#[test]
fn hints_survive_a_crash_of_the_node_that_stores_them() {
    with_cluster(3, &Config::default(), |mut cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        let bytes = cluster.hinted_bytes(0, 2);
        cluster.restart(0).await;
        assert_eq!(cluster.hinted_bytes(0, 2), bytes);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
    });
}

/// Simulation, seed 7392: a hint stored at a position before those already delivered was forgotten.
#[test]
fn hints_are_delivered_after_the_clock_was_set_back() {
    with_cluster(3, &Config::default(), |mut cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        (0..3).for_each(|node| cluster.machine(node).clock.skew.offset_micros.set(-60_000_000));
        cluster.restart(0).await;
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        cluster.set_alive(2, false);
        let later = "INSERT INTO three.t (k, v) VALUES (1, 11) USING TIMESTAMP 9000000000000000";
        cluster.execute(0, later, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 11));
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

/// Simulation, seed 3421: hints written while the start counts them are counted twice.
#[test]
fn hints_that_are_counted_and_not_there_are_forgotten() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        let bytes = cluster.hinted_bytes(0, 2);
        for context in &cluster.nodes[0] {
            hints::load(context).await.unwrap();
        }
        assert_eq!(cluster.hinted_bytes(0, 2), 2 * bytes);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

/// Simulation, seed 2636.
#[test]
fn hints_of_a_joiner_that_was_sent_away_do_not_stay() {
    with_cluster(4, &Config::default(), |cluster| async move {
        cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
        (0..3).for_each(|node| cluster.show(node));
        cluster.set_alive(3, false);
        for key in 0..40 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 3) > 0);
        cluster.change_ring(&[(3, None)]);
        cluster.forget_removed();
        (0..3).for_each(|node| cluster.show(node));
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.hinted_bytes(0, 3), 0);
    });
}

#[test]
fn hints_are_bounded() {
    let config = Config { max_hints_bytes: 1 << 20, ..Config::default() };
    with_cluster(3, &config, |cluster| async move {
        cluster.set_alive(2, false);
        let blob = "ab".repeat(100 << 10);
        for key in 0..20 {
            let text = format!("INSERT INTO three.blobs (k, v) VALUES ({key}, 0x{blob})");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        cluster.settle().await;
        let bytes = cluster.hinted_bytes(0, 2);
        assert!(bytes > 300 << 10 && bytes <= 1 << 20, "{bytes}");
        let dropped: u64 = cluster.nodes[0].iter().map(|context| context.metrics.hints_dropped.get()).sum();
        assert!(dropped > 0);
    });
}

#[test]
fn hints_end_with_the_window() {
    let config = Config { max_hint_window_ms: 10_000, ..Config::default() };
    with_cluster(3, &config, |cluster| async move {
        cluster.set_alive(2, false);
        cluster.pass(Duration::from_secs(12)).await;
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn any_is_content_with_a_hint_and_one_is_not() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(1, false);
        cluster.set_alive(2, false);
        let mut refused = 0;
        for key in 0..20 {
            let text = format!("INSERT INTO one.t (k, v) VALUES ({key}, 1)");
            match cluster.execute(0, &text, Consistency::One).await {
                Ok(()) => {}
                Err(RequestError::Unavailable { required: 1, alive: 0, .. }) => refused += 1,
                other => panic!("{other:?}"),
            }
            cluster.execute(0, &text, Consistency::Any).await.unwrap();
        }
        assert!(refused > 0);
        cluster.set_alive(1, true);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(2)).await;
        let everywhere: usize = (0..3).map(|node| cluster.stored(node, "one", "t").len()).sum();
        assert_eq!(everywhere, 20);
    });
}

#[test]
fn hints_of_a_member_that_has_left_go_to_those_that_have_its_partitions() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        for key in 0..20 {
            let text = format!("INSERT INTO one.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::Any).await.unwrap();
        }
        cluster.change_ring(&[(2, None)]);
        (0..2).for_each(|node| cluster.show(node));
        cluster.pass(Duration::from_secs(3)).await;
        let everywhere: usize = (0..2).map(|node| cluster.stored(node, "one", "t").len()).sum();
        assert_eq!(everywhere, 20);
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn a_pending_replica_raises_the_required_replicas_by_one() {
    with_cluster(4, &Config::default(), |cluster| async move {
        cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
        (0..4).for_each(|node| cluster.show(node));
        // A key that the new member will own.
        let table = cluster.table("three", "t");
        let key = (0..1_000)
            .find(|key: &i32| {
                let token = cql_lite::types::token::token(&key.to_be_bytes());
                let view = cluster.nodes[0][0].cluster();
                !view.placement(&table.keyspace).unwrap().replicas(token).pending.is_empty()
            })
            .unwrap();
        let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
        cluster.set_silent(2, true);
        cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        assert_eq!(cluster.stored(3, "three", "t"), row(key, 1));
        cluster.set_silent(3, true);
        match cluster.execute(0, &text, Consistency::Quorum).await {
            Err(RequestError::WriteTimeout { received: 2, required: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_write_of_an_old_epoch_is_done_again_in_the_new_one() {
    with_cluster(4, &Config::default(), |cluster| async move {
        cluster.change_ring(&[(3, None)]);
        (0..4).for_each(|node| cluster.show(node));
        cluster.change_ring(&[(3, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
        (1..4).for_each(|node| cluster.show(node));
        let write = cluster.execute(0, INSERT, Consistency::All);
        let catch_up = async {
            cluster.settle().await;
            cluster.show(0);
        };
        let (outcome, ()) = futures::join!(write, catch_up);
        outcome.unwrap();
        let token = cql_lite::types::token::token(&1_i32.to_be_bytes());
        let view = cluster.nodes[0][0].cluster();
        let replicas = view.placement("three").unwrap().replicas(token).clone();
        for node in 0..4 {
            if replicas.contains(&host_id(node)) {
                assert_eq!(cluster.stored(node, "three", "t"), row(1, 10), "node {node}");
            }
        }
    });
}

#[test]
fn a_replica_that_is_behind_waits_for_the_epoch() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.change_ring(&[]);
        cluster.show(0);
        cluster.show(1);
        let write = cluster.execute(0, INSERT, Consistency::All);
        let catch_up = async {
            cluster.settle().await;
            assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
            cluster.show(2);
        };
        let (outcome, ()) = futures::join!(write, catch_up);
        outcome.unwrap();
        assert_eq!(cluster.stored(2, "three", "t"), row(1, 10));
    });
}

#[test]
fn too_many_bytes_in_flight_cause_an_overload_error() {
    let config = Config { max_write_bytes_in_flight: 1 << 20, ..Config::default() };
    with_cluster(3, &config, |cluster| async move {
        cluster.set_silent(2, true);
        let blob = "ab".repeat(300 << 10);
        let mut refused = 0;
        for key in 0..6 {
            let text = format!("INSERT INTO three.blobs (k, v) VALUES ({key}, 0x{blob})");
            match cluster.execute(0, &text, Consistency::Quorum).await {
                Ok(()) => {}
                Err(RequestError::Overloaded(_)) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(refused > 0);
        // Nothing is in flight any more: there is room again.
        cluster.pass(Duration::from_secs(3)).await;
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
    });
}

#[test]
fn a_table_that_replicas_do_not_know_is_a_failure_with_its_reason() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let id = cluster.table("three", "t").engine_id();
        for node in [1, 2] {
            for context in &cluster.nodes[node] {
                context.shard.drop_table(id).await.unwrap();
            }
        }
        match cluster.execute(0, INSERT, Consistency::Quorum).await {
            Err(RequestError::WriteFailure { received: 1, required: 2, failures, .. }) => {
                assert!(failures.iter().all(|failure| failure.reason == FailureReason::IncompatibleSchema));
                assert_eq!(failures.len(), 2);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn counters_count_through_any_coordinator() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for node in 0..3 {
            for key in 0..6 {
                for table in ["one", "three"] {
                    let text = format!("UPDATE {table}.c SET n = n + {} WHERE k = {key}", node + 1);
                    cluster.execute(node, &text, Consistency::One).await.unwrap();
                }
            }
        }
        cluster.settle().await;
        let expected: BTreeMap<i32, i64> = (0..6).map(|key| (key, 6)).collect();
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "c"), expected, "node {node}");
        }
        let owned: BTreeMap<i32, i64> = (0..3).flat_map(|node| cluster.stored(node, "one", "c")).collect();
        assert_eq!(owned, expected);
    });
}

#[test]
fn errors_of_a_leader_reach_the_client() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for key in 0..6 {
            let text = format!("UPDATE one.t SET l[0] = 1 WHERE k = {key}");
            match cluster.execute(0, &text, Consistency::One).await {
                Err(RequestError::Invalid(message)) => {
                    assert_eq!(message, "Attempted to set an element on a list which is null");
                }
                other => panic!("{other:?}"),
            }
        }
        match cluster.execute(0, "UPDATE one.c SET n = n + 1 WHERE k = 1", Consistency::Any).await {
            Err(RequestError::Invalid(message)) => assert!(message.contains("ANY"), "{message}"),
            other => panic!("{other:?}"),
        }
    });
}

const BATCH: &str = "BEGIN BATCH INSERT INTO three.t (k, v) VALUES (1, 10); \
    INSERT INTO three.t (k, v) VALUES (2, 10); APPLY BATCH";

#[test]
fn a_logged_batch_leaves_nothing_in_the_log() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.execute(0, BATCH, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t").len(), 2);
        }
        assert_eq!(cluster.logged_batches(), 0);
    });
}

/// The rows and tombstones that private tables of all shards have, once everything is in files.
async fn rows_in_files(cluster: &Cluster, table: helenus_engine::TableId) -> u64 {
    let mut rows = 0;
    for context in cluster.nodes.iter().flatten() {
        context.shard.flush(table).await.unwrap();
        rows += context.shard.statistics(table).unwrap().row_versions;
    }
    rows
}

#[test]
fn batches_and_hints_that_are_done_leave_neither_rows_nor_tombstones() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for number in 0..50 {
            let batch = format!(
                "BEGIN BATCH INSERT INTO three.t (k, v) VALUES ({number}, 1); \
                 INSERT INTO three.t (k, v) VALUES ({}, 1); APPLY BATCH",
                number + 1_000
            );
            cluster.execute(number % 3, &batch, Consistency::Quorum).await.unwrap();
        }
        cluster.settle().await;
        assert_eq!(cluster.logged_batches(), 0);
        assert_eq!(rows_in_files(&cluster, store::TABLE.0).await, 0);

        cluster.set_alive(2, false);
        for number in 0..50 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({number}, 2)");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        cluster.settle().await;
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(5)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        assert!(cluster.stored(2, "three", "t").values().any(|value| *value == 2));
        assert_eq!(rows_in_files(&cluster, hints::TABLE.0).await, 0);
    });
}

#[test]
fn a_batch_whose_log_does_not_answer_is_not_begun() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_silent(2, true);
        match cluster.execute(0, BATCH, Consistency::One).await {
            Err(RequestError::WriteTimeout {
                consistency: Consistency::Two,
                received: 1,
                required: 2,
                write_type: WriteType::BatchLog,
                ..
            }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(cluster.stored(0, "three", "t"), BTreeMap::new());
    });
}

/// A batch on lists that hold `[1, 2]`.
const LISTS: &str = "BEGIN BATCH UPDATE three.lists SET l[0] = 7 WHERE k = 1; \
    UPDATE three.lists SET l = l - [1] WHERE k = 2; APPLY BATCH";

async fn make_lists(cluster: &Cluster) {
    for key in [1, 2] {
        let text = format!("INSERT INTO three.lists (k, l) VALUES ({key}, [1, 2])");
        cluster.execute(0, &text, Consistency::All).await.unwrap();
    }
}

#[test]
fn a_logged_batch_that_reads_lists_changes_all_of_them() {
    with_cluster(3, &Config::default(), |cluster| async move {
        make_lists(&cluster).await;
        cluster.execute(0, LISTS, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "lists"), BTreeMap::from([(1, 7), (2, 2)]));
        }
        assert_eq!(cluster.logged_batches(), 0);
        match cluster.execute(0, LISTS, Consistency::Any).await {
            Err(RequestError::Invalid(message)) if message.contains("ANY is not supported on reads") => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_logged_batch_that_reads_lists_is_not_begun_before_its_log_has_it() {
    with_cluster(3, &Config::default(), |cluster| async move {
        make_lists(&cluster).await;
        cluster.set_silent(2, true);
        match cluster.execute(0, LISTS, Consistency::One).await {
            Err(RequestError::WriteTimeout { write_type: WriteType::BatchLog, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(cluster.stored(0, "three", "lists"), BTreeMap::from([(1, 1), (2, 1)]));
    });
}

#[test]
fn a_batch_whose_coordinator_has_died_is_applied_by_its_batch_log_replicas() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let texts = [INSERT, "INSERT INTO three.t (k, v) VALUES (2, 10)"];
        let changes = changes(&cluster, &texts);
        let context = &cluster.nodes[0][0];
        let request =
            ReplicaRequest::StoreBatch { id: BatchId::new(context), mutations: store::encode(&changes) };
        for keeper in [1, 2] {
            let member = context.cluster().topology.member(&host_id(keeper)).unwrap().clone();
            context.ask(&member, 0, &request, Duration::from_secs(1)).await.unwrap();
        }
        cluster.set_alive(0, false);
        assert_eq!(cluster.stored(1, "three", "t"), BTreeMap::new());
        cluster.pass(Duration::from_secs(21)).await;
        assert_eq!(cluster.stored(1, "three", "t").len(), 2);
        assert_eq!(cluster.stored(2, "three", "t").len(), 2);
        assert_eq!(cluster.logged_batches(), 0);
        // The dead member gets its part when it is back.
        cluster.set_alive(0, true);
        cluster.pass(Duration::from_secs(2)).await;
        assert_eq!(cluster.stored(0, "three", "t").len(), 2);
    });
}

#[test]
fn a_node_that_is_alone_replays_batches_at_its_start_but_none_of_before_a_truncation() {
    with_cluster(1, &Config::default(), |mut cluster| async move {
        let log = async |cluster: &Cluster, text: &str| {
            let context = &cluster.nodes[0][0];
            let mutations = store::encode(&changes(cluster, &[text]));
            store::store_here(context, &BatchId::new(context).position(), &mutations).await.unwrap();
        };
        log(&cluster, INSERT).await;
        cluster.execute(0, "TRUNCATE three.t", Consistency::One).await.unwrap();
        log(&cluster, "INSERT INTO three.t (k, v) VALUES (2, 20)").await;
        cluster.restart(0).await;
        assert_eq!(cluster.stored(0, "three", "t"), row(2, 20));
        assert_eq!(cluster.logged_batches(), 0);
    });
}

#[test]
fn truncate_needs_all_members_and_discards_older_hints_and_batches() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        match cluster.execute(0, "TRUNCATE three.t", Consistency::One).await {
            Err(RequestError::Unavailable { consistency: Consistency::All, required: 3, alive: 2 }) => {}
            other => panic!("{other:?}"),
        }
        cluster.set_alive(2, true);
        cluster.execute(1, "TRUNCATE three.t", Consistency::One).await.unwrap();
        cluster.pass(Duration::from_secs(3)).await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), BTreeMap::new(), "node {node}");
        }
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn a_node_that_does_not_know_the_cluster_yet_keeps_its_hints() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, INSERT, Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        let bytes = cluster.hinted_bytes(0, 2);
        cluster.change_ring(&[(1, None), (2, None)]);
        cluster.forget_agreements();
        cluster.show(0);
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), bytes);
    });
}

#[test]
fn writes_begun_by_a_single_node_reach_a_member_that_joins_meanwhile() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.change_ring(&[(1, None), (2, None)]);
        cluster.show(0);
        // The shard of the client does not know the other members yet; the shard that owns the partition does.
        let owner = &cluster.nodes[0][1];
        let is_owned =
            |key: &i32| owner.node.shard_of(cql_lite::types::token::token(&key.to_be_bytes())) == 1;
        let key = (0..1_000).find(is_owned).unwrap();
        cluster.change_ring(&[1, 2].map(|node| (node, Some(MemberState::Normal))));
        cluster.show(1);
        cluster.show(2);
        owner.install_cluster(cluster.nodes[1][0].cluster());
        let insert = format!("INSERT INTO three.t (k, v) VALUES ({key}, 5)");
        let count = format!("UPDATE three.c SET n = n + 1 WHERE k = {key}");
        let writes = async {
            futures::join!(
                cluster.execute(0, &insert, Consistency::One),
                cluster.execute(0, &count, Consistency::One)
            )
        };
        let catch_up = async {
            cluster.settle().await;
            cluster.show(0);
        };
        let ((inserted, counted), ()) = futures::join!(writes, catch_up);
        inserted.unwrap();
        counted.unwrap();
        cluster.settle().await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), row(key, 5), "node {node}");
            assert_eq!(cluster.stored(node, "three", "c"), row(key, 1), "node {node}");
        }
    });
}
