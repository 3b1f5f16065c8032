//! The range tombstones of one partition, added in any order.
//!
//! A set is a step function over positions. Each *step* has the position where it begins and the deletion that is in effect from
//! there to the next step, if any. The steps are the nodes of a treap: a binary tree ordered by position, and a heap by random
//! priorities, so that its depth is logarithmic whatever the order in which positions come.
//!
//! Adding a deletion raises all steps between its bounds:
//! 1. The tree is split at both bounds. A step begins at each bound that has none.
//! 2. If no step in between is stronger, they become one step. Otherwise they are raised by a note at the root of their tree
//!    (`pending`), which is handed down when the tree is next taken apart.
//! 3. The parts are joined. A step that equals the one before it is left out at the bounds.
//!
//! So adding costs O(log n) amortised, whatever was added before: each step is made once and removed at most once. The deletion
//! of a position costs O(log n), and a walk over k fragments O(log n + k).

use std::iter::Peekable;

use super::RangeTombstoneRef;
use crate::cell::Deletion;

/// The range tombstones of one partition.
#[derive(Debug, Clone, Default)]
pub struct RangeTombstoneSet {
    root: Tree,
    /// Bytes of memory of all steps.
    size_bytes: usize,
    /// The state of the generator of priorities.
    seed: u64,
}

type Tree = Option<Box<Step>>;

#[derive(Debug, Clone)]
struct Step {
    start: Box<[u8]>,
    /// In effect from `start` to the next step, unless a stronger deletion is pending above.
    deletion: Option<Deletion>,
    /// Raises the steps below, which do not know it yet.
    pending: Option<Deletion>,
    /// The strongest deletion of this step and those below it.
    strongest: Option<Deletion>,
    priority: u64,
    left: Tree,
    right: Tree,
}

/// Memory of a step besides its position, with the overhead of its two allocations.
const STEP_BYTES: usize = size_of::<Step>() + 32;

#[inline]
fn is_before(left: &[u8], right: &[u8]) -> bool {
    #[cfg(any(test, feature = "testing"))]
    super::work::note();
    left < right
}

impl Step {
    fn strongest_of(tree: &Tree) -> Option<Deletion> {
        tree.as_ref().and_then(|step| step.strongest)
    }

    fn raise(&mut self, deletion: Option<Deletion>) {
        self.deletion = self.deletion.max(deletion);
        self.pending = self.pending.max(deletion);
        self.strongest = self.strongest.max(deletion);
    }

    fn hand_down(&mut self) {
        if let Some(pending) = self.pending.take() {
            for below in [&mut self.left, &mut self.right].into_iter().flatten() {
                below.raise(Some(pending));
            }
        }
    }

    fn update(&mut self) {
        let below = Self::strongest_of(&self.left).max(Self::strongest_of(&self.right));
        self.strongest = self.deletion.max(below);
    }

    fn size_bytes(&self) -> usize {
        STEP_BYTES + self.start.len()
    }
}

/// Parts a tree into the steps before `position` and the others.
fn split(tree: Tree, position: &[u8]) -> (Tree, Tree) {
    let Some(mut step) = tree else { return (None, None) };
    step.hand_down();
    if is_before(&step.start, position) {
        let (left, right) = split(step.right.take(), position);
        step.right = left;
        step.update();
        (Some(step), right)
    } else {
        let (left, right) = split(step.left.take(), position);
        step.left = right;
        step.update();
        (left, Some(step))
    }
}

/// The inverse of `split`.
fn join(left: Tree, right: Tree) -> Tree {
    match (left, right) {
        (None, tree) | (tree, None) => tree,
        (Some(mut left), Some(mut right)) => {
            if left.priority >= right.priority {
                left.hand_down();
                left.right = join(left.right.take(), Some(right));
                left.update();
                Some(left)
            } else {
                right.hand_down();
                right.left = join(Some(left), right.left.take());
                right.update();
                Some(right)
            }
        }
    }
}

/// The first step of a tree, with its deletion.
fn first(tree: &Tree) -> Option<(&[u8], Option<Deletion>)> {
    let mut step = tree.as_deref()?;
    let mut raised = None;
    while let Some(left) = &step.left {
        raised = raised.max(step.pending);
        step = left;
    }
    Some((&step.start, step.deletion.max(raised)))
}

/// The deletion of the last step of a tree.
fn last(tree: &Tree) -> Option<Deletion> {
    let mut step = tree.as_deref()?;
    let mut raised = None;
    while let Some(right) = &step.right {
        raised = raised.max(step.pending);
        step = right;
    }
    step.deletion.max(raised)
}

