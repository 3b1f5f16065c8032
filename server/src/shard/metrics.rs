//! Counters of one shard.
//!
//! Invariant: each shard writes only to its own `ShardMetrics`, which shares no cache line with another's, so that
//! counting costs the same on one core as on a hundred. Anyone may read; readers see each number by itself, not a
//! consistent set (relaxed atomics).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use helenus_internode::metrics::{Counter, Gauge, InternodeMetrics};

/// The first bucket of a histogram holds what took at most `2^FIRST_EXPONENT` microseconds (16 µs).
const FIRST_EXPONENT: usize = 4;
/// The last bounded bucket ends at `2^LAST_EXPONENT` microseconds (16.8 s).
const LAST_EXPONENT: usize = 24;
/// Buckets with an upper bound: the first, then two in each doubling.
const BOUNDED_BUCKETS: usize = 1 + 2 * (LAST_EXPONENT - FIRST_EXPONENT);

/// How durations are spread. The upper bounds are 16, 24, 32, 48, 64, … microseconds: any quantile is known to within
/// a half, at the cost of one addition to one bucket and one to the sum.
#[derive(Debug)]
pub struct Histogram {
    /// Not cumulative; the last one holds all durations above every bound.
    buckets: [AtomicU64; BOUNDED_BUCKETS + 1],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one duration, in microseconds.
    pub fn record(&self, duration_us: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(duration_us)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(duration_us, Ordering::Relaxed);
    }

    /// What was recorded up to now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(BOUNDED_BUCKETS);
        for (index, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if index < BOUNDED_BUCKETS {
                cumulative.push((upper_bound_us(index), count));
            }
        }
        HistogramSnapshot { cumulative, count, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// For each bound, ascending: the bound in microseconds, and how many durations were at most that.
    pub cumulative: Vec<(u64, u64)>,
    /// All durations, those above the last bound too.
    pub count: u64,
    pub sum_us: u64,
}

/// The index of the first bucket whose bound is not below the duration; `BOUNDED_BUCKETS` when there is none.
fn bucket_of(duration_us: u64) -> usize {
    // Bounds are inclusive, so 32 belongs below the bound 32: one less has the exponent of its bucket.
    let below = duration_us.saturating_sub(1);
    if below < 1 << FIRST_EXPONENT {
        return 0;
    }
    let exponent = below.ilog2() as usize;
    let is_upper_half = (below >> (exponent - 1)) & 1 == 1;
    (1 + 2 * (exponent - FIRST_EXPONENT) + usize::from(is_upper_half)).min(BOUNDED_BUCKETS)
}

fn upper_bound_us(index: usize) -> u64 {
    let halves = index + 1;
    let exponent = FIRST_EXPONENT + halves / 2;
    if halves % 2 == 1 { 1 << exponent } else { 3 << (exponent - 2) }
}

/// The counts of one shard.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines: processors fetch them in pairs.
pub struct ShardMetrics {
    /// Requests that arrived in a frame that could be read.
    pub requests: Counter,
    /// Requests that were answered with an error.
    pub errors: Counter,
    /// Reads that this shard coordinated.
    pub reads: Counter,
    /// Mutations that this shard applied.
    pub writes: Counter,
    /// Writes that a replica missed and that were kept for it.
    pub hints_stored: Counter,
    /// Hints that were given to their replica, or to the ones that have its partition now.
    pub hints_replayed: Counter,
    /// Writes that a replica missed and that were not kept, or not long enough.
    pub hints_dropped: Counter,
    /// Bytes of hints that wait.
    pub hints_pending_bytes: Gauge,
    /// Logged batches that their coordinator had left behind.
    pub batches_replayed: Counter,
    /// Reads whose replicas did not say the same.
    pub digest_mismatches: Counter,
    /// Further replicas that were asked because the first ones took long.
    pub speculative_reads: Counter,
    /// Mutations written to replicas that lacked something that was read.
    pub read_repairs: Counter,
    /// Client connections that are open.
    pub connections: Gauge,
    /// From the arrival of a request to its answer.
    pub request_duration: Histogram,
    pub internode: Arc<InternodeMetrics>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_a_histogram_double_in_two_steps() {
        let bounds: Vec<u64> = (0..BOUNDED_BUCKETS).map(upper_bound_us).collect();
        assert_eq!(bounds[..7], [16, 24, 32, 48, 64, 96, 128]);
        assert_eq!(bounds.last(), Some(&(1 << LAST_EXPONENT)));
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let expected = |duration| {
            (0..BOUNDED_BUCKETS).find(|&i| duration <= upper_bound_us(i)).unwrap_or(BOUNDED_BUCKETS)
        };
        let around_bounds =
            (0..BOUNDED_BUCKETS).map(upper_bound_us).flat_map(|bound| [bound - 1, bound, bound + 1]);
        for duration in around_bounds.chain([0, 1, 2, u64::MAX]) {
            assert_eq!(bucket_of(duration), expected(duration), "{duration} µs");
        }
    }

    #[test]
    fn a_histogram_counts_every_duration_and_their_sum() {
        let histogram = Histogram::default();
        for duration in [10, 20, 24, 1 << 40] {
            histogram.record(duration);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.cumulative[..3], [(16, 1), (24, 3), (32, 3)]);
        assert_eq!(snapshot.cumulative.last().map(|(_, count)| *count), Some(3));
        assert_eq!((snapshot.count, snapshot.sum_us), (4, 54 + (1 << 40)));
    }

    #[test]
    fn counters_grow_and_gauges_go_both_ways() {
        let metrics = ShardMetrics::default();
        metrics.requests.increment();
        metrics.requests.add(4);
        metrics.connections.increment();
        metrics.connections.increment();
        metrics.connections.decrement();
        assert_eq!((metrics.requests.get(), metrics.connections.get()), (5, 1));
    }
}
