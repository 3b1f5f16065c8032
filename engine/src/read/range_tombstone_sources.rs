//! The range tombstones of all sources of a scan, partition by partition, for reads of versions. Only those that a read reaches
//! are looked at.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::source::Bounds;
use crate::cell::Deletion;
use crate::key;
use crate::memtable::SharedMemtable;
use crate::range_tombstone::{RangeTombstone, RangeTombstoneRef, SortedRangeTombstones};
use crate::table::{RangeTombstoneCursor, TableReader};

/// Fragments of a memtable that are copied at a time.
const COPIED_AT_A_TIME: usize = 32;

/// A source with range tombstones.
#[derive(Clone)]
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
                let overlaps_before = |index: usize, bound: &[u8]| {
                    range_tombstones.get(index).is_some_and(|it| match bound.strip_prefix(it.prefix) {
                        Some(position) => it.start < position,
                        None => it.prefix < bound,
                    })
                };
                let index = if search.bounds.reversed {
                    let bound = search.done.unwrap_or(search.bounds.end);
                    let after = range_tombstones.first_ending_after(bound);
                    if overlaps_before(after, bound) { after } else { after.checked_sub(1)? }
                } else {
                    match search.done {
                        Some(done) => {
                            range_tombstones.first_ending_after(&[done, key::PARTITION_END].concat())
                        }
                        None => range_tombstones.first_ending_after(search.bounds.start),
                    }
                };
                let prefix = range_tombstones.get(index)?.prefix;
                search.is_wanted(prefix).then(|| prefix.to_vec())
            }
        }
    }

    /// The deletion that covers a full key.
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        match self {
            Self::Memtable(memtable) => memtable.read(|memtable| memtable.covering(key)),
            Self::Table(table) => table.range_tombstones().covering(key),
        }
    }

    /// A cursor over the range tombstones of a partition that overlap positions `[low, high)`.
    pub fn cursor(&self, prefix: &[u8], low: &[u8], high: &[u8], reversed: bool) -> SourceCursor {
        match self {
            Self::Memtable(memtable) => SourceCursor::Memtable(MemtableRangeTombstones::new(
                Rc::clone(memtable),
                prefix,
                if reversed { high } else { low },
                reversed,
            )),
            Self::Table(table) => {
                SourceCursor::Table(RangeTombstoneCursor::new(Arc::clone(table), prefix, low, high, reversed))
            }
        }
    }
}

/// A cursor over the range tombstones of one partition in one source.
pub(crate) enum SourceCursor {
    Memtable(MemtableRangeTombstones),
    Table(RangeTombstoneCursor),
}

impl SortedRangeTombstones for SourceCursor {
    fn current(&self) -> Option<RangeTombstoneRef<'_>> {
        match self {
            Self::Memtable(cursor) => cursor.copied.front().map(RangeTombstone::view),
            Self::Table(cursor) => cursor.current(),
        }
    }

    fn advance(&mut self) {
        match self {
            Self::Memtable(cursor) => cursor.advance(),
            Self::Table(cursor) => cursor.advance(),
        }
    }
}

/// The fragments of one partition of a memtable, copied a few at a time. The memtable does not change meanwhile.
pub(crate) struct MemtableRangeTombstones {
    memtable: Rc<SharedMemtable>,
    prefix: Vec<u8>,
    reversed: bool,
    copied: VecDeque<RangeTombstone>,
}

impl MemtableRangeTombstones {
    fn new(memtable: Rc<SharedMemtable>, prefix: &[u8], from: &[u8], reversed: bool) -> Self {
        let mut cursor = Self { memtable, prefix: prefix.to_vec(), reversed, copied: VecDeque::new() };
        cursor.copy(from);
        cursor
    }

    fn copy(&mut self, from: &[u8]) {
        let Self { memtable, prefix, reversed, copied } = self;
        memtable.read(|memtable| {
            memtable.next_range_tombstones(prefix, from, *reversed, COPIED_AT_A_TIME, copied);
        });
    }

    fn advance(&mut self) {
        if let Some(last) = self.copied.pop_front().filter(|_| self.copied.is_empty()) {
            self.copy(if self.reversed { &last.start } else { &last.end });
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
