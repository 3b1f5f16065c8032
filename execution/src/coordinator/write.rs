//! INSERT, UPDATE and DELETE without conditions.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_engine::commit_log::LogPosition;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::run::keys::{PartitionKeys, partition_keys};
use helenus_query::run::modify::{MutationSet, PartitionMutation};
use helenus_query::schema::catalog::Table;

use super::replica::forward::Led;
use super::replica::write::WriteOptions;
use super::replica::{forward, only_here};
use super::{
    Execution, Outcome, OwnedRequest, Request, RequestOptions, caps, denylist, disk_room, replica,
    table_rate_limits,
};
use crate::coordinator::bound_statement::{BoundStatement, Modification};
use crate::coordinator::change_feed::{self, Grouping};
use crate::coordinator::local_write::write_context_at;
use crate::coordinator::replica::forwarded::ForwardedKind;
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// Executes a modification without conditions. Warnings for the client are added to `warnings`.
pub fn modify(
    context: &Rc<ShardContext>,
    request: &Request<'_, ModifyPlan>,
    warnings: &mut Vec<String>,
) -> Execution {
    if let Err(error) = check(context, request, warnings) {
        return Execution::Ready(Err(error));
    }
    let (plan, consistency) = (request.plan(), request.options.consistency);
    if plan.is_counter() || change_feed::reads_first(plan) {
        if plan.is_counter() && consistency == Consistency::Any {
            return Execution::Ready(Err(no_any(&plan.table)));
        }
        return Execution::Pending(Box::pin(modify_at_leaders(context.clone(), request.to_owned())));
    }
    match mutations(context, request) {
        Err(error) => Execution::Ready(Err(error)),
        Ok(mutations) if plan.table.options.cap.is_some() => {
            apply_capped(context, mutations, request.options, WriteType::Simple)
        }
        Ok(mutations) => apply(context, mutations, request.options, WriteType::Simple),
    }
}

/// The mutations of a modification that reads nothing, to be written with [`apply_all`] together with those of others.
pub fn prepare(
    context: &ShardContext,
    request: &Request<'_, ModifyPlan>,
    warnings: &mut Vec<String>,
) -> Result<Vec<PartitionMutation>> {
    check(context, request, warnings)?;
    mutations(context, request)
}

/// Refuses what may not be written now.
#[inline]
fn check(
    context: &ShardContext,
    request: &Request<'_, ModifyPlan>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if context.denies() {
        check_denied(context, request)?;
    }
    if request.plan().table.options.has_rate_limit() {
        admit(context, request)?;
    }
    if context.node.disks.is_any_short() {
        check_disks(context, request, warnings)?;
    }
    Ok(())
}

/// Refuses a modification of a denied partition.
#[cold]
fn check_denied(context: &ShardContext, request: &Request<'_, ModifyPlan>) -> Result<()> {
    let keys = keys(request)?;
    denylist::check_write(context, keys.iter().map(|key| (&*request.plan().table, key)))
}

/// Refuses a modification of a partition or table that has its rate limit reached.
#[cold]
fn admit(context: &ShardContext, request: &Request<'_, ModifyPlan>) -> Result<()> {
    table_rate_limits::admit_writes(context, keys(request)?.iter().map(|key| (request.plan(), key)))
}

/// Refuses a modification if the disks of its replicas have no room for it.
#[cold]
fn check_disks(
    context: &ShardContext,
    request: &Request<'_, ModifyPlan>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let keys = keys(request)?;
    let partitions = keys.iter().map(|key| (&*request.plan().table, key));
    disk_room::check(context, partitions, request.options.consistency, warnings)
}

/// The partitions that a modification names.
fn keys(request: &Request<'_, ModifyPlan>) -> Result<PartitionKeys> {
    partition_keys(&request.plan().partition, &request.plan().table, &request.bindings())
}

/// The mutations of a modification that reads nothing, with the entries of change feeds.
fn mutations(context: &ShardContext, request: &Request<'_, ModifyPlan>) -> Result<Vec<PartitionMutation>> {
    let write = write_context_at(context, request.options, request.call.now_micros);
    let mut set = MutationSet::default();
    set.add(request.plan(), keys(request)?, &request.bindings(), &write, None)?;
    change_feed::attach(context, set.finish(&write, None)?, Grouping::Each, &write, None)
}

