//! Reads of a whole table page by page, each page from another node, while rows around are written and deleted: every
//! row that existed all the time must appear exactly once.

use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus::testing::client::integer;
use helenus_engine::io::SplitMix64;

use super::load::Workload;
use crate::client::Question;
use crate::world::{World, pause_ms};

const PARTITIONS: u64 = 7;
const ROWS: u64 = 8;

#[derive(Default)]
pub struct Pages;

/// Rows with an even number stay; those with an odd number are written and deleted.
fn is_stable(c: i64) -> bool {
    c % 2 == 0
}

impl Pages {
    async fn scan(&self, world: &World, random: &mut SplitMix64) {
        let one = random.chance(1, 4).then(|| random.below(PARTITIONS) as i64);
        let condition = one.map_or(String::new(), |k| format!(" WHERE k = {k}"));
        let mut question =
            Question::new(format!("SELECT k, c FROM sim.pages{condition}"), Consistency::Quorum);
        question.page_rows = Some(1 + random.below(9) as usize);
        let mut counts: BTreeMap<(i64, i64), u32> = BTreeMap::new();
        let mut failures = 0;
        loop {
            match world.ask_any(random, question.clone()).await {
                Ok(answer) => {
                    for row in &answer.rows {
                        if let (Some(k), Some(c)) = (integer(row, 0), integer(row, 1)) {
                            *counts.entry((k, c)).or_default() += 1;
                        }
                    }
                    match answer.next_page {
                        None => break,
                        next_page => question.paging_state = next_page,
                    }
                }
                Err(error) => {
                    failures += 1;
                    if failures > 5 || world.is_load_over.get() {
                        return world.trace.note(format!("a scan is given up: {error}"));
                    }
                    pause_ms(200).await;
                }
            }
        }
        world.trace.note(format!("pages{condition}: {} rows", counts.len()));
        for k in (0..PARTITIONS as i64).filter(|k| one.is_none_or(|one| one == *k)) {
            for c in 0..ROWS as i64 {
                let count = counts.get(&(k, c)).copied().unwrap_or_default();
                if count > 1 || (is_stable(c) && count == 0) {
                    world.violation(format!(
                        "a paged read with pages of {:?} rows{condition} has row {:?} {count} times",
                        question.page_rows,
                        (k, c)
                    ));
                }
            }
        }
    }

    async fn change(&self, world: &World, random: &mut SplitMix64) {
        let (k, c) = (random.below(PARTITIONS), 1 + 2 * random.below(ROWS / 2));
        let text = if random.chance(1, 2) {
            format!("INSERT INTO sim.pages (k, c, v) VALUES ({k}, {c}, 0)")
        } else {
            format!("DELETE FROM sim.pages WHERE k = {k} AND c = {c}")
        };
        if let Err(error) = world.ask_any(random, Question::new(text, Consistency::Quorum)).await {
            world.trace.note(format!("row {:?} of the pages: {error}", (k, c)));
        }
    }
}

impl Workload for Pages {
    fn prepare(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            for k in 0..PARTITIONS {
                for c in (0..ROWS as i64).filter(|c| is_stable(*c)) {
                    let text = format!("INSERT INTO sim.pages (k, c, v) VALUES ({k}, {c}, 0)");
                    let question = Question::new(text, Consistency::Quorum);
                    if let Err(error) = world.insist(&mut random, &question, 5).await {
                        world.violation(format!("without any fault, a write fails: {error}"));
                    }
                }
            }
        })
    }

    fn client(self: Rc<Self>, world: Rc<World>, number: usize) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            while !world.is_load_over.get() {
                if number == 0 || random.chance(1, 8) {
                    self.scan(&world, &mut random).await;
                } else {
                    self.change(&world, &mut random).await;
                }
                pause_ms(random.below(100)).await;
            }
        })
    }

    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let mut random = world.random();
            self.scan(&world, &mut random).await;
        })
    }
}
