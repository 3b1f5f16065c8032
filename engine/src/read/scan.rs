//! A scan: merges memtables and table files over a range of keys.
//!
//! [`KWayMerge`] finds the sources with the next key. A file whose rows begin further on is opened when the scan reaches them. A
//! row is returned in place, without a copy, if it has a single version that nothing shadows, or a dominant version
//! ([`reconcile::find_dominant`]). Other rows are merged into a buffer of the scan. The sources of the current row advance only
//! with the next step, so that the row stays readable.
//!
//! A scan holds no lock: memtable cursors notice changes. If any source has range tombstones, each row looks up its tombstone in
//! every source. This bounds the work, however many tombstones there are.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::request::{Budget, RowView, ScanRequest, Step};
use super::source::{Bounds, Source, TableSourceBuffers};
use crate::cell::{AddressBuf, Deletion};
use crate::codec::DecodeError;
use crate::error::{DiskFailures, EngineError};
use crate::invariant::{BrokenInvariant, Watch, broken};
use crate::key;
use crate::memtable::CursorBuffers;
use crate::merge::KWayMerge;
use crate::mutation::TableId;
use crate::reconcile::{self, Purpose, RowPart};
use crate::row::RowRef;
use crate::row_writer::transcode;
use crate::table::TableError;

/// What a row takes of the budget for bytes at least: one is found, whatever it holds.
const ROW_BYTES: u64 = 100;
/// What a skipped partition takes of it: sources are searched, whatever is found.
const SKIP_BYTES: u64 = 200;

/// The allocations of a scan.
#[derive(Default)]
pub(crate) struct ScanBuffers {
    start: Vec<u8>,
    end: Vec<u8>,
    merged: Vec<u8>,
    /// Empty before a scan starts.
    pub sources: Vec<Source>,
}

/// The allocations of finished scans and their cursors, for reuse.
#[derive(Default)]
pub(crate) struct BufferPool {
    scans: Vec<ScanBuffers>,
    memtable_cursors: Vec<CursorBuffers>,
    table_sources: Vec<TableSourceBuffers>,
}

/// The number of scans, and of cursors of each kind, whose buffers are kept.
const POOLED_SCANS: usize = 16;
const POOLED_CURSORS: usize = 4 * POOLED_SCANS;
/// The largest capacity of a pooled buffer, so that one large row does not enlarge all buffers for good.
const POOLED_BYTES: usize = 64 << 10;

impl BufferPool {
    pub fn take_scan(&mut self) -> ScanBuffers {
        self.scans.pop().unwrap_or_default()
    }

    pub fn take_memtable_cursor(&mut self) -> CursorBuffers {
        self.memtable_cursors.pop().unwrap_or_default()
    }

    pub fn take_table_source(&mut self) -> TableSourceBuffers {
        self.table_sources.pop().unwrap_or_default()
    }

    fn put_back(&mut self, mut buffers: ScanBuffers) {
        for source in buffers.sources.drain(..) {
            match source {
                Source::Memtable(cursor) if self.memtable_cursors.len() < POOLED_CURSORS => {
                    self.memtable_cursors.push(cursor.into_buffers(POOLED_BYTES));
                }
                Source::Table(source) if self.table_sources.len() < POOLED_CURSORS => {
                    self.table_sources.push(source.into_buffers(POOLED_BYTES));
                }
                _ => {}
            }
        }
        if self.scans.len() < POOLED_SCANS {
            buffers.merged.clear();
            buffers.merged.shrink_to(POOLED_BYTES);
            self.scans.push(buffers);
        }
    }
}

/// An open scan; see [`crate::Shard::scan`]. It holds no lock and may be kept across awaits. Rows that are written behind its
/// current place while it is open may be returned.
pub struct Scan<'s> {
    pool: &'s RefCell<BufferPool>,
    watch: &'s Watch,
    failures: &'s DiskFailures,
    buffers: ScanBuffers,
    table: TableId,
    reversed: bool,
    now_seconds: u32,
    budget: Budget,
    used: Budget,
    has_progressed: bool,
    /// The projected columns, ordered by id; `None`: all columns.
    wanted: Option<&'s [u32]>,
    /// The current sources of the merge are the sources of the row returned last.
    merge: KWayMerge,
    /// The place of the row returned last.
    place: RowLocation,
    /// Whether any source has range tombstones.
    has_range_tombstones: bool,
}

