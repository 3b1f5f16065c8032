//! Compactions under an operator's hand: what is under way is seen and stopped, tables are left alone, the rate changes while they run,
//! and a large one does not keep small ones of other tables waiting.

use std::path::Path;
use std::rc::Rc;

use helenus_engine::io::{Disk, ManualClock, SimulatedDisk};
use helenus_engine::shard::CompactionKind;
use helenus_engine::table::TableError;
use helenus_engine::{
    Cell, CellKind, EngineError, MutationBuilder, RowBuilder, Shard, ShardOptions, TableId,
};

use crate::support::{
    EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, read_all, run_local,
    small_options, table_options, while_time_passes,
};

/// So slow that each compaction waits for the clock as soon as it has written anything.
const SLOW: Option<u64> = Some(1);

async fn open(disk: &SimulatedDisk, clock: &Rc<ManualClock>, options: ShardOptions) -> Rc<Shard> {
    let shard = Shard::open(environment(disk, clock), options).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard
}

/// Flushes files that the strategy would merge.
async fn write_files(shard: &Shard, count: u8) {
    for file in 0..count {
        for row in 0..200 {
            apply(shard, &put(i64::from(row), file, 1, b"value"));
        }
        shard.flush(TABLE).await.unwrap();
    }
}

/// Lets the tasks of the shard run until the condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never: {what}");
}

fn file_count(shard: &Shard, table: TableId) -> usize {
    shard.statistics(table).unwrap().file_count
}

#[test]
fn a_compaction_is_seen_and_stopped_and_its_inputs_stay() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: SLOW, ..small_options() };
        let shard = open(&disk, &clock, options).await;
        write_files(&shard, 4).await;
        until("a compaction is under way", || {
            shard.running_compactions().iter().any(|running| running.progress.read_bytes() > 0)
        })
        .await;
        let [running] = &shard.running_compactions()[..] else { panic!("one compaction") };
        let (read, total) = (running.progress.read_bytes(), running.progress.total_bytes());
        assert_eq!((running.table, running.kind), (TABLE, CompactionKind::Compaction));
        assert!(read < total, "{read} of {total}");
        assert_eq!(shard.stop_compactions(Some(OTHER_TABLE)), 0);
        assert_eq!(shard.stop_compactions(None), 1);
        while_time_passes(&clock, until("it has ended", || shard.running_compactions().is_empty())).await;
        assert_eq!(file_count(&shard, TABLE), 4);
        let report = shard.compaction_report(TABLE).unwrap();
        assert!(report.is_pending && report.failures[0].reason.contains("an operator"), "{report:?}");
        assert_eq!(shard.compaction_statistics().failed, 0);
        let in_tables =
            disk.list(&Path::new(crate::support::DIRECTORY).join("tables").join(TABLE.to_string())).await;
        assert_eq!(in_tables.unwrap().len(), 4, "nothing of it is left");
        // One that an operator has begun.
        let stopped = {
            let mut compaction = std::pin::pin!(shard.compact(TABLE));
            while shard.running_compactions().is_empty() {
                assert!(futures::poll!(compaction.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            shard.stop_compactions(Some(TABLE));
            while_time_passes(&clock, compaction).await
        };
        assert!(matches!(stopped, Err(EngineError::Table(TableError::Stopped))), "{stopped:?}");
        // The strategy comes back to it, and the rate is another one.
        shard.compaction_rate().set(None);
        assert_eq!(shard.compaction_rate().bytes_per_second(), None);
        while_time_passes(&clock, until("it is compacted", || file_count(&shard, TABLE) == 1)).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 800);
    });
}

#[test]
fn a_table_is_left_alone_while_an_operator_wants_that() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, small_options()).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        write_files(&shard, 8).await;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        assert_eq!(file_count(&shard, TABLE), 8);
        assert!(!shard.has_auto_compaction(TABLE).unwrap());
        assert!(!shard.compaction_report(TABLE).unwrap().is_pending);
        shard.set_auto_compaction(TABLE, true).unwrap();
        until("it is compacted", || file_count(&shard, TABLE) == 1).await;
        let unknown = shard.set_auto_compaction(OTHER_TABLE, true);
        assert!(matches!(unknown, Err(EngineError::UnknownTable(_))));
        // All files are of the present format.
        assert_eq!(shard.upgrade_files(TABLE, false).await.unwrap(), 0);
        let before = disk.files().keys().cloned().collect::<Vec<_>>();
        assert_eq!(shard.upgrade_files(TABLE, true).await.unwrap(), 1);
        assert_ne!(disk.files().keys().cloned().collect::<Vec<_>>(), before);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 1600);
    });
}

#[test]
fn small_compactions_run_beside_a_large_one_of_another_table() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions {
            memtable_bytes_max: 1 << 30,
            row_version_bytes_max: 8 << 20,
            compaction_bytes_per_second: SLOW,
            commit_log_bytes_max: u64::MAX,
            ..small_options()
        };
        let shard = open(&disk, &clock, ShardOptions { ..options }).await;
        let mut unlogged = table_options();
        unlogged.is_logged = false;
        shard.create_table(OTHER_TABLE, unlogged).await.unwrap();
        // They pack well, and count unpacked.
        let value = vec![7; 1 << 20];
        for file in 0..4 {
            for row in 0..70_u8 {
                let mut content = RowBuilder::new();
                content.cell(Cell {
                    column: 1,
                    path: &[],
                    timestamp: 1,
                    kind: CellKind::Live,
                    value: &value,
                });
                let mut builder = MutationBuilder::new(OTHER_TABLE, file, b"large").unwrap();
                builder.row(&[2, 1 + row], &mut content);
                apply(&shard, &builder.build());
            }
            while_time_passes(&clock, shard.flush(OTHER_TABLE)).await.unwrap();
        }
        let is_large_running =
            || shard.running_compactions().iter().any(|running| running.table == OTHER_TABLE);
        until("the large one is under way", is_large_running).await;
        let room_for_small = async {
            write_files(&shard, 4).await;
            until("both are under way", || shard.running_compactions().len() == 2).await;
        };
        while_time_passes(&clock, room_for_small).await;
        assert!(is_large_running());
        shard.compaction_rate().set(None);
        while_time_passes(
            &clock,
            until("all is compacted", || {
                file_count(&shard, TABLE) == 1 && file_count(&shard, OTHER_TABLE) == 1
            }),
        )
        .await;
    });
}
