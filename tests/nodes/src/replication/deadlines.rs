//! USING TIMEOUT: how long the client waits, and what goes on without it.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_query::error::RequestError;
use tokio::time::Instant;

use super::{expect_timeout, row};
use crate::cluster::{Cluster, with_cluster};
use helenus::testing::network::Fate;

const INSERT: &str = "INSERT INTO three.t (k, v) VALUES (1, 10) USING TIMEOUT 100ms";
const WAIT: Duration = Duration::from_millis(100);

/// Whether as much time has passed since as the client waits, and not much more.
fn is_wait(begun: Instant) -> bool {
    (WAIT..WAIT + WAIT / 2).contains(&begun.elapsed())
}

/// Executes a write that needs more replicas than answer in time.
async fn time_out(cluster: &Cluster, text: &str) {
    let begun = Instant::now();
    expect_timeout(cluster, 0, text).await;
    assert!(is_wait(begun));
}

#[test]
fn a_client_that_stops_waiting_leaves_its_write_in_flight() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let at_once = Fate::Arrives { after: Duration::ZERO };
        cluster.links.set_fates([at_once, Fate::Arrives { after: 5 * WAIT }]);
        time_out(&cluster, INSERT).await;
        cluster.pass(5 * WAIT).await;
        for node in 0..3 {
            assert_eq!(cluster.stored(node, "three", "t"), row(1, 10), "node {node}");
        }
        cluster.pass(Duration::from_secs(3)).await;
        assert_eq!(cluster.hinted_bytes(0, 1) + cluster.hinted_bytes(0, 2), 0);
    });
}

#[test]
fn a_replica_gets_a_hint_when_the_settings_say_so_however_long_the_client_waits() {
    for text in [INSERT, "INSERT INTO three.t (k, v) VALUES (1, 10) USING TIMEOUT 1h"] {
        with_cluster(3, &Config::default(), |cluster| async move {
            cluster.set_silent(2, true);
            let begun = cluster.begin(0, text, Consistency::All);
            cluster.pass(Duration::from_secs(1)).await;
            assert_eq!(cluster.hinted_bytes(0, 2), 0);
            cluster.pass(Duration::from_millis(1_500)).await;
            assert!(cluster.hinted_bytes(0, 2) > 0);
            let outcome = begun.await.unwrap();
            assert!(matches!(outcome, Err(RequestError::WriteTimeout { received: 2, required: 3, .. })));
        });
    }
}

#[test]
fn all_rounds_of_a_read_end_with_the_time_of_the_client() {
    with_cluster(3, &Config::default(), |cluster| async move {
        for key in 0..20 {
            let text = format!("INSERT INTO three.t (k, v) VALUES ({key}, 5)");
            cluster.execute(0, &text, Consistency::All).await.unwrap();
        }
        cluster.set_silent(1, true);
        cluster.set_silent(2, true);
        for text in [
            "SELECT v FROM three.t WHERE k = 1 USING TIMEOUT 100ms",
            "SELECT v FROM three.t WHERE k IN (1, 2, 3) USING TIMEOUT 100ms",
            "SELECT count(*) FROM three.t USING TIMEOUT 100ms",
        ] {
            let begun = Instant::now();
            let outcome = cluster.query(0, text, Consistency::Quorum).await;
            assert!(
                matches!(outcome, Err(RequestError::ReadTimeout { received: 1, required: 2, .. })),
                "{text}"
            );
            assert!(is_wait(begun), "{text}");
        }
    });
}
