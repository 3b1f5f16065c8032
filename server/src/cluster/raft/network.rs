//! Sends messages of the metadata log to other members: requests to their first shards, with deadlines.
//!
//! Messages are JSON, as in the log: fields that a newer version adds do no harm.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use helenus_internode::service::{self, Failure};
use helenus_internode::transport::{CallError, Destination};
use helenus_ring::HostId;
use openraft::async_runtime::WatchReceiver;
use openraft::entry::RaftEntry;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, RaftState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state_machine::Raft;
use super::types::{LogId, MetadataTypes, Snapshot, SnapshotMeta, Vote};
use crate::cluster::address_book::AddressBook;
use crate::cluster::message::{ClusterRequest, ClusterResponse, RaftCall};
use helenus_execution::shard::context::ShardContext;

type Types = MetadataTypes;
type RpcError = RPCError<Types>;

/// Creates the connections to the other members.
pub struct Network {
    pub context: Rc<ShardContext>,
    pub addresses: AddressBook,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: HostId, _node: &EmptyNode) -> Peer {
        Peer { context: self.context.clone(), addresses: self.addresses.clone(), target }
    }
}

/// The connection to one member.
pub struct Peer {
    context: Rc<ShardContext>,
    addresses: AddressBook,
    target: HostId,
}

/// A snapshot being sent.
#[derive(Serialize, Deserialize)]
struct SnapshotRequest {
    vote: Vote,
    meta: SnapshotMeta,
    /// The document, JSON in JSON.
    state: String,
}

impl Peer {
    fn address(&self) -> Option<SocketAddr> {
        let known = self.context.cluster_view().topology.member(&self.target).map(|it| it.internode_address);
        known.or_else(|| self.addresses.borrow().get(&self.target).copied())
    }

    async fn call<R: DeserializeOwned>(
        &self,
        call: RaftCall,
        payload: &impl Serialize,
        deadline: Duration,
    ) -> Result<R, RpcError> {
        let Some(address) = self.address() else {
            return Err(
                Unreachable::from_string(format!("the address of {} is not known", self.target)).into()
            );
        };
        let payload = serde_json::to_vec(payload).map_err(|error| NetworkError::new(&error))?;
        let request = ClusterRequest::Raft { call, payload };
        let request = service::encode_request(&request).map_err(|error| NetworkError::new(&error))?;
        let to = Destination { host_id: Some(self.target), address, shard: 0 };
        let answer =
            self.context.transport.call(to, request, deadline).await.map_err(|error| match error {
                CallError::Removed { address, .. } => {
                    self.context.node.learn_removed(&address);
                    RpcError::from(Unreachable::new(&error))
                }
                CallError::Unreachable { .. } | CallError::Refused { .. } => {
                    RpcError::from(Unreachable::new(&error))
                }
                error => NetworkError::new(&error).into(),
            })?;
        let response = service::decode_response::<ClusterRequest>(&answer)
            .map_err(|error| NetworkError::new(&error))?
            .map_err(|failure| NetworkError::new(&failure))?;
        match response {
            ClusterResponse::Raft(payload) => {
                Ok(serde_json::from_slice(&payload).map_err(|error| NetworkError::new(&error))?)
            }
            _ => Err(NetworkError::from_string("an answer to another request").into()),
        }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RpcError> {
        self.call(RaftCall::Append, &request, option.hard_ttl()).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RpcError> {
        self.call(RaftCall::Vote, &request, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RpcError> {
        self.call(RaftCall::PreVote, &request, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let state = String::from_utf8(snapshot.snapshot).map_err(|error| NetworkError::new(&error))?;
        let request = SnapshotRequest { vote, meta: snapshot.meta, state };
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            answer = self.call(RaftCall::Snapshot, &request, option.hard_ttl()) => Ok(answer?),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RpcError> {
        self.call(RaftCall::TransferLeader, &request, option.hard_ttl()).await
    }
}

/// Executes the request of another member's log on the log of this node.
pub async fn handle(
    raft: &Raft,
    call: RaftCall,
    payload: &[u8],
    differs: &Cell<bool>,
) -> Result<Vec<u8>, Failure> {
    match call {
        RaftCall::Append => {
            let request: AppendEntriesRequest<Types> = request(payload)?;
            let entries = request.entries.iter().map(RaftEntry::log_id);
            check_applied(raft, request.prev_log_id.into_iter().chain(entries).collect(), differs).await?;
            answer(raft.append_entries(request).await)
        }
        RaftCall::Vote => answer(raft.vote(request(payload)?).await),
        RaftCall::PreVote => answer(raft.pre_vote(request(payload)?).await),
        RaftCall::Snapshot => {
            let SnapshotRequest { vote, meta, state } = request(payload)?;
            check_applied(raft, meta.last_log_id.into_iter().collect(), differs).await?;
            let snapshot = Snapshot { meta, snapshot: state.into_bytes() };
            answer(raft.install_full_snapshot(vote, snapshot).await)
        }
        RaftCall::TransferLeader => answer(raft.handle_transfer_leader(request(payload)?).await),
    }
}

/// Refuses entries that differ from those that this node has applied. The library takes for granted that there are none; after a recovery of the
/// log ([`crate::cluster::recovery`]) a former voter may have applied what no member that was left knew.
async fn check_applied(raft: &Raft, log_ids: Vec<LogId>, differs: &Cell<bool>) -> Result<(), Failure> {
    let Some(applied) = raft.metrics().borrow_watched().last_applied else { return Ok(()) };
    let differing = move |state: &RaftState<Types>| {
        log_ids.into_iter().filter(|log_id| log_id.index() <= applied.index()).find_map(|log_id| {
            let is_last = log_id.index() == applied.index();
            let known = if is_last { Some(applied) } else { state.log_ids.get(log_id.index()) };
            known.filter(|known| *known != log_id)
        })
    };
    let differing = raft.with_raft_state(differing).await;
    match differing.map_err(|error| Failure::Internal(error.to_string()))? {
        None => Ok(()),
        Some(known) => {
            differs.set(true);
            tracing::error!(
                entry = %known,
                "this node has applied an entry of the metadata log in whose place the cluster has agreed on another one: \
                 remove this node, and let it join anew with an empty data directory"
            );
            Err(Failure::Internal(format!("another entry than {known} was agreed on")))
        }
    }
}

fn request<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(payload).map_err(|error| Failure::Malformed(error.to_string()))
}

fn answer<T: Serialize, E: std::fmt::Display>(result: Result<T, E>) -> Result<Vec<u8>, Failure> {
    let answer = result.map_err(|error| Failure::Internal(error.to_string()))?;
    serde_json::to_vec(&answer).map_err(|error| Failure::Internal(error.to_string()))
}
