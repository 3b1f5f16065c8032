//! Requests of operators: decommission a node, remove dead members, cancel a transition.

use crate::streaming::progress::Transfers;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::{Catalog, Replication};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{AGREED_CLEANUP, Command, CommandOutcome, REMOVALS, REMOVALS_TOGETHER, Refusal};
use helenus_ring::topology::Topology;

use super::{
    IDLE_PAUSE, MembershipError, PROPOSAL_DEADLINE, Result, TRANSITION_RETRY_PAUSE, check_removed,
    wait_for_change,
};
use crate::cluster::log_throttle::LogThrottle;
use crate::cluster::only_copy::check_other_copies;
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
            CommandOutcome::Refused(reason @ Refusal::ReplicationIsChanging { .. }) => {
                if notices.is_due(&"replication", &reason, context.clock.monotonic()) {
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
    let leaving = match command {
        Command::StartLeave { host_id } | Command::StartRemoval { host_id } => BTreeSet::from([*host_id]),
        // The log notes removals that have to wait.
        _ => return Ok(None),
    };
    let due = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, _> {
        let state = MetadataLog::of(&context).map(|log| log.state());
        Box::pin(std::future::ready(state.map(|state| {
            let leaving = leaving.union(state.removals()).copied().collect();
            state.cleanup_due_before(&leaving)
        })))
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
        let is_to_go = context.cluster_view().topology.given_up.contains(&host_id);
        match state {
            None => {
                tracing::info!(%host_id, "the member has left the cluster");
                return Ok(true);
            }
            Some(MemberState::Normal) if !is_to_go => return Ok(false),
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

/// What an operator puts up with to get rid of dead members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consent {
    /// The removal also begins while other members have old data of ranges that they gain.
    pub to_old_data: bool,
    /// Ranges of which the dead members have the only copy are given up.
    pub to_loss: bool,
}

/// Removes dead members in one transition, and resolves when the others have their ranges. Call from any shard of any other member. They
/// join a removal that is under way, also one that waits because these are dead. A member that died while it joined is removed at once.
pub async fn removenode(
    context: &Rc<ShardContext>,
    host_ids: &BTreeSet<HostId>,
    consent: Consent,
) -> Result<()> {
    let mut leaving = BTreeSet::new();
    let view = context.cluster();
    for &host_id in host_ids.difference(&view.topology.removed) {
        if host_id == context.node.host_id {
            return Err(MembershipError::OwnRemoval);
        }
        let member = view.topology.member(&host_id).ok_or(MembershipError::UnknownMember { host_id })?;
        if view.is_alive(&host_id) {
            return Err(MembershipError::StillAlive { host_id });
        }
        if !matches!(member.state, MemberState::Joining(_)) {
            leaving.insert(host_id);
        }
    }
    for &host_id in host_ids.difference(&leaving).filter(|id| !view.topology.removed.contains(id)) {
        abort_join(context, host_id).await?;
    }
    if leaving.is_empty() {
        return Ok(());
    }
    // Before the log has the leaving: a task that reads it there must know that this node drives it.
    Transfers::of(&context.node).ask_removals(&leaving, consent.to_loss);
    let outcome = carry_out_removals(context, &leaving, consent).await;
    Transfers::of(&context.node).forget_removals(&leaving);
    outcome
}

async fn carry_out_removals(
    context: &Rc<ShardContext>,
    leaving: &BTreeSet<HostId>,
    consent: Consent,
) -> Result<()> {
    let level = context.cluster_view().topology.feature_level;
    if level >= REMOVALS_TOGETHER {
        let host_ids = leaving.clone();
        let command = Command::StartRemovals { host_ids, accepts_old_data: consent.to_old_data };
        begin_removals(context, leaving, &command, consent).await?;
    }
    for &host_id in leaving {
        if level < REMOVALS_TOGETHER {
            let command = if consent.to_old_data && records_cleanups(context) {
                Command::ForceLeave { host_id, is_removal: true }
            } else if level >= REMOVALS {
                Command::StartRemoval { host_id }
            } else {
                Command::StartLeave { host_id }
            };
            begin_removals(context, &BTreeSet::from([host_id]), &command, consent).await?;
        }
        if !wait_until_gone(context, host_id).await? {
            return Err(MembershipError::RemovalTakenBack { host_id });
        }
    }
    Ok(())
}

async fn begin_removals(
    context: &Rc<ShardContext>,
    leaving: &BTreeSet<HostId>,
    command: &Command,
    consent: Consent,
) -> Result<()> {
    // A member may come back while this waits for its turn.
    let check = || {
        let view = context.cluster_view();
        if let Some(&host_id) = leaving.iter().find(|host_id| view.is_alive(host_id)) {
            return Err(MembershipError::StillAlive { host_id });
        }
        if consent.to_loss {
            Ok(())
        } else {
            check_other_copies(context, leaving).map_err(MembershipError::OnlyCopy)
        }
    };
    start_leave(context, command, check).await?;
    // Another request for the same removal may have failed meanwhile and cleared the mark.
    Transfers::of(&context.node).ask_removals(leaving, consent.to_loss);
    Ok(())
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
