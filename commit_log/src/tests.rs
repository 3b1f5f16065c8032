//! The guarantees of the commit log, on the simulated disk.

mod crashes;
mod full_disk;
mod leftovers;
mod lost_files;
mod upgrade;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use futures::future::{Either, FutureExt, join_all, select};

use super::segments::{LogDirectory, Role, file_path};
use super::{
    CommitLog, CommitLogError, CommitLogOptions, DamagePolicy, LogEnvironment, LogPosition, SyncMode,
};
use helenus_io::{
    CrashStyle, Disk, Fault, ManualClock, Persistence, ReadCorruption, SeededRandom, SimulatedDisk, yield_now,
};

const DIRECTORY: &str = "/log";
const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_secs(10) };

fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

fn options(sync: SyncMode) -> CommitLogOptions {
    CommitLogOptions { sync, segment_bytes: 4096, spare_segments_max: 2, ..CommitLogOptions::default() }
}

type Records = Vec<(LogPosition, Bytes)>;

/// The environment of a log; `seed` decides the salts.
fn environment(disk: &SimulatedDisk, clock: &Rc<ManualClock>, seed: u64) -> LogEnvironment {
    let random = Rc::new(SeededRandom::new(seed));
    LogEnvironment { disk: Arc::new(disk.clone()), clock: Rc::clone(clock) as _, random }
}

async fn recover(
    disk: &SimulatedDisk,
    options: CommitLogOptions,
    clock: &Rc<ManualClock>,
) -> Result<(Rc<CommitLog>, Records), CommitLogError> {
    recover_from(disk, options, clock, 0).await
}

/// As `recover`, for a manifest that says that segments from `needed_from` on are needed.
async fn recover_from(
    disk: &SimulatedDisk,
    options: CommitLogOptions,
    clock: &Rc<ManualClock>,
    needed_from: u64,
) -> Result<(Rc<CommitLog>, Records), CommitLogError> {
    // Another seed at each start: the number of operations only grows.
    let environment = environment(disk, clock, disk.operations());
    let mut replay = CommitLog::open(environment, directory(), options, needed_from).await?;
    let mut records = Vec::new();
    while let Some(record) = replay.next().await? {
        records.push(record);
    }
    Ok((replay.finish().await?, records))
}

fn replayed(disk: &SimulatedDisk) -> Result<Records, CommitLogError> {
    replayed_from(disk, 0)
}

fn replayed_from(disk: &SimulatedDisk, needed_from: u64) -> Result<Records, CommitLogError> {
    let clock = Rc::default();
    let recovered = recover_from(disk, options(SyncMode::Group), &clock, needed_from);
    block_on(recovered).map(|(_, records)| records)
}

/// A disk with one segment of a log of version 2.
fn disk_with_segment(number: u64, bytes: Bytes) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    block_on(async {
        disk.create_directory(directory()).await.unwrap();
        disk.create(&directory().join("version-2")).await.unwrap();
        let file = disk.create(&file_path(directory(), Role::Segment, number)).await.unwrap();
        file.write_at(0, bytes).await.unwrap();
    });
    disk
}

fn segments_of(disk: &SimulatedDisk) -> LogDirectory {
    block_on(LogDirectory::read(disk, directory())).unwrap()
}

/// Runs `body` beside the log's task; the log's failure ends it.
async fn beside<T>(log: &Rc<CommitLog>, body: impl Future<Output = T>) -> Option<T> {
    let body = std::pin::pin!(body);
    let task = std::pin::pin!(Rc::clone(log).run());
    match select(body, task).await {
        Either::Left((value, _)) => Some(value),
        Either::Right((Ok(()), body)) => Some(body.await),
        Either::Right((Err(_), _)) => None,
    }
}

fn record(number: usize) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(8 + number * 37 % 300, number as u8);
    record
}

/// Writes records `0..count`, one group each, and closes the log.
fn write_groups(disk: &SimulatedDisk, count: usize) -> Records {
    block_on(async {
        let (log, _) = recover(disk, options(SyncMode::Batch), &Rc::default()).await.unwrap();
        let mut written = Vec::new();
        beside(&log, async {
            for number in 0..count {
                let position = log.append(&record(number)).unwrap();
                log.durable(position).await.unwrap();
                written.push((position, Bytes::from(record(number))));
            }
            log.close().await.unwrap();
        })
        .await
        .unwrap();
        written
    })
}

