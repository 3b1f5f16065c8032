//! The commit log's bytes. Version 2. All integers little endian.
//!
//! ```text
//! segment file "segment-<number, 16 hex digits>.log" := header | group* (each at a multiple of 8 bytes), then anything
//!
//! header  := offset  0  magic                    u32   "HLGS"
//!                    4  crc32                    u32   (IEEE) of the header's bytes after this field
//!                    8  version                  u32   2
//!                   12  zero                     u32
//!                   16  segment                  u64   number of the segment
//!                   24  salt                     u128  random, another one for each life of the file
//!                   40  length                   u64   of the file when it was prepared, in bytes
//!                   48  anything up to offset 512
//!
//! group   := offset  0  magic                    u32   "HLG2"; the digit is the version
//!                    4  crc32                    u32   (IEEE) of the salt and of all bytes of the group after this field
//!                    8  payload length           u32   bytes
//!                   12  records                  u32   number of records in the payload
//!                   16  segment                  u64   number of the segment
//!                   24  sequence                 u64   number of the group in the log, from 1, without gaps
//!                   32  durable sequence         u64   groups below this were durable when this one was written
//!                   40  segment's first sequence u64   number of the first group of this segment
//!                   48  salt's low half          u64
//!                   56  payload
//! payload := records x (length u32 | bytes)
//! ```
//!
//! A life of a file begins when it is prepared as a segment, and with a new salt. Clients and other nodes cannot know the salt. So
//! no bytes from before this life are valid groups of it: neither groups of an earlier life nor bytes that clients have written
//! into their records.

use helenus_io::invariant::{BrokenInvariant, broken};

/// First bytes of a segment: "HLGS" read as a little-endian number.
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"HLGS");

/// The version that is written.
const VERSION: u32 = 2;

/// Bytes of a segment before its first group: a sector of the disk, so that no group shares one with the header.
pub const SEGMENT_HEADER_BYTES: usize = 512;

/// Bytes of the fields of the header.
const SEGMENT_FIELDS_BYTES: usize = 48;

/// First bytes of a group: "HLG2" read as a little-endian number.
pub const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"HLG2");

/// Bytes of a group before its payload.
pub const GROUP_HEADER_BYTES: usize = 56;

/// Bytes of a record before its content.
pub const RECORD_HEADER_BYTES: usize = 4;

/// Groups begin at multiples of this, which makes the search for a group after damage cheap.
pub const GROUP_ALIGNMENT: usize = 8;

const CRC_FROM: usize = 8;
const _: () = assert!(SEGMENT_FIELDS_BYTES == 4 * 4 + 8 + 16 + 8);
const _: () = assert!(SEGMENT_FIELDS_BYTES <= SEGMENT_HEADER_BYTES);
const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(GROUP_ALIGNMENT));
const _: () =
    assert!(GROUP_HEADER_BYTES == 4 * 4 + 5 * 8 && GROUP_HEADER_BYTES.is_multiple_of(GROUP_ALIGNMENT));

/// The secret of one life of a segment's file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub u128);

/// A secret is not printed.
impl std::fmt::Debug for Salt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Salt")
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    pub segment: u64,
    pub salt: Salt,
    /// Of the file when it was prepared. The file does not become shorter.
    pub length: u64,
}

/// The header fields of a group, without magic, checksum and salt.
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

/// The first bytes of a segment, all that stands before its first group.
pub fn segment_header(header: &SegmentHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SEGMENT_HEADER_BYTES);
    bytes.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&header.segment.to_le_bytes());
    bytes.extend_from_slice(&header.salt.0.to_le_bytes());
    bytes.extend_from_slice(&header.length.to_le_bytes());
    let crc = crc32fast::hash(&bytes[CRC_FROM..]);
    bytes[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(SEGMENT_HEADER_BYTES, 0);
    bytes
}

/// The header at the start of a segment's bytes, if it is whole.
pub fn open_segment(bytes: &[u8]) -> Option<SegmentHeader> {
    let fields = bytes.get(..SEGMENT_FIELDS_BYTES)?;
    if number32(fields, 0)? != SEGMENT_MAGIC || number32(fields, 8)? != VERSION || number32(fields, 12)? != 0
    {
        return None;
    }
    if are_checksums_compared() && crc32fast::hash(fields.get(CRC_FROM..)?) != number32(fields, 4)? {
        return None;
    }
    let salt = Salt(fields.get(24..)?.first_chunk().copied().map(u128::from_le_bytes)?);
    Some(SegmentHeader { segment: number64(fields, 16)?, salt, length: number64(fields, 40)? })
}