/// Writes mutations to all their replicas and acknowledges when the consistency level is reached.
pub fn apply(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    options: &RequestOptions,
    write_type: WriteType,
) -> Execution {
    if let Err(error) = replica::write::check_charge(context, &mutations) {
        return Execution::Ready(Err(error));
    }
    if let Some(applied) = only_here::apply_at_once(context, &mutations) {
        return match applied {
            Err(error) => Execution::Ready(Err(error)),
            Ok(position) => acknowledge(context, position),
        };
    }
    if mutations.is_empty() {
        return Execution::Ready(Ok(Outcome::Void));
    }
    let options = WriteOptions::new(context, options.consistency, write_type, options.deadline);
    let context = context.clone();
    Execution::Pending(Box::pin(async move {
        replica::write::write(&context, mutations, options).await?;
        Ok(Outcome::Void)
    }))
}

/// Writes mutations of several modifications, each to all its replicas, and acknowledges when all have reached the level.
pub fn apply_all(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    options: &RequestOptions,
) -> Execution {
    let write =
        if mutations.iter().any(|change| change.table.options.cap.is_some()) { apply_capped } else { apply };
    write(context, mutations, options, WriteType::UnloggedBatch)
}

/// As [`apply`], where tables with a cap are among those of the mutations.
pub fn apply_capped(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    options: &RequestOptions,
    write_type: WriteType,
) -> Execution {
    match caps::removes_rows(&mutations) {
        Err(error) => Execution::Ready(Err(error)),
        Ok(false) => {
            caps::trim_some(context, &mutations);
            apply(context, mutations, options, write_type)
        }
        Ok(true) => {
            let (context, options) = (context.clone(), options.clone());
            Execution::Pending(Box::pin(async move {
                let mutations = caps::with_marks(&context, mutations, &options).await?;
                match apply(&context, mutations, &options, write_type) {
                    Execution::Ready(outcome) => outcome,
                    Execution::Pending(later) => later.await,
                }
            }))
        }
    }
}

/// Like [`apply`], without an answer for a client.
pub async fn write_all(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Result<()> {
    let options = WriteOptions::new(context, consistency, write_type, None);
    replica::write::write(context, mutations, options).await
}

fn acknowledge(context: &ShardContext, position: LogPosition) -> Execution {
    if let Some(outcome) = context.shard.durable_at_once(position) {
        return Execution::Ready(outcome.map(|()| Outcome::Void).map_err(RequestError::from));
    }
    let durable = context.shard.durable(position);
    Execution::Pending(Box::pin(async move {
        durable.await?;
        Ok(Outcome::Void)
    }))
}

/// The error for ANY on a counter: the replica that changes a counter must read it, so a hint is not enough.
pub fn no_any(table: &Table) -> RequestError {
    RequestError::invalid(format!(
        "Consistency level ANY is not yet supported for counter table {}",
        table.name
    ))
}

/// A replica of each partition reads and writes, and replicates the result.
async fn modify_at_leaders(context: Rc<ShardContext>, request: OwnedRequest<ModifyPlan>) -> Result<Outcome> {
    let OwnedRequest { statement, values, options, call } = request;
    let bound = BoundStatement::new(Modification::Single(statement), values, call)?;
    let plan = bound.plan();
    let kind = if plan.is_counter() { ForwardedKind::Counter } else { ForwardedKind::Simple };
    let tokens: BTreeSet<i64> = bound.keys.iter().map(|key| key.token).collect();
    let writes = tokens.into_iter().map(|token| Led {
        token,
        table: plan.table.clone(),
        statements: vec![bound.clone()],
        options: options.clone(),
        now_micros: call.now_micros,
        kind,
        deadline: Duration::ZERO,
    });
    lead_all(&context, writes.collect()).await
}

/// Sends statements to a leader for each partition, with one timestamp and one deadline.
pub async fn lead_all(context: &Rc<ShardContext>, mut writes: Vec<Led>) -> Result<Outcome> {
    forward::check_charge(context, &writes)?;
    let has_several = writes.len() > 1;
    let timestamp = context.next_timestamp();
    let timeout_ms = context.node.config.counter_write_request_timeout_ms;
    let by_settings = context.clock.monotonic() + Duration::from_millis(timeout_ms);
    for led in &mut writes {
        led.statements.iter().try_for_each(BoundStatement::check_repeatable)?;
        led.options.timestamp.get_or_insert(timestamp);
        led.deadline = led.options.deadline.unwrap_or(by_settings);
    }
    // What one leader refuses another one may have applied.
    if has_several {
        receipt::lift_limit();
    }
    let writes = writes.into_iter().map(|led| forward::write(context, led));
    futures::future::join_all(writes).await.into_iter().collect::<Result<()>>()?;
    Ok(Outcome::Void)
}
