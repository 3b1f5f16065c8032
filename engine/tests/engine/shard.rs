//! Guarantees of a shard that the model, crash and scan tests do not cover: back-pressure, snapshots, unlogged tables, counters,
//! recovery of more data than fits into memory, and errors.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use helenus_engine::commit_log::{CommitLogError, SyncMode};
use helenus_engine::io::{CrashStyle, Disk, ManualClock, SimulatedDisk};
use helenus_engine::read::{ScanRequest, Step};
use helenus_engine::shard::Attachment;
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Load, LogPosition, MutationBuilder, RowBuilder, Shard,
    ShardOptions, TableOptions, counter,
};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, open, open_with, put,
    read_all, request, run_local, small_options, table_options,
};

#[test]
fn writers_wait_for_memory_and_go_on_after_the_flush() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let mut options = small_options();
        options.memtable_bytes_max = 64 << 10;
        let shard = open_with(&disk, options).await;
        let mut has_waited = false;
        for number in 0..2000 {
            if shard.admit().now_or_never().is_none() {
                has_waited = true;
                shard.admit().await.unwrap();
            }
            apply(&shard, &put(number, 1, 1, &[7; 500]));
            assert!(shard.memtable_bytes() < 80 << 10);
        }
        assert!(has_waited);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 2000);
        assert!(shard.commit_log_bytes() <= 640 << 10, "the log is given up: {}", shard.commit_log_bytes());
    });
}

#[test]
fn more_than_memory_holds_is_recovered() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let mut options = small_options();
        options.memtable_bytes_max = 8 << 20;
        options.commit_log_bytes_max = u64::MAX;
        let shard = open_with(&disk, options).await;
        let mut last = LogPosition::default();
        for number in 0..2000 {
            last = apply(&shard, &put(number, 1, 1, &[7; 500]));
        }
        shard.durable(last).await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 1);
    run_local(async {
        let mut options = small_options();
        options.memtable_bytes_max = 100 << 10;
        let shard = open_with(&disk, options).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 2000);
        assert!(shard.statistics(TABLE).unwrap().file_count > 1);
    });
}

#[test]
fn a_snapshot_is_a_copy_that_later_changes_leave_alone() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        apply(&shard, &put(1, 1, 1, b"value"));
        let directory = shard.snapshot(TABLE, "monday", &[]).await.unwrap();
        assert_eq!(disk.list(&directory).await.unwrap().len(), 1);
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(disk.list(&directory).await.unwrap().len(), 1);
        for name in ["", "..", "a/b"] {
            let refused = shard.snapshot(TABLE, name, &[]).await;
            assert!(matches!(refused, Err(EngineError::SnapshotName(_))), "{name:?}");
        }
        let refused = shard.snapshot(TABLE, "monday", &[]).await;
        assert!(matches!(refused, Err(EngineError::SnapshotExists(_))));
        shard.clear_snapshot("monday").await.unwrap();
        shard.clear_snapshot("monday").await.unwrap();
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
    });
}

#[test]
fn the_commit_log_may_have_a_directory_of_its_own() {
    let disk = SimulatedDisk::new(1);
    let options =
        |log: Option<&str>| ShardOptions { commit_log_directory: log.map(Into::into), ..small_options() };
    run_local(async {
        let shard = open_with(&disk, options(Some("log/shard"))).await;
        let position = apply(&shard, &put(1, 1, 1, b"value"));
        shard.durable(position).await.unwrap();
    });
    run_local(async {
        assert!(!disk.list(Path::new("log/shard")).await.unwrap().is_empty());
        assert!(disk.list(&Path::new(DIRECTORY).join("commit-log")).await.is_err());
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let missing = Shard::open(environment(&disk, &clock), options(Some("elsewhere"))).await;
        let missing = missing.err().unwrap().to_string();
        assert!(missing.contains("the commit log should be in elsewhere, and is not"), "{missing}");
        let shard = open_with(&disk, options(Some("log/shard"))).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 1);
    });
    let disk = SimulatedDisk::new(1);
    run_local(async {
        open_with(&disk, options(None)).await;
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let elsewhere = Shard::open(environment(&disk, &clock), options(Some("log/shard"))).await;
        let elsewhere = elsewhere.err().unwrap().to_string();
        assert!(elsewhere.contains("the commit log lies in shard/commit-log"), "{elsewhere}");
    });
}

