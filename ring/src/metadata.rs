//! What all members agree on, and the commands that change it: a pure state machine.
//!
//! Invariants:
//! * [`apply`] is deterministic: the same state, index and command give the same result on every member. It reads no clock,
//!   draws no number, and refuses with an [`Outcome`] instead of failing.
//! * A command that is applied twice (its proposer did not learn of the first time) has no second effect.
//! * At most one member is in a transition; no keyspace's replication changes meanwhile.
//! * [`Topology::feature_level`] never goes down, and no member knows less than it: a program that does is refused.
//! * [`Topology::version`] is the index of the last entry that had an effect, on members or schema. [`Topology::epoch`] is the
//!   index of the last one that changed who owns what: a transition's step, or a keyspace's replication.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::ddl::SchemaChangeEvent;
use helenus_query::schema::document::{CatalogDocument, DocumentError};
use helenus_query::schema::system_keyspaces::initial_catalog;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::member::{HostId, Member, MemberState, Phase};
use crate::topology::Topology;

/// The newest features that this program knows: what is stored, sent or agreed on in a way that older programs do not
/// understand. Raised with each such change, which may then be used only where [`Topology::feature_level`] has come so far.
///
/// * 2: removals that are told from leavings ([`Command::StartRemoval`], [`Command::TakeBackRemoval`], `removal` of the state).
pub const FEATURE_VERSION: u16 = REMOVALS;
/// The level from which on removals are told from leavings.
pub const REMOVALS: u16 = 2;
/// Members that vote in the metadata log.
pub const VOTERS_MAX: usize = 5;
/// Schema changes that are remembered, so that one which is proposed again is known to be done.
const RECENT_CHANGES: usize = 64;

/// The applied state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClusterState {
    pub topology: Arc<Topology>,
    pub catalog: Arc<Catalog>,
    /// Members in the order in which they became `Normal` for the first time.
    seniority: Arc<Vec<HostId>>,
    /// Versions of the last schema changes with the indexes of their entries, oldest first.
    recent_changes: Arc<Vec<(Uuid, u64)>>,
    /// The member whose leaving is a removal: others have asked for it, because it is dead.
    removal: Option<HostId>,
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
}

/// An entry of the metadata log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// The first: a cluster of one member, `Normal`, with the catalog that it has.
    Found {
        member: Member,
        catalog: CatalogDocument,
    },
    ChangeSchema(SchemaChangeCommand),
    /// A new member begins to take ranges over: it becomes `Joining(WriteBoth)`, whatever state it is given with.
    Join {
        member: Member,
    },
    /// A member's transition goes one step on from `from`: from `WriteBoth` to `ReadNew`, from there to its end. A member
    /// whose leaving ends is none any more.
    Advance {
        host_id: HostId,
        from: MemberState,
    },
    /// A transition is taken back: who joins is no member any more (it may try again), who leaves is `Normal` again.
    Abort {
        host_id: HostId,
    },
    /// A member begins to give its ranges up, as it was asked to: it becomes `Leaving(WriteBoth)`.
    StartLeave {
        host_id: HostId,
    },
    /// The same of a dead member, whom others want to be rid of.
    StartRemoval {
        host_id: HostId,
    },
    /// The removal that began at this epoch is taken back, as its member is alive: it is `Normal` again. The proposal may reach
    /// the log late, and must not take a later leaving back.
    TakeBackRemoval {
        host_id: HostId,
        epoch: u64,
    },
    /// A member that has been started again is reached elsewhere or runs another program.
    Update(MemberUpdate),
}

/// A schema change: applies only to the catalog that it was planned on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SchemaChangeCommand {
    /// The version that the catalog must have.
    pub base: Uuid,
    /// Keyspaces that are put in or replaced, and the new version.
    pub changed: CatalogDocument,
    /// Keyspaces that are gone.
    pub dropped: Vec<String>,
    /// What clients are told.
    pub event: SchemaChangeEvent,
}

