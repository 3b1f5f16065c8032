//! Change feeds: rows with numbers are inserted by single statements, batches and transactions, each number once.
//!
//! Guarantees checked after healing, by reads of table and log at ALL:
//! * an insertion that was acknowledged has its entry, once;
//! * no insertion has two entries, and there is none that nobody asked for;
//! * a row is there if its entry is, and the other way round: they are one write.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

const PARTITIONS: u64 = 8;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS sim.feeds (k int, c bigint, PRIMARY KEY (k, c)) WITH cdc = {'enabled': true, 'ttl': 0}";
const TABLE_TRIES: usize = 20;

const ROWS: &str = "SELECT c FROM sim.feeds";
const ENTRIES: &str = "SELECT c FROM sim.feeds_scylla_cdc_log";

fn numbers(answer: &StatementResponse) -> BTreeSet<i64> {
    answer.rows.iter().filter_map(|row| integer(row, 0)).collect()
}

#[derive(Default)]
pub struct Feeds {
    last: Cell<i64>,
    /// Numbers, and whether their insertion was acknowledged.
    asked: RefCell<BTreeMap<i64, bool>>,
}

impl Feeds {
    fn next(&self) -> i64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    async fn insert(&self, world: &World, random: &mut SplitMix64) {
        let mut numbers = vec![self.next()];
        let partition = random.below(PARTITIONS);
        let insert = |number: i64| format!("INSERT INTO sim.feeds (k, c) VALUES ({partition}, {number})");
        let text = match random.below(4) {
            0 => format!("{} IF NOT EXISTS", insert(numbers[0])),
            1 => {
                numbers.push(self.next());
                let both: Vec<String> = numbers.iter().map(|number| insert(*number)).collect();
                format!("BEGIN BATCH {}; APPLY BATCH", both.join("; "))
            }
            _ => insert(numbers[0]),
        };
        let outcome = world.ask_any(random, Question::new(text.clone(), Consistency::Quorum)).await;
        world.trace.note(format!("{text}: {:?}", outcome.as_ref().map(|_| ())));
        self.asked.borrow_mut().extend(numbers.into_iter().map(|number| (number, outcome.is_ok())));
    }

    /// `entries`: how often the log has each number. `rows`: those of the table.
    fn judge(&self, world: &World, entries: &BTreeMap<i64, usize>, rows: &BTreeSet<i64>) {
        let asked = self.asked.borrow();
        for (number, is_acknowledged) in asked.iter() {
            let count = entries.get(number).copied().unwrap_or(0);
            if count > 1 || (*is_acknowledged && count == 0) {
                world.violation(format!(
                    "row {number} (acknowledged: {is_acknowledged}) has {count} entries in the change feed"
                ));
            }
            if (count > 0) != rows.contains(number) {
                world.violation(format!("of row {number} and its entry only one is there ({count} entries)"));
            }
        }
        if let Some(invented) = entries.keys().find(|number| !asked.contains_key(number)) {
            world.violation(format!("the change feed has an entry of row {invented}, which nobody inserted"));
        }
    }
}

impl Workload for Feeds {
    fn prepare(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let made = world.insist(&mut random, &Question::new(TABLE, Consistency::One), TABLE_TRIES).await;
            if let Err(error) = made {
                world.violation(format!("a table with a change feed cannot be made: {error}"));
            }
        })
    }

    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                self.insert(&world, &mut random).await;
                pause_ms(random.below(200)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut read = async |text: &str| {
                let question = Question::new(text, Consistency::All);
                let answer = world.insist(&mut random, &question, 10).await;
                answer
                    .map_err(|error| world.violation(format!("after healing, {text} at ALL fails: {error}")))
            };
            // A transaction may be finished between two reads.
            let (log, rows) = loop {
                let Ok(before) = read(ROWS).await else { return };
                let Ok(log) = read(ENTRIES).await else { return };
                let Ok(after) = read(ROWS).await else { return };
                let rows = numbers(&after);
                if numbers(&before) == rows {
                    break (log, rows);
                }
            };
            let mut entries: BTreeMap<i64, usize> = BTreeMap::new();
            for row in &log.rows {
                match integer(row, 0) {
                    Some(number) => *entries.entry(number).or_default() += 1,
                    None => {
                        world.violation("an entry of the change feed has no clustering column".to_owned());
                    }
                }
            }
            self.judge(&world, &entries, &rows);
        })
    }
}
