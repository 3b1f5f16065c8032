//! The rate limit of background work: bytes that compactions write, or that a transfer fetches.
//!
//! Invariant: a pause of the work is not followed by a burst that makes up for it. Other work would wait for the burst.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Clock;

/// Spreads the bytes of work over time. Clones share one rate, on whichever threads they are.
#[derive(Debug, Clone)]
pub struct RateLimiter(Arc<Mutex<RateState>>);

#[derive(Debug)]
struct RateState {
    bytes_per_second: Option<u64>,
    /// The time, on the monotonic clock, up to which the bytes so far use up the rate.
    paid: Duration,
    /// How often the limit has changed.
    changes: u64,
}

/// The resolution of timers.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause without a look at the limit.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The delay that may be made up for: late timers, and waiting for other tasks.
const LATENESS_MAX: Duration = Duration::from_millis(20);

impl Default for RateLimiter {
    /// No limit.
    fn default() -> Self {
        Self::new(None)
    }
}

impl RateLimiter {
    /// A limit in bytes per second, on average. `None`: no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self(Arc::new(Mutex::new(RateState { bytes_per_second, paid: Duration::ZERO, changes: 0 })))
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut RateState) -> T) -> T {
        // The state is consistent even after a panic of another thread.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the limit for all clones.
    pub fn set(&self, bytes_per_second: Option<u64>) {
        self.with_state(|state| {
            let changes = state.changes + 1;
            *state = RateState { bytes_per_second, paid: Duration::ZERO, changes };
        });
    }

    pub fn bytes_per_second(&self) -> Option<u64> {
        self.with_state(|state| state.bytes_per_second)
    }

    /// Waits until `bytes` more may be written.
    pub async fn spend(&mut self, bytes: u64, clock: &dyn Clock) {
        self.spend_unless(bytes, clock, || false).await;
    }

    /// As [`Self::spend`]. The wait ends soon after `is_over` or a change of the limit.
    pub async fn spend_unless(&mut self, bytes: u64, clock: &dyn Clock, is_over: impl Fn() -> bool) {
        let now = clock.monotonic();
        let paid = self.with_state(|state| {
            let bytes_per_second = state.bytes_per_second?;
            let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
            state.paid = state.paid.max(now.saturating_sub(LATENESS_MAX)) + cost;
            Some((state.paid, state.changes))
        });
        let Some((paid, changes)) = paid else { return };
        loop {
            let pause = paid.saturating_sub(clock.monotonic()).min(LONGEST_PAUSE);
            if pause < LEAST_PAUSE || is_over() || self.with_state(|state| state.changes != changes) {
                return;
            }
            clock.sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_task_waits_for_its_bytes() {
        let clock = ManualClock::new(0);
        let mut limiter = RateLimiter::new(Some(1000));
        let mut second = std::pin::pin!(async {
            limiter.spend(500, &clock).await;
            limiter.spend(500, &clock).await;
        });
        assert!(second.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(500));
        assert!(second.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(500));
        assert!(second.as_mut().now_or_never().is_some());
        assert!(RateLimiter::new(None).spend(u64::MAX, &clock).now_or_never().is_some());
    }

    #[test]
    fn time_that_was_not_used_is_lost() {
        let clock = ManualClock::new(0);
        let mut limiter = RateLimiter::new(Some(1000));
        clock.advance(Duration::from_secs(45));
        let mut task = std::pin::pin!(limiter.spend(1000, &clock));
        assert!(task.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(979));
        assert!(task.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!(task.as_mut().now_or_never().is_some());
    }

    #[test]
    fn work_on_several_threads_shares_one_rate_which_may_change() {
        let clock = ManualClock::new(0);
        let first = RateLimiter::new(Some(1000));
        let (mut second, third) = (first.clone(), first.clone());
        assert!(first.clone().spend(1000, &clock).now_or_never().is_none());
        let mut waiting = std::pin::pin!(second.spend(1, &clock));
        assert!(waiting.as_mut().now_or_never().is_none(), "the other one has used up a second");
        first.set(None);
        assert_eq!(third.bytes_per_second(), None);
        assert!(first.clone().spend(u64::MAX, &clock).now_or_never().is_some());
    }
}