#[test]
fn records_come_back_in_order_at_their_positions() {
    for sync in [SyncMode::Group, SyncMode::Batch, PERIODIC] {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(0));
        let written = block_on(async {
            let (log, _) = recover(&disk, options(sync), &clock).await.unwrap();
            let mut written = Vec::new();
            beside(&log, async {
                for number in 0..100 {
                    let bytes = record(number);
                    let (head, tail) = bytes.split_at(3);
                    written.push((log.append_parts(&[head, tail]).unwrap(), Bytes::from(record(number))));
                    if number % 7 == 0 {
                        yield_now().await;
                    }
                }
                log.close().await.unwrap();
            })
            .await
            .unwrap();
            assert!(matches!(log.append(b"late"), Err(CommitLogError::Closed)));
            written
        });
        disk.restart(CrashStyle::LoseAll, 0);
        assert_eq!(replayed(&disk).unwrap(), written);
    }
}

#[test]
fn what_must_be_on_disk_does_not_wait_for_the_period() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(0));
    let written = block_on(async {
        let (log, _) = recover(&disk, options(PERIODIC), &clock).await.unwrap();
        let mut written = Vec::new();
        beside(&log, async {
            for number in 0..10 {
                let position = log.append(&record(number)).unwrap();
                written.push((position, Bytes::from(record(number))));
                log.durable(position).await.unwrap();
                log.on_disk(position).await.unwrap();
                log.on_disk(position).await.unwrap();
            }
            // No task waits for this record, and the clock stands still.
            log.append(b"late").unwrap();
            disk.crash_at(disk.operations());
        })
        .await
        .unwrap();
        written
    });
    disk.restart(CrashStyle::LoseAll, 0);
    assert_eq!(replayed(&disk).unwrap(), written);
}

#[test]
fn many_waiters_share_one_group() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let (log, _) = recover(&disk, options(SyncMode::Group), &Rc::default()).await.unwrap();
        beside(&log, async {
            let before = disk.operations();
            let waits: Vec<_> =
                (0..50).map(|number| log.durable(log.append(&[number; 8]).unwrap())).collect();
            assert!(join_all(waits).await.iter().all(Result::is_ok));
            assert!(disk.operations() - before < 30, "one group, not fifty");
        })
        .await
        .unwrap();
    });
}

