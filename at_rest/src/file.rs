//! Writing an encrypted file.
//!
//! Invariants:
//! * Bytes of a frame that a sync may have made durable are never written again with other contents. What is written over them above is a new
//!   frame behind all others. So a crash harms nothing that was synced.
//! * A frame that was not synced yet may be replaced: where a file is written front to back, the last slot is written again when there is more for
//!   it. So its frames stay in order, one a slot.
//! * A failed write takes its places back, unless another write has begun since: the same bytes written again come to the same places.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use helenus_io::invariant::BrokenInvariant;
use helenus_io::{DiskError, DiskFile, DiskFuture, broken};

use crate::contents::{Contents, Frames, Piece, Reads, error};
use crate::error::KeyError;
use crate::frame::{CONTENTS_BYTES, Frame, Kind, OVERHEAD_BYTES, SLOT_BYTES, SLOTS_AT, Session};

/// A slot with less room than this is full: a frame in it would hold hardly anything.
const ROOM_BYTES_MIN: usize = OVERHEAD_BYTES + 64;
/// A part of what is reserved is added for frames that are not full: an eighth.
const SMALL_FRAMES_PART: u64 = 8;

/// A frame that was written and not synced, at the beginning of the file's last slot.
#[derive(Debug, Clone)]
struct Tail {
    place: u64,
    offset: u64,
    contents: Vec<u8>,
}

/// Where the next frames go.
#[derive(Debug, Clone)]
struct Progress {
    /// The header area, if it is not written yet.
    header: Option<Bytes>,
    /// Where the next frame goes on the disk.
    place: u64,
    /// The length of the file above.
    length: u64,
    /// Where the last byte was written in the file above. Behind it and before `length` there are zeros.
    written_end: u64,
    /// All frames so far are in order.
    is_in_order: bool,
    is_reserved: bool,
    tail: Option<Tail>,
    /// A write over the tail has failed: what was there must be written again before a sync.
    is_tail_lost: bool,
}

struct State {
    progress: Progress,
    session: Session,
    /// The number of changes of `progress`.
    change: u64,
    /// What the file had in it when it was opened, until it is first written.
    before: Option<Arc<Contents>>,
}

/// Bytes for a place on the disk.
struct Stored {
    place: u64,
    bytes: Bytes,
    /// For the case that the write fails.
    change: u64,
    previous: Progress,
}

/// An encrypted file that is open for writing.
pub(crate) struct EncryptedFile {
    file: Arc<dyn DiskFile>,
    path: std::path::PathBuf,
    reads: Reads,
    state: Mutex<State>,
}

/// The bytes on the disk that contents up to here take in full frames, with the header.
fn stored_bytes(length: u64) -> u64 {
    SLOTS_AT + length.div_ceil(CONTENTS_BYTES as u64).saturating_mul(SLOT_BYTES as u64)
}

fn slot_start(place: u64) -> u64 {
    place - place % SLOT_BYTES as u64
}

