//! What requests were charged, summed by table, statement and role: the sums with the greatest charges, and one sum of all others.
//!
//! Invariants:
//! * The number of sums is bounded ([`PLACES`]). They are kept by the space-saving algorithm (Metwally, Agrawal and El Abbadi 2005), with the
//!   charge as the weight: what is charged more than a `1 / PLACES` part of everything has a sum.
//! * Nothing is lost: all sums together, with that of the others, are the requests that were counted.
//! * What was charged before there was a place is among the others: at most `missed`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::receipt::Receipt;
use crate::sampling::Sampling;

/// Sums besides that of the others.
pub const PLACES: usize = 100;
/// The window of minutes.
pub const WINDOW: Duration = Duration::from_mins(5);
/// Hours before the present one.
const HOURS_BEFORE: i64 = 24;
const MICROS_AN_HOUR: i64 = 3_600_000_000;

/// What a request is summed under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ChargedTo {
    /// Empty: a batch of several tables.
    pub keyspace: String,
    pub table: String,
    pub role: String,
    /// Without values.
    pub statement: String,
}

/// A sum of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChargeSum {
    pub requests: u64,
    /// Those that ended with an error.
    pub failed: u64,
    pub charge: u64,
    /// The counts of their receipts.
    pub counts: Receipt,
}

impl ChargeSum {
    /// A request that stands for so many.
    pub fn of(receipt: &Receipt, has_failed: bool, times: u64) -> Self {
        Self {
            requests: times,
            failed: if has_failed { times } else { 0 },
            charge: receipt.charge().saturating_mul(times),
            counts: receipt.repeated(times),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        self.charge = self.charge.saturating_add(other.charge);
        self.counts.add_all(&other.counts);
    }
}

/// A sum with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub to: ChargedTo,
    pub sum: ChargeSum,
    /// What it may have been charged besides, before it had the place.
    pub missed: u64,
}

impl Place {
    fn rank(&self) -> u64 {
        self.sum.charge.saturating_add(self.missed)
    }
}

/// The sums of a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChargeSums {
    places: Vec<Place>,
    others: ChargeSum,
}

impl ChargeSums {
    /// Adds requests.
    pub fn add(&mut self, to: &ChargedTo, requests: &ChargeSum) {
        if let Some(known) = self.places.iter_mut().find(|known| known.to == *to) {
            return known.sum.add(requests);
        }
        let new = Place { to: to.clone(), sum: *requests, missed: self.lowest() };
        if self.places.len() < PLACES {
            self.places.push(new);
        } else if let Some(least) = self.places.iter_mut().min_by_key(|known| known.rank()) {
            self.others.add(&least.sum);
            *least = new;
        }
    }

    /// What may have been charged without a place.
    fn lowest(&self) -> u64 {
        if self.places.len() < PLACES { 0 } else { self.places.iter().map(Place::rank).min().unwrap_or(0) }
    }

    /// All of them together.
    pub fn merged(all: &[Self]) -> Self {
        let lowest_of_all = all.iter().fold(0, |sum: u64, sums| sum.saturating_add(sums.lowest()));
        let mut merged = Self::default();
        let mut places: BTreeMap<&ChargedTo, Place> = BTreeMap::new();
        for sums in all {
            merged.others.add(&sums.others);
            let lowest = sums.lowest();
            for place in &sums.places {
                let known = places.entry(&place.to).or_insert_with(|| Place {
                    to: place.to.clone(),
                    sum: ChargeSum::default(),
                    missed: lowest_of_all,
                });
                known.sum.add(&place.sum);
                // Where it has a place, it is known what was missed.
                known.missed = known.missed.saturating_sub(lowest).saturating_add(place.missed);
            }
        }
        merged.places = places.into_values().collect();
        merged.places.sort_by_key(|place| Reverse(place.rank()));
        for place in merged.places.iter().skip(PLACES) {
            merged.others.add(&place.sum);
        }
        merged.places.truncate(PLACES);
        merged
    }

    /// The sums, the greatest charge first.
    pub fn places(&self) -> Vec<&Place> {
        let mut places: Vec<&Place> = self.places.iter().collect();
        places.sort_by(|a, b| b.sum.charge.cmp(&a.sum.charge).then_with(|| a.to.cmp(&b.to)));
        places
    }

