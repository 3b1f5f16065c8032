//! Sends an agreed mutation to all replicas. The participants record that it is committed. Replicas in other data
//! centers (`LOCAL_SERIAL`) get it like any write, and replicas that are down get a hint; neither, if the table was truncated since.
//!
//! Once agreed, the mutation cannot be undone: later rounds find it at a quorum and finish it. The client's
//! consistency level only determines how many replicas the answer waits for; with ANY, none.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use cql_lite::types::token::shard_of;
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use helenus_engine::Mutation;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::member::Member;
use helenus_ring::placement::Replicas;
use tokio::sync::oneshot;

use super::late_commit::{self, Remainder};
use super::message::{PaxosOrder, PaxosRequest};
use super::round::send;
use super::state::Commit;
use crate::coordinator::RequestOptions;
use crate::coordinator::paxos::operation::Operation;
use crate::coordinator::replica::failures::failure_reason;
use crate::coordinator::replica::hints::WrittenAt;
use crate::coordinator::replica::latency::rings;
use crate::coordinator::replica::message::ReplicaRequest;
use crate::coordinator::replica::{epoch, hints, write};
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::{receipt, trace};
use helenus_ring::consistency::{self, RequiredReplicas};

/// Sends an agreed mutation to all replicas, and resolves when as many have it as the level requires.
pub async fn commit(
    context: &Rc<ShardContext>,
    operation: &Operation,
    agreed: Commit,
    options: &RequestOptions,
    contentions: u16,
) -> Result<()> {
    let level = options.consistency;
    let mutation = Mutation::from_bytes(agreed.mutation.clone().into())
        .map_err(|error| RequestError::Server(error.to_string()))?;
    let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
    let distribution = Distribution {
        context: context.clone(),
        operation: operation.clone(),
        change: PartitionMutation { token: operation.key.token, table: operation.table.clone(), mutation },
        agreed,
        level,
        contentions,
        deadline: context.clock.monotonic() + timeout,
        begun_micros: context.clock.now_micros(),
    };
    write::count(context, &distribution.change);
    let required = distribution.replicas().map_or(1, |(_, _, demand)| demand.required());
    let timed_out = distribution.timeout(0, required);
    let (sender, receiver) = oneshot::channel();
    let coordinating = context.replication().coordinating();
    tokio::task::spawn_local(context.shares.carry(trace::carry(receipt::carry(context, async move {
        distribution.run(Some(sender)).await;
        drop(coordinating);
    }))));
    if level == Consistency::Any {
        return Ok(());
    }
    let mut waits = options
        .deadline
        .map(|deadline| context.clock.sleep(deadline.saturating_sub(context.clock.monotonic())));
    tokio::select! {
        biased;
        outcome = receiver => {
            outcome.unwrap_or_else(|_| Err(RequestError::Server("the node is shutting down".to_owned())))
        }
        () = rings(waits.as_mut()) => Err(timed_out),
    }
}

type Waiting = Option<oneshot::Sender<Result<()>>>;
type Sent = FuturesUnordered<LocalBoxFuture<'static, (Arc<Member>, Result<(), PeerError>)>>;

struct Distribution {
    context: Rc<ShardContext>,
    operation: Operation,
    change: PartitionMutation,
    agreed: Commit,
    level: Consistency,
    contentions: u16,
    /// When replicas that have not answered get hints, whether or not the client still waits.
    deadline: Duration,
    /// Wall clock time, in microseconds.
    begun_micros: i64,
}