impl Progress {
    /// The frames of `data`, and the place where they begin.
    fn seal(
        &mut self,
        session: &mut Session,
        offset: u64,
        data: &[u8],
    ) -> Result<(u64, Vec<u8>), BrokenInvariant> {
        let mut merged = Vec::new();
        let tail = self.tail.take().filter(|_| offset == self.length);
        let (mut offset, mut rest) = match tail {
            Some(tail) => {
                self.place = tail.place;
                merged.extend_from_slice(&tail.contents);
                merged.extend_from_slice(data);
                (tail.offset, merged.as_slice())
            }
            None => (offset, data),
        };
        let start = self.place;
        let frames = rest.len() / CONTENTS_BYTES + 2;
        let mut out = Vec::with_capacity(rest.len() + frames * OVERHEAD_BYTES);
        while !rest.is_empty() {
            let room = SLOT_BYTES - (self.place % SLOT_BYTES as u64) as usize;
            if room < ROOM_BYTES_MIN {
                out.resize(out.len() + room, 0);
                self.place += room as u64;
                continue;
            }
            let (contents, behind) = rest.split_at(rest.len().min(room - OVERHEAD_BYTES));
            let slot = (self.place - SLOTS_AT) / SLOT_BYTES as u64;
            let begins_slot = room == SLOT_BYTES;
            self.is_in_order &= begins_slot && offset == slot * CONTENTS_BYTES as u64;
            let frame = Frame {
                place: self.place,
                kind: Kind::Contents,
                is_in_order: self.is_in_order,
                offset,
                length: contents.len(),
            };
            session.seal(&frame, contents, &mut out)?;
            if self.is_in_order && behind.is_empty() && contents.len() < CONTENTS_BYTES {
                self.tail = Some(Tail { place: self.place, offset, contents: contents.to_vec() });
            }
            self.place += frame.stored_bytes() as u64;
            offset += contents.len() as u64;
            rest = behind;
        }
        self.is_tail_lost = false;
        self.length = self.length.max(offset);
        self.written_end = self.written_end.max(offset);
        Ok((start, out))
    }

    /// Puts the header before the first frames.
    fn with_header(&mut self, place: u64, bytes: Vec<u8>) -> (u64, Bytes) {
        match self.header.take() {
            // Nothing was written before the header.
            Some(header) if place == SLOTS_AT => (0, Bytes::from([&header[..], &bytes].concat())),
            header => {
                self.header = header;
                (place, Bytes::from(bytes))
            }
        }
    }
}

