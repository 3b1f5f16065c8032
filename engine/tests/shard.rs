//! What a shard promises besides what the model and crash tests show: paging and skipping, back-pressure,
//! snapshots, unlogged tables, counters, recovery of more than fits into memory, and its errors.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use helenus_engine::commit_log::{CommitLogError, SyncMode};
use helenus_engine::io::{CrashStyle, Disk, ManualClock, SimulatedDisk};
use helenus_engine::key::full_key;
use helenus_engine::read::{Budget, RowView, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Liveness, Load, LogPosition, Lookup, Mutation, MutationBuilder,
    RowBuilder, RowRequest, Shard, ShardOptions, TableOptions, counter,
};

use support::{
    DIRECTORY, OTHER_TABLE, START_MICROS, TABLE, environment, read_all, read_page, run_local, small_options,
    table_options,
};

const EVERYTHING: (&[u8], &[u8]) = (&[], &[0xFF; 9]);
const NOW: u32 = (START_MICROS / 1_000_000) as u32;

fn put(token: i64, row: u8, timestamp: i64, value: &[u8]) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    let mut content = RowBuilder::new();
    content.set_liveness(Liveness { timestamp, expiry: None });
    content.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
    builder.row(&[2, 1 + row], &mut content);
    builder.build()
}

fn apply(shard: &Shard, mutation: &Mutation) -> LogPosition {
    shard.apply(&mutation.view().unwrap()).unwrap()
}

async fn open_with(disk: &SimulatedDisk, options: ShardOptions) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard
}

async fn open(disk: &SimulatedDisk) -> Rc<Shard> {
    open_with(disk, small_options()).await
}

fn request(reversed: bool) -> ScanRequest<'static> {
    let (start, end) = EVERYTHING;
    ScanRequest { table: TABLE, start, end, reversed, now_seconds: NOW, budget: Budget::UNLIMITED }
}

#[test]
fn partitions_can_be_skipped_in_both_directions() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for token in 0..10 {
            for row in 0..20 {
                apply(&shard, &put(token, row, 1, b"value"));
            }
            if token % 3 == 0 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        for reversed in [false, true] {
            let mut scan = shard.scan(&request(reversed)).unwrap();
            let mut seen = Vec::new();
            while let Step::Row(view) = scan.next().unwrap() {
                seen.push((view.token, view.position[1]));
                scan.skip_partition().unwrap();
            }
            let mut expected: Vec<_> = (0..10).map(|token| (token, if reversed { 20 } else { 1 })).collect();
            if reversed {
                expected.reverse();
            }
            assert_eq!(seen, expected);
        }
    });
}

/// `cells`: column and value; a tombstone where there is none.
fn put_cells(row: u8, timestamp: i64, is_insert: bool, cells: &[(u32, Option<&[u8]>)]) -> Mutation {
    let mut content = RowBuilder::new();
    if is_insert {
        content.set_liveness(Liveness { timestamp, expiry: None });
    }
    for &(column, value) in cells {
        let kind = value.map_or(CellKind::Tombstone { local_deletion_time: NOW }, |_| CellKind::Live);
        content.cell(Cell { column, path: &[], timestamp, kind, value: value.unwrap_or_default() });
    }
    let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
    builder.row(&[2, 1 + row], &mut content);
    builder.build()
}

/// A row whose first value is `value`, inserted with both its columns.
fn insert_row(shard: &Shard, row: u8, timestamp: i64, value: &[u8]) {
    apply(shard, &put_cells(row, timestamp, true, &[(1, Some(value)), (2, Some(b"second"))]));
}