/// The result of merging the versions of a row.
pub(super) struct MergedVersions {
    /// False if no part of the row is left.
    pub is_written: bool,
    /// Bytes of all its versions.
    pub scanned_bytes: u64,
    /// Where the row's next part begins, if it did not fit.
    pub next: Option<AddressBuf>,
}

#[derive(Debug, Clone, Copy)]
enum RowLocation {
    /// In the source of this number.
    Source(usize),
    /// In the buffer of merged rows.
    Merged,
}

enum Advance {
    Row,
    Exhausted,
    End,
}

impl<'s> Scan<'s> {
    /// A scan of the sources in `buffers`, which go back to `pool` with it.
    pub(crate) fn new(
        pool: &'s RefCell<BufferPool>,
        watch: &'s Watch,
        failures: &'s DiskFailures,
        mut buffers: ScanBuffers,
        request: &ScanRequest<'_>,
        wanted: Option<&'s [u32]>,
    ) -> Self {
        buffers.start.clear();
        buffers.start.extend_from_slice(request.start);
        buffers.end.clear();
        buffers.end.extend_from_slice(request.end);
        let has_range_tombstones = buffers.sources.iter().any(Source::has_range_tombstones);
        Self {
            pool,
            watch,
            failures,
            buffers,
            table: request.table,
            reversed: request.reversed,
            now_seconds: request.now_seconds,
            budget: request.budget,
            wanted,
            used: Budget { bytes: 0, tombstones: 0 },
            has_progressed: false,
            merge: KWayMerge::new(request.reversed),
            place: RowLocation::Merged,
            has_range_tombstones,
        }
    }

