//! Capped partitions: rows of a table WITH cap are written and deleted at QUORUM, each partition by one client.
//!
//! Guarantees checked:
//! * a QUORUM read sees exactly the first rows in clustering order of those that were acknowledged, in every order and by every part of the
//!   key, while files are flushed, merged and trimmed, and ranges change hands;
//! * rows that were evicted never come back, whatever is deleted before them;
//! * after healing every read at ALL sees the same.
//!
//! A partition with a write of which nothing is known is left, and another one begun.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;
use helenus_testing::clock::START_MICROS;

use super::compaction::compact;
use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

/// The cap of the table.
const ROWS_KEPT: usize = 4;
const POSITIONS: u64 = 30;

/// The table of this load: the newest row has the greatest number.
pub fn table() -> String {
    format!(
        "CREATE TABLE sim.caps (k int, c int, v bigint, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC) AND cap = {ROWS_KEPT}"
    )
}

#[derive(Default)]
pub struct Caps {
    last_key: Cell<i64>,
    timestamps: Cell<i64>,
    /// The rows of the partitions that no client changes any more.
    settled: RefCell<BTreeMap<i64, BTreeSet<i64>>>,
}

/// A partition, and the rows that it keeps.
struct Partition {
    key: i64,
    rows: BTreeSet<i64>,
}

impl Partition {
    fn insert(&mut self, row: i64) {
        self.rows.insert(row);
        if self.rows.len() > ROWS_KEPT {
            self.rows.pop_first();
        }
    }
}

impl Caps {
    fn new_partition(&self) -> Partition {
        self.last_key.set(self.last_key.get() + 1);
        Partition { key: self.last_key.get(), rows: BTreeSet::new() }
    }

    fn next_timestamp(&self) -> i64 {
        self.timestamps.set(self.timestamps.get() + 1);
        START_MICROS + self.timestamps.get()
    }

    async fn write(&self, world: &World, random: &mut SplitMix64, partition: &mut Partition) {
        let (key, timestamp) = (partition.key, self.next_timestamp());
        let row = random.below(POSITIONS) as i64;
        let deletes = random.chance(1, 3);
        let row = if deletes {
            let nth = random.below(partition.rows.len().max(1) as u64) as usize;
            partition.rows.iter().nth(nth).copied().unwrap_or(row)
        } else {
            row
        };
        let text = if deletes {
            format!("DELETE FROM sim.caps USING TIMESTAMP {timestamp} WHERE k = {key} AND c = {row}")
        } else {
            format!(
                "INSERT INTO sim.caps (k, c, v) VALUES ({key}, {row}, {timestamp}) USING TIMESTAMP {timestamp}"
            )
        };
        match world.ask_any(random, Question::new(text, Consistency::Quorum)).await {
            Ok(_) if deletes => {
                partition.rows.remove(&row);
            }
            Ok(_) => partition.insert(row),
            Err(AskError::Refused(reason)) => world.trace.note(format!("caps {key}: refused: {reason}")),
            Err(AskError::Unknown(reason)) => {
                world.trace.note(format!("caps {key}: unknown: {reason}"));
                *partition = self.new_partition();
            }
        }
    }

    async fn read(world: &World, random: &mut SplitMix64, partition: &Partition) {
        let bound = random.below(POSITIONS) as i64;
        let (clause, wanted): (String, Box<dyn Fn(i64) -> bool>) = match random.below(4) {
            0 => (" ORDER BY c ASC".to_owned(), Box::new(|_| true)),
            1 => (format!(" AND c <= {bound}"), Box::new(move |row| row <= bound)),
            2 => (format!(" AND c = {bound}"), Box::new(move |row| row == bound)),
            _ => (String::new(), Box::new(|_| true)),
        };
        let text = format!("SELECT c FROM sim.caps WHERE k = {}{clause}", partition.key);
        match world.ask_any(random, Question::new(text.clone(), Consistency::Quorum)).await {
            Ok(answer) => {
                let mut expected: Vec<i64> =
                    partition.rows.iter().copied().filter(|row| wanted(*row)).collect();
                if !clause.ends_with("ASC") {
                    expected.reverse();
                }
                judge(world, &text, &answer, &expected);
            }
            Err(error) => world.trace.note(format!("caps {}: {error}", partition.key)),
        }
    }
}

fn judge(world: &World, text: &str, answer: &StatementResponse, expected: &[i64]) {
    let seen: Vec<i64> = answer.rows.iter().filter_map(|row| integer(row, 0)).collect();
    if seen != expected {
        world.violation(format!("{text}: the partition keeps {expected:?}, and the read sees {seen:?}"));
    }
}

impl Workload for Caps {
    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut partition = self.new_partition();
            while !world.is_load_over.get() {
                match random.below(40) {
                    0 => compact(&world, &mut random, "caps").await,
                    1 => {
                        let Partition { key, rows } = std::mem::replace(&mut partition, self.new_partition());
                        self.settled.borrow_mut().insert(key, rows);
                    }
                    2..=12 => Self::read(&world, &mut random, &partition).await,
                    _ => self.write(&world, &mut random, &mut partition).await,
                }
                pause_ms(random.below(100)).await;
            }
            self.settled.borrow_mut().insert(partition.key, partition.rows);
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            compact(&world, &mut random, "caps").await;
            let settled = self.settled.borrow().clone();
            for (key, rows) in settled {
                let text = format!("SELECT c FROM sim.caps WHERE k = {key}");
                let expected: Vec<i64> = rows.iter().rev().copied().collect();
                match world.insist(&mut random, &Question::new(text.clone(), Consistency::All), 10).await {
                    Ok(answer) => judge(&world, &text, &answer, &expected),
                    Err(error) => {
                        world.violation(format!("after healing, a read at ALL of caps {key} fails: {error}"));
                    }
                }
            }
        })
    }
}
