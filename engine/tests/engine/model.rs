//! The engine against a plain reference: random writes and deletions of every kind, reads in both directions
//! and in pages, with flushes, compactions, truncations, restarts, damage, full disks and the passing of time in between.
//!
//! `HELENUS_MODEL_OPERATIONS` sets the number of operations (default 60,000), `HELENUS_MODEL_SEED` the seed,
//! which a failure prints.

use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use helenus_engine::io::{Clock, CrashStyle, DiskReserve, ManualClock, ReserveSize, SimulatedDisk};
use helenus_engine::read::Budget;
use helenus_engine::shard::Examination;
use helenus_engine::{Lookup, RowRequest, ScanRequest, Shard, Step, key};

use crate::support::model::{Model, VisibleRow};
use crate::support::random_operations::{COLLECTION_COLUMNS, Generator};
use crate::support::trouble::{RESERVE_BYTES, Trouble};
use crate::support::{
    START_MICROS, TABLE, environment, environment_with, read_page, run_local, sharing_options, small_options,
    table_options, while_time_passes,
};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Test {
    generator: Generator,
    model: Model,
    clock: Rc<ManualClock>,
    disk: SimulatedDisk,
    operations_left: u64,
    trouble: Trouble,
    has_trouble: bool,
    /// Compactions are shared by several jobs.
    shares: bool,
    /// Rows that a lookup found without a merge.
    looked_up: u64,
}

impl Test {
    /// One life of the shard: until a restart is due or all operations are done.
    async fn live(&mut self) {
        let mut options = if self.shares { sharing_options() } else { small_options() };
        // Without memory for blocks there is none for filters and indexes, which are read in parts then.
        if self.generator.random.chance(1, 2) {
            options.block_cache_bytes = 0;
        }
        if self.has_trouble {
            options.reserve = DiskReserve::new(ReserveSize::Bytes(RESERVE_BYTES));
        }
        let environment = if self.shares {
            environment_with(&self.disk, &self.clock, |background| Rc::new(background.with_threads(3)))
        } else {
            environment(&self.disk, &self.clock)
        };
        let shard = Shard::open(environment, options).await.unwrap();
        let mut options = table_options();
        if self.shares {
            options.writer.block_bytes = 512;
        }
        shard.create_table(TABLE, options).await.unwrap();
        self.check_everything(&shard);
        let mut last = helenus_engine::LogPosition::default();
        while self.operations_left > 0 {
            self.operations_left -= 1;
            if self.has_trouble && self.generator.random.chance(1, 200) {
                self.change_trouble(&shard).await;
            }
            match self.generator.random.below(10_000) {
                0..6500 => {
                    let mutation = self.generator.mutation(TABLE, self.clock.now_micros());
                    let admitted = while_time_passes(&self.clock, shard.admit()).await;
                    if self.trouble.explains(admitted).is_some()
                        && let Some(position) = self.trouble.explains(shard.apply(&mutation.view().unwrap()))
                    {
                        last = position;
                        self.model.apply(&mutation.view().unwrap());
                    }
                }
                6500..9400 => drop(self.check_range(&shard).await),
                9400..9940 => self.clock.advance(Duration::from_millis(self.generator.random.below(3000))),
                9940..9970 => drop(self.flush(&shard).await),
                9970..9980 => drop(self.compact(&shard).await),
                9980..9990 => self.clock.advance(Duration::from_secs(150)),
                9990..9993 => {
                    let truncated = while_time_passes(&self.clock, shard.truncate(TABLE)).await;
                    if self.trouble.explains(truncated).is_some() {
                        self.model.clear();
                    }
                }
                9993..9997 => {
                    self.make_room(&shard).await;
                    shard.durable(last).await.unwrap();
                    self.disk.crash();
                    return;
                }
                _ => {
                    self.make_room(&shard).await;
                    shard.close().await.unwrap();
                    return;
                }
            }
        }
        self.end_trouble(&shard).await;
        self.check_everything(&shard);
    }

    async fn flush(&mut self, shard: &Shard) -> Option<()> {
        let flushed = while_time_passes(&self.clock, shard.flush(TABLE)).await;
        self.trouble.explains(flushed)
    }

    async fn compact(&mut self, shard: &Shard) -> Option<()> {
        let compacted = while_time_passes(&self.clock, shard.compact(TABLE)).await;
        self.trouble.explains(compacted)
    }

    async fn change_trouble(&mut self, shard: &Shard) {
        if self.trouble.lasts() {
            self.end_trouble(shard).await;
            self.check_everything(shard);
        } else {
            self.trouble.begin(&self.disk, &mut self.generator.random);
        }
    }

    /// Ends all trouble, and waits until the shard has noticed.
    async fn end_trouble(&mut self, shard: &Shard) {
        self.trouble.end(&self.disk);
        while_time_passes(&self.clock, shard.examine(&[TABLE], Examination::Scrub)).await.unwrap();
        self.wait_for_room(shard).await;
    }

    /// A shard ends its life with room on the disk. A damaged file stays damaged.
    async fn make_room(&mut self, shard: &Shard) {
        self.trouble.end_full_disk(&self.disk);
        self.wait_for_room(shard).await;
    }

