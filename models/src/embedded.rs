//! The embedded node of a run without `--contact-point`: in this process, on free ports, in a temporary directory that
//! goes when the run ends.

use std::net::SocketAddr;
use std::sync::Arc;

use helenus::admin::NodeAdmin;
use helenus::config::Config;
use helenus::node::Node;
use helenus_observe::Admin;
use tempfile::TempDir;

use crate::disk::{DiskUsage, FromNode};
use crate::error::Error;

/// A node that runs until [`EmbeddedNode::shutdown`].
pub struct EmbeddedNode {
    node: Node,
    /// Deleted when dropped, after the node.
    _directory: TempDir,
}

impl EmbeddedNode {
    /// Starts a node with the default settings: every acknowledged write is synced (group commit).
    pub async fn start() -> Result<Self, Error> {
        let directory = tempfile::Builder::new().prefix("helenus-demo-").tempdir().map_err(embedded_error)?;
        let config = Config {
            data_dir: directory.path().to_owned(),
            http_enabled: false,
            ..helenus::embedded::config()
        };
        // The node's start waits for its own threads.
        let started = tokio::task::spawn_blocking(move || helenus::embedded::start(config)).await;
        let node = started.map_err(embedded_error)?.map_err(embedded_error)?;
        Ok(Self { node, _directory: directory })
    }

    /// The address for CQL.
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// Bytes of a table's files, once its data is flushed and compacted.
    pub fn disk_usage(&self) -> impl DiskUsage + use<> {
        let admin = Arc::new(NodeAdmin::new(self.node.shared().clone()));
        FromNode(move |keyspace: String, table: String| table_bytes(admin.clone(), keyspace, table))
    }

    /// Stops the node and deletes its data.
    pub async fn shutdown(self) -> Result<(), Error> {
        let Self { node, _directory } = self;
        let ended = tokio::task::spawn_blocking(move || node.shutdown()).await;
        ended.map_err(embedded_error)?.map_err(Error::Embedded)
    }
}

async fn table_bytes(admin: Arc<NodeAdmin>, keyspace: String, table: String) -> Result<u64, String> {
    let compacted = admin.compact(Some(keyspace.clone()), Some(table.clone())).await;
    compacted.map_err(|error| error.to_string())?;
    let reports = admin.table_statistics(Some(keyspace)).await.map_err(|error| error.to_string())?;
    let report = reports.into_iter().find(|report| report.table == table);
    report.map(|report| report.disk_bytes).ok_or_else(|| "the node has no such table".to_owned())
}

fn embedded_error(error: impl std::fmt::Display) -> Error {
    Error::Embedded(error.to_string())
}
