//! The transport of bytes between nodes.
//!
//! Invariants: every call ends by its deadline; a call that failed may have been executed; messages may be lost,
//! delayed and reordered, but never changed.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_ring::HostId;
use helenus_ring::view::ClusterView;
use thiserror::Error;

use crate::endpoint::Endpoint;
use crate::service::{Failure, Message};

/// A shard of a node. The host id, if it is known, is checked when the link is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Destination {
    pub host_id: Option<HostId>,
    pub address: SocketAddr,
    /// Taken modulo the number of shards of the node.
    pub shard: u16,
}

/// The reason why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CallError {
    #[error("{address} did not answer within {after_ms} ms")]
    TimedOut { address: SocketAddr, after_ms: u64 },
    #[error("{address} cannot be reached: {reason}")]
    Unreachable { address: SocketAddr, reason: String },
    /// One of the two nodes has refused the other (wrong cluster, unknown version, another host id): `code` of
    /// [`Refusal`](super::handshake::Refusal).
    #[error("{address} refused: {reason}")]
    Refused { address: SocketAddr, code: u16, reason: String },
    /// The other node reports that this one has left the cluster or was removed from it.
    #[error("{address} refused: {reason}")]
    Removed { address: SocketAddr, reason: String },
    /// Too many messages wait for this node already; nothing was sent.
    #[error("too many requests are waiting for {address}")]
    Overloaded { address: SocketAddr },
    /// Above the limit for one message; nothing was sent.
    #[error("a message of {bytes} bytes for {address} is above the limit of {limit_bytes}")]
    TooLarge { address: SocketAddr, bytes: usize, limit_bytes: u32 },
    /// The answer is invalid.
    #[error("{address} sent an invalid answer: {reason}")]
    Malformed { address: SocketAddr, reason: String },
}

/// The reason why a request to another node has no result.
#[derive(Debug, Clone, Error)]
pub enum PeerError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Sends requests to other nodes. One for each shard.
pub trait Transport {
    /// Sends a request and resolves with the answer's bytes.
    fn call(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>>;

    /// Sends a message without an answer. It may get lost.
    fn send(&self, to: Destination, message: Message);

    /// The present addresses of an endpoint. Without a name service, only endpoints that are addresses are resolved.
    fn resolve(&self, endpoint: &Endpoint) -> LocalBoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let found = endpoint.literal().map(|address| vec![address]);
        Box::pin(std::future::ready(
            found.ok_or_else(|| std::io::Error::other("there is no name service here")),
        ))
    }

    /// The shard has installed a new view of the cluster: nodes that have left must not come back, and nodes that are
    /// alive again can be reached.
    fn view_changed(&self, _view: &Arc<ClusterView>) {}
}

/// Executes the requests of other nodes on a shard.
pub trait Handler {
    /// `None`: the message has no answer.
    fn handle(
        self: Rc<Self>,
        from: HostId,
        message: Bytes,
        needs_answer: bool,
    ) -> LocalBoxFuture<'static, Option<Bytes>>;
}

/// The transport of a node without neighbours: no node can be reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Isolated;

impl Transport for Isolated {
    fn call(
        &self,
        to: Destination,
        _request: Message,
        _deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        let reason = "this node has no internode address".to_owned();
        Box::pin(std::future::ready(Err(CallError::Unreachable { address: to.address, reason })))
    }

    fn send(&self, _to: Destination, _message: Message) {}
}
