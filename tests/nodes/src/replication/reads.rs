//! Reads from several nodes: data that a replica knows at the requested level is seen, and all replicas that were
//! asked know it afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::{FailureReason, RequestError};
use tokio::time::Instant;

use crate::cluster::{Cluster, host_id, with_cluster};
use helenus::testing::network::Fate;

/// Without hints: a replica gets a missed write by read repair or not at all.
fn config() -> Config {
    Config { hinted_handoff_enabled: false, ..Config::default() }
}

/// Writes at ONE through a node, later than everything before, while the other nodes receive nothing.
async fn write_alone(cluster: &Cluster, node: usize, texts: &[&str]) {
    cluster.pass(Duration::from_secs(1)).await;
    let others: Vec<usize> = (0..cluster.nodes.len()).filter(|other| *other != node).collect();
    for &other in &others {
        cluster.set_silent(other, true);
    }
    for text in texts {
        cluster.execute(node, text, Consistency::One).await.unwrap();
    }
    // Until the coordinator has given up on the other replicas.
    cluster.pass(Duration::from_secs(10)).await;
    for &other in &others {
        cluster.set_silent(other, false);
    }
}

async fn select(cluster: &Cluster, node: usize, text: &str, level: Consistency) -> Vec<Vec<Option<i64>>> {
    cluster.page(node, text, level, None, None).await.unwrap().integers()
}

fn ints(rows: &[&[i64]]) -> Vec<Vec<Option<i64>>> {
    rows.iter().map(|row| row.iter().copied().map(Some).collect()).collect()
}

fn mismatches(cluster: &Cluster) -> u64 {
    cluster.nodes.iter().flatten().map(|context| context.metrics.digest_mismatches.get()).sum()
}

#[test]
fn the_newest_write_wins_and_is_written_to_replicas_that_missed_it() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        write_alone(&cluster, 1, &["INSERT INTO three.t (k, v) VALUES (1, 20)"]).await;
        assert_eq!(cluster.stored(0, "three", "t"), BTreeMap::from([(1, 10)]));
        let rows = select(&cluster, 0, "SELECT v FROM three.t WHERE k = 1", Consistency::All).await;
        assert_eq!(rows, ints(&[&[20]]));
        assert!(mismatches(&cluster) > 0);
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), BTreeMap::from([(1, 20)]), "node {node}");
        }
        let before = mismatches(&cluster);
        select(&cluster, 2, "SELECT v FROM three.t WHERE k = 1", Consistency::All).await;
        assert_eq!(mismatches(&cluster), before, "all replicas agree");
    });
}

#[test]
fn a_table_without_read_repair_is_answered_from_the_merge_and_left_as_it_is() {
    with_cluster(3, &config(), |cluster| async move {
        write_alone(&cluster, 1, &["INSERT INTO three.unrepaired (k, v) VALUES (1, 20)"]).await;
        let rows = select(&cluster, 0, "SELECT v FROM three.unrepaired WHERE k = 1", Consistency::All).await;
        assert_eq!(rows, ints(&[&[20]]));
        assert_eq!(cluster.stored(0, "three", "unrepaired"), BTreeMap::new());
    });
}

#[test]
fn deletions_of_rows_ranges_and_partitions_win_over_older_data_of_others() {
    with_cluster(3, &config(), |cluster| async move {
        for k in 0..4 {
            for c in 0..6 {
                let text = format!("INSERT INTO three.rows (k, c, v) VALUES ({k}, {c}, {c})");
                cluster.execute(0, &text, Consistency::All).await.unwrap();
            }
        }
        let deletions = [
            "DELETE FROM three.rows WHERE k = 0 AND c = 2",
            "DELETE FROM three.rows WHERE k = 1 AND c > 1 AND c <= 4",
            "DELETE FROM three.rows WHERE k = 2",
            "DELETE v FROM three.rows WHERE k = 3 AND c = 5",
        ];
        write_alone(&cluster, 2, &deletions).await;
        for node in [0, 2, 1] {
            let of = |k: i32| format!("SELECT c FROM three.rows WHERE k = {k}");
            let expected: [&[&[i64]]; 3] = [&[&[0], &[1], &[3], &[4], &[5]], &[&[0], &[1], &[5]], &[]];
            for (k, expected) in (0..).zip(expected) {
                let rows = select(&cluster, node, &of(k), Consistency::All).await;
                assert_eq!(rows, ints(expected), "partition {k}, node {node}");
                let text = format!("{} ORDER BY c DESC", of(k));
                let mut rows = select(&cluster, node, &text, Consistency::All).await;
                rows.reverse();
                assert_eq!(rows, ints(expected), "partition {k} backwards, node {node}");
            }
            let text = "SELECT v FROM three.rows WHERE k = 3 AND c = 5";
            assert_eq!(select(&cluster, node, text, Consistency::All).await, vec![vec![None]]);
        }
        // The deletions are everywhere now: another majority has them too.
        cluster.set_alive(2, false);
        let rows = select(&cluster, 0, "SELECT c FROM three.rows WHERE k = 2", Consistency::Quorum).await;
        assert_eq!(rows, ints(&[]));
        let rows = select(&cluster, 0, "SELECT k, c FROM three.rows", Consistency::Quorum).await;
        assert_eq!(rows.len(), 5 + 3 + 6);
    });
}

