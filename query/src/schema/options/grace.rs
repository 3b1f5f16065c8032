//! The times within which writes to a table are delivered: that of now, and shorter ones of before.
//!
//! A write that a replica has missed must not be delivered when a deletion of its rows may have been purged. Deletions were purged by the
//! `gc_grace_seconds` of their time. So what was written while it was shorter keeps the shorter time after it was raised: hints, batches and
//! commits alike, whoever keeps them, and for however long.
//!
//! Invariant: of the times of before only those are kept that are shorter than that of now, the shortest and oldest first.

use serde::{Deserialize, Serialize};

use super::TableOptions;

/// The most shorter times that are kept. Of more, the two oldest become one, with the seconds of the first and the end of the second.
const EARLIER_GRACES_MAX: usize = 8;
/// How far the clocks of two coordinators may be apart, in microseconds: as far as members accept when they join.
const CLOCKS_APART_MICROS: i64 = 10_000_000;

/// A time of delivery that was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierGrace {
    pub seconds: u32,
    /// It holds for what was written up to this time, in microseconds since the epoch.
    pub until_micros: i64,
}

impl TableOptions {
    /// How long something that was written at that time may be under way to a replica that has missed it.
    pub fn delivery_seconds_of(&self, written_micros: i64) -> u32 {
        let earlier = self.earlier_graces.iter();
        let held = earlier
            .filter(|earlier| written_micros <= earlier.until_micros.saturating_add(CLOCKS_APART_MICROS));
        held.map(|earlier| earlier.seconds).fold(self.delivery_seconds(), u32::min)
    }

    /// Deletions from before this time may have been purged by some replica, in microseconds since the epoch.
    pub fn purged_before_micros(&self, now_micros: i64) -> i64 {
        let before = |now_micros: i64, seconds: u32| {
            now_micros.saturating_sub(i64::from(seconds) * 1_000_000).saturating_add(CLOCKS_APART_MICROS)
        };
        let earlier = self.earlier_graces.iter().map(|earlier| before(earlier.until_micros, earlier.seconds));
        earlier.fold(before(now_micros, self.delivery_seconds()), i64::max)
    }

    /// Keeps the shorter times of these options of before, which are replaced now.
    pub fn keep_graces(&mut self, before: &Self, now_micros: i64) {
        let (old, new) = (before.delivery_seconds(), self.delivery_seconds());
        if old == new {
            return;
        }
        let graces = &mut self.earlier_graces;
        // What was written then has expired under the time of before, and so does not come any more, or falls under a later time below.
        let is_over = |earlier: &EarlierGrace| {
            let since_micros = now_micros.saturating_sub(earlier.until_micros);
            since_micros > i64::from(old) * 1_000_000 + CLOCKS_APART_MICROS
        };
        graces.retain(|earlier| !is_over(earlier));
        let last_end = graces.last().map_or(i64::MIN, |last| last.until_micros);
        graces.push(EarlierGrace { seconds: old, until_micros: now_micros.max(last_end) });
        graces.retain(|earlier| earlier.seconds < new);
        if graces.len() > EARLIER_GRACES_MAX {
            let second = graces.remove(1);
            if let Some(first) = graces.first_mut() {
                first.until_micros = second.until_micros;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: u32 = 86_400;

    fn of(seconds: u32) -> TableOptions {
        TableOptions { gc_grace_seconds: seconds, ..TableOptions::default() }
    }

    fn altered(before: &TableOptions, seconds: u32, now_micros: i64) -> TableOptions {
        let mut options = TableOptions { gc_grace_seconds: seconds, ..before.clone() };
        options.keep_graces(before, now_micros);
        options
    }

    #[test]
    fn what_was_written_under_a_shorter_time_keeps_it() {
        let raised = altered(&of(60), DAY, 1_000 * SECOND);
        assert_eq!(raised.delivery_seconds_of(900 * SECOND), 60);
        // By a coordinator whose clock is ahead.
        assert_eq!(raised.delivery_seconds_of(1_009 * SECOND), 60);
        assert_eq!(raised.delivery_seconds_of(1_011 * SECOND), DAY);
        let lowered = altered(&of(DAY), 60, 1_000 * SECOND);
        assert_eq!((lowered.delivery_seconds_of(0), lowered.earlier_graces.len()), (60, 0));
        // Raised again: what is from before the first change falls under the time in between.
        let again = altered(&lowered, DAY, 2_000 * SECOND);
        assert_eq!(again.delivery_seconds_of(500 * SECOND), 60);
    }

    #[test]
    fn deletions_may_have_been_purged_by_each_time_of_before() {
        assert_eq!(of(60).purged_before_micros(1_000 * SECOND), 950 * SECOND);
        let raised = altered(&of(60), DAY, 1_000 * SECOND);
        assert_eq!(raised.purged_before_micros(2_000 * SECOND), 950 * SECOND);
    }

    #[test]
    fn times_that_have_no_effect_any_more_are_forgotten() {
        let twice = altered(&altered(&of(60), 600, 0), DAY, 100 * SECOND);
        assert_eq!((twice.delivery_seconds_of(-1), twice.delivery_seconds_of(50 * SECOND)), (60, 600));
        assert_eq!(altered(&twice, 30, 200 * SECOND).earlier_graces, []);
        assert_eq!(altered(&twice, 600, 200 * SECOND).delivery_seconds_of(0), 60);
        let much_later = altered(&altered(&of(60), 600, 0), DAY, 10_000 * SECOND);
        assert_eq!(much_later.earlier_graces, [EarlierGrace { seconds: 600, until_micros: 10_000 * SECOND }]);
        let same = altered(&twice, DAY, 1 << 60);
        assert_eq!(same.earlier_graces, twice.earlier_graces);
    }

    #[test]
    fn a_clock_that_goes_back_shortens_no_earlier_time() {
        let twice = altered(&altered(&of(60), 600, 5_000 * SECOND), DAY, 4_000 * SECOND);
        assert_eq!(twice.delivery_seconds_of(4_900 * SECOND), 60);
        assert_eq!(twice.earlier_graces[1].until_micros, 5_000 * SECOND);
    }

    #[test]
    fn of_many_earlier_times_the_oldest_become_one() {
        let options =
            (1..=20).fold(of(1_000), |options, step| altered(&options, 1_000 + step, i64::from(step)));
        assert_eq!(options.earlier_graces.len(), EARLIER_GRACES_MAX);
        assert_eq!(options.earlier_graces[0], EarlierGrace { seconds: 1_000, until_micros: 13 });
    }

    #[test]
    fn what_is_stored_stays_the_same() {
        let stored = |options: &TableOptions| serde_json::to_string(options).unwrap();
        assert!(!stored(&of(60)).contains("earlier_graces"));
        let raised = altered(&of(60), 61, 7);
        let text = stored(&raised);
        assert!(text.contains(r#""earlier_graces":[{"seconds":60,"until_micros":7}]"#), "{text}");
        assert_eq!(serde_json::from_str::<TableOptions>(&text).unwrap(), raised);
    }
}
