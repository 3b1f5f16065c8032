//! The rate limit of background work: bytes that a compaction writes, or that a transfer fetches.
//!
//! Invariant: a pause of the work is not followed by a burst that makes up for it. Other work would wait for the burst.

use std::time::Duration;

use crate::io::Clock;

/// Spreads the bytes of one piece of work over time.
#[derive(Debug, Clone, Copy)]
pub struct RateLimiter {
    bytes_per_second: Option<u64>,
    /// The time, on the monotonic clock, up to which the bytes so far use up the rate.
    paid: Duration,
}

/// The resolution of timers.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// The delay that may be made up for: late timers, and waiting for other tasks.
const LATENESS_MAX: Duration = Duration::from_millis(20);

impl RateLimiter {
    /// A limit in bytes per second, on average. `None`: no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, paid: Duration::ZERO }
    }

    /// Waits until `bytes` more may be written.
    pub async fn spend(&mut self, bytes: u64, clock: &dyn Clock) {
        let Some(bytes_per_second) = self.bytes_per_second else { return };
        let now = clock.monotonic();
        let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64);
        self.paid = self.paid.max(now.saturating_sub(LATENESS_MAX)) + cost;
        let pause = self.paid.saturating_sub(now);
        if pause >= LEAST_PAUSE {
            clock.sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::io::ManualClock;

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
}
