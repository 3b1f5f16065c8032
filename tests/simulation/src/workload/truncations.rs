//! TRUNCATE beside transactions: rows that are inserted with IF NOT EXISTS, and a table that is emptied again and again. Idle transactions
//! are settled within seconds (`Plan::transactions_rest`), also after the last TRUNCATE.
//!
//! Guarantees checked:
//! * a row whose insert was acknowledged before a TRUNCATE that was acknowledged is never seen again, at any level, by whatever began
//!   after the TRUNCATE; IF NOT EXISTS does not see it either;
//! * a row whose insert began after the last TRUNCATE, and was acknowledged, is there; with several data centers, if both the insert and the
//!   read were at SERIAL.
//!
//! Reads that repair are left out while the load runs: a read that is under way during a TRUNCATE may write what it has seen before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{Row, integer};
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

const ROWS: u64 = 6;
const COMMIT_LEVELS: [Consistency; 3] = [Consistency::One, Consistency::Quorum, Consistency::All];
const SERIAL_LEVELS: [Consistency; 2] = [Consistency::Serial, Consistency::LocalSerial];
const FINAL_LEVELS: [Consistency; 3] = [Consistency::One, Consistency::Quorum, Consistency::All];
/// Longer than it takes until each replica has had its turn to settle what is idle.
const SETTLING_MS: u64 = 20_000;

/// Numbers events in their order.
type Moment = u64;

/// An insert of one value.
#[derive(Clone, Copy)]
struct Insert {
    key: i64,
    begun: Moment,
    /// Whether the replicas of all data centers take part in its transaction.
    is_global: bool,
    /// When it was answered that it was applied.
    applied: Option<Moment>,
}

#[derive(Clone, Copy)]
struct Truncation {
    begun: Moment,
    /// When it was acknowledged. Without, it may have taken effect, or may still do so.
    ended: Option<Moment>,
}

#[derive(Default)]
pub struct Truncations {
    moment: Cell<Moment>,
    values: Cell<i64>,
    /// By value.
    inserts: RefCell<BTreeMap<i64, Insert>>,
    /// In their order.
    emptied: RefCell<Vec<Truncation>>,
}

