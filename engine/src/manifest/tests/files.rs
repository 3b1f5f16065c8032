//! The files of the manifest when one of them is missing, damaged or older, and how many bytes an edit writes.

use super::super::format::encode;
use super::*;
use crate::invariant::as_in_release;
use crate::io::{CrashStyle, Fault, FileContents, ReplaceError};

const CHANGES: &str = "manifest.changes-1";

/// A disk with some edits behind the manifest, and the manifest that they lead to.
fn filled() -> (SimulatedDisk, Manifest) {
    let disk = SimulatedDisk::new(1);
    let manifest = run(async {
        let mut stored = create(&disk).await;
        let mut random = SplitMix64::new(3);
        for _ in 0..6 {
            let change = any_edit(&mut random, &stored, 3).0;
            stored.change(&disk, &change).await.unwrap();
        }
        stored.clone()
    });
    assert_eq!(names(&disk), ["manifest", CHANGES, "manifest.changes-1.copy", "manifest.copy"]);
    (disk, manifest)
}

fn refusal(disk: &SimulatedDisk) -> String {
    let before = disk.files();
    let error = load(disk).expect_err("it is not as it was left").to_string();
    assert_eq!(disk.files(), before);
    error
}

#[test]
fn either_copy_of_either_file_may_be_missing_damaged_cut_or_older() {
    let (disk, manifest) = filled();
    let files = disk.files();
    let older = {
        let disk = SimulatedDisk::new(1);
        drop(run(create(&disk)));
        disk.files()
    };
    for (path, whole) in &files {
        let mut harms: Vec<Option<Vec<u8>>> =
            vec![None, Some(Vec::new()), Some(b"rubbish".to_vec()), Some(vec![0; whole.len()])];
        // What is behind the records is zeros for long.
        let bytes = || (0..600.min(whole.len())).chain((600..whole.len()).step_by(97));
        harms.extend(bytes().map(|length| Some(whole[..length].to_vec())));
        harms.extend(bytes().map(|byte| {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << (byte % 8);
            Some(flipped)
        }));
        if path.to_str().unwrap().contains("changes") {
            harms.push(Some(older[path].clone()));
        }
        for harm in harms {
            let harmed = SimulatedDisk::with_files(1, &files);
            harmed.set_at_rest(path, harm.as_deref());
            let loaded = load(&harmed).unwrap();
            assert!(loaded.manifest == manifest, "{path:?}");
            assert!(loaded.must_be_written() && !loaded.is_old);
            let defects: Vec<_> = loaded.defects().collect();
            let [defect] = &defects[..] else { panic!("{defects:?}") };
            assert_eq!(defect.path, *path);
            assert_eq!(harmed.files().len(), files.len() - usize::from(harm.is_none()));
        }
    }
}

#[test]
fn without_both_copies_nothing_is_guessed() {
    let (disk, manifest) = filled();
    let files = disk.files();
    for name in ["manifest", CHANGES] {
        let both = [path(name), path(&format!("{name}.copy"))];
        let whole = &files[&both[0]];
        let harmed = |contents: Option<&[u8]>| {
            let disk = SimulatedDisk::with_files(1, &files);
            for path in &both {
                disk.set_at_rest(path, contents);
            }
            disk
        };
        if name == CHANGES {
            let error = refusal(&harmed(None));
            assert!(error.starts_with("/shard/manifest.changes-1 and its copy are missing"), "{error}");
        } else {
            let loaded = run(ManifestFiles::load(&harmed(None), directory())).unwrap();
            assert!(loaded.is_none());
        }
        for length in (0..whole.len()).step_by(if name == CHANGES { 7 } else { 1 }) {
            let error = refusal(&harmed(Some(&whole[..length])));
            assert!(error.contains(&format!("/shard/{name}")), "{error}");
        }
        for byte in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1 << (byte % 8);
            let error = refusal(&harmed(Some(&flipped)));
            assert!(error.contains(&format!("/shard/{name}")), "{error}");
        }
    }
    assert!(load(&disk).unwrap().manifest == manifest);
}

