//! What is refused of any command by which members come, leave and change.

use super::command::{CommandOutcome, Refusal};
use super::outcome::refuse;
use crate::member::{HostId, Member};
use crate::topology::Topology;

/// Refuses a new member with an address of another one.
pub(super) fn check_addresses(member: &Member, other: &Member) -> Result<(), CommandOutcome> {
    let theirs = [other.internode_address, other.native_address];
    match [member.internode_address, member.native_address].into_iter().find(|it| theirs.contains(it)) {
        Some(address) => refuse(Refusal::AddressTaken { address, by: other.host_id }),
        None => Ok(()),
    }
}

/// Refuses what would begin a second transition.
pub(super) fn check_settled(topology: &Topology) -> Result<(), CommandOutcome> {
    if let Some(other) = topology.in_transition() {
        return Err(CommandOutcome::Busy { host_id: other.host_id });
    }
    match topology.replication_changes.iter().find(|(_, change)| change.phase.is_some()) {
        Some((keyspace, _)) => refuse(Refusal::ReplicationIsChanging { keyspace: keyspace.clone() }),
        None => Ok(()),
    }
}

/// Refuses a program that does not support features that may be in use already.
pub(super) fn check_features(topology: &Topology, host_id: HostId, known: u16) -> Result<(), CommandOutcome> {
    let level = topology.feature_level;
    if known < level { refuse(Refusal::FeatureVersion { host_id, level, known }) } else { Ok(()) }
}

/// Refuses what not every member knows yet.
pub(super) fn check_level(topology: &Topology, level: u16) -> Result<(), CommandOutcome> {
    let oldest = topology.members.values().min_by_key(|member| member.feature_version);
    match oldest.filter(|_| topology.feature_level < level) {
        Some(oldest) => {
            let (host_id, known) = (oldest.host_id, oldest.feature_version);
            refuse(Refusal::FeatureVersion { host_id, level, known })
        }
        None => Ok(()),
    }
}

pub(super) fn check_tokens(member: &Member) -> Result<(), CommandOutcome> {
    let sorted = member.tokens.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    if member.tokens.is_empty() || !sorted { refuse(Refusal::Tokens) } else { Ok(()) }
}
