//! A full disk: writes are refused, reads go on, nothing acknowledged is lost, and when there is room again the same shard goes on.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use helenus_engine::commit_log::SyncMode;
use helenus_engine::io::{
    CrashStyle, Disk, DiskReserve, Fault, ManualClock, ReserveSize, SimulatedDisk, SplitMix64,
};
use helenus_engine::{EngineError, Shard, ShardOptions};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, read_all,
    run_local, small_options, table_options, while_time_passes,
};

fn options(sync: SyncMode, reserve_bytes: u64) -> ShardOptions {
    let mut options = small_options();
    options.memtable_bytes_max = 48 << 10;
    options.commit_log.segment_bytes = 8 << 10;
    options.commit_log_bytes_max = 24 << 10;
    options.commit_log.sync = sync;
    options.reserve = DiskReserve::new(ReserveSize::Bytes(reserve_bytes));
    options
}

async fn open(
    disk: &SimulatedDisk,
    clock: &Rc<ManualClock>,
    options: ShardOptions,
) -> Result<Rc<Shard>, EngineError> {
    let shard = Shard::open(environment(disk, clock), options).await?;
    shard.create_tables(&[(TABLE, table_options()), (OTHER_TABLE, table_options())]).await?;
    Ok(shard)
}

/// Incompressible, so that files are as large as their contents.
fn value(number: i64) -> Vec<u8> {
    let mut random = SplitMix64::new(number as u64);
    (0..60).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

/// Writes a row; an error if it was refused.
async fn write(shard: &Shard, number: i64) -> Result<(), EngineError> {
    shard.admit().await?;
    let position = shard.apply(&put(number, 1, 1, &value(number)).view().unwrap())?;
    shard.on_disk(position).await
}

fn tokens(shard: &Shard) -> Vec<i64> {
    let rows = read_all(shard, EVERYTHING, false, NOW).unwrap();
    rows.iter().map(|row| helenus_engine::key::KeyRef::parse(&row.key).unwrap().token).collect()
}

/// Waits until a condition holds, while time passes.
async fn until(clock: &ManualClock, what: &str, condition: impl Fn() -> bool) {
    for _ in 0..100 {
        if condition() {
            return;
        }
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
    }
    panic!("it does not happen: {what}");
}

/// Lets the shard look at the disk and try again what has failed.
async fn seconds_pass(clock: &ManualClock) {
    for _ in 0..3 {
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
    }
}

/// Writes rows from `first` on until one is refused for want of room, also some seconds later. Returns the number after the last one
/// that was accepted.
async fn fill(shard: &Shard, clock: &ManualClock, first: i64) -> i64 {
    let mut number = first;
    let mut was_refused = false;
    while number < first + 10_000 {
        match while_time_passes(clock, write(shard, number)).await {
            Ok(()) => {
                number += 1;
                was_refused = false;
            }
            Err(EngineError::NoRoom(_)) if was_refused => return number,
            Err(EngineError::NoRoom(_)) => {
                was_refused = true;
                seconds_pass(clock).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk is never full");
}

const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_secs(10) };

#[test]
fn what_is_refused_on_a_full_disk_is_accepted_when_there_is_room() {
    for (sync, reserve_bytes) in [(SyncMode::Group, 40_000), (PERIODIC, 40_000), (SyncMode::Group, 0)] {
        let disk = SimulatedDisk::new(1);
        let end = run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let ballast = disk.create(Path::new("ballast")).await.unwrap();
            ballast.reserve(100_000).await.unwrap();
            disk.set_capacity_bytes(400_000);
            let shard = open(&disk, &clock, options(sync, reserve_bytes)).await.unwrap();
            let first = fill(&shard, &clock, 0).await;
            assert!(first > 200, "{first}");
            assert_eq!(tokens(&shard), (0..first).collect::<Vec<_>>());
            assert!(shard.reserve().refused_writes() > 0 && shard.failure().is_none());
            // Somebody else frees room.
            disk.remove(Path::new("ballast")).await.unwrap();
            let is_accepted = || shard.admit().now_or_never().is_some_and(|admitted| admitted.is_ok());
            until(&clock, "room is noticed", is_accepted).await;
            let second = fill(&shard, &clock, first).await;
            assert!(second > first + 50, "{first}, {second}");
            // The disk becomes larger.
            disk.set_capacity_bytes(1_000_000);
            until(&clock, "the larger disk is noticed", is_accepted).await;
            let third = fill(&shard, &clock, second).await;
            assert!(third > second + 200, "{second}, {third}");
            // A table is emptied.
            while_time_passes(&clock, shard.truncate(TABLE)).await.unwrap();
            until(&clock, "the emptied table is noticed", is_accepted).await;
            let fourth = fill(&shard, &clock, third).await;
            assert!(fourth > third + 500, "{third}, {fourth}");
            assert!(shard.failure().is_none());
            third..fourth
        });
        for style in [CrashStyle::KeepAll, CrashStyle::LoseAll] {
            disk.restart(style, 1);
            run_local(async {
                let clock = Rc::new(ManualClock::new(START_MICROS));
                let shard = open(&disk, &clock, options(sync, reserve_bytes)).await.unwrap();
                assert_eq!(tokens(&shard), end.clone().collect::<Vec<_>>(), "{sync:?}, {style:?}");
            });
        }
    }
}

#[test]
fn essential_writes_and_deletions_of_tables_go_on_while_writes_are_refused() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        disk.set_capacity_bytes(400_000);
        let shard = open(&disk, &clock, options(SyncMode::Group, 60_000)).await.unwrap();
        let end = fill(&shard, &clock, 0).await;
        for number in end..end + 60 {
            while_time_passes(&clock, shard.admit_essential()).await.unwrap();
            let position = apply(&shard, &put(number, 1, 1, b"essential"));
            while_time_passes(&clock, shard.on_disk(position)).await.unwrap();
        }
        assert_eq!(tokens(&shard).len() as i64, end + 60);
        while_time_passes(&clock, shard.flush(TABLE)).await.unwrap();
        while_time_passes(&clock, shard.drop_table(TABLE)).await.unwrap();
        until(&clock, "the dropped table is noticed", || !shard.reserve().is_reached()).await;
        shard.admit().await.unwrap();
    });
}

