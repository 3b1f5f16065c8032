//! The short cut for data that has no replica but this node: writes are applied at their owners among its shards, and reads are
//! answered by them. Nothing is sent, no responses are counted, and no hint is kept.
//!
//! This is the only difference between plain reads and writes of a single node and those of a cluster: a cluster of one is a
//! placement of one. Besides, the owner's turn replaces a Paxos round (`transaction`, `paxos::serial`), and the batch log stays
//! on this node (`batch_log`). The gain is measured by `put` and `get` in `benches/peers`.
//!
//! Invariant: the check whether data is only here belongs to the critical section that writes it. Data with another replica goes
//! to all replicas, so that a member that joins misses nothing.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures::FutureExt;
use helenus_engine::commit_log::LogPosition;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::view::ClusterView;

use super::apply::{apply_elsewhere, reaches_elsewhere};
use crate::coordinator::local_write::apply_here;
use crate::shard::context::ShardContext;
use crate::shard::{receipt, trace};

/// Whether a keyspace has no replicas but those on this node.
#[inline]
pub fn is_only_here(view: &ClusterView, keyspace: &str) -> bool {
    view.is_alone() || view.placement(keyspace).is_none()
}

/// Applies a single mutation without waiting, if this shard owns its partition, its data is only here, and the shard has room for
/// it. `None`: nothing was done.
#[inline]
pub fn apply_at_once(context: &ShardContext, changes: &[PartitionMutation]) -> Option<Result<LogPosition>> {
    let [change] = changes else { return None };
    let is_here = context.node.shard_of(change.token) == context.index
        && is_only_here(&context.cluster_view(), &change.table.keyspace);
    if !is_here || reaches_elsewhere(context, &change.mutation) {
        return None;
    }
    let admitted = context.shard.admit().now_or_never()?;
    receipt::count_write(&change.mutation, || 1);
    trace::note(context, || "Applying the mutation: no other node has the partition".to_owned());
    Some(admitted.map_err(RequestError::from).and_then(|()| apply_here(context, &change.mutation)))
}

/// Applies mutations at their owners and waits until they are durable. Returns those that were not applied, because they have
/// other replicas by now.
pub async fn apply(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
) -> Result<Vec<PartitionMutation>> {
    for change in &changes {
        let view = change.mutation.view().map_err(|error| RequestError::Server(error.to_string()))?;
        if view.has_companions() {
            let applied = apply_elsewhere(context, None, &view).await;
            applied.map_err(|failure| RequestError::Server(failure.to_string()))?;
        }
    }
    let mut by_owner: BTreeMap<usize, Vec<PartitionMutation>> = BTreeMap::new();
    for change in changes {
        by_owner.entry(context.node.shard_of(change.token)).or_default().push(change);
    }
    let writes = by_owner.into_iter().map(|(owner, changes)| async move {
        if owner == context.index {
            return apply_at_owner(context.clone(), changes).await;
        }
        context.run_on(owner, move |context| Box::pin(apply_at_owner(context, changes))).await?
    });
    Ok(futures::future::try_join_all(writes).await?.into_iter().flatten().collect())
}

async fn apply_at_owner(
    context: Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
) -> Result<Vec<PartitionMutation>> {
    context.shard.admit().await?;
    let mut last = None;
    let mut elsewhere = Vec::new();
    for change in changes {
        if is_only_here(&context.cluster_view(), &change.table.keyspace) {
            last = Some(apply_here(&context, &change.mutation)?);
            receipt::count_write(&change.mutation, || 1);
        } else {
            elsewhere.push(change);
        }
    }
    if let Some(position) = last {
        context.shard.durable(position).await?;
    }
    Ok(elsewhere)
}
