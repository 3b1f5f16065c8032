//! The state that all members agree on, and how commands change it: a state machine without side effects.
//!
//! Invariants:
//! * [`apply`] is deterministic: equal state, index and command give an equal result on every member. It reads no
//!   clock, draws no random numbers, and refuses with a [`CommandOutcome`] instead of failing.
//! * A command that is applied twice (its proposer did not learn of the first time) has no second effect.
//! * At most one member is in a transition; no keyspace's replication changes meanwhile.
//! * [`Topology::feature_level`] never goes down, and every member supports it: a program that does not is refused.
//! * [`Topology::version`] is the index of the last entry that changed members, schema or pending cleanups. [`Topology::epoch`] is the
//!   index of the last entry that changed ownership: a step of a transition, or a keyspace's replication.

mod command;
mod gains;
mod uncleaned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::document::{CatalogDocument, DocumentError};
use helenus_query::schema::system_tables::initial_catalog;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::command::{Command, CommandOutcome, MemberUpdate, Refusal, SchemaChangeCommand};
use self::gains::{gain_by_replication, gain_without};
pub use self::uncleaned::Uncleaned;
use crate::member::{HostId, Member, MemberState, TransitionPhase};
use crate::topology::Topology;

/// The newest features that this program supports: anything stored, sent or agreed on in a way that older programs do
/// not understand. It is raised with each such change, which may then be used only if [`Topology::feature_level`] has
/// reached it.
///
/// * 2: removals are distinguished from leavings ([`Command::StartRemoval`], [`Command::TakeBackRemoval`], `removal`
///   of the state).
/// * 3: members announce to each other how full their disks are.
/// * 4: a row that is too large for a message is streamed in parts.
/// * 5: a schema change carries the tables that it changes, not their keyspaces ([`Command::ChangeTables`]), and so does a node's file of
///   changes.
/// * 6: a member carries out an operation on its snapshots for another one.
/// * 7: the log records which members have yet to clean up ranges that they no longer own ([`Uncleaned`], [`Command::Cleaned`],
///   [`Command::ForceLeave`]).
pub const FEATURE_VERSION: u16 = AGREED_CLEANUP;
/// The feature level from which removals are distinguished from leavings.
pub const REMOVALS: u16 = 2;
/// The feature level from which members announce to each other how full their disks are.
pub const DISK_STATUS: u16 = 3;
/// The feature level from which a row that is too large for a message is streamed in parts.
pub const STREAMED_ROW_PARTS: u16 = 4;
/// The feature level from which a schema change carries the tables that it changes.
pub const SCHEMA_DELTAS: u16 = 5;
/// The feature level from which members carry out operations on their snapshots for each other.
pub const MEMBER_SNAPSHOTS: u16 = 6;
/// The feature level from which the log records pending cleanups.
pub const AGREED_CLEANUP: u16 = 7;
/// Number of members that vote in the metadata log.
pub const VOTERS_MAX: usize = 5;
/// Number of schema changes that are remembered, to recognize one that is proposed again.
const RECENT_CHANGES: usize = 64;

