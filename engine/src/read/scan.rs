//! The merge of a scan's sources.
//!
//! Sources are few, so the next key is a linear minimum over their heads; while it stays with one source, it is compared with
//! that of the runner-up alone. Files whose rows lie further on are opened when it comes there. A row with a single version that
//! nothing shadows, or with one that is all that counts, is handed out as it lies in its source; others are merged
//! into a buffer of the scan. The sources that gave the present row move on only with the next step, so that the row stays readable.
//!
//! Nothing is locked: memtable cursors notice changes. Span deletions are looked up for each row in every
//! source, where any source has some, which bounds the work however many there are.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::request::{Budget, RowView, ScanRequest, Step};
use super::source::{Bounds, Source, TableSourceBuffers};
use crate::cell::Deletion;
use crate::codec::DecodeError;
use crate::error::EngineError;
use crate::invariant::{BrokenInvariant, Watch, broken};
use crate::key;
use crate::memtable::CursorBuffers;
use crate::merge::KWayMerge;
use crate::mutation::TableId;
use crate::reconcile::{self, Purpose};
use crate::row::RowRef;
use crate::row_writer::transcode;
use crate::table::TableError;

/// What a scan allocates for itself.
#[derive(Default)]
pub(crate) struct ScanBuffers {
    start: Vec<u8>,
    end: Vec<u8>,
    merged: Vec<u8>,
    /// Empty before a scan.
    pub sources: Vec<Source>,
}

/// What finished scans leave for those to come: everything a scan and its cursors allocate.
#[derive(Default)]
pub(crate) struct BufferPool {
    scans: Vec<ScanBuffers>,
    memtable_cursors: Vec<CursorBuffers>,
    table_sources: Vec<TableSourceBuffers>,
}

/// Most scans whose buffers are kept; and most cursors of each kind.
const POOLED_SCANS: usize = 16;
const POOLED_CURSORS: usize = 4 * POOLED_SCANS;
/// Most that a buffer in the pool holds on to: one large row must not be paid for by each that was open beside it.
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

/// An open scan; see [`crate::Shard::scan`]. It may be kept across awaits: it holds no lock, and may see rows
/// that are written while it is open and that it has not passed.
pub struct Scan<'s> {
    pool: &'s RefCell<BufferPool>,
    watch: &'s Watch,
    buffers: ScanBuffers,
    table: TableId,
    reversed: bool,
    now_seconds: u32,
    budget: Budget,
    used: Budget,
    has_progressed: bool,
    /// The columns that the reader wants of each row, ordered by id; `None`: all there are.
    wanted: Option<&'s [u32]>,
    /// Its current sources are those whose present rows make up the row handed out last.
    merge: KWayMerge,
    /// Where the row handed out last lies.
    place: Place,
    /// Whether any source has span deletions.
    has_spans: bool,
}

/// The merged versions of a row.
pub(super) struct MergedVersions {
    /// False: nothing is left of it.
    pub is_written: bool,
    /// Bytes of all its versions.
    pub scanned_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the source of this number.
    Source(usize),
    /// In the buffer of merged rows.
    Merged,
}

enum Found {
    Row,
    Exhausted,
    End,
}

impl<'s> Scan<'s> {
    /// A scan of the sources in `buffers`, which go back to `pool` with it.
    pub(crate) fn new(
        pool: &'s RefCell<BufferPool>,
        watch: &'s Watch,
        mut buffers: ScanBuffers,
        request: &ScanRequest<'_>,
        wanted: Option<&'s [u32]>,
    ) -> Self {
        buffers.start.clear();
        buffers.start.extend_from_slice(request.start);
        buffers.end.clear();
        buffers.end.extend_from_slice(request.end);
        let has_spans = buffers.sources.iter().any(Source::has_spans);
        Self {
            pool,
            watch,
            buffers,
            table: request.table,
            reversed: request.reversed,
            now_seconds: request.now_seconds,
            budget: request.budget,
            wanted,
            used: Budget { bytes: 0, tombstones: 0 },
            has_progressed: false,
            merge: KWayMerge::new(request.reversed),
            place: Place::Merged,
            has_spans,
        }
    }

