//! Secondary indexes: rows whose indexed columns are written, changed and deleted, and looked up by these columns at QUORUM.
//!
//! Guarantees checked, whoever comes and goes, whatever is flushed and compacted:
//! * a row is found by the value that it has, as far as that is known from acknowledged writes;
//! * a row is not found by a value that it cannot have.
//!
//! Only rows to which nothing was written while the lookup was under way are judged. After healing, a lookup at every level finds what a scan finds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::integer;
use helenus_engine::io::SplitMix64;
use helenus_testing::clock::START_MICROS;

use super::compaction::compact;
use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

const SCHEMA: [&str; 3] = [
    "CREATE TABLE sim.indexed (k int, c int, v int, w int, PRIMARY KEY (k, c))",
    "CREATE INDEX ON sim.indexed (v) USING 'sai'",
    "CREATE INDEX ON sim.indexed (w) USING 'sai'",
];
const COLUMNS: [&str; 2] = ["v", "w"];
const PARTITIONS: u64 = 6;
const ROWS: u64 = 4;
/// The values of an indexed column.
const VALUES: u64 = 4;
const LEVELS: [Consistency; 3] = [Consistency::One, Consistency::Quorum, Consistency::All];

type Key = (i64, i64);

/// The values of both columns, of which each may be missing; `None`: the row is deleted.
type Content = Option<[Option<i64>; 2]>;

/// What a statement makes of a row. The columns of a row may come from different statements, which different replicas acknowledge.
#[derive(Debug, Clone, Copy)]
enum Change {
    Insert([i64; 2]),
    /// Sets the column with this number.
    Update(usize, i64),
    Delete,
}

impl Change {
    fn random(random: &mut SplitMix64) -> Self {
        let value = random.below(VALUES) as i64;
        match random.below(5) {
            0 => Self::Delete,
            1 => Self::Insert([value, random.below(VALUES) as i64]),
            _ => Self::Update(random.below(2) as usize, value),
        }
    }

    fn text(self, (k, c): Key, timestamp: i64) -> String {
        match self {
            Self::Insert([v, w]) => format!(
                "INSERT INTO sim.indexed (k, c, v, w) VALUES ({k}, {c}, {v}, {w}) USING TIMESTAMP {timestamp}"
            ),
            Self::Update(column, value) => format!(
                "UPDATE sim.indexed USING TIMESTAMP {timestamp} SET {} = {value} WHERE k = {k} AND c = {c}",
                COLUMNS[column]
            ),
            Self::Delete => {
                format!("DELETE FROM sim.indexed USING TIMESTAMP {timestamp} WHERE k = {k} AND c = {c}")
            }
        }
    }

    fn apply(self, content: Content) -> Content {
        match self {
            Self::Insert(values) => Some(values.map(Some)),
            Self::Update(column, value) => {
                let mut values = content.unwrap_or_default();
                values[column] = Some(value);
                Some(values)
            }
            Self::Delete => None,
        }
    }
}

/// What is known of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    /// What the row may be, by acknowledged writes and those whose outcome is unknown. Nothing: it was never written.
    possible: BTreeSet<Content>,
    /// Grows with each write that begins or ends.
    changes: u64,
    /// A write is under way.
    is_busy: bool,
}

#[derive(Default)]
pub struct Indexes {
    rows: RefCell<BTreeMap<Key, Known>>,
    last_timestamp: Cell<i64>,
}

impl Indexes {
    /// Writes of one row come one after the other, each with a later timestamp.
    fn timestamp(&self, world: &World) -> i64 {
        let timestamp = (START_MICROS + world.trace.now_micros() as i64).max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(timestamp);
        timestamp
    }

    fn change(&self, key: Key, change: impl FnOnce(&mut Known)) {
        let mut rows = self.rows.borrow_mut();
        let known = rows.entry(key).or_default();
        known.changes += 1;
        change(known);
    }

    async fn write(&self, world: &World, random: &mut SplitMix64) {
        let key = (random.below(PARTITIONS) as i64, random.below(ROWS) as i64);
        if self.rows.borrow().get(&key).is_some_and(|known| known.is_busy) {
            return;
        }
        let change = Change::random(random);
        let text = change.text(key, self.timestamp(world));
        let mut before = BTreeSet::new();
        self.change(key, |known| {
            known.is_busy = true;
            if known.possible.is_empty() {
                known.possible.insert(None);
            }
            before.clone_from(&known.possible);
            known.possible.extend(before.iter().map(|content| change.apply(*content)));
        });
        let outcome = world.ask_any(random, Question::new(text.clone(), Consistency::Quorum)).await;
        world.trace.note(format!("{text}: {:?}", outcome.as_ref().map(|_| ())));
        self.change(key, |known| {
            known.is_busy = false;
            match outcome {
                Ok(_) => known.possible = before.iter().map(|content| change.apply(*content)).collect(),
                // What it was before stays possible, and what it was to be.
                Err(AskError::Refused(_) | AskError::Unknown(_)) => {}
            }
        });
    }

