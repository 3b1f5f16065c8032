//! Requests of operators: decommission a node, remove a dead member, cancel a transition.

use crate::streaming::progress::Transfers;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Catalog, Replication};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{AGREED_CLEANUP, Command, CommandOutcome, REMOVALS, Refusal};
use helenus_ring::topology::Topology;

use super::{
    IDLE_PAUSE, MembershipError, PROPOSAL_DEADLINE, Result, TRANSITION_RETRY_PAUSE, check_removed,
    wait_for_change,
};
use crate::cluster::log_throttle::LogThrottle;
use crate::cluster::propose::propose;
use crate::cluster::raft::MetadataLog;
use helenus_execution::shard::context::{Departure, ShardContext};
use helenus_execution::shard::status_table::ServingState;

/// Makes this node leave the cluster, and resolves when it has left. Call from any shard. `force`: also if fewer
/// members remain than a keyspace has replicas. `accepts_old_data`: also while others have old data of ranges that they
/// gain. An interrupted decommission continues by itself; another call waits for it.
pub async fn decommission(context: &Rc<ShardContext>, force: bool, accepts_old_data: bool) -> Result<()> {
    let host_id = context.node.host_id;
    let view = context.cluster();
    check_removed(context)?;
    let member = view.topology.member(&host_id).ok_or(MembershipError::UnknownMember { host_id })?;
    match member.state {
        MemberState::Leaving(_) => {}
        MemberState::Joining(_) => {
            return Err(MembershipError::NotNormal { host_id, state: member.state });
        }
        MemberState::Normal => {
            let mode = context.node.status.state();
            if mode > ServingState::Serving {
                return Err(MembershipError::NotServing { mode: mode.name() });
            }
            let check = || {
                let topology = context.cluster_view().topology.clone();
                match topology.member(&host_id) {
                    Some(member) if member.state == MemberState::Normal => {
                        check_remaining(&topology, member, &context.catalog(), force)
                    }
                    // Requested twice: the other request came first.
                    _ => Ok(()),
                }
            };
            let command = if accepts_old_data && records_cleanups(context) {
                Command::ForceLeave { host_id, is_removal: false }
            } else {
                Command::StartLeave { host_id }
            };
            start_leave(context, &command, check).await?;
        }
    }
    if wait_until_gone(context, host_id).await? {
        Ok(())
    } else {
        Err(MembershipError::LeaveAborted { host_id })
    }
}

/// Whether the log records pending cleanups. Where it does not, no leaving waits for them.
fn records_cleanups(context: &ShardContext) -> bool {
    context.cluster_view().topology.feature_level >= AGREED_CLEANUP
}

/// Refuses a leaving after which a keyspace would have fewer members than replicas (as Cassandra does).
fn check_remaining(topology: &Topology, member: &Member, catalog: &Catalog, force: bool) -> Result<()> {
    let normal = || topology.members.values().filter(|member| member.state == MemberState::Normal);
    if normal().all(|other| other.host_id == member.host_id) {
        return Err(MembershipError::LastMember);
    }
    if force {
        return Ok(());
    }
    for keyspace in catalog.keyspaces.values().filter(|keyspace| !keyspace.is_virtual) {
        let (factor, members) = match &keyspace.replication {
            Replication::Local => continue,
            Replication::Simple { replication_factor } => (*replication_factor, normal().count()),
            Replication::NetworkTopology { data_centers } => {
                let local = normal().filter(|other| other.data_center == member.data_center);
                (data_centers.get(&member.data_center).copied().unwrap_or(0), local.count())
            }
        };
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        if factor > 0 && members <= factor {
            return Err(MembershipError::TooFewMembers { keyspace: keyspace.name.clone(), factor, members });
        }
    }
    Ok(())
}

/// Proposes a leaving or a removal until the member's turn comes. `check` decides each time whether it is still
/// permitted.
async fn start_leave(
    context: &Rc<ShardContext>,
    command: &Command,
    check: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut notices = LogThrottle::default();
    loop {
        check()?;
        // A proposal is an entry of the log. It may take hours until it would be accepted.
        let outcome = match cleanup_due_before(context, command).await? {
            Some(refusal) => CommandOutcome::Refused(refusal),
            None => propose(context, command.clone(), PROPOSAL_DEADLINE).await?,
        };
        match outcome {
            CommandOutcome::Applied { .. } => return Ok(()),
            CommandOutcome::Refused(reason @ Refusal::CleanupDue { .. }) => {
                if notices.is_due(&"cleanup", &reason, context.clock.monotonic()) {
                    tracing::info!(%reason, "a member waits for its turn to leave");
                }
            }
            CommandOutcome::Refused(refusal) => return Err(refusal.into()),
            CommandOutcome::Busy { host_id: other } => {
                if notices.is_due(&"busy", &other, context.clock.monotonic()) {
                    tracing::info!(host_id = %other, "another member is joining or leaving; waiting for it to finish");
                }
            }
            CommandOutcome::Conflict { .. } => continue,
        }
        let version = context.cluster_view().topology.version;
        if !wait_for_change(context, version, TRANSITION_RETRY_PAUSE).await {
            return Err(RequestError::Server("the node is shutting down".to_owned()).into());
        }
    }
}

