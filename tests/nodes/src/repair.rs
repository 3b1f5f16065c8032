//! Repair: replicas become equal, whatever they have missed, and little is read and sent for it.

mod mending;
mod transactions;

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_engine::read::Purgeable;
use helenus_engine::{VersionLimit, VersionScanRequest};
use helenus_execution::coordinator::repair::ages;
use helenus_execution::coordinator::repair::history::RepairHistory;
use helenus_execution::coordinator::repair::job::{self, RepairError};
use helenus_execution::coordinator::repair::runs::{RepairRuns, RepairScope, RunReport, RunState};
use helenus_execution::coordinator::repair::schedule;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::RepairRanges;
use helenus_ring::member::MemberState;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, host_id, with_cluster, with_nodes};

/// Without hints and read repairs a replica gets what it has missed from repairs only.
fn config() -> Config {
    Config { hinted_handoff_enabled: false, repair_throughput_bytes_per_second: 0, ..Config::default() }
}

fn scope(table: &str) -> RepairScope {
    RepairScope {
        keyspace: Some("three".to_owned()),
        tables: vec![table.to_owned()],
        ..RepairScope::default()
    }
}

async fn repair(cluster: &Cluster, node: usize, scope: RepairScope) -> Result<RunReport, RepairError> {
    let machine = cluster.machine(node);
    let context = machine.context(0).unwrap();
    machine.run(async move { job::repair(&context, scope).await }).await.unwrap()
}

/// The versions that a node has of a table, in the order of their keys.
fn versions(cluster: &Cluster, node: usize, table: &str) -> Vec<Vec<u8>> {
    let id = cluster.table("three", table).engine_id();
    let of_shard = |context: &Rc<ShardContext>| {
        let request = VersionScanRequest {
            table: id,
            start: &[],
            end: &[0xFF; 9],
            reversed: false,
            now_seconds: context.now_seconds(),
            purgeable: Purgeable::Kept,
            is_long: true,
            part: None,
            limit: VersionLimit::UNLIMITED,
        };
        context.shard.scan_versions(&request).unwrap().partitions
    };
    let mut all: Vec<Vec<u8>> =
        cluster.nodes[node].iter().flat_map(of_shard).map(|partition| partition.bytes().to_vec()).collect();
    all.sort();
    all
}

/// Inserts rows of keys up to `count` that a node misses.
async fn insert_without(cluster: &Cluster, missing: usize, table: &str, count: i32) {
    cluster.set_alive(missing, false);
    for key in 0..count {
        let text = format!("INSERT INTO three.{table} (k, v) VALUES ({key}, 1)");
        cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
    }
    cluster.set_alive(missing, true);
}

/// Starts a repair of table `t` on node 0.
fn begin(cluster: &Cluster) -> JoinHandle<Result<RunReport, RepairError>> {
    let machine = cluster.machine(0);
    let context = machine.context(0).unwrap();
    tokio::task::spawn_local(async move {
        machine.run(async move { job::repair(&context, scope("t")).await }).await.unwrap()
    })
}

fn assert_equal(cluster: &Cluster, table: &str) {
    let first = versions(cluster, 0, table);
    for node in 1..cluster.nodes.len() {
        assert_eq!(versions(cluster, node, table), first, "node {node}");
    }
}

#[test]
fn missed_writes_and_deletions_are_on_every_replica_after_a_repair() {
    with_cluster(3, &config(), |cluster| async move {
        for key in 0..200 {
            let text = format!("INSERT INTO three.rows (k, c, s, v) VALUES ({key}, 1, 2, 3)");
            cluster.execute(key % 3, &text, Consistency::All).await.unwrap();
        }
        // Each node misses some writes.
        for node in 0..3 {
            cluster.set_alive(node, false);
            let other = (node + 1) % 3;
            for text in [
                format!("INSERT INTO three.rows (k, c, v) VALUES ({node}, 7, 8)"),
                format!("DELETE FROM three.rows WHERE k = {} AND c = 1", 10 + node),
                format!("DELETE FROM three.rows WHERE k = {}", 20 + node),
                format!("DELETE FROM three.rows WHERE k = {} AND c > 0 AND c < 9", 30 + node),
                format!("UPDATE three.rows SET s = 9 WHERE k = {}", 40 + node),
                format!("INSERT INTO three.rows (k, c, v) VALUES ({}, 1, 4) USING TTL 9000", 50 + node),
            ] {
                cluster.execute(other, &text, Consistency::Quorum).await.unwrap();
            }
            cluster.set_alive(node, true);
        }
        assert_ne!(versions(&cluster, 0, "rows"), versions(&cluster, 1, "rows"));
        let report = repair(&cluster, 1, scope("rows")).await.unwrap();
        assert_equal(&cluster, "rows");
        assert!(report.written_mutations >= 18, "{report:?}");
        // A second one finds nothing to do, from whichever node.
        for node in 0..3 {
            let report = repair(&cluster, node, scope("rows")).await.unwrap();
            assert_eq!((report.differing_parts, report.written_mutations, report.received_bytes), (0, 0, 0));
            assert!(report.compared_bytes > 0);
        }
    });
}