/// The applied state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClusterState {
    pub topology: Arc<Topology>,
    pub catalog: Arc<Catalog>,
    /// Members in the order in which they first became `Normal`.
    seniority: Arc<Vec<HostId>>,
    /// Versions of the last schema changes with the indexes of their entries, oldest first.
    recent_changes: Arc<Vec<(Uuid, u64)>>,
    /// The member whose leaving is a removal: another member requested it, because this one is dead.
    removal: Option<HostId>,
    uncleaned: Arc<Uncleaned>,
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
    #[serde(default, skip_serializing_if = "Uncleaned::is_empty")]
    uncleaned: Uncleaned,
    /// Whether members, removed members and seniority are those of the base: only in documents of [`ClusterState::document_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_members_of_base: bool,
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
            seniority: Arc::default(),
            recent_changes: Arc::default(),
            removal: None,
            uncleaned: Arc::default(),
        }
    }

    pub fn is_founded(&self) -> bool {
        self.topology.version > 0
    }

    /// Whether a member leaves because others remove it, and not on its own request.
    pub fn is_removal(&self, host_id: &HostId) -> bool {
        self.removal.as_ref() == Some(host_id)
    }

    /// The members that may still have data of ranges that they have given up.
    pub fn uncleaned(&self) -> &Uncleaned {
        &self.uncleaned
    }

    /// The members that would gain ranges by this other catalog, and may still have old data of ranges.
    pub fn cleanup_due_by(&self, catalog: &Catalog) -> Vec<HostId> {
        if self.uncleaned.is_empty() {
            return Vec::new();
        }
        self.noted_among(&gain_by_replication(&self.topology, &self.catalog, catalog))
    }

    /// The members that would gain ranges if this one left, and may still have old data of ranges.
    pub fn cleanup_due_before(&self, leaving: &HostId) -> Vec<HostId> {
        if self.uncleaned.is_empty() {
            return Vec::new();
        }
        self.noted_among(&gain_without(&self.topology, &self.catalog, leaving))
    }

    fn noted_among(&self, gaining: &BTreeSet<HostId>) -> Vec<HostId> {
        self.uncleaned.members().filter(|noted| gaining.contains(noted)).copied().collect()
    }

    /// The members that should vote: the first five `Normal` ones in the order of their joining.
    pub fn voters(&self) -> BTreeSet<HostId> {
        let is_normal = |host_id: &&HostId| {
            self.topology.member(host_id).is_some_and(|member| member.state == MemberState::Normal)
        };
        self.seniority.iter().filter(is_normal).take(VOTERS_MAX).copied().collect()
    }

    pub fn document(&self) -> StateDocument {
        self.document_with(CatalogDocument::of(&self.catalog), Vec::new())
    }

    /// The changes since `base`.
    pub fn document_since(&self, base: &Self) -> StateDocument {
        let catalog = CatalogDocument::delta(&base.catalog, &self.catalog);
        let mut document = self.document_with(catalog, dropped_keyspaces(&base.catalog, &self.catalog));
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
        document
    }

    fn document_with(&self, catalog: CatalogDocument, dropped_keyspaces: Vec<String>) -> StateDocument {
        StateDocument {
            topology: Topology::clone(&self.topology),
            catalog,
            has_members_of_base: false,
            dropped_keyspaces,
            seniority: self.seniority.to_vec(),
            recent_changes: self.recent_changes.to_vec(),
            removal: self.removal,
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
        let mut catalog = self.catalog.over(&base.catalog)?;
        catalog.keyspaces.retain(|name, _| !self.dropped_keyspaces.contains(name));
        Ok(ClusterState {
            catalog: Arc::new(catalog),
            topology: Arc::new(self.topology),
            seniority: Arc::new(self.seniority),
            recent_changes: Arc::new(self.recent_changes),
            removal: self.removal,
            uncleaned: Arc::new(self.uncleaned),
        })
    }
}

/// The keyspaces of one catalog that another one does not have.
pub fn dropped_keyspaces(old: &Catalog, new: &Catalog) -> Vec<String> {
    old.keyspaces.keys().filter(|name| !new.keyspaces.contains_key(*name)).cloned().collect()
}

/// Applies a command. The state is unchanged unless the outcome is a new `Applied`.
pub fn apply(state: &ClusterState, index: u64, command: &Command) -> (ClusterState, CommandOutcome) {
    match changed(state, index, command) {
        Ok(Some(state)) => (state, CommandOutcome::Applied { version: index }),
        Ok(None) => (state.clone(), CommandOutcome::Applied { version: state.topology.version }),
        Err(outcome) => (state.clone(), outcome),
    }
}

/// The new state; `None`: the requested state holds already.
fn changed(
    state: &ClusterState,
    index: u64,
    command: &Command,
) -> Result<Option<ClusterState>, CommandOutcome> {
    if let Command::Found { member, catalog } = command {
        return found(state, index, member, catalog);
    }
    if !state.is_founded() {
        return refuse(Refusal::NotFounded);
    }
    match command {
        Command::Found { .. } => refuse(Refusal::AlreadyFounded),
        Command::ChangeSchema(change) | Command::ChangeTables(change) => change_schema(state, index, change),
        Command::Join { member } => join(state, index, member),
        Command::Advance { host_id, from } => advance(state, index, *host_id, *from),
        Command::Abort { host_id } => abort(state, index, *host_id),
        Command::StartLeave { host_id } => start_leave(state, index, *host_id, false, OldData::Refused),
        Command::StartRemoval { host_id } => start_leave(state, index, *host_id, true, OldData::Refused),
        Command::ForceLeave { host_id, is_removal } => {
            start_leave(state, index, *host_id, *is_removal, OldData::Accepted)
        }
        Command::Cleaned { host_id, because_of, epoch } => cleaned(state, index, host_id, because_of, *epoch),
        Command::TakeBackRemoval { host_id, epoch } => take_back_removal(state, index, *host_id, *epoch),
        Command::Update(update) => update_member(state, index, update),
    }
}

type Changed = Result<Option<ClusterState>, CommandOutcome>;

fn refuse<T>(refusal: Refusal) -> Result<T, CommandOutcome> {
    Err(CommandOutcome::Refused(refusal))
}

fn malformed(error: &DocumentError) -> CommandOutcome {
    CommandOutcome::Refused(Refusal::Malformed(error.to_string()))
}

