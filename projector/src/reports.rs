//! What operators see of views: the slices that a shard holds, and how far views are built.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use uuid::Uuid;

use crate::internal_statement::InternalStatement;
use crate::live_view::LiveView;
use crate::state::{SliceState, ViewsState};

/// A view in a slice that this node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceReport {
    pub keyspace: String,
    pub view: String,
    pub slice: Slice,
    /// How long ago everything was in the view that had been acknowledged; `None`: not since the slice was taken.
    pub lag_ms: Option<i64>,
    pub is_built: bool,
    /// Rows that this node has scanned for the build.
    pub rows_scanned: u64,
    /// Units that were left out since the slice was taken, because an expression failed on their values.
    pub failed_units: u64,
}

/// The views in the slices that this shard holds, ordered by keyspace, view and slice.
pub fn of_shard(context: &ShardContext) -> Vec<SliceReport> {
    let state = ViewsState::of(context);
    let slices = state.held(context);
    let mut reports = Vec::new();
    for view in state.views(context).views.values() {
        let id = view.build_id();
        reports.extend(slices.iter().map(|slice| SliceReport {
            keyspace: view.table().keyspace.clone(),
            view: view.table().name.clone(),
            slice: slice.lease.slice,
            lag_ms: lag_ms(context, view, slice),
            is_built: slice.built.borrow().contains(&id),
            rows_scanned: slice.scanned.borrow().get(&id).copied().unwrap_or_default(),
            failed_units: slice.failed.borrow().get(&id).copied().unwrap_or_default(),
        }));
    }
    reports.sort_by(|a, b| (&a.keyspace, &a.view, a.slice).cmp(&(&b.keyspace, &b.view, b.slice)));
    reports
}

/// The longest lag of a view in a slice that this shard holds; `None`: none is known.
pub fn longest_lag_ms(context: &ShardContext) -> Option<u64> {
    let state = ViewsState::of(context);
    let slices = state.held(context);
    let views = state.views(context);
    let lags =
        views.views.values().flat_map(|view| slices.iter().filter_map(|slice| lag_ms(context, view, slice)));
    lags.max().map(i64::unsigned_abs)
}

/// By the logs of the base table and of the joined one.
fn lag_ms(context: &ShardContext, view: &LiveView, slice: &SliceState) -> Option<i64> {
    let fresh = slice.fresh.borrow();
    let definition = &view.computation.definition;
    let joined = definition.joined.as_ref().map(|joined| joined.table.id);
    let mut oldest_micros = *fresh.get(&definition.base.id)?;
    if let Some(joined) = joined {
        oldest_micros = oldest_micros.min(*fresh.get(&joined)?);
    }
    Some(context.clock.now_micros().saturating_sub(oldest_micros).max(0) / 1_000)
}

/// How far a view is built in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildReport {
    pub keyspace: String,
    pub view: String,
    /// For each member whether its part is built.
    pub members: BTreeMap<HostId, bool>,
    /// Whether the whole view is.
    pub is_built: bool,
}

/// The views, ordered by keyspace and name: from what the holders of slices have stored, at QUORUM.
pub async fn builds(context: &Rc<ShardContext>) -> Result<Vec<BuildReport>> {
    let views = ViewsState::of(context).views(context);
    if views.is_empty() {
        return Ok(Vec::new());
    }
    let holders = holders(context).await?;
    let owners: Vec<HostId> = context.cluster_view().topology.owners().map(|member| member.host_id).collect();
    let statement = InternalStatement::new(
        "SELECT slice, is_done, build FROM system_distributed.view_positions WHERE id = ?",
    );
    let mut reports = Vec::new();
    for view in views.views.values() {
        let built = built_slices(context, &statement, view).await?;
        let is_built = Slice::all().all(|slice| built.contains(&slice));
        let of_member = |host_id: &HostId| {
            let mut held = holders.iter().filter(|(_, holder)| *holder == host_id).peekable();
            // Whoever has no slice has built its part when the others have built theirs.
            if held.peek().is_none() { is_built } else { held.all(|(slice, _)| built.contains(slice)) }
        };
        reports.push(BuildReport {
            keyspace: view.table().keyspace.clone(),
            view: view.table().name.clone(),
            members: owners.iter().map(|host_id| (*host_id, of_member(host_id))).collect(),
            is_built,
        });
    }
    reports.sort_by(|a, b| (&a.keyspace, &a.view).cmp(&(&b.keyspace, &b.view)));
    Ok(reports)
}

/// Who has each slice, or had it last.
async fn holders(context: &Rc<ShardContext>) -> Result<BTreeMap<Slice, HostId>> {
    let statement = InternalStatement::new("SELECT slice, holder FROM system_distributed.view_slices");
    let damaged = || RequestError::Server("system_distributed.view_slices has a damaged row".to_owned());
    let mut holders = BTreeMap::new();
    statement
        .rows(context, &[], Consistency::Quorum, |row| {
            let [Some(slice), Some(holder)] = row else { return Err(damaged()) };
            let holder = Uuid::from_slice(holder).map_err(|_| damaged())?;
            holders.insert(slice_of(slice).ok_or_else(damaged)?, holder);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
    Ok(holders)
}

async fn built_slices(
    context: &Rc<ShardContext>,
    statement: &InternalStatement,
    view: &LiveView,
) -> Result<BTreeSet<Slice>> {
    let damaged = || RequestError::Server("system_distributed.view_positions has a damaged row".to_owned());
    let mut built = BTreeSet::new();
    statement
        .rows(context, &[Some(view.table().id.as_bytes().to_vec())], Consistency::Quorum, |row| {
            let [Some(slice), is_done, build] = row else { return Err(damaged()) };
            let build = build.map(Uuid::from_slice).transpose().map_err(|_| damaged())?;
            if *is_done == Some(&[1][..]) && build == view.build() {
                built.insert(slice_of(slice).ok_or_else(damaged)?);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
    Ok(built)
}

fn slice_of(value: &[u8]) -> Option<Slice> {
    let number = i32::from_be_bytes(value.try_into().ok()?);
    Slice::all().find(|slice| i32::from(slice.0) == number)
}
