//! CPU time of the shard's thread per operation, in nanoseconds: put, get and scan of 100 rows, from the memtable
//! and from a table file.
//!
//! ```text
//! cargo run --release -p helenus-engine --example engine_bench [ROWS]
//! ```
//!
//! Rows have a 16-byte partition key and a 200-byte value (put, get), or an 8-byte clustering key and three cells
//! (scan). The commit log is in periodic mode; its disk thread is not counted.

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::commit_log::SyncMode;
use helenus_engine::io::{
    BackgroundPool, Clock, Environment, ReadPool, RealClock, SplitMix64, SystemRandom, ThreadedDisk,
    yield_now,
};
use helenus_engine::key::{REGULAR_END, REGULAR_START, put_partition_prefix};
use helenus_engine::{
    Budget, Cell, CellKind, Liveness, Lookup, MutationBuilder, RowBuilder, RowRequest, ScanRequest, Shard,
    ShardOptions, Step, TableId, TableOptions,
};

const KEY_VALUE: TableId = TableId([1; 16]);
const SERIES: TableId = TableId([2; 16]);
/// The columns of `KEY_VALUE` rows.
const COLUMNS: [u32; 1] = [1];
const ROWS_PER_PARTITION: u64 = 1000;
const ROWS_PER_SCAN: usize = 100;

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, operations: u64, started: Duration) {
    let elapsed = cpu_time().checked_sub(started).unwrap_or_default();
    println!("{name:<28} {:>8.0} ns", elapsed.as_nanos() as f64 / operations as f64);
}

/// Keys and tokens that are distributed like hashed ones.
fn key_of(number: u64) -> (i64, [u8; 16]) {
    let mut random = SplitMix64::new(number);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.next_u64().to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    (random.next_u64() as i64, key)
}

struct Bench {
    shard: Rc<Shard>,
    clock: Rc<dyn Clock>,
    rows: u64,
}

