//! A number of bytes as Cassandra's configuration writes it: `16MiB`. A plain number counts bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::setting::{Amount, GIB, KIB, MIB};

const UNITS: [(u64, &str); 4] = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B")];

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataSize(pub u64);

impl fmt::Display for DataSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(size, _): &&(u64, &str)| self.0 >= *size && self.0.is_multiple_of(*size);
        let (size, unit) = UNITS.iter().find(fits).unwrap_or(&(1, "B"));
        write!(formatter, "{}{unit}", self.0 / size)
    }
}

impl FromStr for DataSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
        let unit = text.get(digits.len()..).unwrap_or_default();
        let scale = UNITS.iter().find(|(_, name)| *name == unit).map(|(scale, _)| *scale);
        scale
            .and_then(|scale| digits.trim().parse::<u64>().ok()?.checked_mul(scale))
            .map(Self)
            .ok_or_else(|| format!("Invalid data storage: {text}. Accepted units: GiB, MiB, KiB, B"))
    }
}

impl Amount for DataSize {
    fn amount(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl Serialize for DataSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DataSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;

        impl Visitor<'_> for Size {
            type Value = DataSize;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of bytes, or a size such as \"16MiB\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<DataSize, E> {
                u64::try_from(bytes).map(DataSize).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<DataSize, E> {
                Ok(DataSize(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DataSize, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_in_their_largest_unit_and_read_back() {
        for (bytes, text) in
            [(0, "0B"), (1, "1B"), (1_024, "1KiB"), (16 << 20, "16MiB"), (1_025, "1025B"), (3 << 30, "3GiB")]
        {
            assert_eq!(DataSize(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(DataSize(bytes)));
        }
        for wrong in ["", "5", "MiB", "1mb", "-1B", "1.5KiB", "99999999999GiB"] {
            assert!(wrong.parse::<DataSize>().is_err(), "{wrong}");
        }
    }
}
