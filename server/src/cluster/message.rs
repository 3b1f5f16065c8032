//! Requests about the cluster. Those about the metadata log go to first shards.

use helenus_internode::service::{Lane, ServiceRequest};
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::{Outcome, Refusal};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::shard::board::Facts;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterRequest {
    /// Which program runs there.
    Version,
    /// The metadata log itself; what the payload (JSON) is, `call` says.
    Raft { call: RaftCall, payload: Vec<u8> },
    /// Put a command (JSON) into the metadata log. `forward`: who does not lead may pass it on to who does.
    Propose { command: Vec<u8>, forward: bool, patience_ms: u64 },
    /// Answer when this version of the topology is applied, or with the one that is after `patience_ms`.
    Applied { version: u64, patience_ms: u64 },
    /// Take a new node into the cluster.
    Join(Box<JoinRequest>),
    /// Which version of the topology is the newest: the leader's.
    NewestVersion,
    /// A message of the failure detector; has no answer.
    Gossip { bytes: Vec<u8> },
    /// What the sender tells of itself; has no answer.
    Facts(Facts),
    /// The cluster has removed the node that is told this; has no answer.
    YouWereRemoved,
    /// These members have applied a version of the topology, and with it this version of the schema: all that were alive when a
    /// schema change was acknowledged.
    Agreed { version: u64, schema_version: Uuid, members: Vec<HostId> },
}

/// What the messages of the metadata log are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftCall {
    Append,
    Vote,
    PreVote,
    Snapshot,
    TransferLeader,
}

/// A node asks to become a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    pub cluster_name: String,
    pub member: Member,
    /// The node's wall clock, microseconds since the epoch.
    pub clock_micros: i64,
    /// Who does not lead may pass it on to who does.
    pub forward: bool,
    pub patience_ms: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterResponse {
    Version(String),
    Raft(Vec<u8>),
    /// What a command came to.
    Outcome(Outcome),
    /// The one asked does not lead the metadata log and knows nobody who does, or must not pass the question on.
    NoLeader,
    /// The version of the topology that is applied there.
    Applied {
        version: u64,
    },
    /// A join that cannot be.
    Refused(Refusal),
    /// To what needs no answer.
    Received,
}

impl ServiceRequest for ClusterRequest {
    const ID: u32 = 1;
    const LANE: Lane = Lane::Control;
    type Response = ClusterResponse;
}
