//! A repair brings back what the damaged files of a replica held, and the replica gives them up: only when nothing is lost by that, and
//! nothing that was deleted comes back.

use cql_lite::frame::Consistency::{All, One};

use super::*;

/// The number of files of a table that a node could not open.
fn damaged(cluster: &Cluster, node: usize, keyspace: &str, table: &str) -> usize {
    let id = cluster.table(keyspace, table).engine_id();
    cluster.nodes[node].iter().map(|shard| shard.shard.damaged_generations(id).unwrap().len()).sum()
}

async fn flush(cluster: &Cluster, node: usize, keyspace: &str, table: &str) {
    let id = cluster.table(keyspace, table).engine_id();
    for context in &cluster.nodes[node] {
        context.shard.flush(id).await.unwrap();
    }
}

async fn insert(cluster: &Cluster, table: &str, keys: std::ops::Range<i32>, level: Consistency) {
    for key in keys {
        let text = format!("INSERT INTO {table} (k, v) VALUES ({key}, {key})");
        cluster.execute(0, &text, level).await.unwrap();
    }
}

/// The data files of a table on a node.
fn files(cluster: &Cluster, node: usize, keyspace: &str, table: &str) -> Vec<std::path::PathBuf> {
    let id = cluster.table(keyspace, table).engine_id().to_string();
    let is_of_table = |path: &std::path::Path| path.components().any(|part| *part.as_os_str() == *id);
    let is_data = |path: &std::path::Path| path.to_string_lossy().ends_with("-data.sst");
    let all = cluster.machine(node).disk.files();
    all.into_keys().filter(|path| is_of_table(path) && is_data(path)).collect()
}

/// Starts a node again, without these files.
async fn lose(cluster: &mut Cluster, node: usize, lost: &[std::path::PathBuf]) {
    assert!(!lost.is_empty());
    for path in lost {
        cluster.machine(node).disk.set_at_rest(path, None);
    }
    cluster.restart(node).await;
    cluster.show(node);
}

#[test]
fn a_damaged_file_is_given_up_once_all_other_replicas_have_brought_its_rows_back() {
    with_cluster(3, &config(), |mut cluster| async move {
        insert(&cluster, "three.t", 0..100, All).await;
        flush(&cluster, 2, "three", "t").await;
        let lost = files(&cluster, 2, "three", "t");
        // What only the damaged replica has is kept.
        cluster.set_alive(0, false);
        cluster.set_alive(1, false);
        cluster.execute(2, "INSERT INTO three.t (k, v) VALUES (100, 100)", One).await.unwrap();
        cluster.set_alive(0, true);
        cluster.set_alive(1, true);
        flush(&cluster, 2, "three", "t").await;
        lose(&mut cluster, 2, &lost).await;
        assert_eq!(damaged(&cluster, 2, "three", "t"), lost.len());
        // Without one of the others, something may be missing.
        for scope in [scope("t"), RepairScope { without_dead: true, ..scope("t") }] {
            cluster.set_alive(1, false);
            assert!(repair(&cluster, 0, scope).await.is_err());
            cluster.set_alive(1, true);
        }
        // Nor is a part of the ranges enough.
        let half = RepairScope { ranges: RepairRanges::Range { start: i64::MIN, end: 0 }, ..scope("t") };
        assert!(repair(&cluster, 0, half).await.is_err());
        assert_eq!(damaged(&cluster, 2, "three", "t"), lost.len());
        repair(&cluster, 0, scope("t")).await.unwrap();
        assert_eq!(damaged(&cluster, 2, "three", "t"), 0);
        cluster.restart(2).await;
        cluster.show(2);
        assert_eq!(damaged(&cluster, 2, "three", "t"), 0);
        assert_eq!(cluster.stored(2, "three", "t").len(), 101);
        assert_equal(&cluster, "t");
    });
}

#[test]
fn no_damaged_file_is_given_up_by_what_another_damaged_replica_has_or_without_another_replica() {
    with_cluster(3, &config(), |mut cluster| async move {
        for table in ["three.t", "one.t"] {
            insert(&cluster, table, 0..50, All).await;
        }
        for node in 1..3 {
            for keyspace in ["three", "one"] {
                flush(&cluster, node, keyspace, "t").await;
                let lost = files(&cluster, node, keyspace, "t");
                lose(&mut cluster, node, &lost).await;
            }
        }
        assert!(repair(&cluster, 0, scope("t")).await.is_err());
        let alone = RepairScope { keyspace: Some("one".to_owned()), ..scope("t") };
        let _ = repair(&cluster, 0, alone).await;
        for node in 1..3 {
            for keyspace in ["three", "one"] {
                assert!(damaged(&cluster, node, keyspace, "t") > 0, "{node} {keyspace}");
            }
        }
    });
}

#[test]
fn what_a_lost_tombstone_has_deleted_does_not_come_back() {
    with_cluster(3, &config(), |mut cluster| async move {
        insert(&cluster, "three.timed", 0..1, All).await;
        flush(&cluster, 2, "three", "timed").await;
        let with_row = files(&cluster, 2, "three", "timed");
        cluster.execute(0, "DELETE FROM three.timed WHERE k = 0", All).await.unwrap();
        flush(&cluster, 2, "three", "timed").await;
        let mut with_tombstone = files(&cluster, 2, "three", "timed");
        with_tombstone.retain(|path| !with_row.contains(path));
        lose(&mut cluster, 2, &with_tombstone).await;
        cluster.pass(Duration::from_mins(70)).await;
        let id = cluster.table("three", "timed").engine_id();
        for context in cluster.nodes[..2].iter().flatten() {
            context.shard.flush(id).await.unwrap();
            context.shard.compact(id).await.unwrap();
        }
        assert!(versions(&cluster, 0, "timed").is_empty(), "the others have purged the tombstone");
        match repair(&cluster, 0, scope("timed")).await {
            Err(RepairError::Incomplete(report)) => {
                assert!(report.failures.iter().all(|reason| reason.contains(&host_id(2).to_string())));
                assert!(
                    report.failures.iter().any(|reason| reason.contains("gc_grace_seconds")),
                    "{report:?}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(damaged(&cluster, 2, "three", "timed"), 1);
        assert!(cluster.stored(0, "three", "timed").is_empty());
    });
}