/// Simulation, seed 411: the write failed, and with it the log of what the members have agreed to.
#[test]
fn an_essential_write_that_finds_no_memory_on_a_full_disk_waits_for_room() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        disk.set_capacity_bytes(400_000);
        let options = options(SyncMode::Group, 60_000);
        let memory_max = options.memtable_bytes_max;
        let shard = open(&disk, &clock, options).await.unwrap();
        fill(&shard, &clock, 0).await;
        // Writes that are applied all the same: those under way when the disk became full, and essential ones.
        let mut number = 10_000;
        while shard.memtable_bytes() <= 2 * memory_max {
            apply(&shard, &put(number, 1, 1, &value(number)));
            number += 1;
        }
        let mut waiting = std::pin::pin!(shard.admit_essential());
        for _ in 0..5 {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
            seconds_pass(&clock).await;
        }
        disk.set_capacity_bytes(4_000_000);
        while_time_passes(&clock, waiting).await.unwrap();
        assert!(shard.failure().is_none());
    });
}

#[test]
fn a_compaction_begins_when_its_output_has_room() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = open(&disk, &clock, options(SyncMode::Group, 30_000)).await.unwrap();
        for file in 0..3 {
            for number in 0..60 {
                while_time_passes(&clock, write(&shard, file * 60 + number)).await.unwrap();
            }
            while_time_passes(&clock, shard.flush(TABLE)).await.unwrap();
        }
        let inputs = shard.statistics(TABLE).unwrap();
        assert_eq!(inputs.file_count, 3);
        // Room for the output, but not beside the reserve.
        disk.set_capacity_bytes(disk.used_bytes() + inputs.disk_bytes + 20_000);
        let refused = while_time_passes(&clock, shard.compact(TABLE)).await;
        assert!(matches!(refused, Err(EngineError::NoRoom(_))), "{refused:?}");
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 3);
        // A fourth file makes the strategy choose them all. They wait.
        for number in 180..240 {
            while_time_passes(&clock, write(&shard, number)).await.unwrap();
        }
        disk.set_capacity_bytes(disk.used_bytes() + inputs.disk_bytes + 20_000);
        while_time_passes(&clock, shard.flush(TABLE)).await.unwrap();
        seconds_pass(&clock).await;
        assert!(shard.statistics(TABLE).unwrap().file_count >= 4);
        disk.set_capacity_bytes(u64::MAX);
        until(&clock, "the compaction", || shard.statistics(TABLE).unwrap().file_count == 1).await;
        assert_eq!(tokens(&shard).len(), 240);
    });
}

