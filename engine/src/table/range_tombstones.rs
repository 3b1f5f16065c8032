//! The range tombstones of a table: fragmented (sorted, not overlapping), each inside one partition.
//!
//! ```text
//! section := count u32 | count x (offset u32 of the range tombstone, from the end of these) | range tombstones              little endian
//! range tombstone    := start length varint | start | end length varint | end | timestamp zigzag varint | local deletion time varint
//! ```
//!
//! `start` and `end` are full keys; the range tombstone covers `[start, end)`. An empty section means no range tombstones.

use super::error::TableError;
use crate::cell::Deletion;
use crate::codec::{Reader, put_bytes, put_signed, put_unsigned};
use crate::invariant::broken;
use crate::key;

const OFFSET_BYTES: usize = 4;

/// A deletion of the keys `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeTombstoneRef<'a> {
    pub start: &'a [u8],
    pub end: &'a [u8],
    pub deletion: Deletion,
}

/// Collects the section.
#[derive(Debug, Default)]
pub struct RangeTombstonesBuilder {
    offsets: Vec<u32>,
    range_tombstones: Vec<u8>,
    last_end: Vec<u8>,
}

impl RangeTombstonesBuilder {
    /// Appends a range tombstone; false if it does not come after the one before.
    pub fn add(&mut self, range_tombstone: &RangeTombstoneRef<'_>) -> bool {
        if range_tombstone.start >= range_tombstone.end || range_tombstone.start < self.last_end.as_slice() {
            return false;
        }
        self.offsets.push(self.range_tombstones.len() as u32);
        put_bytes(&mut self.range_tombstones, range_tombstone.start);
        put_bytes(&mut self.range_tombstones, range_tombstone.end);
        put_signed(&mut self.range_tombstones, range_tombstone.deletion.timestamp);
        put_unsigned(&mut self.range_tombstones, u64::from(range_tombstone.deletion.local_deletion_time));
        self.last_end.clear();
        self.last_end.extend_from_slice(range_tombstone.end);
        true
    }

    pub fn last_end(&self) -> &[u8] {
        &self.last_end
    }

    /// Appends the section. Fails if it is larger than 32 bits can address.
    pub fn write_to(&self, out: &mut Vec<u8>) -> Result<(), TableError> {
        if self.offsets.is_empty() {
            return Ok(());
        }
        // No offset is larger than that, and there are fewer offsets than bytes.
        u32::try_from(self.range_tombstones.len())
            .map_err(|_| TableError::TooLarge { what: "range tombstones" })?;
        out.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        for offset in &self.offsets {
            out.extend_from_slice(&offset.to_le_bytes());
        }
        out.extend_from_slice(&self.range_tombstones);
        Ok(())
    }
}

/// A view of the section.
#[derive(Debug, Clone, Copy, Default)]
pub struct RangeTombstones<'a> {
    offsets: &'a [[u8; OFFSET_BYTES]],
    range_tombstones: &'a [u8],
}

