//! v5 segments: checksummed containers of envelopes, used after the handshake.
//!
//! ```text
//! plain  payload length : 17, self-contained : 1                              (3 bytes, little endian)
//! lz4    compressed length : 17, uncompressed length : 17, self-contained : 1 (5 bytes, little endian)
//! ```
//!
//! then CRC24 of the header (3 bytes LE), the payload, CRC32 of the payload as sent (4 bytes LE). In the lz4 form an
//! uncompressed length of 0 means that the payload is not compressed. A self-contained segment contains whole envelopes.
//! A larger envelope is split over consecutive segments that are not self-contained.

use bytes::{BufMut, BytesMut};

use super::{
    compression::append_lz4_block,
    error::{DecompressError, FrameError},
    header::HEADER_BYTES,
};

/// The largest payload of a segment.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;
/// Length of the payload's checksum.
pub const TRAILER_BYTES: usize = 4;

const CRC24_BYTES: usize = 3;
const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

const CRC24_INITIAL: u32 = 0x0087_5060;
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;
const CRC24_TABLE: [u32; 256] = crc24_table();
const _: () = assert!(CRC24_TABLE.len() > u8::MAX as usize, "every byte is an index of the table");
/// Initial bytes of the CRC32, so that an all-zero segment is invalid.
const CRC32_PREFIX: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

const fn crc24_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

/// CRC24 of the bytes of a segment header.
pub fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, &byte| {
        let index = ((crc >> 16) as u8 ^ byte) as usize;
        ((crc << 8) & 0x00FF_FFFF) ^ CRC24_TABLE[index]
    })
}

/// CRC32 of a payload.
pub fn crc32(payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&CRC32_PREFIX);
    hasher.update(payload);
    hasher.finalize()
}

/// Whether the payloads of a connection are compressed. Determines the header format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentFormat {
    Plain,
    Lz4,
}

impl SegmentFormat {
    /// Length of the header with its checksum.
    pub(crate) fn header_bytes(self) -> usize {
        CRC24_BYTES
            + match self {
                Self::Plain => 3,
                Self::Lz4 => 5,
            }
    }
}

/// A segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Length of the payload as sent.
    pub payload_bytes: usize,
    /// Length of the payload after decompression; `None` if it is not compressed.
    pub uncompressed_bytes: Option<usize>,
    pub self_contained: bool,
}

impl SegmentHeader {
    /// Reads and checks the header at the start of `input`. `None` if more bytes are needed.
    pub fn parse(format: SegmentFormat, input: &[u8]) -> Result<Option<Self>, FrameError> {
        let length = format.header_bytes();
        let Some((fields, checksum)) =
            input.get(..length).and_then(|header| header.split_last_chunk::<CRC24_BYTES>())
        else {
            return Ok(None);
        };
        let read = little_endian(checksum) as u32;
        let computed = crc24(fields);
        if read != computed {
            return Err(FrameError::SegmentHeaderCorrupt { read, computed });
        }
        let bits = little_endian(fields);
        let payload_bytes = (bits & LENGTH_MASK) as usize;
        let after_length = bits >> LENGTH_BITS;
        Ok(Some(match format {
            SegmentFormat::Plain => {
                Self { payload_bytes, uncompressed_bytes: None, self_contained: after_length & 1 != 0 }
            }
            SegmentFormat::Lz4 => {
                let uncompressed = (after_length & LENGTH_MASK) as usize;
                Self {
                    payload_bytes,
                    uncompressed_bytes: (uncompressed > 0).then_some(uncompressed),
                    self_contained: (after_length >> LENGTH_BITS) & 1 != 0,
                }
            }
        }))
    }

