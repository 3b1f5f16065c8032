//! The candidates of a search for the nearest: the rows of memtables, compared exactly, and the entries of files, by estimates.
//!
//! A candidate is a version of a row. The row may have another vector by now, or be deleted.
//!
//! A search has several rounds. What one has visited the next does not visit again, unless it wants more candidates than were kept.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use helenus_vectors::{ListTarget, Nearest, Quantised, Target, floats_of, lists_to_read};

use super::super::search_cost::WORK_OF_SEEK;
use super::super::search_turn::TurnWork;
use super::super::state::Shard;
use super::super::table_state::shared_prefix_length;
use super::rows::{Judge, Ranges};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key::KeyRef;
use crate::memtable::{CursorBuffers, MemtableCursor, SharedMemtable};
use crate::row::RowRef;
use crate::secondary_index::entry::{PARTITION, end_of_term, split, term_of};
use crate::secondary_index::{VectorIndex, centroid_start, list_of_centroid, list_start};
use crate::table::{ReadPattern, TableCursor, TableCursorBuffers, TableError, TableReader};

fn contains(ranges: &Ranges, key: &[u8]) -> bool {
    let behind = ranges.partition_point(|(start, _)| start.as_slice() <= key);
    let range = behind.checked_sub(1).and_then(|place| ranges.get(place));
    range.is_some_and(|(_, end)| key < end.as_slice())
}

/// A version of a row, by the full key of the row.
pub(super) struct Candidate {
    pub key: Vec<u8>,
    /// By what its similarity was estimated. `None`: it was compared exactly.
    pub list: Option<Rc<ListTarget>>,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The candidates that the rounds of a search have visited.
pub(super) struct Candidates {
    pub memtables: Vec<MemtableWalk>,
    pub files: Vec<FileWalk>,
    /// The best of them.
    pub kept: Nearest<Candidate>,
    kept_max: usize,
}

impl Candidates {
    pub fn new(memtables: Vec<MemtableWalk>, files: Vec<FileWalk>, kept_max: usize) -> Self {
        Self { memtables, files, kept: Nearest::new(kept_max), kept_max }
    }

    /// Has all be visited again, if candidates were not kept that are among this many of the best.
    pub fn make_room(&mut self, wanted: usize, kept_max: usize) {
        if wanted > self.kept_max && self.kept.has_left_out() {
            (self.kept, self.kept_max) = (Nearest::new(kept_max), kept_max);
            self.memtables.iter_mut().for_each(MemtableWalk::begin_again);
            self.files.iter_mut().for_each(FileWalk::begin_again);
        }
    }

    /// Whether these are all that there are.
    pub fn are_all(&self) -> bool {
        !self.kept.has_left_out() && !self.files.iter().any(FileWalk::has_skipped_lists)
    }
}

/// As [`Nearest::offer`], but the key is copied only if it is kept.
fn offer(candidates: &mut Nearest<Candidate>, similarity: f32, key: &[u8], list: Option<&Rc<ListTarget>>) {
    if candidates.may_keep(similarity) {
        candidates.offer(similarity, Candidate { key: key.to_vec(), list: list.cloned() });
    } else {
        candidates.pass_over();
    }
}

/// A walk through the rows of a memtable.
pub(super) struct MemtableWalk {
    memtable: Rc<SharedMemtable>,
    /// The range that is walked, and where it goes on.
    range: usize,
    at: Option<Vec<u8>>,
    work: TurnWork,
}

impl MemtableWalk {
    pub fn new(memtable: Rc<SharedMemtable>) -> Self {
        Self { memtable, range: 0, at: None, work: TurnWork::default() }
    }

    /// Has the next turn begin at the first row again.
    pub fn begin_again(&mut self) {
        (self.range, self.at) = (0, None);
    }

