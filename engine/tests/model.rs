//! The engine against a plain reference: random writes and deletions of every kind, reads in both directions
//! and in pages, with flushes, compactions, truncations, restarts and the passing of time in between.
//!
//! `HELENUS_MODEL_OPERATIONS` sets the number of operations (default 60,000), `HELENUS_MODEL_SEED` the seed,
//! which a failure prints.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{Clock, CrashStyle, ManualClock, SimulatedDisk};
use helenus_engine::read::Budget;
use helenus_engine::{Lookup, RowRequest, ScanRequest, Shard, Step, key};

use support::model::{Model, VisibleRow};
use support::random_operations::{COLLECTION_COLUMNS, Generator};
use support::{START_MICROS, TABLE, environment, read_page, run_local, small_options, table_options};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Test {
    generator: Generator,
    model: Model,
    clock: Rc<ManualClock>,
    disk: SimulatedDisk,
    operations_left: u64,
    /// Rows that a lookup found without a merge.
    looked_up: u64,
}

impl Test {
    /// One life of the shard: until a restart is due or all operations are done.
    async fn live(&mut self) {
        let shard = Shard::open(environment(&self.disk, &self.clock), small_options()).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        self.check_everything(&shard);
        let mut last = helenus_engine::LogPosition::default();
        while self.operations_left > 0 {
            self.operations_left -= 1;
            match self.generator.random.below(10_000) {
                0..6500 => {
                    let mutation = self.generator.mutation(TABLE, self.clock.now_micros());
                    shard.admit().await.unwrap();
                    last = shard.apply(&mutation.view().unwrap()).unwrap();
                    self.model.apply(&mutation.view().unwrap());
                }
                6500..9400 => self.check_range(&shard).await,
                9400..9940 => self.clock.advance(Duration::from_millis(self.generator.random.below(3000))),
                9940..9970 => shard.flush(TABLE).await.unwrap(),
                9970..9980 => shard.compact(TABLE).await.unwrap(),
                9980..9990 => self.clock.advance(Duration::from_secs(150)),
                9990..9993 => {
                    shard.truncate(TABLE).await.unwrap();
                    self.model.clear();
                }
                9993..9997 => {
                    shard.durable(last).await.unwrap();
                    self.disk.crash();
                    return;
                }
                _ => {
                    shard.close().await.unwrap();
                    return;
                }
            }
        }
        self.check_everything(&shard);
    }

    fn check_everything(&self, shard: &Shard) {
        let range = (&[][..], &[0xFF; 9][..]);
        let now = self.clock.now_seconds();
        let rows = support::read_all(shard, range, false, now).unwrap();
        assert_eq!(rows, self.model.read(range, false, now));
    }

    /// Reads a random range in pages, with flushes, compactions and other reads in between.
    async fn check_range(&mut self, shard: &Shard) {
        let (start, end) = self.generator.range();
        let random = &mut self.generator.random;
        let reversed = random.chance(1, 2);
        let now = self.clock.now_seconds();
        let limit = if random.chance(1, 2) { usize::MAX } else { 1 + random.below(20) as usize };
        let budget = if random.chance(1, 4) {
            Budget { bytes: random.below(2000), tombstones: random.below(20) }
        } else {
            Budget::UNLIMITED
        };
        let mut read = Vec::new();
        let (mut from, mut to) = (start.clone(), end.clone());
        loop {
            let (page, bound) = read_page(shard, (&from, &to), reversed, limit, budget, now).unwrap();
            read.extend(page);
            let Some(bound) = bound else { break };
            if reversed {
                to = bound;
            } else {
                from = bound;
            }
            match random.below(400) {
                0 => shard.flush(TABLE).await.unwrap(),
                1 => shard.compact(TABLE).await.unwrap(),
                _ => {}
            }
        }
        let expected = self.model.read((&start, &end), reversed, now);
        assert_eq!(read, expected, "range {start:x?}..{end:x?} reversed {reversed}");
        let budget = Budget::UNLIMITED;
        let (start, end) = (start.as_slice(), end.as_slice());
        let range = ScanRequest { table: TABLE, start, end, reversed, now_seconds: now, budget };
        self.check_columns(shard, &range, &expected);
        for row in expected.iter().take(8) {
            let end = key::behind(&row.key);
            let request = ScanRequest { start: &row.key, end: &end, ..range };
            self.check_columns(shard, &request, std::slice::from_ref(row));
            self.check_look_up(shard, &row.key, now);
        }
        // Mostly no row has the key.
        if key::prefix_length(start).is_some() {
            self.check_look_up(shard, start, now);
        }
    }

