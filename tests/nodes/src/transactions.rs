//! Transactions and serial reads of a few nodes in one thread.

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::{RequestError, Result};
use helenus_ring::member::{MemberState, TransitionPhase};

use crate::cluster::{Cluster, with_cluster};
use helenus::testing::client::StatementResponse;

pub(super) const INSERT: &str = "INSERT INTO three.t (k, v) VALUES (1, 1) IF NOT EXISTS";

pub(super) fn is_applied(outcome: Result<StatementResponse>) -> bool {
    outcome.unwrap().applied().unwrap()
}

/// The int that kept a statement from being applied; `None`: it was applied.
pub(super) fn shown_value(outcome: Result<StatementResponse>) -> Option<i64> {
    let answer = outcome.unwrap();
    if answer.applied().unwrap() { None } else { answer.integers()[0][1] }
}

/// The int that a serial SELECT on a node returns.
pub(super) async fn serial_read(cluster: &Cluster, node: usize) -> Option<i64> {
    let answer = cluster.query(node, "SELECT v FROM three.t WHERE k = 1", Consistency::Serial).await.unwrap();
    assert!(answer.rows.len() <= 1, "{answer:?}");
    answer.integers().first().map(|row| row[0].unwrap())
}

pub(super) async fn swap(cluster: &Cluster, node: usize, from: i64, to: i64) -> bool {
    let text = format!("UPDATE three.t SET v = {to} WHERE k = 1 IF v = {from}");
    is_applied(cluster.query(node, &text, Consistency::Quorum).await)
}

#[test]
fn of_two_inserts_of_one_row_one_is_applied() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let first = cluster.begin(0, INSERT, Consistency::Quorum);
        let second = cluster.begin(1, INSERT, Consistency::Quorum);
        cluster.pass(std::time::Duration::from_secs(2)).await;
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(u8::from(is_applied(first)) + u8::from(is_applied(second)), 1);
        for node in 0..3 {
            assert_eq!(serial_read(&cluster, node).await, Some(1));
            assert_eq!(cluster.stored(node, "three", "t").get(&1), Some(&1));
        }
    });
}

/// The only row of an answer with its columns, each a boolean or an int.
fn shown_row(outcome: Result<StatementResponse>) -> Vec<(String, Option<i64>)> {
    let answer = outcome.unwrap();
    assert_eq!(answer.rows.len(), 1);
    let cells = answer.integers().remove(0);
    answer.columns.into_iter().zip(cells).collect()
}

#[test]
fn conditions_on_static_columns_show_the_first_row_where_they_do_not_hold() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for text in [
            "INSERT INTO three.rows (k, c, v) VALUES (1, 3, 30)",
            "INSERT INTO three.rows (k, c, v) VALUES (1, 2, 20)",
            "INSERT INTO three.rows (k, s) VALUES (1, 5)",
            "INSERT INTO three.rows (k, c, v) VALUES (2, 7, 70)",
        ] {
            cluster.query(0, text, Consistency::All).await.unwrap();
        }
        let batch = "BEGIN BATCH UPDATE three.rows SET v = 1 WHERE k = 1 AND c = 3;
            UPDATE three.rows SET s = 6 WHERE k = 1 IF s = 4; APPLY BATCH";
        let cell = |name: &str, value: Option<i64>| (name.to_owned(), value);
        let expected =
            [cell("[applied]", Some(0)), cell("k", Some(1)), cell("c", Some(2)), cell("s", Some(5))];
        assert_eq!(shown_row(cluster.query(1, batch, Consistency::Quorum).await), expected);
        let without_statics = "UPDATE three.rows SET s = 6 WHERE k = 2 IF s = 4";
        let expected = [cell("[applied]", Some(0)), cell("s", None)];
        assert_eq!(shown_row(cluster.query(2, without_statics, Consistency::Quorum).await), expected);
        let holds = "UPDATE three.rows SET s = 6 WHERE k = 1 IF s = 5";
        assert!(is_applied(cluster.query(0, holds, Consistency::Quorum).await));
    });
}

