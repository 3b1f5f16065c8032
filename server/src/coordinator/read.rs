//! SELECT on stored tables: from the rows of the owning shards to a page.

use std::rc::Rc;

use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus_engine::key::{self};
use helenus_engine::read::{Budget, RowView, ScanRequest, Step};
use helenus_engine::shard::{Attempt, MissingBlocks};
use helenus_engine::{Lookup, RowRequest};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Flow, ResultPage, SelectRun};
use helenus_query::schema::catalog::TableKind;
use helenus_query::schema::virtual_tables::{self, NodeState};
use helenus_query::stored_key::SourceRow;

use super::key_ranges::KeyRange;
use super::paxos::serial;
use super::replica::only_here;
use super::replicated_read::{self, ReplicatedRead};
use super::row_batch::{RowBatch, RowBatchRequest, read_row_batch};
use super::{Execution, Outcome, OwnedRequest, Request, virtual_read, virtual_state};
use crate::coordinator::prepared_read::{BLOCK_ROWS, PreparedRead, RangeEnd, mark_passed};
use crate::shard::context::ShardContext;

/// Bytes of rows that are read before other requests of the shard can run.
const TURN_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: usize = 1 << 20;
/// Attempts to answer in one turn before the answer is given over several.
const COLD_ATTEMPTS_MAX: usize = 16;

/// Executes a SELECT.
pub fn select(context: &Rc<ShardContext>, request: &Request<'_, SelectPlan>) -> Execution {
    let plan = request.plan();
    let consistency = request.options.consistency;
    if plan.table.kind == TableKind::Virtual {
        if virtual_state::needs_all_shards(&plan.table) {
            return Execution::Pending(Box::pin(select_virtual_later(context.clone(), request.to_owned())));
        }
        return Execution::Ready(select_virtual(context, request, &virtual_state::at_hand(context)));
    }
    context.metrics.reads.increment();
    if consistency.is_serial() && serial::is_replicated(context, &plan.table) {
        return Execution::Pending(Box::pin(serial::select(context.clone(), request.to_owned())));
    }
    let prepared = match PreparedRead::new(context, request) {
        Ok(prepared) => prepared,
        Err(error) => return Execution::Ready(Err(error)),
    };
    let later = |prepared| select_later(context.clone(), request.to_owned(), Some(prepared));
    if replicated_read::is_needed(context, plan, consistency, &prepared.ranges) {
        return Execution::Pending(Box::pin(later(prepared)));
    }
    match single_owner(context, &prepared.ranges) {
        Some(owner) if owner == context.index => {
            match context.shard.attempt(|| select_in_turn(context, request, &prepared)) {
                Ok(Attempt::Done(Some(page))) => Execution::Ready(Ok(Outcome::Rows(page))),
                Ok(Attempt::Done(None)) => Execution::Pending(Box::pin(later(prepared))),
                Ok(Attempt::Missing(missing)) => {
                    let cold = select_cold(context.clone(), request.to_owned(), Some(missing));
                    Execution::Pending(Box::pin(cold))
                }
                Err(error) if asks_others(context, plan, consistency, &error) => {
                    let (context, request) = (context.clone(), request.to_owned());
                    Execution::Pending(Box::pin(async move { select_of_others(&context, &request).await }))
                }
                Err(error) => Execution::Ready(Err(error)),
            }
        }
        Some(owner) => {
            let (context, request) = (context.clone(), request.to_owned());
            Execution::Pending(Box::pin(async move {
                context.run_on(owner, move |context| Box::pin(select_cold(context, request, None))).await?
            }))
        }
        None => Execution::Pending(Box::pin(later(prepared))),
    }
}

/// Whether other replicas are asked because of this error of the node's own rows.
fn asks_others(
    context: &ShardContext,
    plan: &SelectPlan,
    consistency: Consistency,
    error: &RequestError,
) -> bool {
    matches!(error, RequestError::Unreadable(_))
        && consistency != Consistency::NodeLocal
        && !only_here::is_only_here(&context.cluster_view(), &plan.table.keyspace)
}

