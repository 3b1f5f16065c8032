//! Back-pressure by the number of files: when flushes outrun compactions, writes are slowed and wait in the end, and the files that a read looks
//! at stay bounded. Tables that are not compacted hold up no write.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use helenus_engine::io::{Clock, ManualClock, SimulatedDisk, SplitMix64};
use helenus_engine::shard::BacklogLimits;
use helenus_engine::table::TableError;
use helenus_engine::{
    Cell, CellKind, EngineError, Mutation, MutationBuilder, RowBuilder, Shard, ShardOptions,
};

use crate::support::{
    EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, read_all, run_local,
    small_options, table_options, while_time_passes,
};

const LIMITS: BacklogLimits =
    BacklogLimits { slow_files: 12, stop_files: 20, wait_max: Duration::from_secs(10) };

fn options(bytes_per_second: Option<u64>) -> ShardOptions {
    ShardOptions { compaction_bytes_per_second: bytes_per_second, backlog: LIMITS, ..small_options() }
}

async fn open(disk: &SimulatedDisk, clock: &Rc<ManualClock>, options: ShardOptions) -> Rc<Shard> {
    let shard = Shard::open(environment(disk, clock), options).await.unwrap();
    shard.create_tables(&[(TABLE, table_options()), (OTHER_TABLE, table_options())]).await.unwrap();
    shard
}

/// So many rows that no merge ends before it has looked at its rate.
async fn write_files(shard: &Shard, files: usize) {
    for file in 0..files {
        for token in 0..50 {
            apply(shard, &put(token, file as u8, 1, &[7; 200]));
        }
        shard.flush(TABLE).await.unwrap();
    }
}

fn files(shard: &Shard) -> usize {
    shard.statistics(TABLE).unwrap().file_count
}

#[test]
fn writes_are_slowed_then_wait_then_are_refused_and_go_on_when_files_have_gone() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        // So slow that no compaction ends.
        let shard = open(&disk, &clock, options(Some(1))).await;
        write_files(&shard, LIMITS.slow_files - 1).await;
        assert_eq!(shard.compaction_backlog(), LIMITS.slow_files - 1);
        assert!(shard.admit().now_or_never().unwrap().is_ok());
        write_files(&shard, 1).await;
        // The first write owes nothing; the next one waits for it to be paid for, but not for long.
        shard.admit().now_or_never().unwrap().unwrap();
        apply(&shard, &put(1, 1, 1, &[7; 1000]));
        {
            let mut slowed = std::pin::pin!(shard.admit());
            assert!(futures::poll!(slowed.as_mut()).is_pending());
            let begun = clock.monotonic();
            while_time_passes(&clock, slowed).await.unwrap();
            assert!(clock.monotonic() <= begun + Duration::from_secs(1));
        }
        let waits = shard.write_waits();
        assert!(waits.slowed > Duration::ZERO && waits.stopped == Duration::ZERO, "{waits:?}");
        write_files(&shard, LIMITS.stop_files - LIMITS.slow_files).await;
        assert!(shard.compaction_backlog() >= LIMITS.stop_files);
        let refused = while_time_passes(&clock, shard.admit()).await;
        assert!(matches!(refused, Err(EngineError::Backlog { .. })), "{refused:?}");
        // What must go on goes on.
        while_time_passes(&clock, shard.admit_essential()).await.unwrap();
        let waits = shard.write_waits();
        assert!(waits.stopped >= LIMITS.wait_max && waits.refused == 1, "{waits:?}");
        {
            let mut waiting = std::pin::pin!(shard.admit());
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            shard.compaction_rate().set(None);
            while_time_passes(&clock, waiting).await.unwrap();
        }
        assert!(shard.compaction_backlog() < LIMITS.slow_files);
    });
}

