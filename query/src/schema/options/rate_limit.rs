//! The options `per_partition_rate_limit` (ScyllaDB's) and `rate_limit` (of the whole table) of a table: how many requests a second are taken.
//!
//! The names of the map and the texts of refusals are ScyllaDB's. Unlike there, negative numbers and trailing letters are refused.

use std::collections::BTreeMap;
use std::num::IntErrorKind;

use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

const MAX_READS: &str = "max_reads_per_second";
const MAX_WRITES: &str = "max_writes_per_second";

/// The value of one of the options. At least one kind of request has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// `None`: no limit; 0: none is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reads_per_second: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_writes_per_second: Option<u32>,
}

impl RateLimit {
    /// Reads and checks the map of an option. An empty one takes the limit away.
    pub fn from_map(option: &str, map: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let is_unknown = |name: &&str| ![MAX_READS, MAX_WRITES].contains(name);
        let unknown: Vec<&str> = map.keys().map(String::as_str).filter(is_unknown).collect();
        if !unknown.is_empty() {
            return refuse(format!("Unknown keys in map for {option} extension: {}", unknown.join(", ")));
        }
        let limit = Self {
            max_reads_per_second: number(map, MAX_READS)?,
            max_writes_per_second: number(map, MAX_WRITES)?,
        };
        Ok((!map.is_empty()).then_some(limit))
    }

    /// The option as `DESCRIBE` shows it.
    pub fn to_map(self) -> BTreeMap<String, String> {
        let entries = [(MAX_READS, self.max_reads_per_second), (MAX_WRITES, self.max_writes_per_second)];
        entries.into_iter().filter_map(|(name, max)| Some((name.to_owned(), max?.to_string()))).collect()
    }

    /// The most writes a second, or the most reads.
    #[inline]
    pub fn max_per_second(self, is_write: bool) -> Option<u32> {
        if is_write { self.max_writes_per_second } else { self.max_reads_per_second }
    }
}

fn number(map: &BTreeMap<String, String>, name: &str) -> Result<Option<u32>> {
    let Some(text) = map.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            refuse(format!("Value for {name} is out of range accepted by 32-bit numbers"))
        }
        Err(_) => refuse(format!("Invalid value for {name} option: expected a non-negative number")),
    }
}

fn refuse<T>(message: String) -> Result<T> {
    Err(RequestError::Configuration(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<Option<RateLimit>> {
        let map = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        RateLimit::from_map("rate_limit", &map.collect())
    }

    #[test]
    fn limits_are_read_and_shown() {
        for entries in [
            &[("max_reads_per_second", "0")][..],
            &[("max_writes_per_second", "4294967295")],
            &[("max_reads_per_second", "123"), ("max_writes_per_second", "456")],
        ] {
            let limit = parse(entries).unwrap().unwrap();
            assert_eq!(RateLimit::from_map("rate_limit", &limit.to_map()).unwrap(), Some(limit));
            assert_eq!(limit.to_map().len(), entries.len());
        }
        let limit = parse(&[("max_reads_per_second", "7")]).unwrap().unwrap();
        assert_eq!((limit.max_per_second(false), limit.max_per_second(true)), (Some(7), None));
        assert_eq!(parse(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_stored_stays_the_same() {
        let stored = |entries: &[(&str, &str)]| serde_json::to_string(&parse(entries).unwrap()).unwrap();
        assert_eq!(stored(&[("max_reads_per_second", "0")]), r#"{"max_reads_per_second":0}"#);
        let both = [("max_reads_per_second", "1"), ("max_writes_per_second", "2")];
        assert_eq!(stored(&both), r#"{"max_reads_per_second":1,"max_writes_per_second":2}"#);
        assert_eq!(
            serde_json::from_str::<RateLimit>(&stored(&both)).unwrap(),
            parse(&both).unwrap().unwrap()
        );
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let error = |entries: &[(&str, &str)]| parse(entries).unwrap_err().to_string();
        for wrong in ["-1", "1.5", "12x", "", "many"] {
            let expected = "Invalid value for max_reads_per_second option: expected a non-negative number";
            assert_eq!(error(&[("max_reads_per_second", wrong)]), expected);
        }
        assert_eq!(
            error(&[("max_writes_per_second", "4294967296")]),
            "Value for max_writes_per_second is out of range accepted by 32-bit numbers"
        );
        assert_eq!(
            error(&[("b", "1"), ("a", "1"), ("max_reads_per_second", "x")]),
            "Unknown keys in map for rate_limit extension: a, b"
        );
    }
}
