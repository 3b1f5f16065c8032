//! Registers: rows whose value is the timestamp of their last write, written and deleted with timestamps of the
//! clients.
//!
//! Guarantees checked:
//! * a QUORUM read sees every write that was acknowledged at QUORUM before it began, and (if no node crashes) nothing older than the data that an
//!   earlier QUORUM read has seen, whoever owns the row by then: read repair comes before the answer;
//! * a `LOCAL_QUORUM` read in any data center sees every write that was acknowledged at `EACH_QUORUM` or ALL before it began;
//! * deleted rows do not come back;
//! * only written values are read;
//! * after healing, writes that were acknowledged at any level are there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;
use helenus_testing::clock::START_MICROS;

use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

const PARTITIONS: u64 = 5;
const ROWS: u64 = 4;

/// Partition key and clustering key of a register.
type RegisterKey = (i64, i64);

#[derive(Debug, Default, Clone)]
struct Register {
    written: BTreeSet<i64>,
    deleted: BTreeSet<i64>,
    /// No QUORUM read may see a value older than this.
    floor: i64,
    /// No `LOCAL_QUORUM` read may see a value older than this.
    floor_of_centers: i64,
    /// The newest value that was acknowledged at any level.
    acknowledged: i64,
}

impl Register {
    /// The reason why a read cannot have seen this, if it cannot.
    fn refutes(&self, seen: Option<i64>, floor: i64) -> Option<&'static str> {
        match seen {
            Some(value) if !self.written.contains(&value) => Some("was never written"),
            Some(value) if value < floor => Some("is older than what was acknowledged or seen before"),
            None if floor > 0 && self.deleted.range(floor..).next().is_none() => {
                Some("(no row) is a lost write")
            }
            Some(_) | None => None,
        }
    }
}

#[derive(Default)]
pub struct Registers {
    registers: RefCell<BTreeMap<RegisterKey, Register>>,
    timestamps: Cell<i64>,
}

impl Registers {
    fn next_timestamp(&self) -> i64 {
        self.timestamps.set(self.timestamps.get() + 1);
        START_MICROS + self.timestamps.get()
    }

    fn with<T>(&self, key: RegisterKey, action: impl FnOnce(&mut Register) -> T) -> T {
        action(self.registers.borrow_mut().entry(key).or_default())
    }

    async fn write(&self, world: &World, random: &mut SplitMix64) {
        let timestamp = self.next_timestamp();
        let (k, c) = (random.below(PARTITIONS) as i64, random.below(ROWS) as i64);
        let level = match random.below(10) {
            0 => Consistency::One,
            1 => Consistency::Any,
            2 => Consistency::All,
            3 => Consistency::LocalQuorum,
            4 | 5 if world.plan.centers() > 1 => Consistency::EachQuorum,
            _ => Consistency::Quorum,
        };
        let is_strong = match level {
            Consistency::One | Consistency::Any => false,
            Consistency::LocalQuorum => world.plan.centers() == 1,
            _ => true,
        };
        let is_strong_in_centers = matches!(level, Consistency::All | Consistency::EachQuorum);
        let all: Vec<RegisterKey> = (0..ROWS as i64).map(|row| (k, row)).collect();
        let (text, keys, is_deletion) = match random.below(12) {
            0 => (format!("DELETE FROM sim.registers USING TIMESTAMP {timestamp} WHERE k = {k}"), all, true),
            1 => {
                let text = format!(
                    "DELETE FROM sim.registers USING TIMESTAMP {timestamp} WHERE k = {k} AND c >= {c}"
                );
                (text, all.into_iter().filter(|key| key.1 >= c).collect(), true)
            }
            2..4 => {
                let text = format!(
                    "DELETE FROM sim.registers USING TIMESTAMP {timestamp} WHERE k = {k} AND c = {c}"
                );
                (text, vec![(k, c)], true)
            }
            4..6 => {
                let text = format!(
                    "UPDATE sim.registers USING TIMESTAMP {timestamp} SET v = {timestamp} WHERE k = {k} AND c = {c}"
                );
                (text, vec![(k, c)], false)
            }
            _ => {
                let text = format!(
                    "INSERT INTO sim.registers (k, c, v) VALUES ({k}, {c}, {timestamp}) USING TIMESTAMP {timestamp}"
                );
                (text, vec![(k, c)], false)
            }
        };
        for key in &keys {
            self.with(*key, |register| {
                let set = if is_deletion { &mut register.deleted } else { &mut register.written };
                set.insert(timestamp);
            });
        }
        let outcome = world.ask_any(random, Question::new(text, level)).await;
        match outcome {
            Ok(_) => {
                for key in &keys {
                    self.with(*key, |register| {
                        register.acknowledged = register.acknowledged.max(timestamp);
                        if is_strong {
                            register.floor = register.floor.max(timestamp);
                        }
                        if is_strong_in_centers {
                            register.floor_of_centers = register.floor_of_centers.max(timestamp);
                        }
                    });
                }
                world.trace.note(format!(
                    "register {keys:?} {} {timestamp} {level:?}: acknowledged",
                    kind(is_deletion)
                ));
            }
            // A refusal does not guarantee that no replica has the write.
            Err(error) => world
                .trace
                .note(format!("register {keys:?} {} {timestamp} {level:?}: {error}", kind(is_deletion))),
        }
    }

