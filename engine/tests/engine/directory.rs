//! The directory of a shard: what a start does when a file is missing, damaged, older or unknown, and what a crash leaves there.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use helenus_engine::commit_log::read_segment;
use helenus_engine::io::{CrashStyle, Disk, Fault, FileContents, ManualClock, SimulatedDisk};
use helenus_engine::shard::{Attachment, ManifestError, ShardDirectory};
use helenus_engine::{EngineError, MutationBuilder, RowBuilder, Shard, ShardOptions, TableId};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, open_with, put,
    read_all, run_local, small_options, table_options,
};

const ROWS: usize = 60;
const MILLIS: i64 = START_MICROS / 1_000;

fn shard_path(inside: &str) -> PathBuf {
    Path::new(DIRECTORY).join(inside)
}

fn table_path(table: TableId, name: &str) -> PathBuf {
    shard_path("tables").join(table.to_string()).join(name)
}

/// Small log segments, so that a few rows need several.
fn options() -> ShardOptions {
    let mut options = small_options();
    options.commit_log.segment_bytes = 4_096;
    options
}

/// Opens a shard without creating anything.
async fn reopen(disk: &SimulatedDisk) -> Result<Rc<Shard>, EngineError> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    Shard::open_existing(environment(disk, &clock), options()).await
}

fn write_rows(shard: &Shard, rows: std::ops::Range<usize>) -> helenus_engine::LogPosition {
    rows.map(|row| apply(shard, &put(row as i64 / 7, row as u8, 1, &[row as u8; 300]))).last().unwrap()
}

fn row_count(shard: &Shard) -> usize {
    read_all(shard, EVERYTHING, false, NOW).unwrap().len()
}

/// A disk with a shard that was killed: rows in two files and in several segments of the log.
fn filled() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        for rows in [0..10, 10..15] {
            write_rows(&shard, rows);
            shard.flush(TABLE).await.unwrap();
        }
        let last = write_rows(&shard, 15..ROWS);
        shard.durable(last).await.unwrap();
    });
    disk.restart(CrashStyle::KeepAll, 0);
    disk
}

/// The files below the quarantine, without the time of the move.
fn quarantined(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let root = shard_path("quarantine");
    let inside =
        disk.files().into_keys().filter_map(|path| path.strip_prefix(&root).map(Path::to_path_buf).ok());
    inside.collect()
}

/// Whether a file is the manifest, its changes, or a copy of either.
fn is_of_manifest(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("manifest")
}

/// The files of a disk without locks.
fn contents(disk: &SimulatedDisk) -> FileContents {
    let mut files = disk.files();
    files.retain(|path, _| !path.ends_with("lock"));
    files
}

