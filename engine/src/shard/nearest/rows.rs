//! The rows of a search for the nearest: which pass its restrictions, and how similar their vectors are.

use std::sync::Arc;

use super::super::search_turn::TURN_BYTES;
use super::super::state::Shard;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key::{KeyRef, REGULAR_END, REGULAR_START, behind, static_row_of};
use crate::mutation::TableId;
use crate::read::{Budget, RowView, ScanRequest, Step};
use crate::row::RowRef;
use crate::secondary_index::{IndexDefinition, IndexTerms, TermRange};
use crate::table::TableError;
use helenus_vectors::{ListTarget, Target};

/// Work of one turn.
const TURN: Budget = Budget { bytes: TURN_BYTES, tombstones: 4_096 };

/// Half-open ranges of full keys, ascending and without overlaps.
pub(super) type Ranges = [(Vec<u8>, Vec<u8>)];

/// What a row is judged by.
pub(super) struct Judge {
    pub table: TableId,
    pub target: Target,
    pub vectors: Arc<dyn IndexTerms>,
    pub restrictions: Vec<(IndexDefinition, TermRange)>,
    pub now_seconds: u32,
}

/// How the terms of a row fare in a restriction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passes,
    Fails,
    /// The row has no term of the index. The static row of its partition may.
    HasNone,
}

fn verdict(terms: &dyn IndexTerms, accepted: &TermRange, key: &KeyRef<'_>, row: RowRef<'_>) -> Verdict {
    let mut verdict = Verdict::HasNone;
    terms.visit(key, row, &mut |_, term| {
        if accepted.accepts(term) {
            verdict = Verdict::Passes;
        } else if verdict == Verdict::HasNone {
            verdict = Verdict::Fails;
        }
    });
    verdict
}

fn key_of<'v>(view: &RowView<'v>) -> KeyRef<'v> {
    KeyRef { token: view.token, partition_key: view.partition_key, position: view.position }
}

impl Judge {
    /// The similarity of the vector of a row. `None`: it has none.
    pub fn similarity(&self, key: &KeyRef<'_>, row: RowRef<'_>) -> Option<f32> {
        let mut similarity = None;
        self.vectors.visit(key, row, &mut |_, vector| similarity = self.target.similarity_to(vector));
        similarity
    }

    /// The similarity of a row that passes the restrictions.
    fn judge(&self, shard: &Shard, view: &RowView<'_>) -> Result<Option<f32>, EngineError> {
        let key = key_of(view);
        let Some(similarity) = self.similarity(&key, view.row) else { return Ok(None) };
        for (definition, accepted) in &self.restrictions {
            let mut found = verdict(&*definition.terms, accepted, &key, view.row);
            if found == Verdict::HasNone {
                found = self.verdict_of_static_row(shard, view.key, definition, accepted)?;
            }
            if found != Verdict::Passes {
                return Ok(None);
            }
        }
        Ok(Some(similarity))
    }

    fn verdict_of_static_row(
        &self,
        shard: &Shard,
        full_key: &[u8],
        definition: &IndexDefinition,
        accepted: &TermRange,
    ) -> Result<Verdict, EngineError> {
        let Some(static_row) = static_row_of(full_key) else {
            return Err(broken!("the keys of rows that are read are full keys").into());
        };
        let end = behind(&static_row);
        let mut scan = shard.scan(&self.scan(&static_row, &end, Budget::UNLIMITED))?;
        match scan.next()? {
            Step::Row(view) => Ok(verdict(&*definition.terms, accepted, &key_of(&view), view.row)),
            Step::Exhausted | Step::End => Ok(Verdict::HasNone),
        }
    }

    fn scan<'r>(&self, start: &'r [u8], end: &'r [u8], budget: Budget) -> ScanRequest<'r> {
        ScanRequest { table: self.table, start, end, reversed: false, now_seconds: self.now_seconds, budget }
    }

    /// The row with this full key, if it exists and passes. `list`: by what it was estimated as a candidate, if it was.
    pub fn read(
        &self,
        shard: &Shard,
        key: &[u8],
        list: Option<&ListTarget>,
    ) -> Result<Option<ReadRow>, EngineError> {
        let end = behind(key);
        let mut scan = shard.scan(&self.scan(key, &end, Budget::UNLIMITED))?;
        let Step::Row(view) = scan.next()? else { return Ok(None) };
        let Some(similarity) = self.judge(shard, &view)? else { return Ok(None) };
        let Some(list) = list else { return Ok(Some(ReadRow { similarity, as_candidate: similarity })) };
        let mut estimate = None;
        self.vectors.visit(&key_of(&view), view.row, &mut |_, vector| estimate = list.estimate_of(vector));
        let estimate = estimate.ok_or_else(|| broken!("what has a similarity has an estimate of it"))?;
        Ok(Some(ReadRow { similarity, as_candidate: similarity.max(estimate) }))
    }

    /// Reads the first rows of some ranges, of the first one from `resume` on. All are read also after a miss, so that what they miss is fetched at
    /// once.
    pub fn read_ranges(
        &self,
        shard: &Shard,
        ranges: &Ranges,
        resume: Option<&[u8]>,
    ) -> Result<ReadPart, EngineError> {
        let mut part = ReadPart { passed: Vec::new(), ranges: 0, resume: None };
        let (mut left, mut missing) = (TURN, None);
        for (number, (start, end)) in ranges.iter().enumerate() {
            let start = resume.filter(|_| number == 0).unwrap_or(start);
            match self.read_range(shard, (start, end), &mut left, &mut part.passed) {
                Ok(resume) => part.resume = resume,
                Err(error @ EngineError::Table(TableError::NotCached { .. })) => missing = Some(error),
                Err(error) => return Err(error),
            }
            if part.resume.is_some() {
                break;
            }
            part.ranges += 1;
            if left.bytes == 0 || left.tombstones == 0 {
                break;
            }
        }
        missing.map_or(Ok(part), Err)
    }

    /// Adds the first rows of a range that pass. Returns where the range goes on, if the budget is spent before its end.
    fn read_range(
        &self,
        shard: &Shard,
        (start, end): (&[u8], &[u8]),
        budget: &mut Budget,
        passed: &mut Vec<(f32, Vec<u8>)>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut scan = shard.scan(&self.scan(start, end, *budget))?;
        let resume = loop {
            match scan.next()? {
                Step::Row(view) => {
                    if view.position >= REGULAR_START
                        && view.position < REGULAR_END
                        && let Some(similarity) = self.judge(shard, &view)?
                    {
                        passed.push((similarity, view.key.to_vec()));
                    }
                }
                Step::Exhausted => break scan.resume_bound()?,
                Step::End => break None,
            }
        };
        *budget = scan.budget_left();
        Ok(resume)
    }
}

/// A row that passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadRow {
    pub similarity: f32,
    /// The most that its vector has as a candidate, whether it lies in a memtable or in a file.
    pub as_candidate: f32,
}

/// What one turn has read of some ranges.
pub(super) struct ReadPart {
    /// The rows that pass, each with its similarity.
    pub passed: Vec<(f32, Vec<u8>)>,
    /// The ranges that were read to their ends.
    pub ranges: usize,
    /// Where the one behind these goes on, if it was begun.
    pub resume: Option<Vec<u8>>,
}