    /// Projected reads: older versions and sources may be skipped, which must not change the answer.
    fn check_columns(&mut self, shard: &Shard, request: &ScanRequest<'_>, expected: &[VisibleRow]) {
        let random = &mut self.generator.random;
        let wanted: Vec<u32> = (0..COLLECTION_COLUMNS.start).filter(|_| random.chance(1, 2)).collect();
        let of_wanted = |row: &VisibleRow| {
            let cells = row.cells.iter().filter(|cell| wanted.contains(&cell.0.0)).cloned();
            (row.key.clone(), cells.collect::<Vec<_>>())
        };
        let mut scan = shard.scan_columns(request, &wanted).unwrap();
        let mut read = Vec::new();
        while let Step::Row(view) = scan.next().unwrap() {
            read.push(of_wanted(&VisibleRow::of(&view)));
        }
        let expected: Vec<_> = expected.iter().map(of_wanted).collect();
        assert_eq!(read, expected, "columns {wanted:?}");
    }

    /// Looks up one row. The lookup may require a scan, but a row that it finds is correct.
    fn check_look_up(&mut self, shard: &Shard, key: &[u8], now_seconds: u32) {
        let behind = key::behind(key);
        let expected = self.model.read((key, &behind), false, now_seconds).into_iter().next();
        let random = &mut self.generator.random;
        let some: Vec<u32> = (0..COLLECTION_COLUMNS.start).filter(|_| random.chance(1, 2)).collect();
        let columns = random.chance(1, 2).then_some(some.as_slice());
        let request = RowRequest { table: TABLE, key, columns, now_seconds };
        let of_wanted = |row: &VisibleRow| {
            let is_wanted = |column: u32| columns.is_none_or(|columns| columns.contains(&column));
            let cells = row.cells.iter().filter(|cell| is_wanted(cell.0.0)).cloned();
            (row.key.clone(), cells.collect::<Vec<_>>())
        };
        match shard.look_up(&request, |view| of_wanted(&VisibleRow::of(&view))).unwrap() {
            Lookup::Row(found) => {
                self.looked_up += 1;
                assert_eq!(Some(found), expected.as_ref().map(of_wanted), "columns {columns:?}");
            }
            Lookup::Absent => assert_eq!(expected, None),
            Lookup::Unmerged => {}
        }
    }
}

fn agrees_with_the_reference(generator: Generator, seed: u64) {
    let mut test = Test {
        generator,
        model: Model::default(),
        clock: Rc::new(ManualClock::new(START_MICROS)),
        disk: SimulatedDisk::new(seed),
        operations_left: setting("HELENUS_MODEL_OPERATIONS", 60_000),
        looked_up: 0,
    };
    let guard = SeedOnFailure { seed };
    while test.operations_left > 0 {
        run_local(test.live());
        let style = CrashStyle::ALL[test.generator.random.below(CrashStyle::ALL.len() as u64) as usize];
        test.disk.restart(style, test.generator.random.next_u64());
    }
    drop(guard);
    assert!(test.looked_up > 0, "every row that was looked up had to be merged");
}

#[test]
fn the_engine_agrees_with_the_reference() {
    let seed = setting("HELENUS_MODEL_SEED", 1);
    agrees_with_the_reference(Generator::new(seed), seed);
}

/// Makes files contain different parts of their partitions, so that reads skip some of them.
#[test]
fn the_engine_agrees_with_the_reference_about_rows_written_in_the_order_of_time() {
    let seed = setting("HELENUS_MODEL_SEED", 1);
    agrees_with_the_reference(Generator { window_rows: Some(6), ..Generator::new(seed) }, seed);
}

/// Partitions with hundreds of range tombstones, nested, side by side and over each other.
#[test]
fn the_engine_agrees_with_the_reference_about_range_deletes_at_volume() {
    let seed = setting("HELENUS_MODEL_SEED", 1);
    let generator = Generator { partitions: 4, rows: 200, range_deletes: 12, ..Generator::new(seed) };
    agrees_with_the_reference(generator, seed);
}

struct SeedOnFailure {
    seed: u64,
}

impl Drop for SeedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("HELENUS_MODEL_SEED={}", self.seed);
        }
    }
}
