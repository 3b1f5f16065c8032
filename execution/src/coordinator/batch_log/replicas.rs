//! Logged batches in a cluster: written to the batch logs of two other members before they are applied.
//!
//! The members (batch log replicas) are chosen as in Cassandra: alive, in the coordinator's data center, in two other
//! racks if possible. If this node is the only one of its data center, it keeps the batch itself. The entries are
//! removed when every replica has every mutation or a hint for it. Until then each batch log replica replays its
//! entry.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::view::ClusterView;

use super::store;
use crate::coordinator::RequestOptions;
use crate::coordinator::batch_log::batch_id::BatchId;
use crate::coordinator::replica::message::ReplicaRequest;
use crate::coordinator::replica::write::{self, Started, WriteOptions};
use crate::shard::context::ShardContext;

/// The number of members that keep a batch.
const COPIES: usize = 2;

/// Writes a batch to the batch logs, then to its replicas.
pub async fn write(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
    request: &RequestOptions,
) -> Result<()> {
    let consistency = request.consistency;
    for change in &changes {
        write::check_alive(context, change, consistency)?;
    }
    let keepers = keepers(context, consistency)?;
    let deadline = request.deadline_or(context, context.node.config.write_request_timeout_ms);
    let id = BatchId::new(context);
    store(context, &keepers, id, &changes, deadline).await?;
    let options = WriteOptions::new(context, consistency, WriteType::Batch, Some(deadline));
    // An error after this point leaves the batch in the log, so it will be applied; the timeout reported to the
    // client says as much.
    let started = match write::begin(context, changes, options) {
        Ok(started) => started,
        Err(error) => {
            // Nothing was sent, and the client gets an error that says so: the batch must not be applied later.
            remove(context, &keepers, id).await;
            return Err(error);
        }
    };
    let mut outcome = Ok(());
    let mut settled = Vec::with_capacity(started.len());
    for Started { answer, settled: is_settled } in started {
        let stopped = || RequestError::Server("the node is shutting down".to_owned());
        outcome = outcome.and(answer.await.unwrap_or_else(|_| Err(stopped())));
        settled.push(is_settled);
    }
    let is_reached = outcome.is_ok();
    let context = context.clone();
    tokio::task::spawn_local(async move {
        let mut is_everywhere = true;
        for is_settled in settled {
            is_everywhere &= is_settled.await.unwrap_or(false);
        }
        // If hints are disabled or their store is full, the client's level has to be enough.
        if is_everywhere || is_reached {
            remove(&context, &keepers, id).await;
        }
    });
    outcome
}

/// The batch log replicas of a batch; empty: this node keeps it.
fn keepers(context: &ShardContext, consistency: Consistency) -> Result<Vec<Arc<Member>>> {
    let view = context.cluster();
    let config = &context.node.config;
    let is_alone = candidates(&view, context.node.host_id, &config.data_center).next().is_none();
    if is_alone {
        return Ok(Vec::new());
    }
    let keepers = choose(&view, context.node.host_id, &config.data_center, &config.rack, |count| {
        context.random.borrow_mut().below(count as u64) as usize
    });
    if keepers.is_empty() && consistency != Consistency::Any {
        return Err(RequestError::Unavailable { consistency: Consistency::One, required: 1, alive: 0 });
    }
    Ok(keepers)
}

/// The other members of the data center that stay. A joining member may be removed again, a leaving one has no time
/// to replay anything.
fn candidates<'a>(
    view: &'a ClusterView,
    this_node: HostId,
    data_center: &'a str,
) -> impl Iterator<Item = &'a Arc<Member>> {
    view.topology.members.values().filter(move |member| {
        member.host_id != this_node
            && member.data_center == data_center
            && member.state == MemberState::Normal
    })
}

/// Chooses two other members, as Cassandra chooses batch log endpoints. `random` returns a number below its argument.
fn choose(
    view: &ClusterView,
    this_node: HostId,
    data_center: &str,
    rack: &str,
    mut random: impl FnMut(usize) -> usize,
) -> Vec<Arc<Member>> {
    let mut by_rack: BTreeMap<&str, Vec<&Arc<Member>>> = BTreeMap::new();
    for member in candidates(view, this_node, data_center) {
        if view.is_alive(&member.host_id) {
            by_rack.entry(&member.rack).or_default().push(member);
        }
    }
    let in_other_racks: usize =
        by_rack.iter().filter(|(name, _)| **name != rack).map(|(_, members)| members.len()).sum();
    if in_other_racks >= COPIES {
        by_rack.remove(rack);
    }
    let mut chosen: Vec<Arc<Member>> = Vec::with_capacity(COPIES);
    // One member of each rack while there are racks left, then again from the start.
    while chosen.len() < COPIES && !by_rack.is_empty() {
        let mut racks: Vec<&str> = by_rack.keys().copied().collect();
        while chosen.len() < COPIES && !racks.is_empty() {
            let name = racks.swap_remove(random(racks.len()));
            let Some(members) = by_rack.get_mut(name) else { continue };
            if !members.is_empty() {
                chosen.push(members.swap_remove(random(members.len())).clone());
            }
            if members.is_empty() {
                by_rack.remove(name);
            }
        }
    }
    chosen
}

async fn store(
    context: &Rc<ShardContext>,
    keepers: &[Arc<Member>],
    id: BatchId,
    changes: &[PartitionMutation],
    deadline: Duration,
) -> Result<()> {
    let mutations = store::encode(changes);
    if keepers.is_empty() {
        return store::store_here(context, &id.position(), &mutations).await;
    }
    let request = ReplicaRequest::StoreBatch { id, mutations };
    let left = deadline.saturating_sub(context.clock.monotonic());
    let answers = keepers.iter().map(|member| context.ask(member, context.index as u16, &request, left));
    let answers = futures::future::join_all(answers).await;
    let received = answers.iter().filter(|answer| answer.is_ok()).count() as u32;
    let required = keepers.len() as u32;
    if received < required {
        let consistency = if required == 1 { Consistency::One } else { Consistency::Two };
        let write_type = WriteType::BatchLog;
        return Err(RequestError::WriteTimeout {
            consistency,
            received,
            required,
            write_type,
            contentions: 0,
        });
    }
    Ok(())
}

/// Removes a batch from the logs. A log that does not get the removal replays the batch, which changes nothing.
async fn remove(context: &Rc<ShardContext>, keepers: &[Arc<Member>], id: BatchId) {
    if keepers.is_empty() {
        if let Err(error) = store::remove(context, &id.position()) {
            tracing::debug!(%error, "a batch stays in the log");
        }
        return;
    }
    let request = ReplicaRequest::RemoveBatch { id };
    let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
    let asked = keepers.iter().map(|member| context.ask(member, context.index as u16, &request, timeout));
    for error in futures::future::join_all(asked).await.into_iter().filter_map(Result::err) {
        tracing::debug!(%error, "a batch stays in a log");
    }
}
