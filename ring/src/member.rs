//! A member of the cluster, as recorded in the metadata log.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The permanent identity of a node; never reused.
pub type HostId = Uuid;

/// The step of a change of ownership. In both phases writes go to the old and the new replicas; the phases differ in
/// the replicas that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransitionPhase {
    /// Reads go to the old replicas; data is being streamed to the new ones.
    WriteBoth,
    /// The new replicas have all data and are read. The old ones still get every write, until all coordinators know.
    ReadNew,
}

/// The state of a member in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Gains ranges; owns them when it is `Normal`.
    Joining(TransitionPhase),
    Normal,
    /// Gives its ranges up; afterwards it is not a member any more.
    Leaving(TransitionPhase),
}

/// The version of members and clusters from before there were feature versions.
pub(super) fn first_feature_version() -> u16 {
    1
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub host_id: HostId,
    /// The address for other nodes.
    pub internode_address: SocketAddr,
    /// The address for clients.
    pub native_address: SocketAddr,
    /// The port on which a client's source port chooses the shard.
    pub shard_aware_port: u16,
    pub shard_count: u16,
    pub data_center: String,
    pub rack: String,
    /// The tokens of the member, sorted.
    pub tokens: Vec<i64>,
    pub state: MemberState,
    /// The version of the program.
    pub release_version: String,
    /// The highest version of the internode protocol that it supports.
    pub protocol_version: u16,
    /// The highest feature version that its program supports: [`crate::metadata::FEATURE_VERSION`].
    #[serde(default = "first_feature_version")]
    pub feature_version: u16,
    /// Whether it encrypts the files of tables that ask for it. Not set below the feature level [`crate::metadata::ENCRYPTED_TABLES`]. Not sent
    /// with a request to join, whose fields are fixed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypts_tables: bool,
}

impl Member {
    /// Whether the member owns tokens. Only such members are shown in `system.peers` of others.
    pub fn owns_tokens(&self) -> bool {
        matches!(self.state, MemberState::Normal | MemberState::Leaving(_))
    }
}
