//! The commit log's bytes. Version 1. All integers little endian.
//!
//! ```text
//! segment file "segment-<number, 16 hex digits>.log" := group* (each at a multiple of 8 bytes), then anything
//!
//! group   := offset  0  magic                    u32   "HLG1"; the digit is the version
//!                    4  crc32                    u32   (IEEE) of all bytes of the group after this field
//!                    8  payload length           u32   bytes
//!                   12  records                  u32   number of records in the payload
//!                   16  segment                  u64   number of the segment
//!                   24  sequence                 u64   number of the group in the log, from 1, without gaps
//!                   32  durable sequence         u64   groups below this were durable when this one was written
//!                   40  segment's first sequence u64   number of the first group of this segment
//!                   48  payload
//! payload := records x (length u32 | bytes)
//! ```

use crate::invariant::{BrokenInvariant, broken};

/// First bytes of a group: "HLG1" read as a little-endian number.
pub const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"HLG1");

/// Bytes of a group before its payload.
pub const GROUP_HEADER_BYTES: usize = 48;

/// Bytes of a record before its content.
pub const RECORD_HEADER_BYTES: usize = 4;

/// Groups begin at multiples of this, which makes the search for a group after damage cheap.
pub const GROUP_ALIGNMENT: usize = 8;

const CRC_FROM: usize = 8;
const _: () =
    assert!(GROUP_HEADER_BYTES == 4 * 4 + 4 * 8 && GROUP_HEADER_BYTES.is_multiple_of(GROUP_ALIGNMENT));

/// The header fields of a group, without magic and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupHeader {
    pub payload_length: u32,
    pub records: u32,
    pub segment: u64,
    pub sequence: u64,
    pub durable_sequence: u64,
    pub segment_first_sequence: u64,
}

/// `length` rounded up to the alignment of groups.
pub fn align(length: usize) -> usize {
    length.next_multiple_of(GROUP_ALIGNMENT)
}

/// Writes the header of a group into the first `GROUP_HEADER_BYTES` bytes of `group`. The payload must follow them.
pub fn seal(group: &mut [u8], header: &GroupHeader) -> Result<(), BrokenInvariant> {
    let Some((head, _)) = group.split_first_chunk_mut::<GROUP_HEADER_BYTES>() else {
        return Err(broken!("a group has room for its header"));
    };
    head[0..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
    head[8..12].copy_from_slice(&header.payload_length.to_le_bytes());
    head[12..16].copy_from_slice(&header.records.to_le_bytes());
    head[16..24].copy_from_slice(&header.segment.to_le_bytes());
    head[24..32].copy_from_slice(&header.sequence.to_le_bytes());
    head[32..40].copy_from_slice(&header.durable_sequence.to_le_bytes());
    head[40..48].copy_from_slice(&header.segment_first_sequence.to_le_bytes());
    let crc = crc32fast::hash(&group[CRC_FROM..]);
    group[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// The header of the group at the start of `bytes`, if the group is complete and belongs to `segment`.
pub fn open(bytes: &[u8], segment: u64) -> Option<GroupHeader> {
    if number32(bytes, 0)? != GROUP_MAGIC || number64(bytes, 16)? != segment {
        return None;
    }
    let payload_length = number32(bytes, 8)?;
    let end = GROUP_HEADER_BYTES.checked_add(payload_length as usize)?;
    let checked = bytes.get(CRC_FROM..end)?;
    // A fuzzer gets past the checksum.
    if !cfg!(feature = "fuzzing") && crc32fast::hash(checked) != number32(bytes, 4)? {
        return None;
    }
    Some(GroupHeader {
        payload_length,
        records: number32(bytes, 12)?,
        segment,
        sequence: number64(bytes, 24)?,
        durable_sequence: number64(bytes, 32)?,
        segment_first_sequence: number64(bytes, 40)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> GroupHeader {
        GroupHeader {
            payload_length: 7,
            records: 1,
            segment: 2,
            sequence: 3,
            durable_sequence: 4,
            segment_first_sequence: 5,
        }
    }

    fn group() -> Vec<u8> {
        let mut group = vec![0; GROUP_HEADER_BYTES];
        group.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', b'c']);
        seal(&mut group, &header()).unwrap();
        group
    }

    #[test]
    fn golden_bytes() {
        let mut expected = Vec::new();
        expected.extend_from_slice(b"HLG1");
        expected.extend_from_slice(&[0x80, 0xD8, 0xB8, 0x21]);
        expected.extend_from_slice(&[7, 0, 0, 0, 1, 0, 0, 0]);
        for number in [2, 3, 4, 5] {
            expected.extend_from_slice(&[number, 0, 0, 0, 0, 0, 0, 0]);
        }
        expected.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(group(), expected);
    }

    #[test]
    fn a_sealed_group_opens_with_the_same_header() {
        assert_eq!(open(&group(), 2), Some(header()));
        assert_eq!(open(&group(), 1), None, "another segment's group is stale");
    }

    #[test]
    fn no_flipped_bit_and_no_truncation_goes_unnoticed() {
        let whole = group();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&damaged, 2), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            assert_eq!(open(&whole[..length], 2), None, "length {length}");
        }
    }
}
