//! The range tombstones of all sources of a scan, partition by partition, for reads of versions.

use std::rc::Rc;
use std::sync::Arc;

use super::source::Bounds;
use crate::invariant::broken;
use crate::key;
use crate::memtable::SharedMemtable;
use crate::range_tombstone::{RangeTombstone, RangeTombstoneSet};
use crate::table::TableReader;

/// A source with range tombstones.
pub(crate) enum RangeTombstoneSource {
    Memtable(Rc<SharedMemtable>),
    Table(Arc<TableReader>),
}

/// The state of the search for the next partition with range tombstones.
#[derive(Clone, Copy)]
pub(crate) struct RangeTombstoneSearch<'a> {
    pub bounds: Bounds<'a>,
    /// The prefix of the last finished partition.
    pub done: Option<&'a [u8]>,
    /// The prefix of a partition that is read in any case. The search ends before it.
    pub known: Option<&'a [u8]>,
}

impl RangeTombstoneSearch<'_> {
    /// Whether the partition has keys in the range.
    fn overlaps(&self, prefix: &[u8]) -> bool {
        let Bounds { start, end, .. } = self.bounds;
        prefix < end && (prefix >= start || start.starts_with(prefix))
    }

    fn is_wanted(&self, prefix: &[u8]) -> bool {
        let comes_first = |known: &[u8]| if self.bounds.reversed { prefix > known } else { prefix < known };
        self.overlaps(prefix) && self.known.is_none_or(comes_first)
    }

    /// Forwards: whether the partition lies before the remaining range.
    fn is_passed(&self, prefix: &[u8]) -> bool {
        let start = self.bounds.start;
        self.done.map_or(prefix < start && !start.starts_with(prefix), |done| prefix <= done)
    }

    /// Backwards: whether the partition lies in the remaining range.
    fn is_left(&self, prefix: &[u8]) -> bool {
        prefix < self.done.unwrap_or(self.bounds.end)
    }
}

fn prefix_of(key: &[u8]) -> Option<&[u8]> {
    key.get(..key::prefix_length(key)?)
}

impl RangeTombstoneSource {
    /// The next partition, in the scan's direction, that has range tombstones in this source.
    pub fn next_partition(&self, search: &RangeTombstoneSearch<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Memtable(memtable) => memtable.read(|memtable| {
                let is_wanted = |prefix: &[u8]| search.is_wanted(prefix);
                let found = if search.bounds.reversed {
                    memtable.previous_with_range_tombstones(|prefix| search.is_left(prefix), is_wanted)
                } else {
                    memtable.next_with_range_tombstones(|prefix| search.is_passed(prefix), is_wanted)
                };
                found.map(<[u8]>::to_vec)
            }),
            Self::Table(table) => {
                let range_tombstones = table.range_tombstones();
                let found = if search.bounds.reversed {
                    let bound = search.done.unwrap_or(search.bounds.end);
                    let after = range_tombstones.first_ending_after(bound);
                    match range_tombstones.get(after) {
                        Some(range_tombstone) if range_tombstone.start < bound => Some(range_tombstone),
                        _ => range_tombstones.get(after.checked_sub(1)?),
                    }
                } else {
                    let after = match search.done {
                        Some(done) => {
                            range_tombstones.first_ending_after(&[done, key::PARTITION_END].concat())
                        }
                        None => range_tombstones.first_ending_after(search.bounds.start),
                    };
                    range_tombstones.get(after)
                };
                let prefix = prefix_of(found?.start);
                if prefix.is_none() {
                    broken!("the range tombstones of an open table have whole prefixes");
                }
                let prefix = prefix?;
                search.is_wanted(prefix).then(|| prefix.to_vec())
            }
        }
    }

    /// Adds the range tombstones that overlap positions `[low, high)` of a partition to `into`.
    pub fn collect(&self, prefix: &[u8], low: &[u8], high: &[u8], into: &mut RangeTombstoneSet) {
        match self {
            Self::Memtable(memtable) => memtable.read(|memtable| {
                let range_tombstones = memtable.range_tombstones_of(prefix);
                let first = range_tombstones.partition_point(|range_tombstone| *range_tombstone.end <= *low);
                let overlapping = range_tombstones
                    .iter()
                    .skip(first)
                    .take_while(|range_tombstone| *range_tombstone.start < *high);
                overlapping.for_each(|range_tombstone| {
                    into.add(&range_tombstone.start, &range_tombstone.end, range_tombstone.deletion);
                });
            }),
            Self::Table(table) => {
                let (start, end) = ([prefix, low].concat(), [prefix, high].concat());
                let range_tombstones = table.range_tombstones();
                let first = range_tombstones.first_ending_after(&start);
                let overlapping = (first..range_tombstones.len())
                    .map_while(|index| range_tombstones.get(index))
                    .take_while(|range_tombstone| range_tombstone.start < end.as_slice());
                for range_tombstone in overlapping {
                    let (Some(start), Some(end)) = (
                        range_tombstone.start.strip_prefix(prefix),
                        range_tombstone.end.strip_prefix(prefix),
                    ) else {
                        broken!("a range tombstone that overlaps a partition lies within it");
                        return;
                    };
                    into.add(start, end, range_tombstone.deletion);
                }
            }
        }
    }
}

/// The range tombstones, cut to positions `[low, high)`. Neighbours with the same deletion are united, so that equal coverage
/// gives equal range tombstones.
pub(crate) fn cut<'a>(
    range_tombstones: impl IntoIterator<Item = &'a RangeTombstone>,
    low: &[u8],
    high: &[u8],
) -> Vec<RangeTombstone> {
    let mut out: Vec<RangeTombstone> = Vec::new();
    for range_tombstone in range_tombstones {
        let start = low.max(&range_tombstone.start);
        let end = high.min(&range_tombstone.end);
        if start >= end {
            continue;
        }
        match out.last_mut() {
            Some(last) if *last.end == *start && last.deletion == range_tombstone.deletion => {
                last.end = end.into();
            }
            _ => out.push(RangeTombstone {
                start: start.into(),
                end: end.into(),
                deletion: range_tombstone.deletion,
            }),
        }
    }
    out
}
