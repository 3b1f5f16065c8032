//! The range tombstones of one partition in a table, for a walk over those of several sources.

use std::sync::Arc;

use super::range_tombstones::StoredRangeTombstone;
use super::reader::TableReader;
use crate::range_tombstone::{RangeTombstoneRef, SortedRangeTombstones};

/// A cursor over the range tombstones of one partition that overlap some positions.
pub struct RangeTombstoneCursor {
    table: Arc<TableReader>,
    prefix: Vec<u8>,
    /// The number of the current range tombstone; `None` behind the last.
    current: Option<usize>,
    reversed: bool,
}

impl RangeTombstoneCursor {
    /// A cursor on the first range tombstone of the partition that ends after `low`; `reversed`: on the last one that starts before
    /// `high`.
    pub fn new(table: Arc<TableReader>, prefix: &[u8], low: &[u8], high: &[u8], reversed: bool) -> Self {
        let current = {
            let range_tombstones = table.range_tombstones();
            let bound = [prefix, if reversed { high } else { low }].concat();
            let after = range_tombstones.first_ending_after(&bound);
            let starts_before = |index: usize| {
                range_tombstones.get(index).is_some_and(|it| it.prefix == prefix && it.start < high)
            };
            if reversed && !starts_before(after) { after.checked_sub(1) } else { Some(after) }
        };
        Self { table, prefix: prefix.to_vec(), current, reversed }
    }
}

impl SortedRangeTombstones for RangeTombstoneCursor {
    fn current(&self) -> Option<RangeTombstoneRef<'_>> {
        let StoredRangeTombstone { prefix, start, end, deletion } =
            self.table.range_tombstones().get(self.current?)?;
        (prefix == self.prefix).then_some(RangeTombstoneRef { start, end, deletion })
    }

    fn advance(&mut self) {
        self.current = self
            .current
            .and_then(|current| if self.reversed { current.checked_sub(1) } else { current.checked_add(1) });
    }
}
