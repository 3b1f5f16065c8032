//! Result rows in another order than the table's: they are kept until all have been read, and then sorted.

use std::cmp::Ordering;

use cql_lite::types::compare;

use crate::plan::row_layout::{OwnedValues, RowValues};
use crate::plan::select::SelectPlan;

/// The fewest rows of which those behind the LIMIT are left out.
const SORTED_ROWS_MIN: usize = 64;

/// Encoded result rows, each with the values that it is sorted by.
#[derive(Default)]
pub(super) struct CollectedRows {
    rows: Vec<(OwnedValues, Vec<u8>)>,
    bytes: usize,
}

impl CollectedRows {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The bytes of the encoded rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps an encoded row, if it is one of the first `limit` ones in the order of the statement. `values` are those of the row that it was
    /// made from.
    pub fn add(&mut self, plan: &SelectPlan, limit: usize, values: &RowValues<'_>, row: Vec<u8>) {
        let keys = plan.result_order.iter().map(|(slot, _)| values.get(*slot).map(<[u8]>::to_vec)).collect();
        self.bytes += row.len();
        self.rows.push((keys, row));
        if self.rows.len() >= limit.saturating_mul(2).max(SORTED_ROWS_MIN) {
            self.sort(plan, limit);
        }
    }

    /// Sorts the rows and keeps the first `limit` ones.
    fn sort(&mut self, plan: &SelectPlan, limit: usize) {
        let types: Vec<_> = plan
            .result_order
            .iter()
            .map(|(slot, descending)| {
                (&plan.table.columns[plan.fetched.columns[*slot]].column_type, *descending)
            })
            .collect();
        let compare_rows = |a: &[Option<Vec<u8>>], b: &[Option<Vec<u8>>]| {
            for ((left, right), (value_type, descending)) in a.iter().zip(b).zip(&types) {
                // A partition with nothing but static values comes first in the order of the table.
                let (ordering, is_reversed) = match (left, right) {
                    (Some(left), Some(right)) => (compare::compare(value_type, left, right), *descending),
                    _ => (left.is_some().cmp(&right.is_some()), plan.reversed),
                };
                let ordering = if is_reversed { ordering.reverse() } else { ordering };
                if ordering != Ordering::Equal {
                    return ordering;
                }
            }
            Ordering::Equal
        };
        self.rows.sort_by(|(a, _), (b, _)| compare_rows(a, b));
        self.rows.truncate(limit);
        self.bytes = self.rows.iter().map(|(_, row)| row.len()).sum();
    }

    /// Appends the first `limit` rows in the order of the statement to `out`. Returns their number.
    pub fn write_sorted(&mut self, plan: &SelectPlan, limit: usize, out: &mut Vec<u8>) -> usize {
        self.sort(plan, limit);
        for (_, row) in &self.rows {
            out.extend_from_slice(row);
        }
        self.rows.len()
    }
}
