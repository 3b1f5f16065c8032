//! SELECT … ORDER BY … ANN OF: the replicas are asked for the nearest rows, what they name is read at the level, and the SELECT puts it in order.
//!
//! A replica may lack the newest version of a row, and does not decide restrictions on columns that other replicas may have. So more rows are asked for
//! until the last one of the result is at least as near as any that a replica has not named, or until they have no more. If that takes too many rows,
//! all rows are read that other indexes find, or all there are, as without an index of vectors.
//!
//! Invariant: the result lacks no row that belongs to it at the level.

use std::collections::BTreeSet;
use std::rc::Rc;

use futures::future::try_join_all;
use helenus_engine::shard::SearchWorth;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::index_search::BoundSearch;
use helenus_query::plan::nearest::BoundNearest;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::SelectRun;

use super::found_ranges::{FoundRange, FoundRanges};
use super::key_ranges::{KeyRange, KeyRanges};
use super::prepared_read::{PreparedRead, RangeEnd};
use super::replica::nearest::find_nearest;
use super::replica::nearest_answer::ROWS_MAX;
use super::replica::read::{RangeRead, level_demand, read_range_part};
use super::replica::search::possible_searches;
use super::replicated_read::{ReplicatedRead, take};
use super::{Outcome, OwnedRequest, table_rate_limits};
use crate::shard::context::ShardContext;
use crate::shard::{receipt, trace};

/// Most rows that are read concurrently.
const ROWS_AT_ONCE: usize = 64;
/// How many times as many rows are asked for if the first are too few.
const MORE: usize = 4;
/// Where other indexes find few of the rows of the table, the replicas are asked for at most this many rows, or this many times as many as are wanted.
const ROWS_BEFORE_SEARCH: usize = 2_048;
const ROWS_BEFORE_SEARCH_FACTOR: usize = 8;

/// Executes such a SELECT.
pub async fn select(context: Rc<ShardContext>, request: OwnedRequest<SelectPlan>) -> Result<Outcome> {
    let values = request.values.borrow();
    let request = request.with(&values);
    let (plan, consistency) = (request.plan(), request.options.consistency);
    if consistency.is_serial() {
        return Err(RequestError::invalid(format!(
            "Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {} was used.",
            consistency.name()
        )));
    }
    let prepared = PreparedRead::new(&context, &request)?;
    table_rate_limits::admit_read(&context, &request, &prepared.ranges)?;
    let mut run = prepared.run(&request)?;
    let Some(nearest) = &plan.nearest else {
        return Err(without_vector());
    };
    let Some(search) = nearest.bind(&plan.table, &request.bindings())? else {
        return Ok(Outcome::Rows(run.finish()?));
    };
    let read = RangeRead {
        table: &plan.table,
        start: Vec::new(),
        end: Vec::new(),
        reversed: false,
        now_seconds: prepared.now_seconds,
        live_rows: 1,
        consistency,
        deadline: request.options.deadline_or(&context, context.node.config.range_request_timeout_ms),
        bypasses_cache: plan.bypasses_cache,
    };
    let narrow = narrow(&context, &read, search.restrictions())?;
    let (limit, _) = nearest_of(&mut run)?;
    let rows_max = if narrow.is_some() {
        ROWS_BEFORE_SEARCH.max(limit.saturating_mul(ROWS_BEFORE_SEARCH_FACTOR)).min(ROWS_MAX)
    } else {
        ROWS_MAX
    };
    if !read_found(&context, plan, &mut run, &read, &search, &prepared.ranges, rows_max).await? {
        trace::note(&context, || "Reading all rows: too few of the nearest belong to the result".to_owned());
        run = prepared.run(&request)?;
        read_all(&context, plan, &mut run, &read, narrow, prepared.ranges).await?;
    }
    Ok(Outcome::Rows(run.finish()?))
}

fn without_vector() -> RequestError {
    RequestError::Server("a SELECT without a vector to compare with".to_owned())
}

/// The rows that a search wants, and the least similarity among them, if there are as many so far.
fn nearest_of(run: &mut SelectRun<'_>) -> Result<(usize, Option<f32>)> {
    run.nearest().ok_or_else(without_vector)
}

