//! Appending to the log: one open group in memory, one writer task, waiters for durability.
//!
//! `append` only copies into the open group. The task of [`CommitLog::run`] takes the open group, writes and syncs it, and wakes
//! the tasks that wait for it. Then it takes the group that was filled meanwhile. A second part of the same task prepares the
//! next segment and takes released segments out of the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;

use super::archive::Archive;
use super::error::CommitLogError;
use super::format::{self, GROUP_HEADER_BYTES, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use super::options::{CommitLogOptions, SyncMode};
use super::position::LogPosition;
use super::room::Room;
use super::segments::{Files, OpenSegment};
use helenus_io::Clock;
use helenus_io::Signal;

/// The smallest segment size. Smaller segments would consist mostly of headers.
pub(super) const SEGMENT_BYTES_MIN: u64 = 4096;

/// The largest segment size. A larger segment could hold a group whose payload length exceeds 32 bits.
pub(super) const SEGMENT_BYTES_MAX: u64 = 1 << 31;
const _: () = assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(SEGMENT_BYTES_MIN / 2 > (GROUP_HEADER_BYTES + RECORD_HEADER_BYTES) as u64);
// The largest record fits into a segment behind the segment's header, with room for the alignment of its group.
const _: () = assert!(
    (SEGMENT_HEADER_BYTES + format::GROUP_ALIGNMENT) as u64 + SEGMENT_BYTES_MIN / 2 <= SEGMENT_BYTES_MIN
);

/// A group is closed at this size, so that buffers stay small. A single record may exceed it.
const GROUP_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(GROUP_BYTES_MAX as u64 <= SEGMENT_BYTES_MAX);

/// The end of the log as replay found it: appending continues there.
pub(super) struct Start {
    /// Segments with records, ascending.
    pub live: VecDeque<u64>,
    /// The highest number of a segment that exists; 0 if there is none.
    pub newest: u64,
    pub first_new: u64,
    pub next_sequence: u64,
}

/// A complete group that waits for the writer.
pub(super) struct ClosedGroup {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) records: u32,
    /// Room for the header, then the payload.
    pub(super) bytes: BytesMut,
}

pub(super) struct Waiter {
    ticket: u64,
    position: LogPosition,
    waker: Waker,
}

pub(super) struct CommitLogState {
    /// Where the open group will be written.
    segment: u64,
    offset: u64,
    records: u32,
    /// A position in the last closed group.
    last: LogPosition,
    /// The open group: room for the header, then records.
    open: BytesMut,
    closed: VecDeque<ClosedGroup>,
    pub(super) spare_buffer: BytesMut,
    /// Bytes of records appended but not yet written.
    pub(super) unwritten_bytes: usize,
    /// Records before this are written to the file.
    pub(super) written_end: LogPosition,
    /// Records before this are durable.
    durable_end: LogPosition,
    pub(super) waiters: VecDeque<Waiter>,
    next_ticket: u64,
    /// The segments of the log, ascending. The last one is being written.
    pub(super) live: VecDeque<u64>,
    /// Segments before this one are released.
    pub(super) needed_from: u64,
    /// The highest number of a segment that exists durably; 0 if there is none.
    pub(super) newest: u64,
    pub(super) prepared: Option<OpenSegment>,
    failure: Option<CommitLogError>,
    pub(super) closing: bool,
}

/// The commit log of one shard. Single-threaded; the shard spawns [`CommitLog::run`] as a local task.
pub struct CommitLog {
    pub(super) options: CommitLogOptions,
    segment_bytes: u64,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) state: RefCell<CommitLogState>,
    pub(super) files: RefCell<Option<Files>>,
    pub(super) first_new: u64,
    pub(super) next_sequence: u64,
    /// The writer is woken when at least this many bytes are unwritten.
    pub(super) wake_at_bytes: Cell<usize>,
    pub(super) work: Signal,
    pub(super) space: Signal,
    pub(super) segment_ready: Signal,
    pub(super) segment_wanted: Signal,
    pub(super) writer_waits: Cell<bool>,
    pub(super) all_written: Cell<bool>,
    pub(super) finished: Cell<bool>,
    pub(super) room: Room,
    pub(super) archive: Archive,
}