fn found(state: &ClusterState, index: u64, member: &Member, catalog: &CatalogDocument) -> Changed {
    if state.is_founded() {
        // The founder has proposed it again.
        let is_same = state.seniority.first() == Some(&member.host_id);
        return if is_same { Ok(None) } else { refuse(Refusal::AlreadyFounded) };
    }
    let catalog = catalog.catalog().map_err(|error| malformed(&error))?;
    let member = Member { state: MemberState::Normal, ..member.clone() };
    check_tokens(&member)?;
    let feature_version = member.feature_version;
    Ok(Some(ClusterState {
        seniority: Arc::new(vec![member.host_id]),
        recent_changes: Arc::default(),
        removal: None,
        uncleaned: Arc::default(),
        catalog: Arc::new(catalog),
        topology: Arc::new(Topology {
            version: index,
            epoch: index,
            members: BTreeMap::from([(member.host_id, Arc::new(member))]),
            removed: BTreeSet::new(),
            feature_level: feature_version,
        }),
    }))
}

fn change_schema(state: &ClusterState, index: u64, change: &SchemaChangeCommand) -> Changed {
    let version = change.changed.version().map_err(|error| malformed(&error))?;
    if state.recent_changes.iter().any(|(done, _)| *done == version) {
        return Ok(None);
    }
    let old = &state.catalog;
    if old.version != change.base {
        return Err(CommandOutcome::Conflict { version: state.topology.version });
    }
    let mut catalog = change.changed.over(old).map_err(|error| malformed(&error))?;
    for name in &change.dropped {
        catalog.keyspaces.remove(name);
    }
    let changed_replication = catalog.keyspaces.values().find(|keyspace| {
        old.keyspace(&keyspace.name).is_some_and(|known| known.replication != keyspace.replication)
    });
    if let (Some(keyspace), Some(member)) = (changed_replication, state.topology.in_transition()) {
        // Streams and pending replicas were planned for the previous replication.
        return refuse(Refusal::ReplicationInTransition {
            keyspace: keyspace.name.clone(),
            host_id: member.host_id,
            address: member.internode_address,
        });
    }
    if changed_replication.is_some() {
        check_cleaned(state.cleanup_due_by(&catalog))?;
    }
    let mut topology = Topology::clone(&state.topology);
    topology.version = index;
    if changed_replication.is_some() {
        topology.epoch = index;
    }
    let mut recent_changes = state.recent_changes.to_vec();
    recent_changes.push((version, index));
    if recent_changes.len() > RECENT_CHANGES {
        recent_changes.remove(0);
    }
    Ok(Some(ClusterState {
        topology: Arc::new(topology),
        catalog: Arc::new(catalog),
        seniority: state.seniority.clone(),
        recent_changes: Arc::new(recent_changes),
        removal: state.removal,
        uncleaned: state.uncleaned.clone(),
    }))
}

fn join(state: &ClusterState, index: u64, member: &Member) -> Changed {
    let topology = &state.topology;
    let host_id = member.host_id;
    let member = Member { state: MemberState::Joining(TransitionPhase::WriteBoth), ..member.clone() };
    if topology.removed.contains(&host_id) {
        return refuse(Refusal::Removed { host_id });
    }
    if let Some(known) = topology.member(&host_id) {
        return if **known == member { Ok(None) } else { refuse(Refusal::AlreadyMember { host_id }) };
    }
    check_features(topology, host_id, member.feature_version)?;
    if let Some(other) = topology.in_transition() {
        return Err(CommandOutcome::Busy { host_id: other.host_id });
    }
    check_tokens(&member)?;
    for other in topology.members.values() {
        for address in [member.internode_address, member.native_address] {
            if [other.internode_address, other.native_address].contains(&address) {
                return refuse(Refusal::AddressTaken { address, by: other.host_id });
            }
        }
        let taken = other.tokens.iter().find(|token| member.tokens.binary_search(token).is_ok());
        if let Some(token) = taken {
            return refuse(Refusal::TokenTaken { token: *token, by: other.host_id });
        }
    }
    Ok(Some(with_topology(state, index, true, |topology| {
        topology.members.insert(host_id, Arc::new(member));
    })))
}

/// Refuses a program that does not support features that may be in use already.
fn check_features(topology: &Topology, host_id: HostId, known: u16) -> Result<(), CommandOutcome> {
    let level = topology.feature_level;
    if known < level { refuse(Refusal::FeatureVersion { host_id, level, known }) } else { Ok(()) }
}

