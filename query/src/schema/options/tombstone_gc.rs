//! The `tombstone_gc` option of a table, with ScyllaDB's names: when compaction may purge deletions.
//!
//! ScyllaDB purges repaired deletions before `gc_grace_seconds`. Here `repair` is a further condition: hints that are older than a deletion may
//! arrive until its grace period is over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

const MODE: &str = "mode";
const PROPAGATION_DELAY: &str = "propagation_delay_in_seconds";
/// As in ScyllaDB: an hour.
const DEFAULT_PROPAGATION_DELAY_SECONDS: u32 = 3_600;

/// When deletions may be purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TombstoneGcMode {
    /// After `gc_grace_seconds`.
    Timeout,
    /// After `gc_grace_seconds`, once all replicas of their range have been repaired since.
    Repair,
    /// At once.
    Immediate,
    Disabled,
}

impl TombstoneGcMode {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Timeout, "timeout"),
        (Self::Repair, "repair"),
        (Self::Immediate, "immediate"),
        (Self::Disabled, "disabled"),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Repair => "repair",
            Self::Immediate => "immediate",
            Self::Disabled => "disabled",
        }
    }
}

/// The `tombstone_gc` option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TombstoneGc {
    pub mode: TombstoneGcMode,
    /// A repair counts for deletions that are older than its begin by this: a write may take that long to its replicas.
    pub propagation_delay_seconds: u32,
}

impl TombstoneGc {
    /// The option of a table that does not set it. With several replicas deletions wait for a repair, unless the table has no grace period.
    pub fn of_unset(replica_count: u32, gc_grace_seconds: u32) -> Self {
        let waits = replica_count > 1 && gc_grace_seconds > 0;
        let mode = if waits { TombstoneGcMode::Repair } else { TombstoneGcMode::Timeout };
        Self { mode, propagation_delay_seconds: DEFAULT_PROPAGATION_DELAY_SECONDS }
    }

    /// Reads and checks the map of the option. An empty one unsets it.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let refuse = |message: String| Err(RequestError::Configuration(message));
        if map.is_empty() {
            return Ok(None);
        }
        if let Some(unknown) = map.keys().find(|name| ![MODE, PROPAGATION_DELAY].contains(&name.as_str())) {
            return refuse(format!(
                "Invalid tombstone_gc sub-option '{unknown}': only '{MODE}' and '{PROPAGATION_DELAY}' are allowed"
            ));
        }
        let Some(mode) = map.get(MODE) else {
            return refuse(format!("Missing tombstone_gc sub-option '{MODE}'"));
        };
        let found = TombstoneGcMode::ALL.iter().find(|(_, name)| mode.eq_ignore_ascii_case(name));
        let Some((mode, _)) = found else {
            return refuse(format!(
                "Invalid value '{mode}' for tombstone_gc sub-option '{MODE}': use 'timeout', 'repair', 'immediate' or 'disabled'"
            ));
        };
        let propagation_delay_seconds = match map.get(PROPAGATION_DELAY) {
            None => DEFAULT_PROPAGATION_DELAY_SECONDS,
            Some(text) => match text.parse() {
                Ok(seconds) => seconds,
                Err(_) => {
                    return refuse(format!(
                        "Invalid value '{text}' for tombstone_gc sub-option '{PROPAGATION_DELAY}': a number of seconds is expected"
                    ));
                }
            },
        };
        Ok(Some(Self { mode: *mode, propagation_delay_seconds }))
    }

    /// The option as `DESCRIBE` shows it.
    pub fn to_map(self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (MODE.to_owned(), self.mode.name().to_owned()),
            (PROPAGATION_DELAY.to_owned(), self.propagation_delay_seconds.to_string()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<Option<TombstoneGc>> {
        let map = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TombstoneGc::from_map(&map.collect())
    }

    #[test]
    fn modes_are_read_and_shown() {
        for (mode, name) in TombstoneGcMode::ALL {
            let option = parse(&[("mode", name), ("propagation_delay_in_seconds", "7")]).unwrap().unwrap();
            assert_eq!((option.mode, option.propagation_delay_seconds), (mode, 7));
            assert_eq!(TombstoneGc::from_map(&option.to_map()).unwrap(), Some(option));
        }
        assert_eq!(parse(&[("mode", "REPAIR")]).unwrap().unwrap().propagation_delay_seconds, 3_600);
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(TombstoneGc::of_unset(1, 10).mode, TombstoneGcMode::Timeout);
        assert_eq!(TombstoneGc::of_unset(3, 10).mode, TombstoneGcMode::Repair);
        assert_eq!(TombstoneGc::of_unset(3, 0).mode, TombstoneGcMode::Timeout);
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        let error = |entries: &[(&str, &str)]| parse(entries).unwrap_err().to_string();
        assert!(error(&[("mode", "never")]).starts_with("Invalid value 'never'"));
        assert!(error(&[("propagation_delay_in_seconds", "1")]).starts_with("Missing tombstone_gc"));
        assert!(error(&[("mode", "repair"), ("delay", "1")]).contains("'delay'"));
        assert!(error(&[("mode", "repair"), ("propagation_delay_in_seconds", "-1")]).contains("'-1'"));
    }
}
