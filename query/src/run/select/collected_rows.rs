//! Result rows in another order than the table's: they are kept until all have been read, and then sorted.

use std::cmp::Ordering;

use cql_lite::types::compare;

use crate::plan::row_layout::{OwnedValues, RowValues};
use crate::plan::select::SelectPlan;

/// Encoded result rows, each with the values that it is sorted by.
#[derive(Default)]
pub(super) struct CollectedRows(Vec<(OwnedValues, Vec<u8>)>);

impl CollectedRows {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps an encoded row. `values` are those of the row that it was made from.
    pub fn add(&mut self, plan: &SelectPlan, values: &RowValues<'_>, row: Vec<u8>) {
        let keys = plan.result_order.iter().map(|(slot, _)| values.get(*slot).map(<[u8]>::to_vec)).collect();
        self.0.push((keys, row));
    }

    /// Appends the first `limit` rows in the order of the statement to `out`. Returns their number.
    pub fn write_sorted(&mut self, plan: &SelectPlan, limit: usize, out: &mut Vec<u8>) -> usize {
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
        self.0.sort_by(|(a, _), (b, _)| compare_rows(a, b));
        self.0.truncate(limit);
        for (_, row) in &self.0 {
            out.extend_from_slice(row);
        }
        self.0.len()
    }
}
