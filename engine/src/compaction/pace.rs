//! How fast a compaction may write.

use std::time::Duration;

use crate::io::Clock;

/// Spreads the bytes of one compaction over time.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    bytes_per_second: Option<u64>,
    started: Option<Duration>,
    bytes: u64,
}

/// Sleeping for less would cost more than it smooths.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

impl Pace {
    /// No more than this on average; `None`: as fast as it goes.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, started: None, bytes: 0 }
    }

    /// Waits until `bytes` more may be written.
    pub async fn spend(&mut self, bytes: u64, clock: &dyn Clock) {
        let Some(bytes_per_second) = self.bytes_per_second else { return };
        let now = clock.monotonic();
        let started = *self.started.get_or_insert(now);
        self.bytes += bytes;
        let due = started + Duration::from_secs_f64(self.bytes as f64 / bytes_per_second.max(1) as f64);
        let pause = due.saturating_sub(now);
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
        let mut pace = Pace::new(Some(1000));
        let mut second = std::pin::pin!(async {
            pace.spend(500, &clock).await;
            pace.spend(500, &clock).await;
        });
        assert!(second.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(500));
        assert!(second.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_millis(500));
        assert!(second.as_mut().now_or_never().is_some());
        assert!(Pace::new(None).spend(u64::MAX, &clock).now_or_never().is_some());
    }
}
