//! The replication of a keyspace changes under load: what was acknowledged before and meanwhile is read at the same level afterwards.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_ring::member::TransitionPhase;
use helenus_testing::virtual_time::wait_until;

use super::harness::{World, simulate};
use super::joins_and_leaves::Load;
use helenus::cluster::membership;

async fn alter(world: &World, keyspace: &str, factor: u32) {
    let text = format!(
        "ALTER KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    );
    world.node(0).ddl(&text).await.unwrap();
}

fn is_settled(world: &World) -> bool {
    let has_ended = |index: usize| {
        let topology = &world.node(index).cluster().topology;
        topology.is_settled() && topology.replication_changes.is_empty()
    };
    world.up().iter().all(|machine| has_ended(machine.index))
}

async fn settled(world: &Rc<World>) {
    let shared = world.clone();
    wait_until(move || is_settled(&shared)).await;
}

#[test]
fn more_replicas_have_the_rows_before_they_are_read() {
    simulate(81, |world| async move {
        let load = Load::of_members(&world, 4, 100).await;
        let writing = load.begin(&[0, 1, 2, 3], Consistency::Quorum);
        alter(&world, "one", 3).await;
        // Not one row is missed while the change is under way.
        for _ in 0..3 {
            load.check(&[0, 1, 2, 3], Consistency::Quorum).await;
        }
        settled(&world).await;
        load.end(writing).await;
        load.check(&[0, 1, 2, 3], Consistency::Quorum).await;
        // Any two of the three replicas are enough.
        world.crash(3);
        load.check(&[0, 1, 2], Consistency::Quorum).await;
    });
}

#[test]
fn fewer_replicas_have_all_rows_and_the_others_remove_theirs() {
    simulate(82, |world| async move {
        let load = Load::of_members(&world, 5, 100).await;
        alter(&world, "three", 5).await;
        settled(&world).await;
        // Of five replicas these have missed some, and hints would come late.
        world.crash(4);
        load.write(&[0, 1, 2, 3], 60, Consistency::Quorum).await;
        let writing = load.begin(&[0, 1, 2, 3], Consistency::Quorum);
        world.enter(4).await.unwrap().unwrap();
        alter(&world, "three", 1).await;
        settled(&world).await;
        load.end(writing).await;
        load.check(&[0, 1, 2, 3, 4], Consistency::One).await;
        wait_until(|| membership::uncleaned(&world.node(0)).is_empty()).await;
        let rows: u64 = (0..5).map(|index| world.stored_rows(index, "three", "t")).sum();
        let wanted = load.acknowledged.borrow()["three"].len() as u64;
        // Some rows are in two files.
        assert!((wanted..2 * wanted).contains(&rows), "{rows} of {wanted}; there were five times as many");
    });
}

#[test]
fn a_row_is_inserted_once_while_replication_changes() {
    simulate(83, |world| async move {
        let load = Load::of_members(&world, 4, 20).await;
        for key in 1_000..1_040 {
            let insert = format!("INSERT INTO one.t (k, v) VALUES ({key}, 'first') IF NOT EXISTS");
            world.cql(key % 4, &insert, Consistency::Quorum).await.unwrap().unwrap();
        }
        alter(&world, "one", 3).await;
        let is_applied = |index: usize, key: usize| {
            let insert = format!("INSERT INTO one.t (k, v) VALUES ({key}, 'second') IF NOT EXISTS");
            let world = world.clone();
            async move {
                let answer = world.on(index, move |context| async move {
                    let options = helenus::testing::client::options(Consistency::Quorum);
                    helenus::testing::client::ask(&context, &insert, &options).await
                });
                answer.await.unwrap().unwrap().applied()
            }
        };
        for key in 1_000..1_020 {
            assert_eq!(is_applied(key % 4, key).await, Some(false), "{key}, while it changes");
        }
        settled(&world).await;
        for key in 1_020..1_040 {
            assert_eq!(is_applied(key % 4, key).await, Some(false), "{key}, afterwards");
        }
        drop(load);
    });
}

#[test]
fn a_change_goes_on_when_nodes_come_back_and_can_be_taken_back() {
    simulate(84, |world| async move {
        let load = Load::of_members(&world, 4, 60).await;
        world.settle().await;
        world.crash(3);
        alter(&world, "one", 2).await;
        world.settle().await;
        let phase = |world: &World| world.node(0).cluster().topology.replication_phase();
        assert_eq!(phase(&world), Some(TransitionPhase::WriteBoth), "a member that gains ranges is down");
        // Taken back: all is as before.
        alter(&world, "one", 1).await;
        settled(&world).await;
        alter(&world, "one", 2).await;
        world.settle().await;
        world.enter(3).await.unwrap().unwrap();
        settled(&world).await;
        load.check(&[0, 1, 2, 3], Consistency::Quorum).await;
    });
}

#[test]
fn a_step_waits_for_owners_that_have_not_heard_of_it() {
    simulate(85, |world| async move {
        let load = Load::of_members(&world, 5, 60).await;
        world.settle().await;
        // Two of three owners of some ranges: they could serve quorums of before by themselves.
        world.crash(3);
        world.crash(4);
        let joining = {
            let world = world.clone();
            tokio::task::spawn_local(async move { world.enter(5).await })
        };
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!joining.is_finished());
        assert!(!membership::waited_for(&world.node(5)).is_empty());
        world.enter(3).await.unwrap().unwrap();
        world.enter(4).await.unwrap().unwrap();
        joining.await.unwrap().unwrap().unwrap();
        load.check(&[0, 1, 2, 3, 4, 5], Consistency::Quorum).await;
    });
}