#[test]
fn versions_are_left_out_only_where_they_can_add_nothing_to_the_columns_that_are_wanted() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        let insert = |row, timestamp, value: &'static [u8]| insert_row(&shard, row, timestamp, value);
        // 0: written over as a whole. 1: at the same time, where the larger value wins. 2: a newer tombstone in the older file.
        // 3: the newer version lacks a wanted column. 4: the newer version is an update. 5: written over during the scan.
        for row in [0, 1, 3, 4, 5] {
            insert(row, 10, b"zebra");
        }
        apply(&shard, &put_cells(2, 20, false, &[(1, None)]));
        shard.flush(TABLE).await.unwrap();
        insert(0, 30, b"new");
        insert(1, 10, b"ant");
        insert(2, 15, b"late");
        apply(&shard, &put_cells(3, 30, true, &[(2, Some(b"new"))]));
        apply(&shard, &put_cells(4, 30, false, &[(2, Some(b"new"))]));
        shard.flush(TABLE).await.unwrap();
        insert(5, 30, b"in the memtable");

        let key = |position: &[u8]| full_key(1, b"key", position).unwrap();
        let (start, end) = (key(&[2]), key(&[3]));
        for reversed in [false, true] {
            let range = ScanRequest { start: &start, end: &end, ..request(reversed) };
            let mut scan = shard.scan_columns(&range, &[1]).unwrap();
            let mut seen = Vec::new();
            while let Step::Row(view) = scan.next().unwrap() {
                let cell = view.row.cells().find(|cell| cell.column == 1);
                seen.push((view.position[1] - 1, cell.map(|cell| cell.value.to_vec())));
                insert(5, 40, b"newest");
                insert(0, 40, b"newest");
            }
            // The second scan finds what was written during the first.
            let first: &[u8] = if reversed { b"newest" } else { b"new" };
            let mut expected: Vec<(u8, Option<Vec<u8>>)> =
                [Some(first), Some(b"zebra"), None, Some(b"zebra"), Some(b"zebra"), Some(b"newest")]
                    .into_iter()
                    .enumerate()
                    .map(|(row, value)| (row as u8, value.map(<[u8]>::to_vec)))
                    .collect();
            if reversed {
                expected.reverse();
            }
            assert_eq!(seen, expected, "reversed {reversed}");
        }
    });
}

#[test]
fn a_row_is_looked_up_where_one_version_is_all_that_counts() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        let insert = |row, timestamp, value: &'static [u8]| insert_row(&shard, row, timestamp, value);
        for row in [0, 1, 2, 3, 4] {
            insert(row, 10, b"old");
        }
        shard.flush(TABLE).await.unwrap();
        // 0: as it is in the file. 1: written over. 2: an update. 3: a cell is deleted. 4: deleted by a range. 5: in the memtable only.
        insert(1, 30, b"new");
        apply(&shard, &put_cells(2, 30, false, &[(1, Some(b"new"))]));
        apply(&shard, &put_cells(3, 30, false, &[(1, None)]));
        insert(5, 30, b"new");
        let mut deletion = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        deletion.delete_span(&[2, 5], &[2, 6], Deletion { timestamp: 40, local_deletion_time: NOW });
        apply(&shard, &deletion.build());

        let look_up = |position: &[u8], columns| {
            let key = full_key(1, b"key", position).unwrap();
            let request = RowRequest { table: TABLE, key: &key, columns, now_seconds: NOW };
            let value = |view: RowView<'_>| view.row.cells().next().map(|cell| cell.value.to_vec());
            shard.look_up(&request, value).unwrap()
        };
        let old = Lookup::Row(Some(b"old".to_vec()));
        let new = Lookup::Row(Some(b"new".to_vec()));
        let (both, all): (Option<&[u32]>, Option<&[u32]>) = (Some(&[1, 2]), None);
        for (columns, written_over) in [(both, &new), (all, &Lookup::Unmerged)] {
            let expected = [
                &old,
                written_over,
                &Lookup::Unmerged,
                &Lookup::Unmerged,
                &Lookup::Unmerged,
                &new,
                &Lookup::Absent,
            ];
            for (row, expected) in (0_u8..).zip(expected) {
                assert_eq!(look_up(&[2, 1 + row], columns), *expected, "row {row}, columns {columns:?}");
            }
        }
        // The deletion is in a file now, and so are its rows.
        shard.flush(TABLE).await.unwrap();
        assert_eq!(look_up(&[2, 2], both), new);
        assert_eq!(look_up(&[2, 5], both), Lookup::Unmerged);
        assert_eq!(look_up(&[2, 7], both), Lookup::Absent);

        let unknown = RowRequest { table: OTHER_TABLE, key: &[0; 11], columns: None, now_seconds: NOW };
        assert!(matches!(shard.look_up(&unknown, |_| ()), Err(EngineError::UnknownTable(OTHER_TABLE))));
        let cut = RowRequest { table: TABLE, key: &[0; 9], ..unknown };
        assert!(matches!(shard.look_up(&cut, |_| ()), Err(EngineError::Row { .. })));
    });
}

