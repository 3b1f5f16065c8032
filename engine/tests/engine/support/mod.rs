//! Shared parts of the whole-engine tests: a shard on a simulated disk, a plain reference model, random operations.

pub mod model;
pub mod random_operations;
pub mod trouble;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use helenus_engine::io::{
    Background, Clock, Disk, Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk,
};
use helenus_engine::read::{Budget, Purgeable, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, EngineError, Liveness, LogPosition, Mutation, MutationBuilder, RowBuilder, Shard,
    ShardOptions, TableId, TableOptions, VersionLimit, VersionScanRequest,
};

use self::model::VisibleRow;

pub const TABLE: TableId = TableId([0x11; 16]);
pub const OTHER_TABLE: TableId = TableId([0x22; 16]);
pub const DIRECTORY: &str = "shard";

/// Microseconds since the epoch at which test clocks start.
pub const START_MICROS: i64 = 1_700_000_000_000_000;

/// The same in seconds.
pub const NOW: u32 = (START_MICROS / 1_000_000) as u32;

/// Bounds around all keys.
pub const EVERYTHING: (&[u8], &[u8]) = (&[], &[0xFF; 9]);

pub fn environment(disk: &SimulatedDisk, clock: &Rc<ManualClock>) -> Environment {
    environment_with(disk, clock, |background| Rc::new(background))
}

/// As [`environment`], where the background is changed.
pub fn environment_with(
    disk: &SimulatedDisk,
    clock: &Rc<ManualClock>,
    change: impl FnOnce(InlineBackground) -> Rc<dyn Background>,
) -> Environment {
    // Another one at each start: the number of operations only grows.
    let random = Rc::new(SeededRandom::new(disk.operations()));
    let clock: Rc<dyn Clock> = Rc::clone(clock) as Rc<dyn Clock>;
    let background = change(InlineBackground::new(Arc::new(disk.of_jobs()), Rc::clone(&clock)));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Environment { disk, background, clock, random }
}

/// Compactions of little data are shared by several jobs, if there are threads for them.
pub fn sharing_options() -> ShardOptions {
    ShardOptions {
        large_compaction_bytes: 4,
        shared_compaction_bytes: Some(1),
        compaction_subrange_bytes: 2000,
        ..small_options()
    }
}

/// Small memtables and log segments, so that little data exercises everything.
pub fn small_options() -> ShardOptions {
    let mut options = ShardOptions::new(Path::new(DIRECTORY));
    options.memtable_bytes_max = 256 << 10;
    options.row_version_bytes_max = 1 << 10;
    options.commit_log.segment_bytes = 64 << 10;
    options.commit_log_bytes_max = 512 << 10;
    options.compaction_bytes_per_second = None;
    options
}

pub fn table_options() -> TableOptions {
    TableOptions { gc_grace_seconds: 100, ..TableOptions::default() }
}

/// Runs a future on a current-thread runtime with a local set, as a shard's thread does.
pub fn run_local<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Runs a future while time passes: a second whenever the shard has had some turns.
pub async fn while_time_passes<T>(clock: &ManualClock, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        for _ in 0..200 {
            if let std::task::Poll::Ready(value) = futures::poll!(future.as_mut()) {
                return value;
            }
            tokio::task::yield_now().await;
        }
        clock.advance(std::time::Duration::from_secs(1));
    }
}

/// One page: up to `limit` rows, and the bound from which the next page goes on.
pub fn read_page(
    shard: &Shard,
    range: (&[u8], &[u8]),
    reversed: bool,
    limit: usize,
    budget: Budget,
    now_seconds: u32,
) -> Result<(Vec<VisibleRow>, Option<Vec<u8>>), EngineError> {
    let (start, end) = range;
    let mut scan = shard.scan(&ScanRequest { table: TABLE, start, end, reversed, now_seconds, budget })?;
    let mut rows = Vec::new();
    while rows.len() < limit {
        match scan.next()? {
            Step::Row(view) => rows.push(VisibleRow::of(&view)),
            Step::Exhausted => break,
            Step::End => return Ok((rows, None)),
        }
    }
    let bound = scan.resume_bound()?;
    Ok((rows, bound))
}

/// All rows of a range.
pub fn read_all(
    shard: &Shard,
    range: (&[u8], &[u8]),
    reversed: bool,
    now_seconds: u32,
) -> Result<Vec<VisibleRow>, EngineError> {
    read_page(shard, range, reversed, usize::MAX, Budget::UNLIMITED, now_seconds).map(|page| page.0)
}

/// A row of the partition `key`: a liveness and column 1.
pub fn put(token: i64, row: u8, timestamp: i64, value: &[u8]) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    let mut content = RowBuilder::new();
    content.set_liveness(Liveness { timestamp, expiry: None });
    content.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
    builder.row(&[2, 1 + row], &mut content);
    builder.build()
}

pub fn apply(shard: &Shard, mutation: &Mutation) -> LogPosition {
    shard.apply(&mutation.view().unwrap()).unwrap()
}

pub async fn open_with(disk: &SimulatedDisk, options: ShardOptions) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard
}

/// A shard with small memtables and the table `TABLE`.
pub async fn open(disk: &SimulatedDisk) -> Rc<Shard> {
    open_with(disk, small_options()).await
}

/// A scan of everything.
pub fn request(reversed: bool) -> ScanRequest<'static> {
    let (start, end) = EVERYTHING;
    ScanRequest { table: TABLE, start, end, reversed, now_seconds: NOW, budget: Budget::UNLIMITED }
}

/// All versions of a source, as those of a table.
pub fn everything(table: TableId) -> VersionScanRequest<'static> {
    VersionScanRequest {
        table,
        start: EVERYTHING.0,
        end: EVERYTHING.1,
        reversed: false,
        now_seconds: NOW,
        purgeable: Purgeable::Kept,
        is_long: true,
        part: None,
        limit: VersionLimit::UNLIMITED,
    }
}