/// Removes the first step.
fn without_first(tree: Tree, removed_bytes: &mut usize) -> Tree {
    let mut step = tree?;
    step.hand_down();
    if step.left.is_none() {
        *removed_bytes += step.size_bytes();
        return step.right.take();
    }
    step.left = without_first(step.left.take(), removed_bytes);
    step.update();
    Some(step)
}

fn size_of_all(tree: &Tree) -> usize {
    tree.as_ref().map_or(0, |step| step.size_bytes() + size_of_all(&step.left) + size_of_all(&step.right))
}

impl RangeTombstoneSet {
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The deletion that covers `position`.
    #[inline]
    pub fn covering(&self, position: &[u8]) -> Option<Deletion> {
        let mut next = self.root.as_deref();
        let (mut raised, mut found) = (None, None);
        while let Some(step) = next {
            if is_before(position, &step.start) {
                next = step.left.as_deref();
            } else {
                found = step.deletion.max(raised);
                next = step.right.as_deref();
            }
            raised = raised.max(step.pending);
        }
        found
    }

    /// Adds a deletion of `[start, end)`; an empty range adds nothing.
    pub fn add(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        if start >= end {
            return;
        }
        let added = Some(deletion);
        let (before, rest) = split(self.root.take(), start);
        let (mut within, mut behind) = split(rest, end);
        // In effect right before each of the bounds, until now.
        let before_start = last(&before);
        let before_end = if within.is_some() { last(&within) } else { before_start };
        let at_start = first(&within).filter(|(position, _)| *position == start).map(|(_, own)| own);
        if Step::strongest_of(&within).max(at_start.is_none().then_some(before_start).flatten()) <= added {
            self.size_bytes -= size_of_all(&within);
            within = None;
            if before_start != added {
                within = Some(Box::new(self.step(start, added)));
            }
        } else {
            match at_start {
                Some(own) if own.max(added) == before_start => {
                    let mut removed_bytes = 0;
                    within = without_first(within, &mut removed_bytes);
                    self.size_bytes -= removed_bytes;
                }
                None if before_start < added => {
                    within = join(Some(Box::new(self.step(start, before_start))), within);
                }
                _ => {}
            }
            if let Some(root) = &mut within {
                root.raise(added);
            }
        }
        let now_before_end = before_end.max(added);
        match first(&behind).filter(|(position, _)| *position == end) {
            Some((_, own)) if own == now_before_end => {
                let mut removed_bytes = 0;
                behind = without_first(behind, &mut removed_bytes);
                self.size_bytes -= removed_bytes;
            }
            None if now_before_end != before_end => {
                behind = join(Some(Box::new(self.step(end, before_end))), behind);
            }
            _ => {}
        }
        self.root = join(join(before, within), behind);
    }

    /// A step without neighbours.
    fn step(&mut self, start: &[u8], deletion: Option<Deletion>) -> Step {
        // A SplitMix64 generator: the priorities need not be unpredictable, only unrelated to the positions.
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let step = Step {
            start: start.into(),
            deletion,
            pending: None,
            strongest: deletion,
            priority: mixed ^ (mixed >> 31),
            left: None,
            right: None,
        };
        self.size_bytes += step.size_bytes();
        step
    }

    /// All fragments, in order.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> + use<'_> {
        self.ending_after(&[])
    }

    /// The fragments that end after `position`, in order. The part of the first one that lies before the position may be missing.
    pub fn ending_after<'a>(
        &'a self,
        position: &[u8],
    ) -> impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a> {
        let mut steps = Steps::from(self.root.as_deref(), position);
        let mut next = steps.next();
        std::iter::from_fn(move || {
            loop {
                let (start, deletion) = next?;
                next = steps.next();
                let Some(deletion) = deletion else { continue };
                while next.is_some_and(|(_, following)| following == Some(deletion)) {
                    next = steps.next();
                }
                // The last step has no deletion: it begins where the last range ends.
                return Some(RangeTombstoneRef { start, end: next?.0, deletion });
            }
        })
    }

    /// The fragments that start before `position`, from the last to the first. The part of the first one that lies behind the
    /// position may be missing.
    pub fn starting_before<'a>(
        &'a self,
        position: &[u8],
    ) -> impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a> {
        let mut steps = StepsBack::before(self.root.as_deref(), position);
        let mut end = steps.end;
        let mut next = steps.next();
        std::iter::from_fn(move || {
            loop {
                let (mut start, deletion) = next?;
                next = steps.next();
                if let Some(deletion) = deletion {
                    while let Some((earlier, _)) = next.filter(|(_, earlier)| *earlier == Some(deletion)) {
                        start = earlier;
                        next = steps.next();
                    }
                    let fragment = RangeTombstoneRef { start, end: end?, deletion };
                    end = Some(start);
                    return Some(fragment);
                }
                end = Some(start);
            }
        })
    }

    /// Finds the deletions of ascending positions.
    pub fn covering_walk(&self) -> CoveringWalk<impl Iterator<Item = RangeTombstoneRef<'_>> + use<'_>> {
        CoveringWalk { fragments: self.iter().peekable() }
    }
}

