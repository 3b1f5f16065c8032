//! A cursor over a range of full keys in a memtable that keeps changing, in both directions.
//!
//! A cursor holds no borrow between steps. It copies its current row. If the memtable has changed since the last step, it looks
//! up its place again by key. So a scan can stay open across writes.

use std::rc::Rc;

use super::rows::{ROWS_AHEAD, RowIndex};
use super::shared::SharedMemtable;
use super::store::Memtable;
use super::tails::Tail;
use crate::cell::Deletion;
use crate::invariant::broken;
use crate::key;
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;

/// The partitions that a cursor walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// One partition, with its number once it has been looked up.
    One(Option<u32>),
    /// All partitions in key order, with the rank of the current one.
    Many(usize),
}

/// The reusable buffers of a cursor.
#[derive(Debug, Default)]
pub struct CursorBuffers {
    key: Vec<u8>,
    row: Vec<u8>,
}

/// Walks the rows of a memtable whose full keys lie in a half-open range.
#[derive(Debug)]
pub struct MemtableCursor {
    memtable: Rc<SharedMemtable>,
    extent: Extent,
    index: RowIndex,
    version: u64,
    reversed: bool,
    is_valid: bool,
    prefix_length: usize,
    buffers: CursorBuffers,
}

impl MemtableCursor {
    /// A cursor on the first row (`reversed`: the last row) of `[start, end)`. `prefix_length` is the length of the common
    /// partition prefix of both bounds, if the range lies within one partition.
    #[inline]
    pub fn new(
        memtable: Rc<SharedMemtable>,
        start: &[u8],
        end: &[u8],
        prefix_length: Option<usize>,
        reversed: bool,
        mut buffers: CursorBuffers,
    ) -> Self {
        buffers.key.clear();
        buffers.row.clear();
        if prefix_length.is_none() {
            memtable.order_partitions();
        }
        let extent = if prefix_length.is_some() { Extent::One(None) } else { Extent::Many(0) };
        let mut cursor = Self {
            memtable,
            extent,
            index: RowIndex::default(),
            version: 0,
            reversed,
            is_valid: false,
            prefix_length: prefix_length.unwrap_or(0),
            buffers,
        };
        cursor.seek(start, end);
        cursor
    }

