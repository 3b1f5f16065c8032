//! The candidates of a search for the nearest: the rows of memtables, compared exactly, and the entries of files, by estimates.
//!
//! A candidate is a version of a row. The row may have another vector by now, or be deleted.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use helenus_vectors::{Nearest, Quantised, lists_to_read};

use super::super::state::Shard;
use super::super::table_state::shared_prefix_length;
use super::rows::Judge;
use crate::error::EngineError;
use crate::key::KeyRef;
use crate::memtable::{CursorBuffers, MemtableCursor, SharedMemtable};
use crate::row::RowRef;
use crate::secondary_index::entry::{PARTITION, end_of_term, split, term_of};
use crate::secondary_index::{VectorIndex, centroids_start, list_of_centroid, list_start};
use crate::table::{ReadPattern, TableCursor, TableCursorBuffers, TableError, TableReader};

/// Entries or rows that are visited in one turn.
const WORK_PER_TURN: usize = 4_096;

/// Half-open ranges of full keys, ascending and without overlaps.
pub(super) type Ranges = [(Vec<u8>, Vec<u8>)];

fn contains(ranges: &Ranges, key: &[u8]) -> bool {
    let behind = ranges.partition_point(|(start, _)| start.as_slice() <= key);
    let range = behind.checked_sub(1).and_then(|place| ranges.get(place));
    range.is_some_and(|(_, end)| key < end.as_slice())
}

/// The candidates of one round.
pub(super) struct Candidates {
    pub kept: Nearest<Vec<u8>>,
    /// Lists of files were left out.
    pub has_skipped_lists: bool,
}

/// How much of the files a round reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Candidates to keep.
    pub candidates: usize,
    /// The number of lists that a search reads at first is multiplied by this.
    pub lists_factor: usize,
}

impl Candidates {
    pub fn new(effort: Effort) -> Self {
        Self { kept: Nearest::new(effort.candidates), has_skipped_lists: false }
    }

    fn offer(&mut self, similarity: f32, key: &[u8]) {
        if self.kept.may_keep(similarity) {
            self.kept.offer(similarity, key.to_vec());
        } else {
            self.kept.pass_over();
        }
    }
}

/// A walk through the rows of a memtable.
pub(super) struct MemtableWalk {
    pub memtable: Rc<SharedMemtable>,
    /// The range that is walked, and where it goes on.
    range: usize,
    at: Option<Vec<u8>>,
}

impl MemtableWalk {
    pub fn new(memtable: Rc<SharedMemtable>) -> Self {
        Self { memtable, range: 0, at: None }
    }

    /// Visits rows for one turn.
    pub fn turn(&mut self, judge: &Judge, ranges: &Ranges, candidates: &mut Candidates) -> ControlFlow<()> {
        let mut work = 0;
        while let Some((start, end)) = ranges.get(self.range) {
            let start = self.at.take().unwrap_or_else(|| start.clone());
            let (memtable, prefix_length) = (Rc::clone(&self.memtable), shared_prefix_length(&start, end));
            let mut cursor =
                MemtableCursor::new(memtable, &start, end, prefix_length, false, CursorBuffers::default());
            while let Some(key) = cursor.key() {
                if work >= WORK_PER_TURN {
                    self.at = Some(key.to_vec());
                    return ControlFlow::Continue(());
                }
                work += 1;
                let parsed = KeyRef::parse(key);
                if let Some(similarity) =
                    parsed.ok().and_then(|parsed| judge.similarity(&parsed, cursor.row()))
                {
                    candidates.offer(similarity, key);
                }
                cursor.advance(&start, end);
            }
            self.range += 1;
            work += 1;
        }
        ControlFlow::Break(())
    }
}

/// A walk through the lists of a file's index.
pub(super) struct FileWalk {
    pub reader: Arc<TableReader>,
    options: VectorIndex,
    effort: Effort,
    stage: Stage,
    /// The key of the index's file with which the walk goes on.
    at: Vec<u8>,
}

enum Stage {
    /// Comparing centroids.
    Centroids(Vec<(f32, u32)>),
    /// Reading the vectors of a list up to this entry, and then of these lists, the last first.
    Lists {
        end: Vec<u8>,
        further: Vec<u32>,
    },
    Done,
}

fn file_key(entry: &[u8]) -> Vec<u8> {
    [&PARTITION, entry].concat()
}