    /// The header with its checksum. In the plain form `uncompressed_bytes` is not written.
    fn write(self, format: SegmentFormat, target: &mut [u8]) {
        let flag = u64::from(self.self_contained);
        let bits = self.payload_bytes as u64
            | match format {
                SegmentFormat::Plain => flag << LENGTH_BITS,
                SegmentFormat::Lz4 => {
                    // 0 says that the payload is not compressed.
                    (self.uncompressed_bytes.unwrap_or(0) as u64) << LENGTH_BITS | flag << (2 * LENGTH_BITS)
                }
            };
        debug_assert_eq!(target.len(), format.header_bytes());
        let Some((fields, checksum)) = target.split_last_chunk_mut::<CRC24_BYTES>() else { return };
        fill_little_endian(fields, bits);
        let crc = crc24(fields);
        fill_little_endian(checksum, u64::from(crc));
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn fill_little_endian(target: &mut [u8], number: u64) {
    for (byte, value) in target.iter_mut().zip(number.to_le_bytes()) {
        *byte = value;
    }
}

/// Checks the payload of a segment against its trailer.
pub(super) fn check_payload(payload: &[u8], trailer: [u8; TRAILER_BYTES]) -> Result<(), FrameError> {
    let read = u32::from_le_bytes(trailer);
    let computed = crc32(payload);
    if read == computed { Ok(()) } else { Err(FrameError::SegmentPayloadCorrupt { read, computed }) }
}

/// Appends the decompressed payload to `output`.
pub(super) fn append_payload(
    header: SegmentHeader,
    payload: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), FrameError> {
    match header.uncompressed_bytes {
        None => {
            output.extend_from_slice(payload);
            Ok(())
        }
        Some(uncompressed) => append_lz4_block(payload, uncompressed, PAYLOAD_BYTES_MAX, output)
            .map_err(|reason: DecompressError| FrameError::SegmentDecompression(reason)),
    }
}

/// Packs finished envelopes into segments.
#[derive(Debug, Clone, Copy)]
pub struct SegmentEncoder {
    format: SegmentFormat,
}

impl SegmentEncoder {
    /// An encoder for one connection.
    pub fn new(format: SegmentFormat) -> Self {
        Self { format }
    }

    /// Appends `envelopes` (whole envelopes, back to back) to `out` in as few segments as their order allows. An envelope
    /// larger than a segment is split.
    pub fn encode(self, envelopes: &[u8], out: &mut BytesMut) {
        let mut pending: &[u8] = &[];
        let mut rest = envelopes;
        while !rest.is_empty() {
            // `pending` is the longest run of whole envelopes at the start of `rest` so far.
            let next = envelope_bytes(rest.get(pending.len()..).unwrap_or_default());
            match next {
                Some(length) if pending.len() + length <= PAYLOAD_BYTES_MAX => {
                    pending = rest.get(..pending.len() + length).unwrap_or(rest);
                    if pending.len() < rest.len() {
                        continue;
                    }
                    self.write_segment(pending, true, out);
                }
                _ if !pending.is_empty() => self.write_segment(pending, true, out),
                next => {
                    let envelope = next.and_then(|length| rest.get(..length)).unwrap_or(rest);
                    for part in envelope.chunks(PAYLOAD_BYTES_MAX) {
                        self.write_segment(part, false, out);
                    }
                    pending = envelope;
                }
            }
            rest = rest.get(pending.len()..).unwrap_or_default();
            pending = &[];
        }
    }

    fn write_segment(self, payload: &[u8], self_contained: bool, out: &mut BytesMut) {
        let start = out.len();
        let header_bytes = self.format.header_bytes();
        let payload_start = start + header_bytes;
        let uncompressed_bytes = match self.format {
            SegmentFormat::Plain => None,
            SegmentFormat::Lz4 => append_compressed(payload, payload_start, out),
        };
        if uncompressed_bytes.is_none() {
            out.truncate(start);
            out.reserve(header_bytes + payload.len() + TRAILER_BYTES);
            out.put_bytes(0, header_bytes);
            out.put_slice(payload);
        }
        let written = out.get(payload_start..).unwrap_or_default();
        let header = SegmentHeader { payload_bytes: written.len(), uncompressed_bytes, self_contained };
        let checksum = crc32(written);
        if let Some(target) = out.get_mut(start..payload_start) {
            header.write(self.format, target);
        }
        out.put_u32_le(checksum);
    }
}

/// Writes the LZ4 block of `payload` at `payload_start`, after room for the header. `None` if it did not shrink.
fn append_compressed(payload: &[u8], payload_start: usize, out: &mut BytesMut) -> Option<usize> {
    out.resize(payload_start + lz4_flex::block::get_maximum_output_size(payload.len()), 0);
    let length = lz4_flex::block::compress_into(payload, out.get_mut(payload_start..)?).ok()?;
    out.truncate(payload_start + length);
    (length < payload.len()).then_some(payload.len())
}

/// Length of the envelope at the start of `bytes`, including the header. `None` if it is incomplete.
fn envelope_bytes(bytes: &[u8]) -> Option<usize> {
    let (_, length) = bytes.get(..HEADER_BYTES)?.split_last_chunk::<4>()?;
    let total = HEADER_BYTES + u32::from_be_bytes(*length) as usize;
    (total <= bytes.len()).then_some(total)
}
