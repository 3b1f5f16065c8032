//! How far a compaction is, and whether it should stop: shared by the threads that work and the shard that asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::table::TableError;

/// The progress of one compaction.
#[derive(Debug, Default)]
pub struct CompactionProgress {
    /// Bytes of keys and rows of all inputs, before compression.
    total_bytes: u64,
    read_bytes: AtomicU64,
    is_stopped: AtomicBool,
}

impl CompactionProgress {
    pub(crate) fn of(total_bytes: u64) -> Self {
        Self { total_bytes, ..Self::default() }
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes of [`Self::total_bytes`] that were read. What is left out unread does not count.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// The compaction ends soon, with [`TableError::Stopped`], and leaves its inputs as they are.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Takes note of what was read since the last call. An error if the compaction should stop.
    pub(crate) fn note(&self, read_bytes: u64) -> Result<(), TableError> {
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        if self.is_stopped() { Err(TableError::Stopped) } else { Ok(()) }
    }
}
