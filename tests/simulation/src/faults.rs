//! The schedule of faults, and their end.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{CrashStyle, Fault, Persistence, ReadCorruption, SplitMix64};

use crate::lost_files;
use crate::machine::Machine;
use crate::network::Link;
use crate::plan::FaultKind;
use crate::repairs;
use crate::start::{boot, later};
use crate::transitions;
use crate::world::{World, pause_ms};

/// Time limit for a node to come up after healing.
const START_MAX: Duration = Duration::from_mins(1);
/// Time limit for a node to come up if members join and leave: each waits for its turn and for its data.
const TRANSITIONS_MAX: Duration = Duration::from_mins(8);
/// Interval between checks after healing.
const LOOK_MS: u64 = 200;
/// Most bytes for which a full disk still has room.
const LAST_BYTES: u64 = 20_000;
/// Time after which a machine with corrupt reads comes back.
const CORRUPT_RESTART_MS: u64 = 100;
/// Most flipped bits of a corrupt read.
const CORRUPT_BITS_MAX: u64 = 3;
/// Time after which a member that is cut off is taken for dead.
const TAKEN_FOR_DEAD_MS: u64 = 8_000;
/// Longest sync of a slow disk.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// Injects the faults of the plan until the load is over.
pub async fn inject(world: Rc<World>) {
    let mut random = world.random();
    if world.plan.faults.is_empty() {
        return;
    }
    if world.plan.faults.contains(&FaultKind::BadLink) {
        world.links.duplicates_per_mille.set(random.below(100));
    }
    loop {
        pause_ms(100 + random.below(world.plan.calm.as_millis() as u64 - 100)).await;
        if world.is_load_over.get() {
            return;
        }
        let kind = world.plan.faults[random.below(world.plan.faults.len() as u64) as usize];
        let longest_ms = if random.chance(1, 4) { 8_000 } else { 1_500 };
        let duration_ms = 50 + random.below(longest_ms);
        let members = world.members();
        let machine = members[random.below(members.len() as u64) as usize].clone();
        begin(&world, kind, machine, duration_ms, &mut random);
    }
}

fn style(random: &mut SplitMix64) -> CrashStyle {
    CrashStyle::ALL[random.below(CrashStyle::ALL.len() as u64) as usize]
}

fn begin(
    world: &Rc<World>,
    kind: FaultKind,
    machine: Rc<Machine>,
    duration_ms: u64,
    random: &mut SplitMix64,
) {
    let node = machine.index;
    world.trace.note(format!("{kind:?} of n{node} for {duration_ms} ms"));
    match kind {
        FaultKind::Crash => crash_and_restart(world, machine, style(random), duration_ms),
        FaultKind::PowerLoss => {
            // A failing power supply may slow the disks down first: then more writes are in flight at the power loss.
            let warning_ms = if random.chance(1, 3) { 50 + random.below(500) } else { 0 };
            let style = random.chance(1, 2).then(|| style(random));
            if warning_ms > 0 {
                world.members().iter().for_each(|machine| machine.pace.set_slow(Some(SLOW_MAX)));
            }
            let center = world.plan.center_of(node);
            // Or a data center's.
            let is_of_center = world.plan.centers() > 1 && random.chance(1, 2);
            let mut random = world.random();
            later(world, warning_ms, move |world| {
                for machine in world.members() {
                    machine.pace.set_slow(None);
                    if is_of_center && world.plan.center_of(machine.index) != center {
                        continue;
                    }
                    let style = style.unwrap_or_else(|| self::style(&mut random));
                    crash_and_restart(world, machine, style, duration_ms + random.below(500));
                }
            });
        }
        FaultKind::Partition | FaultKind::LongPartition => {
            let is_long = kind == FaultKind::LongPartition;
            if world.is_divided.replace(is_long) {
                return world.is_divided.set(true);
            }
            let duration_ms = if is_long { 10_000 + random.below(50_000) } else { duration_ms };
            if is_long {
                later(world, duration_ms, |world| world.is_divided.set(false));
            }
            let others: Vec<usize> =
                (0..world.machines.len()).filter(|other| *other != node && random.chance(1, 3)).collect();
            let (plan, center) = (&world.plan, world.plan.center_of(node));
            let cuts_center = plan.centers() > 1 && random.chance(1, 2);
            let is_inside = |index: usize| {
                if cuts_center {
                    plan.center_of(index) == center
                } else {
                    index == node || others.contains(&index)
                }
            };
            let pairs: Vec<(usize, usize)> =
                pairs(world.machines.len()).filter(|(from, to)| is_inside(*from) != is_inside(*to)).collect();
            change_links(world, pairs, Link { is_cut: true, ..Link::default() }, duration_ms);
            let outside = members_of(world, |index| !is_inside(index));
            // With one replica its data would be lost.
            if is_long && random.chance(1, 2) && *world.plan.replication_factors().start() > 1 {
                let asked = outside.get(random.below(outside.len().max(1) as u64) as usize).cloned();
                later(world, TAKEN_FOR_DEAD_MS, move |world| {
                    if let Some(asked) = asked {
                        transitions::remove_cut_off(world, machine, asked);
                    }
                });
            }
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
                let offset = &machine.clock.skew.offset_micros;
                let most = world.plan.clock_offset_micros_max();
                offset.set((offset.get() + jump).clamp(-most, most));
            } else {
                machine.clock.skew.drift_ppm.set(random.below(4_000) as i64 - 2_000);
            }
        }
        FaultKind::SlowDisk => {
            // Machines may share the cause of being slow.
            let machines = if random.chance(1, 3) { world.members() } else { vec![machine] };
            let sync_max = Duration::from_millis(20 + random.below(SLOW_MAX.as_millis() as u64));
            for machine in &machines {
                machine.pace.set_slow(Some(sync_max));
            }
            later(world, duration_ms, move |_| {
                for machine in &machines {
                    machine.pace.set_slow(None);
                }
            });
        }
        FaultKind::FullDisk => {
            machine.disk.set_capacity_bytes(machine.disk.used_bytes() + random.below(LAST_BYTES));
            later(world, duration_ms, move |world| {
                machine.disk.set_capacity_bytes(u64::MAX);
                let fails_otherwise = |kind| matches!(kind, FaultKind::FailedSync | FaultKind::CorruptReads);
                if let Some(failure) = machine.failure()
                    && !world.plan.faults.iter().copied().any(fails_otherwise)
                {
                    world.violation(format!("n{node} needs a restart after its disk was full: {failure}"));
                }
                restart_if_failed(world, machine);
            });
        }
        FaultKind::FailedSync => {
            machine.disk.fail_at(machine.disk.operations() + random.below(30), Fault::Error);
            later(world, duration_ms, move |world| restart_if_failed(world, machine));
        }
        FaultKind::CorruptReads => {
            machine.disk.set_read_corruption(Some(ReadCorruption {
                // The files beside the shards are read at the start only. Some are JSON without a checksum.
                path_contains: "shard-".to_owned(),
                reads_per_mille: 20 + random.below(200),
                bits_max: CORRUPT_BITS_MAX,
                persistence: Persistence::Transient,
            }));
            // Most files are read at the start.
            crash_and_restart(world, machine.clone(), style(random), CORRUPT_RESTART_MS);
            later(world, CORRUPT_RESTART_MS + duration_ms, move |world| {
                machine.disk.set_read_corruption(None);
                boot(world, machine);
            });
        }
        FaultKind::LostFile => {
            if machine.is_running() {
                machine.crash(style(random));
                lost_files::lose(world, &machine, random);
                later(world, duration_ms, move |world| boot(world, machine));
            }
        }
        FaultKind::Join => transitions::join(world),
        FaultKind::Leave => transitions::leave(world, random),
        FaultKind::Remove => transitions::remove(world, random),
        FaultKind::RemoveTwo => transitions::remove_two(world, random),
        FaultKind::Replication => transitions::change_replication(world, random),
        FaultKind::Repair => repairs::begin(world, machine),
        FaultKind::Replace => transitions::replace(world, random),
    }
}