#[test]
fn either_copy_of_the_manifest_and_of_its_changes_may_be_missing_damaged_or_older() {
    let files = filled().files();
    let older = {
        let disk = SimulatedDisk::new(1);
        run_local(async { drop(open_with(&disk, options()).await) });
        disk.files()
    };
    let paths: Vec<&PathBuf> = files.keys().filter(|path| is_of_manifest(path)).collect();
    assert_eq!(paths.len(), 4, "{paths:?}");
    for path in paths {
        let cut = files[path][..20].to_vec();
        let old = older.get(path).map(|old| &old[..]);
        for harm in [None, Some(&b""[..]), Some(b"rubbish"), Some(&cut), old] {
            let disk = filled();
            disk.set_at_rest(path, harm);
            for _ in 0..2 {
                run_local(async {
                    let shard = reopen(&disk).await.unwrap();
                    assert_eq!(row_count(&shard), ROWS, "{path:?}: {harm:?}");
                });
                let files = disk.files();
                let of_manifest: Vec<_> = files.iter().filter(|(path, _)| is_of_manifest(path)).collect();
                let [whole, changes, changes_copy, copy] = of_manifest[..] else { panic!("{of_manifest:?}") };
                assert_eq!((whole.1, changes.1), (copy.1, changes_copy.1), "mended");
            }
            assert_eq!(quarantined(&disk), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn a_shard_without_the_changes_of_its_manifest_is_refused_and_not_touched() {
    let disk = filled();
    let is_changes =
        |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("manifest.changes");
    let changes: Vec<PathBuf> = disk.files().into_keys().filter(|path| is_changes(path)).collect();
    for path in &changes {
        disk.set_at_rest(path, None);
    }
    let before = contents(&disk);
    run_local(async {
        let error = reopen(&disk).await.err().unwrap();
        assert!(matches!(error, EngineError::Manifest(ManifestError::MissingChanges { .. })), "{error}");
        assert!(error.to_string().contains(changes[0].to_str().unwrap()), "{error}");
    });
    assert_eq!(contents(&disk), before);
}

#[test]
fn a_shard_without_a_manifest_is_refused_and_not_touched() {
    for creates in [false, true] {
        let disk = filled();
        disk.set_at_rest(&shard_path("manifest"), None);
        disk.set_at_rest(&shard_path("manifest.copy"), None);
        let before = contents(&disk);
        run_local(async {
            let look: Arc<dyn Disk> = Arc::new(disk.clone());
            let found = Shard::look_at(&look, Path::new(DIRECTORY)).await.unwrap();
            assert_eq!(found, ShardDirectory::WithoutManifest);
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let opened = if creates {
                Shard::open(environment(&disk, &clock), options()).await
            } else {
                reopen(&disk).await
            };
            let error = opened.err().unwrap();
            assert!(matches!(error, EngineError::Manifest(ManifestError::Missing { .. })), "{error}");
            assert!(error.to_string().contains("shard/manifest"), "{error}");
        });
        assert_eq!(contents(&disk), before);
    }
}

#[test]
fn a_shard_that_must_exist_is_not_made() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        assert!(reopen(&disk).await.is_err());
        assert!(disk.files().is_empty());
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let directory = Path::new(DIRECTORY);
        assert_eq!(Shard::look_at(&disk, directory).await.unwrap(), ShardDirectory::Nothing);
        for _ in 0..2 {
            Shard::create(&disk, directory).await.unwrap();
            assert_eq!(Shard::look_at(&disk, directory).await.unwrap(), ShardDirectory::Unused);
        }
    });
    run_local(async {
        let shard = reopen(&disk).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
    });
    run_local(async {
        let look: Arc<dyn Disk> = Arc::new(disk.clone());
        assert_eq!(Shard::look_at(&look, Path::new(DIRECTORY)).await.unwrap(), ShardDirectory::Shard);
        Shard::create(&look, Path::new(DIRECTORY)).await.unwrap();
        assert_eq!(reopen(&disk).await.unwrap().table_ids(), [TABLE], "a shard that is there is left alone");
    });
}

#[test]
fn a_creation_that_is_cut_off_can_be_repeated() {
    let mut point = 0;
    loop {
        let disk = SimulatedDisk::new(point);
        disk.crash_at(point);
        let create = || async {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            Shard::create(&disk, Path::new(DIRECTORY)).await
        };
        let created = run_local(create());
        disk.restart(CrashStyle::ALL[point as usize % CrashStyle::ALL.len()], point);
        run_local(async {
            create().await.unwrap_or_else(|error| panic!("crash at {point}: {error}"));
            reopen(&disk).await.unwrap();
        });
        if created.is_ok() {
            return;
        }
        point += 1;
    }
}

#[test]
fn only_what_is_known_to_be_useless_is_removed() {
    let disk = filled();
    let unknown_table = TableId([0x33; 16]);
    let unknown = [
        table_path(TABLE, "0000000099-data.sst"),
        table_path(TABLE, "0000000007-data.sst.bak"),
        table_path(TABLE, "notes/text"),
        table_path(unknown_table, "0000000001-data.sst"),
        shard_path("tables/stray"),
    ];
    // The third was finished, but the manifest does not name it: the temporary name says so.
    let useless = ["0000000050-data.sst.tmp", "0000000051-data.sst.tmp", "0000000051-data.sst"];
    for path in &unknown {
        disk.set_at_rest(path, Some(b"unknown"));
    }
    for name in useless {
        disk.set_at_rest(&table_path(TABLE, name), Some(b"useless"));
    }
    run_local(async {
        disk.create_directory(&shard_path("tables/empty")).await.unwrap();
        assert_eq!(row_count(&reopen(&disk).await.unwrap()), ROWS);
        assert!(disk.list(&shard_path("tables/empty")).await.is_err());
    });
    let expected = |start: &str| -> Vec<PathBuf> {
        let mut moved: Vec<_> =
            unknown.iter().map(|path| Path::new(start).join(path.strip_prefix(DIRECTORY).unwrap())).collect();
        moved.sort();
        moved
    };
    let first = MILLIS.to_string();
    assert_eq!(quarantined(&disk), expected(&first));
    let files = disk.files();
    for name in useless {
        assert!(!files.contains_key(&table_path(TABLE, name)), "{name}");
    }
    // The same names again, at the same time: nothing is overwritten, and nothing that was moved is touched.
    for path in &unknown {
        disk.set_at_rest(path, Some(b"again"));
    }
    run_local(async { drop(reopen(&disk).await.unwrap()) });
    let second = format!("{MILLIS}-2");
    assert_eq!(quarantined(&disk), [expected(&first), expected(&second)].concat());
    for (path, contents) in disk.files() {
        if path.starts_with(shard_path("quarantine")) {
            let is_first = path.starts_with(shard_path("quarantine").join(&first));
            assert_eq!(contents, if is_first { &b"unknown"[..] } else { b"again" });
        }
    }
    // A new file does not get the name of one that was there.
    run_local(async {
        let shard = reopen(&disk).await.unwrap();
        assert_eq!(row_count(&shard), ROWS);
        shard.flush(TABLE).await.unwrap();
        let newest =
            disk.files().into_keys().filter(|path| path.starts_with(shard_path("tables"))).max().unwrap();
        assert_eq!(newest, table_path(TABLE, "0000000100-data.sst"));
    });
}

#[test]
fn what_cannot_be_moved_is_not_removed_and_the_start_refuses() {
    let unknown = table_path(TABLE, "0000000099-data.sst");
    let begun = filled();
    begun.set_at_rest(&unknown, Some(b"unknown"));
    let files = begun.files();
    let mut refused = 0;
    for point in 0.. {
        let disk = SimulatedDisk::with_files(1, &files);
        disk.fail_at(point, Fault::Error);
        let outcome = run_local(async { reopen(&disk).await.map(drop) });
        let moved = !quarantined(&disk).is_empty();
        assert!(moved || disk.files().contains_key(&unknown), "fault at {point}: {outcome:?}");
        if let Err(EngineError::Quarantine { .. }) = &outcome {
            refused += 1;
            assert!(outcome.unwrap_err().to_string().contains("0000000099-data.sst"));
        }
        disk.clear_faults();
        run_local(async { assert_eq!(row_count(&reopen(&disk).await.unwrap()), ROWS, "fault at {point}") });
        assert_eq!(quarantined(&disk).len(), 1);
        if disk.operations() > 0 && point > 300 {
            break;
        }
    }
    assert!(refused >= 3, "{refused}");
}

#[test]
fn the_log_must_begin_where_the_manifest_says() {
    let log = shard_path("commit-log");
    let files = filled().files();
    // A later segment may hold what is left of its earlier life.
    let used = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number = name.strip_prefix("segment-").and_then(|name| name.strip_suffix(".log"));
        let Some(number) = number.filter(|_| path.starts_with(&log)) else { return false };
        let number = u64::from_str_radix(number, 16).unwrap();
        !read_segment(&files[*path].clone().into(), number).unwrap_or_default().is_empty()
    };
    let segments: Vec<PathBuf> = files.keys().filter(used).cloned().collect();
    assert!(segments.len() > 3, "{segments:?}");
    // The end of the log cannot be told from a log that ends earlier.
    let (_, all_but_newest) = segments.split_last().unwrap();
    let mut refused = 0;
    for segment in all_but_newest {
        let disk = SimulatedDisk::with_files(1, &files);
        disk.set_at_rest(segment, None);
        let before = contents(&disk);
        match run_local(async { reopen(&disk).await.map(|shard| row_count(&shard)) }) {
            Ok(rows) => assert_eq!(rows, ROWS, "without {segment:?}, whose rows are in files"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("commit-log"), "{error}");
                assert_eq!(contents(&disk), before);
            }
        }
    }
    assert!(refused > 1, "{refused}");
}

