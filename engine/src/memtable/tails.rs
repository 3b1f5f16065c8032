//! Changes of large rows, collected until rewriting the row pays off.
//!
//! A row is one byte string, so a change rewrites it. For a row with very many cells (a large collection) each change would cost
//! as much as the row is large. The changes of such a row are collected in a tail instead. A tail consists of runs. Each run is
//! the merge of some changes and is less than half as large as the run before it. So each change is copied a number of times
//! that is logarithmic in the size of the row. A reader merges the row with its tail.
//!
//! Invariant: a tail is smaller than its row. When its first run reaches half the size of the row, the tail is merged into it.

use crate::codec::DecodeError;
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;

/// Smaller rows are rewritten by each change.
const LARGE_ROW_BYTES: usize = 4 << 10;

/// Whether a change of a row is added to the row's tail.
#[inline]
pub(super) fn belongs_into_tail(row_bytes: usize, change_bytes: usize) -> bool {
    row_bytes >= LARGE_ROW_BYTES && !is_worth_merging(row_bytes, change_bytes)
}

/// Whether a change is large enough to be merged with the run (or row) before it.
#[inline]
fn is_worth_merging(older_bytes: usize, newer_bytes: usize) -> bool {
    newer_bytes >= older_bytes / 2
}

/// The changes of one row, encoded with base 0.
#[derive(Debug, Default)]
pub struct Tail {
    /// The largest first.
    runs: Vec<Vec<u8>>,
}

impl Tail {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Memory of the runs, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.capacity() + size_of::<Vec<u8>>()).sum()
    }

    /// Adds a change.
    pub fn push(&mut self, change: &[u8]) -> Result<(), DecodeError> {
        let mut newest = change.to_vec();
        while let Some(older) = self.runs.pop_if(|older| is_worth_merging(older.len(), newest.len())) {
            newest = merge(&older, &newest)?;
        }
        self.runs.push(newest);
        Ok(())
    }

    /// Whether the tail is large enough to be merged into its row.
    pub fn is_due(&self, row_bytes: usize) -> bool {
        self.runs.first().is_some_and(|run| is_worth_merging(row_bytes, run.len()))
    }

    /// The merge of all changes; empty if there are none.
    pub fn merged(&self) -> Result<Vec<u8>, DecodeError> {
        let mut runs = self.runs.iter().rev();
        let Some(newest) = runs.next() else { return Ok(Vec::new()) };
        let mut merged = newest.clone();
        for older in runs {
            merged = merge(older, &merged)?;
        }
        Ok(merged)
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

fn merge(older: &[u8], newer: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(older.len() + newer.len());
    merge_rows(&[RowRef::new(older, 0), RowRef::new(newer, 0)], None, Purpose::Keep, 0, &mut out)?;
    Ok(out)
}
