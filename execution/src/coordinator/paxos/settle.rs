//! Forgets the state of partitions whose transactions have been idle for a while (`transaction_state_idle_seconds`).
//!
//! 1. All replicas promise a ballot. By then all of them know the latest commit; unfinished proposals are finished.
//! 2. All of them accept an empty proposal of this ballot. So nothing older can be agreed any more.
//! 3. They are asked to forget, and keep only the ballot, as a low bound: a ballot that is not above it is refused,
//!    and counts as known. The node that settles the partition forgets last, so while any replica still has state,
//!    some replica will settle it again.
//!
//! The low bound outlives by far all operations that may have been in progress. After it has expired, replicas refuse
//! ballots that are so much older than their clock that the low bound must have been above them
//! (`replica::outdated_micros`).
//!
//! Every replica scans its own state. The first live replica in the order of the ring settles a partition. The others
//! settle only partitions that have been idle for longer (because that replica has nothing to forget).
//!
//! Many partitions are settled at once. Those that cannot be settled do not keep others from it: after some of them a scan ends, and the next one
//! goes on behind them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::{StreamExt, stream};
use helenus_engine::TableId;
use helenus_query::error::Result;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_ring::placement::Replicas;

use super::ballot::Ballot;
use super::message::{PartitionName, PaxosOrder, PaxosRequest, ReadOrder};
use super::round::{Verdict, agree, send};
use super::state::Registers;
use super::store;
use crate::coordinator::paxos::operation::Operation;
use crate::shard::context::ShardContext;

/// Rows that are read in one turn.
const PART_ROWS: usize = 256;
/// Number of scans within the time after which a partition counts as idle.
const ROUNDS_PER_IDLE: u64 = 4;
/// Most partitions that are settled at a time.
pub const AT_A_TIME: usize = 32;
/// After this number of partitions that could not be settled, the rest waits for the next scan: the replicas may have too much to do.
const FAILURES_MAX: usize = 64;
/// Timeout of a request to forget.
const FORGET_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the shard's periodic scans.
pub fn spawn(context: &Rc<ShardContext>) {
    let pause =
        Duration::from_secs(context.node.config.transaction_state_idle_seconds) / ROUNDS_PER_IDLE as u32;
    context.repeat(pause, async |context| {
        if let Err(error) = round(context).await {
            tracing::warn!(%error, "the scan for idle transactions failed");
        }
    });
}

/// Scans all transaction state of this shard once, from where the last scan has ended. Returns the number of partitions settled.
pub async fn round(context: &Rc<ShardContext>) -> Result<u64> {
    let failed = |error: store::StoreError| helenus_query::error::RequestError::Server(error.to_string());
    let from = context.paxos().settling_from.take();
    let (mut settled, mut failures) = (0, 0);
    let mut is_rest_done = from.is_empty();
    let mut next = Some(from.clone());
    loop {
        let start = match next {
            Some(start) if !from.is_empty() && is_rest_done && start >= from => break,
            Some(start) => start,
            None if is_rest_done => break,
            None => {
                is_rest_done = true;
                Vec::new()
            }
        };
        let part = store::load_part(&context.shard, &start, PART_ROWS).map_err(failed)?;
        let mut due = Vec::new();
        for (name, registers) in part.states {
            let Some(rested) = rested_times(context, &registers) else { continue };
            let Some(table) = context.catalog_view().table(TableId(name.table_id)).cloned() else {
                store::remove(&context.shard, &name, context.now_seconds()).map_err(failed)?;
                continue;
            };
            if is_due(context, &name, rested, &table) {
                due.push((name, table));
            }
        }
        let settling = due.into_iter().map(|(name, table)| async move {
            !*context.node.stopping.borrow() && settle(context, &name, table).await
        });
        let outcomes: Vec<bool> = stream::iter(settling).buffer_unordered(AT_A_TIME).collect().await;
        let count = outcomes.iter().filter(|is_settled| **is_settled).count();
        settled += count as u64;
        failures += outcomes.len() - count;
        if failures >= FAILURES_MAX || *context.node.stopping.borrow() {
            // Behind the last partition the next scan begins with the first one.
            *context.paxos().settling_from.borrow_mut() = part.resume.unwrap_or_else(Vec::new);
            break;
        }
        next = part.resume;
        tokio::task::yield_now().await;
    }
    if settled > 0 {
        tracing::debug!(settled, "the state of idle transactions was forgotten");
    }
    Ok(settled)
}