/// A walk over ascending positions beside the fragments: linear in both.
pub struct CoveringWalk<I: Iterator> {
    fragments: Peekable<I>,
}

impl<'a, I: Iterator<Item = RangeTombstoneRef<'a>>> CoveringWalk<I> {
    /// The deletion that covers `position`, which must not be before that of the last call.
    pub fn at(&mut self, position: &[u8]) -> Option<Deletion> {
        while self.fragments.next_if(|fragment| !is_before(position, fragment.end)).is_some() {}
        let next = self.fragments.peek()?;
        (next.start <= position).then_some(next.deletion)
    }
}

/// A step that is yet to come, and what raises it.
type Waiting<'a> = (&'a Step, Option<Deletion>);

/// The steps from a place on, in order: position and deletion.
struct Steps<'a> {
    /// Each comes before its right subtree, and before those that were put here earlier.
    waiting: Vec<Waiting<'a>>,
    /// The step in which the walk begins, which may begin before the place.
    current: Option<(&'a [u8], Option<Deletion>)>,
}

impl<'a> Steps<'a> {
    /// From the step that is in effect at `position`.
    fn from(root: Option<&'a Step>, position: &[u8]) -> Self {
        let mut steps = Self { waiting: Vec::new(), current: None };
        let (mut next, mut raised) = (root, None);
        while let Some(step) = next {
            if is_before(position, &step.start) {
                steps.waiting.push((step, raised));
                next = step.left.as_deref();
            } else {
                steps.current = Some((&step.start, step.deletion.max(raised)));
                next = step.right.as_deref();
            }
            raised = raised.max(step.pending);
        }
        steps
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = (&'a [u8], Option<Deletion>);

    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(any(test, feature = "testing"))]
        super::work::note();
        if let Some(current) = self.current.take() {
            return Some(current);
        }
        let (step, raised) = self.waiting.pop()?;
        let (mut next, mut raised_below) = (step.right.as_deref(), raised.max(step.pending));
        while let Some(below) = next {
            self.waiting.push((below, raised_below));
            raised_below = raised_below.max(below.pending);
            next = below.left.as_deref();
        }
        Some((&step.start, step.deletion.max(raised)))
    }
}

/// As [`Steps`], backwards.
struct StepsBack<'a> {
    waiting: Vec<Waiting<'a>>,
    /// Where the first step of the walk ends.
    end: Option<&'a [u8]>,
}

impl<'a> StepsBack<'a> {
    /// From the last step that begins before `position`.
    fn before(root: Option<&'a Step>, position: &[u8]) -> Self {
        let mut steps = Self { waiting: Vec::new(), end: None };
        let (mut next, mut raised) = (root, None);
        while let Some(step) = next {
            if is_before(&step.start, position) {
                steps.waiting.push((step, raised));
                next = step.right.as_deref();
            } else {
                steps.end = Some(&step.start);
                next = step.left.as_deref();
            }
            raised = raised.max(step.pending);
        }
        steps
    }
}

impl<'a> Iterator for StepsBack<'a> {
    type Item = (&'a [u8], Option<Deletion>);

    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(any(test, feature = "testing"))]
        super::work::note();
        let (step, raised) = self.waiting.pop()?;
        let (mut next, mut raised_below) = (step.left.as_deref(), raised.max(step.pending));
        while let Some(below) = next {
            self.waiting.push((below, raised_below));
            raised_below = raised_below.max(below.pending);
            next = below.right.as_deref();
        }
        Some((&step.start, step.deletion.max(raised)))
    }
}

#[cfg(test)]
mod tests {
    use helenus_io::SplitMix64;
    use proptest::prelude::*;

    use super::super::{RangeTombstone, work};
    use super::*;

    fn deletion(timestamp: i64) -> Deletion {
        Deletion { timestamp, local_deletion_time: 0 }
    }

