//! Requests a second of many names at once, in a fixed amount of memory, shared by all shards of a node.
//!
//! The allowance of a name grows evenly, and holds what a second brings at most. Only names that have used some of theirs within the last second
//! need a counter: a name whose allowance is whole needs none.
//!
//! Invariants:
//! * A name is never refused because of the requests of others. Where more names are busy than there are counters, the one that has used the least
//!   of its allowance is forgotten: its next requests are admitted as if it had used nothing.
//! * A request takes the same time however many names there are, and allocates nothing once there are counters.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::shard::even_rate;

/// Counters that a name may have. They are looked through one by one.
const WAYS: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    name: u64,
    /// When all that was admitted would have been asked evenly, on the clock of the node. What lies in the past is a whole allowance.
    even_nanos: u64,
}

type Set = Mutex<[Counter; WAYS]>;

/// Counters by name. A name is a hash of 64 bits that nobody can choose.
#[derive(Debug)]
pub struct Counters {
    set_count: usize,
    /// Made with the first request that has a limit.
    sets: OnceLock<Box<[Set]>>,
}

impl Counters {
    /// Room for this many names that are busy at the same time; at least one.
    pub fn new(count: usize) -> Self {
        Self { set_count: count.div_ceil(WAYS), sets: OnceLock::new() }
    }

    /// Takes a request from the allowance of a name, if there is one. `now`: on the clock of the node, which never goes back.
    pub fn admit(&self, name: u64, per_second: u32, now: Duration) -> bool {
        if per_second == 0 {
            return false;
        }
        let sets = self.sets.get_or_init(|| (0..self.set_count).map(|_| Set::default()).collect());
        let mut set = sets[name as usize % sets.len()].lock().unwrap_or_else(PoisonError::into_inner);
        let known = set.iter().position(|counter| counter.name == name);
        let counter = if let Some(index) = known {
            &mut set[index]
        } else {
            let Some(least) = set.iter_mut().min_by_key(|counter| counter.even_nanos) else {
                unreachable!("a set has counters")
            };
            *least = Counter { name, even_nanos: 0 };
            least
        };
        let admitted = even_rate::admit(counter.even_nanos, u64::from(per_second), now);
        if let Some(even_nanos) = admitted {
            counter.even_nanos = even_nanos;
        }
        admitted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(counters: &Counters, name: u64, per_second: u32, millis: u64) -> usize {
        let now = Duration::from_millis(millis);
        (0..1_000).filter(|_| counters.admit(name, per_second, now)).count()
    }

    #[test]
    fn an_allowance_holds_a_second_and_grows_evenly() {
        let counters = Counters::new(64);
        let admitted = |millis| admitted(&counters, 1, 10, millis);
        assert_eq!(admitted(5_000), 10);
        assert_eq!(admitted(5_099), 0);
        assert_eq!(admitted(5_100), 1);
        assert_eq!(admitted(5_350), 2);
        assert_eq!(admitted(5_400), 1);
        assert_eq!(admitted(90_000), 10);
    }

    #[test]
    fn over_many_seconds_the_limit_is_kept() {
        let counters = Counters::new(64);
        for per_second in [1, 3, 7, 1_000] {
            let name = u64::from(per_second);
            let asked = (0..60_000).map(|millis| Duration::from_millis(1_000_000 + millis));
            let admitted = asked.filter(|now| counters.admit(name, per_second, *now)).count();
            let expected = per_second as usize * 60;
            assert!(
                (expected..=expected + per_second as usize).contains(&admitted),
                "{per_second}: {admitted}"
            );
        }
    }

    #[test]
    fn no_limit_is_out_of_range() {
        let counters = Counters::new(64);
        assert_eq!(admitted(&counters, 1, 0, 1_000), 0);
        assert_eq!(admitted(&counters, 1, 1, 2_000), 1);
        assert_eq!(admitted(&counters, 2, u32::MAX, 2_000), 1_000);
    }

    #[test]
    fn another_limit_holds_at_once() {
        let counters = Counters::new(64);
        assert_eq!(admitted(&counters, 1, 1, 1_000), 1);
        assert_eq!(admitted(&counters, 1, 100, 1_000), 0);
        assert_eq!(admitted(&counters, 1, 100, 1_100), 10);
        assert_eq!(admitted(&counters, 1, 1, 1_100), 0);
        assert_eq!(admitted(&counters, 1, 1, 3_100), 1);
    }

    #[test]
    fn a_busy_name_refuses_no_other_one() {
        let counters = Counters::new(WAYS);
        assert_eq!(admitted(&counters, 1, 100, 1_000), 100);
        // More names than there are counters, all in one set.
        for name in 2..200 {
            assert!(counters.admit(name, 100, Duration::from_secs(1)), "{name}");
        }
        // They have not driven out the busy one.
        assert_eq!(admitted(&counters, 1, 100, 1_000), 0);
    }

    #[test]
    fn all_shards_count_together() {
        let counters = Counters::new(64);
        let shard = || admitted(&counters, 1, 100, 1_000);
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(shard)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, 100);
    }
}
