//! The address of a row: one byte string that is compared with `memcmp`.
//!
//! ```text
//! full key := token (8 bytes, big endian, sign bit flipped) | length of the partition key (u16 big endian)
//!             | partition key | position
//! position := 0x01 the static row | 0x02, clustering bytes: a regular row
//! ```
//!
//! The part before the position is the *partition prefix*. Ranges are half open over whole keys or positions.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::codec::DecodeError;

/// The position of a partition's static row.
pub const STATIC_POSITION: &[u8] = &[0x01];
/// First byte of the position of every regular row.
pub const REGULAR_TAG: u8 = 0x02;
/// Before every position of a partition.
pub const PARTITION_START: &[u8] = &[0x00];
/// Behind every position of a partition.
pub const PARTITION_END: &[u8] = &[0xFF];
/// The first position a regular row can have.
pub const REGULAR_START: &[u8] = &[0x02];
/// Behind every regular row.
pub const REGULAR_END: &[u8] = &[0x03];
/// Bytes of a partition prefix besides the partition key.
pub const PREFIX_OVERHEAD_BYTES: usize = 10;
/// The longest partition key the protocol and the key format allow.
pub const MAX_PARTITION_KEY_BYTES: usize = u16::MAX as usize;
const _: () = assert!(PREFIX_OVERHEAD_BYTES == size_of::<i64>() + size_of::<u16>());
const _: () = assert!(STATIC_POSITION[0] < REGULAR_TAG && REGULAR_START[0] == REGULAR_TAG);
const _: () = assert!(PARTITION_START[0] < STATIC_POSITION[0] && REGULAR_END[0] < PARTITION_END[0]);

/// A partition key that the key format has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a partition key of {bytes} bytes is longer than the maximum of {MAX_PARTITION_KEY_BYTES}")]
pub struct PartitionKeyTooLong {
    pub bytes: usize,
}

/// The encoding of a token in a key. The bytes compare as the signed numbers do.
#[inline]
pub fn encode_token(token: i64) -> [u8; 8] {
    ((token as u64) ^ (1 << 63)).to_be_bytes()
}

/// The inverse of [`encode_token`].
#[inline]
pub fn decode_token(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

/// The half-open range of full keys that holds exactly the partitions with these tokens.
pub fn token_bounds(tokens: &RangeInclusive<i64>) -> (Vec<u8>, Vec<u8>) {
    let end = match tokens.end().checked_add(1) {
        Some(next) => encode_token(next).to_vec(),
        // Behind the last token: longer than the longest partition prefix.
        None => vec![0xFF; PREFIX_OVERHEAD_BYTES + MAX_PARTITION_KEY_BYTES + 1],
    };
    (encode_token(*tokens.start()).to_vec(), end)
}

/// Appends the partition prefix of a key.
#[inline]
pub fn put_partition_prefix(
    out: &mut Vec<u8>,
    token: i64,
    partition_key: &[u8],
) -> Result<(), PartitionKeyTooLong> {
    let bytes = partition_key.len();
    let length = u16::try_from(bytes).map_err(|_| PartitionKeyTooLong { bytes })?;
    out.reserve(PREFIX_OVERHEAD_BYTES + bytes);
    out.extend_from_slice(&encode_token(token));
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(partition_key);
    Ok(())
}

/// A full key in a new buffer.
#[inline]
pub fn full_key(token: i64, partition_key: &[u8], position: &[u8]) -> Result<Vec<u8>, PartitionKeyTooLong> {
    let mut out = Vec::with_capacity(PREFIX_OVERHEAD_BYTES + partition_key.len() + position.len());
    put_partition_prefix(&mut out, token, partition_key)?;
    out.extend_from_slice(position);
    Ok(out)
}

/// The least key (or position) that is greater than `key`.
#[inline]
pub fn behind(key: &[u8]) -> Vec<u8> {
    let mut behind = Vec::with_capacity(key.len() + 1);
    behind.extend_from_slice(key);
    behind.push(0);
    behind
}

/// Whether the range of full keys `[start, end)` holds the key `start` and no other.
#[inline]
pub fn is_one_key(start: &[u8], end: &[u8]) -> bool {
    end.len() == start.len() + 1 && end.starts_with(start) && end.ends_with(&[0])
}

/// The length of the partition prefix of `key`; `None` when the key ends before its prefix does.
#[inline]
pub fn prefix_length(key: &[u8]) -> Option<usize> {
    let length = key.get(8..10)?;
    let length = PREFIX_OVERHEAD_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
    (length <= key.len()).then_some(length)
}

/// The full key of the static row of the partition of `key`; `None` when the key ends before its partition prefix does.
#[inline]
pub fn static_row_of(key: &[u8]) -> Option<Vec<u8>> {
    Some([key.get(..prefix_length(key)?)?, STATIC_POSITION].concat())
}

/// The parts of a full key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    pub token: i64,
    pub partition_key: &'a [u8],
    pub position: &'a [u8],
}

impl<'a> KeyRef<'a> {
    /// Splits a full key into its parts. The position of a bare partition prefix is empty.
    #[inline]
    pub fn parse(key: &'a [u8]) -> Result<Self, DecodeError> {
        const CUT: DecodeError = DecodeError::Truncated { what: "a row key" };
        let (token, rest) = key.split_first_chunk::<8>().ok_or(CUT)?;
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(CUT)?;
        let (partition_key, position) =
            rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(CUT)?;
        Ok(Self { token: decode_token(*token), partition_key, position })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_by_token_then_key_then_position() {
        let key = |token, pk: &[u8], position: &[u8]| full_key(token, pk, position).unwrap();
        let ordered = [
            key(i64::MIN + 1, b"z", &[2]),
            key(-1, b"a", STATIC_POSITION),
            key(-1, b"a", &[2, 9]),
            key(0, b"", &[2]),
            key(0, b"b", &[2]),
            key(0, b"aa", &[2]),
            key(i64::MAX, b"", &[2]),
        ];
        assert!(ordered.is_sorted());
    }

    #[test]
    fn a_key_is_taken_apart_again() {
        let key = full_key(-77, b"partition", &[2, 1, 2]).unwrap();
        let parsed = KeyRef::parse(&key).unwrap();
        assert_eq!(parsed, KeyRef { token: -77, partition_key: b"partition", position: &[2, 1, 2] });
        assert_eq!(prefix_length(&key), Some(19));
        for cut in 0..19 {
            assert!(KeyRef::parse(&key[..cut]).is_err());
            assert_eq!(prefix_length(&key[..cut]), None);
        }
    }

    #[test]
    fn long_partition_keys_are_refused() {
        assert_eq!(full_key(1, &vec![0; 65536], &[]), Err(PartitionKeyTooLong { bytes: 65536 }));
    }
}
