//! Edits that are cut off at every call of the disk, and calls that fail. A start finds what was acknowledged, and perhaps the edit that was
//! under way.

use super::*;
use crate::io::{CrashStyle, DiskError, Fault, ReplaceError};

/// Enough to begin a new manifest several times.
const EDITS: u64 = 14;
/// Files that a table gets in one edit, at most: a few such edits fill the changes.
const SIZE: u64 = 500;

fn edit(number: u64, manifest: &Manifest) -> Change {
    any_edit(&mut SplitMix64::new(number * 77 + 5), manifest, SIZE).0
}

/// The manifests that the edits lead to.
fn states() -> Vec<Manifest> {
    let mut states = vec![Manifest { sequence: 1, ..Manifest::new() }];
    for number in 0..EDITS {
        let mut next = states[number as usize].clone();
        edit(number, &next).apply(&mut next).unwrap();
        states.push(next);
    }
    states
}

/// Makes edits until one fails. Returns how many were made, and the failure.
async fn make_edits(
    disk: &SimulatedDisk,
    stored: &mut StoredManifest,
    from: u64,
) -> (u64, Option<EditError>) {
    for number in from..EDITS {
        let change = edit(number, stored);
        if let Err(error) = stored.change(disk, &change).await {
            return (number, Some(error));
        }
    }
    (EDITS, None)
}

