//! What the rows of virtual tables are made from: the node, its cluster and its clients at the moment of a read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;

/// The version of Cassandra whose schema tables, options and statements these are; drivers go by it.
pub const RELEASE_VERSION: &str = "5.0.0";

/// The version of CQL.
pub const CQL_VERSION: &str = "3.4.7";

/// The highest version of the native protocol.
pub const NATIVE_PROTOCOL_VERSION: &str = "5";

/// The class name by which drivers know how tokens are computed.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// The snitch whose settings the node has: data center and rack are settings of each node.
pub const SNITCH: &str = "GossipingPropertyFileSnitch";

/// One row: a value a column, in wire encoding; nothing for null.
pub type Row = Vec<Option<Vec<u8>>>;

/// What is true of the node from its start to its stop.
///
/// Drivers skip a node whose row lacks the host id, an address, the data center, the rack or tokens, and they connect
/// to `rpc_address`, so that must be an address that clients reach (never 0.0.0.0).
pub struct NodeInformation {
    pub cluster_name: String,
    pub data_center: String,
    pub rack: String,
    pub host_id: Uuid,
    /// Where the node listens for other nodes.
    pub listen_address: IpAddr,
    /// Where other nodes reach it.
    pub broadcast_address: IpAddr,
    /// Where clients reach it.
    pub rpc_address: IpAddr,
    /// The port for other nodes.
    pub storage_port: u16,
    /// The port for clients.
    pub native_port: u16,
    /// The node's places in the ring of a cluster that it founds; what it has is in [`NodeState::tokens`].
    pub initial_tokens: Vec<i64>,
    /// Seconds since the epoch at which the node was started.
    pub generation: i32,
    /// Names and values of the configuration, for `system_views.settings`.
    pub settings: Vec<(String, String)>,
}

/// What changes while the node runs. A read fills in what the table in question shows.
#[derive(Debug, Clone, Default)]
pub struct NodeState {
    /// The node's places in the ring; at least one.
    pub tokens: Vec<i64>,
    /// The node takes ranges over and owns none yet.
    pub is_joining: bool,
    /// The other nodes that own tokens, never this one.
    pub peers: Vec<Peer>,
    /// The connections of clients.
    pub clients: Vec<ConnectedClient>,
    /// By the id of the table.
    pub estimates: BTreeMap<Uuid, Vec<SizeEstimate>>,
}

/// Another node of the cluster. Drivers skip one whose row lacks anything of this.
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

/// Which of the ranges that a node holds are meant, so that every range is somebody's once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeKind {
    /// It is the first of all replicas.
    Primary,
    /// It is the first of the replicas in its data center.
    LocalPrimary,
}

impl RangeKind {
    /// As `system.table_estimates` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::LocalPrimary => "local_primary",
        }
    }
}

/// How much of a table lies in a range of tokens.
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

/// A connection of a client.
#[derive(Debug, Clone)]
pub struct ConnectedClient {
    pub address: IpAddr,
    pub port: u16,
    /// What the client sent in STARTUP.
    pub options: BTreeMap<String, String>,
    pub driver_name: Option<String>,
    pub driver_version: Option<String>,
    /// The keyspace that the connection uses.
    pub keyspace: Option<String>,
    pub protocol_version: u8,
    pub request_count: u64,
    pub username: Option<String>,
}
