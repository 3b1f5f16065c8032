//! The option `cdc` of a table: `{'enabled': 'true', 'preimage': 'full', …}`. Names, values and texts of refusals are ScyllaDB's.
//!
//! Unlike there, what would have no effect is refused: a map without `enabled`, letters behind the number of `ttl`.

use std::collections::BTreeMap;
use std::num::IntErrorKind;

use serde::{Deserialize, Serialize};

const ENABLED: &str = "enabled";
const PREIMAGE: &str = "preimage";
const POSTIMAGE: &str = "postimage";
const DELTA: &str = "delta";
const TTL: &str = "ttl";
/// The longest time to live of a cell: 20 years of 365 days.
const TTL_SECONDS_MAX: u32 = 20 * 365 * 24 * 3_600;
const TTL_SECONDS_DEFAULT: u32 = 86_400;

/// The reason why a map is not the option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("Invalid value for CDC option \"{name}\": {value}")]
    Value { name: &'static str, value: String },
    #[error("Invalid CDC option: ttl must be >= 0")]
    NegativeTtl,
    #[error("Invalid CDC option: ttl too large")]
    LargeTtl,
    #[error("Invalid CDC option: {0}")]
    Unknown(String),
    #[error("Altering CDC options requires specifying \"enabled\" flag")]
    EnabledMissing,
}

/// What is kept of a row from before a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preimage {
    #[default]
    Off,
    /// The columns that the write changes.
    On,
    /// All columns.
    Full,
}

/// What is kept of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delta {
    /// Keys and values.
    #[default]
    Full,
    /// The keys of the changed rows.
    Keys,
}

/// The option of a table that has, or had, a change feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeFeedOptions {
    /// Whether writes to the table are written to its feed. Otherwise the rest is kept without an effect.
    pub enabled: bool,
    pub preimage: Preimage,
    /// Whether a row is kept as it is after a write.
    pub postimage: bool,
    pub delta: Delta,
    /// How long an entry is kept; 0: for ever.
    pub ttl_seconds: u32,
}

impl Default for ChangeFeedOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            preimage: Preimage::Off,
            postimage: false,
            delta: Delta::Full,
            ttl_seconds: TTL_SECONDS_DEFAULT,
        }
    }
}

impl ChangeFeedOptions {
    /// Reads and checks the map of the option. What it does not name has its default.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let mut is_enabled = None;
        for (name, value) in map {
            let lower = value.to_lowercase();
            match name.to_lowercase().as_str() {
                ENABLED => is_enabled = Some(boolean(ENABLED, value)?),
                PREIMAGE if lower == "full" => options.preimage = Preimage::Full,
                PREIMAGE => {
                    options.preimage = if boolean(PREIMAGE, value)? { Preimage::On } else { Preimage::Off };
                }
                POSTIMAGE => options.postimage = boolean(POSTIMAGE, value)?,
                DELTA => {
                    options.delta = match lower.as_str() {
                        "full" => Delta::Full,
                        "keys" => Delta::Keys,
                        _ => return Err(OptionError::Value { name: DELTA, value: value.clone() }),
                    }
                }
                TTL => options.ttl_seconds = ttl_seconds(value)?,
                _ => return Err(OptionError::Unknown(name.clone())),
            }
        }
        options.enabled = is_enabled.ok_or(OptionError::EnabledMissing)?;
        Ok(options)
    }

    /// The option as `DESCRIBE` and `system_schema.scylla_tables` show it.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let preimage = match self.preimage {
            Preimage::Off => "false",
            Preimage::On => "true",
            Preimage::Full => "full",
        };
        let delta = match self.delta {
            Delta::Full => "full",
            Delta::Keys => "keys",
        };
        let entries = [
            (ENABLED, self.enabled.to_string()),
            (PREIMAGE, preimage.to_owned()),
            (POSTIMAGE, self.postimage.to_string()),
            (DELTA, delta.to_owned()),
            (TTL, self.ttl_seconds.to_string()),
        ];
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Whether a write has to read first what it changes.
    pub fn needs_row_of_before(&self) -> bool {
        self.preimage != Preimage::Off || self.postimage
    }
}

