//! Crashes and faults: a recorded history is cut at every disk operation in several crash styles, and every disk operation is made
//! to fail in several ways. Afterwards the table contains exactly the effects of a prefix of the history, which includes all
//! acknowledged events. Errors are typed, and data is never wrong.
//!
//! `HELENUS_CRASH_ALL_STYLES=1` tries every style at every point instead of one in turn.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use helenus_engine::io::{Clock, CrashStyle, Disk, Fault, ManualClock, SimulatedDisk};
use helenus_engine::{EngineError, LogPosition, Mutation, Shard, ShardOptions};

use crate::support::model::{Model, VisibleRow};
use crate::support::random_operations::Generator;
use crate::support::{
    DIRECTORY, OTHER_TABLE, START_MICROS, TABLE, environment, read_all, run_local, small_options,
    table_options, while_time_passes,
};

const EVERYTHING: (&[u8], &[u8]) = (&[], &[0xFF; 9]);
const HISTORY_SEED: u64 = 42;

enum Event {
    Write(Mutation),
    Truncate,
    /// Waits until all events before it are acknowledged.
    AwaitDurable,
    Flush,
    Compact,
    Snapshot(String),
    CreateOther,
    WriteOther(Mutation),
    DropOther,
}

/// A history, and the visible rows after each of its events.
struct History {
    events: Vec<Event>,
    states: Vec<Vec<VisibleRow>>,
}

fn now_seconds() -> u32 {
    (START_MICROS / 1_000_000) as u32
}

fn history(length: usize) -> History {
    let mut generator = Generator::new(HISTORY_SEED);
    generator.partitions = 6;
    generator.rows = 24;
    generator.value_bytes_max = 300;
    let mut model = Model::default();
    let mut states = vec![Vec::new()];
    let mut events = Vec::new();
    for number in 0..length {
        let event = match number % 50 {
            9 | 19 | 34 | 44 => Event::Flush,
            29 => Event::Compact,
            39 => Event::Snapshot(format!("snapshot-{number}")),
            45 if number > 60 => Event::Truncate,
            10 => Event::CreateOther,
            11 | 12 => Event::WriteOther(generator.mutation(OTHER_TABLE, START_MICROS)),
            30 => Event::DropOther,
            _ if number % 3 == 0 => Event::AwaitDurable,
            _ => Event::Write(generator.mutation(TABLE, START_MICROS)),
        };
        match &event {
            Event::Write(mutation) => model.apply(&mutation.view().unwrap()),
            Event::Truncate => model.clear(),
            _ => {}
        }
        events.push(event);
        states.push(model.read(EVERYTHING, false, now_seconds()));
    }
    History { events, states }
}

fn options() -> ShardOptions {
    let mut options = small_options();
    options.memtable_bytes_max = 48 << 10;
    options.commit_log.segment_bytes = 8 << 10;
    options.commit_log_bytes_max = 24 << 10;
    options
}

/// The progress of a history.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Events that were acknowledged: their effects must survive.
    acknowledged: usize,
    /// Events that were begun.
    begun: usize,
    other_is_dropped: bool,
}

async fn open(disk: &SimulatedDisk) -> Result<Rc<Shard>, EngineError> {
    open_at(disk, &Rc::new(ManualClock::new(START_MICROS))).await
}

async fn open_at(disk: &SimulatedDisk, clock: &Rc<ManualClock>) -> Result<Rc<Shard>, EngineError> {
    let shard = Shard::open(environment(disk, clock), options()).await?;
    shard.create_table(TABLE, table_options()).await?;
    Ok(shard)
}

async fn perform(shard: &Shard, event: &Event, last: &mut LogPosition) -> Result<bool, EngineError> {
    match event {
        Event::Write(mutation) | Event::WriteOther(mutation) => {
            shard.admit().await?;
            *last = shard.apply(&mutation.view().unwrap())?;
            return Ok(false);
        }
        Event::AwaitDurable => shard.durable(*last).await?,
        Event::Truncate => shard.truncate(TABLE).await?,
        Event::Flush => shard.flush(TABLE).await?,
        Event::Compact => shard.compact(TABLE).await?,
        Event::Snapshot(name) => drop(shard.snapshot(TABLE, name, &[]).await?),
        Event::CreateOther => shard.create_table(OTHER_TABLE, table_options()).await?,
        Event::DropOther => shard.drop_table(OTHER_TABLE).await?,
    }
    // Each of these makes all earlier writes to the table durable.
    Ok(!matches!(event, Event::CreateOther | Event::DropOther))
}

/// Runs the history until it ends or an operation fails. Then checks the rows that can still be read.
async fn run(history: &History, disk: &SimulatedDisk) -> (Progress, Result<(), EngineError>) {
    run_at(history, disk, &Rc::new(ManualClock::new(START_MICROS))).await
}

