//! Wakes whoever computes views on this node, when something was written for it.
//!
//! A replica wakes when it has applied a change together with its entry, so that this happens on each node that has the partition. Other nodes learn
//! of entries when they look for them again.

use helenus_engine::MutationRef;
use tokio::sync::Notify;

use super::slice::{SLICES, Slice};
use crate::shard::context::ShardContext;

/// The sleepers of a node, by slices.
#[derive(Debug, Default)]
pub struct Wakes {
    slices: [Notify; SLICES as usize],
}

impl Wakes {
    pub fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    /// Resolves when something was written in a slice since the last time.
    pub async fn woken(&self, slice: Slice) {
        if let Some(sleeper) = self.slices.get(usize::from(slice.0)) {
            sleeper.notified().await;
        }
    }

    /// Wakes the task of the slice that contains a token. If the task is not waiting, its next wait ends at once.
    pub fn wake(&self, token: i64) {
        self.wake_slice(Slice::of(token));
    }

    /// Wakes the task of a slice.
    pub fn wake_slice(&self, slice: Slice) {
        if let Some(sleeper) = self.slices.get(usize::from(slice.0)) {
            sleeper.notify_one();
        }
    }
}

/// Wakes for a mutation that was applied with its companions, if views are computed of its table.
pub fn applied(context: &ShardContext, mutation: &MutationRef<'_>) {
    let is_followed = {
        let view = context.catalog_view();
        view.view_logs().contains_key(&uuid::Uuid::from_bytes(mutation.table.0))
    };
    if is_followed {
        Wakes::of(context).wake(mutation.token);
    }
}
