//! The task that writes the log: takes closed groups, writes and syncs them, moves on to the next segment. `keeper` is its other part.
//!
//! Invariant: groups reach the disk in the order of their positions, and a group is reported durable only after its sync.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use std::sync::Arc;

use futures::future::{Either, select, try_join3};

use super::error::CommitLogError;
use super::format::{self, GROUP_HEADER_BYTES, GroupHeader};
use super::log::{ClosedGroup, CommitLog};
use super::options::SyncMode;
use super::position::LogPosition;
use super::room::Shortage;
use super::segments::OpenSegment;
use helenus_io::invariant::{broken, invariant};
use helenus_io::{DiskError, yield_now};

/// In periodic mode the writer waits this long for more records, or until this many bytes are unwritten.
const PERIODIC_WRITE_INTERVAL: Duration = Duration::from_millis(2);
const PERIODIC_WRITE_BYTES: usize = 64 << 10;

impl CommitLog {
    /// The log's task: writes groups until the log is closed or fails. Spawn it once, on the thread of the log's users.
    pub async fn run(self: Rc<Self>) -> Result<(), CommitLogError> {
        // Tasks that still wait when this one is dropped are woken with an error.
        let _guard = StopGuard { log: Rc::clone(&self) };
        let Some(files) = self.files.take() else { return Err(CommitLogError::Closed) };
        let (disk, directory) = (Arc::clone(&files.disk), files.directory.clone());
        let outcome =
            try_join3(self.write_groups(), self.keep_segments(files), self.keep_archive(disk, directory))
                .await;
        match outcome {
            Ok(_) => {
                self.finished.set(true);
                self.space.notify();
                Ok(())
            }
            Err(error) => {
                let failure = match error {
                    CommitLogError::Disk(error) => CommitLogError::Poisoned(error),
                    other => other,
                };
                self.fail(&failure);
                Err(failure)
            }
        }
    }

    async fn write_groups(&self) -> Result<(), CommitLogError> {
        let mut writer = Writer {
            log: self,
            segment: None,
            next_sequence: self.next_sequence,
            durable_sequence: self.next_sequence,
            segment_first_sequence: self.next_sequence,
            last_sync: self.clock.monotonic(),
        };
        loop {
            writer.wait_for_work().await?;
            let group = self.state.borrow_mut().take_group();
            if let Some(group) = group {
                writer.write(group).await?;
            } else if self.is_closing() {
                writer.sync().await?;
                self.all_written.set(true);
                self.segment_wanted.notify();
                self.archive.wanted.notify();
                return Ok(());
            }
        }
    }
}

/// The writing half of the log's task.
struct Writer<'a> {
    log: &'a CommitLog,
    segment: Option<OpenSegment>,
    next_sequence: u64,
    /// Groups below this are durable.
    durable_sequence: u64,
    segment_first_sequence: u64,
    last_sync: Duration,
}

impl Writer<'_> {
    /// Returns when there are records to write or the log is closing. In periodic mode it syncs when the period has passed.
    async fn wait_for_work(&mut self) -> Result<(), DiskError> {
        let log = self.log;
        let wait = || log.work.wait(|| log.has_work() || log.is_closing());
        log.wake_at_bytes.set(0);
        match log.options.sync {
            SyncMode::Batch => wait().await,
            SyncMode::Group => {
                wait().await;
                yield_now().await;
            }
            SyncMode::Periodic { period } => {
                while self.durable_sequence < self.next_sequence && !log.has_work() && !log.is_closing() {
                    let due = (self.last_sync + period).saturating_sub(log.clock.monotonic());
                    if due.is_zero() || log.has_waiters() {
                        self.sync().await?;
                    } else {
                        let wait = log.work.wait(|| log.has_work() || log.is_closing() || log.has_waiters());
                        let work = std::pin::pin!(wait);
                        select(work, log.clock.sleep(due)).await;
                    }
                }
                wait().await;
                log.wake_at_bytes.set(PERIODIC_WRITE_BYTES);
                let enough = log.work.wait(|| {
                    let state = log.state.borrow();
                    state.unwritten_bytes >= PERIODIC_WRITE_BYTES
                        || state.closing
                        || !state.waiters.is_empty()
                });
                let enough = std::pin::pin!(enough);
                if let Either::Left(_) = select(enough, log.clock.sleep(PERIODIC_WRITE_INTERVAL)).await {
                    yield_now().await;
                }
                if log.clock.monotonic().saturating_sub(self.last_sync) >= period {
                    self.sync().await?;
                }
            }
        }
        Ok(())
    }

    async fn write(&mut self, group: ClosedGroup) -> Result<(), CommitLogError> {
        let log = self.log;
        if self.segment.as_ref().is_none_or(|segment| segment.number != group.segment) {
            self.sync().await?;
            self.segment = Some(log.next_segment().await);
            self.segment_first_sequence = self.next_sequence;
        }
        let Some(segment) = self.segment.as_ref().filter(|segment| segment.number == group.segment) else {
            return Err(broken!("segments are made ready in the order of their groups").into());
        };
        let mut bytes = group.bytes;
        let payload_bytes = bytes.len().saturating_sub(GROUP_HEADER_BYTES);
        let Ok(payload_length) = u32::try_from(payload_bytes) else {
            return Err(broken!("a group is no larger than a segment").into());
        };
        let header = GroupHeader {
            payload_length,
            records: group.records,
            segment: group.segment,
            sequence: self.next_sequence,
            durable_sequence: self.durable_sequence,
            segment_first_sequence: self.segment_first_sequence,
        };
        format::seal(&mut bytes, &header, segment.salt)?;
        bytes.resize(format::align(bytes.len()), 0);
        let bytes: Bytes = bytes.freeze();
        let end = LogPosition { segment: group.segment, offset: group.offset + bytes.len() as u64 };
        let synced = !matches!(log.options.sync, SyncMode::Periodic { .. });
        loop {
            let written = if synced {
                segment.file.write_and_sync_at(group.offset, bytes.clone()).await
            } else {
                segment.file.write_at(group.offset, bytes.clone()).await
            };
            match written {
                Ok(()) => break,
                Err(error) if error.is_full() && !error.is_sync() => {
                    log.wait_for_room(Shortage::Group, error, || false).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        log.found_room(Shortage::Group);
        self.next_sequence += 1;
        if synced {
            self.durable_sequence = self.next_sequence;
        }
        let mut state = log.state.borrow_mut();
        invariant!(state.unwritten_bytes >= payload_bytes, "bytes that wait to be written are counted");
        state.unwritten_bytes -= payload_bytes;
        if let Ok(buffer) = bytes.try_into_mut() {
            state.spare_buffer = buffer;
        }
        drop(state);
        log.progress(end, synced);
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), DiskError> {
        if let Some(segment) = &self.segment
            && self.durable_sequence < self.next_sequence
        {
            segment.file.sync_data().await?;
            self.durable_sequence = self.next_sequence;
            let written_end = self.log.state.borrow().written_end;
            self.log.progress(written_end, true);
        }
        self.last_sync = self.log.clock.monotonic();
        Ok(())
    }
}

/// Fails the log if its task ends without a proper close.
struct StopGuard {
    log: Rc<CommitLog>,
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.log.fail(&CommitLogError::Closed);
    }
}