fn check_tokens(member: &Member) -> Result<(), CommandOutcome> {
    let sorted = member.tokens.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    if member.tokens.is_empty() || !sorted { refuse(Refusal::Tokens) } else { Ok(()) }
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

fn advance(state: &ClusterState, index: u64, host_id: HostId, from: MemberState) -> Changed {
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
    let advanced = next.map(|next| Arc::new(Member { state: next, ..Member::clone(member) }));
    let changed = with_topology(state, index, true, |topology| {
        if let Some(member) = advanced {
            topology.members.insert(host_id, member);
        } else {
            topology.members.remove(&host_id);
            topology.removed.insert(host_id);
        }
    });
    let changed =
        if next == Some(MemberState::Normal) { with_losers_uncleaned(changed, host_id) } else { changed };
    let mut seniority = changed.seniority.to_vec();
    match next {
        None => seniority.retain(|senior| *senior != host_id),
        Some(MemberState::Normal) if !seniority.contains(&host_id) => seniority.push(host_id),
        Some(_) => {}
    }
    Ok(Some(ClusterState { seniority: Arc::new(seniority), ..changed }))
}

fn abort(state: &ClusterState, index: u64, host_id: HostId) -> Changed {
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
        MemberState::Joining(_) => Ok(Some(with_topology(state, index, true, |topology| {
            topology.members.remove(&host_id);
        }))),
        MemberState::Leaving(TransitionPhase::WriteBoth) => {
            Ok(Some(with_member_staying(state, index, member)))
        }
    }
}

/// The state in which a leaving member is `Normal` again.
fn with_member_staying(state: &ClusterState, index: u64, member: &Member) -> ClusterState {
    let stays = Arc::new(Member { state: MemberState::Normal, ..member.clone() });
    let changed = with_topology(state, index, true, |topology| {
        topology.members.insert(stays.host_id, stays);
    });
    with_losers_uncleaned(changed, member.host_id)
}

/// The state in which the members that have given up ranges because of this one, or may have data from before, are noted for it.
fn with_losers_uncleaned(mut state: ClusterState, host_id: HostId) -> ClusterState {
    // Every member has to know what is noted, as all must decide alike.
    if state.topology.feature_level >= AGREED_CLEANUP {
        let mut losers = gain_without(&state.topology, &state.catalog, &host_id);
        // What a noted member still has may belong to this one from now on: it would not be found without it.
        losers.extend(state.uncleaned.members().filter(|noted| **noted != host_id));
        Arc::make_mut(&mut state.uncleaned).note(losers, host_id);
    }
    state
}

/// Refuses what would give members ranges of which they may have old data.
fn check_cleaned(host_ids: Vec<HostId>) -> Result<(), CommandOutcome> {
    if host_ids.is_empty() { Ok(()) } else { refuse(Refusal::CleanupDue { host_ids }) }
}

fn cleaned(
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

fn take_back_removal(state: &ClusterState, index: u64, host_id: HostId, epoch: u64) -> Changed {
    let topology = &state.topology;
    let Some(member) = topology.member(&host_id) else {
        return refuse(if topology.removed.contains(&host_id) {
            Refusal::Removed { host_id }
        } else {
            Refusal::UnknownMember { host_id }
        });
    };
    match member.state {
        // Another member has cancelled it.
        MemberState::Normal => Ok(None),
        // While a member leaves nothing else changes the epoch: the epoch is the one of its beginning.
        MemberState::Leaving(TransitionPhase::WriteBoth)
            if state.is_removal(&host_id) && topology.epoch == epoch =>
        {
            Ok(Some(with_member_staying(state, index, member)))
        }
        found => refuse(Refusal::WrongState { host_id, found }),
    }
}

/// Whether a member may leave while those that gain its ranges may have old data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldData {
    Refused,
    Accepted,
}

fn start_leave(
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
    if let Some(other) = topology.in_transition() {
        return Err(CommandOutcome::Busy { host_id: other.host_id });
    }
    if topology.members.len() == 1 {
        return refuse(Refusal::LastOwner { host_id });
    }
    if old_data == OldData::Refused {
        check_cleaned(state.cleanup_due_before(&host_id))?;
    }
    let leaving =
        Arc::new(Member { state: MemberState::Leaving(TransitionPhase::WriteBoth), ..Member::clone(member) });
    let changed = with_topology(state, index, true, |topology| {
        topology.members.insert(host_id, leaving);
    });
    Ok(Some(ClusterState { removal: is_removal.then_some(host_id), ..changed }))
}

fn update_member(state: &ClusterState, index: u64, update: &MemberUpdate) -> Changed {
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
        ..Member::clone(member)
    });
    Ok(Some(with_topology(state, index, false, |topology| {
        topology.members.insert(host_id, updated);
    })))
}

fn with_topology(
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
    let is_leaving = |host_id: &HostId| {
        topology.member(host_id).is_some_and(|member| matches!(member.state, MemberState::Leaving(_)))
    };
    // A removal ends with the leaving, whatever ended the leaving.
    let removal = state.removal.filter(is_leaving);
    let mut uncleaned = state.uncleaned.clone();
    Arc::make_mut(&mut uncleaned).forget_strangers(&topology);
    ClusterState { topology: Arc::new(topology), removal, uncleaned, ..state.clone() }
}

#[cfg(test)]
mod tests;
