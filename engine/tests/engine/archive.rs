//! The archive of the commit log: it has every write, a restore from it is exact to the write, and it never keeps the log from working.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::commit_log::{ArchiveOptions, ArchivedLog, ArchivedSegment, CommitLogError, SyncMode};
use helenus_engine::io::{CrashStyle, Disk, Fault, ManualClock, Persistence, ReadCorruption, SimulatedDisk};
use helenus_engine::shard::{LogSelection, ShardOptions};
use helenus_engine::{Deletion, EngineError, MutationBuilder, Shard, TableId};

use crate::support::{
    EVERYTHING, NOW, START_MICROS, TABLE, apply, environment, everything, open_with, put, read_all,
    run_local, small_options, table_options, while_time_passes,
};

const ARCHIVE: &str = "archive/node/shard-0";
const ALWAYS: RangeInclusive<i64> = i64::MIN..=i64::MAX;

fn options() -> ShardOptions {
    let mut options = small_options();
    options.commit_log.segment_bytes = 8 << 10;
    options.commit_log_bytes_max = 32 << 10;
    let below = Path::new(ARCHIVE).strip_prefix("archive").unwrap().to_owned();
    options.commit_log.archive = Some(ArchiveOptions { root: "archive".into(), below });
    options
}

/// A disk with the archive's root.
async fn archive_disk(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new("archive")).await.unwrap();
    disk.sync_directory(Path::new("")).await.unwrap();
    disk
}

async fn archives(shard: &Shard) -> Vec<ArchivedLog> {
    shard.find_archived_logs(Path::new("archive")).await.unwrap()
}

/// Writes what the archive has of the table `TABLE` into `into`. Returns the number of mutations.
async fn replay(shard: &Shard, timestamps: RangeInclusive<i64>, into: TableId) -> Result<u64, EngineError> {
    let selection = LogSelection { tables: BTreeSet::from([TABLE]), timestamps, only_counts: false };
    let mut mutation_count = 0;
    for log in archives(shard).await {
        let mut reading = shard.open_archived_log(&log)?;
        while let Some(part) = shard.next_of_log(&mut reading, &selection).await? {
            mutation_count += part.mutation_counts.values().sum::<u64>();
            for (table, source) in part.sources {
                assert_eq!(table, TABLE);
                for mutation in shard.scan_import(&source, &everything(into))?.partitions {
                    shard.admit().await?;
                    apply(shard, &mutation);
                }
            }
        }
    }
    Ok(mutation_count)
}

/// Key and value of each row of `TABLE`.
fn contents(shard: &Shard) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = read_all(shard, EVERYTHING, false, NOW).unwrap();
    rows.into_iter().map(|row| (row.key, row.cells[0].3.clone())).collect()
}

/// Deletes the rows of a partition up to a time.
fn delete_partition(token: i64, timestamp: i64) -> helenus_engine::Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    builder.delete_partition(Deletion { timestamp, local_deletion_time: NOW });
    builder.build()
}

#[test]
fn a_replay_gives_the_state_of_any_moment() {
    run_local(async {
        let disk = archive_disk(1).await;
        let shard = open_with(&disk, options()).await;
        // Timestamp n: row n % 7 gets the value n; each tenth deletes its partition. The states after each write are kept.
        let mut states = Vec::new();
        for timestamp in 1..=200_i64 {
            let token = timestamp % 7;
            let mutation = match timestamp % 10 {
                0 => delete_partition(token, timestamp),
                _ => put(token, 1, timestamp, &[timestamp as u8; 200]),
            };
            shard.admit().await.unwrap();
            let position = apply(&shard, &mutation);
            shard.durable(position).await.unwrap();
            states.push(contents(&shard));
            if timestamp % 50 == 0 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        shard.archive_log().await.unwrap();
        assert_eq!(shard.unarchived_log_segments(), 0);
        for until in [200, 1, 77, 130, 9, 10] {
            shard.truncate(TABLE).await.unwrap();
            // What earlier rounds have replayed is in the log too.
            assert!(replay(&shard, i64::MIN..=until, TABLE).await.unwrap() >= until as u64);
            assert_eq!(contents(&shard), states[until as usize - 1], "until {until}");
        }
        // What was truncated in between is left out by a beginning.
        shard.truncate(TABLE).await.unwrap();
        replay(&shard, 196..=198, TABLE).await.unwrap();
        assert_eq!(contents(&shard).len(), 3);
    });
}

#[test]
fn the_archive_has_every_acknowledged_write_once_a_crash_is_over() {
    for step in (0..400).step_by(7) {
        let disk = run_local(archive_disk(step));
        let mut acknowledged = Vec::new();
        run_local(async {
            let shard = open_with(&disk, options()).await;
            disk.crash_at(disk.operations() + step);
            for number in 1..=120_i64 {
                if shard.admit().await.is_err() {
                    break;
                }
                let Ok(position) = shard.apply(&put(number, 1, number, &[7; 300]).view().unwrap()) else {
                    break;
                };
                if shard.durable(position).await.is_err() {
                    break;
                }
                acknowledged.push(number);
                if number % 40 == 0 && shard.flush(TABLE).await.is_err() {
                    break;
                }
            }
        });
        let style = CrashStyle::ALL[step as usize % CrashStyle::ALL.len()];
        disk.restart(style, step);
        run_local(async {
            let shard = open_with(&disk, options()).await;
            apply(&shard, &put(1000, 1, 1000, b"after"));
            shard.archive_log().await.unwrap();
            shard.truncate(TABLE).await.unwrap();
            replay(&shard, ALWAYS, TABLE).await.unwrap();
            let rows = contents(&shard).len();
            assert!(
                rows > acknowledged.len(),
                "step {step}, {style:?}: {rows} rows of {}",
                acknowledged.len()
            );
        });
    }
}

#[test]
fn an_archive_that_fails_keeps_the_segments_in_the_log_and_nobody_from_writing() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        // A file lies where the archive should be.
        disk.create(Path::new("archive")).await.unwrap();
        let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        for number in 1..=200_i64 {
            shard.admit().await.unwrap();
            let position = apply(&shard, &put(number, 1, number, &[7; 300]));
            shard.durable(position).await.unwrap();
        }
        shard.flush(TABLE).await.unwrap();
        let refused = while_time_passes(&clock, shard.archive_log()).await.unwrap_err();
        assert!(refused.to_string().contains("archive"), "{refused}");
        assert!(shard.unarchived_log_segments() > 5, "{}", shard.unarchived_log_segments());
        disk.remove(Path::new("archive")).await.unwrap();
        let missing = while_time_passes(&clock, shard.archive_log()).await.unwrap_err().to_string();
        assert!(missing.contains("archive"), "a root that is not mounted is not made: {missing}");
        disk.create_directory(Path::new("archive")).await.unwrap();
        while_time_passes(&clock, shard.archive_log()).await.unwrap();
        assert_eq!(shard.unarchived_log_segments(), 0);
        while_time_passes(&clock, async {
            // What was flushed long ago leaves the log now.
            while shard.commit_log_bytes() > 64 << 10 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(replay(&shard, ALWAYS, TABLE).await.unwrap(), 200);
        assert_eq!(contents(&shard).len(), 200);
    });
}

