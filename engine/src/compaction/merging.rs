//! The merge of a compaction: rows and range tombstones of the inputs in key order, reconciled, over all keys or a range of them.
//!
//! Invariant: a range begins and ends between partitions. Merges of ranges side by side give what one merge of all of them gives.

use std::sync::Arc;

use helenus_rows::dropped_columns::DroppedColumns;
use smallvec::SmallVec;

use super::dropped::DroppedRanges;
use super::garbage::{Garbage, GarbageSources};
use super::progress::CompactionProgress;
use super::purging::{Once, Purging};
use crate::cell::Deletion;
use crate::invariant::{BrokenInvariant, broken};
use crate::io::{Claim, JobContext, RateLimiter, yield_now};
use crate::key;
use crate::merge::KWayMerge;
use crate::range_tombstone::{RangeTombstone, Union, Walked};
use crate::reconcile::{Purpose, is_passthrough, merge_rows};
use crate::row::RowRef;
use crate::table::{RangeTombstoneCursor, TableCursor, TableError, TableReader};

/// Rows, and bytes written, after which the compaction yields to other tasks and checks its rate.
const ROWS_PER_TURN: u32 = 128;
const BYTES_PER_TURN: u64 = 64 << 10;

/// Full keys `[start, end)`. The default: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

/// What a rewrite leaves out besides what every compaction does. The default: nothing.
#[derive(Default)]
pub(crate) struct LeftOut {
    /// Partitions that the shard has lost.
    pub tokens: DroppedRanges,
    /// What these files shadow.
    pub garbage: GarbageSources,
}

/// Where a merge writes to.
pub(super) trait MergeOutput {
    /// Bytes written so far.
    fn bytes(&self) -> u64;
    async fn begin_partition(&mut self, prefix: &[u8], context: &JobContext) -> Result<(), TableError>;
    async fn write_row(
        &mut self,
        key: &[u8],
        row: RowRef<'_>,
        context: &JobContext,
    ) -> Result<(), TableError>;
    /// Adds a range tombstone for the full keys `[start, end)`.
    async fn write_range_tombstone(
        &mut self,
        start: &[u8],
        end: &[u8],
        deletion: Deletion,
        context: &JobContext,
    ) -> Result<(), TableError>;
}

/// What is merged, and how. The jobs of a compaction share it.
pub(super) struct MergeSources {
    pub inputs: Vec<Arc<TableReader>>,
    pub left_out: LeftOut,
    pub dropped_columns: DroppedColumns,
    pub purging: Purging,
    pub progress: Arc<CompactionProgress>,
}

/// Keeps what a compaction writes within its rate and its room on the disk.
pub(super) struct Pace {
    limiter: RateLimiter,
    /// Room on the disk for the outputs.
    room: Option<Claim>,
    progress: Arc<CompactionProgress>,
    paced_bytes: u64,
}

impl Pace {
    pub fn new(limiter: RateLimiter, room: Option<Claim>, progress: Arc<CompactionProgress>) -> Self {
        Self { limiter, room, progress, paced_bytes: 0 }
    }

    /// For a merge that does not write itself.
    pub fn unlimited(progress: Arc<CompactionProgress>) -> Self {
        Self::new(RateLimiter::new(None), None, progress)
    }

    fn is_due(&self, bytes: u64) -> bool {
        bytes >= self.paced_bytes + BYTES_PER_TURN
    }

    /// Lets other tasks run and keeps the rate limit. An error if the compaction should stop. `bytes`: written so far; `read_bytes`: read since
    /// the last call.
    pub async fn pause(
        &mut self,
        bytes: u64,
        read_bytes: u64,
        context: &JobContext,
    ) -> Result<(), TableError> {
        let fresh = bytes.saturating_sub(self.paced_bytes);
        self.paced_bytes = self.paced_bytes.max(bytes);
        if let Some(room) = &mut self.room {
            room.written(fresh);
        }
        self.progress.note(read_bytes)?;
        let progress = &self.progress;
        self.limiter.spend_unless(fresh, &*context.clock, || progress.is_stopped()).await;
        yield_now().await;
        Ok(())
    }
}

/// A merge under way.
pub(super) struct Merge<O> {
    sources: Arc<MergeSources>,
    garbage: Garbage,
    range: KeyRange,
    pub outputs: O,
    pace: Pace,
    pub context: JobContext,
    /// Bytes read that are not counted in the progress yet.
    read_bytes: u64,
    /// The prefix of the current partition.
    prefix: Vec<u8>,
    /// What may be purged of it. `None`: nobody has asked yet. To find out takes questions to the filters of other files.
    purpose: Option<Purpose>,
    /// For each input the number of its first unwritten range tombstone.
    next_range_tombstone: Vec<usize>,
}