async fn run_at(
    history: &History,
    disk: &SimulatedDisk,
    clock: &Rc<ManualClock>,
) -> (Progress, Result<(), EngineError>) {
    let mut progress = Progress::default();
    let shard = match open_at(disk, clock).await {
        Ok(shard) => shard,
        Err(error) => return (progress, Err(error)),
    };
    let mut last = LogPosition::default();
    let mut outcome = Ok(());
    for (number, event) in history.events.iter().enumerate() {
        progress.begun = number + 1;
        progress.other_is_dropped &= !matches!(event, Event::CreateOther);
        match perform(&shard, event, &mut last).await {
            Ok(is_acknowledged) => {
                if is_acknowledged {
                    progress.acknowledged = number + 1;
                }
                progress.other_is_dropped |= matches!(event, Event::DropOther);
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    // Reads still work after a failure. Memory contains the effects of all begun events, except perhaps the last one.
    if let Ok(rows) = read_all(&shard, EVERYTHING, false, now_seconds()) {
        let states = &history.states[progress.begun.saturating_sub(1)..=progress.begun];
        assert!(states.contains(&rows), "after {outcome:?} at event {}", progress.begun);
    }
    (progress, outcome)
}

/// Opens the shard again and checks that it holds a prefix of the history.
fn check_recovered(history: &History, disk: &SimulatedDisk, progress: Progress, context: &str) {
    let recovered = run_local(async {
        let shard = open(disk).await?;
        let rows = read_all(&shard, EVERYTHING, false, now_seconds())?;
        let mut backwards = read_all(&shard, EVERYTHING, true, now_seconds())?;
        backwards.reverse();
        assert_eq!(rows, backwards, "{context}");
        assert!(!progress.other_is_dropped || !shard.table_ids().contains(&OTHER_TABLE), "{context}");
        Ok::<_, EngineError>(rows)
    });
    let rows = recovered.unwrap_or_else(|error| panic!("{context}: {error}"));
    let is_quarantined = |path: &PathBuf| path.starts_with(Path::new(DIRECTORY).join("quarantine"));
    let quarantined: Vec<PathBuf> = disk.files().into_keys().filter(is_quarantined).collect();
    assert!(quarantined.is_empty(), "{context}: a crash leaves nothing that is unknown: {quarantined:?}");
    let possible = &history.states[progress.acknowledged..=progress.begun];
    assert!(possible.contains(&rows), "{context}: {progress:?}, {} rows", rows.len());
}

fn styles(point: u64) -> Vec<CrashStyle> {
    if std::env::var_os("HELENUS_CRASH_ALL_STYLES").is_some() {
        return CrashStyle::ALL.to_vec();
    }
    vec![CrashStyle::ALL[point as usize % CrashStyle::ALL.len()]]
}

fn operations_of(history: &History) -> u64 {
    let disk = SimulatedDisk::new(1);
    let (progress, outcome) = run_local(run(history, &disk));
    outcome.unwrap();
    assert_eq!(progress.begun, history.events.len());
    assert_eq!(disk.overlapping_writes(), 0, "a shard writes no byte twice without a sync in between");
    disk.operations()
}

#[test]
fn a_crash_at_any_disk_operation_loses_nothing_acknowledged() {
    let history = history(150);
    let operations = operations_of(&history);
    assert!(operations > 300, "the history reaches the disk");
    for point in 0..operations {
        for style in styles(point) {
            let disk = SimulatedDisk::new(1);
            disk.crash_at(point);
            let (progress, _) = run_local(run(&history, &disk));
            disk.restart(style, point);
            // Recovery crashes as well, and must be repeatable.
            disk.crash_at(disk.operations() + point % 41);
            let _ = run_local(async { open(&disk).await.map(drop) });
            disk.restart(style, point + 1);
            check_recovered(&history, &disk, progress, &format!("crash at {point}, {style:?}"));
        }
    }
}

#[test]
fn a_failing_disk_operation_is_an_error_and_never_wrong_data() {
    let history = history(100);
    let operations = operations_of(&history);
    let faults = [Fault::Error, Fault::NoSpace, Fault::ShortWrite];
    for point in 1..operations {
        let fault = faults[point as usize % faults.len()];
        let disk = SimulatedDisk::new(1);
        disk.fail_at(point, fault);
        let (progress, outcome) = run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            // The log tries again after a second when the disk is full.
            while_time_passes(&clock, Box::pin(run_at(&history, &disk, &clock))).await
        });
        if let Err(error) = &outcome {
            assert!(!error.to_string().is_empty());
        }
        let style = if point % 2 == 0 { CrashStyle::KeepAll } else { CrashStyle::LoseAll };
        disk.restart(style, point);
        check_recovered(&history, &disk, progress, &format!("{fault:?} at {point}: {outcome:?}"));
    }
}

#[test]
fn a_failed_log_write_ends_all_writing() {
    let history = history(9);
    for point in 1..operations_of(&history) {
        let disk = SimulatedDisk::new(1);
        disk.fail_at(point, Fault::Error);
        run_local(async {
            let Ok(shard) = open(&disk).await else { return };
            let Event::Write(mutation) = &history.events[1] else { panic!("a write") };
            let view = mutation.view().unwrap();
            let Ok(position) = shard.apply(&view) else { return };
            if shard.durable(position).await.is_err() {
                assert!(shard.apply(&view).is_err(), "fault at {point}");
                assert!(shard.failure().is_some());
            }
        });
    }
}

#[test]
fn a_full_disk_is_an_error_and_space_brings_the_shard_back() {
    let history = history(150);
    for capacity in (20_000..200_000).step_by(15_000) {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity_bytes(capacity);
        let (progress, outcome) = run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            while_time_passes(&clock, Box::pin(run_at(&history, &disk, &clock))).await
        });
        assert!(outcome.as_ref().err().is_none_or(EngineError::is_full), "capacity {capacity}: {outcome:?}");
        disk.set_capacity_bytes(u64::MAX);
        disk.restart(CrashStyle::LoseAll, capacity);
        check_recovered(&history, &disk, progress, &format!("capacity {capacity}"));
    }
}

