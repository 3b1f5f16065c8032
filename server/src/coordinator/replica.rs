//! The work of replicas for a coordinator on any node, and the coordinator's requests to several replicas.

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod apply;
pub(crate) mod digest;
pub(crate) mod epoch;
pub(crate) mod failures;
pub(crate) mod forward;
pub(crate) mod forwarded;
pub(crate) mod hints;
pub(crate) mod latency;
pub mod message;
pub(crate) mod only_here;
pub(crate) mod ranges;
pub(crate) mod read;
pub(crate) mod repair;
pub(crate) mod truncate;
pub(crate) mod write;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_internode::service::Failure;
use helenus_query::error::Result;
use helenus_ring::HostId;

use self::message::{ReplicaRequest, ReplicaResponse};
use super::paxos;
use crate::coordinator::batch_log;
use crate::coordinator::disk_warnings::DiskWarnings;
use crate::shard::call::Serve;
use crate::shard::context::ShardContext;
use crate::shard::status_table::ServingState;

/// The replication state that a shard keeps in memory.
#[derive(Default)]
pub struct ReplicationState {
    /// Bytes of the mutations that this shard coordinates and that have not reached all replicas.
    coordinated_bytes: Cell<u64>,
    /// Bytes of the mutations that other nodes sent and that are not durable yet.
    received_bytes: Cell<u64>,
    coordinating: Coordinating,
    pub hints: hints::Hints,
    /// Latencies of the reads that this shard coordinates.
    pub read_latencies: latency::ReadLatencies,
    /// Batches in this shard's log, by position, with the monotonic time at which they arrived.
    pub batches: RefCell<BTreeMap<Vec<u8>, Duration>>,
    pub disk_warnings: DiskWarnings,
}

/// A guard held by every operation that this shard coordinates, while the operation may still store hints or batches
/// on the shard.
#[derive(Default, Clone)]
pub struct Coordinating {
    /// Its reference count is the number of guards.
    held: Rc<()>,
}

impl ShardContext {
    /// The replication state of the shard.
    #[inline]
    pub fn replication(&self) -> &ReplicationState {
        self.layers.get()
    }
}

impl ReplicationState {
    pub fn coordinating(&self) -> Coordinating {
        self.coordinating.clone()
    }

    /// Whether this shard coordinates no operation at the moment.
    pub fn is_quiet(&self) -> bool {
        Rc::strong_count(&self.coordinating.held) == 1
    }
}

/// Loads the state of the last run and starts the shard's periodic work: replay of hints and batches, forgetting the
/// state of idle transactions.
pub async fn start(context: &Rc<ShardContext>) -> Result<()> {
    hints::load(context).await?;
    hints::replay::spawn_replay(context);
    batch_log::store::spawn_replay(context);
    paxos::settle::spawn(context);
    Ok(())
}

impl Serve for ReplicaRequest {
    fn serve(
        self,
        context: Rc<ShardContext>,
        from: HostId,
    ) -> LocalBoxFuture<'static, Result<ReplicaResponse, Failure>> {
        Box::pin(async move { serve(&context, from, self).await })
    }
}

/// Executes a coordinator's request on this shard's data.
async fn serve(
    context: &Rc<ShardContext>,
    _from: HostId,
    request: ReplicaRequest,
) -> Result<ReplicaResponse, Failure> {
    let failed = |error: helenus_query::error::RequestError| Failure::Internal(error.to_string());
    let is_leaving = context.node.status.state() == ServingState::Leaving;
    match request {
        ReplicaRequest::StoreBatch { .. } | ReplicaRequest::KeepHint { .. } if is_leaving => {
            Err(Failure::Overloaded("the node keeps nothing for others any more: it leaves".to_owned()))
        }
        ReplicaRequest::Write { epoch, mutation } => {
            let _guard = admission::receive(context, mutation.len() as u64)?;
            apply::apply_at_replica(context, Some(epoch), Bytes::from(mutation)).await?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::Hint { mutation } => {
            let _guard = admission::receive(context, mutation.len() as u64)?;
            hints::replay::receive(context, Bytes::from(mutation)).await
        }
        ReplicaRequest::Forward(request) => {
            let _guard = admission::receive(context, request.size_bytes())?;
            let _coordinating = context.replication().coordinating();
            forward::receive(context, request).await
        }
        ReplicaRequest::StoreBatch { id, mutations } => {
            let _guard = admission::receive(context, mutations.len() as u64)?;
            batch_log::store::store_here(context, &id.position(), &mutations).await.map_err(failed)?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::RemoveBatch { id } => {
            batch_log::store::remove(context, &id.position()).map_err(failed)?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::KeepHint { target, created_micros, mutation } => {
            let _guard = admission::receive(context, mutation.len() as u64)?;
            hints::keep(context, target, created_micros, &mutation).await.map_err(failed)?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::Paxos(request) => {
            paxos::replica::receive(context, *request).await.map(ReplicaResponse::Paxos)
        }
        ReplicaRequest::Lease(request) => {
            Ok(ReplicaResponse::Lease(paxos::lease::receive(context, request).await))
        }
        ReplicaRequest::Truncate { table_id } => {
            truncate::truncate_here(context, table_id).await.map_err(failed)?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::Read(request) => answer::receive(context, request).await.map(ReplicaResponse::Read),
    }
}

#[cfg(test)]
pub(crate) mod tests;
