//! A snapshot comes back: into its table, or into another one with the same columns; as a whole or not at all, wherever a crash comes.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use helenus_engine::io::{CrashStyle, Disk, ManualClock, SimulatedDisk};
use helenus_engine::read::{ScanRequest, Step};
use helenus_engine::shard::{Attachment, Restored, SnapshotEntry};
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Expiry, Liveness, MutationBuilder, Operation, RowBuilder, Shard,
    ShardOptions, TableOptions,
};

use crate::support::{
    EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, everything, open_with, put,
    read_all, request, run_local, small_options, table_options, while_time_passes,
};

/// Files lie in two directories.
fn options() -> ShardOptions {
    ShardOptions { table_directories: vec!["two".into(), "three".into()], ..small_options() }
}

/// A shard whose table has a snapshot of two files, `put(1..=4, 1, 1, b"old")`.
async fn with_snapshot(disk: &SimulatedDisk) -> (Rc<Shard>, SnapshotEntry) {
    let shard = open_with(disk, options()).await;
    for rows in [1..=2, 3..=4] {
        for row in rows {
            apply(&shard, &put(row, 1, 1, b"old"));
        }
        shard.flush(TABLE).await.unwrap();
    }
    shard.snapshot(TABLE, "monday", &[]).await.unwrap();
    let entry = shard.list_snapshots().await.unwrap().remove(0);
    (shard, entry)
}

fn row_count(shard: &Shard) -> usize {
    read_all(shard, EVERYTHING, false, NOW).unwrap().len()
}

#[test]
fn rows_come_back_and_what_was_written_since_wins() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, entry) = with_snapshot(&disk).await;
        // The table has all of it.
        assert_eq!(shard.restore_snapshot(&entry, TABLE).await.unwrap(), Restored::default());
        shard.truncate(TABLE).await.unwrap();
        apply(&shard, &put(1, 1, 2, b"new"));
        let mut deleted = RowBuilder::new();
        deleted.set_deletion(Deletion { timestamp: 2, local_deletion_time: NOW });
        let whole = put(2, 1, 2, b"");
        let view = whole.view().unwrap();
        let mut builder = MutationBuilder::new(TABLE, view.token, view.partition_key).unwrap();
        for operation in view.operations() {
            let helenus_engine::Operation::Row { position, .. } = operation.unwrap() else { panic!("a row") };
            builder.row(position, &mut deleted);
        }
        apply(&shard, &builder.build());
        let restored = shard.restore_snapshot(&entry, TABLE).await.unwrap();
        assert!(restored.files == 2 && restored.bytes > 100, "{restored:?}");
        assert_eq!(row_count(&shard), 3);
        // Again, while the table has other files with the same rows.
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.restore_snapshot(&entry, TABLE).await.unwrap(), restored);
        assert_eq!(row_count(&shard), 3);
        // Into another table. What the first one has lost since is not lost there.
        shard.create_table(OTHER_TABLE, table_options()).await.unwrap();
        shard.restore_snapshot(&entry, OTHER_TABLE).await.unwrap();
        assert_eq!(shard.statistics(OTHER_TABLE).unwrap().file_count, 2);
        shard.drop_table(TABLE).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        shard.restore_snapshot(&entry, TABLE).await.unwrap();
        assert_eq!(row_count(&shard), 4);
        shard.close().await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        assert_eq!(row_count(&shard), 4);
        assert_eq!(shard.list_snapshots().await.unwrap().len(), 1, "the snapshot stays");
        shard.clear_snapshot("monday").await.unwrap();
        shard.compact(TABLE).await.unwrap();
        assert_eq!(row_count(&shard), 4);
    });
}

#[test]
fn a_restore_gives_all_or_nothing_wherever_a_crash_comes() {
    for step in 0.. {
        let disk = SimulatedDisk::new(step);
        let is_done = run_local(async {
            let (shard, entry) = with_snapshot(&disk).await;
            shard.truncate(TABLE).await.unwrap();
            disk.crash_at(disk.operations() + step);
            let restored = shard.restore_snapshot(&entry, TABLE).await;
            assert!(restored.is_ok() || disk.is_crashed(), "{restored:?}");
            restored.is_ok()
        });
        let is_crashed = disk.is_crashed();
        let style = CrashStyle::ALL[step as usize % CrashStyle::ALL.len()];
        disk.restart(style, step);
        run_local(async {
            let shard = open_with(&disk, options()).await;
            let rows = row_count(&shard);
            assert!(rows == 4 || (rows == 0 && !is_done), "step {step}, {style:?}: {rows} rows");
            let quarantined = disk.files().keys().any(|path| path.to_string_lossy().contains("quarantine"));
            assert!(!quarantined, "step {step}, {style:?}");
            let entry = &shard.list_snapshots().await.unwrap()[0];
            shard.restore_snapshot(entry, TABLE).await.unwrap();
            assert_eq!(row_count(&shard), 4);
        });
        if !is_crashed {
            assert!(step > 8, "{step} steps");
            return;
        }
    }
}