    pub fn others(&self) -> &ChargeSum {
        &self.others
    }
}

/// The sums of a shard: of the present window of minutes and the one before, and of the last hours by the wall clock.
#[derive(Debug)]
pub struct ChargeHistory {
    sampling: Sampling,
    /// When the present window ends; monotonic time.
    ends: Duration,
    minutes: ChargeSums,
    minutes_before: ChargeSums,
    /// By hours since the epoch.
    hours: BTreeMap<i64, ChargeSums>,
}

impl Default for ChargeHistory {
    fn default() -> Self {
        Self {
            sampling: Sampling::new(3),
            ends: WINDOW,
            minutes: ChargeSums::default(),
            minutes_before: ChargeSums::default(),
            hours: BTreeMap::new(),
        }
    }
}

impl ChargeHistory {
    /// For how many requests one that begins `now` (monotonic time) is counted. 0: it is not.
    #[inline]
    pub fn take(&mut self, now: Duration) -> u64 {
        self.pass_to(now);
        self.sampling.take()
    }

    /// Adds a request. `now`: monotonic time; `now_micros`: the wall clock.
    pub fn add(&mut self, (now, now_micros): (Duration, i64), to: &ChargedTo, request: &ChargeSum) {
        self.pass_to(now);
        self.minutes.add(to, request);
        let hour = now_micros.div_euclid(MICROS_AN_HOUR);
        if !self.hours.contains_key(&hour) {
            self.forget(hour);
        }
        self.hours.entry(hour).or_default().add(to, request);
    }

    /// Forgets what is no hour up to the present one.
    fn forget(&mut self, hour: i64) {
        self.hours.retain(|known, _| (hour - HOURS_BEFORE..=hour).contains(known));
    }

    #[inline]
    fn pass_to(&mut self, now: Duration) {
        if now >= self.ends {
            self.begin_window(now);
        }
    }

    #[cold]
    fn begin_window(&mut self, now: Duration) {
        let ended = std::mem::take(&mut self.minutes);
        self.minutes_before = if now < self.ends + WINDOW { ended } else { ChargeSums::default() };
        self.ends = Duration::from_secs((now.as_secs() / WINDOW.as_secs() + 1) * WINDOW.as_secs());
        self.sampling.begin_window();
    }

    /// The sums of the last 5 to 10 minutes.
    pub fn last_minutes(&mut self, now: Duration) -> ChargeSums {
        self.pass_to(now);
        ChargeSums::merged(&[self.minutes_before.clone(), self.minutes.clone()])
    }

    /// The sums of the present hour and of the one before.
    pub fn last_hours(&mut self, now_micros: i64) -> ChargeSums {
        let hour = now_micros.div_euclid(MICROS_AN_HOUR);
        self.forget(hour);
        let last: Vec<ChargeSums> = self.hours.range(hour - 1..=hour).map(|(_, sums)| sums.clone()).collect();
        ChargeSums::merged(&last)
    }

