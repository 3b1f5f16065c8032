//! Roles: each client grants a permission to a role of its own, revokes it again, and asks all nodes whether the role has it.
//!
//! Guarantees checked:
//! * what was revoked is refused by every node once the nodes' limit for unconfirmed roles has passed since the revocation was
//!   acknowledged, also by nodes that are cut off; without faults at once;
//! * in the end every node allows what was granted and refuses what was revoked.
//!
//! A change without an answer may be carried out later, so the client goes on with another role.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::authorize;
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use crate::client::Question;
use crate::machine::Machine;
use crate::world::{World, pause_ms};

/// How long a node goes on with roles that it cannot confirm.
pub const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);
/// Time for all nodes to learn the last changes after healing.
const LEARNING_MAX: Duration = Duration::from_mins(1);
/// What the permission is for.
const READ: &str = "SELECT v FROM sim.registers";

/// What was acknowledged for a role.
#[derive(Debug, Clone)]
struct Known {
    role: String,
    may_read: bool,
}

#[derive(Default)]
pub struct Roles {
    last: Cell<u32>,
    /// The roles with no change under way or without an answer.
    known: RefCell<Vec<Known>>,
}

impl Workload for Roles {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                let Some(known) = self.use_role(&world, &mut random).await else { continue };
                self.known.borrow_mut().push(known);
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let deadline = world.trace.now_micros() + LEARNING_MAX.as_micros() as u64;
            let all = self.known.take();
            while let Some(wrong) = all.iter().find_map(|known| wrong(&world, known)) {
                if world.trace.now_micros() > deadline {
                    return world.violation(format!("after healing, {wrong}"));
                }
                pause_ms(500).await;
            }
        })
    }
}

impl Roles {
    /// Makes a role and changes what it may do, until the load is over. `None`: a change had no answer.
    async fn use_role(&self, world: &World, random: &mut SplitMix64) -> Option<Known> {
        self.last.set(self.last.get() + 1);
        let role = format!("reader{}", self.last.get());
        change(world, random, format!("CREATE ROLE {role}")).await?;
        let mut known = Known { role, may_read: false };
        while !world.is_load_over.get() {
            let Known { role, may_read } = &known;
            let statement = if *may_read {
                format!("REVOKE SELECT ON TABLE sim.registers FROM {role}")
            } else {
                format!("GRANT SELECT ON TABLE sim.registers TO {role}")
            };
            change(world, random, statement).await?;
            known.may_read = !known.may_read;
            if known.may_read {
                pause_ms(random.below(1_000)).await;
            } else {
                watch_revoked(world, random, &known.role).await;
            }
        }
        Some(known)
    }
}

async fn change(world: &World, random: &mut SplitMix64, statement: String) -> Option<()> {
    let outcome = world.ask_any(random, Question::new(statement.clone(), Consistency::One)).await;
    match &outcome {
        Ok(_) => world.trace.note(format!("{statement}: acknowledged")),
        Err(error) => world.trace.note(format!("{statement}: {error}")),
    }
    if outcome.is_err() {
        pause_ms(random.below(500)).await;
    }
    outcome.ok().map(drop)
}

/// Asks all nodes for a while what a role may do from which its permission was just revoked.
async fn watch_revoked(world: &World, random: &mut SplitMix64, role: &str) {
    let acknowledged = world.trace.now_micros();
    let wait = if world.plan.faults.is_empty() { Duration::ZERO } else { UNCONFIRMED_MAX };
    let from = acknowledged + wait.as_micros() as u64;
    let until = from + random.below(3_000_000);
    while world.trace.now_micros() < until && !world.is_load_over.get() {
        if world.trace.now_micros() > from
            && let Some(machine) = world.members().iter().find(|machine| may_read(machine, role))
        {
            let since_ms = (world.trace.now_micros() - acknowledged) / 1_000;
            return world.violation(format!(
                "n{} lets {role} read {since_ms} ms after the revocation was acknowledged",
                machine.index
            ));
        }
        pause_ms(100).await;
    }
}

/// Whether a shard of a node lets a role read.
fn may_read(machine: &Machine, role: &str) -> bool {
    machine.is_serving() && machine.contexts().iter().any(|context| authorize(context, role, READ).is_ok())
}

/// What a member does with a role that differs from what was acknowledged; `None`: nothing.
fn wrong(world: &World, known: &Known) -> Option<String> {
    let Known { role, may_read } = known;
    for machine in world.members() {
        for context in machine.contexts() {
            let allowed = authorize(&context, role, READ);
            if allowed.is_ok() != *may_read {
                let (may, does) = if *may_read { ("may", "not let it") } else { ("must not", "let it") };
                let why = allowed.err().map(|error| format!(": {error}")).unwrap_or_default();
                return Some(format!("{role} {may} read, but n{} does {does}{why}", machine.index));
            }
        }
    }
    None
}
