//! SELECT on tables whose rows must be requested from several nodes: parts of ranges are read at the consistency
//! level and passed through the SELECT.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::future::try_join_all;
use helenus_engine::key::{self, PARTITION_END};
use helenus_query::error::Result;
use helenus_query::plan::index_search::BoundSearch;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Flow, SelectRun};
use helenus_query::stored_key::SourceRow;

use super::found_ranges::{FOUND_KEYS_MAX, FoundRange, FoundRanges};
use super::key_ranges::KeyRange;
use super::replica::answer::token_of;
use super::replica::read::{RangePart, RangeRead, needs_others, read_range_part, split};
use super::replica::search::find_range_part;
use crate::coordinator::prepared_read::{BLOCK_ROWS, RangeEnd};
use crate::shard::context::ShardContext;

/// Most rows that are found and read concurrently.
const ROWS_AT_ONCE: usize = 64;
/// Most parts of the ring that are read concurrently.
const PARTS_MAX: usize = 16;

/// Whether other nodes must be asked for these ranges at this level.
pub fn is_needed(context: &ShardContext, plan: &SelectPlan, level: Consistency, ranges: &[KeyRange]) -> bool {
    needs_others(context, &plan.table, level, || {
        ranges.iter().map(|range| token_of(&range.start, &range.end)).collect()
    })
}

/// Reads ranges for one page.
pub struct ReplicatedRead<'a> {
    context: &'a Rc<ShardContext>,
    plan: &'a SelectPlan,
    now_seconds: u32,
    consistency: Consistency,
    /// Deadline of the whole page. `None`: each range part has one of its own, by the settings.
    deadline: Option<Duration>,
    /// Parts of the ring to read concurrently next time. It grows while the parts do not fill the page.
    parts: usize,
    /// Only rows that this search finds are read.
    search: Option<Rc<BoundSearch>>,
    /// Keys to look for at least, next time.
    keys_max: usize,
}

impl<'a> ReplicatedRead<'a> {
    pub fn new(
        context: &'a Rc<ShardContext>,
        plan: &'a SelectPlan,
        now_seconds: u32,
        consistency: Consistency,
        search: Option<Rc<BoundSearch>>,
        deadline: Option<Duration>,
    ) -> Self {
        Self { context, plan, now_seconds, consistency, deadline, parts: 1, search, keys_max: 1 }
    }

    /// Passes the first rows of a range to the run.
    pub(super) async fn read(&mut self, run: &mut SelectRun<'_>, range: KeyRange) -> Result<RangeEnd> {
        let is_partition = token_of(&range.start, &range.end).is_some();
        let whole = RangeRead {
            table: &self.plan.table,
            start: range.start.clone(),
            end: range.end.clone(),
            reversed: range.reversed,
            now_seconds: self.now_seconds,
            live_rows: run.wanted_rows().min(BLOCK_ROWS) as u64,
            consistency: self.consistency,
            deadline: self.deadline_of_part(is_partition),
            bypasses_cache: self.plan.bypasses_cache,
        };
        if let Some(search) = self.search.clone() {
            return self.read_found(run, range, whole, &search).await;
        }
        if is_partition || range.reversed || self.parts == 1 {
            self.parts += 1;
            let piece = read_range_part(self.context, &whole).await?;
            return take(self.context, self.plan, run, &piece, range, &mut None).await;
        }
        let parts = split(self.context, &whole, self.parts)?;
        self.parts = (self.parts * 2).min(PARTS_MAX);
        let reads: Vec<RangeRead<'_>> = parts
            .iter()
            .map(|(start, end)| RangeRead { start: start.clone(), end: end.clone(), ..whole.clone() })
            .collect();
        let pieces =
            futures::future::try_join_all(reads.iter().map(|read| read_range_part(self.context, read)));
        let pieces = pieces.await?;
        let mut skip = None;
        for (piece, (start, end)) in pieces.iter().zip(parts) {
            let is_last = end == range.end;
            let part = KeyRange { start, end: end.clone(), ..range.clone() };
            match take(self.context, self.plan, run, piece, part, &mut skip).await? {
                RangeEnd::Complete if is_last => return Ok(RangeEnd::Complete),
                RangeEnd::Complete => {}
                // The rows read behind this bound are read again.
                RangeEnd::BudgetSpent(left) => {
                    return Ok(RangeEnd::BudgetSpent(KeyRange { end: range.end, ..left }));
                }
                RangeEnd::Finished(more) => return Ok(RangeEnd::Finished(more)),
            }
            if is_last {
                return Ok(RangeEnd::Complete);
            }
        }
        let start = reads.last().map_or(range.start, |read| read.end.clone());
        Ok(RangeEnd::BudgetSpent(KeyRange { start, ..range }))
    }
}

