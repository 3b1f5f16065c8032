//! Reads that wait until a view has everything up to a time: `SELECT … WITH FRESHNESS`.
//!
//! The holder of each slice is asked: it reads the log once more, and answers when all that was acknowledged before the time is recomputed.
//! Rows that are looked up come first: what they concern is recomputed by the slices of the base table.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::future::try_join_all;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::coordinator::{Execution, Outcome, OwnedRequest, read};
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::Table;
use helenus_ring::HostId;
use uuid::Uuid;

use crate::lease;
use crate::message::{Freshen, ViewsRequest, ViewsResponse};
use crate::state::ViewsState;

/// Pause before a holder is looked for again.
const PAUSE: Duration = Duration::from_millis(50);
/// For what was acknowledged before the holder has the request.
const NOW: i64 = i64::MAX;
/// An answer may be on its way for so long.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

/// Executes a SELECT of a view, when all is in it that the statement asks for.
pub async fn select(context: Rc<ShardContext>, request: OwnedRequest<SelectPlan>) -> Result<Outcome> {
    let values = request.values.borrow();
    let request = request.with(&values);
    let plan = request.plan();
    // The pages behind the first one go on with what that has waited for.
    if request.options.paging_state.is_none()
        && let Some(freshness) = &plan.freshness
    {
        let until = freshness.until(&request.bindings(), context.clock.now_micros())?;
        let deadline = request.options.deadline_or(&context, context.node.config.range_request_timeout_ms);
        wait(&context, &plan.table, until, deadline).await?;
    }
    match read::select(&context, &request) {
        Execution::Ready(outcome) => outcome,
        Execution::Pending(outcome) => outcome.await,
    }
}

/// Waits until a view has all that was acknowledged before a time, in microseconds since the epoch.
pub async fn wait(
    context: &Rc<ShardContext>,
    view: &Arc<Table>,
    until_micros: i64,
    deadline: Duration,
) -> Result<()> {
    let views = ViewsState::of(context).views(context);
    let Some(live) = views.of_table(view.id) else {
        return Err(RequestError::invalid(format!("{} is not a view that is kept", view.full_name())));
    };
    let definition = &live.computation.definition;
    // Clocks differ: what was written before the request came is in a pass that begins when the holder has it.
    let mut until_micros = if until_micros >= context.clock.now_micros() { NOW } else { until_micros };
    if let Some(joined) = &definition.joined {
        wait_for(context, view, joined.table.id, until_micros, deadline).await?;
        // What the joined rows concern was put into the log of the base table meanwhile.
        until_micros = NOW;
    }
    wait_for(context, view, definition.base.id, until_micros, deadline).await
}

async fn wait_for(
    context: &Rc<ShardContext>,
    view: &Arc<Table>,
    table: Uuid,
    until_micros: i64,
    deadline: Duration,
) -> Result<()> {
    let slices = Slice::all().map(|slice| wait_in(context, view, table, until_micros, slice, deadline));
    try_join_all(slices).await.map(drop)
}

/// Asks the holder of a slice, whoever it is, until the deadline.
async fn wait_in(
    context: &Rc<ShardContext>,
    view: &Arc<Table>,
    table: Uuid,
    until_micros: i64,
    slice: Slice,
    deadline: Duration,
) -> Result<()> {
    let state = ViewsState::of(context);
    let mut holder: HostId = state.last_holder(slice).unwrap_or(context.node.host_id);
    loop {
        let left = deadline.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return Err(late(view));
        }
        let member = context.cluster_view().topology.member(&holder).cloned();
        // It may be built again meanwhile.
        let build = state.views(context).of_table(view.id).map(|live| live.build_id());
        if let (Some(member), Some(build)) = (member, build) {
            let freshen = Freshen {
                slice: slice.0,
                build: build.as_u128(),
                table: table.as_u128(),
                until_micros,
                patience_ms: left.as_millis() as u64,
            };
            let shard = u16::from(slice.0) % member.shard_count.max(1);
            let request = ViewsRequest::Freshen(freshen);
            match context.ask(&member, shard, &request, left + ON_ITS_WAY).await {
                Ok(ViewsResponse::Fresh) => {
                    state.note_holder(slice, holder);
                    return Ok(());
                }
                Ok(ViewsResponse::NotYet) => return Err(late(view)),
                Ok(ViewsResponse::NotHeld | ViewsResponse::Noted) | Err(_) => {}
            }
        }
        context.clock.sleep(PAUSE).await;
        if let Ok(Some(found)) = lease::read(context, &state.leases, slice).await {
            holder = found.host_id;
        }
    }
}

/// The view has not become fresh in time.
fn late(view: &Table) -> RequestError {
    tracing::debug!(view = view.full_name(), "a view has not become fresh in time");
    RequestError::ReadTimeout {
        consistency: Consistency::Quorum,
        received: 0,
        required: 1,
        data_present: false,
    }
}

/// Answers another node, or another shard of this one.
pub async fn serve(context: &Rc<ShardContext>, freshen: Freshen) -> ViewsResponse {
    let state = ViewsState::of(context);
    let slice = state.slice(context, Slice(freshen.slice));
    let deadline = context.clock.monotonic() + Duration::from_millis(freshen.patience_ms);
    let until_micros = freshen.until_micros.min(context.clock.now_micros());
    let (build, table) = (Uuid::from_u128(freshen.build), Uuid::from_u128(freshen.table));
    loop {
        let progress = slice.progress.notified();
        // Whoever asks, or this node, does not know yet that the view is built again.
        let is_known = state.view(context, build).is_some();
        if !slice.lease.is_held(context) || !is_known {
            return ViewsResponse::NotHeld;
        }
        // A pass that has begun in the same microsecond may have been before the request.
        let is_fresh = slice.fresh.borrow().get(&table).is_some_and(|micros| *micros > until_micros);
        if is_fresh && slice.built.borrow().contains(&build) {
            return ViewsResponse::Fresh;
        }
        if !is_fresh {
            slice.is_awaited.set(true);
        }
        Wakes::of(context).wake_slice(slice.lease.slice);
        let left = deadline.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return ViewsResponse::NotYet;
        }
        tokio::select! {
            () = progress => {}
            () = context.clock.sleep(left) => {}
        }
    }
}
