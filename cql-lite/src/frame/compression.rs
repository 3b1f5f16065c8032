//! Compression of message bodies in v3 and v4, and the LZ4 block functions shared with v5 segments.
//!
//! ```text
//! lz4     uncompressed length (i32, big endian) | LZ4 block
//! snappy  raw Snappy block (it starts with its own length)
//! ```
//!
//! A declared uncompressed length is checked against the limit and the best possible compression ratio before memory is
//! allocated, so that a few bytes cannot demand a lot of memory.

use bytes::BytesMut;

use super::{
    error::DecompressError,
    header::{self, Flags, HEADER_BYTES},
};

/// Maximum number of bytes that one byte of an LZ4 block expands to (a length byte of 255).
const LZ4_RATIO_MAX: usize = 255;
/// Maximum number of bytes that one byte of a Snappy block expands to (a copy of 64 bytes takes three).
const SNAPPY_RATIO_MAX: usize = 22;
/// Tolerance added to the ratio bounds, as tokens contain small lengths.
const RATIO_SLACK_BYTES: usize = 64;

/// Bodies shorter than this are not worth compressing.
pub(crate) const COMPRESSION_BYTES_MIN: usize = 128;

/// A compression algorithm that STARTUP can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    Lz4,
    /// v3 and v4 only.
    Snappy,
}

impl Compression {
    /// The algorithm with this name in STARTUP (any case).
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Lz4, Self::Snappy].into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The name in SUPPORTED and STARTUP.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }
}

/// Decompresses a message body (v3, v4) into `output`, which is cleared first.
pub fn decompress_body(
    compression: Compression,
    body: &[u8],
    limit_bytes: usize,
    output: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    output.clear();
    match compression {
        Compression::Lz4 => {
            let (prefix, block) = body.split_first_chunk::<4>().ok_or(DecompressError::NoLength)?;
            let declared = u32::from_be_bytes(*prefix) as usize;
            append_lz4_block(block, declared, limit_bytes, output)
        }
        Compression::Snappy => {
            let declared = snap::raw::decompress_len(body).map_err(|_| DecompressError::Corrupt)?;
            check_declared(body.len(), declared, limit_bytes, SNAPPY_RATIO_MAX)?;
            output.resize(declared, 0);
            let actual =
                snap::raw::Decoder::new().decompress(body, output).map_err(|_| DecompressError::Corrupt)?;
            check_actual(declared, actual)
        }
    }
}

/// Decompresses an LZ4 block of `declared` uncompressed bytes onto the end of `output`.
pub(super) fn append_lz4_block(
    block: &[u8],
    declared: usize,
    limit_bytes: usize,
    output: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    if declared == 0 && block.is_empty() {
        return Ok(());
    }
    check_declared(block.len(), declared, limit_bytes, LZ4_RATIO_MAX)?;
    let start = output.len();
    output.resize(start + declared, 0);
    let target = output.get_mut(start..).unwrap_or_default();
    let actual = lz4_flex::block::decompress_into(block, target).map_err(|_| DecompressError::Corrupt)?;
    check_actual(declared, actual)
}

fn check_declared(
    compressed: usize,
    length: usize,
    limit: usize,
    ratio: usize,
) -> Result<(), DecompressError> {
    if length > limit {
        return Err(DecompressError::TooLarge { length, limit });
    }
    if length > compressed.saturating_mul(ratio).saturating_add(RATIO_SLACK_BYTES) {
        return Err(DecompressError::ImplausibleRatio { compressed, length });
    }
    Ok(())
}

fn check_actual(declared: usize, actual: usize) -> Result<(), DecompressError> {
    if declared == actual { Ok(()) } else { Err(DecompressError::LengthMismatch { declared, actual }) }
}

/// Compresses the body of the finished envelope at `start` (the last one in `out`), in place, and sets the flag
/// and the new length. A short envelope, or one that does not shrink, is left unchanged. For v3 and v4.
pub fn compress_envelope(out: &mut BytesMut, start: usize, compression: Compression) {
    let body_start = start + HEADER_BYTES;
    let Some(body) = out.get(body_start..) else { return };
    if body.len() < COMPRESSION_BYTES_MIN {
        return;
    }
    let compressed = match compression {
        Compression::Lz4 => {
            let mut block = vec![0; 4 + lz4_flex::block::get_maximum_output_size(body.len())];
            let (prefix, target) = block.split_at_mut(4);
            prefix.copy_from_slice(&(body.len() as u32).to_be_bytes());
            let Ok(length) = lz4_flex::block::compress_into(body, target) else { return };
            block.truncate(4 + length);
            block
        }
        Compression::Snappy => {
            let Ok(block) = snap::raw::Encoder::new().compress_vec(body) else { return };
            block
        }
    };
    if compressed.len() < body.len() {
        out.truncate(body_start);
        out.extend_from_slice(&compressed);
        header::add_flags(out, start, Flags::COMPRESSED);
        header::patch_body_length(out, start);
    }
}
