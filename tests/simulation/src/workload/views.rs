//! Views: a base table with a materialized view by a regular column, a projection of groups and one with a joined table.
//!
//! Each client has a partition of the base table, and rows of the joined table, of its own, of which it knows what they are: by acknowledged
//! writes with timestamps, also old ones. Beside them all clients write to shared partitions in all ways: with the clocks of the nodes, values that expire,
//! transactions, batches over several partitions.
//!
//! Guarantees checked:
//! * a read WITH FRESHNESS 0 ms at QUORUM of a client's own partition sees exactly what its acknowledged writes have made, whoever computes the
//!   views meanwhile;
//! * after healing, each view is what is computed from a read of its tables at QUORUM. Where hints may be lost, this holds for partitions with a
//!   write of which nothing is known as soon as its rows are named once more;
//! * the same holds behind a TRUNCATE of the base table, with what is written after it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use super::view_model::{
    Change, Customer, Group, Named, Order, POSITIONS, Partition, Timestamps, groups, named,
};
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

/// All names of tables of this load begin with it, also those of hidden tables.
pub const PREFIX: &str = "viewed";
const SCHEMA: [&str; 5] = [
    "CREATE TABLE sim.viewed (k int, c int, d int, v int, w int, x int, PRIMARY KEY (k, c, d))",
    "CREATE TABLE sim.viewed_customers (id int PRIMARY KEY, name int)",
    "CREATE MATERIALIZED VIEW sim.viewed_by_v AS SELECT v, k, c, d, w FROM sim.viewed \
     WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL AND d IS NOT NULL PRIMARY KEY (v, k, c, d)",
    "CREATE PROJECTION sim.viewed_sums AS SELECT k, c, count(*) AS n, sum(w) AS total FROM sim.viewed GROUP BY k, c PRIMARY KEY (k, c)",
    "CREATE PROJECTION sim.viewed_named AS SELECT o.k, u.name, o.c, o.d, o.w FROM sim.viewed AS o \
     JOIN sim.viewed_customers AS u ON o.v = u.id WHERE u.name IS NOT NULL PRIMARY KEY (k, name, c, d)",
];
const BASE: &str = "SELECT k, c, d, v, w FROM sim.viewed";
const CUSTOMERS: &str = "SELECT id, name FROM sim.viewed_customers";
const BY_V: &str = "SELECT k, c, d, v, w FROM sim.viewed_by_v";
const SUMS: &str = "SELECT k, c, n, total FROM sim.viewed_sums";
const NAMED: &str = "SELECT k, name, c, d, w FROM sim.viewed_named";
const FRESH: &str = "WITH FRESHNESS 0 ms";

/// Partitions that all clients write.
const SHARED: i64 = 5;
/// Rows of the joined table that a client has.
const CUSTOMERS_OF_CLIENT: usize = 3;
const TTL_SECONDS_MAX: u64 = 4;
/// After the last write everything has expired by then, and was recomputed.
const EXPIRED_MS: u64 = 10_000;
const TRIES: usize = 15;

#[derive(Default)]
pub struct Views {
    last_partition: Cell<i64>,
    last_customer: Cell<i64>,
    timestamps: Timestamps,
    customers: RefCell<Vec<i64>>,
    /// Partitions and rows of the joined table with a write of which nothing is known.
    unknown: RefCell<BTreeSet<i64>>,
    unknown_customers: RefCell<BTreeSet<i64>>,
}

/// What one client has for itself.
struct Own {
    partition: Partition,
    customers: BTreeMap<i64, Customer>,
}

impl Views {
    fn new_own(&self) -> Own {
        self.last_partition.set(self.last_partition.get() + 1);
        let customers: BTreeMap<i64, Customer> = (0..CUSTOMERS_OF_CLIENT)
            .map(|_| {
                self.last_customer.set(self.last_customer.get() + 1);
                (self.last_customer.get(), Customer::default())
            })
            .collect();
        self.customers.borrow_mut().extend(customers.keys());
        Own { partition: Partition::new(SHARED + self.last_partition.get()), customers }
    }

