//! The operations of a node for its operator. The node implements `Admin`; the HTTP routes call it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use cql_lite::frame::Consistency;
use futures::future::BoxFuture;
use helenus_admin::encryption_keys::EncryptionKeysReport;
use helenus_admin::reports::uploads::{DownloadReport, RemovalReport, UploadReport, UploadsReport};
use helenus_admin::reports::{
    Check, CheckProgress, CheckedFile, ClusterDescription, ClusterSnapshots, ClusterStatus,
    CompactionsReport, NodeReport, RepairReport, RepairsReport, ReplayReport, RestoredTable, RingReport,
    SnapshotReport, StreamingReport, TableReport, UnknownTableReport,
};
use helenus_engine::compaction::Granularity;
use helenus_query::schema::selection::TableSelection;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::controls::Controls;
use crate::error::AdminError;
use crate::login::{Administrator, Claim, LoginError};

/// A request to restore tables from a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRequest {
    /// The name of the snapshot.
    pub name: String,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
    /// The name of the table that gets the rows, in the same keyspace; without one it is the snapshot's.
    pub into: Option<String>,
}

/// A request to upload this node's part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRequest {
    /// The name of the snapshot.
    pub name: String,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
}

/// A request to download an uploaded snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadRequest {
    /// The name of the snapshot.
    pub name: String,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
    /// The directory, of the node's machine, that gets the files.
    pub directory: PathBuf,
    /// Only the part of this host.
    pub host_id: Option<Uuid>,
    /// The cluster that has uploaded it; without one that of the node.
    pub cluster_name: Option<String>,
}

/// An operation on the snapshots of each member of the cluster. Members send it to each other as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotOperation {
    Take {
        name: String,
        tables: TableSelection,
    },
    List,
    Clear {
        name: String,
    },
    Restore(RestoreRequest),
    Upload(UploadRequest),
    /// Removes what the member has uploaded of a snapshot.
    RemoveUpload {
        name: String,
    },
}

/// What is to be written of archived commit logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRequest {
    /// The directory, of the node's machine, at or below which the segments lie.
    pub directory: PathBuf,
    /// A snapshot of the node with the schemas of tables that were dropped since.
    pub snapshot: Option<String>,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
    /// The name of the table that gets the rows, in the same keyspace; without one it is that of the table that was written to.
    pub into: Option<String>,
    /// Of a mutation's newest write, in microseconds.
    pub timestamps: RangeInclusive<i64>,
    pub consistency: Consistency,
}

/// A request to repair ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairRequest {
    /// All keyspaces without one.
    pub keyspace: Option<String>,
    /// All tables of it without any.
    pub tables: Vec<String>,
    pub ranges: RepairRanges,
    /// Only replicas of these data centers take part; all without any.
    pub data_centers: Vec<String>,
    /// Only replicas of the node's own data center take part.
    pub is_local: bool,
    /// Whether ranges with a replica that is down are repaired among the others.
    pub force: bool,
}

/// The ranges that are repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepairRanges {
    /// The whole ring.
    #[default]
    All,
    /// Those of which the node is a replica.
    OfNode,
    /// Those of which it is the first replica.
    PrimaryOfNode,
    /// `(start, end]`.
    Range { start: i64, end: i64 },
}

/// The operations of a node. Without a keyspace they apply to all keyspaces; without a table, to all tables of the
/// keyspace. A table is never given without its keyspace.
///
/// A future is dropped when its client disconnects or the server stops. Work that has begun may continue by itself,
/// but must not be left half done.
pub trait Admin: Controls {
    /// Logs a client in, as clients of the native protocol are: the same roles, costs, delays and bounds.
    fn log_in(&self, claim: Claim) -> BoxFuture<'_, Result<Administrator, LoginError>>;

    /// Counts a TLS handshake at the port that has failed.
    fn note_failed_handshake(&self);

    /// Whether the node serves requests: what an operator should know although it does, or the reason why it does not.
    fn health(&self) -> Result<Option<String>, String>;

    /// All metrics in the text format of Prometheus: see `prometheus::render`.
    fn metrics_text(&self) -> BoxFuture<'_, String>;

    /// Writes memtables to disk.
    fn flush(&self, keyspace: Option<String>, table: Option<String>)
    -> BoxFuture<'_, Result<(), AdminError>>;