/// What may be different when a member is started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberUpdate {
    pub host_id: HostId,
    pub internode_address: SocketAddr,
    pub native_address: SocketAddr,
    pub shard_aware_port: u16,
    pub shard_count: u16,
    pub release_version: String,
    pub protocol_version: u16,
    #[serde(default = "first_feature_version")]
    pub feature_version: u16,
}

fn first_feature_version() -> u16 {
    1
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done, now or when it was proposed before: everything is as asked at this version of the topology.
    Applied { version: u64 },
    /// The schema is another than the change was planned on: plan again on the one that this version has.
    Conflict { version: u64 },
    /// Another member's transition is under way.
    Busy { host_id: HostId },
    /// It cannot be done.
    Refused(Refusal),
}

/// Why a command cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("host id {host_id} has left the cluster for good; start the node with an empty data directory")]
    Removed { host_id: HostId },
    #[error("host id {host_id} is a member already")]
    AlreadyMember { host_id: HostId },
    #[error("address {address} belongs to member {by}")]
    AddressTaken { address: SocketAddr, by: HostId },
    #[error("token {token} belongs to member {by}")]
    TokenTaken { token: i64, by: HostId },
    #[error("a member needs tokens of its own, sorted")]
    Tokens,
    #[error("{host_id} is no member of the cluster")]
    UnknownMember { host_id: HostId },
    #[error("member {host_id} is {found:?}")]
    WrongState { host_id: HostId, found: MemberState },
    #[error("{host_id} is the last member that owns ranges")]
    LastOwner { host_id: HostId },
    #[error("the cluster has been founded already")]
    AlreadyFounded,
    #[error("the cluster has not been founded yet")]
    NotFounded,
    #[error("{0}")]
    Malformed(String),
    #[error("this is cluster '{ours}', not '{theirs}'")]
    OtherCluster { ours: String, theirs: String },
    #[error("the clocks are {skew_ms} ms apart; at most {allowed_ms} ms are allowed: synchronise them (NTP)")]
    ClockSkew { skew_ms: u64, allowed_ms: u64 },
    #[error("internode protocol version {theirs} is not known here; the newest known one is {ours}")]
    ProtocolVersion { ours: u16, theirs: u16 },
    #[error(
        "the cluster uses features of version {level}, member {host_id} knows them up to version {known}: run a newer program there"
    )]
    FeatureVersion { host_id: HostId, level: u16, known: u16 },
    #[error(
        "Cannot alter RF while some endpoints are not in normal state (no range movements): [{address}] ({host_id}); replication of {keyspace}"
    )]
    ReplicationInTransition { keyspace: String, host_id: HostId, address: SocketAddr },
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { member, .. } => write!(formatter, "found by {}", member.host_id),
            Self::ChangeSchema(change) => write!(
                formatter,
                "{} {} {}.{}",
                change.event.change_type.name(),
                change.event.target.name(),
                change.event.keyspace,
                change.event.name
            ),
            Self::Join { member } => write!(formatter, "join {}", member.host_id),
            Self::Advance { host_id, from } => write!(formatter, "advance {host_id} from {from:?}"),
            Self::Abort { host_id } => write!(formatter, "abort {host_id}"),
            Self::StartLeave { host_id } => write!(formatter, "leave {host_id}"),
            Self::StartRemoval { host_id } => write!(formatter, "remove {host_id}"),
            Self::TakeBackRemoval { host_id, epoch } => {
                write!(formatter, "take back the removal of {host_id} at epoch {epoch}")
            }
            Self::Update(update) => write!(formatter, "update {}", update.host_id),
        }
    }
}

impl ClusterState {
    /// Before the first entry: no members, the schema of a new node.
    pub fn empty() -> Self {
        Self {
            topology: Arc::default(),
            catalog: Arc::new(initial_catalog(Uuid::nil())),
            seniority: Arc::default(),
            recent_changes: Arc::default(),
            removal: None,
        }
    }

    pub fn is_founded(&self) -> bool {
        self.topology.version > 0
    }

    /// Whether a member leaves because others remove it, not because it was asked to.
    pub fn is_removal(&self, host_id: &HostId) -> bool {
        self.removal.as_ref() == Some(host_id)
    }

