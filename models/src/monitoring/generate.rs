//! CPU metrics of many hosts: a point of each series every ten seconds, the value a function of series and time.

use scylla::value::CqlTimestamp;

use crate::random::{below, hash};

/// 2025-01-01 in milliseconds since 1970: a full hour.
pub const EPOCH_MS: i64 = 1_735_689_600_000;
/// Time between two points of a series.
pub const INTERVAL_MS: i64 = 10_000;

/// The types of the metric.
pub const TYPES: [&str; 3] = ["user", "system", "idle"];

/// A value and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub at: CqlTimestamp,
    pub value: f64,
}

/// One type of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    number: u64,
    seed: u64,
    pub host: String,
    pub kind: &'static str,
}

impl Series {
    /// The `number`-th series: the types of a host follow each other.
    pub fn new(seed: u64, number: u64) -> Self {
        let types = TYPES.len() as u64;
        let kind = TYPES.get((number % types) as usize).copied().unwrap_or_default();
        Self { number, seed, host: format!("host-{:05}", number / types), kind }
    }

    /// The `index`-th point.
    pub fn point(&self, index: u32) -> Point {
        let drift = below(hash(self.seed, &[self.number, u64::from(index / 60)]), 90) as f64;
        let noise = below(hash(self.seed, &[self.number, u64::from(index), 1]), 1_000) as f64 / 100.0;
        Point { at: time(index), value: drift + noise }
    }

    /// Points `from..to`, newest first.
    pub fn newest_first(&self, from: u32, to: u32) -> Vec<Point> {
        (from..to).rev().map(|index| self.point(index)).collect()
    }
}

/// The time of the `index`-th point of every series.
pub fn time(index: u32) -> CqlTimestamp {
    CqlTimestamp(EPOCH_MS + i64::from(index) * INTERVAL_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_one_type_of_one_host() {
        let series = Series::new(1, 7);
        assert_eq!((series.host.as_str(), series.kind), ("host-00002", "system"));
        assert_eq!(series, Series::new(1, 7));
    }

    #[test]
    fn values_are_percentages_with_two_digits() {
        let series = Series::new(1, 7);
        for index in 0..1_000 {
            let point = series.point(index);
            assert!((0.0..=100.0).contains(&point.value));
            assert_eq!(point, series.point(index));
        }
    }

    #[test]
    fn points_are_ten_seconds_apart_and_newest_first() {
        let points = Series::new(1, 0).newest_first(5, 8);
        assert_eq!(points.len(), 3);
        assert_eq!(points[0].at.0 - points[1].at.0, 10_000);
    }
}
