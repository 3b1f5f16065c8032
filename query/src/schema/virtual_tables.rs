//! The rows of tables that the node computes at each read: `system`, `system_schema`, `system_views`,
//! `system_virtual_schema`.
//!
//! Invariants:
//! * A row has one value a column, in the order of [`Table::columns`], in wire encoding.
//! * Rows come in the order of the partition key's and then the clustering key's values.
//! * What drivers must not see as null never is (the docs of [`NodeInformation`] and [`Peer`] say what they rely on).
//! * What changes while the node runs is in [`NodeState`], which is put together for each read.

mod node;
mod row;
mod schema_tables;

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;

use self::row::RowWriter;
use super::catalog::{Catalog, Table};
use super::system_keyspaces::{SYSTEM, SYSTEM_SCHEMA, SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA};

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

/// The rows of a virtual table. A table that the node does not compute has none.
pub fn rows(table: &Table, catalog: &Catalog, node: &NodeInformation, state: &NodeState) -> Vec<Row> {
    let mut writer = RowWriter::new(table);
    match (table.keyspace.as_str(), table.name.as_str()) {
        (SYSTEM, "local") => node::local(&mut writer, catalog, node, state),
        (SYSTEM, "peers") => node::peers(&mut writer, state),
        (SYSTEM, "peers_v2") => node::peers_v2(&mut writer, state),
        (SYSTEM, "size_estimates") => node::size_estimates(&mut writer, catalog, state),
        (SYSTEM, "table_estimates") => node::table_estimates(&mut writer, catalog, state),
        (SYSTEM_SCHEMA, "keyspaces") => schema_tables::keyspaces(&mut writer, catalog),
        (SYSTEM_SCHEMA, "tables") => schema_tables::tables(&mut writer, catalog),
        (SYSTEM_SCHEMA, "columns") => schema_tables::columns(&mut writer, catalog, false),
        (SYSTEM_SCHEMA, "dropped_columns") => schema_tables::dropped_columns(&mut writer, catalog),
        (SYSTEM_SCHEMA, "types") => schema_tables::types(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "keyspaces") => schema_tables::virtual_keyspaces(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "tables") => schema_tables::virtual_tables(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "columns") => schema_tables::columns(&mut writer, catalog, true),
        (SYSTEM_VIEWS, "clients") => node::clients(&mut writer, state),
        (SYSTEM_VIEWS, "settings") => node::settings(&mut writer, node),
        _ => {}
    }
    writer.finish()
}

#[cfg(test)]
mod tests;
