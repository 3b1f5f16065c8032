//! How much a merge would leave of its inputs, as the samples of their keys say.

use super::choice::TableSummary;
use super::key_sample::KeySample;

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
