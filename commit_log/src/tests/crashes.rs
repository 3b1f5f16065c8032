//! Whatever call a crash comes at, and whatever it leaves: nothing acknowledged is lost, and no start is refused.

use std::cell::RefCell;

use super::*;

/// The content of the manifest about the log.
#[derive(Default)]
struct Manifest {
    /// Records before it are in files.
    discarded: LogPosition,
    /// See [`CommitLog::lowest_needed`].
    needed_from: u64,
}

/// One life of the log: appends from `first` on until the disk crashes or `count` records are written. Returns the number after
/// the last acknowledged record, and the number after the last appended record.
fn live(
    disk: &SimulatedDisk,
    sync: SyncMode,
    first: usize,
    count: usize,
    manifest: &RefCell<Manifest>,
) -> (usize, usize) {
    block_on(async {
        let clock = Rc::new(ManualClock::new(0));
        let needed_from = manifest.borrow().needed_from;
        let recovered = recover_from(disk, options(sync), &clock, needed_from).await;
        let Ok((log, _)) = recovered else {
            assert!(disk.is_crashed(), "{:?}", recovered.err());
            return (first, first);
        };
        let acknowledged = RefCell::new(first);
        let appended = RefCell::new(first);
        beside(&log, async {
            for number in first..first + count {
                let Ok(position) = log.append(&record(number)) else { return };
                *appended.borrow_mut() = number + 1;
                clock.advance(Duration::from_millis(700));
                if number % 3 == 0 {
                    if log.durable(position).await.is_err() {
                        return;
                    }
                    if sync != PERIODIC {
                        *acknowledged.borrow_mut() = number + 1;
                    }
                } else {
                    yield_now().await;
                }
                if number % 20 == 19 && sync != PERIODIC {
                    // As if all records up to the last acknowledged one were flushed.
                    let discarded = LogPosition { segment: position.segment, offset: 0 };
                    let needed_from = log.lowest_needed(Some(discarded));
                    *manifest.borrow_mut() = Manifest { discarded, needed_from };
                    log.discard_before(discarded);
                }
            }
            for _ in 0..200 {
                clock.advance(Duration::from_millis(700));
                yield_now().await;
            }
            if log.close().await.is_ok() {
                *acknowledged.borrow_mut() = first + count;
            }
        })
        .await;
        (acknowledged.into_inner(), appended.into_inner())
    })
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    for sync in [SyncMode::Group, PERIODIC] {
        let rehearsal = SimulatedDisk::new(9);
        assert_eq!(live(&rehearsal, sync, 0, 80, &RefCell::default()), (80, 80));
        let operations = rehearsal.operations();
        assert!(operations > 40, "{operations}");
        for operation in 0..operations {
            for style in CrashStyle::ALL {
                let disk = SimulatedDisk::new(9);
                let manifest = RefCell::default();
                disk.crash_at(operation);
                let (mut acknowledged, mut appended) = live(&disk, sync, 0, 80, &manifest);
                // After a second crash, early in the next life, everything that the first recovery returned is still there.
                for (seed, next_crash) in (operation * 7..).zip([3 + operation % 17, 1 << 40]) {
                    disk.restart(style, seed);
                    let needed_from = manifest.borrow().needed_from;
                    let records = replayed_from(&disk, needed_from)
                        .unwrap_or_else(|error| panic!("{operation} {style:?}: {error}"));
                    let numbers: Vec<usize> = records
                        .iter()
                        .map(|(_, bytes)| usize::from_le_bytes(bytes[..8].try_into().unwrap()))
                        .collect();
                    let first = numbers.first().copied().unwrap_or(0);
                    let end = first + numbers.len();
                    assert!(numbers.iter().copied().eq(first..end), "{numbers:?}");
                    assert!(
                        records.iter().all(|(_, bytes)| *bytes
                            == record(usize::from_le_bytes(bytes[..8].try_into().unwrap())))
                    );
                    let oldest = records.first().map(|(position, _)| *position);
                    let released = manifest.borrow().discarded.segment;
                    assert!(first == 0 || oldest.is_some_and(|oldest| oldest.segment <= released));
                    if !numbers.is_empty() || acknowledged == 0 {
                        assert!(end >= acknowledged && end <= appended, "{operation} {style:?}");
                    } else {
                        panic!("{operation} {style:?}: acknowledged records are gone");
                    }
                    // Replayed records count as durable from now on, even if only the process had died before.
                    disk.restart(CrashStyle::LoseAll, seed);
                    assert!(replayed_from(&disk, needed_from).unwrap() == records, "{operation} {style:?}");
                    disk.crash_at(disk.operations() + next_crash);
                    let (again_acknowledged, again_appended) = live(&disk, sync, end, 30, &manifest);
                    acknowledged = again_acknowledged.max(end);
                    appended = again_appended.max(end);
                }
            }
        }
    }
}

/// The one place where the log writes bytes that may be un-synced already: replay writes the end of the log again, and a recycled
/// file may have un-synced bytes of a process that died. Then the power fails.
#[test]
fn overlapping_writes_of_a_recovery_may_land_in_any_order() {
    let mut overlapping = 0;
    for sync in [SyncMode::Group, PERIODIC] {
        let rehearsal = SimulatedDisk::new(9);
        live(&rehearsal, sync, 0, 80, &RefCell::default());
        for operation in (3..rehearsal.operations()).step_by(2) {
            let disk = SimulatedDisk::new(9);
            let manifest = RefCell::default();
            disk.crash_at(operation);
            let (acknowledged, mut first) = live(&disk, sync, 0, 80, &manifest);
            assert_eq!(
                disk.overlapping_writes(),
                0,
                "one life of the log writes no byte twice without a sync"
            );
            let mut must_be_there: Vec<usize> = (0..acknowledged).collect();
            for round in 0..3 {
                // The process dies, and the next one gets a little further each time.
                disk.restart(CrashStyle::KeepAll, operation);
                disk.crash_at(disk.operations() + 4 + operation % 5 + round * 9);
                let (acknowledged, appended) = live(&disk, sync, first, 12, &manifest);
                must_be_there.extend(first..acknowledged);
                first = appended;
            }
            overlapping += disk.overlapping_writes();
            disk.restart(CrashStyle::Unordered, operation);
            let needed_from = manifest.borrow().needed_from;
            let records = replayed_from(&disk, needed_from)
                .unwrap_or_else(|error| panic!("{sync:?}, {operation}: {error}"));
            let number = |bytes: &Bytes| usize::from_le_bytes(bytes[..8].try_into().unwrap());
            let numbers: Vec<usize> = records.iter().map(|(_, bytes)| number(bytes)).collect();
            assert!(records.iter().all(|(_, bytes)| *bytes == record(number(bytes))));
            let oldest = records.first().map_or(0, |(position, _)| position.segment);
            let is_released = |wanted: usize| {
                oldest <= manifest.borrow().discarded.segment
                    && numbers.first().is_some_and(|first| wanted < *first)
            };
            for wanted in must_be_there {
                let is_kept = numbers.binary_search(&wanted).is_ok() || is_released(wanted);
                assert!(is_kept, "{sync:?}, {operation}: {wanted} is lost of {numbers:?}");
            }
        }
    }
    assert!(overlapping > 0);
}
