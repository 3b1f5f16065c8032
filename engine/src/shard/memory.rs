//! The memory that the memtables of a shard take, and its bounds, which shards of a node lend each other (`LendingShare`).
//!
//! Flushing starts at half of the memory, writers wait when it is used up: each is a budget of its own, so that there is always as much room
//! to write in while memtables are flushed.

use std::cell::Cell;

use super::options::ShardOptions;
use crate::io::LendingShare;

/// The memory of a shard's memtables.
#[derive(Debug)]
pub(super) struct MemtableMemory {
    used_bytes: Cell<usize>,
    until_flush: LendingShare,
    until_full: LendingShare,
    /// An even part of the memory.
    part_bytes: u64,
}

impl MemtableMemory {
    pub(super) fn new(options: &ShardOptions, used_bytes: usize) -> Self {
        let (budget_bytes, shards) = (options.memtable_bytes_max as u64, options.shards_of_node);
        let common = &options.common;
        let memory = Self {
            used_bytes: Cell::new(0),
            until_flush: LendingShare::new(budget_bytes / 2, shards, common.memtables_until_flush.clone()),
            until_full: LendingShare::new(budget_bytes, shards, common.memtables.clone()),
            part_bytes: budget_bytes / shards as u64,
        };
        memory.set(used_bytes);
        memory
    }

    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    #[inline]
    pub(super) fn grow(&self, bytes: usize) {
        self.set(self.used_bytes() + bytes);
    }

    pub(super) fn shrink(&self, bytes: usize) {
        self.set(self.used_bytes().saturating_sub(bytes));
    }

    #[inline]
    fn set(&self, used_bytes: usize) {
        self.used_bytes.set(used_bytes);
        if self.until_full.is_shared() {
            self.until_flush.use_bytes(used_bytes as u64);
            self.until_full.use_bytes(used_bytes as u64);
        }
    }

    /// Whether memtables are to be flushed.
    #[inline]
    pub(super) fn needs_flush(&self) -> bool {
        self.used_bytes() as u64 >= self.until_flush.bound_bytes()
    }

    /// Whether writers will soon have to wait.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.used_bytes() as u64 >= self.until_full.bound_bytes() / 4 * 3
    }

    /// Whether writers have to wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes() as u64 > self.until_full.bound_bytes()
    }

    /// Whether also writes that must go on have to wait. Other shards take none of what is left for them.
    pub(super) fn is_twice_full(&self) -> bool {
        let bound_bytes = self.until_full.bound_bytes().max(self.part_bytes);
        self.used_bytes() as u64 > bound_bytes.saturating_mul(2)
    }
}