fn members_of(world: &World, is_wanted: impl Fn(usize) -> bool) -> Vec<Rc<Machine>> {
    world.members().into_iter().filter(|machine| is_wanted(machine.index)).collect()
}

fn pairs(nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

fn change_links(world: &Rc<World>, pairs: Vec<(usize, usize)>, link: Link, duration_ms: u64) {
    for (from, to) in &pairs {
        world.links.set_link(*from, *to, link);
    }
    later(world, duration_ms, move |world| {
        for (from, to) in pairs {
            world.links.set_link(from, to, Link::default());
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

/// Ends all faults and starts every node.
pub async fn heal(world: &Rc<World>) {
    world.trace.note("all faults end");
    world.links.heal();
    for machine in &world.machines {
        if world.plan.changes_owners() {
            // Nodes whose clocks differ too much cannot join.
            machine.set_clock_right();
        }
        machine.set_paused(false);
        machine.pace.set_slow(None);
        machine.disk.set_capacity_bytes(u64::MAX);
        machine.disk.clear_faults();
        machine.disk.set_read_corruption(None);
    }
    let patience = if world.plan.changes_owners() { TRANSITIONS_MAX } else { START_MAX };
    let deadline = world.trace.now_micros() + patience.as_micros() as u64;
    loop {
        let mut all_serve = true;
        for machine in &world.members() {
            restart_if_failed(world, machine.clone());
            boot(world, machine.clone());
            all_serve &= machine.is_serving() && lost_files::put_back(world, machine).await;
        }
        // First, because it records the members that have left and serve no more.
        if transitions::are_over(world) && all_serve && all_see_all(world) {
            return;
        }
        if world.trace.now_micros() > deadline {
            let members = world.members();
            let down = members.iter().filter(|machine| !machine.is_serving()).map(|machine| machine.index);
            return world.violation(format!(
                "after healing nodes {:?} do not come up; all are seen alive: {}; {}",
                down.collect::<Vec<_>>(),
                all_see_all(world),
                transitions::describe(world),
            ));
        }
        pause_ms(LOOK_MS).await;
    }
}

/// Whether every member counts every member as alive.
pub fn all_see_all(world: &World) -> bool {
    let members = world.members();
    members.iter().all(|machine| {
        let view = machine.context(0).map(|context| context.cluster());
        view.is_some_and(|view| members.iter().all(|other| view.is_alive(&other.host_id)))
    })
}