#[test]
fn table_files_may_lie_in_several_directories() {
    let disk = SimulatedDisk::new(1);
    let options = |directories: &[&str]| ShardOptions {
        table_directories: directories.iter().map(Into::into).collect(),
        ..small_options()
    };
    let files = async |root: &str| {
        let directory = Path::new(root).join("tables").join(TABLE.to_string());
        disk.list(&directory).await.map_or(0, |entries| entries.len())
    };
    let reopen = async |directories: &[&str]| {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let opened = Shard::open(environment(&disk, &clock), options(directories)).await;
        opened.map_err(|error| error.to_string())
    };
    let write = async |shard: &Shard, row: u8| {
        apply(shard, &put(1, row, 1, b"value"));
        shard.flush(TABLE).await.unwrap();
    };
    run_local(async {
        // A directory that was there before keeps its files when others are named.
        let shard = open_with(&disk, small_options()).await;
        write(&shard, 1).await;
    });
    run_local(async {
        let shard = open_with(&disk, options(&["two", "three"])).await;
        write(&shard, 2).await;
        assert_eq!((files(DIRECTORY).await, files("two").await + files("three").await), (1, 1));
        let snapshot = shard.snapshot(TABLE, "monday", &[]).await.unwrap();
        assert_eq!(disk.list(&snapshot).await.unwrap().len(), 1);
        shard.compact(TABLE).await.unwrap();
        assert_eq!((files(DIRECTORY).await, files("two").await + files("three").await), (0, 1));
        shard.clear_snapshot("monday").await.unwrap();
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 1);
    run_local(async {
        // In another order, and with one that is not written to any more.
        let shard = open_with(&disk, options(&["three"])).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 2);
        write(&shard, 3).await;
        shard.compact(TABLE).await.unwrap();
        assert_eq!((files("two").await, files("three").await), (0, 1));
    });
    run_local(async {
        let path = Path::new("three/tables");
        disk.rename(path, Path::new("three/elsewhere")).await.unwrap();
        let missing = reopen(&["two"]).await.err().unwrap();
        assert!(missing.contains("table files should be in three, and is not"), "{missing}");
        disk.rename(Path::new("three/elsewhere"), path).await.unwrap();
        disk.create_directory(Path::new("foreign/tables/1234")).await.unwrap();
        let foreign = reopen(&["foreign"]).await.err().unwrap();
        assert!(foreign.contains("foreign is new to the shard"), "{foreign}");
        let shard = open_with(&disk, options(&["two"])).await;
        shard.truncate(TABLE).await.unwrap();
        shard.drop_table(TABLE).await.unwrap();
        assert_eq!(disk.list(path).await.unwrap().len(), 0);
    });
}

#[test]
fn a_directory_that_fails_gets_no_new_files_for_some_minutes() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let options =
            ShardOptions { table_directories: vec!["two".into(), "three".into()], ..small_options() };
        let shard = Shard::open(environment(&disk, &clock), options).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        let files = |root: &str| {
            disk.files().keys().filter(|path| path.starts_with(Path::new(root).join("tables"))).count()
        };
        let mut row = 0;
        let mut write = async || {
            row += 1;
            apply(&shard, &put(1, row, 1, b"value"));
            shard.flush(TABLE).await
        };
        write().await.unwrap();
        let (first, other) = if files("two") == 1 { ("two", "three") } else { ("three", "two") };
        disk.set_bad_medium(Some(&format!("{first}/tables")));
        write().await.unwrap_err();
        write().await.unwrap();
        assert_eq!((files(first), files(other)), (1, 2));
        disk.set_bad_medium(None);
        clock.advance(Duration::from_mins(6));
        write().await.unwrap();
        assert_eq!((files(first), files(other)), (2, 2));
    });
}

#[test]
fn a_part_of_a_snapshot_in_another_directory_is_kept_when_the_rest_is_lost() {
    let disk = SimulatedDisk::new(1);
    let options = || ShardOptions { table_directories: vec!["two".into()], ..small_options() };
    let in_two = |below: &str| {
        let part = |path: &&std::path::PathBuf| path.starts_with(Path::new("two").join(below));
        disk.files().keys().filter(|path| path.ends_with("0000000001-data.sst")).filter(part).count()
    };
    run_local(async {
        let shard = open_with(&disk, options()).await;
        apply(&shard, &put(1, 1, 1, b"value"));
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
        shard.snapshot(TABLE, "tuesday", &[]).await.unwrap();
        shard.drop_table(TABLE).await.unwrap();
        shard.close().await.unwrap();
        disk.remove_directory(&Path::new(DIRECTORY).join("snapshots/monday")).await.unwrap();
    });
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        assert_eq!(
            (in_two("quarantine"), in_two("snapshots/tuesday"), in_two("snapshots/monday")),
            (1, 1, 0)
        );
        shard.clear_snapshot("tuesday").await.unwrap();
        assert_eq!((in_two("quarantine"), in_two("snapshots/tuesday")), (1, 0));
    });
}

