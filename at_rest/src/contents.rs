//! Reading an encrypted file: which frame holds which bytes.
//!
//! The contents of a file are zeros up to its length, and over them those of its frames in the order of their places: where frames overlap, the
//! last one counts. A frame that is not authentic is no frame. Bytes that no frame holds, and that lie where the damaged one would, read as
//! [`DAMAGE`]: what reads the file finds that its checksum is wrong, as it does after flipped bits. Nothing that is not authentic is ever returned.
//!
//! A file that was written front to back and synced at its end is *regular*: its last frame says that it and all before it are in order. Then
//! the place of every byte is known without looking at the other frames. All other files are looked at as a whole when they are opened.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helenus_io::{CompleteFile, DiskError, DiskFuture};

use crate::frame::{
    CONTENTS_BYTES, DAMAGE, Found, Frame, Item, Kind, OVERHEAD_BYTES, Opener, SLOT_BYTES, SLOTS_AT, scan,
};
use crate::header::{Beginning, HEADER_AREA_BYTES};
use crate::keys::MasterKeys;
use crate::plain::{PlainFiles, Substitute, Uniform};

/// A file is looked at in pieces of this size.
const PIECE_BYTES: usize = 256 * SLOT_BYTES;
/// Frames with at most this many bytes between them are read at once.
const GAP_BYTES: u64 = SLOT_BYTES as u64;

/// How parts of the files of a disk are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// By [`CompleteFile::read_later`].
    Later,
    /// By [`CompleteFile::read_at`]: the disk of background jobs.
    Here,
}