#[test]
fn conditions_on_existence_hide_no_column_that_another_condition_is_on() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for text in [
            "INSERT INTO three.rows (k, s) VALUES (1, 5)",
            "INSERT INTO three.rows (k, c, v) VALUES (1, 2, 20)",
            "INSERT INTO three.rows (k, c, v) VALUES (1, 3, 30)",
        ] {
            cluster.query(0, text, Consistency::All).await.unwrap();
        }
        // Only rows are written. The static column is compared, so it is shown.
        let batch = "BEGIN BATCH UPDATE three.rows SET v = 1 WHERE k = 1 AND c = 2 IF s = 4;
            UPDATE three.rows SET v = 1 WHERE k = 1 AND c = 3 IF EXISTS; APPLY BATCH";
        let shown = shown_row(cluster.query(1, batch, Consistency::Quorum).await);
        assert!(shown.contains(&("s".to_owned(), Some(5))), "{shown:?}");
        let without = "BEGIN BATCH UPDATE three.rows SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS;
            UPDATE three.rows SET v = 1 WHERE k = 1 AND c = 9 IF EXISTS; APPLY BATCH";
        let shown = shown_row(cluster.query(1, without, Consistency::Quorum).await);
        assert!(shown.contains(&("s".to_owned(), None)), "{shown:?}");
    });
}

#[test]
fn every_node_sees_the_last_transaction() {
    with_cluster(4, &Config::default(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        for (value, node) in (1..20).zip([1, 3, 0, 2].into_iter().cycle()) {
            assert!(swap(&cluster, node, value, value + 1).await, "{value}");
            assert!(!swap(&cluster, (node + 1) % 4, value, 99).await);
            assert_eq!(serial_read(&cluster, (node + 2) % 4).await, Some(value + 1));
        }
    });
}

#[test]
fn a_majority_continues_and_a_minority_does_not() {
    with_cluster(3, &Config::default(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        cluster.set_alive(2, false);
        assert!(swap(&cluster, 0, 1, 2).await);
        assert_eq!(serial_read(&cluster, 1).await, Some(2));
        // A level that the live replicas cannot satisfy is refused before anything is agreed.
        match cluster.query(0, "UPDATE three.t SET v = 9 WHERE k = 1 IF v = 2", Consistency::All).await {
            Err(RequestError::Unavailable { required: 3, alive: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(serial_read(&cluster, 1).await, Some(2));
        cluster.set_alive(1, false);
        match cluster.query(0, "UPDATE three.t SET v = 3 WHERE k = 1 IF v = 2", Consistency::One).await {
            Err(RequestError::Unavailable { required: 2, alive: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
        cluster.set_alive(1, true);
        cluster.set_silent(1, true);
        match cluster.query(0, "UPDATE three.t SET v = 3 WHERE k = 1 IF v = 2", Consistency::One).await {
            Err(RequestError::WriteTimeout { received: 1, required: 2, .. }) => {}
            other => panic!("{other:?}"),
        }
        cluster.set_silent(1, false);
        cluster.set_alive(2, true);
        assert_eq!(serial_read(&cluster, 2).await, Some(2));
        assert!(swap(&cluster, 2, 2, 3).await);
    });
}

#[test]
fn agreed_mutations_survive_a_restart_of_every_replica() {
    with_cluster(3, &Config::default(), |mut cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Any).await));
        for node in 0..3 {
            cluster.restart(node).await;
            assert_eq!(serial_read(&cluster, (node + 1) % 3).await, Some(1));
            assert!(!is_applied(cluster.query(node, INSERT, Consistency::Quorum).await));
        }
    });
}

#[test]
fn former_replicas_decide_nothing() {
    with_cluster(3, &Config::default(), |cluster| async move {
        assert!(is_applied(cluster.query(0, INSERT, Consistency::Quorum).await));
        cluster.change_ring(&[(2, Some(MemberState::Leaving(TransitionPhase::WriteBoth)))]);
        cluster.show(0);
        cluster.show(1);
        cluster.show(2);
        assert!(swap(&cluster, 0, 1, 2).await);
        cluster.change_ring(&[(2, Some(MemberState::Normal))]);
        cluster.show(1);
        // The other nodes learn of the change while they are asked.
        let behind = cluster.begin(0, "UPDATE three.t SET v = 3 WHERE k = 1 IF v = 2", Consistency::Quorum);
        cluster.settle().await;
        assert!(!behind.is_finished());
        cluster.show(0);
        cluster.show(2);
        cluster.pass(std::time::Duration::from_secs(1)).await;
        assert!(is_applied(behind.await.unwrap()));
        assert_eq!(serial_read(&cluster, 2).await, Some(3));
    });
}

#[test]
fn serial_reads_are_of_one_partition_and_transactions_do_not_commit_serially() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let all = cluster.query(0, "SELECT v FROM three.t", Consistency::Serial).await;
        assert!(matches!(all, Err(RequestError::Invalid(message)) if message.contains("one partition")));
        let serial = cluster.query(0, INSERT, Consistency::Serial).await;
        assert!(matches!(serial, Err(RequestError::Invalid(message)) if message.contains("Use ANY")));
    });
}