#[test]
fn rows_behind_many_deleted_ones_are_found() {
    let config = Config { max_page_tombstones: 1_000, ..config() };
    with_cluster(3, &config, |cluster| async move {
        for c in 0..120 {
            let text = format!("INSERT INTO three.rows (k, c, v) VALUES (1, {c}, {c})");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        let deletions: Vec<String> =
            (0..100).map(|c| format!("DELETE FROM three.rows WHERE k = 1 AND c = {c}")).collect();
        let deletions: Vec<&str> = deletions.iter().map(String::as_str).collect();
        write_alone(&cluster, 2, &deletions).await;
        let text = "SELECT c FROM three.rows WHERE k = 1 LIMIT 3";
        assert_eq!(select(&cluster, 0, text, Consistency::All).await, ints(&[&[100], &[101], &[102]]));
        let text = "SELECT c FROM three.rows LIMIT 3";
        assert_eq!(select(&cluster, 1, text, Consistency::All).await, ints(&[&[100], &[101], &[102]]));
        let text = "SELECT c FROM three.rows WHERE k = 1 PER PARTITION LIMIT 2";
        assert_eq!(select(&cluster, 2, text, Consistency::All).await, ints(&[&[100], &[101]]));
    });
}

#[test]
fn pages_from_changing_coordinators_with_a_node_down_make_up_the_whole() {
    with_cluster(3, &config(), |cluster| async move {
        let mut expected = Vec::new();
        for k in 0..12 {
            cluster
                .execute(0, &format!("INSERT INTO three.rows (k, s) VALUES ({k}, {k})"), Consistency::All)
                .await
                .unwrap();
            for c in 0..=k {
                let text = format!("INSERT INTO three.rows (k, c, v) VALUES ({k}, {c}, {c})");
                cluster.execute(k as usize % 3, &text, Consistency::All).await.unwrap();
                expected.push(vec![Some(k), Some(c), Some(k)]);
            }
        }
        expected.sort();
        for (down, level) in
            [(None, Consistency::All), (Some(2), Consistency::Quorum), (None, Consistency::One)]
        {
            if let Some(down) = down {
                cluster.set_alive(down, false);
            }
            for page_rows in [1, 5, 7] {
                let mut rows = Vec::new();
                let mut paging_state = None;
                for turn in 0.. {
                    let text = "SELECT k, c, s FROM three.rows";
                    let page =
                        cluster.page(turn % 2, text, level, Some(page_rows), paging_state).await.unwrap();
                    assert!(page.rows.len() <= page_rows);
                    rows.extend(page.integers());
                    paging_state = page.next_page;
                    if paging_state.is_none() {
                        break;
                    }
                }
                rows.sort();
                assert_eq!(rows, expected, "pages of {page_rows} at {level}");
            }
            if let Some(down) = down {
                cluster.set_alive(down, true);
            }
        }
    });
}

#[test]
fn pages_of_groups_continue_behind_rows_that_a_filter_left_out() {
    with_cluster(3, &config(), |cluster| async move {
        let execute = async |text: &str| cluster.execute(0, text, Consistency::All).await.unwrap();
        for k in 0..8 {
            for c in 0..4 {
                // The last row of each partition is left out.
                let v = i32::from(c < 3);
                execute(&format!("INSERT INTO three.rows (k, c, v) VALUES ({k}, {c}, {v})")).await;
            }
        }
        for (text, page_rows, per_partition) in [
            ("SELECT k, count(*) FROM three.rows WHERE v = 1 GROUP BY k ALLOW FILTERING", 1, vec![Some(3)]),
            ("SELECT k, c FROM three.rows WHERE v = 1 ALLOW FILTERING", 3, vec![Some(0), Some(1), Some(2)]),
        ] {
            let mut seen = Vec::new();
            let mut paging_state = None;
            loop {
                let page =
                    cluster.page(0, text, Consistency::All, Some(page_rows), paging_state).await.unwrap();
                let rows = page.integers();
                let k = rows.last().and_then(|row| row[0]);
                seen.extend(rows);
                paging_state = page.next_page;
                // Rows that the page has left out do not appear again as a second group or a late row.
                if let (Some(k), true) = (k, paging_state.is_some()) {
                    execute(&format!("INSERT INTO three.rows (k, c, v) VALUES ({k}, 3, 1)")).await;
                }
                if paging_state.is_none() {
                    break;
                }
            }
            seen.sort();
            let whole = (0..8).flat_map(|k| per_partition.iter().map(move |value| vec![Some(k), *value]));
            assert_eq!(seen, whole.collect::<Vec<_>>(), "{text}");
            for k in 0..8 {
                execute(&format!("INSERT INTO three.rows (k, c, v) VALUES ({k}, 3, 0)")).await;
            }
        }
    });
}

#[test]
fn partitions_of_single_nodes_are_gathered_from_all() {
    with_cluster(3, &config(), |cluster| async move {
        let mut expected = Vec::new();
        for k in 0..60 {
            let text = format!("INSERT INTO one.t (k, v) VALUES ({k}, {k})");
            cluster.execute(0, &text, Consistency::One).await.unwrap();
            expected.push(vec![Some(k), Some(k)]);
        }
        for node in 0..3 {
            let mut rows = select(&cluster, node, "SELECT k, v FROM one.t", Consistency::One).await;
            rows.sort();
            assert_eq!(rows, expected, "node {node}");
            let counted = select(&cluster, node, "SELECT COUNT(*) FROM one.t", Consistency::Quorum).await;
            assert_eq!(counted, ints(&[&[60]]));
            let some = "SELECT k, v FROM one.t WHERE k IN (1, 7, 30, 59, 99)";
            let rows = select(&cluster, node, some, Consistency::LocalQuorum).await;
            assert_eq!(rows, ints(&[&[1, 1], &[7, 7], &[30, 30], &[59, 59]]));
        }
    });
}

#[test]
fn too_few_live_replicas_are_reported_before_any_request_is_sent() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        cluster.set_alive(1, false);
        cluster.set_alive(2, false);
        let text = "SELECT v FROM three.t WHERE k = 1";
        for (level, needed) in [
            (Consistency::Two, 2),
            (Consistency::Quorum, 2),
            (Consistency::LocalQuorum, 2),
            (Consistency::EachQuorum, 2),
            (Consistency::Three, 3),
            (Consistency::All, 3),
        ] {
            match cluster.page(0, text, level, None, None).await {
                Err(RequestError::Unavailable { consistency, required, alive: 1 }) => {
                    assert_eq!((consistency, required), (level, needed));
                }
                other => panic!("{level}: {other:?}"),
            }
        }
        assert_eq!(select(&cluster, 0, text, Consistency::One).await, ints(&[&[10]]));
        assert_eq!(select(&cluster, 0, text, Consistency::NodeLocal).await, ints(&[&[10]]));
        assert!(cluster.page(0, text, Consistency::Any, None, None).await.is_err());
    });
}

