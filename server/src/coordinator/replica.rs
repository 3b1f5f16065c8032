//! The work of replicas, asked for by a coordinator on any node, and the coordinator's side of asking several of them.

pub mod message;

use std::rc::Rc;

use self::message::{ReplicaRequest, ReplicaResponse};
use super::write::apply_here;
use crate::internode::message::Failure;
use crate::ring::HostId;
use crate::shard_thread::ShardContext;

/// Carries out what a coordinator asks of this shard's data.
pub async fn handle(
    context: &Rc<ShardContext>,
    _from: HostId,
    request: ReplicaRequest,
) -> Result<ReplicaResponse, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    match request {
        ReplicaRequest::Write { mutation, .. } => {
            let mutation = helenus_engine::Mutation::from_bytes(mutation.into())
                .map_err(|error| Failure::Malformed(error.to_string()))?;
            context.shard.admit().await.map_err(|error| failed(&error))?;
            let position = apply_here(context, &mutation).map_err(|error| failed(&error))?;
            context.shard.durable(position).await.map_err(|error| failed(&error))?;
            Ok(ReplicaResponse::Written)
        }
    }
}
