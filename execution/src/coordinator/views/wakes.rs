//! Wakes whoever computes views on this node, when something was written for it.
//!
//! A replica wakes when it has applied a change together with its entry, so that this happens on each node that has the partition. Other nodes learn
//! of entries when they look for them again.
//!
//! With it comes the time of the entry, before it can be acknowledged: a node that has all data alone need not look further back in the log
//! than the oldest entry that has arrived since it looked the last time.

use std::sync::atomic::{AtomicI64, Ordering};

use helenus_change_feed::entry::time_in;
use helenus_engine::MutationRef;
use tokio::sync::Notify;

use super::slice::{SLICES, Slice};
use crate::shard::context::ShardContext;

/// The sleepers of a node, by slices.
#[derive(Debug, Default)]
pub struct Wakes {
    slices: [Sleeper; SLICES as usize],
}

#[derive(Debug)]
struct Sleeper {
    notify: Notify,
    /// The time of the oldest entry that has arrived since they were taken the last time, in microseconds.
    oldest_micros: AtomicI64,
}

/// Nothing has arrived.
const NONE: i64 = i64::MAX;

impl Default for Sleeper {
    fn default() -> Self {
        Self { notify: Notify::default(), oldest_micros: AtomicI64::new(NONE) }
    }
}

impl Wakes {
    pub fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    fn sleeper(&self, slice: Slice) -> &Sleeper {
        &self.slices[usize::from(slice.0 % SLICES)]
    }

    /// Resolves when something was written in a slice since the last time.
    pub async fn woken(&self, slice: Slice) {
        self.sleeper(slice).notify.notified().await;
    }

    /// Notes that an entry of this time can be read, and wakes the task of the slice that contains the token of the partition that has changed. If
    /// the task is not waiting, its next wait ends at once.
    pub fn arrived(&self, token: i64, micros: i64) {
        let slice = Slice::of(token);
        self.put_back(slice, micros);
        self.wake_slice(slice);
    }

    /// The time of the oldest entry that has arrived in a slice since this was called the last time, in microseconds.
    pub fn take_oldest(&self, slice: Slice) -> Option<i64> {
        let oldest_micros = self.sleeper(slice).oldest_micros.swap(NONE, Ordering::AcqRel);
        (oldest_micros != NONE).then_some(oldest_micros)
    }

    /// What was taken has not been read: it counts as having arrived again.
    pub fn put_back(&self, slice: Slice, micros: i64) {
        self.sleeper(slice).oldest_micros.fetch_min(micros, Ordering::AcqRel);
    }

    /// Wakes the task of a slice.
    pub fn wake_slice(&self, slice: Slice) {
        self.sleeper(slice).notify.notify_one();
    }
}

/// Wakes for a mutation that was applied with its companions, if views are computed of its table.
pub fn applied(context: &ShardContext, mutation: &MutationRef<'_>) {
    let log = {
        let view = context.catalog_view();
        view.view_logs().get(&uuid::Uuid::from_bytes(mutation.table.0)).map(|log| log.engine_id())
    };
    if let Some(log) = log {
        // An entry whose time cannot be told may be of any time.
        Wakes::of(context).arrived(mutation.token, time_in(mutation, log).unwrap_or(i64::MIN));
    }
}
