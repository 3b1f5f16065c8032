//! Errors of a node's start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use helenus_at_rest::KeyError;
use helenus_audit::audit_log::LogError;
use helenus_config::ConfigError;
use helenus_engine::io::DiskError;
use helenus_tls::error::TlsError;
use uuid::Uuid;

use crate::cluster::stored::StoredError;
use helenus_node_files::small_files::FileError;

/// The reason why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("setting 'encryption_at_rest': {0}")]
    MasterKeys(#[from] KeyError),
    #[error(
        "setting 'encryption_at_rest': plain_files = \"refuse\", and these files of the node are not encrypted: {0}. `helenus encrypt`, with the node's \
         data directory and settings, encrypts them; or set plain_files = \"accept\" for now, and let `helenus nodetool upgradesstables -a` write the \
         tables anew while the node runs"
    )]
    PlainFiles(String),
    #[error("the data directory {} belongs to user {owner}, and this program runs as user {user}: run it as the user of the node", path.display())]
    OtherOwner { path: PathBuf, owner: u32, user: u32 },
    #[error("setting 'encryption_at_rest': nothing is encrypted without mode = \"all\" or \"tables\"")]
    NoEncryption,
    #[error(
        "table {keyspace}.{table} has the option 'encryption', and this node would write its files plain: give the node master keys, and set mode = \
         \"tables\" or \"all\" (setting 'encryption_at_rest')"
    )]
    PlainTable { keyspace: String, table: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    NodeFile(#[from] FileError),
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(
        "{path} and its copy are missing, but {found} is there: this is no new data directory, and it was not changed. Restore either from a \
         backup"
    )]
    MissingIdentity { path: PathBuf, found: PathBuf },
    #[error(
        "{manifest} and its copy are missing, and node.json counts this shard: the node does not start with less than it left, and changed \
         nothing. Restore the shard's directory from a backup; if this node has never served, erase the data directory"
    )]
    MissingShard { manifest: PathBuf },
    #[error(
        "node.json counts {shards} shards, but {path} holds the data of another one: restore the right node.json"
    )]
    SuperfluousShard { path: PathBuf, shards: usize },
    #[error(
        "{catalog} and its copy are missing, but {found}: the node does not start with less than it left, and changed nothing. Restore \
         either from a backup"
    )]
    MissingCatalog { catalog: PathBuf, found: String },
    #[error("{path}: {message}")]
    Damaged { path: PathBuf, message: String },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot listen on the Unix socket {path}: {source}")]
    AdminSocket { path: PathBuf, source: io::Error },
    #[error(transparent)]
    RequestLog(#[from] LogError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(
        "the data directory was made with {stored} shards and cannot be opened with {asked}; leave `shards` out or set it to {stored}"
    )]
    ShardCount { stored: usize, asked: usize },
    #[error("shard {shard}: {message}")]
    Shard { shard: usize, message: String },
    #[error("'{name}' (setting '{setting}') cannot be used: {message}")]
    Address { setting: &'static str, name: String, message: String },
    #[error(
        "the cluster uses features of version {level}; this program ({}) knows them up to version {known}: run a newer one",
        env!("CARGO_PKG_VERSION")
    )]
    Features { level: u16, known: u16 },
    #[error(
        "the data directory belongs to the cluster '{stored}', and the setting 'cluster_name' is '{configured}'; a cluster keeps its name"
    )]
    ClusterName { stored: String, configured: String },
    #[error(
        "the cluster knows this node in {stored} (data center/rack), the settings say {configured}: set them back, or decommission the node and join anew with an empty data directory"
    )]
    DataCenterOrRack { stored: String, configured: String },
    #[error("this node is one of {members} members of a cluster and needs the setting 'internode'")]
    NoInternode { members: usize },
    #[error(
        "setting 'data_disk_usage_max_disk_size_bytes': {configured} bytes are more than the disk has, which is {present}"
    )]
    DiskSize { configured: u64, present: u64 },
    #[error(
        "setting 'replace': this data directory belongs to member {host_id}, which has not taken the place of {asked}: start with an empty data directory to do so, or without 'replace'"
    )]
    NotReplacing { host_id: Uuid, asked: Uuid },
    #[error("the start was interrupted")]
    Interrupted,
    #[error("the start was interrupted, and the node did not stop cleanly: {0}")]
    NotStopped(String),
    #[error("this node ({host_id}) was removed from the cluster; erase its data directory to join anew")]
    Removed { host_id: Uuid },
}
