//! TRUNCATE on all nodes: every member must be alive and answer.
//!
//! Data that is being streamed to new replicas: while ranges change hands, every member truncates twice. Data that a
//! source has read before it truncated was requested before the second truncation, and the member that requested it
//! discards it then (`receiver.rs` of the streaming in the crate of the node).
//!
//! Each node takes a snapshot of its part first (setting `auto_snapshot`). If that fails on any of its shards, the node truncates
//! nothing. What is written between the snapshot and the truncation gets into the snapshot too.
//!
//! Hints and batches that are older than a truncation are not applied: each shard keeps the time of the last
//! truncation of each table ([`super::hints::note_truncation`]).

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_engine::TableId;
use helenus_query::error::{RequestError, Result};
use helenus_ring::view::ClusterView;

use super::hints;
use super::message::ReplicaRequest;
use crate::shard::context::{ShardContext, on_every_shard};
use crate::shard::snapshots::{self, Occasion, SnapshotPlan};

/// Empties a table on all members.
pub async fn truncate_everywhere(context: &Rc<ShardContext>, table: TableId) -> Result<()> {
    let before = context.cluster();
    truncate_at_members(context, &before, table).await?;
    let after = context.cluster();
    let ranges_move = !before.topology.is_settled() || before.topology.epoch != after.topology.epoch;
    if ranges_move { truncate_at_members(context, &after, table).await } else { Ok(()) }
}

async fn truncate_at_members(context: &Rc<ShardContext>, view: &ClusterView, table: TableId) -> Result<()> {
    let required = view.topology.members.len() as u32;
    let alive = view.topology.members.keys().filter(|host_id| view.is_alive(host_id)).count() as u32;
    if alive < required {
        return Err(RequestError::Unavailable { consistency: Consistency::All, required, alive });
    }
    let timeout = Duration::from_millis(context.node.config.truncate_request_timeout_ms);
    let table_id = u128::from_be_bytes(table.0);
    let request = ReplicaRequest::Truncate { table_id };
    let answers = view.topology.members.values().map(|member| {
        let request = &request;
        async move {
            if member.host_id == context.node.host_id {
                return truncate_here(context, table_id).await;
            }
            // Any shard of the member forwards it to all of them.
            match context.ask(member, context.index as u16, request, timeout).await {
                Ok(_) => Ok(()),
                Err(error) => Err(RequestError::Truncate(format!("Error during truncate: {error}"))),
            }
        }
    });
    // All are waited for: a truncation here that is given up in the middle would stop its shard.
    futures::future::join_all(answers).await.into_iter().collect()
}

/// Empties a table on every shard of this node.
pub async fn truncate_here(context: &Rc<ShardContext>, table_id: u128) -> Result<()> {
    let table = TableId(table_id.to_be_bytes());
    let plan = snapshot_plan(context, table)?;
    if let Some(plan) = plan.clone() {
        // On all shards before the first one truncates.
        on_every_shard(context, move |context| {
            let plan = plan.clone();
            Box::pin(async move {
                let taken = snapshots::take(&context, table, &plan).await;
                taken.map_err(|error| RequestError::Truncate(format!("Error during truncate: {error}")))
            })
        })
        .await?;
    }
    on_every_shard(context, move |context| {
        let plan = plan.clone();
        Box::pin(async move {
            hints::note_truncation(&context, table).await?;
            let failed = |error: &dyn std::fmt::Display| {
                RequestError::Truncate(format!("Error during truncate: {error}"))
            };
            match &plan {
                Some(plan) => {
                    snapshots::truncate(&context, table, plan).await.map_err(|error| failed(&error))
                }
                None => context.shard.truncate(table).await.map_err(|error| failed(&error)),
            }
        })
    })
    .await
}

/// The snapshot that precedes the truncation of a table, the same for all shards of this node.
fn snapshot_plan(context: &ShardContext, table: TableId) -> Result<Option<SnapshotPlan>> {
    let view = context.catalog_view();
    let known = view.table(table).and_then(|table| Some((view.catalog.keyspace(&table.keyspace)?, table)));
    match known {
        Some((keyspace, table)) => snapshots::plan(context, keyspace, table, Occasion::Truncate),
        None => Ok(None),
    }
}
