//! The engine without a server: open a shard in a directory, write, read, close.
//!
//! ```text
//! cargo run -p helenus-engine --example embedded [DIRECTORY]
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use helenus_engine::io::{
    BackgroundPool, Clock, Environment, ReadPool, RealClock, SystemRandom, ThreadedDisk,
};
use helenus_engine::key::{REGULAR_END, REGULAR_START, full_key};
use helenus_engine::{
    Budget, Cell, CellKind, Deletion, Liveness, MutationBuilder, RowBuilder, ScanRequest, Shard,
    ShardOptions, Step, TableId, TableOptions,
};

const READINGS: TableId = TableId([1; 16]);
const VALUE_COLUMN: u32 = 0;

/// Any hash of the partition key will do, as long as it is always the same.
fn token(partition_key: &[u8]) -> i64 {
    partition_key.iter().fold(7, |token: i64, byte| token.wrapping_mul(31).wrapping_add(i64::from(*byte)))
}

/// A regular row's position: the tag, then the clustering bytes, which compare as the readings' hours do and
/// start neither with 0x00 nor with 0xFF.
fn position(hour: u8) -> [u8; 2] {
    [REGULAR_START[0], hour + 1]
}

async fn use_shard(shard: &Shard, clock: &dyn Clock) -> Result<(), Box<dyn Error>> {
    shard.create_table(READINGS, TableOptions::default()).await?;

    // One mutation changes one partition, all of it at once.
    let sensor = b"sensor-17";
    let mut mutation = MutationBuilder::new(READINGS, token(sensor), sensor)?;
    let timestamp = clock.now_micros();
    for hour in 0..24 {
        let value = format!("{} degrees", 10 + hour);
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp, expiry: None }).cell(Cell {
            column: VALUE_COLUMN,
            path: &[],
            timestamp,
            kind: CellKind::Live,
            value: value.as_bytes(),
        });
        mutation.row(&position(hour), &mut row);
    }
    shard.admit().await?;
    let written = shard.apply(&mutation.build().view()?)?;
    shard.durable(written).await?;

    // Delete the night.
    let mut mutation = MutationBuilder::new(READINGS, token(sensor), sensor)?;
    let deletion = Deletion { timestamp: timestamp + 1, local_deletion_time: clock.now_seconds() };
    mutation.delete_range(&position(0), &position(6), deletion);
    let written = shard.apply(&mutation.build().view()?)?;
    shard.durable(written).await?;

    // The newest three rows of the partition.
    let mut scan = shard.scan(&ScanRequest {
        table: READINGS,
        start: &full_key(token(sensor), sensor, REGULAR_START)?,
        end: &full_key(token(sensor), sensor, REGULAR_END)?,
        reversed: true,
        now_seconds: clock.now_seconds(),
        budget: Budget::UNLIMITED,
    })?;
    for _ in 0..3 {
        let Step::Row(view) = scan.next()? else { break };
        for cell in view.row.cells() {
            println!("hour {}: {}", view.position[1] - 1, String::from_utf8_lossy(cell.value));
        }
    }
    drop(scan);

    shard.flush(READINGS).await?;
    println!("{:?}", shard.statistics(READINGS)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("embedded-data"), PathBuf::from);
    let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
    let environment = Environment {
        disk: Arc::new(ThreadedDisk::start("disk", ReadPool::start(4)?)?),
        background: Rc::new(BackgroundPool::start(1)?),
        clock: Rc::clone(&clock),
        random: Rc::new(SystemRandom),
    };
    // A shard lives on one thread, in a local set.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let shard = Shard::open(environment, ShardOptions::new(directory)).await?;
        use_shard(&shard, &*clock).await?;
        shard.close().await?;
        Ok(())
    })
}
