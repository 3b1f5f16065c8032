//! The keys that turn up most often, and those with the largest figures, out of any number of keys.
//!
//! Invariants:
//! * A sketch has a bounded number of places, and each keeps a bounded part of its key.
//! * [`FrequentKeys`] is the space-saving algorithm (Metwally, Agrawal and El Abbadi 2005). The count of a key is never too small, and too
//!   large by at most its error. A key with more than a `1 / FREQUENT_PLACES` part of all counts has a place.

/// Places of [`FrequentKeys`].
pub const FREQUENT_PLACES: usize = 32;
/// Places of [`LargestKeys`].
pub const LARGEST_PLACES: usize = 10;
/// Bytes that are kept of a key.
pub const KEPT_BYTES: usize = 256;

/// A key, or the part of it that is kept. Keys that differ behind that are told apart by their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptKey {
    pub token: i64,
    pub bytes: Box<[u8]>,
    /// The key is longer.
    pub is_cut: bool,
}

impl KeptKey {
    fn new(token: i64, key: &[u8]) -> Self {
        let kept = &key[..key.len().min(KEPT_BYTES)];
        Self { token, bytes: kept.into(), is_cut: kept.len() < key.len() }
    }

    fn is(&self, token: i64, key: &[u8]) -> bool {
        self.token == token && *self.bytes == key[..key.len().min(KEPT_BYTES)]
    }
}

/// A key with its figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopKey {
    pub key: KeptKey,
    pub value: u64,
    /// By how much `value` may be too large.
    pub error: u64,
}

/// The keys that turn up most often.
#[derive(Debug, Clone, Default)]
pub struct FrequentKeys(Vec<TopKey>);

impl FrequentKeys {
    /// Counts a key `times` times. Returns its count without the error: at least as often it has turned up.
    pub fn add(&mut self, token: i64, key: &[u8], times: u64) -> u64 {
        if let Some(known) = self.0.iter_mut().find(|known| known.key.is(token, key)) {
            known.value += times;
            return known.value - known.error;
        }
        self.enter(TopKey { key: KeptKey::new(token, key), value: times, error: 0 });
        times
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        // What a full sketch has no place for may have turned up as often as what has the last one.
        let missed = |sketch: &Self| if sketch.0.len() == FREQUENT_PLACES { sketch.lowest() } else { 0 };
        let (missed_here, missed_there) = (missed(self), missed(other));
        let mut all = std::mem::take(&mut self.0);
        let before = all.len();
        let mut is_there = vec![false; before];
        for top in &other.0 {
            match all[..before].iter().position(|known| known.key == top.key) {
                Some(place) => {
                    is_there[place] = true;
                    all[place].value += top.value;
                    all[place].error += top.error;
                }
                None => all.push(TopKey {
                    key: top.key.clone(),
                    value: top.value + missed_here,
                    error: top.error + missed_here,
                }),
            }
        }
        for (known, _) in all.iter_mut().zip(is_there).filter(|(_, is_there)| !is_there) {
            known.value += missed_there;
            known.error += missed_there;
        }
        all.sort_by_key(|known| std::cmp::Reverse(known.value));
        all.truncate(FREQUENT_PLACES);
        self.0 = all;
    }

    /// Takes over the counts of another one that has counted other keys.
    pub fn join(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_by_key(|known| std::cmp::Reverse(known.value));
        self.0.truncate(FREQUENT_PLACES);
    }

    fn enter(&mut self, mut top: TopKey) {
        if self.0.len() < FREQUENT_PLACES {
            self.0.push(top);
        } else if let Some(least) = self.0.iter_mut().min_by_key(|known| known.value) {
            top.value += least.value;
            top.error += least.value;
            *least = top;
        }
    }

    fn lowest(&self) -> u64 {
        self.0.iter().map(|known| known.value).min().unwrap_or(0)
    }

    /// The keys, most frequent first.
    pub fn top(&self) -> Vec<TopKey> {
        sorted(&self.0)
    }
}

/// The keys with the largest single figures.
#[derive(Debug, Clone, Default)]
pub struct LargestKeys {
    places: Vec<TopKey>,
    /// Only larger figures find a place.
    bar: u64,
}

impl LargestKeys {
    /// Whether the figure may find a place. Most do not.
    #[inline]
    pub fn takes(&self, value: u64) -> bool {
        value > self.bar
    }

    /// The largest figure of all.
    pub fn largest(&self) -> u64 {
        self.places.iter().map(|known| known.value).max().unwrap_or(0)
    }

    /// The largest figure of a key that has a place.
    pub fn value_of(&self, token: i64, key: &[u8]) -> Option<u64> {
        self.places.iter().find(|known| known.key.is(token, key)).map(|known| known.value)
    }

    /// Gives a key a place if its figure is large enough.
    pub fn add(&mut self, token: i64, key: &[u8], value: u64) {
        if !self.takes(value) {
            return;
        }
        match self.places.iter_mut().find(|known| known.key.is(token, key)) {
            Some(known) => known.value = known.value.max(value),
            None => self.enter(TopKey { key: KeptKey::new(token, key), value, error: 0 }),
        }
        self.set_bar();
    }

    /// Takes over the larger figures of another one.
    pub fn merge(&mut self, other: &Self) {
        for top in &other.places {
            match self.places.iter_mut().find(|known| known.key == top.key) {
                Some(known) => known.value = known.value.max(top.value),
                None => self.enter(top.clone()),
            }
        }
        self.set_bar();
    }