/// The key of the row that a cursor is on; `None` behind the last.
#[inline]
fn key_of(cursor: &TableCursor) -> Option<&[u8]> {
    cursor.is_valid().then(|| cursor.key())
}

/// Moves every cursor to its first row at or behind `key`.
fn skip_to(cursors: &mut [TableCursor], key: &[u8]) -> Result<(), TableError> {
    for cursor in cursors {
        if key_of(cursor).is_some_and(|present| present < key) {
            cursor.seek(key)?;
        }
    }
    Ok(())
}

#[cold]
fn no_cursor() -> BrokenInvariant {
    broken!("the current sources of a merge are cursors of the compaction")
}

impl<O: MergeOutput> Merge<O> {
    pub fn new(
        sources: Arc<MergeSources>,
        outputs: O,
        pace: Pace,
        range: KeyRange,
        context: JobContext,
    ) -> Self {
        let first = |input: &Arc<TableReader>| input.range_tombstones().first_ending_after(&range.start);
        Self {
            next_range_tombstone: sources.inputs.iter().map(first).collect(),
            garbage: sources.left_out.garbage.open(),
            range,
            outputs,
            pace,
            context,
            read_bytes: 0,
            prefix: Vec::new(),
            purpose: None,
            sources,
        }
    }

    /// Writes all of the range to the output, which the caller ends.
    pub async fn run(&mut self) -> Result<(), TableError> {
        let mut cursors = Vec::with_capacity(self.sources.inputs.len());
        for input in &self.sources.inputs {
            let mut cursor = TableCursor::new(Arc::clone(input), None);
            if self.range.start.is_empty() {
                cursor.seek_first()?;
            } else {
                cursor.seek(&self.range.start)?;
            }
            cursors.push(cursor);
        }
        self.merge(&mut cursors).await?;
        self.pace.progress.note(std::mem::take(&mut self.read_bytes))
    }

    async fn merge(&mut self, cursors: &mut [TableCursor]) -> Result<(), TableError> {
        let sources = Arc::clone(&self.sources);
        let dropped = &sources.left_out.tokens;
        let mut merge = KWayMerge::default();
        let mut merged = Vec::new();
        let mut key = Vec::new();
        let mut row_count = 0_u32;
        while merge.next(cursors, key_of)? {
            let Some(first) = merge.first().and_then(|index| cursors.get(index)) else {
                return Err(no_cursor().into());
            };
            if self.range.end.as_deref().is_some_and(|end| first.key() >= end) {
                break;
            }
            key.clear();
            key.extend_from_slice(first.key());
            if let Some(end) = dropped.end_of(&key) {
                skip_to(cursors, end)?;
                merge.forget();
                continue;
            }
            if !dropped.takes_row(&key) {
                self.put_current(&key, cursors, merge.current(), &mut merged).await?;
            }
            for &index in merge.current() {
                cursors.get_mut(index as usize).ok_or_else(no_cursor)?.next()?;
            }
            row_count += 1;
            if row_count.is_multiple_of(ROWS_PER_TURN) || self.pace.is_due(self.outputs.bytes()) {
                self.pause().await?;
            }
        }
        self.write_range_tombstones(None).await
    }