/// The shard that can answer without others, if there is one.
fn single_owner(context: &ShardContext, ranges: &[KeyRange]) -> Option<usize> {
    if context.node.shard_count() == 1 {
        return Some(context.index);
    }
    let Some(first) = ranges.first() else { return Some(context.index) };
    first.owner.filter(|owner| ranges.iter().all(|range| range.owner == Some(*owner)))
}

/// Executes a SELECT on a virtual table whose rows need answers from other shards.
async fn select_virtual_later(
    context: Rc<ShardContext>,
    request: OwnedRequest<SelectPlan>,
) -> Result<Outcome> {
    let state = virtual_state::gather(&context, &request.statement.plan.table).await?;
    let values = request.values.borrow();
    select_virtual(&context, &request.with(&values), &state)
}

fn select_virtual(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    state: &NodeState,
) -> Result<Outcome> {
    let table = &request.plan().table;
    let prepared = PreparedRead::new(context, request)?;
    let run = prepared.run(request)?;
    if run.is_exhausted() {
        return run.page(false).map(Outcome::Rows);
    }
    let rows = virtual_tables::rows(table, &context.catalog(), &context.node.information, state);
    virtual_read::read(table, rows, &prepared.ranges, run).map(Outcome::Rows)
}

/// Answers in this turn. `None` if that is too much work for one turn.
fn select_in_turn(
    context: &Rc<ShardContext>,
    request: &Request<'_, SelectPlan>,
    prepared: &PreparedRead,
) -> Result<Option<ResultPage>> {
    let mut run = prepared.run(request)?;
    if run.is_exhausted() {
        return run.page(false).map(Some);
    }
    for range in &prepared.ranges {
        match read_local(context, request.plan(), &mut run, range, prepared.now_seconds, |_| {})? {
            RangeEnd::Complete => {}
            RangeEnd::Finished(more) => return run.page(more).map(Some),
            RangeEnd::BudgetSpent(_) => return Ok(None),
        }
    }
    run.finish().map(Some)
}

/// Answers in one turn, after the needed blocks were fetched. `missing`: the blocks that an attempt has missed. A read with too
/// much work for one turn, or too many blocks for memory, is answered over several turns.
async fn select_cold(
    context: Rc<ShardContext>,
    request: OwnedRequest<SelectPlan>,
    missing: Option<MissingBlocks>,
) -> Result<Outcome> {
    match select_in_cold_turn(&context, &request, missing).await {
        Ok(Some(page)) => Ok(Outcome::Rows(page)),
        Ok(None) => select_later(context, request, None).await,
        Err(error) => or_of_others(&context, &request, error).await,
    }
}

/// As [`select_in_turn`], with blocks that are fetched before. `missing`: see [`select_cold`].
async fn select_in_cold_turn(
    context: &Rc<ShardContext>,
    request: &OwnedRequest<SelectPlan>,
    mut missing: Option<MissingBlocks>,
) -> Result<Option<ResultPage>> {
    let values = request.values.borrow();
    let request = request.with(&values);
    let mut cold = context.shard.cold_read();
    for _ in 0..COLD_ATTEMPTS_MAX {
        if let Some(missing) = missing.take() {
            cold.fetch(missing).await?;
        }
        let prepared = PreparedRead::new(context, &request)?;
        let consistency = request.options.consistency;
        // A member may have joined the single node meanwhile.
        if replicated_read::is_needed(context, request.plan(), consistency, &prepared.ranges) {
            break;
        }
        match context.shard.attempt(|| select_in_turn(context, &request, &prepared))? {
            Attempt::Done(page) => return Ok(page),
            Attempt::Missing(blocks) => missing = Some(blocks),
        }
    }
    Ok(None)
}