#[test]
fn a_damaged_file_of_a_snapshot_is_named_and_nothing_is_restored() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, entry) = with_snapshot(&disk).await;
        shard.truncate(TABLE).await.unwrap();
        let of_snapshot = |path: &&std::path::PathBuf| path.to_string_lossy().contains("snapshots/monday");
        let damaged = disk.files().keys().rfind(of_snapshot).unwrap().clone();
        disk.remove(&damaged).await.unwrap();
        let file = disk.create(&damaged).await.unwrap();
        file.write_and_sync_at(0, vec![0; 100].into()).await.unwrap();
        let refused = shard.restore_snapshot(&entry, TABLE).await.unwrap_err();
        assert!(matches!(&refused, EngineError::SnapshotFile { path, .. } if *path == damaged), "{refused}");
        assert_eq!((row_count(&shard), shard.statistics(TABLE).unwrap().file_count), (0, 0));
        let in_tables = |path: &&std::path::PathBuf| path.iter().any(|part| part == Path::new("tables"));
        assert_eq!(disk.files().keys().filter(in_tables).count(), 0, "nothing is left behind");
        let unknown = shard.restore_snapshot(&entry, OTHER_TABLE).await;
        assert!(matches!(unknown, Err(EngineError::UnknownTable(OTHER_TABLE))), "{unknown:?}");
    });
}

#[test]
fn files_of_elsewhere_are_read_as_versions() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, entry) = with_snapshot(&disk).await;
        let mut builder = MutationBuilder::new(TABLE, 1, b"deleted").unwrap();
        builder.delete_partition(Deletion { timestamp: 7, local_deletion_time: NOW });
        apply(&shard, &builder.build());
        shard.snapshot(TABLE, "tuesday", &[]).await.unwrap();
        assert!(shard.find_imports(Path::new("nowhere")).await.unwrap().is_empty());
        let monday = shard.find_imports(entry.path.parent().unwrap()).await.unwrap();
        assert!(monday.iter().all(|directory| directory.table == Some(TABLE)), "{monday:?}");
        // The files lie in two directories; everything below their common ancestor is found.
        let mut copies = 0;
        for root in ["two/snapshots/tuesday", "three/snapshots/tuesday"] {
            for directory in shard.find_imports(Path::new(root)).await.unwrap() {
                for path in directory.files {
                    let file = shard.open_import(&path).await.unwrap();
                    assert!(file.bytes() > 0);
                    let versions = shard.scan_import(&file, &everything(OTHER_TABLE)).unwrap();
                    if copies == 0 {
                        shard.create_table(OTHER_TABLE, table_options()).await.unwrap();
                    }
                    for mutation in &versions.partitions {
                        apply(&shard, mutation);
                        copies += 1;
                    }
                }
            }
        }
        assert_eq!(copies, 5, "four rows and the deletion of a partition");
        let view = |table| shard.statistics(table).unwrap().row_versions;
        assert_eq!((view(TABLE), view(OTHER_TABLE)), (4, 4));
        let error = shard.open_import(Path::new("two/nothing-data.sst")).await.unwrap_err();
        assert!(matches!(error, EngineError::ImportFile { .. }), "{error}");
    });
}