    fn seen(answer: &StatementResponse) -> BTreeMap<RegisterKey, i64> {
        answer
            .rows
            .iter()
            .filter_map(|row| Some(((integer(row, 0)?, integer(row, 1)?), integer(row, 2)?)))
            .collect()
    }

    async fn read(&self, world: &World, random: &mut SplitMix64) {
        let k = random.below(PARTITIONS) as i64;
        let (condition, keys): (String, Vec<RegisterKey>) = if random.chance(1, 2) {
            let c = random.below(ROWS) as i64;
            (format!(" WHERE k = {k} AND c = {c}"), vec![(k, c)])
        } else if random.chance(3, 4) {
            (format!(" WHERE k = {k}"), (0..ROWS as i64).map(|c| (k, c)).collect())
        } else {
            let all = (0..PARTITIONS as i64).flat_map(|k| (0..ROWS as i64).map(move |c| (k, c)));
            (String::new(), all.collect())
        };
        let level = if random.chance(1, 8) {
            Consistency::One
        } else if world.plan.centers() > 1 && random.chance(1, 2) {
            Consistency::LocalQuorum
        } else {
            Consistency::Quorum
        };
        let floor = |key: &RegisterKey| {
            self.with(*key, |register| match level {
                Consistency::One => 0,
                Consistency::LocalQuorum => register.floor_of_centers,
                _ => register.floor,
            })
        };
        let floors: Vec<i64> = keys.iter().map(floor).collect();
        let question = Question::new(format!("SELECT k, c, v FROM sim.registers{condition}"), level);
        let answer = match world.ask_any(random, question).await {
            Ok(answer) => answer,
            Err(error) => {
                return world.trace.note(format!("register {keys:?} read {level:?}: {error}"));
            }
        };
        let seen = Self::seen(&answer);
        world.trace.note(format!("register{condition} read {level:?}: {seen:?}"));
        for (key, floor) in keys.iter().zip(floors) {
            let value = seen.get(key).copied();
            self.with(*key, |register| {
                if let Some(reason) = register.refutes(value, floor) {
                    world.violation(format!(
                        "register {key:?}: a {level:?} read saw {value:?}, which {reason} (at least {floor} was there)"
                    ));
                }
                // The value may not have been durable yet; nodes that crash may lose it.
                if let Some(value) = value
                    && level == Consistency::Quorum
                    && !world.plan.kills_nodes()
                {
                    register.floor = register.floor.max(value);
                }
            });
        }
    }
}

fn kind(is_deletion: bool) -> &'static str {
    if is_deletion { "delete" } else { "write" }
}

impl Workload for Registers {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                if random.chance(1, 2) {
                    self.write(&world, &mut random).await;
                } else {
                    self.read(&world, &mut random).await;
                }
                pause_ms(random.below(60)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            for k in 0..PARTITIONS as i64 {
                let question = Question::new(
                    format!("SELECT k, c, v FROM sim.registers WHERE k = {k}"),
                    Consistency::All,
                );
                let answer = match world.insist(&mut random, &question, 10).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        world.violation(format!(
                            "after healing, a read at ALL of register {k} fails: {error}"
                        ));
                        continue;
                    }
                };
                let seen = Self::seen(&answer);
                for c in 0..ROWS as i64 {
                    let value = seen.get(&(k, c)).copied();
                    self.with((k, c), |register| {
                        let weak = if world.plan.loses_disks() { 0 } else { register.acknowledged };
                        let floor = register.floor.max(weak);
                        if let Some(reason) = register.refutes(value, floor) {
                            world.violation(format!(
                                "register {:?}: after healing it is {value:?}, which {reason} (at least {floor} was there)",
                                (k, c)
                            ));
                        }
                    });
                }
            }
        })
    }
}
