//! Filters in parts, of which each can be read and checked alone.
//!
//! ```text
//! section := filter (see `filter`) | crc32 u32 of each part     little endian
//! part    := 256 lines of the filter; the last part has those that are left
//! ```
//!
//! The checksum of the section covers what comes behind the lines; so the lines are covered by the checksums of the parts, and these by
//! that of the section. Before version 4 of the format a section is the filter alone, and its checksum covers all of it.

use std::ops::Range;

use super::filter::{Filter, LINE_BYTES, TRAILER_BYTES, line_may_contain, line_of, probes_of};
use super::format::{Section, checksum_matches};
use super::index::BlockHandle;

/// Bytes of a part. Part of the file format.
pub const PART_BYTES: usize = 16 << 10;
const LINES_OF_PART: usize = PART_BYTES / LINE_BYTES;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(PART_BYTES.is_multiple_of(LINE_BYTES));

/// Makes a section of the bytes of a filter. Returns the range in it that the checksum of the section covers.
pub fn make_section(filter: &mut Vec<u8>) -> Range<usize> {
    let lines_bytes = filter.len().saturating_sub(TRAILER_BYTES);
    let (lines, _) = filter.split_at(lines_bytes);
    let checksums: Vec<u32> = lines.chunks(PART_BYTES).map(crc32fast::hash).collect();
    for checksum in checksums {
        filter.extend_from_slice(&checksum.to_le_bytes());
    }
    lines_bytes..filter.len()
}

/// Bytes of the lines in a section with a filter; `None` if none has this length.
pub fn lines_bytes(section: &Section) -> Option<u64> {
    let stored_part_bytes = (PART_BYTES + CHECKSUM_BYTES) as u64;
    let stored_bytes = section.length.checked_sub(TRAILER_BYTES as u64)?;
    let whole_parts = stored_bytes / stored_part_bytes;
    let last_bytes = match stored_bytes % stored_part_bytes {
        0 => 0,
        stored => stored.checked_sub(CHECKSUM_BYTES as u64).filter(|bytes| *bytes > 0)?,
    };
    let bytes = whole_parts * PART_BYTES as u64 + last_bytes;
    (bytes > 0 && bytes.is_multiple_of(LINE_BYTES as u64)).then_some(bytes)
}

/// A filter whose lines are in the file.
#[derive(Debug, Clone)]
pub struct FilterParts {
    offset: u64,
    lines: usize,
    probes: u32,
    checksums: Box<[u32]>,
}

/// The part of a filter that has the bits of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterPart {
    pub number: usize,
    pub target: BlockHandle,
}

impl FilterParts {
    /// A filter that lies at this offset. `tail`: what comes behind its lines. `None` if that is malformed.
    pub fn read(offset: u64, lines_bytes: u64, tail: &[u8]) -> Option<Self> {
        let lines = usize::try_from(lines_bytes).ok()? / LINE_BYTES;
        let (trailer, checksums) = tail.split_first_chunk::<TRAILER_BYTES>()?;
        let (checksums, rest) = checksums.as_chunks::<CHECKSUM_BYTES>();
        let is_whole = rest.is_empty() && checksums.len() == lines.div_ceil(LINES_OF_PART);
        let checksums = checksums.iter().copied().map(u32::from_le_bytes).collect();
        Some(Self { offset, lines, probes: probes_of(*trailer)?, checksums }).filter(|_| is_whole)
    }