/// Answers over several turns, from all shards that own a part of the ranges. `prepared`: the ranges, if they are known and of this turn.
async fn select_later(
    context: Rc<ShardContext>,
    request: OwnedRequest<SelectPlan>,
    prepared: Option<PreparedRead>,
) -> Result<Outcome> {
    match select_from(&context, &request, prepared, false).await {
        Err(error) => or_of_others(&context, &request, error).await,
        outcome => outcome,
    }
}

/// The outcome after a read of the node's own rows has failed. If the rows cannot be read, it is the outcome of the other
/// replicas.
async fn or_of_others(
    context: &Rc<ShardContext>,
    request: &OwnedRequest<SelectPlan>,
    error: RequestError,
) -> Result<Outcome> {
    if asks_others(context, &request.statement.plan, request.options.consistency, &error) {
        return select_of_others(context, request).await;
    }
    Err(error)
}

/// Asks the replicas as for any other level. This node fails to answer, and another one is asked instead.
async fn select_of_others(context: &Rc<ShardContext>, request: &OwnedRequest<SelectPlan>) -> Result<Outcome> {
    context.metrics.reads_of_others.increment();
    select_from(context, request, None, true).await
}

/// As [`select_later`], without a second way. `from_replicas`: the replicas are asked even if this node alone could answer.
async fn select_from(
    context: &Rc<ShardContext>,
    request: &OwnedRequest<SelectPlan>,
    prepared: Option<PreparedRead>,
    from_replicas: bool,
) -> Result<Outcome> {
    let values = request.values.borrow();
    let request = request.with(&values);
    let plan = request.plan();
    let prepared = match prepared {
        Some(prepared) => prepared,
        None => PreparedRead::new(context, &request)?,
    };
    let mut run = prepared.run(&request)?;
    let PreparedRead { ranges, now_seconds, .. } = prepared;
    if run.is_exhausted() {
        return Ok(Outcome::Rows(run.page(false)?));
    }
    let is_paged = request.options.page_rows.is_some();
    let consistency = request.options.consistency;
    let is_replicated = from_replicas || replicated_read::is_needed(context, plan, consistency, &ranges);
    let mut replicated =
        is_replicated.then(|| ReplicatedRead::new(context, plan, now_seconds, consistency, &ranges));
    let mut turns = 0_usize;
    for range in ranges {
        let mut rest = Some(range);
        while let Some(range) = rest.take() {
            let end = match range.owner {
                _ if let Some(replicated) = &mut replicated => replicated.read(&mut run, range).await?,
                Some(owner) if owner != context.index => {
                    read_remote(context, plan, &mut run, range, owner, now_seconds).await?
                }
                None if context.node.shard_count() > 1 => {
                    read_spread(context, plan, &mut run, range, now_seconds).await?
                }
                _ => read_local_cold(context, plan, &mut run, range, now_seconds).await?,
            };
            match end {
                RangeEnd::Complete => {}
                RangeEnd::Finished(more) => return Ok(Outcome::Rows(run.page(more)?)),
                RangeEnd::BudgetSpent(left) => {
                    turns += 1;
                    // A page that has done enough work ends early with a paging state. Answers that cannot be cut
                    // continue.
                    let spent = turns as u64 * TURN_BYTES >= 4 * context.node.config.max_page_bytes as u64;
                    if is_paged
                        && spent
                        && !run.has_open_group()
                        && plan.result_order.is_empty()
                        && mark_passed(&mut run, &left)
                    {
                        return Ok(Outcome::Rows(run.page(true)?));
                    }
                    tokio::task::yield_now().await;
                    rest = Some(left);
                }
            }
        }
    }
    Ok(Outcome::Rows(run.finish()?))
}