#[test]
fn an_older_manifest_is_refused() {
    let (disk, _) = filled();
    let first = disk.files();
    // Both copies of the manifest alone, without changes, with its own changes, and what came later with and without records.
    let later = |edits: usize| {
        let disk = SimulatedDisk::with_files(1, &first);
        run(async {
            let mut files = ManifestFiles::new(directory());
            let mut contents = load(&disk).unwrap().manifest;
            contents.sequence += 1;
            files.write(&disk, &contents).await.unwrap();
            let mut stored = StoredManifest::new(contents, files);
            for seed in 0..edits {
                let change = any_edit(&mut SplitMix64::new(seed as u64), &stored, 3).0;
                stored.change(&disk, &change).await.unwrap();
            }
        });
        disk
    };
    let put_back = |disk: &SimulatedDisk, keeps: &dyn Fn(&str) -> bool| {
        for (path, contents) in &first {
            if keeps(path.file_name().unwrap().to_str().unwrap()) {
                disk.set_at_rest(path, Some(contents));
            }
        }
    };
    let is_manifest = |name: &str| !name.contains("changes");
    for edits in [0, 1, 3] {
        let disk = later(edits);
        put_back(&disk, &is_manifest);
        assert!(refusal(&disk).contains("/shard/manifest.changes-1 and its copy are missing"));
    }
    let disk = later(1);
    put_back(&disk, &|_| true);
    let error = refusal(&disk);
    let said = "manifest /shard/manifest is older than /shard/manifest.changes-8 beside it";
    assert!(error.starts_with(said), "{error}");
    // With the changes of one that is further ahead it cannot be what a crash has left.
    let disk = later(0);
    put_back(&disk, &|_| true);
    assert!(load(&disk).is_ok());
    for copy in ["", ".copy"] {
        let name = |number: u8| path(&format!("manifest.changes-{number}{copy}"));
        let empty = disk.files()[&name(8)].clone();
        disk.set_at_rest(&name(8), None);
        disk.set_at_rest(&name(9), Some(&empty));
    }
    assert!(refusal(&disk).contains("older than /shard/manifest.changes-9"));
}

#[test]
fn an_older_copy_of_the_changes_beside_a_torn_one_is_refused() {
    let (disk, _) = filled();
    let older = {
        let disk = SimulatedDisk::new(1);
        drop(run(create(&disk)));
        disk.files()[&path(CHANGES)].clone()
    };
    disk.set_at_rest(&path(CHANGES), Some(&older));
    let whole = disk.files()[&path("manifest.changes-1.copy")].clone();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(disk.overwrite(&path("manifest.changes-1.copy"), end, &[whole[end] ^ 1]));
    assert!(refusal(&disk).contains("/shard/manifest.changes-1.copy"));
    // The first record is damaged, and the others are behind it.
    for copy in ["", ".copy"] {
        let disk = SimulatedDisk::with_files(1, &disk.files());
        for name in [CHANGES.to_owned(), format!("{CHANGES}.copy")] {
            disk.set_at_rest(&path(&name), Some(&older));
        }
        let harmed = path(&format!("{CHANGES}{copy}"));
        disk.set_at_rest(&harmed, Some(&whole));
        assert!(disk.flip_bit(&harmed, 35 * 8));
        let error = refusal(&disk);
        let said = format!("changes of the manifest: {}: the record at byte 25 is damaged", harmed.display());
        assert!(error.starts_with(&said) && error.contains("its copy is older"), "{error}");
    }
}

/// The sample as version 2 had it.
fn of_version_2() -> Vec<u8> {
    let mut old = encode(&sample());
    let body = [&[2], &old[9..]].concat();
    old[4..9].copy_from_slice(&[&[2], &crc32fast::hash(&body).to_le_bytes()[..]].concat());
    old
}

