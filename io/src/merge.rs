//! The k-way merge: which of several sorted sources have the next key.
//!
//! Scans, compactions and the merge of replicas' answers all walk sorted sources side by side. The caller owns the sources
//! and moves them on; the merge only remembers numbers of sources.
//!
//! Sources are few, so the next key is the result of one pass over their heads. While the keys come from one source alone,
//! the merge remembers its *runner-up*: the source that has the least key of all others. The others do not move
//! meanwhile, so comparing the next key with the runner-up's is enough: one comparison a key.
//!
//! Invariants:
//! * [`KWayMerge::current`] holds the sources with the next key, in ascending order of their numbers.
//! * A runner-up is remembered only while exactly one source is current and no other source has moved. A caller that moves
//!   another source, or whose sources change on their own, calls [`KWayMerge::forget`].

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::invariant::{BrokenInvariant, broken};

/// The state of a merge between two keys.
#[derive(Debug, Default)]
pub struct KWayMerge {
    /// From the greatest key to the least.
    reversed: bool,
    current: SmallVec<[u32; 8]>,
    runner_up: RunnerUp,
}

/// The source with the least key of all except the only current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RunnerUp {
    /// All sources must be compared. This is the state whenever not exactly one source is current.
    #[default]
    Unknown,
    /// The others have no more keys.
    None,
    Source(u32),
}

/// Whether a merge comes to `key` before `other`.
#[inline]
fn is_before<K: Ord + ?Sized>(key: &K, other: &K, reversed: bool) -> bool {
    if reversed { other < key } else { key < other }
}

impl KWayMerge {
    pub fn new(reversed: bool) -> Self {
        Self { reversed, ..Self::default() }
    }

    /// The sources that have the next key.
    #[inline]
    pub fn current(&self) -> &[u32] {
        &self.current
    }

    /// The first of the sources that have the next key.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.current.first().map(|&index| index as usize)
    }

    /// Whether one source alone is current and its runner-up is known.
    #[inline]
    pub fn has_runner_up(&self) -> bool {
        self.runner_up != RunnerUp::Unknown
    }

    /// No source is current any more. The next key will be found among all.
    #[inline]
    pub fn forget(&mut self) {
        self.current.clear();
        self.runner_up = RunnerUp::Unknown;
    }

    /// After the caller has moved on the only current source, whose key now is `key`: whether that is the next key, and this
    /// source the only one to have it. `key_of` gives the key of another source. To be called only while
    /// [`KWayMerge::has_runner_up`] holds.
    #[inline]
    pub fn stays<'k, K: Ord + ?Sized + 'k>(
        &self,
        key: &K,
        key_of: impl FnOnce(usize) -> Option<&'k K>,
    ) -> Result<bool, BrokenInvariant> {
        match self.runner_up {
            RunnerUp::Source(index) => match key_of(index as usize) {
                Some(runner_up) => Ok(is_before(key, runner_up, self.reversed)),
                None => Err(broken!("the runner-up of a merge has a key")),
            },
            RunnerUp::None => Ok(true),
            RunnerUp::Unknown => {
                Err(broken!("a merge stays with a source only while it knows the runner-up"))
            }
        }
    }

    /// Finds the sources with the next key among all; false when none has any. `keys` gives the key of each source in the
    /// order of their numbers; `None`: it has no more.
    #[inline]
    pub fn select<'k, K: Ord + ?Sized + 'k>(&mut self, keys: impl Iterator<Item = Option<&'k K>>) -> bool {
        self.current.clear();
        self.runner_up = RunnerUp::None;
        let (mut best, mut second): (Option<&K>, Option<&K>) = (None, None);
        for (index, key) in keys.enumerate() {
            let Some(key) = key else { continue };
            let ordering = best.map(|best| if self.reversed { best.cmp(key) } else { key.cmp(best) });
            match ordering {
                Some(Ordering::Greater) => {
                    if second.is_none_or(|second| is_before(key, second, self.reversed)) {
                        second = Some(key);
                        self.runner_up = RunnerUp::Source(index as u32);
                    }
                    continue;
                }
                Some(Ordering::Equal) => {}
                None | Some(Ordering::Less) => {
                    if let Some(&former) = self.current.first() {
                        second = best;
                        self.runner_up = RunnerUp::Source(former);
                    }
                    self.current.clear();
                    best = Some(key);
                }
            }
            self.current.push(index as u32);
        }
        if self.current.len() != 1 {
            self.runner_up = RunnerUp::Unknown;
        }
        !self.current.is_empty()
    }

    /// After the caller has moved on all current sources: finds the sources with the next key; false when none has any.
    #[inline]
    pub fn next<'k, S, K: Ord + ?Sized + 'k>(
        &mut self,
        sources: &'k [S],
        key: impl Fn(&'k S) -> Option<&'k K>,
    ) -> Result<bool, BrokenInvariant> {
        if self.has_runner_up()
            && let Some(only) = self.first()
        {
            let key_of = |index: usize| sources.get(index).and_then(&key);
            if let Some(present) = key_of(only)
                && self.stays(present, key_of)?
            {
                return Ok(true);
            }
        }
        Ok(self.select(sources.iter().map(key)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_comes_once_in_order_with_all_its_sources(
            mut sources in proptest::collection::vec(proptest::collection::btree_set(0..40_u8, 0..20), 0..5),
            reversed: bool,
        ) {
            let mut expected: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
            for (index, keys) in sources.iter().enumerate() {
                for &key in keys {
                    expected.entry(key).or_default().push(index as u32);
                }
            }
            let mut expected: Vec<_> = expected.into_iter().collect();
            if reversed {
                expected.reverse();
            }
            // The next key of each source is its last.
            let mut sources: Vec<Vec<u8>> = sources
                .iter_mut()
                .map(|keys| {
                    let ascending = std::mem::take(keys).into_iter();
                    if reversed { ascending.collect() } else { ascending.rev().collect() }
                })
                .collect();
            let mut merge = KWayMerge::new(reversed);
            let mut found = Vec::new();
            while merge.next(&sources, |source| source.last()).unwrap() {
                let first = merge.first().unwrap();
                found.push((*sources[first].last().unwrap(), merge.current().to_vec()));
                for &index in merge.current() {
                    sources[index as usize].pop();
                }
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn one_key_is_compared_while_they_come_from_one_source() {
        let mut sources = [vec![9, 3, 2, 1], vec![8], vec![7]];
        let compared = std::cell::Cell::new(0);
        let mut merge = KWayMerge::new(false);
        for expected in [1, 2, 3, 7] {
            compared.set(0);
            assert!(
                merge
                    .next(&sources, |source: &Vec<i32>| {
                        compared.set(compared.get() + 1);
                        source.last()
                    })
                    .unwrap()
            );
            let first = merge.first().unwrap();
            assert_eq!(sources[first].last(), Some(&expected));
            // The key of the source itself and that of its runner-up.
            assert!(expected == 1 || expected == 7 || compared.get() == 2, "{expected}: {}", compared.get());
            sources[first].pop();
        }
    }
}
