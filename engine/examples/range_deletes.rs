//! What range deletes in one partition cost: CPU time of the shard's thread.
//!
//! ```text
//! cargo run --release -p helenus-engine --example range_deletes [COUNT] [KIND]
//! ```
//!
//! COUNT (default: 1,000,000) range deletes of one of three kinds (default: each in turn) go into a partition, then 10,000 rows that
//! are newer, evenly between them: `disjoint` ones in random order, `nested` ones of which each lies within the one before, and `rising` ones as of
//! `DELETE … WHERE ck < ?` with a higher bound each. Then come pages of 100 rows as a client reads them (`scan`) and as a replica
//! answers them (`versions`), from the memtable and from a table file; a flush; and a compaction of two files, of which each has half
//! of the deletes.

#![allow(clippy::disallowed_methods, reason = "a measurement needs the machine's clock")]

use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helenus_engine::commit_log::SyncMode;
use helenus_engine::io::{
    BackgroundPool, Clock, Environment, ReadPool, RealClock, SystemRandom, ThreadedDisk, yield_now,
};
use helenus_engine::key::{REGULAR_END, REGULAR_START, put_partition_prefix};
use helenus_engine::read::{Purgeable, VersionLimit, VersionScanRequest};
use helenus_engine::{
    Budget, Cell, CellKind, Deletion, Liveness, MutationBuilder, RowBuilder, ScanRequest, Shard,
    ShardOptions, Step, TableId, TableOptions,
};

const TABLE: TableId = TableId([1; 16]);
const PARTITION: &[u8] = b"partition";
const TOKEN: i64 = 7;
const ROWS: u64 = 10_000;
const PAGE_ROWS: usize = 100;
const PAGES: u64 = 20;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Disjoint,
    Nested,
    Rising,
}

impl Kind {
    /// Start and end of a delete, as numbers of positions.
    fn span(self, number: u64, count: u64) -> (u64, u64) {
        match self {
            // An odd multiplier visits all numbers below a power of two, in an order that looks random.
            Self::Disjoint => {
                let shuffled = number.wrapping_mul(0x9E37_79B9) % count.next_power_of_two();
                (4 * shuffled, 4 * shuffled + 2)
            }
            Self::Nested => (2 * number, 4 * count + 4 - 2 * number),
            Self::Rising => (0, 4 * number + 2),
        }
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, operations: u64, started: Duration) {
    let elapsed = cpu_time().saturating_sub(started);
    let each = elapsed.as_nanos() as f64 / operations as f64 / 1e3;
    println!("  {name:<28} {:>10.3} s {each:>14.3} us each", elapsed.as_secs_f64());
}

fn position(number: u64) -> Vec<u8> {
    let mut position = vec![REGULAR_START[0], 0x40];
    position.extend_from_slice(&number.to_be_bytes());
    position
}

fn bounds(first_position: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    let (mut start, mut end) = (Vec::new(), Vec::new());
    put_partition_prefix(&mut start, TOKEN, PARTITION)?;
    end.clone_from(&start);
    start.extend_from_slice(first_position);
    end.extend_from_slice(REGULAR_END);
    Ok((start, end))
}

struct Measurement {
    shard: Rc<Shard>,
    kind: Kind,
    count: u64,
    /// Of all deletes and reads: nothing is past its grace period.
    now_seconds: u32,
}

impl Measurement {
    async fn delete(&self, numbers: std::ops::Range<u64>) -> Result<(), Box<dyn Error>> {
        for number in numbers {
            let (start, end) = self.kind.span(number, self.count);
            let mut mutation = MutationBuilder::new(TABLE, TOKEN, PARTITION)?;
            let deletion = Deletion { timestamp: number as i64 + 1, local_deletion_time: self.now_seconds };
            mutation.delete_range(&position(start), &position(end), deletion);
            self.shard.admit().await?;
            self.shard.apply(&mutation.build().view()?)?;
            if number % 32 == 31 {
                yield_now().await;
            }
        }
        Ok(())
    }

