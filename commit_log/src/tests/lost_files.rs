//! A file of the log that is gone, cut, or not the one it was, is an error that names it.

use super::super::format::{SEGMENT_HEADER_BYTES, open_segment};
use super::*;

/// A disk with a log of several segments, closed.
fn disk_with_log() -> (SimulatedDisk, Records, Vec<u64>) {
    let disk = SimulatedDisk::new(1);
    let written = write_groups(&disk, 60);
    let segments = segments_of(&disk).segments;
    assert!(segments.len() >= 4, "{segments:?}");
    (disk, written, segments)
}

fn path_of(segment: u64) -> std::path::PathBuf {
    file_path(directory(), Role::Segment, segment)
}

/// With `DamagePolicy::Skip`.
fn skipped(disk: &SimulatedDisk, needed_from: u64) -> Records {
    let options = CommitLogOptions { damage: DamagePolicy::Skip, ..options(SyncMode::Group) };
    block_on(recover_from(disk, options, &Rc::default(), needed_from)).unwrap().1
}

#[test]
fn a_missing_segment_is_named() {
    let (_, written, segments) = disk_with_log();
    let newest_record = written.last().unwrap().0.segment;
    for &segment in &segments {
        let (disk, ..) = disk_with_log();
        block_on(disk.remove(&path_of(segment))).unwrap();
        let is_lost = |needed_from| match replayed_from(&disk, needed_from) {
            Err(CommitLogError::Missing { path }) => {
                assert_eq!(path, path_of(segment));
                true
            }
            Ok(read) => {
                assert!(read.iter().all(|record| written.contains(record)));
                false
            }
            Err(error) => panic!("{error}"),
        };
        // Only the manifest can tell that the first segment, or the newest, is missing.
        let is_inside = segment > segments[0] && segment < *segments.last().unwrap();
        assert_eq!(is_lost(0), is_inside, "segment {segment}");
        if segment <= newest_record {
            assert!(is_lost(segment));
        }
        let read = skipped(&disk, segment);
        assert!(!read.is_empty() && read.iter().all(|record| written.contains(record)));
    }
}

#[test]
fn a_log_that_is_gone_is_missed_if_the_manifest_needs_it() {
    let disk = SimulatedDisk::new(1);
    assert!(matches!(replayed_from(&disk, 7), Err(CommitLogError::Missing { path }) if path == path_of(7)));
    assert_eq!(replayed_from(&disk, 0).unwrap(), []);
}

#[test]
fn a_segment_that_was_cut_is_named() {
    let (disk, written, segments) = disk_with_log();
    let whole = block_on(disk.length(&path_of(segments[1]))).unwrap();
    for segment in [segments[1], *segments.last().unwrap()] {
        for length in [0, 10, SEGMENT_HEADER_BYTES as u64 - 1, SEGMENT_HEADER_BYTES as u64, whole - 1] {
            let (disk, ..) = disk_with_log();
            assert!(disk.truncate(&path_of(segment), length as usize));
            match replayed(&disk) {
                Err(CommitLogError::Damaged { path, offset, .. }) => {
                    assert_eq!(path, path_of(segment));
                    assert!(offset == length || (offset == 0 && length < 48), "{offset} of {length}");
                }
                other => panic!("{segment} cut to {length}: {other:?}"),
            }
            assert!(skipped(&disk, 0).iter().all(|record| written.contains(record)));
        }
    }
}

#[test]
fn a_segment_without_its_header_is_named() {
    let (disk, _, segments) = disk_with_log();
    for &segment in &segments {
        let (other, ..) = disk_with_log();
        assert!(other.overwrite(&path_of(segment), 0, &[0; SEGMENT_HEADER_BYTES]));
        assert!(matches!(
            replayed(&other),
            Err(CommitLogError::Damaged { path, offset: 0, .. }) if path == path_of(segment)
        ));
        skipped(&other, 0);
    }
    // A file that is called like another one.
    let stolen = block_on(disk.read(&path_of(segments[0]))).unwrap();
    assert!(disk.overwrite(&path_of(segments[1]), 0, &stolen));
    assert!(matches!(
        replayed(&disk),
        Err(CommitLogError::Damaged { path, offset: 0, .. }) if path == path_of(segments[1])
    ));
}

#[test]
fn what_the_manifest_needs_is_there_at_every_start() {
    for records in 1..60 {
        let disk = SimulatedDisk::new(records);
        block_on(async {
            let (log, _) = recover(&disk, options(SyncMode::Batch), &Rc::default()).await.unwrap();
            assert_eq!(log.lowest_needed(None), 0, "there is no segment yet");
            beside(&log, async {
                for number in 0..records as usize {
                    // Not awaited: the newest segment need not exist.
                    log.append(&record(number)).unwrap();
                    let needed_from = log.lowest_needed(None);
                    assert!(needed_from <= log.end_position().segment);
                    let is_there = segments_now(&disk).await.contains(&needed_from);
                    assert!(needed_from == 0 || is_there, "{needed_from}");
                }
            })
            .await;
        });
    }
}

async fn segments_now(disk: &SimulatedDisk) -> Vec<u64> {
    LogDirectory::read(disk, directory()).await.unwrap().segments
}

#[test]
fn each_life_of_a_file_has_another_salt() {
    let (disk, ..) = disk_with_log();
    let mut salts = std::collections::BTreeSet::new();
    for round in 0..4 {
        for segment in segments_of(&disk).segments {
            let bytes = block_on(disk.read(&path_of(segment))).unwrap();
            salts.insert((segment, open_segment(&bytes).unwrap().salt.0));
        }
        write_groups(&disk, 10 + round);
    }
    let segments: std::collections::BTreeSet<_> = salts.iter().map(|(segment, _)| *segment).collect();
    let distinct: std::collections::BTreeSet<_> = salts.iter().map(|(_, salt)| *salt).collect();
    assert!(segments.len() > 5 && distinct.len() == salts.len(), "{salts:?}");
    assert_eq!(segments.len(), salts.len(), "a segment keeps its salt");
}
