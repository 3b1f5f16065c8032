//! The part of a replica in a write: the mutation is applied on the shard of this node that owns it.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::MutationRef;
use helenus_internode::service::Failure;

use super::epoch;
use crate::coordinator::local_work::LocalWork;
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;
use crate::shard::{receipt, trace};

/// Applies a mutation on the shard of this node that owns it, and resolves when the mutation is durable. A write with
/// an epoch is fenced.
pub async fn apply_at_replica(
    context: &Rc<ShardContext>,
    epoch: Option<u64>,
    mutation: Bytes,
) -> Result<(), Failure> {
    let malformed = |error: &dyn std::fmt::Display| Failure::Malformed(error.to_string());
    let token = MutationRef::parse(&mutation).map_err(|error| malformed(&error))?.token;
    let owner = context.node.shard_of(token);
    trace::note(context, || format!("Shard {owner} has the partition"));
    if owner == context.index {
        return apply_in_turn(context.clone(), epoch, mutation).await;
    }
    context
        .run_on(owner, move |context| Box::pin(apply_in_turn(context, epoch, mutation)))
        .await
        .map_err(|error| Failure::Internal(error.to_string()))?
}

async fn apply_in_turn(
    context: Rc<ShardContext>,
    epoch: Option<u64>,
    mutation: Bytes,
) -> Result<(), Failure> {
    let wait = Duration::from_millis(context.node.config.write_request_timeout_ms);
    if let Some(epoch) = epoch {
        epoch::fence(&context, epoch, wait).await?;
    }
    context.shard.admit().await.map_err(Failure::from)?;
    if let Some(epoch) = epoch {
        epoch::refuse_stale(&context, epoch)?;
    }
    let view = MutationRef::parse(&mutation).map_err(|error| Failure::Malformed(error.to_string()))?;
    context.metrics.writes.increment();
    let started = context.clock.monotonic();
    let position = context.shard.apply(&view).map_err(Failure::from)?;
    LocalWork::note_write(&context, &view, started);
    receipt::count_logged(mutation.len());
    context.note_append(position);
    trace::note(&context, || "Applied to the memtable and appended to the commit log".to_owned());
    if context.has_bug(PlantedBug::AcknowledgeBeforeLog) {
        return Ok(());
    }
    context.shard.durable(position).await.map_err(Failure::from)
}
