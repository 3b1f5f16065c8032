//! A coordinator's side of competing with others for a partition: where it was outbid, it asks the partition's first live
//! replica for a [`lease`](super::lease) before it goes on, and so do the next ones in its line for a while.
//!
//! Uncontended transactions ask for nothing. A lease serves several of the line, so that its way from node to node costs little.
//! Whatever becomes of the lease, the transaction goes on: a replica that does not answer is passed over, and when no lease
//! comes in time the transaction runs without one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::token::shard_of;
use helenus_ring::HostId;
use helenus_ring::member::Member;

use super::lease::{LeaseAnswer, LeaseOrder, LeaseRequest, POLL};
use super::round::Operation;
use super::turns::Turn;
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::shard::context::{IGNORE_MSB, ShardContext};

/// So many transactions of a line share a lease …
const SERVED_MAX: u32 = 16;
/// … which are begun within this time.
const SERVING: Duration = Duration::from_millis(100);
/// Who has not answered within this time is silent.
const ANSWER: Duration = Duration::from_millis(250);
/// Who was silent is not asked for this time.
const SILENCE: Duration = Duration::from_secs(2);

/// Replicas that did not answer when they were asked for a lease, with the time (monotonic) when they may be asked again.
#[derive(Default)]
pub struct SilentReplicas(RefCell<BTreeMap<HostId, Duration>>);

impl SilentReplicas {
    fn has(&self, host_id: &HostId, now: Duration) -> bool {
        self.0.borrow().get(host_id).is_some_and(|until| *until > now)
    }

    fn note(&self, host_id: HostId, now: Duration) {
        let mut silent = self.0.borrow_mut();
        silent.retain(|_, until| *until > now);
        silent.insert(host_id, now + SILENCE);
    }
}

/// A lease that this node has.
#[derive(Debug)]
pub struct Lease {
    granter: Arc<Member>,
    request: LeaseRequest,
    token: i64,
    /// Monotonic.
    since: Duration,
    served: u32,
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

async fn ask(
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

/// Who leases the partition: the first of its replicas that is alive and answers, in the order of the ring, those of this data
/// center before others.
fn granter(context: &ShardContext, operation: &Operation) -> Option<Arc<Member>> {
    let view = context.cluster();
    let now = context.clock.monotonic();
    let replicas = view.placement(&operation.table.keyspace)?.replicas(operation.key.token);
    let may_grant = |member: &&Arc<Member>| {
        operation.is_participant(context, member)
            && view.is_alive(&member.host_id)
            && !context.paxos().silent.has(&member.host_id, now)
    };
    let is_far = |member: &&Arc<Member>| member.data_center != context.node.config.data_center;
    replicas.read.iter().filter(may_grant).min_by_key(is_far).cloned()
}

/// Waits for the lease of the partition, unless the line has it; at most for half of the time that the operation has left.
pub async fn take_lease(context: &Rc<ShardContext>, operation: &Operation, turn: &mut Turn) {
    let now = || context.clock.monotonic();
    let wait = operation.deadline.saturating_sub(now()) / 2;
    let latest = now() + wait;
    tokio::select! {
        biased;
        () = turn.be_alone() => {}
        () = context.clock.sleep(wait) => return,
    }
    if turn.has_lease() {
        return;
    }
    let request = LeaseRequest {
        table_id: *operation.table.id.as_bytes(),
        key: operation.key.bytes.clone(),
        lease_id: context.random.borrow_mut().next_u64(),
        order: LeaseOrder::Take,
    };
    let token = operation.key.token;
    while let Some(granter) = granter(context, operation) {
        let answer = ask(context, &granter, token, request.clone()).await;
        match answer {
            Some(LeaseAnswer::Granted { is_wanted }) => {
                if is_wanted {
                    turn.note_contention(now());
                }
                turn.set_lease(Lease { granter, request, token, since: now(), served: 0 });
                return;
            }
            Some(LeaseAnswer::InLine) if now() + POLL < latest => {}
            Some(_) => {
                Lease { granter, request, token, since: now(), served: 0 }.give_back(context);
                return;
            }
            None => {
                context.paxos().silent.note(granter.host_id, now());
                if now() >= latest {
                    return;
                }
            }
        }
    }
}
