//! Random writes, syncs, failures and crashes, beside a model of the contract of `Disk`.

use super::*;
use helenus_io::{CrashStyle, DiskError, Fault, SplitMix64};

use crate::frame::{CONTENTS_BYTES, DAMAGE};

const PATH: &str = "/file";

/// What a byte may be after a crash.
#[derive(Clone, Default)]
struct Byte {
    current: u8,
    durable: u8,
    was_written: bool,
    /// Written since the last sync.
    written: Vec<u8>,
}

#[derive(Default)]
struct Model {
    bytes: Vec<Byte>,
    durable_length: usize,
    written_end: usize,
    /// Some write did not begin where the one before it ended. Then a torn one may be looked for where nothing was written.
    is_scattered: bool,
}

impl Model {
    fn grow(&mut self, length: usize) {
        if self.bytes.len() < length {
            self.bytes.resize(length, Byte::default());
        }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        self.grow(offset + data.len());
        self.is_scattered |= offset != self.written_end;
        self.written_end = offset + data.len();
        for (byte, new) in self.bytes[offset..].iter_mut().zip(data) {
            byte.current = *new;
            // Zeros may be left unwritten.
            byte.was_written |= *new != 0;
            byte.written.push(*new);
        }
    }

    fn sync(&mut self) {
        self.durable_length = self.bytes.len();
        for byte in &mut self.bytes {
            byte.durable = byte.current;
            byte.written.clear();
        }
    }

    fn current(&self) -> Vec<u8> {
        self.bytes.iter().map(|byte| byte.current).collect()
    }

    /// Checks what was found after a crash, and takes it over.
    fn found(&mut self, found: &[u8], what: &str) {
        if self.durable_length == 0 {
            // Nothing was synced, so the header may be lost: the file is read as it is on the disk.
            let taken = |byte: &u8| Byte { current: *byte, was_written: *byte != 0, ..Byte::default() };
            self.bytes = found.iter().map(taken).collect();
            return;
        }
        assert!(
            found.len() >= self.durable_length && found.len() <= self.bytes.len(),
            "{what}: length {}",
            found.len()
        );
        for (at, (byte, found)) in self.bytes.iter().zip(found).enumerate() {
            let is_old = at < self.durable_length && *found == byte.durable;
            let is_new = byte.written.contains(found);
            let is_torn = self.is_scattered && !byte.was_written && *found == DAMAGE;
            let is_lost = is_torn
                || (at >= self.durable_length || !byte.written.is_empty()) && [0, DAMAGE].contains(found);
            assert!(is_old || is_new || is_lost, "{what}: byte {at} is {found}, not {}", byte.durable);
        }
        self.bytes.truncate(found.len());
        for (byte, found) in self.bytes.iter_mut().zip(found) {
            byte.current = *found;
            byte.was_written = *found != 0;
        }
    }
}

fn draw(random: &mut SplitMix64) -> Vec<u8> {
    let length = match random.below(6) {
        0 => 1 + random.below(60),
        1 => 100 + random.below(500),
        2 => CONTENTS_BYTES as u64 - 2 + random.below(5),
        3 => 3 * CONTENTS_BYTES as u64 - 1 + random.below(3),
        _ => 1 + random.below(9_000),
    };
    let value = 1 + random.below(250) as u8;
    (0..length).map(|index| value.wrapping_add((index % 3) as u8).clamp(1, 254)).collect()
}

async fn check(disk: &dyn Disk, expected: &[u8], random: &mut SplitMix64, what: &str) {
    let path = Path::new(PATH);
    assert!(disk.read(path).await.unwrap() == expected, "{what}: read");
    assert_eq!(disk.length(path).await.unwrap(), expected.len() as u64, "{what}: length");
    let complete = disk.open_complete(path).await.unwrap();
    assert_eq!(complete.length(), expected.len() as u64, "{what}: length of the open file");
    for _ in 0..3 {
        let from = random.below(expected.len() as u64 + 1) as usize;
        let length = random.below((expected.len() - from) as u64 + 1) as usize;
        let mut part = vec![7; length];
        complete.read_at(from as u64, &mut part).unwrap();
        assert!(part == expected[from..from + length], "{what}: {length} bytes at {from}");
        let later = Arc::clone(&complete).read_later(from as u64, length).await.unwrap();
        assert!(*later == part[..], "{what}: {length} bytes at {from}, later");
    }
    assert!(complete.read_at(expected.len() as u64, &mut [0]).is_err());
}