impl Distribution {
    fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.context.clock.monotonic())
    }

    fn replicas(&self) -> Option<(u64, Replicas, RequiredReplicas)> {
        let context = &self.context;
        let view = context.cluster();
        let keyspace = &self.operation.table.keyspace;
        let placement = view.placement(keyspace)?;
        let replicas = placement.replicas(self.operation.key.token).clone();
        let (data_center, this_node) = (&context.node.config.data_center, context.node.host_id);
        let demand = consistency::required(self.level, placement.replication(), data_center, this_node)
            .of_write(&replicas, data_center, this_node);
        Some((view.topology.epoch, replicas, demand))
    }

    async fn run(self, mut waiting: Waiting) {
        // The keyspace may have been dropped meanwhile: then there are no replicas.
        while let Some((epoch, replicas, demand)) = self.replicas() {
            match self.attempt(epoch, &replicas, &demand, &mut waiting).await {
                None => return,
                Some(newer) => {
                    if !epoch::catch_up(&self.context, newer, self.left()).await {
                        for member in replicas.all() {
                            self.store_hint(member).await;
                        }
                        report(&mut waiting, Err(self.timeout(0, demand.required())));
                        return;
                    }
                }
            }
        }
        report(&mut waiting, Ok(()));
    }

    /// Sends the commit to the replicas of one epoch. `Some`: the ring has changed.
    async fn attempt(
        &self,
        epoch: u64,
        replicas: &Replicas,
        demand: &RequiredReplicas,
        waiting: &mut Waiting,
    ) -> Option<u64> {
        let view = self.context.cluster();
        let sent = Sent::new();
        let mut failed: Vec<(Arc<Member>, FailureReason)> = Vec::new();
        let mut acknowledged: Vec<Arc<Member>> = Vec::new();
        for member in replicas.all() {
            if view.is_alive(&member.host_id) {
                sent.push(self.send_to(epoch, member.clone()));
            } else {
                failed.push((member.clone(), FailureReason::NodeDown));
            }
        }
        let mut sent = sent;
        loop {
            self.report_if_decided(demand, &acknowledged, &failed, sent.is_empty(), waiting);
            match sent.next().await {
                None => break,
                Some((member, Ok(()))) => acknowledged.push(member),
                Some((_, Err(PeerError::Failed(Failure::StaleRing { epoch })))) => return Some(epoch),
                Some((member, Err(error))) => {
                    tracing::debug!(replica = %member.host_id, %error, "a replica did not acknowledge a commit");
                    failed.push((member, failure_reason(&error)));
                }
            }
        }
        for (member, _) in &failed {
            self.store_hint(member).await;
        }
        None
    }

    /// What is left of the mutation, if its table was truncated since, or some of it must not be applied any more for another reason.
    fn remainder(&self) -> Option<Remainder> {
        let view = self.change.mutation.view().map_err(|error| Failure::Malformed(error.to_string()));
        match view.and_then(|view| late_commit::in_time(&self.context, &view, &self.agreed.origin)) {
            Ok(remainder) => remainder,
            Err(error) => unreachable!("a mutation that was agreed on can be read: {error}"),
        }
    }

    /// The commit as participants get it: without rows that are late. One that has just joined cannot know that.
    fn for_participants(&self) -> Commit {
        let mut commit = self.agreed.clone();
        if let Some(Remainder { noted, .. }) = self.remainder() {
            commit.mutation = noted.bytes().to_vec();
        }
        commit
    }

    /// The change that replicas apply that take no part; `None`: all of it is late.
    fn change_in_time(&self) -> Option<Mutation> {
        match self.remainder() {
            None => Some(self.change.mutation.clone()),
            Some(remainder) => remainder.applied,
        }
    }

    async fn store_hint(&self, member: &Member) {
        if self.change_in_time().is_some() {
            // Parts that are late are left out when it is delivered.
            let times = WrittenAt { created_micros: self.begun_micros, kept_micros: self.begun_micros };
            hints::store(&self.context, member.host_id, &self.change, times).await;
        }
    }

    fn send_to(
        &self,
        epoch: u64,
        member: Arc<Member>,
    ) -> LocalBoxFuture<'static, (Arc<Member>, Result<(), PeerError>)> {
        let context = self.context.clone();
        let left = self.left();
        if !self.operation.is_participant(&context, &member) {
            let Some(mutation) = self.change_in_time() else {
                return Box::pin(std::future::ready((member, Ok(()))));
            };
            let mutation = mutation.bytes().to_vec();
            let request = ReplicaRequest::Write { epoch, mutation };
            let shard = shard_of(self.operation.key.token, u32::from(member.shard_count), IGNORE_MSB) as u16;
            return Box::pin(async move {
                let outcome = context.ask(&member, shard, &request, left).await.map(|_| ());
                (member, outcome)
            });
        }
        let request = PaxosRequest {
            epoch,
            partition: self.operation.name(),
            order: PaxosOrder::Commit(self.for_participants()),
        };
        Box::pin(async move {
            let outcome = send(&context, &member, request, left).await.map(|_| ());
            (member, outcome)
        })
    }

    fn timeout(&self, received: u32, required: u32) -> RequestError {
        let (write_type, contentions) = (WriteType::Cas, self.contentions);
        RequestError::WriteTimeout { consistency: self.level, received, required, write_type, contentions }
    }

    /// Answers the client when the level is reached, or with an error when all replicas have answered: only then is
    /// the reported number of acknowledgements right.
    fn report_if_decided(
        &self,
        demand: &RequiredReplicas,
        acknowledged: &[Arc<Member>],
        failed: &[(Arc<Member>, FailureReason)],
        have_all_answered: bool,
        waiting: &mut Waiting,
    ) {
        if demand.is_met(acknowledged.iter().map(|member| &**member)) {
            report(waiting, Ok(()));
            return;
        }
        if !have_all_answered {
            return;
        }
        let received = demand.received(acknowledged.iter().map(|member| &**member));
        let required = demand.required();
        let has_refused = failed
            .iter()
            .any(|(_, reason)| !matches!(reason, FailureReason::TimedOut | FailureReason::NodeDown));
        let error = if has_refused {
            let failures = failed
                .iter()
                .map(|(member, reason)| ReplicaFailure {
                    address: member.native_address.ip(),
                    reason: *reason,
                })
                .collect();
            let write_type = WriteType::Cas;
            RequestError::WriteFailure { consistency: self.level, received, required, write_type, failures }
        } else {
            self.timeout(received, required)
        };
        report(waiting, Err(error));
    }
}

fn report(waiting: &mut Waiting, outcome: Result<()>) {
    if let Some(sender) = waiting.take() {
        // The client may have disconnected.
        let _ = sender.send(outcome);
    }
}
