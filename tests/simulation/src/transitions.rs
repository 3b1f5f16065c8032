//! Members that join and leave under load: joins, leavings and removals of dead members, and the end of former
//! members.
//!
//! Invariants:
//! * No more members leave than the keyspace can do without: as many stay as it has replicas.
//! * At most one member whose disk is lost is not removed yet: a second loss could destroy the last copy of a quorum.

use std::rc::Rc;
use std::time::Duration;

use helenus::cluster::membership;
use helenus_engine::io::{CrashStyle, SplitMix64};
use helenus_execution::shard::status_table::ServingState;
use helenus_ring::member::MemberState;

use crate::machine::{Machine, Part};
use crate::start::{boot, newest_topology, note_if_left};
use crate::world::{World, pause_ms};

/// Number of members that always stay: the replicas of the keyspace.
const MEMBERS_MIN: usize = 3;
/// Time limit of a removal, after which the transition that it waits for is cancelled.
const REMOVAL_MAX: Duration = Duration::from_secs(20);
/// Time within which a removed node must learn of its removal, in attempts of a second.
const AWARENESS_TRIES: usize = 30;

/// A spare machine joins, if there is one.
pub fn join(world: &Rc<World>) {
    let Some(machine) = world.machines.iter().find(|machine| machine.part.get() == Part::Spare) else {
        return;
    };
    world.trace.note(format!("n{} is to join", machine.index));
    machine.part.set(Part::Member);
    boot(world, machine.clone());
}

/// Members that were not asked to leave and are not joining.
fn settled(world: &World) -> Vec<Rc<Machine>> {
    let has_joined = |machine: &Rc<Machine>| {
        newest_topology(world)
            .and_then(|topology| topology.member(&machine.host_id).cloned())
            .is_some_and(|member| member.state == MemberState::Normal)
    };
    let mut members = world.members();
    members.retain(|machine| !machine.is_leaving.get() && has_joined(machine));
    members
}

/// Asks a member to leave, if there are enough others.
pub fn leave(world: &Rc<World>, random: &mut SplitMix64) {
    let members = settled(world);
    if members.len() <= MEMBERS_MIN {
        return;
    }
    let machine = members[random.below(members.len() as u64) as usize].clone();
    let Some(context) = machine.context(0).filter(|_| machine.is_serving()) else { return };
    world.trace.note(format!("n{} is to leave", machine.index));
    machine.is_leaving.set(true);
    let stays_ms = random.below(3_000);
    let comes_back = random.chance(1, 3);
    let shared = world.clone();
    world.spawn(async move {
        let left = machine.run(async move { membership::decommission(&context, false, false).await }).await;
        match left {
            Ok(Ok(())) => {
                shared.trace.note(format!("n{} has left", machine.index));
                machine.part.set(Part::Gone);
                pause_ms(stays_ms).await;
                if machine.is_running() {
                    machine.crash(CrashStyle::KeepAll);
                }
                if comes_back {
                    come_back(&shared, &machine).await;
                }
            }
            // A leaving that has begun continues by itself; healing waits for its end.
            Ok(Err(error)) => {
                shared.trace.note(format!("n{} has not left: {error}", machine.index));
                machine.is_leaving.set(false);
            }
            Err(error) => shared.trace.note(format!("n{} is leaving: {error}", machine.index)),
        }
    });
}

/// Destroys a member, or a joining node, and removes it, if there are enough others.
pub fn remove(world: &Rc<World>, random: &mut SplitMix64) {
    if world.removals.get() > 0 {
        return;
    }
    let members = settled(world);
    let mut dying: Vec<Rc<Machine>> = world.members();
    dying.retain(|machine| {
        let is_settled = members.iter().any(|member| Rc::ptr_eq(member, machine));
        if is_settled {
            members.len() > MEMBERS_MIN
        } else {
            !machine.is_serving() && !machine.is_leaving.get()
        }
    });
    // A founder whose join may not be over could still be needed.
    dying.retain(|machine| members.len() > MEMBERS_MIN || machine.index >= world.plan.nodes);
    if dying.is_empty() {
        return;
    }
    let machine = dying[random.below(dying.len() as u64) as usize].clone();
    world.trace.note(format!("n{} dies for good", machine.index));
    machine.part.set(Part::Gone);
    if machine.is_running() {
        machine.crash(CrashStyle::KeepAll);
    }
    world.removals.set(world.removals.get() + 1);
    let mut random = world.random();
    let comes_back = random.chance(1, 3);
    let shared = world.clone();
    world.spawn(async move {
        while !removed_by_someone(&shared, &machine, &mut random).await {
            pause_ms(1_000).await;
        }
        shared.trace.note(format!("n{} is removed", machine.index));
        shared.removals.set(shared.removals.get() - 1);
        if comes_back {
            come_back(&shared, &machine).await;
        }
    });
}

