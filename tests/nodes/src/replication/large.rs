//! The largest mutation goes all ways: to replicas, into hints and the batch log, through transactions. A mutation with one byte
//! more goes none of these ways.

use helenus_engine::key::MAX_PARTITION_KEY_BYTES;

use super::*;

/// Segments so small that a hint, or the state of a transaction, only just has room in a record of the commit log.
fn config() -> Config {
    Config { commit_log_segment_bytes: 1 << 20, commit_log_total_bytes: 16 << 20, ..Config::default() }
}

/// The longest key of a partition.
fn key() -> String {
    "ab".repeat(MAX_PARTITION_KEY_BYTES)
}

fn insert(value_bytes: usize) -> String {
    format!("INSERT INTO three.large (k, v) VALUES (0x{}, 0x{})", key(), "cd".repeat(value_bytes))
}

/// Bytes of the value with which an INSERT is the largest mutation.
fn largest(cluster: &Cluster) -> usize {
    let limit = cluster.nodes[0][0].node.config.mutation_bytes_max();
    let size = |value_bytes| changes(cluster, &[&insert(value_bytes)])[0].mutation.bytes().len();
    let value_bytes = limit - size(100_000) + 100_000;
    assert_eq!(size(value_bytes), limit);
    value_bytes
}

/// Lengths of the values that all replicas have.
async fn lengths(cluster: &Cluster) -> Vec<usize> {
    let answer = cluster.query(1, "SELECT v FROM three.large", Consistency::All).await.unwrap();
    answer.rows.iter().map(|row| row[0].as_ref().map_or(0, Vec::len)).collect()
}

fn refused(outcome: Result<(), RequestError>) -> String {
    match outcome {
        Err(RequestError::Invalid(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_largest_mutation_fits_into_a_hint() {
    with_cluster(3, &config(), |cluster| async move {
        let value_bytes = largest(&cluster);
        cluster.set_alive(2, false);
        let message = refused(cluster.execute(0, &insert(value_bytes + 1), Consistency::Quorum).await);
        assert!(
            message.starts_with("Rejected an oversized mutation (393217/393216) for keyspace: three."),
            "{message}"
        );
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        cluster.execute(0, &insert(value_bytes), Consistency::Quorum).await.unwrap();
        cluster.settle().await;
        assert!(cluster.hinted_bytes(0, 2) > 300_000);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_mins(1)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        let dropped: u64 = cluster.nodes[0].iter().map(|context| context.metrics.hints_dropped.get()).sum();
        assert_eq!(dropped, 0);
        assert_eq!(lengths(&cluster).await, [value_bytes]);
    });
}

#[test]
fn the_largest_mutation_fits_into_a_transaction() {
    with_cluster(3, &config(), |cluster| async move {
        let value_bytes = largest(&cluster);
        let too_large = format!("{} IF NOT EXISTS", insert(value_bytes + 1));
        let message = refused(cluster.execute(0, &too_large, Consistency::Quorum).await);
        assert!(message.starts_with("Rejected an oversized mutation"), "{message}");
        assert_eq!(lengths(&cluster).await, [0; 0]);
        let fitting = format!("{} IF NOT EXISTS", insert(value_bytes));
        cluster.execute(0, &fitting, Consistency::All).await.unwrap();
        assert_eq!(lengths(&cluster).await, [value_bytes]);
    });
}

#[test]
fn a_logged_batch_is_as_large_as_a_mutation_at_most() {
    let config = Config { batch_size_fail_threshold_bytes: 1 << 20, ..config() };
    with_cluster(3, &config, |cluster| async move {
        let batch = |value_bytes: usize| {
            let value = "cd".repeat(value_bytes);
            let one = |key: &str| format!("INSERT INTO three.large (k, v) VALUES (0x{key}, 0x{value});");
            format!("BEGIN BATCH {} {} APPLY BATCH", one("01"), one("02"))
        };
        let half = cluster.nodes[0][0].node.config.mutation_bytes_max() / 2;
        let message = refused(cluster.execute(0, &batch(half), Consistency::Quorum).await);
        assert_eq!(message, "Batch too large");
        assert_eq!(cluster.logged_batches(), 0);
        cluster.execute(0, &batch(half - 100), Consistency::Quorum).await.unwrap();
        assert_eq!(lengths(&cluster).await, [half - 100; 2]);
    });
}
