//! Settings that an operator can change while the node runs. The next start has those of the configuration again.
//!
//! Invariant: each value stands for itself; readers on other threads see a change soon, not at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use helenus_config::Config;
use helenus_engine::io::RateLimiter;
use tokio::sync::watch;

use crate::shard::denylist_settings::DenylistSettings;

/// The settings of a node, shared by its shards.
#[derive(Debug)]
pub struct RuntimeSettings {
    /// What this node fetches from others when ranges move, over all shards.
    pub streams: RateLimiter,
    pub denylist: DenylistSettings,
    hint_bytes_per_second: AtomicU64,
    /// The bits of a number from 0 to 1.
    trace_probability: AtomicU64,
    keeps_hints: AtomicBool,
    /// Milliseconds of the monotonic clock since which hints are kept without a break.
    keeps_hints_since_ms: AtomicU64,
    delivers_hints: AtomicBool,
    accepts_clients: watch::Sender<bool>,
}

impl RuntimeSettings {
    pub fn new(config: &Config) -> Self {
        let stream_rate = config.stream_throughput_bytes_per_second;
        Self {
            streams: RateLimiter::new((stream_rate > 0).then_some(stream_rate)),
            denylist: DenylistSettings::new(config),
            hint_bytes_per_second: AtomicU64::new(config.hinted_handoff_throttle_bytes_per_second),
            trace_probability: AtomicU64::new(0.0_f64.to_bits()),
            keeps_hints: AtomicBool::new(config.hinted_handoff_enabled),
            keeps_hints_since_ms: AtomicU64::new(0),
            delivers_hints: AtomicBool::new(true),
            accepts_clients: watch::channel(true).0,
        }
    }

    /// The bytes a second of hints that the node sends to one other node; 0: no bound.
    pub fn hint_bytes_per_second(&self) -> u64 {
        self.hint_bytes_per_second.load(Ordering::Relaxed)
    }

    pub fn set_hint_bytes_per_second(&self, rate: u64) {
        self.hint_bytes_per_second.store(rate, Ordering::Relaxed);
    }

    /// The part of requests that are traced, from 0 to 1.
    #[inline]
    pub fn trace_probability(&self) -> f64 {
        f64::from_bits(self.trace_probability.load(Ordering::Relaxed))
    }

    pub fn set_trace_probability(&self, probability: f64) {
        self.trace_probability.store(probability.to_bits(), Ordering::Relaxed);
    }

    /// Whether hints are kept for replicas that miss writes.
    pub fn keeps_hints(&self) -> bool {
        self.keeps_hints.load(Ordering::Relaxed)
    }

    /// `now`: of the monotonic clock.
    pub fn set_keeps_hints(&self, keeps_hints: bool, now: Duration) {
        let was_kept = self.keeps_hints.swap(keeps_hints, Ordering::Relaxed);
        if keeps_hints && !was_kept {
            // Rounded up: a break must not look shorter.
            self.keeps_hints_since_ms.store(now.as_millis() as u64 + 1, Ordering::Relaxed);
        }
    }

    /// Whether hints were kept all the time since then (of the monotonic clock).
    pub fn has_kept_hints_since(&self, since: Duration) -> bool {
        self.keeps_hints()
            && u128::from(self.keeps_hints_since_ms.load(Ordering::Relaxed)) <= since.as_millis()
    }

    /// Whether hints are delivered.
    pub fn delivers_hints(&self) -> bool {
        self.delivers_hints.load(Ordering::Relaxed)
    }

    pub fn set_delivers_hints(&self, delivers_hints: bool) {
        self.delivers_hints.store(delivers_hints, Ordering::Relaxed);
    }

    /// Whether clients are accepted.
    pub fn accepts_clients(&self) -> watch::Receiver<bool> {
        self.accepts_clients.subscribe()
    }

    pub fn set_accepts_clients(&self, accepts_clients: bool) {
        self.accepts_clients.send_replace(accepts_clients);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_without_hints_is_remembered() {
        let settings = RuntimeSettings::new(&Config::default());
        assert!(settings.has_kept_hints_since(Duration::ZERO));
        settings.set_keeps_hints(false, Duration::from_secs(5));
        assert!(!settings.has_kept_hints_since(Duration::from_secs(9)));
        settings.set_keeps_hints(true, Duration::from_secs(7));
        assert!(!settings.has_kept_hints_since(Duration::from_secs(6)));
        settings.set_keeps_hints(true, Duration::from_secs(20));
        assert!(settings.has_kept_hints_since(Duration::from_secs(8)));
    }
}
