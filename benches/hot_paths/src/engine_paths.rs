//! The engine's hot paths: a put, a cached get out of a table file, and a scan over four sources.
//!
//! Shapes are those of `peers/serve.rn`: items of five values of 40 bytes, events of two texts, 1,000 a partition.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::types::token::token;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use helenus_engine::io::{Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk};
use helenus_engine::key::{REGULAR_END, REGULAR_START, full_key};
use helenus_engine::{
    Budget, Cell, CellKind, Liveness, LogPosition, Lookup, MutationBuilder, RowBuilder, RowRequest,
    ScanRequest, Shard, ShardOptions, Step, TableId, TableOptions,
};

use crate::workload::{Failure, Workload};

const TABLE: TableId = TableId([1; 16]);
/// Microseconds; the clock stands still there.
const NOW_MICROS: i64 = 1_700_000_000_000_000;
const NOW_SECONDS: u32 = 1_700_000_000;
const ITEM_COLUMNS: [u32; 5] = [0, 1, 2, 3, 4];
/// Items in the file of the get.
const ITEMS: u64 = 4_000;
/// Partitions of the scan.
const PARCELS: u64 = 16;
/// Rows of a partition of the scan.
const EVENTS: u64 = 1_000;
/// Rows that a scan reads.
const SCANNED_ROWS: usize = 100;
/// Table files of the scan; the memtable is one source more. Four files would be compacted into one.
const FILES: u64 = 3;

/// A shard with one table, on a disk in memory.
async fn open_shard() -> Result<Rc<Shard>, Failure> {
    let clock = Rc::new(ManualClock::new(NOW_MICROS));
    let disk = Arc::new(SimulatedDisk::new(1));
    let background = Rc::new(InlineBackground::new(disk.clone(), clock.clone()));
    let mut options = ShardOptions::new("/shard");
    options.compaction_bytes_per_second = None;
    let random = Rc::new(SeededRandom::new(1));
    let shard = Shard::open(Environment { disk, background, clock, random }, options).await?;
    shard.create_table(TABLE, TableOptions::default()).await?;
    Ok(shard)
}

/// Writes one row of `values`.
fn put_row(
    shard: &Shard,
    row: &mut RowBuilder,
    partition_key: &[u8],
    position: &[u8],
    timestamp: i64,
    values: &[&[u8]],
) -> Result<LogPosition, Failure> {
    row.clear();
    row.set_liveness(Liveness { timestamp, expiry: None });
    for (column, value) in (0..).zip(values) {
        row.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value });
    }
    let mut mutation = MutationBuilder::new(TABLE, token(partition_key), partition_key)?;
    mutation.row(position, row);
    shard.admit().now_or_never().ok_or("the shard makes writers wait")??;
    Ok(shard.apply(&mutation.build().view()?)?)
}

/// Scans up to `limit` rows and returns how many there were.
fn scan(shard: &Shard, start: &[u8], end: &[u8], limit: usize) -> Result<usize, Failure> {
    let request = ScanRequest {
        table: TABLE,
        start,
        end,
        reversed: false,
        now_seconds: NOW_SECONDS,
        budget: Budget { bytes: 1 << 20, tombstones: 1_000 },
    };
    let mut scan = shard.scan(&request)?;
    let mut count = 0;
    while count < limit
        && let Step::Row(view) = scan.next()?
    {
        black_box(view);
        count += 1;
    }
    Ok(count)
}

/// Looks up an item that is there.
fn look_up(shard: &Shard, key: &[u8]) -> Result<(), Failure> {
    let request = RowRequest { table: TABLE, key, columns: Some(&ITEM_COLUMNS), now_seconds: NOW_SECONDS };
    match shard.look_up(&request, |view| {
        black_box(view);
    })? {
        Lookup::Row(()) => Ok(()),
        Lookup::Absent | Lookup::Unmerged => Err("the row is not there".into()),
    }
}

