//! Reads ranges of rows of the shard of this thread.

use helenus_engine::key;
use helenus_engine::read::{Budget, RowView, ScanRequest, Step};
use helenus_engine::shard::{Attempt, ReadProgress};
use helenus_engine::{Lookup, RowRequest};
use helenus_query::error::Result;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Flow, Met, PartitionHead, SelectRun};
use helenus_query::stored_key::SourceRow;

use crate::coordinator::key_ranges::KeyRange;
use crate::coordinator::local_work::LocalWork;
use crate::coordinator::prepared_read::RangeEnd;
use crate::coordinator::read_thresholds;
use crate::shard::context::ShardContext;
use crate::shard::receipt::{self, RowMeter};

/// Bytes of rows that are read before other requests of the shard can run …
const TURN_BYTES: u64 = 1 << 20;
/// … while several roles share it: about a tenth of a millisecond.
const SHARED_TURN_BYTES: u64 = 1 << 16;

/// Reads a range of this shard. Where blocks must come from the disk, the run goes on behind the rows that it has consumed when they are
/// there.
pub async fn read_local_cold(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    mut range: KeyRange,
    now_seconds: u32,
) -> Result<RangeEnd> {
    let mut cold = context.shard.cold_read();
    let mut budget = turn_budget(context);
    let rows_max = run.wanted_rows();
    let bytes_max = budget.bytes;
    loop {
        let mut rest = range.clone();
        let attempt = context.shard.attempt(|| {
            read_local(context, plan, run, &range, now_seconds, &mut budget, |passed| passed.cut(&mut rest))
        });
        match attempt? {
            Attempt::Done(end) => return Ok(end),
            Attempt::Missing(missing) => {
                let progress = ReadProgress {
                    has_moved: rest.start != range.start || rest.end != range.end,
                    rows: rows_max.saturating_sub(run.wanted_rows()),
                    rows_max,
                    bytes: bytes_max.saturating_sub(budget.bytes),
                    bytes_max,
                };
                cold.fetch_ahead(missing, progress).await?;
            }
        }
        range = rest;
        if range.start >= range.end {
            return Ok(RangeEnd::Complete);
        }
        // What the attempt has done behind the last row is done again.
        if budget.bytes == 0 || budget.tombstones == 0 {
            return Ok(RangeEnd::BudgetSpent(range));
        }
    }
}

/// The work of one turn.
pub fn turn_budget(context: &ShardContext) -> Budget {
    Budget { bytes: turn_bytes(context), tombstones: context.node.config.max_page_tombstones as u64 }
}

/// Bytes of rows that are read in one turn.
pub fn turn_bytes(context: &ShardContext) -> u64 {
    if context.shares.are_shared() { SHARED_TURN_BYTES } else { TURN_BYTES }
}

/// The row or partition that the run has consumed last.
pub enum Passed<'a> {
    /// The row with this full key.
    Row(&'a [u8]),
    /// The partition with this prefix.
    Partition(&'a [u8]),
}

impl Passed<'_> {
    /// What is behind this in a range.
    fn rest_of(&self, range: &KeyRange) -> KeyRange {
        let mut rest = range.clone();
        self.cut(&mut rest);
        rest
    }

    /// Leaves of a range what is behind this, in the direction of the read.
    fn cut(&self, range: &mut KeyRange) {
        let reversed = range.reversed;
        let bound = if reversed { &mut range.end } else { &mut range.start };
        bound.clear();
        match self {
            Passed::Row(key) => {
                bound.extend_from_slice(key);
                bound.extend_from_slice(if reversed { &[] } else { &[0] });
            }
            Passed::Partition(prefix) => {
                bound.extend_from_slice(prefix);
                bound.extend_from_slice(if reversed { &[] } else { key::PARTITION_END });
            }
        }
    }
}

/// Reads a range of this shard and reports to `note` what the run has consumed. `budget`: the work of the turn, of
/// which what is left at the last row stays.
pub fn read_local(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    range: &KeyRange,
    now_seconds: u32,
    budget: &mut Budget,
    mut note: impl FnMut(Passed<'_>),
) -> Result<RangeEnd> {
    let (whole, started) = (*budget, context.clock.monotonic());
    let mut rows = 0;
    let counted = |passed: Passed<'_>| {
        rows += 1;
        note(passed);
    };
    let end = read_range(context, plan, run, range, now_seconds, budget, counted);
    let met = (rows, whole.tombstones.saturating_sub(budget.tombstones));
    run.note_met(Met { tombstones: met.1, bytes: whole.bytes.saturating_sub(budget.bytes) });
    // Also where blocks are missing: the read goes on behind the rows that were passed.
    receipt::count_tombstones(met.1);
    let end = end?;
    LocalWork::note_read(context, plan.table.engine_id(), (&range.start, &range.end), started, met);
    Ok(end)
}