/// Reads the manifest as a start does, and makes the rest of the edits.
fn go_on(disk: &SimulatedDisk, states: &[Manifest], made: &[u64], what: &str) {
    let loaded = load(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let number = loaded.manifest.sequence - 1;
    assert!(made.contains(&number), "{what}: {number} edits, not {made:?}");
    assert!(loaded.manifest == states[number as usize], "{what}");
    run(async {
        let mut files = ManifestFiles::new(directory());
        let must_be_written = loaded.must_be_written();
        let mut contents = loaded.manifest;
        if must_be_written {
            files.write(disk, &contents).await.unwrap();
            let loaded = load(disk).unwrap();
            assert!(!loaded.must_be_written() && loaded.manifest == contents, "{what}");
        }
        contents.sequence += 1;
        files.write(disk, &contents).await.unwrap();
        let mut stored = StoredManifest::new(contents, files);
        if let Some(error) = make_edits(disk, &mut stored, number).await.1 {
            panic!("{what}: {error:?}");
        }
        let loaded = load(disk).unwrap();
        assert!(!loaded.must_be_written() && loaded.manifest == *stored, "{what}");
        assert_eq!(loaded.manifest.tables, states[EDITS as usize].tables, "{what}");
    });
    assert_eq!(names(disk).len(), 4, "{what}: {:?}", names(disk));
}

#[test]
fn what_was_acknowledged_is_there_wherever_a_crash_comes() {
    let states = states();
    let rehearsal = SimulatedDisk::new(1);
    let operations = run(async {
        let mut stored = create(&rehearsal).await;
        let begin = rehearsal.operations();
        assert_eq!(make_edits(&rehearsal, &mut stored, 0).await.0, EDITS);
        rehearsal.operations() - begin
    });
    let is_whole = |name: &String| name.starts_with("manifest.changes-") && name != "manifest.changes-1";
    assert!(operations > 80 && names(&rehearsal).iter().any(is_whole), "{operations}");
    for point in 0..operations {
        for (index, style) in CrashStyle::ALL.into_iter().enumerate() {
            let seed = point * 6 + index as u64;
            let disk = SimulatedDisk::new(seed);
            let (made, failure) = run(async {
                let mut stored = create(&disk).await;
                disk.crash_at(disk.operations() + point);
                make_edits(&disk, &mut stored, 0).await
            });
            disk.restart(style, seed);
            // What a removal leaves is no failure.
            assert!(failure.is_some() || made == EDITS);
            go_on(&disk, &states, &[made, (made + 1).min(EDITS)], &format!("crash at {point}, {style:?}"));
        }
    }
}

#[test]
fn an_edit_that_fails_is_not_there_or_its_outcome_is_unknown() {
    let states = states();
    let (mut unchanged, mut unknown) = (0, 0);
    for point in 0.. {
        let mut happened = false;
        for fault in [Fault::Error, Fault::NoSpace, Fault::ShortWrite] {
            for style in [CrashStyle::KeepAll, CrashStyle::LoseAll, CrashStyle::RandomSectors] {
                let what = format!("{fault:?} at {point}, {style:?}");
                let disk = SimulatedDisk::new(point);
                let made: Vec<u64> = run(async {
                    let mut stored = create(&disk).await;
                    let begin = disk.operations();
                    disk.fail_at(begin + point, fault);
                    let (made, failure) = make_edits(&disk, &mut stored, 0).await;
                    happened |= disk.operations() > begin + point;
                    assert!(*stored == states[made as usize], "{what}");
                    match failure {
                        None => vec![made],
                        Some(EditError::Replace(ReplaceError::Unknown(_))) => {
                            unknown += 1;
                            vec![made, made + 1]
                        }
                        Some(EditError::Replace(ReplaceError::Unchanged(_))) => {
                            unchanged += 1;
                            if style == CrashStyle::RandomSectors {
                                return vec![made];
                            }
                            // It can be made again.
                            assert_eq!(make_edits(&disk, &mut stored, made).await.0, EDITS, "{what}");
                            assert!(*stored == states[EDITS as usize], "{what}");
                            vec![EDITS]
                        }
                        Some(EditError::Broken(error)) => panic!("{what}: {error}"),
                    }
                });
                disk.restart(style, point);
                go_on(&disk, &states, &made, &what);
            }
        }
        if !happened {
            break;
        }
    }
    assert!(unchanged > 200 && unknown > 10, "{unchanged} and {unknown}");
}

#[test]
fn a_full_disk_costs_no_edit_that_was_made() {
    let states = states();
    let (mut refused, mut without_room) = (0, 0);
    for free_bytes in (0..150_000).step_by(700) {
        let disk = SimulatedDisk::new(free_bytes);
        let made = run(async {
            let mut stored = create(&disk).await;
            disk.set_capacity_bytes(disk.used_bytes() + free_bytes);
            let (mut made, failure) = make_edits(&disk, &mut stored, 0).await;
            assert!(load(&disk).unwrap().manifest == states[made as usize]);
            match failure {
                None => without_room += u64::from(names(&disk).len() == 4),
                Some(EditError::Replace(ReplaceError::Unchanged(error))) => {
                    assert!(error.is_full(), "{error}");
                    refused += 1;
                }
                Some(other) => panic!("{other:?}"),
            }
            disk.set_capacity_bytes(u64::MAX);
            if made % 2 == 0 {
                made = make_edits(&disk, &mut stored, made).await.0;
                assert_eq!(made, EDITS);
            }
            made
        });
        disk.restart(CrashStyle::LoseAll, free_bytes);
        go_on(&disk, &states, &[made], &format!("{free_bytes} bytes"));
    }
    assert!(refused > 20 && without_room > 20, "{refused}, {without_room}");
}

/// A start: what it has read, and whether it has come to the end.
async fn start(disk: &SimulatedDisk, read: &mut Option<Manifest>) -> Result<(), DiskError> {
    let Ok(Some(mut loaded)) = ManifestFiles::load(disk, directory()).await else {
        assert!(disk.is_crashed(), "what a crash has left is readable");
        return Ok(());
    };
    loaded.mend(disk).await?;
    let mut files = ManifestFiles::new(directory());
    assert!(loaded.can_wait_for_room() || disk.is_crashed());
    if loaded.can_wait_for_room() {
        // A start acts on it if there is no room to write it.
        files.rely_on_one_copy(disk, &loaded).await?;
        *read = Some(loaded.manifest.clone());
    }
    loaded.manifest.sequence += 1;
    let written = files.write(disk, &loaded.manifest).await;
    written.map_err(ReplaceError::into_disk_error)
}

#[test]
fn no_loss_of_power_takes_back_what_a_start_has_read() {
    // The process ends in an edit, or the disk fails and so does taking the edit back. The system has kept what was written, until the
    // power goes during the next start.
    let (mut ended, mut acted) = (0, 0);
    let appended = (0..5).flat_map(|point| (0..4).map(move |failures| (point, failures, false)));
    // No call fails when the manifest is written as a whole.
    for (point, failures, is_whole) in appended.chain((0..24).map(|point| (point, 0, true))) {
        for (calls, style) in (0..40).flat_map(|calls| CrashStyle::ALL.map(|style| (calls, style))) {
            let what = format!(
                "end at {point}, {failures} failures, power until call {calls}, {style:?}, {is_whole}"
            );
            let disk = SimulatedDisk::new(point);
            let (states, failed) = run(async {
                let mut stored = create(&disk).await;
                stored.change(&disk, &any_edit(&mut SplitMix64::new(1), &stored, 3).0).await.unwrap();
                if is_whole {
                    stored = StoredManifest::new(stored.clone(), ManifestFiles::new(directory()));
                }
                let before = stored.clone();
                let (change, after) = any_edit(&mut SplitMix64::new(6), &stored, 3);
                let begin = disk.operations() + point;
                (0..failures).for_each(|failure| disk.fail_at(begin + failure, Fault::Error));
                disk.crash_at(begin + failures);
                let failed = stored.change(&disk, &change).await.is_err();
                ([before, after], failed)
            });
            disk.restart(CrashStyle::KeepAll, 0);
            let mut read = None;
            disk.crash_at(disk.operations() + calls);
            let outcome = run(start(&disk, &mut read));
            disk.restart(style, calls);
            let mut loaded = load(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            let sequence = std::mem::replace(&mut loaded.manifest.sequence, 0);
            let found =
                states.iter().position(|state| loaded.manifest == Manifest { sequence: 0, ..state.clone() });
            let found = found.unwrap_or_else(|| panic!("{what}: none of both"));
            assert!(failed || found == 1, "{what}");
            if let Some(read) = read {
                assert!(read == states[found], "{what}: the next start finds another one");
                acted += 1;
            }
            ended += u64::from(outcome.is_ok() && sequence > states[found].sequence);
        }
    }
    assert!(ended > 50 && acted > 800, "{ended}, {acted}");
}

#[test]
fn the_room_for_changes_is_not_what_an_edit_lacks() {
    // The least room with which an edit that writes all succeeds, beside the files that are there: for a header of each copy of the
    // changes, and for both copies of the manifest.
    let rehearsal = SimulatedDisk::new(1);
    let (files, contents) = run(async {
        let mut stored = create(&rehearsal).await;
        stored.change(&rehearsal, &edit(0, &stored)).await.unwrap();
        stored.change(&rehearsal, &edit(1, &stored)).await.unwrap();
        (rehearsal.files(), stored.clone())
    });
    let change = edit(2, &contents);
    let mut after = contents.clone();
    change.apply(&mut after).unwrap();
    let least = 2 * (25 + super::super::format::encode(&after).len()) as u64;
    let room = 2 * super::super::stored::CHANGES_BYTES_MIN;
    for free_bytes in (least..least + room + 2_000).step_by(97).chain([least - 1]) {
        let disk = SimulatedDisk::with_files(free_bytes, &files);
        disk.set_capacity_bytes(disk.used_bytes() + free_bytes);
        let mut stored = StoredManifest::new(contents.clone(), ManifestFiles::new(directory()));
        let outcome = run(stored.change(&disk, &change));
        assert_eq!(outcome.is_ok(), free_bytes >= least, "{free_bytes} of {least}: {outcome:?}");
        let loaded = load(&disk).unwrap();
        assert!(loaded.manifest == *stored && !loaded.must_be_written(), "{free_bytes}");
        // With room again it has changes again.
        disk.set_capacity_bytes(u64::MAX);
        for number in 2..5 {
            run(stored.change(&disk, &edit(number, &stored))).unwrap();
        }
        let loaded = load(&disk).unwrap();
        assert!(loaded.manifest == *stored && !loaded.must_be_written(), "{free_bytes}");
    }
}
