//! Size-tiered compaction: tables of similar size are merged once there are enough of them.

use super::choice::{Merge, Split, TableSummary};
use super::merged_size::bytes_after_merge;

/// Cassandra's options and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeTiered {
    pub min_threshold: usize,
    pub max_threshold: usize,
    /// Tables smaller than this share one bucket.
    pub min_table_bytes: u64,
    /// A table joins a bucket when its size lies between these multiples of the bucket's average size.
    pub bucket_low: f64,
    pub bucket_high: f64,
}

impl Default for SizeTiered {
    fn default() -> Self {
        Self {
            min_threshold: 4,
            max_threshold: 32,
            min_table_bytes: 50 << 20,
            bucket_low: 0.5,
            bucket_high: 1.5,
        }
    }
}

struct Bucket<'a> {
    average_bytes: f64,
    tables: Vec<&'a TableSummary>,
}

impl SizeTiered {
    /// Among the buckets with enough tables, the one with the smallest tables. If there is none: all tables, when most of their
    /// bytes have been overwritten.
    pub(crate) fn choose(&self, tables: &[&TableSummary]) -> Option<Merge> {
        let bucket = self.choose_bucket(tables);
        let chosen = bucket.or_else(|| is_mostly_overwritten(tables).then(|| largest_first(tables)))?;
        let inputs = chosen.iter().take(self.max_threshold).map(|table| table.generation).collect();
        Some(Merge { inputs, output_level: 0, split: Split::Never })
    }

    /// The tables of the bucket with the smallest tables among those with enough tables.
    pub(crate) fn choose_bucket<'a>(&self, tables: &[&'a TableSummary]) -> Option<Vec<&'a TableSummary>> {
        self.buckets(tables)
            .into_iter()
            .filter(|bucket| bucket.tables.len() >= self.min_threshold)
            .min_by(|left, right| left.average_bytes.total_cmp(&right.average_bytes))
            .map(|bucket| bucket.tables)
    }

    /// The tables of all buckets with enough tables.
    pub(crate) fn due<'a>(&self, tables: &[&'a TableSummary]) -> Vec<&'a TableSummary> {
        let buckets = self.buckets(tables).into_iter().map(|bucket| bucket.tables);
        buckets.filter(|tables| tables.len() >= self.min_threshold).flatten().collect()
    }

    fn buckets<'a>(&self, tables: &[&'a TableSummary]) -> Vec<Bucket<'a>> {
        let mut sorted = tables.to_vec();
        sorted.sort_by_key(|table| (table.size_bytes, table.generation));
        let mut buckets: Vec<Bucket<'a>> = Vec::new();
        let small = self.min_table_bytes as f64;
        for table in sorted {
            let size = table.size_bytes as f64;
            let fitting = buckets.iter_mut().find(|bucket| {
                let average = bucket.average_bytes;
                (size > average * self.bucket_low && size < average * self.bucket_high)
                    || (size < small && average < small)
            });
            if let Some(bucket) = fitting {
                let count = bucket.tables.len() as f64;
                bucket.average_bytes = (bucket.average_bytes * count + size) / (count + 1.0);
                bucket.tables.push(table);
            } else {
                buckets.push(Bucket { average_bytes: size, tables: vec![table] });
            }
        }
        buckets
    }
}

/// Most tables whose contents are estimated together.
const ESTIMATED_TABLES_MAX: usize = 256;

fn largest_first<'a>(tables: &[&'a TableSummary]) -> Vec<&'a TableSummary> {
    let mut sorted = tables.to_vec();
    sorted.sort_by_key(|table| (std::cmp::Reverse(table.size_bytes), table.generation));
    sorted
}

/// Whether more than half of the bytes of these tables would go in a merge of all of them. Then they are merged, whatever their
/// sizes: files take at most twice the space of their contents, and three times while they are merged.
pub(crate) fn is_mostly_overwritten(tables: &[&TableSummary]) -> bool {
    // With very many tables the strategy has enough to merge anyway, and the estimate would delay requests.
    if tables.len() > ESTIMATED_TABLES_MAX {
        return false;
    }
    let bytes: u64 = tables.iter().map(|table| table.size_bytes).sum();
    let largest = tables.iter().map(|table| table.size_bytes).max().unwrap_or(0);
    // The first comparison is cheap, and enough for most tables.
    bytes / 2 > largest && bytes / 2 > bytes_after_merge(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(sizes_mib: &[u64]) -> Vec<TableSummary> {
        let summary = |(generation, &size): (usize, &u64)| TableSummary {
            generation: generation as u64,
            size_bytes: size << 20,
            ..TableSummary::default()
        };
        sizes_mib.iter().enumerate().map(summary).collect()
    }

    fn chosen(sizes_mib: &[u64]) -> Option<Vec<u64>> {
        let tables = tables(sizes_mib);
        let mut inputs = SizeTiered::default().choose(&tables.iter().collect::<Vec<_>>())?.inputs;
        inputs.sort_unstable();
        Some(inputs)
    }

    #[test]
    fn nothing_is_chosen_below_the_threshold() {
        assert_eq!(chosen(&[100, 100, 100]), None);
        assert_eq!(chosen(&[100, 200, 400, 800]), None);
    }

    #[test]
    fn tables_of_like_size_are_chosen() {
        assert_eq!(chosen(&[1000, 100, 110, 90, 105]), Some(vec![1, 2, 3, 4]));
    }

    #[test]
    fn small_tables_share_a_bucket_and_go_first() {
        assert_eq!(chosen(&[100, 100, 100, 100, 1, 10, 20, 40]), Some(vec![4, 5, 6, 7]));
    }

    #[test]
    fn no_more_than_the_maximum_is_chosen() {
        assert_eq!(chosen(&[1; 40]).map(|inputs| inputs.len()), Some(32));
    }
}
