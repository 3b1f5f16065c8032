//! The cluster as a whole: what its nodes agree on, who is alive, who joins and leaves.

pub mod message;
pub mod metadata;
pub mod view;

use std::rc::Rc;

use self::message::{ClusterRequest, ClusterResponse};
use crate::internode::message::Failure;
use crate::ring::HostId;
use crate::shard_thread::ShardContext;

/// Carries out what another node asks about the cluster.
pub async fn handle(
    _context: &Rc<ShardContext>,
    _from: HostId,
    request: ClusterRequest,
) -> Result<ClusterResponse, Failure> {
    match request {
        ClusterRequest::Version => Ok(ClusterResponse::Version(env!("CARGO_PKG_VERSION").to_owned())),
    }
}
