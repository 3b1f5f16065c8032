//! Counters of one shard.
//!
//! Invariant: each shard writes only to its own `ShardMetrics`, which shares no cache line with that of another
//! shard. So counting costs no more on a hundred cores than on one. Any thread may read; a reader sees each number by
//! itself, not a consistent set (relaxed atomics).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helenus_internode::metrics::{Counter, Gauge, InternodeMetrics};

/// The first bucket of a histogram counts durations of at most `2^FIRST_EXPONENT` microseconds (16 µs).
const FIRST_EXPONENT: usize = 4;
/// The last bounded bucket ends at `2^LAST_EXPONENT` microseconds (16.8 s).
const LAST_EXPONENT: usize = 24;
/// Number of buckets with an upper bound: the first, then two for each doubling.
const BOUNDED_BUCKETS: usize = 1 + 2 * (LAST_EXPONENT - FIRST_EXPONENT);

/// A distribution of durations. The upper bounds are 16, 24, 32, 48, 64, … microseconds, so any quantile is known to
/// within a half. Recording adds to one bucket and to the sum.
#[derive(Debug)]
pub struct Histogram {
    /// Not cumulative. The last bucket counts the durations above every bound.
    buckets: [AtomicU64; BOUNDED_BUCKETS + 1],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Records one duration, in microseconds.
    pub fn record(&self, duration_us: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(duration_us)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(duration_us, Ordering::Relaxed);
    }

    /// The durations recorded so far.
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

/// The content of a histogram at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// For each bound, ascending: the bound in microseconds, and the number of durations that are at most the bound.
    pub cumulative: Vec<(u64, u64)>,
    /// Number of all durations, those above the last bound included.
    pub count: u64,
    pub sum_us: u64,
}

impl HistogramSnapshot {
    /// Adds what another shard has recorded.
    pub fn add(&mut self, other: &Self) {
        if self.cumulative.is_empty() {
            self.cumulative.clone_from(&other.cumulative);
        } else {
            for ((_, count), (_, more)) in self.cumulative.iter_mut().zip(&other.cumulative) {
                *count += more;
            }
        }
        self.count += other.count;
        self.sum_us += other.sum_us;
    }

    /// A bound, in microseconds, that this part (0 to 1) of the durations does not exceed; of those above the last bound nothing else is
    /// known than that bound. 0: there are none.
    pub fn quantile_us(&self, part: f64) -> u64 {
        if self.count == 0 { 0 } else { self.bound_us(rank(self.count, part)) }
    }

    /// The smallest bucket bound, in microseconds, with a cumulative count of at least `wanted`; the last bound if there is none.
    fn bound_us(&self, wanted: u64) -> u64 {
        let reached = self.cumulative.iter().find(|(_, count)| *count >= wanted).or(self.cumulative.last());
        reached.map_or(0, |(bound_us, _)| *bound_us)
    }
}

/// How often something was done in the last minutes. A rate from the past counts half after three and a half minutes.
#[derive(Debug, Default)]
pub struct RecentRate {
    /// At the time `counted_at`.
    per_second: Cell<f64>,
    /// Of the monotonic clock, in seconds.
    counted_at: Cell<u64>,
    /// What was done since then.
    uncounted: Cell<u64>,
}

impl RecentRate {
    /// The time after which a rate counts only by its 2.7th part.
    const PERIOD_SECONDS: f64 = 300.0;

    /// `now`: of the monotonic clock.
    pub fn record(&self, now: Duration) {
        self.count(now);
        self.uncounted.set(self.uncounted.get() + 1);
    }

    pub fn per_second(&self, now: Duration) -> f64 {
        self.count(now);
        self.per_second.get() + self.uncounted.get() as f64 / Self::PERIOD_SECONDS
    }

    fn count(&self, now: Duration) {
        let before = self.counted_at.replace(now.as_secs());
        if before != now.as_secs() {
            let passed = now.as_secs().saturating_sub(before) as f64;
            let rate = self.per_second.get() + self.uncounted.take() as f64 / Self::PERIOD_SECONDS;
            self.per_second.set(rate * (-passed / Self::PERIOD_SECONDS).exp());
        }
    }
}

/// The durations of one kind of work on a shard, and how often it was done lately.
#[derive(Debug, Default)]
pub struct Timings {
    durations: Histogram,
    rate: RecentRate,
}

impl Timings {
    /// `now`: of the monotonic clock.
    pub fn record(&self, duration_us: u64, now: Duration) {
        self.durations.record(duration_us);
        self.rate.record(now);
    }

    pub fn snapshot(&self, now: Duration) -> TimingsSnapshot {
        TimingsSnapshot { durations: self.durations.snapshot(), per_second: self.rate.per_second(now) }
    }
}

/// The content of [`Timings`] at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimingsSnapshot {
    pub durations: HistogramSnapshot,
    pub per_second: f64,
}