#[test]
fn backups_have_every_row_that_is_in_files_wherever_a_crash_comes() {
    let note = |text: &'static str| -> Arc<[Attachment]> {
        [Attachment { name: "schema.json".to_owned(), contents: Bytes::from_static(text.as_bytes()) }].into()
    };
    let backed_up = |text| TableOptions { backup_notes: Some(note(text)), ..table_options() };
    // So little memory that a recovery has to write files.
    let options = || ShardOptions { memtable_bytes_max: 20 << 10, keeps_backups: true, ..options() };
    for step in 0.. {
        let disk = SimulatedDisk::new(step);
        let is_crashed = run_local(async {
            let shard = open_with(&disk, options()).await;
            shard.alter_table(TABLE, backed_up("first")).unwrap();
            disk.crash_at(disk.operations() + 3 * step);
            for row in 0..60 {
                if row == 30 {
                    shard.alter_table(TABLE, backed_up("second")).unwrap();
                }
                if shard.admit().await.is_err() {
                    break;
                }
                let Ok(position) = shard.apply(&put(row, 1, 1, &[7; 700]).view().unwrap()) else { break };
                let is_durable = shard.durable(position).await.is_ok();
                if !is_durable || (row % 20 == 19 && shard.flush(TABLE).await.is_err()) {
                    break;
                }
            }
            disk.is_crashed()
        });
        disk.restart(CrashStyle::ALL[step as usize % CrashStyle::ALL.len()], step);
        // A start that is cut too: what it has recovered into files is not recovered again.
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            disk.crash_at(disk.operations() + step % 60);
            if let Ok(shard) = Shard::open(environment(&disk, &clock), options()).await {
                let _ = shard.create_table(TABLE, backed_up("third")).await;
            }
        });
        disk.restart(CrashStyle::ALL[step as usize % CrashStyle::ALL.len()], step);
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
            shard.create_table(TABLE, backed_up("third")).await.unwrap();
            shard.flush(TABLE).await.unwrap();
            let rows = read_all(&shard, EVERYTHING, false, NOW).unwrap();
            assert!(is_crashed || rows.len() == 60);
            shard.create_table(OTHER_TABLE, table_options()).await.unwrap();
            let mut notes = Vec::new();
            for root in ["two/backups", "three/backups"] {
                for directory in shard.find_imports(Path::new(root)).await.unwrap() {
                    assert_eq!((directory.table, directory.others.len()), (Some(TABLE), 1), "{directory:?}");
                    notes.push(disk.read(&directory.path.join("schema.json")).await.unwrap());
                    for path in directory.files {
                        let file = shard.open_import(&path).await.unwrap();
                        let versions = shard.scan_import(&file, &everything(OTHER_TABLE)).unwrap();
                        for mutation in &versions.partitions {
                            apply(&shard, mutation);
                        }
                    }
                }
            }
            let request = ScanRequest { table: OTHER_TABLE, ..request(false) };
            let mut scan = shard.scan(&request).unwrap();
            let mut copies = 0;
            while let Step::Row(_) = scan.next().unwrap() {
                copies += 1;
            }
            assert!(copies >= rows.len(), "step {step}: {copies} of {} rows", rows.len());
            assert!(rows.is_empty() || !notes.is_empty());
        });
        if !is_crashed {
            assert!(step > 20, "{step} steps");
            return;
        }
    }
}

#[test]
fn an_operator_may_take_the_backups_away() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open_with(&disk, ShardOptions { keeps_backups: true, ..small_options() }).await;
        let note = Attachment { name: "schema.json".to_owned(), contents: Bytes::from_static(b"{}") };
        let options = TableOptions { backup_notes: Some([note].into()), ..table_options() };
        shard.alter_table(TABLE, options).unwrap();
        let backups = Path::new(crate::support::DIRECTORY).join("backups").join(TABLE.to_string());
        for round in 0..3 {
            apply(&shard, &put(1, round, 1, b"value"));
            shard.flush(TABLE).await.unwrap();
            let found = shard.find_imports(&backups).await.unwrap();
            let [directory] = &found[..] else { panic!("round {round}: {found:?}") };
            assert_eq!((directory.files.len(), directory.others.len()), (1, 1), "round {round}");
            if round == 0 {
                disk.remove_directory(&backups).await.unwrap();
            } else {
                disk.remove(&directory.files[0]).await.unwrap();
                disk.remove(&backups.join("schema.json")).await.unwrap();
            }
        }
    });
}