#[test]
fn a_log_cut_anywhere_replays_a_prefix() {
    let disk = SimulatedDisk::new(1);
    let written = write_groups(&disk, 6);
    let path = file_path(directory(), Role::Segment, 1);
    let whole = block_on(disk.read(&path)).unwrap();
    for length in super::format::SEGMENT_HEADER_BYTES..whole.len() {
        let mut cut = whole[..length].to_vec();
        cut.resize(whole.len(), 0xEE);
        let disk = disk_with_segment(1, cut.into());
        let read = replayed(&disk).unwrap();
        assert_eq!(read, written[..read.len()]);
        let expected =
            written.iter().filter(|(at, record)| at.offset as usize + 4 + record.len() <= length).count();
        assert_eq!(read.len(), expected, "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_harmless_or_a_torn_end() {
    let disk = SimulatedDisk::new(1);
    let written = write_groups(&disk, 5);
    let path = file_path(directory(), Role::Segment, 1);
    let whole = block_on(disk.read(&path)).unwrap();
    let last_group = written[4].0.offset - super::format::GROUP_HEADER_BYTES as u64;
    for bit in 0..whole.len() as u64 * 8 {
        let mut damaged = whole.to_vec();
        damaged[(bit / 8) as usize] ^= 1 << (bit % 8);
        let disk = disk_with_segment(1, damaged.into());
        match replayed(&disk) {
            Ok(read) if read.len() == 5 => assert_eq!(read, written),
            Ok(read) => {
                assert_eq!(read, written[..4]);
                assert!(bit / 8 >= last_group, "only the last group may look torn, bit {bit}");
            }
            Err(CommitLogError::Damaged { path: named, offset, .. }) => {
                assert_eq!(named, path);
                assert!(offset <= bit / 8 && bit / 8 < last_group);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_lost_segment_or_a_damaged_end_of_an_earlier_segment_is_an_error() {
    let disk = SimulatedDisk::new(1);
    write_groups(&disk, 60);
    assert!(segments_of(&disk).segments.len() >= 3);
    let middle = file_path(directory(), Role::Segment, 2);
    let bytes = block_on(disk.read(&middle)).unwrap();
    let last = bytes.windows(4).rposition(|window| window == b"HLG2").unwrap();
    disk.flip_bit(&middle, last as u64 * 8);
    match replayed(&disk) {
        Err(CommitLogError::Damaged { path, offset, .. }) => {
            assert_eq!((path, offset), (middle.clone(), last as u64));
        }
        other => panic!("{other:?}"),
    }
    block_on(disk.remove(&middle)).unwrap();
    assert!(matches!(replayed(&disk), Err(CommitLogError::Missing { path }) if path == middle));
}

#[test]
fn damage_can_be_skipped_when_asked_for() {
    let disk = SimulatedDisk::new(1);
    let written = write_groups(&disk, 5);
    disk.flip_bit(&file_path(directory(), Role::Segment, 1), (written[1].0.offset + 6) * 8);
    let options = CommitLogOptions { damage: DamagePolicy::Skip, ..options(SyncMode::Group) };
    let (_, read) = block_on(recover(&disk, options, &Rc::default())).unwrap();
    let kept: Records =
        written.iter().enumerate().filter(|(index, _)| *index != 1).map(|(_, r)| r.clone()).collect();
    assert_eq!(read, kept);
}

#[test]
fn recycled_segments_never_replay_what_they_held_before() {
    let disk = SimulatedDisk::new(3);
    let mut kept = Vec::new();
    block_on(async {
        let (log, _) = recover(&disk, options(SyncMode::Group), &Rc::default()).await.unwrap();
        beside(&log, async {
            for number in 0..400 {
                let position = log.append(&record(number)).unwrap();
                log.durable(position).await.unwrap();
                kept.push((position, Bytes::from(record(number))));
                if number % 10 == 0 {
                    log.discard_before(position);
                }
            }
            let last = kept.last().unwrap().0;
            assert!(last.segment > 10, "many segments were used");
            log.close().await.unwrap();
            assert!(log.total_bytes() <= 2 * 4096);
            let oldest = log.oldest_position().unwrap();
            kept.retain(|(position, _)| *position >= oldest);
        })
        .await
        .unwrap();
    });
    let files = segments_of(&disk);
    assert!(files.segments.len() <= 3 && files.spares.len() <= 2, "{files:?}");
    assert_eq!(replayed(&disk).unwrap(), kept);
}

#[test]
fn a_failed_write_or_sync_poisons_the_log_for_all() {
    for fault in [Fault::Error, Fault::ShortWrite] {
        for later in 0..8 {
            let disk = SimulatedDisk::new(1);
            block_on(async {
                let (log, _) = recover(&disk, options(SyncMode::Group), &Rc::default()).await.unwrap();
                disk.fail_at(disk.operations() + later, fault);
                let waits = join_all((0..3).map(|_| log.durable(log.append(b"record").unwrap())));
                let task = Rc::clone(&log).run();
                let (waits, task) = futures::join!(waits, async {
                    let mut task = std::pin::pin!(task.fuse());
                    for _ in 0..200 {
                        if let Some(outcome) = (&mut task).now_or_never() {
                            return Some(outcome);
                        }
                        yield_now().await;
                    }
                    None
                });
                let Some(Err(_)) = task else {
                    assert!(waits.iter().all(Result::is_ok), "the fault hit nothing that matters");
                    return;
                };
                assert!(matches!(log.append(b"more"), Err(CommitLogError::Poisoned(_))));
                assert!(log.admit().await.is_err());
                assert!(log.close().await.is_err());
            });
        }
    }
}

#[test]
fn what_is_known_at_once_is_what_waiting_would_tell() {
    for mode in [SyncMode::Group, SyncMode::Batch, PERIODIC] {
        block_on(async {
            let disk = SimulatedDisk::new(1);
            let (log, _) = recover(&disk, options(mode), &Rc::default()).await.unwrap();
            let durable = log.append(b"record").unwrap();
            assert_eq!(log.durable_at_once(durable).is_some(), mode == PERIODIC);
            beside(&log, log.on_disk(durable)).await.unwrap().unwrap();
            assert!(log.durable_at_once(durable).unwrap().is_ok());
        });
        block_on(async {
            let disk = SimulatedDisk::new(1);
            let (log, _) = recover(&disk, options(mode), &Rc::default()).await.unwrap();
            let lost = log.append(b"record").unwrap();
            disk.fail_at(disk.operations(), Fault::Error);
            assert!(beside(&log, log.on_disk(lost)).await.is_none_or(|outcome| outcome.is_err()));
            assert!(log.durable_at_once(lost).unwrap().is_err());
        });
    }
}

/// Found by simulation: the process restarts after a failed sync, replays records from the page cache, and then the power fails.
#[test]
fn what_was_replayed_after_a_failed_sync_survives_the_next_loss_of_power() {
    for later in 0..12 {
        let disk = SimulatedDisk::new(later);
        block_on(async {
            let (log, _) = recover(&disk, options(SyncMode::Batch), &Rc::default()).await.unwrap();
            disk.fail_at(disk.operations() + later, Fault::Error);
            beside(&log, async {
                for number in 0..4 {
                    let position = log.append(&record(number)).unwrap();
                    if log.durable(position).await.is_err() {
                        return;
                    }
                }
            })
            .await;
        });
        disk.restart(CrashStyle::KeepAll, later);
        let (seen, added) = block_on(async {
            let (log, seen) = recover(&disk, options(SyncMode::Batch), &Rc::default()).await.unwrap();
            let added = beside(&log, async {
                let position = log.append(b"after").unwrap();
                log.durable(position).await.unwrap();
                position
            })
            .await
            .unwrap();
            (seen, added)
        });
        disk.restart(CrashStyle::LoseAll, later);
        let expected: Records = seen.into_iter().chain([(added, Bytes::from_static(b"after"))]).collect();
        assert_eq!(replayed(&disk).unwrap(), expected);
    }
}

/// Found by read corruption: a bit that one read flipped in the last segment passed for the torn end of the log. Acknowledged
/// groups were lost, the corrupt bytes were written back, and the next start found the log damaged.
#[test]
fn a_bit_that_one_read_flips_loses_no_group() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..300 {
        let disk = SimulatedDisk::new(seed);
        let written = write_groups(&disk, 4 + seed as usize % 9);
        for _ in 0..3 {
            disk.set_read_corruption(Some(ReadCorruption {
                path_contains: DIRECTORY.to_owned(),
                reads_per_mille: 300,
                bits_max: 2,
                persistence: Persistence::Transient,
            }));
            match replayed(&disk) {
                Ok(records) => {
                    read += 1;
                    assert_eq!(records, written, "seed {seed}");
                }
                Err(CommitLogError::Damaged { path, .. } | CommitLogError::Unstable { path }) => {
                    refused += 1;
                    assert!(path.starts_with(directory()));
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
            disk.set_read_corruption(None);
            assert_eq!(replayed(&disk).unwrap(), written, "seed {seed}");
            disk.restart(CrashStyle::LoseAll, seed);
        }
    }
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}

#[test]
fn a_record_larger_than_half_a_segment_is_refused() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let (log, _) = recover(&disk, options(SyncMode::Group), &Rc::default()).await.unwrap();
        let limit = log.record_bytes_max();
        assert!(matches!(
            log.append(&vec![0; limit + 1]),
            Err(CommitLogError::RecordTooLarge { bytes, limit: reported }) if bytes == limit + 1 && reported == limit
        ));
        log.append(&vec![0; limit]).unwrap();
    });
}

#[test]
fn admission_waits_until_the_writer_has_caught_up() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let options = CommitLogOptions { unwritten_bytes_max: 1000, ..options(SyncMode::Group) };
        let (log, _) = recover(&disk, options, &Rc::default()).await.unwrap();
        assert!(log.admit().now_or_never().is_some());
        log.append(&[0; 1200]).unwrap();
        assert!(log.admit().now_or_never().is_none());
        assert!(beside(&log, log.admit()).await.unwrap().is_ok());
    });
}

#[test]
fn periodic_mode_answers_at_once_and_syncs_in_time() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(0));
        let (log, _) = recover(&disk, options(PERIODIC), &clock).await.unwrap();
        let turn = || async {
            for _ in 0..50 {
                yield_now().await;
            }
        };
        beside(&log, async {
            let position = log.append(b"record").unwrap();
            assert!(log.durable(position).now_or_never().unwrap().is_ok());
            assert!(log.durable_at_once(position).unwrap().is_ok());
            turn().await;
            clock.advance(Duration::from_millis(5));
            turn().await;
            assert!(log.state_is(|written, durable| written > position && durable < position));
            clock.advance(Duration::from_secs(10));
            turn().await;
            assert!(log.state_is(|_, durable| durable > position));
        })
        .await
        .unwrap();
        disk.restart(CrashStyle::LoseAll, 0);
        let (_, records) = recover(&disk, options(PERIODIC), &clock).await.unwrap();
        assert_eq!(records.len(), 1);
    });
}