/// Reads a range of this shard. Where blocks must come from the disk, the run goes on behind the rows that it has consumed when they are
/// there.
async fn read_local_cold(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    mut range: KeyRange,
    now_seconds: u32,
) -> Result<RangeEnd> {
    let mut cold = context.shard.cold_read();
    loop {
        let mut rest = range.clone();
        let attempt = context.shard.attempt(|| {
            let reversed = range.reversed;
            read_local(context, plan, run, &range, now_seconds, |passed| {
                let bound = if reversed { &mut rest.end } else { &mut rest.start };
                bound.clear();
                match passed {
                    Passed::Row(key) => {
                        bound.extend_from_slice(key);
                        // Behind the row, in the direction of the read.
                        bound.extend_from_slice(if reversed { &[] } else { &[0] });
                    }
                    Passed::Partition(prefix) => {
                        bound.extend_from_slice(prefix);
                        bound.extend_from_slice(if reversed { &[] } else { key::PARTITION_END });
                    }
                }
            })
        });
        match attempt? {
            Attempt::Done(end) => return Ok(end),
            Attempt::Missing(missing) => cold.fetch(missing).await?,
        }
        range = rest;
        if range.start >= range.end {
            return Ok(RangeEnd::Complete);
        }
    }
}

/// The row or partition that the run has consumed last.
enum Passed<'a> {
    /// The row with this full key.
    Row(&'a [u8]),
    /// The partition with this prefix.
    Partition(&'a [u8]),
}

/// Reads a range of this shard and reports to `note` what the run has consumed.
fn read_local(
    context: &ShardContext,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    range: &KeyRange,
    now_seconds: u32,
    mut note: impl FnMut(Passed<'_>),
) -> Result<RangeEnd> {
    let table = plan.table.engine_id();
    if key::is_one_key(&range.start, &range.end) {
        let row = RowRequest { table, key: &range.start, columns: run.simple_columns(), now_seconds };
        match context.shard.look_up(&row, |view| run.row(&source_row(&view)))? {
            Lookup::Row(flow) => return Ok(end_after(flow?).unwrap_or(RangeEnd::Complete)),
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
        budget: Budget { bytes: TURN_BYTES, tombstones: context.node.config.max_page_tombstones as u64 },
    };
    let mut scan = match run.simple_columns() {
        Some(columns) => context.shard.scan_columns(&request, columns)?,
        None => context.shard.scan(&request)?,
    };
    loop {
        let flow = match scan.next()? {
            Step::Row(view) => {
                let flow = run.row(&source_row(&view))?;
                note(match flow {
                    Flow::SkipPartition => match prefix(view.key) {
                        Some(prefix) => Passed::Partition(prefix),
                        None => Passed::Row(view.key),
                    },
                    _ => Passed::Row(view.key),
                });
                flow
            }
            Step::Exhausted => {
                return Ok(match scan.resume_bound()? {
                    None => RangeEnd::Complete,
                    Some(bound) if range.reversed => {
                        RangeEnd::BudgetSpent(KeyRange { end: bound, ..range.clone() })
                    }
                    Some(bound) => RangeEnd::BudgetSpent(KeyRange { start: bound, ..range.clone() }),
                });
            }
            Step::End => return Ok(RangeEnd::Complete),
        };
        match end_after(flow) {
            Some(end) => return Ok(end),
            None if flow == Flow::SkipPartition => scan.skip_partition()?,
            None => {}
        }
    }
}

/// The partition prefix of a full key.
fn prefix(key: &[u8]) -> Option<&[u8]> {
    key::prefix_length(key).and_then(|length| key.get(..length))
}

fn source_row<'a>(view: &RowView<'a>) -> SourceRow<'a> {
    SourceRow { partition_key: view.partition_key, position: view.position, row: view.row }
}

/// How reading ends after a row, if it does.
fn end_after(flow: Flow) -> Option<RangeEnd> {
    match flow {
        Flow::Continue | Flow::SkipPartition => None,
        Flow::PageFull => Some(RangeEnd::Finished(true)),
        Flow::Done => Some(RangeEnd::Finished(false)),
    }
}

fn block_request(
    context: &ShardContext,
    plan: &SelectPlan,
    range: &KeyRange,
    now_seconds: u32,
    rows: usize,
) -> RowBatchRequest {
    RowBatchRequest {
        table: plan.table.engine_id(),
        start: range.start.clone(),
        end: range.end.clone(),
        reversed: range.reversed,
        now_seconds,
        max_rows: rows,
        max_bytes: BLOCK_BYTES,
        max_tombstones: context.node.config.max_page_tombstones as u64,
        first_of_partition: plan.distinct && plan.layout.shows_every_row(),
    }
}

async fn fetch(context: &Rc<ShardContext>, shard: usize, request: RowBatchRequest) -> Result<RowBatch> {
    if shard == context.index {
        return read_row_batch(context, &request).await;
    }
    let read = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, _> {
        Box::pin(async move { read_row_batch(&context, &request).await })
    };
    context.run_on(shard, read).await?
}

async fn read_remote(
    context: &Rc<ShardContext>,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    range: KeyRange,
    owner: usize,
    now_seconds: u32,
) -> Result<RangeEnd> {
    let request = block_request(context, plan, &range, now_seconds, run.wanted_rows().min(BLOCK_ROWS));
    let mut block = fetch(context, owner, request).await?;
    while let Some(row) = block.first() {
        if let Some(end) = end_after(run.row(&row.source()?)?) {
            return Ok(end);
        }
        block.take_first();
    }
    Ok(match block.resume {
        None => RangeEnd::Complete,
        Some(bound) if range.reversed => RangeEnd::BudgetSpent(KeyRange { end: bound, ..range }),
        Some(bound) => RangeEnd::BudgetSpent(KeyRange { start: bound, ..range }),
    })
}

/// Merges the rows of all shards in the order of their keys.
async fn read_spread(
    context: &Rc<ShardContext>,
    plan: &SelectPlan,
    run: &mut SelectRun<'_>,
    range: KeyRange,
    now_seconds: u32,
) -> Result<RangeEnd> {
    let rows = run.wanted_rows().min(BLOCK_ROWS);
    let shards = context.node.shard_count();
    let requests = (0..shards)
        .map(|shard| fetch(context, shard, block_request(context, plan, &range, now_seconds, rows)));
    let mut blocks = futures::future::try_join_all(requests).await?;
    let mut skip: Option<Vec<u8>> = None;
    loop {
        for (shard, block) in blocks.iter_mut().enumerate() {
            if !block.is_empty() {
                continue;
            }
            if let Some(start) = block.resume.take() {
                let rest = KeyRange { start, ..range.clone() };
                // The batch has deleted rows only: the turn ends so that other requests can run.
                *block =
                    fetch(context, shard, block_request(context, plan, &rest, now_seconds, rows)).await?;
                if block.is_empty() && block.resume.is_some() {
                    let Some(start) = blocks.iter().filter_map(next_key).min() else {
                        unreachable!("a shard that has stopped says where to go on")
                    };
                    return Ok(RangeEnd::BudgetSpent(KeyRange { start, ..range }));
                }
            }
        }
        let first = blocks
            .iter()
            .enumerate()
            .filter_map(|(shard, block)| Some((shard, block.first()?)))
            .min_by(|a, b| a.1.key.cmp(b.1.key));
        let Some((shard, row)) = first else { return Ok(RangeEnd::Complete) };
        if skip.as_ref().is_none_or(|prefix| !row.key.starts_with(prefix)) {
            let flow = run.row(&row.source()?)?;
            if let Some(end) = end_after(flow) {
                return Ok(end);
            }
            if flow == Flow::SkipPartition {
                skip = prefix(row.key).map(<[u8]>::to_vec);
            }
        }
        blocks[shard].take_first();
    }
}

fn next_key(block: &RowBatch) -> Option<Vec<u8>> {
    block.first().map(|row| row.key.to_vec()).or_else(|| block.resume.clone())
}
