//! The coordinator's side of the competition for a partition. A coordinator that was outbid asks the partition's
//! first live replica for a [`lease`](super::lease) before it continues. For a while, the next transactions in its
//! queue do so as well.
//!
//! Uncontended transactions request no lease. A lease serves several transactions of the queue, so passing it between
//! nodes costs little. The transaction continues with or without a lease: a replica that does not answer is skipped,
//! and if no lease arrives in time the transaction runs without one.

use std::rc::Rc;
use std::sync::Arc;

use helenus_ring::member::Member;

use super::held_lease::ask;
use super::lease::POLL;
use super::partition_queue::QueueGuard;
use crate::coordinator::paxos::held_lease::Lease;
use crate::coordinator::paxos::message::{LeaseAnswer, LeaseOrder, LeaseRequest};
use crate::coordinator::paxos::operation::Operation;
use crate::shard::context::ShardContext;

/// The replica that leases the partition: the first one that is alive and answers, in the order of the ring, those of
/// this data center first.
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

/// Waits for the lease of the partition, unless the queue has it already. Waits at most half of the operation's
/// remaining time.
pub async fn take_lease(context: &Rc<ShardContext>, operation: &Operation, turn: &mut QueueGuard) {
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