    fn enter(&mut self, top: TopKey) {
        if self.places.len() < LARGEST_PLACES {
            self.places.push(top);
        } else if let Some(least) = self.places.iter_mut().min_by_key(|known| known.value)
            && least.value < top.value
        {
            *least = top;
        }
    }

    fn set_bar(&mut self) {
        let is_full = self.places.len() == LARGEST_PLACES;
        self.bar = if is_full { self.places.iter().map(|known| known.value).min().unwrap_or(0) } else { 0 };
    }

    /// The keys, largest figure first.
    pub fn top(&self) -> Vec<TopKey> {
        sorted(&self.places)
    }
}

fn sorted(places: &[TopKey]) -> Vec<TopKey> {
    let mut top = places.to_vec();
    top.sort_by(|a, b| b.value.cmp(&a.value).then_with(|| a.key.bytes.cmp(&b.key.bytes)));
    top
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> [u8; 2] {
        number.to_be_bytes()
    }

    fn counted(keys: &[(u16, u64)]) -> (FrequentKeys, BTreeMap<u16, u64>) {
        let (mut sketch, mut truth) = (FrequentKeys::default(), BTreeMap::new());
        for (number, times) in keys {
            sketch.add(i64::from(*number), &key(*number), *times);
            *truth.entry(*number).or_default() += times;
        }
        (sketch, truth)
    }

    fn assert_holds(sketch: &FrequentKeys, truth: &BTreeMap<u16, u64>) {
        let top = sketch.top();
        assert!(top.len() <= FREQUENT_PLACES);
        assert!(top.is_sorted_by(|a, b| a.value >= b.value));
        for known in &top {
            let number = u16::from_be_bytes([known.key.bytes[0], known.key.bytes[1]]);
            let true_count = truth.get(&number).copied().unwrap_or(0);
            assert!(known.value >= true_count && known.value - known.error <= true_count);
        }
        let all: u64 = truth.values().sum();
        for (number, _) in truth.iter().filter(|(_, count)| **count > all / FREQUENT_PLACES as u64) {
            assert!(top.iter().any(|known| *known.key.bytes == key(*number)), "{number}");
        }
    }

    proptest! {
        #[test]
        fn counts_are_off_by_their_error_at_most(
            first in prop::collection::vec((0_u16..100, 1_u64..20), 0..500),
            second in prop::collection::vec((0_u16..100, 1_u64..20), 0..500),
        ) {
            let (mut sketch, mut truth) = counted(&first);
            assert_holds(&sketch, &truth);
            let (more, more_truth) = counted(&second);
            sketch.merge(&more);
            for (number, count) in more_truth {
                *truth.entry(number).or_default() += count;
            }
            let top = sketch.top();
            prop_assert!(top.len() <= FREQUENT_PLACES);
            for known in &top {
                let number = u16::from_be_bytes([known.key.bytes[0], known.key.bytes[1]]);
                let true_count = truth.get(&number).copied().unwrap_or(0);
                prop_assert!(known.value >= true_count && known.value - known.error <= true_count);
            }
        }

        #[test]
        fn the_largest_figures_have_places(figures in prop::collection::vec((0_u16..50, 1_u64..10_000), 0..300)) {
            let (mut sketch, mut truth) = (LargestKeys::default(), BTreeMap::<u16, u64>::new());
            for (index, (number, value)) in figures.iter().enumerate() {
                if index % 2 == 0 {
                    sketch.add(i64::from(*number), &key(*number), *value);
                } else {
                    let mut other = LargestKeys::default();
                    other.add(i64::from(*number), &key(*number), *value);
                    sketch.merge(&other);
                }
                let known = truth.entry(*number).or_default();
                *known = (*known).max(*value);
            }
            let mut values: Vec<u64> = truth.into_values().collect();
            values.sort_unstable_by(|a, b| b.cmp(a));
            values.truncate(LARGEST_PLACES);
            let found: Vec<u64> = sketch.top().iter().map(|known| known.value).collect();
            prop_assert_eq!(found, values);
        }
    }

    #[test]
    fn counts_of_other_keys_are_taken_over_as_they_are() {
        let even: Vec<(u16, u64)> = (0..40).map(|number| (number, 1_000)).collect();
        let (mut busy, _) = counted(&even);
        busy.add(7, &key(7), 4_000);
        let (quiet, _) = counted(&[(500, 700)]);
        busy.join(&quiet);
        let top = busy.top();
        assert_eq!(top[0].key.token, 7);
        assert!(top.iter().all(|known| known.key.token != 500 || (known.value, known.error) == (700, 0)));
    }

    #[test]
    fn of_long_keys_a_part_is_kept() {
        let mut sketch = FrequentKeys::default();
        let (mut first, second) = (vec![7; 60_000], vec![7; 60_000]);
        first[50_000] = 8;
        sketch.add(1, &first, 1);
        sketch.add(2, &second, 1);
        sketch.add(1, &first, 1);
        let top = sketch.top();
        assert_eq!(top.iter().map(|known| known.value).collect::<Vec<_>>(), [2, 1]);
        assert!(top[0].key.is_cut && top[0].key.bytes.len() == KEPT_BYTES);
    }
}