#[test]
fn a_scan_over_deleted_rows_pauses_and_can_be_resumed() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for row in 0..100 {
            apply(&shard, &put(1, row, 1, b"value"));
        }
        shard.flush(TABLE).await.unwrap();
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        builder.delete_span(&[2], &[2, 91], Deletion { timestamp: 2, local_deletion_time: NOW });
        apply(&shard, &builder.build());
        let budget = Budget { bytes: u64::MAX, tombstones: 10 };
        let (mut pages, mut rows) = (0, 0);
        let mut from = Vec::new();
        loop {
            let range = (from.as_slice(), EVERYTHING.1);
            let (page, bound) = read_page(&shard, range, false, usize::MAX, budget, NOW).unwrap();
            pages += 1;
            rows += page.len();
            let Some(bound) = bound else { break };
            from = bound;
        }
        assert_eq!((pages, rows), (10, 10), "nine pages of tombstones, one of rows");
    });
}

#[test]
fn a_scan_stays_valid_while_the_shard_is_written_and_flushed() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for token in 0..50 {
            apply(&shard, &put(token, 1, 1, b"old"));
        }
        for reversed in [false, true] {
            let mut scan = shard.scan(&request(reversed)).unwrap();
            let mut tokens = Vec::new();
            while let Step::Row(view) = scan.next().unwrap() {
                let token = view.token;
                if !(0..50).contains(&token) {
                    continue;
                }
                tokens.push(token);
                apply(&shard, &put(token, 1, 2, b"new and longer"));
                apply(&shard, &put(1000 + token, 1, 2, b"more"));
                match token {
                    20 => shard.flush(TABLE).await.unwrap(),
                    30 => shard.compact(TABLE).await.unwrap(),
                    _ => {}
                }
            }
            if reversed {
                tokens.reverse();
            }
            assert!(tokens.iter().copied().eq(0..50), "{tokens:?}");
        }
    });
}

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
        let directory = shard.snapshot(TABLE, "monday").await.unwrap();
        assert_eq!(disk.list(&directory).await.unwrap().len(), 1);
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(disk.list(&directory).await.unwrap().len(), 1);
        for name in ["", "..", "a/b"] {
            let refused = shard.snapshot(TABLE, name).await;
            assert!(matches!(refused, Err(EngineError::SnapshotName(_))), "{name:?}");
        }
        let refused = shard.snapshot(TABLE, "monday").await;
        assert!(matches!(refused, Err(EngineError::SnapshotExists(_))));
        shard.clear_snapshot("monday").await.unwrap();
        shard.clear_snapshot("monday").await.unwrap();
        shard.snapshot(TABLE, "monday").await.unwrap();
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
            // In no order of their paths.
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
fn files_of_no_use_are_removed_at_the_start() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk).await;
        apply(&shard, &put(1, 1, 1, b"value"));
        shard.close().await.unwrap();
        let stray = Path::new(DIRECTORY).join("tables").join(TABLE.to_string()).join("0000000099-data.sst");
        disk.create(&stray).await.unwrap();
        drop(shard);
        open(&disk).await;
        assert!(disk.length(&stray).await.is_err());
    });
}

#[test]
fn tokens_that_are_not_owned_any_more_are_removed_from_the_files() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        // Three files: both sides, only what is dropped, only what stays.
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
        // What is in memory is not a file's: it stays.
        apply(&shard, &put(50, 1, 2, b"newer"));
        shard.drop_ranges(TABLE, &[40..=59]).await.unwrap();
        assert_eq!(tokens(&shard).len(), owned.len() + 1);
        shard.close().await.unwrap();
        drop(shard);
        assert_eq!(tokens(&open(&disk).await as &Shard).len(), owned.len() + 1);
    });
}

#[test]
fn a_key_range_within_a_partition_reads_only_that() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for row in 0..50 {
            apply(&shard, &put(1, row, 1, b"value"));
            apply(&shard, &put(2, row, 1, b"value"));
        }
        let start = full_key(1, b"key", &[2, 11]).unwrap();
        let end = full_key(1, b"key", &[2, 21]).unwrap();
        for _ in 0..2 {
            assert_eq!(read_all(&shard, (&start, &end), true, NOW).unwrap().len(), 10);
            shard.flush(TABLE).await.unwrap();
        }
    });
}
