//! The best few of many candidates.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug, Clone, PartialEq)]
struct Ranked<K> {
    similarity: f32,
    key: K,
}

impl<K: Ord> Eq for Ranked<K> {}

impl<K: Ord> Ord for Ranked<K> {
    /// The better one is the greater. Of two that are equally similar the one with the smaller key is better.
    fn cmp(&self, other: &Self) -> Ordering {
        self.similarity.total_cmp(&other.similarity).then_with(|| other.key.cmp(&self.key))
    }
}

impl<K: Ord> PartialOrd for Ranked<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The candidates with the greatest similarities, as many as are wanted. The order in which they are offered makes no difference.
#[derive(Debug, Clone)]
pub struct Nearest<K> {
    wanted: usize,
    /// The worst is on top.
    kept: BinaryHeap<Reverse<Ranked<K>>>,
    has_left_out: bool,
}

impl<K: Ord> Nearest<K> {
    pub fn new(wanted: usize) -> Self {
        Self { wanted: wanted.max(1), kept: BinaryHeap::new(), has_left_out: false }
    }

    /// Whether a candidate with this similarity may be kept.
    pub fn may_keep(&self, similarity: f32) -> bool {
        self.kept.len() < self.wanted
            || self.kept.peek().is_some_and(|Reverse(worst)| similarity >= worst.similarity)
    }

    /// Keeps a candidate if it is among the best.
    pub fn offer(&mut self, similarity: f32, key: K) {
        self.kept.push(Reverse(Ranked { similarity, key }));
        if self.kept.len() > self.wanted {
            self.kept.pop();
            self.has_left_out = true;
        }
    }

    /// Notes that a candidate was not offered because it would not be kept.
    pub fn pass_over(&mut self) {
        self.has_left_out = true;
    }

    /// Whether there were more candidates than are wanted.
    pub fn has_left_out(&self) -> bool {
        self.has_left_out
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The least similarity that is kept, if there are as many candidates as are wanted.
    pub fn worst(&self) -> Option<f32> {
        let worst = self.kept.peek().map(|Reverse(worst)| worst.similarity);
        worst.filter(|_| self.kept.len() >= self.wanted)
    }

    /// This many candidates, the best first.
    pub fn best(&self, count: usize) -> Vec<(f32, &K)> {
        let mut best: Vec<_> = self.kept.iter().collect();
        if count < best.len() {
            best.select_nth_unstable(count);
            best.truncate(count);
        }
        best.sort_unstable();
        best.into_iter().map(|Reverse(ranked)| (ranked.similarity, &ranked.key)).collect()
    }

    /// The candidates, the best first.
    pub fn into_sorted(self) -> Vec<(f32, K)> {
        self.kept
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse(ranked)| (ranked.similarity, ranked.key))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_best_are_kept_in_their_order(
            offered in prop::collection::vec((0_u8..20, 0_u8..20), 0..60),
            wanted in 1_usize..20
        ) {
            let mut nearest = Nearest::new(wanted);
            for (similarity, key) in &offered {
                nearest.offer(f32::from(*similarity), *key);
            }
            let mut expected = offered.clone();
            expected.sort_by_key(|(similarity, key)| (Reverse(*similarity), *key));
            prop_assert_eq!(nearest.has_left_out(), expected.len() > wanted);
            expected.truncate(wanted);
            if expected.len() == wanted {
                prop_assert_eq!(nearest.worst(), expected.last().map(|(similarity, _)| f32::from(*similarity)));
            }
            for count in 0..wanted + 2 {
                let best: Vec<u8> = expected.iter().take(count).map(|(_, key)| *key).collect();
                let found: Vec<u8> = nearest.best(count).into_iter().map(|(_, key)| *key).collect();
                prop_assert_eq!(found, best);
            }
            let kept: Vec<(u8, u8)> =
                nearest.into_sorted().into_iter().map(|(similarity, key)| (similarity as u8, key)).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
