//! Reads of replicas whose files are damaged.

use cql_lite::frame::Consistency::{All, LocalOne, NodeLocal, One, Quorum};

use super::*;

/// Writes the rows of a node to files, of which none can be read any more.
async fn ruin(cluster: &Cluster, node: usize) {
    for context in &cluster.nodes[node] {
        let table = context.catalog().keyspace("three").unwrap().tables["t"].engine_id();
        context.shard.flush(table).await.unwrap();
    }
    cluster.machine(node).disk.set_bad_medium(Some("-data.sst"));
}

#[test]
fn another_replica_leads_for_one_that_cannot_read() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let count = "UPDATE three.c SET n = n + 1 WHERE k = 1";
        let read = "SELECT n FROM three.c WHERE k = 1";
        let set_element = "UPDATE three.lists SET l[0] = 7 WHERE k = 1";
        cluster.execute(0, count, All).await.unwrap();
        cluster.execute(0, "INSERT INTO three.lists (k, l) VALUES (1, [1, 2])", All).await.unwrap();
        for node in 0..2 {
            for context in &cluster.nodes[node] {
                for table in ["c", "lists"] {
                    let table = context.catalog().keyspace("three").unwrap().tables[table].engine_id();
                    context.shard.flush(table).await.unwrap();
                }
            }
            cluster.machine(node).disk.set_bad_medium(Some("-data.sst"));
            // Through the node that cannot read, and through others, which may choose that node.
            for coordinator in 0..3 {
                for _ in 0..3 {
                    cluster.execute(coordinator, count, Quorum).await.unwrap();
                }
                cluster.execute(coordinator, set_element, Quorum).await.unwrap();
            }
        }
        let counted = cluster.query(2, read, NodeLocal).await.unwrap();
        assert_eq!(counted.integers(), [[Some(19)]], "each one counts once");
        for node in 0..3 {
            cluster.machine(node).disk.set_bad_medium(None);
        }
        let counted = cluster.query(0, read, All).await.unwrap();
        assert_eq!(counted.integers(), [[Some(19)]]);
    });
}

/// Simulation, seeds 149 and 195: the node did not start.
#[test]
fn hints_and_batches_that_cannot_be_read_wait_and_the_node_serves() {
    with_cluster(3, &Config::default(), |mut cluster| async move {
        cluster.set_alive(2, false);
        for key in 0..8 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, {key})");
            cluster.execute(0, &text, Quorum).await.unwrap();
        }
        cluster.settle().await;
        let hinted = cluster.hinted_bytes(0, 2);
        for table in [hints::TABLE, helenus_execution::coordinator::batch_log::store::TABLE] {
            for context in &cluster.nodes[0] {
                context.shard.flush(table.0).await.unwrap();
            }
        }
        // The file of the hints is lost while the node is down.
        let hints_table = hints::TABLE.0.to_string();
        let of_hints =
            |path: &std::path::Path| path.components().any(|part| *part.as_os_str() == *hints_table);
        let files = cluster.machine(0).disk.files();
        let lost: Vec<_> = files.into_iter().filter(|(path, _)| of_hints(path)).collect();
        assert!(!lost.is_empty() && hinted > 0);
        for (path, _) in &lost {
            cluster.machine(0).disk.set_at_rest(path, None);
        }
        cluster.restart(0).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        // The node serves, and stores hints of its own. None is delivered: a truncation may be among what is lost.
        cluster.execute(0, "INSERT INTO three.t (k, v) VALUES (9, 9)", Quorum).await.unwrap();
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 0);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(30)).await;
        assert_eq!(cluster.stored(2, "three", "t"), BTreeMap::new());
        // The file comes back.
        for (path, contents) in &lost {
            cluster.machine(0).disk.set_at_rest(path, Some(contents));
        }
        cluster.pass(Duration::from_secs(130)).await;
        assert_eq!(
            cluster.stored(2, "three", "t"),
            (0..8).chain([9]).map(|key| (key, i64::from(key))).collect()
        );
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn another_replica_answers_for_one_that_cannot_read() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for key in 0..8 {
            cluster
                .execute(0, &format!("INSERT INTO three.t (k, v) VALUES ({key}, {key})"), All)
                .await
                .unwrap();
        }
        ruin(&cluster, 0).await;
        for level in [One, LocalOne, Quorum] {
            for key in 0..8 {
                let text = format!("SELECT v FROM three.t WHERE k = {key}");
                let rows = cluster.query(0, &text, level).await.unwrap();
                assert_eq!(rows.integers(), [[Some(key)]], "{level:?}");
            }
            let all = cluster.query(0, "SELECT v FROM three.t", level).await.unwrap();
            assert_eq!(all.integers().len(), 8, "{level:?}: never fewer rows");
        }
        assert!(cluster.nodes[0].iter().any(|shard| shard.metrics.reads_of_others.get() > 0));
        // If only this node may answer, its error names the file.
        let error = cluster.query(0, "SELECT v FROM three.t WHERE k = 1", NodeLocal).await.unwrap_err();
        assert!(
            matches!(&error, RequestError::Unreadable(reason) if reason.contains("-data.sst")),
            "{error:?}"
        );
        assert!(cluster.query(0, "SELECT v FROM three.t WHERE k = 1", All).await.is_err());
        // Another one fails: no quorum any more, and still an answer of one.
        ruin(&cluster, 1).await;
        match cluster.query(0, "SELECT v FROM three.t WHERE k = 1", Quorum).await {
            Err(RequestError::ReadFailure { required: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        let rows = cluster.query(0, "SELECT v FROM three.t WHERE k = 1", One).await.unwrap();
        assert_eq!(rows.integers(), [[Some(1)]]);
        // The medium recovers.
        for node in 0..2 {
            cluster.machine(node).disk.set_bad_medium(None);
        }
        let rows = cluster.query(0, "SELECT v FROM three.t WHERE k = 1", NodeLocal).await.unwrap();
        assert_eq!(rows.integers(), [[Some(1)]]);
    });
}