#[test]
fn a_snapshot_in_several_directories_is_made_and_removed_as_a_whole_wherever_a_crash_comes() {
    for is_removed in [false, true] {
        for step in 0.. {
            let disk = SimulatedDisk::new(step);
            let options = || ShardOptions { table_directories: vec!["two".into()], ..small_options() };
            let is_crashed = run_local(async {
                let shard = open_with(&disk, options()).await;
                apply(&shard, &put(1, 1, 1, b"value"));
                shard.flush(TABLE).await.unwrap();
                if is_removed {
                    shard.snapshot(TABLE, "monday", &[]).await.unwrap();
                }
                disk.crash_at(disk.operations() + step);
                let done = if is_removed {
                    shard.clear_snapshot("monday").await
                } else {
                    shard.snapshot(TABLE, "monday", &[]).await.map(drop)
                };
                assert!(done.is_ok() || disk.is_crashed(), "{done:?}");
                disk.is_crashed()
            });
            if !is_crashed {
                assert!(step > 5);
                break;
            }
            let style = CrashStyle::ALL[step as usize % CrashStyle::ALL.len()];
            disk.restart(style, step);
            run_local(async {
                let shard = open_with(&disk, options()).await;
                let found = shard.list_snapshots().await.unwrap().len();
                let parts = disk.files().keys().filter(|path| path.starts_with("two/snapshots")).count();
                assert_eq!(found, parts, "step {step}, {style:?}");
                let quarantined = disk.files().keys().any(|path| path.starts_with("two/quarantine"));
                assert!(!quarantined, "step {step}, {style:?}");
            });
        }
    }
}

#[test]
fn nothing_that_a_truncation_removes_is_missing_in_its_snapshot() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk).await;
        let attachment =
            Attachment { name: "schema.cql".to_owned(), contents: Bytes::from_static(b"schema") };
        let attachments = std::slice::from_ref(&attachment);
        for is_empty_before in [true, false] {
            let name = if is_empty_before { "empty" } else { "filled" };
            if !is_empty_before {
                apply(&shard, &put(1, 1, 1, b"before"));
            }
            shard.snapshot_rows(TABLE, name, attachments).await.unwrap();
            apply(&shard, &put(2, 1, 1, b"between"));
            shard.truncate_into_snapshot(TABLE, name, attachments).await.unwrap();
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), []);
            assert_eq!(shard.statistics(TABLE).unwrap().file_count, 0);
            let [entry] = &shard.list_snapshots().await.unwrap()[..] else { panic!("one snapshot") };
            let files = disk.list(&entry.path).await.unwrap();
            assert_eq!(files.len(), if is_empty_before { 2 } else { 3 }, "{files:?}");
            shard.clear_snapshot(name).await.unwrap();
        }
        // An empty table gets no snapshot.
        shard.truncate_into_snapshot(TABLE, "nothing", attachments).await.unwrap();
        assert!(shard.list_snapshots().await.unwrap().is_empty());
        // What comes after the flush stays.
        apply(&shard, &put(3, 1, 1, b"flushed"));
        shard.flush(TABLE).await.unwrap();
        let mut truncation = std::pin::pin!(shard.truncate_into_snapshot(TABLE, "late", attachments));
        assert!(futures::poll!(truncation.as_mut()).is_pending());
        apply(&shard, &put(4, 1, 1, b"meanwhile"));
        truncation.await.unwrap();
        let left = read_all(&shard, EVERYTHING, false, NOW).unwrap().len();
        let entry = &shard.list_snapshots().await.unwrap()[0];
        let kept = disk.list(&entry.path).await.unwrap().len() - 1;
        assert_eq!(left + kept, 2, "each row is in the table or in the snapshot");
    });
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        let shard = open(&disk).await;
        let entry = &shard.list_snapshots().await.unwrap()[0];
        let kept = disk.list(&entry.path).await.unwrap().len() - 1;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len() + kept, 2);
    });
}

#[test]
fn an_unlogged_table_keeps_what_was_flushed() {
    let disk = SimulatedDisk::new(1);
    let options = || TableOptions { is_logged: false, ..table_options() };
    run_local(async {
        let shard = open(&disk).await;
        shard.create_table(TABLE, options()).await.unwrap();
        let position = apply(&shard, &put(1, 1, 1, b"flushed"));
        shard.durable(position).await.unwrap();
        shard.flush(TABLE).await.unwrap();
        apply(&shard, &put(2, 1, 1, b"in memory"));
    });
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        let shard = open(&disk).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 1);
    });
}

