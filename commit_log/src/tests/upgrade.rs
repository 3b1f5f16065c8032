//! Logs of version 1 are read, and go on as version 2.

use super::super::format::GroupHeader;
use super::super::version_1;
use super::*;

/// A log as the program of version 1 left it: segments by number, with records, and one that was prepared.
fn version_1_disk(numbers: &[u64]) -> (SimulatedDisk, Records) {
    let disk = SimulatedDisk::new(1);
    let mut written = Vec::new();
    block_on(async {
        disk.create_directory(directory()).await.unwrap();
        let mut sequence = 1;
        for &number in numbers {
            let first = sequence;
            let mut bytes = Vec::new();
            for _ in 0..3 {
                let content = record(sequence as usize);
                let offset = (bytes.len() + version_1::GROUP_HEADER_BYTES) as u64;
                let payload = [&(content.len() as u32).to_le_bytes()[..], &content].concat();
                let header = GroupHeader {
                    payload_length: payload.len() as u32,
                    records: 1,
                    segment: number,
                    sequence,
                    durable_sequence: sequence,
                    segment_first_sequence: first,
                };
                bytes.extend_from_slice(&version_1::sealed(&header, &payload));
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                written.push((LogPosition { segment: number, offset }, Bytes::from(content)));
                sequence += 1;
            }
            bytes.resize(4096, 0);
            let file = disk.create(&file_path(directory(), Role::Segment, number)).await.unwrap();
            file.write_and_sync_at(0, bytes.into()).await.unwrap();
        }
        let prepared = numbers.last().unwrap() + 1;
        for (role, number) in [(Role::Segment, prepared), (Role::Spare, 1)] {
            let file = disk.create(&file_path(directory(), role, number)).await.unwrap();
            file.write_and_sync_at(0, Bytes::from(vec![0; 4096])).await.unwrap();
        }
        disk.sync_directory(directory()).await.unwrap();
        disk.sync_directory(Path::new("/")).await.unwrap();
    });
    (disk, written)
}

#[test]
fn segments_of_version_1_and_2_are_read_and_version_2_is_written_byte_by_byte() {
    let expected: Records = (0..3).map(|number| (LogPosition::default(), record(number).into())).collect();
    let contents = |records: Records| records.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let disk = SimulatedDisk::new(1);
    let segment = block_on(async {
        let environment = environment(&disk, &Rc::default(), 1);
        let replay = CommitLog::open(environment, directory(), options(SyncMode::Batch), 0).await.unwrap();
        let log = replay.finish().await.unwrap();
        beside(&log, async {
            for number in 0..3 {
                log.durable(log.append(&record(number)).unwrap()).await.unwrap();
            }
        })
        .await
        .unwrap();
        disk.read(&file_path(directory(), Role::Segment, 1)).await.unwrap()
    });
    for stored in
        [&include_bytes!("../testdata/version-1.log")[..], include_bytes!("../testdata/version-2.log")]
    {
        let read = super::super::read_segment(&Bytes::from_static(stored), 1).unwrap();
        assert_eq!(contents(read), contents(expected.clone()));
    }
    let stored = include_bytes!("../testdata/version-2.log");
    assert!(segment == stored[..], "the format changed: that needs a new version");
}

#[test]
fn a_log_of_version_1_goes_on_as_version_2_wherever_the_first_start_is_cut() {
    // Version 1 left numbers out.
    let numbers = [3, 4, 6];
    let (rehearsal, written) = version_1_disk(&numbers);
    let start = rehearsal.operations();
    let append = |disk: &SimulatedDisk| {
        block_on(async {
            let Ok((log, read)) = recover(disk, options(SyncMode::Group), &Rc::default()).await else {
                return (None, 0);
            };
            let mut added = 0;
            beside(&log, async {
                for number in 0..12 {
                    let Ok(position) = log.append(&record(100 + number)) else { return };
                    if log.durable(position).await.is_err() {
                        return;
                    }
                    added += 1;
                }
            })
            .await;
            (Some(read), added)
        })
    };
    assert_eq!(append(&rehearsal), (Some(written.clone()), 12));
    let operations = rehearsal.operations() - start;
    assert!(operations > 30, "{operations}");
    for operation in 0..operations {
        for style in CrashStyle::ALL {
            let (disk, _) = version_1_disk(&numbers);
            disk.crash_at(start + operation);
            let (_, added) = append(&disk);
            disk.restart(style, operation);
            let read = replayed(&disk).unwrap_or_else(|error| panic!("{operation}, {style:?}: {error}"));
            assert_eq!(read[..written.len()], written, "{operation}, {style:?}");
            let found = read.len() - written.len();
            assert!(found == added || found == added + 1, "{operation}, {style:?}: {found} of {added}");
            disk.restart(CrashStyle::LoseAll, operation);
            assert_eq!(append(&disk), (Some(read), 12));
            assert!(segments_of(&disk).has_headers);
        }
    }
}

#[test]
fn an_empty_segment_of_version_1_is_not_mistaken_for_one_that_lost_its_header() {
    let (disk, written) = version_1_disk(&[5]);
    assert_eq!(replayed(&disk).unwrap(), written);
    // The program of version 2 has written here: there are no empty segments of version 1 any more.
    block_on(disk.create(&directory().join("version-2"))).unwrap();
    let (other, _) = version_1_disk(&[5]);
    block_on(other.create(&directory().join("version-2"))).unwrap();
    assert!(matches!(replayed(&other), Err(CommitLogError::Damaged { offset: 0, .. })));
}
