//! INSERT, UPDATE and DELETE without conditions.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use futures::FutureExt;
use helenus_engine::commit_log::LogPosition;
use helenus_query::bind::BorrowedValues;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::Plan;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::modify::{MutationSet, PartitionMutation};
use helenus_query::schema::catalog::Table;

use super::replica::forward;
use super::replica::forward::Led;
use super::replica::hints::table_by_id;
use super::replica::write::WriteOptions;
use super::{Execution, Outcome, OwnedRequest, RequestOptions, replica};
use crate::coordinator::local_write::{
    apply_all, apply_here, apply_statements, by_token, moment_at, plan_of, tokens_of,
};
use crate::coordinator::replica::forwarded::ForwardedKind;
use crate::coordinator::transaction_statement::TransactionStatement;
use crate::shard::context::ShardContext;

/// Executes a modification without conditions.
pub fn modify(
    context: &Rc<ShardContext>,
    plan: &ModifyPlan,
    values: &BorrowedValues<'_>,
    request: impl FnOnce() -> OwnedRequest,
    options: &RequestOptions,
    call: &CallContext,
) -> Execution {
    if plan.is_counter() || plan.needs_read() {
        if plan.is_counter() && options.consistency == Consistency::Any {
            return Execution::Ready(Err(no_any(&plan.table)));
        }
        return if context.cluster_view().is_single {
            Execution::Pending(Box::pin(modify_at_owners(context.clone(), request())))
        } else {
            Execution::Pending(Box::pin(modify_at_leaders(context.clone(), request())))
        };
    }
    let moment = moment_at(context, options, call.now_micros);
    let bindings = Bindings { values, call };
    let mut set = MutationSet::default();
    let mutations = set.add(plan, &bindings, &moment, None).and_then(|()| set.finish(&moment, None));
    match mutations {
        Err(error) => Execution::Ready(Err(error)),
        Ok(mutations) => apply(context, mutations, options.consistency, WriteType::Simple),
    }
}