#[test]
fn nodes_with_other_numbers_of_shards_and_other_files_have_the_same_digests() {
    let configs = [1, 2, 5].map(|shards| Config { shards: Some(shards), ..config() });
    with_nodes(configs.to_vec(), |cluster| async move {
        for key in 0..300 {
            for row in 0..key % 7 {
                let text = format!("INSERT INTO three.rows (k, c, v) VALUES ({key}, {row}, {key})");
                cluster.execute(0, &text, Consistency::All).await.unwrap();
            }
            if key % 100 == 0 {
                let id = cluster.table("three", "rows").engine_id();
                for context in &cluster.nodes[2] {
                    context.shard.flush(id).await.unwrap();
                }
            }
        }
        let report = repair(&cluster, 0, scope("rows")).await.unwrap();
        assert_eq!((report.state, report.differing_parts), (RunState::Done, 0));
    });
}

#[test]
fn of_much_data_little_is_sent_if_little_differs() {
    with_cluster(3, &config(), |cluster| async move {
        let value = "ab".repeat(2_000);
        for key in 0..2_000 {
            let text = format!("INSERT INTO three.blobs (k, v) VALUES ({key}, 0x{value})");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        cluster.set_alive(2, false);
        let text = format!("INSERT INTO three.blobs (k, v) VALUES (77, 0x{})", "cd".repeat(2_000));
        cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        cluster.set_alive(2, true);
        let report = repair(&cluster, 0, scope("blobs")).await.unwrap();
        assert_equal(&cluster, "blobs");
        assert_eq!(report.written_mutations, 1);
        assert!(report.compared_bytes > 3 * 4_000_000, "{report:?}");
        assert!(report.received_bytes + report.sent_bytes < 100_000, "{report:?}");
    });
}

#[test]
fn in_a_large_partition_only_what_differs_is_sent() {
    with_cluster(3, &config(), |cluster| async move {
        for row in 0..20_000 {
            let text = format!("INSERT INTO three.rows (k, c, v) VALUES (1, {row}, {row})");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        let whole: usize = versions(&cluster, 0, "rows").iter().map(Vec::len).sum();
        assert!(whole > 400_000, "{whole}");
        cluster.set_alive(1, false);
        cluster
            .execute(0, "DELETE FROM three.rows WHERE k = 1 AND c = 11111", Consistency::Quorum)
            .await
            .unwrap();
        cluster
            .execute(0, "DELETE FROM three.rows WHERE k = 1 AND c > 500 AND c < 15000", Consistency::Quorum)
            .await
            .unwrap();
        cluster.set_alive(1, true);
        // From a replica that has it.
        let report = repair(&cluster, 0, scope("rows")).await.unwrap();
        assert_equal(&cluster, "rows");
        assert!(report.written_mutations >= 1);
        let report = repair(&cluster, 2, scope("rows")).await.unwrap();
        assert_eq!(report.differing_parts, 0);
    });
}

#[test]
fn ranges_of_a_replica_that_is_down_are_not_repaired_and_the_result_says_so() {
    with_cluster(4, &config(), |cluster| async move {
        cluster.set_alive(2, false);
        for key in 0..50 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        let error = repair(&cluster, 0, scope("t")).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("replicas are down") && text.contains(&host_id(2).to_string()), "{text}");
        let forced = RepairScope { without_dead: true, ..scope("t") };
        assert_eq!(repair(&cluster, 0, forced).await.unwrap().state, RunState::Done);
        let id = cluster.table("three", "t").engine_id();
        let ring = [i64::MIN + 1..=i64::MAX];
        let oldest = |node: usize| {
            RepairHistory::of(&cluster.nodes[node][0].node).with(id, |segments| segments.oldest(&ring))
        };
        assert_eq!(oldest(0), None, "not all ranges count as repaired");
        cluster.set_alive(2, true);
        assert_eq!(cluster.stored(2, "three", "t").len(), 0);
        repair(&cluster, 0, scope("t")).await.unwrap();
        assert!(cluster.stored(2, "three", "t").len() > 20);
        assert!(oldest(0).is_some());
    });
}

#[test]
fn what_does_not_exist_is_refused() {
    with_cluster(3, &config(), |cluster| async move {
        let refused = [
            (
                RepairScope { keyspace: Some("none".into()), ..RepairScope::default() },
                "keyspace 'none' does not exist",
            ),
            (scope("none"), "table 'three.none' does not exist"),
            (
                RepairScope { data_centers: vec!["mars".into()], ..scope("t") },
                "no member of the cluster is in data center 'mars'",
            ),
        ];
        for (scope, expected) in refused {
            assert_eq!(repair(&cluster, 0, scope).await.unwrap_err().to_string(), expected);
        }
    });
}

#[test]
fn only_the_ranges_that_were_asked_for_are_repaired() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 2, "t", 100).await;
        let half = RepairScope { ranges: RepairRanges::Range { start: i64::MIN, end: -1 }, ..scope("t") };
        repair(&cluster, 0, half).await.unwrap();
        let stored = cluster.stored(2, "three", "t");
        assert!(stored.len() > 10 && stored.len() < 90);
        assert!(stored.keys().all(|key| cql_lite::types::token::token(&key.to_be_bytes()) < 0));
        let mut primary = 0;
        for node in 0..3 {
            let own = RepairScope { ranges: RepairRanges::PrimaryOfNode, ..scope("t") };
            repair(&cluster, node, own).await.unwrap();
            let stored = cluster.stored(2, "three", "t").len();
            assert!(stored >= primary);
            primary = stored;
        }
        assert_eq!(primary, 100, "the primary ranges of all nodes are the ring");
    });
}