/// A copy of version 2 is a valid manifest without its changes.
#[test]
fn a_harmed_copy_of_the_manifest_can_wait_for_room_unless_it_is_of_version_2() {
    let written = SimulatedDisk::new(1);
    run(written.create_directory(directory())).unwrap();
    let contents = Manifest { sequence: 7, ..sample() };
    run(ManifestFiles::new(directory()).write(&written, &contents)).unwrap();
    let damaged = |mut bytes: Vec<u8>| {
        *bytes.last_mut().unwrap() ^= 1;
        Some(bytes)
    };
    let harms = [
        (None, true),
        (Some(encode(&sample())), true),
        (damaged(encode(&sample())), true),
        (Some(b"rubbish".to_vec()), true),
        (Some(Vec::new()), true),
        (Some(of_version_2()), false),
        (damaged(of_version_2()), false),
    ];
    for name in ["manifest", "manifest.copy"] {
        for (number, (harm, can_wait)) in harms.iter().enumerate() {
            let disk = SimulatedDisk::with_files(1, &written.files());
            disk.set_at_rest(&path(name), harm.as_deref());
            let mut loaded = load(&disk).unwrap();
            assert!(loaded.manifest == contents && loaded.must_be_written());
            assert!(!loaded.can_wait_for_room(), "it may not be durable");
            run(loaded.mend(&disk)).unwrap();
            assert_eq!(loaded.can_wait_for_room(), *can_wait, "{name}, {number}");
        }
    }
    // One that cannot be read may be of version 2.
    written.set_bad_medium(Some("/manifest.copy"));
    let mut loaded = load(&written).unwrap();
    run(loaded.mend(&written)).unwrap();
    assert!(!loaded.can_wait_for_room());
}

#[test]
fn earlier_versions_are_read_and_replaced() {
    for version in [1, 2] {
        let disk = SimulatedDisk::new(1);
        run(disk.create_directory(directory())).unwrap();
        let mut old = of_version_2();
        let mut expected = sample();
        if version == 2 {
            disk.set_at_rest(&path("manifest.copy"), Some(&old));
        } else {
            old = b"HLMF\x01".to_vec();
            old.extend(crc32fast::hash(&[5, 0]).to_le_bytes());
            old.extend([5, 0]);
            expected = Manifest { sequence: 0, next_generation: 5, ..Manifest::default() };
        }
        disk.set_at_rest(&path("manifest"), Some(&old));
        let loaded = load(&disk).unwrap();
        assert!(loaded.is_old && loaded.must_be_written());
        assert_eq!(loaded.manifest, expected);
        // Changes of a later one say that it was put back.
        let (later, _) = filled();
        for (number, (name, contents)) in
            later.files().iter().enumerate().filter(|(_, (it, _))| **it == path(CHANGES))
        {
            let harmed = SimulatedDisk::with_files(number as u64, &disk.files());
            harmed.set_at_rest(&name.with_file_name("manifest.changes-9"), Some(contents));
            assert!(refusal(&harmed).contains("/shard/manifest is older than /shard/manifest.changes-9"));
        }
        run(async {
            let mut contents = loaded.manifest;
            contents.sequence += 1;
            ManifestFiles::new(directory()).write(&disk, &contents).await.unwrap();
            let loaded = load(&disk).unwrap();
            assert!(!loaded.must_be_written());
            assert_eq!(loaded.manifest, contents);
        });
        assert!(disk.files()[&path("manifest")].starts_with(b"HLMF\x03"));
    }
}

