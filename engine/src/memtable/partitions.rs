//! A walk over all partitions of a memtable in the order of their keys, as a flush does.

use super::rows::{Entry, ROWS_AHEAD, RowIndex, Rows};
use super::store::{Memtable, Partition};
use super::tails::Tail;
use crate::invariant::broken;
use crate::key;
use crate::prefetch::prefetch;
use crate::range_tombstone::{CoveringWalk, RangeTombstoneRef, RangeTombstoneSet};
use crate::row::RowRef;

/// How many partitions ahead of a walk memory is prefetched.
const PARTITIONS_AHEAD: usize = 4;

/// One partition of a frozen memtable.
#[derive(Debug, Clone, Copy)]
pub struct PartitionView<'a> {
    memtable: &'a Memtable,
    partition: &'a Partition,
}

impl<'a> PartitionView<'a> {
    /// The partition prefix of the keys.
    pub fn prefix(&self) -> &'a [u8] {
        self.memtable.arena.get(self.partition.prefix)
    }

    fn set(&self) -> Option<&'a RangeTombstoneSet> {
        self.partition.range_tombstones.as_deref()
    }

    /// The fragments of its range tombstones.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a> {
        self.set().into_iter().flat_map(RangeTombstoneSet::iter)
    }

    /// Finds the range tombstones that cover its rows, in their order. `None`: it has none.
    pub fn covering_walk(
        &self,
    ) -> Option<CoveringWalk<impl Iterator<Item = RangeTombstoneRef<'a>> + use<'a>>> {
        self.set().map(RangeTombstoneSet::covering_walk)
    }

    /// The rows in order: position, row, and the tail of changes that are not merged with the row yet.
    pub fn rows(&self) -> impl Iterator<Item = (&'a [u8], RowRef<'a>, Option<&'a Tail>)> + use<'a> {
        let memtable = self.memtable;
        let (rows, arena) = (&self.partition.rows, &memtable.arena);
        let mut index = RowIndex::default();
        std::iter::from_fn(move || {
            let entry = rows.get(index)?;
            rows.prefetch(arena, index, ROWS_AHEAD, false);
            index = rows.after(index);
            Some((entry.position(arena), RowRef::new(entry.row(arena), 0), memtable.tail_of(entry)))
        })
    }
}

impl Memtable {
    /// The partitions in key order, which must be up to date ([`Memtable::is_ordered`]). It always is in a frozen memtable.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView<'_>> {
        if !self.is_ordered() {
            broken!("partitions are put in order before a walk over them");
        }
        let partition = |rank: usize| self.partition(*self.ordered().get(rank)?);
        (0..self.ordered().len()).filter_map(move |rank| {
            // Neighbours in key order are not neighbours in memory.
            if let Some(later) = partition(rank + 2 * PARTITIONS_AHEAD) {
                prefetch(std::slice::from_ref(later));
            }
            if let Some(next) = partition(rank + PARTITIONS_AHEAD) {
                prefetch(self.arena.get(next.prefix));
                next.rows.prefetch(&self.arena, RowIndex::default(), 0, false);
            }
            Some(PartitionView { memtable: self, partition: partition(rank)? })
        })
    }

    /// The changes that are not merged with a row yet.
    #[inline]
    pub(super) fn tail_of(&self, entry: &Entry) -> Option<&Tail> {
        self.tails.get(entry.tail()?).filter(|tail| !tail.is_empty())
    }

    pub(super) fn rows_of(&self, id: u32) -> &Rows {
        self.partition(id).map_or(&Rows::Empty, |partition| &partition.rows)
    }

    pub(super) fn find_by_prefix(&self, prefix: &[u8]) -> Option<u32> {
        let Ok(parsed) = key::KeyRef::parse(prefix) else {
            broken!("a partition is looked for by a whole prefix");
            return None;
        };
        self.find_partition(parsed.token, parsed.partition_key)
    }
}