impl<'a> RangeTombstones<'a> {
    /// `None` if the bytes are not such a section.
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self { offsets: &[], range_tombstones: &[] });
        }
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let (offsets, range_tombstones) =
            rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(OFFSET_BYTES)?)?;
        Some(Self { offsets: offsets.as_chunks().0, range_tombstones })
    }

    /// Whether every range tombstone can be read, all are in order, and each lies within one partition.
    pub(super) fn is_valid(&self) -> bool {
        let mut end: &[u8] = &[];
        (0..self.len()).all(|index| {
            self.decode(index).is_some_and(|range_tombstone| {
                let is_ordered = end <= range_tombstone.start && range_tombstone.start < range_tombstone.end;
                end = range_tombstone.end;
                let prefix = key::prefix_length(range_tombstone.start)
                    .and_then(|length| range_tombstone.start.get(..length));
                is_ordered && prefix.is_some_and(|prefix| range_tombstone.end.starts_with(prefix))
            })
        })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The range tombstone with this number, in key order; `None` behind the last.
    #[inline]
    pub fn get(&self, index: usize) -> Option<RangeTombstoneRef<'a>> {
        let range_tombstone = self.decode(index);
        if range_tombstone.is_none() && index < self.len() {
            broken!("the range tombstones of an open table can be read");
        }
        range_tombstone
    }

    #[inline]
    fn decode(&self, index: usize) -> Option<RangeTombstoneRef<'a>> {
        let offset = u32::from_le_bytes(*self.offsets.get(index)?) as usize;
        let mut reader = Reader::new(self.range_tombstones.get(offset..)?);
        let start = reader.bytes("a range tombstone").ok()?;
        let end = reader.bytes("a range tombstone").ok()?;
        let timestamp = reader.signed("a range tombstone").ok()?;
        let local_deletion_time = reader.unsigned32("a range tombstone").ok()?;
        Some(RangeTombstoneRef { start, end, deletion: Deletion { timestamp, local_deletion_time } })
    }

    /// The number of the first range tombstone that ends after `key`; `len()` if there is none.
    #[inline]
    pub fn first_ending_after(&self, key: &[u8]) -> usize {
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).is_some_and(|range_tombstone| range_tombstone.end <= key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The deletion that covers `key`, if any.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        let range_tombstone = self.get(self.first_ending_after(key))?;
        (range_tombstone.start <= key).then_some(range_tombstone.deletion)
    }

    /// The range tombstones that overlap the keys `[start, end)`, in order, uncut.
    pub fn overlapping(
        &self,
        start: &[u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a> {
        let range_tombstones = *self;
        (self.first_ending_after(start)..self.len())
            .map_while(move |index| range_tombstones.get(index))
            .take_while(move |range_tombstone| range_tombstone.start < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::full_key;

    fn section(range_tombstones: &[(&[u8], &[u8], i64)]) -> Vec<u8> {
        let mut builder = RangeTombstonesBuilder::default();
        for (start, end, timestamp) in range_tombstones {
            let deletion = Deletion { timestamp: *timestamp, local_deletion_time: 7 };
            assert!(builder.add(&RangeTombstoneRef { start, end, deletion }));
        }
        let mut bytes = Vec::new();
        builder.write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(
            section(&[(b"a", b"c", -1), (b"c", b"cc", 2)]),
            [2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1, b'a', 1, b'c', 1, 7, 1, b'c', 2, b'c', b'c', 4, 7]
        );
        assert!(section(&[]).is_empty());
    }

    #[test]
    fn a_key_finds_the_range_tombstone_that_covers_it() {
        let bytes = section(&[(b"b", b"d", 1), (b"d", b"e", 2), (b"g", b"h", 3)]);
        let range_tombstones = RangeTombstones::new(&bytes).unwrap();
        let timestamp = |key: &[u8]| range_tombstones.covering(key).map(|deletion| deletion.timestamp);
        assert_eq!(timestamp(b"a"), None);
        assert_eq!(timestamp(b"b"), Some(1));
        assert_eq!(timestamp(b"czz"), Some(1));
        assert_eq!(timestamp(b"d"), Some(2));
        assert_eq!(timestamp(b"e"), None);
        assert_eq!(timestamp(b"gg"), Some(3));
        assert_eq!(timestamp(b"h"), None);
        assert_eq!(range_tombstones.overlapping(b"c", b"g").count(), 2);
        assert_eq!(range_tombstones.overlapping(b"e", b"g").count(), 0);
        assert_eq!(range_tombstones.overlapping(b"", b"z").count(), 3);
    }

    #[test]
    fn a_range_tombstone_that_leaves_its_partition_is_damage() {
        let key = |partition: &[u8], position: &[u8]| full_key(5, partition, position).unwrap();
        let is_valid = |start: &[u8], end: &[u8]| {
            RangeTombstones::new(&section(&[(start, end, 1)]))
                .is_some_and(|range_tombstones| range_tombstones.is_valid())
        };
        assert!(is_valid(&key(b"a", &[0]), &key(b"a", &[0xFF])));
        assert!(!is_valid(&key(b"a", &[0]), &key(b"b", &[0xFF])));
        assert!(!is_valid(b"short", b"shorter"));
    }

    #[test]
    fn range_tombstones_out_of_order_are_refused() {
        let mut builder = RangeTombstonesBuilder::default();
        let deletion = Deletion { timestamp: 1, local_deletion_time: 1 };
        assert!(builder.add(&RangeTombstoneRef { start: b"b", end: b"d", deletion }));
        assert!(!builder.add(&RangeTombstoneRef { start: b"c", end: b"e", deletion }));
        assert!(!builder.add(&RangeTombstoneRef { start: b"e", end: b"e", deletion }));
    }

    #[test]
    fn damaged_sections_never_panic() {
        let key = |position| full_key(5, b"", &[position]).unwrap();
        let bytes = section(&[(&key(1), &key(3), -1), (&key(3), &key(4), 2)]);
        assert!(RangeTombstones::new(&bytes).unwrap().is_valid());
        for index in 0..bytes.len() {
            for value in [0, 1, 2, 0x7F, 0x80, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[index] = value;
                // A table with a section that is not valid is not opened.
                if let Some(range_tombstones) =
                    RangeTombstones::new(&damaged).filter(RangeTombstones::is_valid)
                {
                    range_tombstones.covering(&key(2));
                }
            }
        }
    }
}
