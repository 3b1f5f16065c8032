//! The agreed state, and its form for the disk and for other members.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::document::{CatalogDocument, DocumentError};
use helenus_query::schema::system_tables::initial_catalog;
use helenus_roles::{Roles, RolesDocument};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::features::{AGREED_CLEANUP, ENCRYPTED_TABLES};
use super::gains::{gain_by, gain_without, given_up};
use super::uncleaned::Uncleaned;
use crate::change_feed::ChangeFeed;
use crate::denylist::{Denylist, DenylistDocument};
use crate::member::{HostId, Member, MemberState};
use crate::replication_change::ReplicationChange;
use crate::topology::Topology;

/// Number of changes of schema, roles and denylist that are remembered, to recognize one that is proposed again.
const RECENT_CHANGES: usize = 64;

/// The applied state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClusterState {
    pub topology: Arc<Topology>,
    pub catalog: Arc<Catalog>,
    pub roles: Arc<Roles>,
    pub denylist: Arc<Denylist>,
    /// Members in the order in which they first became `Normal`.
    pub(super) seniority: Arc<Vec<HostId>>,
    /// Versions of the last schema changes, and ids of the last changes of roles and denylist, with the indexes of their entries, oldest first.
    pub(super) recent_changes: Arc<Vec<(Uuid, u64)>>,
    /// The members whose leaving is a removal: another member requested it, because these are dead.
    pub(super) removals: Arc<BTreeSet<HostId>>,
    pub(super) uncleaned: Arc<Uncleaned>,
}

/// A [`ClusterState`] for the disk and for other members.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateDocument {
    topology: Topology,
    catalog: CatalogDocument,
    seniority: Vec<HostId>,
    recent_changes: Vec<(Uuid, u64)>,
    #[serde(default)]
    removal: Option<HostId>,
    /// The removals beside `removal`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    other_removals: BTreeSet<HostId>,
    #[serde(default, skip_serializing_if = "Uncleaned::is_empty")]
    uncleaned: Uncleaned,
    #[serde(default, skip_serializing_if = "RolesDocument::is_empty")]
    roles: RolesDocument,
    #[serde(default, skip_serializing_if = "DenylistDocument::is_empty")]
    denylist: DenylistDocument,
    /// Whether members, removed members and seniority are those of the base: only in documents of [`ClusterState::document_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_members_of_base: bool,
    /// Whether the streams of change feeds are those of the base: only in documents of [`ClusterState::document_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_feed_of_base: bool,
    /// Keyspaces that are dropped: only in documents of [`ClusterState::document_since`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped_keyspaces: Vec<String>,
}

impl ClusterState {
    /// The state before the first entry: no members, the schema of a new node.
    pub fn empty() -> Self {
        Self {
            topology: Arc::default(),
            catalog: Arc::new(initial_catalog(Uuid::nil())),
            roles: Arc::default(),
            denylist: Arc::default(),
            seniority: Arc::default(),
            recent_changes: Arc::default(),
            removals: Arc::default(),
            uncleaned: Arc::default(),
        }
    }

    pub fn is_founded(&self) -> bool {
        self.topology.version > 0
    }

    /// Whether a member leaves because others remove it, and not on its own request.
    pub fn is_removal(&self, host_id: &HostId) -> bool {
        self.removals.contains(host_id)
    }

    /// The members that others remove.
    pub fn removals(&self) -> &BTreeSet<HostId> {
        &self.removals
    }

    /// The members that may still have data of ranges that they have given up.
    pub fn uncleaned(&self) -> &Uncleaned {
        &self.uncleaned
    }

    /// The members that would gain ranges by these changes of replication, and may still have old data of ranges.
    pub fn cleanup_due_by<'c>(
        &self,
        changes: impl IntoIterator<Item = &'c ReplicationChange>,
    ) -> Vec<HostId> {
        if self.uncleaned.is_empty() {
            return Vec::new();
        }
        let gaining = changes.into_iter().flat_map(|change| gain_by(&self.topology, change)).collect();
        self.noted_among(&gaining)
    }

    /// The members that would gain ranges if these left, and may still have old data of ranges.
    pub fn cleanup_due_before(&self, leaving: &BTreeSet<HostId>) -> Vec<HostId> {
        if self.uncleaned.is_empty() {
            return Vec::new();
        }
        self.noted_among(&gain_without(&self.topology, &self.catalog, leaving))
    }

    fn noted_among(&self, gaining: &BTreeSet<HostId>) -> Vec<HostId> {
        self.uncleaned.members().filter(|noted| gaining.contains(noted)).copied().collect()
    }

    /// The state in which a change is noted, so that it is recognized when it is proposed again.
    pub(super) fn with_recent_change(self, id: Uuid, index: u64) -> Self {
        let mut recent_changes = self.recent_changes.to_vec();
        recent_changes.push((id, index));
        if recent_changes.len() > RECENT_CHANGES {
            recent_changes.remove(0);
        }
        Self { recent_changes: Arc::new(recent_changes), ..self }
    }

    /// The members in the order of their joining.
    pub(super) fn seniority(&self) -> &[HostId] {
        &self.seniority
    }

    pub fn document(&self) -> StateDocument {
        let catalog = CatalogDocument::of(&self.catalog);
        let (roles, denylist) = (RolesDocument::of(&self.roles), DenylistDocument::of(&self.denylist));
        self.document_with(catalog, roles, denylist, Vec::new())
    }

    /// The changes since `base`.
    pub fn document_since(&self, base: &Self) -> StateDocument {
        let catalog = CatalogDocument::delta(&base.catalog, &self.catalog);
        let roles = RolesDocument::since(&base.roles, &self.roles);
        let denylist = DenylistDocument::since(&base.denylist, &self.denylist);
        let dropped_keyspaces = dropped_keyspaces(&base.catalog, &self.catalog);
        let mut document = self.document_with(catalog, roles, denylist, dropped_keyspaces);
        let (topology, known) = (&self.topology, &base.topology);
        if topology.members == known.members
            && topology.removed == known.removed
            && self.seniority == base.seniority
        {
            document.has_members_of_base = true;
            document.topology.members.clear();
            document.topology.removed.clear();
            document.seniority.clear();
        }
        if !topology.change_feed.is_empty() && topology.change_feed == known.change_feed {
            document.has_feed_of_base = true;
            document.topology.change_feed = ChangeFeed::default();
        }
        document
    }

    fn document_with(
        &self,
        catalog: CatalogDocument,
        roles: RolesDocument,
        denylist: DenylistDocument,
        dropped_keyspaces: Vec<String>,
    ) -> StateDocument {
        StateDocument {
            topology: Topology::clone(&self.topology),
            catalog,
            roles,
            denylist,
            has_members_of_base: false,
            has_feed_of_base: false,
            dropped_keyspaces,
            seniority: self.seniority.to_vec(),
            recent_changes: self.recent_changes.to_vec(),
            removal: self.removals.first().copied(),
            other_removals: self.removals.iter().skip(1).copied().collect(),
            uncleaned: Uncleaned::clone(&self.uncleaned),
        }
    }
}

