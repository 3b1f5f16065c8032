//! Ranges that change hands under load: joins, leavings and removals of dead members, new nodes in the place of dead ones, the end of former
//! members, and other numbers of replicas.
//!
//! Invariants:
//! * No more members leave than the keyspace can do without: as many stay as it has replicas.
//! * At most one member whose disk is lost is not removed yet: a second loss could destroy the last copy of a quorum. Where two die at
//!   once, there are five replicas.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus::cluster::membership::{self, Consent};
use helenus_engine::io::{CrashStyle, SplitMix64};
use helenus_execution::shard::status_table::ServingState;
use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::member::MemberState;

use crate::client::{Question, ask};
use crate::machine::{Machine, Part};
use crate::start::{boot, newest_topology, note_if_left};
use crate::workload::other_replication;
use crate::world::{World, pause_ms};

/// Time limit of a removal, after which the transition that it waits for is cancelled.
const REMOVAL_MAX: Duration = Duration::from_secs(20);
/// Time for which a replacement waits for another transition before that is cancelled, in attempts of a second.
const REPLACEMENT_TRIES: usize = 20;
/// Time after which all members know that one is dead.
const TAKEN_FOR_DEAD_MS: u64 = 9_000;
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
    if members.len() <= world.plan.replicas {
        return;
    }
    let machine = members[random.below(members.len() as u64) as usize].clone();
    let center = world.plan.center_of(machine.index);
    let in_center = members.iter().filter(|member| world.plan.center_of(member.index) == center).count();
    if in_center <= world.plan.replicas_of_centers[center] {
        return;
    }
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
            members.len() > world.plan.replicas
        } else {
            !machine.is_serving() && !machine.is_leaving.get()
        }
    });
    // A founder whose join may not be over could still be needed.
    dying.retain(|machine| members.len() > world.plan.replicas || machine.index >= world.plan.nodes);
    if dying.is_empty() {
        return;
    }
    let machine = dying[random.below(dying.len() as u64) as usize].clone();
    die_for_good(world, vec![machine]);
}

/// Destroys two members at once, and removes them, if there are enough others.
pub fn remove_two(world: &Rc<World>, random: &mut SplitMix64) {
    let mut members = settled(world);
    if world.removals.get() > 0 || members.len() < world.plan.replicas + 2 {
        return;
    }
    let mut take = || members.swap_remove(random.below(members.len() as u64) as usize);
    let dying = vec![take(), take()];
    die_for_good(world, dying);
}

fn die_for_good(world: &Rc<World>, dying: Vec<Rc<Machine>>) {
    for machine in &dying {
        world.trace.note(format!("n{} dies for good", machine.index));
        machine.part.set(Part::Gone);
        if machine.is_running() {
            machine.crash(CrashStyle::KeepAll);
        }
    }
    world.removals.set(world.removals.get() + dying.len());
    let mut random = world.random();
    // With one request, or with one for each.
    let requests: Vec<Vec<Rc<Machine>>> = if random.chance(1, 2) {
        vec![dying]
    } else {
        dying.into_iter().map(|machine| vec![machine]).collect()
    };
    for dead in requests {
        let mut random = world.random();
        let comes_back = random.chance(1, 3);
        let shared = world.clone();
        world.spawn(async move {
            while !removed_by_someone(&shared, &dead, &mut random).await {
                pause_ms(1_000).await;
            }
            for machine in &dead {
                shared.trace.note(format!("n{} is removed", machine.index));
                shared.removals.set(shared.removals.get() - 1);
                if comes_back {
                    come_back(&shared, machine).await;
                }
            }
        });
    }
}

/// Destroys a member, and starts a spare machine that takes its place, with the address of the dead one or its own.
pub fn replace(world: &Rc<World>, random: &mut SplitMix64) {
    let members = settled(world);
    let spare = world.machines.iter().rfind(|machine| machine.part.get() == Part::Spare);
    let (0, Some(new), false) = (world.removals.get(), spare.cloned(), members.len() < world.plan.replicas)
    else {
        return;
    };
    let old = members[random.below(members.len() as u64) as usize].clone();
    let takes_address = random.chance(1, 2);
    let comes_back = random.chance(1, 3);
    world.trace.note(format!("n{} dies for good, and n{} takes its place", old.index, new.index));
    old.part.set(Part::Gone);
    if old.is_running() {
        old.crash(CrashStyle::KeepAll);
    }
    world.removals.set(world.removals.get() + 1);
    if takes_address {
        let (theirs, ours) = (old.address.get(), new.address.get());
        old.address.set(ours);
        new.address.set(theirs);
    }
    new.replaces.set(Some((old.host_id, true)));
    let shared = world.clone();
    world.spawn(async move {
        // The others must know that it is dead.
        pause_ms(TAKEN_FOR_DEAD_MS).await;
        new.part.set(Part::Member);
        let is_over =
            || newest_topology(&shared).is_some_and(|topology| topology.removed.contains(&old.host_id));
        let ids = BTreeSet::from([old.host_id, new.host_id]);
        let mut tries = 0;
        while !is_over() {
            boot(&shared, new.clone());
            pause_ms(1_000).await;
            tries += 1;
            if tries % REPLACEMENT_TRIES == 0
                && let Some(asked) = shared.members().into_iter().find(|machine| machine.is_serving())
            {
                abort_other(&shared, &asked, &ids).await;
            }
        }
        shared.trace.note(format!("n{} has the place of n{}", new.index, old.index));
        shared.removals.set(shared.removals.get() - 1);
        if comes_back {
            come_back(&shared, &old).await;
        }
    });
}

