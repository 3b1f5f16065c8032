//! BATCH.
//!
//! A batch of one partition is one mutation. A logged batch of several partitions is first written, whole, to the
//! batch log (of this shard, or of two other members of the cluster), then applied, then removed from the log.
//! Entries that remain after a crash are applied again. Unlogged batches of several partitions are applied without a
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use cql_lite::syntax::ast::BatchKind;
use helenus_query::error::Result;
use helenus_query::plan::check_batch;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::modify::{MutationSet, PartitionMutation};

use super::batch_limits::BatchVolume;
use super::replica::forward::Led;
use super::rows_before_write::RowsBeforeWrite;
use super::transaction::{Transaction, transact};
use super::write::{apply, lead_all, no_any};
use super::{Execution, Outcome};
use crate::coordinator::batch_request::BatchRequest;
use crate::coordinator::local_write::{moment, moment_at, tokens_of};
use crate::coordinator::replica::forwarded::ForwardedKind;
use crate::shard::context::ShardContext;

/// Executes a batch. Warnings for the client are added to `warnings`.
pub fn batch(context: &Rc<ShardContext>, request: BatchRequest, warnings: &mut Vec<String>) -> Execution {
    match try_batch(context, request, warnings) {
        Ok(execution) => execution,
        Err(error) => Execution::Ready(Err(error)),
    }
}

fn try_batch(
    context: &Rc<ShardContext>,
    request: BatchRequest,
    warnings: &mut Vec<String>,
) -> Result<Execution> {
    let mut plans: Vec<&ModifyPlan> = Vec::with_capacity(request.statements.len());
    for (statement, _) in &request.statements {
        plans.push(statement.plan()?);
    }
    check_batch(request.kind, plans.iter().copied(), false)?;
    if plans.is_empty() {
        return Ok(Execution::Ready(Ok(Outcome::Void)));
    }
    if plans.iter().any(|plan| plan.conditions.is_some()) {
        let BatchRequest { statements, options, call, .. } = request;
        let transaction = Transaction { statements, options, call, is_batch: true };
        return Ok(Execution::Pending(Box::pin(transact(context.clone(), transaction))));
    }
    if plans.iter().any(|plan| plan.is_counter() || plan.needs_read()) {
        if let Some(counters) = plans.iter().find(|plan| plan.is_counter())
            && request.options.consistency == Consistency::Any
        {
            return Err(no_any(&counters.table));
        }
        BatchVolume::of_statements(&request)?.check(request.kind, &context.node.config, warnings)?;
        if request.kind == BatchKind::Logged && spans_partitions(&plans, &request)? {
            return Ok(Execution::Pending(Box::pin(logged_after_reads(context.clone(), request))));
        }
        return Ok(Execution::Pending(Box::pin(batch_at_leaders(context.clone(), request))));
    }
    let moment = moment_at(context, &request.options, request.call.now_micros);
    let mut set = MutationSet::default();
    for (plan, (_, owned)) in plans.iter().zip(&request.statements) {
        let values = owned.borrow();
        set.add(plan, &Bindings { values: &values, call: &request.call }, &moment, None)?;
    }
    let mutations = set.finish(&moment, None)?;
    BatchVolume::of_mutations(&mutations).check(request.kind, &context.node.config, warnings)?;
    if request.kind == BatchKind::Logged && mutations.len() > 1 {
        let consistency = request.options.consistency;
        return Ok(Execution::Pending(Box::pin(logged(context.clone(), mutations, consistency))));
    }
    // A batch of one partition is one mutation: it is applied whole or not at all, like a single statement.
    let write_type = if mutations.len() == 1 { WriteType::Simple } else { WriteType::UnloggedBatch };
    Ok(apply(context, mutations, request.options.consistency, write_type))
}

/// Whether the statements change more than one partition.
fn spans_partitions(plans: &[&ModifyPlan], request: &BatchRequest) -> Result<bool> {
    let mut partitions = BTreeSet::new();
    for (plan, (_, owned)) in plans.iter().zip(&request.statements) {
        let values = owned.borrow();
        let tokens = tokens_of(plan, &Bindings { values: &values, call: &request.call })?;
        partitions.extend(tokens.into_iter().map(|token| (plan.table.id, token)));
    }
    Ok(partitions.len() > 1)
}

/// Executes a logged batch of several partitions with statements that read before they write.
async fn logged_after_reads(context: Rc<ShardContext>, request: BatchRequest) -> Result<Outcome> {
    let BatchRequest { statements, options, call, .. } = &request;
    let moment = moment(&context, options);
    let read = RowsBeforeWrite::read(&context, statements, call, options.consistency, moment.now_seconds);
    let rows = read.await?;
    let mut set = MutationSet::default();
    for (statement, owned) in statements {
        let values = owned.borrow();
        set.add(statement.plan()?, &Bindings { values: &values, call }, &moment, Some(&rows))?;
    }
    let mutations = set.finish(&moment, Some(&rows))?;
    logged(context, mutations, options.consistency).await
}

async fn logged(
    context: Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
) -> Result<Outcome> {
    super::batch_log::replicas::write(&context, mutations, consistency).await?;
    Ok(Outcome::Void)
}

/// A replica of each partition carries out the statements that read first, and the rest of the batch with them.
async fn batch_at_leaders(context: Rc<ShardContext>, request: BatchRequest) -> Result<Outcome> {
    let mut by_partition: BTreeMap<(String, i64), Led> = BTreeMap::new();
    for (statement, owned) in &request.statements {
        let plan = statement.plan()?;
        let values = owned.borrow();
        let tokens = tokens_of(plan, &Bindings { values: &values, call: &request.call })?;
        for token in tokens {
            let led = by_partition.entry((plan.table.keyspace.clone(), token)).or_insert_with(|| Led {
                token,
                table: plan.table.clone(),
                statements: Vec::new(),
                options: request.options.clone(),
                call: request.call,
                kind: if plan.is_counter() {
                    ForwardedKind::Counter
                } else if request.kind == BatchKind::Logged {
                    ForwardedKind::LoggedBatch
                } else {
                    ForwardedKind::UnloggedBatch
                },
                deadline: Duration::ZERO,
            });
            led.statements.push((statement.clone(), owned.clone()));
        }
    }
    lead_all(&context, by_partition.into_values().collect()).await
}