    /// Writes what stays of the row that the cursors of these indexes are on.
    async fn put_current(
        &mut self,
        key: &[u8],
        cursors: &[TableCursor],
        current: &[u32],
        merged: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        if self.prefix.is_empty() || !key.starts_with(&self.prefix) {
            self.enter_partition(key).await?;
        }
        let mut versions: SmallVec<[RowRef<'_>; 8]> = SmallVec::new();
        for &index in current {
            let row = cursors.get(index as usize).ok_or_else(no_cursor)?.row();
            self.read_bytes += (key.len() + row.bytes.len()) as u64;
            versions.push(row);
        }
        self.put_versions(key, &versions, merged).await
    }

    /// Writes what stays of the versions of a row.
    async fn put_versions(
        &mut self,
        key: &[u8],
        versions: &[RowRef<'_>],
        merged: &mut Vec<u8>,
    ) -> Result<(), TableError> {
        let MergeSources { inputs, purging, .. } = &*self.sources;
        if purging.writes_once && purging.once(key, versions) == Once::Goes {
            return Ok(());
        }
        let shadow = inputs.iter().filter_map(|input| input.range_tombstones().covering(key)).max();
        if let [only] = versions
            && is_passthrough(*only, shadow)
        {
            return self.write_row(key, *only).await;
        }
        merged.clear();
        let base = versions.first().map_or(0, |row| row.base);
        // Of rows without deletions and expiries nothing is purged.
        let has_mortal = versions.iter().any(|version| !version.is_plain());
        let purpose = if has_mortal { self.purpose() } else { Purpose::Keep };
        if merge_rows(versions, shadow, purpose, base, merged)?.is_written {
            self.write_row(key, RowRef::new(merged, base)).await?;
        }
        Ok(())
    }

    /// Lets other tasks run and keeps the rate limit. An error if the compaction should stop.
    async fn pause(&mut self) -> Result<(), TableError> {
        let read_bytes = std::mem::take(&mut self.read_bytes);
        self.pace.pause(self.outputs.bytes(), read_bytes, &self.context).await
    }

    async fn enter_partition(&mut self, key: &[u8]) -> Result<(), TableError> {
        let length = key::prefix_length(key).ok_or(TableError::InvalidKey)?;
        self.prefix.clear();
        self.prefix.extend_from_slice(&key[..length]);
        let prefix = self.prefix.clone();
        self.write_range_tombstones(Some(&prefix)).await?;
        self.purpose = None;
        Ok(())
    }

    /// What may be purged of the current partition.
    fn purpose(&mut self) -> Purpose {
        let (purging, prefix) = (&self.sources.purging, &self.prefix);
        *self.purpose.get_or_insert_with(|| purging.purpose_of(prefix))
    }

    async fn write_row(&mut self, key: &[u8], row: RowRef<'_>) -> Result<(), TableError> {
        let row = if self.garbage.is_empty() { Some(row) } else { self.garbage.rest(key, row)? };
        let Some(row) = row else { return Ok(()) };
        let dropped_columns = &self.sources.dropped_columns;
        if !dropped_columns.touch(row) {
            return self.outputs.write_row(key, row, &self.context).await;
        }
        let mut rest = Vec::new();
        if dropped_columns.write_rest(row, &mut rest)? {
            self.outputs.write_row(key, RowRef::new(&rest, row.base), &self.context).await?;
        }
        Ok(())
    }

    /// Begins the partition `prefix` in the outputs (`None`: none), after it has written the range tombstones of all partitions up
    /// to and including it (`None`: all remaining ones).
    async fn write_range_tombstones(&mut self, prefix: Option<&[u8]>) -> Result<(), TableError> {
        let mut has_begun = false;
        while let Some(next) = self.next_range_tombstone_prefix() {
            if prefix.is_some_and(|prefix| next.as_slice() > prefix) {
                break;
            }
            if self.sources.left_out.tokens.end_of(&next).is_none() {
                let are_written = self.unite_range_tombstones(&next).await?;
                has_begun |= are_written && prefix == Some(next.as_slice());
            }
            for (input, number) in self.sources.inputs.iter().zip(&mut self.next_range_tombstone) {
                let range_tombstones = input.range_tombstones();
                while range_tombstones.get(*number).is_some_and(|it| it.prefix == next) {
                    *number += 1;
                }
            }
        }
        match prefix {
            Some(prefix) if !has_begun => self.outputs.begin_partition(prefix, &self.context).await,
            _ => Ok(()),
        }
    }

    /// The first partition of the range that has unwritten range tombstones.
    fn next_range_tombstone_prefix(&self) -> Option<Vec<u8>> {
        let inputs = self.sources.inputs.iter().zip(&self.next_range_tombstone);
        let prefixes =
            inputs.filter_map(|(input, &number)| Some(input.range_tombstones().get(number)?.prefix));
        let is_within = |prefix: &&[u8]| self.range.end.as_deref().is_none_or(|end| *prefix < end);
        prefixes.min().filter(is_within).map(<[u8]>::to_vec)
    }

    /// Writes the range tombstones of a partition, united from all inputs. False: none of them stays, and the partition is not begun.
    async fn unite_range_tombstones(&mut self, prefix: &[u8]) -> Result<bool, TableError> {
        let (low, high) = (&[][..], key::PARTITION_END);
        let cursor =
            |input: &Arc<TableReader>| RangeTombstoneCursor::new(Arc::clone(input), prefix, low, high, false);
        let mut walk = Union::new(self.sources.inputs.iter().map(cursor).collect(), low, high, false);
        let purge = self.sources.purging.purge_of(prefix);
        let is_kept = |deletion| purge.is_none_or(|purge| !purge.forgets(deletion));
        let mut written = 0_u32;
        let mut are_written = false;
        while let Some(Walked::RangeTombstone(RangeTombstone { start, end, deletion })) =
            walk.next(u64::MAX, is_kept)
        {
            if !are_written {
                self.outputs.begin_partition(prefix, &self.context).await?;
                are_written = true;
            }
            let full = |position: &[u8]| [prefix, position].concat();
            let (start, end) = (full(&start), full(&end));
            self.outputs.write_range_tombstone(&start, &end, deletion, &self.context).await?;
            written = written.wrapping_add(1);
            if written.is_multiple_of(ROWS_PER_TURN) {
                self.pause().await?;
            }
        }
        Ok(are_written)
    }
}
