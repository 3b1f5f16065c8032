use futures::executor::block_on;

use super::*;
use crate::{CrashStyle, DirectDisk, Fault, Persistence, ReadCorruption, SimulatedDisk, TwoCopies};

const KIND: RecordLogKind = RecordLogKind { magic: *b"TEST", version: 1 };
const ROOM: u64 = 200;
const NAMES: [&str; 2] = ["/log", "/log.copy"];

fn place() -> RecordLogPlace {
    RecordLogPlace::new(Path::new("/"), "log", KIND, 7)
}

/// Records of different lengths. The third spans sectors.
fn contents(number: usize) -> Vec<u8> {
    vec![number as u8 + 1; [3, 40, 1_100, 1, 9][number % 5]]
}

async fn create(disk: &SimulatedDisk, room: u64) -> Result<RecordLog, DiskError> {
    let log = place().create(disk, room).await?;
    disk.sync_directory(Path::new("/")).await?;
    Ok(log)
}

/// A disk with a log of `count` records.
fn filled(count: usize) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    block_on(async {
        let mut log = create(&disk, ROOM).await.unwrap();
        for number in 0..count {
            log.append(&disk, &[number as u8 + 1; 20]).await.unwrap();
        }
    });
    disk
}

fn load(disk: &SimulatedDisk) -> Result<Option<Records>, RecordLogError> {
    block_on(place().load(disk))
}

/// The number of records, and what is said of the copy that is not used.
fn found(disk: &SimulatedDisk) -> Result<(usize, Option<String>), String> {
    let records = load(disk).map_err(|error| error.to_string())?.ok_or("missing")?;
    Ok((records.contents.len(), records.defect.map(|defect| defect.to_string())))
}

