//! The memory of a shard for parts of table files that stay in memory while the files are open: their filters and the leaves of their
//! indexes.
//!
//! Each table asks for memory when it is opened and gives it back when it is closed. Who gets none reads its parts one by one, through
//! the cache of blocks. First come, first served.
//!
//! Invariant: what is reserved stays within the limit, except for tables with few parts, and for those of old formats, which have no
//! parts that could be read alone. What goes beyond the limit is not taken from the cache of blocks: it is never empty for that reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A table with parts of at most this size keeps them in memory whatever else is there.
const FEW_BYTES: u64 = 64 << 10;
/// The limit is large enough for this many such tables. With a small limit fewer bytes count as few.
const TABLES_WITH_FEW: u64 = 1 << 10;

/// The memory for resident parts. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct ResidentParts {
    limit_bytes: u64,
    used_bytes: Arc<AtomicU64>,
}

impl ResidentParts {
    /// With a limit of 0 no part is resident.
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, used_bytes: Arc::default() }
    }

    /// For tables that are read as a whole by one job, and for those whose memory is in no budget.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// What is used within the limit.
    pub(super) fn budgeted_bytes(&self) -> u64 {
        self.used_bytes().min(self.limit_bytes)
    }

    /// Whether this is so little that a table may always have it.
    pub(super) fn are_few(&self, bytes: u64) -> bool {
        bytes <= FEW_BYTES.min(self.limit_bytes / TABLES_WITH_FEW)
    }

    /// Whether there is room for this much more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.used_bytes().checked_add(bytes).is_some_and(|sum| sum <= self.limit_bytes)
    }

    /// A reservation of nothing yet.
    pub(super) fn reserve(&self) -> Reservation {
        Reservation { parts: self.clone(), bytes: 0 }
    }
}

/// Memory of a table. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    parts: ResidentParts,
    bytes: u64,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more, whether or not there is room.
    pub fn take(&mut self, bytes: u64) {
        self.parts.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Reserves more if there is room. Returns whether it did.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let ResidentParts { limit_bytes, used_bytes } = &self.parts;
        let has_room = used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| sum <= limit_bytes)
        });
        if has_room.is_ok() {
            self.bytes += bytes;
        }
        has_room.is_ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.parts.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_reserved_up_to_the_limit_and_given_back() {
        let parts = ResidentParts::new(100);
        let (mut first, mut second) = (parts.reserve(), parts.reserve());
        assert!(first.grow(60) && !second.grow(41) && second.grow(40));
        assert_eq!((parts.used_bytes(), first.bytes(), second.bytes()), (100, 60, 40));
        second.take(5);
        assert_eq!(parts.budgeted_bytes(), 100);
        assert_eq!(parts.used_bytes(), 105, "some tables have their parts in memory whatever the limit is");
        drop(second);
        assert!(first.grow(40) && !first.grow(1));
        drop(first);
        assert_eq!(parts.used_bytes(), 0);
    }

    #[test]
    fn a_table_with_few_parts_has_them_in_memory_unless_the_limit_is_small() {
        assert!(ResidentParts::new(1 << 30).are_few(64 << 10));
        assert!(!ResidentParts::new(1 << 30).are_few((64 << 10) + 1));
        assert!(ResidentParts::new(1 << 20).are_few(1 << 10) && !ResidentParts::new(1 << 20).are_few(1025));
        assert!(ResidentParts::new(0).are_few(0) && !ResidentParts::new(0).are_few(1));
    }
}
