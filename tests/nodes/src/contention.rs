//! Many concurrent transactions on one partition, coordinated by all nodes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::Result;
use helenus_testing::virtual_time::wait_until;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::transactions::{is_applied, serial_read, shown_value};
use crate::cluster::{Cluster, with_cluster};
use helenus::testing::client::StatementResponse;

/// Waits until all tasks are done. Returns how long that took.
async fn wait_for<T>(tasks: &[JoinHandle<T>]) -> Duration {
    let begun = Instant::now();
    wait_until(|| tasks.iter().all(JoinHandle::is_finished)).await;
    begun.elapsed()
}

fn insert(cluster: &Cluster, node: usize, row: usize) -> JoinHandle<Result<StatementResponse>> {
    let text = format!("INSERT INTO three.rows (k, c, v) VALUES (1, {row}, 0) IF NOT EXISTS");
    cluster.begin(node, &text, Consistency::Quorum)
}

fn contended_timeout() -> Duration {
    Duration::from_millis(Config::default().cas_contention_timeout_ms)
}

#[test]
fn rivals_of_three_coordinators_all_get_their_turn() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for round in 0..3 {
            let rivals: Vec<_> =
                (0..64).map(|rival| insert(&cluster, rival % 3, round * 64 + rival)).collect();
            let took = wait_for(&rivals).await;
            assert!(took < contended_timeout() / 2, "{took:?}");
            for rival in rivals {
                assert!(is_applied(rival.await.unwrap()));
            }
        }
        let count = cluster.query(0, "SELECT count(*) FROM three.rows WHERE k = 1", Consistency::Serial);
        assert_eq!(count.await.unwrap().integers(), [[Some(192)]]);
        for context in cluster.nodes.iter().flatten() {
            assert!(context.paxos().queues.is_empty());
        }
    });
}

#[test]
fn rivals_that_swap_one_value_lose_no_swap() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster
            .execute(0, "INSERT INTO three.t (k, v) VALUES (1, 0) IF NOT EXISTS", Consistency::Quorum)
            .await
            .unwrap();
        let cluster = Rc::new(cluster);
        let attempts = Rc::new(Cell::new(0));
        let rivals: Vec<_> = (0..24)
            .map(|rival| {
                let (cluster, attempts) = (cluster.clone(), attempts.clone());
                tokio::task::spawn_local(async move {
                    let mut seen = 0;
                    loop {
                        attempts.set(attempts.get() + 1);
                        let text = format!("UPDATE three.t SET v = {} WHERE k = 1 IF v = {seen}", seen + 1);
                        let outcome = cluster.begin(rival % 3, &text, Consistency::Quorum).await.unwrap();
                        match shown_value(outcome) {
                            None => return,
                            Some(current) => seen = current,
                        }
                    }
                })
            })
            .collect();
        wait_for(&rivals).await;
        for rival in rivals {
            rival.await.unwrap();
        }
        assert_eq!(serial_read(&cluster, 2).await, Some(24));
        // In a queue, each swap is attempted at most once between two that succeed.
        assert!(attempts.get() <= 24 * 25, "{}", attempts.get());
    });
}

#[test]
fn a_replica_that_falls_silent_after_granting_a_lease_blocks_no_coordinator() {
    with_cluster(4, &Config::default(), |cluster| async move {
        for silent in 0..4 {
            let first: Vec<_> =
                (0..12).map(|rival| insert(&cluster, rival % 3, silent * 100 + rival)).collect();
            wait_for(&first).await;
            cluster.set_silent(silent, true);
            let coordinators: Vec<usize> = (0..4).filter(|node| *node != silent).collect();
            let rivals: Vec<_> = (0..24)
                .map(|rival| insert(&cluster, coordinators[rival % 3], silent * 100 + 50 + rival))
                .collect();
            wait_for(&rivals).await;
            for rival in first.into_iter().chain(rivals) {
                assert!(is_applied(rival.await.unwrap()), "{silent}");
            }
            cluster.set_silent(silent, false);
            cluster.pass(Duration::from_secs(12)).await;
        }
    });
}

#[test]
fn reads_and_writes_of_one_partition_do_not_starve_each_other() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let writes: Vec<_> = (0..30).map(|rival| insert(&cluster, rival % 3, rival)).collect();
        let text = "SELECT count(*) FROM three.rows WHERE k = 1";
        let reads: Vec<_> =
            (0..30).map(|rival| cluster.begin(rival % 3, text, Consistency::Serial)).collect();
        wait_for(&writes).await;
        wait_for(&reads).await;
        for write in writes {
            assert!(is_applied(write.await.unwrap()));
        }
        for read in reads {
            assert_eq!(read.await.unwrap().unwrap().rows.len(), 1);
        }
    });
}
