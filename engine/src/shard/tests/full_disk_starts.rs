//! A start on a full disk, after an end in the middle of an edit of the manifest.

use std::task::Poll;

use super::*;
use crate::io::CrashStyle;
use crate::manifest::ManifestFiles;

const OTHER: TableId = TableId([8; 16]);

fn options() -> ShardOptions {
    let mut options = ShardOptions::new(Path::new("shard"));
    options.commit_log.segment_bytes = 64 << 10;
    options
}

#[test]
fn a_shard_that_has_ended_in_an_edit_opens_on_a_full_disk() {
    let (mut cut_off, mut made) = (0, 0);
    for calls in 0.. {
        let mut has_ended = false;
        for style in CrashStyle::ALL {
            let disk = SimulatedDisk::new(calls);
            has_ended = run(async {
                let shard = open_with(&disk, options()).await;
                write(&shard, 1, Load::Logged).unwrap();
                shard.flush(TABLE).await.unwrap();
                disk.crash_at(disk.operations() + calls);
                shard.create_table(OTHER, TableOptions::default()).await.is_ok()
            });
            disk.restart(style, calls);
            disk.set_capacity_bytes(disk.used_bytes());
            cut_off += u64::from(!has_ended);
            // The power goes after the first of these starts, which has found no room to write anything.
            let mut tables = Vec::new();
            for _ in 0..2 {
                run(async {
                    let shard = open_with(&disk, options()).await;
                    assert_eq!(rows(&shard).unwrap(), 1);
                    tables.push(shard.table_ids());
                });
                disk.restart(CrashStyle::LoseAll, calls);
            }
            assert_eq!(tables[0], tables[1], "{calls}, {style:?}");
            let is_made = tables[0].contains(&OTHER);
            assert!(is_made || !has_ended, "{calls}, {style:?}");
            made += u64::from(is_made);
            disk.set_capacity_bytes(u64::MAX);
            run(async {
                let shard = open_with(&disk, options()).await;
                shard.create_table(OTHER, TableOptions::default()).await.unwrap();
                shard.flush(TABLE).await.unwrap();
            });
            // The next one finds nothing to be mended.
            run(async {
                let shard = open_with(&disk, options()).await;
                assert!(shard.table_ids().contains(&OTHER) && rows(&shard).unwrap() == 1);
            });
        }
        if has_ended {
            break;
        }
    }
    assert!(cut_off > 20 && made > 12, "{cut_off}, {made}");
}

/// The start writes the manifest, because a copy is damaged. Later it finds no room to take the dropped table out of it.
#[test]
fn a_table_is_made_and_dropped_again_after_a_start_whose_disk_has_become_full() {
    let (mut opened, mut listed) = (0, 0);
    for calls in 0.. {
        let disk = SimulatedDisk::new(1);
        run(async {
            let shard = open_with(&disk, options()).await;
            shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            shard.drop_table(OTHER).await.unwrap();
        });
        disk.restart(CrashStyle::KeepAll, 0);
        assert!(disk.flip_bit(Path::new("shard/manifest.copy"), 100));
        let end = disk.operations() + calls;
        let has_become_full = run(async {
            let mut opening = Box::pin(Shard::open(environment(&disk), options()));
            let mut early = None;
            while disk.operations() < end && early.is_none() {
                early = match futures::poll!(opening.as_mut()) {
                    Poll::Ready(opened) => Some(opened),
                    Poll::Pending => None,
                };
                // The shard has tasks.
                tokio::task::yield_now().await;
            }
            let has_become_full = early.is_none();
            disk.set_capacity_bytes(disk.used_bytes());
            let shard = match early {
                Some(opened) => opened.unwrap(),
                // One that refuses to open is another matter.
                None => match opening.await {
                    Ok(shard) => shard,
                    Err(error) => {
                        assert!(error.is_full(), "{calls}: {error}");
                        return true;
                    }
                },
            };
            opened += 1;
            disk.set_capacity_bytes(u64::MAX);
            let on_disk = ManifestFiles::load(&disk, Path::new("shard")).await.unwrap().unwrap().manifest;
            listed += u64::from(on_disk.dropped.contains(&OTHER));
            shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            shard.drop_table(OTHER).await.unwrap();
            shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            assert_eq!(shard.failure(), None, "{calls}");
            let on_disk = ManifestFiles::load(&disk, Path::new("shard")).await.unwrap().unwrap().manifest;
            assert!(on_disk == **shard.manifest.lock().await, "{calls}: memory and disk differ");
            has_become_full
        });
        disk.set_capacity_bytes(u64::MAX);
        disk.restart(CrashStyle::LoseAll, calls);
        let shard = run(Shard::open(environment(&disk), options()));
        assert!(shard.is_ok(), "{calls}: {:?}", shard.err());
        if !has_become_full {
            break;
        }
    }
    assert!(opened > 10 && listed > 1, "{opened}, {listed}");
}

#[test]
fn a_shard_opens_on_a_full_disk_if_a_copy_of_its_manifest_is_harmed() {
    let directory = Path::new("shard");
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open_with(&disk, options()).await;
        write(&shard, 1, Load::Logged).unwrap();
        shard.flush(TABLE).await.unwrap();
    });
    let earlier = disk.files();
    disk.restart(CrashStyle::KeepAll, 0);
    // A start whose last step writes the manifest, and no edit after it: the changes of the later manifest are empty.
    run(async { drop(open_with(&disk, options()).await) });
    disk.restart(CrashStyle::KeepAll, 0);
    let files = disk.files();
    assert!(earlier[&directory.join("manifest")] != files[&directory.join("manifest")]);
    let earlier: Vec<_> = earlier.iter().filter(|(path, _)| path.starts_with(directory)).collect();
    let is_changes = |path: &Path| path.to_string_lossy().contains("manifest.changes-");
    for [harmed, used] in [["manifest", "manifest.copy"], ["manifest.copy", "manifest"]] {
        let [harmed, used] = [harmed, used].map(|name| directory.join(name));
        let (_, older) = earlier.iter().find(|(path, _)| **path == harmed).unwrap();
        for harm in [None, Some(&b"rubbish"[..]), Some(older.as_slice())] {
            let disk = SimulatedDisk::with_files(1, &files);
            disk.set_at_rest(&harmed, harm);
            // With its changes the older one is a valid manifest.
            for (path, contents) in earlier.iter().filter(|(path, _)| is_changes(path)) {
                disk.set_at_rest(path, Some(contents));
            }
            // What is freed goes to others.
            disk.set_capacity_bytes(0);
            for start in 0..2 {
                run(async {
                    let shard = open_with(&disk, options()).await;
                    assert_eq!(rows(&shard).unwrap(), 1);
                });
                disk.restart(CrashStyle::LoseAll, start);
                let loaded = run(ManifestFiles::load(&disk, directory)).unwrap().unwrap();
                assert!(loaded.defect.is_some(), "there was no room to write it");
            }
            // The loss of the one copy is noticed.
            let lost = SimulatedDisk::with_files(1, &disk.files());
            lost.set_at_rest(&used, None);
            let refused = run(Shard::open(environment(&lost), options()));
            assert!(matches!(refused, Err(EngineError::Manifest(_))), "{:?}", refused.err());
            disk.set_capacity_bytes(u64::MAX);
            run(async {
                let shard = open_with(&disk, options()).await;
                shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            });
            disk.restart(CrashStyle::LoseAll, 2);
            let loaded = run(ManifestFiles::load(&disk, directory)).unwrap().unwrap();
            assert!(loaded.defect.is_none() && loaded.manifest.tables.contains_key(&OTHER));
        }
    }
}