impl EncryptedFile {
    /// A file that has nothing in it yet.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        path: &std::path::Path,
        header: Vec<u8>,
        session: Session,
        reads: Reads,
    ) -> Self {
        let progress = Progress {
            header: Some(Bytes::from(header)),
            place: SLOTS_AT,
            length: 0,
            written_end: 0,
            is_in_order: true,
            is_reserved: false,
            tail: None,
            is_tail_lost: false,
        };
        let state = Mutex::new(State { progress, session, change: 0, before: None });
        Self { file, path: path.to_path_buf(), reads, state }
    }

    /// A file that has these contents.
    pub(crate) fn existing(
        file: Arc<dyn DiskFile>,
        path: &std::path::Path,
        before: Contents,
        session: Session,
        reads: Reads,
    ) -> Self {
        use helenus_io::CompleteFile as _;
        let length = before.length();
        let progress = Progress {
            header: None,
            // Behind all that an earlier life may have written and not synced.
            place: before.frames().map_or(SLOTS_AT, |frames| frames.end_place),
            length,
            written_end: length,
            is_in_order: false,
            is_reserved: false,
            tail: None,
            is_tail_lost: false,
        };
        let state = State { progress, session, change: 0, before: Some(Arc::new(before)) };
        Self { file, path: path.to_path_buf(), reads, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the bytes for the disk.
    fn change(
        &self,
        is_synced: bool,
        change: impl FnOnce(&mut Progress, &mut Session) -> Result<(u64, Vec<u8>), BrokenInvariant>,
    ) -> Result<Stored, DiskError> {
        let mut state = self.state();
        let state = &mut *state;
        let previous = state.progress.clone();
        let sealed = change(&mut state.progress, &mut state.session);
        let (place, bytes) = sealed.map_err(|broken| error("encrypt", &self.path, KeyError::from(broken)))?;
        let (place, bytes) = state.progress.with_header(place, bytes);
        if is_synced {
            // Whatever comes of the sync, it may be durable.
            state.progress.tail = None;
        }
        state.change += 1;
        Ok(Stored { place, bytes, change: state.change, previous })
    }

    /// Takes back the places of a write that has failed.
    fn failed(&self, change: u64, mut previous: Progress) {
        let mut state = self.state();
        if state.change == change {
            previous.is_tail_lost = previous.tail.is_some();
            state.progress = previous;
        }
    }

    async fn store(&self, stored: Result<Stored, DiskError>, is_synced: bool) -> Result<(), DiskError> {
        let Stored { place, bytes, change, previous } = stored?;
        let written = if is_synced {
            self.file.write_and_sync_at(place, bytes).await
        } else {
            self.file.write_at(place, bytes).await
        };
        if written.as_ref().is_err_and(|error| !error.is_sync()) {
            self.failed(change, previous);
        }
        written
    }

    fn write(&self, offset: u64, data: Bytes, is_synced: bool) -> DiskFuture<'_, ()> {
        let before = self.state().before.take();
        if let Some(before) = before {
            return Box::pin(self.write_first(before, offset, data, is_synced));
        }
        let is_filling = {
            let state = self.state();
            let progress = &state.progress;
            progress.is_reserved
                && progress.header.is_none()
                && offset >= progress.written_end
                && offset + data.len() as u64 <= progress.length
                && data.iter().all(|byte| *byte == 0)
        };
        if is_filling {
            return self.fill(offset, data.len() as u64, is_synced);
        }
        let stored = self.change(is_synced, |progress, session| progress.seal(session, offset, &data));
        Box::pin(self.store(stored, is_synced))
    }

    /// Zeros over what was reserved and not written: they are there already, and are written so that the disk has their blocks.
    fn fill(&self, offset: u64, length: u64, is_synced: bool) -> DiskFuture<'_, ()> {
        let free = {
            let place = self.state().progress.place;
            slot_start(place + SLOT_BYTES as u64 - 1)
        };
        let start = slot_start(SLOTS_AT + offset / CONTENTS_BYTES as u64 * SLOT_BYTES as u64).max(free);
        let end = stored_bytes(offset + length).max(start);
        let zeros = Bytes::from(vec![0; (end - start) as usize]);
        if is_synced {
            self.state().progress.tail = None;
            self.file.write_and_sync_at(start, zeros)
        } else {
            self.file.write_at(start, zeros)
        }
    }

    /// The first write after the file was opened. It may write what is there already, so that it becomes durable: then the same bytes
    /// are written again at the same places on the disk, which takes no room.
    async fn write_first(
        &self,
        before: Arc<Contents>,
        offset: u64,
        data: Bytes,
        is_synced: bool,
    ) -> Result<(), DiskError> {
        let Some(frames) = before.frames() else {
            let broken = broken!("all frames of a file that is opened for writing were looked at");
            return Err(error("write", &self.path, KeyError::from(broken)));
        };
        // Parts of `data` that differ from what is there, ascending, and frames whose bytes are written again.
        let mut different: Vec<(usize, usize)> = Vec::new();
        let mut again: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut at = offset;
        let end = offset + data.len() as u64;
        let mut scratch = Vec::new();
        for (start, piece) in frames.pieces(offset, data.len() as u64) {
            let (from, to) = (start.max(offset), (start + piece.length as u64).min(end));
            compare_hole(frames, &data, offset, (at, from), &mut different);
            let stored = self.reads.part(&before.file, piece.frame.place, piece.frame.stored_bytes()).await?;
            let wanted = &data[(from - offset) as usize..(to - offset) as usize];
            if is_there(&before, &stored, (start, piece), from, wanted, &mut scratch) {
                match again.last_mut() {
                    // The frames of neighbouring slots, or of one slot.
                    Some((place, bytes)) if follows(*place, bytes.len(), piece.frame.place) => {
                        bytes.resize((piece.frame.place - *place) as usize, 0);
                        bytes.extend_from_slice(&stored);
                    }
                    _ => again.push((piece.frame.place, stored.into_vec())),
                }
            } else {
                add_range(&mut different, (from - offset) as usize, (to - offset) as usize);
            }
            at = to;
        }
        compare_hole(frames, &data, offset, (at, end), &mut different);
        for (place, bytes) in again {
            self.file.write_at(place, Bytes::from(bytes)).await?;
        }
        for (from, to) in different {
            let part = data.slice(from..to);
            let stored =
                self.change(false, |progress, session| progress.seal(session, offset + from as u64, &part));
            self.store(stored, false).await?;
        }
        if is_synced { self.sync_data().await } else { Ok(()) }
    }
}

