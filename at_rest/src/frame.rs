//! The encrypted pieces of a file, and the slots that they lie in.
//!
//! ```text
//! file  := header area (4,096 bytes) | slot*
//! slot  := 4,096 bytes: frame* | zeros. The last one may be shorter
//! frame := offset  0  magic    u16   0xA7E5
//!                  2  kind     u8    1: contents; 2: the file has at least `offset` bytes
//!                  3  in order u8    1: this frame and all before it are the only ones of their slots, and the one in slot n has the file's
//!                                    contents from 4,040 n on; else 0
//!                  4  length   u16   of the contents in bytes; 0 for kind 2
//!                  6  zero     u16
//!                  8  offset   u64   of the contents in the file above
//!                 16  session  16 bytes
//!                 32  counter  u64
//!                 40  contents, encrypted
//!                     tag      16 bytes
//! ```
//! All integers little endian. A frame is encrypted with AES-256-GCM. Its key is HMAC-SHA-256(file's key, "helenus at rest: session" | session).
//! Its nonce is four zeros and the counter, big endian. Associated data are the bytes before the contents, and the place of the frame in the file
//! on the disk (u64).
//!
//! No nonce is used twice with a key: a session is 128 random bits, drawn whenever a file is opened for writing; in a session the counter
//! rises with every frame that is made, whether or not it reaches the disk. Nothing restores it.

use std::sync::{Arc, Mutex, PoisonError};

use helenus_io::invariant::BrokenInvariant;
use helenus_io::{broken, invariant};
use ring::aead::{Aad, LessSafeKey, Nonce};

use crate::error::KeyError;
use crate::header::{HEADER_AREA_BYTES, TAG_BYTES, cipher, derive};
use crate::keys::Secret;

pub(crate) const SLOT_BYTES: usize = 4096;
const HEAD_BYTES: usize = 40;
/// Bytes of a frame beside its contents.
pub(crate) const OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;
/// The contents of a slot with one frame.
pub(crate) const CONTENTS_BYTES: usize = SLOT_BYTES - OVERHEAD_BYTES;
/// The place of the first slot.
pub(crate) const SLOTS_AT: u64 = HEADER_AREA_BYTES as u64;
const MAGIC: [u8; 2] = 0xA7E5_u16.to_le_bytes();
/// What is read where contents cannot be: no format of ours takes it for data, nor for a place that was never written.
pub(crate) const DAMAGE: u8 = 0xFF;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Contents,
    Length,
}

/// A frame in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where it lies in the file on the disk.
    pub(crate) place: u64,
    pub(crate) kind: Kind,
    pub(crate) is_in_order: bool,
    /// Of its contents in the file above.
    pub(crate) offset: u64,
    /// Of its contents.
    pub(crate) length: usize,
}

impl Frame {
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }

    /// All its bytes on the disk.
    pub(crate) fn stored_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.length
    }
}

type SessionId = [u8; 16];

/// The frames that one opening of a file for writing makes.
pub(crate) struct Session {
    id: SessionId,
    key: LessSafeKey,
    counter: u64,
}

impl Session {
    /// `id` is random.
    pub(crate) fn new(file_key: &Secret, id: u128) -> Result<Self, BrokenInvariant> {
        let id = id.to_le_bytes();
        Ok(Self { id, key: session_key(file_key, id)?, counter: 0 })
    }