impl ReplicatedRead<'_> {
    /// The deadline of a part of a read: see [`ReplicatedRead::deadline`].
    fn deadline_of_part(&self, is_partition: bool) -> Duration {
        self.deadline.unwrap_or_else(|| RangeRead::deadline_from_now(self.context, is_partition))
    }

    /// Passes the first rows of a range that a search finds to the run: finds keys at the level, and reads what they name at the level.
    async fn read_found(
        &mut self,
        run: &mut SelectRun<'_>,
        range: KeyRange,
        whole: RangeRead<'_>,
        search: &BoundSearch,
    ) -> Result<RangeEnd> {
        let wanted = run.wanted_result_rows().clamp(1, FOUND_KEYS_MAX);
        // Where few of the rows that are found pass the filters, more are looked for at a time.
        let keys_max = wanted.max(self.keys_max).min(FOUND_KEYS_MAX);
        self.keys_max = keys_max * 4;
        let whole = RangeRead { live_rows: run.wanted_result_rows().min(BLOCK_ROWS) as u64, ..whole };
        let parts = if token_of(&range.start, &range.end).is_some() {
            vec![(range.start.clone(), range.end.clone())]
        } else {
            split(self.context, &whole, self.parts)?
        };
        self.parts = (self.parts * 2).min(PARTS_MAX);
        let of_part = |(start, end): (Vec<u8>, Vec<u8>)| RangeRead { start, end, ..whole.clone() };
        let reads: Vec<RangeRead<'_>> = parts.into_iter().map(of_part).collect();
        let searches = reads.iter().map(|read| find_range_part(self.context, read, search, keys_max));
        let (mut keys, mut resume) = (Vec::new(), None);
        for (found, read) in try_join_all(searches).await?.into_iter().zip(&reads) {
            keys.extend(found.keys);
            resume = found.resume;
            if resume.is_some() {
                // What was found behind it is found again.
                break;
            }
            resume = (read.end < range.end).then(|| read.end.clone());
        }
        let mut ranges = FoundRanges::new(self.plan.reads_static);
        let mut pieces = Vec::new();
        for key in &keys {
            let FoundRange { static_row, rows } = ranges.of(key, &range.start, &range.end)?;
            pieces.extend(static_row.into_iter().chain([rows]));
        }
        let is_one = |(start, end): &(Vec<u8>, Vec<u8>)| key::is_one_key(start, end);
        let mut skip: Option<Vec<u8>> = None;
        let mut pieces = pieces.as_slice();
        while let Some(first) = pieces.first() {
            // Single rows are read side by side. A partition may be large.
            let together = if is_one(first) {
                pieces.iter().take(ROWS_AT_ONCE).take_while(|piece| is_one(piece)).count()
            } else {
                1
            };
            let (now, later) = pieces.split_at(together);
            pieces = later;
            let is_skipped = |start: &[u8]| skip.as_ref().is_some_and(|prefix| start.starts_with(prefix));
            let deadline = self.deadline_of_part(token_of(&whole.start, &whole.end).is_some());
            let reads: Vec<RangeRead<'_>> = now
                .iter()
                .filter(|(start, _)| !is_skipped(start))
                .map(|piece| RangeRead { deadline, ..of_part(piece.clone()) })
                .collect();
            let read = reads.iter().map(|read| read_range_part(self.context, read));
            for (piece, read) in try_join_all(read).await?.iter().zip(&reads) {
                let part = KeyRange { start: read.start.clone(), end: read.end.clone(), ..range.clone() };
                match take(self.context, self.plan, run, piece, part, &mut skip).await? {
                    RangeEnd::Complete => {}
                    // The search goes on within the partition.
                    RangeEnd::BudgetSpent(left) => {
                        return Ok(RangeEnd::BudgetSpent(KeyRange { end: range.end, ..left }));
                    }
                    RangeEnd::Finished(more) => return Ok(RangeEnd::Finished(more)),
                }
            }
        }
        // No more rows of a skipped partition are looked for.
        let resume = resume.map(|resume| match &skip {
            Some(prefix) if resume.starts_with(prefix) => [prefix, PARTITION_END].concat(),
            _ => resume,
        });
        Ok(resume.map_or(RangeEnd::Complete, |start| RangeEnd::BudgetSpent(KeyRange { start, ..range })))
    }
}

/// Passes the rows of a range part to the run. `skip`: the prefix of a partition of which no more rows are wanted.
pub(super) async fn take(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    piece: &RangePart,
    range: KeyRange,
    skip: &mut Option<Vec<u8>>,
) -> Result<RangeEnd> {
    run.note_met(piece.met);
    let mut functions = context.function_turn(plan);
    for row in piece.rows.iter() {
        if functions.is_over() {
            tokio::task::yield_now().await;
        }
        if skip.as_deref() == Some(row.prefix) {
            continue;
        }
        let source = SourceRow { partition_key: row.partition_key(), position: row.position, row: row.row };
        match run.row(&source)? {
            Flow::Continue => {}
            Flow::SkipPartition => *skip = Some(row.prefix.to_vec()),
            Flow::PageFull => return Ok(RangeEnd::Finished(true)),
            Flow::Done => return Ok(RangeEnd::Finished(false)),
        }
    }
    let Some(bound) = &piece.resume else { return Ok(RangeEnd::Complete) };
    let mut bound = bound.clone();
    if let Some(prefix) = skip.as_ref().filter(|prefix| bound.starts_with(prefix)) {
        if range.reversed {
            bound.clone_from(prefix);
        } else {
            bound = [prefix, PARTITION_END].concat();
        }
    }
    let is_done = if range.reversed { bound <= range.start } else { bound >= range.end };
    Ok(match (is_done, range.reversed) {
        (true, _) => RangeEnd::Complete,
        (false, true) => RangeEnd::BudgetSpent(KeyRange { end: bound, ..range }),
        (false, false) => RangeEnd::BudgetSpent(KeyRange { start: bound, ..range }),
    })
}