    async fn look_up(&self, world: &World, random: &mut SplitMix64) {
        let before = self.rows.borrow().clone();
        // Half of them look for a row that is there: if it is not found, that is seen.
        let of_row = if random.chance(1, 2) { Lookup::of_row(random, &before) } else { None };
        let lookup = of_row.unwrap_or_else(|| Lookup::random(random));
        let mut question = Question::new(lookup.text(), Consistency::Quorum);
        question.page_rows = random.chance(1, 2).then(|| 1 + random.below(5) as usize);
        let mut found = BTreeSet::new();
        loop {
            match world.ask_any(random, question.clone()).await {
                Ok(answer) => {
                    found.extend(
                        answer.rows.iter().filter_map(|row| Some((integer(row, 0)?, integer(row, 1)?))),
                    );
                    question.paging_state = answer.next_page;
                    if question.paging_state.is_none() {
                        break;
                    }
                }
                Err(error) => return world.trace.note(format!("{}: {error}", question.text)),
            }
        }
        let after = self.rows.borrow();
        for (key, known) in
            before.iter().filter(|(key, known)| !known.is_busy && after.get(key) == Some(known))
        {
            let is_found = found.contains(key);
            if is_found && !known.possible.iter().any(|content| lookup.accepts(*content)) {
                world.violation(format!(
                    "{} finds row {key:?}, which can only be {:?}",
                    question.text, known.possible
                ));
            }
            if !is_found && known.possible.iter().all(|content| lookup.accepts(*content)) {
                world.violation(format!(
                    "{} does not find row {key:?}, which is {:?}",
                    question.text, known.possible
                ));
            }
        }
    }
}

/// A lookup by one or both indexed columns.
struct Lookup {
    v: i64,
    w: Option<i64>,
    /// At least this value instead of this one.
    is_range: bool,
}

impl Lookup {
    fn random(random: &mut SplitMix64) -> Self {
        Self {
            v: random.below(VALUES) as i64,
            w: random.chance(1, 2).then(|| random.below(VALUES) as i64),
            is_range: random.chance(1, 3),
        }
    }

    /// A lookup by both columns of one of the rows, if there is one whose columns are both known.
    fn of_row(random: &mut SplitMix64, rows: &BTreeMap<Key, Known>) -> Option<Self> {
        let values_of = |known: &Known| {
            let certain = known.possible.first().copied().flatten();
            certain.filter(|_| !known.is_busy && known.possible.len() == 1)
        };
        let rows: Vec<[Option<i64>; 2]> = rows.values().filter_map(values_of).collect();
        let [v, w] = *rows.get(random.below(rows.len() as u64) as usize)?;
        Some(Self { v: v?, w: Some(w?), is_range: false })
    }

    fn text(&self) -> String {
        let of_v = if self.is_range { ">=" } else { "=" };
        let of_w = self.w.map_or_else(String::new, |w| format!(" AND w = {w}"));
        format!("SELECT k, c FROM sim.indexed WHERE v {of_v} {}{of_w}", self.v)
    }

    fn accepts(&self, content: Content) -> bool {
        let Some([v, w]) = content else { return false };
        let is_v = v.is_some_and(|v| if self.is_range { v >= self.v } else { v == self.v });
        is_v && self.w.is_none_or(|wanted| w == Some(wanted))
    }
}

impl Workload for Indexes {
    fn prepare(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            for statement in SCHEMA {
                let question = Question::new(statement, Consistency::One);
                if let Err(error) = world.insist(&mut random, &question, 10).await {
                    world.violation(format!("{statement}: {error}"));
                }
            }
        })
    }

    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                match random.below(12) {
                    0 => compact(&world, &mut random, "indexed").await,
                    1..5 => self.look_up(&world, &mut random).await,
                    _ => self.write(&world, &mut random).await,
                }
                pause_ms(random.below(200)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            // Every replica gets what it has missed.
            let all = Question::new("SELECT k, c, v, w FROM sim.indexed", Consistency::All);
            let rows = match world.insist(&mut random, &all, 10).await {
                Ok(answer) => answer.rows,
                Err(error) => return world.violation(format!("after healing, a scan fails: {error}")),
            };
            let rows: Vec<(Key, Content)> = rows
                .iter()
                .filter_map(|row| {
                    Some(((integer(row, 0)?, integer(row, 1)?), Some([integer(row, 2), integer(row, 3)])))
                })
                .collect();
            for _ in 0..20 {
                let lookup = Lookup::random(&mut random);
                let expected: BTreeSet<Key> = rows
                    .iter()
                    .filter(|(_, content)| lookup.accepts(*content))
                    .map(|(key, _)| *key)
                    .collect();
                let level = LEVELS[random.below(LEVELS.len() as u64) as usize];
                match world.insist(&mut random, &Question::new(lookup.text(), level), 10).await {
                    Ok(answer) => {
                        let found = answer.rows.iter();
                        let found: BTreeSet<Key> =
                            found.filter_map(|row| Some((integer(row, 0)?, integer(row, 1)?))).collect();
                        if found != expected {
                            let text = lookup.text();
                            world.violation(format!(
                                "after healing, {text} at {level:?} finds {found:?} instead of {expected:?}"
                            ));
                        }
                    }
                    Err(error) => world.violation(format!("after healing, {} fails: {error}", lookup.text())),
                }
            }
        })
    }
}