/// A manifest with a change, and the number of the call that renames the second copy when it is written as a whole.
fn before_a_renaming() -> (FileContents, Manifest, u64) {
    let disk = SimulatedDisk::new(1);
    let contents = run(async {
        let mut stored = create(&disk).await;
        let change = any_edit(&mut SplitMix64::new(4), &stored, 3).0;
        stored.change(&disk, &change).await.unwrap();
        let mut contents = stored.clone();
        contents.sequence += 1;
        contents
    });
    let files = disk.files();
    let renaming = (0..40).find(|point| {
        let disk = SimulatedDisk::with_files(1, &files);
        disk.fail_at(*point, Fault::NoSpace);
        let written = run(ManifestFiles::new(directory()).write(&disk, &contents));
        written.is_ok() && disk.files()[&path("manifest")] != disk.files()[&path("manifest.copy")]
    });
    (files, contents, renaming.unwrap())
}

#[test]
fn a_manifest_that_has_one_copy_for_want_of_room_is_written_again() {
    let (files, contents, renaming) = before_a_renaming();
    let disk = SimulatedDisk::with_files(1, &files);
    disk.fail_at(renaming, Fault::NoSpace);
    run(async {
        let mut files = ManifestFiles::new(directory());
        files.write(&disk, &contents).await.unwrap();
        let mut stored = StoredManifest::new(contents, files);
        let change = any_edit(&mut SplitMix64::new(4), &stored, 3).0;
        stored.change(&disk, &change).await.unwrap();
        assert_eq!(disk.files()[&path("manifest")], disk.files()[&path("manifest.copy")]);
    });
}

#[test]
fn a_manifest_that_has_one_copy_does_not_fall_back_to_the_other_one() {
    let (files, contents, renaming) = before_a_renaming();
    let (mut unknown, mut written) = (0, 0);
    // Another call fails: the directory is synced and listed, the earlier changes are removed, the directory is synced.
    for failing in 0..10 {
        let disk = SimulatedDisk::with_files(1, &files);
        disk.fail_at(renaming, Fault::NoSpace);
        disk.fail_at(renaming + 1 + failing, Fault::Error);
        let outcome = run(ManifestFiles::new(directory()).write(&disk, &contents));
        disk.restart(CrashStyle::LoseAll, failing);
        if outcome.is_ok() {
            written += 1;
            assert!(load(&disk).unwrap().manifest == contents);
            // The loss of the one copy is noticed.
            disk.set_at_rest(&path("manifest"), None);
            let error = refusal(&disk);
            assert!(error.contains("manifest.changes-1 and its copy are missing"), "{failing}: {error}");
        } else {
            unknown += 1;
            assert!(matches!(outcome, Err(ReplaceError::Unknown(_))), "{failing}: {outcome:?}");
            load(&disk).unwrap();
        }
    }
    assert!(unknown >= 5 && written >= 2, "{unknown}, {written}");
}

/// Makes a change, but gives it up after this number of calls of the disk. Returns whether it has ended before.
async fn change_and_give_up(
    disk: &SimulatedDisk,
    stored: &mut StoredManifest,
    change: &Change,
    calls: u64,
) -> bool {
    let end = disk.operations() + calls;
    let mut changing = Box::pin(stored.change(disk, change));
    while disk.operations() < end {
        if let Poll::Ready(outcome) = futures::poll!(changing.as_mut()) {
            outcome.unwrap();
            return true;
        }
    }
    false
}

