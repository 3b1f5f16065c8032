//! Repairs in the midst of faults, and one at the end that must make all replicas equal.

use std::rc::Rc;

use helenus_execution::coordinator::repair::job;
use helenus_execution::coordinator::repair::runs::RepairScope;

use crate::machine::Machine;
use crate::world::{World, pause_ms};

/// Attempts of the repair at the end: members may still be taken for dead.
const ATTEMPTS: usize = 10;

/// Starts a repair of everything on a node. It may fail, because of the other faults.
pub fn begin(world: &Rc<World>, machine: Rc<Machine>) {
    let trace = world.trace.clone();
    tokio::task::spawn_local(async move {
        let told = repair(&machine).await.err().unwrap_or_else(|| "done".to_owned());
        trace.note(format!("a repair from n{}: {told}", machine.index));
    });
}

/// Repairs everything when all faults are over.
pub async fn repair_everything(world: &World) {
    let mut random = world.random();
    let mut told = "no member".to_owned();
    for _ in 0..ATTEMPTS {
        let members = world.members();
        if let Some(machine) = members.get(random.below(members.len().max(1) as u64) as usize) {
            match repair(machine).await {
                Ok(()) => return,
                Err(error) => told = error,
            }
        }
        pause_ms(1_000).await;
    }
    world.violation(format!("after healing, a repair fails: {told}"));
}

async fn repair(machine: &Rc<Machine>) -> Result<(), String> {
    let Some(context) = machine.context(0) else { return Err("the node is down".to_owned()) };
    let repaired = async move { job::repair(&context, RepairScope::default()).await.map(drop) };
    machine.run(repaired).await?.map_err(|error| error.to_string())
}
