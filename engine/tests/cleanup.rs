//! Cleanup of ranges that a shard has lost: what it takes. Crashes in it are in `crash.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::rc::Rc;

use helenus_engine::io::{ManualClock, SimulatedDisk};
use helenus_engine::{Deletion, MutationBuilder, Shard};

use support::{
    EVERYTHING, NOW, START_MICROS, TABLE, apply, environment, put, read_all, run_local, small_options,
    table_options,
};

async fn open(disk: &SimulatedDisk, clock: &Rc<ManualClock>) -> Rc<Shard> {
    let shard = Shard::open(environment(disk, clock), small_options()).await.unwrap();
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
