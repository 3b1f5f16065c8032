//! INSERT, UPDATE and DELETE without conditions.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_engine::commit_log::LogPosition;
use helenus_query::bind::BorrowedValues;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::modify::{MutationSet, PartitionMutation};
use helenus_query::schema::catalog::Table;

use super::replica::forward::Led;
use super::replica::write::WriteOptions;
use super::replica::{forward, only_here};
use super::{Execution, Outcome, OwnedRequest, RequestOptions, replica};
use crate::coordinator::local_write::{moment_at, plan_of, tokens_of};
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
        return Execution::Pending(Box::pin(modify_at_leaders(context.clone(), request())));
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

/// Writes mutations to all their replicas and acknowledges when the consistency level is reached.
pub fn apply(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    consistency: Consistency,
    write_type: WriteType,
) -> Execution {
    if let Some(applied) = only_here::apply_at_once(context, &mutations) {
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
        write_all(&context, mutations, consistency, write_type).await?;
        Ok(Outcome::Void)
    }))
}

/// Like [`apply`], without an answer for a client.
pub async fn write_all(
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

/// A replica of each partition reads and writes, and replicates the result.
async fn modify_at_leaders(context: Rc<ShardContext>, request: OwnedRequest) -> Result<Outcome> {
    let plan = plan_of(&request.statement)?;
    let tokens = {
        let values = request.bindings.borrow();
        tokens_of(plan, &Bindings { values: &values, call: &request.call })?
    };
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
    lead_all(&context, writes.collect()).await
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