#[test]
fn what_is_loaded_is_there_at_once_and_durable_in_files() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk).await;
        shard.in_files(TABLE).await.unwrap();
        let log_bytes = shard.commit_log_bytes();
        for (partition, value) in [(1, b"flushed"), (2, b"in mem.")] {
            let loaded = shard.load(&put(partition, 1, 1, value).view().unwrap(), Load::PastLog);
            assert_eq!(loaded.unwrap(), None);
            if partition == 1 {
                let mut waiting = std::pin::pin!(shard.in_files(TABLE));
                assert!(futures::poll!(waiting.as_mut()).is_pending());
                shard.flush(TABLE).await.unwrap();
                waiting.await.unwrap();
            }
        }
        assert_eq!(shard.commit_log_bytes(), log_bytes);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 2);
        apply(&shard, &put(3, 1, 1, b"logged"));
        let position = apply(&shard, &put(4, 1, 1, b"logged"));
        shard.on_disk(position).await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = open(&disk).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 3);
    });
}

#[test]
fn waiting_for_files_ends_with_the_table_and_with_the_shard() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        shard.load(&put(1, 1, 1, b"value").view().unwrap(), Load::PastLog).unwrap();
        let mut waiting = std::pin::pin!(shard.in_files(TABLE));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        shard.truncate(TABLE).await.unwrap();
        waiting.await.unwrap();
        shard.load(&put(1, 1, 1, b"value").view().unwrap(), Load::PastLog).unwrap();
        let mut waiting = std::pin::pin!(shard.in_files(TABLE));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        shard.drop_table(TABLE).await.unwrap();
        waiting.await.unwrap();
        assert!(matches!(shard.in_files(TABLE).await, Err(EngineError::UnknownTable(_))));
        shard.create_table(TABLE, table_options()).await.unwrap();
        shard.load(&put(1, 1, 1, b"value").view().unwrap(), Load::PastLog).unwrap();
        let mut waiting = std::pin::pin!(shard.in_files(TABLE));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        shard.close().await.unwrap();
        waiting.await.unwrap();
        let refused = shard.load(&put(1, 1, 1, b"value").view().unwrap(), Load::PastLog);
        assert!(matches!(refused, Err(EngineError::Closed)));
    });
}

#[test]
fn counters_merge_across_memtable_and_files() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for (id, clock, count) in [(1, 1, 5), (2, 1, 10), (1, 2, 7), (3, 1, 100)] {
            let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
            let value = counter::shard([id; 16], clock, count);
            let mut row = RowBuilder::new();
            row.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Counter, value: &value });
            builder.row(&[2], &mut row);
            apply(&shard, &builder.build());
            if id != 3 {
                shard.flush(TABLE).await.unwrap();
            }
            if clock == 2 {
                shard.compact(TABLE).await.unwrap();
            }
        }
        let rows = read_all(&shard, EVERYTHING, false, NOW).unwrap();
        assert_eq!(counter::total(&rows[0].cells[0].3), 117);
    });
}

#[test]
fn a_collection_of_many_elements_written_one_by_one_is_whole() {
    const ELEMENTS: u32 = 3_000;
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open_with(&disk, ShardOptions { memtable_bytes_max: 64 << 20, ..small_options() }).await;
        for number in 0..ELEMENTS {
            // Their paths are in no particular order.
            let path = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let mut content = RowBuilder::new();
            let kind = CellKind::Live;
            content.cell(Cell { column: 1, path: &path, timestamp: 1, kind, value: &number.to_be_bytes() });
            let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
            builder.row(&[2, 1], &mut content);
            apply(&shard, &builder.build());
        }
        let check = |shard: &Shard| {
            let mut scan = shard.scan(&request(false)).unwrap();
            let Step::Row(view) = scan.next().unwrap() else { panic!("the row is missing") };
            let mut numbers: Vec<u32> =
                view.row.cells().map(|cell| u32::from_be_bytes(cell.value.try_into().unwrap())).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..ELEMENTS));
        };
        check(&shard);
        shard.flush(TABLE).await.unwrap();
        check(&shard);
    });
}