impl Truncations {
    fn now(&self) -> Moment {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    async fn truncate(&self, world: &World, random: &mut SplitMix64) -> Result<(), AskError> {
        let index = self.emptied.borrow().len();
        let begun = self.now();
        self.emptied.borrow_mut().push(Truncation { begun, ended: None });
        let question = Question::new("TRUNCATE sim.truncations", Consistency::One);
        let outcome = world.ask_any(random, question).await;
        world.trace.note(format!("TRUNCATE: {:?}", outcome.as_ref().map(|_| ())));
        match outcome {
            Ok(_) => self.emptied.borrow_mut()[index].ended = Some(self.now()),
            // Where ranges move it is done twice, and may be refused the second time.
            Err(AskError::Refused(_)) if !world.plan.changes_owners() => {
                self.emptied.borrow_mut().remove(index);
            }
            Err(_) => {}
        }
        outcome.map(drop)
    }

    async fn insert(&self, world: &World, random: &mut SplitMix64) {
        self.values.set(self.values.get() + 1);
        let (key, value) = (random.below(ROWS) as i64, self.values.get());
        let text = format!("INSERT INTO sim.truncations (k, v) VALUES ({key}, {value}) IF NOT EXISTS");
        let level = COMMIT_LEVELS[random.below(COMMIT_LEVELS.len() as u64) as usize];
        let mut question = Question::new(text.clone(), level);
        let serial_level = SERIAL_LEVELS[random.below(2) as usize];
        let is_global = is_global(world, serial_level);
        question.serial_consistency = Some(serial_level);
        let begun = self.now();
        self.inserts.borrow_mut().insert(value, Insert { key, begun, is_global, applied: None });
        match world.ask_any(random, question).await {
            Ok(answer) if answer.applied() == Some(true) => {
                world.trace.note(format!("{text}: applied"));
                if is_global {
                    self.judge_absence(world, key, begun);
                }
                if let Some(insert) = self.inserts.borrow_mut().get_mut(&value) {
                    insert.applied = Some(self.now());
                }
            }
            Ok(answer) => {
                let seen = answer.rows.first().and_then(|row| integer(row, row.len() - 1));
                world.trace.note(format!("{text}: refused because of {seen:?}"));
                self.judge_presence(world, seen, begun);
            }
            Err(error) => world.trace.note(format!("{text}: {error}")),
        }
    }

    async fn read(&self, world: &World, random: &mut SplitMix64) {
        let key = random.below(ROWS) as i64;
        let levels = [Consistency::Serial, Consistency::LocalSerial, Consistency::One];
        let level = levels[random.below(levels.len() as u64) as usize];
        let question = Question::new(format!("SELECT v FROM sim.truncations WHERE k = {key}"), level);
        let begun = self.now();
        match world.ask_any(random, question).await {
            Ok(answer) => self.judge(world, key, answer.rows.first(), level, begun),
            Err(error) => world.trace.note(format!("truncations read {level:?}: {error}")),
        }
    }

    /// Judges the row of a key, with its value in the last column, as seen by what has begun at that moment.
    fn judge(&self, world: &World, key: i64, row: Option<&Row>, level: Consistency, begun: Moment) {
        match row {
            Some(row) => self.judge_presence(world, integer(row, row.len() - 1), begun),
            None if level == Consistency::One || !is_global(world, level) => {}
            None => self.judge_absence(world, key, begun),
        }
    }

    fn judge_presence(&self, world: &World, seen: Option<i64>, begun: Moment) {
        let Some(value) = seen else { return };
        let Some(insert) = self.inserts.borrow().get(&value).copied() else {
            return world.violation(format!("value {value} is seen, and was never written"));
        };
        let is_of_before = |truncation: &Truncation| {
            insert.applied.is_some_and(|applied| applied < truncation.begun)
                && truncation.ended.is_some_and(|ended| ended < begun)
        };
        if self.emptied.borrow().iter().any(is_of_before) {
            let key = insert.key;
            world.violation(format!("value {value} of row {key} is back after a TRUNCATE"));
        }
    }

    fn judge_absence(&self, world: &World, key: i64, begun: Moment) {
        let truncations = self.emptied.borrow();
        let is_untouched = |insert: &Insert| {
            let is_before =
                |truncation: &Truncation| truncation.ended.is_some_and(|ended| ended < insert.begun);
            insert.is_global
                && insert.applied.is_some_and(|applied| applied < begun)
                && truncations.iter().all(is_before)
        };
        let inserts = self.inserts.borrow();
        let missed = inserts.iter().find(|(_, insert)| insert.key == key && is_untouched(insert));
        if let Some((value, _)) = missed {
            world.violation(format!("value {value} of row {key} is gone without a TRUNCATE"));
        }
    }
}

/// Whether an operation at this level is ordered with all others: `LOCAL_SERIAL` orders those of one data center.
fn is_global(world: &World, level: Consistency) -> bool {
    level != Consistency::LocalSerial || world.plan.centers() == 1
}

impl Workload for Truncations {
    fn client(self: Rc<Self>, world: Rc<World>, number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                match random.below(12) {
                    0 if number == 0 => drop(self.truncate(&world, &mut random).await),
                    0..4 => self.read(&world, &mut random).await,
                    _ => self.insert(&world, &mut random).await,
                }
                pause_ms(random.below(150)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut outcome = self.truncate(&world, &mut random).await;
            for _ in 0..10 {
                if outcome.is_ok() {
                    break;
                }
                pause_ms(2_000).await;
                outcome = self.truncate(&world, &mut random).await;
            }
            if let Err(error) = outcome {
                return world.violation(format!("after healing, a TRUNCATE fails: {error}"));
            }
            self.insert(&world, &mut random).await;
            pause_ms(SETTLING_MS).await;
            for level in FINAL_LEVELS {
                for _ in 0..world.members().len() {
                    let begun = self.now();
                    let question = Question::new("SELECT k, v FROM sim.truncations", level);
                    match world.insist(&mut random, &question, 10).await {
                        Ok(answer) => {
                            for key in 0..ROWS as i64 {
                                let row = answer.rows.iter().find(|row| integer(row, 0) == Some(key));
                                // What was written while TRUNCATE ran may be on few replicas.
                                let level = if level == Consistency::All { level } else { Consistency::One };
                                self.judge(&world, key, row, level, begun);
                            }
                        }
                        Err(error) => world.violation(format!(
                            "after healing, a read at {level:?} of truncations fails: {error}"
                        )),
                    }
                }
            }
        })
    }
}