impl TimingsSnapshot {
    /// Adds what another shard has recorded.
    pub fn add(&mut self, other: &Self) {
        self.durations.add(&other.durations);
        self.per_second += other.per_second;
    }
}

/// A distribution of counts (rows, partitions): 0 is known, every other one to within a half.
#[derive(Debug, Default)]
pub struct CountHistogram {
    zeros: AtomicU64,
    others: Histogram,
}

impl CountHistogram {
    /// A count of 1 is recorded as a duration of this many microseconds, the bound of a histogram's first bucket.
    const UNIT: u64 = 1 << FIRST_EXPONENT;

    pub fn record(&self, count: u64) {
        if count == 0 {
            self.zeros.fetch_add(1, Ordering::Relaxed);
        } else {
            self.others.record(count.saturating_mul(Self::UNIT));
        }
    }

    pub fn snapshot(&self) -> CountSnapshot {
        CountSnapshot { zeros: self.zeros.load(Ordering::Relaxed), others: self.others.snapshot() }
    }
}

/// The content of a [`CountHistogram`] at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountSnapshot {
    zeros: u64,
    others: HistogramSnapshot,
}

impl CountSnapshot {
    /// Adds what another shard has recorded.
    pub fn add(&mut self, other: &Self) {
        self.zeros += other.zeros;
        self.others.add(&other.others);
    }

    /// How many counts were recorded.
    pub fn recorded(&self) -> u64 {
        self.zeros + self.others.count
    }

    /// As [`HistogramSnapshot::quantile_us`].
    pub fn quantile(&self, part: f64) -> u64 {
        if self.others.count == 0 {
            return 0;
        }
        match rank(self.recorded(), part).checked_sub(self.zeros) {
            None | Some(0) => 0,
            Some(wanted) => self.others.bound_us(wanted) / CountHistogram::UNIT,
        }
    }
}

/// The rank of a quantile among `count` values in ascending order, from 1. `part`: the quantile, 0 to 1.
fn rank(count: u64, part: f64) -> u64 {
    (count as f64 * part).ceil().max(1.0) as u64
}

/// The index of the first bucket whose bound is at least the duration; `BOUNDED_BUCKETS` when there is no such
/// bucket.
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

/// What a request of a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A read of named partitions.
    Read,
    /// A read of a range.
    Scan,
    Write,
    /// A write with conditions.
    Conditional,
}

impl Operation {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::Scan, Self::Write, Self::Conditional];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Scan => "scan",
            Self::Write => "write",
            Self::Conditional => "conditional",
        }
    }
}

/// What came of an attempt to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    Success,
    /// There is no such role, or it has another password.
    WrongCredentials,
    /// The role may not log in.
    NotPermitted,
    /// What the client sent is no name and password.
    Malformed,
    /// The client has no certificate that belongs to a role.
    Certificate,
    /// Too many attempts wait; the client may try again.
    Overloaded,
    /// The node does not know whether its roles are the newest.
    RolesUnconfirmed,
    /// The client took too long, or its place was needed for others.
    Abandoned,
}

