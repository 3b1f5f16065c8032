//! What a node makes of the partition denylist. Operators can change it while the node runs.
//!
//! Invariant: each value stands for itself; other threads see a change soon, not at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use helenus_config::Config;

/// The settings of the denylist, shared by the shards of a node.
#[derive(Debug)]
pub struct DenylistSettings {
    pub enabled: Flag,
    pub writes: Flag,
    pub reads: Flag,
    pub range_reads: Flag,
    pub keys_per_table_max: Number,
    pub keys_max: Number,
}

impl DenylistSettings {
    pub fn new(config: &Config) -> Self {
        Self {
            enabled: Flag::new(config.partition_denylist_enabled),
            writes: Flag::new(config.denylist_writes_enabled),
            reads: Flag::new(config.denylist_reads_enabled),
            range_reads: Flag::new(config.denylist_range_reads_enabled),
            keys_per_table_max: Number::new(config.denylist_max_keys_per_table),
            keys_max: Number::new(config.denylist_max_keys_total),
        }
    }
}

/// Whether something is on.
#[derive(Debug)]
pub struct Flag(AtomicBool);

impl Flag {
    fn new(is_on: bool) -> Self {
        Self(AtomicBool::new(is_on))
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }
}

/// A limit.
#[derive(Debug)]
pub struct Number(AtomicU64);

impl Number {
    fn new(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }
}
