//! The versions of the protocol that are supported.

/// A supported protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProtocolVersion {
    V3 = 3,
    V4 = 4,
    V5 = 5,
}

impl ProtocolVersion {
    /// Every version, lowest first.
    pub const ALL: [Self; 3] = [Self::V3, Self::V4, Self::V5];
    /// The highest version, used in answers to clients of unknown versions.
    pub const HIGHEST: Self = Self::V5;

    /// The version with this number, if it is supported.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// The number of the version.
    pub fn number(self) -> u8 {
        self as u8
    }
}
