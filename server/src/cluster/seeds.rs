//! Questions to seeds, of a node that may not be a member of a cluster yet: the addresses of their names, and what they know.

use std::net::SocketAddr;
use std::time::Duration;

use helenus_execution::shard::context::ShardContext;
use helenus_internode::endpoint::Endpoint;
use helenus_internode::service;
use helenus_internode::transport::{CallError, Destination};
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;

use super::message::{ClusterRequest, ClusterResponse};
use super::propose::within;

/// Timeout of one attempt to resolve a seed.
const RESOLVING_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before names are resolved, or seeds are asked, again.
pub(super) const RESOLVING_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of a request to this node's former address, or to a seed that the node does not need.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

/// A seed that could not be resolved to an address.
#[derive(Debug, Clone, thiserror::Error)]
#[error("seed '{seed}' cannot be resolved: {reason}")]
pub struct Unresolved {
    seed: Endpoint,
    reason: String,
}

/// The present addresses of a seed: at least one.
pub async fn resolve(context: &ShardContext, seed: &Endpoint) -> Result<Vec<SocketAddr>, Unresolved> {
    let unresolved = |reason: String| Unresolved { seed: seed.clone(), reason };
    match within(context, RESOLVING_PATIENCE, context.transport.resolve(seed)).await {
        Some(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Some(Ok(_)) => Err(unresolved("the name has no address".to_owned())),
        Some(Err(error)) => Err(unresolved(error.to_string())),
        None => Err(unresolved(format!("no answer within {} s", RESOLVING_PATIENCE.as_secs()))),
    }
}

/// The topology version of the node at an address (0: none yet; `None`: another answer). `host_id`: the expected
/// node.
pub(super) async fn version_at(
    context: &ShardContext,
    host_id: Option<HostId>,
    address: SocketAddr,
) -> Result<Result<Option<u64>, CallError>> {
    let question = ClusterRequest::Applied { version: 0, patience_ms: 0 };
    let question =
        service::encode_request(&question).map_err(|error| RequestError::Server(error.to_string()))?;
    let to = Destination { host_id, address, shard: 0 };
    let answer = context.transport.call(to, question, COPY_PATIENCE).await;
    Ok(answer.map(|answer| match service::decode_response::<ClusterRequest>(&answer) {
        Ok(Ok(ClusterResponse::Applied { version })) => Some(version),
        _ => None,
    }))
}
