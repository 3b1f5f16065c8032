//! Reading a shard: skipping and pausing, single rows, skipped sources, and writes while a scan is open.

use std::path::Path;

use bytes::Bytes;
use helenus_engine::io::{Disk, SimulatedDisk};
use helenus_engine::key::{self, full_key};
use helenus_engine::read::{Budget, RowView, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Expiry, Liveness, Lookup, Mutation, MutationBuilder, RowBuilder,
    RowRequest, Shard,
};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, TABLE, apply, open, put, read_all, read_page, request, run_local,
};

/// `cells`: column and value; without a value a tombstone.
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

#[test]
fn versions_are_left_out_only_where_they_can_add_nothing_to_the_columns_that_are_wanted() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        let insert = |row, timestamp, value: &'static [u8]| insert_row(&shard, row, timestamp, value);
        // 0: overwritten as a whole. 1: equal timestamps, so that the larger value wins. 2: a newer tombstone in the older file.
        // 3: the newer version lacks a projected column. 4: the newer version is an update. 5: overwritten during the scan.
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
            // The second scan finds the writes during the first.
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
        // 0: unchanged in the file. 1: overwritten. 2: updated. 3: a cell is deleted. 4: under a range tombstone. 5: in the memtable only.
        insert(1, 30, b"new");
        apply(&shard, &put_cells(2, 30, false, &[(1, Some(b"new"))]));
        apply(&shard, &put_cells(3, 30, false, &[(1, None)]));
        insert(5, 30, b"new");
        let mut deletion = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        deletion.delete_range(&[2, 5], &[2, 6], Deletion { timestamp: 40, local_deletion_time: NOW });
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

/// The blocks are damaged, so that a read fails if it touches any of them.
#[test]
fn a_read_within_a_partition_opens_only_the_files_whose_rows_it_comes_to() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk).await;
        for rows in [0..20, 20..40] {
            for row in rows {
                apply(&shard, &put(1, row, 1, b"value"));
            }
            shard.flush(TABLE).await.unwrap();
        }
        shard.close().await.unwrap();
        drop(shard);
        let directory = Path::new(DIRECTORY).join("tables").join(TABLE.to_string());
        let files = disk.list(&directory).await.unwrap();
        let oldest = files.iter().map(|file| file.name.clone()).filter(|name| name.contains("-data.")).min();
        let oldest = disk.open(&directory.join(oldest.unwrap())).await.unwrap();
        oldest.write_at(0, Bytes::from_static(b"damage")).await.unwrap();

        let shard = open(&disk).await;
        let key = |position: &[u8]| full_key(1, b"key", position).unwrap();
        let read = |start: &[u8], end: &[u8], reversed, limit| {
            let (start, end) = (key(start), key(end));
            let range = ScanRequest { start: &start, end: &end, ..request(reversed) };
            let mut scan = shard.scan(&range)?;
            let mut rows = Vec::new();
            while rows.len() < limit
                && let Step::Row(view) = scan.next()?
            {
                rows.push(view.position[1] - 1);
            }
            Ok::<_, EngineError>(rows)
        };
        assert_eq!(read(&[0], &[0xFF], true, 20).unwrap(), (20..40).rev().collect::<Vec<_>>());
        assert!(read(&[0], &[0xFF], true, 21).is_err(), "the next row is in the damaged file");
        assert_eq!(read(&[2, 21], &[2, 26], false, 100).unwrap(), [20, 21, 22, 23, 24]);
        assert!(read(&[2, 20], &[2, 26], false, 1).is_err());
        assert!(read(&[0], &[0xFF], false, 1).is_err());
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
        builder.delete_range(&[2], &[2, 91], Deletion { timestamp: 2, local_deletion_time: NOW });
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

/// Deletes all earlier data of a partition.
fn delete_partition(token: i64, timestamp: i64) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    builder.delete_partition(Deletion { timestamp, local_deletion_time: NOW });
    builder.build()
}

#[test]
fn an_open_scan_sees_the_first_deletion_of_a_range_before_it_comes_there() {
    run_local(async {
        for (reversed, skips) in [(false, false), (false, true), (true, false), (true, true)] {
            for flushes in [false, true] {
                let shard = open(&SimulatedDisk::new(1)).await;
                for token in 0..4 {
                    apply(&shard, &put(token, 1, 1, b"value"));
                    apply(&shard, &put(token, 2, 1, b"value"));
                }
                if flushes {
                    shard.flush(TABLE).await.unwrap();
                    // The next rows are in the memtable that the scan reads.
                    apply(&shard, &put(if reversed { 3 } else { 0 }, 3, 1, b"value"));
                }
                let mut scan = shard.scan(&request(reversed)).unwrap();
                assert!(matches!(scan.next().unwrap(), Step::Row(_)));
                apply(&shard, &delete_partition(2, 5));
                apply(&shard, &put(2, 9, 6, b"later"));
                let mut seen = Vec::new();
                if skips {
                    scan.skip_partition().unwrap();
                }
                while let Step::Row(view) = scan.next().unwrap() {
                    if view.token == 2 {
                        seen.push(view.position[1] - 1);
                    }
                }
                // A scan that was already open may miss the new row, but not the deletion.
                assert!(seen.is_empty() || seen == [9], "{seen:?} reversed {reversed} skips {skips}");
            }
        }
    });
}

