//! Flipped bits, cut files and lost headers.

use super::*;

use crate::frame::DAMAGE;
use crate::header::HEADER_AREA_BYTES;

fn read(disk: &dyn Disk, path: &str) -> Bytes {
    block_on(disk.read(Path::new(path))).unwrap()
}

/// A file of three frames in one slot, each of them synced, and one in the next slot.
fn log(disk: &dyn Disk) -> Vec<u8> {
    let mut contents = Vec::new();
    block_on(async {
        let file = disk.create(Path::new("/log")).await.unwrap();
        file.reserve(12_000).await.unwrap();
        for (value, length) in [(1, 300), (2, 700), (3, 2_000), (4, 5_000)] {
            let data = vec![value; length];
            file.write_and_sync_at(contents.len() as u64, Bytes::from(data.clone())).await.unwrap();
            contents.extend(data);
        }
    });
    contents.resize(12_000, 0);
    contents
}

#[test]
fn no_flipped_bit_changes_what_is_read_but_to_the_pattern_of_damage() {
    let below = SimulatedDisk::new(1);
    let contents = log(&encrypted(&below, ONE, 1));
    let stored = below.files()[Path::new("/log")].clone();
    let mut damaged = 0;
    for bit in (0..stored.len() as u64 * 8).step_by(37) {
        let is_written = stored[(bit / 8) as usize] != 0 || bit / 8 < 4096;
        let disk = SimulatedDisk::with_files(1, &below.files());
        assert!(disk.flip_bit(Path::new("/log"), bit));
        let found = read(&encrypted(&disk, ONE, 2), "/log");
        // Zeros that nothing has written are not protected: the file's own checksums do that.
        assert!([8_000, 12_000].contains(&found.len()) || !is_written, "bit {bit}: {}", found.len());
        let wrong = found.iter().zip(&contents).filter(|(found, written)| found != written);
        let wrong: Vec<u8> = wrong.map(|(found, _)| *found).collect();
        assert!(wrong.iter().all(|byte| *byte == DAMAGE), "bit {bit}");
        assert!(
            found[8_000..].iter().all(|byte| *byte == 0) || !is_written,
            "bit {bit}: nothing behind the end is damaged"
        );
        if bit / 8 < HEADER_AREA_BYTES as u64 {
            assert!(wrong.is_empty(), "bit {bit}: the header has two copies");
        }
        damaged += usize::from(!wrong.is_empty());
    }
    assert!(damaged > 100, "{damaged}");
}

#[test]
fn damage_of_a_table_is_in_one_slot() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    let contents = secret(100_000);
    write(&disk, "/table", contents.clone());
    for bit in (0..108_000_u64 * 8).step_by(4_999) {
        let below = SimulatedDisk::with_files(1, &below.files());
        if !below.flip_bit(Path::new("/table"), bit) {
            continue;
        }
        let disk = encrypted(&below, ONE, 1);
        let complete = block_on(disk.open_complete(Path::new("/table"))).unwrap();
        let mut found = vec![0; complete.length() as usize];
        complete.read_at(0, &mut found).unwrap();
        assert!(found == read(&disk, "/table"), "bit {bit}");
        let wrong: Vec<usize> = (0..found.len()).filter(|at| found[*at] != contents[*at]).collect();
        assert!(wrong.iter().all(|at| found[*at] == DAMAGE), "bit {bit}");
        assert!(wrong.len() <= 4_096 && found.len() > 90_000, "bit {bit}");
    }
}

#[test]
fn frames_are_not_taken_from_other_places_or_other_files() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    write(&disk, "/a", secret(9_000));
    write(&disk, "/b", secret(9_000));
    let files = below.files();
    let slot =
        |path: &str, number: usize| files[Path::new(path)][4096 * (number + 1)..4096 * (number + 2)].to_vec();
    for moved in [slot("/a", 1), slot("/b", 0)] {
        let below = SimulatedDisk::with_files(1, &files);
        assert!(below.overwrite(Path::new("/a"), 4096, &moved));
        let found = read(&encrypted(&below, ONE, 1), "/a");
        assert!(found[..4040].iter().all(|byte| *byte == DAMAGE) && found[4040..] == secret(9_000)[4040..]);
    }
}

#[test]
fn a_file_without_a_whole_header_is_read_as_it_is_and_written_encrypted() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    write(&disk, "/a", secret(9_000));
    assert!(below.overwrite(Path::new("/a"), 16, &[9; 4_000]));
    let stored = below.files()[Path::new("/a")].clone();
    assert_eq!(read(&disk, "/a"), stored);
    block_on(async {
        let file = disk.open(Path::new("/a")).await.unwrap();
        file.write_and_sync_at(0, secret(100)).await.unwrap();
    });
    assert!(read(&disk, "/a")[..100] == secret(100) && !has_secret(&below.files()[Path::new("/a")]));
}

#[test]
fn a_file_that_was_cut_is_shorter_and_nothing_else() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    let contents = secret(20_000);
    write(&disk, "/a", contents.clone());
    for length in (0..20_000).rev().step_by(997) {
        below.truncate(Path::new("/a"), length);
        let found = block_on(disk.open_complete(Path::new("/a"))).unwrap();
        if length < HEADER_AREA_BYTES {
            continue;
        }
        assert!(found.length() < 20_000);
        let found = read(&disk, "/a");
        let wrong = found.iter().zip(&contents).filter(|(found, written)| found != written);
        assert!(wrong.into_iter().all(|(found, _)| *found == DAMAGE), "{length}");
    }
}
