//! How far an operation on a store is. Any thread may read it; each number is read by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The state of an operation: the files that belong to it, and those that are where they should be.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub files: Count,
    pub files_done: Count,
    pub bytes: Count,
    pub bytes_done: Count,
    /// The bytes that had to be moved. Operations may share the count.
    pub bytes_moved: Count,
}