#[test]
fn a_table_that_is_not_compacted_holds_up_no_write() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, options(Some(1))).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        write_files(&shard, 2 * LIMITS.stop_files).await;
        assert_eq!((shard.compaction_backlog(), files(&shard)), (0, 2 * LIMITS.stop_files));
        assert!(shard.admit().now_or_never().unwrap().is_ok());
        // From now on it is behind: what it has slows writes, and what comes stops them.
        shard.set_auto_compaction(TABLE, true).unwrap();
        assert_eq!(shard.compaction_backlog(), 2 * LIMITS.stop_files);
        assert!(shard.admit().now_or_never().unwrap().is_ok());
        write_files(&shard, LIMITS.stop_files - LIMITS.slow_files).await;
        assert!(shard.admit().now_or_never().is_none());
        // An operator who stops its compactions has ten minutes.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(shard.stop_compactions(Some(TABLE)) > 0);
        while_time_passes(&clock, shard.admit()).await.unwrap();
        assert_eq!(shard.compaction_backlog(), 0);
        // So is a table whose options say so.
        let mut never = table_options();
        never.compaction.enabled = false;
        shard.alter_table(TABLE, never).unwrap();
        assert!(shard.admit().now_or_never().unwrap().is_ok());
        shard.drop_table(TABLE).await.unwrap();
        assert!(shard.admit().now_or_never().unwrap().is_ok());
    });
}

#[test]
fn files_stay_bounded_however_fast_writers_are() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, options(Some(40_000))).await;
        let (mut most, mut written) = (0, BTreeSet::new());
        for round in 0..4000_i64 {
            match while_time_passes(&clock, shard.admit()).await {
                Ok(()) => {
                    apply(&shard, &put(round % 97, (round % 13) as u8, 1 + round, &[round as u8; 1500]));
                    written.insert((round % 97, round % 13));
                }
                Err(error) => assert!(matches!(error, EngineError::Backlog { .. }), "{error}"),
            }
            if round % 20 == 0 {
                shard.flush(TABLE).await.unwrap();
            }
            most = most.max(shard.compaction_backlog());
        }
        // Only admitted writes cause flushes, so at most one file comes after the stop.
        assert!(most <= LIMITS.stop_files + 1, "{most}");
        assert!(written.len() > 100, "{}", written.len());
        shard.compaction_rate().set(None);
        let all = read_all(&shard, EVERYTHING, false, NOW).unwrap();
        assert_eq!(all.len(), written.len());
    });
}

/// Writes that no compression makes smaller.
fn noise(token: i64, row: u8, timestamp: i64) -> Mutation {
    let mut random = SplitMix64::new(timestamp as u64);
    let value: Vec<u8> = (0..125).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    put(token, row, timestamp, &value)
}

#[test]
fn a_start_with_many_files_refuses_no_write() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, options(Some(1))).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        write_files(&shard, 5 * LIMITS.stop_files).await;
        shard.close().await.unwrap();
    });
    run_local(async {
        let shard = open(&disk, &clock, options(Some(1))).await;
        assert_eq!(shard.compaction_backlog(), 5 * LIMITS.stop_files);
        while_time_passes(&clock, shard.admit()).await.unwrap();
        assert_eq!(shard.write_waits().stopped, Duration::ZERO);
        // But their number stays bounded.
        write_files(&shard, LIMITS.stop_files - LIMITS.slow_files).await;
        let refused = while_time_passes(&clock, shard.admit()).await;
        assert!(matches!(refused, Err(EngineError::Backlog { .. })), "{refused:?}");
        shard.compaction_rate().set(None);
        while_time_passes(&clock, shard.admit()).await.unwrap();
    });
}

#[test]
fn a_transfer_waits_as_long_as_it_takes_and_ends_with_the_shard() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, options(Some(1))).await;
        write_files(&shard, LIMITS.stop_files).await;
        let long = Duration::from_secs(1_000_000);
        let mut transfer = std::pin::pin!(shard.admit_transfer(long));
        let refused = while_time_passes(&clock, shard.admit()).await;
        assert!(matches!(refused, Err(EngineError::Backlog { .. })), "{refused:?}");
        assert!(futures::poll!(transfer.as_mut()).is_pending());
        clock.advance(2 * LIMITS.wait_max);
        assert!(futures::poll!(transfer.as_mut()).is_pending());
        let mut other = std::pin::pin!(shard.admit_transfer(long));
        assert!(futures::poll!(other.as_mut()).is_pending());
        shard.compaction_rate().set(None);
        while_time_passes(&clock, transfer).await.unwrap();
        shard.compaction_rate().set(Some(1));
        write_files(&shard, LIMITS.stop_files).await;
        // One that looks now and then whether it is still wanted is not counted as refused.
        let refused = shard.write_waits().refused;
        let looked = while_time_passes(&clock, shard.admit_transfer(Duration::from_secs(1))).await;
        assert!(matches!(looked, Err(EngineError::Backlog { .. })), "{looked:?}");
        assert_eq!(shard.write_waits().refused, refused);
        // Hints do not wait, nor do a transaction's later steps.
        assert!(shard.admit_internal().now_or_never().unwrap().is_ok());
        assert!(shard.admit_essential().now_or_never().unwrap().is_ok());
        assert!(shard.keep_pace_with_compactions().now_or_never().is_none());
        let mut last = std::pin::pin!(shard.admit_transfer(long));
        assert!(futures::poll!(last.as_mut()).is_pending());
        shard.close().await.unwrap();
        // Time need not pass.
        assert!(matches!(last.await, Err(EngineError::Closed)));
    });
}