    /// Moves to the next visible row. After [`Step::Exhausted`] further calls return the same.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a step borrows from the scan and may be an error")]
    pub fn next(&mut self) -> Result<Step<'_>, EngineError> {
        let found = match self.find_next() {
            Ok(found) => found,
            Err(error) => return Err(self.failed(error)),
        };
        self.watch.check()?;
        match found {
            Advance::Exhausted => return Ok(Step::Exhausted),
            Advance::End => return Ok(Step::End),
            Advance::Row => {}
        }
        let ScanBuffers { start, sources, merged, .. } = &self.buffers;
        let source = match self.place {
            RowLocation::Source(index) => Some(index),
            RowLocation::Merged => self.merge.first(),
        };
        let source = source.and_then(|index| sources.get(index));
        let Some((source, key)) = source.and_then(|source| Some((source, source.key(start)?))) else {
            return Err(broken!("a row that was found has a source, which stands on its key").into());
        };
        let row = match self.place {
            RowLocation::Source(_) => source.row(),
            RowLocation::Merged => RowRef::new(merged, 0),
        };
        let view = RowView::new(key, row, self.now_seconds)
            .map_err(|reason| EngineError::Row { table: self.table, reason })?;
        Ok(Step::Row(view))
    }

    /// The error of a failed step: the broken invariant, if that is its cause.
    #[cold]
    fn failed(&self, error: EngineError) -> EngineError {
        self.failures.note(&error);
        self.watch.check().err().map_or(error, EngineError::from)
    }

    fn find_next(&mut self) -> Result<Advance, EngineError> {
        loop {
            let is_spent =
                self.used.bytes >= self.budget.bytes || self.used.tombstones >= self.budget.tombstones;
            if is_spent && self.has_progressed {
                // The current row was read, but is not visible.
                self.leave_current()?;
                return Ok(Advance::Exhausted);
            }
            if !self.step()? {
                return Ok(Advance::End);
            }
            self.has_progressed = true;
            if self.reconcile()? {
                return Ok(Advance::Row);
            }
        }
    }

    /// Moves to the next row, visible or not; false at the end.
    #[inline]
    pub(super) fn step(&mut self) -> Result<bool, EngineError> {
        if self.buffers.sources.iter().any(Source::is_stale) {
            self.leave_current()?;
            self.refresh();
            return self.gather();
        }
        if !self.merge.has_runner_up() {
            self.leave_current()?;
            return self.gather();
        }
        Ok(self.advance_only()? || self.gather()?)
    }

    /// Advances the only current source. True if it has the next key, and no other source has it.
    #[inline]
    fn advance_only(&mut self) -> Result<bool, EngineError> {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        let only = self.merge.first();
        let Some(source) = only.and_then(|only| sources.get_mut(only)) else {
            return Err(no_source().into());
        };
        if let Err(error) = source.advance(Bounds { start, end, reversed: self.reversed }) {
            self.merge.forget();
            return Err(error.into());
        }
        let Some(key) = only.and_then(|only| sources.get(only)).and_then(|source| source.key(start)) else {
            return Ok(false);
        };
        Ok(self.merge.stays(key, |runner_up| sources.get(runner_up).and_then(|source| source.key(start)))?)
    }

    /// Advances the sources of the row returned last.
    #[inline]
    fn leave_current(&mut self) -> Result<(), EngineError> {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        let bounds = Bounds { start, end, reversed: self.reversed };
        let advanced =
            self.merge.current().iter().try_for_each(|&index| match sources.get_mut(index as usize) {
                Some(source) => source.advance(bounds),
                None => Err(no_source().into()),
            });
        self.merge.forget();
        Ok(advanced?)
    }

    /// Updates memtable cursors after writes.
    fn refresh(&mut self) {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        for source in sources {
            if let Source::Memtable(cursor) = source
                && cursor.is_stale()
            {
                cursor.refresh(start, end);
            }
        }
        self.look_for_range_tombstones();
    }

    /// Updates `has_range_tombstones`. Call it when memtable cursors may have noticed changes.
    fn look_for_range_tombstones(&mut self) {
        self.has_range_tombstones = self.buffers.sources.iter().any(Source::has_range_tombstones);
    }

    /// Finds the sources with the next key, and opens waiting sources that the scan has reached; false at the end.
    #[inline]
    fn gather(&mut self) -> Result<bool, EngineError> {
        loop {
            let ScanBuffers { start, sources, .. } = &self.buffers;
            if !self.merge.select(sources.iter().map(|source| source.key(start))) {
                return Ok(false);
            }
            match self.open_waiting() {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) => {
                    self.merge.forget();
                    return Err(error.into());
                }
            }
        }
    }

    /// Opens the waiting ones among the current sources. True if there was any.
    #[inline]
    fn open_waiting(&mut self) -> Result<bool, TableError> {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        let mut any = false;
        for &index in self.merge.current() {
            let Some(source) = sources.get_mut(index as usize) else { return Err(no_source().into()) };
            if source.is_waiting() {
                source.seek(Bounds { start, end, reversed: self.reversed })?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Reconciles the versions of the current row; false if the row is not visible.
    #[inline]
    fn reconcile(&mut self) -> Result<bool, EngineError> {
        let ScanBuffers { start, sources, merged, .. } = &mut self.buffers;
        let first = self.merge.first().and_then(|index| Some((index, sources.get(index)?)));
        let Some((index, first)) = first else { return Err(no_source().into()) };
        let covering = |key| sources.iter().filter_map(|source| source.covering(key)).max();
        let shadow = if self.has_range_tombstones { first.key(start).and_then(covering) } else { None };
        merged.clear();
        if self.merge.current().len() > 1 {
            return self.reconcile_versions(shadow);
        }
        let row = first.row();
        self.used.bytes += ROW_BYTES.max(row.bytes.len() as u64);
        if reconcile::is_passthrough(row, shadow) {
            self.place = RowLocation::Source(index);
            return Ok(!row.is_empty());
        }
        let purpose = Purpose::Read { now_seconds: self.now_seconds };
        let outcome = reconcile::merge_rows_within(&[row], shadow, purpose, 0, merged);
        self.conclude(outcome)
    }

    /// As [`Scan::reconcile`], for a row with several versions.
    #[inline(never)]
    fn reconcile_versions(&mut self, shadow: Option<Deletion>) -> Result<bool, EngineError> {
        let is_first_complete = self.is_first_complete(shadow)?;
        let ScanBuffers { sources, merged, .. } = &mut self.buffers;
        let versions = versions_of(&self.merge, sources)?;
        let bytes = versions.iter().map(|row| row.bytes.len() as u64).sum::<u64>();
        self.used.bytes += ROW_BYTES.max(bytes);
        let dominant = if is_first_complete { Some(0) } else { reconcile::find_dominant(&versions, shadow) };
        if let Some(&source) = dominant.and_then(|version| self.merge.current().get(version)) {
            self.place = RowLocation::Source(source as usize);
            return Ok(true);
        }
        let purpose = Purpose::Read { now_seconds: self.now_seconds };
        let outcome = reconcile::merge_parts_within(&versions, bytes, shadow, purpose, 0, merged);
        drop(versions);
        self.conclude(outcome)
    }

    /// Whether the first version (mostly the newest) has all projected columns, all newer than anything in the other sources. Then
    /// the other versions need not be read.
    #[inline]
    fn is_first_complete(&self, shadow: Option<Deletion>) -> Result<bool, BrokenInvariant> {
        let (Some(wanted), None) = (self.wanted, shadow) else { return Ok(false) };
        let source = |index: &u32| self.buffers.sources.get(*index as usize).ok_or_else(no_source);
        let Some((first, others)) = self.merge.current().split_first() else { return Err(no_source()) };
        let mut newest: Option<i64> = None;
        for other in others {
            newest = newest.max(source(other)?.max_timestamp());
        }
        let row = source(first)?.row();
        // The liveness is checked first: it is cheap, and usually rejects an incomplete version.
        Ok(row.is_plain()
            && row.simple_parts().is_some_and(|(liveness, _)| liveness > newest)
            && row.complete_since(wanted) > newest)
    }

    fn conclude(
        &mut self,
        outcome: Result<Option<reconcile::Merged>, DecodeError>,
    ) -> Result<bool, EngineError> {
        let outcome = outcome.map_err(|reason| EngineError::Row { table: self.table, reason })?;
        let Some(outcome) = outcome else { return Err(self.row_too_large()) };
        self.place = RowLocation::Merged;
        // A row that is deleted as a whole counts as one tombstone.
        self.used.tombstones += u64::from(outcome.tombstones.max(u32::from(!outcome.is_written)));
        Ok(outcome.is_written)
    }

    #[cold]
    fn row_too_large(&self) -> EngineError {
        let key_bytes = self.key().map_or(0, <[u8]>::len);
        EngineError::RowTooLarge { table: self.table, key_bytes, limit: reconcile::MERGED_ROW_BYTES_MAX }
    }

    /// Skips the rest of the partition of the row returned last.
    pub fn skip_partition(&mut self) -> Result<(), EngineError> {
        let ScanBuffers { start, end, sources, merged, .. } = &mut self.buffers;
        let first = self.merge.first().and_then(|index| sources.get(index));
        let Some(key) = first.and_then(|source| source.key(start)) else { return Ok(()) };
        let Some(present) = key::prefix_length(key).and_then(|length| key.get(..length)) else {
            let reason = DecodeError::Truncated { what: "a row key" };
            return Err(EngineError::Row { table: self.table, reason });
        };
        self.used.bytes += SKIP_BYTES;
        let prefix = merged;
        prefix.clear();
        prefix.extend_from_slice(present);
        self.merge.forget();
        let is_inside: SmallVec<[bool; 8]> = sources
            .iter()
            .map(|source| source.key(start).is_some_and(|key| key.starts_with(prefix)))
            .collect();
        if self.reversed {
            end.clone_from(prefix);
        } else {
            start.clone_from(prefix);
            start.extend_from_slice(key::PARTITION_END);
        }
        let mut not_cached = None;
        for (source, is_inside) in sources.iter_mut().zip(is_inside) {
            if !is_inside {
                continue;
            }
            match source.seek(Bounds { start, end, reversed: self.reversed }) {
                Ok(()) => {}
                // The other sources note what they miss, so that all of it is fetched at once.
                Err(error @ TableError::NotCached { .. }) => not_cached = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(error) = not_cached {
            return Err(error.into());
        }
        self.look_for_range_tombstones();
        Ok(())
    }

    /// What is left of the budget.
    pub(crate) fn budget_left(&self) -> Budget {
        Budget {
            bytes: self.budget.bytes.saturating_sub(self.used.bytes),
            tombstones: self.budget.tombstones.saturating_sub(self.used.tombstones),
        }
    }

    /// The bound with which another scan continues behind all rows that this one has passed: the new start, or for a reversed scan
    /// the new end. `None` if no rows are left.
    pub fn resume_bound(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.leave_current()?;
        if !self.gather()? {
            return Ok(None);
        }
        let Some(mut bound) = self.key().map(<[u8]>::to_vec) else { return Err(no_source().into()) };
        if self.reversed {
            // The end is exclusive: the least key greater than it.
            bound.push(0);
        }
        self.merge.forget();
        self.look_for_range_tombstones();
        self.watch.check()?;
        Ok(Some(bound))
    }

    /// The full key of the current row, after [`Scan::step`].
    pub(super) fn key(&self) -> Option<&[u8]> {
        let first = self.merge.first().and_then(|index| self.buffers.sources.get(index))?;
        first.key(&self.buffers.start)
    }

    /// Appends the merge (base 0) of the versions of the current row, after [`Scan::step`]. The deletion `shadow` applies to all of
    /// them. A row that has no room in one `part` is merged only up to the limit of that.
    pub(super) fn merge_versions(
        &self,
        shadow: Option<Deletion>,
        purpose: Purpose,
        part: Option<RowPart<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<MergedVersions, EngineError> {
        let versions = versions_of(&self.merge, &self.buffers.sources)?;
        let scanned_bytes: u64 = versions.iter().map(|row| row.bytes.len() as u64).sum();
        if let Some(part) = part
            && (part.from.is_some() || scanned_bytes > (part.bytes_max / reconcile::GROWTH_MAX) as u64)
        {
            let merged = reconcile::merge_row_part(&versions, shadow, purpose, part, out);
            let (merged, next) = merged.map_err(|reason| EngineError::Row { table: self.table, reason })?;
            return Ok(MergedVersions { is_written: merged.is_written, scanned_bytes, next });
        }
        let is_written = match versions.as_slice() {
            [only] if reconcile::is_passthrough(*only, shadow) => {
                transcode(*only, 0, out).map(|()| Some(!only.is_empty()))
            }
            versions => reconcile::merge_rows_within(versions, shadow, purpose, 0, out)
                .map(|merged| merged.map(|merged| merged.is_written)),
        };
        let is_written = is_written.map_err(|reason| EngineError::Row { table: self.table, reason })?;
        let is_written = is_written.ok_or_else(|| self.row_too_large())?;
        Ok(MergedVersions { is_written, scanned_bytes, next: None })
    }

    /// Work done so far.
    pub fn used(&self) -> Budget {
        self.used
    }
}

/// The rows of the current sources.
#[inline]
fn versions_of<'a>(
    merge: &KWayMerge,
    sources: &'a [Source],
) -> Result<SmallVec<[RowRef<'a>; 8]>, BrokenInvariant> {
    let mut versions = SmallVec::new();
    for &index in merge.current() {
        versions.push(sources.get(index as usize).ok_or_else(no_source)?.row());
    }
    Ok(versions)
}

#[cold]
fn no_source() -> BrokenInvariant {
    broken!("the current sources of a merge are among the scan's, and there is one where a row was found")
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if let Ok(mut pool) = self.pool.try_borrow_mut() {
            pool.put_back(std::mem::take(&mut self.buffers));
        }
    }
}
