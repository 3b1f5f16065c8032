//! The layout of a table file. Version 4. Integers little endian.
//!
//! ```text
//! file    := data blocks | range tombstones | padding to 64 | partition filter | padding to 64 | row filter
//!            | index leaves | index root | statistics | footer
//! block   := stored bytes | kind u8 | unpacked length u32 | crc32 u32
//! kind    := compression of the stored bytes: 0 none, 1 LZ4, 2 Zstandard, 3 Snappy, 4 Deflate; plus 128 if they unpack to a packed body (see
//!            `packing`) instead of a body (see `block`); the length is that of the packed body
//! footer  := 6 x section | length of the data blocks u64 | length of the file u64 | crc32 u32 | version u32 | "HELTABLE"
//! section := offset u64 | length u64 | crc32 u32
//! ```
//!
//! The sections are in the order of [`Footer`]'s fields. The checksum (IEEE) of a block covers everything before
//! it. The checksum of the footer covers the footer's bytes before it, the version and the magic. So every meaningful byte of the
//! file is covered by a checksum; only the padding (at most 63 zero bytes, twice) is not.
//!
//! Files of earlier versions can still be read. Those before version 3 have another section of range tombstones; in those of
//! version 1, the statistics contain no positions as well.

use super::cache::BlockPart;
use super::compression::{self, Compression};
use super::heads::BlockData;
use super::packing;

/// The newest version that this program reads, and the one that it writes.
pub const VERSION: u32 = 4;

/// The oldest version that this program reads.
pub const OLDEST_VERSION: u32 = 1;

/// The first version whose statistics contain the positions of rows.
pub const POSITIONS_SINCE_VERSION: u32 = 2;

/// The first version in which parts of filters and leaves of the index have checksums of their own.
pub const PARTS_SINCE_VERSION: u32 = 4;

/// The last bytes of a table.
pub const MAGIC: &[u8; 8] = b"HELTABLE";

/// Added to the kind of a block whose body is packed.
const KIND_PACKED: u8 = 0x80;

const SECTION_BYTES: usize = 20;
const SECTIONS: usize = 6;
const TAIL_BYTES: usize = 16;
const FOOTER_BODY_BYTES: usize = SECTIONS * SECTION_BYTES + 16;

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = FOOTER_BODY_BYTES + TAIL_BYTES;

/// Whether the checksum of `bytes` is `crc32`. Builds for fuzzing accept every checksum.
pub fn checksum_matches(bytes: &[u8], crc32: u32) -> bool {
    cfg!(feature = "fuzzing") || crc32fast::hash(bytes) == crc32
}

/// The place of a section, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Section {
    pub offset: u64,
    pub length: u64,
    pub crc32: u32,
}

impl Section {
    /// The section that consists of these bytes at this offset.
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        Self { offset, length: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }

    /// Where it begins and ends in the file. `None`: its end is no offset.
    pub fn bounds(&self) -> (u64, Option<u64>) {
        (self.offset, self.offset.checked_add(self.length))
    }
}

/// The footer of a table: the places of all sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footer {
    pub range_tombstones: Section,
    pub partition_filter: Section,
    pub row_filter: Section,
    pub index_leaves: Section,
    pub index_root: Section,
    pub statistics: Section,
    pub data_bytes: u64,
    pub file_bytes: u64,
    pub version: u32,
}

/// Why the end of a file is not a footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FooterError {
    Damaged(&'static str),
    Version(u32),
}

impl Footer {
    pub fn sections(&self) -> [&Section; SECTIONS] {
        [
            &self.range_tombstones,
            &self.partition_filter,
            &self.row_filter,
            &self.index_leaves,
            &self.index_root,
            &self.statistics,
        ]
    }

    pub fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for section in self.sections() {
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.length.to_le_bytes());
            out.extend_from_slice(&section.crc32.to_le_bytes());
        }
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&out[start..]);
        hasher.update(&self.version.to_le_bytes());
        hasher.update(MAGIC);
        out.extend_from_slice(&hasher.finalize().to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(MAGIC);
    }

    /// Reads the footer in the last bytes of a file (at most [`FOOTER_BYTES`]) of this length.
    pub fn read(tail: &[u8], file_length: u64) -> Result<Self, FooterError> {
        const CUT: FooterError = FooterError::Damaged("the file is too short to be a table");
        let (rest, magic) = tail.split_last_chunk::<8>().ok_or(CUT)?;
        if magic != MAGIC {
            return Err(FooterError::Damaged("the file does not end as a table does"));
        }
        let (rest, version) = rest.split_last_chunk::<4>().ok_or(CUT)?;
        let version_number = u32::from_le_bytes(*version);
        let (rest, crc) = rest.split_last_chunk::<4>().ok_or(CUT)?;
        let (_, body) = rest.split_last_chunk::<FOOTER_BODY_BYTES>().ok_or(CUT)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(body);
        hasher.update(version);
        hasher.update(magic);
        if !cfg!(feature = "fuzzing") && hasher.finalize() != u32::from_le_bytes(*crc) {
            // The footer of another version may have another length, and then its checksum is elsewhere.
            return Err(match version_number {
                OLDEST_VERSION..=VERSION => FooterError::Damaged("the checksum of the footer is wrong"),
                other => FooterError::Version(other),
            });
        }
        if !(OLDEST_VERSION..=VERSION).contains(&version_number) {
            return Err(FooterError::Version(version_number));
        }
        let mut sections = [Section::default(); SECTIONS];
        let (section_bytes, _) = body.as_chunks::<SECTION_BYTES>();
        for (section, bytes) in sections.iter_mut().zip(section_bytes) {
            let (offset, rest) = bytes.split_first_chunk::<8>().ok_or(CUT)?;
            let (length, crc32) = rest.split_first_chunk::<8>().ok_or(CUT)?;
            section.offset = u64::from_le_bytes(*offset);
            section.length = u64::from_le_bytes(*length);
            section.crc32 = crc32.first_chunk().copied().map(u32::from_le_bytes).ok_or(CUT)?;
        }
        let (lengths, file_bytes) = body.split_last_chunk::<8>().ok_or(CUT)?;
        let (_, data_bytes) = lengths.split_last_chunk::<8>().ok_or(CUT)?;
        let [range_tombstones, partition_filter, row_filter, index_leaves, index_root, statistics] = sections;
        let footer = Self {
            range_tombstones,
            partition_filter,
            row_filter,
            index_leaves,
            index_root,
            statistics,
            data_bytes: u64::from_le_bytes(*data_bytes),
            file_bytes: u64::from_le_bytes(*file_bytes),
            version: version_number,
        };
        if footer.file_bytes != file_length {
            return Err(FooterError::Damaged("the file does not have the length with which it was written"));
        }
        Ok(footer)
    }
}