/// Runs one step. An error: the machine has crashed, or a write was not repeated.
async fn step(
    file: &Arc<dyn DiskFile>,
    below: &SimulatedDisk,
    model: &mut Model,
    random: &mut SplitMix64,
    may_leave_gaps: bool,
) -> Result<(), DiskError> {
    let end = model.bytes.len();
    match random.below(10) {
        0..=6 => {
            let offset = match random.below(5) {
                0 => random.below(end as u64 + 1) as usize,
                1 if may_leave_gaps => end + random.below(50) as usize,
                _ => model.bytes.iter().rposition(|byte| byte.current != 0).map_or(0, |last| last + 1),
            };
            let mut data = draw(random);
            if random.chance(1, 6) {
                data.fill(0);
            }
            let is_synced = random.chance(1, 3);
            let data = Bytes::from(data);
            if random.chance(1, 8) {
                below.fail_at(below.operations(), Fault::NoSpace);
            }
            model.write(offset, &data);
            for attempt in 0.. {
                let written = if is_synced {
                    file.write_and_sync_at(offset as u64, data.clone()).await
                } else {
                    file.write_at(offset as u64, data.clone()).await
                };
                match written {
                    Err(error) if error.is_full() && attempt == 0 && !below.is_crashed() => {}
                    Err(error) => return Err(error),
                    Ok(()) => break,
                }
            }
            if is_synced {
                model.sync();
            }
        }
        7 => {
            let length = end as u64 + random.below(30_000);
            model.grow(length as usize);
            file.reserve(length).await?;
        }
        _ => {
            file.sync_data().await?;
            model.sync();
        }
    }
    below.clear_faults();
    Ok(())
}

async fn run(seed: u64) -> u64 {
    let mut random = SplitMix64::new(seed);
    let below = SimulatedDisk::new(seed);
    let mut disk = encrypted(&below, ONE, seed);
    if seed.is_multiple_of(2) {
        disk = disk.that_refuses_plain_files();
    }
    let path = Path::new(PATH);
    let mut file = disk.create(path).await.unwrap();
    disk.sync_directory(Path::new("/")).await.unwrap();
    let mut model = Model::default();
    let mut crashes = 0;
    for life in 0..4 {
        if random.chance(3, 4) {
            below.crash_at(below.operations() + random.below(25));
        }
        for number in 0..12 {
            let what = format!("seed {seed}, life {life}, step {number}");
            if step(&file, &below, &mut model, &mut random, life == 0).await.is_err() {
                assert!(below.is_crashed(), "{what}");
                break;
            }
            if !below.is_crashed() && random.chance(1, 4) {
                let current = model.current();
                // A crash may come in the middle of it.
                below.crash_at(u64::MAX);
                check(&disk, &current, &mut random, &what).await;
            }
        }
        let style = CrashStyle::ALL[random.below(6) as usize];
        crashes += u64::from(below.is_crashed());
        drop(file);
        below.restart(style, random.next_u64());
        let what = format!("seed {seed}, life {life}, {style:?}");
        let found = disk.read(path).await.unwrap();
        model.found(&found, &what);
        // What is written next does not begin where the last frame ends.
        model.is_scattered = true;
        check(&disk, &found, &mut random, &what).await;
        file = disk.open(path).await.unwrap();
        // What is seen may be lost in the next crash, unless it is written again.
        let stored = below.length(path).await.unwrap();
        file.write_and_sync_at(0, found.clone()).await.unwrap();
        if found.iter().all(|byte| *byte != DAMAGE) {
            assert_eq!(below.length(path).await.unwrap(), stored, "{what}: the same bytes take no room");
        }
        model.sync();
        check(&disk, &found, &mut random, &what).await;
    }
    crashes
}

#[test]
fn what_was_synced_is_there_after_every_crash() {
    let crashes: u64 = (0..400).map(|seed| block_on(run(seed))).sum();
    assert!(crashes > 200, "{crashes}");
}

#[test]
fn a_file_that_is_written_front_to_back_has_one_frame_a_slot() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    let path = Path::new("/table");
    let contents = secret(300_000);
    block_on(async {
        let file = disk.create(path).await.unwrap();
        for start in (0..contents.len()).step_by(70_001) {
            let end = contents.len().min(start + 70_001);
            file.write_at(start as u64, contents.slice(start..end)).await.unwrap();
            assert_eq!(disk.read(path).await.unwrap(), contents.slice(..end), "before the sync");
        }
        file.sync_data().await.unwrap();
        let stored = below.length(path).await.unwrap();
        assert!(stored < 4096 + 300_000 * 102 / 100, "{stored}");
        assert!(!has_secret(&below.read(path).await.unwrap()));
        let before = below.part_reads();
        let complete = disk.open_complete(path).await.unwrap();
        assert_eq!(complete.length(), 300_000);
        assert_eq!(below.part_reads() - before, 2, "the header and the last slot");
        let mut part = vec![0; 10_000];
        complete.read_at(123_456, &mut part).unwrap();
        assert!(part == contents[123_456..133_456]);
        assert_eq!(below.part_reads() - before, 3);
    });
}

#[test]
fn small_synced_writes_do_not_take_a_slot_each() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 1);
    block_on(async {
        let path = Path::new("/log");
        let file = disk.create(path).await.unwrap();
        file.reserve(40_000).await.unwrap();
        let reserved = below.length(path).await.unwrap();
        for number in 0..100 {
            file.write_and_sync_at(number * 200, secret(200)).await.unwrap();
        }
        assert_eq!(below.length(path).await.unwrap(), reserved, "what was reserved is enough");
        assert_eq!(disk.length(path).await.unwrap(), 40_000);
        assert!(!has_secret(&below.read(path).await.unwrap()));
        let read = disk.read(path).await.unwrap();
        assert!(
            read[..20_000].chunks(200).all(|part| part == secret(200))
                && read[20_000..].iter().all(|byte| *byte == 0)
        );
    });
}