/// Adds a part of what is written to `different`, unless no frame has it and it reads as what is written: zeros.
fn compare_hole(
    frames: &Frames,
    data: &Bytes,
    offset: u64,
    (from, to): (u64, u64),
    different: &mut Vec<(usize, usize)>,
) {
    if from >= to {
        return;
    }
    let (start, end) = ((from - offset) as usize, (to - offset) as usize);
    let is_zero = data[start..end].iter().all(|byte| *byte == 0);
    if !is_zero || to > frames.length || frames.has_damage(from, to - from) {
        add_range(different, start, end);
    }
}

/// Whether a frame that can be read has what is written.
fn is_there(
    before: &Contents,
    stored: &[u8],
    (start, piece): (u64, Piece),
    from: u64,
    wanted: &[u8],
    scratch: &mut Vec<u8>,
) -> bool {
    let skipped = piece.skipped + (from - start) as usize;
    before
        .frame(stored, &piece.frame, scratch)
        .and_then(|contents| contents.get(skipped..skipped + wanted.len()))
        .is_some_and(|contents| contents == wanted)
}

/// Whether only the end of a slot lies between some bytes and a place, and is too short for a frame.
fn follows(place: u64, length: usize, next: u64) -> bool {
    let end = place + length as u64;
    next == end
        || (next > end && next.is_multiple_of(SLOT_BYTES as u64) && next - end < OVERHEAD_BYTES as u64)
}

fn add_range(ranges: &mut Vec<(usize, usize)>, from: usize, to: usize) {
    match ranges.last_mut() {
        Some((_, end)) if *end == from => *end = to,
        _ => ranges.push((from, to)),
    }
}

impl DiskFile for EncryptedFile {
    fn write_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        if data.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.write(offset, data, false)
    }

    fn sync_data(&self) -> DiskFuture<'_, ()> {
        let lost = {
            let mut state = self.state();
            let tail = state.progress.tail.take();
            tail.filter(|_| state.progress.is_tail_lost)
        };
        let Some(Tail { place, offset, contents }) = lost else { return self.file.sync_data() };
        let stored = self.change(true, |progress, session| {
            progress.place = place;
            progress.seal(session, offset, &contents)
        });
        Box::pin(self.store(stored, true))
    }

    fn reserve(&self, length: u64) -> DiskFuture<'_, ()> {
        Box::pin(async move {
            let stored = stored_bytes(length);
            self.file.reserve(stored.saturating_add(length / SMALL_FRAMES_PART)).await?;
            let is_longer = {
                let mut state = self.state();
                state.progress.is_reserved = state.before.is_none();
                state.progress.length < length
            };
            if !is_longer {
                return Ok(());
            }
            let stored = self.change(false, |progress, session| {
                progress.tail = None;
                progress.is_in_order = false;
                let mut out = Vec::new();
                let room = SLOT_BYTES - (progress.place % SLOT_BYTES as u64) as usize;
                let start = progress.place;
                if room < OVERHEAD_BYTES {
                    out.resize(room, 0);
                    progress.place += room as u64;
                }
                let place = progress.place;
                let frame =
                    Frame { place, kind: Kind::Length, is_in_order: false, offset: length, length: 0 };
                session.seal(&frame, &[], &mut out)?;
                progress.place += OVERHEAD_BYTES as u64;
                progress.length = length;
                Ok((start, out))
            });
            self.store(stored, false).await
        })
    }

    fn write_and_sync_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        if data.is_empty() {
            return self.sync_data();
        }
        self.write(offset, data, true)
    }
}
