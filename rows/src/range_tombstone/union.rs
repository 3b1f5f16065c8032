//! Several sorted lists of range tombstones of one partition, walked over as if they were one, in either direction.
//!
//! The walk goes from edge to edge of any source. Between two edges the strongest deletion of all sources is in effect. Such
//! segments are united while their deletions are equal. So the walk is linear in the range tombstones of the sources, and looks
//! only at those that it has reached. A strong range tombstone may hide any number of weaker ones, so a walk can have a budget,
//! after which it pauses.

use super::{RangeTombstone, RangeTombstoneRef};
use crate::cell::Deletion;

/// Bytes that count for an edge besides its position.
const EDGE_BYTES: u64 = 16;

/// A list of range tombstones that ascend and do not overlap, read in the direction of a walk.
pub trait SortedRangeTombstones {
    /// The next range tombstone.
    fn current(&self) -> Option<RangeTombstoneRef<'_>>;
    fn advance(&mut self);
}

/// The next thing on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walked {
    RangeTombstone(RangeTombstone),
    /// The budget is spent. The walk has come to this position, and nothing is known of what lies behind it.
    Paused(Vec<u8>),
}

impl Walked {
    /// The edge at which the walk meets it.
    pub fn edge(&self, reversed: bool) -> &[u8] {
        match self {
            Self::RangeTombstone(RangeTombstone { end, .. }) if reversed => end,
            Self::RangeTombstone(RangeTombstone { start, .. }) => start,
            Self::Paused(position) => position,
        }
    }
}

/// The positions from one edge to the next.
struct Segment {
    /// The strongest deletion that covers them; `None`: none does.
    deletion: Option<Deletion>,
}

/// A walk over the positions `[low, high)`.
pub struct Union<S> {
    sources: Vec<S>,
    reversed: bool,
    /// How far the walk has come.
    at: Vec<u8>,
    end: Vec<u8>,
    /// The edge after `at`.
    next: Vec<u8>,
    /// The fragment that ends at `at` and may go on.
    united: Option<(Vec<u8>, Vec<u8>, Deletion)>,
    is_paused: bool,
    walked_bytes: u64,
}

impl<S: SortedRangeTombstones> Union<S> {
    /// Each source begins with its first range tombstone (`reversed`: its last) that overlaps the positions, or before.
    pub fn new(sources: Vec<S>, low: &[u8], high: &[u8], reversed: bool) -> Self {
        let (at, end) = if reversed { (high, low) } else { (low, high) };
        Self {
            sources,
            reversed,
            at: at.to_vec(),
            end: end.to_vec(),
            next: Vec::new(),
            united: None,
            is_paused: false,
            walked_bytes: 0,
        }
    }

    /// Bytes of the edges that the walk has passed.
    pub fn walked_bytes(&self) -> u64 {
        self.walked_bytes
    }

    /// The next fragment among those whose deletions are kept; `None` at the end. It pauses when it has passed
    /// `budget_bytes` in this call, but not before the first edge.
    pub fn next(&mut self, budget_bytes: u64, is_kept: impl Fn(Deletion) -> bool) -> Option<Walked> {
        let pauses_at = self.walked_bytes.saturating_add(budget_bytes);
        while !self.is_paused {
            let Some(Segment { deletion }) = self.find_segment() else {
                return self.finish().map(Walked::RangeTombstone);
            };
            let finished = match deletion.filter(|deletion| is_kept(*deletion)) {
                None => self.finish(),
                Some(deletion) => self.extend(deletion),
            };
            std::mem::swap(&mut self.at, &mut self.next);
            self.walked_bytes += self.at.len() as u64 + EDGE_BYTES;
            self.is_paused = self.walked_bytes >= pauses_at && self.at != self.end;
            if let Some(finished) = finished {
                return Some(Walked::RangeTombstone(finished));
            }
        }
        Some(self.finish().map_or_else(|| Walked::Paused(self.at.clone()), Walked::RangeTombstone))
    }

    /// Finds the next edge, and the segment up to there. `None` at the end.
    fn find_segment(&mut self) -> Option<Segment> {
        let (reversed, at) = (self.reversed, self.at.as_slice());
        let is_passed = |it: &RangeTombstoneRef<'_>| if reversed { it.start >= at } else { it.end <= at };
        for source in &mut self.sources {
            while source.current().as_ref().is_some_and(is_passed) {
                #[cfg(any(test, feature = "testing"))]
                super::work::note();
                source.advance();
            }
        }
        let mut next: Option<&[u8]> = None;
        let mut strongest: Option<Deletion> = None;
        for RangeTombstoneRef { start, end, deletion } in self.sources.iter().filter_map(S::current) {
            #[cfg(any(test, feature = "testing"))]
            super::work::note();
            let (near, far) = if reversed { (end, start) } else { (start, end) };
            let covers = if reversed { near >= at } else { near <= at };
            let edge = if covers { far } else { near };
            if covers {
                strongest = strongest.max(Some(deletion));
            }
            if next.is_none_or(|next| if reversed { edge > next } else { edge < next }) {
                next = Some(edge);
            }
        }
        let end = self.end.as_slice();
        let next = next.map(|next| if reversed { next.max(end) } else { next.min(end) })?;
        let is_ahead = if reversed { next < at } else { next > at };
        if !is_ahead {
            return None;
        }
        self.next.clear();
        self.next.extend_from_slice(next);
        Some(Segment { deletion: strongest })
    }

