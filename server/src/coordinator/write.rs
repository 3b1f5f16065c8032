//! INSERT, UPDATE and DELETE without conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use futures::FutureExt;
use helenus_engine::commit_log::LogPosition;
use helenus_engine::io::whole_seconds;
use helenus_engine::key::{self, REGULAR_END, REGULAR_START};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{Mutation, RowRef, transcode};
use helenus_query::bind::BorrowedValues;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::Plan;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{ExistingRows, MutationSet, PartitionMutation, WriteMoment, expand_json};
use helenus_query::schema::catalog::Table;
use helenus_query::statement::Statement;
use helenus_query::stored_key::PartitionKey;

use super::replica::forward::{self, ForwardedKind, Led};
use super::replica::hints::table_by_id;
use super::replica::write::WriteOptions;
use super::transaction::TransactionStatement;
use super::{Execution, Outcome, OwnedRequest, RequestOptions, replica};
use crate::shard::context::ShardContext;

/// Rows of this thread's shard.
pub struct ShardRows<'a> {
    pub context: &'a ShardContext,
    pub now_seconds: u32,
}

impl ShardRows<'_> {
    /// The first row of a range of full keys that `is_there` accepts: its position and its content with base 0.
    fn first(
        &self,
        table: &Table,
        (start, end): &(Vec<u8>, Vec<u8>),
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut scan = self.context.shard.scan(&ScanRequest {
            table: table.engine_id(),
            start,
            end,
            reversed: false,
            now_seconds: self.now_seconds,
            budget: Budget::UNLIMITED,
        })?;
        while let Step::Row(view) = scan.next()? {
            if is_there(view.row) {
                let position = view.position.to_vec();
                let mut row = Vec::new();
                transcode(view.row, 0, &mut row).map_err(|error| RequestError::Server(error.to_string()))?;
                return Ok(Some((position, row)));
            }
        }
        Ok(None)
    }
}

impl ExistingRows for ShardRows<'_> {
    fn row(&self, table: &Table, partition: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.first(table, &row_range(partition, position)?, &|_| true)?;
        Ok(row.map(|(_, row)| row))
    }

    fn first_row(
        &self,
        table: &Table,
        partition: &PartitionKey,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.first(table, &regular_rows(partition)?, is_there)
    }
}

/// The range of full keys that holds one row of a partition, half open.
pub fn row_range(partition: &PartitionKey, position: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let start = key::full_key(partition.token, &partition.bytes, position)
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    let end = key::behind(&start);
    Ok((start, end))
}

/// The range of full keys of a partition's regular rows, half open.
pub fn regular_rows(partition: &PartitionKey) -> Result<(Vec<u8>, Vec<u8>)> {
    let bound = |position: &[u8]| {
        key::full_key(partition.token, &partition.bytes, position)
            .map_err(|error| RequestError::invalid(error.to_string()))
    };
    Ok((bound(REGULAR_START)?, bound(REGULAR_END)?))
}

/// The moment of a write that is carried out now.
pub fn moment(context: &ShardContext, options: &RequestOptions) -> WriteMoment {
    moment_at(context, options, context.clock.now_micros())
}

/// The moment of a write in a turn that began at `clock_micros` (microseconds since the epoch).
pub fn moment_at(context: &ShardContext, options: &RequestOptions, clock_micros: i64) -> WriteMoment {
    let now_micros = context.next_timestamp_at(clock_micros);
    WriteMoment {
        timestamp: options.timestamp.unwrap_or(now_micros),
        now_seconds: options.now_seconds.unwrap_or_else(|| whole_seconds(clock_micros)),
        now_micros,
        is_exact: false,
        counter_id: *context.node.host_id.as_bytes(),
    }
}

/// Carries out a modification without conditions.
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

/// Applies mutations at their owners and acknowledges when all are durable.
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

