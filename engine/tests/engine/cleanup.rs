//! Cleanup of ranges that a shard has lost: what it takes. Crashes in it are in `crash.rs`.

use std::rc::Rc;

use helenus_engine::io::{ManualClock, SimulatedDisk};
use helenus_engine::table::TableError;
use helenus_engine::{Deletion, EngineError, MutationBuilder, Shard, ShardOptions};

use crate::support::{
    EVERYTHING, NOW, START_MICROS, TABLE, apply, environment, put, read_all, run_local, small_options,
    table_options, while_time_passes,
};

async fn open(disk: &SimulatedDisk, clock: &Rc<ManualClock>) -> Rc<Shard> {
    open_with(disk, clock, small_options()).await
}

async fn open_with(disk: &SimulatedDisk, clock: &Rc<ManualClock>, options: ShardOptions) -> Rc<Shard> {
    let shard = Shard::open(environment(disk, clock), options).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard.set_auto_compaction(TABLE, false).unwrap();
    shard
}

fn tokens_left(shard: &Shard) -> usize {
    read_all(shard, EVERYTHING, false, NOW).unwrap().len()
}

#[test]
fn rows_at_certain_positions_go_and_leave_the_others_and_all_deletions() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock).await;
        for token in 0..10 {
            let mut builder = MutationBuilder::new(TABLE, token, b"other").unwrap();
            builder.delete_partition(Deletion { timestamp: 5, local_deletion_time: NOW });
            apply(&shard, &builder.build());
            apply(&shard, &put(token, 1, 1, b"goes"));
            apply(&shard, &put(token, 2, 1, b"stays"));
        }
        shard.flush(TABLE).await.unwrap();
        // As `put` writes row 1.
        let positions = vec![vec![2, 2]];
        let dropped = shard.drop_rows_at(TABLE, &[3..=6], positions).await.unwrap();
        assert_eq!(dropped.rewritten_files, 1);
        assert_eq!(tokens_left(&shard), 20 - 4);
        // Where only others are left nothing is rewritten.
        let again = shard.drop_rows_at(TABLE, &[3..=6], vec![vec![2, 2]]).await.unwrap();
        assert_eq!((again.rewritten_files, again.busy_files), (0, 0));
        assert_eq!(shard.statistics(TABLE).unwrap().tombstones, 10);
    });
}

/// Writes two files; each has one row for every token below `tokens`.
async fn write_two_files(shard: &Shard, tokens: i64) {
    for row in [1, 2] {
        for token in 0..tokens {
            apply(shard, &put(token, row, 1, &[7; 200]));
        }
        shard.flush(TABLE).await.unwrap();
    }
}

fn rows_in_files(shard: &Shard) -> u64 {
    shard.statistics(TABLE).unwrap().row_versions
}

#[test]
fn a_file_that_cannot_be_read_does_not_hold_up_the_others() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock).await;
        write_two_files(&shard, 100).await;
        disk.set_bad_medium(Some("0000000001-data.sst"));
        shard.drop_ranges(TABLE, &[0..=49]).await.unwrap_err();
        assert_eq!(rows_in_files(&shard), 100 + 50, "the other file is cleaned up");
        disk.set_bad_medium(None);
        let dropped = shard.drop_ranges(TABLE, &[0..=49]).await.unwrap();
        assert_eq!((dropped.rewritten_files, dropped.busy_files), (1, 0));
        assert_eq!(tokens_left(&shard), 2 * 50);
    });
}

#[test]
fn an_operator_stops_all_of_a_cleanup() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        // So slow that no rewrite ends.
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..small_options() };
        let shard = open_with(&disk, &clock, options).await;
        // More than a compaction writes between two looks at its rate.
        write_two_files(&shard, 1_000).await;
        let mut cleanup = std::pin::pin!(shard.drop_ranges(TABLE, &[0..=9]));
        // Until it waits for time to pass.
        for _ in 0..1_000 {
            assert!(futures::poll!(cleanup.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        // All of its files are taken, also those whose turn has not come.
        let beside = shard.drop_ranges(TABLE, &[0..=9]).await.unwrap();
        assert_eq!((beside.rewritten_files, beside.busy_files), (0, 2));
        assert_eq!(shard.stop_compactions(Some(TABLE)), 1);
        let stopped = while_time_passes(&clock, cleanup).await.unwrap_err();
        assert!(matches!(stopped, EngineError::Table(TableError::Stopped)), "{stopped}");
        assert_eq!(rows_in_files(&shard), 2_000);
    });
}