#[test]
fn a_silent_replica_is_replaced_by_another_where_there_is_one() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        let text = "SELECT v FROM three.t WHERE k = 1";
        for silent in [1, 2] {
            cluster.set_silent(silent, true);
            for _ in 0..3 {
                assert_eq!(select(&cluster, 0, text, Consistency::Quorum).await, ints(&[&[10]]));
            }
            cluster.set_silent(silent, false);
        }
        let speculative: u64 =
            cluster.nodes.iter().flatten().map(|context| context.metrics.speculative_reads.get()).sum();
        assert!(speculative > 0);
        cluster.set_silent(2, true);
        match cluster.page(0, text, Consistency::All, None, None).await {
            Err(RequestError::ReadTimeout { received: 2, required: 3, data_present: true, .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_digest_that_comes_late_does_not_stand_for_the_data_that_is_missing() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        write_alone(&cluster, 0, &["UPDATE three.t SET v = 20 WHERE k = 1"]).await;
        // The digest of the first replica is slow. The digest of the other one, asked after half the timeout,
        // differs, and its data never arrives. Meanwhile the first replica's digest has arrived: only its data is
        // left to ask for.
        let half = Duration::from_millis(config().read_request_timeout_ms / 2);
        cluster.links.set_fates([
            Fate::Arrives { after: half + Duration::from_millis(100) },
            Fate::Arrives { after: Duration::ZERO },
            Fate::Broken { after: Duration::from_millis(300) },
        ]);
        let text = "SELECT v FROM three.t WHERE k = 1";
        assert_eq!(select(&cluster, 0, text, Consistency::Quorum).await, ints(&[&[20]]));
    });
}