#[test]
fn a_repair_goes_on_when_ownership_changes_under_it() {
    with_cluster(4, &config(), |cluster| async move {
        insert_without(&cluster, 3, "t", 200).await;
        // Only node 0 knows the new epoch at first: the replicas that it asks are behind, then it is.
        cluster.change_ring(&[(3, Some(MemberState::Normal))]);
        cluster.show(1);
        let running = begin(&cluster);
        cluster.pass(Duration::from_secs(2)).await;
        assert!(!running.is_finished());
        cluster.show_all();
        running.await.unwrap().unwrap();
        for node in 0..4 {
            let expected = cluster.stored(node, "three", "t").len();
            assert!(expected > 100, "node {node} has {expected}");
        }
        let report = repair(&cluster, 0, scope("t")).await.unwrap();
        assert_eq!(report.differing_parts, 0);
    });
}

#[test]
fn a_cancelled_repair_ends_and_says_so() {
    let slow = Config { repair_throughput_bytes_per_second: 1_000, ..config() };
    with_cluster(3, &slow, |cluster| async move {
        for key in 0..500 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        let running = begin(&cluster);
        cluster.pass(Duration::from_secs(1)).await;
        assert!(!running.is_finished());
        let runs = RepairRuns::of(&cluster.nodes[0][0].node);
        assert_eq!(runs.cancel(Some(99)), 0);
        assert_eq!(runs.cancel(None), 1);
        cluster.pass(Duration::from_secs(2)).await;
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the repair was cancelled");
    });
}