/// The archive of 100 writes of 300 bytes.
async fn with_archive(disk: &SimulatedDisk) -> (Rc<Shard>, ArchivedLog) {
    let shard = open_with(disk, options()).await;
    for number in 1..=100_i64 {
        shard.admit().await.unwrap();
        apply(&shard, &put(number, 1, number, &[7; 300]));
    }
    shard.archive_log().await.unwrap();
    let log = archives(&shard).await.remove(0);
    assert!(log.segments.len() > 3, "{log:?}");
    (shard, log)
}

async fn write(disk: &SimulatedDisk, path: &Path, contents: Vec<u8>) {
    let file = disk.create(path).await.unwrap();
    file.write_and_sync_at(0, contents.into()).await.unwrap();
}

#[test]
fn what_is_damaged_missing_or_ambiguous_is_named() {
    run_local(async {
        let disk = archive_disk(1).await;
        let (shard, log) = with_archive(&disk).await;
        let path = |segment: &ArchivedSegment| -> PathBuf { Path::new(ARCHIVE).join(segment.file_name()) };
        let (second, last) = (&log.segments[1], log.segments.last().unwrap());
        // A flipped bit, also in the last segment, which nothing follows.
        for segment in [second, last] {
            let good = disk.read(&path(segment)).await.unwrap();
            let mut bad = good.to_vec();
            bad[1000] ^= 1;
            disk.remove(&path(segment)).await.unwrap();
            write(&disk, &path(segment), bad).await;
            let error = replay(&shard, ALWAYS, TABLE).await.unwrap_err();
            let EngineError::CommitLog(CommitLogError::Damaged { path: named, .. }) = &error else {
                panic!("{error}")
            };
            assert_eq!(*named, path(segment));
            // A part of it.
            disk.remove(&path(segment)).await.unwrap();
            write(&disk, &path(segment), good[..good.len() / 2].to_vec()).await;
            assert!(replay(&shard, ALWAYS, TABLE).await.is_err());
            disk.remove(&path(segment)).await.unwrap();
            write(&disk, &path(segment), good.to_vec()).await;
        }
        // Another segment of the same number.
        let other = ArchivedSegment { number: second.number, crc32: second.crc32 ^ 1 };
        write(&disk, &path(&other), vec![0; 8192]).await;
        let error = replay(&shard, ALWAYS, TABLE).await.unwrap_err();
        assert!(matches!(error, EngineError::CommitLog(CommitLogError::Ambiguous { .. })), "{error}");
        disk.remove(&path(&other)).await.unwrap();
        replay(&shard, ALWAYS, TABLE).await.unwrap();
        // A gap. What is left behind it may be replayed alone.
        disk.remove(&path(second)).await.unwrap();
        let error = replay(&shard, ALWAYS, TABLE).await.unwrap_err();
        assert!(error.to_string().contains(&format!("segment-{:016x}", second.number)), "{error}");
        disk.remove(&path(&log.segments[0])).await.unwrap();
        replay(&shard, ALWAYS, TABLE).await.unwrap();
    });
}