#[test]
fn a_compaction_that_takes_hours_stops_no_writes() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let mut options = options(Some(100_000));
        options.large_compaction_bytes = 60_000;
        options.memtable_bytes_max = 16 << 20;
        let shard = open(&disk, &clock, options).await;
        for file in 0..4 {
            for token in 0..3000 {
                apply(&shard, &noise(token, file, 1 + token * 10 + i64::from(file)));
            }
            while_time_passes(&clock, shard.flush(TABLE)).await.unwrap();
        }
        let is_busy = |shard: &Shard| {
            let running = shard.running_compactions();
            running.iter().any(|running| running.progress.total_bytes() > 10_000_000)
        };
        let mut most = 0;
        for round in 0..80 {
            for token in 0..20 {
                while_time_passes(&clock, shard.admit()).await.unwrap();
                apply(&shard, &noise(token, round, 1_000_000 + i64::from(round) * 100 + token));
            }
            shard.flush(TABLE).await.unwrap();
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(1));
            most = most.max(shard.compaction_backlog());
        }
        assert!(is_busy(&shard), "the large compaction is under way from the first write to the last one");
        // Its own files count.
        assert!(most < LIMITS.stop_files, "{most}");
        assert_eq!(shard.write_waits().stopped, Duration::ZERO);
    });
}

#[test]
fn an_operators_compaction_that_is_given_up_stops_no_write() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, options(Some(1))).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        write_files(&shard, 5 * LIMITS.stop_files).await;
        let mut compaction = std::pin::pin!(shard.compact(TABLE));
        while shard.running_compactions().is_empty() {
            assert!(futures::poll!(compaction.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        shard.set_auto_compaction(TABLE, true).unwrap();
        // Its files do not count as long as it reads them.
        write_files(&shard, 1).await;
        assert!(shard.stop_compactions(Some(TABLE)) > 0);
        let stopped = while_time_passes(&clock, compaction).await;
        assert!(matches!(stopped, Err(EngineError::Table(TableError::Stopped))), "{stopped:?}");
        write_files(&shard, 1).await;
        assert!(shard.compaction_backlog() > 5 * LIMITS.stop_files);
        assert!(shard.counted_backlog() < LIMITS.stop_files, "{}", shard.counted_backlog());
        while_time_passes(&clock, shard.admit()).await.unwrap();
        assert_eq!(shard.write_waits().stopped, Duration::ZERO);
    });
}

#[test]
fn the_table_that_holds_up_writes_is_compacted_before_one_with_more_files() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let mut options = options(Some(10_000));
        options.large_compaction_bytes = 60_000;
        let shard = open(&disk, &clock, options).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        for file in 0..100 {
            for token in 0..20 {
                apply(&shard, &noise(token, file, 1 + token * 100 + i64::from(file)));
            }
            shard.flush(TABLE).await.unwrap();
        }
        shard.set_auto_compaction(TABLE, true).unwrap();
        for round in 0..100 {
            while_time_passes(&clock, shard.admit()).await.unwrap();
            let mut mutation = MutationBuilder::new(OTHER_TABLE, 1, b"key").unwrap();
            let mut row = RowBuilder::new();
            row.cell(Cell { column: 1, path: &[], timestamp: round, kind: CellKind::Live, value: b"x" });
            mutation.row(&[2, 1], &mut row);
            apply(&shard, &mutation.build());
            shard.flush(OTHER_TABLE).await.unwrap();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_millis(500));
        }
        assert!(files(&shard) > 30, "there is work for the other table all the time: {}", files(&shard));
        assert_eq!(shard.write_waits().stopped, Duration::ZERO);
    });
}