/// The restrictions that other indexes decide, if they find few of the rows of the table.
fn narrow(
    context: &ShardContext,
    read: &RangeRead<'_>,
    restrictions: Option<&BoundSearch>,
) -> Result<Option<Rc<BoundSearch>>> {
    let demand = level_demand(context, &read.table.keyspace, read.consistency);
    let (Some(restrictions), Some(demand)) = (restrictions, demand) else { return Ok(None) };
    let table = read.table.engine_id();
    let possible = possible_searches(context, &demand, restrictions);
    let cheapest = context.shard.cheapest_search(table, possible)?;
    let is_narrow = context.shard.judge_search(table, &cheapest)? == SearchWorth::Narrow;
    Ok(is_narrow.then(|| Rc::new(restrictions.clone())))
}

/// Reads what the replicas find until the result is certain. Returns false if that would take more than `rows_max` rows of one of them.
async fn read_found(
    context: &Rc<ShardContext>,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    read: &RangeRead<'_>,
    search: &BoundNearest,
    ranges: &[KeyRange],
    rows_max: usize,
) -> Result<bool> {
    let (limit, _) = nearest_of(run)?;
    let mut wanted = limit.max(1);
    let mut ranges: Vec<_> = ranges
        .iter()
        .filter(|range| !range.is_static_row() && range.start < range.end)
        .map(|range| (range.start.clone(), range.end.clone()))
        .collect();
    ranges.sort_unstable();
    let mut read_keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    loop {
        let found = find_nearest(context, read, &ranges, search, wanted).await?;
        let mut keys: Vec<Vec<u8>> = found.keys.into_iter().filter(|key| !read_keys.contains(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        read_rows(context, plan, run, read, &keys).await?;
        read_keys.extend(keys);
        receipt::check()?;
        let (_, worst) = nearest_of(run)?;
        if found.bound.is_none_or(|bound| worst.is_some_and(|worst| worst >= bound)) {
            return Ok(true);
        }
        if wanted >= rows_max || found.is_cut {
            return Ok(false);
        }
        wanted = wanted.saturating_mul(MORE).min(rows_max);
    }
}

/// Reads all rows of the ranges, or those that a search by other indexes finds. `read`: see [`find_nearest`].
async fn read_all(
    context: &Rc<ShardContext>,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    read: &RangeRead<'_>,
    search: Option<Rc<BoundSearch>>,
    ranges: KeyRanges,
) -> Result<()> {
    let searches = search.is_some();
    let mut replicated =
        ReplicatedRead::new(context, plan, read.now_seconds, read.consistency, search, Some(read.deadline));
    for range in ranges {
        // With a search it comes with the rows that are found.
        if searches && range.is_static_row() {
            continue;
        }
        let mut rest = Some(range);
        while let Some(range) = rest.take() {
            match replicated.read(run, range).await? {
                RangeEnd::Complete => {}
                RangeEnd::BudgetSpent(left) => rest = Some(left),
                RangeEnd::Finished(_) => return Ok(()),
            }
            receipt::check()?;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Reads rows at the level and passes them to the run.
async fn read_rows(
    context: &Rc<ShardContext>,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    read: &RangeRead<'_>,
    keys: &[Vec<u8>],
) -> Result<()> {
    let mut ranges = FoundRanges::new(plan.reads_static);
    let mut pieces = Vec::new();
    for key in keys {
        let FoundRange { static_row, rows } = ranges.of(key, &[], &[u8::MAX; 9])?;
        pieces.extend(static_row.into_iter().chain([rows]));
    }
    for now in pieces.chunks(ROWS_AT_ONCE) {
        let reads: Vec<RangeRead<'_>> = now
            .iter()
            .map(|(start, end)| RangeRead { start: start.clone(), end: end.clone(), ..read.clone() })
            .collect();
        let parts = try_join_all(reads.iter().map(|read| read_range_part(context, read))).await?;
        for (mut part, mut read) in parts.into_iter().zip(reads) {
            loop {
                let range = KeyRange {
                    start: read.start.clone(),
                    end: read.end.clone(),
                    reversed: false,
                    owner: None,
                };
                let RangeEnd::BudgetSpent(rest) = take(context, plan, run, &part, range, &mut None).await?
                else {
                    break;
                };
                read.start = rest.start;
                part = read_range_part(context, &read).await?;
            }
        }
    }
    Ok(())
}