    /// Appends a frame to `out`.
    pub(crate) fn seal(
        &mut self,
        frame: &Frame,
        contents: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BrokenInvariant> {
        let next = self.counter.checked_add(1);
        self.counter = next.ok_or_else(|| broken!("a session makes fewer than 2^64 frames"))?;
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(if frame.kind == Kind::Contents { 1 } else { 2 });
        out.push(u8::from(frame.is_in_order));
        invariant!(
            contents.len() == frame.length && frame.length <= CONTENTS_BYTES,
            "a frame fits into a slot"
        );
        out.extend_from_slice(&(frame.length as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&frame.offset.to_le_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.counter.to_le_bytes());
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&out[start..]);
        let additional = additional(&head, frame.place);
        let contents_at = out.len();
        out.extend_from_slice(contents);
        let additional = Aad::from(additional);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(self.counter), additional, &mut out[contents_at..])
            .map_err(|_| broken!("a frame is short enough to be encrypted"))?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

fn session_key(file_key: &Secret, id: SessionId) -> Result<LessSafeKey, BrokenInvariant> {
    cipher(&derive(file_key, b"helenus at rest: session", &id))
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn additional(head: &[u8; HEAD_BYTES], place: u64) -> [u8; HEAD_BYTES + 8] {
    let mut bytes = [0; HEAD_BYTES + 8];
    bytes[..HEAD_BYTES].copy_from_slice(head);
    bytes[HEAD_BYTES..].copy_from_slice(&place.to_le_bytes());
    bytes
}

/// What the head of a frame says, with a place of zero, its session and its counter. `None`: it is none.
fn head(bytes: &[u8]) -> Option<(Frame, SessionId, u64)> {
    let head = bytes.first_chunk::<HEAD_BYTES>()?;
    let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
    let kind = match head[2] {
        1 if length > 0 => Kind::Contents,
        2 if length == 0 => Kind::Length,
        _ => return None,
    };
    if head[..2] != MAGIC || head[3] > 1 {
        return None;
    }
    let offset = u64::from_le_bytes(*head[8..].first_chunk()?);
    let counter = u64::from_le_bytes(*head[32..].first_chunk()?);
    let frame = Frame { place: 0, kind, is_in_order: head[3] == 1, offset, length };
    Some((frame, *head[16..].first_chunk()?, counter))
}

/// Opens the frames of one file.
pub(crate) struct Opener {
    file_key: Secret,
    /// The session whose frames were opened last.
    last: Mutex<Option<(SessionId, Arc<LessSafeKey>)>>,
}

impl Opener {
    pub(crate) fn new(file_key: Secret) -> Self {
        Self { file_key, last: Mutex::new(None) }
    }

    /// A session for writing.
    pub(crate) fn session(&self, id: u128) -> Result<Session, KeyError> {
        Ok(Session::new(&self.file_key, id)?)
    }

    fn key(&self, id: SessionId) -> Result<Arc<LessSafeKey>, BrokenInvariant> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = last.as_ref().filter(|(known, _)| *known == id) {
            return Ok(Arc::clone(key));
        }
        let key = Arc::new(session_key(&self.file_key, id)?);
        *last = Some((id, Arc::clone(&key)));
        Ok(key)
    }

    /// Opens the frame that `bytes` begin with. `scratch` takes its contents.
    pub(crate) fn open<'a>(&self, bytes: &[u8], place: u64, scratch: &'a mut Vec<u8>) -> Found<'a> {
        let Some((frame, id, counter)) = head(bytes) else { return Found::Damaged };
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Found::Damaged };
        let Some(sealed) = rest.get(..frame.length + TAG_BYTES) else { return Found::Damaged };
        // A broken invariant is reported: the shard stops.
        let Ok(key) = self.key(id) else { return Found::Damaged };
        scratch.clear();
        scratch.extend_from_slice(sealed);
        let additional = Aad::from(additional(head, place));
        match key.open_in_place(nonce(counter), additional, scratch) {
            Ok(contents) => Found::Frame(Frame { place, ..frame }, contents),
            Err(_) => Found::Damaged,
        }
    }
}

/// What lies at a place of a slot.
pub(crate) enum Found<'a> {
    /// Nothing that is authentic.
    Damaged,
    Frame(Frame, &'a [u8]),
}

/// What a slot has in it, in the order of its bytes.
pub(crate) enum Item<'a> {
    Frame(Frame, &'a [u8]),
    /// These contents are lost.
    Damage {
        offset: u64,
        length: u64,
        /// A head says the same.
        is_certain: bool,
    },
}

/// Hands every frame of a slot to `take`, and what is damaged between them. `place`: of the slot in the file on the disk. `expected`: where the
/// contents of the frame before it end. That frames follow each other is assumed of damaged ones only.
pub(crate) fn scan(
    opener: &Opener,
    slot: &[u8],
    place: u64,
    expected: &mut u64,
    mut take: impl FnMut(Item<'_>),
) {
    let mut scratch = Vec::new();
    let mut at = 0;
    loop {
        let rest = &slot[at..];
        let Some(last) = rest.iter().rposition(|byte| *byte != 0) else { return };
        if let Found::Frame(frame, contents) = opener.open(rest, place + at as u64, &mut scratch) {
            at += frame.stored_bytes();
            if frame.kind == Kind::Contents {
                *expected = frame.end();
            }
            take(Item::Frame(frame, contents));
            continue;
        }
        let next = (1..rest.len().saturating_sub(HEAD_BYTES)).find_map(|skipped| {
            let bytes = rest.get(skipped..).filter(|bytes| bytes.starts_with(&MAGIC))?;
            match opener.open(bytes, place + (at + skipped) as u64, &mut scratch) {
                Found::Frame(frame, _) => Some((skipped, frame)),
                Found::Damaged => None,
            }
        });
        // At most what was written: what is behind it must not be taken for damaged.
        let stored = next.map_or(last + 1, |(skipped, _)| skipped);
        let between = next.map(|(_, frame)| frame).filter(|frame| frame.kind == Kind::Contents);
        let exact = between.and_then(|frame| frame.offset.checked_sub(*expected));
        let length = stored.saturating_sub(OVERHEAD_BYTES) as u64;
        let length = exact.filter(|exact| *exact <= length).unwrap_or(length);
        let claimed =
            head(rest).is_some_and(|(frame, ..)| frame.offset == *expected && frame.length as u64 == length);
        take(Item::Damage { offset: *expected, length, is_certain: claimed });
        *expected += length;
        match next {
            Some((skipped, _)) => at += skipped,
            None => return,
        }
    }
}
