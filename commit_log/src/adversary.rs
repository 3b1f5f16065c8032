//! A client that tries to leave bytes behind that replay takes for groups. A script drives it, in tests and in fuzzing.
//!
//! The client knows the format and where its records will be in the files. It does not know the salts. The script also says when
//! segments are released, when the log is crashed, and what the crash keeps. Whatever the script does, each start succeeds. It
//! finds every acknowledged record in order, and nothing that was not appended.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use futures::future::{Either, select};

use super::format::{self, GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES, Salt};
use super::log::CommitLog;
use super::options::{CommitLogOptions, SyncMode};
use super::position::LogPosition;
use super::replay::LogEnvironment;
use super::version_1;
use helenus_io::{CrashStyle, ManualClock, SeededRandom, SimulatedDisk, yield_now};

/// Lives of the log in one script. A script that ends earlier ends the last life.
const LIVES_MAX: usize = 6;

/// Steps of one life.
const STEPS_MAX: usize = 200;

/// The bytes of a script, taken one after the other. Behind their end everything is zero.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn has_ended(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| (number << 8) | u64::from(self.byte()))
    }
}

/// The appended records, and which of them a start must find.
#[derive(Default)]
struct Appended {
    records: Vec<(LogPosition, Bytes)>,
    /// The number of acknowledged records: the first ones.
    acknowledged: usize,
    /// Segments before that of this position may be gone.
    released: LogPosition,
}

impl Appended {
    /// Compares what a start has found, and goes on from there.
    fn check(&mut self, found: Vec<(LogPosition, Bytes)>) {
        let is_released = |position: &LogPosition| position.segment < self.released.segment;
        let first = match found.first() {
            Some((first, _)) => self.records.iter().position(|(position, _)| position == first),
            None => Some(self.acknowledged),
        };
        let Some(first) = first else { panic!("a record was never appended: {:?}", found[0]) };
        let end = first + found.len();
        assert!(self.records.get(first..end) == Some(&found[..]), "other records were appended");
        assert!(self.records[..first].iter().all(|(position, _)| is_released(position)), "the start is lost");
        assert!(end >= self.acknowledged, "acknowledged records are lost");
        self.acknowledged = found.len();
        self.records = found;
    }
}

/// Groups that look as if they were behind the end of the log, as the content of a record that will begin at `offset` of its file.
fn forged(script: &mut Script<'_>, present: u64, offset: u64) -> Vec<u8> {
    let mut record = Vec::new();
    for _ in 0..=script.below(8) {
        let payload = match script.below(3) {
            0 => vec![],
            1 => vec![1, 0, 0, 0, b'x'],
            _ => vec![0xFF; 12],
        };
        let small = script.below(2) == 0;
        let header = GroupHeader {
            payload_length: payload.len() as u32,
            records: script.below(3) as u32,
            segment: present + script.below(8),
            sequence: if small { script.below(64) } else { script.number() },
            durable_sequence: if small { script.below(64) } else { script.number() },
            segment_first_sequence: script.below(64),
        };
        let group = if script.below(2) == 0 {
            version_1::sealed(&header, &payload)
        } else {
            let salt = Salt((u128::from(script.number()) << 64) | u128::from(script.number()));
            let mut group = vec![0; GROUP_HEADER_BYTES];
            group.extend_from_slice(&payload);
            if format::seal(&mut group, &header, salt).is_err() {
                continue;
            }
            group
        };
        let at = offset as usize + record.len();
        record.resize(record.len() + format::align(at) - at, 0);
        record.extend_from_slice(&group);
    }
    record
}

/// One life of the log, until the script ends it or the disk crashes.
async fn live(disk: &SimulatedDisk, script: &mut Script<'_>, appended: &mut Appended) {
    let clock = Rc::new(ManualClock::new(0));
    let environment = LogEnvironment {
        disk: Arc::new(disk.clone()),
        clock: Rc::clone(&clock) as _,
        random: Rc::new(SeededRandom::new(disk.operations())),
    };
    let is_periodic = script.below(4) == 0;
    let options = CommitLogOptions {
        sync: if is_periodic {
            SyncMode::Periodic { period: Duration::from_secs(10) }
        } else {
            SyncMode::Group
        },
        segment_bytes: 4096,
        spare_segments_max: script.below(3) as usize,
        ..CommitLogOptions::default()
    };
    let opened = async {
        let mut replay = CommitLog::open(environment, Path::new("/log"), options, 0).await?;
        let mut found = Vec::new();
        while let Some(record) = replay.next().await? {
            found.push(record);
        }
        Ok::<_, super::CommitLogError>((replay.finish().await?, found))
    };
    let (log, found) = match opened.await {
        Ok(opened) => opened,
        Err(_) if disk.is_crashed() => return,
        Err(error) => panic!("the log does not open: {error}"),
    };
    appended.check(found);
    let body = std::pin::pin!(steps(disk, &log, &clock, script, appended));
    let task = std::pin::pin!(Rc::clone(&log).run());
    match select(body, task).await {
        Either::Left(((), _)) => {}
        Either::Right((outcome, _)) => assert!(outcome.is_err() && disk.is_crashed(), "{outcome:?}"),
    }
}

async fn steps(
    disk: &SimulatedDisk,
    log: &Rc<CommitLog>,
    clock: &ManualClock,
    script: &mut Script<'_>,
    appended: &mut Appended,
) {
    for _ in 0..STEPS_MAX {
        if script.has_ended() || disk.is_crashed() {
            return;
        }
        let end = log.end_position();
        let record = match script.below(8) {
            0 => vec![script.byte(); script.below(160) as usize * 8],
            1..=3 => forged(script, end.segment, end.offset + RECORD_HEADER_BYTES as u64),
            4 => {
                if let Some((position, _)) = appended.records.last()
                    && log.on_disk(*position).await.is_ok()
                {
                    appended.acknowledged = appended.records.len();
                }
                continue;
            }
            5 => {
                let acknowledged = appended.acknowledged.checked_sub(1);
                if let Some((position, _)) = acknowledged.and_then(|last| appended.records.get(last)) {
                    log.discard_before(*position);
                    appended.released = appended.released.max(*position);
                }
                continue;
            }
            6 => {
                clock.advance(Duration::from_millis(script.below(16) * 1000));
                for _ in 0..script.below(64) {
                    yield_now().await;
                }
                continue;
            }
            _ => {
                disk.crash_at(disk.operations() + script.below(24));
                continue;
            }
        };
        let Ok(position) = log.append(&record) else { return };
        appended.records.push((position, Bytes::from(record)));
    }
}

/// Carries out a script. Panics if a start fails, or finds records that were not appended.
pub fn check(script: &[u8]) {
    #[cfg(feature = "fuzzing")]
    format::COMPARES_CHECKSUMS.set(true);
    let mut script = Script(script);
    let disk = SimulatedDisk::new(script.number());
    let mut appended = Appended::default();
    for _ in 0..LIVES_MAX {
        block_on(live(&disk, &mut script, &mut appended));
        if script.has_ended() {
            break;
        }
        let style = CrashStyle::ALL[script.below(CrashStyle::ALL.len() as u64) as usize];
        disk.restart(style, script.number());
    }
    // In the end the power fails, and the log must open.
    disk.restart(CrashStyle::LoseAll, 0);
    block_on(live(&disk, &mut Script(&[]), &mut appended));
    #[cfg(feature = "fuzzing")]
    format::COMPARES_CHECKSUMS.set(false);
}