/// How many times longer than configured the transactions of a partition have been idle; `None`: not long enough, or
/// there is nothing to forget.
fn rested_times(context: &ShardContext, registers: &Registers) -> Option<u64> {
    let rested_micros = context.clock.now_micros().saturating_sub(registers.latest_micros());
    let rested_seconds = u64::try_from(rested_micros).unwrap_or(0) / 1_000_000;
    let times = rested_seconds / context.node.config.transaction_state_idle_seconds.max(1);
    (times > 0 && !registers.is_empty()).then_some(times)
}

/// Whether this node has to settle a partition that has been idle for `rested` times the configured time.
fn is_due(context: &ShardContext, name: &PartitionName, rested: u64, table: &Table) -> bool {
    let view = context.cluster_view();
    let Some(placement) = view.placement(&table.keyspace) else { return false };
    let replicas = placement.replicas(name.token);
    if !replicas.all().all(|member| view.is_alive(&member.host_id)) {
        return false;
    }
    let own = context.node.host_id;
    let rank = replicas.read.iter().position(|member| member.host_id == own);
    rank.is_some_and(|rank| rested > rank as u64)
}

/// Settles a partition and lets its replicas forget it. Returns false if that must wait for another scan.
async fn settle(context: &Rc<ShardContext>, name: &PartitionName, table: Arc<Table>) -> bool {
    let operation = operation(context, name, table);
    let epoch = context.cluster_view().topology.epoch;
    match agree_on_nothing(context, &operation).await {
        Some(ballot) => forget(context, &operation, epoch, ballot).await,
        None => false,
    }
}

/// Finishes what was proposed for a partition, or rules it out, on all replicas. Returns false if they do not agree on it now. Call on the
/// shard of the partition.
pub async fn finish(context: &Rc<ShardContext>, name: &PartitionName, table: Arc<Table>) -> bool {
    agree_on_nothing(context, &operation(context, name, table)).await.is_some()
}

/// An operation that changes nothing, and on which all replicas must agree.
fn operation(context: &ShardContext, name: &PartitionName, table: Arc<Table>) -> Operation {
    let timeout = Duration::from_millis(context.node.config.cas_contention_timeout_ms);
    Operation {
        table,
        key: PartitionKey { token: name.token, bytes: name.key.clone() },
        serial: Consistency::Serial,
        is_write: true,
        is_unanimous: true,
        read_before: Vec::new(),
        read: ReadOrder::UNLIMITED,
        deadline: context.clock.monotonic() + timeout,
    }
}

/// Has all replicas accept an empty proposal. Returns its ballot.
async fn agree_on_nothing(context: &Rc<ShardContext>, operation: &Operation) -> Option<Ballot> {
    let name = operation.name();
    let mut guard = context.paxos().queues.take(name.table_id, name.key).await;
    let mut settled: Option<Ballot> = None;
    let agreement = agree(context, operation, &mut guard, &mut |ballot, _| {
        settled = Some(ballot);
        Ok(Verdict::Settle)
    })
    .await;
    if let Some(lease) = guard.finish(context.clock.monotonic()) {
        lease.give_back(context);
    }
    drop(guard);
    if let Err(error) = agreement {
        tracing::debug!(%error, "transactions could not be settled");
        return None;
    }
    settled
}

/// Asks the replicas to forget, this node last.
async fn forget(context: &Rc<ShardContext>, operation: &Operation, epoch: u64, ballot: Ballot) -> bool {
    let replicas = {
        let view = context.cluster_view();
        match view.placement(&operation.table.keyspace) {
            Some(placement) => placement.replicas(operation.key.token).clone(),
            None => return false,
        }
    };
    let own = context.node.host_id;
    let (last, first): (Vec<_>, Vec<_>) = Replicas::all(&replicas).partition(|member| member.host_id == own);
    for member in first.into_iter().chain(last) {
        let partition = operation.name();
        let request = PaxosRequest { epoch, partition, order: PaxosOrder::Forget { ballot } };
        if let Err(error) = send(context, member, request, FORGET_TIMEOUT).await {
            tracing::debug!(replica = %member.host_id, %error, "a replica did not forget idle transactions");
            return false;
        }
    }
    true
}
