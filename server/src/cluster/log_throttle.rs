//! Throttles the log lines of operations that are retried: a line is written when it changes, then once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

/// Interval at which an unchanged line is repeated.
const REPEATED_LINE_PERIOD: Duration = Duration::from_mins(1);

/// The last line written for each subject.
#[derive(Debug, Default)]
pub struct LogThrottle {
    written: BTreeMap<String, (String, Duration)>,
}

impl LogThrottle {
    /// Whether the line `what` about `subject` is due: it differs from the last one about this subject, or that one
    /// was written a minute ago. `now`: [`helenus_engine::io::Clock::monotonic`].
    pub fn is_due(&mut self, subject: &impl ToString, what: &impl ToString, now: Duration) -> bool {
        let (subject, what) = (subject.to_string(), what.to_string());
        let is_known = self
            .written
            .get(&subject)
            .is_some_and(|(written, at)| *written == what && now.saturating_sub(*at) < REPEATED_LINE_PERIOD);
        if !is_known {
            self.written.insert(subject, (what, now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_line_is_due_once_a_minute() {
        let mut notices = LogThrottle::default();
        let at = Duration::from_secs;
        let mut is_due = |subject, what, second| notices.is_due(&subject, &what, at(second));
        assert!(is_due("a", "down", 0) && is_due("b", "down", 0));
        assert!(!is_due("a", "down", 59) && !is_due("b", "down", 59));
        assert!(is_due("a", "down", 60));
        assert!(is_due("a", "refuses", 61) && is_due("a", "down", 62));
        assert!(!is_due("a", "down", 63));
    }
}
