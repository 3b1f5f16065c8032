//! Read repair: data that a replica of a read lacks is written to it before the read is answered. So a row that one
//! reader has seen is seen by the next reader of a majority too.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::token::shard_of;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use helenus_engine::Mutation;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_ring::member::Member;

use super::message::ReplicaRequest;
use crate::coordinator::replica::apply::apply_at_replica;
use crate::shard::context::{IGNORE_MSB, ShardContext};
use helenus_ring::consistency::RequiredReplicas;

/// The reason why replicas were not repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRepaired {
    /// The ring has changed.
    Stale { epoch: u64 },
    /// Too few replicas have all of the data; `received` of them do.
    TooFew { received: u32 },
}

/// Writes to each member the data that it lacks. Resolves when as many replicas as the level needs have all of it.
pub async fn repair(
    context: &Rc<ShardContext>,
    epoch: u64,
    lacking: &[(Arc<Member>, Vec<Mutation>)],
    demand: &RequiredReplicas,
    deadline: Duration,
) -> Result<(), NotRepaired> {
    let mut complete: Vec<&Member> =
        lacking.iter().filter(|(_, mutations)| mutations.is_empty()).map(|(member, _)| &**member).collect();
    let mut writes: FuturesUnordered<_> = lacking
        .iter()
        .filter(|(_, mutations)| !mutations.is_empty())
        .map(|(member, mutations)| async move {
            context.metrics.read_repairs.add(mutations.len() as u64);
            let writes =
                mutations.iter().map(|mutation| write_missing(context, epoch, member, mutation, deadline));
            (&**member, futures::future::try_join_all(writes).await)
        })
        .collect();
    while let Some((member, written)) = writes.next().await {
        match written {
            Ok(_) => complete.push(member),
            Err(PeerError::Failed(Failure::StaleRing { epoch })) => return Err(NotRepaired::Stale { epoch }),
            Err(error) => tracing::debug!(node = %member.host_id, %error, "a replica was not repaired"),
        }
        if demand.is_met(complete.iter().copied()) {
            return Ok(());
        }
    }
    if demand.is_met(complete.iter().copied()) {
        return Ok(());
    }
    Err(NotRepaired::TooFew { received: demand.count(complete) })
}

/// Writes to a replica a mutation that it lacks. Resolves when the replica has it as durable as any write.
pub async fn write_missing(
    context: &Rc<ShardContext>,
    epoch: u64,
    member: &Member,
    mutation: &Mutation,
    deadline: Duration,
) -> Result<(), PeerError> {
    let malformed = |error: helenus_engine::DecodeError| Failure::Internal(error.to_string());
    let bytes_max = context.node.config.mutation_bytes_max();
    if mutation.bytes().len() > bytes_max {
        // The versions of a large row were written in several mutations, and are written in several again.
        for part in mutation.view().and_then(|view| view.split(bytes_max)).map_err(malformed)? {
            Box::pin(write_part(context, epoch, member, &part, deadline)).await?;
        }
        return Ok(());
    }
    write_part(context, epoch, member, mutation, deadline).await
}

async fn write_part(
    context: &Rc<ShardContext>,
    epoch: u64,
    member: &Member,
    mutation: &Mutation,
    deadline: Duration,
) -> Result<(), PeerError> {
    let view = mutation.view().map_err(|error| Failure::Internal(error.to_string()))?;
    let token = view.token;
    if member.host_id == context.node.host_id {
        return apply_at_replica(context, Some(epoch), mutation.bytes().clone())
            .await
            .map_err(PeerError::from);
    }
    let shard = shard_of(token, u32::from(member.shard_count), IGNORE_MSB) as u16;
    let request = ReplicaRequest::Write { epoch, mutation: mutation.bytes().to_vec() };
    let left = deadline.saturating_sub(context.clock.monotonic());
    context.ask(member, shard, &request, left).await.map(|_| ())
}
