//! Range tombstones: deletions of ranges of positions within one partition.
//!
//! [`RangeTombstoneSet`] takes the deletions of a partition in any order. [`Union`] walks over several sorted lists of them as if
//! they were one. Both return *fragments*: range tombstones that ascend, do not overlap, and carry the strongest deletion of
//! their positions. Neighbours with equal deletions are united, so equal coverage gives equal fragments.

mod set;
mod union;
#[cfg(any(test, feature = "testing"))]
pub mod work;

pub use self::set::{CoveringWalk, RangeTombstoneSet};
pub use self::union::{SortedRangeTombstones, Union, Walked};

use crate::cell::Deletion;

/// Deletes the positions `[start, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    pub start: Box<[u8]>,
    pub end: Box<[u8]>,
    pub deletion: Deletion,
}

/// A view of a range tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeTombstoneRef<'a> {
    pub start: &'a [u8],
    pub end: &'a [u8],
    pub deletion: Deletion,
}

impl RangeTombstone {
    #[inline]
    pub fn view(&self) -> RangeTombstoneRef<'_> {
        RangeTombstoneRef { start: &self.start, end: &self.end, deletion: self.deletion }
    }
}

impl RangeTombstoneRef<'_> {
    /// Bytes of its bounds.
    pub fn key_bytes(&self) -> u64 {
        (self.start.len() + self.end.len()) as u64
    }

    /// A copy that owns its bounds.
    pub fn detach(self) -> RangeTombstone {
        RangeTombstone { start: self.start.into(), end: self.end.into(), deletion: self.deletion }
    }
}
