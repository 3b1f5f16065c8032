//! Shards of a node lend each other what of their budgets they do not use.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use helenus_engine::io::{ManualClock, SimulatedDisk};
use helenus_engine::shard::CommonResources;
use helenus_engine::{Shard, ShardOptions, TableOptions};

use crate::support::{START_MICROS, TABLE, apply, environment, put, run_local, small_options, table_options};

/// Large beside the pieces in which a memtable grows.
const BUDGET: usize = 64 << 20;
/// What a shard may take above its bound: a piece.
const PIECE_BYTES: usize = 1 << 20;

/// Two shards of one node. A table that is not logged fills the memory without waiting for a log.
async fn open_two(options: &ShardOptions, is_logged: bool) -> (Rc<ManualClock>, Vec<Rc<Shard>>) {
    let (disk, clock) = (SimulatedDisk::new(1), Rc::new(ManualClock::new(START_MICROS)));
    let common = CommonResources::default();
    let mut shards = Vec::new();
    for name in ["first", "second"] {
        let options = ShardOptions {
            directory: Path::new(name).to_owned(),
            shards_of_node: 2,
            common: common.clone(),
            ..options.clone()
        };
        let shard = Shard::open(environment(&disk, &clock), options).await.unwrap();
        shard.create_table(TABLE, TableOptions { is_logged, ..table_options() }).await.unwrap();
        shards.push(shard);
    }
    (clock, shards)
}

/// Writes without letting flushes have a turn, until a writer would have to wait. Returns the memory that is used then.
fn fill(shard: &Shard) -> usize {
    for number in 0.. {
        match shard.admit().now_or_never() {
            Some(admitted) => admitted.unwrap(),
            None => break,
        }
        apply(shard, &put(number, 1, 1, &[7; 10_000]));
    }
    shard.memtable_bytes()
}

/// Writes until memtables take this much memory. Returns what they take.
fn write_until(shard: &Shard, bytes: usize) -> usize {
    let mut number = 0;
    while shard.memtable_bytes() < bytes {
        apply(shard, &put(number, 1, 1, &[7; 1000]));
        number += 1;
    }
    shard.memtable_bytes()
}

/// Lets the tasks of the shards work until a condition holds, while time passes.
async fn until(clock: &ManualClock, is_reached: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_reached() {
            return;
        }
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    panic!("the condition is never reached");
}

#[test]
fn a_shard_that_writes_alone_has_more_than_half_of_the_memory() {
    run_local(async {
        let options =
            ShardOptions { memtable_bytes_max: BUDGET, commit_log_bytes_max: u64::MAX, ..small_options() };
        let (clock, shards) = open_two(&options, false).await;
        let alone = fill(&shards[0]);
        assert!(alone > BUDGET / 8 * 5, "{alone}");
        let beside = fill(&shards[1]);
        assert!(beside > BUDGET / 4, "{beside}");
        assert!(alone + beside <= BUDGET + 2 * PIECE_BYTES, "{alone} + {beside}");
        until(&clock, || shards.iter().all(|shard| shard.memtable_bytes() == 0)).await;
        let again = fill(&shards[1]);
        assert!(again > BUDGET / 8 * 5, "what was lent is back: {again}");
    });
}

/// A shard that has stopped writing would keep what it has borrowed for ever.
#[test]
fn an_idle_shard_flushes_what_it_has_borrowed_when_another_one_needs_it() {
    run_local(async {
        let options =
            ShardOptions { memtable_bytes_max: BUDGET, commit_log_bytes_max: u64::MAX, ..small_options() };
        let (clock, shards) = open_two(&options, false).await;
        // Less than what begins a flush while nobody else writes.
        let quiet = write_until(&shards[0], BUDGET / 16 * 5);
        for _ in 0..500 {
            clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        assert_eq!(shards[0].memtable_bytes(), quiet, "nobody needs it");
        // Less than what begins a flush of this shard beside the other one.
        let written = write_until(&shards[1], BUDGET / 128 * 19);
        until(&clock, || shards[0].memtable_bytes() == 0).await;
        assert_eq!(shards[1].memtable_bytes(), written);
    });
}

#[test]
fn a_shard_that_writes_alone_has_more_than_half_of_the_room_for_the_log() {
    run_local(async {
        let room = 2 << 20;
        let options =
            ShardOptions { memtable_bytes_max: 64 << 20, commit_log_bytes_max: room, ..small_options() };
        let (clock, shards) = open_two(&options, true).await;
        let mut most = 0;
        for number in 0..10_000 {
            shards[0].admit().await.unwrap();
            apply(&shards[0], &put(number, 1, 1, &[7; 1000]));
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(1));
            most = most.max(shards[0].commit_log_bytes());
        }
        assert!(most > room / 8 * 5, "{most}");
        assert!(most <= room, "{most}");
    });
}

#[test]
fn compactions_of_all_shards_have_one_rate() {
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: Some(1000), ..small_options() };
        let (_, shards) = open_two(&options, true).await;
        shards[0].compaction_rate().set(Some(7));
        assert_eq!(shards[1].compaction_rate().bytes_per_second(), Some(7));
    });
}

/// The room that a writer waits for may come from another shard, which does not wake it.
#[test]
fn a_writer_goes_on_when_another_shard_has_given_memory_back() {
    run_local(async {
        let options =
            ShardOptions { memtable_bytes_max: BUDGET, commit_log_bytes_max: u64::MAX, ..small_options() };
        let (clock, mut shards) = open_two(&options, false).await;
        write_until(&shards[0], BUDGET / 64 * 45);
        let used = write_until(&shards[1], BUDGET / 64 * 20);
        let writer = shards.remove(1);
        let mut waiting = Box::pin(writer.admit());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        // Before the writer's shard looks what it has to flush. Then it need not flush anything.
        shards.clear();
        let is_admitted = std::cell::Cell::new(false);
        let admitted = async {
            waiting.await.unwrap();
            is_admitted.set(true);
        };
        futures::join!(admitted, until(&clock, || is_admitted.get()));
        assert_eq!(writer.memtable_bytes(), used);
    });
}
