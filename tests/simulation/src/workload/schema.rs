//! Schema changes: tables of one client each, whose history is known, and names that several clients create
//! concurrently.
//!
//! Guarantees checked, at the end:
//! * acknowledged changes are there: created tables and added columns exist, dropped tables do not;
//! * of the clients that create one name concurrently, exactly one gets the answer that it did, and the table is that
//!   client's;
//! * acknowledged rows are in the tables.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::{LocalBoxFuture, join_all};
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

/// Most rows that are written to one table.
const ROWS_MAX: i64 = 20;

/// The expected state of a table.
#[derive(Debug, Clone)]
struct Expected {
    name: String,
    /// `None`: a change had no answer.
    is_there: Option<bool>,
    /// Acknowledged columns.
    columns: BTreeSet<String>,
    rows: BTreeSet<i64>,
}

#[derive(Default)]
pub struct Schema {
    tables: RefCell<Vec<Expected>>,
    races: Cell<u32>,
    columns: Cell<u32>,
}

fn exists_already(error: &AskError) -> bool {
    matches!(error, AskError::Refused(reason) if reason.contains("already"))
}

impl Schema {
    async fn ask(
        world: &World,
        random: &mut SplitMix64,
        text: String,
    ) -> Result<StatementResponse, AskError> {
        let question = Question::new(text.clone(), Consistency::Quorum);
        let outcome = world.ask_any(random, question).await;
        match &outcome {
            Ok(_) => world.trace.note(format!("{text}: acknowledged")),
            Err(error) => world.trace.note(format!("{text}: {error}")),
        }
        outcome
    }

    async fn create(&self, world: &World, random: &mut SplitMix64, name: String) -> Expected {
        let text = format!("CREATE TABLE sim.{name} (k int PRIMARY KEY, v bigint)");
        let outcome = Self::ask(world, random, text).await;
        if outcome.as_ref().is_err_and(exists_already) {
            world.violation(format!("no other client creates {name}, but the node reports that it exists"));
        }
        let columns = ["k", "v"].map(str::to_owned).into();
        Expected { name, is_there: outcome.is_ok().then_some(true), columns, rows: BTreeSet::new() }
    }

    /// Changes a table. Returns false when the client does not know its state any more, or the table is dropped.
    async fn change(&self, world: &World, random: &mut SplitMix64, table: &mut Expected) -> bool {
        let name = &table.name;
        match random.below(10) {
            0 => {
                let outcome = Self::ask(world, random, format!("DROP TABLE sim.{name}")).await;
                table.is_there = outcome.is_ok().then_some(false);
                false
            }
            1..4 => {
                self.columns.set(self.columns.get() + 1);
                let column = format!("c{}", self.columns.get());
                let text = format!("ALTER TABLE sim.{name} ADD {column} int");
                let is_done = Self::ask(world, random, text).await.is_ok();
                if is_done {
                    table.columns.insert(column);
                }
                is_done
            }
            _ => {
                let k = random.below(ROWS_MAX as u64) as i64;
                let text = format!("INSERT INTO sim.{name} (k, v) VALUES ({k}, {k})");
                match Self::ask(world, random, text).await {
                    Ok(_) => {
                        table.rows.insert(k);
                    }
                    Err(AskError::Refused(reason)) if world.plan.faults.is_empty() => {
                        world.violation(format!("{name} was created, but cannot be written: {reason}"));
                    }
                    Err(_) => {}
                }
                true
            }
        }
    }

    /// Several clients create one name concurrently.
    async fn race(&self, world: &World, random: &mut SplitMix64) {
        self.races.set(self.races.get() + 1);
        let name = format!("race{}", self.races.get());
        let rivals = 2 + random.below(2);
        let asked = (0..rivals).map(|rival| {
            let text = format!("CREATE TABLE sim.{name} (k int PRIMARY KEY, v bigint, c{rival} int)");
            let mut random = world.random();
            async move { Self::ask(world, &mut random, text).await }
        });
        let outcomes = join_all(asked).await;
        let winners: Vec<usize> = (0..outcomes.len()).filter(|rival| outcomes[*rival].is_ok()).collect();
        if winners.len() > 1 {
            world.violation(format!("{name} was created {} times", winners.len()));
        }
        if outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(exists_already)) {
            world.violation(format!("no client created {name}, but the node reports that it exists"));
        }
        if let [winner] = winners[..] {
            let columns = ["k".to_owned(), "v".to_owned(), format!("c{winner}")].into();
            let expected = Expected { name, is_there: Some(true), columns, rows: BTreeSet::new() };
            self.tables.borrow_mut().push(expected);
        }
    }
}

impl Workload for Schema {
    fn client(self: Rc<Self>, world: Rc<World>, number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut table: Option<Expected> = None;
            let mut created = 0;
            while !world.is_load_over.get() {
                if random.chance(1, 10) {
                    self.race(&world, &mut random).await;
                } else if let Some(mut known) = table.take() {
                    if self.change(&world, &mut random, &mut known).await {
                        table = Some(known);
                    } else {
                        self.tables.borrow_mut().push(known);
                    }
                } else {
                    created += 1;
                    let new = self.create(&world, &mut random, format!("t{number}_{created}")).await;
                    if new.is_there.is_some() {
                        table = Some(new);
                    }
                }
                pause_ms(random.below(400)).await;
            }
            self.tables.borrow_mut().extend(table);
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(context) = world.members().iter().find_map(|machine| machine.context(0)) else {
                return world.violation("after healing, no node is up".to_owned());
            };
            let catalog = context.catalog();
            let mut random = world.random();
            let tables = self.tables.take();
            for table in tables {
                let Expected { name, is_there: Some(is_there), columns, rows } = table else { continue };
                let definition = catalog.keyspaces.get("sim").and_then(|keyspace| keyspace.tables.get(&name));
                if definition.is_some() != is_there {
                    world.violation(format!(
                        "after healing, whether table {name} exists is {}; acknowledged was {is_there}",
                        !is_there
                    ));
                    continue;
                }
                let Some(definition) = definition else { continue };
                let has = |wanted: &String| definition.columns.iter().any(|column| column.name == *wanted);
                let missing: Vec<&String> = columns.iter().filter(|column| !has(column)).collect();
                if !missing.is_empty() {
                    world.violation(format!("after healing, table {name} has no columns {missing:?}"));
                }
                if rows.is_empty() {
                    continue;
                }
                let question = Question::new(format!("SELECT k FROM sim.{name}"), Consistency::Quorum);
                match world.insist(&mut random, &question, 10).await {
                    Ok(answer) => {
                        let seen: BTreeSet<i64> =
                            answer.rows.iter().filter_map(|row| integer(row, 0)).collect();
                        if !seen.is_superset(&rows) {
                            world.violation(format!(
                                "table {name} has lost rows: {seen:?} of {rows:?} are there"
                            ));
                        }
                    }
                    Err(error) => {
                        world.violation(format!("after healing, a read of {name} fails: {error}"));
                    }
                }
            }
        })
    }
}
