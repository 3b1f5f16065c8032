//! The machine's clock: the only file that reads it.
#![allow(clippy::disallowed_methods, reason = "this is the one place that may ask the machine for the time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::LocalBoxFuture;

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

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