impl StateDocument {
    pub fn state(self) -> Result<ClusterState, DocumentError> {
        self.state_over(&ClusterState::empty())
    }

    /// The state whose document has the changes since `base`.
    pub fn state_over(mut self, base: &ClusterState) -> Result<ClusterState, DocumentError> {
        if self.has_members_of_base {
            self.topology.members.clone_from(&base.topology.members);
            self.topology.removed.clone_from(&base.topology.removed);
            self.seniority.clone_from(&base.seniority);
        }
        if self.has_feed_of_base {
            self.topology.change_feed.clone_from(&base.topology.change_feed);
        }
        let mut catalog = self.catalog.over(&base.catalog)?;
        catalog.keyspaces.retain(|name, _| !self.dropped_keyspaces.contains(name));
        Ok(ClusterState {
            catalog: Arc::new(catalog),
            roles: Arc::new(self.roles.over(&base.roles)),
            denylist: Arc::new(self.denylist.over(&base.denylist)),
            topology: Arc::new(self.topology),
            seniority: Arc::new(self.seniority),
            recent_changes: Arc::new(self.recent_changes),
            removals: Arc::new(self.removal.into_iter().chain(self.other_removals).collect()),
            uncleaned: Arc::new(self.uncleaned),
        })
    }
}

/// The keyspaces of one catalog that another one does not have.
pub fn dropped_keyspaces(old: &Catalog, new: &Catalog) -> Vec<String> {
    old.keyspaces.keys().filter(|name| !new.keyspaces.contains_key(*name)).cloned().collect()
}

/// The state with another topology at this index of the log.
pub(super) fn with_topology(
    state: &ClusterState,
    index: u64,
    ownership_changes: bool,
    change: impl FnOnce(&mut Topology),
) -> ClusterState {
    let mut topology = Topology::clone(&state.topology);
    topology.version = index;
    if ownership_changes {
        topology.epoch = index;
    }
    change(&mut topology);
    topology.feature_level = topology.raised_feature_level();
    if topology.feature_level < ENCRYPTED_TABLES {
        // Members of before do not know that others encrypt. All must have the same state.
        for member in topology.members.values_mut().filter(|member| member.encrypts_tables) {
            Arc::make_mut(member).encrypts_tables = false;
        }
    }
    let members = &topology.members;
    topology.given_up.retain(|host_id| members.contains_key(host_id));
    let is_joining = |host_id: &HostId| {
        members.get(host_id).is_some_and(|member| matches!(member.state, MemberState::Joining(_)))
    };
    // It ends with the joining, whatever ended that.
    topology.replacement = topology.replacement.filter(|replacement| is_joining(&replacement.new));
    let is_leaving = |host_id: &HostId| {
        topology.member(host_id).is_some_and(|member| matches!(member.state, MemberState::Leaving(_)))
    };
    // A removal ends with the leaving, whatever ended the leaving.
    let removals = state.removals.iter().filter(|host_id| is_leaving(host_id)).copied().collect();
    let mut uncleaned = state.uncleaned.clone();
    Arc::make_mut(&mut uncleaned).forget_strangers(&topology);
    ClusterState { topology: Arc::new(topology), removals: Arc::new(removals), uncleaned, ..state.clone() }
}

pub(super) fn set_state(topology: &mut Topology, host_id: &HostId, state: MemberState) {
    if let Some(member) = topology.members.get_mut(host_id) {
        *member = Arc::new(Member { state, ..Member::clone(member) });
    }
}

/// `after`, in which the members that have given up ranges since `before` because of `cause`, or may have data from earlier, are noted
/// for it.
pub(super) fn with_losers_uncleaned(
    before: &ClusterState,
    mut after: ClusterState,
    cause: HostId,
) -> ClusterState {
    // Every member has to know what is noted, as all must decide alike.
    if after.topology.feature_level >= AGREED_CLEANUP {
        let mut losers = given_up((&before.topology, &before.catalog), (&after.topology, &after.catalog));
        // What a noted member still has may belong to the cause from now on: it would not be found without it.
        losers.extend(after.uncleaned.members().filter(|noted| **noted != cause));
        Arc::make_mut(&mut after.uncleaned).note(losers, cause);
    }
    after
}
