//! Lightweight transactions on a few rows; checks whether the history of each row is linearizable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;
use helenus_testing::linearizability::{Call, Judgement, Operation, Value, judge};

use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

const ROWS: u64 = 4;
/// Most calls in a history: longer ones take the checker too long.
const CALLS_MAX: usize = 120;

#[derive(Default)]
pub struct Transactions {
    calls: RefCell<BTreeMap<i64, Vec<Call>>>,
    values: Cell<i64>,
}

impl Transactions {
    async fn step(&self, world: &World, random: &mut SplitMix64, known: &mut BTreeMap<i64, Value>) {
        let k = random.below(ROWS) as i64;
        if self.calls.borrow().get(&k).is_some_and(|calls| calls.len() >= CALLS_MAX) {
            return;
        }
        self.values.set(self.values.get() + 1);
        let new = self.values.get();
        let expected = known.get(&k).copied().flatten();
        let (text, mut operation) = match (random.below(10), expected) {
            (0..3, _) => {
                (format!("SELECT v FROM sim.transactions WHERE k = {k}"), Operation::Read { seen: None })
            }
            (3, Some(expected)) => (
                format!("DELETE FROM sim.transactions WHERE k = {k} IF v = {expected}"),
                Operation::CompareAndSet { expected: Some(expected), new: None, applied: None, seen: None },
            ),
            (_, Some(expected)) => (
                format!("UPDATE sim.transactions SET v = {new} WHERE k = {k} IF v = {expected}"),
                Operation::set(expected, new, None),
            ),
            (_, None) => (
                format!("INSERT INTO sim.transactions (k, v) VALUES ({k}, {new}) IF NOT EXISTS"),
                Operation::CompareAndSet { expected: None, new: Some(new), applied: None, seen: None },
            ),
        };
        let level = if matches!(operation, Operation::Read { .. }) {
            Consistency::Serial
        } else {
            Consistency::Quorum
        };
        let mut question = Question::new(text, level);
        question.serial_consistency = Some(Consistency::Serial);
        let index = {
            let mut calls = self.calls.borrow_mut();
            let calls = calls.entry(k).or_default();
            calls.push(Call { operation, begun: world.trace.now_micros(), ended: None });
            calls.len() - 1
        };
        let text = question.text.clone();
        let outcome = world.ask_any(random, question).await;
        let ended = match outcome {
            Ok(answer) => {
                world.trace.note(format!("{text}: {:?}", result_of(&answer)));
                known.insert(k, take_answer(&mut operation, &answer));
                Some(world.trace.now_micros())
            }
            Err(error @ (AskError::Refused(_) | AskError::Unknown(_))) => {
                world.trace.note(format!("{text}: {error}"));
                None
            }
        };
        if let Some(call) = self.calls.borrow_mut().get_mut(&k).and_then(|calls| calls.get_mut(index)) {
            *call = Call { operation, ended, ..*call };
        }
    }
}

fn result_of(answer: &StatementResponse) -> (Option<bool>, Option<i64>) {
    let value = answer.rows.first().and_then(|row| integer(row, row.len().saturating_sub(1)));
    (answer.applied(), value)
}

/// Writes the answer into the operation. Returns the value that the row has then.
fn take_answer(operation: &mut Operation, answer: &StatementResponse) -> Value {
    let row = answer.rows.first();
    match operation {
        Operation::Read { seen } => {
            let value = row.and_then(|row| integer(row, 0));
            *seen = Some(value);
            value
        }
        Operation::CompareAndSet { new, applied: was_applied, seen, .. } => {
            *was_applied = answer.applied();
            if *was_applied == Some(true) {
                return *new;
            }
            // A refusal has the row's columns after `[applied]`, if the row exists.
            let value = row.filter(|row| row.len() > 1).and_then(|row| integer(row, row.len() - 1));
            *seen = Some(value);
            value
        }
    }
}

impl Workload for Transactions {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut known = BTreeMap::new();
            while !world.is_load_over.get() {
                self.step(&world, &mut random, &mut known).await;
                pause_ms(random.below(80)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            for k in 0..ROWS as i64 {
                let mut question = Question::new(
                    format!("SELECT v FROM sim.transactions WHERE k = {k}"),
                    Consistency::Serial,
                );
                question.serial_consistency = Some(Consistency::Serial);
                let begun = world.trace.now_micros();
                match world.insist(&mut random, &question, 10).await {
                    Ok(answer) => {
                        let mut operation = Operation::Read { seen: None };
                        take_answer(&mut operation, &answer);
                        let ended = Some(world.trace.now_micros());
                        self.calls.borrow_mut().entry(k).or_default().push(Call { operation, begun, ended });
                    }
                    Err(error) => {
                        world.violation(format!("after healing, a SERIAL read of row {k} fails: {error}"));
                    }
                }
                let calls = self.calls.borrow().get(&k).cloned().unwrap_or_default();
                match judge(&calls, None) {
                    Judgement::Linearizable => {}
                    Judgement::Unknown => world.unjudged.set(world.unjudged.get() + 1),
                    Judgement::NotLinearizable => {
                        world
                            .violation(format!("the history of transactions on row {k} is not linearizable"));
                        for call in calls {
                            world.trace.note(format!("row {k}: {call:?}"));
                        }
                    }
                }
            }
        })
    }
}
