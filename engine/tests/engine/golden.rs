//! The directory of a shard as earlier releases left it (`tests/golden/<release>/shard`): table files, and a commit log that was
//! not flushed. It opens, shows every row, takes writes, and is rewritten by a compaction. The next start reads it again, although
//! the log goes on in the version that this program writes.

#![allow(clippy::disallowed_methods, reason = "the files of the releases are no part of the environment")]

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use helenus_engine::io::{CrashStyle, Disk, SimulatedDisk};
use helenus_engine::{
    Cell, CellKind, Deletion, Expiry, Liveness, Mutation, MutationBuilder, RowBuilder, Shard, counter,
};

use crate::support::model::Model;
use crate::support::{
    DIRECTORY, EVERYTHING, NOW, START_MICROS, TABLE, apply, open_with, read_all, small_options,
};

/// Releases whose directories are kept.
const RELEASES: &[&str] = &["a1a536a"];
const KEYS: [(i64, &[u8]); 4] =
    [(i64::MIN + 1, b"first"), (-1, b""), (0, b"same token"), (0, b"same token too")];
/// In the past of the clock of the tests.
const DELETED_AT: u32 = NOW - 10;

fn position(number: u8) -> Vec<u8> {
    vec![2, 0x10 + number / 4, 0x20, b'c', 0x10 + number]
}

fn mutation(key: usize, build: impl FnOnce(&mut MutationBuilder)) -> Mutation {
    let (token, partition_key) = KEYS[key];
    let mut builder = MutationBuilder::new(TABLE, token, partition_key).unwrap();
    build(&mut builder);
    builder.build()
}

/// A row with a cell of each kind, some of a collection.
fn row(number: u8, timestamp: i64) -> RowBuilder {
    let expiry = |seconds: i64| Expiry { ttl: 600, expires_at: (i64::from(NOW) + seconds) as u32 };
    let count = counter::shard([number; 16], timestamp, i64::from(number) - 3);
    let text = "text of a value ".repeat(usize::from(number));
    let cells = [
        (1, &b""[..], CellKind::Live, text.as_bytes()),
        (2, b"", CellKind::Expiring(expiry(500)), b"stays"),
        (3, b"", CellKind::Expiring(expiry(-5)), b"has expired"),
        (4, b"", CellKind::Tombstone { local_deletion_time: DELETED_AT }, b""),
        (5, b"a", CellKind::Live, b"element"),
        (5, b"b", CellKind::Live, b""),
        (6, b"", CellKind::Counter, &count),
    ];
    let mut row = RowBuilder::new();
    for (column, path, kind, value) in cells {
        row.cell(Cell { column, path, timestamp, kind, value });
    }
    let expiry = number.is_multiple_of(3).then_some(expiry(500));
    row.set_liveness(Liveness { timestamp, expiry });
    row
}

/// Rows and static rows of all partitions.
fn written(timestamp: i64) -> Vec<Mutation> {
    let of_key = |key| {
        mutation(key, |builder| {
            builder.row(&[1], &mut row(9, timestamp));
            for number in 0..16 {
                builder.row(&position(number), &mut row(number, timestamp + i64::from(number)));
            }
        })
    };
    (0..KEYS.len()).map(of_key).collect()
}

/// Deletions of every kind, and rows that are written over.
fn changed(timestamp: i64) -> Vec<Mutation> {
    let deletion = Deletion { timestamp, local_deletion_time: DELETED_AT };
    let mut deleted = RowBuilder::new();
    deleted.set_deletion(deletion);
    let mut emptied = RowBuilder::new();
    emptied.delete_column(5, deletion);
    emptied.cell(Cell {
        column: 5,
        path: b"c",
        timestamp: timestamp + 1,
        kind: CellKind::Live,
        value: b"new",
    });
    vec![
        mutation(0, |builder| {
            builder.row(&position(1), &mut deleted).row(&position(2), &mut emptied);
            builder.delete_range(&position(5), &position(9), deletion);
            builder.row(&position(6), &mut row(6, timestamp + 2));
        }),
        mutation(1, |builder| {
            builder.delete_partition(deletion).row(&position(3), &mut row(3, timestamp + 2));
        }),
        mutation(2, |builder| {
            builder.row(&position(20), &mut row(1, timestamp)).row(&[1], &mut deleted);
        }),
    ]
}

/// What goes to table files, one group to each, and what stays in the commit log.
fn groups() -> (Vec<Vec<Mutation>>, Vec<Mutation>) {
    let base = START_MICROS - 100_000_000;
    let third = changed(base + 3_000).split_off(2);
    (vec![written(base), changed(base + 1_000)], [written(base + 500), changed(base + 2_000), third].concat())
}

fn directory(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(release).join("shard")
}

/// A disk with a copy of a directory.
async fn load(directory: &Path) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        disk.create_directory(&Path::new(DIRECTORY).join(&inside)).await.unwrap();
        for entry in fs::read_dir(directory.join(&inside)).unwrap() {
            let entry = entry.unwrap();
            let path = inside.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            } else {
                let file = disk.create(&Path::new(DIRECTORY).join(&path)).await.unwrap();
                file.write_and_sync_at(0, fs::read(entry.path()).unwrap().into()).await.unwrap();
            }
        }
    }
    disk
}

/// The files of the shard's directory with their contents.
async fn files(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut waiting, mut found) = (vec![PathBuf::new()], Vec::new());
    while let Some(inside) = waiting.pop() {
        for entry in disk.list(&Path::new(DIRECTORY).join(&inside)).await.unwrap() {
            let path = inside.join(&entry.name);
            if entry.is_directory {
                waiting.push(path);
            } else {
                let bytes = disk.read(&Path::new(DIRECTORY).join(&path)).await.unwrap();
                found.push((path, bytes.to_vec()));
            }
        }
    }
    found
}

/// A shard that was written and then killed.
async fn make() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let shard = open(&disk).await;
    let (flushed, logged) = groups();
    for group in flushed {
        for mutation in &group {
            apply(&shard, mutation);
        }
        shard.flush(TABLE).await.unwrap();
    }
    for mutation in &logged {
        let position = apply(&shard, mutation);
        shard.durable(position).await.unwrap();
    }
    disk
}

async fn open(disk: &SimulatedDisk) -> Rc<Shard> {
    open_with(disk, small_options()).await
}

#[test]
fn the_shard_of_a_release_is_read_and_goes_on() {
    crate::support::run_local(async {
        let mut model = Model::default();
        let (flushed, logged) = groups();
        for mutation in flushed.iter().flatten().chain(&logged) {
            model.apply(&mutation.view().unwrap());
        }
        let expected = model.read(EVERYTHING, false, NOW);
        assert!(expected.len() > 40);
        for release in RELEASES {
            let disk = load(&directory(release)).await;
            let shard = open(&disk).await;
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected, "{release}");
            // A row that changes nothing, so that the log has groups of both versions.
            let position = apply(&shard, &logged[0]);
            shard.durable(position).await.unwrap();
            drop(shard);
            disk.restart(CrashStyle::LoseAll, 0);
            let shard = open(&disk).await;
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected, "{release}");
            shard.flush(TABLE).await.unwrap();
            shard.compact(TABLE).await.unwrap();
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected, "{release}");
        }
    });
}

/// Writes the directory of a release that is new; see `tests/golden/README.md`. `HELENUS_GOLDEN`: its name.
#[test]
#[ignore = "writes files"]
fn write_a_release() {
    let directory = directory(&std::env::var("HELENUS_GOLDEN").unwrap());
    crate::support::run_local(async {
        for (path, bytes) in files(&make().await).await {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    });
}
