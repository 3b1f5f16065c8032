//! Frames between nodes: encoding and decoding, without sockets.
//!
//! All integers are little endian, checksums are CRC-32 (IEEE):
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length of the payload |
//! | 4 | 1 | version of this layout, 1 |
//! | 5 | 1 | kind ([`FrameKind`]) |
//! | 6 | 2 | zero |
//! | 8 | 8 | call id: chosen by the caller, repeated in the answer |
//! | 16 | 4 | milliseconds for which the caller still waits (requests; otherwise 0) |
//! | 20 | 4 | checksum of the payload |
//! | 24 | 4 | checksum of the 24 bytes before |
//! | 28 | length | payload |
//!
//! Invariants: no field of a header is used before its checksum has been verified; the length is compared with the
//! limit before memory is reserved; a payload is returned only after its checksum has been verified. After an error
//! the stream has no more frames: the link must end.

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// The version of the layout.
pub const FRAME_VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER_BYTES: usize = 28;
/// Bytes of the header that its checksum covers.
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Asks for an answer with the same call id.
    Request = 1,
    /// A message without an answer.
    OneWay = 2,
    /// Answers a request.
    Answer = 3,
    /// The sender closes the link: it reads no more requests and sends no more answers.
    Goodbye = 4,
    /// Asks for a [`FrameKind::Pong`], to test whether the other node is alive.
    Ping = 5,
    Pong = 6,
    /// The answer to the request cannot be sent, whether it was executed or not; the payload is the reason (UTF-8).
    Failed = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::OneWay,
            3 => Self::Answer,
            4 => Self::Goodbye,
            5 => Self::Ping,
            6 => Self::Pong,
            7 => Self::Failed,
            _ => return None,
        })
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    pub call_id: u64,
    /// Milliseconds for which the caller still waits.
    pub deadline_ms: u32,
    pub payload: Bytes,
}

/// The reason why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("the checksum of a frame's header is wrong")]
    HeaderChecksum,
    #[error("frame version {0} is not known")]
    Version(u8),
    #[error("frame kind {0} is not known")]
    Kind(u8),
    #[error("the reserved bytes of a frame's header are {0:#06x}, not zero")]
    Reserved(u16),
    #[error("a frame of {bytes} bytes is above the limit of {limit_bytes}")]
    TooLong { bytes: u32, limit_bytes: u32 },
    #[error("the checksum of the payload of call {call_id} is wrong")]
    PayloadChecksum { call_id: u64 },
}

/// The header of a frame with this payload, which must be shorter than 4 GiB (limits are).
pub fn header(kind: FrameKind, call_id: u64, deadline_ms: u32, payload: &[u8]) -> [u8; HEADER_BYTES] {
    debug_assert!(u32::try_from(payload.len()).is_ok(), "a payload of 4 GiB");
    let mut bytes = [0; HEADER_BYTES];
    let mut out = &mut bytes[..];
    out.put_u32_le(payload.len() as u32);
    out.put_u8(FRAME_VERSION);
    out.put_u8(kind as u8);
    out.put_u16_le(0);
    out.put_u64_le(call_id);
    out.put_u32_le(deadline_ms);
    out.put_u32_le(crc32fast::hash(payload));
    let checksum = crc32fast::hash(&bytes[..CHECKED_BYTES]);
    bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Appends a frame.
pub fn encode(out: &mut BytesMut, frame: &Frame) {
    out.reserve(HEADER_BYTES + frame.payload.len());
    out.put_slice(&header(frame.kind, frame.call_id, frame.deadline_ms, &frame.payload));
    out.put_slice(&frame.payload);
}

/// A header whose payload has not arrived completely.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: FrameKind,
    call_id: u64,
    deadline_ms: u32,
    payload_bytes: u32,
    payload_checksum: u32,
}

/// Decodes frames from a stream of bytes.
#[derive(Debug)]
pub struct Decoder {
    payload_bytes_max: u32,
    header: Option<Header>,
}

impl Decoder {
    /// A decoder that refuses payloads larger than `payload_bytes_max`.
    pub fn new(payload_bytes_max: u32) -> Self {
        Self { payload_bytes_max, header: None }
    }

