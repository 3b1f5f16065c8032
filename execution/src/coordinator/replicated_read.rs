//! SELECT on tables whose rows must be requested from several nodes: parts of ranges are read at the consistency
//! level and passed through the SELECT.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_engine::key::PARTITION_END;
use helenus_query::error::Result;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Flow, SelectRun};
use helenus_query::stored_key::SourceRow;

use super::key_ranges::KeyRange;
use super::replica::answer::token_of;
use super::replica::read::{RangePart, RangeRead, needs_others, read_range_part, split};
use crate::coordinator::prepared_read::{BLOCK_ROWS, RangeEnd};
use crate::shard::context::ShardContext;

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
    /// Deadline of the whole page. `None`: the answer is computed from all rows (aggregates, GROUP BY), which may
    /// take long, so each range part has a deadline of its own.
    deadline: Option<Duration>,
    /// Parts of the ring to read concurrently next time. It grows while the parts do not fill the page.
    parts: usize,
}

impl<'a> ReplicatedRead<'a> {
    pub fn new(
        context: &'a Rc<ShardContext>,
        plan: &'a SelectPlan,
        now_seconds: u32,
        consistency: Consistency,
        ranges: &[KeyRange],
    ) -> Self {
        let reads_partitions = ranges.iter().all(|range| token_of(&range.start, &range.end).is_some());
        let deadline = (!plan.is_grouped()).then(|| RangeRead::deadline_from_now(context, reads_partitions));
        Self { context, plan, now_seconds, consistency, deadline, parts: 1 }
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
            deadline: self
                .deadline
                .unwrap_or_else(|| RangeRead::deadline_from_now(self.context, is_partition)),
        };
        if is_partition || range.reversed || self.parts == 1 {
            self.parts += 1;
            let piece = read_range_part(self.context, &whole).await?;
            return take(run, &piece, range, &mut None);
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
            match take(run, piece, part, &mut skip)? {
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

/// Passes the rows of a range part to the run. `skip`: the prefix of a partition of which no more rows are wanted.
fn take(
    run: &mut SelectRun<'_>,
    piece: &RangePart,
    range: KeyRange,
    skip: &mut Option<Vec<u8>>,
) -> Result<RangeEnd> {
    for row in piece.rows.iter() {
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