/// The refusal that a leaving would get now, as far as this node knows, because others have old data.
async fn cleanup_due_before(context: &Rc<ShardContext>, command: &Command) -> Result<Option<Refusal>> {
    let (Command::StartLeave { host_id } | Command::StartRemoval { host_id }) = *command else {
        return Ok(None);
    };
    let due = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, _> {
        let state = MetadataLog::of(&context).map(|log| log.state());
        Box::pin(std::future::ready(state.map(|state| state.cleanup_due_before(&host_id))))
    };
    let host_ids = context.run_on(0, due).await??;
    Ok((!host_ids.is_empty()).then_some(Refusal::CleanupDue { host_ids }))
}

/// Waits for the end of a leaving. Returns false if it was cancelled.
async fn wait_until_gone(context: &Rc<ShardContext>, host_id: HostId) -> Result<bool> {
    loop {
        let (version, state) = {
            let view = context.cluster_view();
            (view.topology.version, view.topology.member(&host_id).map(|member| member.state))
        };
        match state {
            None => {
                tracing::info!(%host_id, "the member has left the cluster");
                return Ok(true);
            }
            Some(MemberState::Normal) => return Ok(false),
            Some(_) => {}
        }
        if !wait_for_change(context, version, IDLE_PAUSE).await {
            // Other members may have reported the end of the membership before the log did.
            let has_left = *context.node.departure.borrow() != Departure::Staying;
            if has_left && host_id == context.node.host_id {
                return Ok(true);
            }
            return Err(RequestError::Server("the node is shutting down".to_owned()).into());
        }
    }
}

/// Removes a dead member, and resolves when the others have its ranges. Call from any shard of any other member. A
/// member that died while it joined is removed at once. `accepts_old_data`: also while others have old data of ranges
/// that they gain.
pub async fn removenode(context: &Rc<ShardContext>, host_id: HostId, accepts_old_data: bool) -> Result<()> {
    let view = context.cluster();
    if view.topology.removed.contains(&host_id) {
        return Ok(());
    }
    if host_id == context.node.host_id {
        return Err(MembershipError::OwnRemoval);
    }
    let member = view.topology.member(&host_id).ok_or(MembershipError::UnknownMember { host_id })?;
    if view.is_alive(&host_id) {
        return Err(MembershipError::StillAlive { host_id });
    }
    if matches!(member.state, MemberState::Joining(_)) {
        return abort_join(context, host_id).await;
    }
    let is_begun = member.state != MemberState::Normal;
    // Before the log has the leaving: a task that reads it there must know that this node drives it.
    Transfers::of(&context.node).ask_removal(host_id);
    let outcome = carry_out_removal(context, host_id, is_begun, accepts_old_data).await;
    Transfers::of(&context.node).forget_removal(&host_id);
    outcome
}

async fn carry_out_removal(
    context: &Rc<ShardContext>,
    host_id: HostId,
    is_begun: bool,
    accepts_old_data: bool,
) -> Result<()> {
    if !is_begun {
        // The member may come back while this waits for its turn.
        let check = || {
            let is_back = context.cluster_view().is_alive(&host_id);
            if is_back { Err(MembershipError::StillAlive { host_id }) } else { Ok(()) }
        };
        let command = if accepts_old_data && records_cleanups(context) {
            Command::ForceLeave { host_id, is_removal: true }
        } else if context.cluster_view().topology.feature_level >= REMOVALS {
            Command::StartRemoval { host_id }
        } else {
            Command::StartLeave { host_id }
        };
        start_leave(context, &command, check).await?;
        // Another request for the same removal may have failed meanwhile and cleared the mark.
        Transfers::of(&context.node).ask_removal(host_id);
    }
    if wait_until_gone(context, host_id).await? {
        Ok(())
    } else {
        Err(MembershipError::RemovalTakenBack { host_id })
    }
}

/// Cancels a transition, from any shard of any member: a joining node stops being a member, a leaving one stays. Use
/// it on a transition that waits for a dead member: as long as it lasts, that member cannot be removed.
pub async fn abort_join(context: &Rc<ShardContext>, host_id: HostId) -> Result<()> {
    let view = context.cluster();
    match view.topology.member(&host_id).map(|member| member.state) {
        None => return Err(MembershipError::UnknownMember { host_id }),
        Some(MemberState::Joining(_) | MemberState::Leaving(_)) => {}
        Some(MemberState::Normal) => return Err(MembershipError::NotInTransition { host_id }),
    }
    match propose(context, Command::Abort { host_id }, PROPOSAL_DEADLINE).await? {
        CommandOutcome::Applied { .. } => Ok(()),
        CommandOutcome::Refused(refusal) => Err(refusal.into()),
        CommandOutcome::Busy { .. } | CommandOutcome::Conflict { .. } => {
            Err(MembershipError::NotInTransition { host_id })
        }
    }
}