#[test]
fn records_of_a_table_that_the_manifest_does_not_know_are_no_dropped_ones() {
    let disk = SimulatedDisk::new(1);
    let mut older = FileContents::new();
    run_local(async {
        let shard = open_with(&disk, options()).await;
        older = disk.files();
        shard.create_table(OTHER_TABLE, table_options()).await.unwrap();
        let mut builder = MutationBuilder::new(OTHER_TABLE, 1, b"key").unwrap();
        let mut row = RowBuilder::new();
        row.set_liveness(helenus_engine::Liveness { timestamp: 1, expiry: None });
        builder.row(&[2, 1], &mut row);
        let position = apply(&shard, &builder.build());
        shard.durable(position).await.unwrap();
    });
    disk.restart(CrashStyle::KeepAll, 0);
    for (path, contents) in older.iter().filter(|(path, _)| is_of_manifest(path)) {
        disk.set_at_rest(path, Some(contents));
    }
    let before = contents(&disk);
    let error = run_local(async { reopen(&disk).await.err().unwrap() });
    assert!(error.to_string().contains(&OTHER_TABLE.to_string()), "{error}");
    assert!(error.to_string().contains("shard/manifest"), "{error}");
    assert_eq!(contents(&disk), before);
}

#[test]
fn a_table_that_is_created_again_under_its_id_is_empty() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open_with(&disk, options()).await;
        write_rows(&shard, 0..10);
        shard.flush(TABLE).await.unwrap();
        write_rows(&shard, 10..20);
        shard.drop_table(TABLE).await.unwrap();
        shard.create_table(TABLE, table_options()).await.unwrap();
        assert_eq!(row_count(&shard), 0);
        let last = write_rows(&shard, 0..3);
        shard.durable(last).await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async { assert_eq!(row_count(&reopen(&disk).await.unwrap()), 3) });
}