impl CommitLog {
    pub(super) fn start(
        files: Files,
        options: CommitLogOptions,
        clock: Rc<dyn Clock>,
        start: Start,
    ) -> Rc<Self> {
        let begin = LogPosition { segment: start.first_new, offset: SEGMENT_HEADER_BYTES as u64 };
        let state = CommitLogState {
            segment: begin.segment,
            offset: begin.offset,
            records: 0,
            last: LogPosition::default(),
            open: BytesMut::zeroed(GROUP_HEADER_BYTES),
            closed: VecDeque::new(),
            spare_buffer: BytesMut::new(),
            unwritten_bytes: 0,
            written_end: begin,
            durable_end: begin,
            waiters: VecDeque::new(),
            next_ticket: 0,
            live: start.live,
            needed_from: 0,
            newest: start.newest,
            prepared: None,
            failure: None,
            closing: false,
        };
        Rc::new(Self {
            segment_bytes: files.segment_bytes,
            options,
            clock,
            state: RefCell::new(state),
            files: RefCell::new(Some(files)),
            first_new: start.first_new,
            next_sequence: start.next_sequence,
            wake_at_bytes: Cell::new(0),
            work: Signal::default(),
            space: Signal::default(),
            segment_ready: Signal::default(),
            segment_wanted: Signal::default(),
            writer_waits: Cell::new(false),
            all_written: Cell::new(false),
            finished: Cell::new(false),
            room: Room::default(),
            archive: Archive::default(),
        })
    }

    /// The largest record, in bytes: about half of a segment.
    pub fn record_bytes_max(&self) -> usize {
        self.segment_bytes as usize / 2 - GROUP_HEADER_BYTES - RECORD_HEADER_BYTES
    }

    /// Copies a record into the log's open group. It is durable when [`CommitLog::durable`] of the position resolves.
    pub fn append(&self, record: &[u8]) -> Result<LogPosition, CommitLogError> {
        self.append_parts(&[record])
    }

