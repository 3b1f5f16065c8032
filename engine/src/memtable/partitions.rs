//! A walk over all partitions of a memtable in the order of their keys, as a flush does.

use super::rows::{Entry, ROWS_AHEAD, RowIndex, Rows};
use super::store::{Memtable, Partition};
use super::tails::Tail;
use crate::cell::Deletion;
use crate::invariant::broken;
use crate::key;
use crate::prefetch::prefetch;
use crate::row::RowRef;
use crate::span::Span;

/// How many partitions ahead of a walk over all of them the processor is asked for them.
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

    /// Fragmented deletions.
    pub fn spans(&self) -> &'a [Span] {
        self.partition.spans.as_ref().map_or(&[], |spans| spans.as_slice())
    }

    /// The deletion that covers a position.
    pub fn covering(&self, position: &[u8]) -> Option<Deletion> {
        self.partition.spans.as_ref().and_then(|spans| spans.covering(position))
    }

    /// The rows in order, with their positions; some with changes that are still to be merged with them.
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
    /// The partitions in key order. Complete for a frozen memtable.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView<'_>> {
        if !self.is_ordered() {
            broken!("partitions are put in order before a walk over them");
        }
        let partition = |rank: usize| self.partition(*self.ordered.get(rank)?);
        (0..self.ordered.len()).filter_map(move |rank| {
            // In the order of keys they lie anywhere in memory.
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

    /// The changes that are still to be merged with a row.
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
