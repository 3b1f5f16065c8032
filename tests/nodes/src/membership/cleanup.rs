//! Old data of ranges that were given up: it is removed before such a range can come back.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_testing::virtual_time::wait_until;

use super::harness::{World, simulate};
use super::joins_and_leaves::{Load, decommission};
use helenus::cluster::membership;

/// A load on three members, which do not clean up by themselves; nor will the fourth.
async fn load_without_cleanup(world: &Rc<World>) -> Rc<Load> {
    for index in 0..4 {
        world.configure(index, |config| config.cleanup_after_transition = false);
    }
    Load::of_members(world, 3, 200).await
}

async fn compact(world: &World, index: usize, keyspace: &str) {
    let id = *world.catalog(index).table(keyspace, "t").unwrap().id.as_bytes();
    for context in world.machine(index).contexts() {
        context.shard.compact(helenus_engine::TableId(id)).await.unwrap();
    }
}

#[test]
fn rows_that_were_deleted_meanwhile_do_not_come_back_with_their_range() {
    simulate(81, |world| async move {
        let load = load_without_cleanup(&world).await;
        world
            .node(0)
            .ddl("ALTER TABLE three.t WITH gc_grace_seconds = 1 AND tombstone_gc = {'mode': 'timeout'}")
            .await
            .unwrap();
        world.enter(3).await.unwrap().unwrap();
        world.settle().await;
        for key in 0..200 {
            let text = format!("DELETE FROM three.t WHERE k = {key}");
            world.cql(0, &text, Consistency::All).await.unwrap().unwrap();
        }
        load.acknowledged.borrow_mut().remove("three");
        tokio::time::sleep(Duration::from_secs(5)).await;
        for index in 0..4 {
            compact(&world, index, "three").await;
        }
        let left: u64 = (0..3).map(|index| world.stored_rows(index, "three", "t")).sum();
        assert!(left > 0, "some node still has rows of a range that it has given up");
        let leaving = {
            let world = world.clone();
            tokio::task::spawn_local(async move { decommission(&world, 3, true).await })
        };
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!leaving.is_finished(), "it waits until the others have removed what they gave up");
        let alter =
            "ALTER KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 4}";
        world.node(0).ddl(alter).await.unwrap();
        let phase = |world: &World| {
            world.node(0).cluster().topology.replication_changes.get("three").map(|change| change.phase)
        };
        assert_eq!(phase(&world), Some(None), "the change waits too");
        let mut files = 0;
        for index in 0..3 {
            let clean = |context| async move { membership::clean_up(&context, None).await };
            files += world.on(index, clean).await.unwrap().unwrap();
        }
        assert!(files > 0);
        leaving.await.unwrap().unwrap().unwrap();
        world.crash(3);
        wait_until(|| phase(&world).is_none()).await;
        for node in 0..3 {
            for consistency in [Consistency::One, Consistency::Quorum, Consistency::Three] {
                let rows = world.cql(node, "SELECT k FROM three.t", consistency).await.unwrap().unwrap();
                assert_eq!(rows, 0, "asked of node {node} at {consistency:?}");
            }
        }
    });
}

#[test]
fn ranges_that_were_given_up_are_cleaned_up_after_the_transition() {
    simulate(82, |world| async move {
        let load = Load::of_members(&world, 3, 200).await;
        world.enter(3).await.unwrap().unwrap();
        let all_of = |name: &'static str, copies: u64| {
            let world = world.clone();
            move || (0..4_usize).map(|index| world.stored_rows(index, name, "t")).sum::<u64>() == 200 * copies
        };
        wait_until(all_of("one", 1)).await;
        wait_until(all_of("three", 3)).await;
        load.check(&[0, 1, 2, 3], Consistency::One).await;
        load.check(&[0, 1, 2, 3], Consistency::All).await;
    });
}

#[test]
fn what_a_change_of_replication_gave_up_is_cleaned_up() {
    simulate(83, |world| async move {
        let load = Load::of_members(&world, 3, 200).await;
        let alter =
            "ALTER KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        world.node(0).ddl(alter).await.unwrap();
        let stored = || (0..3_usize).map(|index| world.stored_rows(index, "three", "t")).sum::<u64>();
        wait_until(|| stored() == 200).await;
        load.check(&[0, 1, 2], Consistency::One).await;
    });
}

#[test]
fn a_leaving_that_accepts_old_data_waits_for_no_cleanup() {
    simulate(84, |world| async move {
        let load = load_without_cleanup(&world).await;
        world.enter(3).await.unwrap().unwrap();
        assert_eq!(membership::uncleaned(&world.node(0)).len(), 3);
        let leave = |context| async move { membership::decommission(&context, false, true).await };
        world.on(3, leave).await.unwrap().unwrap();
        world.crash(3);
        world.settle().await;
        let uncleaned = membership::uncleaned(&world.node(0));
        assert_eq!(uncleaned.len(), 2, "the last of the three has given up nothing any more: {uncleaned:?}");
        load.check(&[0, 1, 2], Consistency::All).await;
    });
}

#[test]
fn a_cleanup_leaves_what_a_node_owns() {
    simulate(80, |world| async move {
        world.configure(0, |config| config.cleanup_after_transition = false);
        world.enter(0).await.unwrap().unwrap();
        let load = Load::new(&world).await;
        load.write(&[0], 300, Consistency::One).await;
        world.enter(1).await.unwrap().unwrap();
        world.settle().await;
        let cleanup = |name: &'static str| {
            let world = world.clone();
            async move {
                let clean = move |context| async move {
                    helenus::cluster::membership::clean_up(&context, Some(name.to_owned())).await
                };
                world.on(0, clean).await.unwrap()
            }
        };
        assert_eq!(world.stored_rows(0, "one", "t"), 300);
        assert!(cleanup("one").await.unwrap() > 0);
        assert_eq!(cleanup("three").await.unwrap(), 0, "of three replicas each node has everything");
        let left = world.stored_rows(0, "one", "t");
        assert!(left < 300 && left + world.stored_rows(1, "one", "t") == 300, "{left}");
        load.check(&[0, 1], Consistency::One).await;
        let error = cleanup("none").await.unwrap_err();
        assert_eq!(error.to_string(), "keyspace 'none' does not exist");
    });
}