#[test]
fn a_segment_is_copied_once_also_over_restarts() {
    let disk = run_local(archive_disk(1));
    let log = run_local(async {
        let (shard, log) = with_archive(&disk).await;
        shard.archive_log().await.unwrap();
        assert_eq!(archives(&shard).await, std::slice::from_ref(&log), "nothing was written since");
        shard.close().await.unwrap();
        log
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        shard.archive_log().await.unwrap();
        let now = archives(&shard).await.remove(0);
        assert_eq!(now.segments[..log.segments.len()], log.segments[..]);
        let numbers: BTreeSet<u64> = now.segments.iter().map(|segment| segment.number).collect();
        assert_eq!(numbers.len(), now.segments.len(), "{now:?}");
        assert!(replay(&shard, ALWAYS, TABLE).await.is_ok());
    });
}

#[test]
fn groups_are_numbered_on_after_a_crash_that_leaves_none_in_the_newest_segment() {
    let disk = run_local(archive_disk(1));
    let options = || {
        let mut options = options();
        options.commit_log.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
        options
    };
    run_local(async {
        let shard = open_with(&disk, options()).await;
        apply(&shard, &put(1, 1, 1, b"first"));
        shard.archive_log().await.unwrap();
        // Nothing of the archived segment is needed, and the next one has a group that is not durable.
        shard.flush(TABLE).await.unwrap();
        apply(&shard, &put(2, 1, 2, b"lost"));
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        apply(&shard, &put(3, 1, 3, b"third"));
        shard.archive_log().await.unwrap();
        assert_eq!(archives(&shard).await[0].segments.len(), 2);
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(replay(&shard, ALWAYS, TABLE).await.unwrap(), 2);
    });
}

#[test]
fn an_operator_who_waits_for_the_archive_learns_the_truth_wherever_a_crash_comes() {
    let (mut archived_count, mut failed_count) = (0, 0);
    for step in 0..40 {
        let disk = run_local(archive_disk(step));
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let is_archived = run_local(async {
            let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
            shard.create_table(TABLE, table_options()).await.unwrap();
            apply(&shard, &put(1, 1, 1, b"first"));
            disk.crash_at(disk.operations() + step);
            while_time_passes(&clock, shard.archive_log()).await.is_ok()
        });
        disk.restart(CrashStyle::LoseAll, step);
        let copies = disk.files().keys().filter(|path| path.starts_with(ARCHIVE)).count();
        assert!(!is_archived || copies == 1, "step {step}: {copies} copies");
        archived_count += u32::from(is_archived);
        failed_count += u32::from(!is_archived);
    }
    assert!(archived_count > 0 && failed_count > 5, "{archived_count} and {failed_count}");
}

#[test]
fn a_copy_that_fails_leaves_nothing_behind_and_a_flipped_bit_is_not_archived() {
    for fault in [Fault::Error, Fault::NoSpace, Fault::ShortWrite] {
        let disk = run_local(archive_disk(1));
        let clock = Rc::new(ManualClock::new(START_MICROS));
        run_local(async {
            let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
            shard.create_table(TABLE, table_options()).await.unwrap();
            let position = apply(&shard, &put(1, 1, 1, b"first"));
            shard.durable(position).await.unwrap();
            let mut failures = 0;
            for step in 0..12 {
                disk.fail_at(disk.operations() + step, fault);
                if while_time_passes(&clock, shard.archive_log()).await.is_err() {
                    failures += 1;
                    assert_eq!(shard.unarchived_log_segments(), 1);
                }
                disk.clear_faults();
                let names: Vec<_> =
                    disk.files().into_keys().filter(|path| path.starts_with(ARCHIVE)).collect();
                let temporary = names.iter().filter(|path| path.extension().is_some_and(|end| end == "tmp"));
                assert_eq!(temporary.count(), 0, "{fault:?}, step {step}: {names:?}");
            }
            while_time_passes(&clock, shard.archive_log()).await.unwrap();
            assert!(failures > 2, "{fault:?}: {failures}");
            shard.truncate(TABLE).await.unwrap();
            assert_eq!(replay(&shard, ALWAYS, TABLE).await.unwrap(), 1);
        });
    }
    // Reads of the segment that flip a bit each: the copy is refused, and the next one is right.
    let disk = run_local(archive_disk(1));
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        let position = apply(&shard, &put(1, 1, 1, b"first"));
        shard.durable(position).await.unwrap();
        disk.set_read_corruption(Some(ReadCorruption {
            path_contains: "commit-log/segment-".to_owned(),
            reads_per_mille: 1000,
            bits_max: 1,
            persistence: Persistence::Transient,
        }));
        let refused = while_time_passes(&clock, shard.archive_log()).await.unwrap_err().to_string();
        assert!(refused.contains("two reads of it differ"), "{refused}");
        disk.set_read_corruption(None);
        while_time_passes(&clock, shard.archive_log()).await.unwrap();
        assert!(disk.corrupt_reads() > 0);
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(replay(&shard, ALWAYS, TABLE).await.unwrap(), 1);
    });
}