fn read_range(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    range: &KeyRange,
    now_seconds: u32,
    budget: &mut Budget,
    mut note: impl FnMut(Passed<'_>),
) -> Result<RangeEnd> {
    let whole = *budget;
    let table = plan.table.engine_id();
    let (mut meter, columns) = (RowMeter::begin(), run.simple_columns());
    if key::is_one_key(&range.start, &range.end) && !plan.bypasses_cache {
        let row = RowRequest { table, key: &range.start, columns, now_seconds };
        let pass = |view: RowView<'_>| {
            meter.add(view.partition_key, view.position, view.row, columns);
            run.note_met(read_thresholds::met_by_row(context, view.row, now_seconds));
            run.row(&source_row(&view))
        };
        match context.shard.look_up(&row, pass)? {
            Lookup::Row(flow) => {
                note(Passed::Row(&range.start));
                return Ok(end_after(flow?).unwrap_or(RangeEnd::Complete));
            }
            Lookup::Absent => return Ok(RangeEnd::Complete),
            Lookup::Unmerged => {}
        }
    }
    let request = ScanRequest {
        table,
        start: &range.start,
        end: &range.end,
        reversed: range.reversed,
        now_seconds,
        budget: whole,
    };
    let head_rows = run.partition_head().and_then(PartitionHead::short_rows);
    let mut scan = match (head_rows, columns) {
        (_, columns) if plan.bypasses_cache => context.shard.scan_past_cache(&request, columns)?,
        (Some(rows), columns) => context.shard.scan_heads(&request, columns, rows)?,
        (None, Some(columns)) => context.shard.scan_columns(&request, columns)?,
        (None, None) => context.shard.scan(&request)?,
    };
    let mut functions = context.function_turn(plan);
    loop {
        let flow = match scan.next()? {
            Step::Row(view) => {
                meter.add(view.partition_key, view.position, view.row, columns);
                let flow = run.row(&source_row(&view))?;
                let passed = match flow {
                    Flow::SkipPartition => match prefix(view.key) {
                        Some(prefix) => Passed::Partition(prefix),
                        None => Passed::Row(view.key),
                    },
                    _ => Passed::Row(view.key),
                };
                let is_turn_over = functions.is_over() && end_after(flow).is_none();
                let rest = is_turn_over.then(|| passed.rest_of(range));
                note(passed);
                *budget = left(whole, scan.used());
                if let Some(rest) = rest {
                    return Ok(RangeEnd::BudgetSpent(rest));
                }
                flow
            }
            Step::Exhausted => {
                *budget = left(whole, scan.used());
                return Ok(match scan.resume_bound()? {
                    None => RangeEnd::Complete,
                    Some(bound) if range.reversed => {
                        RangeEnd::BudgetSpent(KeyRange { end: bound, ..range.clone() })
                    }
                    Some(bound) => RangeEnd::BudgetSpent(KeyRange { start: bound, ..range.clone() }),
                });
            }
            Step::End => {
                // Rows that are deleted are work, too.
                *budget = left(whole, scan.used());
                return Ok(RangeEnd::Complete);
            }
        };
        match end_after(flow) {
            Some(end) => return Ok(end),
            None if flow == Flow::SkipPartition => scan.skip_partition()?,
            None => {}
        }
    }
}

/// What is left of the work of a turn.
fn left(whole: Budget, used: Budget) -> Budget {
    Budget {
        bytes: whole.bytes.saturating_sub(used.bytes),
        tombstones: whole.tombstones.saturating_sub(used.tombstones),
    }
}

/// The partition prefix of a full key.
pub fn prefix(key: &[u8]) -> Option<&[u8]> {
    key::prefix_length(key).and_then(|length| key.get(..length))
}

fn source_row<'a>(view: &RowView<'a>) -> SourceRow<'a> {
    SourceRow { partition_key: view.partition_key, position: view.position, row: view.row }
}

/// How reading ends after a row, if it does.
pub fn end_after(flow: Flow) -> Option<RangeEnd> {
    match flow {
        Flow::Continue | Flow::SkipPartition => None,
        Flow::PageFull => Some(RangeEnd::Finished(true)),
        Flow::Done => Some(RangeEnd::Finished(false)),
    }
}