    async fn put_rows(&self) -> Result<(), Box<dyn Error>> {
        let mut row = RowBuilder::new();
        for number in 0..ROWS {
            let timestamp = self.count as i64 + 10;
            let mut mutation = MutationBuilder::new(TABLE, TOKEN, PARTITION)?;
            row.clear();
            row.set_liveness(Liveness { timestamp, expiry: None });
            row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: b"value" });
            mutation.row(&position(number * 4 * self.count / ROWS + 1), &mut row);
            self.shard.admit().await?;
            self.shard.apply(&mutation.build().view()?)?;
        }
        Ok(())
    }

    fn scan(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let started = cpu_time();
        for page in 0..PAGES {
            let (start, end) = bounds(&position(page * 4 * self.count / PAGES))?;
            let budget = Budget { bytes: 8 << 20, tombstones: 100_000 };
            let request = ScanRequest {
                table: TABLE,
                start: &start,
                end: &end,
                reversed: false,
                now_seconds: self.now_seconds,
                budget,
            };
            let mut scan = self.shard.scan(&request)?;
            let mut rows = 0;
            while rows < PAGE_ROWS && matches!(scan.next()?, Step::Row(_)) {
                rows += 1;
            }
            assert_eq!(rows, PAGE_ROWS);
        }
        report(name, PAGES, started);
        Ok(())
    }

    fn versions(&self, name: &str) -> Result<(), Box<dyn Error>> {
        let started = cpu_time();
        let mut bytes = 0;
        for page in 0..PAGES {
            let (start, end) = bounds(&position(page * 4 * self.count / PAGES))?;
            let limit = VersionLimit {
                live_rows: PAGE_ROWS as u64,
                bytes: 8 << 20,
                tombstones: 100_000,
                scanned_bytes: 64 << 20,
            };
            let request = VersionScanRequest {
                table: TABLE,
                start: &start,
                end: &end,
                reversed: false,
                now_seconds: self.now_seconds,
                purgeable: Purgeable::LeftOut,
                is_long: false,
                part: None,
                limit,
            };
            let versions = self.shard.scan_versions(&request)?;
            bytes += versions.partitions.iter().map(|partition| partition.bytes().len()).sum::<usize>();
        }
        report(name, PAGES, started);
        println!("    {} bytes of answer each", bytes as u64 / PAGES);
        Ok(())
    }

    async fn run(&self) -> Result<(), Box<dyn Error>> {
        println!("{} {:?} range deletes", self.count, self.kind);
        self.shard.create_table(TABLE, TableOptions::default()).await?;
        let half = self.count / 2;
        let started = cpu_time();
        self.delete(0..half).await?;
        self.delete(half..self.count).await?;
        report("insert", self.count, started);
        self.put_rows().await?;
        self.scan("page of a scan, memtable")?;
        self.versions("page of versions, memtable")?;
        let clock = Instant::now();
        self.shard.flush(TABLE).await?;
        println!("  flush: {:.3} s until it was done", clock.elapsed().as_secs_f64());
        self.scan("page of a scan, file")?;
        self.versions("page of versions, file")?;
        self.delete(0..half).await?;
        self.shard.flush(TABLE).await?;
        let clock = Instant::now();
        self.shard.compact(TABLE).await?;
        println!("  compaction: {:.3} s until it was done", clock.elapsed().as_secs_f64());
        println!("  {} bytes of files", self.shard.statistics(TABLE)?.disk_bytes);
        Ok(())
    }
}

fn measure(kind: Kind, count: u64) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
    let environment = Environment {
        disk: Arc::new(ThreadedDisk::start("disk", ReadPool::start(1)?)?),
        background: Rc::new(BackgroundPool::start(1)?),
        clock: Rc::clone(&clock),
        random: Rc::new(SystemRandom),
    };
    let mut options = ShardOptions::new(directory.path());
    options.commit_log.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    options.compaction_bytes_per_second = None;
    options.memtable_bytes_max = 4 << 30;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let shard = Shard::open(environment, options).await?;
        Measurement { shard: Rc::clone(&shard), kind, count, now_seconds: clock.now_seconds() }.run().await?;
        shard.close().await?;
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let kinds = [Kind::Disjoint, Kind::Nested, Kind::Rising];
    let wanted = arguments.next();
    for kind in kinds {
        if wanted.as_ref().is_none_or(|wanted| format!("{kind:?}").to_lowercase() == *wanted) {
            measure(kind, count)?;
        }
    }
    Ok(())
}
