//! The states that the layers keep with a node and its shards. This is the only place that knows all of them.

use std::sync::Arc;

use crate::admin::guardrails::PresentGuardrails;
use crate::admin::views;
use crate::cluster::confirmation::RolesConfirmation;
use crate::cluster::liveness::LivenessMonitor;
use crate::cluster::raft::OpenMetadataLog;
use crate::cluster::schema::SchemaLock;
use crate::cluster::uploads::StoreWork;
use crate::session::allowance::RoleLimits;
use crate::session::authentication::dropped_roles;
use crate::session::authentication::logins::Logins;
use crate::session::charges::Charges;
use crate::session::connection::{self, Connections};
use crate::session::connection_places::ConnectionPlaces;
use crate::session::encryption::{LoggedFailures, OpenCertificates};
use crate::session::latencies::Latencies;
use crate::session::partial_frames::PartialFrames;
use crate::session::request_logs::RequestLogs;
use crate::session::slow_requests::SlowRequests;
use crate::streaming::progress::Transfers;
use helenus_execution::coordinator::caps::Trims;
use helenus_execution::coordinator::change_feed::LogLayouts;
use helenus_execution::coordinator::change_feed::confirmed::StreamsConfirmation;
use helenus_execution::coordinator::local_work::LocalWork;
use helenus_execution::coordinator::paxos;
use helenus_execution::coordinator::paxos::replica::PaxosState;
use helenus_execution::coordinator::repair::RepairState;
use helenus_execution::coordinator::repair::history::RepairHistory;
use helenus_execution::coordinator::repair::runs::RepairRuns;
use helenus_execution::coordinator::repair::schedule;
use helenus_execution::coordinator::replica::ReplicationState;
use helenus_execution::coordinator::table_rate_limits::TableRateLimits;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::coordinator::virtual_state::ClientSource;
use helenus_execution::shard::context::{Layers, ShardContext};
use helenus_execution::shard::layers::{NodeLayers, ShardLayers};
use helenus_fair_shares::RoleShares;
use helenus_node_files::at_rest::OpenAtRest;
use helenus_passwords::pool::HashingPool;
use helenus_projector::state::ViewsState;
use helenus_ring::view::ClusterView;

/// The states that all shards of a node share.
pub fn of_node(request_logs: Arc<RequestLogs>) -> NodeLayers {
    NodeLayers::default()
        .with(RolesConfirmation::default())
        .with(StreamsConfirmation::default())
        .with(Wakes::default())
        .with(request_logs)
        .with(Arc::new(ConnectionPlaces::default()))
        .with(Arc::new(PartialFrames::default()))
        .with(RoleLimits::default())
        .with(RoleShares::default())
        .with(TableRateLimits::default())
        .with(Transfers::default())
        .with(RepairHistory::default())
        .with(RepairRuns::default())
        .with(HashingPool::default())
        .with(Logins::default())
        .with(OpenCertificates::default())
        .with(OpenAtRest::default())
        .with(PresentGuardrails::default())
        .with(StoreWork::default())
}

/// The states of each shard.
pub fn of_shard() -> Layers {
    let states = ShardLayers::default()
        .with(ReplicationState::default())
        .with(PaxosState::default())
        .with(RepairState::default())
        .with(LocalWork::default())
        .with(LogLayouts::default())
        .with(Trims::default())
        .with(ViewsState::default())
        .with(Latencies::default())
        .with(Charges::default())
        .with(Connections::default())
        .with(LivenessMonitor::default())
        .with(OpenMetadataLog::default())
        .with(SchemaLock::default())
        .with(SlowRequests::default())
        .with(LoggedFailures::default())
        .with(ClientSource(connection::clients))
        .with(views::reports());
    Layers { states, view_changes, roles_change: dropped_roles::end_sessions }
}

/// What the layers do before a shard installs the next view of the cluster.
fn view_changes(context: &ShardContext, view: &ClusterView) {
    paxos::replica::view_changes(context, view);
    schedule::view_changes(context, view);
}