#[test]
fn increments_by_transactions_of_all_nodes_add_up() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let start = "INSERT INTO three.rows (k, c, v) VALUES (1, 1, 0)";
        cluster.query(0, start, Consistency::All).await.unwrap();
        let increment = "BEGIN TRANSACTION LET r = (SELECT v FROM three.rows WHERE k = 1 AND c = 1); SELECT r.v;
            IF r IS NOT NULL THEN UPDATE three.rows SET v += 1 WHERE k = 1 AND c = 1; END IF COMMIT TRANSACTION";
        let begun: Vec<_> =
            (0..9).map(|number| cluster.begin(number % 3, increment, Consistency::Quorum)).collect();
        cluster.pass(std::time::Duration::from_secs(5)).await;
        let mut seen = Vec::new();
        for answer in begun {
            seen.push(answer.await.unwrap().unwrap().integers()[0][0].unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..9).collect::<Vec<i64>>());
        let read = "SELECT v FROM three.rows WHERE k = 1 AND c = 1";
        let answer = cluster.query(1, read, Consistency::Serial).await.unwrap();
        assert_eq!(answer.integers(), [[Some(9)]]);
    });
}

#[test]
fn the_first_row_for_a_transaction_is_none_that_another_replica_knows_to_be_deleted() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for text in [
            "INSERT INTO three.rows (k, c, v) VALUES (1, 1, 10)",
            "INSERT INTO three.rows (k, c, v) VALUES (1, 2, 20)",
        ] {
            cluster.query(0, text, Consistency::All).await.unwrap();
        }
        cluster.query(0, "DELETE FROM three.rows WHERE k = 1 AND c = 1", Consistency::One).await.unwrap();
        let text = "BEGIN TRANSACTION LET r = (SELECT c, v FROM three.rows WHERE k = 1 LIMIT 1); SELECT r.c, r.v;
            IF r.c = 2 THEN INSERT INTO three.rows (k, c, v) VALUES (1, 3, r.v + 1); END IF COMMIT TRANSACTION";
        for node in 0..3 {
            let answer = cluster.query(node, text, Consistency::Quorum).await.unwrap();
            assert_eq!(answer.integers(), [[Some(2), Some(20)]]);
        }
        let read = "BEGIN TRANSACTION SELECT c, v FROM three.rows WHERE k = 1; COMMIT TRANSACTION";
        let answer = cluster.query(2, read, Consistency::One).await.unwrap();
        assert_eq!(answer.integers(), [[Some(2), Some(20)], [Some(3), Some(21)]]);
    });
}
