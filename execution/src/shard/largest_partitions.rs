//! The partitions of which flushes and compactions have written most into one file, since the start of the node.
//!
//! Invariants:
//! * Of a bounded number of tables a bounded number of partitions is kept.
//! * The threads of background jobs wait for each other only at the end of a file.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use helenus_engine::key::KeyRef;
use helenus_engine::{TableId, WrittenPartition};
use helenus_observe::top_keys::{LargestKeys, TopKey};

/// Most tables whose partitions are kept. Another one gets the place of the table whose largest partition is the smallest of all, if its own is larger.
const TABLES_MAX: usize = 1_024;

/// The largest partitions of a table, or of a file.
#[derive(Debug, Clone, Default)]
pub struct Largest {
    bytes: LargestKeys,
    tombstones: LargestKeys,
}

impl Largest {
    /// Looks at a partition of a file. Most are neither.
    #[inline]
    pub fn look_at(&mut self, partition: &WrittenPartition<'_>) {
        if self.bytes.takes(partition.bytes) || self.tombstones.takes(partition.tombstones) {
            self.add(partition);
        }
    }

    fn add(&mut self, partition: &WrittenPartition<'_>) {
        // What a file has as the prefix of a row is the beginning of a key.
        let Ok(KeyRef { token, partition_key, .. }) = KeyRef::parse(partition.prefix) else { return };
        self.bytes.add(token, partition_key, partition.bytes);
        self.tombstones.add(token, partition_key, partition.tombstones);
    }

    fn merge(&mut self, other: &Self) {
        self.bytes.merge(&other.bytes);
        self.tombstones.merge(&other.tombstones);
    }

    /// With the bytes of each, largest first.
    pub fn by_bytes(&self) -> Vec<TopKey> {
        self.bytes.top()
    }

    /// With the deletions of each, most first.
    pub fn by_tombstones(&self) -> Vec<TopKey> {
        self.tombstones.top()
    }
}

/// Those of all tables of a node.
#[derive(Debug, Default)]
pub struct LargestPartitions(Mutex<HashMap<TableId, Largest>>);

impl LargestPartitions {
    /// Takes over those of a file.
    pub fn merge(&self, table: TableId, of_file: &Largest) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.len() >= TABLES_MAX && !tables.contains_key(&table) {
            let smallest = tables.iter().map(|(id, kept)| (kept.bytes.largest(), *id)).min();
            match smallest {
                Some((bytes, id)) if bytes < of_file.bytes.largest() => tables.remove(&id),
                _ => return,
            };
        }
        tables.entry(table).or_default().merge(of_file);
    }

    /// Those of these tables. Others are forgotten: they were dropped.
    pub fn of_tables(&self, known: &BTreeSet<TableId>) -> HashMap<TableId, Largest> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|id, _| known.contains(id));
        tables.clone()
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::key::full_key;

    use super::*;

    #[test]
    fn the_largest_of_all_files_are_kept_until_their_table_is_dropped() {
        let largest = LargestPartitions::default();
        let (kept, dropped) = (TableId([1; 16]), TableId([2; 16]));
        for (table, first) in [(kept, 0), (kept, 50), (dropped, 0)] {
            let mut file = Largest::default();
            for number in first..first + 100 {
                let prefix = full_key(number, &number.to_be_bytes(), &[]).unwrap();
                let bytes = number.unsigned_abs() * 10;
                file.look_at(&WrittenPartition {
                    prefix: &prefix,
                    bytes,
                    tombstones: 149 - number.unsigned_abs(),
                });
            }
            largest.merge(table, &file);
        }
        let found = largest.of_tables(&BTreeSet::from([kept]));
        assert_eq!(found.len(), 1);
        let tokens = |top: Vec<TopKey>| top.iter().map(|top| top.key.token).collect::<Vec<_>>();
        assert_eq!(tokens(found[&kept].by_bytes())[..3], [149, 148, 147]);
        assert_eq!(tokens(found[&kept].by_tombstones())[..3], [0, 1, 2]);
        assert!(largest.of_tables(&BTreeSet::from([dropped])).is_empty());
    }

    #[test]
    fn a_further_table_gets_the_place_of_the_smallest_if_it_is_larger() {
        let largest = LargestPartitions::default();
        let id = |number: u64| TableId(u128::from(number).to_be_bytes());
        let merge = |number: u64, bytes: u64| {
            let mut file = Largest::default();
            let prefix = full_key(1, b"k", &[]).unwrap();
            file.look_at(&WrittenPartition { prefix: &prefix, bytes, tombstones: 0 });
            largest.merge(id(number), &file);
        };
        let count = TABLES_MAX as u64;
        for number in 0..count {
            merge(number, 100 + number);
        }
        merge(count, 100);
        merge(count + 1, 500);
        let found = largest.of_tables(&(0..count + 2).map(id).collect());
        assert_eq!(found.len(), TABLES_MAX);
        assert!(!found.contains_key(&id(0)) && !found.contains_key(&id(count)));
        assert!(found.contains_key(&id(count + 1)));
    }
}