    /// Goes to the next row that a reader sees. After [`Step::Exhausted`] further calls say the same.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a step borrows from the scan and may be an error")]
    pub fn next(&mut self) -> Result<Step<'_>, EngineError> {
        let found = self.find_next();
        self.watch.check()?;
        match found? {
            Found::Exhausted => return Ok(Step::Exhausted),
            Found::End => return Ok(Step::End),
            Found::Row => {}
        }
        let ScanBuffers { start, sources, merged, .. } = &self.buffers;
        let source = match self.place {
            Place::Source(index) => Some(index),
            Place::Merged => self.merge.first(),
        };
        let source = source.and_then(|index| sources.get(index));
        let Some((source, key)) = source.and_then(|source| Some((source, source.key(start)?))) else {
            return Err(broken!("a row that was found has a source, which stands on its key").into());
        };
        let row = match self.place {
            Place::Source(_) => source.row(),
            Place::Merged => RowRef::new(merged, 0),
        };
        let view = RowView::new(key, row, self.now_seconds)
            .map_err(|reason| EngineError::Row { table: self.table, reason })?;
        Ok(Step::Row(view))
    }

    fn find_next(&mut self) -> Result<Found, EngineError> {
        loop {
            let is_spent =
                self.used.bytes >= self.budget.bytes || self.used.tombstones >= self.budget.tombstones;
            if is_spent && self.has_progressed {
                // Nothing of it was handed out.
                self.leave_current()?;
                return Ok(Found::Exhausted);
            }
            if !self.step()? {
                return Ok(Found::End);
            }
            self.has_progressed = true;
            if self.reconcile()? {
                return Ok(Found::Row);
            }
        }
    }

    /// Goes to the next row, whether a reader would see it or not; false at the end.
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

    /// Moves on the only current source; whether it still has the next key, and it alone.
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

    /// Moves on the sources of the row handed out last.
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

    /// Takes in what was written since the last step.
    fn refresh(&mut self) {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        for source in sources {
            if let Source::Memtable(cursor) = source
                && cursor.is_stale()
            {
                cursor.refresh(start, end);
            }
        }
        self.look_for_spans();
    }

    /// To be called when memtable cursors may have noticed changes.
    fn look_for_spans(&mut self) {
        self.has_spans = self.buffers.sources.iter().any(Source::has_spans);
    }

    /// Finds the sources with the next key; false at the end of all. Opens those that waited for the scan to come so far.
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

    /// Opens those of the current sources that wait; whether there was any.
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

    /// Makes the row a reader sees out of the versions found; false when there is none.
    #[inline]
    fn reconcile(&mut self) -> Result<bool, EngineError> {
        let ScanBuffers { start, sources, merged, .. } = &mut self.buffers;
        let first = self.merge.first().and_then(|index| Some((index, sources.get(index)?)));
        let Some((index, first)) = first else { return Err(no_source().into()) };
        let covering = |key| sources.iter().filter_map(|source| source.covering(key)).max();
        let shadow = if self.has_spans { first.key(start).and_then(covering) } else { None };
        merged.clear();
        if self.merge.current().len() > 1 {
            return self.reconcile_versions(shadow);
        }
        let row = first.row();
        self.used.bytes += row.bytes.len() as u64;
        if reconcile::is_passthrough(row, shadow) {
            self.place = Place::Source(index);
            return Ok(!row.is_empty());
        }
        let purpose = Purpose::Read { now_seconds: self.now_seconds };
        let outcome = reconcile::merge_rows(&[row], shadow, purpose, 0, merged);
        self.conclude(outcome)
    }

    /// As [`Scan::reconcile`], of a row that several sources have.
    #[inline(never)]
    fn reconcile_versions(&mut self, shadow: Option<Deletion>) -> Result<bool, EngineError> {
        let is_first_complete = self.is_first_complete(shadow)?;
        let ScanBuffers { sources, merged, .. } = &mut self.buffers;
        let versions = versions_of(&self.merge, sources)?;
        self.used.bytes += versions.iter().map(|row| row.bytes.len() as u64).sum::<u64>();
        let dominant = if is_first_complete { Some(0) } else { reconcile::find_dominant(&versions, shadow) };
        if let Some(&source) = dominant.and_then(|version| self.merge.current().get(version)) {
            self.place = Place::Source(source as usize);
            return Ok(true);
        }
        let purpose = Purpose::Read { now_seconds: self.now_seconds };
        let outcome = reconcile::merge_parts(&versions, shadow, purpose, 0, merged);
        drop(versions);
        self.conclude(outcome)
    }

    /// Whether the first source that has the row (mostly the newest) has all that the reader wants of it, and all of it newer than
    /// anything in the others: then these are not looked into.
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
        // The liveness is found at once: mostly it decides against a row that is not complete.
        Ok(row.is_plain()
            && row.simple_parts().is_some_and(|(liveness, _)| liveness > newest)
            && row.complete_since(wanted) > newest)
    }

    fn conclude(&mut self, outcome: Result<reconcile::Merged, DecodeError>) -> Result<bool, EngineError> {
        let outcome = outcome.map_err(|reason| EngineError::Row { table: self.table, reason })?;
        self.place = Place::Merged;
        // A row that was deleted as a whole counts too.
        self.used.tombstones += u64::from(outcome.tombstones.max(u32::from(!outcome.is_written)));
        Ok(outcome.is_written)
    }

    /// Leaves out the rest of the partition of the row handed out last.
    pub fn skip_partition(&mut self) -> Result<(), EngineError> {
        let ScanBuffers { start, end, sources, merged, .. } = &mut self.buffers;
        let first = self.merge.first().and_then(|index| sources.get(index));
        let Some(key) = first.and_then(|source| source.key(start)) else { return Ok(()) };
        let Some(present) = key::prefix_length(key).and_then(|length| key.get(..length)) else {
            let reason = DecodeError::Truncated { what: "a row key" };
            return Err(EngineError::Row { table: self.table, reason });
        };
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
        for (source, is_inside) in sources.iter_mut().zip(is_inside) {
            if is_inside {
                source.seek(Bounds { start, end, reversed: self.reversed })?;
            }
        }
        self.look_for_spans();
        Ok(())
    }

    /// The bound from which another scan continues behind everything this one has passed: the new start, or
    /// for a reversed scan the new end. `None` when nothing is left.
    pub fn resume_bound(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.leave_current()?;
        if !self.gather()? {
            return Ok(None);
        }
        let Some(mut bound) = self.key().map(<[u8]>::to_vec) else { return Err(no_source().into()) };
        if self.reversed {
            // The end is exclusive: the least key behind.
            bound.push(0);
        }
        self.merge.forget();
        self.look_for_spans();
        self.watch.check()?;
        Ok(Some(bound))
    }

    /// The full key of the row that [`Scan::step`] went to.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let first = self.merge.first().and_then(|index| self.buffers.sources.get(index))?;
        first.key(&self.buffers.start)
    }

    /// Appends the merge (base 0) of the versions of the row that [`Scan::step`] went to, all of which `shadow` covers.
    pub(super) fn merge_versions(
        &self,
        shadow: Option<Deletion>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<MergedVersions, EngineError> {
        let versions = versions_of(&self.merge, &self.buffers.sources)?;
        let scanned_bytes = versions.iter().map(|row| row.bytes.len() as u64).sum();
        let is_written = match versions.as_slice() {
            [only] if reconcile::is_passthrough(*only, shadow) => {
                transcode(*only, 0, out).map(|()| !only.is_empty())
            }
            versions => {
                reconcile::merge_rows(versions, shadow, purpose, 0, out).map(|merged| merged.is_written)
            }
        };
        let is_written = is_written.map_err(|reason| EngineError::Row { table: self.table, reason })?;
        Ok(MergedVersions { is_written, scanned_bytes })
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
