//! A new member takes the place of a dead one, with its tokens: how that begins, advances and ends.
//!
//! * The dead one is `Leaving` and among the removals, the new one is `Joining`. They are in the same phase: they take each step together, and
//!   a step back, too.
//! * Data center and rack are those of the dead one, so every range has the same replicas as before but for the one: no member gains or
//!   gives up ranges beside these two. That is why nobody has to clean up first, and nobody has anything to clean up afterwards.

use std::sync::Arc;

use super::change_feed;
use super::checks::{check_addresses, check_features, check_level, check_settled};
use super::command::{CommandOutcome, Refusal};
use super::encryption;
use super::features::REPLACEMENTS;
use super::outcome::{Changed, refuse};
use super::state::{ClusterState, set_state, with_topology};
use crate::member::{HostId, Member, MemberState, TransitionPhase};
use crate::topology::{Replacement, Topology};

/// The replacement in which a member takes part.
pub(super) fn of(topology: &Topology, host_id: &HostId) -> Option<Replacement> {
    topology.replacement.filter(|replacement| [replacement.old, replacement.new].contains(host_id))
}

pub(super) fn start(
    state: &ClusterState,
    index: u64,
    member: &Member,
    replaced: HostId,
    accepts_loss: bool,
) -> Changed {
    let topology = &state.topology;
    let host_id = member.host_id;
    if topology.removed.contains(&host_id) {
        return refuse(Refusal::Removed { host_id });
    }
    if topology.member(&host_id).is_some() {
        let is_under_way = of(topology, &host_id).is_some_and(|replacement| replacement.old == replaced);
        return if is_under_way { Ok(None) } else { refuse(Refusal::AlreadyMember { host_id }) };
    }
    let old = check_replaced(topology, member, replaced)?;
    encryption::check_member(&state.catalog, host_id, member.encrypts_tables)?;
    check_settled(topology)?;
    let new = Member {
        state: MemberState::Joining(TransitionPhase::WriteBoth),
        tokens: old.tokens.clone(),
        ..member.clone()
    };
    change_feed::check_streams(topology, &new)?;
    let mut changed = with_topology(state, index, true, |topology| {
        topology.members.insert(host_id, Arc::new(new));
        set_state(topology, &replaced, MemberState::Leaving(TransitionPhase::WriteBoth));
        topology.replacement = Some(Replacement { old: replaced, new: host_id, accepts_loss });
        topology.given_up.remove(&replaced);
    });
    changed.removals = Arc::new([replaced].into());
    Ok(Some(changed))
}

/// Returns the member that is to be replaced, unless another one cannot take its place.
fn check_replaced<'t>(
    topology: &'t Topology,
    new: &Member,
    host_id: HostId,
) -> Result<&'t Arc<Member>, CommandOutcome> {
    check_level(topology, REPLACEMENTS)?;
    check_features(topology, new.host_id, new.feature_version)?;
    let Some(old) = topology.member(&host_id) else {
        return refuse(if topology.removed.contains(&host_id) {
            Refusal::ReplacedGone { host_id }
        } else {
            Refusal::ReplacedUnknown { host_id }
        });
    };
    // Another new member may be about to take its place: that is a transition as any other, which is waited for.
    if old.state != MemberState::Normal && of(topology, &host_id).is_none() {
        return refuse(Refusal::ReplacedMoving { host_id, found: old.state });
    }
    if (&old.data_center, &old.rack) != (&new.data_center, &new.rack) {
        let (data_center, rack) = (old.data_center.clone(), old.rack.clone());
        return refuse(Refusal::ReplacedElsewhere { host_id, data_center, rack });
    }
    for other in topology.members.values().filter(|other| other.host_id != host_id) {
        check_addresses(new, other)?;
    }
    Ok(old)
}

/// The state after the next step.
pub(super) fn advanced(state: &ClusterState, index: u64, replacement: Replacement) -> ClusterState {
    let Replacement { old, new, .. } = replacement;
    let phase = state.topology.member(&new).map(|member| member.state);
    if phase == Some(MemberState::Joining(TransitionPhase::WriteBoth)) {
        return with_topology(state, index, true, |topology| {
            set_state(topology, &old, MemberState::Leaving(TransitionPhase::ReadNew));
            set_state(topology, &new, MemberState::Joining(TransitionPhase::ReadNew));
        });
    }
    let mut state = state.clone();
    Arc::make_mut(&mut state.uncleaned).pass_on(&old, new);
    let changed = with_topology(&state, index, true, |topology| {
        topology.members.remove(&old);
        topology.removed.insert(old);
        set_state(topology, &new, MemberState::Normal);
    });
    let mut seniority = changed.seniority.to_vec();
    seniority.retain(|senior| *senior != old);
    seniority.push(new);
    ClusterState { seniority: Arc::new(seniority), ..changed }
}

/// The state after a cancelled replacement: the dead member is `Normal` again, and the new node is no longer a member.
pub(super) fn taken_back(state: &ClusterState, index: u64, replacement: Replacement) -> ClusterState {
    with_topology(state, index, true, |topology| {
        topology.members.remove(&replacement.new);
        set_state(topology, &replacement.old, MemberState::Normal);
    })
}
