//! What a node offers to its operator. The node implements `Admin`; the HTTP routes call it.

use futures::future::BoxFuture;
use uuid::Uuid;

use super::reports::{ClusterDescription, ClusterStatus, NodeReport, RingReport, TableReport};
use crate::streaming::progress::StreamingReport;

/// Why an administrative operation was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// A keyspace, table or snapshot that is not there; the text names it.
    #[error("{0}")]
    Unknown(String),
    /// The operation was begun and did not end well; the text says why.
    #[error("{0}")]
    Failed(String),
}

/// The operations of a node. Without a keyspace they are meant for all keyspaces; without a table, for all tables of
/// the keyspace. A table is never given without its keyspace.
///
/// A future is dropped when its client goes away or the server stops: work that was begun may go on by itself, but
/// must not be left half done.
pub trait Admin: Send + Sync {
    /// Whether the node serves requests; if not, why.
    fn health(&self) -> Result<(), String>;

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

    /// Keeps the present files under a name. `name` is safe as the name of a directory: letters, digits, `_`, `-`
    /// and, not at the start, `.`.
    fn snapshot(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        name: String,
    ) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes the snapshots of that name, in all tables. `name` is as safe as in `snapshot`.
    fn clear_snapshot(&self, name: String) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Takes no clients and no requests of other nodes any more, tells the others so, and flushes everything: what follows can
    /// only be a stop.
    fn drain(&self) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Has this node leave the cluster with its data; resolves when it has left. `force`: also where fewer members remain than
    /// a keyspace has replicas.
    fn decommission(&self, force: bool) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes a dead member; resolves when the others have its ranges.
    fn remove_node(&self, host_id: Uuid) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Takes the join of a member back.
    fn abort_join(&self, host_id: Uuid) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Removes the data of ranges that this node has given up.
    fn cleanup(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<(), AdminError>>;

    /// Data on its way between owners.
    fn streams(&self) -> BoxFuture<'_, Result<StreamingReport, AdminError>>;

    /// One report a table, ordered by keyspace and table.
    fn table_statistics(
        &self,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableReport>, AdminError>>;

    /// All members; `owns` is meant for a keyspace, if one is named.
    fn cluster_status(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<ClusterStatus, AdminError>>;

    /// All tokens; with their replicas for a keyspace, if one is named.
    fn ring(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<RingReport, AdminError>>;

    /// This node.
    fn node_info(&self) -> BoxFuture<'_, Result<NodeReport, AdminError>>;

    /// What the cluster agrees on.
    fn describe_cluster(&self) -> BoxFuture<'_, Result<ClusterDescription, AdminError>>;
}