    /// As `append`, for a record that is the concatenation of `parts`.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<LogPosition, CommitLogError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let limit = self.record_bytes_max();
        if length > limit {
            return Err(CommitLogError::RecordTooLarge { bytes: length, limit });
        }
        let state = &mut *self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.closing {
            return Err(CommitLogError::Closed);
        }
        state.make_room(RECORD_HEADER_BYTES + length, self.segment_bytes);
        let position = LogPosition { segment: state.segment, offset: state.offset + state.open.len() as u64 };
        state.open.extend_from_slice(&(length as u32).to_le_bytes());
        for part in parts {
            state.open.extend_from_slice(part);
        }
        state.records += 1;
        state.unwritten_bytes += RECORD_HEADER_BYTES + length;
        if state.unwritten_bytes >= self.wake_at_bytes.get() {
            self.work.notify();
        }
        Ok(position)
    }

    /// Resolves when all records up to and including the one at `position` are durable, or when the log has failed. In periodic mode
    /// it resolves immediately, unless the log waits for room on the disk.
    pub fn durable(self: &Rc<Self>, position: LogPosition) -> Durable {
        let at_once = self.is_periodic();
        Durable { log: Rc::clone(self), position, at_once, ticket: None }
    }

    /// The result of [`CommitLog::durable`], if it is known without waiting.
    pub fn durable_at_once(&self, position: LogPosition) -> Option<Result<(), CommitLogError>> {
        let at_once = self.is_periodic() && !self.room.is_short();
        self.state.borrow().known_outcome(position, at_once)
    }

    fn is_periodic(&self) -> bool {
        matches!(self.options.sync, SyncMode::Periodic { .. })
    }

    /// Resolves when all records up to and including the one at `position` are on disk, in every mode, or when the log has
    /// failed.
    pub fn on_disk(self: &Rc<Self>, position: LogPosition) -> Durable {
        Durable { log: Rc::clone(self), position, at_once: false, ticket: None }
    }

    /// Back-pressure: waits while too many appended bytes are unwritten. Call it before work that appends. While the log waits for
    /// room on the disk, it is an error.
    pub async fn admit(&self) -> Result<(), CommitLogError> {
        let is_behind = || !self.room.is_short() && self.is_behind();
        self.space.wait(|| !is_behind()).await;
        let failure = self.state.borrow().failure.clone();
        failure.or_else(|| self.room.error()).map_or(Ok(()), Err)
    }

    /// As `admit`, for records that the log takes while it waits for room: few and small ones. They wait in memory.
    pub async fn admit_essential(&self) -> Result<(), CommitLogError> {
        self.space.wait(|| !self.is_behind()).await;
        self.state.borrow().failure.clone().map_or(Ok(()), Err)
    }

    /// Whether too many appended bytes are unwritten, and will be written.
    fn is_behind(&self) -> bool {
        let state = self.state.borrow();
        state.unwritten_bytes >= self.options.unwritten_bytes_max && state.failure.is_none()
    }

    /// The number of the first segment that must be there at the next start, with all later ones; the manifest stores it.
    /// `position` is the lowest position that is needed; `None`: no present record is needed. 0: there is no segment yet.
    pub fn lowest_needed(&self, position: Option<LogPosition>) -> u64 {
        let end = self.end_position();
        let newest = self.state.borrow().newest;
        // A segment that does not exist yet cannot be missing.
        position.unwrap_or(end).segment.min(newest)
    }

    /// Releases all records before `position`. Whole segments before it leave the log soon.
    pub fn discard_before(&self, position: LogPosition) {
        let mut state = self.state.borrow_mut();
        state.needed_from = state.needed_from.max(position.segment);
        drop(state);
        self.segment_wanted.notify();
    }

    /// Bytes of the log's files, released ones not counted.
    pub fn total_bytes(&self) -> u64 {
        let state = self.state.borrow();
        let discarded = state.live.iter().filter(|segment| **segment < state.needed_from).count();
        (state.live.len() - discarded) as u64 * self.segment_bytes
    }

    /// Whether the log waits for room on the disk: it cannot write, or not prepare its next segment.
    pub fn lacks_room(&self) -> bool {
        self.room.is_short()
    }

    /// Whether the disk has so little room that files for reuse are given up.
    pub fn set_room_is_scarce(&self, is_scarce: bool) {
        if self.room.is_scarce.replace(is_scarce) != is_scarce {
            self.segment_wanted.notify();
        }
    }

    /// A position behind all records appended so far.
    pub fn end_position(&self) -> LogPosition {
        let state = self.state.borrow();
        LogPosition { segment: state.segment, offset: state.offset + state.open.len() as u64 }
    }

    /// The failure after which the log accepts no more records, if there was one.
    pub fn failure(&self) -> Option<CommitLogError> {
        self.state.borrow().failure.clone()
    }

    /// Stops appending, writes and syncs all records, and ends the task of `run`.
    pub async fn close(&self) -> Result<(), CommitLogError> {
        self.state.borrow_mut().closing = true;
        self.wake_at_bytes.set(0);
        self.work.notify();
        self.segment_wanted.notify();
        self.space.wait(|| self.finished.get() || self.state.borrow().failure.is_some()).await;
        if self.finished.get() {
            return Ok(());
        }
        self.state.borrow().failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&self, failure: &CommitLogError) {
        let mut state = self.state.borrow_mut();
        state.failure.get_or_insert_with(|| failure.clone());
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters {
            waiter.waker.wake();
        }
        self.space.notify();
        self.segment_ready.notify();
        self.archive.changed.notify();
    }

    pub(super) fn has_work(&self) -> bool {
        let state = self.state.borrow();
        state.records > 0 || !state.closed.is_empty()
    }

    /// Whether any task waits for records to be on disk.
    pub(super) fn has_waiters(&self) -> bool {
        !self.state.borrow().waiters.is_empty()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.borrow().closing
    }

    /// Publishes the writer's progress and wakes the tasks that waited for it.
    pub(super) fn progress(&self, written_end: LogPosition, durable: bool) {
        let mut state = self.state.borrow_mut();
        state.written_end = written_end;
        let mut woken = Vec::new();
        let is_new_segment = durable && !state.has_durable_groups(written_end.segment);
        if durable {
            state.durable_end = written_end;
            // Waiters are nearly ordered by position. The few that wait for a later one are put at the back.
            for waiter in std::mem::take(&mut state.waiters) {
                if waiter.position < written_end {
                    woken.push(waiter.waker);
                } else {
                    state.waiters.push_back(waiter);
                }
            }
        }
        drop(state);
        for waker in woken {
            waker.wake();
        }
        self.space.notify();
        if is_new_segment {
            self.archive.wanted.notify();
            self.segment_wanted.notify();
        }
    }

    /// Has the next record begin a segment, unless the present one has none. Returns a position in the last group so far.
    pub(super) fn end_segment(&self) -> Result<LogPosition, CommitLogError> {
        let state = &mut *self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.closing {
            return Err(CommitLogError::Closed);
        }
        state.close_group();
        if state.offset > SEGMENT_HEADER_BYTES as u64 {
            state.segment += 1;
            state.offset = SEGMENT_HEADER_BYTES as u64;
        }
        Ok(state.last)
    }

    /// Whether a segment has groups that are durable.
    pub(super) fn has_durable_groups(&self, segment: u64) -> bool {
        segment < self.first_new || self.state.borrow().has_durable_groups(segment)
    }

    /// Calls `look` with the segments behind `number` to which no group will be written any more, ascending.
    pub(super) fn complete_segments<T>(
        &self,
        number: u64,
        look: impl FnOnce(&mut dyn Iterator<Item = u64>) -> T,
    ) -> T {
        let state = self.state.borrow();
        let is_all_durable = state.unwritten_bytes == 0 && state.durable_end == state.written_end;
        let first_open = if is_all_durable { state.segment } else { state.durable_end.segment };
        let is_complete = |segment: &u64| *segment < self.first_new || *segment < first_open;
        look(&mut state.live.iter().copied().filter(|segment| *segment > number && is_complete(segment)))
    }

    pub(super) async fn next_segment(&self) -> OpenSegment {
        self.writer_waits.set(true);
        self.segment_wanted.notify();
        loop {
            self.segment_ready.wait(|| self.state.borrow().prepared.is_some()).await;
            let mut state = self.state.borrow_mut();
            if let Some(segment) = state.prepared.take() {
                state.live.push_back(segment.number);
                drop(state);
                self.writer_waits.set(false);
                self.segment_wanted.notify();
                return segment;
            }
        }
    }
}