#[test]
fn a_compaction_that_frees_room_may_use_the_reserve() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = open(&disk, &clock, options(SyncMode::Group, 10_000_000)).await.unwrap();
        // The same rows in each file: one of them is enough.
        for _ in 0..3 {
            for number in 0..40 {
                while_time_passes(&clock, write(&shard, number)).await.unwrap();
            }
            while_time_passes(&clock, shard.flush(TABLE)).await.unwrap();
        }
        let inputs = shard.statistics(TABLE).unwrap();
        disk.set_capacity_bytes(disk.used_bytes() + inputs.disk_bytes + 2_000);
        until(&clock, "the full disk is noticed", || shard.reserve().is_reached()).await;
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 1);
        assert_eq!(tokens(&shard).len(), 40);
    });
}

/// What is done to the shard, each step until it succeeds.
async fn carry_out(shard: &Shard, step: i64) -> Result<(), EngineError> {
    match step % 25 {
        11 => shard.flush(TABLE).await,
        17 => shard.compact(TABLE).await,
        19 => shard.create_table(OTHER_TABLE, table_options()).await,
        21 => shard.drop_table(OTHER_TABLE).await,
        23 if step > 60 => shard.flush(OTHER_TABLE).await.or_else(|error| match error {
            EngineError::UnknownTable(_) => Ok(()),
            error => Err(error),
        }),
        _ => write(shard, step).await,
    }
}

const STEPS: i64 = 120;

fn is_write(step: i64) -> bool {
    let is_other = matches!(step % 25, 11 | 17 | 19 | 21) || (step % 25 == 23 && step > 60);
    !is_other
}

/// Carries out all steps. A step that is refused for want of room is repeated. Returns the steps that were done.
async fn carry_out_all(shard: &Shard, clock: &ManualClock, point: u64) -> Vec<i64> {
    let mut done = Vec::new();
    for step in 0..STEPS {
        let mut attempts = 0;
        loop {
            match while_time_passes(clock, carry_out(shard, step)).await {
                Ok(()) => break,
                Err(error) if shard.failure().is_some() => {
                    assert!(!error.to_string().is_empty());
                    return done;
                }
                Err(error) => {
                    attempts += 1;
                    assert!(
                        error.is_full() || matches!(error, EngineError::FlushFailed(_)),
                        "{point}: {error}"
                    );
                    assert!(attempts < 30, "{point}: step {step} never succeeds: {error}");
                    seconds_pass(clock).await;
                }
            }
        }
        done.push(step);
    }
    done
}

fn rows(steps: &[i64]) -> Vec<i64> {
    steps.iter().copied().filter(|step| is_write(*step)).collect()
}