#[test]
fn an_edit_that_was_given_up_is_the_last_one() {
    // Appended, and written as a whole.
    for is_whole in [false, true] {
        let (mut given_up, mut taken_effect) = (0, 0);
        for calls in 1..40 {
            let what = format!("given up after {calls} calls, as a whole: {is_whole}");
            let disk = SimulatedDisk::new(1);
            run(async {
                let mut stored = create(&disk).await;
                for seed in 0..3 {
                    let change = any_edit(&mut SplitMix64::new(seed), &stored, 3).0;
                    stored.change(&disk, &change).await.unwrap();
                }
                if is_whole {
                    stored = StoredManifest::new(stored.clone(), ManifestFiles::new(directory()));
                }
                let before = stored.clone();
                let (change, after) = any_edit(&mut SplitMix64::new(6), &stored, 3);
                let has_ended = change_and_give_up(&disk, &mut stored, &change, calls).await;
                let next = any_edit(&mut SplitMix64::new(7), &stored, 9).0;
                let outcome = as_in_release(|| run(stored.change(&disk, &next)));
                if has_ended {
                    outcome.unwrap();
                    assert!(load(&disk).unwrap().manifest == *stored, "{what}");
                    return;
                }
                given_up += 1;
                assert!(matches!(outcome, Err(EditError::Broken(_))), "{what}");
                let loaded = load(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(loaded.manifest == before || loaded.manifest == after, "{what}");
                taken_effect += u64::from(loaded.manifest == after);
                // What is in memory has taken effect.
                assert!(*stored == before || loaded.manifest == after, "{what}");
            });
        }
        assert!(given_up >= 3 && taken_effect > 0, "{given_up}, {taken_effect}");
    }
}

#[test]
fn a_change_that_does_not_fit_leaves_nothing_on_the_disk() {
    for is_whole in [false, true] {
        let disk = SimulatedDisk::new(1);
        run(async {
            let mut stored = create(&disk).await;
            let mut edit = ManifestEdit::default();
            edit.add_table(TABLE, ManifestTable::new(LogPosition::default()));
            stored.change(&disk, &edit.finish(&stored, 1, 0)).await.unwrap();
            if is_whole {
                stored = StoredManifest::new(stored.clone(), ManifestFiles::new(directory()));
            }
            let before = (disk.files(), stored.clone());
            // It was made from a manifest without the table.
            let mut edit = ManifestEdit::default();
            edit.add_table(TABLE, ManifestTable::new(LogPosition::default()));
            let other = Manifest { tables: [].into(), ..stored.clone() };
            let change = edit.finish(&other, 1, 0);
            let outcome = as_in_release(|| run(stored.change(&disk, &change)));
            assert!(matches!(outcome, Err(EditError::Broken(_))), "{outcome:?}");
            assert!(before == (disk.files(), stored.clone()));
            assert!(load(&disk).unwrap().manifest == before.1);
        });
    }
}

/// A manifest of 10,000 tables with a file each.
fn large() -> Manifest {
    let mut manifest = Manifest { sequence: 1, ..Manifest::new() };
    for number in 0..10_000_u64 {
        let mut id = [0; 16];
        id[8..].copy_from_slice(&number.to_be_bytes());
        let mut table = ManifestTable::new(LogPosition { segment: 700, offset: number });
        let tokens = Some(TokenSpan { first: i64::MIN, last: i64::MAX });
        let (generation, created_seconds) = (number + 1, 1_700_000_000);
        table.files.push(ManifestFile { generation, level: 0, created_seconds, directory: 0, tokens });
        manifest.tables.insert(TableId(id), table);
    }
    manifest.next_generation = 10_001;
    manifest
}

#[test]
fn an_edit_of_one_of_10_000_tables_writes_few_bytes() {
    let disk = SimulatedDisk::new(1);
    run(async {
        disk.create_directory(directory()).await.unwrap();
        let manifest = large();
        let mut files = ManifestFiles::new(directory());
        files.write(&disk, &manifest).await.unwrap();
        let whole_bytes = disk.files()[&path("manifest")].len() as u64;
        assert!(whole_bytes > 400_000, "{whole_bytes}");
        let ids: Vec<TableId> = manifest.tables.keys().copied().collect();
        let mut stored = StoredManifest::new(manifest, files);
        let (mut random, mut whole) = (SplitMix64::new(8), 0);
        let begin = disk.written_bytes();
        let edits = 12_000;
        for _ in 0..edits {
            // A flush: one more file.
            let mut edit = ManifestEdit::default();
            let table = edit.table(&stored, ids[random.below(10_000) as usize]).unwrap();
            let generation = stored.next_generation;
            table.flushed_to.offset += 10;
            table.files.push(ManifestFile { generation, ..table.files[0] });
            let before = disk.written_bytes();
            let change = edit.finish(&stored, generation + 1, 700);
            stored.change(&disk, &change).await.unwrap();
            let written = disk.written_bytes() - before;
            if written > 300 {
                whole += 1;
            }
        }
        let written = (disk.written_bytes() - begin) / edits;
        assert!((2..10).contains(&whole), "{whole} times as a whole");
        assert!(written < 700, "{written} bytes an edit, with those that write all");
        let loaded = load(&disk).unwrap();
        assert!(loaded.manifest == *stored && !loaded.must_be_written());
    });
    assert_eq!(names(&disk).len(), 4);
}

#[test]
fn changes_of_other_manifests_are_removed_and_nothing_else_is() {
    let disk = SimulatedDisk::new(1);
    let others =
        ["manifest.changes-x", "manifest.changes-007", "manifest.changes", "manifests.changes-0", "lock"];
    run(async {
        let mut stored = create(&disk).await;
        for name in others {
            disk.set_at_rest(&path(name), Some(b"x"));
        }
        let mut contents = stored.clone();
        contents.sequence += 1;
        let mut files = ManifestFiles::new(directory());
        files.write(&disk, &contents).await.unwrap();
        stored = StoredManifest::new(contents, files);
        assert!(load(&disk).unwrap().manifest == *stored);
    });
    let mut expected: Vec<String> = others.iter().map(|name| (*name).to_owned()).collect();
    expected.extend(
        ["manifest", "manifest.copy", "manifest.changes-2", "manifest.changes-2.copy"].map(str::to_owned),
    );
    expected.sort();
    assert_eq!(names(&disk), expected);
    assert!(!run(ManifestFiles::has_changes(&disk, directory())).unwrap());
    let unused: FileContents = filled().0.files();
    assert!(run(ManifestFiles::has_changes(&SimulatedDisk::with_files(1, &unused), directory())).unwrap());
}

#[test]
fn a_file_of_changes_that_cannot_be_written_any_more_is_left() {
    // Each call of the append, and each call of taking it back.
    for point in 0..4 {
        for second in 0..4 {
            let disk = SimulatedDisk::new(1);
            run(async {
                let mut stored = create(&disk).await;
                for seed in 0..3 {
                    let change = any_edit(&mut SplitMix64::new(seed), &stored, 3).0;
                    if seed == 1 {
                        disk.fail_at(disk.operations() + point, Fault::Error);
                        disk.fail_at(disk.operations() + point + 1 + second, Fault::Error);
                    }
                    // A second fault may fall into the writing of all.
                    let outcome = stored.change(&disk, &change).await;
                    disk.clear_faults();
                    match outcome {
                        Ok(()) => {}
                        Err(EditError::Replace(_)) if seed == 1 => return,
                        Err(error) => panic!("{point}, {second}: {error:?}"),
                    }
                }
                assert!(names(&disk).contains(&"manifest.changes-3".to_owned()), "{point}, {second}");
                let loaded = load(&disk).unwrap();
                assert!(loaded.manifest == *stored && !loaded.must_be_written());
            });
        }
    }
}

#[test]
fn a_manifest_that_cannot_be_written_leaves_the_present_one() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let stored = create(&disk).await;
        let before = disk.files();
        disk.set_capacity_bytes(disk.used_bytes());
        let mut contents = stored.clone();
        contents.sequence += 1;
        let outcome = ManifestFiles::new(directory()).write(&disk, &contents).await;
        assert!(matches!(outcome, Err(ReplaceError::Unchanged(_))), "{outcome:?}");
        let after = disk.files();
        assert!(before.iter().all(|(path, contents)| after[path] == *contents));
        assert!(load(&disk).unwrap().manifest == *stored);
    });
}