/// Appends a block in its stored form.
pub fn put_block(compression: Compression, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let mut packed = Vec::new();
    // Without compression a block is not packed, so that it is read without work.
    let is_packed = compression != Compression::None && packing::pack(body, &mut packed);
    let bytes = if is_packed { &packed } else { body };
    let kind = compression::compress(compression, bytes, out);
    out.push(kind | if is_packed { KIND_PACKED } else { 0 });
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    let crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Checks a stored block and unpacks its body, or only the heads of its partitions. A body that needs no unpacking is whole in any case.
/// `scratch` is a buffer for reuse.
pub fn read_block(bytes: &[u8], part: BlockPart, scratch: &mut Vec<u8>) -> Result<BlockData, &'static str> {
    const SHORT: &str = "a block is too short";
    let (checked, crc) = bytes.split_last_chunk::<4>().ok_or(SHORT)?;
    if !checksum_matches(checked, u32::from_le_bytes(*crc)) {
        return Err("the checksum of a block is wrong");
    }
    let (rest, length) = checked.split_last_chunk::<4>().ok_or(SHORT)?;
    let (kind, stored) = rest.split_last().ok_or(SHORT)?;
    let length = u32::from_le_bytes(*length) as usize;
    let unpacked = if kind & !KIND_PACKED == compression::kind::NONE {
        stored
    } else {
        compression::decompress(kind & !KIND_PACKED, stored, length, scratch)
            .map_err(|_| "a block cannot be decompressed")?;
        scratch
    };
    let data = match part {
        _ if kind & KIND_PACKED == 0 => Ok(BlockData::whole(unpacked)),
        BlockPart::Whole => packing::unpack(unpacked).map(|body| BlockData::whole(&body)),
        BlockPart::Heads(rows) => packing::unpack_heads(unpacked, rows),
    };
    data.map_err(|_| "a block is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_footer() {
        let section = |number: u64| Section { offset: number, length: number + 1, crc32: number as u32 + 2 };
        let footer = Footer {
            range_tombstones: section(1),
            partition_filter: section(2),
            row_filter: section(3),
            index_leaves: section(4),
            index_root: section(5),
            statistics: section(6),
            data_bytes: 7,
            file_bytes: FOOTER_BYTES as u64,
            version: 1,
        };
        let mut expected = Vec::new();
        for number in 1..=6_u8 {
            expected.extend_from_slice(&[number, 0, 0, 0, 0, 0, 0, 0, number + 1, 0, 0, 0, 0, 0, 0, 0]);
            expected.extend_from_slice(&[number + 2, 0, 0, 0]);
        }
        expected.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 152, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0x54, 0x14, 0x01, 0x9B]);
        expected.extend_from_slice(&[1, 0, 0, 0]);
        expected.extend_from_slice(b"HELTABLE");
        let mut bytes = Vec::new();
        footer.write_to(&mut bytes);
        assert_eq!(bytes, expected);
        assert_eq!(Footer::read(&bytes, bytes.len() as u64), Ok(footer));
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let footer = Footer { file_bytes: FOOTER_BYTES as u64, version: VERSION, ..Footer::default() };
        let mut bytes = Vec::new();
        footer.write_to(&mut bytes);
        for version in [0, VERSION + 1] {
            let mut other = Vec::new();
            Footer { version, ..footer }.write_to(&mut other);
            assert_eq!(
                Footer::read(&other, other.len() as u64),
                Err(FooterError::Version(version)),
                "its checksum is right"
            );
        }
        let mut newer = bytes.clone();
        newer[FOOTER_BYTES - 12] = 9;
        assert_eq!(Footer::read(&newer, newer.len() as u64), Err(FooterError::Version(9)));
        bytes[0] ^= 1;
        assert!(matches!(Footer::read(&bytes, bytes.len() as u64), Err(FooterError::Damaged(_))));
        assert!(matches!(Footer::read(b"short", 5), Err(FooterError::Damaged(_))));
    }

    #[test]
    fn golden_block() {
        let mut bytes = Vec::new();
        put_block(Compression::None, b"body", &mut bytes);
        assert_eq!(bytes[..9], [b'b', b'o', b'd', b'y', 0, 4, 0, 0, 0]);
        assert_eq!(bytes[9..], [0x33, 0xAC, 0xE1, 0x41]);
        let read = |bytes: &[u8]| read_block(bytes, BlockPart::Whole, &mut Vec::new());
        assert_eq!(read(&bytes), Ok(BlockData::whole(b"body")));
        bytes[0] ^= 1;
        assert_eq!(read(&bytes), Err("the checksum of a block is wrong"));
    }
}
