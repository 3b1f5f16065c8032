//! Commands by which members come, leave and change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::change_feed;
use super::checks::{check_addresses, check_features, check_level, check_settled, check_tokens};
use super::command::{CommandOutcome, MemberUpdate, Refusal};
use super::encryption;
use super::features::REMOVALS_TOGETHER;
use super::outcome::{Changed, refuse};
use super::replacement;
use super::state::{ClusterState, set_state, with_losers_uncleaned, with_topology};
use crate::member::{HostId, Member, MemberState, TransitionPhase};

pub(super) fn join(state: &ClusterState, index: u64, member: &Member) -> Changed {
    let topology = &state.topology;
    let host_id = member.host_id;
    let member = Member { state: MemberState::Joining(TransitionPhase::WriteBoth), ..member.clone() };
    if topology.removed.contains(&host_id) {
        return refuse(Refusal::Removed { host_id });
    }
    if let Some(known) = topology.member(&host_id) {
        // Whether it encrypts is not known below a feature level, and may be told later.
        let as_known = Member { encrypts_tables: known.encrypts_tables, ..member };
        return if **known == as_known { Ok(None) } else { refuse(Refusal::AlreadyMember { host_id }) };
    }
    check_features(topology, host_id, member.feature_version)?;
    encryption::check_member(&state.catalog, host_id, member.encrypts_tables)?;
    check_settled(topology)?;
    check_tokens(&member)?;
    for other in topology.members.values() {
        check_addresses(&member, other)?;
        let taken = other.tokens.iter().find(|token| member.tokens.binary_search(token).is_ok());
        if let Some(token) = taken {
            return refuse(Refusal::TokenTaken { token: *token, by: other.host_id });
        }
    }
    change_feed::check_streams(topology, &member)?;
    Ok(Some(with_topology(state, index, true, |topology| {
        topology.members.insert(host_id, Arc::new(member));
    })))
}

/// The state after a step; `None`: the member is removed.
fn next_state(state: MemberState) -> Option<MemberState> {
    match state {
        MemberState::Joining(TransitionPhase::WriteBoth) => {
            Some(MemberState::Joining(TransitionPhase::ReadNew))
        }
        MemberState::Leaving(TransitionPhase::WriteBoth) => {
            Some(MemberState::Leaving(TransitionPhase::ReadNew))
        }
        MemberState::Joining(TransitionPhase::ReadNew) => Some(MemberState::Normal),
        MemberState::Normal | MemberState::Leaving(TransitionPhase::ReadNew) => None,
    }
}

/// `epoch`: of the transition; `None`: members of older programs propose without it.
pub(super) fn advance(
    state: &ClusterState,
    index: u64,
    host_id: HostId,
    from: MemberState,
    epoch: Option<u64>,
) -> Changed {
    if epoch.is_some_and(|epoch| epoch != state.topology.epoch) {
        return Err(CommandOutcome::Conflict { version: state.topology.version });
    }
    if from == MemberState::Normal {
        return refuse(Refusal::WrongState { host_id, found: from });
    }
    let next = next_state(from);
    let Some(member) = state.topology.member(&host_id) else {
        let is_done = next.is_none() && state.topology.removed.contains(&host_id);
        return if is_done { Ok(None) } else { refuse(Refusal::UnknownMember { host_id }) };
    };
    if Some(member.state) == next {
        return Ok(None);
    }
    if member.state != from {
        return refuse(Refusal::WrongState { host_id, found: member.state });
    }
    if let Some(replacement) = replacement::of(&state.topology, &host_id) {
        return Ok(Some(replacement::advanced(state, index, replacement)));
    }
    // Members that are removed together take each step together.
    let is_removal = state.is_removal(&host_id);
    let together = if is_removal { state.removals.clone() } else { Arc::new(BTreeSet::from([host_id])) };
    let changed = with_topology(state, index, true, |topology| {
        for host_id in together.iter() {
            if let Some(next) = next {
                set_state(topology, host_id, next);
            } else {
                topology.members.remove(host_id);
                topology.removed.insert(*host_id);
            }
        }
    });
    let changed = if next == Some(MemberState::Normal) {
        with_losers_uncleaned(state, changed, host_id)
    } else {
        changed
    };
    let mut seniority = changed.seniority.to_vec();
    match next {
        None => seniority.retain(|senior| !together.contains(senior)),
        Some(MemberState::Normal) if !seniority.contains(&host_id) => seniority.push(host_id),
        Some(_) => {}
    }
    Ok(Some(ClusterState { seniority: Arc::new(seniority), ..changed }))
}

