//! A new node takes the place of a dead member under load: what a quorum had acknowledged before and meanwhile is there afterwards.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::Refusal;
use helenus_testing::virtual_time::wait_until;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::harness::{World, simulate};
use super::joins_and_leaves::{Load, decommission, removenode, state_of};
use helenus::cluster::join::JoinError;
use helenus::cluster::membership::{self, MembershipError};
use helenus::cluster::raft::MetadataLog;
use helenus::node::error::StartError;
use helenus_execution::shard::context::Departure;

type Entered = Option<Result<(), MembershipError>>;

/// Adds the next machine, which is to take the place of `dead`. Rows with one replica are given up.
fn configure(world: &World, index: usize, dead: usize, change: impl FnOnce(&mut Config)) {
    let replaced = world.host_id(dead);
    world.configure(index, |config| {
        config.replace = Some(replaced);
        config.replace_accept_loss = true;
        change(config);
    });
}

fn entering(world: &Rc<World>, index: usize) -> JoinHandle<Entered> {
    let world = world.clone();
    tokio::task::spawn_local(async move { world.enter(index).await })
}

fn tokens_of(world: &World, asked: usize, member: usize) -> Option<Vec<i64>> {
    let view = world.node(asked).cluster();
    view.topology.member(&world.host_id(member)).map(|member| member.tokens.clone())
}

/// Asserts that the new member has the place of the dead one, and that every member has every row.
async fn check_replaced(world: &Rc<World>, load: &Load, dead: usize, new: usize, tokens: &[i64]) {
    world.settle().await;
    let members: Vec<usize> = world.up().iter().map(|machine| machine.index).collect();
    for &index in &members {
        let topology = world.node(index).cluster().topology.clone();
        assert!(topology.is_settled() && topology.replacement.is_none());
        assert_eq!(topology.members.len(), members.len());
        assert_eq!(topology.removed, BTreeSet::from([world.host_id(dead)]));
        assert_eq!(tokens_of(world, index, new).as_deref(), Some(tokens));
        assert!(membership::uncleaned(&world.node(index)).is_empty(), "nobody has given up anything");
    }
    load.acknowledged.borrow_mut().remove("one");
    load.check(&members, Consistency::Quorum).await;
    // Of the three replicas of any range the new member may be one of the two that answer.
    for &other in members.iter().filter(|index| **index != new) {
        world.crash(other);
        let rest: Vec<usize> = members.iter().copied().filter(|index| *index != other).collect();
        load.check(&rest, Consistency::Quorum).await;
        world.enter(other).await.unwrap().unwrap();
        world.settle().await;
    }
}

#[test]
fn a_new_node_takes_the_place_of_a_dead_one_under_load() {
    for (seed, has_its_address) in [(120, false), (121, true)] {
        simulate(seed, move |world| async move {
            let load = Load::of_members(&world, 4, 100).await;
            world.settle().await;
            let tokens = tokens_of(&world, 0, 2).unwrap();
            world.crash(2);
            // It misses these.
            load.write(&[0, 1, 3], 60, Consistency::Quorum).await;
            configure(&world, 4, 2, |_| {});
            if has_its_address {
                let address = world.machine(2).address.get();
                world.move_to_another_address(2);
                world.machine(4).address.set(address);
            }
            let writing = load.begin(&[0, 1, 3], Consistency::Quorum);
            let before = load.acknowledged.borrow()["three"].len();
            world.enter(4).await.unwrap().unwrap();
            load.end(writing).await;
            assert!(load.acknowledged.borrow()["three"].len() > before + 5, "writes go on meanwhile");
            check_replaced(&world, &load, 2, 4, &tokens).await;
            // The dead one learns of it, and the new one ignores the setting from now on.
            let removed = world.enter(2).await;
            assert!(matches!(removed, Some(Err(MembershipError::Removed { .. }) | Ok(()))), "{removed:?}");
            let has_gone = || {
                let context = world.machine(2).context(0);
                context.is_none_or(|context| *context.node.departure.borrow() == Departure::Gone)
            };
            wait_until(has_gone).await;
            world.crash(2);
            assert!(matches!(world.assemble(2).await.err(), Some(StartError::Removed { .. })));
            world.crash(4);
            world.enter(4).await.unwrap().unwrap();
            // It takes no other place.
            world.crash(4);
            world.machine(4).replaces.set(Some((world.host_id(3), false)));
            let error = world.assemble(4).await.err().unwrap();
            assert!(matches!(error, StartError::NotReplacing { .. }), "{error}");
            world.machine(4).replaces.set(None);
            world.enter(4).await.unwrap().unwrap();
        });
    }
}