    /// Visits rows for one turn.
    pub fn turn(
        &mut self,
        judge: &Judge,
        ranges: &Ranges,
        candidates: &mut Nearest<Candidate>,
    ) -> Result<ControlFlow<()>, EngineError> {
        while let Some((start, end)) = ranges.get(self.range) {
            let start = self.at.take().unwrap_or_else(|| start.clone());
            let (memtable, prefix_length) = (Rc::clone(&self.memtable), shared_prefix_length(&start, end));
            let mut cursor =
                MemtableCursor::new(memtable, &start, end, prefix_length, false, CursorBuffers::default());
            self.work.add_units(WORK_OF_SEEK);
            while let Some(key) = cursor.key() {
                let Ok(parsed) = KeyRef::parse(key) else {
                    return Err(broken!("the keys of a memtable are full keys").into());
                };
                if let Some(similarity) = judge.similarity(&parsed, cursor.row()) {
                    offer(candidates, similarity, key, None);
                }
                self.work.add_visit(key.len() + cursor.row().bytes.len());
                cursor.advance(&start, end);
                if self.work.ends() {
                    self.at = cursor.key().map(<[u8]>::to_vec);
                    self.range += usize::from(self.at.is_none());
                    return Ok(ControlFlow::Continue(()));
                }
            }
            self.range += 1;
            if self.work.ends() {
                return Ok(ControlFlow::Continue(()));
            }
        }
        Ok(ControlFlow::Break(()))
    }
}

/// A walk through the lists of a file's index.
pub(super) struct FileWalk {
    pub reader: Arc<TableReader>,
    options: VectorIndex,
    stage: Stage,
    /// The key of the index's file with which the walk goes on.
    at: Vec<u8>,
    /// The lists, the nearest first, once all centroids have been compared, and how many of them were begun.
    lists: Vec<u32>,
    begun: usize,
    work: TurnWork,
}

enum Stage {
    /// Comparing centroids.
    Centroids(Vec<(f32, u32)>),
    BetweenLists,
    /// Reading the centroid of a list that is next.
    Centroid(u32),
    /// Reading the vectors of a list up to this entry.
    List {
        target: Rc<ListTarget>,
        end: Vec<u8>,
    },
}

fn file_key(entry: &[u8]) -> Vec<u8> {
    [&PARTITION, entry].concat()
}

fn malformed(reader: &TableReader) -> EngineError {
    TableError::damaged(reader.path(), 0, "an entry of an index of vectors is malformed").into()
}

/// The centroid of an entry.
fn centroid(row: RowRef<'_>, dimension: usize) -> Option<Vec<f32>> {
    floats_of(row.cells().next()?.value, dimension)
}

/// The difference of the vector of an entry to the centroid of its list.
fn quantised(row: RowRef<'_>, dimension: usize) -> Option<Quantised<'_>> {
    Quantised::parse(row.cells().next()?.value, dimension)
}

impl FileWalk {
    pub fn new(reader: Arc<TableReader>, options: VectorIndex) -> Self {
        Self {
            reader,
            options,
            stage: Stage::Centroids(Vec::new()),
            at: file_key(&centroid_start(0)),
            lists: Vec::new(),
            begun: 0,
            work: TurnWork::default(),
        }
    }

    /// Has the next turn begin at the nearest list again. To be called between rounds.
    pub fn begin_again(&mut self) {
        self.begun = 0;
    }

    /// Whether rounds up to now have left out lists. To be called between rounds.
    pub fn has_skipped_lists(&self) -> bool {
        self.begun < self.lists.len()
    }

    fn cursor(&self, shard: &Shard) -> TableCursor {
        let (reader, cache) = (Arc::clone(&self.reader), Rc::clone(&shard.block_cache));
        TableCursor::for_pattern(reader, cache, ReadPattern::Rows, TableCursorBuffers::default())
    }

    /// Visits entries for one turn of a round, which reads this many times the lists that a search reads at first. Stops at an error, from where the
    /// next call goes on.
    pub fn turn(
        &mut self,
        shard: &Shard,
        target: &Target,
        ranges: &Ranges,
        lists_factor: usize,
        candidates: &mut Nearest<Candidate>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let mut cursor = self.cursor(shard);
        if !matches!(self.stage, Stage::BetweenLists) {
            cursor.seek(&self.at)?;
        }
        loop {
            let dimension = self.options.dimension;
            let entry = cursor.is_valid().then(|| cursor.key().get(PARTITION.len()..));
            let entry = entry.map(|entry| entry.ok_or_else(|| malformed(&self.reader))).transpose()?;
            match &mut self.stage {
                Stage::Centroids(seen) => {
                    let term = entry.map(|entry| term_of(entry).ok_or_else(|| malformed(&self.reader)));
                    if let Some(list) = term.transpose()?.and_then(|term| list_of_centroid(&term)) {
                        let centroid = centroid(cursor.row(), dimension);
                        let centroid = centroid.ok_or_else(|| malformed(&self.reader))?;
                        seen.push((target.similarity_to_centroid(&centroid), list));
                        self.pass(&mut cursor)?;
                    } else {
                        // All have been compared.
                        seen.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
                        self.lists = seen.iter().map(|(_, list)| *list).collect();
                        self.stage = Stage::BetweenLists;
                    }
                }
                Stage::BetweenLists => {
                    let wanted = lists_to_read(self.lists.len(), self.options.prefers_recall);
                    let wanted = wanted.saturating_mul(lists_factor);
                    let Some(list) = self.lists.get(self.begun).filter(|_| self.begun < wanted) else {
                        return Ok(ControlFlow::Break(()));
                    };
                    self.at = file_key(&centroid_start(*list));
                    self.stage = Stage::Centroid(*list);
                    self.begun += 1;
                    self.work.add_units(WORK_OF_SEEK);
                    cursor.seek(&self.at)?;
                }
                Stage::Centroid(list) => {
                    let found = entry.and_then(term_of).and_then(|term| list_of_centroid(&term));
                    let centroid =
                        found.filter(|found| found == list).and_then(|_| centroid(cursor.row(), dimension));
                    let centroid = centroid.ok_or_else(|| malformed(&self.reader))?;
                    let start = list_start(*list);
                    self.at = file_key(&start);
                    let target = Rc::new(target.in_list(centroid));
                    self.stage = Stage::List { target, end: end_of_term(&start) };
                    self.work.add_units(WORK_OF_SEEK);
                    cursor.seek(&self.at)?;
                }
                Stage::List { target, end } => match entry.filter(|entry| *entry < end.as_slice()) {
                    None => self.stage = Stage::BetweenLists,
                    Some(entry) => {
                        let (_, key) = split(entry).ok_or_else(|| malformed(&self.reader))?;
                        if contains(ranges, key) {
                            let vector = quantised(cursor.row(), dimension);
                            let vector = vector.ok_or_else(|| malformed(&self.reader))?;
                            offer(candidates, target.estimate(&vector), key, Some(target));
                        }
                        self.pass(&mut cursor)?;
                    }
                },
            }
            if self.work.ends() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Moves behind the current entry.
    fn pass(&mut self, cursor: &mut TableCursor) -> Result<(), TableError> {
        self.work.add_visit(cursor.key().len() + cursor.row().bytes.len());
        self.at.clear();
        self.at.extend_from_slice(cursor.key());
        self.at.push(0);
        cursor.next().map(|_| ())
    }
}