/// Applies mutations at the shards or replicas that own them, and acknowledges when all are durable.
pub fn apply(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Execution {
    if !context.cluster_view().is_single {
        let context = context.clone();
        return Execution::Pending(Box::pin(async move {
            write_all(&context, mutations, consistency, write_type).await?;
            Ok(Outcome::Void)
        }));
    }
    if let [PartitionMutation { token, mutation, .. }] = &mutations[..]
        && context.node.shard_of(*token) == context.index
        && let Some(admitted) = context.shard.admit().now_or_never()
    {
        let applied = admitted.map_err(RequestError::from).and_then(|()| apply_here(context, mutation));
        return match applied {
            Err(error) => Execution::Ready(Err(error)),
            Ok(position) => acknowledge(context, position),
        };
    }
    if mutations.is_empty() {
        return Execution::Ready(Ok(Outcome::Void));
    }
    let context = context.clone();
    Execution::Pending(Box::pin(async move {
        apply_alone(&context, mutations, consistency, write_type).await?;
        Ok(Outcome::Void)
    }))
}

/// Writes mutations to all their replicas and resolves when the consistency level is reached.
pub async fn write_all(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Result<()> {
    if context.cluster_view().is_single {
        return apply_alone(context, mutations, consistency, write_type).await;
    }
    write_replicated(context, mutations, consistency, write_type).await
}

async fn write_replicated(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Result<()> {
    let options = WriteOptions {
        consistency,
        write_type,
        deadline: context.clock.monotonic()
            + Duration::from_millis(context.node.config.write_request_timeout_ms),
        is_applied_here: false,
    };
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

/// Executes a statement that reads before it writes in a cluster: a replica of each partition reads, writes, and
/// replicates the resulting mutation.
async fn modify_at_leaders(context: Rc<ShardContext>, request: OwnedRequest) -> Result<Outcome> {
    let plan = plan_of(&request.statement)?;
    let tokens = {
        let values = request.bindings.borrow();
        tokens_of(plan, &Bindings { values: &values, call: &request.call })?
    };
    modify_partitions_at_leaders(&context, &request, tokens).await
}

async fn modify_partitions_at_leaders(
    context: &Rc<ShardContext>,
    request: &OwnedRequest,
    tokens: BTreeSet<i64>,
) -> Result<Outcome> {
    let plan = plan_of(&request.statement)?;
    let kind = if plan.is_counter() { ForwardedKind::Counter } else { ForwardedKind::Simple };
    let statement = TransactionStatement::Statement(request.statement.clone());
    let writes = tokens.into_iter().map(|token| Led {
        token,
        table: plan.table.clone(),
        statements: vec![(statement.clone(), request.bindings.clone())],
        options: request.options.clone(),
        call: request.call,
        kind,
        deadline: Duration::ZERO,
    });
    lead_all(context, writes.collect()).await
}

/// Sends statements to a leader for each partition, with one timestamp and one deadline.
pub async fn lead_all(context: &Rc<ShardContext>, mut writes: Vec<Led>) -> Result<Outcome> {
    let timestamp = context.next_timestamp();
    let timeout = Duration::from_millis(context.node.config.counter_write_request_timeout_ms);
    let deadline = context.clock.monotonic() + timeout;
    for led in &mut writes {
        led.options.timestamp.get_or_insert(timestamp);
        led.deadline = deadline;
    }
    let writes = writes.into_iter().map(|led| forward::write(context, led));
    futures::future::join_all(writes).await.into_iter().collect::<Result<()>>()?;
    Ok(Outcome::Void)
}

/// Executes changes of counters and of lists by index or value on a single node: the shard that owns the partition
/// reads and writes in one turn.
async fn modify_at_owners(context: Rc<ShardContext>, request: OwnedRequest) -> Result<Outcome> {
    let Plan::Modify(plan) = &request.statement.plan else {
        return Err(RequestError::Server("not a modification".to_owned()));
    };
    let mut tokens = {
        let values = request.bindings.borrow();
        tokens_of(plan, &Bindings { values: &values, call: &request.call })?
    };
    let owners: BTreeSet<usize> = tokens.iter().map(|token| context.node.shard_of(*token)).collect();
    let writes = owners.iter().map(|&owner| {
        let request = request.clone();
        let context = &context;
        async move {
            if owner == context.index {
                return read_and_write(context.clone(), request).await;
            }
            context.run_on(owner, move |context| Box::pin(read_and_write(context, request))).await?
        }
    });
    let is_done = futures::future::try_join_all(writes).await?;
    let refusing: BTreeSet<usize> =
        owners.iter().zip(is_done).filter(|(_, is_done)| !is_done).map(|(owner, _)| *owner).collect();
    if refusing.is_empty() {
        return Ok(Outcome::Void);
    }
    tokens.retain(|token| refusing.contains(&context.node.shard_of(*token)));
    modify_partitions_at_leaders(&context, &request, tokens).await
}

/// Reads and writes on this shard. False: nothing was done, because this node is not a single node any more.
async fn read_and_write(context: Rc<ShardContext>, request: OwnedRequest) -> Result<bool> {
    let Plan::Modify(plan) = &request.statement.plan else {
        return Err(RequestError::Server("not a modification".to_owned()));
    };
    context.shard.admit().await?;
    if !context.cluster_view().is_single {
        return Ok(false);
    }
    let position = {
        let values = request.bindings.borrow();
        let bindings = Bindings { values: &values, call: &request.call };
        apply_owned(&context, &[(plan, &bindings)], &request.options)?
    };
    if let Some(position) = position {
        context.shard.durable(position).await?;
    }
    Ok(true)
}

/// Reads the rows that the statements need and applies, in this turn, the mutations that this shard owns.
pub fn apply_owned(
    context: &ShardContext,
    statements: &[(&ModifyPlan, &Bindings<'_>)],
    options: &RequestOptions,
) -> Result<Option<LogPosition>> {
    let (node, index) = (context.node.clone(), context.index);
    let is_own = Box::new(move |token| node.shard_of(token) == index);
    let (_, position) = apply_statements(context, statements, options, is_own, |_| Ok(()))?;
    Ok(position)
}

/// Applies the write of a single node. Mutations that must by now go to another member too are written as in a
/// cluster.
pub async fn apply_alone(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Result<()> {
    let refused = apply_all(context, by_token(mutations)).await?;
    if refused.is_empty() {
        return Ok(());
    }
    let catalog = context.catalog();
    let mut changes = Vec::with_capacity(refused.len());
    for (token, mutation) in refused {
        let id = mutation.view().map_err(|error| RequestError::Server(error.to_string()))?.table;
        let table = table_by_id(&catalog, &id)
            .ok_or_else(|| RequestError::invalid("the table was dropped while it was written"))?;
        changes.push(PartitionMutation { token, table, mutation });
    }
    write_replicated(context, changes, consistency, write_type).await
}
