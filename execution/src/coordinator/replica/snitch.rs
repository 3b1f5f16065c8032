//! Which replicas answer fast: Cassandra's dynamic snitch, as a shard sees it.
//!
//! The order of nearness stands as long as no replica in it is slower than the one that would stand there by its latencies, by more than
//! `dynamic_snitch_badness_percent`. Then the replicas of each data center are ordered by their latencies.
//!
//! Invariants:
//! * A replica that is given up counts with the time that it was waited for, if that is longer than it takes otherwise: else one that never answers in
//!   time would never be slow. One that fails counts as slow, however fast it does.
//! * What is known is forgotten after `dynamic_snitch_reset_interval_ms`, so that a replica that is not asked any more is tried again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_ring::HostId;
use helenus_ring::member::Member;

use crate::shard::context::ShardContext;

/// The weight of the newest latency in the average.
const NEWEST: f64 = 0.1;
/// What a failure counts as, at least.
const FAILURE: Duration = Duration::from_secs(1);

/// Averages of the latencies of replicas, in microseconds.
#[derive(Debug, Default)]
pub struct ReplicaLatencies {
    micros: RefCell<BTreeMap<HostId, f64>>,
    /// When the averages began, in monotonic time.
    since: Cell<Duration>,
}

impl ReplicaLatencies {
    fn note(&self, replica: HostId, latency: Duration) {
        let latency = latency.as_secs_f64() * 1e6;
        let mut micros = self.micros.borrow_mut();
        let average = micros.entry(replica).or_insert(latency);
        *average += NEWEST * (latency - *average);
    }

    /// A replica takes at least this long.
    fn note_at_least(&self, replica: HostId, latency: Duration) {
        let known = self.micros.borrow().get(&replica).copied();
        if known.is_none_or(|average| latency.as_secs_f64() * 1e6 > average) {
            self.note(replica, latency);
        }
    }

    fn forget_old(&self, now: Duration, kept: Duration) {
        if now.saturating_sub(self.since.get()) >= kept {
            self.since.set(now);
            self.micros.borrow_mut().clear();
        }
    }

    /// Orders replicas by latency if their order is worse than it may be. `is_far`: in another data center. They are in the order of nearness.
    fn order(&self, members: &mut [Arc<Member>], is_far: impl Fn(&Member) -> bool, badness_percent: u32) {
        let micros = self.micros.borrow();
        // One that is not known is tried.
        let of = |member: &Member| micros.get(&member.host_id).copied().unwrap_or(0.0);
        let rank = |one: &Arc<Member>, other: &Arc<Member>| {
            is_far(one).cmp(&is_far(other)).then_with(|| of(one).total_cmp(&of(other)))
        };
        let mut fastest = members.to_vec();
        fastest.sort_by(rank);
        let factor = 1.0 + f64::from(badness_percent) / 100.0;
        if members.iter().zip(&fastest).any(|(near, fast)| of(near) > of(fast) * factor) {
            members.clone_from_slice(&fastest);
        }
    }
}

/// Orders replicas that are in the order of nearness by their latencies, if some are too slow for their place.
pub fn order(context: &ShardContext, members: &mut [Arc<Member>]) {
    let config = &context.node.config;
    if !config.dynamic_snitch || members.len() < 2 {
        return;
    }
    let latencies = &context.replication().replica_latencies;
    latencies.forget_old(
        context.clock.monotonic(),
        Duration::from_millis(config.dynamic_snitch_reset_interval_ms),
    );
    let is_far = |member: &Member| member.data_center != config.data_center;
    latencies.order(members, is_far, config.dynamic_snitch_badness_percent);
}

/// A request to a replica whose latency is measured.
pub struct MeasuredRequest {
    context: Rc<ShardContext>,
    replica: HostId,
    began: Duration,
    is_over: bool,
}

impl MeasuredRequest {
    pub fn begin(context: &Rc<ShardContext>, replica: HostId) -> Self {
        Self { context: context.clone(), replica, began: context.clock.monotonic(), is_over: false }
    }

    fn elapsed(&self) -> Duration {
        self.context.clock.monotonic().saturating_sub(self.began)
    }

    /// The replica has answered. Returns the time that it took.
    pub fn end(mut self, has_failed: bool) -> Duration {
        self.is_over = true;
        let elapsed = self.elapsed();
        let counted = if has_failed { elapsed.max(FAILURE) } else { elapsed };
        self.context.replication().replica_latencies.note(self.replica, counted);
        elapsed
    }
}

impl Drop for MeasuredRequest {
    /// The replica is given up, if it has not answered.
    fn drop(&mut self) {
        if !self.is_over {
            self.context.replication().replica_latencies.note_at_least(self.replica, self.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use helenus_testing::member;
    use uuid::Uuid;

    use super::*;

    fn order(latencies: &ReplicaLatencies, members: &[Arc<Member>]) -> Vec<HostId> {
        let mut ordered = members.to_vec();
        latencies.order(&mut ordered, |member| member.data_center != "near", 100);
        ordered.iter().map(|member| member.host_id).collect()
    }

    #[test]
    fn a_slow_replica_is_asked_last_in_its_data_center_until_it_is_forgotten() {
        let replica = |number, data_center: &str| {
            Arc::new(member(Uuid::from_u128(number), data_center, "rack", &[number as i64]))
        };
        let members = [replica(1, "near"), replica(2, "near"), replica(3, "near"), replica(4, "far")];
        let [first, second, third, far] = [0, 1, 2, 3].map(|index| members[index].host_id);
        let latencies = ReplicaLatencies::default();
        for _ in 0..100 {
            latencies.note(first, Duration::from_micros(900));
            latencies.note(second, Duration::from_micros(600));
            latencies.note(third, Duration::from_micros(500));
            latencies.note(far, Duration::from_micros(300));
        }
        assert_eq!(order(&latencies, &members), [first, second, third, far], "none is twice as slow");
        for _ in 0..100 {
            latencies.note(first, Duration::from_millis(40));
        }
        assert_eq!(order(&latencies, &members), [third, second, first, far]);
        // Given up early.
        latencies.note_at_least(first, Duration::from_micros(1));
        assert_eq!(order(&latencies, &members), [third, second, first, far]);
        latencies.forget_old(Duration::from_mins(1), Duration::from_mins(10));
        assert_eq!(order(&latencies, &members), [third, second, first, far]);
        latencies.forget_old(Duration::from_mins(11), Duration::from_mins(10));
        assert_eq!(order(&latencies, &members), [first, second, third, far]);
    }
}
