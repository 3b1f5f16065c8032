//! A lease that a replica granted to this node, and the request for one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::token::shard_of;
use helenus_ring::member::Member;

use super::message::{LeaseAnswer, LeaseOrder, LeaseRequest};
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::shard::context::{IGNORE_MSB, ShardContext};

/// Most transactions of a queue that share a lease.
const SERVED_MAX: u32 = 16;

/// Transactions that share a lease must begin within this time.
const SERVING: Duration = Duration::from_millis(100);

/// A replica that does not answer within this time counts as silent.
const ANSWER: Duration = Duration::from_millis(250);

/// A lease granted to this node.
#[derive(Debug)]
pub struct Lease {
    pub(super) granter: Arc<Member>,
    pub(super) request: LeaseRequest,
    pub(super) token: i64,
    /// Monotonic time of the grant.
    pub(super) since: Duration,
    pub(super) served: u32,
}

impl Lease {
    /// Counts a transaction. Returns whether the lease may serve another one.
    pub fn has_served(&mut self, now: Duration) -> bool {
        self.served += 1;
        self.served < SERVED_MAX && now < self.since + SERVING
    }

    /// Gives the lease back to the replica.
    pub fn give_back(self, context: &Rc<ShardContext>) {
        let context = context.clone();
        tokio::task::spawn_local(async move {
            let request = LeaseRequest { order: LeaseOrder::GiveBack, ..self.request };
            // If the message gets lost, the lease expires.
            let _ = ask(&context, &self.granter, self.token, request).await;
        });
    }
}

pub async fn ask(
    context: &Rc<ShardContext>,
    granter: &Member,
    token: i64,
    request: LeaseRequest,
) -> Option<LeaseAnswer> {
    let shard = shard_of(token, u32::from(granter.shard_count), IGNORE_MSB) as u16;
    let request = ReplicaRequest::Lease(request);
    match context.ask(granter, shard, &request, ANSWER).await {
        Ok(ReplicaResponse::Lease(answer)) => Some(answer),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(replica = %granter.host_id, %error, "a replica did not grant a lease");
            None
        }
    }
}
