//! Delays of attempts to log in, by source and role.
//!
//! Invariants:
//! * An attempt counts as failed from its beginning until it succeeds, so many at once are no way around the delays.
//! * Attempts of one source delay no other source: nobody can lock a role for those who come from elsewhere.
//! * Memory is bounded: of too many pairs those that were not used for longest are forgotten.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use helenus_tls::source::Source;

/// Attempts of a source as a role that are not delayed: those of people who mistype, and of programs that open several connections.
const FREE_ATTEMPTS: u32 = 5;
/// The delay after those; twice as long with each further one, up to `DELAY_MAX`.
const DELAY_FIRST: Duration = Duration::from_millis(250);
const DELAY_MAX: Duration = Duration::from_secs(4);
/// How long after the last delay the attempts are forgotten.
const MEMORY: Duration = Duration::from_mins(1);
const PAIRS_MAX: NonZeroUsize = NonZeroUsize::new(20_000).unwrap();

/// The attempts that have not succeeded.
#[derive(Debug)]
struct Attempts {
    count: u32,
    /// Monotonic time of the next attempt.
    next_at: Duration,
}

/// The sources and roles with attempts that have not succeeded.
#[derive(Debug)]
pub struct Throttle {
    /// By the source and a keyed hash of the name: names of clients may be long.
    pairs: LruCache<(Source, u64), Attempts>,
    key: RandomState,
}

/// The attempt would have to wait for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Default for Throttle {
    fn default() -> Self {
        Self { pairs: LruCache::new(PAIRS_MAX), key: RandomState::new() }
    }
}

impl Throttle {
    /// Begins an attempt. Returns how long it has to wait, which is not longer than `wait_max`. `now`: monotonic time.
    pub fn begin(
        &mut self,
        source: Source,
        role: &str,
        now: Duration,
        wait_max: Duration,
    ) -> Result<Duration, TooMany> {
        let pair = (source, self.key.hash_one(role));
        let attempts = self.pairs.get_or_insert_mut(pair, || Attempts { count: 0, next_at: now });
        if now >= attempts.next_at.saturating_add(MEMORY) {
            *attempts = Attempts { count: 0, next_at: now };
        }
        let wait = attempts.next_at.saturating_sub(now);
        if wait > wait_max {
            return Err(TooMany);
        }
        attempts.count = attempts.count.saturating_add(1);
        attempts.next_at = attempts.next_at.max(now) + delay_after(attempts.count);
        Ok(wait)
    }

    /// An attempt has succeeded: those before it are forgotten.
    pub fn succeeded(&mut self, source: Source, role: &str) {
        self.pairs.pop(&(source, self.key.hash_one(role)));
    }
}

/// The delay of the next attempt after so many.
fn delay_after(attempts: u32) -> Duration {
    match attempts.checked_sub(FREE_ATTEMPTS) {
        None => Duration::ZERO,
        Some(more) => DELAY_FIRST.saturating_mul(1 << more.min(16)).min(DELAY_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn source(number: u8) -> Source {
        Source::of(std::net::IpAddr::from([10, 0, 0, number]))
    }

    #[test]
    fn attempts_of_one_source_as_one_role_wait_longer_and_longer() {
        let mut throttle = Throttle::default();
        let mut now = Duration::from_secs(100);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = throttle.begin(source(1), "ann", now, LONG).unwrap();
            waits.push(wait.as_millis());
            now += wait;
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 250, 500, 1_000, 2_000, 4_000, 4_000, 4_000]);
        assert_eq!(throttle.begin(source(2), "ann", now, LONG), Ok(Duration::ZERO));
        assert_eq!(throttle.begin(source(1), "bob", now, LONG), Ok(Duration::ZERO));
        throttle.succeeded(source(1), "ann");
        assert_eq!(throttle.begin(source(1), "ann", now, LONG), Ok(Duration::ZERO));
    }

    #[test]
    fn attempts_at_once_wait_for_each_other() {
        let mut throttle = Throttle::default();
        let wait_max = Duration::from_secs(10);
        let waits: Vec<_> =
            (0..1_000).map(|_| throttle.begin(source(1), "ann", Duration::ZERO, wait_max)).collect();
        let admitted: Vec<u128> = waits.iter().flatten().map(Duration::as_millis).collect();
        assert_eq!(admitted, [0, 0, 0, 0, 0, 250, 750, 1_750, 3_750, 7_750]);
        assert_eq!(waits.last(), Some(&Err(TooMany)));
        // Those that were refused do not count: nobody waits for more than the longest wait.
        let later = Duration::from_secs(20);
        assert_eq!(throttle.begin(source(1), "ann", later, wait_max), Ok(Duration::ZERO));
    }

    #[test]
    fn attempts_are_forgotten() {
        let mut throttle = Throttle::default();
        for _ in 0..10 {
            throttle.begin(source(1), "ann", Duration::ZERO, LONG).unwrap();
        }
        let later = Duration::from_millis(7_750 + 4_000) + MEMORY;
        assert_eq!(throttle.begin(source(1), "ann", later, LONG), Ok(Duration::ZERO));
        assert_eq!(throttle.begin(source(1), "ann", later, LONG), Ok(Duration::ZERO));
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        let mut throttle = Throttle::default();
        for number in 0..2 * PAIRS_MAX.get() {
            throttle.begin(source(1), &number.to_string(), Duration::ZERO, LONG).unwrap();
        }
        assert_eq!(throttle.pairs.len(), PAIRS_MAX.get());
    }
}