    /// The members that should vote: the first five `Normal` ones in the order of their joining.
    pub fn voters(&self) -> BTreeSet<HostId> {
        let is_normal = |host_id: &&HostId| {
            self.topology.member(host_id).is_some_and(|member| member.state == MemberState::Normal)
        };
        self.seniority.iter().filter(is_normal).take(VOTERS_MAX).copied().collect()
    }

    pub fn document(&self) -> StateDocument {
        StateDocument {
            topology: Topology::clone(&self.topology),
            catalog: CatalogDocument::of(&self.catalog),
            seniority: self.seniority.to_vec(),
            recent_changes: self.recent_changes.to_vec(),
            removal: self.removal,
        }
    }
}

impl StateDocument {
    pub fn state(self) -> Result<ClusterState, DocumentError> {
        Ok(ClusterState {
            catalog: Arc::new(self.catalog.catalog()?),
            topology: Arc::new(self.topology),
            seniority: Arc::new(self.seniority),
            recent_changes: Arc::new(self.recent_changes),
            removal: self.removal,
        })
    }
}

/// Applies a command. The state is the same one where the outcome is not a new `Applied`.
pub fn apply(state: &ClusterState, index: u64, command: &Command) -> (ClusterState, Outcome) {
    match changed(state, index, command) {
        Ok(Some(state)) => (state, Outcome::Applied { version: index }),
        Ok(None) => (state.clone(), Outcome::Applied { version: state.topology.version }),
        Err(outcome) => (state.clone(), outcome),
    }
}

/// The new state; `None`: everything is so already.
fn changed(state: &ClusterState, index: u64, command: &Command) -> Result<Option<ClusterState>, Outcome> {
    if let Command::Found { member, catalog } = command {
        return found(state, index, member, catalog);
    }
    if !state.is_founded() {
        return refuse(Refusal::NotFounded);
    }
    match command {
        Command::Found { .. } => refuse(Refusal::AlreadyFounded),
        Command::ChangeSchema(change) => change_schema(state, index, change),
        Command::Join { member } => join(state, index, member),
        Command::Advance { host_id, from } => advance(state, index, *host_id, *from),
        Command::Abort { host_id } => abort(state, index, *host_id),
        Command::StartLeave { host_id } => start_leave(state, index, *host_id, false),
        Command::StartRemoval { host_id } => start_leave(state, index, *host_id, true),
        Command::TakeBackRemoval { host_id, epoch } => take_back_removal(state, index, *host_id, *epoch),
        Command::Update(update) => update_member(state, index, update),
    }
}

type Changed = Result<Option<ClusterState>, Outcome>;

fn refuse<T>(refusal: Refusal) -> Result<T, Outcome> {
    Err(Outcome::Refused(refusal))
}

fn malformed(error: &DocumentError) -> Outcome {
    Outcome::Refused(Refusal::Malformed(error.to_string()))
}

fn found(state: &ClusterState, index: u64, member: &Member, catalog: &CatalogDocument) -> Changed {
    if state.is_founded() {
        // Proposed again by who has founded it.
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
        return Err(Outcome::Conflict { version: state.topology.version });
    }
    let mut catalog = change.changed.over(old).map_err(|error| malformed(&error))?;
    for name in &change.dropped {
        catalog.keyspaces.remove(name);
    }
    let changed_replication = catalog.keyspaces.values().find(|keyspace| {
        old.keyspace(&keyspace.name).is_some_and(|known| known.replication != keyspace.replication)
    });
    if let (Some(keyspace), Some(member)) = (changed_replication, state.topology.in_transition()) {
        // Who fetches what, and who is written to besides the owners, was planned for the replication that was.
        return refuse(Refusal::ReplicationInTransition {
            keyspace: keyspace.name.clone(),
            host_id: member.host_id,
            address: member.internode_address,
        });
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
    }))
}

