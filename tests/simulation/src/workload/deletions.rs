//! Deletions: rows that are written and deleted at ALL, in a table whose tombstones may be purged after some seconds. That is longer than what
//! a read has seen can be under way to other replicas as a repair: its timeout, and the longest pause of a node.
//!
//! Guarantees checked, at every level and whoever comes and goes:
//! * a row whose deletion was acknowledged at ALL never comes back;
//! * a row that was acknowledged at ALL and not deleted is there.
//!
//! Only rows of which every write and the last deletion were acknowledged at ALL are judged. So no hint, no repair and no late message
//! can bring one back: only data that a node keeps of a range without being its replica.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::integer;
use helenus_engine::io::SplitMix64;
use helenus_testing::clock::START_MICROS;

use super::compaction::compact;
use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

/// Attempts to delete a row.
const DELETION_TRIES: usize = 10;
/// The longest life of a row: members join and leave meanwhile.
const LIFE_MS_MAX: u64 = 12_000;
const LEVELS: [Consistency; 3] = [Consistency::One, Consistency::Quorum, Consistency::All];

#[derive(Default)]
pub struct Deletions {
    last: Cell<i64>,
    /// Rows that were acknowledged at ALL, and whose deletion was not asked for.
    there: RefCell<BTreeSet<i64>>,
    /// Rows whose deletion was acknowledged at ALL.
    deleted: RefCell<BTreeSet<i64>>,
}

impl Deletions {
    /// Writes a row, and deletes it a while later.
    async fn live_and_die(self: Rc<Self>, world: Rc<World>, mut random: SplitMix64) {
        self.last.set(self.last.get() + 1);
        let key = self.last.get();
        // The clocks of the nodes may differ.
        let timestamp = || START_MICROS + world.trace.now_micros() as i64;
        let insert =
            format!("INSERT INTO sim.deletions (k, v) VALUES ({key}, {key}) USING TIMESTAMP {}", timestamp());
        if world.ask_any(&mut random, Question::new(insert, Consistency::All)).await.is_err() {
            return;
        }
        self.there.borrow_mut().insert(key);
        pause_ms(random.below(LIFE_MS_MAX)).await;
        if world.is_load_over.get() || random.chance(1, 4) {
            return;
        }
        self.there.borrow_mut().remove(&key);
        let delete = format!("DELETE FROM sim.deletions USING TIMESTAMP {} WHERE k = {key}", timestamp());
        for _ in 0..DELETION_TRIES {
            if world.ask_any(&mut random, Question::new(delete.clone(), Consistency::All)).await.is_ok() {
                world.trace.note(format!("row {key} is deleted for ever"));
                self.deleted.borrow_mut().insert(key);
                return;
            }
            pause_ms(500).await;
        }
    }

    async fn read(&self, world: &World, random: &mut SplitMix64) {
        let level = LEVELS[random.below(LEVELS.len() as u64) as usize];
        let (there, deleted) = (self.there.borrow().clone(), self.deleted.borrow().clone());
        let question = Question::new("SELECT k FROM sim.deletions", level);
        match world.ask_any(random, question).await {
            Ok(answer) => {
                let seen = answer.rows.iter().filter_map(|row| integer(row, 0)).collect();
                self.judge(world, &there, &deleted, &seen, level);
            }
            Err(error) => world.trace.note(format!("deletions read {level:?}: {error}")),
        }
    }

    /// `there`, `deleted`: what was known before the read began.
    fn judge(
        &self,
        world: &World,
        there: &BTreeSet<i64>,
        deleted: &BTreeSet<i64>,
        seen: &BTreeSet<i64>,
        level: Consistency,
    ) {
        if let Some(key) = deleted.intersection(seen).next() {
            world.violation(format!("row {key} was deleted at ALL, and a read at {level:?} sees it again"));
        }
        // Its deletion may have begun meanwhile.
        let present = self.there.borrow();
        if let Some(key) = there.difference(seen).find(|key| present.contains(key)) {
            world.violation(format!("row {key} was written at ALL, and a read at {level:?} does not see it"));
        }
    }
}

impl Workload for Deletions {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut rows = Vec::new();
            while !world.is_load_over.get() {
                match random.below(8) {
                    0 => compact(&world, &mut random, "deletions").await,
                    1 | 2 => self.read(&world, &mut random).await,
                    _ => {
                        let life = self.clone().live_and_die(world.clone(), world.random());
                        rows.push(tokio::task::spawn_local(life));
                    }
                }
                pause_ms(random.below(400)).await;
            }
            for row in rows {
                if let Err(error) = row.await {
                    world.violation(format!("the life of a row ended early: {error}"));
                }
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            compact(&world, &mut random, "deletions").await;
            let (there, deleted) = (self.there.borrow().clone(), self.deleted.borrow().clone());
            for level in LEVELS {
                for _ in 0..world.members().len() {
                    let question = Question::new("SELECT k FROM sim.deletions", level);
                    match world.insist(&mut random, &question, 10).await {
                        Ok(answer) => {
                            let seen = answer.rows.iter().filter_map(|row| integer(row, 0)).collect();
                            self.judge(&world, &there, &deleted, &seen, level);
                        }
                        Err(error) => {
                            world.violation(format!(
                                "after healing, a read at {level:?} of deletions fails: {error}"
                            ));
                        }
                    }
                }
            }
        })
    }
}
