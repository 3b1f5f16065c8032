//! The range tombstones of a table: fragmented (sorted, not overlapping), each inside one partition.
//!
//! ```text
//! section   := mark u32 (all ones) | partitions u32 | count u64
//!              | partitions x (place u64 of its prefix | u64 number of its first range tombstone)
//!              | count x place u64 of the range tombstone
//!              | prefixes and range tombstones                                                    little endian
//! prefix    := length varint | partition prefix of the keys
//! range tombstone := start length varint | start | end length varint | end | timestamp zigzag varint
//!              | local deletion time varint
//! ```
//!
//! `start` and `end` are positions; the range tombstone covers `[start, end)`. Places count from the end of the places. An empty
//! section means no range tombstones. A partition's prefix stands there once, so the section is about as large as the deletions
//! that it came from, however long the partition key is.
//!
//! Tables before version 3 have sections without a mark, which are read as well: `count u32 | count x place u32 | range tombstones`,
//! whose `start` and `end` are full keys.

use super::error::TableError;
use crate::cell::Deletion;
use crate::codec::{Reader, put_bytes, put_signed, put_unsigned};
use crate::invariant::broken;
use crate::key;
pub use crate::range_tombstone::RangeTombstoneRef;

/// The first field of a section since version 3. In older sections it is the number of range tombstones, which is never this large.
const MARK: u32 = u32::MAX;
const HEAD_BYTES: usize = 16;
const PARTITION_BYTES: usize = 16;
const PLACE_BYTES: usize = 8;
const OLD_PLACE_BYTES: usize = 4;
const WHAT: &str = "a range tombstone";

/// A deletion of the positions `[start, end)` of the partition with this prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRangeTombstone<'a> {
    pub prefix: &'a [u8],
    pub start: &'a [u8],
    pub end: &'a [u8],
    pub deletion: Deletion,
}

/// Collects the section.
#[derive(Debug, Default)]
pub struct RangeTombstonesBuilder {
    /// Place of the prefix, number of the first range tombstone.
    partitions: Vec<(u64, u64)>,
    places: Vec<u64>,
    contents: Vec<u8>,
    last_end: Vec<u8>,
    prefix_length: usize,
}

impl RangeTombstonesBuilder {
    /// Appends a range tombstone, whose bounds are full keys; false if it does not come after the one before, or leaves its partition.
    pub fn add(&mut self, range_tombstone: &RangeTombstoneRef<'_>) -> bool {
        let RangeTombstoneRef { start, end, deletion } = *range_tombstone;
        let Some(prefix_length) = key::prefix_length(start) else { return false };
        if start >= end || start < self.last_end.as_slice() || !end.starts_with(&start[..prefix_length]) {
            return false;
        }
        let prefix = &start[..prefix_length];
        if self.places.is_empty() || self.last_end.get(..self.prefix_length) != Some(prefix) {
            self.partitions.push((self.contents.len() as u64, self.places.len() as u64));
            put_bytes(&mut self.contents, prefix);
            self.prefix_length = prefix_length;
        }
        self.places.push(self.contents.len() as u64);
        put_bytes(&mut self.contents, &start[prefix_length..]);
        put_bytes(&mut self.contents, &end[prefix_length..]);
        put_signed(&mut self.contents, deletion.timestamp);
        put_unsigned(&mut self.contents, u64::from(deletion.local_deletion_time));
        self.last_end.clear();
        self.last_end.extend_from_slice(end);
        true
    }

    pub fn last_end(&self) -> &[u8] {
        &self.last_end
    }

    /// Appends the section. Fails if there are more partitions than 32 bits can count.
    pub fn write_to(&self, out: &mut Vec<u8>) -> Result<(), TableError> {
        if self.places.is_empty() {
            return Ok(());
        }
        let partitions = u32::try_from(self.partitions.len())
            .map_err(|_| TableError::TooLarge { what: "partitions with range tombstones" })?;
        out.extend_from_slice(&MARK.to_le_bytes());
        out.extend_from_slice(&partitions.to_le_bytes());
        out.extend_from_slice(&(self.places.len() as u64).to_le_bytes());
        for (place, first) in &self.partitions {
            out.extend_from_slice(&place.to_le_bytes());
            out.extend_from_slice(&first.to_le_bytes());
        }
        for place in &self.places {
            out.extend_from_slice(&place.to_le_bytes());
        }
        out.extend_from_slice(&self.contents);
        Ok(())
    }
}

