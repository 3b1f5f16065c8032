//! Requests of other nodes: decoded by the service's id, executed on a shard, and answered.

use std::rc::Rc;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_fair_shares::{self as shares, RoleShares, ShardShare};
use helenus_internode::service::{self, Failure, MessageError, ServiceRequest};
use helenus_internode::transport::Handler;
use helenus_ring::HostId;
use uuid::Uuid;

use crate::cluster::message::ClusterRequest;
use crate::streaming::message::StreamRequest;
use helenus_execution::coordinator::repair::message::RepairRequest;
use helenus_execution::coordinator::replica::message::ReplicaRequest;
use helenus_execution::coordinator::traces;
use helenus_execution::shard::call::Serve;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::receipt::ReceiptLog;
use helenus_execution::shard::status_table::ServingState;
use helenus_execution::shard::trace::TraceLog;
use helenus_projector::message::ViewsRequest;

const IDS: [u32; 8] = [
    ReplicaRequest::ID,
    ClusterRequest::ID,
    StreamRequest::ID,
    RepairRequest::ID,
    ViewsRequest::ID,
    service::TRACED_ID,
    service::RECEIPT_ID,
    service::SHARED_ID,
];

const _: () = {
    let mut one = 0;
    while one < IDS.len() {
        let mut other = 0;
        while other < one {
            assert!(IDS[one] != IDS[other], "services are distinguished by their ids");
            other += 1;
        }
        one += 1;
    }
};

/// Executes requests of other nodes on a shard.
pub struct Dispatcher(pub Rc<ShardContext>);

impl Handler for Dispatcher {
    fn handle(
        self: Rc<Self>,
        from: HostId,
        message: Bytes,
        needs_answer: bool,
    ) -> LocalBoxFuture<'static, Option<Bytes>> {
        let context = self.0.clone();
        Box::pin(async move { dispatch(&context, from, &message, needs_answer).await })
    }
}

/// Executes an encoded request of a node on a shard. Returns the encoded response, if one is needed.
pub async fn dispatch(
    context: &Rc<ShardContext>,
    from: HostId,
    message: &[u8],
    needs_answer: bool,
) -> Option<Bytes> {
    let response = carry_out(context, from, message).await.or_else(|error| {
        tracing::warn!(%from, %error, "a node sent a request that cannot be decoded");
        service::encode_failure(&Failure::Malformed(error.to_string()))
    });
    match response {
        Ok(response) => needs_answer.then_some(response),
        Err(error) => {
            tracing::error!(%from, %error, "a response cannot be encoded");
            None
        }
    }
}

/// Executes a request, in turns of the role that it is sent for if there is one.
async fn carry_out(context: &Rc<ShardContext>, from: HostId, message: &[u8]) -> Result<Bytes, MessageError> {
    let (id, request) = service::split_request(message)?;
    if id != service::SHARED_ID {
        return carry_out_alone(context, from, message).await;
    }
    let (role, message) = service::split_shared(request)?;
    let share = share_of(context, role);
    shares::within(context.shares.clone(), share, carry_out_alone(context, from, message)).await
}

/// The share of a role that has asked another node. `None`: its work is not shared here, or this node does not know it (any more).
fn share_of(context: &ShardContext, role: &str) -> Option<Rc<ShardShare>> {
    if !context.node.config.fair_shares_enabled {
        return None;
    }
    let roles = context.roles_view();
    let options = &roles.role(role)?.options;
    let share = context.shares.of(context.node.layers.get::<RoleShares>().of(role));
    share.set_shares(options.shares);
    Some(share)
}

/// Executes a request, and counts for its receipt if it is to come with one.
async fn carry_out_alone(
    context: &Rc<ShardContext>,
    from: HostId,
    message: &[u8],
) -> Result<Bytes, MessageError> {
    let (id, request) = service::split_request(message)?;
    if id != service::RECEIPT_ID {
        return carry_out_traced(context, from, id, request).await;
    }
    let (id, request) = service::split_request(request)?;
    let log = ReceiptLog::begin(None, true);
    let response = log.scope(context.clone(), carry_out_traced(context, from, id, request)).await?;
    service::with_receipt(&response, log.receipt().numbers())
}

/// Executes a request, within its trace if there is one.
async fn carry_out_traced(
    context: &Rc<ShardContext>,
    from: HostId,
    id: u32,
    request: &[u8],
) -> Result<Bytes, MessageError> {
    if id != service::TRACED_ID {
        return carry_out_one(context, from, id, request).await;
    }
    let (trace, message) = service::split_traced(request)?;
    let (id, request) = service::split_request(message)?;
    let log = TraceLog::begin(context, Uuid::from_u128(trace));
    let sender = context.cluster_view().topology.member(&from).map(|member| member.internode_address);
    let sender = sender.map_or_else(|| from.to_string(), |address| address.to_string());
    log.note(context, format!("Message received from {sender}"));
    let response = log.scope(carry_out_one(context, from, id, request)).await;
    log.note(context, format!("Sending the response to {sender}"));
    // A node that serves no more writes nothing either.
    if context.node.status.state() <= ServingState::Leaving {
        traces::store_of_replica(context, &log).await;
    }
    response
}

async fn carry_out_one(
    context: &Rc<ShardContext>,
    from: HostId,
    id: u32,
    request: &[u8],
) -> Result<Bytes, MessageError> {
    match id {
        ReplicaRequest::ID | RepairRequest::ID | ViewsRequest::ID
            if context.node.status.state() > ServingState::Leaving =>
        {
            service::encode_failure(&Failure::Overloaded("the node does not serve any more".to_owned()))
        }
        ReplicaRequest::ID => serve::<ReplicaRequest>(context, from, request).await,
        ClusterRequest::ID => serve::<ClusterRequest>(context, from, request).await,
        StreamRequest::ID => serve::<StreamRequest>(context, from, request).await,
        RepairRequest::ID => serve::<RepairRequest>(context, from, request).await,
        ViewsRequest::ID => serve::<ViewsRequest>(context, from, request).await,
        unknown => {
            service::encode_failure(&Failure::Malformed(format!("there is no service {unknown} here")))
        }
    }
}

async fn serve<R: Serve>(
    context: &Rc<ShardContext>,
    from: HostId,
    request: &[u8],
) -> Result<Bytes, MessageError> {
    let request = service::decode_request::<R>(request)?;
    let response = request.serve(context.clone(), from).await;
    service::encode_response::<R>(&response).or_else(|error| {
        service::encode_failure(&Failure::Internal(format!("the response cannot be encoded: {error}")))
    })
}
