//! What the log of a feed still has: from when on it is complete.

use serde::{Deserialize, Serialize};

/// How long entries stay beyond the option `ttl` at most, in seconds: a consumer that begins with the oldest entry that the option promises
/// needs some time to ask for it.
const GRACE_SECONDS_MAX: u32 = 60;

/// The preparation of a restore takes less, and no two restores into one log begin within it.
const RESTORE_MICROS: i64 = 10_000_000;

/// How long entries are kept, in seconds, with this option `ttl`; `None`: for ever.
pub fn kept_seconds(ttl_seconds: u32) -> Option<u32> {
    (ttl_seconds > 0).then(|| ttl_seconds.saturating_add(ttl_seconds.min(GRACE_SECONDS_MAX)))
}

/// The past of a log, as far as consumers must know it. Times are microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedHistory {
    /// The feed was turned on for the first time: nothing is missing from before.
    pub begun_micros: i64,
    /// Entries may be missing from before this time, because the feed was off, or kept them for a shorter time than now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_from_micros: Option<i64>,
    /// The option `ttl` of the feed.
    pub ttl_seconds: u32,
}

impl FeedHistory {
    /// Of a feed that begins now.
    pub fn begin(now_micros: i64, ttl_seconds: u32) -> Self {
        Self { begun_micros: now_micros, complete_from_micros: None, ttl_seconds }
    }

    /// After a change of the table. `was_on`: the feed was on before it.
    #[must_use]
    pub fn changed(self, was_on: bool, ttl_seconds: u32, now_micros: i64) -> Self {
        let kept_from = |ttl_seconds| kept_seconds(ttl_seconds).map(|seconds| back(now_micros, seconds));
        let missing_until = match (was_on, kept_from(self.ttl_seconds), kept_from(ttl_seconds)) {
            (false, ..) => Some(now_micros),
            (true, Some(before), after) if after.is_none_or(|after| after < before) => {
                Some(before).filter(|before| *before > self.begun_micros)
            }
            _ => None,
        };
        let complete_from_micros = self.complete_from_micros.max(missing_until);
        Self { complete_from_micros, ttl_seconds, ..self }
    }

    /// After rows of a snapshot were put into the log: they may lie in streams that consumers know no more, or behind where they have read.
    /// `None`: it is known already, for the same snapshot.
    #[must_use]
    pub fn restored(self, now_micros: i64) -> Option<Self> {
        let known =
            self.complete_from_micros.is_some_and(|from| from > now_micros.saturating_sub(RESTORE_MICROS));
        (!known)
            .then(|| Self { complete_from_micros: self.complete_from_micros.max(Some(now_micros)), ..self })
    }

    /// The time from which on the log is complete; `None`: it is from the beginning.
    pub fn kept_from_micros(&self, now_micros: i64) -> Option<i64> {
        let by_age = kept_seconds(self.ttl_seconds).map(|seconds| back(now_micros, seconds));
        by_age.filter(|kept| *kept > self.begun_micros).max(self.complete_from_micros)
    }
}

fn back(now_micros: i64, seconds: u32) -> i64 {
    now_micros.saturating_sub(i64::from(seconds) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const BEGUN: i64 = 1_000 * SECOND;

    #[test]
    fn entries_stay_a_little_longer_than_the_option_says() {
        assert_eq!([0, 5, 60, 86_400].map(kept_seconds), [None, Some(10), Some(120), Some(86_460)]);
        assert_eq!(kept_seconds(u32::MAX), Some(u32::MAX));
    }

    #[test]
    fn a_feed_is_complete_until_its_first_entries_expire() {
        let history = FeedHistory::begin(BEGUN, 30);
        assert_eq!(history.kept_from_micros(BEGUN + 60 * SECOND), None);
        assert_eq!(history.kept_from_micros(BEGUN + 61 * SECOND), Some(BEGUN + SECOND));
        assert_eq!(FeedHistory::begin(BEGUN, 0).kept_from_micros(i64::MAX), None);
    }

    #[test]
    fn a_longer_ttl_does_not_bring_back_what_has_expired() {
        let now = BEGUN + 100 * SECOND;
        let longer = FeedHistory::begin(BEGUN, 30).changed(true, 86_400, now);
        assert_eq!(longer.kept_from_micros(now), Some(now - 60 * SECOND));
        assert_eq!(longer.changed(true, 0, now + SECOND).kept_from_micros(i64::MAX), Some(now - 60 * SECOND));
        let young = FeedHistory::begin(BEGUN, 86_400).changed(true, 0, now);
        assert_eq!(young.kept_from_micros(i64::MAX), None);
        let shorter = FeedHistory::begin(BEGUN, 86_400).changed(true, 10, now);
        assert_eq!(shorter.kept_from_micros(now), Some(now - 20 * SECOND));
    }

    #[test]
    fn a_restored_log_is_complete_from_the_restore_on() {
        let restored = FeedHistory::begin(BEGUN, 0).restored(BEGUN + SECOND).unwrap();
        assert_eq!(restored.kept_from_micros(i64::MAX), Some(BEGUN + SECOND));
        assert_eq!(restored.restored(BEGUN + 2 * SECOND), None);
        let again = restored.restored(BEGUN + 20 * SECOND).unwrap();
        assert_eq!(again.kept_from_micros(i64::MAX), Some(BEGUN + 20 * SECOND));
    }

    #[test]
    fn nothing_is_kept_of_a_time_without_a_feed() {
        let now = BEGUN + SECOND;
        let again = FeedHistory::begin(BEGUN, 0).changed(false, 0, now);
        assert_eq!(again.kept_from_micros(now + SECOND), Some(now));
        assert_eq!(again.changed(true, 0, now + SECOND), again);
    }
}
