//! What all threads of a node know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cql_lite::frame::Event;
use cql_lite::types::token;
use tokio::sync::{broadcast, watch};
use uuid::Uuid;

use super::files::NodeFiles;
use crate::cluster::departure::Departure;
use crate::cluster::liveness::Board;
use crate::config::Config;
use crate::observe::metrics::ShardMetrics;
use crate::schema::virtual_tables::NodeInformation;
use crate::session::prepared::Registry;
use crate::shard_thread::{IGNORE_MSB, ShardLink};
use crate::streaming::progress::Transfers;

/// The file of the applied state of the cluster, catalog included.
pub const CATALOG_FILE: &str = "catalog";

/// What all threads of a node know.
pub struct NodeShared {
    pub config: Config,
    pub host_id: Uuid,
    pub links: Vec<ShardLink>,
    pub registry: Registry,
    pub information: NodeInformation,
    pub events: broadcast::Sender<Event>,
    pub metrics: Vec<Arc<ShardMetrics>>,
    /// True once the node is to stop.
    pub stopping: watch::Sender<bool>,
    /// Whether this node is a member (to be), or is to end.
    pub departure: watch::Sender<Departure>,
    /// Who is alive and what others tell of themselves.
    pub board: Board,
    pub shard_aware_port: u16,
    /// What this node fetches from others and sends to them because ranges change owners.
    pub transfers: Transfers,
    /// The version of the topology that every shard works with: what the metadata log has brought so far.
    pub applied: watch::Sender<u64>,
    /// The node's own small files.
    pub files: NodeFiles,
    pub(super) connections: AtomicUsize,
}

impl NodeShared {
    pub fn shard_count(&self) -> usize {
        self.links.len()
    }

    /// The shard that owns a token.
    #[inline]
    pub fn shard_of(&self, token: i64) -> usize {
        token::shard_of(token, self.links.len() as u32, IGNORE_MSB) as usize
    }

    /// Counts a client's connection; false when there are too many.
    pub(super) fn connection_begun(&self) -> bool {
        let open = self.connections.fetch_add(1, Ordering::Relaxed);
        if open >= self.config.max_connections {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub fn connection_ended(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
