//! The times in the names of the snapshots that the node takes by itself.

use std::sync::atomic::{AtomicI64, Ordering};

/// The time of the last snapshot that the node has planned, in milliseconds since the epoch.
#[derive(Debug, Default)]
pub struct LastSnapshot(AtomicI64);

impl LastSnapshot {
    /// The present time, or a later one that no snapshot has: two snapshots of a table have different names.
    pub fn next_millis(&self, now_micros: i64) -> i64 {
        let next = |last: i64| now_micros.div_euclid(1_000).max(last.saturating_add(1));
        next(
            self.0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)))
                .unwrap_or_else(|last| last),
        )
    }
}