    async fn wait_for_room(&self, shard: &Shard) {
        while shard.admit().now_or_never().is_none_or(|admitted| admitted.is_err()) {
            self.clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    }

    fn check_everything(&mut self, shard: &Shard) {
        let range = (&[][..], &[0xFF; 9][..]);
        let now = self.clock.now_seconds();
        if let Some(rows) = self.trouble.explains(crate::support::read_all(shard, range, false, now)) {
            assert_eq!(rows, self.model.read(range, false, now));
        }
    }

    /// Reads a random range in pages, with flushes, compactions and other reads in between. `None`: trouble kept it from reading.
    async fn check_range(&mut self, shard: &Shard) -> Option<()> {
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
            let page = read_page(shard, (&from, &to), reversed, limit, budget, now);
            let (page, bound) = self.trouble.explains(page)?;
            read.extend(page);
            let Some(bound) = bound else { break };
            if reversed {
                to = bound;
            } else {
                from = bound;
            }
            match self.generator.random.below(400) {
                0 => self.flush(shard).await?,
                1 => self.compact(shard).await?,
                _ => {}
            }
        }
        let expected = self.model.read((&start, &end), reversed, now);
        assert_eq!(read, expected, "range {start:x?}..{end:x?} reversed {reversed}");
        let budget = Budget::UNLIMITED;
        let (start, end) = (start.as_slice(), end.as_slice());
        let range = ScanRequest { table: TABLE, start, end, reversed, now_seconds: now, budget };
        self.check_columns(shard, &range, &expected)?;
        for row in expected.iter().take(8) {
            let end = key::behind(&row.key);
            let request = ScanRequest { start: &row.key, end: &end, ..range };
            self.check_columns(shard, &request, std::slice::from_ref(row))?;
            self.check_look_up(shard, &row.key, now)?;
        }
        // Mostly no row has the key.
        if key::prefix_length(start).is_some() {
            self.check_look_up(shard, start, now)?;
        }
        Some(())
    }

    /// Projected reads: older versions and sources may be skipped, which must not change the answer.
    fn check_columns(
        &mut self,
        shard: &Shard,
        request: &ScanRequest<'_>,
        expected: &[VisibleRow],
    ) -> Option<()> {
        let random = &mut self.generator.random;
        let wanted: Vec<u32> = (0..COLLECTION_COLUMNS.start).filter(|_| random.chance(1, 2)).collect();
        let of_wanted = |row: &VisibleRow| {
            let cells = row.cells.iter().filter(|cell| wanted.contains(&cell.0.0)).cloned();
            (row.key.clone(), cells.collect::<Vec<_>>())
        };
        let mut scan = self.trouble.explains(shard.scan_columns(request, &wanted))?;
        let mut read = Vec::new();
        while let Step::Row(view) = self.trouble.explains(scan.next())? {
            read.push(of_wanted(&VisibleRow::of(&view)));
        }
        let expected: Vec<_> = expected.iter().map(of_wanted).collect();
        assert_eq!(read, expected, "columns {wanted:?}");
        Some(())
    }

    /// Looks up one row. The lookup may require a scan, but a row that it finds is correct.
    fn check_look_up(&mut self, shard: &Shard, key: &[u8], now_seconds: u32) -> Option<()> {
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
        let found = shard.look_up(&request, |view| of_wanted(&VisibleRow::of(&view)));
        match self.trouble.explains(found)? {
            Lookup::Row(found) => {
                self.looked_up += 1;
                assert_eq!(Some(found), expected.as_ref().map(of_wanted), "columns {columns:?}");
            }
            Lookup::Absent => assert_eq!(expected, None),
            Lookup::Unmerged => {}
        }
        Some(())
    }
}

fn agrees_with_the_reference(generator: Generator, seed: u64) {
    lives_agree(generator, seed, false, false);
}

fn lives_agree(generator: Generator, seed: u64, has_trouble: bool, shares: bool) -> Test {
    let mut test = Test {
        generator,
        model: Model::default(),
        clock: Rc::new(ManualClock::new(START_MICROS)),
        disk: SimulatedDisk::new(seed),
        operations_left: setting("HELENUS_MODEL_OPERATIONS", 60_000),
        trouble: Trouble::default(),
        has_trouble,
        shares,
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
    test
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

/// Files that are missing, cut short or damaged for a time, over restarts too, and disks that are full for a time.
#[test]
fn the_engine_agrees_with_the_reference_through_damage_and_full_disks() {
    let seed = setting("HELENUS_MODEL_SEED", 1);
    let test = lives_agree(Generator::new(seed), seed, true, false);
    assert!(test.trouble.refused_for_damage > 0 && test.trouble.refused_for_room > 0);
}

/// Every compaction is shared by several jobs, through damage and full disks too.
#[test]
fn the_engine_agrees_with_the_reference_where_compactions_are_shared() {
    let seed = setting("HELENUS_MODEL_SEED", 1);
    let generator = Generator { range_deletes: 3, ..Generator::new(seed) };
    let test = lives_agree(generator, seed, true, true);
    assert!(test.trouble.refused_for_damage > 0 && test.trouble.refused_for_room > 0);
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