#[test]
fn a_replica_that_takes_no_repair_is_replaced_by_another() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        write_alone(&cluster, 0, &["UPDATE three.t SET v = 20 WHERE k = 1"]).await;
        // The digest and the data of the replica arrive at once; the acknowledgement of its repair never does.
        let timeout = Duration::from_millis(config().read_request_timeout_ms);
        let at_once = Fate::Arrives { after: Duration::ZERO };
        cluster.links.set_fates([at_once, at_once, Fate::Arrives { after: 2 * timeout }]);
        let before = Instant::now();
        let text = "SELECT v FROM three.t WHERE k = 1";
        assert_eq!(select(&cluster, 0, text, Consistency::Quorum).await, ints(&[&[20]]));
        let waited = before.elapsed();
        assert!(waited < timeout, "{waited:?}");
        let known: Vec<_> = (1..3).map(|node| cluster.stored(node, "three", "t")).collect();
        assert!(known.contains(&BTreeMap::from([(1, 20)])), "{known:?}");
    });
}

#[test]
fn a_replica_whose_digest_comes_after_a_failed_repair_is_asked_for_its_data() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        write_alone(&cluster, 0, &["UPDATE three.t SET v = 20 WHERE k = 1"]).await;
        // The digest of the first replica is slow, so the other one is asked for its digest too, which is slower. The
        // first takes no repair. No replica is left that was not asked, and no data is on its way.
        let half = Duration::from_millis(config().read_request_timeout_ms / 2);
        let at_once = Duration::ZERO;
        cluster.links.set_fates([
            Fate::Arrives { after: half + Duration::from_millis(100) },
            Fate::Arrives { after: Duration::from_millis(500) },
            Fate::Arrives { after: at_once },
            Fate::Broken { after: at_once },
        ]);
        let text = "SELECT v FROM three.t WHERE k = 1";
        assert_eq!(select(&cluster, 0, text, Consistency::Quorum).await, ints(&[&[20]]));
    });
}

#[test]
fn a_replica_whose_data_comes_late_is_asked_again_when_another_takes_no_repair() {
    with_cluster(4, &config(), |cluster| async move {
        let half = Duration::from_millis(config().read_request_timeout_ms / 2);
        let at_once = Fate::Arrives { after: Duration::ZERO };
        let placement = cluster.view();
        let placement = placement.placement("three").unwrap();
        let mut mismatched = 0;
        // Keys that the coordinator does not have, and each of their replicas as the one that has a newer value.
        for key in 0..40_i32 {
            let replicas = &placement.replicas(cql_lite::types::token::token(&key.to_be_bytes())).read;
            if replicas.iter().any(|member| member.host_id == host_id(0)) {
                continue;
            }
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 10)");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
            let newest = 1 + key as usize % 3;
            write_alone(&cluster, newest, &[&format!("UPDATE three.t SET v = 20 WHERE k = {key}")]).await;
            // The data of the first replica is late, so the third is asked for its data too. It differs from the digest of the second. One of
            // these two lacks the newer value and takes no repair: only the first one is left to ask.
            cluster.links.set_fates([
                Fate::Arrives { after: half + Duration::from_millis(100) },
                at_once,
                at_once,
                at_once,
                at_once,
                Fate::Broken { after: Duration::ZERO },
            ]);
            let before = mismatches(&cluster);
            let text = format!("SELECT v FROM three.t WHERE k = {key}");
            let rows = select(&cluster, 0, &text, Consistency::Quorum).await;
            cluster.links.set_fates([]);
            if mismatches(&cluster) > before {
                mismatched += 1;
                assert_eq!(rows, ints(&[&[20]]), "key {key}");
            }
            cluster.pass(Duration::from_secs(10)).await;
        }
        assert!(mismatched > 2, "{mismatched}");
    });
}

#[test]
fn a_replica_that_cannot_be_reached_is_a_failure_with_its_reason() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.disconnect(1);
        match cluster.page(0, "SELECT v FROM three.t WHERE k = 1", Consistency::All, None, None).await {
            Err(RequestError::ReadFailure { required: 3, failures, .. }) => {
                assert_eq!(failures.len(), 1);
                assert_eq!(failures[0].reason, FailureReason::NodeDown);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_coordinator_behind_the_ring_catches_up_and_asks_again() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (1, 10)", Consistency::All).await.unwrap();
        cluster.change_ring(&[]);
        cluster.show(1);
        cluster.show(2);
        let text = "SELECT v FROM three.t WHERE k = 1";
        let later = async {
            cluster.settle().await;
            cluster.show(0);
        };
        let (page, ()) = tokio::join!(cluster.page(0, text, Consistency::All, None, None), later);
        assert_eq!(page.unwrap().integers(), ints(&[&[10]]));
        // A replica that is behind the coordinator waits until it has caught up.
        cluster.change_ring(&[]);
        cluster.show(0);
        let later = async {
            cluster.settle().await;
            cluster.show(1);
            cluster.show(2);
        };
        let (page, ()) = tokio::join!(cluster.page(0, text, Consistency::All, None, None), later);
        assert_eq!(page.unwrap().integers(), ints(&[&[10]]));
    });
}
