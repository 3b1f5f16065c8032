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
use std::cmp::Ordering;

use smallvec::SmallVec;

use super::request::{Budget, RowView, ScanRequest, Step};
use super::source::{Bounds, Source, TableSourceBuffers};
use crate::cell::Deletion;
use crate::codec::DecodeError;
use crate::error::EngineError;
use crate::key;
use crate::memtable::CursorBuffers;
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
    buffers: ScanBuffers,
    table: TableId,
    reversed: bool,
    now_seconds: u32,
    budget: Budget,
    used: Budget,
    has_progressed: bool,
    /// The columns that the reader wants of each row, ordered by id; `None`: all there are.
    wanted: Option<&'s [u32]>,
    /// The sources whose present rows make up the row handed out last.
    current: SmallVec<[u32; 8]>,
    /// Whose key follows that of the only current source.
    runner_up: RunnerUp,
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
    Source(u32),
    /// In the buffer of merged rows.
    Merged,
}

/// The source that is next in turn after the only current one, as long as the others stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunnerUp {
    /// Also while not exactly one source is current.
    Unknown,
    /// The others have nothing more.
    None,
    Source(u32),
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
            buffers,
            table: request.table,
            reversed: request.reversed,
            now_seconds: request.now_seconds,
            budget: request.budget,
            wanted,
            used: Budget { bytes: 0, tombstones: 0 },
            has_progressed: false,
            current: SmallVec::new(),
            runner_up: RunnerUp::Unknown,
            place: Place::Merged,
            has_spans,
        }
    }

    /// Goes to the next row that a reader sees. After [`Step::Exhausted`] further calls say the same.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a step borrows from the scan and may be an error")]
    pub fn next(&mut self) -> Result<Step<'_>, EngineError> {
        match self.find_next()? {
            Found::Exhausted => return Ok(Step::Exhausted),
            Found::End => return Ok(Step::End),
            Found::Row => {}
        }
        let ScanBuffers { start, sources, merged, .. } = &self.buffers;
        let source = match self.place {
            Place::Source(index) => Some(index),
            Place::Merged => self.current.first().copied(),
        };
        let source = source.and_then(|index| sources.get(index as usize));
        let Some((source, key)) = source.and_then(|source| Some((source, source.key(start)?))) else {
            return Ok(Step::End);
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
        if self.runner_up == RunnerUp::Unknown {
            self.leave_current()?;
            return self.gather();
        }
        Ok(self.advance_only()? || self.gather()?)
    }

    /// Moves on the only current source; whether it still has the next key, and it alone.
    #[inline]
    fn advance_only(&mut self) -> Result<bool, EngineError> {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        let Some(only) = self.current.first().map(|&index| index as usize) else { return Ok(false) };
        let Some(source) = sources.get_mut(only) else { return Ok(false) };
        if let Err(error) = source.advance(Bounds { start, end, reversed: self.reversed }) {
            self.forget_current();
            return Err(error.into());
        }
        let Some(key) = sources.get(only).and_then(|source| source.key(start)) else { return Ok(false) };
        let runner_up = match self.runner_up {
            RunnerUp::Source(index) => sources.get(index as usize).and_then(|source| source.key(start)),
            RunnerUp::Unknown | RunnerUp::None => None,
        };
        Ok(runner_up.is_none_or(|runner_up| is_before(key, runner_up, self.reversed)))
    }

    /// Moves on the sources of the row handed out last.
    #[inline]
    fn leave_current(&mut self) -> Result<(), EngineError> {
        self.runner_up = RunnerUp::Unknown;
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        for index in self.current.drain(..) {
            if let Some(source) = sources.get_mut(index as usize) {
                source.advance(Bounds { start, end, reversed: self.reversed })?;
            }
        }
        Ok(())
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

    fn forget_current(&mut self) {
        self.current.clear();
        self.runner_up = RunnerUp::Unknown;
    }

    /// Finds the sources with the next key; false at the end of all. Opens those that waited for the scan to come so far.
    #[inline]
    fn gather(&mut self) -> Result<bool, EngineError> {
        while self.find_current() {
            match self.open_waiting() {
                Ok(false) => return Ok(true),
                Ok(true) => {}
                Err(error) => {
                    self.forget_current();
                    return Err(error.into());
                }
            }
        }
        Ok(false)
    }

    /// Opens those of the current sources that wait; whether there was any.
    #[inline]
    fn open_waiting(&mut self) -> Result<bool, TableError> {
        let ScanBuffers { start, end, sources, .. } = &mut self.buffers;
        let mut any = false;
        for &index in &self.current {
            if let Some(source) = sources.get_mut(index as usize)
                && source.is_waiting()
            {
                source.seek(Bounds { start, end, reversed: self.reversed })?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Finds the sources with the least key as they stand; false when none has any.
    #[inline]
    fn find_current(&mut self) -> bool {
        self.current.clear();
        let (mut best, mut second): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        self.runner_up = RunnerUp::None;
        for (index, source) in self.buffers.sources.iter().enumerate() {
            let Some(key) = source.key(&self.buffers.start) else { continue };
            let ordering = best.map(|best| if self.reversed { best.cmp(key) } else { key.cmp(best) });
            match ordering {
                Some(Ordering::Greater) => {
                    if second.is_none_or(|second| is_before(key, second, self.reversed)) {
                        second = Some(key);
                        self.runner_up = RunnerUp::Source(index as u32);
                    }
                    continue;
                }
                Some(Ordering::Equal) => {}
                None | Some(Ordering::Less) => {
                    if let Some(&former) = self.current.first() {
                        second = best;
                        self.runner_up = RunnerUp::Source(former);
                    }
                    self.current.clear();
                    best = Some(key);
                }
            }
            self.current.push(index as u32);
        }
        if self.current.len() != 1 {
            self.runner_up = RunnerUp::Unknown;
        }
        !self.current.is_empty()
    }

    /// Makes the row a reader sees out of the versions found; false when there is none.
    #[inline]
    fn reconcile(&mut self) -> Result<bool, EngineError> {
        let ScanBuffers { start, sources, merged, .. } = &mut self.buffers;
        let first = self.current.first().and_then(|&index| Some((index, sources.get(index as usize)?)));
        let Some((index, first)) = first else { return Ok(false) };
        let covering = |key| sources.iter().filter_map(|source| source.covering(key)).max();
        let shadow = if self.has_spans { first.key(start).and_then(covering) } else { None };
        merged.clear();
        if self.current.len() > 1 {
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
        let is_first_complete = self.is_first_complete(shadow);
        let ScanBuffers { sources, merged, .. } = &mut self.buffers;
        let versions: SmallVec<[RowRef<'_>; 8]> =
            self.current.iter().filter_map(|&index| sources.get(index as usize).map(Source::row)).collect();
        self.used.bytes += versions.iter().map(|row| row.bytes.len() as u64).sum::<u64>();
        let dominant = if is_first_complete { Some(0) } else { reconcile::find_dominant(&versions, shadow) };
        if let Some(&source) = dominant.and_then(|version| self.current.get(version)) {
            self.place = Place::Source(source);
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
    fn is_first_complete(&self, shadow: Option<Deletion>) -> bool {
        let (Some(wanted), None) = (self.wanted, shadow) else { return false };
        let source = |index: &u32| self.buffers.sources.get(*index as usize);
        let Some((first, others)) = self.current.split_first() else { return false };
        let newest = others.iter().filter_map(|index| source(index)?.max_timestamp()).max();
        source(first).map(Source::row).is_some_and(|row| {
            // The liveness is found at once: mostly it decides against a row that is not complete.
            row.is_plain()
                && row.simple_parts().is_some_and(|(liveness, _)| liveness > newest)
                && row.complete_since(wanted) > newest
        })
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
        let first = self.current.first().and_then(|&index| sources.get(index as usize));
        let Some(key) = first.and_then(|source| source.key(start)) else { return Ok(()) };
        let prefix = merged;
        prefix.clear();
        prefix.extend_from_slice(
            key::prefix_length(key).and_then(|length| key.get(..length)).unwrap_or_default(),
        );
        self.current.clear();
        self.runner_up = RunnerUp::Unknown;
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
        let first = self.current.first().and_then(|&index| self.buffers.sources.get(index as usize));
        let bound = first.and_then(|source| source.key(&self.buffers.start)).map(|key| {
            let mut bound = key.to_vec();
            if self.reversed {
                // The end is exclusive: the least key behind.
                bound.push(0);
            }
            bound
        });
        self.forget_current();
        self.look_for_spans();
        Ok(bound)
    }

    /// The full key of the row that [`Scan::step`] went to.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let first = self.current.first().and_then(|&index| self.buffers.sources.get(index as usize))?;
        first.key(&self.buffers.start)
    }

    /// Appends the merge (base 0) of the versions of the row that [`Scan::step`] went to, all of which `shadow` covers.
    pub(super) fn merge_versions(
        &self,
        shadow: Option<Deletion>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<MergedVersions, EngineError> {
        let versions: SmallVec<[RowRef<'_>; 8]> = self
            .current
            .iter()
            .filter_map(|&index| self.buffers.sources.get(index as usize).map(Source::row))
            .collect();
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

/// Whether a scan comes to `key` first.
#[inline]
fn is_before(key: &[u8], other: &[u8], reversed: bool) -> bool {
    if reversed { other < key } else { key < other }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if let Ok(mut pool) = self.pool.try_borrow_mut() {
            pool.put_back(std::mem::take(&mut self.buffers));
        }
    }
}
