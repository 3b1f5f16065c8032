//! Streaming: sends the ranges that change owners from shard to shard in checksummed, resumable chunks.
//!
//! The new owner pulls. [`plan`] (pure) assigns ranges to sources, [`receiver`] fetches, [`sender`] answers, and [`mod@progress`]
//! keeps the progress. [`cleanup`] removes the data of ranges that a node has given up. [`crate::cluster::membership`] starts a
//! transfer and continues after its end.

pub mod attempt;
pub(crate) mod cleanup;
pub(crate) mod fetch_plan;
pub mod message;
pub mod place;
pub mod plan;
mod plan_change;
pub mod progress;
pub mod receiver;
pub mod sender;
mod session;

use crate::streaming::progress::Transfers;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_admin::reports::{StreamingReport, TransferProgress};
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_query::schema::catalog::{Keyspace, TableKind};
use helenus_ring::HostId;
use helenus_ring::member::MemberState;

use self::message::{StreamRequest, StreamResponse, TransferStatus};
use helenus_execution::shard::call::Serve;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::ServingState;

impl Serve for StreamRequest {
    fn serve(
        self,
        context: Rc<ShardContext>,
        from: HostId,
    ) -> LocalBoxFuture<'static, Result<StreamResponse, Failure>> {
        Box::pin(async move { serve(&context, from, self).await })
    }

    fn name(&self) -> &'static str {
        "STREAM"
    }
}

/// Executes another node's request about streams.
async fn serve(
    context: &Rc<ShardContext>,
    from: HostId,
    request: StreamRequest,
) -> Result<StreamResponse, Failure> {
    match request {
        StreamRequest::Fetch(request) => {
            sender::fetch(context, from, request).await.map(StreamResponse::StreamChunk)
        }
        StreamRequest::Estimate { parts } => {
            sender::estimate(context, &parts).map(|bytes| StreamResponse::Estimate { bytes })
        }
        StreamRequest::Status { epoch } => Ok(StreamResponse::Status(status(context, epoch))),
    }
}

/// The progress of this node in streaming the ranges that it gains at an epoch.
pub fn status(context: &ShardContext, epoch: u64) -> TransferStatus {
    let transfers = Transfers::of(&context.node);
    TransferStatus {
        epoch: context.cluster_view().topology.epoch,
        is_done: transfers.is_done(epoch),
        lost_ranges: u32::try_from(transfers.lost_ranges(epoch)).unwrap_or(u32::MAX),
    }
}

/// The engine tables of a keyspace whose data follows the ring.
pub fn replicated_tables(keyspace: &Keyspace) -> Vec<TableId> {
    let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
    stored.map(|table| table.engine_id()).collect()
}

/// The transfer to this node that is under way, or the last one since it was started; and whether it is under way.
pub fn latest(context: &ShardContext) -> Option<(TransferProgress, bool)> {
    Transfers::of(&context.node).latest(context.clock.monotonic())
}

/// The present streams, for operators.
pub fn progress(context: &ShardContext) -> StreamingReport {
    let view = context.cluster_view();
    let serving = context.node.status.state();
    let state = view.topology.member(&context.node.host_id).map(|member| member.state);
    let mode = match state {
        // Before anything is agreed, the topology contains only this node.
        Some(MemberState::Joining(_)) if view.topology.version > 0 => "JOINING",
        Some(MemberState::Leaving(_)) if serving == ServingState::Serving => "LEAVING",
        _ => serving.name(),
    };
    let mut report = Transfers::of(&context.node).report(mode, context.clock.monotonic());
    report.sent_bytes.retain(|to, _| view.topology.member(to).is_some());
    report
}
