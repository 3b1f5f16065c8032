//! The machine's clock: the only file that reads it.
#![allow(clippy::disallowed_methods, reason = "this is the one place that may ask the machine for the time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::LocalBoxFuture;
use rustix::time::{ClockId, clock_gettime};

use super::clock::Clock;

/// The machine's wall clock and monotonic clock; sleeping needs a tokio runtime with time enabled.
#[derive(Debug, Clone)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now_micros(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn thread_cpu(&self) -> Duration {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        // Neither is negative, and there are less than a milliard nanoseconds.
        Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs() as u32)
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_processor_while_it_works_and_not_while_it_waits() {
        let clock = RealClock::new();
        let (used, began) = (clock.thread_cpu(), clock.monotonic());
        std::thread::park_timeout(Duration::from_millis(20));
        let waiting = clock.thread_cpu().saturating_sub(used);
        let waited = clock.monotonic().saturating_sub(began);
        assert!(waiting < waited, "{waiting:?} of {waited:?}");
        let used = clock.thread_cpu();
        while clock.thread_cpu() == used {
            std::hint::spin_loop();
        }
        assert!(clock.thread_cpu() > used);
    }
}