fn boolean(name: &'static str, value: &str) -> Result<bool, OptionError> {
    match value.to_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(OptionError::Value { name, value: value.to_owned() }),
    }
}

fn ttl_seconds(value: &str) -> Result<u32, OptionError> {
    match value.parse::<i64>() {
        Ok(seconds) if seconds < 0 => Err(OptionError::NegativeTtl),
        Ok(seconds) => match u32::try_from(seconds) {
            Ok(seconds) if seconds <= TTL_SECONDS_MAX => Ok(seconds),
            _ => Err(OptionError::LargeTtl),
        },
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(OptionError::LargeTtl),
        Err(error) if *error.kind() == IntErrorKind::NegOverflow => Err(OptionError::NegativeTtl),
        Err(_) => Err(OptionError::Value { name: TTL, value: value.to_owned() }),
    }
}

/// How the option stands in a stored catalog: `false` where a table never had a feed, as before there were any.
pub mod stored {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ChangeFeedOptions;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Flag(bool),
        Options(ChangeFeedOptions),
    }

    pub fn serialize<S: Serializer>(
        option: &Option<ChangeFeedOptions>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        option.map_or(Stored::Flag(false), Stored::Options).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ChangeFeedOptions>, D::Error> {
        Ok(match Stored::deserialize(deserializer)? {
            Stored::Flag(false) => None,
            Stored::Flag(true) => Some(ChangeFeedOptions::default()),
            Stored::Options(options) => Some(options),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<ChangeFeedOptions, OptionError> {
        let map = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ChangeFeedOptions::from_map(&map.collect())
    }

    #[test]
    fn what_is_not_named_has_its_default_and_what_is_shown_can_be_read() {
        let options = parse(&[("Enabled", "TRUE")]).unwrap();
        assert_eq!(options, ChangeFeedOptions::default());
        let shown: Vec<String> =
            options.to_map().iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(shown, ["delta full", "enabled true", "postimage false", "preimage false", "ttl 86400"]);
        let all =
            [("enabled", "1"), ("preimage", "full"), ("postimage", "true"), ("delta", "KEYS"), ("ttl", "0")];
        let options = parse(&all).unwrap();
        assert_eq!((options.preimage, options.delta, options.ttl_seconds), (Preimage::Full, Delta::Keys, 0));
        assert_eq!(ChangeFeedOptions::from_map(&options.to_map()).unwrap(), options);
        assert!(options.needs_row_of_before());
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        let error = |entries: &[(&str, &str)]| parse(entries).unwrap_err().to_string();
        for name in ["enabled", "preimage", "postimage", "delta", "ttl"] {
            let expected = format!("Invalid value for CDC option \"{name}\": Maybe");
            assert_eq!(
                error(&[("enabled", "true"), (name, "Maybe")][usize::from(name == "enabled")..]),
                expected
            );
        }
        assert_eq!(error(&[("enabled", "true"), ("size", "1")]), "Invalid CDC option: size");
        assert_eq!(error(&[("ttl", "-1")]), "Invalid CDC option: ttl must be >= 0");
        for large in ["630720001", "4294967296", "99999999999999999999"] {
            assert_eq!(error(&[("ttl", large)]), "Invalid CDC option: ttl too large");
        }
        assert_eq!(
            error(&[("preimage", "true")]),
            "Altering CDC options requires specifying \"enabled\" flag"
        );
        assert_eq!(error(&[]), "Altering CDC options requires specifying \"enabled\" flag");
    }

    #[test]
    fn a_stored_flag_of_before_is_read() {
        #[derive(Serialize, Deserialize)]
        struct Options(#[serde(with = "stored")] Option<ChangeFeedOptions>);
        let read = |text: &str| serde_json::from_str::<Options>(text).unwrap().0;
        assert_eq!(read("false"), None);
        assert_eq!(read("true"), Some(ChangeFeedOptions::default()));
        let text = r#"{"enabled":false,"preimage":"Full","postimage":true,"delta":"Keys","ttl_seconds":7}"#;
        assert_eq!(serde_json::to_string(&Options(read(text))).unwrap(), text);
        assert_eq!(serde_json::to_string(&Options(None)).unwrap(), "false");
    }
}
