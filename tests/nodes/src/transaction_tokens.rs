//! Transactions with tokens on a few nodes in one thread: whoever is asked, and whoever is away, each takes effect once and answers the same.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::RequestError;

use super::settling::{IDLE, config, rounds};
use crate::cluster::{Cluster, with_cluster};

const INSERT: &str = "INSERT INTO three.rows (k, c, v) VALUES (1, 1, 10)";
const READ: &str = "SELECT v FROM three.rows WHERE k = 1 AND c = 1";

fn increment(token: u8) -> String {
    format!(
        "BEGIN TRANSACTION USING TOKEN 00000000-0000-4000-8000-0000000000{token:02x} \
         LET r = (SELECT v FROM three.rows WHERE k = 1 AND c = 1); SELECT r.v; \
         UPDATE three.rows SET v += 1 WHERE k = 1 AND c = 1; COMMIT TRANSACTION"
    )
}

/// What the increment with this token returns on a node.
async fn returned(cluster: &Cluster, node: usize, token: u8) -> i64 {
    let answer = cluster.query(node, &increment(token), Consistency::Quorum).await.unwrap();
    answer.integers()[0][0].unwrap()
}

async fn stored(cluster: &Cluster, node: usize) -> i64 {
    let answer = cluster.query(node, READ, Consistency::Serial).await.unwrap();
    answer.integers()[0][0].unwrap()
}

#[test]
fn one_token_at_several_nodes_at_the_same_time_takes_effect_once() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.query(0, INSERT, Consistency::All).await.unwrap();
        let text = increment(1);
        let begun: Vec<_> = (0..9).map(|node| cluster.begin(node % 3, &text, Consistency::Quorum)).collect();
        cluster.pass(Duration::from_secs(5)).await;
        for answer in begun {
            assert_eq!(answer.await.unwrap().unwrap().integers(), [[Some(10)]]);
        }
        assert_eq!(stored(&cluster, 1).await, 11);
        assert_eq!(returned(&cluster, 2, 2).await, 11);
        assert_eq!(returned(&cluster, 0, 1).await, 10);
        assert_eq!(stored(&cluster, 1).await, 12);
    });
}

#[test]
fn a_replica_that_has_missed_the_transaction_does_not_repeat_it() {
    with_cluster(3, &Config::default(), |mut cluster| async move {
        cluster.query(0, INSERT, Consistency::All).await.unwrap();
        cluster.set_silent(2, true);
        assert_eq!(returned(&cluster, 0, 1).await, 10);
        cluster.settle().await;
        cluster.set_silent(2, false);
        cluster.set_alive(0, false);
        assert_eq!(returned(&cluster, 2, 1).await, 10);
        assert_eq!(stored(&cluster, 2).await, 11);
        cluster.set_alive(0, true);
        for node in 0..3 {
            cluster.restart(node).await;
            assert_eq!(returned(&cluster, (node + 1) % 3, 1).await, 10);
        }
        assert_eq!(stored(&cluster, 0).await, 11);
    });
}

#[test]
fn tokens_outlive_the_state_of_transactions_and_a_truncation() {
    with_cluster(3, &config(), |cluster| async move {
        cluster.query(0, INSERT, Consistency::All).await.unwrap();
        assert_eq!(returned(&cluster, 0, 1).await, 10);
        cluster.settle().await;
        tokio::time::advance(4 * IDLE).await;
        assert_eq!(rounds(&cluster, 3).await, 1);
        assert_eq!(returned(&cluster, 1, 1).await, 10);
        assert_eq!(stored(&cluster, 2).await, 11);
        // One replica has neither the rows nor the record when the table is emptied.
        cluster.set_alive(2, false);
        assert_eq!(returned(&cluster, 0, 2).await, 11);
        cluster.settle().await;
        cluster.set_alive(2, true);
        cluster.execute(1, "TRUNCATE three.rows", Consistency::One).await.unwrap();
        cluster.query(1, INSERT, Consistency::All).await.unwrap();
        cluster.set_alive(0, false);
        assert_eq!(returned(&cluster, 2, 2).await, 11);
        assert_eq!(returned(&cluster, 1, 1).await, 10);
        assert_eq!(stored(&cluster, 2).await, 10);
    });
}

#[test]
fn conditions_that_did_not_hold_are_remembered_too() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.query(0, INSERT, Consistency::All).await.unwrap();
        let text = "BEGIN TRANSACTION USING TOKEN 00000000-0000-4000-8000-000000000001 \
             LET r = (SELECT v FROM three.rows WHERE k = 1 AND c = 1); SELECT r.v; \
             IF r.v > 10 THEN UPDATE three.rows SET v = 0 WHERE k = 1 AND c = 1; END IF COMMIT TRANSACTION";
        for node in 0..3 {
            let answer = cluster.query(node, text, Consistency::Quorum).await.unwrap();
            assert_eq!(answer.integers(), [[Some(10)]]);
            cluster
                .query(node, "UPDATE three.rows SET v = 20 WHERE k = 1 AND c = 1", Consistency::All)
                .await
                .unwrap();
        }
        assert_eq!(stored(&cluster, 0).await, 20);
        let other = text.replace("SET v = 0", "SET v = 1");
        match cluster.query(1, &other, Consistency::Quorum).await {
            Err(RequestError::Invalid(message)) => {
                assert!(message.contains("was used by another transaction"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    });
}
