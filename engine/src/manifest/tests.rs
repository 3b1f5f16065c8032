//! The manifest and its files, on the simulated disk.

mod change;
mod crashes;
mod files;
mod format;

use std::path::{Path, PathBuf};
use std::task::{Context, Poll, Waker};

use super::change::Change;
use super::*;
use crate::commit_log::LogPosition;
use crate::io::{Disk, SimulatedDisk, SplitMix64};
use crate::mutation::TableId;

const DIRECTORY: &str = "/shard";
const TABLE: TableId = TableId([9; 16]);

/// Runs a future that waits for nothing but the disk; also within another one.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

fn path(name: &str) -> PathBuf {
    directory().join(name)
}

fn sample() -> Manifest {
    let tokens = Some(TokenSpan { first: -2, last: 1 });
    let file = ManifestFile { generation: 300, level: 1, created_seconds: 5, directory: 2, tokens };
    let flushed_to = LogPosition { segment: 3, offset: 77 };
    let obsolete = [(4, 2), (299, 0)].map(|(generation, directory)| FileId { generation, directory });
    let table = ManifestTable { flushed_to, files: vec![file], obsolete: obsolete.into() };
    Manifest {
        sequence: 6,
        next_generation: 301,
        log_needed_from: 2,
        directories: vec![PathBuf::from("/a"), PathBuf::from("/bc")],
        tables: [(TABLE, table)].into(),
        dropped: [TableId([8; 16])].into(),
    }
}

/// Any edit of a manifest, and what it leads to. `size`: how many files a table gets at once, at most.
fn any_edit(random: &mut SplitMix64, manifest: &Manifest, size: u64) -> (Change, Manifest) {
    let mut edit = ManifestEdit::default();
    let mut expected = manifest.clone();
    expected.sequence += 1;
    let pick = |random: &mut SplitMix64, ids: Vec<TableId>| -> Option<TableId> {
        let index = random.below(ids.len().max(1) as u64) as usize;
        ids.get(index).copied()
    };
    for _ in 0..=random.below(3) {
        let ids: Vec<TableId> = expected.tables.keys().copied().collect();
        match (random.below(8), pick(random, ids)) {
            (0..5, Some(id)) => {
                let Some(edited) = edit.table(manifest, id) else { panic!("a table is there") };
                edited.flushed_to.offset += random.below(1_000);
                let gone_below = random.below(4);
                let gone: Vec<ManifestFile> =
                    edited.files.iter().filter(|file| file.generation % 4 < gone_below).copied().collect();
                edited.files.retain(|file| file.generation % 4 >= gone_below);
                for file in gone {
                    // Some change their level and stay.
                    if random.chance(1, 4) {
                        edited.files.push(ManifestFile { level: file.level + 1, ..file });
                    } else {
                        edited.obsolete.insert(file.id());
                    }
                }
                edited.obsolete.retain(|_| random.chance(2, 3));
                for _ in 0..random.below(size + 1) {
                    let tokens = random.chance(3, 4).then(|| TokenSpan {
                        first: random.next_u64() as i64,
                        last: random.next_u64() as i64,
                    });
                    let (generation, level) = (expected.next_generation, random.below(5) as u32);
                    expected.next_generation += 1;
                    edited.files.push(ManifestFile {
                        generation,
                        level,
                        created_seconds: 7,
                        directory: 0,
                        tokens,
                    });
                }
                let mut after = edited.clone();
                after.files.sort_by_key(|file| file.generation);
                expected.tables.insert(id, after);
            }
            (5, Some(id)) if manifest.tables.contains_key(&id) => {
                edit.drop_table(id);
                expected.tables.remove(&id);
                expected.dropped.insert(id);
            }
            (6, _) if manifest.dropped == expected.dropped => {
                if let Some(id) = pick(random, manifest.dropped.iter().copied().collect()) {
                    edit.forget_dropped(id);
                    expected.dropped.remove(&id);
                }
            }
            _ => {
                let id = TableId([random.below(12) as u8; 16]);
                if !edit.has_table(manifest, id) && !expected.dropped.contains(&id) {
                    let table = ManifestTable::new(LogPosition { segment: random.below(300), offset: 5 });
                    edit.add_table(id, table.clone());
                    expected.tables.insert(id, table);
                }
            }
        }
    }
    expected.log_needed_from = random.below(1_000);
    let change = edit.finish(manifest, expected.next_generation, expected.log_needed_from);
    (change, expected)
}

/// A disk with the manifest of a new shard.
async fn create(disk: &SimulatedDisk) -> StoredManifest {
    disk.create_directory(directory()).await.unwrap();
    disk.sync_directory(directory()).await.unwrap();
    disk.sync_directory(Path::new("/")).await.unwrap();
    let manifest = Manifest { sequence: 1, ..Manifest::new() };
    let mut files = ManifestFiles::new(directory());
    files.write(disk, &manifest).await.unwrap();
    StoredManifest::new(manifest, files)
}

fn load(disk: &SimulatedDisk) -> Result<Loaded, ManifestError> {
    run(ManifestFiles::load(disk, directory())).map(|loaded| loaded.expect("there is a manifest"))
}

/// The names of the files of the manifest.
fn names(disk: &SimulatedDisk) -> Vec<String> {
    disk.files().keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}