/// Asks a member to remove one that is alive and cut off from it, as an operator does who takes it for dead.
pub fn remove_cut_off(world: &Rc<World>, machine: Rc<Machine>, asked: Rc<Machine>) {
    let members = settled(world);
    let is_settled = members.iter().any(|member| Rc::ptr_eq(member, &machine));
    if world.removals.get() > 0 || !is_settled || members.len() <= world.plan.replicas {
        return;
    }
    let Some(context) = asked.context(0).filter(|_| asked.is_serving()) else { return };
    world.trace.note(format!("n{} is taken for dead by n{}", machine.index, asked.index));
    world.removals.set(world.removals.get() + 1);
    machine.is_leaving.set(true);
    let host_ids = BTreeSet::from([machine.host_id]);
    let shared = world.clone();
    world.spawn(async move {
        let removed =
            asked.run(async move { membership::removenode(&context, &host_ids, Consent::default()).await });
        let outcome = removed.await;
        shared.trace.note(format!("the removal of n{} has ended: {outcome:?}", machine.index));
        shared.removals.set(shared.removals.get() - 1);
        if !note_if_left(&shared, &machine, false) {
            // A removal that has begun ends when the member is back.
            machine.is_leaving.set(false);
        }
    });
}

/// Gives the keyspace another number of replicas.
pub fn change_replication(world: &Rc<World>, random: &mut SplitMix64) {
    let factors = world.plan.replication_factors();
    let factor = factors.start() + random.below((factors.end() - factors.start() + 1) as u64) as usize;
    let mut random = world.random();
    let shared = world.clone();
    world.spawn(async move {
        let question = Question::new(other_replication(factor), Consistency::One);
        let altered = shared.ask_any(&mut random, question).await.map(|_| ());
        shared.trace.note(format!("{factor} replicas are wanted: {altered:?}"));
    });
}

/// Asks some member to remove dead ones. Returns whether they are removed.
async fn removed_by_someone(world: &World, dead: &[Rc<Machine>], random: &mut SplitMix64) -> bool {
    let members = world.members();
    let asked = &members[random.below(members.len() as u64) as usize];
    let Some(context) = asked.context(0).filter(|_| asked.is_serving()) else { return false };
    let mut host_ids: BTreeSet<HostId> = dead.iter().map(|machine| machine.host_id).collect();
    // The asked member may not know of a join that has just begun; the leader does.
    let is_known =
        |host_id: &HostId| newest_topology(world).is_some_and(|newest| newest.member(host_id).is_some());
    host_ids.retain(|host_id| context.cluster().topology.member(host_id).is_some());
    if host_ids.is_empty() {
        return !dead.iter().any(|machine| is_known(&machine.host_id));
    }
    let consent = Consent { to_loss: true, ..Consent::default() };
    let names: Vec<usize> = dead.iter().map(|machine| machine.index).collect();
    let asking = asked.run({
        let host_ids = host_ids.clone();
        async move { membership::removenode(&context, &host_ids, consent).await }
    });
    match tokio::time::timeout(REMOVAL_MAX, asking).await {
        Ok(Ok(Ok(()))) => return dead.iter().all(|machine| !is_known(&machine.host_id)),
        Ok(Ok(Err(error))) => {
            world.trace.note(format!("n{} does not remove {names:?}: {error}", asked.index));
        }
        Ok(Err(_)) => {}
        Err(_) => abort_other(world, asked, &host_ids).await,
    }
    false
}

/// Cancels another transition, as an operator would: it may wait for the dead member, while that member's removal
/// waits for it.
async fn abort_other(world: &World, asked: &Machine, dead: &BTreeSet<HostId>) {
    let Some(context) = asked.context(0) else { return };
    let topology = context.cluster().topology.clone();
    if topology.replication_phase().is_some() {
        // The number of replicas of before: the change may wait for the dead member.
        let before = topology.replication_changes.values().find_map(|change| match &change.before {
            Replication::Simple { replication_factor } => Some(*replication_factor as usize),
            _ => None,
        });
        if let Some(before) = before {
            let question = Question::new(other_replication(before), Consistency::One);
            let altered = ask(asked, 0, question).await.map(|_| ());
            world.trace.note(format!("the change of replication is taken back: {altered:?}"));
        }
        return;
    }
    let other = topology.moving().find(|member| !dead.contains(&member.host_id)).cloned();
    let Some(other) = other else { return };
    if topology.moving().any(|member| dead.contains(&member.host_id)) {
        return;
    }
    let host_id = other.host_id;
    let joining = world.machines.iter().find(|machine| {
        matches!(other.state, MemberState::Joining(_))
            && machine.host_id == host_id
            && machine.replaces.get().is_none()
    });
    if let Some(machine) = joining {
        // Started at once it could be faster again than what waits for its end.
        machine.is_held_back.set(true);
    }
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
        (
            topology.moving().map(|member| (member.internode_address, member.state)).collect::<Vec<_>>(),
            &topology.replication_changes,
        ),
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
    let is_over = topology.is_settled() && topology.replication_changes.is_empty();
    world.removals.get() == 0 && is_over && all_know
}
