//! What a scan costs that reads the first rows of every partition and skips the rest: CPU time and time of the shard's thread for
//! each partition, in microseconds.
//!
//! ```text
//! cargo run --release -p helenus-engine --example partition_heads [PARTITIONS] [ROWS]
//! ```
//!
//! Each of PARTITIONS (default: 100,000) has a static row and ROWS (default: 62) rows with a clustering key of a text and a UUID, as
//! the posts of the demo's first design. The file of the oldest rows has all partitions, a second one every partition too, a third every
//! fourth; the memtable has every eighth. The block cache is smaller than that, so that blocks come from the disk (the system's cache).

#![allow(clippy::disallowed_methods, reason = "a measurement needs the machine's clock")]

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helenus_engine::commit_log::SyncMode;
use helenus_engine::io::{
    BackgroundPool, Clock, Environment, ReadPool, RealClock, SplitMix64, SystemRandom, ThreadedDisk,
    yield_now,
};
use helenus_engine::key::{PARTITION_END, REGULAR_START, STATIC_POSITION, prefix_length};
use helenus_engine::shard::Attempt;
use helenus_engine::{
    Budget, Cell, CellKind, EngineError, Liveness, MutationBuilder, RowBuilder, ScanRequest, Shard,
    ShardOptions, Step, TableId, TableOptions,
};

const TABLE: TableId = TableId([1; 16]);
const PAGE_ROWS: usize = 5_000;
/// Every how many partitions have rows in a source, oldest first: three files and the memtable.
const SOURCES: [u64; 4] = [1, 1, 4, 8];
const ROUNDS: usize = 3;

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
    partitions: u64,
    rows: u64,
}

/// How far a scan of the table has come.
#[derive(Default)]
struct Progress {
    start: Vec<u8>,
    partitions: u64,
    rows: u64,
}

impl Bench {
    /// Writes the part of a source to its partitions: the static row and a fourth of the rows of each.
    async fn fill(&self, source: u64, every: u64) -> Result<(), Box<dyn Error>> {
        let mut row = RowBuilder::new();
        let mut random = SplitMix64::new(source);
        for number in (0..self.partitions).step_by(every as usize) {
            let (token, key) = key_of(number);
            let timestamp = self.clock.now_micros();
            let mut mutation = MutationBuilder::new(TABLE, token, &key)?;
            if source == 0 {
                row.clear();
                for (column, length) in [(0, 16), (1, 30), (2, 200)] {
                    let text: Vec<u8> = (0..length).map(|_| b'a' + random.below(26) as u8).collect();
                    row.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: &text });
                }
                mutation.row(STATIC_POSITION, &mut row);
            }
            for item in (source..self.rows).step_by(SOURCES.len()) {
                let is_comment = item % 10 == 0;
                row.clear();
                row.set_liveness(Liveness { timestamp, expiry: None });
                let maker = [random.next_u64().to_be_bytes(), random.next_u64().to_be_bytes()].concat();
                row.cell(Cell { column: 3, path: &[], timestamp, kind: CellKind::Live, value: &maker });
                if is_comment {
                    let text: Vec<u8> = (0..80).map(|_| b'a' + random.below(26) as u8).collect();
                    row.cell(Cell { column: 4, path: &[], timestamp, kind: CellKind::Live, value: &text });
                }
                let kind: &[u8] = if is_comment { b"comment\0\0" } else { b"like\0\0" };
                let position = [
                    REGULAR_START,
                    &[0x40],
                    kind,
                    &[0x40],
                    &item.to_be_bytes(),
                    &random.next_u64().to_be_bytes(),
                ]
                .concat();
                mutation.row(&position, &mut row);
            }
            self.shard.admit().await?;
            self.shard.apply(&mutation.build().view()?)?;
            if number % 32 == 0 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Reads up to `limit` rows of each partition, until the page is full. True at the end of the table.
    fn read(&self, progress: &mut Progress, limit: u64) -> Result<bool, EngineError> {
        let start = progress.start.clone();
        let budget = Budget { bytes: 64 << 20, tombstones: 1000 };
        let request = ScanRequest {
            table: TABLE,
            start: &start,
            end: &[0xFF; 9],
            reversed: false,
            now_seconds: 1,
            budget,
        };
        let mut scan = self.shard.scan(&request)?;
        let (mut page, mut of_partition) = (0, 0);
        while page < PAGE_ROWS
            && let Step::Row(view) = scan.next()?
        {
            std::hint::black_box(view.row.bytes);
            progress.rows += 1;
            of_partition += 1;
            page += 1;
            progress.start.clear();
            if of_partition < limit {
                progress.start.extend_from_slice(view.key);
                progress.start.push(0);
                continue;
            }
            of_partition = 0;
            progress.partitions += 1;
            let prefix = prefix_length(view.key).unwrap_or_default();
            progress.start.extend_from_slice(&view.key[..prefix]);
            progress.start.extend_from_slice(PARTITION_END);
            scan.skip_partition()?;
        }
        Ok(page < PAGE_ROWS)
    }

    async fn scan(&self, name: &str, limit: u64) -> Result<(), Box<dyn Error>> {
        let mut figures = Vec::new();
        for _ in 0..ROUNDS {
            let (cpu, wall) = (cpu_time(), Instant::now());
            let mut progress = Progress::default();
            loop {
                let mut cold = self.shard.cold_read();
                let is_end = loop {
                    match self.shard.attempt(|| self.read(&mut progress, limit))? {
                        Attempt::Done(is_end) => break is_end,
                        Attempt::Missing(missing) => cold.fetch(missing).await?,
                    }
                };
                if is_end {
                    break;
                }
                yield_now().await;
            }
            assert_eq!(progress.partitions, self.partitions, "each partition is read once");
            assert_eq!(progress.rows, self.partitions * limit);
            let each = |time: Duration| time.as_secs_f64() * 1e6 / self.partitions as f64;
            figures.push((each(cpu_time().saturating_sub(cpu)), each(wall.elapsed())));
        }
        figures.sort_by(|left, right| left.0.total_cmp(&right.0));
        let (cpu, wall) = figures[figures.len() / 2];
        println!("{name:<36} {cpu:>7.2} µs CPU {wall:>7.2} µs");
        Ok(())
    }

    async fn run(&self) -> Result<(), Box<dyn Error>> {
        // Four files would be compacted into one.
        self.shard.create_table(TABLE, TableOptions::default()).await?;
        for (source, every) in (0..).zip(SOURCES) {
            self.fill(source, every).await?;
            if source == 0 {
                self.scan("memtable alone, 1 row", 1).await?;
            }
            if source as usize + 1 < SOURCES.len() {
                self.shard.flush(TABLE).await?;
            }
            if source == 0 {
                self.scan("one file, 1 row", 1).await?;
            }
        }
        self.scan("files and memtable, 1 row", 1).await?;
        self.scan("files and memtable, 3 rows", 3).await?;
        println!("{:?}", self.shard.statistics(TABLE)?);
        self.shard.compact(TABLE).await?;
        self.scan("compacted, 1 row", 1).await?;
        self.scan("compacted, 3 rows", 3).await?;
        println!("{:?}", self.shard.statistics(TABLE)?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let partitions = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rows = arguments.next().map_or(Ok(62), |text| text.parse())?;
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
    options.memtable_bytes_max = 4 << 30;
    options.compaction_bytes_per_second = None;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let shard = Shard::open(environment, options).await?;
        let bench = Bench { shard: Rc::clone(&shard), clock, partitions, rows };
        bench.run().await?;
        shard.close().await?;
        Ok(())
    })
}
