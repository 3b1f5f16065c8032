//! Requests about the cluster. Requests about the metadata log go to first shards.

use std::net::SocketAddr;

use helenus_internode::service::{ServiceRequest, TrafficClass};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{CommandOutcome, Refusal};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use helenus_execution::shard::disk_status::DiskAnnouncement;
use helenus_execution::shard::status_table::NodeStatus;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterRequest {
    /// Report the program's version.
    Version,
    /// A message of the metadata log. `call` is the kind of the payload (JSON).
    Raft { call: RaftCall, payload: Vec<u8> },
    /// Put a command (JSON) into the metadata log. `forward`: a member that does not lead may forward it to the
    /// leader.
    Propose { command: Vec<u8>, forward: bool, patience_ms: u64 },
    /// Answer when this version of the topology is applied, or after `patience_ms` with the version applied by then.
    Applied { version: u64, patience_ms: u64 },
    /// Admit a new node to the cluster.
    Join(Box<JoinRequest>),
    /// Report the newest version of the topology; answered by the leader.
    NewestVersion,
    /// A message of the failure detector; has no answer.
    Gossip { bytes: Vec<u8> },
    /// The sender announces its status; has no answer.
    Status(NodeStatus),
    /// The cluster has removed the receiver; has no answer.
    YouWereRemoved,
    /// These members have applied a version of the topology, and with it this version of the schema: all members that
    /// were alive when a schema change was acknowledged.
    Agreed { version: u64, schema_version: Uuid, members: Vec<HostId> },
    /// The sender announces how full its disk is; has no answer. From the feature level [`DISK_STATUS`] on.
    ///
    /// [`DISK_STATUS`]: helenus_ring::metadata::DISK_STATUS
    Disk(DiskAnnouncement),
    /// Carry out an operation on the receiver's snapshots (JSON). From the feature level [`MEMBER_SNAPSHOTS`] on.
    ///
    /// [`MEMBER_SNAPSHOTS`]: helenus_ring::metadata::MEMBER_SNAPSHOTS
    Snapshots { order: String },
    /// Admit a new node in the place of a dead member. The log accepts it from the feature level [`REPLACEMENTS`] on. The node that asks does
    /// not know the level: an older member answers that it does not know the request.
    ///
    /// [`REPLACEMENTS`]: helenus_ring::metadata::REPLACEMENTS
    Replace(Box<JoinRequest>, Place),
    /// Report how far the metadata log of the receiver goes. An older member answers that it does not know the request.
    LogEnd,
    /// As `Join`, and with a place as `Replace`, of a node that encrypts the files of tables that ask for it. An older member answers that it
    /// does not know the request: its cluster has no such tables.
    JoinEncrypting(Box<JoinRequest>, Option<Place>),
}

/// The kinds of messages of the metadata log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftCall {
    Append,
    Vote,
    PreVote,
    Snapshot,
    TransferLeader,
}

/// A node's request to become a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    pub cluster_name: String,
    #[serde(with = "JoiningMember")]
    pub member: Member,
    /// The node's wall clock, microseconds since the epoch.
    pub clock_micros: i64,
    /// A member that does not lead may forward the request to the leader.
    pub forward: bool,
    pub patience_ms: u64,
}

/// The place in the ring that a new node wants to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The dead member.
    pub of: HostId,
    /// Also if ranges have no other replica.
    pub accepts_loss: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterResponse {
    Version(String),
    Raft(Vec<u8>),
    /// The outcome of a command.
    Outcome(CommandOutcome),
    /// The receiver does not lead the metadata log and knows no leader, or must not forward the request.
    NoLeader,
    /// The version of the topology that the receiver has applied.
    Applied {
        version: u64,
    },
    /// A join was refused.
    Refused(Refusal),
    /// The answer to messages that need none.
    Received,
    /// What was done with snapshots (JSON).
    Snapshots {
        answer: String,
    },
    /// How far a metadata log goes (JSON).
    LogEnd {
        end: String,
    },
}

impl ServiceRequest for ClusterRequest {
    const ID: u32 = 1;
    const TRAFFIC_CLASS: TrafficClass = TrafficClass::Control;
    type Response = ClusterResponse;
}

/// The member of a request to join as it is sent: in the fields of before there were feature levels to go by, since whoever asks knows none.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Member")]
struct JoiningMember {
    host_id: HostId,
    internode_address: SocketAddr,
    native_address: SocketAddr,
    shard_aware_port: u16,
    shard_count: u16,
    data_center: String,
    rack: String,
    tokens: Vec<i64>,
    state: MemberState,
    release_version: String,
    protocol_version: u16,
    feature_version: u16,
    /// The kind of the request says it.
    #[serde(skip)]
    encrypts_tables: bool,
}
