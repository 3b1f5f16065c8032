//! Searching for the rows whose vectors are nearest to a target.
//!
//! 1. Where the rows in question are few, they are all read and compared: those of ranges within partitions, and those that another index finds for
//!    a restriction.
//! 2. Otherwise candidates are taken from memtables and from the lists of the files' indexes that are nearest to the target, more than are wanted.
//!    The rows of the best are read: each counts with the vector that it has now, if it still exists and passes the restrictions.
//! 3. If too few pass that are as similar as the worst candidate, another round reads more lists and takes more candidates. When that has become too many rows, all rows are read.
//!
//! So overwritten and deleted vectors, and rows that fail a restriction, never take the place of rows that belong into the answer.
//!
//! Invariant: the answer has as many rows as are wanted, or all that pass.

mod candidates;
mod rows;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_vectors::{Nearest, Target, floats_of};

use self::candidates::{Candidate, Candidates, FileWalk, MemtableWalk};
use self::rows::{Judge, Ranges, ReadRow};
use super::index_files::path_of_useless;
use super::index_search::SearchWorth;
use super::state::Shard;
use super::table_state::{TableState, shared_prefix_length};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::yield_now;
use crate::key::{PARTITION_END, REGULAR_START, STATIC_POSITION, behind, prefix_length};
use crate::mutation::TableId;
use crate::secondary_index::{IndexSearch, NearestSearch, VectorIndex};
use crate::table::{TableError, TableReader};

/// If another index finds at most this many rows, or this many times as many as are wanted, they are all compared.
const FEW_ROWS: usize = 2_048;
const FEW_ROWS_FACTOR: usize = 8;
/// Candidates of the first round beyond twice those that are wanted: estimates are not exact.
const SPARE_CANDIDATES: usize = 32;
/// How many times as many candidates and lists the next round takes.
const ROUND_FACTOR: usize = 4;
/// How many times as many candidates are kept as a round takes: those of two further rounds.
const KEPT_FACTOR: usize = ROUND_FACTOR * ROUND_FACTOR;
/// The most candidates of a round. It is cheaper to read all rows than more of them one by one.
const CANDIDATES_MAX: usize = 50_000;
/// Rows or ranges of rows that are read in one turn.
const ROWS_PER_TURN: usize = 64;

/// The number of candidates that are kept while a round takes this many.
fn kept_max(candidates_wanted: usize) -> usize {
    candidates_wanted.saturating_mul(KEPT_FACTOR).min(CANDIDATES_MAX)
}

/// The rows that a search has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NearestRows {
    /// The similarity of each, and its full key. The best first.
    pub rows: Vec<(f32, Vec<u8>)>,
    /// There may be more that pass, all of them further away as far as is known.
    pub has_more: bool,
}

/// A search under way.
struct Search<'s> {
    shard: &'s Shard,
    table: Rc<TableState>,
    judge: Judge,
    options: VectorIndex,
    wanted: usize,
    ranges: &'s Ranges,
    until: Duration,
}

impl Shard {
    /// The rows within these ranges that pass the restrictions of a search and are nearest to its target. The ranges ascend and do not overlap.
    /// [`EngineError::IndexIncomplete`] and [`EngineError::SearchTooLong`]: as of [`Shard::find_keys`].
    pub async fn find_nearest(
        &self,
        id: TableId,
        search: &NearestSearch,
        ranges: &[(Vec<u8>, Vec<u8>)],
        now_seconds: u32,
        until: Duration,
    ) -> Result<NearestRows, EngineError> {
        let table = self.table(id)?;
        self.watch.check()?;
        let incomplete = || EngineError::IndexIncomplete { table: id };
        let definition = table.definition(search.index).ok_or_else(incomplete)?;
        let options = definition.vectors.ok_or_else(incomplete)?;
        let target = floats_of(&search.target, options.dimension).ok_or_else(incomplete)?;
        let mut restrictions = Vec::with_capacity(search.restrictions.len());
        for restriction in &search.restrictions {
            let definition = table.definition(restriction.index).ok_or_else(incomplete)?;
            restrictions.push((definition, restriction.terms.clone()));
        }
        let judge = Judge {
            table: id,
            target: Target::new(options.similarity, target),
            vectors: definition.terms,
            restrictions,
            now_seconds,
        };
        let wanted = search.wanted.max(1);
        let running = Search { shard: self, table, judge, options, wanted, ranges, until };
        if ranges.iter().all(|(start, end)| shared_prefix_length(start, end).is_some()) {
            return running.compare_all(ranges).await;
        }
        if let Some(few) = running.find_few(search).await? {
            return running.compare_all(&few).await;
        }
        running.search(search).await
    }
}

