//! SELECT … ORDER BY … ANN OF: the replicas are asked for the nearest rows, what they name is read at the level, and the SELECT puts it in order.
//!
//! A replica may lack the newest version of a row. So more rows are asked for until the last one of the result is at least as near as any that a
//! replica has not named, or until they have no more.

use std::collections::BTreeSet;
use std::rc::Rc;

use futures::future::try_join_all;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::SelectRun;

use super::found_ranges::{FoundRange, FoundRanges};
use super::key_ranges::KeyRange;
use super::prepared_read::{PreparedRead, RangeEnd};
use super::replica::nearest::find_nearest;
use super::replica::read::{RangeRead, read_range_part};
use super::replicated_read::take;
use super::{Outcome, OwnedRequest};
use crate::shard::context::ShardContext;

/// Most rows that are read concurrently.
const ROWS_AT_ONCE: usize = 64;
/// How many times as many rows are asked for if the first are too few.
const MORE: usize = 4;
/// The most rows that one replica is asked for.
const ROWS_ASKED_MAX: usize = 65_536;

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
    let mut run = prepared.run(&request)?;
    let PreparedRead { ranges, now_seconds, .. } = prepared;
    let mut ranges: Vec<_> = ranges
        .into_iter()
        .filter(|range| !range.is_static_row() && range.start < range.end)
        .map(|range| (range.start, range.end))
        .collect();
    ranges.sort_unstable();
    let (Some(nearest), Some((limit, _))) = (&plan.nearest, run.nearest()) else {
        return Err(RequestError::Server("a SELECT without a vector to compare with".to_owned()));
    };
    let mut read_keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut wanted = limit;
    let deadline = RangeRead::deadline_from_now(&context, false, request.options.timeout);
    while let Some(search) = nearest.search(&plan.table, &request.bindings(), wanted)? {
        let read = RangeRead {
            table: &plan.table,
            start: Vec::new(),
            end: Vec::new(),
            reversed: false,
            now_seconds,
            live_rows: 1,
            consistency,
            deadline,
        };
        let found = find_nearest(&context, &read, &ranges, &search).await?;
        let mut keys: Vec<Vec<u8>> = found.keys.into_iter().filter(|key| !read_keys.contains(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        read_rows(&context, plan, &mut run, &read, &keys).await?;
        read_keys.extend(keys);
        let worst = run.nearest().and_then(|(_, worst)| worst);
        let is_certain = found.bound.is_none_or(|bound| worst.is_some_and(|worst| worst >= bound));
        if is_certain || wanted >= ROWS_ASKED_MAX {
            break;
        }
        wanted = (wanted * MORE).min(ROWS_ASKED_MAX);
    }
    Ok(Outcome::Rows(run.finish()?))
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
                let RangeEnd::BudgetSpent(rest) = take(context, run, &part, range, &mut None).await? else {
                    break;
                };
                read.start = rest.start;
                part = read_range_part(context, &read).await?;
            }
        }
    }
    Ok(())
}