/// A view of the section. Range tombstones are numbered in key order.
#[derive(Debug, Clone, Copy)]
pub struct RangeTombstones<'a> {
    layout: Layout<'a>,
    contents: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
enum Layout<'a> {
    ByPartition {
        partitions: &'a [[u8; PARTITION_BYTES]],
        places: &'a [[u8; PLACE_BYTES]],
    },
    /// Before version 3.
    Whole {
        places: &'a [[u8; OLD_PLACE_BYTES]],
    },
}

impl Default for RangeTombstones<'_> {
    fn default() -> Self {
        Self { layout: Layout::Whole { places: &[] }, contents: &[] }
    }
}

/// The least number for which `is_passed` is false, if it holds for all numbers before and for none after.
#[inline]
fn partition_point(mut low: usize, mut high: usize, is_passed: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_passed(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn number64(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()
}

impl<'a> RangeTombstones<'a> {
    /// `None` if the bytes are not such a section.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count);
        if count != MARK {
            let (places, contents) = rest.split_at_checked((count as usize).checked_mul(OLD_PLACE_BYTES)?)?;
            return Some(Self { layout: Layout::Whole { places: places.as_chunks().0 }, contents });
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let partitions = u32::from_le_bytes(*head[4..].first_chunk()?) as usize;
        let (partitions, rest) = rest.split_at_checked(partitions.checked_mul(PARTITION_BYTES)?)?;
        let (places, contents) = rest.split_at_checked(number64(&head[8..])?.checked_mul(PLACE_BYTES)?)?;
        let layout =
            Layout::ByPartition { partitions: partitions.as_chunks().0, places: places.as_chunks().0 };
        Some(Self { layout, contents })
    }

    /// Whether every range tombstone can be read, all are in order, and each lies within one partition.
    pub(super) fn is_valid(&self) -> bool {
        let are_partitions_valid = match self.layout {
            Layout::Whole { .. } => true,
            Layout::ByPartition { partitions, places } => {
                let mut before: Option<(usize, &[u8])> = None;
                let in_order = (0..partitions.len()).all(|index| {
                    let Some((prefix, first)) = self.decode_partition(index) else { return false };
                    let follows = match before {
                        None => first == 0,
                        Some((earlier, smaller)) => first > earlier && prefix > smaller,
                    };
                    before = Some((first, prefix));
                    follows && first < places.len() && key::prefix_length(prefix) == Some(prefix.len())
                });
                in_order && partitions.is_empty() == places.is_empty()
            }
        };
        let mut before: (&[u8], &[u8]) = (&[], &[]);
        are_partitions_valid
            && (0..self.len()).all(|index| {
                self.decode(index).is_some_and(|StoredRangeTombstone { prefix, start, end, .. }| {
                    let follows = prefix > before.0 || (prefix == before.0 && before.1 <= start);
                    before = (prefix, end);
                    follows && start < end
                })
            })
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self.layout {
            Layout::ByPartition { places, .. } => places.len(),
            Layout::Whole { places } => places.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range tombstone with this number; `None` behind the last.
    #[inline]
    pub fn get(&self, index: usize) -> Option<StoredRangeTombstone<'a>> {
        let range_tombstone = self.decode(index);
        if range_tombstone.is_none() && index < self.len() {
            broken!("the range tombstones of an open table can be read");
        }
        range_tombstone
    }

    fn decode(&self, index: usize) -> Option<StoredRangeTombstone<'a>> {
        match self.layout {
            Layout::ByPartition { partitions, places } => {
                let (start, end, deletion) = self.decode_at(number64(places.get(index)?)?)?;
                let after = partition_point(0, partitions.len(), |partition| {
                    self.decode_partition(partition).is_some_and(|(_, first)| first <= index)
                });
                let (prefix, _) = self.decode_partition(after.checked_sub(1)?)?;
                Some(StoredRangeTombstone { prefix, start, end, deletion })
            }
            Layout::Whole { places } => {
                let place = u32::from_le_bytes(*places.get(index)?) as usize;
                let (start, end, deletion) = self.decode_at(place)?;
                let (prefix, start) = start.split_at_checked(key::prefix_length(start)?)?;
                Some(StoredRangeTombstone { prefix, start, end: end.strip_prefix(prefix)?, deletion })
            }
        }
    }

    #[inline]
    fn decode_at(&self, place: usize) -> Option<(&'a [u8], &'a [u8], Deletion)> {
        #[cfg(any(test, feature = "testing"))]
        crate::range_tombstone::work::note();
        let mut reader = Reader::new(self.contents.get(place..)?);
        let start = reader.bytes(WHAT).ok()?;
        let end = reader.bytes(WHAT).ok()?;
        let timestamp = reader.signed(WHAT).ok()?;
        let local_deletion_time = reader.unsigned32(WHAT).ok()?;
        Some((start, end, Deletion { timestamp, local_deletion_time }))
    }

    /// The prefix of a partition, and the number of its first range tombstone.
    #[inline]
    fn decode_partition(&self, index: usize) -> Option<(&'a [u8], usize)> {
        let Layout::ByPartition { partitions, .. } = self.layout else { return None };
        let bytes = partitions.get(index)?;
        let mut reader = Reader::new(self.contents.get(number64(bytes)?..)?);
        Some((reader.bytes(WHAT).ok()?, number64(&bytes[8..])?))
    }

    /// The number of the first range tombstone that ends after `key`, a full key or any part of one; `len()` if there is none.
    pub fn first_ending_after(&self, key: &[u8]) -> usize {
        let Layout::ByPartition { partitions, .. } = self.layout else {
            return partition_point(0, self.len(), |index| {
                self.get(index).is_some_and(|StoredRangeTombstone { prefix, end, .. }| {
                    match key.strip_prefix(prefix) {
                        Some(position) => end <= position,
                        None => prefix < key,
                    }
                })
            });
        };
        let after = partition_point(0, partitions.len(), |partition| {
            self.decode_partition(partition).is_some_and(|(prefix, _)| prefix <= key)
        });
        let first_of = |partition| self.decode_partition(partition).map_or(self.len(), |(_, first)| first);
        let last = after.checked_sub(1).and_then(|last| self.decode_partition(last));
        let Some((first, position)) =
            last.and_then(|(prefix, first)| Some((first, key.strip_prefix(prefix)?)))
        else {
            return first_of(after);
        };
        partition_point(first, first_of(after), |index| self.end_of(index).is_some_and(|end| end <= position))
    }

    /// The end of a range tombstone, without its partition.
    #[inline]
    fn end_of(&self, index: usize) -> Option<&'a [u8]> {
        let Layout::ByPartition { places, .. } = self.layout else { return Some(self.get(index)?.end) };
        let decoded = places.get(index).and_then(|place| self.decode_at(number64(place)?));
        if decoded.is_none() {
            broken!("the range tombstones of an open table can be read");
        }
        decoded.map(|(_, end, _)| end)
    }

    /// The deletion that covers the full key `key`, if any.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        if self.is_empty() {
            return None;
        }
        let range_tombstone = self.get(self.first_ending_after(key))?;
        let position = key.strip_prefix(range_tombstone.prefix)?;
        (range_tombstone.start <= position).then_some(range_tombstone.deletion)
    }

    /// Whether any range tombstone overlaps the keys `[start, end)`.
    pub fn overlap(&self, start: &[u8], end: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        self.get(self.first_ending_after(start)).is_some_and(|first| match end.strip_prefix(first.prefix) {
            Some(position) => first.start < position,
            None => first.prefix < end,
        })
    }

    /// The prefixes of the partitions with range tombstones, in order. Those of old tables may repeat.
    pub fn prefixes(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let range_tombstones = *self;
        let count = match self.layout {
            Layout::ByPartition { partitions, .. } => partitions.len(),
            Layout::Whole { places } => places.len(),
        };
        (0..count).filter_map(move |index| match range_tombstones.layout {
            Layout::ByPartition { .. } => range_tombstones.decode_partition(index).map(|(prefix, _)| prefix),
            Layout::Whole { .. } => range_tombstones.get(index).map(|it| it.prefix),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SplitMix64;
    use crate::key::full_key;

    type Listed<'a> = (&'a [u8], &'a [u8], &'a [u8], i64);

    fn deletion(timestamp: i64) -> Deletion {
        Deletion { timestamp, local_deletion_time: 7 }
    }

    fn prefix(partition_key: &[u8]) -> Vec<u8> {
        full_key(5, partition_key, &[]).unwrap()
    }

    /// Partition key, start, end, timestamp of each.
    fn section(range_tombstones: &[Listed<'_>]) -> Vec<u8> {
        let mut builder = RangeTombstonesBuilder::default();
        for (partition_key, start, end, timestamp) in range_tombstones {
            let (start, end) =
                (full_key(5, partition_key, start).unwrap(), full_key(5, partition_key, end).unwrap());
            let deletion = deletion(*timestamp);
            assert!(builder.add(&RangeTombstoneRef { start: &start, end: &end, deletion }));
        }
        let mut bytes = Vec::new();
        builder.write_to(&mut bytes).unwrap();
        bytes
    }

    /// As tables before version 3 have it.
    fn old_section(range_tombstones: &[Listed<'_>]) -> Vec<u8> {
        let (mut places, mut contents) = (Vec::new(), Vec::new());
        for (partition_key, start, end, timestamp) in range_tombstones {
            places.extend_from_slice(&(contents.len() as u32).to_le_bytes());
            put_bytes(&mut contents, &full_key(5, partition_key, start).unwrap());
            put_bytes(&mut contents, &full_key(5, partition_key, end).unwrap());
            put_signed(&mut contents, *timestamp);
            put_unsigned(&mut contents, 7);
        }
        [&(range_tombstones.len() as u32).to_le_bytes()[..], &places, &contents].concat()
    }

    #[test]
    fn golden_bytes() {
        let bytes = section(&[(b"", b"a", b"c", -1), (b"", b"c", b"cc", 2), (b"p", b"a", b"b", 3)]);
        let mut expected = vec![0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        for number in [0, 0, 24, 2, 11, 17, 36] {
            expected.extend_from_slice(&[number, 0, 0, 0, 0, 0, 0, 0]);
        }
        expected.extend_from_slice(&[10, 0x80, 0, 0, 0, 0, 0, 0, 5, 0, 0]);
        expected.extend_from_slice(&[1, b'a', 1, b'c', 1, 7, 1, b'c', 2, b'c', b'c', 4, 7]);
        expected.extend_from_slice(&[11, 0x80, 0, 0, 0, 0, 0, 0, 5, 0, 1, b'p']);
        expected.extend_from_slice(&[1, b'a', 1, b'b', 6, 7]);
        assert_eq!(bytes, expected);
        assert!(section(&[]).is_empty());
    }

    #[test]
    fn a_key_finds_the_range_tombstone_that_covers_it() {
        let all: [Listed<'_>; 5] = [
            (b"k", b"b", b"d", 1),
            (b"k", b"d", b"e", 2),
            (b"k", b"g", b"h", 3),
            (b"l", b"b", b"c", 4),
            (b"long", b"", b"z", 5),
        ];
        for bytes in [section(&all), old_section(&all)] {
            let range_tombstones = RangeTombstones::new(&bytes).unwrap();
            assert!(range_tombstones.is_valid());
            let timestamp = |partition: &[u8], position: &[u8]| {
                let key = full_key(5, partition, position).unwrap();
                range_tombstones.covering(&key).map(|deletion| deletion.timestamp)
            };
            for (position, expected) in [
                (&b"a"[..], None),
                (b"b", Some(1)),
                (b"czz", Some(1)),
                (b"d", Some(2)),
                (b"e", None),
                (b"gg", Some(3)),
                (b"h", None),
            ] {
                assert_eq!(timestamp(b"k", position), expected);
                assert_eq!(timestamp(b"j", position), None);
            }
            assert_eq!(timestamp(b"l", b"b"), Some(4));
            assert_eq!(timestamp(b"long", b"anything"), Some(5));
            assert_eq!(timestamp(b"longer", b"anything"), None);
            let key = |position: &[u8]| full_key(5, b"k", position).unwrap();
            assert!(range_tombstones.overlap(&key(b"c"), &key(b"g")));
            assert!(!range_tombstones.overlap(&key(b"e"), &key(b"g")));
            assert!(range_tombstones.overlap(b"", &[0xFF; 9]));
            assert!(range_tombstones.overlap(&key(b"h"), &[0xFF; 9]), "the next partition");
            assert_eq!(range_tombstones.first_ending_after(b""), 0);
            assert_eq!(range_tombstones.first_ending_after(&key(b"e")), 2);
            assert_eq!(range_tombstones.first_ending_after(&key(b"h")), 3);
            assert_eq!(range_tombstones.first_ending_after(&full_key(5, b"kk", b"").unwrap()), 4);
            assert_eq!(range_tombstones.first_ending_after(&[0xFF; 9]), 5);
            let mut prefixes: Vec<_> = range_tombstones.prefixes().map(<[u8]>::to_vec).collect();
            prefixes.dedup();
            assert_eq!(prefixes, [prefix(b"k"), prefix(b"l"), prefix(b"long")]);
        }
    }

    #[test]
    fn both_layouts_agree_on_any_key() {
        let mut random = SplitMix64::new(9);
        let mut listed: Vec<([u8; 1], u8, u8, i64)> = Vec::new();
        for partition in 0..12 {
            let mut at = 0;
            while at < 200 {
                let start = at + random.below(9) as u8;
                at = start + 1 + random.below(9) as u8;
                if random.chance(1, 3) {
                    listed.push(([partition], start, at, i64::from(start)));
                }
            }
        }
        let bounds: Vec<_> =
            listed.iter().map(|&(key, start, end, timestamp)| (key, [start], [end], timestamp)).collect();
        let all: Vec<Listed<'_>> = bounds
            .iter()
            .map(|(key, start, end, timestamp)| (&key[..], &start[..], &end[..], *timestamp))
            .collect();
        let (bytes, old_bytes) = (section(&all), old_section(&all));
        let (new, old) = (RangeTombstones::new(&bytes).unwrap(), RangeTombstones::new(&old_bytes).unwrap());
        assert_eq!(new.len(), old.len());
        assert!((0..new.len()).all(|index| new.get(index) == old.get(index)));
        for partition in 0..14 {
            for position in 0..=255 {
                let key = full_key(5, &[partition], &[position]).unwrap();
                assert_eq!(new.covering(&key), old.covering(&key));
                assert_eq!(new.first_ending_after(&key), old.first_ending_after(&key));
            }
        }
    }

    #[test]
    fn the_prefix_of_a_partition_is_stored_once() {
        let partition_key = vec![7; key::MAX_PARTITION_KEY_BYTES];
        let bounds: Vec<[u8; 4]> = (0..2_000_u32).map(u32::to_be_bytes).collect();
        let all: Vec<Listed<'_>> =
            bounds.windows(2).map(|pair| (&partition_key[..], &pair[0][..], &pair[1][..], 1)).collect();
        assert!(section(&all).len() < partition_key.len() + all.len() * 24);
    }

    #[test]
    fn range_tombstones_out_of_order_or_beyond_their_partition_are_refused() {
        let mut builder = RangeTombstonesBuilder::default();
        let full = |partition: &[u8], position: &[u8]| full_key(5, partition, position).unwrap();
        let mut add =
            |start: &[u8], end: &[u8]| builder.add(&RangeTombstoneRef { start, end, deletion: deletion(1) });
        assert!(add(&full(b"k", b"b"), &full(b"k", b"d")));
        assert!(!add(&full(b"k", b"c"), &full(b"k", b"e")));
        assert!(!add(&full(b"k", b"e"), &full(b"k", b"e")));
        assert!(!add(&full(b"k", b"e"), &full(b"l", b"e")), "it leaves its partition");
        assert!(!add(b"short", b"shorter"), "no whole prefix");
        assert!(!add(&full(b"a", b"x"), &full(b"a", b"y")), "an earlier partition");
        assert!(add(&full(b"l", b"a"), &full(b"l", b"b")));
    }

    #[test]
    fn damaged_sections_never_panic() {
        let all: [Listed<'_>; 3] = [(b"", &[1], &[3], -1), (b"", &[3], &[4], 2), (b"z", &[1], &[2], 3)];
        for bytes in [section(&all), old_section(&all)] {
            assert!(RangeTombstones::new(&bytes).unwrap().is_valid());
            for index in 0..bytes.len() {
                for value in [0, 1, 2, 0x7F, 0x80, 0xFF] {
                    let mut damaged = bytes.clone();
                    damaged[index] = value;
                    // A table with a section that is not valid is not opened.
                    if let Some(range_tombstones) =
                        RangeTombstones::new(&damaged).filter(RangeTombstones::is_valid)
                    {
                        range_tombstones.covering(&full_key(5, b"", &[2]).unwrap());
                        range_tombstones.prefixes().count();
                        range_tombstones.overlap(b"", &[0xFF; 9]);
                    }
                }
            }
        }
    }
}