impl Search<'_> {
    /// Lets other requests of the shard run.
    async fn pause(&self) -> Result<(), EngineError> {
        if self.shard.environment.clock.monotonic() >= self.until {
            return Err(EngineError::SearchTooLong { table: self.judge.table });
        }
        yield_now().await;
        Ok(())
    }

    fn check(&self) -> Result<(), EngineError> {
        self.shard.check_open()?;
        // Rows of a file that cannot be read would not be missed.
        self.ranges.iter().try_for_each(|(start, end)| self.table.check_readable(start, end))
    }

    /// Reads all rows of these ranges.
    async fn compare_all(&self, ranges: &Ranges) -> Result<NearestRows, EngineError> {
        let mut nearest = Nearest::new(self.wanted);
        let (mut read, mut resume) = (0, None);
        while let Some(further) = ranges.get(read..).filter(|further| !further.is_empty()) {
            let next = &further[..further.len().min(ROWS_PER_TURN)];
            let turn = || self.judge.read_ranges(self.shard, next, resume.as_deref());
            let part = self.shard.read_cold(turn).await?;
            for (similarity, key) in part.passed {
                nearest.offer(similarity, key);
            }
            read += part.ranges;
            resume = part.resume;
            if read < ranges.len() {
                self.pause().await?;
            }
        }
        Ok(NearestRows { has_more: nearest.has_left_out(), rows: nearest.into_sorted() })
    }

    /// The ranges of the rows that another index finds, if they are few.
    async fn find_few(&self, search: &NearestSearch) -> Result<Option<Vec<(Vec<u8>, Vec<u8>)>>, EngineError> {
        if search.restrictions.is_empty() {
            return Ok(None);
        }
        let (table, restrictions) = (self.judge.table, search.restrictions.clone());
        let search = IndexSearch { restrictions };
        if self.shard.judge_search(table, &search)? != SearchWorth::Narrow {
            return Ok(None);
        }
        let mut keys_left = FEW_ROWS.max(FEW_ROWS_FACTOR.saturating_mul(self.wanted));
        let mut few = Vec::new();
        for (start, end) in self.ranges {
            let found = self.shard.find_keys(table, &search, start, end, keys_left, self.until).await?;
            if found.resume.is_some() {
                return Ok(None);
            }
            keys_left = keys_left.saturating_sub(found.keys.len()).max(1);
            for key in found.keys {
                let Some((prefix, position)) =
                    prefix_length(&key).and_then(|length| key.split_at_checked(length))
                else {
                    return Err(broken!("a search finds full keys").into());
                };
                if position == STATIC_POSITION {
                    let of_partition = |position: &[u8]| [prefix, position].concat();
                    let (first, last) = (of_partition(REGULAR_START), of_partition(PARTITION_END));
                    few.push((first.max(start.clone()), last.min(end.clone())));
                } else {
                    let end = behind(&key);
                    few.push((key, end));
                }
            }
            self.pause().await?;
        }
        Ok(Some(few))
    }

    async fn search(&self, search: &NearestSearch) -> Result<NearestRows, EngineError> {
        let mut candidates_wanted = 2 * self.wanted + SPARE_CANDIDATES;
        let mut lists_factor = 1;
        let mut candidates = self.begin(search, candidates_wanted)?;
        let mut read: BTreeMap<Vec<u8>, Option<ReadRow>> = BTreeMap::new();
        while candidates_wanted <= CANDIDATES_MAX {
            candidates.make_room(candidates_wanted, kept_max(candidates_wanted));
            self.visit(&mut candidates, lists_factor).await?;
            let is_all = candidates.are_all() && candidates.kept.len() <= candidates_wanted;
            let best = candidates.kept.best(candidates_wanted);
            let worst = best.last().map_or(f32::NEG_INFINITY, |(similarity, _)| *similarity);
            let best = best.into_iter().map(|(_, candidate)| candidate);
            let fresh: Vec<&Candidate> =
                best.filter(|candidate| !read.contains_key(&candidate.key)).collect();
            for part in fresh.chunks(ROWS_PER_TURN) {
                let rows = self.shard.read_cold(|| self.read(part)).await?;
                read.extend(part.iter().map(|candidate| candidate.key.clone()).zip(rows));
                self.pause().await?;
            }
            // A row that an overwritten vector has brought here may be further away than candidates that were not read.
            let passed = read.values().flatten().filter(|row| row.as_candidate >= worst).count();
            if passed >= self.wanted || is_all {
                let mut nearest = Nearest::new(self.wanted);
                for (key, row) in read {
                    if let Some(row) = row {
                        nearest.offer(row.similarity, key);
                    }
                }
                let has_more = !is_all || nearest.has_left_out();
                return Ok(NearestRows { rows: nearest.into_sorted(), has_more });
            }
            candidates_wanted = candidates_wanted.saturating_mul(ROUND_FACTOR);
            lists_factor = lists_factor.saturating_mul(ROUND_FACTOR);
        }
        self.compare_all(self.ranges).await
    }

    /// What all rounds visit: the memtables and files as they are now. A row that changes meanwhile has the vector that it had, or the new one.
    fn begin(&self, search: &NearestSearch, candidates_wanted: usize) -> Result<Candidates, EngineError> {
        // Only now, with the files that are visited: a file may have come without its index since the search began.
        if !self.table.is_index_complete(search.index) {
            return Err(EngineError::IndexIncomplete { table: self.judge.table });
        }
        let mut memtables = Vec::new();
        self.table.for_each_memtable(|memtable| memtables.push(MemtableWalk::new(Rc::clone(memtable))));
        let files = self.table.files.borrow();
        let files = files.iter().filter_map(|file| file.index(search.index));
        let files = files.map(|file| FileWalk::new(file, self.options)).collect();
        Ok(Candidates::new(memtables, files, kept_max(candidates_wanted)))
    }

    /// The rows of these candidates; `None` of those that do not pass. All are asked also after a miss, so that what they miss is
    /// fetched at once.
    fn read(&self, candidates: &[&Candidate]) -> Result<Vec<Option<ReadRow>>, EngineError> {
        self.check()?;
        let (mut rows, mut missing) = (Vec::with_capacity(candidates.len()), None);
        for candidate in candidates {
            match self.judge.read(self.shard, &candidate.key, candidate.list.as_deref()) {
                Ok(row) => rows.push(row),
                Err(error @ EngineError::Table(TableError::NotCached { .. })) => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        missing.map_or(Ok(rows), Err)
    }

    /// Visits what a round visits and the ones before it did not.
    async fn visit(&self, candidates: &mut Candidates, lists_factor: usize) -> Result<(), EngineError> {
        let Candidates { memtables, files, kept, .. } = candidates;
        for walk in memtables {
            while walk.turn(&self.judge, self.ranges, kept)? == ControlFlow::Continue(()) {
                self.pause().await?;
            }
        }
        for walk in files {
            loop {
                let turn = || {
                    self.check()?;
                    walk.turn(self.shard, &self.judge.target, self.ranges, lists_factor, kept)
                };
                match self.shard.read_cold(turn).await {
                    Ok(ControlFlow::Break(())) => break,
                    Ok(ControlFlow::Continue(())) => self.pause().await?,
                    Err(EngineError::Table(error)) => return Err(self.give_up(&walk.reader, error).await),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// The error of a search after a file of the index could not be read.
    async fn give_up(&self, file: &Arc<TableReader>, error: TableError) -> EngineError {
        if path_of_useless(&error) != Some(file.path()) {
            return error.into();
        }
        self.shard.give_up_index(&self.table, file, &error).await;
        EngineError::IndexIncomplete { table: self.judge.table }
    }
}
