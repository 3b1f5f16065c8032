//! The compaction itself: merges rows and range tombstones of the inputs in key order, reconciles them, and writes one or more
//! files.
//!
//! Invariant: a deletion is purged only if its grace period is over and no data outside the inputs (other files that may contain
//! the partition, memtables) is as old as it is. Then there is no data left that it could shadow.

use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;

use super::dropped::DroppedRanges;
use super::rate_limiter::RateLimiter;
use crate::invariant::{BrokenInvariant, broken};
use crate::io::{Claim, JobContext, yield_now};
use crate::key;
use crate::merge::KWayMerge;
use crate::range_tombstone::RangeTombstoneSet;
use crate::reconcile::{Purge, Purpose, is_passthrough, merge_rows};
use crate::row::RowRef;
use crate::table::{KeyHash, TableCursor, TableError, TableOptions, TableReader, TableWriter};

/// Rows, and bytes written, after which the compaction yields to other tasks and checks its rate.
const ROWS_PER_TURN: u32 = 128;
const BYTES_PER_TURN: u64 = 64 << 10;

/// A compaction, independent of the shard's thread.
pub struct CompactionTask {
    pub inputs: Vec<Arc<TableReader>>,
    /// The other files of the table. They may contain data that deletions in the inputs shadow.
    pub others: Vec<Arc<TableReader>>,
    /// Partitions that the shard has lost. They are left out.
    pub dropped: DroppedRanges,
    /// Which deletions may be purged, considering memtables only. `None`: none.
    pub purge: Option<Purge>,
    /// Generations and paths of the outputs, as many as the compaction can need.
    pub outputs: Vec<(u64, PathBuf)>,
    /// A new output is begun at the first partition after this size.
    pub max_output_bytes: Option<u64>,
    pub file_options: TableOptions,
    pub limiter: RateLimiter,
    /// Room on the disk for the outputs.
    pub room: Option<Claim>,
}

/// The state of a running merge.
struct Merge {
    task: CompactionTask,
    context: JobContext,
    next_output: usize,
    writer: Option<TableWriter>,
    written: Vec<u64>,
    paced_bytes: u64,
    /// The prefix of the current partition.
    prefix: Vec<u8>,
    purpose: Purpose,
    next_range_tombstone: Vec<usize>,
}

impl CompactionTask {
    /// Merges the inputs and returns the generations of the complete, synced outputs. After an error, files of any of the
    /// generations may exist.
    pub async fn run(mut self, context: JobContext) -> Result<Vec<u64>, TableError> {
        let mut cursors = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let mut cursor = TableCursor::new(Arc::clone(input), None);
            cursor.seek_first()?;
            cursors.push(cursor);
        }
        // Without deletions and expiries there is nothing to purge, and the other files need not be checked.
        self.purge = self.purge.filter(|_| self.inputs.iter().any(|input| input.statistics().has_mortal()));
        let mut merge = Merge {
            next_output: 0,
            writer: None,
            written: Vec::new(),
            paced_bytes: 0,
            prefix: Vec::new(),
            purpose: Purpose::Keep,
            next_range_tombstone: vec![0; self.inputs.len()],
            task: self,
            context,
        };
        merge.merge(&mut cursors).await?;
        merge.finish_output().await?;
        Ok(merge.written)
    }
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

