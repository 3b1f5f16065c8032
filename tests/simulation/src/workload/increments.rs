//! Transactions that add to numbers (`n += 1`), most of them with tokens, and are sent again: none is lost, and none is done twice. What each
//! returns is the number before it: of two increments, each has seen another one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::{LocalBoxFuture, join};
use helenus::testing::client::{StatementResponse, integer};
use helenus_engine::io::SplitMix64;
use helenus_testing::uuids::random_uuid;

use super::load::Workload;
use crate::client::{AskError, Question};
use crate::world::{World, pause_ms};

const ROWS: u64 = 3;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS sim.increments (k int PRIMARY KEY, n bigint, last uuid)";
/// How often a transaction with a token is sent again by the client that has no answer.
const REPEATS_MAX: u64 = 3;

/// What is known of the increments of a row.
#[derive(Default)]
struct Row {
    /// The texts of those that were answered, by the number that they have returned.
    answered: BTreeMap<i64, String>,
    /// The texts of those with a token that were not.
    unanswered: Vec<String>,
    /// The number of those without a token that were not.
    unknown: i64,
}

#[derive(Default)]
pub struct Increments {
    rows: RefCell<BTreeMap<i64, Row>>,
}

fn question(text: &str) -> Question {
    let mut question = Question::new(text, Consistency::Quorum);
    question.serial_consistency = Some(Consistency::Serial);
    question
}

/// The number that a transaction has returned.
fn returned(answer: &StatementResponse) -> Option<i64> {
    answer.rows.first().and_then(|row| integer(row, 0))
}

impl Increments {
    /// Notes what an increment has returned: nothing but the same one may return the same again.
    fn note(&self, world: &World, k: i64, text: &str, answer: &StatementResponse) {
        world.trace.note(format!("{text}: {:?}", returned(answer)));
        let Some(before) = returned(answer) else {
            world.violation(format!("an increment of row {k} returns no number: {text}"));
            return;
        };
        let mut rows = self.rows.borrow_mut();
        let answered = &mut rows.entry(k).or_default().answered;
        let known = answered.iter().find(|(_, known)| *known == text).map(|(before, _)| *before);
        match (known, answered.get(&before)) {
            (Some(known), _) if known != before => world.violation(format!(
                "an increment of row {k} was done twice: it returned {known}, and then {before}: {text}"
            )),
            (None, Some(other)) => {
                world.violation(format!("two increments of row {k} have seen {before}: {other} and {text}"));
            }
            _ => drop(answered.insert(before, text.to_owned())),
        }
    }

    async fn step(&self, world: &World, random: &mut SplitMix64) {
        let k = random.below(ROWS) as i64;
        let has_token = !random.chance(1, 4);
        // Without a token nothing but this name tells one increment from another.
        let name = random_uuid(random);
        let begin = if has_token {
            format!("BEGIN TRANSACTION USING TOKEN {name}")
        } else {
            "BEGIN TRANSACTION".to_owned()
        };
        let text = format!(
            "{begin} LET r = (SELECT n FROM sim.increments WHERE k = {k}); SELECT r.n; UPDATE sim.increments SET n += 1, last = {name} WHERE k = {k}; COMMIT TRANSACTION"
        );
        let ask = |mut random: SplitMix64| {
            let question = question(&text);
            async move { world.ask_any(&mut random, question).await }
        };
        let mut is_answered = false;
        let repeats = if has_token { random.below(REPEATS_MAX + 1) } else { 0 };
        // Several times at the same time, one after the other, and also after an answer.
        for _ in 0..=repeats {
            let first = ask(world.random());
            let outcomes = if has_token && random.chance(1, 3) {
                let (first, second) = join(first, ask(world.random())).await;
                vec![first, second]
            } else {
                vec![first.await]
            };
            for outcome in outcomes {
                match outcome {
                    Ok(answer) => {
                        is_answered = true;
                        self.note(world, k, &text, &answer);
                    }
                    Err(error @ (AskError::Refused(_) | AskError::Unknown(_))) => {
                        world.trace.note(format!("{text}: {error}"));
                    }
                }
            }
            if is_answered && random.chance(1, 2) {
                break;
            }
        }
        if !is_answered {
            let mut rows = self.rows.borrow_mut();
            let row = rows.entry(k).or_default();
            if has_token {
                row.unanswered.push(text);
            } else {
                row.unknown += 1;
            }
        }
    }

    /// Asks again what was not answered, and compares the number with the increments.
    async fn check_row(&self, world: &World, k: i64) {
        let mut random = world.random();
        let unanswered = std::mem::take(&mut self.rows.borrow_mut().entry(k).or_default().unanswered);
        for text in unanswered {
            match world.insist(&mut random, &question(&text), 10).await {
                Ok(answer) => self.note(world, k, &text, &answer),
                Err(error) => {
                    world.violation(format!("after healing, an increment of row {k} fails: {error}: {text}"));
                    return;
                }
            }
        }
        let mut read =
            Question::new(format!("SELECT n FROM sim.increments WHERE k = {k}"), Consistency::Serial);
        read.serial_consistency = Some(Consistency::Serial);
        let answer = match world.insist(&mut random, &read, 10).await {
            Ok(answer) => answer,
            Err(error) => {
                world.violation(format!(
                    "after healing, a SERIAL read of increments of row {k} fails: {error}"
                ));
                return;
            }
        };
        let n = returned(&answer).unwrap_or(-1);
        let rows = self.rows.borrow();
        let Some(row) = rows.get(&k) else { return };
        let answered = row.answered.len() as i64;
        world.trace.note(format!("increments of row {k}: {n}, {answered} answered, {} unknown", row.unknown));
        if n < answered || n > answered + row.unknown {
            world.violation(format!(
                "row {k} has the number {n} after {answered} increments and {} whose outcome is unknown",
                row.unknown
            ));
        }
    }
}

impl Workload for Increments {
    fn prepare(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            let insert = |k: u64| format!("INSERT INTO sim.increments (k, n) VALUES ({k}, 0) IF NOT EXISTS");
            for text in std::iter::once(TABLE.to_owned()).chain((0..ROWS).map(insert)) {
                if let Err(error) = world.insist(&mut random, &question(&text), 10).await {
                    world.violation(format!("{text}: {error}"));
                }
            }
        })
    }

    fn client(self: Rc<Self>, world: Rc<World>, _number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                self.step(&world, &mut random).await;
                pause_ms(random.below(80)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            for k in 0..ROWS as i64 {
                self.check_row(&world, k).await;
            }
        })
    }
}
