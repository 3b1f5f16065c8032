//! The partition denylist in a cluster: it is in force on all members at once, at their coordinators and nowhere else.

use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_query::error::Result;

use super::KEYSPACE;
use super::harness::{World, simulate};

const KEY: &str = "(ks_name, table_name, key) VALUES ('ks', 't', 0x00000007)";
const OF_KEY: &str = "ks_name = 'ks' AND table_name = 't' AND key = 0x00000007";

/// Three members with a table; all but the last one refuse what is denied.
async fn three_members(world: &Rc<World>) {
    for index in 0..3 {
        world.configure(index, |config| config.partition_denylist_enabled = index < 2);
        world.enter(index).await.unwrap().unwrap();
    }
    run(world, 0, KEYSPACE).await.unwrap();
    run(world, 0, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)").await.unwrap();
}

async fn run(world: &World, index: usize, text: &str) -> Result<usize> {
    world.cql(index, text, Consistency::Quorum).await.expect("the node is up")
}

fn insert(key: i32) -> String {
    format!("INSERT INTO ks.t (k, v) VALUES ({key}, 1)")
}

#[test]
fn a_denied_partition_is_denied_by_every_coordinator_that_obeys() {
    simulate(97, |world| async move {
        three_members(&world).await;
        run(&world, 2, &format!("INSERT INTO system_distributed.partition_denylist {KEY}")).await.unwrap();
        for index in 0..2 {
            for text in [
                insert(7).as_str(),
                "SELECT v FROM ks.t WHERE k = 7",
                "SELECT v FROM ks.t",
                "UPDATE ks.t SET v = 2 WHERE k = 7 IF v = 1",
            ] {
                let refused = run(&world, index, text).await.unwrap_err().to_string();
                assert!(refused.contains("denylisted"), "{index}: {text}: {refused}");
            }
            run(&world, index, &insert(8)).await.unwrap();
        }
        // The replicas take what a coordinator sends that does not obey.
        run(&world, 2, &insert(7)).await.unwrap();
        assert_eq!(run(&world, 2, "SELECT v FROM ks.t").await.unwrap(), 2);
        run(&world, 0, &format!("DELETE FROM system_distributed.partition_denylist WHERE {OF_KEY}"))
            .await
            .unwrap();
        for index in 0..3 {
            assert_eq!(run(&world, index, "SELECT v FROM ks.t WHERE k = 7").await.unwrap(), 1);
        }
    });
}

#[test]
fn the_denylist_outlives_a_crash_and_not_its_table() {
    simulate(98, |world| async move {
        three_members(&world).await;
        run(&world, 0, &format!("INSERT INTO system_distributed.partition_denylist {KEY}")).await.unwrap();
        world.crash(1);
        world.enter(1).await.unwrap().unwrap();
        let listed = "SELECT key FROM system_distributed.partition_denylist";
        assert_eq!(run(&world, 1, listed).await.unwrap(), 1);
        assert!(run(&world, 1, &insert(7)).await.unwrap_err().to_string().contains("denylisted"));
        run(&world, 0, "DROP TABLE ks.t").await.unwrap();
        run(&world, 0, "CREATE TABLE ks.t (k int PRIMARY KEY, v int)").await.unwrap();
        for index in 0..3 {
            assert_eq!(run(&world, index, listed).await.unwrap(), 0);
            run(&world, index, &insert(7)).await.unwrap();
        }
    });
}
