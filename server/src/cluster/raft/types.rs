//! The types for the Raft library.

use helenus_ring::HostId;
use helenus_ring::metadata::{Command, CommandOutcome};

use super::runtime::LocalRuntime;

openraft::declare_raft_types!(
    /// Commands in, outcomes out. One leader in each term, as in the Raft paper.
    pub MetadataTypes:
        D = Command,
        R = Applied,
        NodeId = HostId,
        Node = openraft::EmptyNode,
        Term = u64,
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = LocalRuntime,
);

/// The result for the proposer: `None` for the log's own entries.
pub type Applied = Option<CommandOutcome>;

/// The library's figures of itself.
pub type MetricsReceiver =
    openraft::type_config::alias::WatchReceiverOf<MetadataTypes, openraft::RaftMetrics<MetadataTypes>>;
pub type Entry = openraft::type_config::alias::EntryOf<MetadataTypes>;
pub type LogId = openraft::type_config::alias::LogIdOf<MetadataTypes>;
pub type Vote = openraft::type_config::alias::VoteOf<MetadataTypes>;
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<MetadataTypes>;
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<MetadataTypes>;
pub type Snapshot = openraft::type_config::alias::SnapshotOf<MetadataTypes, Vec<u8>>;