/// Mutations with their tokens alone.
pub fn by_token(mutations: Vec<PartitionMutation>) -> Vec<(i64, Mutation)> {
    mutations.into_iter().map(|change| (change.token, change.mutation)).collect()
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

/// Applies a mutation to this thread's shard.
pub fn apply_here(context: &ShardContext, mutation: &Mutation) -> Result<LogPosition> {
    let view = mutation.view().map_err(|error| RequestError::Server(error.to_string()))?;
    context.metrics.writes.increment();
    let position = context.shard.apply(&view)?;
    context.note_append(position);
    Ok(position)
}

/// The write of a node that is alone; what it can no longer write alone goes the way of a cluster.
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

/// Applies mutations of a node that is alone on all the shards they belong to, and waits until they are durable. Returns those
/// that were not applied because another member is coming: it must get them too.
pub async fn apply_all(
    context: &Rc<ShardContext>,
    mutations: Vec<(i64, Mutation)>,
) -> Result<Vec<(i64, Mutation)>> {
    let mut by_owner: BTreeMap<usize, Vec<(i64, Mutation)>> = BTreeMap::new();
    for (token, mutation) in mutations {
        by_owner.entry(context.node.shard_of(token)).or_default().push((token, mutation));
    }
    let writes = by_owner.into_iter().map(|(owner, mutations)| async move {
        if owner == context.index {
            return apply_at_owner(context.clone(), mutations).await;
        }
        context.run_on(owner, move |context| Box::pin(apply_at_owner(context, mutations))).await?
    });
    Ok(futures::future::try_join_all(writes).await?.into_iter().flatten().collect())
}

async fn apply_at_owner(
    context: Rc<ShardContext>,
    mutations: Vec<(i64, Mutation)>,
) -> Result<Vec<(i64, Mutation)>> {
    context.shard.admit().await?;
    if !context.cluster_view().is_single {
        return Ok(mutations);
    }
    let mut last = None;
    for (_, mutation) in &mutations {
        last = Some(apply_here(&context, mutation)?);
    }
    if let Some(position) = last {
        context.shard.durable(position).await?;
    }
    Ok(Vec::new())
}

/// A counter must be read by the replica that changes it: a hint is not enough.
pub fn no_any(table: &Table) -> RequestError {
    RequestError::invalid(format!(
        "Consistency level ANY is not yet supported for counter table {}",
        table.name
    ))
}

/// The tokens of the partitions that a modification names.
pub fn tokens_of(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<BTreeSet<i64>> {
    let expanded;
    let plan = if plan.json.is_some() {
        expanded = expand_json(plan, bindings)?;
        &expanded
    } else {
        plan
    };
    let keys = partition_keys(&plan.partition, &plan.table, bindings)?;
    Ok(keys.iter().map(|key| key.token).collect())
}

/// In a cluster: a replica of each partition reads and writes, and replicates what came out.
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

/// Has replicas lead, each for its partition, with one timestamp and deadline.
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

/// Counters and lists by index or value: each partition's owner reads and writes in one turn.
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

/// False: nothing was done, as this node is not alone any more.
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

/// Reads what the statements need and applies, in this turn, those of their mutations that this shard owns.
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

/// Reads what the statements need in the partitions that are meant, and applies, in this turn, what they change there if
/// `check` lets it pass.
pub fn apply_statements(
    context: &ShardContext,
    statements: &[(&ModifyPlan, &Bindings<'_>)],
    options: &RequestOptions,
    is_meant: Box<dyn Fn(i64) -> bool>,
    check: impl FnOnce(&[PartitionMutation]) -> Result<()>,
) -> Result<(Vec<PartitionMutation>, Option<LogPosition>)> {
    let moment = moment(context, options);
    let rows = ShardRows { context, now_seconds: moment.now_seconds };
    let mut set = MutationSet::limited_to(is_meant);
    for (plan, bindings) in statements {
        set.add(plan, bindings, &moment, Some(&rows))?;
    }
    let changes = set.finish(&moment, Some(&rows))?;
    check(&changes)?;
    let mut last = None;
    for PartitionMutation { mutation, .. } in &changes {
        last = Some(apply_here(context, mutation)?);
    }
    Ok((changes, last))
}

/// A modification as a statement of its own.
pub fn plan_of(statement: &Arc<Statement>) -> Result<&ModifyPlan> {
    match &statement.plan {
        Plan::Modify(plan) => Ok(plan),
        _ => Err(RequestError::invalid(
            "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
        )),
    }
}
