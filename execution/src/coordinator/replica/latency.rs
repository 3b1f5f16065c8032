//! The delay before a speculative read: the latencies of recent reads by table, and the table's `speculative_retry`
//! option.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use helenus_query::schema::options::SpeculativeRetry;
use lru::LruCache;

/// Number of recent reads remembered for each table.
const WINDOW: usize = 256;
/// Tables that are remembered; beyond, the one used longest ago is forgotten.
const TABLES_MAX: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
/// Percentiles are computed again after this number of reads.
const STALE_AFTER: usize = 32;

/// The recent latencies of the reads that a shard coordinates.
#[derive(Debug)]
pub struct ReadLatencies {
    tables: RefCell<LruCache<u128, Recent>>,
}

impl Default for ReadLatencies {
    fn default() -> Self {
        Self { tables: RefCell::new(LruCache::sparse(TABLES_MAX)) }
    }
}

#[derive(Debug, Default)]
struct Recent {
    micros: VecDeque<u64>,
    sorted: Vec<u64>,
    since_sorted: usize,
}

impl ReadLatencies {
    /// Records how long the replicas of a read took.
    pub fn note(&self, table_id: u128, latency: Duration) {
        let mut tables = self.tables.borrow_mut();
        let recent = tables.get_or_insert_mut(table_id, Recent::default);
        if recent.micros.len() >= WINDOW {
            recent.micros.pop_front();
        }
        recent.micros.push_back(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        recent.since_sorted += 1;
    }

    /// The delay before the coordinator asks another replica; `None`: it never does. Without any latencies the delay
    /// is half the timeout, as in Cassandra.
    pub fn delay(&self, table_id: u128, retry: &SpeculativeRetry, timeout: Duration) -> Option<Duration> {
        match retry {
            SpeculativeRetry::Never => None,
            SpeculativeRetry::Always => Some(Duration::ZERO),
            SpeculativeRetry::FixedMs(milliseconds) => Some(Duration::from_millis(u64::from(*milliseconds))),
            SpeculativeRetry::Percentile(percentile) => {
                Some(self.percentile(table_id, *percentile).unwrap_or(timeout / 2))
            }
            SpeculativeRetry::Min(first, second) => {
                let delays = [first, second].map(|retry| self.delay(table_id, retry, timeout));
                delays.into_iter().flatten().min()
            }
            SpeculativeRetry::Max(first, second) => {
                let delays = [first, second].map(|retry| self.delay(table_id, retry, timeout));
                delays.into_iter().flatten().max()
            }
        }
    }

    fn percentile(&self, table_id: u128, percentile: f64) -> Option<Duration> {
        let mut tables = self.tables.borrow_mut();
        let recent = tables.get_mut(&table_id)?;
        if recent.sorted.is_empty() || recent.since_sorted >= STALE_AFTER {
            recent.sorted.clear();
            recent.sorted.extend(&recent.micros);
            recent.sorted.sort_unstable();
            recent.since_sorted = 0;
        }
        let rank = (recent.sorted.len() as f64 * percentile / 100.0).ceil() as usize;
        recent.sorted.get(rank.clamp(1, recent.sorted.len().max(1)) - 1).copied().map(Duration::from_micros)
    }
}

/// Resolves when an alarm does; never without one.
pub async fn rings(alarm: Option<impl Future<Output = ()>>) {
    match alarm {
        Some(alarm) => alarm.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn percentiles_come_from_recent_reads() {
        let latencies = ReadLatencies::default();
        let of = |percentile| latencies.delay(1, &SpeculativeRetry::Percentile(percentile), TIMEOUT);
        assert_eq!(of(99.0), Some(TIMEOUT / 2));
        for milliseconds in 1..=100 {
            latencies.note(1, Duration::from_millis(milliseconds));
        }
        assert_eq!(of(99.0), Some(Duration::from_millis(99)));
        assert_eq!(of(50.0), Some(Duration::from_millis(50)));
        for _ in 0..WINDOW {
            latencies.note(1, Duration::from_millis(7));
        }
        assert_eq!(of(99.0), Some(Duration::from_millis(7)));
    }

    #[test]
    fn fixed_delays_and_bounds() {
        let latencies = ReadLatencies::default();
        latencies.note(1, Duration::from_millis(20));
        let delay = |retry: &str| latencies.delay(1, &SpeculativeRetry::parse(retry).unwrap(), TIMEOUT);
        assert_eq!(delay("NEVER"), None);
        assert_eq!(delay("ALWAYS"), Some(Duration::ZERO));
        assert_eq!(delay("50ms"), Some(Duration::from_millis(50)));
        assert_eq!(delay("MIN(99p,50ms)"), Some(Duration::from_millis(20)));
        assert_eq!(delay("MAX(99p,50ms)"), Some(Duration::from_millis(50)));
    }
}