/// Spreads numbers over a range, always in the same way.
fn spread(number: u64, range: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) % range
}

fn put_item(shard: &Shard, row: &mut RowBuilder, number: u64) -> Result<LogPosition, Failure> {
    let value = [number as u8; 40];
    let timestamp = NOW_MICROS + number as i64;
    let values = [&value[..]; ITEM_COLUMNS.len()];
    put_row(shard, row, &number.to_be_bytes(), REGULAR_START, timestamp, &values)
}

/// A row of a new partition: mutation built, log appended, memtable changed.
pub struct Put {
    shard: Rc<Shard>,
    row: RowBuilder,
    written: Option<LogPosition>,
}

impl Put {
    pub async fn prepare() -> Result<Self, Failure> {
        Ok(Self { shard: open_shard().await?, row: RowBuilder::new(), written: None })
    }
}

impl Workload for Put {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        self.written = Some(put_item(&self.shard, &mut self.row, number)?);
        Ok(())
    }

    /// The log writes the batch.
    fn pause(&mut self) -> LocalBoxFuture<'_, Result<(), Failure>> {
        async {
            if let Some(position) = self.written.take() {
                self.shard.durable(position).await?;
            }
            Ok(())
        }
        .boxed_local()
    }
}

/// One row by its whole key, out of a table file whose blocks are in the cache.
pub struct CachedGet {
    shard: Rc<Shard>,
    keys: Vec<Vec<u8>>,
}

impl CachedGet {
    pub async fn prepare() -> Result<Self, Failure> {
        let shard = open_shard().await?;
        let mut row = RowBuilder::new();
        let mut keys = Vec::new();
        for number in 0..ITEMS {
            put_item(&shard, &mut row, number)?;
            let key = number.to_be_bytes();
            keys.push(full_key(token(&key), &key, REGULAR_START)?);
        }
        shard.flush(TABLE).await?;
        for key in &keys {
            look_up(&shard, key)?;
        }
        Ok(Self { shard, keys })
    }
}

impl Workload for CachedGet {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        look_up(&self.shard, &self.keys[spread(number, ITEMS) as usize])
    }
}

/// A hundred rows of a partition that lies in three table files and the memtable, each fourth row in each.
pub struct MergedScan {
    shard: Rc<Shard>,
}

impl MergedScan {
    pub async fn prepare() -> Result<Self, Failure> {
        let shard = open_shard().await?;
        let mut row = RowBuilder::new();
        for source in 0..=FILES {
            for parcel in 0..PARCELS {
                for event in (source..EVENTS).step_by(FILES as usize + 1) {
                    let note = format!("parcel {parcel} step {event}: loaded on the truck to the next hub");
                    let values = [&b"hub-123"[..], note.as_bytes()];
                    let timestamp = NOW_MICROS + event as i64;
                    put_row(&shard, &mut row, &parcel.to_be_bytes(), &position(event), timestamp, &values)?;
                }
            }
            if source < FILES {
                shard.flush(TABLE).await?;
            }
        }
        let statistics = shard.statistics(TABLE)?;
        if statistics.file_count as u64 != FILES || statistics.memtable_bytes == 0 {
            return Err(format!("not {FILES} files and a memtable: {statistics:?}").into());
        }
        Ok(Self { shard })
    }
}

/// Position of an event: a tag, then the number so that it compares as a number.
fn position(event: u64) -> Vec<u8> {
    [REGULAR_START, &[0x40], &event.to_be_bytes()].concat()
}

impl Workload for MergedScan {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        let parcel = (number % PARCELS).to_be_bytes();
        let first = spread(number, EVENTS - SCANNED_ROWS as u64);
        let start = full_key(token(&parcel), &parcel, &position(first))?;
        let end = full_key(token(&parcel), &parcel, REGULAR_END)?;
        if scan(&self.shard, &start, &end, SCANNED_ROWS)? != SCANNED_ROWS {
            return Err("rows are missing".into());
        }
        Ok(())
    }
}