    /// Changes rows of the own partition, or one of the joined table. Returns false if it is not known what has become of it.
    async fn write_own(&self, world: &World, random: &mut SplitMix64, own: &mut Own) -> bool {
        let ids: Vec<i64> = own.customers.keys().copied().collect();
        let id = ids[random.below(ids.len() as u64) as usize];
        if random.chance(1, 4) {
            let timestamp = self.timestamps.next(world, random);
            let name = random.chance(2, 3).then(|| random.below(4) as i64);
            let text = match name {
                Some(name) => format!(
                    "INSERT INTO sim.viewed_customers (id, name) VALUES ({id}, {name}) USING TIMESTAMP {timestamp}"
                ),
                None => {
                    format!("DELETE FROM sim.viewed_customers USING TIMESTAMP {timestamp} WHERE id = {id}")
                }
            };
            let outcome = ask(world, random, &text).await;
            return match outcome {
                Ok(_) => {
                    own.customers.entry(id).or_default().set(timestamp, name);
                    true
                }
                Err(AskError::Refused(_)) => true,
                Err(AskError::Unknown(_)) => {
                    self.unknown_customers.borrow_mut().insert(id);
                    false
                }
            };
        }
        let count = if random.chance(1, 5) { 2 + random.below(2) } else { 1 };
        let changes: Vec<(i64, Change)> =
            (0..count).map(|_| (self.timestamps.next(world, random), Change::random(random, &ids))).collect();
        let key = own.partition.key;
        let texts: Vec<String> =
            changes.iter().map(|(timestamp, change)| change.text(key, Some(*timestamp), None)).collect();
        let text = together(&texts, random);
        match ask(world, random, &text).await {
            Ok(_) => {
                own.partition.apply(changes);
                true
            }
            Err(AskError::Refused(_)) => true,
            Err(AskError::Unknown(_)) => {
                self.unknown.borrow_mut().insert(key);
                false
            }
        }
    }

    /// Changes shared partitions in any way.
    async fn write_shared(&self, world: &World, random: &mut SplitMix64) {
        let customers = self.customers.borrow().clone();
        let count = if random.chance(1, 5) { 2 + random.below(2) } else { 1 };
        let mut keys = BTreeSet::new();
        let mut texts = Vec::new();
        for _ in 0..count {
            let key = random.below(SHARED as u64) as i64;
            let change = Change::random(random, &customers);
            let ttl = random.chance(1, 6).then(|| 1 + random.below(TTL_SECONDS_MAX));
            let timestamp = random.chance(1, 4).then(|| self.timestamps.next(world, random));
            keys.insert(key);
            texts.push(change.text(key, timestamp, ttl));
        }
        let text = if random.chance(1, 6) {
            let key = keys.first().copied().unwrap_or_default();
            keys = BTreeSet::from([key]);
            transaction(random, key, &customers)
        } else {
            together(&texts, random)
        };
        if let Err(AskError::Unknown(_)) = ask(world, random, &text).await {
            self.unknown.borrow_mut().extend(keys);
        }
    }

    /// Reads the own partition in one of the views.
    async fn read_own(world: &World, random: &mut SplitMix64, own: &Own) {
        let key = own.partition.key;
        let orders = own.partition.orders();
        let read = async |text: String| {
            let mut random = world.random();
            let answer = world.ask_any(&mut random, Question::new(text.clone(), Consistency::Quorum)).await;
            answer.map_err(|error| world.trace.note(format!("{text}: {error}"))).map(|answer| (text, answer))
        };
        match random.below(3) {
            0 => {
                let ids: Vec<String> = own.customers.keys().map(ToString::to_string).collect();
                let text = format!("{BY_V} WHERE v IN ({}) AND k = {key} {FRESH}", ids.join(", "));
                let wanted = orders.iter().filter(|order| order.v.is_some()).copied().collect();
                if let Ok((text, answer)) = read(text).await {
                    judge(world, &text, &orders_of(&answer), &wanted);
                }
            }
            1 => {
                if let Ok((text, answer)) = read(format!("{SUMS} WHERE k = {key} {FRESH}")).await {
                    judge(world, &text, &groups_of(&answer), &groups(&orders));
                }
            }
            _ => {
                let names =
                    own.customers.iter().filter_map(|(id, customer)| Some((*id, customer.name()?))).collect();
                if let Ok((text, answer)) = read(format!("{NAMED} WHERE k = {key} {FRESH}")).await {
                    judge(world, &text, &named_of(&answer), &named(&orders, &names));
                }
            }
        }
    }

