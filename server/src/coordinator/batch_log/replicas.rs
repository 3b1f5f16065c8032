//! Logged batches in a cluster: written to the batch logs of two other members before they are applied.
//!
//! The members are chosen as in Cassandra: alive, of the coordinator's data center, of two other racks if there are such. A data
//! center with this node alone keeps the batch here. The entries are removed when every replica has every mutation or a hint
//! for it; until then whoever keeps one replays it.

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
use crate::coordinator::batch_log::batch_id::BatchId;
use crate::coordinator::replica::message::ReplicaRequest;
use crate::coordinator::replica::write::{self, Started, WriteOptions};
use crate::shard::context::ShardContext;

/// How many members keep a batch.
const COPIES: usize = 2;

/// Writes a batch: to the batch logs, then to its replicas.
pub async fn write(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
    consistency: Consistency,
) -> Result<()> {
    for change in &changes {
        write::check_alive(context, change, consistency)?;
    }
    let keepers = keepers(context, consistency)?;
    let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
    let id = BatchId::new(context);
    store(context, &keepers, id, &changes, timeout).await?;
    let options = WriteOptions {
        consistency,
        write_type: WriteType::Batch,
        deadline: context.clock.monotonic() + timeout,
        is_applied_here: false,
    };
    // An error from here on leaves the batch in the log: it will be applied, as a timeout tells the client.
    let started = match write::begin(context, changes, options) {
        Ok(started) => started,
        Err(error) => {
            // Nothing was sent: the client is told that it was not done, so nobody may do it later.
            remove(context, &keepers, id, timeout).await;
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
        // Where hints are off or full, what the client's level asks for must do.
        if is_everywhere || is_reached {
            remove(&context, &keepers, id, timeout).await;
        }
    });
    outcome
}

/// The members that keep a batch; empty: this node.
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

/// The other members of the data center that stay: who joins may be taken back, who leaves has no time to replay anything.
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

/// Two other members: Cassandra's choice of batch log endpoints. `random` gives a number below its argument.
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
    // One of each rack while there are racks left, then again.
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
    timeout: Duration,
) -> Result<()> {
    let mutations = store::encode(changes);
    if keepers.is_empty() {
        return store::store_here(context, &id.position(), &mutations).await;
    }
    let request = ReplicaRequest::StoreBatch { id, mutations };
    let answers = keepers.iter().map(|member| context.ask(member, context.index as u16, &request, timeout));
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

/// Takes a batch out of the logs; a log that does not hear of it replays it, which changes nothing.
async fn remove(context: &Rc<ShardContext>, keepers: &[Arc<Member>], id: BatchId, timeout: Duration) {
    if keepers.is_empty() {
        if let Err(error) = store::remove(context, &id.position()) {
            tracing::debug!(%error, "a batch stays in the log");
        }
        return;
    }
    let request = ReplicaRequest::RemoveBatch { id };
    let asked = keepers.iter().map(|member| context.ask(member, context.index as u16, &request, timeout));
    for error in futures::future::join_all(asked).await.into_iter().filter_map(Result::err) {
        tracing::debug!(%error, "a batch stays in a log");
    }
}