    /// Adds the segment to the fragment before it, or begins another one. Returns the fragment that is finished thereby.
    fn extend(&mut self, deletion: Deletion) -> Option<RangeTombstone> {
        if let Some((start, end, united)) = &mut self.united
            && *united == deletion
        {
            let edge = if self.reversed { start } else { end };
            edge.clone_from(&self.next);
            return None;
        }
        let finished = self.finish();
        let (near, far) = (self.at.clone(), self.next.clone());
        let (start, end) = if self.reversed { (far, near) } else { (near, far) };
        self.united = Some((start, end, deletion));
        finished
    }

    fn finish(&mut self) -> Option<RangeTombstone> {
        let (start, end, deletion) = self.united.take()?;
        Some(RangeTombstone { start: start.into(), end: end.into(), deletion })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::RangeTombstoneSet;
    use super::*;

    struct List {
        left: VecDeque<RangeTombstone>,
    }

    impl SortedRangeTombstones for List {
        fn current(&self) -> Option<RangeTombstoneRef<'_>> {
            self.left.front().map(RangeTombstone::view)
        }

        fn advance(&mut self) {
            self.left.pop_front();
        }
    }

    fn set(added: &[(u8, u8, i64)]) -> RangeTombstoneSet {
        let mut set = RangeTombstoneSet::default();
        for &(start, end, timestamp) in added {
            set.add(&[start], &[end], Deletion { timestamp, local_deletion_time: 0 });
        }
        set
    }

    fn lists(sources: &[Vec<(u8, u8, i64)>], reversed: bool) -> Vec<List> {
        let list = |added: &Vec<(u8, u8, i64)>| {
            let set = set(added);
            let fragments = set.iter().map(RangeTombstoneRef::detach);
            List {
                left: if reversed {
                    fragments.collect::<Vec<_>>().into_iter().rev().collect()
                } else {
                    fragments.collect()
                },
            }
        };
        sources.iter().map(list).collect()
    }

    /// Walks to the end; a pause is gone on from.
    fn walk(
        sources: &[Vec<(u8, u8, i64)>],
        low: u8,
        high: u8,
        reversed: bool,
        budget: u64,
    ) -> Vec<RangeTombstone> {
        let (mut low, mut high) = (vec![low], vec![high]);
        let mut all: Vec<RangeTombstone> = Vec::new();
        loop {
            let mut union = Union::new(lists(sources, reversed), &low, &high, reversed);
            loop {
                match union.next(budget, |deletion| deletion.timestamp != 3) {
                    Some(Walked::RangeTombstone(found)) => all.push(found),
                    Some(Walked::Paused(position)) => {
                        let place = if reversed { &mut high } else { &mut low };
                        assert_ne!(*place, position, "a walk makes progress");
                        *place = position;
                        break;
                    }
                    None => {
                        if reversed {
                            all.reverse();
                        }
                        return all;
                    }
                }
            }
        }
    }

    fn timestamps(fragments: &[RangeTombstone]) -> Vec<Option<i64>> {
        let covering = |position: u8| {
            let covers = |it: &&RangeTombstone| *it.start <= [position][..] && [position][..] < *it.end;
            fragments.iter().find(covers).map(|it| it.deletion.timestamp)
        };
        (0..24).map(covering).collect()
    }

    proptest! {
        #[test]
        fn a_walk_sees_the_strongest_deletions_of_all_sources(
            sources in proptest::collection::vec(
                proptest::collection::vec((0..20_u8, 0..20_u8, 0..6_i64), 0..8), 0..4),
            low in 0..20_u8,
            length in 0..20_u8,
            reversed: bool,
            budget in 1..200_u64,
        ) {
            let high = low + length;
            let all = set(&sources.concat());
            let expected: Vec<Option<i64>> = (0..24_u8).map(|position| {
                let inside = (low..high).contains(&position);
                let covering = all.covering(&[position]).map(|deletion| deletion.timestamp);
                covering.filter(|timestamp| inside && *timestamp != 3)
            }).collect();
            let whole = walk(&sources, low, high, reversed, u64::MAX);
            prop_assert_eq!(timestamps(&whole), expected.clone());
            prop_assert!(whole.windows(2).all(|pair| {
                pair[0].end < pair[1].start || (pair[0].end == pair[1].start && pair[0].deletion != pair[1].deletion)
            }), "united and in order: {:?}", whole);
            prop_assert_eq!(timestamps(&walk(&sources, low, high, reversed, budget)), expected);
        }
    }
}
