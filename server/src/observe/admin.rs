//! What a node offers to its operator. The node implements `Admin`; the HTTP routes call it.

use futures::future::BoxFuture;
use serde::Serialize;

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

/// One table, summed over the shards of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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

    /// Flushes everything, so that a shutdown that follows is quick. Clients are still served.
    fn drain(&self) -> BoxFuture<'_, Result<(), AdminError>>;

    /// One report a table, ordered by keyspace and table.
    fn table_statistics(
        &self,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableReport>, AdminError>>;
}
