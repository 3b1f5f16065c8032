//! Ranges of keys that are left out when files are rewritten, because the shard has lost them.
//!
//! Either all rows of the ranges are left out, or only those at certain positions of their partitions.
//!
//! Invariant: the ranges are half open, sorted, disjoint and not empty, and each holds whole partitions.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::key::{prefix_length, token_bounds};
use crate::table::{TableCursor, TableError, TableReader};

/// The ranges of keys of a set of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedRanges {
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// The positions of the rows that are left out, sorted; `None`: all, and range tombstones.
    positions: Option<Vec<Vec<u8>>>,
}

impl DroppedRanges {
    /// The ranges of these tokens, which may come in any order and may overlap.
    pub fn new(tokens: &[RangeInclusive<i64>]) -> Self {
        let mut sorted: Vec<_> = tokens.iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_by_key(|range| *range.start());
        let mut ranges: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(sorted.len());
        for range in sorted {
            let (start, end) = token_bounds(range);
            match ranges.last_mut() {
                Some(last) if start <= last.1 => {
                    if end > last.1 {
                        last.1 = end;
                    }
                }
                _ => ranges.push((start, end)),
            }
        }
        Self { ranges, positions: None }
    }

    /// Only rows at these positions are left out, and no range tombstones.
    #[must_use]
    pub fn only_at(self, mut positions: Vec<Vec<u8>>) -> Self {
        positions.sort_unstable();
        Self { positions: Some(positions), ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The end of the range that contains `key` and of which nothing stays, if there is one.
    #[inline]
    pub fn end_of(&self, key: &[u8]) -> Option<&[u8]> {
        self.range_end(key).filter(|_| self.positions.is_none())
    }

    /// Whether the row with this full key is left out, in a range of which other rows stay.
    #[inline]
    pub fn takes_row(&self, key: &[u8]) -> bool {
        self.positions.as_ref().is_some_and(|positions| {
            let position = prefix_length(key).and_then(|length| key.get(length..));
            let is_named =
                |position: &[u8]| positions.binary_search_by(|known| known.as_slice().cmp(position)).is_ok();
            position.is_some_and(is_named) && self.range_end(key).is_some()
        })
    }

    #[inline]
    fn range_end(&self, key: &[u8]) -> Option<&[u8]> {
        let index = self.ranges.partition_point(|(_, end)| end.as_slice() <= key);
        let (start, end) = self.ranges.get(index)?;
        (start.as_slice() <= key).then_some(end)
    }

    /// Whether a file may have keys of any of the ranges, by its first and last key.
    pub fn may_touch(&self, table: &TableReader) -> bool {
        self.ranges.iter().any(|(start, end)| table.statistics().may_overlap(start, end))
    }

    /// Whether a file has a row or a range tombstone that is left out.
    pub fn touch(&self, table: &Arc<TableReader>) -> Result<bool, TableError> {
        if table.range_tombstones().prefixes().any(|prefix| self.end_of(prefix).is_some()) {
            return Ok(true);
        }
        let mut cursor = TableCursor::new(Arc::clone(table), None);
        for (start, end) in &self.ranges {
            if !table.statistics().may_overlap(start, end) {
                continue;
            }
            if !cursor.seek(start)? {
                return Ok(false);
            }
            while cursor.key() < end.as_slice() {
                if self.positions.is_none() || self.takes_row(cursor.key()) {
                    return Ok(true);
                }
                if !cursor.next()? {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::full_key;

    #[test]
    fn tokens_are_found_in_united_ranges() {
        let dropped = DroppedRanges::new(&[
            10..=20,
            -5..=3,
            15..=30,
            31..=40,
            RangeInclusive::new(7, 6),
            i64::MAX..=i64::MAX,
        ]);
        let holds = |token| dropped.end_of(&full_key(token, b"key", &[2]).unwrap()).is_some();
        for token in [-5, 0, 3, 10, 20, 30, 31, 40, i64::MAX] {
            assert!(holds(token), "{token}");
        }
        for token in [i64::MIN, -6, 4, 7, 9, 41, i64::MAX - 1] {
            assert!(!holds(token), "{token}");
        }
        assert_eq!(dropped.ranges.len(), 3);
        assert!(DroppedRanges::new(&[]).is_empty());
    }

    #[test]
    fn of_some_ranges_only_rows_at_certain_positions_go() {
        let dropped = DroppedRanges::new(&[10..=20]).only_at(vec![vec![2, 9], vec![2, 5]]);
        let key = |token, position: &[u8]| full_key(token, b"key", position).unwrap();
        assert!(dropped.takes_row(&key(15, &[2, 5])) && dropped.takes_row(&key(20, &[2, 9])));
        assert!(!dropped.takes_row(&key(15, &[2, 6])) && !dropped.takes_row(&key(15, &[2, 5, 0])));
        assert!(!dropped.takes_row(&key(21, &[2, 5])));
        assert_eq!(dropped.end_of(&key(15, &[2, 5])), None);
        assert!(!DroppedRanges::new(&[10..=20]).takes_row(&key(15, &[2, 5])));
    }
}