#[test]
fn a_node_goes_on_after_a_restart_with_what_is_left_of_a_repair() {
    let slow = Config { repair_throughput_bytes_per_second: 20_000, ..config() };
    with_cluster(3, &slow, |mut cluster| async move {
        for table in ["t", "unrepaired"] {
            insert_without(&cluster, 2, table, 300).await;
        }
        let whole = RepairScope { keyspace: Some("three".to_owned()), ..RepairScope::default() };
        let (machine, context) = (cluster.machine(0), cluster.nodes[0][0].clone());
        tokio::task::spawn_local(async move {
            let _ = machine.run(async move { job::repair(&context, whole).await.map(drop) }).await;
        });
        while cluster.stored(2, "three", "t").len() < 300 {
            cluster.pass(Duration::from_millis(100)).await;
        }
        assert_eq!(cluster.stored(2, "three", "unrepaired").len(), 0);
        cluster.restart(0).await;
        cluster.show_all();
        schedule::start(&cluster.nodes[0][0]).await;
        let mut seconds = 0;
        while cluster.stored(2, "three", "unrepaired").len() < 300 && seconds < 600 {
            cluster.pass(Duration::from_secs(1)).await;
            seconds += 1;
        }
        assert_eq!(cluster.stored(2, "three", "unrepaired").len(), 300);
        cluster.pass(Duration::from_mins(1)).await;
        let reports = RepairRuns::of(&cluster.nodes[0][0].node).reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(reports[0].state, RunState::Done);
    });
}