#[test]
fn deletions_are_forgotten_after_their_grace_period_and_not_before() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = Shard::open(environment(&disk, &clock), small_options()).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        apply(&shard, &put(1, 1, 1, b"value"));
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        builder.delete_partition(Deletion { timestamp: 2, local_deletion_time: NOW });
        apply(&shard, &builder.build());
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().tombstones, 1);
        clock.advance(Duration::from_secs(101));
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 0);
    });
}

#[test]
fn a_table_that_does_not_exist_is_an_error() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        let mutation = MutationBuilder::new(OTHER_TABLE, 1, b"key").unwrap().build();
        assert!(matches!(
            shard.apply(&mutation.view().unwrap()),
            Err(EngineError::UnknownTable(OTHER_TABLE))
        ));
        let scan = shard.scan(&ScanRequest { table: OTHER_TABLE, ..request(false) });
        assert!(matches!(scan, Err(EngineError::UnknownTable(OTHER_TABLE))));
        shard.drop_table(OTHER_TABLE).await.unwrap();
    });
}

#[test]
fn a_mutation_that_is_too_large_is_refused_and_nothing_else() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        let large = put(1, 1, 1, &vec![0; 40 << 10]);
        let refused = shard.apply(&large.view().unwrap());
        assert!(matches!(refused, Err(EngineError::CommitLog(CommitLogError::RecordTooLarge { .. }))));
        let position = apply(&shard, &put(1, 1, 1, b"small"));
        shard.durable(position).await.unwrap();
    });
}

#[test]
fn a_second_opening_is_refused_while_the_first_lives() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        let clock = Rc::new(ManualClock::new(START_MICROS));
        assert!(Shard::open(environment(&disk, &clock), small_options()).await.is_err());
        shard.close().await.unwrap();
        assert!(matches!(shard.flush(TABLE).await, Err(EngineError::Closed)));
        drop(shard);
        Shard::open(environment(&disk, &clock), small_options()).await.unwrap();
    });
}

#[test]
fn in_periodic_mode_writes_are_acknowledged_at_once_and_kept_by_close() {
    let disk = SimulatedDisk::new(1);
    let mut options = small_options();
    options.commit_log.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    run_local(async {
        let shard = open_with(&disk, options.clone()).await;
        let position = apply(&shard, &put(1, 1, 1, b"value"));
        shard.durable(position).now_or_never().expect("at once").unwrap();
        shard.close().await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = open_with(&disk, options).await;
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 1);
    });
}

#[test]
fn tokens_that_are_not_owned_any_more_are_removed_from_the_files() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        // Three files: one with both kinds of data, one with dropped data only, one with kept data only.
        for tokens in [0..100, 40..60, 60..100] {
            for token in tokens {
                apply(&shard, &put(token, 1, 1, b"value"));
                if token % 10 == 0 {
                    let mut builder = MutationBuilder::new(TABLE, token, b"deleted").unwrap();
                    builder.delete_partition(Deletion { timestamp: 5, local_deletion_time: NOW });
                    apply(&shard, &builder.build());
                }
            }
            shard.flush(TABLE).await.unwrap();
        }
        let before = shard.statistics(TABLE).unwrap();
        let dropped = shard.drop_ranges(TABLE, &[40..=49, 50..=59, i64::MIN..=-1]).await.unwrap();
        assert_eq!((dropped.rewritten_files, dropped.busy_files), (2, 0));
        let after = shard.statistics(TABLE).unwrap();
        assert_eq!(before.file_count - after.file_count, 1, "nothing was left of one file");
        assert_eq!(before.tombstones - after.tombstones, 4);
        assert_eq!(before.row_versions - after.row_versions, 40);
        let tokens = |shard: &Shard| -> Vec<i64> {
            let mut scan = shard.scan(&request(false)).unwrap();
            let mut tokens = Vec::new();
            while let Step::Row(view) = scan.next().unwrap() {
                tokens.push(view.token);
            }
            tokens
        };
        let owned: Vec<i64> = (0..40).chain(60..100).collect();
        assert_eq!(tokens(&shard), owned);
        let again = shard.drop_ranges(TABLE, &[40..=59]).await.unwrap();
        assert_eq!(again.rewritten_files, 0, "there is nothing left to remove");
        // Data in memory is not in a file, so it stays.
        apply(&shard, &put(50, 1, 2, b"newer"));
        shard.drop_ranges(TABLE, &[40..=59]).await.unwrap();
        assert_eq!(tokens(&shard).len(), owned.len() + 1);
        shard.close().await.unwrap();
        drop(shard);
        assert_eq!(tokens(&open(&disk).await as &Shard).len(), owned.len() + 1);
    });
}
