//! Deletions of ranges of positions within one partition, kept fragmented: sorted, non-overlapping, each
//! position covered by the strongest deletion that was given for it.

use crate::cell::Deletion;

/// Deletes the positions `[start, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub start: Box<[u8]>,
    pub end: Box<[u8]>,
    pub deletion: Deletion,
}

impl Span {
    /// Memory it takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.start.len() + self.end.len()
    }

    /// Bytes of its bounds.
    pub fn key_bytes(&self) -> u64 {
        (self.start.len() + self.end.len()) as u64
    }
}

/// The span deletions of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanSet {
    spans: Vec<Span>,
}

impl SpanSet {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn clear(&mut self) {
        self.spans.clear();
    }

    /// The fragments in order.
    pub fn as_slice(&self) -> &[Span] {
        &self.spans
    }

    /// Memory taken, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.spans.iter().map(Span::size_bytes).sum()
    }

    /// Keeps the fragments for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&Span) -> bool) {
        self.spans.retain(keep);
    }

    /// The deletion that covers `position`.
    #[inline]
    pub fn covering(&self, position: &[u8]) -> Option<Deletion> {
        if self.spans.is_empty() {
            return None;
        }
        let index = self.spans.partition_point(|span| *span.end <= *position);
        self.spans.get(index).filter(|span| *span.start <= *position).map(|span| span.deletion)
    }

    /// Adds a deletion of `[start, end)`; an empty range adds nothing.
    pub fn add(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        if start >= end {
            return;
        }
        let first = self.spans.partition_point(|span| *span.end <= *start);
        let last = self.spans.partition_point(|span| *span.start < *end).max(first);
        let mut fragments = Fragments::default();
        let mut covered_to = start;
        for span in &self.spans[first..last] {
            fragments.push(&span.start, start, span.deletion);
            fragments.push(covered_to, &span.start, deletion);
            let low = start.max(&*span.start);
            let high = end.min(&*span.end);
            fragments.push(low, high, deletion.max(span.deletion));
            covered_to = high;
            fragments.push(end, &span.end, span.deletion);
        }
        if covered_to < end {
            // Nothing reaches beyond `end` in this case, so the last fragment still is the last.
            fragments.push(covered_to, end, deletion);
        }
        self.spans.splice(first..last, fragments.spans);
    }
}

#[derive(Default)]
struct Fragments {
    spans: Vec<Span>,
}

impl Fragments {
    fn push(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        if start >= end {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if *last.end == *start && last.deletion == deletion => last.end = end.into(),
            _ => self.spans.push(Span { start: start.into(), end: end.into(), deletion }),
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
            let mut set = SpanSet::default();
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
            prop_assert!(set.as_slice().iter().all(|span| span.start < span.end));
        }
    }
}
