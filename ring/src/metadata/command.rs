//! The commands of the metadata log and their outcomes, as they are stored and sent.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use helenus_query::schema::ddl::SchemaChangeEvent;
use helenus_query::schema::document::CatalogDocument;
use helenus_roles::{Resource, RoleChange, RoleError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::denylist::{DenylistAction, DenylistChange, DenylistError};
use crate::member::{HostId, Member, MemberState, TransitionPhase};

/// An entry of the metadata log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Command {
    /// The first command: founds a cluster of one `Normal` member, with its catalog.
    Found {
        member: Member,
        catalog: CatalogDocument,
    },
    ChangeSchema(SchemaChangeCommand),
    /// As `ChangeSchema`, with the tables that change instead of their keyspaces. A program that does not know it stops at it, and does not
    /// take it for a change of nothing.
    ChangeTables(SchemaChangeCommand),
    /// A new member begins to gain ranges: it becomes `Joining(WriteBoth)`, whatever state the command gives it.
    Join {
        member: Member,
    },
    /// A member's transition advances from `from`: from `WriteBoth` to `ReadNew`, and from there to its end. A member
    /// whose leaving ends is not a member any more.
    Advance {
        host_id: HostId,
        from: MemberState,
    },
    /// A transition is cancelled: a joining node is not a member any more (it may try again), a leaving one is
    /// `Normal` again.
    Abort {
        host_id: HostId,
    },
    /// A member begins to give its ranges up, on its own request: it becomes `Leaving(WriteBoth)`.
    StartLeave {
        host_id: HostId,
    },
    /// A dead member begins to leave, on the request of another one: it becomes `Leaving(WriteBoth)`.
    StartRemoval {
        host_id: HostId,
    },
    /// The removal that began at this epoch is cancelled, because its member is alive and becomes `Normal` again. The
    /// proposal may reach the log late, and must not cancel a later leaving.
    TakeBackRemoval {
        host_id: HostId,
        epoch: u64,
    },
    /// A restarted member has another address or program version.
    Update(MemberUpdate),
    /// A member has removed its data of the ranges that it had given up at this epoch because of these members.
    Cleaned {
        host_id: HostId,
        because_of: BTreeSet<HostId>,
        epoch: u64,
    },
    /// As `StartLeave`, or `StartRemoval`, also while other members may have old data of the ranges that they gain.
    ForceLeave {
        host_id: HostId,
        is_removal: bool,
    },
    /// Dead members begin to leave together, on the request of another one: they become `Leaving(WriteBoth)`. If others are being removed,
    /// these join them. Where that is too late, the replication of keyspaces changes, or members that gain ranges have old data, they are noted
    /// as given up ([`crate::topology::Topology::given_up`]), and leave afterwards. `accepts_old_data`: also while other members may have old data of the ranges that they gain.
    StartRemovals {
        host_ids: BTreeSet<HostId>,
        accepts_old_data: bool,
    },
    /// As `Advance`, of the transition that is under way since this epoch: meanwhile others may have joined it, or gone.
    AdvanceMembers {
        host_id: HostId,
        from: MemberState,
        epoch: u64,
    },
    /// The changes of replication that are under way since this epoch advance from `from`: from `WriteBoth` to `ReadNew`, and from there
    /// to their end.
    AdvanceReplication {
        from: TransitionPhase,
        epoch: u64,
    },
    /// A new member begins to take the place of a dead one: it becomes `Joining(WriteBoth)` with the tokens of that one, whatever tokens and
    /// state the command gives it, and the dead one `Leaving(WriteBoth)`. They take each step together. `accepts_loss`: also if ranges
    /// have no other replica.
    StartReplacement {
        member: Member,
        replaced: HostId,
        accepts_loss: bool,
    },
    /// Roles or permissions change. A second entry of the same id has no effect.
    ChangeRoles {
        id: Uuid,
        change: RoleChange,
    },
    /// Partitions of a table are denied to clients, or no more. A second entry of the same id has no effect.
    ChangeDenylist {
        id: Uuid,
        change: DenylistChange,
    },
    /// The ring is about to get these tokens and shard counts: streams of change feeds that are right for it, too, are used from a time on.
    /// Without a feed, or where the newest streams are right already, it has no effect.
    ExtendStreams(StreamsExtension),
}

/// A schema change. It applies only to the catalog on which it was planned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SchemaChangeCommand {
    /// The version that the catalog must have.
    pub base: Uuid,
    /// Keyspaces that are added or replaced, and the new version.
    pub changed: CatalogDocument,
    /// Keyspaces that are dropped.
    pub dropped: Vec<String>,
    /// The event for clients.
    pub event: SchemaChangeEvent,
    /// Who made what is new, and gets all permissions on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<Creator>,
    /// The time of the first streams, if the change turns on the first change feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_streams_ms: Option<i64>,
}

/// What new streams of change feeds have to be right for, beside the present members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsExtension {
    /// The time of the proposal, in milliseconds since the epoch.
    pub proposed_ms: i64,
    /// The time from which they are used, in milliseconds since the epoch.
    pub timestamp_ms: i64,
    pub tokens: BTreeSet<i64>,
    pub shard_counts: BTreeSet<u16>,
}

/// A role that gets all permissions on what a schema change has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creator {
    pub role: String,
    pub created: Vec<Resource>,
}

/// The properties of a member that may change with a restart.
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypts_tables: bool,
}

fn first_feature_version() -> u16 {
    1
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
            encrypts_tables: member.encrypts_tables,
        }
    }
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandOutcome {
    /// Applied, now or when it was proposed before: the requested state holds at this version of the topology.
    Applied { version: u64 },
    /// The schema is not the one on which the change was planned: it must be planned again on the schema of this
    /// version.
    Conflict { version: u64 },
    /// Another member is in a transition.
    Busy { host_id: HostId },
    /// The command is impossible.
    Refused(Refusal),
}

