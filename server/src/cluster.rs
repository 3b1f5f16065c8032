//! The cluster as a whole: the state that its nodes agree on, liveness, and membership.
//!
//! [`helenus_ring::metadata`] defines the agreed state and how it changes. [`raft`] replicates it, [`applying`] installs it on a
//! node, [`mod@propose`] proposes changes to it. [`membership`] lets members join and leave.

mod address_book;
mod agreed_change;
pub(crate) mod applying;
pub mod confirmation;
pub(crate) mod denylist;
pub(crate) mod departure;
pub mod disk_watch;
pub mod drops;
pub mod failure;
pub mod feed_confirmation;
mod feed_streams;
mod founding;
pub(crate) mod import;
pub mod join;
pub mod liveness;
mod log_throttle;
pub(crate) mod member_snapshots;
pub mod membership;
pub mod message;
mod only_copy;
pub mod own_files;
pub mod own_member;
pub(crate) mod propose;
pub mod raft;
pub mod recovery;
pub(crate) mod replay;
pub(crate) mod restore;
pub mod roles;
pub mod schema;
pub mod seeds;
pub mod start;
pub mod stored;
pub mod unknown_tables;
pub(crate) mod uploads;
pub(crate) mod views;
mod voters;

use crate::cluster::liveness::LivenessMonitor;
use crate::cluster::raft::MetadataLog;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_internode::service::Failure;
use helenus_ring::HostId;

use self::message::{ClusterRequest, ClusterResponse};
pub use self::propose::{
    announce_agreed, applied_version, catch_up, catch_up_with_leader, propose, wait_applied,
    wait_applied_everywhere,
};
use helenus_execution::shard::call::Serve;
use helenus_execution::shard::context::ShardContext;

/// The longest time that a request of another node may wait on this one.
const PATIENCE_MAX: Duration = Duration::from_secs(30);

impl Serve for ClusterRequest {
    fn serve(
        self,
        context: Rc<ShardContext>,
        from: HostId,
    ) -> LocalBoxFuture<'static, Result<ClusterResponse, Failure>> {
        Box::pin(async move { serve(&context, from, self).await })
    }

    fn name(&self) -> &'static str {
        "CLUSTER"
    }
}

/// Executes another node's request about the cluster.
async fn serve(
    context: &Rc<ShardContext>,
    from: HostId,
    request: ClusterRequest,
) -> Result<ClusterResponse, Failure> {
    let failed = |error: helenus_query::error::RequestError| Failure::Internal(error.to_string());
    let patience = |patience_ms: u64| Duration::from_millis(patience_ms).min(PATIENCE_MAX);
    match request {
        ClusterRequest::Version => Ok(ClusterResponse::Version(env!("CARGO_PKG_VERSION").to_owned())),
        ClusterRequest::Raft { call, payload } => {
            let log = MetadataLog::of(context).map_err(failed)?;
            log.answer(call, &payload).await.map(ClusterResponse::Raft)
        }
        ClusterRequest::Propose { command, forward, patience_ms } => {
            propose::handle_propose(context, &command, forward, patience(patience_ms)).await
        }
        ClusterRequest::Applied { version, patience_ms } => {
            Ok(propose::handle_applied(context, version, patience(patience_ms)).await)
        }
        ClusterRequest::Join(request) => join::handle(context, *request, None).await,
        ClusterRequest::Replace(request, place) => join::handle(context, *request, Some(place)).await,
        ClusterRequest::JoinEncrypting(mut request, place) => {
            request.member.encrypts_tables = true;
            join::handle(context, *request, place).await
        }
        ClusterRequest::NewestVersion => {
            let newest = propose::newest_as_leader(context).await.map_err(failed)?;
            Ok(newest.map_or(ClusterResponse::NoLeader, |version| ClusterResponse::Applied { version }))
        }
        ClusterRequest::Agreed { version, schema_version, members } => {
            propose::note_agreed(context, version, schema_version, &members);
            Ok(ClusterResponse::Received)
        }
        ClusterRequest::Gossip { bytes } => {
            LivenessMonitor::of(context).receive_gossip(context, from, &bytes);
            Ok(ClusterResponse::Received)
        }
        ClusterRequest::Status(status) => {
            LivenessMonitor::of(context).receive_status(context, from, status);
            Ok(ClusterResponse::Received)
        }
        ClusterRequest::Disk(announcement) => {
            LivenessMonitor::of(context).receive_disk(context, from, announcement);
            Ok(ClusterResponse::Received)
        }
        ClusterRequest::LogEnd => {
            let end = MetadataLog::of(context).map_err(failed)?.end().await;
            let end = end.map_err(|error| Failure::Internal(error.to_string()))?;
            let end = serde_json::to_string(&end).map_err(|error| Failure::Internal(error.to_string()))?;
            Ok(ClusterResponse::LogEnd { end })
        }
        ClusterRequest::Snapshots { order } => member_snapshots::handle(context, &order).await,
        ClusterRequest::YouWereRemoved => {
            LivenessMonitor::of(context).receive_removed(context, from);
            Ok(ClusterResponse::Received)
        }
    }
}