    proptest! {
        #[test]
        fn every_position_has_the_strongest_deletion(
            added in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..20)
        ) {
            let mut set = RangeTombstoneSet::default();
            for &(start, end, timestamp) in &added {
                set.add(&[start], &[end], deletion(timestamp));
            }
            let mut walk = set.covering_walk();
            for position in 0..20_u8 {
                let expected = added
                    .iter()
                    .filter(|(start, end, _)| (*start..*end).contains(&position))
                    .map(|entry| entry.2)
                    .max();
                prop_assert_eq!(set.covering(&[position]).map(|deletion| deletion.timestamp), expected);
                prop_assert_eq!(walk.at(&[position]).map(|deletion| deletion.timestamp), expected);
            }
            prop_assert_eq!(set.size_bytes(), size_of_all(&set.root));
            let fragments: Vec<RangeTombstone> = set.iter().map(RangeTombstoneRef::detach).collect();
            for pair in fragments.windows(2) {
                let is_united = pair[0].end != pair[1].start || pair[0].deletion != pair[1].deletion;
                prop_assert!(pair[0].end <= pair[1].start && is_united);
            }
            prop_assert!(fragments.iter().all(|it| it.start < it.end));
            for position in 0..20_u8 {
                let cut = |it: RangeTombstoneRef<'_>| {
                    let start = it.start.max(&[position][..]).to_vec();
                    (start, it.end.to_vec(), it.deletion)
                };
                let after: Vec<_> = set.ending_after(&[position]).map(cut).collect();
                let expected = fragments.iter().filter(|it| *it.end > [position][..]);
                prop_assert_eq!(after, expected.map(|it| cut(it.view())).collect::<Vec<_>>());
                let cut = |it: RangeTombstoneRef<'_>| {
                    let end = it.end.min(&[position][..]).to_vec();
                    (it.start.to_vec(), end, it.deletion)
                };
                let before: Vec<_> = set.starting_before(&[position]).map(cut).collect();
                let expected = fragments.iter().rev().filter(|it| *it.start < [position][..]);
                prop_assert_eq!(before, expected.map(|it| cut(it.view())).collect::<Vec<_>>());
            }
        }
    }

    /// Adds many range tombstones and returns the comparisons for each.
    fn add_all(all: impl Iterator<Item = (u64, u64, i64)>) -> (RangeTombstoneSet, u64) {
        let mut set = RangeTombstoneSet::default();
        let mut count = 0;
        work::take();
        for (start, end, timestamp) in all {
            set.add(&start.to_be_bytes(), &end.to_be_bytes(), deletion(timestamp));
            count += 1;
        }
        let compared = work::take();
        (set, compared / count)
    }

    /// A tree of a million steps with a depth of 50.
    const COMPARED_MAX: u64 = 150;

    #[test]
    fn adding_costs_the_logarithm_of_what_is_there_whatever_the_order() {
        const COUNT: u64 = 30_000;
        let mut random = SplitMix64::new(5);
        let mut disjoint: Vec<u64> = (0..COUNT).map(|number| number * 10).collect();
        for index in (1..disjoint.len()).rev() {
            disjoint.swap(index, random.below(index as u64 + 1) as usize);
        }
        let (set, compared) = add_all(disjoint.iter().map(|&start| (start, start + 5, (start % 7) as i64)));
        assert_eq!(set.iter().count() as u64, COUNT);
        assert!(compared < COMPARED_MAX, "disjoint: {compared}");

        let (set, compared) = add_all((0..COUNT).map(|end| (0, end + 1, end as i64)));
        assert_eq!(set.iter().count(), 1);
        assert!(compared < 10, "rising bounds: {compared}");

        let (set, compared) = add_all((0..COUNT).map(|number| (number, 2 * COUNT - number, number as i64)));
        assert_eq!(set.iter().count() as u64, 2 * COUNT - 1);
        assert!(compared < COMPARED_MAX, "nested: {compared}");

        // A comb of strong ones, and wide ones below it that become stronger but never as strong.
        let comb = (0..COUNT).map(|number| (number * 10, number * 10 + 5, i64::MAX));
        let wide = (0..COUNT).map(|number| (0, COUNT * 10, number as i64));
        let (set, compared) = add_all(comb.chain(wide));
        assert_eq!(set.iter().count() as u64, 2 * COUNT);
        assert!(compared < COMPARED_MAX, "below a comb: {compared}");

        let any = (0..COUNT).map(|_| {
            let start = random.below(1 << 40);
            (start, start + random.below(1 << 39), random.below(1 << 40) as i64)
        });
        let (_, compared) = add_all(any.collect::<Vec<_>>().into_iter());
        assert!(compared < COMPARED_MAX, "any: {compared}");
    }

    #[test]
    fn memory_is_given_back_where_range_tombstones_become_one() {
        let (mut set, _) = add_all((0..1_000).map(|number| (number * 2, number * 2 + 1, 1)));
        let full = set.size_bytes();
        set.add(&0_u64.to_be_bytes(), &5_000_u64.to_be_bytes(), deletion(2));
        assert!(set.size_bytes() < full / 500, "{} of {full}", set.size_bytes());
        assert_eq!(set.iter().count(), 1);
    }
}