impl CommitLogState {
    /// Whether the record at `position` is durable or never will be, if that is known. `at_once`: every record that the log has
    /// accepted counts as durable.
    fn known_outcome(&self, position: LogPosition, at_once: bool) -> Option<Result<(), CommitLogError>> {
        if position < self.durable_end {
            return Some(Ok(()));
        }
        match &self.failure {
            Some(failure) => Some(Err(failure.clone())),
            None => at_once.then_some(Ok(())),
        }
    }

    /// Makes room for a record of `length` bytes (with its header) in the open group and its segment.
    fn make_room(&mut self, length: usize, segment_bytes: u64) {
        let fits = |offset: u64, used: usize| offset + (used + length) as u64 <= segment_bytes;
        let full = self.records > 0 && self.open.len() + length > GROUP_BYTES_MAX;
        if full || !fits(self.offset, self.open.len()) {
            self.close_group();
            if !fits(self.offset, GROUP_HEADER_BYTES) {
                self.segment += 1;
                self.offset = SEGMENT_HEADER_BYTES as u64;
            }
        }
    }

    /// Closes the open group, if it has records: it then waits for the writer.
    fn close_group(&mut self) {
        if self.records == 0 {
            return;
        }
        let mut fresh = std::mem::take(&mut self.spare_buffer);
        fresh.clear();
        fresh.resize(GROUP_HEADER_BYTES, 0);
        let bytes = std::mem::replace(&mut self.open, fresh);
        let length = format::align(bytes.len()) as u64;
        self.closed.push_back(ClosedGroup {
            segment: self.segment,
            offset: self.offset,
            records: self.records,
            bytes,
        });
        self.offset += length;
        self.records = 0;
        self.last = LogPosition { segment: self.segment, offset: self.offset - 1 };
    }

    /// Of the segments that this process writes to.
    fn has_durable_groups(&self, segment: u64) -> bool {
        LogPosition { segment, offset: SEGMENT_HEADER_BYTES as u64 } < self.durable_end
    }

    pub(super) fn take_group(&mut self) -> Option<ClosedGroup> {
        if self.closed.is_empty() {
            self.close_group();
        }
        self.closed.pop_front()
    }
}

/// Resolves when a record is durable; see [`CommitLog::durable`].
pub struct Durable {
    log: Rc<CommitLog>,
    position: LogPosition,
    /// Resolves immediately unless the log has failed.
    at_once: bool,
    ticket: Option<u64>,
}

impl Future for Durable {
    type Output = Result<(), CommitLogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let log = Rc::clone(&self.log);
        let at_once = self.at_once && !log.room.is_short();
        let mut state = log.state.borrow_mut();
        if let Some(outcome) = state.known_outcome(self.position, at_once) {
            return Poll::Ready(outcome);
        }
        let known =
            self.ticket.and_then(|ticket| state.waiters.iter_mut().find(|waiter| waiter.ticket == ticket));
        if let Some(waiter) = known {
            waiter.waker.clone_from(context.waker());
        } else {
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            let waker = context.waker().clone();
            state.waiters.push_back(Waiter { ticket, position: self.position, waker });
            self.ticket = Some(ticket);
            drop(state);
            if log.is_periodic() {
                log.work.notify();
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
impl CommitLog {
    /// Whether `check` holds for the end of the written records and the end of the durable ones.
    pub(super) fn state_is(&self, check: impl Fn(LogPosition, LogPosition) -> bool) -> bool {
        let state = self.state.borrow();
        check(state.written_end, state.durable_end)
    }

    /// The start of the oldest segment that is not released; `None` while there is no segment.
    pub(super) fn oldest_position(&self) -> Option<LogPosition> {
        let state = self.state.borrow();
        let oldest = state.live.iter().copied().find(|segment| *segment >= state.needed_from)?;
        Some(LogPosition { segment: oldest, offset: 0 })
    }
}