    /// Compares the views with their tables. `leaves_out`: where something is not known.
    async fn compare(&self, world: &World, random: &mut SplitMix64, leaves_out: bool) {
        let read = async |random: &mut SplitMix64, text: String| {
            let question = Question::new(text.clone(), Consistency::Quorum);
            let answer = world.insist(random, &question, TRIES).await;
            answer.map_err(|error| world.violation(format!("after healing, {text} fails: {error}")))
        };
        let unknown = if leaves_out { self.unknown.borrow().clone() } else { BTreeSet::new() };
        let unknown_customers =
            if leaves_out { self.unknown_customers.borrow().clone() } else { BTreeSet::new() };
        let Ok(base) = read(random, BASE.to_owned()).await else { return };
        let Ok(customers) = read(random, CUSTOMERS.to_owned()).await else { return };
        let Ok(by_v) = read(random, format!("{BY_V} {FRESH}")).await else { return };
        let Ok(sums) = read(random, format!("{SUMS} {FRESH}")).await else { return };
        let Ok(with_names) = read(random, format!("{NAMED} {FRESH}")).await else { return };
        let is_known = |key: i64| !unknown.contains(&key);
        let orders: BTreeSet<Order> =
            orders_of(&base).into_iter().filter(|order| is_known(order.k)).collect();
        let names: BTreeMap<i64, i64> = customers
            .rows
            .iter()
            .filter_map(|row| Some((integer(row, 0)?, integer(row, 1)?)))
            .filter(|(id, _)| !unknown_customers.contains(id))
            .collect();
        let wanted = orders.iter().filter(|order| order.v.is_some()).copied().collect();
        let seen = orders_of(&by_v).into_iter().filter(|order| is_known(order.k)).collect();
        judge(world, BY_V, &seen, &wanted);
        let seen = groups_of(&sums).into_iter().filter(|group| is_known(group.k)).collect();
        judge(world, SUMS, &seen, &groups(&orders));
        // Rows of the base table that look up what is not known.
        let is_open = |k: i64, c: i64, d: i64| {
            orders.iter().any(|order| {
                (order.k, order.c, order.d) == (k, c, d)
                    && order.v.is_some_and(|id| unknown_customers.contains(&id))
            })
        };
        let seen = named_of(&with_names).into_iter();
        let seen = seen.filter(|row| is_known(row.k) && !is_open(row.k, row.c, row.d)).collect();
        judge(world, NAMED, &seen, &named(&orders, &names));
    }

    /// Empties the base table, and writes some rows.
    async fn truncate(&self, world: &World, random: &mut SplitMix64) {
        let customers = self.customers.borrow().clone();
        let mut texts = vec!["TRUNCATE sim.viewed".to_owned()];
        texts.extend((0..SHARED).map(|key| Change::random(random, &customers).text(key, None, None)));
        for text in texts {
            let question = Question::new(text.clone(), Consistency::Quorum);
            if let Err(error) = world.insist(random, &question, TRIES).await {
                world.violation(format!("after healing, {text} fails: {error}"));
            }
        }
    }

    /// Makes the replicas equal where something is not known, and names all rows there once more.
    async fn touch(&self, world: &World, random: &mut SplitMix64) {
        let insist = async |random: &mut SplitMix64, text: String, level: Consistency| {
            if let Err(error) = world.insist(random, &Question::new(text.clone(), level), TRIES).await {
                world.violation(format!("after healing, {text} fails: {error}"));
            }
        };
        let unknown = self.unknown.borrow().clone();
        for key in unknown {
            insist(random, format!("{BASE} WHERE k = {key}"), Consistency::All).await;
            let positions = (0..POSITIONS).flat_map(|c| (0..POSITIONS).map(move |d| (c, d)));
            let texts: Vec<String> = positions
                .map(|(c, d)| format!("DELETE x FROM sim.viewed WHERE k = {key} AND c = {c} AND d = {d}"))
                .collect();
            insist(random, batch("UNLOGGED ", &texts), Consistency::Quorum).await;
        }
        let unknown = self.unknown_customers.borrow().clone();
        for id in unknown {
            insist(random, format!("{CUSTOMERS} WHERE id = {id}"), Consistency::All).await;
            let text = format!("DELETE name FROM sim.viewed_customers USING TIMESTAMP 1 WHERE id = {id}");
            insist(random, text, Consistency::Quorum).await;
        }
    }
}

