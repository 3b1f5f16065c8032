//! Counters of the traffic between one shard and other nodes.
//!
//! The traffic is counted as a whole, and by the other node.
//!
//! Invariant: each shard writes only to its own [`InternodeMetrics`], which shares no cache line with those of other
//! shards. Any thread may read; each number is read by itself (relaxed atomics).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use helenus_ring::HostId;

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
    /// Those of them that are encrypted.
    pub encrypted_links: Gauge,
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
    by_node: Mutex<ByNode>,
}

/// The nodes whose counters are kept after their links have ended. A node names itself when it makes a link, so there may be any number of names.
const KEPT_MAX: usize = 1_024;

/// The traffic with each node that a shard has met, of the nodes without links not more than some.
#[derive(Debug, Default)]
struct ByNode {
    inbound: BTreeMap<HostId, Arc<InboundTraffic>>,
    outbound: BTreeMap<SocketAddr, Arc<OutboundTraffic>>,
}

/// What a node asks of a shard, over the links that it makes.
#[derive(Debug, Default)]
pub struct InboundTraffic {
    pub received_bytes: Counter,
    /// Requests and messages.
    pub received: Counter,
    /// Requests that arrived after their deadline.
    pub expired: Counter,
    /// Requests and messages that were carried out.
    pub processed: Counter,
    /// Links that ended because of invalid data.
    pub errors: Counter,
}

/// What a shard asks of a node, over the links that it makes.
#[derive(Debug, Default)]
pub struct OutboundTraffic {
    pub sent_bytes: Counter,
    /// Requests and messages.
    pub sent: Counter,
    /// Requests that timed out.
    pub expired: Counter,
    /// Requests that failed because of their link.
    pub errors: Counter,
    /// Requests and messages that were refused because too many waited.
    pub overloaded: Counter,
    /// Requests that wait for their answers.
    pub pending: Gauge,
    /// Links that are up.
    pub links: Gauge,
    pub attempts: Counter,
    pub successful_attempts: Counter,
}

impl InternodeMetrics {
    pub(crate) fn link_begun(&self, is_encrypted: bool) {
        self.links.increment();
        self.encrypted_links.add(i64::from(is_encrypted));
    }

    pub(crate) fn link_ended(&self, is_encrypted: bool) {
        self.links.decrement();
        self.encrypted_links.add(-i64::from(is_encrypted));
    }

    fn by_node(&self) -> MutexGuard<'_, ByNode> {
        // Each change is a whole one: a panic of another holder of the lock leaves the maps usable.
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of a node that makes links to this shard. They are looked up once for each link.
    pub fn inbound(&self, host_id: HostId) -> Arc<InboundTraffic> {
        let inbound = &mut self.by_node().inbound;
        if inbound.len() >= KEPT_MAX && !inbound.contains_key(&host_id) {
            // Each link has its counters.
            inbound.retain(|_, traffic| Arc::strong_count(traffic) > 1);
        }
        Arc::clone(inbound.entry(host_id).or_default())
    }

    /// The counters of the node at an address to which this shard makes links. They are looked up once for each link.
    pub fn outbound(&self, address: SocketAddr) -> Arc<OutboundTraffic> {
        Arc::clone(self.by_node().outbound.entry(address).or_default())
    }

    pub fn all_inbound(&self) -> Vec<(HostId, Arc<InboundTraffic>)> {
        self.by_node().inbound.iter().map(|(host_id, traffic)| (*host_id, Arc::clone(traffic))).collect()
    }

    pub fn all_outbound(&self) -> Vec<(SocketAddr, Arc<OutboundTraffic>)> {
        self.by_node().outbound.iter().map(|(address, traffic)| (*address, Arc::clone(traffic))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_nodes_without_links_are_kept_for_some_of_them_only() {
        let metrics = InternodeMetrics::default();
        let name = |number: usize| HostId::from_u128(number as u128);
        let linked = metrics.inbound(name(0));
        linked.received.increment();
        for number in 1..=4 * KEPT_MAX {
            metrics.inbound(name(number));
        }
        assert!(metrics.all_inbound().len() <= KEPT_MAX);
        assert_eq!(metrics.inbound(name(0)).received.get(), 1);
    }
}