    /// Merges all files of a table; resolves when that is done.
    fn compact(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The compactions that are under way, and what operators have changed about them.
    fn compactions(&self) -> BoxFuture<'_, Result<CompactionsReport, AdminError>>;

    /// Stops the compactions under way; their inputs stay.
    fn stop_compactions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The bytes a second that compactions may write from now on, until the next start. `None`: no limit.
    fn set_compaction_rate(&self, bytes_per_second: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Whether the strategies of the tables choose compactions, until the next start.
    fn set_auto_compaction(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        is_enabled: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Rewrites files of former formats, or all; resolves when that is done.
    fn upgrade_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        all: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Rewrites files without what other files shadow; resolves when that is done. No `tables`: all of the keyspace.
    fn collect_garbage(
        &self,
        keyspace: Option<String>,
        tables: Vec<String>,
        granularity: Granularity,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Makes the files of indexes of a table anew; resolves when that is done.
    fn rebuild_indexes(
        &self,
        keyspace: String,
        table: String,
        indexes: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// A name for a snapshot, which no other one of this node has.
    fn new_snapshot_name(&self) -> BoxFuture<'_, Result<String, AdminError>>;

    /// Keeps the present files under a name. `name` is safe as the name of a directory: letters, digits, `_`, `-`
    /// and, not at the start, `.`.
    fn snapshot(&self, name: String, tables: TableSelection) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Takes the files of a snapshot of this node into use. Tables, types and keyspaces that are missing are created.
    fn restore(&self, request: RestoreRequest) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>>;

    /// Writes the rows of the table files at and below a directory of this machine to the replicas that have them now, with this
    /// consistency level. As in `restore`, tables are created that are missing.
    fn import(
        &self,
        directory: PathBuf,
        keyspace: Option<String>,
        table: Option<String>,
        into: Option<String>,
        consistency: Consistency,
    ) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>>;

    /// Writes the mutations of archived commit logs to the replicas that have the rows now.
    fn replay(&self, request: ReplayRequest) -> BoxFuture<'_, Result<ReplayReport, AdminError>>;

    /// Copies this node's part of a snapshot to the store of uploads.
    fn upload(&self, request: UploadRequest) -> BoxFuture<'_, Result<UploadReport, AdminError>>;

    /// The uploads of all hosts of a cluster; without a name that of the node.
    fn uploads(&self, cluster_name: Option<String>) -> BoxFuture<'_, Result<UploadsReport, AdminError>>;

    /// Brings an uploaded snapshot into a directory of this machine, and checks every file.
    fn download(&self, request: DownloadRequest) -> BoxFuture<'_, Result<DownloadReport, AdminError>>;

    /// Removes the upload of a snapshot by this node, or by a former member.
    fn remove_upload(
        &self,
        name: String,
        host_id: Option<Uuid>,
    ) -> BoxFuture<'_, Result<RemovalReport, AdminError>>;

    /// Loads the files of certificates and keys; those that cannot be used leave the former ones in use.
    fn reload_certificates(&self) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The master keys of the node's files, and which files need them.
    fn encryption_keys(&self) -> BoxFuture<'_, Result<EncryptionKeysReport, AdminError>>;

    /// Ends the present segments of the commit log; resolves when the archive has them.
    fn archive_log(&self) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes the snapshots of that name, in all tables. `name` is as safe as in `snapshot`.
    fn clear_snapshot(&self, name: String) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Stops accepting clients and requests of other nodes, announces that to the other nodes, and flushes
    /// everything. After that the node can only be stopped.
    fn drain(&self) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Makes this node leave the cluster and hand over its data; resolves when it has left. `force`: also if fewer
    /// members remain than a keyspace has replicas.
    fn decommission(&self, force: bool, accepts_old_data: bool) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes dead members; resolves when the others have their ranges. `accepts_loss`: also those that have the only copy of some.
    fn remove_nodes(
        &self,
        host_ids: Vec<Uuid>,
        accepts_old_data: bool,
        accepts_loss: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Cancels the join of a member.
    fn abort_join(&self, host_id: Uuid) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes the data of ranges that this node does not own any more.
    fn cleanup(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Makes the replicas of ranges equal; resolves when that is done. An error names what was not repaired.
    fn repair(&self, request: RepairRequest) -> BoxFuture<'_, Result<RepairReport, AdminError>>;

    /// Brings all that the replicas in a data center have of this node's ranges to this node; resolves when that is done.
    fn rebuild(
        &self,
        data_center: String,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<RepairReport, AdminError>>;

    /// The repairs of this node, and how old those of its tables are.
    fn repairs(&self) -> BoxFuture<'_, Result<RepairsReport, AdminError>>;

    /// Cancels the repair with this id, or all that are under way on this node.
    fn cancel_repair(&self, id: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// The streams of data between replicas.
    fn streams(&self) -> BoxFuture<'_, Result<StreamingReport, AdminError>>;

    /// One report for each table, ordered by keyspace and table.
    fn table_statistics(
        &self,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableReport>, AdminError>>;

    /// One report for each snapshot of a table, ordered by name and table.
    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotReport>, AdminError>>;

    /// Has all members carry an operation on their snapshots out. The report names those that have not; what the others have done stays.
    fn cluster_snapshots(
        &self,
        operation: SnapshotOperation,
    ) -> BoxFuture<'_, Result<ClusterSnapshots, AdminError>>;

    /// Reads the files of the tables as a whole, those of the node's own tables too if no keyspace is given; resolves when that is done.
    /// Returns the files that are or were damaged.
    fn check_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        check: Check,
    ) -> BoxFuture<'_, Result<Vec<CheckedFile>, AdminError>>;

    /// How far the last verification or scrub of each shard is.
    fn check_progress(&self) -> BoxFuture<'_, Result<Vec<CheckProgress>, AdminError>>;

    /// One report for each table that the schema does not name, ordered by id.
    fn unknown_tables(&self) -> BoxFuture<'_, Result<Vec<UnknownTableReport>, AdminError>>;

    /// All members; `owns` is for the keyspace, if one is named.
    fn cluster_status(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<ClusterStatus, AdminError>>;

    /// All tokens; with their replicas for a keyspace, if one is named.
    fn ring(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<RingReport, AdminError>>;

    /// This node.
    fn node_info(&self) -> BoxFuture<'_, Result<NodeReport, AdminError>>;

    /// The agreed state of the cluster.
    fn describe_cluster(&self) -> BoxFuture<'_, Result<ClusterDescription, AdminError>>;
}
