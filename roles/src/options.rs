//! What `OPTIONS` of a role sets: its share of the nodes and bounds of what it may ask. Cassandra's roles have no options.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The names in the order in which messages list them.
const NAMES: [&str; 3] = ["shares", "requests_per_second_max", "max_charge"];
const SHARES_MAX: u32 = 10_000;
const REQUESTS_PER_SECOND_MAX: u64 = 1_000_000_000;

/// The options of a role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleOptions {
    /// Its weight while roles want more time of a shard than there is, from 1 to 10,000; `None`: the weight of every role.
    pub shares: Option<u32>,
    /// Requests a second that it may make of each node; 0: as many as it wants. `None`: what the node's settings say.
    pub requests_per_second_max: Option<u64>,
    /// The most that a request of it may be charged; `None`: any charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_charge: Option<u64>,
}

impl RoleOptions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there is an option of this name.
    pub fn knows(name: &str) -> bool {
        NAMES.contains(&name)
    }

    /// Sets the option of this name. An error: why it cannot be set to this value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let invalid = |values: &str| Err(format!("Option '{name}' of a role takes {values}, not '{value}'"));
        match name {
            "shares" => match value.parse() {
                Ok(shares @ 1..=SHARES_MAX) => self.shares = Some(shares),
                _ => return invalid("a whole number from 1 to 10000"),
            },
            "requests_per_second_max" => match value.parse() {
                Ok(requests @ 0..=REQUESTS_PER_SECOND_MAX) => self.requests_per_second_max = Some(requests),
                _ => return invalid("a whole number from 0 (no bound) to 1000000000"),
            },
            "max_charge" => match value.parse() {
                Ok(charge @ 1..) => self.max_charge = Some(charge),
                _ => return invalid("a whole number from 1"),
            },
            _ => return Err(format!("A role has no option '{name}', only {}", NAMES.join(", "))),
        }
        Ok(())
    }

    /// The options that are set, by their names.
    pub fn to_map(&self) -> BTreeMap<&'static str, String> {
        let [shares, requests, charge] = NAMES;
        let set = [
            (shares, self.shares.map(|shares| shares.to_string())),
            (requests, self.requests_per_second_max.map(|requests| requests.to_string())),
            (charge, self.max_charge.map(|charge| charge.to_string())),
        ];
        set.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_listed_and_can_be_set_again() {
        let mut options = RoleOptions::default();
        assert!(options.is_empty() && options.to_map().is_empty());
        options.set("shares", "300").unwrap();
        options.set("requests_per_second_max", "0").unwrap();
        options.set("max_charge", "5000").unwrap();
        let expected =
            RoleOptions { shares: Some(300), requests_per_second_max: Some(0), max_charge: Some(5_000) };
        assert_eq!(options, expected);
        let mut again = RoleOptions::default();
        for (name, value) in options.to_map() {
            assert!(RoleOptions::knows(name));
            again.set(name, &value).unwrap();
        }
        assert_eq!(again, options);
    }

    #[test]
    fn values_out_of_their_range_and_unknown_names_are_refused_by_name() {
        let mut options = RoleOptions::default();
        for (name, value) in [
            ("shares", "0"),
            ("shares", "10001"),
            ("shares", "-1"),
            ("shares", "much"),
            ("requests_per_second_max", "1000000001"),
            ("requests_per_second_max", "1.5"),
            ("weight", "1"),
        ] {
            let error = options.set(name, value).unwrap_err();
            assert!(error.contains(&format!("'{name}'")), "{error}");
        }
        assert!(options.is_empty());
    }
}