/// The reason why a command is impossible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("host id {host_id} has left the cluster for good; start the node with an empty data directory")]
    Removed { host_id: HostId },
    #[error("host id {host_id} is a member already")]
    AlreadyMember { host_id: HostId },
    #[error(
        "address {address} belongs to member {by}; if that member's disk is lost, start this node with '--replace {by}' to take its place, or remove that member from another one ('helenus admin removenode {by}') and start this node again, or give this node another address"
    )]
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
    #[error(
        "members would gain ranges, and still have old data of ranges that they have given up: {}; each removes it when it is up and well ('helenus admin netstats' shows when), or at once with 'helenus admin cleanup' of all keyspaces; a leaving with --accept-old-data does not wait",
        list(.host_ids)
    )]
    CleanupDue { host_ids: Vec<HostId> },
    #[error(
        "the replication of keyspace {keyspace} is changing: ranges are being streamed to their new replicas"
    )]
    ReplicationIsChanging { keyspace: String },
    #[error(
        "{host_id} is no member of the cluster, so no node can take its place: set 'replace' to the host id of the dead member ('helenus admin status' on a live member shows it), or leave it out to join as a new member"
    )]
    ReplacedUnknown { host_id: HostId },
    #[error(
        "member {host_id} has left the cluster or was removed, so no node can take its place any more: leave 'replace' out to join as a new member"
    )]
    ReplacedGone { host_id: HostId },
    #[error(
        "member {host_id} is alive, and only a dead one can be replaced: stop it, wait until 'helenus admin status' on another member shows that it is down, and start this node again"
    )]
    ReplacedAlive { host_id: HostId },
    #[error(
        "member {host_id} is {found:?}, and only a normal one can be replaced: wait until that is over, or take it back ('helenus admin abortjoin {host_id}'), and start this node again"
    )]
    ReplacedMoving { host_id: HostId, found: MemberState },
    #[error(
        "member {host_id} is in data center '{data_center}' and rack '{rack}', and a node that takes its place must be there too: set data_center = \"{data_center}\" and rack = \"{rack}\""
    )]
    ReplacedElsewhere { host_id: HostId, data_center: String, rack: String },
    #[error(
        "{ranges} ranges of keyspace {keyspace} have no other replica: their rows would be lost for good. If the members cannot be brought back, use --accept-loss"
    )]
    OnlyCopy { keyspace: String, ranges: u64 },
    #[error("{0}")]
    Roles(RoleError),
    #[error("roles can be made when all members support that (feature level {needed}; it is {level})")]
    RolesTooEarly { needed: u16, level: u16 },
    #[error("{0}")]
    Denylist(DenylistError),
    #[error("partitions can be denied when all members support that (feature level {needed}; it is {level})")]
    DenylistTooEarly { needed: u16, level: u16 },
    #[error(
        "table {keyspace}.{table} has the option 'encryption', and member {host_id} does not encrypt files: give it master keys, and set mode = \"tables\" or \"all\" there (setting 'encryption_at_rest')"
    )]
    PlainMember { host_id: HostId, keyspace: String, table: String },
    #[error("the streams of change feeds that are right for this node, too, become active in {left_ms} ms")]
    StreamsNotActive { left_ms: u64 },
    #[error(
        "change feeds have {limit} generations of streams, and none can be forgotten, because their logs keep entries for ever (option ttl 0) or were left by feeds that are off: give these feeds a ttl, or drop the logs"
    )]
    TooManyGenerations { limit: u64 },
}

fn list<'h>(host_ids: impl IntoIterator<Item = &'h HostId>) -> String {
    host_ids.into_iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { member, .. } => write!(formatter, "found by {}", member.host_id),
            Self::ChangeSchema(change) | Self::ChangeTables(change) => write!(
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
            Self::Cleaned { host_id, epoch, .. } => {
                write!(formatter, "{host_id} has cleaned up at epoch {epoch}")
            }
            Self::ForceLeave { host_id, is_removal } => {
                let what = if *is_removal { "remove" } else { "leave" };
                write!(formatter, "{what} {host_id}, whatever old data others have")
            }
            Self::StartRemovals { host_ids, accepts_old_data } => {
                write!(formatter, "remove {}", list(host_ids))?;
                if *accepts_old_data { write!(formatter, ", whatever old data others have") } else { Ok(()) }
            }
            Self::AdvanceMembers { host_id, from, epoch } => {
                write!(formatter, "advance {host_id} from {from:?} at epoch {epoch}")
            }
            Self::AdvanceReplication { from, epoch } => {
                write!(formatter, "advance the replication of epoch {epoch} from {from:?}")
            }
            Self::StartReplacement { member, replaced, accepts_loss } => {
                write!(formatter, "replace {replaced} by {}", member.host_id)?;
                if *accepts_loss { write!(formatter, ", whatever is lost with it") } else { Ok(()) }
            }
            Self::ChangeRoles { change, .. } => write!(formatter, "{change}"),
            Self::ExtendStreams(extension) => {
                write!(formatter, "streams for {} more tokens", extension.tokens.len())
            }
            Self::ChangeDenylist { change, .. } => {
                let what = match change.action {
                    DenylistAction::Deny { .. } => "deny",
                    DenylistAction::Allow => "allow",
                };
                let DenylistChange { keyspace, table, keys, .. } = change;
                write!(formatter, "{what} {} partitions of {keyspace}.{table}", keys.len())
            }
        }
    }
}