impl Reads {
    pub(crate) async fn part(
        self,
        file: &Arc<dyn CompleteFile>,
        offset: u64,
        length: usize,
    ) -> Result<Box<[u8]>, DiskError> {
        match self {
            Self::Later => Arc::clone(file).read_later(offset, length).await,
            Self::Here => {
                let mut bytes = vec![0; length].into_boxed_slice();
                file.read_at(offset, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

/// A file as it was found.
pub(crate) enum Loaded {
    /// It is not encrypted, or its header is damaged. This is what is read of it.
    Plain(Arc<dyn CompleteFile>),
    Encrypted(Contents),
}

/// A part of a frame that no later frame covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) frame: Frame,
    /// Bytes of the frame's contents before it.
    pub(crate) skipped: usize,
    pub(crate) length: usize,
}

/// The frames of a file, as they were found one after the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// By offset.
    pieces: BTreeMap<u64, Piece>,
    /// Offset and length.
    damage: Vec<(u64, u64)>,
    pub(crate) length: u64,
    /// Where the contents of the last frame end.
    expected: u64,
    /// The place behind the last slot that has anything in it.
    pub(crate) end_place: u64,
}

impl Frames {
    fn take(&mut self, item: &Item<'_>) {
        match item {
            Item::Frame(frame, _) if frame.kind == Kind::Length => self.grow(frame.offset),
            Item::Frame(frame, _) => self.put(*frame),
            Item::Damage { offset, length, is_certain } => {
                self.damage.push((*offset, *length));
                if *is_certain {
                    self.length = self.length.max(offset.saturating_add(*length));
                }
            }
        }
    }

    /// Takes over that the file was made longer by zeros: what was lost behind its end then is not in it.
    fn grow(&mut self, length: u64) {
        if length <= self.length {
            return;
        }
        for (offset, damaged) in &mut self.damage {
            *damaged = (*damaged).min(self.length.saturating_sub(*offset));
        }
        self.length = length;
    }

    fn put(&mut self, frame: Frame) {
        let (start, end) = (frame.offset, frame.end());
        self.length = self.length.max(end);
        let first = self.pieces.range(..start).next_back().map_or(start, |(offset, _)| *offset);
        let overlapped: Vec<(u64, Piece)> = self
            .pieces
            .range(first..end)
            .filter(|(offset, piece)| **offset + piece.length as u64 > start)
            .map(|(offset, piece)| (*offset, *piece))
            .collect();
        for (offset, piece) in overlapped {
            self.pieces.remove(&offset);
            let piece_end = offset + piece.length as u64;
            if offset < start {
                self.pieces.insert(offset, Piece { length: (start - offset) as usize, ..piece });
            }
            if piece_end > end {
                let cut = (end - offset) as usize;
                let rest = Piece { skipped: piece.skipped + cut, length: piece.length - cut, ..piece };
                self.pieces.insert(end, rest);
            }
        }
        self.pieces.insert(start, Piece { frame, skipped: 0, length: frame.length });
    }

    /// Takes the slots of a piece of the file. `place`: of the first one.
    fn take_slots(&mut self, opener: &Opener, bytes: &[u8], place: u64, mut each: impl FnMut(&Frame, &[u8])) {
        for (index, slot) in bytes.chunks(SLOT_BYTES).enumerate() {
            let place = place + (index * SLOT_BYTES) as u64;
            if slot.iter().any(|byte| *byte != 0) {
                self.end_place = place + SLOT_BYTES as u64;
            }
            let mut expected = self.expected;
            scan(opener, slot, place, &mut expected, |item| {
                self.take(&item);
                if let Item::Frame(frame, contents) = item
                    && frame.kind == Kind::Contents
                {
                    each(&frame, contents);
                }
            });
            self.expected = expected;
        }
    }

    /// Whether the whole file is one frame a slot, in order.
    fn are_regular(&self) -> bool {
        self.damage.is_empty()
            && self.pieces.iter().enumerate().all(|(index, (offset, piece))| {
                let frame = piece.frame;
                frame.is_in_order
                    && piece.length == frame.length
                    && *offset == (index * CONTENTS_BYTES) as u64
                    && frame.place == SLOTS_AT + (index * SLOT_BYTES) as u64
            })
            && self.length
                == self.pieces.last_key_value().map_or(0, |(offset, piece)| offset + piece.length as u64)
    }

    /// The pieces that have bytes of a part of the file, ascending.
    pub(crate) fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, Piece)> + '_ {
        let end = offset.saturating_add(length);
        let first = self.pieces.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        self.pieces
            .range(first..end.max(first))
            .filter(move |(start, piece)| **start + piece.length as u64 > offset)
            .map(|(start, piece)| (*start, *piece))
    }

    /// Whether any of these bytes are damaged and were not written since.
    pub(crate) fn has_damage(&self, offset: u64, length: u64) -> bool {
        self.damage
            .iter()
            .any(|(start, damaged)| *damaged > 0 && *start < offset + length && offset < start + damaged)
    }

    fn mark_damage(&self, offset: u64, out: &mut [u8]) {
        for (start, length) in &self.damage {
            let from = start.saturating_sub(offset).min(out.len() as u64) as usize;
            let to = (start + length).saturating_sub(offset).min(out.len() as u64) as usize;
            if let Some(range) = out.get_mut(from..to) {
                range.fill(DAMAGE);
            }
        }
    }
}

/// Where the bytes of a file are.
enum Layout {
    /// One full frame a slot, in order.
    Regular,
    Frames(Frames),
}

/// An encrypted file that is read in parts.
pub(crate) struct Contents {
    pub(crate) file: Arc<dyn CompleteFile>,
    path: PathBuf,
    pub(crate) opener: Opener,
    length: u64,
    layout: Layout,
}

/// A part of a piece that is asked for.
struct Wanted {
    frame: Frame,
    /// Bytes of the frame's contents before what is asked for.
    skipped: usize,
    length: usize,
    /// Where it goes in the answer.
    target: usize,
}

/// Frames that are read at once.
struct Run {
    place: u64,
    length: usize,
    wanted: Vec<Wanted>,
}

pub(crate) fn error(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> DiskError {
    DiskError::new(operation, path, source.into())
}

/// Opens a file. `whole`: all its frames are looked at in any case.
pub(crate) async fn load(
    file: Arc<dyn CompleteFile>,
    path: &Path,
    (keys, plain_files): (&MasterKeys, PlainFiles),
    reads: Reads,
    whole: bool,
) -> Result<Loaded, DiskError> {
    let stored = file.length();
    let area = stored.min(SLOTS_AT) as usize;
    let mut beginning = Beginning::read(&reads.part(&file, 0, area).await?);
    if matches!(beginning, Beginning::Damaged) {
        beginning = Beginning::read(&reads.part(&file, 0, area).await?);
    }
    let header = match beginning {
        Beginning::Encrypted(header) => header,
        other => {
            if matches!(other, Beginning::Damaged) {
                tracing::warn!(path = %path.display(), "the header of an encrypted file is damaged");
            }
            let substitute = plain_files.substitute(&other).map_err(|key| error("open", path, key))?;
            return Ok(Loaded::Plain(match substitute {
                Substitute::None => file,
                Substitute::Byte(byte) => {
                    Arc::new(Uniform { byte, length: stored, path: path.to_path_buf() })
                }
            }));
        }
    };
    let opener = Opener::new(header.unwrap_key(keys).map_err(|key| error("open", path, key))?);
    let contents = |length, layout, opener| {
        Ok(Loaded::Encrypted(Contents {
            file: Arc::clone(&file),
            path: path.to_path_buf(),
            opener,
            length,
            layout,
        }))
    };
    if !whole && let Some(length) = regular_length(&file, &opener, reads).await? {
        return contents(length, Layout::Regular, opener);
    }
    let mut frames = Frames { end_place: SLOTS_AT, ..Frames::default() };
    for place in (SLOTS_AT..stored).step_by(PIECE_BYTES) {
        let length = (stored - place).min(PIECE_BYTES as u64) as usize;
        let bytes = reads.part(&file, place, length).await?;
        frames.take_slots(&opener, &bytes, place, |_, _| {});
    }
    if !whole && frames.are_regular() {
        return contents(frames.length, Layout::Regular, opener);
    }
    contents(frames.length, Layout::Frames(frames), opener)
}

/// The length of a regular file; `None`: its last slot does not say that it is one.
async fn regular_length(
    file: &Arc<dyn CompleteFile>,
    opener: &Opener,
    reads: Reads,
) -> Result<Option<u64>, DiskError> {
    let Some(last) = file.length().checked_sub(SLOTS_AT + 1).map(|bytes| bytes / SLOT_BYTES as u64) else {
        return Ok(Some(0));
    };
    let place = SLOTS_AT + last * SLOT_BYTES as u64;
    let slot = reads.part(file, place, (file.length() - place) as usize).await?;
    let mut scratch = Vec::new();
    let Found::Frame(frame, _) = opener.open(&slot, place, &mut scratch) else { return Ok(None) };
    let is_only = slot.get(frame.stored_bytes()..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
    let is_regular = frame.kind == Kind::Contents
        && frame.is_in_order
        && is_only
        && frame.offset == last * CONTENTS_BYTES as u64;
    Ok(is_regular.then_some(frame.end()))
}

/// The contents of a file from all its bytes on the disk; `None`: those bytes.
pub(crate) fn decrypt(
    stored: &[u8],
    path: &Path,
    keys: &MasterKeys,
    plain_files: PlainFiles,
) -> Result<Option<Vec<u8>>, DiskError> {
    let area = stored.get(..HEADER_AREA_BYTES).unwrap_or(stored);
    let header = match Beginning::read(area) {
        Beginning::Encrypted(header) => header,
        other => {
            let substitute = plain_files.substitute(&other).map_err(|key| error("read", path, key))?;
            return Ok(match substitute {
                Substitute::None => None,
                Substitute::Byte(byte) => Some(vec![byte; stored.len()]),
            });
        }
    };
    let opener = Opener::new(header.unwrap_key(keys).map_err(|key| error("read", path, key))?);
    let mut frames = Frames::default();
    let mut opened: Vec<u8> = Vec::with_capacity(stored.len());
    let mut placed: Vec<(Frame, usize)> = Vec::new();
    let slots = stored.get(HEADER_AREA_BYTES..).unwrap_or_default();
    frames.take_slots(&opener, slots, SLOTS_AT, |frame, contents| {
        placed.push((*frame, opened.len()));
        opened.extend_from_slice(contents);
    });
    if !frames.damage.is_empty() {
        note_damage(path);
    }
    let length = usize::try_from(frames.length)
        .map_err(|_| error("read", path, io::Error::from(io::ErrorKind::FileTooLarge)))?;
    if placed.iter().try_fold(0, |end, (frame, _)| (frame.offset == end).then(|| frame.end()))
        == Some(frames.length)
    {
        return Ok(Some(opened));
    }
    let mut out = vec![0; length];
    frames.mark_damage(0, &mut out);
    for (frame, at) in placed {
        let target = &mut out[frame.offset as usize..frame.end() as usize];
        target.copy_from_slice(&opened[at..at + frame.length]);
    }
    Ok(Some(out))
}

#[cold]
fn note_damage(path: &Path) {
    tracing::warn!(path = %path.display(), "parts of an encrypted file are not authentic: they are damaged");
}

impl Contents {
    /// The frames, if all were looked at.
    pub(crate) fn frames(&self) -> Option<&Frames> {
        match &self.layout {
            Layout::Regular => None,
            Layout::Frames(frames) => Some(frames),
        }
    }

    /// The frames that have the wanted bytes, in few reads.
    fn runs(&self, offset: u64, length: usize) -> Vec<Run> {
        let end = offset + length as u64;
        let mut runs: Vec<Run> = Vec::new();
        let mut want = |start: u64, piece: Piece| {
            let from = offset.max(start);
            let to = end.min(start + piece.length as u64);
            let wanted = Wanted {
                frame: piece.frame,
                skipped: piece.skipped + (from - start) as usize,
                length: (to - from) as usize,
                target: (from - offset) as usize,
            };
            let place = piece.frame.place;
            let stored = piece.frame.stored_bytes();
            match runs.last_mut() {
                Some(run)
                    if place >= run.place
                        && place <= run.place + run.length as u64 + GAP_BYTES
                        && run.length < PIECE_BYTES =>
                {
                    run.length = run.length.max((place - run.place) as usize + stored);
                    run.wanted.push(wanted);
                }
                _ => runs.push(Run { place, length: stored, wanted: vec![wanted] }),
            }
        };
        match &self.layout {
            Layout::Frames(frames) => {
                frames.pieces(offset, length as u64).for_each(|(start, piece)| want(start, piece));
            }
            Layout::Regular if length > 0 => {
                let slots = offset / CONTENTS_BYTES as u64..=(end - 1) / CONTENTS_BYTES as u64;
                for slot in slots {
                    let start = slot * CONTENTS_BYTES as u64;
                    let length = (self.length - start).min(CONTENTS_BYTES as u64) as usize;
                    let place = SLOTS_AT + slot * SLOT_BYTES as u64;
                    let frame =
                        Frame { place, kind: Kind::Contents, is_in_order: true, offset: start, length };
                    want(start, Piece { frame, skipped: 0, length });
                }
            }
            Layout::Regular => {}
        }
        runs
    }

    fn begin(&self, offset: u64, out: &mut [u8]) -> Result<Vec<Run>, DiskError> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.length) {
            return Err(error("read a part of", &self.path, io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        if let Layout::Frames(frames) = &self.layout {
            frames.mark_damage(offset, out);
        }
        Ok(self.runs(offset, out.len()))
    }

    /// Puts the contents of a run into the answer. `bytes`: those of the run on the disk.
    fn put(&self, run: &Run, bytes: &[u8], out: &mut [u8]) {
        let mut scratch = Vec::with_capacity(SLOT_BYTES);
        for wanted in &run.wanted {
            let target = &mut out[wanted.target..wanted.target + wanted.length];
            let stored = &bytes[(wanted.frame.place - run.place) as usize..];
            if let Some(contents) = self.frame(stored, &wanted.frame, &mut scratch) {
                target.copy_from_slice(&contents[wanted.skipped..wanted.skipped + wanted.length]);
            } else {
                note_damage(&self.path);
                target.fill(DAMAGE);
            }
        }
    }

    /// The contents of a frame that is known; `None`: it cannot be read.
    pub(crate) fn frame<'a>(
        &self,
        stored: &[u8],
        frame: &Frame,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        match self.opener.open(stored, frame.place, scratch) {
            Found::Frame(found, contents) if found == *frame => Some(contents),
            _ => None,
        }
    }
}

impl CompleteFile for Contents {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        buffer.fill(0);
        for run in self.begin(offset, buffer)? {
            let mut bytes = vec![0; run.length];
            self.file.read_at(run.place, &mut bytes)?;
            self.put(&run, &bytes, buffer);
        }
        Ok(())
    }

    fn read_later(self: Arc<Self>, offset: u64, length: usize) -> DiskFuture<'static, Box<[u8]>> {
        Box::pin(async move {
            let mut out = vec![0; length].into_boxed_slice();
            for run in self.begin(offset, &mut out)? {
                let bytes = Arc::clone(&self.file).read_later(run.place, run.length).await?;
                self.put(&run, &bytes, &mut out);
            }
            Ok(out)
        })
    }
}

const _: () = assert!(OVERHEAD_BYTES < SLOT_BYTES);
