//! A lease that this node has taken from a replica, and the request for one.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::token::shard_of;
use helenus_ring::member::Member;

use super::message::{LeaseAnswer, LeaseOrder, LeaseRequest};
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::shard::context::{IGNORE_MSB, ShardContext};

/// So many transactions of a line share a lease …
const SERVED_MAX: u32 = 16;

/// … which are begun within this time.
const SERVING: Duration = Duration::from_millis(100);

/// Who has not answered within this time is silent.
const ANSWER: Duration = Duration::from_millis(250);

/// A lease that this node has.
#[derive(Debug)]
pub struct Lease {
    pub(super) granter: Arc<Member>,
    pub(super) request: LeaseRequest,
    pub(super) token: i64,
    /// Monotonic.
    pub(super) since: Duration,
    pub(super) served: u32,
}

impl Lease {
    /// Counts a transaction; whether it may serve another one.
    pub fn has_served(&mut self, now: Duration) -> bool {
        self.served += 1;
        self.served < SERVED_MAX && now < self.since + SERVING
    }

    /// Leaves the partition to others.
    pub fn give_back(self, context: &Rc<ShardContext>) {
        let context = context.clone();
        tokio::task::spawn_local(async move {
            let request = LeaseRequest { order: LeaseOrder::GiveBack, ..self.request };
            // If it gets lost, the lease ends by itself.
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
            tracing::debug!(replica = %granter.host_id, %error, "a replica gave no lease");
            None
        }
    }
}
