//! A sample of a table's keys, from which the number of different keys in several tables is estimated.
//!
//! The sample holds the least hashes of the keys. As hashes are spread evenly, the greatest of the least k tells how many
//! there are in all; and the least hashes of a union are among the least hashes of its parts (a "k minimum values" sketch).
//! With [`KEYS_MAX`] keys the standard error is about 4 %.

use super::choice::TableSummary;

/// Keys of a sample.
pub(crate) const KEYS_MAX: usize = 512;

/// The least hashes of the keys of one or several tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySample {
    /// In ascending order, without duplicates.
    hashes: Vec<u64>,
}

impl KeySample {
    /// The sample of a table with these hashes of keys, which come in any order.
    pub fn of(hashes: Vec<u64>) -> Self {
        let mut least = hashes;
        if least.len() > KEYS_MAX {
            least.select_nth_unstable(KEYS_MAX - 1);
            least.truncate(KEYS_MAX);
        }
        least.sort_unstable();
        least.dedup();
        least.shrink_to_fit();
        Self { hashes: least }
    }

    fn add(&mut self, other: &Self) {
        let (mut left, mut right) = (self.hashes.iter().peekable(), other.hashes.iter().peekable());
        let mut union = Vec::with_capacity(KEYS_MAX);
        while union.len() < KEYS_MAX {
            let next = match (left.peek(), right.peek()) {
                (Some(&&left), Some(&&right)) => left.min(right),
                (Some(&&only), None) | (None, Some(&&only)) => only,
                (None, None) => break,
            };
            left.next_if(|hash| **hash == next);
            right.next_if(|hash| **hash == next);
            union.push(next);
        }
        self.hashes = union;
    }

    /// The estimated number of different keys.
    fn keys(&self) -> f64 {
        match self.hashes.get(KEYS_MAX - 1) {
            // All keys are in the sample.
            None => self.hashes.len() as f64,
            Some(&greatest) => {
                let share = (greatest as f64 + 1.0) / (u64::MAX as f64 + 1.0);
                (KEYS_MAX - 1) as f64 / share.max(f64::MIN_POSITIVE)
            }
        }
    }
}

/// The estimated bytes of these tables after a merge of all of them, if a row is as large as its largest version.
///
/// The largest table counts in full, and every smaller one with the share of its rows that no larger table has. So small
/// changes of large rows do not count as if they replaced them.
pub(crate) fn bytes_after_merge(tables: &[&TableSummary]) -> u64 {
    let mut largest_first = tables.to_vec();
    largest_first.sort_by_key(|table| (std::cmp::Reverse(table.size_bytes), table.generation));
    let mut union = KeySample::default();
    let mut known = 0.0;
    let mut bytes = 0.0;
    for table in largest_first {
        let Some(sample) = &table.sample else {
            bytes += table.size_bytes as f64;
            continue;
        };
        union.add(sample);
        let keys = union.keys();
        let share = ((keys - known) / sample.keys().max(1.0)).clamp(0.0, 1.0);
        known = keys.max(known);
        bytes += table.size_bytes as f64 * share;
    }
    bytes as u64
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use super::*;
    use crate::io::SplitMix64;

    fn table(generation: u64, size_bytes: u64, keys: Range<u64>) -> TableSummary {
        let hashes: Vec<u64> = keys.map(|key| SplitMix64::new(key).next_u64()).collect();
        TableSummary {
            generation,
            size_bytes,
            sample: Some(Arc::new(KeySample::of(hashes))),
            ..TableSummary::default()
        }
    }

    fn after_merge(tables: &[TableSummary]) -> u64 {
        bytes_after_merge(&tables.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_number_of_keys_is_estimated() {
        for count in [0, 1, 511, 512, 5_000, 200_000] {
            let hashes: Vec<u64> = (0..count).map(|key| SplitMix64::new(key).next_u64()).collect();
            let error = KeySample::of(hashes).keys() - count as f64;
            assert!(error.abs() <= count as f64 * 0.12, "{count}: {error}");
        }
    }

    #[test]
    fn copies_count_once_and_new_keys_in_full() {
        let copies = [table(1, 1000, 0..9000), table(2, 900, 0..9000), table(3, 950, 0..9000)];
        assert!((950..1100).contains(&after_merge(&copies)), "{}", after_merge(&copies));
        let others = [table(1, 1000, 0..9000), table(2, 1000, 9000..18_000)];
        assert!((1850..=2000).contains(&after_merge(&others)), "{}", after_merge(&others));
        let few = [table(1, 100, 0..10), table(2, 100, 5..15)];
        assert_eq!(after_merge(&few), 150);
    }

    #[test]
    fn a_table_without_a_sample_counts_in_full() {
        let mut tables = [table(1, 1000, 0..9000), table(2, 1000, 0..9000)];
        tables[1].sample = None;
        assert_eq!(after_merge(&tables), 2000);
    }

    #[test]
    fn small_changes_of_large_rows_take_their_own_size() {
        let tables = [table(1, 100_000, 0..1000), table(2, 100, 0..1000)];
        assert!(after_merge(&tables) >= 100_000);
    }
}