#[test]
fn a_voter_and_first_seed_is_replaced_and_the_new_one_votes() {
    simulate(122, |world| async move {
        let load = Load::of_members(&world, 3, 60).await;
        world.settle().await;
        let leader = world.leader().unwrap();
        let tokens = tokens_of(&world, leader, leader).unwrap();
        let known = world.host_id(leader);
        world.crash(leader);
        world.settle().await;
        configure(&world, 3, leader, |_| {});
        world.enter(3).await.unwrap().unwrap();
        check_replaced(&world, &load, leader, 3, &tokens).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let (voters, learners) =
            MetadataLog::of(&world.node(world.leader().unwrap())).unwrap().participants();
        assert!(voters.contains(&world.host_id(3)) && voters.len() == 3, "{voters:?}");
        assert!(!voters.contains(&known) && !learners.contains(&known));
    });
}

#[test]
fn a_new_node_that_is_killed_goes_on_with_and_without_the_flag() {
    for seed in 0..4 {
        simulate(130 + seed, move |world| async move {
            let load = Load::of_members(&world, 4, 150).await;
            world.settle().await;
            let tokens = tokens_of(&world, 0, 1).unwrap();
            world.crash(1);
            configure(&world, 4, 1, |_| {});
            let writing = load.begin(&[0, 2, 3], Consistency::Quorum);
            let flag = world.machine(4).replaces.get();
            let mut attempts = 0;
            loop {
                attempts += 1;
                let patience = Duration::from_millis(1 + world.random(40 << attempts.min(8)));
                let entered = tokio::time::timeout(patience, world.enter(4)).await;
                if let Ok(entered) = entered {
                    entered.unwrap().unwrap();
                    break;
                }
                world.crash(4);
                // Without the flag only when it is known: otherwise it would join as another new member.
                let has_begun = state_of(&world, 0, 4).is_some();
                world.machine(4).replaces.set(flag.filter(|_| !has_begun || world.random(2) == 0));
            }
            load.end(writing).await;
            check_replaced(&world, &load, 1, 4, &tokens).await;
        });
    }
}

#[test]
fn writes_at_quorum_go_on_while_the_new_node_is_down_and_an_abort_takes_it_back() {
    simulate(140, |world| async move {
        let load = Load::of_members(&world, 3, 100).await;
        world.settle().await;
        world.crash(2);
        configure(&world, 3, 2, |_| {});
        let joining = entering(&world, 3);
        wait_until(|| state_of(&world, 0, 3).is_some()).await;
        world.crash(3);
        joining.await.unwrap();
        let has_begun = MemberState::Leaving(TransitionPhase::WriteBoth);
        assert_eq!(state_of(&world, 0, 2), Some(has_begun));
        let before = load.acknowledged.borrow()["three"].len();
        load.write(&[0, 1], 40, Consistency::Quorum).await;
        assert_eq!(load.acknowledged.borrow()["three"].len(), before + 40);
        let id = world.host_id(3);
        let aborted = world.on(0, move |context| async move { membership::abort_join(&context, id).await });
        aborted.await.unwrap().unwrap();
        assert_eq!((state_of(&world, 0, 2), state_of(&world, 0, 3)), (Some(MemberState::Normal), None));
        // The dead member is one as before, and may come back.
        world.enter(2).await.unwrap().unwrap();
        world.settle().await;
        load.check(&[0, 1, 2], Consistency::Quorum).await;
        // The new node learns of the abort, and is refused then.
        let error = world.enter(3).await.unwrap().unwrap_err();
        assert!(matches!(error, MembershipError::JoinAborted), "{error}");
        world.crash(3);
        let error = world.enter(3).await.unwrap().unwrap_err();
        let MembershipError::Join(JoinError::Refused(refusal)) = &error else { panic!("{error}") };
        assert!(matches!(refusal, Refusal::ReplacedAlive { .. }), "{error}");
    });
}

#[test]
fn a_new_node_that_is_dead_for_good_is_removed_and_another_one_takes_the_place() {
    simulate(141, |world| async move {
        let load = Load::of_members(&world, 4, 100).await;
        world.settle().await;
        let tokens = tokens_of(&world, 0, 2).unwrap();
        world.crash(2);
        configure(&world, 4, 2, |_| {});
        let joining = entering(&world, 4);
        wait_until(|| state_of(&world, 0, 4).is_some()).await;
        world.crash(4);
        joining.await.unwrap();
        removenode(&world, 1, 4).await.unwrap();
        assert_eq!((state_of(&world, 0, 2), state_of(&world, 0, 4)), (Some(MemberState::Normal), None));
        configure(&world, 5, 2, |_| {});
        world.enter(5).await.unwrap().unwrap();
        check_replaced(&world, &load, 2, 5, &tokens).await;
    });
}

