//! The task that writes the log: takes closed groups, writes and syncs them, moves on to the next segment.
//!
//! Invariant: groups reach the disk in the order of their positions, and a group is told durable only after its sync.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};

use super::{ClosedGroup, CommitLog, PERIODIC_WRITE_BYTES, PERIODIC_WRITE_INTERVAL};
use crate::commit_log::format::{GROUP_HEADER_BYTES, GroupHeader};
use crate::commit_log::segments::OpenSegment;
use crate::commit_log::{CommitLogError, LogPosition, SyncMode, format};
use crate::io::{DiskError, yield_now};

/// The writing half of the log's task.
pub(super) struct Writer<'a> {
    pub(super) log: &'a CommitLog,
    pub(super) segment: Option<OpenSegment>,
    pub(super) next_sequence: u64,
    /// Groups below this are durable.
    pub(super) durable_sequence: u64,
    pub(super) segment_first_sequence: u64,
    pub(super) last_sync: Duration,
}

impl Writer<'_> {
    /// Returns when there is something to write, or the log is closing. Syncs on time in periodic mode.
    pub(super) async fn wait_for_work(&mut self) -> Result<(), DiskError> {
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

    pub(super) async fn write(&mut self, group: ClosedGroup) -> Result<(), DiskError> {
        let log = self.log;
        if self.segment.as_ref().is_none_or(|segment| segment.number != group.segment) {
            self.sync().await?;
            self.segment = Some(log.next_segment().await);
            self.segment_first_sequence = self.next_sequence;
        }
        let Some(segment) = &self.segment else { return Ok(()) };
        debug_assert_eq!(segment.number, group.segment, "segments are made ready in order");
        let mut bytes = group.bytes;
        let header = GroupHeader {
            payload_length: (bytes.len() - GROUP_HEADER_BYTES) as u32,
            records: group.records,
            segment: group.segment,
            sequence: self.next_sequence,
            durable_sequence: self.durable_sequence,
            segment_first_sequence: self.segment_first_sequence,
        };
        format::seal(&mut bytes, &header);
        let payload_length = header.payload_length as usize;
        bytes.resize(format::align(bytes.len()), 0);
        let bytes: Bytes = bytes.freeze();
        let end = LogPosition { segment: group.segment, offset: group.offset + bytes.len() as u64 };
        let synced = !matches!(log.options.sync, SyncMode::Periodic { .. });
        if synced {
            segment.file.write_and_sync_at(group.offset, bytes.clone()).await?;
        } else {
            segment.file.write_at(group.offset, bytes.clone()).await?;
        }
        self.next_sequence += 1;
        if synced {
            self.durable_sequence = self.next_sequence;
        }
        let mut state = log.state.borrow_mut();
        state.unwritten_bytes = state.unwritten_bytes.saturating_sub(payload_length);
        if let Ok(buffer) = bytes.try_into_mut() {
            state.spare_buffer = buffer;
        }
        drop(state);
        log.progress(end, synced);
        Ok(())
    }

    pub(super) async fn sync(&mut self) -> Result<(), DiskError> {
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

/// Fails the log when its task ends in any way but a proper close.
pub(super) struct StopGuard {
    pub(super) log: Rc<CommitLog>,
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.log.fail(&CommitLogError::Closed);
    }
}
