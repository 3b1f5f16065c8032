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
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::check_batch;
use helenus_query::run::modify::{MutationSet, PartitionMutation};

use super::batch_limits::BatchVolume;
use super::replica::forward::Led;
use super::replica::write::check_charge;
use super::rows_before_write::RowsBeforeWrite;
use super::transaction::{Transaction, TransactionKind, transact};
use super::write::{apply, apply_capped, lead_all, no_any};
use super::{Execution, Outcome, RequestOptions, caps, denylist, disk_room, table_rate_limits};
use crate::coordinator::batch_request::BatchRequest;
use crate::coordinator::bound_statement::BoundStatement;
use crate::coordinator::change_feed::{self, Grouping};
use crate::coordinator::local_write::{write_context, write_context_at};
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
    check_batch(request.kind, request.plans(), false)?;
    if request.statements.is_empty() {
        return Ok(Execution::Ready(Ok(Outcome::Void)));
    }
    let partition_count = partition_count(&request);
    context.metrics.batch_partitions[request.kind as usize].record(partition_count as u64);
    if context.node.disks.is_any_short() {
        let partitions = request.statements.iter().flat_map(BoundStatement::partitions);
        disk_room::check(context, partitions, request.options.consistency, warnings)?;
    }
    if request.plans().any(|plan| plan.conditions.is_some()) {
        let BatchRequest { statements, options, .. } = request;
        let transaction = Transaction { statements, options, kind: TransactionKind::Batch };
        return Ok(Execution::Pending(Box::pin(transact(context.clone(), transaction))));
    }
    denylist::check_write(context, request.statements.iter().flat_map(BoundStatement::partitions))?;
    if request.plans().any(|plan| plan.table.options.has_rate_limit()) {
        table_rate_limits::admit_writes(
            context,
            request.statements.iter().flat_map(BoundStatement::changes),
        )?;
    }
    if request.plans().any(|plan| plan.is_counter() || change_feed::reads_first(plan)) {
        if let Some(counters) = request.plans().find(|plan| plan.is_counter())
            && request.options.consistency == Consistency::Any
        {
            return Err(no_any(&counters.table));
        }
        if request.plans().any(|plan| plan.table.options.cap.is_some()) {
            return Err(RequestError::invalid(
                "A batch that changes tables with a cap can have no statements that read before they write yet",
            ));
        }
        let volume = BatchVolume::of_statements(&request.statements);
        volume.check(request.kind, &context.node.config, warnings)?;
        if request.kind == BatchKind::Logged && partition_count > 1 {
            return Ok(Execution::Pending(Box::pin(logged_after_reads(context.clone(), request))));
        }
        return Ok(Execution::Pending(Box::pin(batch_at_leaders(context.clone(), request))));
    }
    let write = write_context_at(context, &request.options, request.now_micros);
    let mut set = MutationSet::default();
    for statement in &request.statements {
        statement.add_to(&mut set, &write, None)?;
    }
    let mutations = set.finish(&write, None)?;
    BatchVolume::of_mutations(&mutations).check(request.kind, &context.node.config, warnings)?;
    let is_logged = request.kind == BatchKind::Logged && mutations.len() > 1;
    let grouping = if is_logged { Grouping::Together } else { Grouping::Each };
    let mutations = change_feed::attach(context, mutations, grouping, &write, None)?;
    if is_logged {
        return Ok(Execution::Pending(Box::pin(logged(context.clone(), mutations, request.options))));
    }
    let is_capped = mutations.iter().any(|change| change.table.options.cap.is_some());
    // A batch of one partition is one mutation: it is applied whole or not at all, like a single statement.
    let write_type = if mutations.len() == 1 { WriteType::Simple } else { WriteType::UnloggedBatch };
    if is_capped {
        return Ok(apply_capped(context, mutations, &request.options, write_type));
    }
    Ok(apply(context, mutations, &request.options, write_type))
}

/// The partitions that the statements change.
fn partition_count(request: &BatchRequest) -> usize {
    let partitions: BTreeSet<_> = request
        .statements
        .iter()
        .flat_map(|statement| statement.keys.iter().map(|key| (statement.plan().table.id, key.token)))
        .collect();
    partitions.len()
}

/// Executes a logged batch of several partitions with statements that read before they write.
async fn logged_after_reads(context: Rc<ShardContext>, request: BatchRequest) -> Result<Outcome> {
    let BatchRequest { statements, options, .. } = &request;
    let write = write_context(&context, options);
    let rows = RowsBeforeWrite::read(&context, statements, options, write.now_seconds).await?;
    let mut set = MutationSet::default();
    for statement in statements {
        statement.add_to(&mut set, &write, Some(&rows))?;
    }
    let mutations = set.finish(&write, Some(&rows))?;
    let mutations = change_feed::attach(&context, mutations, Grouping::Together, &write, Some(&rows))?;
    logged(context, mutations, request.options).await
}

async fn logged(
    context: Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    options: RequestOptions,
) -> Result<Outcome> {
    let mutations = if caps::removes_rows(&mutations)? {
        caps::with_marks(&context, mutations, &options).await?
    } else {
        caps::trim_some(&context, &mutations);
        mutations
    };
    // The batch log keeps all of them as one value.
    let bytes: usize = mutations.iter().map(|change| 4 + change.mutation.bytes().len()).sum();
    if bytes > context.node.config.mutation_bytes_max() {
        return Err(RequestError::invalid("Batch too large"));
    }
    check_charge(&context, &mutations)?;
    super::batch_log::replicas::write(&context, mutations, &options).await?;
    Ok(Outcome::Void)
}

/// A replica of each partition carries out the statements that read first, and the rest of the batch with them.
async fn batch_at_leaders(context: Rc<ShardContext>, request: BatchRequest) -> Result<Outcome> {
    let mut by_partition: BTreeMap<(String, i64), Led> = BTreeMap::new();
    for statement in &request.statements {
        let plan = statement.plan();
        for key in &statement.keys {
            let led = by_partition.entry((plan.table.keyspace.clone(), key.token)).or_insert_with(|| Led {
                token: key.token,
                table: plan.table.clone(),
                statements: Vec::new(),
                options: request.options.clone(),
                now_micros: request.now_micros,
                kind: if plan.is_counter() {
                    ForwardedKind::Counter
                } else if request.kind == BatchKind::Logged {
                    ForwardedKind::LoggedBatch
                } else {
                    ForwardedKind::UnloggedBatch
                },
                deadline: Duration::ZERO,
            });
            led.statements.push(statement.clone());
        }
    }
    lead_all(&context, by_partition.into_values().collect()).await
}
