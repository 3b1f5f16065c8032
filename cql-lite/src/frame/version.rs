//! The versions of the protocol that are supported.

/// A supported protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProtocolVersion {
    V3 = 3,
    V4 = 4,
    V5 = 5,
    /// A beta version, which clients must ask for with a flag. Its messages are those of v5.
    V6 = 6,
}

impl ProtocolVersion {
    /// Every version, lowest first.
    pub const ALL: [Self; 4] = [Self::V3, Self::V4, Self::V5, Self::V6];
    /// The highest version that is no beta, used in answers to clients of unknown versions.
    pub const HIGHEST: Self = Self::V5;

    /// The version with this number, if it is supported.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            6 => Some(Self::V6),
            _ => None,
        }
    }

    /// The number of the version.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name in SUPPORTED and in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::V3 => "3/v3",
            Self::V4 => "4/v4",
            Self::V5 => "5/v5",
            Self::V6 => "6/v6-beta",
        }
    }

    /// Whether clients must ask for the version with a flag.
    pub fn is_beta(self) -> bool {
        self == Self::V6
    }
}