/// The tokens of the generator's even partitions, all of which share their token with an odd one.
const NOT_OWNED: std::ops::RangeInclusive<i64> = -4_500_000..=-3_500_000;

#[test]
fn a_cleanup_that_is_cut_anywhere_keeps_all_that_is_owned() {
    let history = History { events: history(120).events, states: Vec::new() };
    let owned = |rows: Vec<VisibleRow>| -> Vec<VisibleRow> {
        let is_owned = |row: &VisibleRow| {
            let token = helenus_engine::key::KeyRef::parse(&row.key).unwrap().token;
            !NOT_OWNED.contains(&token)
        };
        rows.into_iter().filter(is_owned).collect()
    };
    let prepare = async |disk: &SimulatedDisk| {
        let shard = open(disk).await.unwrap();
        for event in &history.events {
            if let Event::Write(mutation) = event {
                shard.apply(&mutation.view().unwrap()).unwrap();
            } else if matches!(event, Event::Flush) {
                shard.flush(TABLE).await.unwrap();
            }
        }
        shard.flush(TABLE).await.unwrap();
        let rows = read_all(&shard, EVERYTHING, false, now_seconds()).unwrap();
        (shard, rows)
    };
    let disk = SimulatedDisk::new(1);
    let (first, last, expected) = run_local(async {
        let (shard, rows) = prepare(&disk).await;
        let first = disk.operations();
        let dropped = shard.drop_ranges(TABLE, &[NOT_OWNED]).await.unwrap();
        assert!(dropped.rewritten_files > 1 && dropped.busy_files == 0, "{dropped:?}");
        let left = read_all(&shard, EVERYTHING, false, now_seconds()).unwrap();
        assert_eq!(left, owned(rows.clone()));
        assert!(left.len() < rows.len());
        (first, disk.operations(), left)
    });
    for point in first..last {
        for style in styles(point) {
            let disk = SimulatedDisk::new(1);
            run_local(async {
                let (shard, _) = prepare(&disk).await;
                disk.crash_at(point);
                let _ = shard.drop_ranges(TABLE, &[NOT_OWNED]).await;
            });
            disk.restart(style, point);
            run_local(async {
                let shard = open(&disk).await.unwrap();
                let rows = read_all(&shard, EVERYTHING, false, now_seconds()).unwrap();
                assert_eq!(owned(rows), expected, "crash at {point}, {style:?}");
                shard.flush(TABLE).await.unwrap();
                shard.drop_ranges(TABLE, &[NOT_OWNED]).await.unwrap();
                let rows = read_all(&shard, EVERYTHING, false, now_seconds()).unwrap();
                assert_eq!(rows, expected, "done again after a crash at {point}, {style:?}");
            });
        }
    }
}

fn table_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    run_local(async {
        let directory = Path::new(DIRECTORY).join("tables").join(TABLE.to_string());
        let entries = disk.list(&directory).await.unwrap();
        entries.into_iter().map(|entry| directory.join(entry.name)).collect()
    })
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_file() {
    let history = history(45);
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (_, outcome) = run(&history, &disk).await;
        outcome.unwrap();
    });
    disk.restart(CrashStyle::KeepAll, 0);
    let expected = history.states.last().unwrap();
    let mut noticed = 0;
    for path in table_files(&disk) {
        let length = run_local(disk.length(&path)).unwrap();
        for byte in (0..length).step_by(3) {
            let bit = byte * 8 + byte % 8;
            assert!(disk.flip_bit(&path, bit));
            let read = run_local(async {
                let shard = open(&disk).await?;
                read_all(&shard, EVERYTHING, false, now_seconds())
            });
            match read {
                Ok(rows) => assert_eq!(&rows, expected, "bit {bit} of {}", path.display()),
                Err(error) => {
                    noticed += 1;
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    assert!(error.to_string().contains(&name), "{error}");
                }
            }
            assert!(disk.flip_bit(&path, bit));
            disk.restart(CrashStyle::KeepAll, byte);
        }
    }
    assert!(noticed > 100, "only {noticed} errors");
}

#[test]
fn the_clock_of_the_tests_stands_still() {
    assert_eq!(ManualClock::new(START_MICROS).now_seconds(), now_seconds());
}