pub(super) fn abort(state: &ClusterState, index: u64, host_id: HostId) -> Changed {
    let Some(member) = state.topology.member(&host_id) else {
        // It was aborted before, or was never a member, which has an equal result.
        return if state.topology.removed.contains(&host_id) {
            refuse(Refusal::Removed { host_id })
        } else {
            Ok(None)
        };
    };
    match member.state {
        // A member in its last phase serves no clients, and has handed over the hints and batches that it kept for
        // others.
        MemberState::Normal | MemberState::Leaving(TransitionPhase::ReadNew) => {
            refuse(Refusal::WrongState { host_id, found: member.state })
        }
        MemberState::Joining(_) | MemberState::Leaving(TransitionPhase::WriteBoth) => {
            let replacement = replacement::of(&state.topology, &host_id);
            Ok(Some(match (replacement, member.state) {
                (Some(replacement), _) => replacement::taken_back(state, index, replacement),
                (None, MemberState::Joining(_)) => with_topology(state, index, true, |topology| {
                    topology.members.remove(&host_id);
                }),
                (None, _) => with_member_staying(state, index, member),
            }))
        }
    }
}

/// The state in which a leaving member is `Normal` again.
fn with_member_staying(state: &ClusterState, index: u64, member: &Member) -> ClusterState {
    let host_id = member.host_id;
    let changed =
        with_topology(state, index, true, |topology| set_state(topology, &host_id, MemberState::Normal));
    with_losers_uncleaned(state, changed, host_id)
}

/// Refuses what would give members ranges of which they may have old data.
pub(super) fn check_cleaned(host_ids: Vec<HostId>) -> Result<(), CommandOutcome> {
    if host_ids.is_empty() { Ok(()) } else { refuse(Refusal::CleanupDue { host_ids }) }
}

pub(super) fn cleaned(
    state: &ClusterState,
    index: u64,
    host_id: &HostId,
    because_of: &BTreeSet<HostId>,
    epoch: u64,
) -> Changed {
    if state.topology.epoch != epoch {
        // Since then more may have been given up because of the same members.
        return Err(CommandOutcome::Conflict { version: state.topology.version });
    }
    let mut uncleaned = state.uncleaned.clone();
    Arc::make_mut(&mut uncleaned).forget(host_id, because_of);
    if uncleaned == state.uncleaned {
        return Ok(None);
    }
    let changed = with_topology(state, index, false, |_| {});
    Ok(Some(ClusterState { uncleaned, ..changed }))
}

pub(super) fn take_back_removal(state: &ClusterState, index: u64, host_id: HostId, epoch: u64) -> Changed {
    let topology = &state.topology;
    let Some(member) = topology.member(&host_id) else {
        return refuse(if topology.removed.contains(&host_id) {
            Refusal::Removed { host_id }
        } else {
            Refusal::UnknownMember { host_id }
        });
    };
    if topology.given_up.contains(&host_id) && topology.epoch == epoch {
        return Ok(Some(with_topology(state, index, false, |topology| {
            topology.given_up.remove(&host_id);
        })));
    }
    match member.state {
        // Another member has cancelled it.
        MemberState::Normal => Ok(None),
        // While members are removed only their own steps change the epoch.
        MemberState::Leaving(TransitionPhase::WriteBoth)
            if state.is_removal(&host_id) && topology.epoch == epoch =>
        {
            Ok(Some(match replacement::of(topology, &host_id) {
                Some(replacement) => replacement::taken_back(state, index, replacement),
                None => with_member_staying(state, index, member),
            }))
        }
        found => refuse(Refusal::WrongState { host_id, found }),
    }
}

/// Whether a member may leave while those that gain its ranges may have old data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OldData {
    Refused,
    Accepted,
}

pub(super) fn start_leave(
    state: &ClusterState,
    index: u64,
    host_id: HostId,
    is_removal: bool,
    old_data: OldData,
) -> Changed {
    let topology = &state.topology;
    let Some(member) = topology.member(&host_id) else {
        return if topology.removed.contains(&host_id) {
            Ok(None)
        } else {
            refuse(Refusal::UnknownMember { host_id })
        };
    };
    if matches!(member.state, MemberState::Leaving(_)) {
        return Ok(None);
    }
    check_settled(topology)?;
    if topology.members.len() == 1 {
        return refuse(Refusal::LastOwner { host_id });
    }
    if old_data == OldData::Refused {
        check_cleaned(state.cleanup_due_before(&BTreeSet::from([host_id])))?;
    }
    let changed = with_topology(state, index, true, |topology| {
        set_state(topology, &host_id, MemberState::Leaving(TransitionPhase::WriteBoth));
    });
    let removals = is_removal.then_some(host_id).into_iter().collect();
    Ok(Some(ClusterState { removals: Arc::new(removals), ..changed }))
}

/// Begins to remove the members that were given up, if no transition is under way any more, and nothing else is in the way.
pub(super) fn removals_begun(state: ClusterState, index: u64) -> ClusterState {
    let given_up = &state.topology.given_up;
    if given_up.is_empty() || !state.topology.is_settled() {
        return state;
    }
    match start_removals(&without_given_up(&state), index, given_up, OldData::Refused) {
        Ok(Some(begun)) => begun,
        Ok(None) | Err(_) => state,
    }
}

/// The state in which nobody is noted as given up.
fn without_given_up(state: &ClusterState) -> ClusterState {
    let mut topology = state.topology.clone();
    Arc::make_mut(&mut topology).given_up.clear();
    ClusterState { topology, ..state.clone() }
}

