//! The input for the rows of virtual tables: the node, its cluster and its clients at the moment of a read.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use helenus_engine::secondary_index::IndexId;
use helenus_engine::shard::IndexFileStatus;
use uuid::Uuid;

/// The version of Cassandra that these schema tables, options and statements follow; drivers depend on it.
pub const RELEASE_VERSION: &str = "5.0.0";

/// The version of CQL.
pub const CQL_VERSION: &str = "3.4.7";

/// The highest version of the native protocol.
pub const NATIVE_PROTOCOL_VERSION: &str = "5";

/// The class name by which drivers identify the computation of tokens.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// The snitch with equivalent settings: data center and rack are settings of each node.
pub const SNITCH: &str = "GossipingPropertyFileSnitch";

/// One row: a value for each column, in wire encoding; `None` for null.
pub type Row = Vec<Option<Vec<u8>>>;

/// Values that do not change while the node runs.
///
/// Drivers skip a node whose row lacks the host id, an address, the data center, the rack or tokens. They connect to
/// `rpc_address`, so that must be an address that clients reach (never 0.0.0.0).
pub struct NodeInformation {
    pub cluster_name: String,
    pub data_center: String,
    pub rack: String,
    pub host_id: Uuid,
    /// The address on which the node listens for other nodes.
    pub listen_address: IpAddr,
    /// The address at which other nodes reach it.
    pub broadcast_address: IpAddr,
    /// The address at which clients reach it.
    pub rpc_address: IpAddr,
    /// The port for other nodes.
    pub storage_port: u16,
    /// The port for clients.
    pub native_port: u16,
    /// The tokens of the node if it founds a cluster; its present tokens are in [`NodeState::tokens`].
    pub initial_tokens: Vec<i64>,
    /// Seconds since the epoch at which the node was started.
    pub generation: i32,
    /// Names and values of the configuration, for `system_views.settings`.
    pub settings: Vec<(String, String)>,
}

/// Values that change while the node runs. A read fills in those that its table shows.
#[derive(Debug, Clone, Default)]
pub struct NodeState {
    /// The tokens of the node; at least one.
    pub tokens: Vec<i64>,
    /// The node is joining and owns no ranges yet.
    pub is_joining: bool,
    /// The other nodes that own tokens, never this one.
    pub peers: Vec<Peer>,
    /// The connections of clients.
    pub clients: Vec<ConnectedClient>,
    /// By the id of the table.
    pub estimates: BTreeMap<Uuid, Vec<SizeEstimate>>,
    /// By the ids of table and index.
    pub indexes: BTreeMap<(Uuid, IndexId), IndexState>,
    /// Ordered by keyspace and table.
    pub repaired_ranges: Vec<RepairedRange>,
    /// Oldest first. Without streams if the table shows none, and only those that are read.
    pub feed_generations: Vec<FeedGeneration>,
}

/// Streams of change feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedGeneration {
    /// From this time on entries go to these streams.
    pub timestamp_ms: i64,
    /// The ends of ranges of tokens, ascending, with the sorted ids of their streams.
    pub ranges: Vec<(i64, Vec<[u8; 16]>)>,
}

/// Another node of the cluster. Drivers skip a node whose row lacks any of these values.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: IpAddr,
    pub storage_port: u16,
    pub native_address: IpAddr,
    pub native_port: u16,
    pub data_center: String,
    pub rack: String,
    pub host_id: Uuid,
    pub schema_version: Uuid,
    pub tokens: Vec<i64>,
}

/// Selects among the ranges that a node replicates, so that every range is counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeKind {
    /// The node is the first of all replicas.
    Primary,
    /// The node is the first of the replicas in its data center.
    LocalPrimary,
}

impl RangeKind {
    /// The name in `system.table_estimates`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::LocalPrimary => "local_primary",
        }
    }
}

/// The size of a table in a range of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeEstimate {
    pub kind: RangeKind,
    /// Exclusive.
    pub range_start: i64,
    /// Inclusive.
    pub range_end: i64,
    pub mean_partition_size_bytes: i64,
    pub partitions_count: i64,
}

/// The last repair of a range of tokens of which the node is a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedRange {
    pub keyspace: String,
    pub table: String,
    /// Exclusive.
    pub range_start: i64,
    /// Inclusive.
    pub range_end: i64,
    /// When the oldest repair of any of its tokens began.
    pub began_micros: i64,
    /// The addresses, for other nodes, of its replicas.
    pub participants: Vec<SocketAddr>,
}

/// How far an index is built on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexState {
    /// It can be searched on every shard.
    pub is_complete: bool,
    /// On some shard a part of it is missing, or is being made anew.
    pub is_building: bool,
    /// Those of all shards, in no order.
    pub files: Vec<IndexFileStatus>,
}

/// A connection of a client.
#[derive(Debug, Clone)]
pub struct ConnectedClient {
    pub address: IpAddr,
    pub port: u16,
    /// The options that the client sent in STARTUP.
    pub options: BTreeMap<String, String>,
    pub driver_name: Option<String>,
    pub driver_version: Option<String>,
    /// The keyspace that the connection uses.
    pub keyspace: Option<String>,
    pub protocol_version: u8,
    pub request_count: u64,
    pub username: Option<String>,
}