    /// Memory of the checksums.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.checksums)
    }

    /// Bytes of the filter in the file.
    pub fn lines_bytes(&self) -> usize {
        self.lines * LINE_BYTES
    }

    /// All parts, in the order of the file.
    pub fn parts(&self) -> impl Iterator<Item = FilterPart> {
        (0..self.checksums.len()).map(|number| self.part(number))
    }

    fn part(&self, number: usize) -> FilterPart {
        let start = number * PART_BYTES;
        let length = (self.lines_bytes() - start).min(PART_BYTES) as u32;
        FilterPart { number, target: BlockHandle { offset: self.offset + start as u64, length } }
    }

    /// The part that decides about a hash.
    pub fn part_of(&self, hash: u64) -> FilterPart {
        self.part(line_of(hash, self.lines) / LINES_OF_PART)
    }

    /// Whether these are the bytes of a part.
    pub fn is_part(&self, number: usize, bytes: &[u8]) -> bool {
        self.checksums.get(number).is_some_and(|checksum| checksum_matches(bytes, *checksum))
    }

    /// False only if no key with this hash was added. `part`: the bytes of [`FilterParts::part_of`] it.
    pub fn may_contain(&self, part: &[u8], hash: u64) -> bool {
        let (lines, _) = part.as_chunks::<LINE_BYTES>();
        let line = lines.get(line_of(hash, self.lines) % LINES_OF_PART);
        line.is_none_or(|line| line_may_contain(line, hash, self.probes))
    }

    /// The whole filter in memory. The error: the offset in the file of a part that is not as its checksum says.
    pub fn load(&self, lines: &[u8]) -> Result<Filter, u64> {
        for (part, bytes) in self.parts().zip(lines.chunks(PART_BYTES)) {
            if !self.is_part(part.number, bytes) {
                return Err(part.target.offset);
            }
        }
        Ok(Filter::of_lines(lines, self.probes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::build;
    use crate::io::SplitMix64;

    #[test]
    fn a_section_has_a_filter_and_the_checksums_of_its_parts() {
        let mut random = SplitMix64::new(1);
        // One part, exactly one, a little more, and several.
        for keys in [1, 40, 13_107, 13_108, 13_200, 60_000] {
            let hashes: Vec<u64> = (0..keys).map(|_| random.next_u64()).collect();
            let mut bytes = build(&hashes, 0.01);
            let whole = Filter::read(&bytes).unwrap();
            let lines = bytes.len() - TRAILER_BYTES;
            assert_eq!(make_section(&mut bytes), lines..bytes.len());
            let section = Section { offset: 640, length: bytes.len() as u64, crc32: 0 };
            assert_eq!(lines_bytes(&section), Some(lines as u64), "{keys}");
            let parts = FilterParts::read(section.offset, lines as u64, &bytes[lines..]).unwrap();
            let loaded = parts.load(&bytes[..lines]).unwrap();
            let stored: Vec<&[u8]> = bytes[..lines].chunks(PART_BYTES).collect();
            assert_eq!(parts.parts().count(), stored.len());
            for hash in hashes.into_iter().chain((0..2_000).map(|_| random.next_u64())) {
                let FilterPart { number, target } = parts.part_of(hash);
                assert_eq!(target.offset, 640 + (number * PART_BYTES) as u64);
                assert_eq!(target.length as usize, stored[number].len());
                assert!(parts.is_part(number, stored[number]));
                let expected = whole.may_contain(hash);
                assert_eq!(parts.may_contain(stored[number], hash), expected);
                assert_eq!(loaded.may_contain(hash), expected);
            }
            bytes[lines - 1] ^= 1;
            let damaged = parts.load(&bytes[..lines]).err();
            assert_eq!(damaged, Some(640 + ((stored_parts(lines) - 1) * PART_BYTES) as u64));
        }
    }

    fn stored_parts(lines: usize) -> usize {
        lines.div_ceil(PART_BYTES)
    }

    #[test]
    fn a_section_of_another_length_has_no_filter() {
        let section = |length| Section { offset: 0, length, crc32: 0 };
        for length in [0, 1, 8, 12, 75, 77, 16_392 + 4 + 4, 16_392 + 4 + 68 + 1] {
            assert_eq!(lines_bytes(&section(length)), None, "{length}");
        }
        assert_eq!(lines_bytes(&section(8 + 64 + 4)), Some(64));
        assert_eq!(lines_bytes(&section(16_392 + 4)), Some(16_384));
        assert_eq!(lines_bytes(&section(16_392 + 4 + 68)), Some(16_384 + 64));
        assert!(FilterParts::read(0, 64, &[0; 12]).is_none(), "no probes");
        assert!(FilterParts::read(0, 64, &[1; 8]).is_none(), "no checksum");
        assert!(FilterParts::read(0, 64, &[1; 12]).is_some());
    }

    #[test]
    fn golden_section() {
        let mut bytes = build(&[u64::MAX / 3], 0.01);
        let covered = make_section(&mut bytes);
        assert_eq!(bytes[covered], [7, 0, 0, 0, 0, 0, 0, 0, 10, 21, 112, 25]);
    }
}
