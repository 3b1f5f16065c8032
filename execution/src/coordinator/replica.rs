//! The work of replicas for a coordinator on any node, and the coordinator's requests to several replicas.

pub mod admission;
pub mod answer;
pub mod apply;
pub mod companions;
pub mod digest;
pub mod epoch;
pub mod failures;
pub mod forward;
pub mod forwarded;
pub mod hints;
pub mod latency;
pub mod message;
pub mod nearest;
pub mod nearest_answer;
pub mod only_here;
pub mod ranges;
pub mod read;
pub mod repair;
pub mod search;
pub mod search_answer;
pub mod snitch;
pub mod truncate;
pub mod write;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_internode::service::Failure;
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;

use self::message::{ReplicaRequest, ReplicaResponse};
use super::paxos;
use super::paxos::message::PaxosOrder;
use super::paxos::proposer::Question;
use crate::coordinator::batch_log;
use crate::coordinator::warning_pace::{DiskWarnings, IndexFileWarnings};
use crate::shard::call::Serve;
use crate::shard::context::ShardContext;
use crate::shard::periodic_flush;
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
    /// Latencies of the replicas that it reads.
    pub replica_latencies: snitch::ReplicaLatencies,
    /// Batches in this shard's log, by position, with the monotonic time at which they arrived.
    pub batches: RefCell<BTreeMap<Vec<u8>, Duration>>,
    pub disk_warnings: DiskWarnings,
    pub index_file_warnings: IndexFileWarnings,
    /// Whether the batches of the last run are known. Its hints become known before.
    is_recovered: Cell<bool>,
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

    /// Whether the hints and batches that the last run has left are known.
    pub fn is_recovered(&self) -> bool {
        self.is_recovered.get()
    }

    /// Whether this shard coordinates no operation at the moment.
    pub fn is_quiet(&self) -> bool {
        Rc::strong_count(&self.coordinating.held) == 1
    }
}

/// How often a shard tries again to read what the last run has left. A file that was put back is in use after this time.
const RECOVERY_PAUSE: Duration = Duration::from_mins(1);

/// Loads the state of the last run and starts the shard's periodic work: replay of hints and batches, forgetting the
/// state of idle transactions, flushes. A damaged file of hints or batches does not keep the node from starting: they wait until it is put back, or
/// given up.
pub async fn start(context: &Rc<ShardContext>) -> Result<()> {
    match recover(context).await {
        Err(RequestError::Unreadable(reason)) => {
            tracing::error!(
                shard = context.index,
                reason,
                "hints or batches of the last run cannot be read; nothing is delivered until they can be read"
            );
            context.repeat(RECOVERY_PAUSE, recover_again);
        }
        outcome => outcome?,
    }
    hints::replay::spawn_replay(context);
    batch_log::store::spawn_replay(context);
    paxos::settle::spawn(context);
    periodic_flush::spawn(context);
    Ok(())
}

async fn recover_again(context: &Rc<ShardContext>) {
    if context.replication().is_recovered() {
        return;
    }
    match recover(context).await {
        Ok(()) => {
            tracing::warn!(shard = context.index, "hints and batches of the last run can be read again");
        }
        Err(error) => tracing::warn!(shard = context.index, %error, "hints or batches cannot be read yet"),
    }
}

/// Loads the hints that the last run has left, and then replays its batches.
async fn recover(context: &Rc<ShardContext>) -> Result<()> {
    let state = context.replication();
    if !state.hints.is_loaded() {
        hints::load(context).await?;
    }
    let replayed = batch_log::store::replay(context).await?;
    if replayed > 0 {
        tracing::info!(shard = context.index, count = replayed, "batches replayed");
    }
    state.is_recovered.set(true);
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

    fn name(&self) -> &'static str {
        match self {
            Self::Write { .. } => "MUTATION",
            Self::Hint { .. } => "HINT",
            Self::Forward(_) => "FORWARDED_MUTATION",
            Self::StoreBatch { .. } => "BATCH_STORE",
            Self::RemoveBatch { .. } => "BATCH_REMOVE",
            Self::Truncate { .. } => "TRUNCATE",
            Self::Read(_) => "READ",
            Self::Paxos(request) => match &request.order {
                PaxosOrder::Ask { question: Question::Prepare { .. }, .. }
                | PaxosOrder::AskOfTables { question: Question::Prepare { .. }, .. } => "PAXOS_PREPARE",
                PaxosOrder::Ask { .. } | PaxosOrder::AskOfTables { .. } => "PAXOS_PROPOSE",
                PaxosOrder::Commit(_) => "PAXOS_COMMIT",
                PaxosOrder::Forget { .. } => "PAXOS_CLEANUP",
            },
            Self::KeepHint { .. } | Self::KeepAgedHint { .. } => "KEEP_HINT",
            Self::Lease(_) => "PAXOS_LEASE",
            Self::Truncation(_) => "TRUNCATE_PREPARE",
            Self::Search(_) | Self::SearchTogether { .. } => "INDEX_SEARCH",
            Self::Nearest(_) => "NEAREST_SEARCH",
        }
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
        ReplicaRequest::StoreBatch { .. }
        | ReplicaRequest::KeepHint { .. }
        | ReplicaRequest::KeepAgedHint { .. }
            if is_leaving =>
        {
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
            hints::keep(context, target, created_micros, 0, &mutation).await.map_err(failed)?;
            Ok(ReplicaResponse::Written)
        }
        ReplicaRequest::KeepAgedHint { target, created_micros, age_micros, mutation } => {
            let _guard = admission::receive(context, mutation.len() as u64)?;
            hints::keep(context, target, created_micros, age_micros, &mutation).await.map_err(failed)?;
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
        ReplicaRequest::Truncation(request) => truncate::prepare_here(context, request).await.map_err(failed),
        ReplicaRequest::Search(request) => {
            search_answer::receive(context, request, Vec::new()).await.map(ReplicaResponse::Found)
        }
        ReplicaRequest::SearchTogether { search, others } => {
            search_answer::receive(context, search, others).await.map(ReplicaResponse::Found)
        }
        ReplicaRequest::Nearest(request) => {
            nearest_answer::receive(context, request).await.map(ReplicaResponse::Nearest)
        }
    }
}
