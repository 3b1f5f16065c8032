//! A member of the cluster as the metadata log knows it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The identity of a node for ever; never reused.
pub type HostId = Uuid;

/// How far a change of ownership has come. Both phases write to the old and the new owners; what differs is who is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Reads go to the old owners; data is being streamed to the new ones.
    WriteBoth,
    /// The new owners have everything: reads go to them. The old ones still get every write, until all coordinators know.
    ReadNew,
}

/// What a member does in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// Takes over ranges; owns them when it is `Normal`.
    Joining(Phase),
    Normal,
    /// Gives its ranges up; afterwards it is no member any more.
    Leaving(Phase),
}

/// Of members and clusters from before there were feature versions.
pub(super) fn first_feature_version() -> u16 {
    1
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub host_id: HostId,
    /// Where other nodes reach it.
    pub internode_address: SocketAddr,
    /// Where clients reach it.
    pub native_address: SocketAddr,
    /// Where a client's source port chooses the shard.
    pub shard_aware_port: u16,
    pub shard_count: u16,
    pub data_center: String,
    pub rack: String,
    /// Its places in the ring, sorted.
    pub tokens: Vec<i64>,
    pub state: MemberState,
    /// The version of the program.
    pub release_version: String,
    /// The highest version of the internode protocol that it speaks.
    pub protocol_version: u16,
    /// The newest features that its program knows: [`crate::metadata::FEATURE_VERSION`].
    #[serde(default = "first_feature_version")]
    pub feature_version: u16,
}

impl Member {
    /// Whether the member owns tokens. Only such members are shown in `system.peers` of others.
    pub fn owns_tokens(&self) -> bool {
        matches!(self.state, MemberState::Normal | MemberState::Leaving(_))
    }
}