    /// The next frame at the start of `input`, or `None` until more bytes have arrived.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let header = match self.header {
            Some(header) => header,
            None => match input.first_chunk::<HEADER_BYTES>() {
                None => return Ok(None),
                Some(bytes) => {
                    let header = self.header_of(bytes)?;
                    let _ = input.split_to(HEADER_BYTES);
                    self.header = Some(header);
                    header
                }
            },
        };
        if input.len() < header.payload_bytes as usize {
            return Ok(None);
        }
        self.header = None;
        let payload = input.split_to(header.payload_bytes as usize).freeze();
        if crc32fast::hash(&payload) != header.payload_checksum {
            return Err(FrameError::PayloadChecksum { call_id: header.call_id });
        }
        let Header { kind, call_id, deadline_ms, .. } = header;
        Ok(Some(Frame { kind, call_id, deadline_ms, payload }))
    }

    fn header_of(&self, bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if crc32fast::hash(&bytes[..CHECKED_BYTES]) != u32_at(24) {
            return Err(FrameError::HeaderChecksum);
        }
        if bytes[4] != FRAME_VERSION {
            return Err(FrameError::Version(bytes[4]));
        }
        let kind = FrameKind::from_byte(bytes[5]).ok_or(FrameError::Kind(bytes[5]))?;
        let reserved = u16::from_le_bytes([bytes[6], bytes[7]]);
        if reserved != 0 {
            return Err(FrameError::Reserved(reserved));
        }
        let payload_bytes = u32_at(0);
        if payload_bytes > self.payload_bytes_max {
            return Err(FrameError::TooLong { bytes: payload_bytes, limit_bytes: self.payload_bytes_max });
        }
        let call_id = u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]));
        Ok(Header { kind, call_id, deadline_ms: u32_at(16), payload_bytes, payload_checksum: u32_at(20) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> Frame {
        Frame {
            kind: FrameKind::Request,
            call_id: 0x0102_0304_0506_0708,
            deadline_ms: 2_000,
            payload: Bytes::from_static(b"ring"),
        }
    }

    fn encoded(frame: &Frame) -> BytesMut {
        let mut bytes = BytesMut::new();
        encode(&mut bytes, frame);
        bytes
    }

    /// The bytes of a request with one part replaced and the header's checksum corrected.
    fn with_header_bytes(at: usize, replacement: &[u8]) -> BytesMut {
        let mut bytes = encoded(&request());
        bytes[at..at + replacement.len()].copy_from_slice(replacement);
        let checksum = crc32fast::hash(&bytes[..CHECKED_BYTES]).to_le_bytes();
        bytes[CHECKED_BYTES..HEADER_BYTES].copy_from_slice(&checksum);
        bytes
    }

    #[test]
    fn golden_bytes_of_version_1() {
        let golden = concat!(
            "04000000",
            "01",
            "01",
            "0000",
            "0807060504030201",
            "d0070000",
            "76f5dc8f",
            "da0cbc92",
            "72696e67"
        );
        let hex: Vec<String> = encoded(&request()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.concat(), golden);
    }

    #[test]
    fn invalid_headers_are_refused_by_name() {
        let refused = |mut bytes: BytesMut| Decoder::new(1 << 20).next(&mut bytes).unwrap_err();
        assert_eq!(refused(with_header_bytes(4, &[2])), FrameError::Version(2));
        assert_eq!(refused(with_header_bytes(5, &[0])), FrameError::Kind(0));
        assert_eq!(refused(with_header_bytes(5, &[8])), FrameError::Kind(8));
        assert_eq!(refused(with_header_bytes(6, &[0, 1])), FrameError::Reserved(0x100));
        let too_long = refused(with_header_bytes(0, &u32::MAX.to_le_bytes()));
        assert_eq!(too_long, FrameError::TooLong { bytes: u32::MAX, limit_bytes: 1 << 20 });
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = encoded(&request());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Decoder::new(1 << 20).next(&mut damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_declared_length_reserves_nothing() {
        let mut decoder = Decoder::new(u32::MAX);
        let mut bytes = with_header_bytes(0, &(1_u32 << 30).to_le_bytes());
        assert_eq!(decoder.next(&mut bytes), Ok(None));
        assert!(bytes.capacity() < 1 << 10, "{}", bytes.capacity());
    }

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let kind = (1_u8..=7).prop_filter_map("a kind", FrameKind::from_byte);
        let payload = proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        let frame = (kind, any::<u64>(), any::<u32>(), payload)
            .prop_map(|(kind, call_id, deadline_ms, payload)| Frame { kind, call_id, deadline_ms, payload });
        proptest::collection::vec(frame, 0..8)
    }

    proptest! {
        #[test]
        fn frames_are_decoded_unchanged_however_they_are_split(
            frames in frames(),
            pieces in proptest::collection::vec(1_usize..60, 1..40),
        ) {
            let mut bytes = BytesMut::new();
            for frame in &frames {
                encode(&mut bytes, frame);
            }
            let (mut decoder, mut input, mut decoded) = (Decoder::new(1_000), BytesMut::new(), Vec::new());
            for piece in pieces.iter().cycle() {
                if bytes.is_empty() {
                    break;
                }
                input.extend_from_slice(&bytes.split_to((*piece).min(bytes.len())));
                while let Some(frame) = decoder.next(&mut input).unwrap() {
                    decoded.push(frame);
                }
            }
            prop_assert_eq!(decoded, frames);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn random_bytes_are_an_error_or_too_short(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut input = BytesMut::from(&bytes[..]);
            let _ = Decoder::new(100).next(&mut input);
        }
    }
}