#[test]
fn a_snapshot_with_attachments_is_whole_or_not_there() {
    let attachment =
        Attachment { name: "schema.cql".to_owned(), contents: Bytes::from_static(b"CREATE TABLE t;") };
    let prepare = async |disk: &SimulatedDisk| {
        let shard = open_with(disk, options()).await;
        shard.create_table(OTHER_TABLE, table_options()).await.unwrap();
        let last = write_rows(&shard, 0..10);
        shard.durable(last).await.unwrap();
        shard
    };
    for point in 0.. {
        let disk = SimulatedDisk::new(1);
        let taken = run_local(async {
            let shard = prepare(&disk).await;
            let nothing =
                shard.snapshot_rows(OTHER_TABLE, "s", std::slice::from_ref(&attachment)).await.unwrap();
            assert_eq!(nothing, None, "an empty table has nothing to keep");
            disk.crash_at(disk.operations() + point);
            shard.snapshot_rows(TABLE, "s", std::slice::from_ref(&attachment)).await
        });
        disk.restart(CrashStyle::ALL[point as usize % CrashStyle::ALL.len()], point);
        run_local(async {
            let shard = reopen(&disk).await.unwrap();
            let found = shard.list_snapshots().await.unwrap();
            assert!(found.len() <= 1 && (found.len() == 1 || taken.is_err()), "crash at {point}: {found:?}");
            // The same snapshot again.
            let path =
                shard.snapshot_rows(TABLE, "s", std::slice::from_ref(&attachment)).await.unwrap().unwrap();
            let [entry] = &shard.list_snapshots().await.unwrap()[..] else { panic!("one snapshot") };
            assert_eq!((entry.name.as_str(), entry.table, &entry.path), ("s", TABLE, &path));
            let kept = shard.snapshot_attachment(entry, "schema.cql").await.unwrap();
            assert_eq!(kept.as_ref(), Some(&attachment.contents));
            let files = disk.list(&path).await.unwrap();
            assert_eq!(files.len(), 2, "{files:?}");
            assert!(shard.snapshot_bytes(entry).await.unwrap() > 300);
            assert!(matches!(shard.snapshot(TABLE, "s", &[]).await, Err(EngineError::SnapshotExists(_))));
            shard.drop_table(TABLE).await.unwrap();
            drop(shard);
            let shard = reopen(&disk).await.unwrap();
            assert_eq!(shard.list_snapshots().await.unwrap().len(), 1, "it outlives its table");
            shard.clear_table_snapshot(entry).await.unwrap();
            assert!(shard.list_snapshots().await.unwrap().is_empty());
            assert_eq!(quarantined(&disk), Vec::<PathBuf>::new());
        });
        if taken.is_ok() {
            return;
        }
    }
}
