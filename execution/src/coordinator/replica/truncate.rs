//! TRUNCATE on all nodes: every member must be alive and answer.
//!
//! **Transactions.** A commit or a proposal of before may be found again, and its rows would come back: they are not hidden by a tombstone.
//! So, from the feature level [`TRUNCATION_TIMES`] on, the members agree on a time first:
//! 1. Each is asked for the latest ballot of the table's transactions. The highest, or this node's clock if that is later, is the time.
//!    Every transaction that was acknowledged before is known to a member, so its ballot is not above the time, whatever clocks do.
//! 2. Each notes the time on every shard, durably. When all have, no transaction up to it is applied, accepted or promised anywhere
//!    (`paxos::late_commit`); coordinators try again with a later ballot.
//! 3. Each empties the table and forgets the transactions up to the time (`paxos::truncation`).
//!
//! The time has nothing to do with the times of hints and batches below: it may be ahead of clocks, and what is written afterwards must not
//! be taken for older.
//!
//! A TRUNCATE that fails may have taken effect in part: on some members, or on transactions that not all replicas had applied. It has to be
//! repeated. What is written while it runs may stay on some replicas only.
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
use helenus_ring::metadata::TRUNCATION_TIMES;
use helenus_ring::view::ClusterView;

use super::hints;
use super::message::{ReplicaRequest, ReplicaResponse, TruncationRequest};
use crate::coordinator::paxos;
use crate::planted::PlantedBug;
use crate::shard::context::{ShardContext, from_every_shard, on_every_shard};
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
    let deadline = context.clock.monotonic() + timeout;
    let table_id = u128::from_be_bytes(table.0);
    let binds_transactions =
        view.topology.feature_level >= TRUNCATION_TIMES && !context.has_bug(PlantedBug::UnboundTransactions);
    if binds_transactions {
        let step = TruncationStep::Prepare(TruncationRequest::LatestBallot { table_id });
        let mut truncated_micros = context.next_timestamp();
        for answer in ask_members(context, view, step, deadline).await? {
            let ReplicaResponse::LatestBallot { micros } = answer else {
                let reason = "Error during truncate: an answer to another question";
                return Err(RequestError::Truncate(reason.to_owned()));
            };
            truncated_micros = truncated_micros.max(micros);
        }
        let step = TruncationStep::Prepare(TruncationRequest::Bind { table_id, truncated_micros });
        ask_members(context, view, step, deadline).await?;
    }
    ask_members(context, view, TruncationStep::Empty { table_id }, deadline).await.map(drop)
}

/// What all members do before any of them goes on.
#[derive(Clone, Copy)]
enum TruncationStep {
    Prepare(TruncationRequest),
    Empty { table_id: u128 },
}

impl TruncationStep {
    fn request(self) -> ReplicaRequest {
        match self {
            Self::Prepare(request) => ReplicaRequest::Truncation(request),
            Self::Empty { table_id } => ReplicaRequest::Truncate { table_id },
        }
    }

    async fn carry_out(self, context: &Rc<ShardContext>) -> Result<ReplicaResponse> {
        match self {
            Self::Prepare(request) => prepare_here(context, request).await,
            Self::Empty { table_id } => {
                truncate_here(context, table_id).await.map(|()| ReplicaResponse::Written)
            }
        }
    }
}

/// Has all members, this node among them, carry out a step.
async fn ask_members(
    context: &Rc<ShardContext>,
    view: &ClusterView,
    step: TruncationStep,
    deadline: Duration,
) -> Result<Vec<ReplicaResponse>> {
    let left = deadline.saturating_sub(context.clock.monotonic());
    let request = step.request();
    let answers = view.topology.members.values().map(|member| {
        let request = &request;
        async move {
            if member.host_id == context.node.host_id {
                return step.carry_out(context).await;
            }
            // Any shard of the member forwards it to all of them.
            let answer = context.ask(member, context.index as u16, request, left).await;
            answer.map_err(|error| RequestError::Truncate(format!("Error during truncate: {error}")))
        }
    });
    // All are waited for: a truncation here that is given up in the middle would stop its shard.
    futures::future::join_all(answers).await.into_iter().collect()
}

/// Does what precedes the truncation of a table on every shard of this node.
pub async fn prepare_here(context: &Rc<ShardContext>, request: TruncationRequest) -> Result<ReplicaResponse> {
    match request {
        TruncationRequest::LatestBallot { table_id } => {
            let table = TableId(table_id.to_be_bytes());
            let latest = from_every_shard(context, move |context| {
                Box::pin(async move { paxos::truncation::latest_micros(&context, table).await })
            })
            .await?;
            let micros = latest.into_iter().max().unwrap_or(i64::MIN);
            Ok(ReplicaResponse::LatestBallot { micros })
        }
        TruncationRequest::Bind { table_id, truncated_micros } => {
            let table = TableId(table_id.to_be_bytes());
            on_every_shard(context, move |context| {
                Box::pin(
                    async move { hints::note_agreed_truncation(&context, table, truncated_micros).await },
                )
            })
            .await?;
            Ok(ReplicaResponse::Written)
        }
    }
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
                    snapshots::truncate(&context, table, plan).await.map_err(|error| failed(&error))?;
                }
                None => context.shard.truncate(table).await.map_err(|error| failed(&error))?,
            }
            match context.replication().hints.agreed_truncation(&table) {
                Some(agreed_micros) => paxos::truncation::forget(&context, table, agreed_micros).await,
                None => Ok(()),
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