/// The checksum of a group's bytes after the field of the checksum.
fn checksum(salt: Salt, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.0.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Writes the header of a group into the first `GROUP_HEADER_BYTES` bytes of `group`. The payload must follow them.
pub fn seal(group: &mut [u8], header: &GroupHeader, salt: Salt) -> Result<(), BrokenInvariant> {
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
    head[48..56].copy_from_slice(&(salt.0 as u64).to_le_bytes());
    let crc = checksum(salt, &group[CRC_FROM..]);
    group[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

pub(super) fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

pub(super) fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// The header of the group at the start of `bytes`, if the group is complete and belongs to this life of `segment`.
pub fn open(bytes: &[u8], segment: u64, salt: Salt) -> Option<GroupHeader> {
    let is_of_life = number32(bytes, 0)? == GROUP_MAGIC
        && number64(bytes, 16)? == segment
        && number64(bytes, 48)? == salt.0 as u64;
    if !is_of_life {
        return None;
    }
    let payload_length = number32(bytes, 8)?;
    let end = GROUP_HEADER_BYTES.checked_add(payload_length as usize)?;
    let checked = bytes.get(CRC_FROM..end)?;
    if are_checksums_compared() && checksum(salt, checked) != number32(bytes, 4)? {
        return None;
    }
    group_header(bytes)
}

/// The fields that groups of all versions have at the same places.
pub(super) fn group_header(bytes: &[u8]) -> Option<GroupHeader> {
    Some(GroupHeader {
        payload_length: number32(bytes, 8)?,
        records: number32(bytes, 12)?,
        segment: number64(bytes, 16)?,
        sequence: number64(bytes, 24)?,
        durable_sequence: number64(bytes, 32)?,
        segment_first_sequence: number64(bytes, 40)?,
    })
}

/// False while a fuzzer skips the checksums of its input.
#[cfg(feature = "fuzzing")]
pub(super) fn are_checksums_compared() -> bool {
    COMPARES_CHECKSUMS.get()
}

#[cfg(feature = "fuzzing")]
thread_local! {
    pub(super) static COMPARES_CHECKSUMS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(not(feature = "fuzzing"))]
pub(super) const fn are_checksums_compared() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF);
    const OTHER_SALT: Salt = Salt(SALT.0 ^ (1 << 127));

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
        seal(&mut group, &header(), SALT).unwrap();
        group
    }

    fn segment() -> SegmentHeader {
        SegmentHeader { segment: 2, salt: SALT, length: 4096 }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = Vec::new();
        expected.extend_from_slice(b"HLG2");
        expected.extend_from_slice(&[0x6A, 0x2C, 0x65, 0x3E]);
        expected.extend_from_slice(&[7, 0, 0, 0, 1, 0, 0, 0]);
        for number in [2, 3, 4, 5] {
            expected.extend_from_slice(&[number, 0, 0, 0, 0, 0, 0, 0]);
        }
        expected.extend_from_slice(&[0xFF, 0xEE, 0xDD, 0xCC, 0xBB, 0xAA, 0x99, 0x88]);
        expected.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(group(), expected);
    }

    #[test]
    fn golden_bytes_of_a_segment_header() {
        let mut expected = Vec::new();
        expected.extend_from_slice(b"HLGS");
        expected.extend_from_slice(&[0xBA, 0x36, 0x4F, 0x5B]);
        expected.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0xFF, 0xEE, 0xDD, 0xCC, 0xBB, 0xAA, 0x99, 0x88]);
        expected.extend_from_slice(&[0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00]);
        expected.extend_from_slice(&[0, 16, 0, 0, 0, 0, 0, 0]);
        expected.resize(512, 0);
        assert_eq!(segment_header(&segment()), expected);
    }

    #[test]
    fn a_sealed_group_opens_with_the_same_header() {
        assert_eq!(open(&group(), 2, SALT), Some(header()));
        assert_eq!(open(&group(), 1, SALT), None, "another segment's group is stale");
        assert_eq!(open(&group(), 2, OTHER_SALT), None, "a group of another life is stale");
    }

    #[test]
    fn the_whole_salt_is_under_the_checksum() {
        let mut forged = group();
        seal(&mut forged, &header(), OTHER_SALT).unwrap();
        assert_eq!(forged[48..56], group()[48..56], "the half that a group shows is the same");
        assert_eq!(open(&forged, 2, SALT), None);
    }

    #[test]
    fn a_segment_header_is_read_as_it_is_written() {
        let bytes = segment_header(&segment());
        assert_eq!(open_segment(&bytes), Some(segment()));
        for bit in 0..SEGMENT_FIELDS_BYTES * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open_segment(&damaged), None, "bit {bit}");
        }
        for length in 0..SEGMENT_FIELDS_BYTES {
            assert_eq!(open_segment(&bytes[..length]), None, "length {length}");
        }
    }

    #[test]
    fn no_flipped_bit_and_no_truncation_goes_unnoticed() {
        let whole = group();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&damaged, 2, SALT), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            assert_eq!(open(&whole[..length], 2, SALT), None, "length {length}");
        }
    }
}