/// Begins to remove dead members, together with those that are being removed already and still read: the ranges of all get new owners
/// anew.
pub(super) fn start_removals(
    state: &ClusterState,
    index: u64,
    host_ids: &BTreeSet<HostId>,
    old_data: OldData,
) -> Changed {
    let topology = &state.topology;
    check_level(topology, REMOVALS_TOGETHER)?;
    let mut asked: BTreeSet<HostId> = host_ids.difference(&topology.removed).copied().collect();
    for host_id in &asked {
        match topology.member(host_id) {
            None => return refuse(Refusal::UnknownMember { host_id: *host_id }),
            Some(member) if matches!(member.state, MemberState::Joining(_)) => {
                return refuse(Refusal::WrongState { host_id: *host_id, found: member.state });
            }
            Some(_) => {}
        }
    }
    // It is removed when another one has its place, or when the replacement was taken back.
    if let Some(replacement) = topology.replacement.filter(|replacement| asked.contains(&replacement.old)) {
        return Err(CommandOutcome::Busy { host_id: replacement.new });
    }
    let state_of = |host_id: &HostId| topology.member(host_id).map(|member| member.state);
    if asked.iter().all(|host_id| matches!(state_of(host_id), Some(MemberState::Leaving(_)))) {
        return Ok(None);
    }
    // Those that leave already, and are read no more, need nothing else.
    let is_last = Some(MemberState::Leaving(TransitionPhase::ReadNew));
    let goes = |host_id: &HostId| state.is_removal(host_id) || state_of(host_id) == is_last;
    asked.retain(|host_id| !goes(host_id));
    if asked.is_subset(&topology.given_up) && !topology.is_settled() {
        return Ok(None);
    }
    let is_too_late = topology.moving().any(|member| Some(member.state) == is_last);
    if is_too_late || topology.replication_phase().is_some() {
        // What the new owners have streamed is not asked of the former ones again.
        return Ok(Some(with_topology(state, index, false, |topology| topology.given_up.extend(asked))));
    }
    asked.extend(state.removals.iter().chain(&topology.given_up));
    match topology.moving().find(|member| !asked.contains(&member.host_id)) {
        Some(other) => return Err(CommandOutcome::Busy { host_id: other.host_id }),
        // A member that has died while it left on its own request is removed with the others.
        None if topology.in_transition().is_some() => {}
        None => check_settled(topology)?,
    }
    let mut staying = topology.members.keys().filter(|host_id| !asked.contains(host_id));
    if let (None, Some(host_id)) = (staying.next(), asked.first()) {
        return refuse(Refusal::LastOwner { host_id: *host_id });
    }
    if old_data == OldData::Refused && !state.cleanup_due_before(&asked).is_empty() {
        return Ok(with_all_given_up(state, index, asked));
    }
    let changed = with_topology(state, index, true, |topology| {
        for host_id in &asked {
            set_state(topology, host_id, MemberState::Leaving(TransitionPhase::WriteBoth));
            topology.given_up.remove(host_id);
        }
    });
    // Who was to gain ranges, and is not any more, has had some of their writes.
    let mut changed = match state.removals.first() {
        Some(cause) => with_losers_uncleaned(state, changed, *cause),
        None => changed,
    };
    changed.removals = Arc::new(asked);
    Ok(Some(changed))
}

/// The state in which these members are noted as given up. Those whose removal has begun, and who are still read, stay until it begins anew
/// with the others: nobody cleans up during a transition. `None`: all are noted.
fn with_all_given_up(state: &ClusterState, index: u64, asked: BTreeSet<HostId>) -> Option<ClusterState> {
    if state.removals.is_empty() && asked == state.topology.given_up {
        return None;
    }
    let changed = with_topology(state, index, !state.removals.is_empty(), |topology| {
        for host_id in state.removals.iter() {
            set_state(topology, host_id, MemberState::Normal);
        }
        topology.given_up = asked;
    });
    Some(match state.removals.first() {
        Some(cause) => with_losers_uncleaned(state, changed, *cause),
        None => changed,
    })
}

pub(super) fn update_member(state: &ClusterState, index: u64, update: &MemberUpdate) -> Changed {
    let host_id = update.host_id;
    let Some(member) = state.topology.member(&host_id) else {
        return if state.topology.removed.contains(&host_id) {
            refuse(Refusal::Removed { host_id })
        } else {
            refuse(Refusal::UnknownMember { host_id })
        };
    };
    if MemberUpdate::of(member) == *update {
        return Ok(None);
    }
    check_features(&state.topology, host_id, update.feature_version)?;
    encryption::check_member(&state.catalog, host_id, update.encrypts_tables)?;
    // Another member may still be known under this address, as addresses may have been reassigned: its own update
    // follows, and a link is only made to the requested host id.
    let updated = Arc::new(Member {
        internode_address: update.internode_address,
        native_address: update.native_address,
        shard_aware_port: update.shard_aware_port,
        shard_count: update.shard_count,
        release_version: update.release_version.clone(),
        protocol_version: update.protocol_version,
        feature_version: update.feature_version,
        encrypts_tables: update.encrypts_tables,
        ..Member::clone(member)
    });
    Ok(Some(with_topology(state, index, false, |topology| {
        topology.members.insert(host_id, updated);
    })))
}