    /// The sums of the present hour and of those before, with the microsecond since the epoch at which each began.
    pub fn hours(&mut self, now_micros: i64) -> Vec<(i64, ChargeSums)> {
        self.forget(now_micros.div_euclid(MICROS_AN_HOUR));
        self.hours.iter().map(|(hour, sums)| (hour * MICROS_AN_HOUR, sums.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::receipt::Count;
    use crate::sampling::{EXACT_REQUESTS, SAMPLED_ONE_IN};

    fn to(number: u32) -> ChargedTo {
        ChargedTo { statement: number.to_string(), ..ChargedTo::default() }
    }

    /// A request that is charged so much.
    fn request(charge: u64) -> ChargeSum {
        let mut receipt = Receipt::default();
        receipt.add(Count::RowsRead, charge);
        ChargeSum::of(&receipt, false, 1)
    }

    fn total(sums: &ChargeSums) -> u64 {
        sums.places().iter().map(|place| place.sum.charge).sum::<u64>() + sums.others().charge
    }

    fn assert_holds(sums: &ChargeSums, truth: &BTreeMap<u32, u64>) {
        let all: u64 = truth.values().sum();
        assert_eq!(total(sums), all);
        assert!(sums.places().len() <= PLACES);
        for place in sums.places() {
            let charged = truth[&place.to.statement.parse().unwrap()];
            assert!(place.sum.charge <= charged && charged <= place.sum.charge + place.missed);
            assert_eq!(place.sum.counts.get(Count::RowsRead), place.sum.charge);
        }
        for (number, _) in truth.iter().filter(|(_, charge)| **charge > all / PLACES as u64) {
            assert!(sums.places().iter().any(|place| place.to == to(*number)), "{number}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_what_is_dear_has_a_place(
            requests in prop::collection::vec((0_u32..300, 0_u64..50, 0_usize..3), 0..3_000),
        ) {
            let mut shards = vec![ChargeSums::default(); 3];
            let mut truth = BTreeMap::new();
            let mut of_first = BTreeMap::new();
            for (number, charge, shard) in requests {
                shards[shard].add(&to(number), &request(charge));
                *truth.entry(number).or_default() += charge;
                if shard == 0 {
                    *of_first.entry(number).or_default() += charge;
                }
            }
            assert_holds(&shards[0], &of_first);
            assert_holds(&ChargeSums::merged(&shards), &truth);
        }
    }

    #[test]
    fn a_request_may_stand_for_several() {
        let mut receipt = Receipt::default();
        receipt.add(Count::RangesRead, 1);
        receipt.add(Count::ReplicasRead, 2);
        let sum = ChargeSum::of(&receipt, true, 16);
        assert_eq!((sum.requests, sum.failed, sum.charge), (16, 16, 320));
        assert_eq!((sum.counts.get(Count::RangesRead), sum.counts.get(Count::ReplicasRead)), (16, 2));
    }

    #[test]
    fn hours_go_by_the_wall_clock_and_the_last_day_is_kept() {
        let mut history = ChargeHistory::default();
        for hour in 0..30 {
            history.add((Duration::from_hours(hour), hour as i64 * MICROS_AN_HOUR + 5), &to(1), &request(7));
        }
        let hours = history.hours(29 * MICROS_AN_HOUR);
        assert_eq!(hours.len(), 25);
        assert_eq!(hours[0].0, 5 * MICROS_AN_HOUR);
        assert_eq!(hours[24].1.places()[0].sum.charge, 7);
        assert_eq!(history.last_hours(29 * MICROS_AN_HOUR).places()[0].sum.charge, 14);
        assert_eq!(history.last_hours(30 * MICROS_AN_HOUR).places()[0].sum.charge, 7);
        assert!(history.last_hours(31 * MICROS_AN_HOUR).places().is_empty());
        assert_eq!(history.hours(31 * MICROS_AN_HOUR).len(), 23);
        assert!(history.hours(100 * MICROS_AN_HOUR).is_empty());
    }

    #[test]
    fn minutes_are_the_present_window_and_the_one_before() {
        let mut history = ChargeHistory::default();
        let charge = |history: &mut ChargeHistory, minute| {
            let sums = history.last_minutes(Duration::from_mins(minute));
            sums.places().first().map_or(0, |place| place.sum.charge)
        };
        history.add((Duration::from_mins(3), 0), &to(1), &request(7));
        assert_eq!(charge(&mut history, 4), 7);
        history.add((Duration::from_mins(6), 0), &to(1), &request(1));
        assert_eq!(charge(&mut history, 9), 8);
        assert_eq!(charge(&mut history, 10), 1);
        assert_eq!(charge(&mut history, 40), 0);
    }

    #[test]
    fn many_requests_are_counted_for_others() {
        let mut history = ChargeHistory::default();
        let mut counted = 0;
        let mut chosen = 0;
        for _ in 0..200_000 {
            let times = history.take(Duration::ZERO);
            counted += times;
            chosen += u64::from(times > 0);
        }
        assert!((190_000..=210_000).contains(&counted), "{counted}");
        assert!(chosen < u64::from(EXACT_REQUESTS) + 220_000 / u64::from(SAMPLED_ONE_IN), "{chosen}");
        assert_eq!(history.take(WINDOW), 1);
    }
}