async fn ask(world: &World, random: &mut SplitMix64, text: &str) -> Result<StatementResponse, AskError> {
    let outcome = world.ask_any(random, Question::new(text, Consistency::Quorum)).await;
    let told = outcome.as_ref().map(|_| ());
    world.trace.note(format!("{text}: {told:?}"));
    outcome
}

fn batch(kind: &str, texts: &[String]) -> String {
    format!("BEGIN {kind}BATCH {}; APPLY BATCH", texts.join("; "))
}

/// One statement as it is, several as a batch.
fn together(texts: &[String], random: &mut SplitMix64) -> String {
    match texts {
        [only] => only.clone(),
        several => batch(if random.chance(1, 3) { "UNLOGGED " } else { "" }, several),
    }
}

fn transaction(random: &mut SplitMix64, k: i64, customers: &[i64]) -> String {
    let c = random.below(POSITIONS as u64);
    let d = random.below(POSITIONS as u64);
    let v = customers.get(random.below(customers.len().max(1) as u64) as usize).copied().unwrap_or_default();
    match random.below(3) {
        0 => format!("INSERT INTO sim.viewed (k, c, d, v) VALUES ({k}, {c}, {d}, {v}) IF NOT EXISTS"),
        1 => format!("UPDATE sim.viewed SET v = {v}, w = 1 WHERE k = {k} AND c = {c} AND d = {d} IF EXISTS"),
        _ => format!("DELETE FROM sim.viewed WHERE k = {k} AND c = {c} AND d = {d} IF EXISTS"),
    }
}

fn orders_of(answer: &StatementResponse) -> BTreeSet<Order> {
    let order = |row| {
        let (k, c, d) = (integer(row, 0)?, integer(row, 1)?, integer(row, 2)?);
        Some(Order { k, c, d, v: integer(row, 3), w: integer(row, 4) })
    };
    answer.rows.iter().filter_map(order).collect()
}

fn groups_of(answer: &StatementResponse) -> BTreeSet<Group> {
    let group = |row| {
        let (k, c) = (integer(row, 0)?, integer(row, 1)?);
        Some(Group { k, c, rows: integer(row, 2), total: integer(row, 3) })
    };
    answer.rows.iter().filter_map(group).collect()
}

fn named_of(answer: &StatementResponse) -> BTreeSet<Named> {
    let named = |row| {
        let (k, name, c, d) = (integer(row, 0)?, integer(row, 1)?, integer(row, 2)?, integer(row, 3)?);
        Some(Named { k, name, c, d, w: integer(row, 4) })
    };
    answer.rows.iter().filter_map(named).collect()
}

fn judge<T: Ord + std::fmt::Debug>(world: &World, text: &str, seen: &BTreeSet<T>, wanted: &BTreeSet<T>) {
    let missing: Vec<&T> = wanted.difference(seen).collect();
    let wrong: Vec<&T> = seen.difference(wanted).collect();
    if !(missing.is_empty() && wrong.is_empty()) {
        world.violation(format!("{text}: {missing:?} are missing, and {wrong:?} are there"));
    }
}

impl Workload for Views {
    fn prepare(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            for statement in SCHEMA {
                let question = Question::new(statement, Consistency::One);
                if let Err(error) = world.insist(&mut random, &question, TRIES).await {
                    world.violation(format!("{statement}: {error}"));
                }
            }
        })
    }

    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let mut own = self.new_own();
            while !world.is_load_over.get() {
                match random.below(10) {
                    0..2 => Self::read_own(&world, &mut random, &own).await,
                    2..5 => self.write_shared(&world, &mut random).await,
                    _ => {
                        if !self.write_own(&world, &mut random, &mut own).await {
                            own = self.new_own();
                        }
                    }
                }
                pause_ms(random.below(200)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            pause_ms(EXPIRED_MS).await;
            // What reaches a replica by a hint is named again. Without hints nothing tells of what less than a quorum had got.
            let may_forget = world.plan.kills_nodes() || !world.plan.keeps_hints();
            self.compare(&world, &mut random, may_forget).await;
            if may_forget {
                self.touch(&world, &mut random).await;
                self.compare(&world, &mut random, false).await;
            }
            self.truncate(&world, &mut random).await;
            self.compare(&world, &mut random, false).await;
        })
    }
}
