//! Reads without a wait of the shard's thread: a read is attempted without the disk, what is missing is fetched, and it is attempted again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use crate::support::model::VisibleRow;
use crate::support::random_operations::Generator;
use crate::support::{
    DIRECTORY, NOW, START_MICROS, TABLE, apply, environment, put, run_local, small_options, table_options,
};
use helenus_engine::io::{Disk, ManualClock, SimulatedDisk, SplitMix64};
use helenus_engine::key::{self, full_key};
use helenus_engine::read::ScanRequest;
use helenus_engine::shard::{Attempt, ReadProgress};
use helenus_engine::{EngineError, Shard, Step, TableOptions, TableWriterOptions};

/// Without a cache every block is missing again after each read.
const CACHES: [usize; 3] = [0, 4 << 10, 64 << 20];

async fn open(disk: &SimulatedDisk, cache_bytes: usize) -> Rc<Shard> {
    // Many blocks a file.
    open_with_blocks(disk, cache_bytes, 512).await
}

async fn open_with_blocks(disk: &SimulatedDisk, cache_bytes: usize, block_bytes: usize) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let mut options = small_options();
    options.block_cache_bytes = cache_bytes;
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    let writer = TableWriterOptions { block_bytes, ..TableWriterOptions::default() };
    let mut options = TableOptions { writer, ..table_options() };
    // Its reads would count as those of the reads.
    options.compaction.enabled = false;
    shard.create_table(TABLE, options).await.unwrap();
    shard
}

/// A shard with several files, closed.
fn prepared(disk: &SimulatedDisk, seed: u64) {
    let generator = Generator { partitions: 6, rows: 40, value_bytes_max: 300, ..Generator::new(seed) };
    prepare(disk, 512, generator);
}