/// Asks some member to remove a dead one. Returns whether it is removed.
async fn removed_by_someone(world: &World, dead: &Machine, random: &mut SplitMix64) -> bool {
    let members = world.members();
    let asked = &members[random.below(members.len() as u64) as usize];
    let Some(context) = asked.context(0).filter(|_| asked.is_serving()) else { return false };
    if context.cluster().topology.member(&dead.host_id).is_none() {
        // The asked member may not know of a join that has just begun; the leader does.
        let is_known = newest_topology(world).is_some_and(|newest| newest.member(&dead.host_id).is_some());
        return !is_known;
    }
    let host_id = dead.host_id;
    let asking = asked.run(async move { membership::removenode(&context, host_id, false).await });
    match tokio::time::timeout(REMOVAL_MAX, asking).await {
        Ok(Ok(Ok(()))) => return true,
        Ok(Ok(Err(error))) => {
            world.trace.note(format!("n{} does not remove n{}: {error}", asked.index, dead.index));
        }
        Ok(Err(_)) => {}
        Err(_) => abort_other(world, asked, dead).await,
    }
    false
}

/// Cancels another transition, as an operator would: it may wait for the dead member, while that member's removal
/// waits for it.
async fn abort_other(world: &World, asked: &Machine, dead: &Machine) {
    let Some(context) = asked.context(0) else { return };
    let other = context.cluster().topology.in_transition().cloned();
    let Some(other) = other.filter(|member| member.host_id != dead.host_id) else { return };
    let host_id = other.host_id;
    let aborted = asked.run(async move { membership::abort_join(&context, host_id).await }).await;
    world.trace.note(format!("{:?} of {} is cancelled: {aborted:?}", other.state, other.internode_address));
}

/// Switches a former member's machine on again with its old disk: its node must not serve.
async fn come_back(world: &Rc<World>, machine: &Rc<Machine>) {
    let is_removed =
        newest_topology(world).is_some_and(|topology| topology.removed.contains(&machine.host_id));
    // A node that died before it was a member may become one with another attempt.
    if !is_removed || world.is_load_over.get() {
        return;
    }
    world.trace.note(format!("n{} is switched on again", machine.index));
    if let Err(error) = machine.boot().await {
        world.trace.note(format!("n{} does not start again: {error}", machine.index));
    } else {
        let knows = || match machine.context(0) {
            Some(context) => context.node.status.state() == ServingState::Removed,
            None => true,
        };
        let mut tries = AWARENESS_TRIES;
        while !knows() && tries > 0 {
            // In a partition no other node can notify it.
            tries -= usize::from(world.is_load_over.get());
            pause_ms(1_000).await;
        }
        if !knows() {
            world.violation(format!("n{} was removed, and serves again", machine.index));
        }
    }
    if machine.is_running() {
        machine.crash(CrashStyle::KeepAll);
    }
}

/// Describes what transitions wait for.
pub fn describe(world: &World) -> String {
    let Some(topology) = newest_topology(world) else { return "no node knows the members".to_owned() };
    let members = world.members();
    let versions = members
        .iter()
        .map(|machine| (machine.index, machine.context(0).map(|context| context.cluster().topology.version)));
    format!(
        "{} dead ones are not removed; in transition: {:?}; metadata has version {}, members are at {:?}",
        world.removals.get(),
        topology.in_transition().map(|member| (member.internode_address, member.state)),
        topology.version,
        versions.collect::<Vec<_>>(),
    )
}

/// Whether all transitions are over: the machines that are members are the members of the cluster, and none is
/// joining or leaving. Records the members that have left while they were down.
pub fn are_over(world: &World) -> bool {
    let Some(topology) = newest_topology(world) else { return false };
    for machine in world.members() {
        note_if_left(world, &machine, false);
    }
    let all_know = world.members().iter().all(|machine| {
        machine.context(0).is_some_and(|context| context.cluster().topology.version == topology.version)
    });
    world.removals.get() == 0 && topology.in_transition().is_none() && all_know
}
