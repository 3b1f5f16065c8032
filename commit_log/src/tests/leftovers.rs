//! What recycled files contain from earlier lives is never taken for a group, even if a client wrote it on purpose.

use super::super::adversary;
use super::super::format::{self, GroupHeader, Salt};
use super::super::version_1;
use super::*;
use helenus_io::SplitMix64;

/// A record with groups of the next segments, which claim that everything before them was durable. Its content begins 4 bytes behind
/// a multiple of 8.
fn forged_record(number: u64) -> Vec<u8> {
    let payload = [1, 0, 0, 0, b'x'];
    let mut record = Vec::new();
    for segment in (number / 4 + 1..).take(20) {
        let header = GroupHeader {
            payload_length: payload.len() as u32,
            records: 1,
            segment,
            sequence: 1 << 40,
            durable_sequence: 1 << 40,
            segment_first_sequence: 1,
        };
        let mut group = vec![0; format::GROUP_HEADER_BYTES];
        group.extend_from_slice(&payload);
        format::seal(&mut group, &header, Salt(u128::from(segment))).unwrap();
        for group in [group, version_1::sealed(&header, &payload)] {
            record.resize(record.len().next_multiple_of(8), 0);
            record.extend_from_slice(&[0; 4]);
            record.extend_from_slice(&group);
        }
        if record.len() > 900 {
            break;
        }
    }
    record
}

/// Before version 2 of the format the node did not start any more: replay took such bytes for the proof of a damaged log.
#[test]
fn a_client_cannot_forge_the_proof_of_a_damaged_log() {
    for sync in [SyncMode::Batch, PERIODIC] {
        for records in 20..60 {
            let disk = SimulatedDisk::new(records);
            let last = block_on(async {
                let (log, _) = recover(&disk, options(sync), &Rc::default()).await.unwrap();
                beside(&log, async {
                    for number in 0..records {
                        let position = log.append(&forged_record(number)).unwrap();
                        log.on_disk(position).await.unwrap();
                        log.discard_before(position);
                    }
                    let position = log.append(b"last").unwrap();
                    log.on_disk(position).await.unwrap();
                    position
                })
                .await
                .unwrap()
            });
            assert!(last.segment > 4, "files were recycled");
            disk.restart(CrashStyle::KeepAll, 0);
            let read = replayed(&disk).unwrap();
            assert_eq!(read.last(), Some(&(last, Bytes::from_static(b"last"))));
        }
    }
}

#[test]
fn no_script_of_an_adversary_stops_a_start() {
    for seed in 0..3_000 {
        let mut random = SplitMix64::new(seed);
        let script: Vec<u8> = (0..random.below(1500)).map(|_| random.next_u64() as u8).collect();
        adversary::check(&script);
    }
}

/// Groups of a torn end, behind a group that is missing: they would continue the log once it has grown up to them.
#[test]
fn groups_behind_the_torn_end_do_not_come_back() {
    let mut found = 0;
    for seed in 0..200 {
        let disk = SimulatedDisk::new(seed);
        let clock = Rc::new(ManualClock::new(0));
        block_on(async {
            let (log, _) = recover(&disk, options(PERIODIC), &clock).await.unwrap();
            beside(&log, async {
                for number in 0..6 {
                    log.append(&record(number)).unwrap();
                    clock.advance(Duration::from_millis(5));
                    for _ in 0..20 {
                        yield_now().await;
                    }
                }
            })
            .await
            .unwrap();
        });
        disk.restart(CrashStyle::RandomSectors, seed);
        let first = replayed(&disk).unwrap();
        found += usize::from(first.len() < 6);
        let again = block_on(async {
            let (log, _) = recover(&disk, options(SyncMode::Group), &clock).await.unwrap();
            beside(&log, async {
                let position = log.append(b"new").unwrap();
                log.durable(position).await.unwrap();
                position
            })
            .await
            .unwrap()
        });
        disk.restart(CrashStyle::LoseAll, seed);
        let expected: Records = first.into_iter().chain([(again, Bytes::from_static(b"new"))]).collect();
        assert_eq!(replayed(&disk).unwrap(), expected, "seed {seed}");
    }
    assert!(found > 50, "{found} torn ends");
}
