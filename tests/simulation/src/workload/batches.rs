//! Logged batches of two partitions: in the end both changes are there or neither, and both if the batch was
//! acknowledged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::integer;

use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

/// Time after healing for which a batch may be half applied: until its batch log replicas have replayed it.
const REPLAY_MAX: Duration = Duration::from_mins(1);

#[derive(Default)]
pub struct Batches {
    last: Cell<i64>,
    /// Numbers of batches, and whether they were acknowledged.
    asked: RefCell<Vec<(i64, bool)>>,
}

impl Workload for Batches {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                self.last.set(self.last.get() + 1);
                let number = self.last.get();
                let (first, second) = (2 * number, 2 * number + 1);
                let text = format!(
                    "BEGIN BATCH INSERT INTO sim.batches (k, v) VALUES ({first}, {number}); \
                     INSERT INTO sim.batches (k, v) VALUES ({second}, {number}); APPLY BATCH"
                );
                let outcome = world.ask_any(&mut random, Question::new(text, Consistency::Quorum)).await;
                match &outcome {
                    Ok(_) => world.trace.note(format!("batch {number}: acknowledged")),
                    Err(error) => world.trace.note(format!("batch {number}: {error}")),
                }
                self.asked.borrow_mut().push((number, outcome.is_ok()));
                pause_ms(random.below(200)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let asked = self.asked.borrow().clone();
            for (number, is_acknowledged) in asked {
                let (first, second) = (2 * number, 2 * number + 1);
                let text = format!("SELECT k, v FROM sim.batches WHERE k IN ({first}, {second})");
                let question = Question::new(text, Consistency::All);
                let deadline = world.trace.now_micros() + REPLAY_MAX.as_micros() as u64;
                let read = loop {
                    let read = world.insist(&mut random, &question, 10).await;
                    let may_be_half = read.as_ref().is_ok_and(|answer| answer.rows.len() == 1);
                    if !may_be_half || world.trace.now_micros() > deadline {
                        break read;
                    }
                    pause_ms(1_000).await;
                };
                match read {
                    Ok(answer) => {
                        let there: Vec<_> = answer.rows.iter().filter_map(|row| integer(row, 0)).collect();
                        // The batch log replicas of an unacknowledged batch may have lost their disks.
                        let is_half = there.len() == 1 && (is_acknowledged || !world.plan.loses_disks());
                        if is_half || (is_acknowledged && there.is_empty()) {
                            world.violation(format!(
                                "of batch {number} (acknowledged: {is_acknowledged}) only {there:?} of {:?} is there",
                                (first, second)
                            ));
                        }
                    }
                    Err(error) => {
                        world.violation(format!(
                            "after healing, a read at ALL of batch {number} fails: {error}"
                        ));
                    }
                }
            }
        })
    }
}