#[test]
fn a_scan_that_is_exhausted_goes_on_behind_what_it_passed() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        for row in 0..30 {
            apply(&shard, &put(1, row, 1, b"value"));
        }
        apply(&shard, &delete_partition(1, 5));
        for row in 25..30 {
            apply(&shard, &put(1, row, 9, b"value"));
        }
        let budget = Budget { bytes: u64::MAX, tombstones: 10 };
        let mut scan = shard.scan(&ScanRequest { budget, ..request(false) }).unwrap();
        for _ in 0..2 {
            assert!(matches!(scan.next().unwrap(), Step::Exhausted));
        }
        scan.skip_partition().unwrap();
        let bound = scan.resume_bound().unwrap().unwrap();
        drop(scan);
        let (rows, end) =
            read_page(&shard, (&bound, EVERYTHING.1), false, 100, Budget::UNLIMITED, NOW).unwrap();
        assert_eq!((rows.len(), end), (5, None), "no row was handed out, so no partition was skipped");
    });
}

/// One memtable and three files with consecutive parts of one partition.
#[test]
fn files_that_wait_take_part_when_the_scan_comes_to_them() {
    run_local(async {
        for reversed in [false, true] {
            let shard = open(&SimulatedDisk::new(1)).await;
            for rows in [20..30, 0..10, 10..20] {
                for row in rows {
                    apply(&shard, &put(1, row, 1, b"value"));
                }
                shard.flush(TABLE).await.unwrap();
            }
            // A memtable is read from the current row on.
            apply(&shard, &put(1, if reversed { 14 } else { 15 }, 1, b"value"));
            let (start, end) = (full_key(1, b"key", &[0]).unwrap(), full_key(1, b"key", &[0xFF]).unwrap());
            let mut scan =
                shard.scan(&ScanRequest { start: &start, end: &end, ..request(reversed) }).unwrap();
            let mut seen = Vec::new();
            let mut next = 0_u8;
            while let Step::Row(view) = scan.next().unwrap() {
                seen.push((view.position[1] - 1, view.row.cells().next().unwrap().value.to_vec()));
                // Far ahead, so that it covers files that are still waiting.
                let ahead = if reversed { 14 - next.min(14) } else { 15 + next.min(14) };
                apply(&shard, &put(1, ahead, 2, b"written ahead"));
                next += 1;
            }
            let mut rows: Vec<u8> = seen.iter().map(|row| row.0).collect();
            if reversed {
                rows.reverse();
            }
            assert!(rows.iter().copied().eq(0..30), "{rows:?}");
            let ahead = seen.iter().filter(|row| row.1 == b"written ahead").count();
            assert_eq!(ahead, 15, "reversed {reversed}");

            let mut scan =
                shard.scan(&ScanRequest { start: &start, end: &end, ..request(reversed) }).unwrap();
            assert!(matches!(scan.next().unwrap(), Step::Row(_)));
            scan.skip_partition().unwrap();
            assert!(matches!(scan.next().unwrap(), Step::End));
        }
    });
}

/// Found by the model with seed 1, after 404,253 operations: the row was not there.
#[test]
fn a_row_is_there_by_an_old_cell_after_a_newer_liveness_has_expired() {
    let expiry = Expiry { ttl: 10, expires_at: NOW - 5 };
    let row = |liveness: Option<Liveness>, column, timestamp, kind| {
        let mut content = RowBuilder::new();
        if let Some(liveness) = liveness {
            content.set_liveness(liveness);
        }
        content.cell(Cell { column, path: &[], timestamp, kind, value: &[] });
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        builder.row(&[2, 1], &mut content);
        builder.build()
    };
    let tombstone = CellKind::Tombstone { local_deletion_time: NOW - 5 };
    let versions = [
        row(None, 2, 60, CellKind::Live),
        row(Some(Liveness { timestamp: 80, expiry: None }), 1, 80, tombstone),
        row(Some(Liveness { timestamp: 90, expiry: Some(expiry) }), 3, 90, CellKind::Expiring(expiry)),
    ];
    run_local(async {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for flushed in 0..=order.len() {
                let shard = open(&SimulatedDisk::new(1)).await;
                for (number, version) in order.into_iter().enumerate() {
                    apply(&shard, &versions[version]);
                    if number < flushed {
                        shard.flush(TABLE).await.unwrap();
                    }
                }
                let start = full_key(1, b"key", &[2, 1]).unwrap();
                let end = key::behind(&start);
                for columns in [&[1][..], &[], &[1, 3]] {
                    let range = ScanRequest { start: &start, end: &end, ..request(false) };
                    let mut scan = shard.scan_columns(&range, columns).unwrap();
                    let is_there = matches!(scan.next().unwrap(), Step::Row(_));
                    assert!(is_there, "order {order:?}, {flushed} in files, columns {columns:?}");
                }
            }
        }
    });
}
