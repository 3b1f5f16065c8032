//! Several members that are dead for good, and a first seed that has lost its disk.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_internode::endpoint::Endpoint;
use helenus_query::error::RequestError;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::Refusal;
use helenus_testing::virtual_time::wait_until;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::DEADLINE;
use super::harness::{World, simulate};
use super::joins_and_leaves::{LOSING, Load, removenode, state_of};
use helenus::cluster::join::{JoinError, join};
use helenus::cluster::membership::{self, Consent, MembershipError};
use helenus::cluster::start;

fn removing(world: &Rc<World>, by: usize, dead: &[usize]) -> JoinHandle<Result<(), MembershipError>> {
    let world = world.clone();
    let host_ids: BTreeSet<_> = dead.iter().map(|index| world.host_id(*index)).collect();
    tokio::task::spawn_local(async move {
        let removed = world
            .on(by, move |context| async move { membership::removenode(&context, &host_ids, LOSING).await });
        removed.await.unwrap()
    })
}

/// Of six members two die, and are removed by these requests. Everything that a quorum had of which one of the two was a part is
/// still there; with three replicas, what only the two had is lost.
fn two_are_removed(seed: u64, request: impl AsyncFnOnce(&Rc<World>) + 'static) {
    simulate(seed, |world| async move {
        let load = Load::of_members(&world, 6, 100).await;
        // All replicas have everything.
        world.settle().await;
        world.crash(4);
        world.crash(5);
        world.settle().await;
        request(&world).await;
        world.settle().await;
        let view = world.node(1).cluster();
        assert_eq!(view.topology.members.len(), 4);
        assert!(view.topology.is_settled());
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 2, 3], Consistency::Quorum).await;
        // Others can join again.
        world.enter(6).await.unwrap().unwrap();
        load.check(&[0, 1, 2, 3, 6], Consistency::Quorum).await;
    });
}

#[test]
fn two_dead_members_are_removed_with_one_request() {
    two_are_removed(71, async |world| removing(world, 0, &[4, 5]).await.unwrap().unwrap());
}

#[test]
fn a_second_removal_joins_the_one_that_waits_for_its_member() {
    two_are_removed(72, async |world| {
        let first = removing(world, 0, &[4]);
        let begun = Some(MemberState::Leaving(TransitionPhase::WriteBoth));
        wait_until(|| state_of(world, 1, 4) == begun).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!first.is_finished());
        let second = removing(world, 0, &[5]);
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
    });
}

#[test]
fn removals_that_are_requested_of_different_members_go_on_together() {
    two_are_removed(73, async |world| {
        let requests = [removing(world, 0, &[4]), removing(world, 1, &[5])];
        for request in requests {
            request.await.unwrap().unwrap();
        }
    });
}

#[test]
fn the_only_copy_is_given_up_only_with_consent() {
    simulate(74, |world| async move {
        let load = Load::of_members(&world, 4, 50).await;
        world.settle().await;
        world.crash(2);
        let host_ids = BTreeSet::from([world.host_id(2)]);
        let refused = world.on(0, move |context| async move {
            membership::removenode(&context, &host_ids, Consent::default()).await
        });
        let error = refused.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, MembershipError::OnlyCopy(Refusal::OnlyCopy { keyspace, .. }) if keyspace == "one"),
            "{error}"
        );
        assert!(error.to_string().contains("--accept-loss"), "{error}");
        assert_eq!(state_of(&world, 1, 2), Some(MemberState::Normal));
        removenode(&world, 0, 2).await.unwrap();
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3], Consistency::Quorum).await;
    });
}

#[test]
fn a_first_seed_that_lost_its_disk_founds_no_second_cluster() {
    simulate(75, |world| async move {
        let load = Load::of_members(&world, 4, 50).await;
        world.settle().await;
        let address = world.machine(0).address.get();
        let seeds: Vec<_> = (0..4).map(|index| world.machine(index).address.get()).collect();
        world.crash(0);
        world.move_to_another_address(0);
        // The same machine with another disk, and so with another id.
        let config = Config { data_dir: "/data".into(), shards: Some(2), ..Config::default() };
        world.add(Uuid::from_u128(4711), address, config);
        let node = world.boot(4, &seeds).await;
        assert_eq!(node.cluster().topology.version, 0, "it founds nothing");
        let endpoints: Vec<Endpoint> = seeds.iter().map(|seed| (*seed).into()).collect();
        let refused = join(&world.node(4), &endpoints, DEADLINE).await.unwrap_err();
        let is_taken = matches!(&refused, JoinError::Refused(Refusal::AddressTaken { by, .. }) if *by == world.host_id(0));
        assert!(is_taken, "{refused}");
        assert!(refused.to_string().contains("helenus admin removenode"), "{refused}");
        removenode(&world, 1, 0).await.unwrap();
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[1, 2, 3], Consistency::Quorum).await;
        join(&world.node(4), &endpoints, DEADLINE).await.unwrap();
    });
}

/// Starts a node without data, whose seeds are these: whether it belongs to a cluster then.
async fn begin(world: &Rc<World>, index: usize, seeds: &[SocketAddr]) -> Result<bool, RequestError> {
    world.configure(index, |_| {});
    if !world.machine(index).is_up() {
        world.machine(index).boot(async |_| Ok(())).await.unwrap();
    }
    let seeds: Vec<Endpoint> = seeds.iter().map(|seed| (*seed).into()).collect();
    world.on(index, |context| async move { start::start(&context, &seeds).await }).await.unwrap()
}

#[test]
fn a_first_seed_without_its_disk_founds_nothing_while_too_few_others_answer() {
    simulate(76, |world| async move {
        let load = Load::of_members(&world, 3, 50).await;
        world.settle().await;
        let address = world.machine(0).address.get();
        let seeds: Vec<_> = (0..3).map(|index| world.machine(index).address.get()).collect();
        (0..3).for_each(|index| world.crash(index));
        world.move_to_another_address(0);
        let config = Config { data_dir: "/data".into(), shards: Some(2), ..Config::default() };
        world.add(Uuid::from_u128(4711), address, config);
        // After a loss of power it is the first one that is up again.
        let error = begin(&world, 3, &seeds).await.unwrap_err();
        assert!(
            error.to_string().contains("To found a cluster without them, start this node with no other seed"),
            "{error}"
        );
        // One of two is no majority, but it is in the cluster.
        world.crash(3);
        world.boot(1, &[]).await;
        assert!(!begin(&world, 3, &seeds).await.unwrap());
        drop(load);
    });
}

#[test]
fn seeds_that_are_started_together_for_the_first_time_are_one_cluster() {
    simulate(77, |world| async move {
        (0..3).for_each(|index| world.configure(index, |_| {}));
        let seeds: Vec<_> = (0..3).map(|index| world.machine(index).address.get()).collect();
        let later = async |index: u64| {
            tokio::time::sleep(Duration::from_secs(10 * index)).await;
            begin(&world, index as usize, &seeds).await.unwrap()
        };
        let belong = futures::join!(later(0), later(1), later(2));
        assert_eq!(belong, (true, false, false));
        let endpoints: Vec<Endpoint> = seeds.iter().map(|seed| (*seed).into()).collect();
        join(&world.node(1), &endpoints, DEADLINE).await.unwrap();
        assert_eq!(world.node(1).cluster().topology.members.len(), 2);
    });
}
