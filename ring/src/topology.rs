//! The members at one version of the metadata log.
//!
//! Invariants:
//! * A topology never changes; each change creates a new one with a higher version.
//! * `epoch` grows exactly when ownership of some token changes hands (a member begins, advances or ends a
//!   transition). Every replica request carries its coordinator's epoch: a replica refuses an epoch older than its
//!   own (the coordinator might address former replicas). If the replica is behind, it first catches up.
//! * At most one transition is under way: a member joins or leaves, several dead ones are removed together (all are in one phase), a new one
//!   takes the place of a dead one (both are in one phase), or the replication of keyspaces changes (all are in one phase).
//! * No two members have a token in common, but the two of a [`Replacement`]: of these one is an owner, and the other one on the other side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::{Keyspace, Replication};
use serde::{Deserialize, Serialize};

use super::change_feed::ChangeFeed;
use super::member::{HostId, Member, MemberState, TransitionPhase};
use super::replication_change::ReplicationChange;

/// A new member takes the place of a dead one, with its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The dead member, which is `Leaving` because it is removed.
    pub old: HostId,
    /// The new member, which is `Joining`.
    pub new: HostId,
    /// What only the dead member had is given up.
    pub accepts_loss: bool,
}

/// The members of the cluster at one version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Index in the metadata log of the entry that created it.
    pub version: u64,
    /// The version at which ownership last changed.
    pub epoch: u64,
    pub members: BTreeMap<HostId, Arc<Member>>,
    /// Members that have left or were removed: they never come back under their old ids.
    pub removed: BTreeSet<HostId>,
    /// Features up to this version may be in use: every member supports them. It never goes down.
    #[serde(default = "super::member::first_feature_version")]
    pub feature_level: u16,
    /// Keyspaces whose replication changes, or is to change.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replication_changes: BTreeMap<String, ReplicationChange>,
    /// Dead members that are to be removed when the present transition has ended, and no member that gains ranges has old data of them. No
    /// step needs their agreement.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub given_up: BTreeSet<HostId>,
    /// The replacement that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// The streams of change feeds.
    #[serde(default, skip_serializing_if = "ChangeFeed::is_empty")]
    pub change_feed: ChangeFeed,
}

impl Topology {
    pub fn member(&self, host_id: &HostId) -> Option<&Arc<Member>> {
        self.members.get(host_id)
    }

    /// Members that are read: the owners for coordinators.
    pub fn owners(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values().filter(|member| {
            matches!(
                member.state,
                MemberState::Normal
                    | MemberState::Joining(TransitionPhase::ReadNew)
                    | MemberState::Leaving(TransitionPhase::WriteBoth)
            )
        })
    }

    /// Members of the other side of the present transition: they must get every write in addition to the owners.
    /// Without a transition, the owners themselves.
    pub fn other_owners(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values().filter(|member| {
            matches!(
                member.state,
                MemberState::Normal
                    | MemberState::Joining(TransitionPhase::WriteBoth)
                    | MemberState::Leaving(TransitionPhase::ReadNew)
            )
        })
    }

    /// The members in transition: one, several dead ones that are removed, or a dead one and the one that takes its place.
    pub fn moving(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members.values().filter(|member| member.state != MemberState::Normal)
    }

    /// The member in transition; of several, the first one.
    pub fn in_transition(&self) -> Option<&Arc<Member>> {
        self.moving().next()
    }

    /// The phase of the changes of replication that are under way.
    pub fn replication_phase(&self) -> Option<TransitionPhase> {
        self.replication_changes.values().find_map(|change| change.phase)
    }

    /// The replication that is read for a keyspace: while it changes, not what the catalog says.
    pub fn replication_of<'t>(&'t self, keyspace: &'t Keyspace) -> &'t Replication {
        let change = self.replication_changes.get(&keyspace.name);
        change.map_or(&keyspace.replication, ReplicationChange::read)
    }

    /// Whether no range changes hands.
    pub fn is_settled(&self) -> bool {
        self.in_transition().is_none() && self.replication_phase().is_none()
    }

    /// The feature level that these members permit.
    pub(crate) fn raised_feature_level(&self) -> u16 {
        let lowest = self.members.values().map(|member| member.feature_version).min();
        // Without members the level stays.
        self.feature_level.max(lowest.unwrap_or(0))
    }

    /// The data centers that own tokens, with the numbers of their members.
    pub fn data_centers(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for member in self.owners() {
            *counts.entry(member.data_center.clone()).or_insert(0) += 1;
        }
        counts
    }
}
