//! Compression of blocks: LZ4 (block format), Zstandard, Snappy (raw format), Deflate (without a header), or none.

use crate::codec::DecodeError;

/// The largest unpacked block, in bytes. A stored length above it is damage. This bounds the memory that a damaged length can
/// allocate.
pub const BLOCK_BYTES_MAX: usize = 256 << 20;
const _: () = assert!(BLOCK_BYTES_MAX <= u32::MAX as usize, "lengths and offsets in a block take 32 bits");

/// The compression of a table's blocks. A block that does not shrink is stored uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    Zstd { level: i32 },
    Snappy,
    Deflate,
}

/// The kind byte of a stored block.
pub mod kind {
    pub const NONE: u8 = 0;
    pub const LZ4: u8 = 1;
    pub const ZSTD: u8 = 2;
    pub const SNAPPY: u8 = 3;
    pub const DEFLATE: u8 = 4;
}

/// Appends `body`, compressed, to `out`; returns the kind byte.
pub fn compress(compression: Compression, body: &[u8], out: &mut Vec<u8>) -> u8 {
    let start = out.len();
    // Enough for every compressor, whatever the body.
    let room_bytes = if compression == Compression::None { 0 } else { body.len() + body.len() / 6 + 32 };
    out.resize(start + room_bytes, 0);
    let room = &mut out[start..];
    let packed = match compression {
        Compression::None => None,
        Compression::Lz4 => lz4_flex::block::compress_into(body, room).ok().map(|length| (kind::LZ4, length)),
        Compression::Zstd { level } => {
            zstd::bulk::compress_to_buffer(body, room, level).ok().map(|length| (kind::ZSTD, length))
        }
        Compression::Snappy => {
            snap::raw::Encoder::new().compress(body, room).ok().map(|length| (kind::SNAPPY, length))
        }
        Compression::Deflate => deflate(body, room).map(|length| (kind::DEFLATE, length)),
    };
    let kind = packed.filter(|(_, length)| *length < body.len());
    out.truncate(start + kind.map_or(0, |(_, length)| length));
    if kind.is_none() {
        out.extend_from_slice(body);
    }
    kind.map_or(kind::NONE, |(kind, _)| kind)
}

fn deflate(body: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut deflate = flate2::Compress::new(flate2::Compression::default(), false);
    let status = deflate.compress(body, room, flate2::FlushCompress::Finish);
    status.is_ok_and(|status| status == flate2::Status::StreamEnd).then(|| deflate.total_out() as usize)
}

/// Unpacks `stored` (not of kind NONE) to exactly `length` bytes, the contents of `body` then.
pub fn decompress(kind: u8, stored: &[u8], length: usize, body: &mut Vec<u8>) -> Result<(), DecodeError> {
    const DAMAGED: DecodeError = DecodeError::Truncated { what: "a compressed block" };
    if length > BLOCK_BYTES_MAX {
        return Err(DecodeError::Overflow { what: "the length of a block" });
    }
    body.resize(length, 0);
    let written = match kind {
        kind::LZ4 => lz4_flex::block::decompress_into(stored, body).ok(),
        kind::ZSTD => zstd::bulk::decompress_to_buffer(stored, body.as_mut_slice()).ok(),
        kind::SNAPPY => snap::raw::Decoder::new().decompress(stored, body).ok(),
        kind::DEFLATE => {
            let mut inflate = flate2::Decompress::new(false);
            let status = inflate.decompress(stored, body, flate2::FlushDecompress::Finish);
            status
                .is_ok_and(|status| status == flate2::Status::StreamEnd)
                .then(|| inflate.total_out() as usize)
        }
        _ => return Err(DecodeError::Invalid { what: "compression of a block", value: u64::from(kind) }),
    };
    written.filter(|written| *written == length).map(|_| ()).ok_or(DAMAGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_gives_back_the_body() {
        let body: Vec<u8> = (0..4000_u32).flat_map(|number| (number / 9).to_be_bytes()).collect();
        for compression in [
            Compression::None,
            Compression::Lz4,
            Compression::Zstd { level: 1 },
            Compression::Snappy,
            Compression::Deflate,
        ] {
            let mut stored = Vec::new();
            let kind = compress(compression, &body, &mut stored);
            if kind == kind::NONE {
                assert_eq!(stored, body);
            } else {
                assert!(stored.len() < body.len() / 2);
                let mut unpacked = b"what was there before".to_vec();
                decompress(kind, &stored, body.len(), &mut unpacked).unwrap();
                assert_eq!(unpacked, body);
                assert!(decompress(kind, &stored, body.len() - 1, &mut unpacked).is_err());
                assert!(decompress(kind, &stored[..stored.len() - 1], body.len(), &mut unpacked).is_err());
            }
        }
    }

    /// What is on disk can be read for ever.
    #[test]
    fn golden_bytes_of_snappy_and_deflate_are_read() {
        let mut body = Vec::new();
        let snappy = [20, 8, b'a', b'b', b'c', 66, 3, 0];
        decompress(kind::SNAPPY, &snappy, 20, &mut body).unwrap();
        assert_eq!(body, b"abcabcabcabcabcabcab");
        let deflate = [0x4b, 0x4c, 0x4a, 0x4e, 0x44, 0x47, 0x00];
        decompress(kind::DEFLATE, &deflate, 20, &mut body).unwrap();
        assert_eq!(body, b"abcabcabcabcabcabcab");
    }

    #[test]
    fn a_body_that_does_not_shrink_is_stored_as_it_is() {
        let mut stored = Vec::new();
        for compression in [Compression::Lz4, Compression::Snappy, Compression::Deflate] {
            stored.clear();
            assert_eq!(compress(compression, b"abcdefg", &mut stored), kind::NONE);
            assert_eq!(stored, b"abcdefg");
        }
    }
}
