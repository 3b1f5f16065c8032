//! Hints and the `gc_grace_seconds` of their table, which change while the hints wait.

use std::time::Duration;

use cql_lite::frame::Consistency;

use super::KEYSPACE;
use super::harness::{World, simulate};

/// The bytes of the hints that a node keeps for another.
fn hinted_bytes(world: &World, index: usize, target: usize) -> u64 {
    let target = world.host_id(target);
    let shards = world.machine(index).contexts();
    shards.iter().map(|context| context.replication().hints.pending_bytes(&target)).sum()
}

/// A deletion of the row would have been purged when the time is raised.
#[test]
fn a_hint_expires_by_the_shorter_time_if_that_was_raised_since() {
    simulate(61, |world| async move {
        for index in 0..3 {
            world.enter(index).await.unwrap().unwrap();
        }
        world.node(0).ddl(KEYSPACE).await.unwrap();
        let table = "CREATE TABLE ks.t (k int PRIMARY KEY) WITH gc_grace_seconds = 60";
        world.node(0).ddl(table).await.unwrap();
        world.crash(2);
        let insert = async |key: i32| {
            let text = format!("INSERT INTO ks.t (k) VALUES ({key})");
            world.cql(0, &text, Consistency::Quorum).await.unwrap().unwrap();
        };
        insert(1).await;
        world.settle().await;
        assert!(hinted_bytes(&world, 0, 2) > 0);
        tokio::time::sleep(Duration::from_mins(1)).await;
        world.node(0).ddl("ALTER TABLE ks.t WITH gc_grace_seconds = 864000").await.unwrap();
        // Clocks may differ by ten seconds.
        tokio::time::sleep(Duration::from_secs(11)).await;
        insert(2).await;
        world.settle().await;
        world.enter(2).await.unwrap().unwrap();
        let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
        while hinted_bytes(&world, 0, 2) > 0 {
            assert!(tokio::time::Instant::now() < deadline, "hints are left");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(world.stored_rows(2, "ks", "t"), 1);
    });
}
