//! Nodes that start, also after a fault or a change of members, and what is made of those that do not.

use std::rc::Rc;
use std::sync::Arc;

use helenus_engine::io::CrashStyle;
use helenus_ring::topology::Topology;

use crate::machine::{Machine, Part};
use crate::plan::FaultKind;
use crate::world::{World, pause_ms};

/// Pause before a node whose join was cancelled is restarted.
const RESTART_MS: u64 = 5_000;
/// Time until a wrong clock is corrected.
const CLOCK_MS: u64 = 500;

/// Runs an action later, unless the load is over by then: healing undoes everything itself.
pub fn later(world: &Rc<World>, after_ms: u64, action: impl FnOnce(&Rc<World>) + 'static) {
    let shared = world.clone();
    world.spawn(async move {
        pause_ms(after_ms).await;
        if !shared.is_load_over.get() {
            action(&shared);
        }
    });
}

/// Switches a machine on, if it is a member or about to become one.
pub fn boot(world: &Rc<World>, machine: Rc<Machine>) {
    if machine.is_running() || !machine.is_member() {
        return;
    }
    if machine.is_held_back.get() && world.removals.get() > 0 {
        return;
    }
    machine.is_held_back.set(false);
    let shared = world.clone();
    world.spawn(async move {
        if let Err(error) = machine.boot().await {
            not_started(&shared, machine, &error);
        }
    });
}

fn not_started(world: &Rc<World>, machine: Rc<Machine>, error: &str) {
    world.trace.note(format!("n{} does not start: {error}", machine.index));
    // The node itself may know it before other running nodes.
    let says_so = machine.is_leaving.get() && error.contains("was removed from the cluster");
    if note_if_left(world, &machine, says_so) {
        return;
    }
    let is_excused =
        world.plan.faults.iter().any(|kind| {
            matches!(kind, FaultKind::FullDisk | FaultKind::FailedSync | FaultKind::CorruptReads)
        });
    // A crash during the start has stopped the node already.
    if machine.is_running() {
        if error.contains("the clocks are") {
            // As an operator would do after reading the log.
            world.trace.note(format!("the clock of n{} is set right", machine.index));
            machine.set_clock_right();
            machine.crash(CrashStyle::KeepAll);
            return later(world, CLOCK_MS, move |world| boot(world, machine));
        }
        let is_aborted = error.contains("aborted");
        // The leader has not noticed yet that the member is dead whose place the node takes; it is started again.
        let is_early = machine.replaces.get().is_some() && error.contains("only a dead one can be replaced");
        if !is_excused && !is_aborted && !is_early {
            world.violation(format!("n{} does not start: {error}", machine.index));
        }
        machine.crash(CrashStyle::KeepAll);
        if is_aborted {
            later(world, RESTART_MS, move |world| boot(world, machine));
        }
    }
}

/// Records that a machine is not a member any more, according to its own node or to others. Returns whether it is one
/// no more.
pub fn note_if_left(world: &World, machine: &Rc<Machine>, says_so: bool) -> bool {
    let has_left =
        says_so || newest_topology(world).is_some_and(|topology| topology.removed.contains(&machine.host_id));
    if has_left {
        world.trace.note(format!("n{} has left", machine.index));
        machine.part.set(Part::Gone);
        if machine.is_running() {
            machine.crash(CrashStyle::KeepAll);
        }
    }
    has_left
}

/// The newest topology of any node.
pub fn newest_topology(world: &World) -> Option<Arc<Topology>> {
    let views =
        world.machines.iter().filter_map(|machine| machine.context(0)).map(|context| context.cluster());
    views.map(|view| view.topology.clone()).max_by_key(|topology| topology.version)
}