fn join(state: &ClusterState, index: u64, member: &Member) -> Changed {
    let topology = &state.topology;
    let host_id = member.host_id;
    let member = Member { state: MemberState::Joining(Phase::WriteBoth), ..member.clone() };
    if topology.removed.contains(&host_id) {
        return refuse(Refusal::Removed { host_id });
    }
    if let Some(known) = topology.member(&host_id) {
        return if **known == member { Ok(None) } else { refuse(Refusal::AlreadyMember { host_id }) };
    }
    check_features(topology, host_id, member.feature_version)?;
    if let Some(other) = topology.in_transition() {
        return Err(Outcome::Busy { host_id: other.host_id });
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

/// Refuses a program that does not know what may be in use already.
fn check_features(topology: &Topology, host_id: HostId, known: u16) -> Result<(), Outcome> {
    let level = topology.feature_level;
    if known < level { refuse(Refusal::FeatureVersion { host_id, level, known }) } else { Ok(()) }
}

fn check_tokens(member: &Member) -> Result<(), Outcome> {
    let sorted = member.tokens.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    if member.tokens.is_empty() || !sorted { refuse(Refusal::Tokens) } else { Ok(()) }
}

/// The state after a step; `None`: the member is gone.
fn next_state(state: MemberState) -> Option<MemberState> {
    match state {
        MemberState::Joining(Phase::WriteBoth) => Some(MemberState::Joining(Phase::ReadNew)),
        MemberState::Leaving(Phase::WriteBoth) => Some(MemberState::Leaving(Phase::ReadNew)),
        MemberState::Joining(Phase::ReadNew) => Some(MemberState::Normal),
        MemberState::Normal | MemberState::Leaving(Phase::ReadNew) => None,
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
        // Aborted before; or it has never been there, which comes to the same.
        return if state.topology.removed.contains(&host_id) {
            refuse(Refusal::Removed { host_id })
        } else {
            Ok(None)
        };
    };
    match member.state {
        // Who is about to go serves no clients any more, and has given away what it kept for others.
        MemberState::Normal | MemberState::Leaving(Phase::ReadNew) => {
            refuse(Refusal::WrongState { host_id, found: member.state })
        }
        MemberState::Joining(_) => Ok(Some(with_topology(state, index, true, |topology| {
            topology.members.remove(&host_id);
        }))),
        MemberState::Leaving(Phase::WriteBoth) => Ok(Some(with_member_staying(state, index, member))),
    }
}

/// A member that was leaving is `Normal` again.
fn with_member_staying(state: &ClusterState, index: u64, member: &Member) -> ClusterState {
    let stays = Arc::new(Member { state: MemberState::Normal, ..member.clone() });
    with_topology(state, index, true, |topology| {
        topology.members.insert(stays.host_id, stays);
    })
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
        // Another has taken it back.
        MemberState::Normal => Ok(None),
        // While a member leaves nothing else changes the epoch: it is that of its beginning.
        MemberState::Leaving(Phase::WriteBoth) if state.is_removal(&host_id) && topology.epoch == epoch => {
            Ok(Some(with_member_staying(state, index, member)))
        }
        found => refuse(Refusal::WrongState { host_id, found }),
    }
}

fn start_leave(state: &ClusterState, index: u64, host_id: HostId, is_removal: bool) -> Changed {
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
        return Err(Outcome::Busy { host_id: other.host_id });
    }
    if topology.members.len() == 1 {
        return refuse(Refusal::LastOwner { host_id });
    }
    let leaving = Arc::new(Member { state: MemberState::Leaving(Phase::WriteBoth), ..Member::clone(member) });
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
    // Another member may be known under its address still, as addresses may have been handed out anew: its own update follows,
    // and a link is only made with the host id that is asked for.
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

impl MemberUpdate {
    pub fn of(member: &Member) -> Self {
        Self {
            host_id: member.host_id,
            internode_address: member.internode_address,
            native_address: member.native_address,
            shard_aware_port: member.shard_aware_port,
            shard_count: member.shard_count,
            release_version: member.release_version.clone(),
            protocol_version: member.protocol_version,
            feature_version: member.feature_version,
        }
    }
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
    // It ends with the leaving, whatever ended that.
    let removal = state.removal.filter(is_leaving);
    ClusterState { topology: Arc::new(topology), removal, ..state.clone() }
}

#[cfg(test)]
mod tests;
