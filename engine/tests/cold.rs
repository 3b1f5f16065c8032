//! Reads without a wait of the shard's thread: a read is attempted without the disk, what is missing is fetched, and it is attempted again.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use helenus_engine::io::{Disk, ManualClock, SimulatedDisk};
use helenus_engine::shard::Attempt;
use helenus_engine::{EngineError, Shard, Step, TableOptions, TableWriterOptions};
use support::model::VisibleRow;
use support::random_operations::Generator;
use support::{DIRECTORY, NOW, START_MICROS, TABLE, environment, run_local, small_options, table_options};

/// Without a cache every block is missing again after each read.
const CACHES: [usize; 3] = [0, 4 << 10, 64 << 20];

async fn open(disk: &SimulatedDisk, cache_bytes: usize) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let mut options = small_options();
    options.block_cache_bytes = cache_bytes;
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    // Many blocks a file.
    let writer = TableWriterOptions { block_bytes: 512, ..TableWriterOptions::default() };
    let mut options = TableOptions { writer, ..table_options() };
    // Its reads would count as those of the reads.
    options.compaction.enabled = false;
    shard.create_table(TABLE, options).await.unwrap();
    shard
}

/// A shard with several files, closed.
fn prepared(disk: &SimulatedDisk, seed: u64) {
    run_local(async {
        let shard = open(disk, 0).await;
        let mut generator =
            Generator { partitions: 6, rows: 40, value_bytes_max: 300, ..Generator::new(seed) };
        for number in 0..160 {
            shard.apply(&generator.mutation(TABLE, START_MICROS).view().unwrap()).unwrap();
            if number % 50 == 49 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        shard.close().await.unwrap();
    });
}

fn read_all(shard: &Shard, reversed: bool, attempts: &Cell<usize>) -> Result<Vec<VisibleRow>, EngineError> {
    attempts.set(attempts.get() + 1);
    support::read_all(shard, support::EVERYTHING, reversed, NOW)
}

#[test]
fn a_cold_read_returns_what_a_warm_one_does_and_never_touches_the_disk_on_its_way() {
    for seed in 0..8 {
        let disk = SimulatedDisk::new(seed);
        prepared(&disk, seed);
        for cache_bytes in CACHES {
            run_local(async {
                let shard = open(&disk, cache_bytes).await;
                for reversed in [false, true] {
                    let expected = support::read_all(&shard, support::EVERYTHING, reversed, NOW).unwrap();
                    assert!(!expected.is_empty());
                    let attempts = Cell::new(0);
                    let rows = shard.read_cold(|| read_all(&shard, reversed, &attempts)).await;
                    assert!(rows.unwrap() == expected, "seed {seed}, cache {cache_bytes}");
                    assert!(cache_bytes > 0 || attempts.get() > 1, "without a cache blocks must be fetched");
                }
            });
        }
    }
}

#[test]
fn blocks_that_were_fetched_stay_until_the_read_is_done_and_no_longer() {
    let disk = SimulatedDisk::new(1);
    prepared(&disk, 1);
    run_local(async {
        let shard = open(&disk, 0).await;
        let attempts = Cell::new(0);
        let attempt = || shard.attempt(|| read_all(&shard, false, &attempts)).unwrap();
        let Attempt::Missing(missing) = attempt() else { panic!("there is no cache") };
        let mut cold = shard.cold_read();
        cold.fetch(missing).await.unwrap();
        let rows = loop {
            match attempt() {
                Attempt::Done(rows) => break rows,
                Attempt::Missing(missing) => cold.fetch(missing).await.unwrap(),
            }
        };
        assert!(!rows.is_empty());
        assert!(matches!(attempt(), Attempt::Done(again) if again == rows));
        drop(cold);
        assert!(matches!(attempt(), Attempt::Missing(_)), "nothing is held any more");
        // More and more blocks are fetched at once.
        assert!(attempts.get() < 30, "{} attempts", attempts.get());
    });
}

#[test]
fn reads_that_miss_the_same_blocks_share_their_fetches() {
    let disk = SimulatedDisk::new(1);
    prepared(&disk, 1);
    run_local(async {
        let attempts = Cell::new(0);
        let shard = open(&disk, 64 << 20).await;
        let before = disk.part_reads();
        let expected = shard.read_cold(|| read_all(&shard, false, &attempts)).await.unwrap();
        let alone = disk.part_reads() - before;
        shard.close().await.unwrap();
        drop(shard);
        let shard = open(&disk, 64 << 20).await;
        let before = disk.part_reads();
        let reads = (0..10).map(|_| shard.read_cold(|| read_all(&shard, false, &attempts)));
        for rows in futures::future::join_all(reads).await {
            assert!(rows.unwrap() == expected);
        }
        let together = disk.part_reads() - before;
        // They are not quite in step, and runs of blocks that are read ahead overlap.
        assert!(together <= 4 * alone, "{together} reads of the disk for ten, {alone} for one");
    });
}

#[test]
fn damage_ahead_of_a_read_that_ends_before_it_does_not_fail_the_read() {
    let disk = SimulatedDisk::new(1);
    prepared(&disk, 1);
    let directory = Path::new(DIRECTORY).join("tables").join(TABLE.to_string());
    run_local(async {
        let shard = open(&disk, 0).await;
        let first_row = |shard: &Shard| -> Result<Vec<u8>, EngineError> {
            let mut scan = shard.scan(&support::request(false))?;
            match scan.next()? {
                Step::Row(view) => Ok(view.key.to_vec()),
                _ => panic!("there are rows"),
            }
        };
        shard.compact(TABLE).await.unwrap();
        let expected = first_row(&shard).unwrap();
        for entry in disk.list(&directory).await.unwrap() {
            let path = directory.join(&entry.name);
            let length = disk.length(&path).await.unwrap();
            // In the last data blocks, far behind the first row.
            assert!(disk.flip_bit(&path, length / 2 * 8));
        }
        let all = shard.read_cold(|| read_all(&shard, false, &Cell::new(0))).await;
        assert!(all.is_err(), "the damage is noticed by a read that comes there");
        assert_eq!(shard.read_cold(|| first_row(&shard)).await.unwrap(), expected);
    });
}
