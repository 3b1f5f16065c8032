//! Consistency levels: their codes on the wire and their names.

use std::{fmt, str::FromStr};

use super::error::DecodeError;

/// A consistency level: the number of replicas that must take part in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Consistency {
    Any = 0x00,
    One = 0x01,
    Two = 0x02,
    Three = 0x03,
    Quorum = 0x04,
    All = 0x05,
    LocalQuorum = 0x06,
    EachQuorum = 0x07,
    Serial = 0x08,
    LocalSerial = 0x09,
    LocalOne = 0x0A,
    /// A level for internal use in Cassandra, which clients may also send.
    NodeLocal = 0x64,
}

impl Consistency {
    /// Every level.
    pub const ALL: [Self; 12] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
        Self::NodeLocal,
    ];

    /// The level with this code.
    pub fn from_code(code: u16) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|level| level.code() == code)
            .ok_or(DecodeError::UnknownConsistency { code })
    }

    /// The code on the wire.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The name in CQL, upper case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "ANY",
            Self::One => "ONE",
            Self::Two => "TWO",
            Self::Three => "THREE",
            Self::Quorum => "QUORUM",
            Self::All => "ALL",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
            Self::LocalOne => "LOCAL_ONE",
            Self::NodeLocal => "NODE_LOCAL",
        }
    }

    /// Whether it is one of the two levels of lightweight transactions.
    pub fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Consistency {
    type Err = DecodeError;

    /// Parses a name in any case.
    fn from_str(text: &str) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| DecodeError::UnknownName { what: "consistency level", value: text.to_owned() })
    }
}
