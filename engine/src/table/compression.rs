//! Compression of blocks: LZ4 (block format), Zstandard, or none.

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
}

/// The kind byte of a stored block.
pub mod kind {
    pub const NONE: u8 = 0;
    pub const LZ4: u8 = 1;
    pub const ZSTD: u8 = 2;
}

/// Appends `body`, compressed, to `out`; returns the kind byte.
pub fn compress(compression: Compression, body: &[u8], out: &mut Vec<u8>) -> u8 {
    let start = out.len();
    let kind = match compression {
        Compression::None => kind::NONE,
        Compression::Lz4 => {
            out.resize(start + lz4_flex::block::get_maximum_output_size(body.len()), 0);
            match lz4_flex::block::compress_into(body, &mut out[start..]) {
                Ok(length) => {
                    out.truncate(start + length);
                    kind::LZ4
                }
                Err(_) => kind::NONE,
            }
        }
        Compression::Zstd { level } => match zstd::bulk::compress(body, level) {
            Ok(packed) => {
                out.extend_from_slice(&packed);
                kind::ZSTD
            }
            Err(_) => kind::NONE,
        },
    };
    if kind == kind::NONE || out.len() - start >= body.len() {
        out.truncate(start);
        out.extend_from_slice(body);
        return kind::NONE;
    }
    kind
}

/// Unpacks `stored` (not of kind NONE) to exactly `length` bytes, the contents of `body` then.
pub fn decompress(kind: u8, stored: &[u8], length: usize, body: &mut Vec<u8>) -> Result<(), DecodeError> {
    const DAMAGED: DecodeError = DecodeError::Truncated { what: "a compressed block" };
    if length > BLOCK_BYTES_MAX {
        return Err(DecodeError::Overflow { what: "the length of a block" });
    }
    match kind {
        kind::LZ4 => {
            body.resize(length, 0);
            let written = lz4_flex::block::decompress_into(stored, body).map_err(|_| DAMAGED)?;
            if written == length { Ok(()) } else { Err(DAMAGED) }
        }
        kind::ZSTD => {
            body.resize(length, 0);
            let written =
                zstd::bulk::decompress_to_buffer(stored, body.as_mut_slice()).map_err(|_| DAMAGED)?;
            if written == length { Ok(()) } else { Err(DAMAGED) }
        }
        _ => Err(DecodeError::Invalid { what: "compression of a block", value: u64::from(kind) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_gives_back_the_body() {
        let body: Vec<u8> = (0..4000_u32).flat_map(|number| (number / 9).to_be_bytes()).collect();
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }] {
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

    #[test]
    fn a_body_that_does_not_shrink_is_stored_as_it_is() {
        let mut stored = Vec::new();
        assert_eq!(compress(Compression::Lz4, b"abcdefg", &mut stored), kind::NONE);
        assert_eq!(stored, b"abcdefg");
    }
}
