//! SELECT on stored tables: from the rows of the owning shards to a page.

mod other_shards;
mod own_shard;

use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use helenus_engine::shard::{Attempt, MissingBlocks, SearchWorth};
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError, Result};
use helenus_query::plan::index_search::BoundSearch;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::ResultPage;
use helenus_query::schema::catalog::TableKind;
use helenus_query::schema::virtual_tables::{self, Row};

use self::other_shards::SpreadRead;
pub use self::own_shard::turn_budget;
use self::own_shard::{read_local, read_local_cold, turn_bytes};
use super::key_ranges::KeyRange;
use super::paxos::serial;
use super::replica::answer::token_of;
use super::replica::only_here;
use super::replica::read::{RangeRead, level_demand};
use super::replica::search::possible_searches;
use super::replicated_read::{self, ReplicatedRead};
use super::virtual_state::NodeReports;
use super::{
    Execution, Outcome, OwnedRequest, Request, nearest, read_thresholds, table_rate_limits, virtual_read,
    virtual_state,
};
use crate::coordinator::change_feed::kept;
use crate::coordinator::prepared_read::{PreparedRead, RangeEnd, end_early};
use crate::shard::context::ShardContext;
use crate::shard::{receipt, trace};

/// Attempts to answer in one turn before the answer is given over several.
const COLD_ATTEMPTS_MAX: usize = 16;

/// Executes a SELECT.
pub fn select(context: &Rc<ShardContext>, request: &Request<'_, SelectPlan>) -> Execution {
    read_thresholds::checked(context, request, begin(context, request))
}