#[test]
fn a_compaction_under_way_does_not_purge_what_a_restored_row_needs() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..small_options() };
        let shard = Shard::open(environment(&disk, &clock), options).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        apply(&shard, &put(1, 1, 1, b"deleted"));
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
        let entry = shard.list_snapshots().await.unwrap().remove(0);
        shard.truncate(TABLE).await.unwrap();
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        // Its grace period is over.
        builder.delete_partition(Deletion { timestamp: 5, local_deletion_time: NOW - 1000 });
        apply(&shard, &builder.build());
        for row in 0..200 {
            apply(&shard, &put(i64::from(row) + 2, row, 9, b"another partition"));
        }
        shard.flush(TABLE).await.unwrap();
        {
            let mut compaction = std::pin::pin!(shard.compact(TABLE));
            while shard.running_compactions().iter().all(|running| running.progress.read_bytes() == 0) {
                assert!(futures::poll!(compaction.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            assert_eq!(shard.restore_snapshot(&entry, TABLE).await.unwrap().files, 1);
            shard.compaction_rate().set(None);
            while_time_passes(&clock, compaction).await.unwrap();
        }
        assert_eq!(row_count(&shard), 200, "the row stays deleted");
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert_eq!(row_count(&shard), 200);
    });
}

#[test]
fn the_grace_period_of_imported_deletions_begins_anew() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open_with(&disk, small_options()).await;
        let mut row = RowBuilder::new();
        let old = Deletion { timestamp: 7, local_deletion_time: NOW - 1000 };
        let expired = Expiry { ttl: 10, expires_at: NOW - 900 };
        row.set_deletion(old);
        row.set_liveness(Liveness { timestamp: 8, expiry: Some(expired) });
        row.delete_column(3, Deletion { timestamp: 9, ..old });
        let cell = |column, kind, value| Cell { column, path: &[], timestamp: 8, kind, value };
        row.cell(cell(1, CellKind::Tombstone { local_deletion_time: NOW - 1000 }, b""));
        row.cell(cell(2, CellKind::Expiring(expired), b"expired"));
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        builder.row(&[2, 1], &mut row);
        builder.delete_range(&[2, 5], &[2, 9], old);
        apply(&shard, &builder.build());
        shard.flush(TABLE).await.unwrap();
        let root = Path::new(crate::support::DIRECTORY).join("tables");
        let path = shard.find_imports(&root).await.unwrap().remove(0).files.remove(0);
        let file = shard.open_import(&path).await.unwrap();
        let versions = shard.scan_import(&file, &everything(OTHER_TABLE)).unwrap();
        let mut seen = 0;
        for operation in versions.partitions[0].view().unwrap().operations() {
            match operation.unwrap() {
                Operation::Row { row, .. } => {
                    assert_eq!(row.deletion().unwrap(), Deletion { timestamp: 7, local_deletion_time: NOW });
                    assert_eq!(row.liveness().unwrap().expiry.unwrap().expires_at, NOW);
                    let columns: Vec<_> = row.column_deletions().collect();
                    assert_eq!(columns, [(3, Deletion { timestamp: 9, local_deletion_time: NOW })]);
                    for cell in row.cells() {
                        assert_eq!(cell.kind, CellKind::Tombstone { local_deletion_time: NOW });
                        seen += 1;
                    }
                }
                Operation::RangeTombstone { deletion, .. } => {
                    assert_eq!(deletion, Deletion { timestamp: 7, local_deletion_time: NOW });
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 3);
    });
}

#[test]
fn a_cleanup_beside_which_files_come_back_says_that_it_is_not_done() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..options() };
        let shard = Shard::open(environment(&disk, &clock), options).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        // So many rows that the rewrite waits for its rate limit.
        for token in 0..200 {
            apply(&shard, &put(token, 1, 1, &[7; 200]));
        }
        shard.flush(TABLE).await.unwrap();
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
        let entry = shard.list_snapshots().await.unwrap().remove(0);
        // Another file than that of the snapshot.
        shard.compaction_rate().set(None);
        shard.compact(TABLE).await.unwrap();
        shard.compaction_rate().set(Some(1));
        let mut cleanup = std::pin::pin!(shard.drop_ranges(TABLE, &[0..=9]));
        while shard.running_compactions().is_empty() {
            assert!(futures::poll!(cleanup.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        shard.restore_snapshot(&entry, TABLE).await.unwrap();
        let dropped = while_time_passes(&clock, cleanup).await.unwrap();
        assert_eq!((dropped.rewritten_files, dropped.busy_files), (0, 1), "its file is as it was");
        assert_eq!(row_count(&shard), 200);
        shard.compaction_rate().set(None);
        let dropped = while_time_passes(&clock, shard.drop_ranges(TABLE, &[0..=9])).await.unwrap();
        assert_eq!((dropped.rewritten_files, dropped.busy_files), (2, 0));
        assert_eq!(row_count(&shard), 190);
    });
}
