//! Log lines of what is tried again and again: told when they change, then now and then.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often what stays the same is told.
const PERIOD: Duration = Duration::from_mins(1);

/// What was told last, by what it is about.
#[derive(Debug, Default)]
pub struct Notices {
    told: BTreeMap<String, (String, Duration)>,
}

impl Notices {
    /// Whether to tell `what` about `subject`: it is another than the last time, or that is a minute ago. `now`:
    /// [`helenus_engine::io::Clock::monotonic`].
    pub fn is_due(&mut self, subject: &impl ToString, what: &impl ToString, now: Duration) -> bool {
        let (subject, what) = (subject.to_string(), what.to_string());
        let is_known = self
            .told
            .get(&subject)
            .is_some_and(|(told, at)| *told == what && now.saturating_sub(*at) < PERIOD);
        if !is_known {
            self.told.insert(subject, (what, now));
        }
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_the_same_is_told_once_a_minute() {
        let mut notices = Notices::default();
        let at = Duration::from_secs;
        let mut is_due = |subject, what, second| notices.is_due(&subject, &what, at(second));
        assert!(is_due("a", "down", 0) && is_due("b", "down", 0));
        assert!(!is_due("a", "down", 59) && !is_due("b", "down", 59));
        assert!(is_due("a", "down", 60));
        assert!(is_due("a", "refuses", 61) && is_due("a", "down", 62));
        assert!(!is_due("a", "down", 63));
    }
}
