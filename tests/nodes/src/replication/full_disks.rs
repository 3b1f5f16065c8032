//! Writes to replicas whose disks are full.

use cql_lite::frame::Consistency::{All, Quorum};
use helenus_query::bind::BorrowedValues;

use super::*;
use helenus_execution::shard::disk_status::{DiskAnnouncement, DiskStatus, DiskUsage};

/// Gives all nodes the disk status that one of them would announce.
fn announce(cluster: &Cluster, node: usize, sequence: u64, status: DiskStatus) {
    for (index, shards) in cluster.nodes.iter().enumerate() {
        let disks = &shards[0].node.disks;
        if index == node {
            disks.set_own(status);
        } else {
            disks.learn(host_id(node), DiskAnnouncement { generation: 1, sequence, status });
        }
    }
}

const NO_ROOM: DiskStatus = DiskStatus { usage: DiskUsage::Spacious, is_reserve_reached: true };

/// Leaves a node less room than its reserve.
async fn fill(cluster: &Cluster, node: usize) {
    let disk = &cluster.machine(node).disk;
    disk.set_capacity_bytes(disk.used_bytes() + 1_000);
    cluster.pass(Duration::from_secs(2)).await;
    assert!(cluster.nodes[node][0].node.reserve.is_reached());
}

async fn free(cluster: &Cluster, node: usize) {
    cluster.machine(node).disk.set_capacity_bytes(u64::MAX);
    cluster.pass(Duration::from_secs(2)).await;
    assert!(!cluster.nodes[node][0].node.reserve.is_reached());
}

fn insert(key: i32) -> String {
    format!("INSERT INTO three.t (k, v) VALUES ({key}, {key})")
}

fn is_refused(outcome: Result<(), RequestError>, reason: &str) -> bool {
    let Err(error @ RequestError::NoRoom(_)) = outcome else { panic!("{outcome:?}") };
    let text = error.to_string();
    let prefix = "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure \
                threshold. ";
    text.strip_prefix(prefix).is_some_and(|rest| rest.contains(reason))
}

#[test]
fn a_replica_without_room_costs_what_one_that_is_down_costs() {
    with_cluster(3, &Config::default(), |cluster| async move {
        fill(&cluster, 2).await;
        announce(&cluster, 2, 1, NO_ROOM);
        cluster.execute(0, &insert(1), Quorum).await.unwrap();
        assert!(is_refused(cluster.execute(0, &insert(2), All).await, "Disks are full: 127.0.0.3"));
        assert_eq!(cluster.stored(0, "three", "t"), row(1, 1), "nothing was begun");
        assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        // Transactions and reads go on, wherever they are asked for.
        for node in 0..3 {
            let change = format!("UPDATE three.t SET v = {node} WHERE k = 7 IF v != 9");
            let applied = cluster.query(node, &change, Quorum).await.unwrap().applied();
            assert_eq!(applied, Some(true), "node {node}");
            let read = cluster.query(node, "SELECT v FROM three.t WHERE k = 1", Quorum).await.unwrap();
            assert_eq!(read.integers(), [[Some(1)]], "node {node}");
        }
        // One full disk more, and there is no quorum for writes. Reads go on.
        announce(&cluster, 1, 1, NO_ROOM);
        assert!(is_refused(cluster.execute(0, &insert(3), Quorum).await, "127.0.0.2"));
        let batch = format!("BEGIN BATCH {}; {} APPLY BATCH", insert(3), insert(4));
        assert!(is_refused(cluster.execute(0, &batch, Quorum).await, "127.0.0.3"));
        let conditional = format!("{} IF NOT EXISTS", insert(3));
        assert!(is_refused(cluster.execute(0, &conditional, Quorum).await, "127.0.0.3"));
        assert!(is_refused(cluster.execute(0, "DELETE FROM three.t WHERE k = 1", Quorum).await, "127.0.0.3"));
        cluster.execute(0, "SELECT v FROM three.t WHERE k = 1", All).await.unwrap_err();
        announce(&cluster, 1, 2, DiskStatus::default());
        // Room again: the replica gets what it has missed, by hints alone.
        free(&cluster, 2).await;
        announce(&cluster, 2, 2, DiskStatus::default());
        cluster.pass(Duration::from_secs(5)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        assert_eq!(cluster.stored(2, "three", "t"), cluster.stored(0, "three", "t"));
        cluster.execute(0, &insert(5), All).await.unwrap();
        assert!(cluster.nodes[0].iter().any(|shard| shard.metrics.writes_refused_for_room.get() > 0));
    });
}

#[test]
fn a_replica_refuses_what_a_coordinator_sends_that_does_not_know_yet() {
    with_cluster(3, &Config::default(), |cluster| async move {
        fill(&cluster, 2).await;
        cluster.execute(0, &insert(1), Quorum).await.unwrap();
        match cluster.execute(0, &insert(2), All).await {
            Err(RequestError::WriteFailure { received: 2, required: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
        assert!(cluster.nodes[2][0].node.reserve.refused_writes() > 0);
        free(&cluster, 2).await;
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.stored(2, "three", "t"), cluster.stored(0, "three", "t"));
    });
}

#[test]
fn the_guardrail_refuses_and_warns_as_cassandras() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let announced = |usage| DiskStatus { usage, is_reserve_reached: false };
        cluster.execute(0, &insert(1), All).await.unwrap();
        announce(&cluster, 2, 1, announced(DiskUsage::Full));
        for (text, level) in [
            (insert(2), Consistency::One),
            (insert(2), Consistency::Any),
            ("UPDATE three.c SET n = n + 1 WHERE k = 1".to_owned(), Quorum),
            ("DELETE FROM three.t WHERE k = 1".to_owned(), Quorum),
            (format!("BEGIN BATCH {} APPLY BATCH", insert(2)), Quorum),
            (format!("{} IF NOT EXISTS", insert(2)), Quorum),
        ] {
            let outcome = cluster.execute(1, &text, level).await;
            let Err(RequestError::Invalid(message)) = outcome else { panic!("{text}: {outcome:?}") };
            let expected = "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds \
                            failure threshold";
            assert_eq!(message, expected, "{text}");
        }
        cluster.execute(1, "SELECT v FROM three.t WHERE k = 1", All).await.unwrap();
        announce(&cluster, 2, 2, announced(DiskUsage::Stuffed));
        let context = cluster.nodes[1][0].clone();
        let mut warned = Vec::new();
        for _ in 0..3 {
            let statement = Statement::new(&insert(2), None, &context.catalog_view()).unwrap();
            let options = client::options(Quorum);
            client::execute(&context, &statement, &BorrowedValues::new(), &options, &mut warned)
                .await
                .unwrap();
        }
        assert_eq!(
            warned,
            ["Guardrail replica_disk_usage violated: Replica disk usage exceeds warning threshold"]
        );
        announce(&cluster, 2, 3, DiskStatus::default());
        cluster.execute(1, &insert(3), All).await.unwrap();
    });
}
