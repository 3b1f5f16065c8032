//! BATCH.
//!
//! A batch of one partition is one mutation. A logged batch of several partitions is first written, whole, to the batch log
//! (the table `system.batches` of this shard), then applied, then taken out of the log; what a crash leaves in the log is
//! applied again at the next start. Unlogged batches are applied without that.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::response::WriteType;
use cql_lite::syntax::ast::BatchKind;

use super::transaction::{Transaction, TransactionStatement, transact};
use super::write::{apply, apply_all, apply_statements, by_token, moment};
use super::{Execution, Outcome, RequestOptions};
use crate::batch_log;
use crate::bind::OwnedBindings;
use crate::error::{RequestError, Result};
use crate::functions::CallContext;
use crate::plan::check_batch;
use crate::plan::modify::ModifyPlan;
use crate::plan::term::Bindings;
use crate::run::keys::partition_keys;
use crate::run::modify::{MutationSet, PartitionMutation, expand_json};
use crate::shard_thread::ShardContext;

/// A batch ready to be carried out.
#[derive(Clone)]
pub struct BatchRequest {
    pub kind: BatchKind,
    pub statements: Vec<(TransactionStatement, OwnedBindings)>,
    pub options: RequestOptions,
    pub call: CallContext,
}

/// Carries out a batch.
pub fn batch(context: &Rc<ShardContext>, request: BatchRequest) -> Execution {
    match try_batch(context, request) {
        Ok(execution) => execution,
        Err(error) => Execution::Ready(Err(error)),
    }
}

fn try_batch(context: &Rc<ShardContext>, request: BatchRequest) -> Result<Execution> {
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
        return Ok(Execution::Pending(Box::pin(batch_at_owners(context.clone(), request))));
    }
    let moment = moment(context, &request.options);
    let mut set = MutationSet::default();
    for (plan, (_, owned)) in plans.iter().zip(&request.statements) {
        let values = owned.borrow();
        set.add(plan, &Bindings { values: &values, call: &request.call }, &moment, None)?;
    }
    let mutations = set.finish(&moment, None)?;
    if request.kind == BatchKind::Logged && mutations.len() > 1 {
        return Ok(Execution::Pending(Box::pin(logged(context.clone(), mutations))));
    }
    // A batch of one partition is one mutation: applied whole or not, like a statement.
    let write_type = if mutations.len() == 1 { WriteType::Simple } else { WriteType::UnloggedBatch };
    Ok(apply(context, mutations, request.options.consistency, write_type))
}

async fn logged(context: Rc<ShardContext>, mutations: Vec<PartitionMutation>) -> Result<Outcome> {
    let entry = batch_log::store(&context, &mutations).await?;
    apply_all(&context, by_token(mutations)).await?;
    batch_log::remove(&context, &entry)?;
    Ok(Outcome::Void)
}

/// Statements that read first (counters, lists by index) go to the owners of their partitions, each with all of its own.
async fn batch_at_owners(context: Rc<ShardContext>, request: BatchRequest) -> Result<Outcome> {
    let mut by_owner: BTreeMap<usize, Vec<(TransactionStatement, OwnedBindings)>> = BTreeMap::new();
    for (statement, owned) in &request.statements {
        let owners = {
            let values = owned.borrow();
            let bindings = Bindings { values: &values, call: &request.call };
            let plan = expand_json(statement.plan()?, &bindings)?;
            let mut owners: Vec<usize> = partition_keys(&plan.partition, &plan.table, &bindings)?
                .iter()
                .map(|key| context.node.shard_of(key.token))
                .collect();
            owners.sort_unstable();
            owners.dedup();
            owners
        };
        for owner in owners {
            by_owner.entry(owner).or_default().push((statement.clone(), owned.clone()));
        }
    }
    let shared = Arc::new((request.options, request.call));
    let writes = by_owner.into_iter().map(|(owner, statements)| {
        let (context, shared) = (&context, shared.clone());
        async move {
            if owner == context.index {
                return apply_batch_here(context.clone(), statements, shared).await;
            }
            context
                .run_on(owner, move |context| Box::pin(apply_batch_here(context, statements, shared)))
                .await?
        }
    });
    futures::future::try_join_all(writes).await?;
    Ok(Outcome::Void)
}

async fn apply_batch_here(
    context: Rc<ShardContext>,
    statements: Vec<(TransactionStatement, OwnedBindings)>,
    shared: Arc<(RequestOptions, CallContext)>,
) -> Result<(), RequestError> {
    context.shard.admit().await?;
    let position = {
        let values: Vec<_> = statements.iter().map(|(_, owned)| owned.borrow()).collect();
        let bindings: Vec<Bindings<'_>> =
            values.iter().map(|values| Bindings { values, call: &shared.1 }).collect();
        let mut planned = Vec::with_capacity(statements.len());
        for ((statement, _), bindings) in statements.iter().zip(&bindings) {
            planned.push((statement.plan()?, bindings));
        }
        apply_statements(&context, &planned, &shared.0)?
    };
    if let Some(position) = position {
        context.shard.durable(position).await?;
    }
    Ok(())
}
