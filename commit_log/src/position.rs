//! The address of a record.

use std::fmt;

/// The start of a record. Positions are ordered as the records are, and stay valid across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The number of the segment; the first is 1.
    pub segment: u64,
    /// Bytes from the start of the segment's file.
    pub offset: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.segment, self.offset)
    }
}