#[test]
fn a_call_that_finds_no_room_costs_at_most_the_operation_that_made_it() {
    let run = |point: Option<u64>| {
        let disk = SimulatedDisk::new(3);
        let failed = run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&disk, &clock, options(SyncMode::Group, 0)).await.unwrap();
            if let Some(point) = point {
                disk.fail_at(disk.operations() + point, Fault::NoSpace);
            }
            let done = carry_out_all(&shard, &clock, point.unwrap_or(0)).await;
            let found = tokens(&shard);
            let failure = shard.failure();
            if failure.is_none() {
                assert_eq!(done.len() as i64, STEPS);
                assert_eq!(found, rows(&done), "point {point:?}");
            } else {
                let failure = failure.as_deref().unwrap();
                assert!(failure.contains("sync"), "point {point:?}: {failure}");
            }
            (done, failure.is_some())
        });
        (disk, failed)
    };
    let (rehearsal, _) = run(None);
    let operations = rehearsal.operations();
    assert!(operations > 400, "{operations}");
    let mut failures = 0;
    for point in 0..operations {
        let (disk, (done, has_failed)) = run(Some(point));
        failures += u64::from(has_failed);
        disk.restart(CrashStyle::LoseAll, point);
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&disk, &clock, options(SyncMode::Group, 0)).await.unwrap();
            let (expected, found) = (rows(&done), tokens(&shard));
            let rest = found.strip_prefix(&expected[..]);
            assert!(rest.is_some_and(|rest| rest.len() <= 1), "point {point}: {found:?}");
        });
    }
    assert!(failures > 50 && failures < operations / 3, "{failures} of {operations}");
}

#[test]
fn a_disk_that_is_full_from_any_call_on_costs_nothing_once_it_has_room() {
    for point in (0..700).step_by(3) {
        let disk = SimulatedDisk::new(3);
        let done = run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&disk, &clock, options(SyncMode::Group, 0)).await.unwrap();
            let start = disk.operations();
            // Full from the call on, and for some seconds.
            let weather = async {
                while disk.operations() < start + point {
                    tokio::task::yield_now().await;
                }
                disk.set_capacity_bytes(disk.used_bytes());
                for _ in 0..2_000 {
                    tokio::task::yield_now().await;
                }
                disk.set_capacity_bytes(u64::MAX);
                std::future::pending::<()>().await;
            };
            let work = carry_out_all(&shard, &clock, point);
            let done = tokio::select! {
                done = work => done,
                () = weather => unreachable!(),
            };
            assert_eq!(shard.failure(), None, "point {point}");
            assert_eq!(tokens(&shard), rows(&done), "point {point}");
            done
        });
        assert_eq!(done.len() as i64, STEPS);
        // The last steps may have needed no room.
        disk.set_capacity_bytes(u64::MAX);
        disk.restart(CrashStyle::LoseAll, point);
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&disk, &clock, options(SyncMode::Group, 0)).await.unwrap();
            assert_eq!(tokens(&shard), rows(&done), "point {point}");
        });
    }
}

#[test]
fn a_start_on_a_full_disk_serves_reads_and_goes_on_when_there_is_room() {
    let disk = SimulatedDisk::new(1);
    disk.set_capacity_bytes(300_000);
    let end = run_local(async {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = open(&disk, &clock, options(SyncMode::Group, 30_000)).await.unwrap();
        fill(&shard, &clock, 0).await
    });
    for start in 0..3 {
        disk.restart(CrashStyle::LoseAll, start);
        disk.set_capacity_bytes(disk.used_bytes());
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&disk, &clock, options(SyncMode::Group, 30_000)).await.unwrap();
            assert_eq!(tokens(&shard), (0..end).collect::<Vec<_>>());
            assert!(matches!(shard.admit().await, Err(EngineError::NoRoom(_))));
        });
    }
    disk.restart(CrashStyle::LoseAll, 9);
    run_local(async {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = open(&disk, &clock, options(SyncMode::Group, 30_000)).await.unwrap();
        disk.set_capacity_bytes(u64::MAX);
        until(&clock, "room is noticed", || !shard.reserve().is_reached()).await;
        while_time_passes(&clock, write(&shard, end)).await.unwrap();
        assert_eq!(tokens(&shard), (0..=end).collect::<Vec<_>>());
        while_time_passes(&clock, shard.close()).await.unwrap();
    });
    assert!(run_local(disk.list(Path::new(DIRECTORY))).is_ok());
}
