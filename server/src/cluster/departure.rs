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

use super::liveness::ServingState;
use crate::node::files::NodeFiles;
use crate::shard_thread::ShardContext;

/// The note in the data directory.
pub const FILE: &str = "removed";
const NOTE: &str = "This node has left its cluster or was removed from it. To use the machine again, erase the data directory.\n";

/// How far the end of a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It is a member, or is to become one.
    Staying,
    /// It knows that it is none any more.
    Going,
    /// That is noted, too: whoever runs the node is to end it.
    Gone,
}

/// Whether the node of a data directory has left its cluster.
pub async fn was_removed(files: &NodeFiles) -> Result<bool, DiskError> {
    Ok(files.load(FILE).await?.is_some())
}

/// Has this node end, because it is no member any more. `learned_from`: for the log. From any shard; again it does nothing.
pub fn begin(context: &Rc<ShardContext>, learned_from: &dyn std::fmt::Display) {
    let is_first = context.node.departure.send_if_modified(|departure| {
        let is_first = *departure == Departure::Staying;
        if is_first {
            *departure = Departure::Going;
        }
        is_first
    });
    if !is_first {
        return;
    }
    tracing::warn!(
        host_id = %context.node.host_id, %learned_from,
        "this node is no member of the cluster any more; it serves no more and ends"
    );
    context.node.board.set_state(ServingState::Removed);
    let context = context.clone();
    tokio::task::spawn_local(async move {
        let ended = context.run_on(0, |context| Box::pin(end(context))).await;
        if let Err(error) = ended {
            tracing::error!(%error, "the end of this node was not prepared");
        }
    });
}

async fn end(context: Rc<ShardContext>) {
    context.liveness.leave(&context);
    if let Err(error) = context.node.files.replace(FILE, Bytes::from_static(NOTE.as_bytes())).await {
        // Its state in the metadata log, or the others, will say so again.
        tracing::error!(%error, "it could not be noted in the data directory that this node is no member any more");
    }
    context.node.departure.send_replace(Departure::Gone);
}