#[test]
fn a_replica_that_was_away_without_hints_is_repaired_soon_and_everything_in_time() {
    with_cluster(3, &config(), |cluster| async move {
        for nodes in &cluster.nodes {
            schedule::start(&nodes[0]).await;
        }
        cluster.pass(Duration::from_mins(1)).await;
        cluster.set_alive(1, false);
        cluster.pass(Duration::from_mins(1)).await;
        for key in 0..100 {
            let text = format!("INSERT INTO three.graced (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        cluster.set_alive(1, true);
        assert_eq!(cluster.stored(1, "three", "graced").len(), 0);
        cluster.pass(Duration::from_mins(1)).await;
        assert_eq!(cluster.stored(1, "three", "graced").len(), 100);
        // Nothing more is due until two fifths of the grace period of an hour have passed.
        let runs = |node: usize| RepairRuns::of(&cluster.nodes[node][0].node).reports();
        let count = |node: usize| runs(node).iter().filter(|run| run.scope.tables == ["graced"]).count();
        let before = [0, 1, 2].map(count);
        cluster.pass(Duration::from_mins(20)).await;
        assert_eq!([0, 1, 2].map(count), before);
        cluster.pass(Duration::from_mins(10)).await;
        let id = cluster.table("three", "graced").engine_id();
        let now_micros = cluster.nodes[0][0].clock.now_micros();
        for nodes in &cluster.nodes {
            let history = RepairHistory::of(&nodes[0].node);
            let oldest = history.with(id, |segments| segments.oldest(&[i64::MIN + 1..=i64::MAX]));
            let age_micros = now_micros - oldest.unwrap();
            assert!(age_micros < 10 * 60 * 1_000_000, "{age_micros}");
        }
    });
}

#[test]
fn deletions_are_purged_only_when_their_range_has_been_repaired() {
    with_cluster(3, &config(), |cluster| async move {
        for nodes in &cluster.nodes {
            schedule::start(&nodes[0]).await;
        }
        for key in 0..20 {
            let text = format!("INSERT INTO three.graced (k, v) VALUES ({key}, 1)");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        cluster.set_alive(2, false);
        for key in 0..20 {
            let text = format!("DELETE FROM three.graced WHERE k = {key}");
            cluster.execute(0, &text, Consistency::Quorum).await.unwrap();
        }
        let id = cluster.table("three", "graced").engine_id();
        let compact = async || {
            for context in cluster.nodes.iter().flatten() {
                context.shard.flush(id).await.unwrap();
                context.shard.compact(id).await.unwrap();
            }
        };
        // The grace period passes while one replica is down, which still has the rows.
        cluster.pass(Duration::from_mins(70)).await;
        compact().await;
        assert_eq!(versions(&cluster, 0, "graced").len(), 20, "the deletions are still there");
        cluster.set_alive(2, true);
        assert_eq!(cluster.stored(2, "three", "graced").len(), 20);
        cluster.pass(Duration::from_mins(1)).await;
        assert_eq!(cluster.stored(2, "three", "graced").len(), 0, "it is repaired by itself");
        cluster.pass(Duration::from_mins(1)).await;
        compact().await;
        for node in 0..3 {
            assert_eq!(versions(&cluster, node, "graced"), Vec::<Vec<u8>>::new(), "node {node}");
        }
    });
}

#[test]
fn repairs_of_several_nodes_at_once_are_all_noted() {
    with_cluster(3, &config(), |cluster| async move {
        insert_without(&cluster, 2, "t", 300).await;
        let primary = RepairScope { ranges: RepairRanges::PrimaryOfNode, ..scope("t") };
        let repairs = (0..3).map(|node| repair(&cluster, node, primary.clone()));
        for outcome in futures::future::join_all(repairs).await {
            outcome.unwrap();
        }
        assert_equal(&cluster, "t");
        let id = cluster.table("three", "t").engine_id();
        for nodes in &cluster.nodes {
            let history = RepairHistory::of(&nodes[0].node);
            assert!(history.with(id, |segments| segments.oldest(&[i64::MIN + 1..=i64::MAX])).is_some());
        }
    });
}

#[test]
fn a_table_that_is_truncated_under_a_repair_stays_empty() {
    let slow = Config { repair_throughput_bytes_per_second: 2_000, ..config() };
    with_cluster(3, &slow, |cluster| async move {
        insert_without(&cluster, 2, "t", 300).await;
        let running = begin(&cluster);
        while cluster.stored(2, "three", "t").is_empty() {
            cluster.pass(Duration::from_millis(100)).await;
        }
        assert!(!running.is_finished());
        cluster.execute(1, "TRUNCATE three.t", Consistency::One).await.unwrap();
        running.await.unwrap().unwrap();
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t").len(), 0, "node {node}");
        }
    });
}

#[test]
fn a_replica_that_was_away_while_deletions_were_purged_is_repaired_only_by_command() {
    with_cluster(3, &config(), |cluster| async move {
        for nodes in &cluster.nodes {
            schedule::start(&nodes[0]).await;
        }
        cluster.pass(Duration::from_mins(1)).await;
        cluster.execute(0, "INSERT INTO three.timed (k, v) VALUES (1, 1)", Consistency::All).await.unwrap();
        cluster.set_alive(2, false);
        cluster.execute(0, "DELETE FROM three.timed WHERE k = 1", Consistency::Quorum).await.unwrap();
        cluster.pass(Duration::from_mins(70)).await;
        let id = cluster.table("three", "timed").engine_id();
        for context in cluster.nodes.iter().flatten() {
            context.shard.flush(id).await.unwrap();
            context.shard.compact(id).await.unwrap();
        }
        assert!(versions(&cluster, 0, "timed").is_empty(), "the deletion is purged");
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_mins(5)).await;
        assert_eq!(cluster.stored(0, "three", "timed").len(), 0, "the row does not come back");
        assert_eq!(schedule::away_too_long(&cluster.nodes[0][0]), [host_id(2)]);
        repair(&cluster, 0, scope("timed")).await.unwrap();
        assert_eq!(cluster.stored(0, "three", "timed").len(), 1);
    });
}

#[test]
fn the_last_repair_of_each_range_is_shown_and_one_that_is_late_is_told() {
    with_cluster(3, &config(), |cluster| async move {
        for nodes in &cluster.nodes {
            helenus_execution::coordinator::repair::start(&nodes[0]).await;
        }
        cluster.pass(Duration::from_mins(30)).await;
        cluster.set_alive(2, false);
        let age = async || {
            let ages = ages::ages(&cluster.nodes[0][0]).await;
            ages.into_iter().find(|age| age.table == "graced").unwrap()
        };
        let repaired = age().await;
        assert!(repaired.repaired_micros.is_some() && !repaired.is_late(), "{repaired:?}");
        let shown = ages::repaired_ranges(&cluster.nodes[0][0]).await;
        let ranges = cluster.nodes[0][0].cluster().placement("three").unwrap().ranges().count();
        assert_eq!(shown.iter().filter(|range| range.table == "graced").count(), ranges);
        assert!(shown.iter().all(|range| range.participants.len() == 3));
        // Ranges of a replica that stays down cannot be repaired.
        cluster.pass(Duration::from_mins(50)).await;
        assert!(age().await.is_late());
        assert!(RepairHistory::of(&cluster.nodes[0][0].node).late_tables() > 0);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_mins(20)).await;
        assert!(!age().await.is_late());
    });
}
