//! Counters of the traffic between one shard and other nodes.
//!
//! Invariant: each shard writes only to its own [`InternodeMetrics`], which shares no cache line with those of other
//! shards. Any thread may read; each number is read by itself (relaxed atomics).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the traffic between a shard and other nodes.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines: processors fetch them in pairs.
pub struct InternodeMetrics {
    /// Open links, both those that this shard has made and those that it serves.
    pub links: Gauge,
    /// Requests to other nodes.
    pub calls: Counter,
    /// Requests to other nodes that timed out.
    pub timeouts: Counter,
    /// Requests to other nodes that failed because of their link.
    pub failures: Counter,
    /// Messages without answers to other nodes.
    pub messages: Counter,
    /// Requests and messages of other nodes.
    pub requests: Counter,
    /// Requests of other nodes that arrived after their deadline.
    pub dropped: Counter,
    pub sent_bytes: Counter,
    pub received_bytes: Counter,
}