#[test]
fn golden_bytes() {
    let disk = filled(1);
    let files = disk.files();
    let bytes = &files[Path::new("/log")];
    assert_eq!(*bytes, files[Path::new("/log.copy")]);
    assert_eq!(bytes.len() as u64, HEADER_BYTES as u64 + ROOM);
    let mut expected = b"TEST\x01".to_vec();
    expected.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([225, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(crc32fast::hash(&expected).to_le_bytes());
    let record = [&[20, 0, 0, 0][..], &[1; 20]].concat();
    expected.extend([20, 0, 0, 0]);
    expected.extend(crc32fast::hash(&record).to_le_bytes());
    expected.extend([1; 20]);
    assert_eq!(bytes[..expected.len()], expected);
    assert!(bytes[expected.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn every_appended_record_is_there_wherever_a_crash_comes() {
    let mut point = 0;
    loop {
        for style in CrashStyle::ALL {
            for seed in 0..4 {
                let disk = SimulatedDisk::new(point);
                block_on(disk.sync_directory(Path::new("/"))).unwrap();
                disk.crash_at(disk.operations() + point);
                let (mut is_made, mut appended) = (false, 0);
                let outcome: Result<(), ()> = block_on(async {
                    let mut log = create(&disk, 4_000).await.map_err(drop)?;
                    is_made = true;
                    for number in 0..6 {
                        log.append(&disk, &contents(number)).await.map_err(drop)?;
                        appended += 1;
                    }
                    Ok(())
                });
                disk.restart(style, point * 4 + seed);
                if is_made {
                    let records = load(&disk).unwrap().unwrap();
                    let count = records.contents.len();
                    assert!(count == appended || count == appended + 1, "{count}, not {appended}");
                    for (number, record) in records.contents.iter().enumerate() {
                        assert_eq!(*record, contents(number));
                    }
                    if count > appended && count < 6 {
                        assert!(outcome.is_err());
                    }
                } else {
                    assert!(!block_on(place().has_records(&disk)).unwrap(), "a log that was being made");
                }
                if outcome.is_ok() && style == CrashStyle::ALL[5] && seed == 3 {
                    return;
                }
            }
        }
        point += 1;
    }
}

#[test]
fn an_append_that_fails_has_not_happened_or_its_outcome_is_unknown() {
    let (mut unchanged, mut unknown) = (0, 0);
    // The first fault fails the append. The second one, or a crash, comes while it is taken back.
    for first in 0..4 {
        for second in 0..6 {
            for (index, style) in CrashStyle::ALL.into_iter().cycle().take(24).enumerate() {
                let fault = [Fault::Error, Fault::NoSpace, Fault::ShortWrite][index % 3];
                let disk = SimulatedDisk::new(index as u64);
                let outcome = block_on(async {
                    let mut log = create(&disk, 4_000).await.unwrap();
                    log.append(&disk, &contents(0)).await.unwrap();
                    let begin = disk.operations();
                    disk.fail_at(begin + first, fault);
                    match second {
                        0 => {}
                        1 | 2 => disk.fail_at(begin + first + second, fault),
                        _ => disk.crash_at(begin + first + second - 2),
                    }
                    let outcome = log.append(&disk, &contents(2)).await;
                    disk.clear_faults();
                    assert!(!log.has_room(1) || outcome.is_ok(), "it takes no more records");
                    outcome
                });
                disk.restart(style, index as u64);
                let (count, _) = found(&disk).unwrap();
                match outcome {
                    Ok(()) => assert_eq!(count, 2),
                    Err(ReplaceError::Unchanged(_)) => {
                        unchanged += 1;
                        assert_eq!(count, 1, "{first}, {second}, {fault:?}, {style:?}");
                    }
                    Err(ReplaceError::Unknown(_)) => {
                        unknown += 1;
                        assert!(count == 1 || count == 2);
                    }
                }
            }
        }
    }
    assert!(unchanged > 50 && unknown > 50, "{unchanged}, {unknown}");
}

/// A file system that writes no place twice needs room for the zeros too.
#[test]
fn an_append_is_taken_back_though_there_is_no_room_for_zeros_either() {
    let (mut unchanged, mut unknown) = ([0, 0], 0);
    for first in 0..4 {
        for seed in 0..100 {
            for style in CrashStyle::ALL {
                let disk = SimulatedDisk::new(seed);
                let outcome = block_on(async {
                    let mut log = create(&disk, 4_000).await.unwrap();
                    log.append(&disk, &contents(0)).await.unwrap();
                    let begin = disk.operations() + first;
                    disk.fail_at(begin, Fault::NoSpace);
                    disk.fail_at(begin + 1, Fault::NoSpace);
                    log.append(&disk, &contents(3)).await
                });
                disk.restart(style, seed);
                let (count, defect) = found(&disk).unwrap();
                match outcome {
                    Err(ReplaceError::Unchanged(error)) => {
                        assert!(
                            error.is_full() && !error.is_sync(),
                            "the failed sync may have lost anything"
                        );
                        assert_eq!((count, defect), (1, None), "{first}, {seed}, {style:?}");
                        unchanged[first as usize / 2] += 1;
                    }
                    Err(ReplaceError::Unknown(_)) => {
                        assert!(count == 1 || count == 2);
                        unknown += 1;
                    }
                    Ok(()) => panic!("it has failed"),
                }
            }
        }
    }
    assert!(unchanged[0] > 50 && unchanged[1] > 50 && unknown > 1_000, "{unchanged:?}, {unknown}");
}

#[test]
fn an_append_that_is_given_up_ends_the_log() {
    let disk = SimulatedDisk::new(1);
    block_on(async {
        let mut log = create(&disk, ROOM).await.unwrap();
        assert!(log.has_room(1));
        drop(log.append(&disk, b"given up"));
        assert!(log.has_room(1), "it has not begun");
        let begin = disk.operations();
        let mut append = Box::pin(log.append(&disk, b"given up"));
        while disk.operations() == begin {
            assert!(futures::poll!(append.as_mut()).is_pending());
        }
        drop(append);
        assert!(!log.has_room(1));
    });
}

#[test]
fn either_copy_may_be_missing_damaged_cut_or_older() {
    let older = filled(2).files()[Path::new("/log")].clone();
    let whole = filled(3).files()[Path::new("/log")].clone();
    for name in NAMES {
        let mut harms: Vec<Option<Vec<u8>>> = vec![None, Some(b"rubbish".to_vec()), Some(older.clone())];
        harms.extend((0..whole.len()).map(|length| Some(whole[..length].to_vec())));
        harms.extend((0..whole.len() * 8).map(|bit| {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            Some(flipped)
        }));
        for harm in harms {
            let disk = filled(3);
            disk.set_at_rest(Path::new(name), harm.as_deref());
            let (count, defect) = found(&disk).unwrap();
            assert_eq!(count, 3, "{name}");
            assert!(defect.unwrap().starts_with(&format!("{name}: ")), "{name}");
        }
    }
}

#[test]
fn without_a_whole_copy_no_record_is_missed() {
    let whole = filled(3).files()[Path::new("/log")].clone();
    // The end of the records, and of the last but one.
    let ends = [HEADER_BYTES + 3 * 28, HEADER_BYTES + 2 * 28];
    for length in 0..whole.len() {
        let disk = filled(3);
        for name in NAMES {
            disk.set_at_rest(Path::new(name), Some(&whole[..length]));
        }
        assert!(found(&disk).unwrap_err().starts_with("/log: "), "cut to {length}");
    }
    for bit in 0..whole.len() * 8 {
        let disk = filled(3);
        disk.set_at_rest(Path::new("/log.copy"), None);
        disk.flip_bit(Path::new("/log"), bit as u64);
        assert!(found(&disk).unwrap_err().starts_with("/log: "), "bit {bit}");
    }
    for start in ends[1] + 1..ends[0] {
        let disk = filled(3);
        for name in NAMES {
            disk.overwrite(Path::new(name), start, &vec![0; whole.len() - start]);
        }
        assert!(found(&disk).unwrap_err().contains("/log: the record at byte 81"), "zeros from {start}");
    }
    for name in NAMES {
        let disk = filled(3);
        disk.set_at_rest(Path::new(name), None);
        assert_eq!(found(&disk).unwrap().0, 3);
        disk.set_bad_medium(Some("log"));
        assert!(matches!(load(&disk), Err(RecordLogError::Disk(_))));
    }
    let disk = filled(3);
    block_on(place().remove(&disk)).unwrap();
    assert!(load(&disk).unwrap().is_none());
    block_on(place().remove(&disk)).unwrap();
}

#[test]
fn a_medium_that_fails_costs_one_copy() {
    let disk = filled(3);
    disk.set_bad_medium(Some("log.copy"));
    let (count, defect) = found(&disk).unwrap();
    assert_eq!(count, 3);
    assert!(defect.unwrap().starts_with("/log.copy: "));
}

#[test]
fn a_bit_that_one_read_flips_is_no_damage() {
    // A crash has torn the last record of the first copy, or has come before it was in the second one.
    let torn = filled(3);
    assert!(torn.flip_bit(Path::new("/log"), (HEADER_BYTES + 2 * 28 + 12) as u64 * 8));
    let (mut flipped, mut again) = (0, 0);
    for (is_torn, seed) in [false, true].into_iter().flat_map(|is_torn| (0..500).map(move |it| (is_torn, it)))
    {
        let files = if is_torn { torn.files() } else { filled(3).files() };
        let disk = SimulatedDisk::with_files(seed, &files);
        disk.set_at_rest(Path::new("/log.copy"), Some(&filled(2).files()[Path::new("/log")]));
        disk.set_read_corruption(Some(ReadCorruption {
            path_contains: String::new(),
            reads_per_mille: 300,
            bits_max: 1,
            persistence: Persistence::Transient,
        }));
        let begin = disk.operations();
        let found = found(&disk);
        if disk.corrupt_reads() == 1 {
            flipped += 1;
            again += u64::from(disk.operations() - begin > 2);
            let (count, _) = found.unwrap_or_else(|error| panic!("{is_torn}, {seed}: {error}"));
            assert!(count == 2 || (!is_torn && count == 3), "{count}");
        }
    }
    assert!(flipped > 200 && again > 50, "{flipped}, {again}");
}

#[test]
fn an_older_whole_copy_beside_a_damaged_newer_one_is_refused() {
    let older = filled(1).files()[Path::new("/log")].clone();
    for [harmed, old] in [NAMES, ["/log.copy", "/log"]] {
        let disk = filled(3);
        disk.set_at_rest(Path::new(old), Some(&older));
        // The last record of the newer one is damaged. The one before it is not in the older one.
        assert!(disk.flip_bit(Path::new(harmed), (HEADER_BYTES + 2 * 28 + 12) as u64 * 8));
        assert!(found(&disk).unwrap_err().starts_with(&format!("{harmed}: ")));
    }
}

/// A disk on which the second append was cut off or has failed, and then the process has ended. The system has kept everything, also
/// what was not synced and what a failed sync has lost. `first`: the call of the append with which it began, `second`: what came while
/// the append was taken back.
fn ended_in_an_append(first: u64, second: u64, fault: Fault) -> SimulatedDisk {
    let disk = SimulatedDisk::new(first * 10 + second);
    block_on(async {
        let mut log = create(&disk, 4_000).await.unwrap();
        log.append(&disk, &contents(0)).await.unwrap();
        let begin = disk.operations() + first;
        match second {
            0 => disk.crash_at(begin),
            1 => disk.fail_at(begin, fault),
            2..5 => {
                disk.fail_at(begin, fault);
                disk.fail_at(begin + second - 1, fault);
            }
            _ => {
                disk.fail_at(begin, fault);
                disk.crash_at(begin + second - 4);
            }
        }
        assert!(log.append(&disk, &contents(2)).await.is_err());
    });
    disk.restart(CrashStyle::KeepAll, 0);
    disk
}

#[test]
fn no_crash_takes_back_what_was_read_and_mended() {
    let (mut lengths, mut cut_off) = ([0, 0], 0);
    for (first, second) in (0..4).flat_map(|first| (0..9).map(move |second| (first, second))) {
        for fault in [Fault::Error, Fault::ShortWrite] {
            for (style, calls) in
                CrashStyle::ALL.into_iter().flat_map(|style| (0..7).map(move |it| (style, it)))
            {
                let what = format!("{first}, {second}, {fault:?}, {style:?}, {calls}");
                let disk = ended_in_an_append(first, second, fault);
                let records = load(&disk).unwrap().unwrap();
                let count = records.contents.len();
                disk.crash_at(disk.operations() + calls);
                let mended = block_on(place().mend(&disk, &records));
                disk.restart(style, calls);
                let (now, defect) = found(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                if let Ok(Mended { defect: None, is_durable: true }) = mended {
                    assert_eq!((now, defect), (count, None), "{what}");
                    lengths[count - 1] += 1;
                } else {
                    assert!(now == 1 || now == 2, "{what}");
                    cut_off += 1;
                }
            }
        }
    }
    assert!(lengths[0] > 50 && lengths[1] > 50 && cut_off > 200, "{lengths:?}, {cut_off}");
}

#[test]
fn a_harmed_copy_is_mended_where_it_lies_and_needs_no_room() {
    let older = filled(2).files()[Path::new("/log")].clone();
    let whole = filled(3).files()[Path::new("/log")].clone();
    for name in NAMES {
        let mut harms = vec![older.clone(), vec![7; whole.len()]];
        harms.extend((0..whole.len()).map(|byte| {
            let mut flipped = whole.clone();
            flipped[byte] ^= 1;
            flipped
        }));
        for harm in harms {
            let disk = filled(3);
            disk.set_at_rest(Path::new(name), Some(&harm));
            disk.set_capacity_bytes(disk.used_bytes());
            let records = load(&disk).unwrap().unwrap();
            let mended = block_on(place().mend(&disk, &records)).unwrap();
            assert!(mended.is_durable && mended.defect.is_none());
            disk.restart(CrashStyle::LoseAll, 0);
            assert_eq!(found(&disk).unwrap(), (3, None));
            assert_eq!(disk.files()[Path::new(name)], whole);
        }
        // These need room, or a name.
        for harm in [None, Some(&whole[..30])] {
            let disk = filled(3);
            disk.set_at_rest(Path::new(name), harm);
            disk.set_capacity_bytes(disk.used_bytes());
            let records = load(&disk).unwrap().unwrap();
            let mended = block_on(place().mend(&disk, &records)).unwrap();
            let left = mended.defect.unwrap();
            assert_eq!((left.path.as_path(), left.is_missing), (Path::new(name), harm.is_none()));
            assert!(mended.is_durable);
            assert_eq!(found(&disk).unwrap().0, 3);
        }
    }
}

#[test]
fn a_log_is_not_mended_unless_one_copy_is_durable() {
    // The calls of a mending: open, write and sync the one, open, write and sync the other.
    for call in 0..6 {
        for fault in [Fault::Error, Fault::NoSpace] {
            for is_harmed in [false, true] {
                let disk = filled(3);
                if is_harmed {
                    assert!(disk.flip_bit(Path::new("/log.copy"), 0));
                }
                let records = load(&disk).unwrap().unwrap();
                disk.fail_at(disk.operations() + call, fault);
                let mended = block_on(place().mend(&disk, &records));
                let what = format!("{call}, {fault:?}, {is_harmed}: {mended:?}");
                disk.restart(CrashStyle::LoseAll, 0);
                assert_eq!(found(&disk).unwrap().0, 3, "{what}");
                let path_of = |mended: &Mended| mended.defect.as_ref().map(|defect| defect.path.clone());
                let [first, second] = NAMES.map(|name| Some(PathBuf::from(name)));
                let found = mended.map(|mended| (path_of(&mended), mended.is_durable)).ok();
                let expected = match (fault, call) {
                    // What the copy has is synced instead.
                    (Fault::NoSpace, 1) => Some((None, true)),
                    (Fault::NoSpace, 4) => Some((second.filter(|_| is_harmed), true)),
                    (_, 0..=2) if is_harmed => None,
                    (_, 0..=2) => Some((first, false)),
                    _ => Some((second, false)),
                };
                assert_eq!(found, expected, "{what}");
            }
        }
    }
    // Neither copy can be written.
    let disk = filled(3);
    let records = load(&disk).unwrap().unwrap();
    for call in [0, 1] {
        disk.fail_at(disk.operations() + call, Fault::Error);
    }
    assert!(block_on(place().mend(&disk, &records)).is_err());
}

/// An older whole copy beside one with four records, of which one is damaged at each byte in turn: whatever the older one does not have was
/// appended, and may not be taken for a torn end.
#[test]
fn a_damaged_record_with_others_behind_it_is_no_torn_end() {
    let newer = filled(4).files()[Path::new("/log")].clone();
    let mut refused = 0;
    for (count, [harmed, old]) in
        (0..4).flat_map(|count| [NAMES, ["/log.copy", "/log"]].map(|it| (count, it)))
    {
        let older = filled(count).files()[Path::new("/log")].clone();
        for (byte, bit) in (0..HEADER_BYTES + 4 * 28).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let disk = SimulatedDisk::new(1);
            disk.set_at_rest(Path::new(old), Some(&older));
            disk.set_at_rest(Path::new(harmed), Some(&newer));
            assert!(disk.flip_bit(Path::new(harmed), (byte * 8 + bit) as u64));
            // The last record of the first copy may have been torn by a crash.
            let may_be_torn = count == 3 && harmed == "/log" && byte >= HEADER_BYTES + 3 * 28;
            match found(&disk) {
                Ok((found, defect)) => {
                    assert!(may_be_torn && found == 3, "{harmed}: {found} of {count}, byte {byte}");
                    assert!(defect.unwrap().starts_with("/log: "));
                }
                Err(error) => {
                    assert!(!may_be_torn && error.starts_with(&format!("{harmed}: ")), "{error}");
                    assert!(
                        error.contains("its copy is older: it does not have all of its records"),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 7_000, "{refused}");
}

#[test]
fn copies_with_different_records_are_refused() {
    let disk = filled(2);
    let other = SimulatedDisk::new(1);
    block_on(async {
        let mut log = create(&other, ROOM).await.unwrap();
        log.append(&other, b"another history").await.unwrap();
    });
    disk.set_at_rest(Path::new("/log"), Some(&other.files()[Path::new("/log")]));
    assert!(found(&disk).unwrap_err().contains("/log and /log.copy have different records"));
}

#[test]
fn logs_of_other_numbers_and_newer_versions_are_not_taken_for_this_one() {
    let disk = filled(2);
    let other = RecordLogPlace { number: 8, ..place() };
    assert!(block_on(other.load(&disk)).unwrap_err().to_string().contains("number 7, not 8"));
    let newer = RecordLogPlace { kind: RecordLogKind { version: 2, ..KIND }, ..place() };
    let written = SimulatedDisk::new(1);
    block_on(newer.create(&written, ROOM)).unwrap();
    disk.set_at_rest(Path::new("/log"), Some(&written.files()[Path::new("/log")]));
    let error = found(&disk).unwrap_err();
    assert!(error.contains("/log has version 2; this program knows versions up to 1"), "{error}");
}

#[test]
fn a_log_on_a_full_disk_has_no_room() {
    let disk = SimulatedDisk::new(1);
    // Room for the first copy alone: both get none.
    disk.set_capacity_bytes(HEADER_BYTES as u64 * 3 + ROOM);
    let log = block_on(create(&disk, ROOM)).unwrap();
    assert!(!log.has_room(1));
    assert_eq!(found(&disk).unwrap(), (0, None));
    disk.set_capacity_bytes(u64::MAX);
    let mut log = block_on(create(&disk, ROOM)).unwrap();
    let mut count = 0;
    while log.has_room(20) {
        block_on(log.append(&disk, &[1; 20])).unwrap();
        count += 1;
    }
    assert_eq!(count, ROOM / 28);
    assert!(log.has_room(4) == (ROOM % 28 >= 12) && !log.has_room(0));
    assert_eq!(found(&disk).unwrap(), (count as usize, None));
}

#[test]
fn a_real_disk_keeps_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let place = RecordLogPlace::new(directory.path(), "log", KIND, 7);
    let disk = DirectDisk::new();
    block_on(async {
        for _ in 0..2 {
            let mut log = place.create(&disk, 4_000).await.unwrap();
            for number in 0..3 {
                assert!(log.has_room(contents(number).len()));
                log.append(&disk, &contents(number)).await.unwrap();
            }
            assert!(place.has_records(&disk).await.unwrap());
            let records = place.load(&disk).await.unwrap().unwrap();
            assert!(records.defect.is_none());
            assert_eq!(records.contents, [contents(0), contents(1), contents(2)]);
        }
        place.remove(&disk).await.unwrap();
        assert!(place.load(&disk).await.unwrap().is_none());
    });
}

#[test]
fn a_log_does_not_disturb_the_file_that_it_continues() {
    let disk = SimulatedDisk::new(1);
    let file = TwoCopies::new(Path::new("/"), "file");
    block_on(file.replace(&disk, Bytes::from_static(b"base"))).unwrap();
    let before = disk.files();
    block_on(create(&disk, ROOM)).unwrap();
    let after = disk.files();
    assert!(before.iter().all(|(path, contents)| after[path] == *contents));
}
