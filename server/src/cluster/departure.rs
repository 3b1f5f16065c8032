//! The end of a node that is no member any more: it has left, or was removed.
//!
//! Invariants:
//! * From the moment it learns of it the node serves no clients and no requests for its data.
//! * It is noted in the data directory before whoever runs the node hears of it: no later start makes the node one of the
//!   cluster again ([`was_removed`]).
//! * A member leaves the ring only when it votes no more in the metadata log ([`super::membership`]), so nobody waits for a
//!   node that has ended.

use std::rc::Rc;

use bytes::Bytes;
use helenus_engine::io::DiskError;

use crate::files::node_files::NodeFiles;
use crate::shard::context::{Departure, ShardContext};

/// The note in the data directory.
pub const FILE: &str = "removed";
const NOTE: &str = "This node has left its cluster or was removed from it. To use the machine again, erase the data directory.\n";

/// Whether the node of a data directory has left its cluster.
pub async fn was_removed(files: &NodeFiles) -> Result<bool, DiskError> {
    Ok(files.load(FILE).await?.is_some())
}

/// Prepares the end of this node as soon as it has learned that it is no member any more. On the first shard.
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
    context.liveness().leave(&context);
    if let Err(error) = context.node.files.replace(FILE, Bytes::from_static(NOTE.as_bytes())).await {
        // Its state in the metadata log, or the others, will say so again.
        tracing::error!(%error, "it could not be noted in the data directory that this node is no member any more");
    }
    context.node.departure.send_replace(Departure::Gone);
}
