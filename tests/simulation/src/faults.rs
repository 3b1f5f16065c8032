//! The schedule of faults, and their end.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{CrashStyle, Fault, SplitMix64};

use crate::machine::Machine;
use crate::network::Link;
use crate::plan::FaultKind;
use crate::world::{World, pause_ms};

/// How long a node may take to come up once everything is well.
const START_MAX: Duration = Duration::from_mins(1);
/// What a full disk still has room for, in bytes at most.
const LAST_BYTES: u64 = 20_000;

/// Does what the plan says until the load is over.
pub async fn inject(world: Rc<World>) {
    let mut random = world.random();
    if world.plan.faults.is_empty() {
        return;
    }
    if world.plan.faults.contains(&FaultKind::BadLink) {
        world.network.duplicates_per_mille.set(random.below(100));
    }
    loop {
        pause_ms(100 + random.below(2_500)).await;
        if world.is_load_over.get() {
            return;
        }
        let kind = world.plan.faults[random.below(world.plan.faults.len() as u64) as usize];
        let longest_ms = if random.chance(1, 4) { 8_000 } else { 1_500 };
        let duration_ms = 50 + random.below(longest_ms);
        let node = random.below(world.machines.len() as u64) as usize;
        begin(&world, kind, node, duration_ms, &mut random);
    }
}

fn style(random: &mut SplitMix64) -> CrashStyle {
    CrashStyle::ALL[random.below(CrashStyle::ALL.len() as u64) as usize]
}

fn begin(world: &Rc<World>, kind: FaultKind, node: usize, duration_ms: u64, random: &mut SplitMix64) {
    let machine = world.machines[node].clone();
    world.trace.note(format!("{kind:?} of n{node} for {duration_ms} ms"));
    match kind {
        FaultKind::Crash => crash_and_restart(world, machine, style(random), duration_ms),
        FaultKind::PowerLoss => {
            for machine in &world.machines {
                let own_ms = duration_ms + random.below(500);
                crash_and_restart(world, machine.clone(), style(random), own_ms);
            }
        }
        FaultKind::Partition => {
            let others: Vec<usize> =
                (0..world.machines.len()).filter(|other| *other != node && random.chance(1, 3)).collect();
            let is_inside = |index: usize| index == node || others.contains(&index);
            let pairs: Vec<(usize, usize)> =
                pairs(world.machines.len()).filter(|(from, to)| is_inside(*from) != is_inside(*to)).collect();
            change_links(world, pairs, Link { is_cut: true, ..Link::default() }, duration_ms);
        }
        FaultKind::OneWay => {
            let incoming = random.chance(1, 2);
            let pairs: Vec<(usize, usize)> = pairs(world.machines.len())
                .filter(|(from, to)| if incoming { *to == node } else { *from == node })
                .filter(|_| random.chance(2, 3))
                .collect();
            change_links(world, pairs, Link { is_cut: true, ..Link::default() }, duration_ms);
        }
        FaultKind::BadLink => {
            let link = Link {
                is_cut: false,
                delay: Duration::from_millis(random.below(400)),
                loss_per_mille: random.below(300),
            };
            let pairs: Vec<(usize, usize)> =
                pairs(world.machines.len()).filter(|(from, to)| *from == node || *to == node).collect();
            change_links(world, pairs, link, duration_ms);
        }
        FaultKind::Pause => {
            machine.set_paused(true);
            later(world, duration_ms, move |_| machine.set_paused(false));
        }
        FaultKind::Clock => {
            if random.chance(1, 2) {
                let most = if random.chance(1, 4) { 600_000_000 } else { 3_000_000 };
                let jump = random.below(2 * most) as i64 - most as i64;
                machine.skew.offset_micros.set(machine.skew.offset_micros.get() + jump);
            } else {
                machine.skew.drift_ppm.set(random.below(4_000) as i64 - 2_000);
            }
        }
        FaultKind::SlowDisk => {
            machine.pace.set_slow(Some(Duration::from_millis(20 + random.below(1_000))));
            later(world, duration_ms, move |_| machine.pace.set_slow(None));
        }
        FaultKind::FullDisk => {
            machine.disk.set_capacity_bytes(machine.disk.used_bytes() + random.below(LAST_BYTES));
            later(world, duration_ms, move |world| {
                machine.disk.set_capacity_bytes(u64::MAX);
                restart_if_failed(world, machine);
            });
        }
        FaultKind::FailedSync => {
            machine.disk.fail_at(machine.disk.operations() + random.below(30), Fault::Error);
            later(world, duration_ms, move |world| restart_if_failed(world, machine));
        }
    }
}

fn pairs(nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// Does something later, unless the load is over then: the end undoes everything itself.
fn later(world: &Rc<World>, after_ms: u64, action: impl FnOnce(&Rc<World>) + 'static) {
    let shared = world.clone();
    world.spawn(async move {
        pause_ms(after_ms).await;
        if !shared.is_load_over.get() {
            action(&shared);
        }
    });
}

fn change_links(world: &Rc<World>, pairs: Vec<(usize, usize)>, link: Link, duration_ms: u64) {
    for (from, to) in &pairs {
        world.network.set_link(*from, *to, link);
    }
    later(world, duration_ms, move |world| {
        for (from, to) in pairs {
            world.network.set_link(from, to, Link::default());
        }
    });
}

fn crash_and_restart(world: &Rc<World>, machine: Rc<Machine>, style: CrashStyle, down_ms: u64) {
    if machine.is_running() {
        machine.crash(style);
        later(world, down_ms, move |world| boot(world, machine));
    }
}

fn restart_if_failed(world: &Rc<World>, machine: Rc<Machine>) {
    if let Some(failure) = machine.failure() {
        world.trace.note(format!("n{} has failed: {failure}", machine.index));
        machine.crash(CrashStyle::KeepAll);
        boot(world, machine);
    }
}

fn boot(world: &Rc<World>, machine: Rc<Machine>) {
    if machine.is_running() {
        return;
    }
    let shared = world.clone();
    world.spawn(async move {
        if let Err(error) = machine.boot().await {
            not_started(&shared, &machine, &error);
        }
    });
}

fn not_started(world: &World, machine: &Machine, error: &str) {
    world.trace.note(format!("n{} does not start: {error}", machine.index));
    let is_excused =
        world.plan.faults.iter().any(|kind| matches!(kind, FaultKind::FullDisk | FaultKind::FailedSync));
    // A crash on the way has taken the node down already.
    if machine.is_running() {
        if !is_excused {
            world.violation(format!("n{} does not start: {error}", machine.index));
        }
        machine.crash(CrashStyle::KeepAll);
    }
}

/// Ends all faults and brings every node up.
pub async fn heal(world: &Rc<World>) {
    world.trace.note("all faults end");
    world.network.heal();
    for machine in &world.machines {
        machine.set_paused(false);
        machine.pace.set_slow(None);
        machine.disk.set_capacity_bytes(u64::MAX);
        machine.disk.clear_faults();
    }
    let deadline = world.trace.now_micros() + START_MAX.as_micros() as u64;
    loop {
        let mut all_serve = true;
        for machine in &world.machines {
            restart_if_failed(world, machine.clone());
            boot(world, machine.clone());
            all_serve &= machine.is_serving();
        }
        if all_serve {
            return;
        }
        if world.trace.now_micros() > deadline {
            let down: Vec<usize> = world
                .machines
                .iter()
                .filter(|machine| !machine.is_serving())
                .map(|machine| machine.index)
                .collect();
            return world.violation(format!("after healing, nodes {down:?} do not come up"));
        }
        pause_ms(500).await;
    }
}