#[test]
fn a_member_that_is_back_takes_its_replacement_back() {
    simulate(142, |world| async move {
        let load = Load::of_members(&world, 5, 100).await;
        world.settle().await;
        world.crash(2);
        // A step waits for this one, which has some ranges in common with it.
        world.crash(3);
        configure(&world, 5, 2, |_| {});
        let joining = entering(&world, 5);
        wait_until(|| state_of(&world, 0, 5).is_some()).await;
        world.enter(2).await.unwrap().unwrap();
        wait_until(|| state_of(&world, 0, 2) == Some(MemberState::Normal)).await;
        let ended = joining.await.unwrap().unwrap();
        assert!(matches!(ended, Err(MembershipError::JoinAborted)), "{ended:?}");
        world.crash(5);
        world.enter(3).await.unwrap().unwrap();
        world.settle().await;
        load.check(&[0, 1, 2, 3, 4], Consistency::Quorum).await;
    });
}

/// The refusal that a node gets that is to take the place of a member.
async fn refused(world: &World, index: usize, of: Uuid) -> Refusal {
    world.configure(index, |config| config.replace = Some(of));
    match world.enter(index).await.unwrap() {
        Err(MembershipError::Join(JoinError::Refused(refusal))) => {
            world.crash(index);
            refusal
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_place_that_cannot_be_taken_is_refused() {
    simulate(143, |world| async move {
        let load = Load::of_members(&world, 4, 50).await;
        world.settle().await;
        let id = world.host_id(2);
        assert!(matches!(refused(&world, 4, Uuid::from_u128(7)).await, Refusal::ReplacedUnknown { .. }));
        assert!(matches!(refused(&world, 5, id).await, Refusal::ReplacedAlive { host_id } if host_id == id));
        world.crash(2);
        // The only copy of some rows.
        let refusal = refused(&world, 6, id).await;
        assert!(matches!(&refusal, Refusal::OnlyCopy { keyspace, .. } if keyspace == "one"), "{refusal}");
        assert!(refusal.to_string().contains("--accept-loss"), "{refusal}");
        world.configure(7, |config| {
            config.replace = Some(id);
            config.rack = "another".to_owned();
        });
        let elsewhere = world.enter(7).await.unwrap().unwrap_err().to_string();
        assert!(elsewhere.contains("set data_center = \"datacenter1\" and rack = \"rack1\""), "{elsewhere}");
        world.crash(7);
        // A node that was refused joins as a new member without the setting.
        world.machine(4).replaces.set(None);
        removenode(&world, 0, 2).await.unwrap();
        assert!(matches!(refused(&world, 8, id).await, Refusal::ReplacedGone { .. }));
        world.enter(4).await.unwrap().unwrap();
        world.settle().await;
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3, 4], Consistency::Quorum).await;
    });
}

#[test]
fn a_replacement_waits_for_its_turn() {
    simulate(144, |world| async move {
        let load = Load::of_members(&world, 5, 100).await;
        world.settle().await;
        let tokens = tokens_of(&world, 0, 2).unwrap();
        wait_until(|| membership::uncleaned(&world.node(0)).is_empty()).await;
        let leaving = {
            let world = world.clone();
            tokio::task::spawn_local(async move { decommission(&world, 4, true).await })
        };
        wait_until(|| state_of(&world, 0, 4) != Some(MemberState::Normal)).await;
        world.crash(2);
        configure(&world, 5, 2, |_| {});
        let joining = entering(&world, 5);
        tokio::time::sleep(Duration::from_secs(10)).await;
        // The leaving waits for the dead member, which gains ranges by it; so it is taken back.
        if !leaving.is_finished() {
            let id = world.host_id(4);
            let aborted =
                world.on(0, move |context| async move { membership::abort_join(&context, id).await });
            let _ = aborted.await.unwrap();
        }
        let has_left = matches!(leaving.await.unwrap(), Some(Ok(())));
        joining.await.unwrap().unwrap().unwrap();
        if has_left {
            world.crash(4);
        }
        world.settle().await;
        assert_eq!(tokens_of(&world, 0, 5), Some(tokens));
        assert_eq!((state_of(&world, 0, 2), state_of(&world, 0, 5)), (None, Some(MemberState::Normal)));
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3, 5], Consistency::Quorum).await;
    });
}