fn begin(context: &Rc<ShardContext>, request: &Request<'_, SelectPlan>) -> Execution {
    let plan = request.plan();
    if plan.table.kind == TableKind::Virtual {
        if virtual_state::is_gathered(&plan.table) {
            return Execution::Pending(Box::pin(select_virtual_later(context.clone(), request.to_owned())));
        }
        let state = virtual_state::at_hand(context);
        let rows = virtual_tables::rows(&plan.table, &context.catalog(), &context.node.information, &state);
        return Execution::Ready(select_virtual(context, request, rows));
    }
    context.metrics.reads.increment();
    if plan.table.options.feed_history.is_some()
        && let Err(error) = kept::check(context, plan, &request.bindings())
    {
        return Execution::Ready(Err(error));
    }
    if plan.nearest.is_some() {
        return Execution::Pending(Box::pin(nearest::select(context.clone(), request.to_owned())));
    }
    let consistency = request.options.consistency;
    if consistency.is_serial() && serial::is_replicated(context, &plan.table) {
        if let Err(error) = table_rate_limits::admit_serial_read(context, &plan.table) {
            return Execution::Ready(Err(error));
        }
        return Execution::Pending(Box::pin(serial::select(context.clone(), request.to_owned())));
    }
    let prepared = match PreparedRead::new(context, request) {
        Ok(prepared) => prepared,
        Err(error) => return Execution::Ready(Err(error)),
    };
    if let Err(error) = table_rate_limits::admit_read(context, request, &prepared.ranges) {
        return Execution::Ready(Err(error));
    }
    let later = |prepared| select_later(context.clone(), request.to_owned(), Some(prepared));
    if plan.index.is_some() {
        return Execution::Pending(Box::pin(later(prepared)));
    }
    if replicated_read::is_needed(context, plan, consistency, &prepared.ranges) {
        return Execution::Pending(Box::pin(later(prepared)));
    }
    match single_owner(context, &prepared.ranges) {
        Some(owner) if owner == context.index => {
            trace::note(context, || "Reading rows of this shard".to_owned());
            let mark = receipt::mark();
            match context.shard.attempt(|| select_in_turn(context, request, &prepared)) {
                Ok(Attempt::Done(Some(page))) => Execution::Ready(Ok(Outcome::Rows(page))),
                Ok(Attempt::Done(None)) => {
                    receipt::set_back(&mark);
                    Execution::Pending(Box::pin(later(prepared)))
                }
                Ok(Attempt::Missing(missing)) => {
                    receipt::set_back(&mark);
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
    matches!(error, RequestError::Unreadable(_) | RequestError::IndexIncomplete(_))
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
    let table = &request.statement.plan.table;
    let rows = if virtual_tables::is_report(table) {
        (NodeReports::of(&context).rows)(context.clone(), table.clone()).await?
    } else {
        let values = request.values.borrow();
        let state = virtual_state::gather(&context, &request.with(&values)).await?;
        virtual_tables::rows(table, &context.catalog(), &context.node.information, &state)
    };
    let values = request.values.borrow();
    select_virtual(&context, &request.with(&values), rows)
}

fn select_virtual(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    rows: Vec<Row>,
) -> Result<Outcome> {
    let table = &request.plan().table;
    let prepared = PreparedRead::new(context, request)?;
    let run = prepared.run(request)?;
    if run.is_exhausted() {
        return run.page(false).map(Outcome::Rows);
    }
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
        receipt::count_range(1);
        let mut budget = turn_budget(context);
        match read_local(context, request.plan(), &mut run, range, prepared.now_seconds, &mut budget, |_| {})?
        {
            RangeEnd::Complete => {}
            RangeEnd::Finished(more) => return run.page(more).map(Some),
            RangeEnd::BudgetSpent(_) => return Ok(None),
        }
        receipt::check()?;
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
    let mark = receipt::mark();
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
            Attempt::Done(Some(page)) => return Ok(Some(page)),
            Attempt::Done(None) => {
                receipt::set_back(&mark);
                break;
            }
            Attempt::Missing(blocks) => {
                receipt::set_back(&mark);
                missing = Some(blocks);
            }
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
    match select_from(&context, &request, prepared, Sources::default()).await {
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
    let plan = &request.statement.plan;
    if matches!(error, RequestError::IndexIncomplete(_)) && plan.allows_filtering {
        // The filters are applied in any case.
        return select_from(context, request, None, Sources { without_indexes: true, ..Sources::default() })
            .await;
    }
    if asks_others(context, plan, request.options.consistency, &error) {
        return select_of_others(context, request).await;
    }
    if let RequestError::SearchTooLong(reason) = &error {
        tracing::debug!(reason, "a search has timed out");
        let consistency = request.options.consistency;
        return Err(read_timeout(consistency));
    }
    let refused = match &error {
        RequestError::IndexIncomplete(reason) => Some((reason, FailureReason::IndexNotAvailable)),
        RequestError::TooManyIndexFiles(reason) => Some((reason, FailureReason::TooManyIndexes)),
        _ => None,
    };
    if let Some((text, reason)) = refused {
        tracing::debug!(reason = text, "a search was refused");
        let view = context.cluster_view();
        let this_member = view.topology.member(&context.node.host_id);
        let failures =
            this_member.map(|member| ReplicaFailure { address: member.native_address.ip(), reason });
        return Err(RequestError::ReadFailure {
            consistency: request.options.consistency,
            received: 0,
            required: 1,
            failures: failures.into_iter().collect(),
            data_present: false,
        });
    }
    Err(error)
}

/// The error of a read that takes this node longer than the client waits.
fn read_timeout(consistency: Consistency) -> RequestError {
    RequestError::ReadTimeout { consistency, received: 0, required: 1, data_present: false }
}

/// Asks the replicas as for any other level. This node fails to answer, and another one is asked instead.
async fn select_of_others(context: &Rc<ShardContext>, request: &OwnedRequest<SelectPlan>) -> Result<Outcome> {
    context.metrics.reads_of_others.increment();
    select_from(context, request, None, Sources { from_replicas: true, ..Sources::default() }).await
}

/// Where rows come from if not as the plan says.
#[derive(Debug, Clone, Copy, Default)]
struct Sources {
    /// The replicas are asked even if this node alone could answer.
    from_replicas: bool,
    /// Indexes are not searched.
    without_indexes: bool,
}

/// As [`select_later`], without a second way.
async fn select_from(
    context: &Rc<ShardContext>,
    request: &OwnedRequest<SelectPlan>,
    prepared: Option<PreparedRead>,
    sources: Sources,
) -> Result<Outcome> {
    let Sources { from_replicas, without_indexes } = sources;
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
    let search = match plan.index.as_ref().filter(|_| !without_indexes) {
        None => None,
        Some(index) => match index.bind(&plan.table, &request.bindings())? {
            Some(search) => Some(search),
            None => return Ok(Outcome::Rows(run.finish()?)),
        },
    };
    let is_paged = request.options.page_rows.is_some();
    let given = request.options.deadline;
    // An answer that is computed from all rows (aggregates, GROUP BY) may take long: by the settings, each part of it has a deadline of its own.
    let deadline = given.or_else(|| {
        let is_partition = |range: &KeyRange| token_of(&range.start, &range.end).is_some();
        let reads_partitions = ranges.iter().all(is_partition);
        (!plan.is_grouped()).then(|| RangeRead::deadline_from_now(context, reads_partitions))
    });
    let consistency = request.options.consistency;
    let is_replicated = from_replicas || replicated_read::is_needed(context, plan, consistency, &ranges);
    let search = search.map_or(Ok(None), |search| worthwhile(context, &request, search, is_replicated))?;
    let searches = search.is_some();
    let (here, at_replicas) = match search {
        Some(search) if is_replicated => (None, Some(Rc::new(search))),
        search => (search.map(|search| Arc::new(search.by_all())), None),
    };
    let mut replicated = is_replicated
        .then(|| ReplicatedRead::new(context, plan, now_seconds, consistency, at_replicas, deadline));
    let spread = SpreadRead::new(context, &request, now_seconds, here, deadline);
    let mut work_bytes = 0_u64;
    for range in ranges {
        if searches && range.is_static_row() {
            // It comes with the rows that are found.
            continue;
        }
        if replicated.is_none() {
            receipt::count_range(1);
        }
        let mut rest = Some(range);
        while let Some(range) = rest.take() {
            let end = match range.owner {
                _ if let Some(replicated) = &mut replicated => replicated.read(&mut run, range).await?,
                Some(owner) if searches || owner != context.index => {
                    spread.of_shard(&mut run, range, owner).await?
                }
                None if context.node.shard_count() > 1 => {
                    spread.of_all_shards(&mut run, range, &mut work_bytes).await?
                }
                None if searches => spread.of_shard(&mut run, range, context.index).await?,
                _ => read_local_cold(context, plan, &mut run, range, now_seconds).await?,
            };
            receipt::check()?;
            read_thresholds::check(context, &request, run.met(), run.answer_bytes())?;
            match end {
                RangeEnd::Complete => {}
                RangeEnd::Finished(more) => return Ok(Outcome::Rows(run.page(more)?)),
                RangeEnd::BudgetSpent(left) => {
                    work_bytes += turn_bytes(context);
                    if given.is_some_and(|deadline| context.clock.monotonic() >= deadline) {
                        return Err(read_timeout(consistency));
                    }
                    // A page that has done enough work ends early with a paging state. Answers that cannot be cut
                    // continue.
                    let spent = work_bytes >= 4 * context.node.config.max_page_bytes as u64;
                    let may_end = is_paged && !run.has_open_group() && plan.result_order.is_empty();
                    if spent
                        && may_end
                        && let Some(more) = end_early(&mut run, &left)?
                    {
                        return Ok(Outcome::Rows(run.page(more)?));
                    }
                    tokio::task::yield_now().await;
                    rest = Some(left);
                }
            }
        }
    }
    Ok(Outcome::Rows(run.finish()?))
}

/// A search, if rows are found by it at less cost than by a scan. The filters are applied in any case.
fn worthwhile(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    search: BoundSearch,
    is_replicated: bool,
) -> Result<Option<BoundSearch>> {
    let plan = request.plan();
    let demand = is_replicated
        .then(|| level_demand(context, &plan.table.keyspace, request.options.consistency))
        .flatten();
    let possible = match &demand {
        Some(demand) => possible_searches(context, demand, &search),
        None => vec![search.by_all()],
    };
    let table = plan.table.engine_id();
    let cheapest = context.shard.cheapest_search(table, possible)?;
    Ok(match context.shard.judge_search(table, &cheapest)? {
        SearchWorth::Broad => None,
        SearchWorth::Incomplete if plan.allows_filtering => None,
        SearchWorth::Incomplete | SearchWorth::Narrow => Some(search),
    })
}