fn prepare(disk: &SimulatedDisk, block_bytes: usize, mut generator: Generator) {
    run_local(async {
        let shard = open_with_blocks(disk, 0, block_bytes).await;
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
    crate::support::read_all(shard, crate::support::EVERYTHING, reversed, NOW)
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
                    let expected =
                        crate::support::read_all(&shard, crate::support::EVERYTHING, reversed, NOW).unwrap();
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
            let mut scan = shard.scan(&crate::support::request(false))?;
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

/// Reads the first `limit` rows of each partition and skips the others, in pages of random sizes. Where blocks are missing it goes on
/// behind the rows that it has.
async fn read_heads(
    shard: &Shard,
    (reversed, now_seconds): (bool, u32),
    limit: usize,
    columns: Option<&[u32]>,
    random: &mut SplitMix64,
) -> Vec<VisibleRow> {
    let (mut start, mut end) = (crate::support::EVERYTHING.0.to_vec(), crate::support::EVERYTHING.1.to_vec());
    let mut rows: Vec<VisibleRow> = Vec::new();
    let mut of_partition = 0;
    loop {
        // Long pages read ahead.
        let page_rows = if random.chance(1, 2) { 4 } else { 1_000 };
        let page_end = rows.len() + 1 + random.below(page_rows) as usize;
        // Fewer than are read too.
        let rows_expected = 1 + random.below(limit as u64) as u8;
        let mut cold = shard.cold_read();
        let is_end = loop {
            let before = rows.len();
            let (from, to) = (start.clone(), end.clone());
            let read = || -> Result<bool, EngineError> {
                let request =
                    ScanRequest { start: &from, end: &to, now_seconds, ..crate::support::request(reversed) };
                let mut scan = shard.scan_heads(&request, columns, rows_expected)?;
                while rows.len() < page_end {
                    let Step::Row(view) = scan.next()? else { return Ok(true) };
                    let prefix = key::prefix_length(view.key).unwrap();
                    let is_same = rows.last().is_some_and(|last| last.key.starts_with(&view.key[..prefix]));
                    of_partition = if is_same { of_partition + 1 } else { 1 };
                    rows.push(VisibleRow::of(&view));
                    let is_done = of_partition >= limit;
                    let passed = if is_done { &view.key[..prefix] } else { view.key };
                    if reversed {
                        end = passed.to_vec();
                    } else {
                        start = [passed, if is_done { key::PARTITION_END } else { &[0] }].concat();
                    }
                    if is_done {
                        scan.skip_partition()?;
                    }
                }
                Ok(false)
            };
            match shard.attempt(read).unwrap() {
                Attempt::Done(is_end) => break is_end,
                Attempt::Missing(missing) => {
                    let (rows, rows_max) = (rows.len(), page_end);
                    let (bytes, bytes_max) = (0, u64::MAX);
                    let progress =
                        ReadProgress { has_moved: rows > before, rows, rows_max, bytes, bytes_max };
                    cold.fetch_ahead(missing, progress).await.unwrap();
                }
            }
        };
        if is_end {
            return rows;
        }
    }
}

#[test]
fn skipping_gives_the_heads_of_what_a_whole_scan_returns() {
    let (mut heads, mut rows_in_all) = (0, 0);
    for seed in 0..24 {
        let disk = SimulatedDisk::new(seed);
        // Partitions of several blocks, and blocks of several partitions.
        let (block_bytes, partitions, rows) = if seed % 2 == 0 { (512, 6, 40) } else { (4096, 16, 12) };
        let generator = |seed, value_bytes_max, range_deletes| Generator {
            partitions,
            rows,
            value_bytes_max,
            range_deletes,
            ..Generator::new(seed)
        };
        prepare(&disk, block_bytes, generator(seed, 300, 1));
        for cache_bytes in CACHES {
            run_local(async {
                let shard = open_with_blocks(&disk, cache_bytes, block_bytes).await;
                let mut random = SplitMix64::new(seed);
                // The memtable has its part, of which some deletes what is in the files.
                let mut generator = generator(seed + 1000 + cache_bytes as u64, 40, 4);
                for _ in 0..20 {
                    shard.apply(&generator.mutation(TABLE, START_MICROS).view().unwrap()).unwrap();
                }
                // Now, and when most of what expires has.
                for (reversed, now_seconds) in
                    [(false, NOW), (true, NOW), (false, NOW + 150), (true, NOW + 150)]
                {
                    let all =
                        crate::support::read_all(&shard, crate::support::EVERYTHING, reversed, now_seconds)
                            .unwrap();
                    rows_in_all += all.len();
                    for limit in [1, 2, 5] {
                        let mut taken: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
                        let expected: Vec<_> = all
                            .iter()
                            .filter(|row| {
                                let prefix = key::prefix_length(&row.key).unwrap();
                                let taken = taken.entry(row.key[..prefix].to_vec()).or_default();
                                *taken += 1;
                                *taken <= limit
                            })
                            .cloned()
                            .collect();
                        heads += expected.len();
                        let place = format!(
                            "seed {seed}, cache {cache_bytes}, reversed {reversed}, now {now_seconds}, {limit} rows"
                        );
                        let how = (reversed, now_seconds);
                        let found = read_heads(&shard, how, limit, None, &mut random).await;
                        assert!(found == expected, "{place}");
                        // Values of the other columns do not count, rows do.
                        let found = read_heads(&shard, how, limit, Some(&[0]), &mut random).await;
                        let keys =
                            |rows: &[VisibleRow]| rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
                        assert!(keys(&found) == keys(&expected), "{place}, projected");
                    }
                }
            });
        }
    }
    assert!(heads * 2 < rows_in_all * 3, "{heads} rows are in heads of three sizes, {rows_in_all} in all");
}

#[test]
fn a_read_of_heads_passes_over_the_blocks_within_partitions() {
    const PARTITIONS: u64 = 30;
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk, 64 << 20).await;
        // About 20 blocks each.
        for partition in 0..PARTITIONS {
            for row in 0..100 {
                let mutation = crate::support::put(partition as i64, row, 1, &[partition as u8 ^ row; 60]);
                shard.apply(&mutation.view().unwrap()).unwrap();
            }
        }
        shard.flush(TABLE).await.unwrap();
        shard.close().await.unwrap();
    });
    for reversed in [false, true] {
        run_local(async {
            let shard = open(&disk, 64 << 20).await;
            let before = disk.part_reads();
            let mut random = SplitMix64::new(1);
            let rows = read_heads(&shard, (reversed, NOW), 1, None, &mut random).await;
            let expected = (0..PARTITIONS as i64)
                .map(|token| full_key(token, b"key", &[2, if reversed { 100 } else { 1 }]).unwrap());
            let expected: Vec<_> = if reversed { expected.rev().collect() } else { expected.collect() };
            assert!(rows.iter().map(|row| &row.key).eq(&expected));
            // Blocks that are not adjacent are read one by one: one or two at the border of two partitions.
            let reads = disk.part_reads() - before;
            assert!((PARTITIONS..=3 * PARTITIONS).contains(&reads), "{reads} reads of the disk");
        });
    }
}

/// As [`read_all`] with no cache: the simulated disk refuses files that a job has opened.
async fn read_from_disk(shard: &Shard) -> usize {
    let attempts = Cell::new(0);
    let rows = shard.read_cold(|| read_all(shard, false, &attempts)).await.unwrap().len();
    assert!(attempts.get() > 1, "it has read from the disk");
    rows
}

#[test]
fn files_written_since_the_start_are_read_by_the_threads_for_reads() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk, 0).await;
        for _ in 0..2 {
            for token in 0..200 {
                apply(&shard, &put(token, 1, 1, &[7; 200]));
            }
            shard.flush(TABLE).await.unwrap();
            assert_eq!(read_from_disk(&shard).await, 200, "of a flush");
        }
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 1);
        assert_eq!(read_from_disk(&shard).await, 200, "of a compaction");
    });
}
