//! What a node tells its operator: JSON over HTTP, and what the `helenus admin` commands read of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One table, summed over the shards of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableReport {
    pub keyspace: String,
    pub table: String,
    /// Table files (SSTables).
    pub file_count: u64,
    pub disk_bytes: u64,
    pub memtable_bytes: u64,
    /// Rows in all memtables and files; versions of one row count each.
    pub row_versions: u64,
    /// Partitions in all memtables and files; those in several count in each.
    pub partition_versions: u64,
    pub tombstones: u64,
}

/// A member as the node that was asked sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    pub host_id: String,
    /// For other nodes, with the port.
    pub address: String,
    /// For clients, with the port.
    pub native_address: String,
    pub data_center: String,
    pub rack: String,
    /// Whether it answers.
    pub is_up: bool,
    /// `normal`, `joining` or `leaving`.
    pub state: String,
    /// How far it is in serving clients; nothing is known before it has told.
    pub serving: Option<String>,
    pub token_count: usize,
    /// The part of the ring that it is a replica of, from 0 to 1.
    pub owns: f64,
    /// Bytes on disk; nothing is known before it has told.
    pub data_bytes: Option<u64>,
    pub schema_version: Option<String>,
    pub release_version: String,
}

/// All members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub cluster_name: String,
    /// What `owns` is meant for; none: first ownership, as with one replica.
    pub keyspace: Option<String>,
    /// By data center and address.
    pub members: Vec<MemberReport>,
}

/// A token with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReport {
    /// As text: JSON numbers lose digits of it.
    pub token: String,
    pub host_id: String,
    pub address: String,
    pub data_center: String,
    pub rack: String,
    pub is_up: bool,
    pub state: String,
    /// The addresses of those that have the range that ends at the token, for the keyspace that was asked for.
    pub replicas: Vec<String>,
}

/// All tokens in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingReport {
    pub keyspace: Option<String>,
    pub tokens: Vec<TokenReport>,
}

/// The node that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub host_id: String,
    pub cluster_name: String,
    pub data_center: String,
    pub rack: String,
    pub address: String,
    pub native_address: String,
    pub state: String,
    pub serving: String,
    pub version: String,
    pub shard_count: usize,
    pub token_count: usize,
    pub started_at_seconds: i64,
    pub uptime_seconds: i64,
    pub connections: i64,
    pub data_bytes: u64,
    pub memtable_bytes: u64,
    pub commit_log_bytes: u64,
    pub schema_version: String,
}

/// What the cluster agrees on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDescription {
    pub cluster_name: String,
    pub partitioner: String,
    pub snitch: String,
    /// Versions of the schema with the addresses of those that have applied them; one when all agree.
    pub schema_versions: BTreeMap<String, Vec<String>>,
    /// Members that do not answer.
    pub unreachable: Vec<String>,
    /// Members that own tokens, by data center.
    pub data_centers: BTreeMap<String, u32>,
    pub topology_version: u64,
    pub topology_epoch: u64,
    /// Features up to this version may be in use.
    pub feature_level: u16,
    /// Ids that have left for good.
    pub removed: Vec<String>,
    /// The replication of each keyspace.
    pub keyspaces: BTreeMap<String, BTreeMap<String, String>>,
}
