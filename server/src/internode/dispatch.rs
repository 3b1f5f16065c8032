//! Requests of other nodes: decoded, carried out on this shard, answered.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;

use super::message::{self, Failure, Request, Response};
use super::transport::{CallError, Destination, Handler};
use crate::ring::HostId;
use crate::ring::member::Member;
use crate::shard_thread::ShardContext;
use crate::{cluster, coordinator, streaming};

impl Handler for ShardContext {
    fn handle(
        self: Rc<Self>,
        from: HostId,
        bytes: Bytes,
        needs_answer: bool,
    ) -> LocalBoxFuture<'static, Option<Bytes>> {
        Box::pin(async move {
            let response = match message::decode::<Request>(&bytes) {
                Ok(Request::Replica(request)) => {
                    coordinator::replica::handle(&self, from, request).await.map(Response::Replica)
                }
                Ok(Request::Cluster(request)) => {
                    cluster::handle(&self, from, request).await.map(Response::Cluster)
                }
                Ok(Request::Stream(request)) => {
                    streaming::handle(&self, from, request).await.map(Response::Stream)
                }
                Err(error) => {
                    tracing::warn!(%from, %error, "a node sent what is no request");
                    Err(Failure::Malformed(error.to_string()))
                }
            };
            if !needs_answer {
                return None;
            }
            let response = response.unwrap_or_else(Response::Failed);
            match message::encode(&response) {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    let failure = Response::Failed(Failure::Internal(error.to_string()));
                    message::encode(&failure).ok()
                }
            }
        })
    }
}

/// Why a request to another node has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PeerError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl ShardContext {
    /// Asks a shard of another member, or of this node, and resolves with its answer.
    pub async fn ask(
        self: &Rc<Self>,
        member: &Member,
        shard: u16,
        request: &Request,
        deadline: Duration,
    ) -> Result<Response, PeerError> {
        let bytes = message::encode(request).map_err(|error| Failure::Malformed(error.to_string()))?;
        let to = Destination { host_id: Some(member.host_id), address: member.internode_address, shard };
        let answer = self.transport.call(to, bytes, deadline).await?;
        match message::decode::<Response>(&answer) {
            Ok(Response::Failed(failure)) => Err(failure.into()),
            Ok(response) => Ok(response),
            Err(error) => Err(CallError::Malformed { address: to.address, reason: error.to_string() }.into()),
        }
    }
}
