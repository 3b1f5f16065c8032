//! Failed compactions: kept by table or by file, tried again after a pause that doubles, and reported.
//!
//! A damaged input is the file's own trouble: the file is left alone, and the others of its table are compacted without it. Any other
//! failure (as an error while writing) concerns all compactions of the table. A compaction for which the disk has no room is no failure.

use std::time::Duration;

/// The pause after the first failure, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// The pause after an operator has stopped a compaction: time to forbid them, or to change the strategy.
const STOPPED_PAUSE: Duration = Duration::from_mins(10);

/// The last failure of a table or file, and when the compaction is tried again.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub attempts: u32,
    /// On the monotonic clock.
    pub retry_at: Duration,
    pub reason: String,
}

impl Failure {
    pub fn after(before: Option<&Self>, reason: String, now: Duration) -> Self {
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let doubled = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(16));
        Self { attempts, retry_at: now + doubled.min(LONGEST_PAUSE), reason }
    }

    /// The pause of a table whose compaction an operator has stopped.
    pub fn stopped(now: Duration) -> Self {
        Self { attempts: 1, retry_at: now + STOPPED_PAUSE, reason: "stopped by an operator".to_owned() }
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.retry_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let mut failure = None;
        let mut pauses = Vec::new();
        for _ in 0..14 {
            let next = Failure::after(failure.as_ref(), "full".to_owned(), Duration::from_secs(100));
            pauses.push(next.retry_at.as_secs() - 100);
            failure = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
    }
}
