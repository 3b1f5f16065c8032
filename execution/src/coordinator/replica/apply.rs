//! The part of a replica in a write: the mutation is applied on the shard of this node that owns it.
//!
//! Companions belong to the same shard as their mutation, so that all are one record in its log. When the number of shards has just
//! changed, one may belong to another shard: it is applied there first, and the mutation without it afterwards. A crash between
//! leaves a companion of a mutation that was not acknowledged.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::commit_log::LogPosition;
use helenus_engine::{EngineError, Mutation, MutationRef};
use helenus_internode::service::Failure;

use super::epoch;
use crate::coordinator::local_work::LocalWork;
use crate::coordinator::views::wakes;
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
    let view = parse(&mutation)?;
    let owner = context.node.shard_of(view.token);
    trace::note(context, || format!("Shard {owner} has the partition"));
    if view.has_companions() {
        apply_elsewhere(context, epoch, &view).await?;
    }
    apply_on(context, owner, epoch, mutation).await
}

/// Whether a mutation has a companion that belongs to another shard of this node.
#[inline]
pub fn reaches_elsewhere(context: &ShardContext, mutation: &Mutation) -> bool {
    let reaches = |view: MutationRef<'_>| {
        let own = context.node.shard_of(view.token);
        view.companions().any(|part| part.is_ok_and(|part| context.node.shard_of(part.token) != own))
    };
    mutation.has_companions() && mutation.view().is_ok_and(reaches)
}

/// Applies the companions that belong to another shard of this node than their mutation, and resolves when they are durable.
#[cold]
pub async fn apply_elsewhere(
    context: &Rc<ShardContext>,
    epoch: Option<u64>,
    mutation: &MutationRef<'_>,
) -> Result<(), Failure> {
    let own = context.node.shard_of(mutation.token);
    for companion in mutation.companions() {
        let companion = companion.map_err(|error| malformed(&error))?;
        let owner = context.node.shard_of(companion.token);
        if owner != own {
            apply_on(context, owner, epoch, Bytes::copy_from_slice(companion.bytes)).await?;
        }
    }
    Ok(())
}

async fn apply_on(
    context: &Rc<ShardContext>,
    owner: usize,
    epoch: Option<u64>,
    mutation: Bytes,
) -> Result<(), Failure> {
    if owner == context.index {
        return apply_in_turn(context.clone(), epoch, mutation).await;
    }
    context
        .run_on(owner, move |context| Box::pin(apply_in_turn(context, epoch, mutation)))
        .await
        .map_err(|error| Failure::Internal(error.to_string()))?
}

/// Applies a mutation to this shard, in this turn, without the companions that belong to others: see [`apply_elsewhere`].
#[inline]
pub fn apply_own(context: &ShardContext, mutation: &MutationRef<'_>) -> Result<LogPosition, EngineError> {
    if !mutation.has_companions() {
        return context.shard.apply(mutation);
    }
    apply_with_companions(context, mutation)
}

#[cold]
fn apply_with_companions(
    context: &ShardContext,
    mutation: &MutationRef<'_>,
) -> Result<LogPosition, EngineError> {
    let is_own = |part: &MutationRef<'_>| context.node.shard_of(part.token) == context.index;
    let mut has_all = true;
    for part in mutation.parts() {
        has_all &= is_own(&part.map_err(EngineError::Mutation)?);
    }
    let position =
        if has_all { context.shard.apply(mutation)? } else { apply_parts(context, mutation, is_own)? };
    wakes::applied(context, mutation);
    Ok(position)
}

/// Applies the head of a mutation, which belongs to this shard, with those of its companions that do, too.
fn apply_parts(
    context: &ShardContext,
    mutation: &MutationRef<'_>,
    is_own: impl Fn(&MutationRef<'_>) -> bool,
) -> Result<LogPosition, EngineError> {
    debug_assert!(is_own(mutation), "a mutation is applied on the shard of its partition");
    let parts = mutation.parts().enumerate();
    let parts = parts.filter(|(index, part)| *index == 0 || part.as_ref().map_or(true, &is_own));
    let parts = parts.map(|(_, part)| part?.to_mutation()).collect::<Result<Vec<_>, _>>();
    let parts = parts.map_err(EngineError::Mutation)?;
    let Some((head, companions)) = parts.split_first() else { unreachable!("a mutation has a head") };
    let own = Mutation::with_companions(head, companions).map_err(EngineError::Mutation)?;
    context.shard.apply(&own.view().map_err(EngineError::Mutation)?)
}

fn parse(mutation: &[u8]) -> Result<MutationRef<'_>, Failure> {
    MutationRef::parse(mutation).map_err(|error| malformed(&error))
}

fn malformed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Malformed(error.to_string())
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
    let view = parse(&mutation)?;
    context.metrics.writes.increment();
    let started = context.clock.monotonic();
    let position = apply_own(&context, &view).map_err(Failure::from)?;
    LocalWork::note_write(&context, &view, started);
    receipt::count_logged(mutation.len());
    context.note_append(position);
    trace::note(&context, || "Applied to the memtable and appended to the commit log".to_owned());
    if context.has_bug(PlantedBug::AcknowledgeBeforeLog) {
        return Ok(());
    }
    context.shard.durable(position).await.map_err(Failure::from)
}
