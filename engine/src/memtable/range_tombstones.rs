//! The range tombstones of a memtable by partition, for readers of versions.

use super::store::Memtable;
use crate::cell::Deletion;
use crate::key;
use crate::range_tombstone::{RangeTombstone, RangeTombstoneRef, RangeTombstoneSet};

impl Memtable {
    /// Whether the memtable has had any range tombstone.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones
    }

    fn range_tombstones_of(&self, prefix: &[u8]) -> Option<&RangeTombstoneSet> {
        let id = self.find_by_prefix(prefix)?;
        self.partition(id)?.range_tombstones.as_deref()
    }

    /// The range tombstone that covers a full key.
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        if !self.has_range_tombstones {
            return None;
        }
        let (prefix, position) = key.split_at_checked(key::prefix_length(key)?)?;
        self.range_tombstones_of(prefix)?.covering(position)
    }

    /// The next fragments of the range tombstones of the partition with this prefix, at most `count`: those that end after `from`,
    /// in order; or (`reversed`) those that start before it, from the last to the first.
    pub fn next_range_tombstones(
        &self,
        prefix: &[u8],
        from: &[u8],
        reversed: bool,
        count: usize,
        into: &mut impl Extend<RangeTombstone>,
    ) {
        let Some(set) = self.range_tombstones_of(prefix) else { return };
        if reversed {
            into.extend(set.starting_before(from).take(count).map(RangeTombstoneRef::detach));
        } else {
            into.extend(set.ending_after(from).take(count).map(RangeTombstoneRef::detach));
        }
    }

    /// The prefix of the first partition with range tombstones, in key order. The search starts at the first partition for which
    /// `is_passed` is false, and ends where `is_wanted` is false. The partitions must be in order.
    pub fn next_with_range_tombstones(
        &self,
        is_passed: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        let rank = self.ordered().partition_point(|&id| is_passed(self.prefix(id)));
        self.first_with_range_tombstones(self.ordered().get(rank..)?.iter(), is_wanted)
    }

    /// As [`Memtable::next_with_range_tombstones`], backwards from the last partition for which `is_left` is true.
    pub fn previous_with_range_tombstones(
        &self,
        is_left: impl Fn(&[u8]) -> bool,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        let rank = self.ordered().partition_point(|&id| is_left(self.prefix(id)));
        self.first_with_range_tombstones(self.ordered().get(..rank)?.iter().rev(), is_wanted)
    }

    fn first_with_range_tombstones<'a>(
        &self,
        ids: impl Iterator<Item = &'a u32>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<&[u8]> {
        ids.map(|&id| (id, self.prefix(id)))
            .take_while(|(_, prefix)| is_wanted(prefix))
            .find(|(id, _)| {
                let partition = self.partition(*id);
                partition.is_some_and(|partition| {
                    partition.range_tombstones.as_ref().is_some_and(|it| !it.is_empty())
                })
            })
            .map(|(_, prefix)| prefix)
    }
}
