//! The end of a node that is not a member any more: it has left, or was removed.
//!
//! Invariants:
//! * From the moment the node learns of it, it serves no clients and no requests for its data.
//! * It is recorded in the data directory before the owner of the node is notified: no later start makes the node a
//!   member again ([`was_removed`]).
//! * A member leaves the ring only when it does not vote in the metadata log any more ([`super::membership`]), so the
//!   cluster never waits for a node that has ended.

use crate::cluster::liveness::LivenessMonitor;
use std::rc::Rc;

use bytes::Bytes;

use helenus_execution::shard::context::{Departure, ShardContext};
use helenus_node_files::small_files::{FileError, NodeFiles};

/// The file in the data directory that records it.
pub const FILE: &str = "removed";
const NOTE: &str = "This node has left its cluster or was removed from it. To use the machine again, erase the data directory.\n";

/// Whether the node of a data directory has left its cluster.
pub async fn was_removed(files: &NodeFiles) -> Result<bool, FileError> {
    Ok(files.load(FILE).await?.is_some())
}

/// Starts the task that ends this node as soon as it has learned that it is not a member any more. Call on the first
/// shard.
pub fn watch(context: &Rc<ShardContext>) {
    let mut departure = context.node.departure.subscribe();
    let weak = Rc::downgrade(context);
    tokio::task::spawn_local(async move {
        // The sender lives as long as the node.
        if departure.wait_for(|departure| *departure == Departure::Going).await.is_ok()
            && let Some(context) = weak.upgrade()
        {
            end(context).await;
        }
    });
}

async fn end(context: Rc<ShardContext>) {
    LivenessMonitor::of(&context).leave(&context);
    if let Err(error) = context.node.files.replace(FILE, Bytes::from_static(NOTE.as_bytes())).await {
        // Its state in the metadata log, or the other members, will report it again.
        tracing::error!(%error, "could not record in the data directory that this node is not a member any more");
    }
    context.node.departure.send_replace(Departure::Gone);
}
