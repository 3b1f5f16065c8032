//! What has arrived in the logs of a slice since it was looked at the last time.

use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::shard::context::ShardContext;

/// What has arrived on this node.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// What was acknowledged before this time, in microseconds, had arrived when it was looked.
    pub looked_micros: i64,
    /// The time of the oldest entry that has arrived, in microseconds. That of an entry whose time cannot be told is `i64::MIN`.
    pub oldest_micros: Option<i64>,
    /// Whether all entries arrive on this node, each together with its write.
    pub is_all: bool,
}

impl Arrived {
    /// Looks, and takes what it sees: [`Arrived::put_back`] gives it back.
    pub fn take(context: &ShardContext, slice: Slice) -> Self {
        let looked_micros = context.clock.now_micros();
        let view = context.cluster_view();
        let own = context.node.shard_count();
        // With another number of shards an entry may belong to another shard than its write, and be there before it.
        let generations = view.change_feed().generations();
        let has_own_shards = generations
            .iter()
            .all(|streams| streams.generation().shard_counts.iter().all(|count| usize::from(*count) == own));
        Self {
            looked_micros,
            oldest_micros: Wakes::of(context).take_oldest(slice),
            is_all: view.is_alone() && has_own_shards,
        }
    }

    /// It was not read.
    pub fn put_back(self, context: &ShardContext, slice: Slice) {
        if let Some(micros) = self.oldest_micros {
            Wakes::of(context).put_back(slice, micros);
        }
    }
}
