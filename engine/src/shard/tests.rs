//! The behaviour of a shard after a broken invariant.

mod companions;
mod dropped_tables;
mod full_disk_starts;
mod given_up_edits;
mod index_intersection;
mod indexes;
mod many_tables;
mod memtable_index;
mod nearest;
mod range_deletes;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::{Load, Lookup, RowRequest, Shard, ShardOptions, TableOptions};
use crate::cell::{Cell, CellKind};
use crate::error::EngineError;
use crate::invariant::as_in_release;
use crate::io::{Clock, Disk, Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk};
use crate::key::full_key;
use crate::mutation::{Mutation, MutationBuilder, TableId};
use crate::read::{Budget, Purgeable, ScanRequest, Step, VersionLimit, VersionScanRequest};
use crate::row_writer::RowBuilder;

const TABLE: TableId = TableId([7; 16]);

fn mutation(position: u8) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp: 5, kind: CellKind::Live, value: b"value" });
    builder.row(&[2, position], &mut row);
    builder.build()
}

fn write(shard: &Shard, position: u8, load: Load) -> Result<(), EngineError> {
    shard.load(&mutation(position).view().unwrap(), load).map(|_| ())
}

async fn open(disk: &SimulatedDisk) -> Rc<Shard> {
    open_with(disk, ShardOptions::new(Path::new("shard"))).await
}

fn environment(disk: &SimulatedDisk) -> Environment {
    let random = Rc::new(SeededRandom::new(disk.operations()));
    let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(5_000_000));
    let background = Rc::new(InlineBackground::new(Arc::new(disk.of_jobs()), Rc::clone(&clock)));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Environment { disk, background, clock, random }
}

async fn open_with(disk: &SimulatedDisk, options: ShardOptions) -> Rc<Shard> {
    let shard = Shard::open(environment(disk), options).await.unwrap();
    shard.create_table(TABLE, TableOptions::default()).await.unwrap();
    shard
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

const RANGE: ScanRequest<'_> = ScanRequest {
    table: TABLE,
    start: &[],
    end: &[0xFF; 9],
    reversed: false,
    now_seconds: 5,
    budget: Budget::UNLIMITED,
};

fn rows(shard: &Shard) -> Result<usize, EngineError> {
    let mut scan = shard.scan(&RANGE)?;
    let mut rows = 0;
    while let Step::Row(_) = scan.next()? {
        rows += 1;
    }
    Ok(rows)
}

#[test]
fn a_broken_invariant_stops_the_shard_until_it_is_opened_anew() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open(&disk).await;
        write(&shard, 1, Load::Logged).unwrap();
        write(&shard, 2, Load::Logged).unwrap();
        let mut under_way = shard.scan(&RANGE).unwrap();
        assert!(matches!(under_way.next(), Ok(Step::Row(_))));
        assert_eq!(rows(&shard).unwrap(), 2);
        // Freezes the memtable that the shard still writes to.
        shard.table(TABLE).unwrap().active.borrow().freeze();
        let is_broken = |error: EngineError| matches!(error, EngineError::BrokenInvariant(_));
        as_in_release(|| {
            assert!(is_broken(write(&shard, 3, Load::Logged).unwrap_err()), "the write that meets it");
            assert!(is_broken(write(&shard, 4, Load::PastLog).unwrap_err()), "and all after it");
            assert!(is_broken(under_way.next().unwrap_err()), "a scan that is under way");
            assert!(is_broken(rows(&shard).unwrap_err()));
            let key = full_key(1, b"key", &[2, 1]).unwrap();
            let request = RowRequest { table: TABLE, key: &key, columns: None, now_seconds: 5 };
            let found: Result<Lookup<()>, _> = shard.look_up(&request, |_| ());
            assert!(is_broken(found.unwrap_err()));
            let request = VersionScanRequest {
                table: TABLE,
                start: &[],
                end: &[0xFF; 9],
                reversed: false,
                now_seconds: 5,
                purgeable: Purgeable::Kept,
                is_long: false,
                part: None,
                limit: VersionLimit::UNLIMITED,
            };
            assert!(is_broken(shard.scan_versions(&request).unwrap_err()));
        });
        assert!(is_broken(shard.admit().await.unwrap_err()));
        assert!(is_broken(shard.flush(TABLE).await.unwrap_err()));
        assert!(is_broken(shard.compact(TABLE).await.unwrap_err()));
        assert!(shard.failure().unwrap().contains("a frozen memtable is not written to"));
        drop(under_way);
    });
    // Recovery restores what is in the log, perhaps also the write that could not be applied.
    run(async {
        let shard = open(&disk).await;
        assert_eq!(shard.failure(), None);
        assert!(rows(&shard).unwrap() <= 3);
    });
}

#[test]
#[should_panic(expected = "a frozen memtable is not written to")]
fn a_test_build_panics_at_a_broken_invariant() {
    run(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        shard.table(TABLE).unwrap().active.borrow().freeze();
        write(&shard, 1, Load::Logged).unwrap();
    });
}
