//! What a compaction may purge, asked for each partition as Cassandra does.
//!
//! Invariant: a deletion is purged only if its grace period is over and no data outside the compaction (other files that may
//! contain the partition, memtables that contain it) is as old as it is. Then there is no data left that it could shadow.
//!
//! In a table whose keys are written once, a removal goes together with what it removes, at once. A removal without it goes after
//! the grace period, when no other file may have the row: what it removes has come by then, or never will.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::invariant::broken;
use crate::key;
use crate::reconcile::{Purge, Purpose};
use crate::row::RowRef;
use crate::table::{KeyHash, TableError, TableReader};

/// The hash of a partition is already spread.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        broken!("only hashes of partitions are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The partitions of memtables that contain data as old as the compaction's, by their hash. Partitions of the same hash count as
/// one: at worst, a deletion is kept that could be purged.
#[derive(Debug, Default)]
pub(crate) struct OldPartitions {
    oldest: HashMap<u64, i64, BuildHasherDefault<Identity>>,
    /// If there are too many to remember: the oldest timestamp of all.
    of_all: Option<i64>,
}

/// Most partitions that are remembered. Beyond, all partitions are taken to be as old as the oldest.
const PARTITIONS_MAX: usize = 65_536;

impl OldPartitions {
    /// Adds a partition of a memtable with its oldest timestamp, in microseconds.
    pub fn add(&mut self, prefix: &[u8], oldest: i64) {
        if self.of_all.is_some() || self.oldest.len() >= PARTITIONS_MAX {
            let of_all = self.oldest.drain().map(|(_, oldest)| oldest).chain(self.of_all).min();
            self.of_all = Some(of_all.map_or(oldest, |of_all| of_all.min(oldest)));
            return;
        }
        let known = self.oldest.entry(KeyHash::of(prefix).partition).or_insert(oldest);
        *known = oldest.min(*known);
    }

    fn oldest_in(&self, hash: KeyHash) -> Option<i64> {
        self.of_all.or_else(|| self.oldest.get(&hash.partition).copied())
    }
}

/// The rules of one compaction.
pub(crate) struct Purging {
    /// Which deletions may be purged where nothing else contains the partition. `None`: none.
    pub purge: Option<Purge>,
    pub old_partitions: OldPartitions,
    /// The other files of the table.
    pub others: Vec<Arc<TableReader>>,
    /// A key is written once and removed once.
    pub writes_once: bool,
}

/// The fate of a row of a table whose keys are written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Once {
    Goes,
    Stays,
}

impl Purging {
    /// Which deletions of a partition may be purged.
    pub(super) fn purge_of(&self, prefix: &[u8]) -> Option<Purge> {
        let mut purge = self.purge.filter(|_| !self.writes_once)?;
        let hash = KeyHash::of(prefix);
        let end = [prefix, key::PARTITION_END].concat();
        let in_files = self
            .others
            .iter()
            .filter(|other| {
                // The cheap check comes first. A file that is newer than what is purgeable changes nothing.
                other.statistics().min_timestamp < purge.max_purgeable_timestamp
                    && other.statistics().may_overlap(prefix, &end)
                    && may_contain(other.may_contain_partition(None, hash))
            })
            .map(|other| other.statistics().min_timestamp)
            .min();
        for oldest in in_files.into_iter().chain(self.old_partitions.oldest_in(hash)) {
            purge.max_purgeable_timestamp = purge.max_purgeable_timestamp.min(oldest);
        }
        Some(purge)
    }

    pub(super) fn purpose_of(&self, prefix: &[u8]) -> Purpose {
        self.purge_of(prefix).map_or(Purpose::Keep, Purpose::Compact)
    }

    /// Whether a row stays, in a table whose keys are written once. `versions`: its versions in the inputs.
    pub(super) fn once(&self, key: &[u8], versions: &[RowRef<'_>]) -> Once {
        let mut removals = versions.iter().filter_map(|version| version.deletion());
        let Some(removal) = removals.next() else { return Once::Stays };
        if versions.iter().any(|version| version.deletion().is_none()) {
            return Once::Goes;
        }
        let is_over =
            self.purge.is_some_and(|purge| removal.local_deletion_time < purge.deleted_before_seconds);
        let hash = KeyHash::of(key);
        let is_elsewhere = || {
            self.others.iter().any(|other| {
                other.statistics().may_contain(key) && may_contain(other.may_contain_row(None, hash))
            })
        };
        if is_over && !is_elsewhere() { Once::Goes } else { Once::Stays }
    }
}

/// The answer of a filter. One that cannot be read keeps what it could let go: the file is not of the compaction, and those who read it meet
/// the damage.
fn may_contain(answer: Result<bool, TableError>) -> bool {
    answer.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::full_key;

    #[test]
    fn too_many_old_partitions_count_as_the_oldest() {
        let mut old = OldPartitions::default();
        let prefix = |token: i64| full_key(token, b"key", &[]).unwrap();
        let hash = |token: i64| KeyHash::of(&prefix(token));
        old.add(&prefix(1), 7);
        old.add(&prefix(1), 5);
        old.add(&prefix(2), 9);
        assert_eq!((old.oldest_in(hash(1)), old.oldest_in(hash(2))), (Some(5), Some(9)));
        assert_eq!(old.oldest_in(hash(3)), None);
        for token in 3..=PARTITIONS_MAX as i64 + 3 {
            old.add(&prefix(token), 100);
        }
        assert_eq!(old.oldest_in(hash(-1)), Some(5));
    }
}