impl Merge {
    async fn merge(&mut self, cursors: &mut [TableCursor]) -> Result<(), TableError> {
        let mut merge = KWayMerge::default();
        let mut merged = Vec::new();
        let mut key = Vec::new();
        let mut row_count = 0_u32;
        while merge.next(cursors, key_of)? {
            let Some(first) = merge.first().and_then(|index| cursors.get(index)) else {
                return Err(no_cursor().into());
            };
            key.clear();
            key.extend_from_slice(first.key());
            if let Some(end) = self.task.dropped.end_of(&key) {
                skip_to(cursors, end)?;
                merge.forget();
                continue;
            }
            if self.prefix.is_empty() || !key.starts_with(&self.prefix) {
                self.enter_partition(&key).await?;
            }
            let shadow =
                self.task.inputs.iter().filter_map(|input| input.range_tombstones().covering(&key)).max();
            let mut versions: SmallVec<[RowRef<'_>; 8]> = SmallVec::new();
            for &index in merge.current() {
                versions.push(cursors.get(index as usize).ok_or_else(no_cursor)?.row());
            }
            if let [only] = versions.as_slice()
                && is_passthrough(*only, shadow)
            {
                self.write_row(&key, *only).await?;
            } else {
                merged.clear();
                let base = versions.first().map_or(0, |row| row.base);
                if merge_rows(&versions, shadow, self.purpose, base, &mut merged)?.is_written {
                    self.write_row(&key, RowRef::new(&merged, base)).await?;
                }
            }
            drop(versions);
            for &index in merge.current() {
                cursors.get_mut(index as usize).ok_or_else(no_cursor)?.next()?;
            }
            row_count += 1;
            let written = self.writer.as_ref().map_or(0, TableWriter::size_bytes);
            if row_count.is_multiple_of(ROWS_PER_TURN) || written >= self.paced_bytes + BYTES_PER_TURN {
                self.pause().await;
            }
        }
        self.write_range_tombstones(None).await
    }

    /// Lets other tasks run and keeps the rate limit.
    async fn pause(&mut self) {
        let bytes = self.writer.as_ref().map_or(0, TableWriter::size_bytes);
        let fresh = bytes.saturating_sub(self.paced_bytes);
        self.paced_bytes = self.paced_bytes.max(bytes);
        if let Some(room) = &mut self.task.room {
            room.written(fresh);
        }
        self.task.limiter.spend(fresh, &*self.context.clock).await;
        yield_now().await;
    }

    async fn enter_partition(&mut self, key: &[u8]) -> Result<(), TableError> {
        let length = key::prefix_length(key).ok_or(TableError::InvalidKey)?;
        self.prefix.clear();
        self.prefix.extend_from_slice(&key[..length]);
        let prefix = self.prefix.clone();
        self.write_range_tombstones(Some(&prefix)).await?;
        self.split_if_full().await?;
        self.purpose = self.purge_of(&prefix).map_or(Purpose::Keep, Purpose::Compact);
        Ok(())
    }

    /// Which deletions of a partition may be purged: those that shadow no data of another file.
    fn purge_of(&self, prefix: &[u8]) -> Option<Purge> {
        let mut purge = self.task.purge?;
        let hash = KeyHash::of(prefix);
        let end = [prefix, key::PARTITION_END].concat();
        for other in &self.task.others {
            if other.statistics().may_overlap(prefix, &end) && other.may_contain_partition(hash) {
                purge.max_purgeable_timestamp =
                    purge.max_purgeable_timestamp.min(other.statistics().min_timestamp);
            }
        }
        Some(purge)
    }

    async fn split_if_full(&mut self) -> Result<(), TableError> {
        let Some(limit) = self.task.max_output_bytes else { return Ok(()) };
        let is_full = self.writer.as_ref().is_some_and(|writer| writer.size_bytes() >= limit);
        // The last output takes all remaining partitions.
        if is_full && self.next_output < self.task.outputs.len() {
            self.finish_output().await?;
        }
        Ok(())
    }

    async fn finish_output(&mut self) -> Result<(), TableError> {
        if let Some(writer) = self.writer.take() {
            writer.finish().await?;
            let output = self.next_output.checked_sub(1).and_then(|index| self.task.outputs.get(index));
            let Some((generation, _)) = output else {
                return Err(broken!("a compaction writes to an output that was reserved").into());
            };
            self.written.push(*generation);
            self.paced_bytes = 0;
        }
        Ok(())
    }

    async fn writer(&mut self) -> Result<&mut TableWriter, TableError> {
        if self.writer.is_none() {
            let Some((_, path)) = self.task.outputs.get(self.next_output) else {
                return Err(broken!("as many outputs are reserved as a compaction needs").into());
            };
            let options = self.task.file_options.clone();
            let writer = TableWriter::create(&*self.context.disk, path, options).await?;
            self.next_output += 1;
            return Ok(self.writer.insert(writer));
        }
        self.writer.as_mut().ok_or_else(|| broken!("a compaction that writes has a writer").into())
    }

    async fn write_row(&mut self, key: &[u8], row: RowRef<'_>) -> Result<(), TableError> {
        self.writer().await?.add(key, row).await
    }

    /// Writes the range tombstones of all partitions up to and including `prefix` (`None`: all remaining ones).
    async fn write_range_tombstones(&mut self, prefix: Option<&[u8]>) -> Result<(), TableError> {
        while let Some(next) = self.next_range_tombstone_prefix()? {
            if prefix.is_some_and(|prefix| next.as_slice() > prefix) {
                return Ok(());
            }
            if prefix.is_none_or(|prefix| next.as_slice() < prefix) {
                self.split_if_full().await?;
            }
            let mut range_tombstones = self.take_range_tombstones(&next)?;
            if self.task.dropped.end_of(&next).is_some() {
                continue;
            }
            if let Some(purge) = self.purge_of(&next) {
                range_tombstones.retain(|range_tombstone| !purge.forgets(range_tombstone.deletion));
            }
            for range_tombstone in range_tombstones.as_slice() {
                let full = |position: &[u8]| [next.as_slice(), position].concat();
                let (start, end) = (full(&range_tombstone.start), full(&range_tombstone.end));
                self.writer().await?.add_range_tombstone(&start, &end, range_tombstone.deletion)?;
            }
        }
        Ok(())
    }

    /// The first partition that has unwritten range tombstones.
    fn next_range_tombstone_prefix(&self) -> Result<Option<Vec<u8>>, BrokenInvariant> {
        let inputs = self.task.inputs.iter().zip(&self.next_range_tombstone);
        let starts = inputs.filter_map(|(input, &next)| Some(input.range_tombstones().get(next)?.start));
        let Some(least) = starts.min() else { return Ok(None) };
        match key::prefix_length(least).and_then(|length| least.get(..length)) {
            Some(prefix) => Ok(Some(prefix.to_vec())),
            None => Err(broken!("the range tombstones of an open table have whole prefixes")),
        }
    }

    /// Unites the range tombstones of a partition.
    fn take_range_tombstones(&mut self, prefix: &[u8]) -> Result<RangeTombstoneSet, BrokenInvariant> {
        let mut range_tombstones = RangeTombstoneSet::default();
        for (input, next) in self.task.inputs.iter().zip(&mut self.next_range_tombstone) {
            let all = input.range_tombstones();
            while let Some(range_tombstone) =
                all.get(*next).filter(|range_tombstone| range_tombstone.start.starts_with(prefix))
            {
                let (Some(start), Some(end)) =
                    (range_tombstone.start.strip_prefix(prefix), range_tombstone.end.strip_prefix(prefix))
                else {
                    return Err(broken!("a range tombstone lies within one partition"));
                };
                range_tombstones.add(start, end, range_tombstone.deletion);
                *next += 1;
            }
        }
        Ok(range_tombstones)
    }
}
