//! Range tombstones: deletions of ranges of positions within one partition.
//!
//! Invariant: a set is kept fragmented. Its fragments are sorted and do not overlap, and each position is covered by the
//! strongest deletion that was added for it.

use crate::cell::Deletion;

/// Deletes the positions `[start, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    pub start: Box<[u8]>,
    pub end: Box<[u8]>,
    pub deletion: Deletion,
}

impl RangeTombstone {
    /// Bytes of its bounds.
    pub fn key_bytes(&self) -> u64 {
        (self.start.len() + self.end.len()) as u64
    }
}

/// The range tombstones of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstoneSet {
    range_tombstones: Vec<RangeTombstone>,
}

impl RangeTombstoneSet {
    pub fn is_empty(&self) -> bool {
        self.range_tombstones.is_empty()
    }

    /// The fragments in order.
    pub fn as_slice(&self) -> &[RangeTombstone] {
        &self.range_tombstones
    }

    /// Keeps the fragments for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&RangeTombstone) -> bool) {
        self.range_tombstones.retain(keep);
    }

    /// The deletion that covers `position`.
    #[inline]
    pub fn covering(&self, position: &[u8]) -> Option<Deletion> {
        if self.range_tombstones.is_empty() {
            return None;
        }
        let index =
            self.range_tombstones.partition_point(|range_tombstone| *range_tombstone.end <= *position);
        self.range_tombstones
            .get(index)
            .filter(|range_tombstone| *range_tombstone.start <= *position)
            .map(|range_tombstone| range_tombstone.deletion)
    }

    /// Adds a deletion of `[start, end)`; an empty range adds nothing.
    pub fn add(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        if start >= end {
            return;
        }
        let first = self.range_tombstones.partition_point(|range_tombstone| *range_tombstone.end <= *start);
        let last =
            self.range_tombstones.partition_point(|range_tombstone| *range_tombstone.start < *end).max(first);
        let mut fragments = Fragments::default();
        let mut covered_to = start;
        for range_tombstone in &self.range_tombstones[first..last] {
            fragments.push(&range_tombstone.start, start, range_tombstone.deletion);
            fragments.push(covered_to, &range_tombstone.start, deletion);
            let low = start.max(&*range_tombstone.start);
            let high = end.min(&*range_tombstone.end);
            fragments.push(low, high, deletion.max(range_tombstone.deletion));
            covered_to = high;
            fragments.push(end, &range_tombstone.end, range_tombstone.deletion);
        }
        if covered_to < end {
            // In this case no fragment reaches beyond `end`, so the last one is still the last.
            fragments.push(covered_to, end, deletion);
        }
        self.range_tombstones.splice(first..last, fragments.range_tombstones);
    }
}

#[derive(Default)]
struct Fragments {
    range_tombstones: Vec<RangeTombstone>,
}

impl Fragments {
    fn push(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        if start >= end {
            return;
        }
        match self.range_tombstones.last_mut() {
            Some(last) if *last.end == *start && last.deletion == deletion => last.end = end.into(),
            _ => {
                self.range_tombstones.push(RangeTombstone { start: start.into(), end: end.into(), deletion });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_position_has_the_strongest_deletion(
            added in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..20)
        ) {
            let mut set = RangeTombstoneSet::default();
            for &(start, end, timestamp) in &added {
                set.add(&[start], &[end], Deletion { timestamp, local_deletion_time: 0 });
            }
            for position in 0..20_u8 {
                let expected = added
                    .iter()
                    .filter(|(start, end, _)| (*start..*end).contains(&position))
                    .map(|entry| entry.2)
                    .max();
                prop_assert_eq!(set.covering(&[position]).map(|deletion| deletion.timestamp), expected);
            }
            for pair in set.as_slice().windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            prop_assert!(set.as_slice().iter().all(|range_tombstone| range_tombstone.start < range_tombstone.end));
        }
    }
}
