//! The `cap` option of a table: how many rows a partition keeps, its first ones in clustering order.
//!
//! Invariants:
//! * A cap is given with the table, and stays: it can be raised and lowered, not removed.
//! * What a smaller cap has evicted stays evicted under a larger one. So the smaller caps of before are kept, and hold for what was
//!   written while they did ([`Cap::standing`]). They grow with time: a cap that is lowered forgets those that are not smaller.

use serde::{Deserialize, Serialize};

use super::properties::Properties;
use crate::error::{RequestError, Result};

/// The largest cap. A read of some rows of a partition reads those before them.
pub const CAP_ROWS_MAX: u32 = 10_000;
/// The most smaller caps that are kept. Of more, the two oldest become one, with the rows of the first and the end of the second.
const EARLIER_CAPS_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// The rows that a partition keeps; at least 1.
    pub rows: u32,
    /// Smaller caps of before, the smallest and oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierCap>,
}

/// A cap that was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierCap {
    pub rows: u32,
    /// It holds for what was written up to this timestamp, in microseconds.
    pub until_micros: i64,
}

/// What a cap leaves of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Whole,
    /// What was written after this timestamp, in microseconds.
    Since(i64),
    Evicted,
}

impl Cap {
    /// The cap of a table that has had no other one.
    pub fn new(rows: u32) -> Self {
        Self { rows, earlier: Vec::new() }
    }

    /// The cap that the option of this name gives, if it is there.
    pub(super) fn from_properties(properties: &Properties, name: &str) -> Result<Option<Self>> {
        let Some(value) = properties.integer(name)? else { return Ok(None) };
        match u32::try_from(value) {
            Ok(rows) if (1..=CAP_ROWS_MAX).contains(&rows) => Ok(Some(Self::new(rows))),
            _ => Err(RequestError::Configuration(format!(
                "{name} must be from 1 to {CAP_ROWS_MAX} (got {value})"
            ))),
        }
    }

    /// This cap, changed to another number of rows now.
    #[must_use]
    pub fn changed_to(&self, rows: u32, now_micros: i64) -> Self {
        let mut earlier = self.earlier.clone();
        let last_end = earlier.last().map_or(i64::MIN, |last| last.until_micros);
        earlier.push(EarlierCap { rows: self.rows, until_micros: now_micros.max(last_end) });
        earlier.retain(|earlier| earlier.rows < rows);
        if earlier.len() > EARLIER_CAPS_MAX {
            let second = earlier.remove(1);
            if let Some(first) = earlier.first_mut() {
                first.until_micros = second.until_micros;
            }
        }
        Self { rows, earlier }
    }

    /// What is left of a row that has so many rows before it in its partition.
    pub fn standing(&self, rows_before: u64) -> Standing {
        if rows_before >= u64::from(self.rows) {
            return Standing::Evicted;
        }
        let mut reached = self.earlier.iter().rev().filter(|earlier| rows_before >= u64::from(earlier.rows));
        reached.next().map_or(Standing::Whole, |earlier| Standing::Since(earlier.until_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::super::TableOptions;
    use super::super::properties::tests::texts;
    use super::*;

    fn error(entries: &[(&str, &str)]) -> String {
        TableOptions::create(&texts(entries)).unwrap_err().to_string()
    }

    #[test]
    fn a_cap_is_read_and_its_bounds_are_named() {
        let (options, _) = TableOptions::create(&texts(&[("cap", "100")])).unwrap();
        assert_eq!(options.cap, Some(Cap::new(100)));
        assert_eq!(options.alter(&texts(&[("comment", "x")])).unwrap().cap, Some(Cap::new(100)));
        for wrong in ["0", "-1", "10001"] {
            assert_eq!(error(&[("cap", wrong)]), format!("cap must be from 1 to 10000 (got {wrong})"));
        }
        let mortal = [("cap", "5"), ("default_time_to_live", "60")];
        assert!(error(&mortal).starts_with("default_time_to_live is not supported on tables with a cap"));
    }

    #[test]
    fn what_a_smaller_cap_has_evicted_stays_evicted_under_a_larger_one() {
        let raised = Cap::new(10).changed_to(20, 1_000);
        assert_eq!(raised.standing(9), Standing::Whole);
        assert_eq!(raised.standing(10), Standing::Since(1_000));
        assert_eq!(raised.standing(19), Standing::Since(1_000));
        assert_eq!(raised.standing(20), Standing::Evicted);
        let twice = raised.changed_to(30, 2_000);
        assert_eq!(
            (twice.standing(15), twice.standing(25)),
            (Standing::Since(1_000), Standing::Since(2_000))
        );
        let lowered = twice.changed_to(20, 3_000);
        assert_eq!((lowered.standing(15), lowered.standing(20)), (Standing::Since(1_000), Standing::Evicted));
        assert_eq!(lowered.changed_to(5, 4_000), Cap::new(5));
        assert_eq!(raised.changed_to(20, 9_000), raised);
    }

    #[test]
    fn a_clock_that_goes_back_shortens_no_earlier_cap() {
        let twice = Cap::new(1).changed_to(2, 5_000).changed_to(3, 4_000);
        assert_eq!((twice.standing(1), twice.standing(2)), (Standing::Since(5_000), Standing::Since(5_000)));
    }

    #[test]
    fn of_many_earlier_caps_the_oldest_become_one() {
        let cap = (2..=20).fold(Cap::new(1), |cap, rows| cap.changed_to(rows, i64::from(rows)));
        assert_eq!(cap.earlier.len(), EARLIER_CAPS_MAX);
        assert_eq!(cap.standing(1), Standing::Since(13));
        assert_eq!(cap.standing(19), Standing::Since(20));
    }

    #[test]
    fn what_is_stored_stays_the_same() {
        let stored = |cap: &Cap| serde_json::to_string(cap).unwrap();
        assert_eq!(stored(&Cap::new(5)), r#"{"rows":5}"#);
        let raised = Cap::new(5).changed_to(6, 7);
        assert_eq!(stored(&raised), r#"{"rows":6,"earlier":[{"rows":5,"until_micros":7}]}"#);
        assert_eq!(serde_json::from_str::<Cap>(&stored(&raised)).unwrap(), raised);
    }
}