    /// The full key of the current row; `None` behind the last row.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.is_valid.then_some(&self.buffers.key)
    }

    /// The current row.
    #[inline]
    pub fn row(&self) -> RowRef<'_> {
        RowRef::new(&self.buffers.row, 0)
    }

    /// Whether the memtable has changed since the cursor last moved.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.memtable.read(|memtable| memtable.version != self.version)
    }

    /// As [`Memtable::max_timestamp`].
    #[inline]
    pub fn max_timestamp(&self) -> Option<i64> {
        self.memtable.read(Memtable::max_timestamp)
    }

    /// Whether the memtable has range tombstones now.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.memtable.read(|memtable| memtable.has_range_tombstones)
    }

    /// The range tombstone that covers a full key of any partition.
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        self.memtable.read(|memtable| {
            if !memtable.has_range_tombstones {
                return None;
            }
            let (prefix, position) = key.split_at_checked(key::prefix_length(key)?)?;
            let Some(id) = self.partition(memtable).filter(|&id| memtable.prefix(id) == prefix) else {
                return memtable.covering(key);
            };
            memtable.partition(id)?.range_tombstones.as_ref()?.covering(position)
        })
    }

    /// Moves to the next row (`reversed`: the previous row) within `[start, end)`.
    #[inline]
    pub fn advance(&mut self, start: &[u8], end: &[u8]) {
        if !self.is_valid {
            return;
        }
        if self.is_stale() {
            self.find_again(start, end, false);
            return;
        }
        let memtable = Rc::clone(&self.memtable);
        memtable.read(|memtable| {
            let Some(id) = self.partition(memtable) else {
                broken!("a cursor on a row is in a partition");
                self.is_valid = false;
                return;
            };
            let rows = memtable.rows_of(id);
            // The distance is counted from the current row, before the move.
            rows.prefetch(&memtable.arena, self.index, ROWS_AHEAD + 1, self.reversed);
            if self.reversed {
                self.step_back(memtable, start);
            } else {
                self.index = rows.after(self.index);
                self.settle_forward(memtable, end);
            }
        });
    }

    /// Looks up the current key again after changes, and reads its row again if it still exists.
    pub fn refresh(&mut self, start: &[u8], end: &[u8]) {
        if self.is_valid {
            self.find_again(start, end, true);
        }
    }

    /// Moves to the current key (`include_present`) or to the row after it, by a new search.
    fn find_again(&mut self, start: &[u8], end: &[u8], include_present: bool) {
        let mut bound = std::mem::take(&mut self.buffers.key);
        // The least key greater than `bound` is `bound` with a zero byte appended.
        if self.reversed == include_present {
            bound.push(0);
        }
        if self.reversed {
            self.seek(start, &bound);
        } else {
            self.seek(&bound, end);
        }
    }

    /// Moves to the first row (`reversed`: the last row) of `[start, end)`.
    pub fn seek(&mut self, start: &[u8], end: &[u8]) {
        let memtable = Rc::clone(&self.memtable);
        if let Extent::Many(_) = self.extent
            && !memtable.read(Memtable::is_ordered)
        {
            memtable.order_partitions();
        }
        memtable.read(|memtable| {
            self.version = memtable.version;
            self.is_valid = false;
            self.buffers.key.clear();
            if let Extent::One(id) = &mut self.extent {
                if id.is_none() {
                    *id = start.get(..self.prefix_length).and_then(|prefix| memtable.find_by_prefix(prefix));
                }
                let Some(id) = *id else { return };
                let rows = memtable.rows_of(id);
                let bound = if self.reversed { end } else { start };
                let Some(bound) = bound.get(self.prefix_length..) else {
                    broken!("the bounds of a range within a partition begin with its prefix");
                    return;
                };
                self.index = rows.lower_bound(&memtable.arena, bound);
                let first = if self.reversed { rows.before(self.index) } else { Some(self.index) };
                if let Some(first) = first.filter(|_| !key::is_one_key(start, end)) {
                    for distance in 0..=ROWS_AHEAD {
                        rows.prefetch(&memtable.arena, first, distance, self.reversed);
                    }
                }
            } else if self.reversed {
                let rank = memtable.ordered().partition_point(|&id| memtable.prefix(id) < end);
                let Some(rank) = rank.checked_sub(1) else { return };
                self.extent = Extent::Many(rank);
                self.index = memtable.bound_in(rank, end).unwrap_or(RowIndex { chunk: u32::MAX, entry: 0 });
            } else {
                let rank = memtable.ordered().partition_point(|&id| {
                    let prefix = memtable.prefix(id);
                    prefix < start && !start.starts_with(prefix)
                });
                self.extent = Extent::Many(rank);
                self.index = memtable.bound_in(rank, start).unwrap_or_default();
            }
            if self.reversed {
                self.step_back(memtable, start);
            } else {
                self.settle_forward(memtable, end);
            }
        });
    }

    #[inline]
    fn partition(&self, memtable: &Memtable) -> Option<u32> {
        match self.extent {
            Extent::One(id) => id,
            Extent::Many(rank) => memtable.ordered().get(rank).copied(),
        }
    }

    /// Loads the row at the current index, or the next existing row.
    fn settle_forward(&mut self, memtable: &Memtable, end: &[u8]) {
        while let Some(id) = self.partition(memtable) {
            if self.load(memtable, id) {
                self.is_valid = self.buffers.key.as_slice() < end;
                return;
            }
            let Extent::Many(rank) = &mut self.extent else { break };
            *rank += 1;
            self.index = RowIndex::default();
            self.buffers.key.clear();
        }
        self.is_valid = false;
    }

    /// Loads the last row before the current index.
    fn step_back(&mut self, memtable: &Memtable, start: &[u8]) {
        while let Some(id) = self.partition(memtable) {
            let rows = memtable.rows_of(id);
            let before = if self.index.chunk == u32::MAX { rows.last() } else { rows.before(self.index) };
            if let Some(before) = before {
                self.index = before;
                if self.load(memtable, id) {
                    self.is_valid = self.buffers.key.as_slice() >= start;
                    return;
                }
            }
            let Extent::Many(rank) = &mut self.extent else { break };
            let Some(previous) = rank.checked_sub(1) else { break };
            *rank = previous;
            self.index = RowIndex { chunk: u32::MAX, entry: 0 };
            self.buffers.key.clear();
        }
        self.is_valid = false;
    }

    /// Copies the row at the current index; false if there is none.
    #[inline]
    fn load(&mut self, memtable: &Memtable, id: u32) -> bool {
        let Some(entry) = memtable.rows_of(id).get(self.index) else { return false };
        let CursorBuffers { key, row } = &mut self.buffers;
        if key.is_empty() {
            let prefix = memtable.prefix(id);
            self.prefix_length = prefix.len();
            key.extend_from_slice(prefix);
        } else {
            key.truncate(self.prefix_length);
        }
        key.extend_from_slice(entry.position(&memtable.arena));
        row.clear();
        let stored = entry.row(&memtable.arena);
        match memtable.tail_of(entry) {
            None => row.extend_from_slice(stored),
            Some(tail) => merge_tail(stored, tail, row),
        }
        true
    }

    /// Returns the buffers. The row's buffer keeps a capacity of `bytes_max`.
    pub fn into_buffers(mut self, bytes_max: usize) -> CursorBuffers {
        self.buffers.row.clear();
        self.buffers.row.shrink_to(bytes_max);
        self.buffers
    }
}

/// Appends a row merged with its tail.
fn merge_tail(stored: &[u8], tail: &Tail, out: &mut Vec<u8>) {
    let merged = tail.merged().and_then(|changes| {
        merge_rows(&[RowRef::new(stored, 0), RowRef::new(&changes, 0)], None, Purpose::Keep, 0, out)
    });
    if merged.is_err() {
        broken!("a row of a memtable and its tail can be merged");
    }
}

impl Memtable {
    /// The place of `bound` in the partition of this rank; `None` if the bound lies outside the partition.
    fn bound_in(&self, rank: usize, bound: &[u8]) -> Option<RowIndex> {
        let id = *self.ordered().get(rank)?;
        let position = bound.strip_prefix(self.prefix(id))?;
        Some(self.rows_of(id).lower_bound(&self.arena, position))
    }
}
