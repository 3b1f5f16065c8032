//! Requests of other nodes: decoded, carried out on this shard, answered.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::message::{self, Failure, Request, Response};
use super::transport::{CallError, Destination, Handler};
use crate::cluster::departure;
use crate::cluster::liveness::ServingState;
use crate::ring::HostId;
use crate::ring::member::Member;
use crate::shard_thread::{Message, ShardContext};
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
                Ok(Request::Replica(_)) if self.node.board.state() > ServingState::Leaving => {
                    Err(Failure::Overloaded("the node serves no more".to_owned()))
                }
                Ok(request) => self.carry_out(from, request).await,
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
    /// Carries a request of a node out on this shard.
    pub async fn carry_out(self: &Rc<Self>, from: HostId, request: Request) -> Result<Response, Failure> {
        match request {
            Request::Replica(request) => {
                coordinator::replica::handle(self, from, request).await.map(Response::Replica)
            }
            Request::Cluster(request) => cluster::handle(self, from, request).await.map(Response::Cluster),
            Request::Stream(request) => streaming::handle(self, from, request).await.map(Response::Stream),
        }
    }

    /// Asks a shard of another member, or of this node, and resolves with its answer.
    pub async fn ask(
        self: &Rc<Self>,
        member: &Member,
        shard: u16,
        request: &Request,
        deadline: Duration,
    ) -> Result<Response, PeerError> {
        if member.host_id == self.node.host_id {
            return self.ask_own(member.internode_address, shard, request.clone(), deadline).await;
        }
        let bytes = message::encode(request).map_err(|error| Failure::Malformed(error.to_string()))?;
        let to = Destination { host_id: Some(member.host_id), address: member.internode_address, shard };
        let answer = match self.transport.call(to, bytes, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                if let CallError::Removed { address, .. } = &error {
                    departure::begin(self, address);
                }
                return Err(error.into());
            }
        };
        match message::decode::<Response>(&answer) {
            Ok(Response::Failed(failure)) => Err(failure.into()),
            Ok(response) => Ok(response),
            Err(error) => Err(CallError::Malformed { address: to.address, reason: error.to_string() }.into()),
        }
    }

    /// Has a shard of this node carry a request out, without the network. As with other nodes, a request whose deadline
    /// passes goes on.
    async fn ask_own(
        self: &Rc<Self>,
        address: SocketAddr,
        shard: u16,
        request: Request,
        deadline: Duration,
    ) -> Result<Response, PeerError> {
        let shard = usize::from(shard) % self.node.shard_count();
        let from = self.node.host_id;
        let (sender, receiver) = oneshot::channel();
        let job = move |context: Rc<Self>| -> LocalBoxFuture<'static, ()> {
            Box::pin(async move {
                let _ = sender.send(context.carry_out(from, request).await);
            })
        };
        if shard == self.index {
            tokio::task::spawn_local(job(self.clone()));
        } else if self.node.links[shard].try_send(Message::Job(Box::new(job))).is_err() {
            return Err(CallError::Overloaded { address }.into());
        }
        tokio::select! {
            biased;
            response = receiver => {
                let reason = || "this node is shutting down".to_owned();
                Ok(response.map_err(|_| CallError::Unreachable { address, reason: reason() })??)
            }
            () = self.clock.sleep(deadline) => {
                let after_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
                Err(CallError::TimedOut { address, after_ms }.into())
            }
        }
    }
}