impl FileWalk {
    pub fn new(reader: Arc<TableReader>, options: VectorIndex, effort: Effort) -> Self {
        Self {
            reader,
            options,
            effort,
            stage: Stage::Centroids(Vec::new()),
            at: file_key(&centroids_start()),
        }
    }

    fn malformed(&self) -> EngineError {
        TableError::damaged(self.reader.path(), 0, "an entry of an index of vectors is malformed").into()
    }

    fn cursor(&self, shard: &Shard) -> TableCursor {
        let (reader, cache) = (Arc::clone(&self.reader), Rc::clone(&shard.block_cache));
        TableCursor::for_pattern(reader, cache, ReadPattern::Rows, TableCursorBuffers::default())
    }

    /// Visits entries for one turn. Stops at an error, from where the next turn goes on.
    pub fn turn(
        &mut self,
        shard: &Shard,
        judge: &Judge,
        ranges: &Ranges,
        candidates: &mut Candidates,
    ) -> Result<ControlFlow<()>, EngineError> {
        let mut cursor = self.cursor(shard);
        cursor.seek(&self.at)?;
        for _ in 0..WORK_PER_TURN {
            match &self.stage {
                Stage::Centroids(_) => self.visit_centroid(&mut cursor, judge, candidates)?,
                Stage::Lists { .. } => self.visit_vector(&mut cursor, judge, ranges, candidates)?,
                Stage::Done => return Ok(ControlFlow::Break(())),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn quantised<'r>(&self, row: RowRef<'r>) -> Option<Quantised<'r>> {
        Quantised::parse(row.cells().next()?.value, self.options.dimension)
    }

    /// Moves behind the current entry.
    fn pass(&mut self, cursor: &mut TableCursor) -> Result<(), TableError> {
        self.at.clear();
        self.at.extend_from_slice(cursor.key());
        self.at.push(0);
        cursor.next().map(|_| ())
    }

    fn visit_centroid(
        &mut self,
        cursor: &mut TableCursor,
        judge: &Judge,
        candidates: &mut Candidates,
    ) -> Result<(), EngineError> {
        let entry = cursor.is_valid().then(|| cursor.key().get(PARTITION.len()..).and_then(term_of));
        let list = match entry {
            None => None,
            Some(None) => return Err(self.malformed()),
            Some(Some(term)) => list_of_centroid(&term),
        };
        if let Some(list) = list {
            let quantised = self.quantised(cursor.row()).ok_or_else(|| self.malformed())?;
            let similarity = judge.target.estimate(&quantised);
            if let Stage::Centroids(seen) = &mut self.stage {
                seen.push((similarity, list));
            }
            return Ok(self.pass(cursor)?);
        }
        // All centroids have been compared.
        let Stage::Centroids(seen) = &mut self.stage else { return Ok(()) };
        let mut order = std::mem::take(seen);
        order.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
        let wanted =
            lists_to_read(order.len(), self.options.prefers_recall).saturating_mul(self.effort.lists_factor);
        candidates.has_skipped_lists |= order.len() > wanted;
        order.truncate(wanted);
        let lists = order.into_iter().rev().map(|(_, list)| list).collect();
        Ok(self.enter_next(lists, cursor)?)
    }

    /// Begins with the last of these lists.
    fn enter_next(&mut self, mut lists: Vec<u32>, cursor: &mut TableCursor) -> Result<(), TableError> {
        let Some(next) = lists.pop() else {
            self.stage = Stage::Done;
            return Ok(());
        };
        let start = list_start(next);
        self.at = file_key(&start);
        self.stage = Stage::Lists { end: end_of_term(&start), further: lists };
        cursor.seek(&self.at).map(|_| ())
    }

    fn visit_vector(
        &mut self,
        cursor: &mut TableCursor,
        judge: &Judge,
        ranges: &Ranges,
        candidates: &mut Candidates,
    ) -> Result<(), EngineError> {
        let Stage::Lists { end, further } = &mut self.stage else { return Ok(()) };
        let entry = cursor.key().get(PARTITION.len()..).unwrap_or_default();
        if !cursor.is_valid() || entry >= end.as_slice() {
            let further = std::mem::take(further);
            return Ok(self.enter_next(further, cursor)?);
        }
        let Some((_, key)) = split(entry) else { return Err(self.malformed()) };
        if contains(ranges, key) {
            let quantised = self.quantised(cursor.row()).ok_or_else(|| self.malformed())?;
            candidates.offer(judge.target.estimate(&quantised), key);
        }
        Ok(self.pass(cursor)?)
    }
}
