//! Counters: no acknowledged increment is lost, and nothing is counted that was not requested.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::integer;

use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

const ROWS: u64 = 3;

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    asked: i64,
    acknowledged: i64,
}

#[derive(Default)]
pub struct Counters {
    counts: RefCell<BTreeMap<i64, Count>>,
}

impl Counters {
    async fn check_row(&self, world: &World, k: i64, level: Consistency, tries: usize) -> bool {
        let mut random = world.random();
        let before = self.counts.borrow().get(&k).copied().unwrap_or_default();
        let question = Question::new(format!("SELECT n FROM sim.counters WHERE k = {k}"), level);
        let answer = match world.insist(&mut random, &question, tries).await {
            Ok(answer) => answer,
            Err(error) => {
                world.trace.note(format!("counter {k}: {error}"));
                return false;
            }
        };
        let after = self.counts.borrow().get(&k).copied().unwrap_or_default();
        let value = answer.rows.first().and_then(|row| integer(row, 0)).unwrap_or(0);
        world.trace.note(format!("counter {k} {level:?}: {value}"));
        if value < before.acknowledged || value > after.asked {
            world.violation(format!(
                "counter {k} is {value} although {} increments were acknowledged before and {} requested",
                before.acknowledged, after.asked
            ));
        }
        true
    }
}

impl Workload for Counters {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                let k = random.below(ROWS) as i64;
                if random.chance(1, 4) {
                    self.check_row(&world, k, Consistency::Quorum, 1).await;
                } else {
                    self.counts.borrow_mut().entry(k).or_default().asked += 1;
                    let text = format!("UPDATE sim.counters SET n = n + 1 WHERE k = {k}");
                    match world.ask_any(&mut random, Question::new(text, Consistency::Quorum)).await {
                        Ok(_) => self.counts.borrow_mut().entry(k).or_default().acknowledged += 1,
                        Err(error) => world.trace.note(format!("counter {k}: {error}")),
                    }
                }
                pause_ms(random.below(100)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            for k in 0..ROWS as i64 {
                if !self.check_row(&world, k, Consistency::All, 10).await {
                    world.violation(format!("after healing, a read at ALL of counter {k} fails"));
                }
            }
        })
    }
}
