//! How much a merge of versions may write: the hot paths know that theirs are small, readers of whole rows refuse larger ones, and
//! streams take a large row in parts.
//!
//! A limit is asked before each cell, so that a row ends before the cell that has no room.

use crate::cell::{AddressBuf, Cell};

/// The limit of a merge.
pub(super) trait Limit {
    /// Whether the cell may be written behind the `size_bytes` of the row. If not, the merge ends.
    fn allows(&mut self, size_bytes: usize, cell: &Cell<'_>) -> bool;

    /// Whether the row may have this size.
    #[inline]
    fn fits(&self, _size_bytes: usize) -> bool {
        true
    }
}

/// The versions are known to be small.
pub(super) struct Unlimited;

impl Limit for Unlimited {
    #[inline]
    fn allows(&mut self, _: usize, _: &Cell<'_>) -> bool {
        true
    }
}

/// A row of at most this number of bytes, or none.
pub(super) struct AtMost(pub usize);

impl Limit for AtMost {
    /// The next cell may be one that is left out.
    #[inline]
    fn allows(&mut self, size_bytes: usize, _: &Cell<'_>) -> bool {
        self.fits(size_bytes)
    }

    #[inline]
    fn fits(&self, size_bytes: usize) -> bool {
        size_bytes <= self.0
    }
}

/// A part of about this number of bytes. It has one cell at least, whatever the size of that.
pub(super) struct UpTo {
    pub bytes_max: usize,
    /// The size of the row before its cells.
    pub bytes_before: Option<usize>,
    /// The cell with which the next part begins.
    pub next: Option<AddressBuf>,
}

impl Limit for UpTo {
    fn allows(&mut self, size_bytes: usize, cell: &Cell<'_>) -> bool {
        let has_cell = size_bytes > *self.bytes_before.get_or_insert(size_bytes);
        if has_cell && size_bytes + cell.encoded_bytes_max() > self.bytes_max {
            self.next = Some(cell.address().into());
            return false;
        }
        true
    }
}
