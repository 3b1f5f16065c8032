//! Version 1 of the commit log's bytes. It is only read.
//!
//! A segment of version 1 has no header. Its groups have no salt:
//!
//! ```text
//! segment file := group* (each at a multiple of 8 bytes), then anything
//!
//! group   := offset  0  magic                    u32   "HLG1"
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
//!
//! A client can write bytes that look like such a group into its records. So a segment of version 1 can be made to look damaged.

use super::format::{GroupHeader, are_checksums_compared, group_header, number32, number64};

/// First bytes of a group: "HLG1" read as a little-endian number.
pub const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"HLG1");

/// Bytes of a group before its payload.
pub const GROUP_HEADER_BYTES: usize = 48;

const CRC_FROM: usize = 8;

/// The header of the group at the start of `bytes`, if the group is complete and belongs to `segment`.
pub fn open(bytes: &[u8], segment: u64) -> Option<GroupHeader> {
    if number32(bytes, 0)? != GROUP_MAGIC || number64(bytes, 16)? != segment {
        return None;
    }
    let payload_length = number32(bytes, 8)?;
    let end = GROUP_HEADER_BYTES.checked_add(payload_length as usize)?;
    let checked = bytes.get(CRC_FROM..end)?;
    if are_checksums_compared() && crc32fast::hash(checked) != number32(bytes, 4)? {
        return None;
    }
    group_header(bytes)
}

/// A group of version 1 with these fields and this payload.
#[cfg(any(test, feature = "fuzzing"))]
pub fn sealed(header: &GroupHeader, payload: &[u8]) -> Vec<u8> {
    let mut group = Vec::with_capacity(GROUP_HEADER_BYTES + payload.len());
    group.extend_from_slice(&GROUP_MAGIC.to_le_bytes());
    group.extend_from_slice(&[0; 4]);
    group.extend_from_slice(&header.payload_length.to_le_bytes());
    group.extend_from_slice(&header.records.to_le_bytes());
    for number in [header.segment, header.sequence, header.durable_sequence, header.segment_first_sequence] {
        group.extend_from_slice(&number.to_le_bytes());
    }
    group.extend_from_slice(payload);
    let crc = crc32fast::hash(&group[CRC_FROM..]);
    group[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    group
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
        assert_eq!(open(&expected, 2), Some(header()));
        assert_eq!(open(&expected, 1), None, "another segment's group is stale");
        assert_eq!(sealed(&header(), b"\x03\x00\x00\x00abc"), expected);
    }
}