impl LoginResult {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::WrongCredentials,
        Self::NotPermitted,
        Self::Malformed,
        Self::Certificate,
        Self::Overloaded,
        Self::RolesUnconfirmed,
        Self::Abandoned,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::WrongCredentials => "wrong_credentials",
            Self::NotPermitted => "not_permitted",
            Self::Malformed => "malformed",
            Self::Certificate => "certificate",
            Self::Overloaded => "overloaded",
            Self::RolesUnconfirmed => "roles_unconfirmed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The counts of one shard.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines: processors fetch them in pairs.
pub struct ShardMetrics {
    /// Requests received in a readable frame.
    pub requests: Counter,
    /// Requests answered with an error.
    pub errors: Counter,
    /// Reads coordinated by this shard.
    pub reads: Counter,
    /// Mutations that this shard applied.
    pub writes: Counter,
    /// Writes that a replica missed and that were stored as hints.
    pub hints_stored: Counter,
    /// Hints delivered to their replica, or to the present replicas of the partition.
    pub hints_replayed: Counter,
    /// Writes that a replica missed and that were not stored as hints, or whose hints were dropped before delivery.
    pub hints_dropped: Counter,
    /// Size of the stored hints, in bytes.
    pub hints_pending_bytes: Gauge,
    /// Logged batches replayed because their coordinator had died or given up.
    pub batches_replayed: Counter,
    /// Reads whose replicas returned different digests.
    pub digest_mismatches: Counter,
    /// Additional replicas that were asked because the first ones were slow.
    pub speculative_reads: Counter,
    /// Reads that were passed on to other replicas because rows of this node could not be read.
    pub reads_of_others: Counter,
    /// Mutations written to replicas that lacked data that was read.
    pub read_repairs: Counter,
    /// Bytes of rows that this shard has read for the comparisons of repairs.
    pub repair_bytes_compared: Counter,
    /// Mutations that repairs have written to replicas that lacked them.
    pub repair_mutations: Counter,
    /// TLS handshakes of clients that have failed.
    pub failed_handshakes: Counter,
    /// Those of clients of the administration port, and logins there that were refused; for the first shard.
    pub failed_admin_handshakes: Counter,
    pub failed_admin_logins: Counter,
    /// Requests and logins that were refused because the roles of the node may be too old.
    pub roles_unconfirmed: Counter,
    /// Warnings of guardrails, for clients and of partitions. Those of partitions are counted for the first shard, by threads in the
    /// background.
    pub guardrail_warnings: Counter,
    /// Requests that a guardrail refused, and partitions that violate the failure threshold of one.
    pub guardrail_failures: Counter,
    /// Reads of named partitions, reads of ranges and writes that were refused because of a denied partition.
    pub denylisted_reads: Counter,
    pub denylisted_range_reads: Counter,
    pub denylisted_writes: Counter,
    /// Requests that were refused because their role makes too many.
    pub rate_limited: Counter,
    /// What requests were charged (docs/costs.md), as far as it is counted.
    pub charge: Counter,
    /// Turns of this thread that waited because their role had used more of it than others.
    pub turns_waited: Counter,
    /// Writes that this shard did not begin because disks of their replicas were full.
    pub writes_refused_for_room: Counter,
    /// Snapshots taken before a table was dropped or truncated.
    pub auto_snapshots: Counter,
    /// Snapshots removed because they had expired.
    pub snapshots_expired: Counter,
    /// Entries that were read, for the views, of the logs of changes.
    pub view_entries_read: Counter,
    /// Rows (or groups) of base tables whose rows in views were recomputed.
    pub view_rows_recomputed: Counter,
    /// Those of them that were left out because an expression failed on their values.
    pub view_rows_failed: Counter,
    /// Open client connections.
    pub connections: Gauge,
    /// Time from the arrival of a request to its answer.
    pub request_duration: Histogram,
    /// The part of it that reads and writes rows, in the order of [`Operation::ALL`].
    pub operations: [Histogram; Operation::ALL.len()],
    /// Requests that took longer than `slow_query_log_timeout_ms`.
    pub slow_requests: Counter,
    /// Executions of prepared statements, also those of batches.
    pub prepared_executed: Counter,
    /// Executions of statements that came as texts.
    pub texts_executed: Counter,
    /// The partitions of each batch, by the kind of the batch: logged, unlogged, of counters.
    pub batch_partitions: [CountHistogram; 3],
    /// Attempts of clients to log in, in the order of [`LoginResult::ALL`].
    pub logins: [Counter; LoginResult::ALL.len()],
    /// Hashes of passwords that were computed for them.
    pub password_hashes: Counter,
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
    fn a_quantile_is_the_bound_that_so_many_do_not_exceed() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile_us(0.5), 0);
        for duration in [10, 20, 30, 1_000] {
            histogram.record(duration);
        }
        let mut both = HistogramSnapshot::default();
        both.add(&histogram.snapshot());
        both.add(&histogram.snapshot());
        assert_eq!((both.count, both.sum_us), (8, 2_120));
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|part| both.quantile_us(part)), [16, 16, 24, 32, 1_024]);
    }

    #[test]
    fn a_rate_follows_what_is_done_and_fades() {
        let rate = RecentRate::default();
        for second in 0..3_000 {
            (0..10).for_each(|_| rate.record(Duration::from_secs(second)));
        }
        let at = |seconds| rate.per_second(Duration::from_secs(seconds));
        assert!((at(3_000) - 10.0).abs() < 0.1, "{}", at(3_000));
        assert!((at(3_208) - 5.0).abs() < 0.1, "{}", at(3_208));
        assert!(at(10_000) < 0.001);
    }

    #[test]
    fn small_counts_are_exact() {
        let histogram = CountHistogram::default();
        for count in [1, 2, 2, 3, 5] {
            histogram.record(count);
        }
        let mut both = CountSnapshot::default();
        both.add(&histogram.snapshot());
        assert_eq!(
            (both.recorded(), both.quantile(0.5), both.quantile(0.8), both.quantile(1.0)),
            (5, 2, 3, 6)
        );
        assert_eq!(CountSnapshot::default().quantile(1.0), 0);
        (0..5).for_each(|_| histogram.record(0));
        let with_zeros = histogram.snapshot();
        assert_eq!(
            (
                with_zeros.recorded(),
                with_zeros.quantile(0.5),
                with_zeros.quantile(0.6),
                with_zeros.quantile(1.0)
            ),
            (10, 0, 1, 6)
        );
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