impl Bench {
    async fn put(&self, numbers: impl Iterator<Item = u64>) -> Result<(), Box<dyn Error>> {
        let value = [b'v'; 200];
        let mut row = RowBuilder::new();
        for (index, number) in numbers.enumerate() {
            let (token, key) = key_of(number);
            let timestamp = self.clock.now_micros();
            let mut mutation = MutationBuilder::new(KEY_VALUE, token, &key)?;
            row.clear();
            row.set_liveness(Liveness { timestamp, expiry: None });
            row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &value });
            mutation.row(REGULAR_START, &mut row);
            self.shard.admit().await?;
            self.shard.apply(&mutation.build().view()?)?;
            if index % 32 == 31 {
                // As a server does between two batches of requests.
                yield_now().await;
            }
        }
        Ok(())
    }

    fn get(&self, random: &mut SplitMix64, count: u64) -> Result<(), Box<dyn Error>> {
        let mut full_key = Vec::new();
        for _ in 0..count {
            let (token, key) = key_of(random.below(self.rows));
            full_key.clear();
            put_partition_prefix(&mut full_key, token, &key)?;
            full_key.extend_from_slice(REGULAR_START);
            let request =
                RowRequest { table: KEY_VALUE, key: &full_key, columns: Some(&COLUMNS), now_seconds: 1 };
            let found = self.shard.look_up(&request, |view| {
                std::hint::black_box(view.row.bytes);
            })?;
            assert_eq!(found, Lookup::Row(()));
        }
        Ok(())
    }

    fn read(
        &self,
        table: TableId,
        range: (&[u8], &[u8]),
        reversed: bool,
        limit: usize,
    ) -> Result<usize, Box<dyn Error>> {
        let (start, end) = range;
        let budget = Budget { bytes: 1 << 20, tombstones: 1000 };
        let mut scan =
            self.shard.scan(&ScanRequest { table, start, end, reversed, now_seconds: 1, budget })?;
        let mut count = 0;
        while count < limit {
            let Step::Row(view) = scan.next()? else { break };
            std::hint::black_box(view.row.bytes);
            count += 1;
        }
        Ok(count)
    }

    async fn put_series(&self) -> Result<(), Box<dyn Error>> {
        let mut row = RowBuilder::new();
        for number in 0..self.rows {
            let (token, key) = key_of(number / ROWS_PER_PARTITION);
            let timestamp = self.clock.now_micros();
            let mut mutation = MutationBuilder::new(SERIES, token, &key)?;
            row.clear();
            row.set_liveness(Liveness { timestamp, expiry: None });
            for column in 0..3 {
                let value = (number * 7 + u64::from(column)).to_be_bytes();
                row.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: &value });
            }
            let mut position = vec![REGULAR_START[0], 0x40];
            position.extend_from_slice(&(number % ROWS_PER_PARTITION).to_be_bytes());
            mutation.row(&position, &mut row);
            self.shard.admit().await?;
            self.shard.apply(&mutation.build().view()?)?;
            if number % 32 == 31 {
                yield_now().await;
            }
        }
        Ok(())
    }

    fn scan(&self, random: &mut SplitMix64, count: u64, reversed: bool) -> Result<(), Box<dyn Error>> {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        let partitions = self.rows / ROWS_PER_PARTITION;
        for _ in 0..count {
            let (token, key) = key_of(random.below(partitions));
            start.clear();
            put_partition_prefix(&mut start, token, &key)?;
            end.clone_from(&start);
            start.extend_from_slice(&[REGULAR_START[0], 0x40]);
            let first = random.below(ROWS_PER_PARTITION - ROWS_PER_SCAN as u64);
            if reversed {
                end.extend_from_slice(&[REGULAR_START[0], 0x40]);
                end.extend_from_slice(&(first + ROWS_PER_SCAN as u64).to_be_bytes());
            } else {
                start.extend_from_slice(&first.to_be_bytes());
                end.extend_from_slice(REGULAR_END);
            }
            assert_eq!(self.read(SERIES, (&start, &end), reversed, ROWS_PER_SCAN)?, ROWS_PER_SCAN);
        }
        Ok(())
    }

    async fn run(&self) -> Result<(), Box<dyn Error>> {
        self.shard.create_table(KEY_VALUE, TableOptions::default()).await?;
        self.shard.create_table(SERIES, TableOptions::default()).await?;
        let mut random = SplitMix64::new(1);
        let gets = 500_000;
        let scans = 20_000;

        let started = cpu_time();
        self.put(0..self.rows).await?;
        report("put, new partition", self.rows, started);
        let started = cpu_time();
        let overwritten: Vec<_> = (0..self.rows).map(|_| random.below(self.rows)).collect();
        self.put(overwritten.into_iter()).await?;
        report("put, overwrite", self.rows, started);
        let started = cpu_time();
        self.get(&mut random, gets)?;
        report("get, memtable and files", gets, started);
        self.shard.compact(KEY_VALUE).await?;
        self.get(&mut random, gets)?;
        let started = cpu_time();
        self.get(&mut random, gets)?;
        report("get, one file", gets, started);

        let started = cpu_time();
        self.put_series().await?;
        report("put, time series", self.rows, started);
        let started = cpu_time();
        self.scan(&mut random, scans, false)?;
        report("scan of 100, memtable", scans, started);
        self.shard.compact(SERIES).await?;
        self.scan(&mut random, scans, false)?;
        for (name, reversed) in [("scan of 100, one file", false), ("scan of 100, reversed", true)] {
            let started = cpu_time();
            self.scan(&mut random, scans, reversed)?;
            report(name, scans, started);
        }
        println!("{:?}", self.shard.statistics(KEY_VALUE)?);
        println!("{:?}", self.shard.statistics(SERIES)?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(200_000), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
    let environment = Environment {
        disk: Arc::new(ThreadedDisk::start("disk", ReadPool::start(4)?)?),
        background: Rc::new(BackgroundPool::start(1)?),
        clock: Rc::clone(&clock),
        random: Rc::new(SystemRandom),
    };
    let mut options = ShardOptions::new(directory.path());
    options.commit_log.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    options.block_cache_bytes = 1 << 30;
    options.compaction_bytes_per_second = None;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let shard = Shard::open(environment, options).await?;
        let bench = Bench { shard: Rc::clone(&shard), clock, rows };
        bench.run().await?;
        shard.close().await?;
        Ok(())
    })
}
