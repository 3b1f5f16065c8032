//! A length of time in a setting, as Cassandra writes it: a number with a unit.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The units, in seconds, largest first.
const UNITS: [(&str, u32); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// A length of time of at least a second: `30d`, `12h`, `90m`, `60s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    seconds: u32,
}

impl Period {
    pub const fn from_days(days: u16) -> Self {
        Self { seconds: days as u32 * 86_400 }
    }

    pub fn seconds(self) -> u32 {
        self.seconds
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) =
            text.split_at(text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len()));
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let seconds = unit.and_then(|(_, seconds)| number.parse::<u32>().ok()?.checked_mul(*seconds));
        match seconds {
            Some(seconds) if seconds > 0 => Ok(Self { seconds }),
            _ => Err(format!(
                "'{text}' is no period: a number above 0 and one of the units d, h, m and s are expected, such as 30d"
            )),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |unit: &&(&str, u32)| self.seconds.is_multiple_of(unit.1);
        let (name, unit) = UNITS.iter().find(fits).copied().unwrap_or(("s", 1));
        write!(formatter, "{}{name}", self.seconds / unit)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_and_written_as_in_cassandra() {
        for (text, seconds, written) in
            [("30d", 2_592_000, "30d"), ("24h", 86_400, "1d"), ("90m", 5_400, "90m"), ("61s", 61, "61s")]
        {
            let period: Period = text.parse().unwrap();
            assert_eq!((period.seconds(), period.to_string().as_str()), (seconds, written));
        }
        for text in ["", "d", "30", "0d", "-1d", "1.5h", "1w", "1 d", "50000d", "99999999999s", "1é"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
