//! Result rows in the order of their similarity to a vector: the nearest so far are kept until all have been read.
//!
//! Invariant: fewer than twice as many rows are kept as are wanted. Of rows that are as similar the first ones stay.

use helenus_vectors::Target;

use crate::error::Result;
use crate::plan::nearest::NearestPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;

/// Encoded result rows, each with its similarity.
pub(super) struct NearestRows {
    target: Target,
    wanted: usize,
    rows: Vec<(f32, Vec<u8>)>,
}

impl NearestRows {
    /// For the rows of a request. `None`: they have another order.
    pub fn of(plan: &SelectPlan, bindings: &Bindings<'_>, limit: Option<u64>) -> Result<Option<Self>> {
        let Some(nearest) = &plan.nearest else { return Ok(None) };
        let wanted = NearestPlan::wanted(limit)?;
        Ok(Some(Self { target: nearest.target(&plan.table, bindings)?, wanted, rows: Vec::new() }))
    }

    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// The similarity of a vector. `None`: a row with it is not part of the result.
    pub fn similarity(&self, vector: Option<&[u8]>) -> Option<f32> {
        self.target.similarity_to(vector?)
    }

    /// Takes an encoded row.
    pub fn add(&mut self, similarity: f32, row: Vec<u8>) {
        self.rows.push((similarity, row));
        if self.rows.len() >= 2 * self.wanted {
            self.sort();
        }
    }

    /// The least similarity of the result. `None`: there are fewer rows than are wanted.
    pub fn worst(&mut self) -> Option<f32> {
        self.sort();
        self.rows.get(self.wanted.checked_sub(1)?).map(|(similarity, _)| *similarity)
    }

    /// Sorts the rows, and drops those that are not wanted.
    fn sort(&mut self) {
        self.rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        self.rows.truncate(self.wanted);
    }

    /// Appends the wanted rows to `out`, the nearest first. Returns their number.
    pub fn write_sorted(&mut self, out: &mut Vec<u8>) -> usize {
        self.sort();
        for (_, row) in &self.rows {
            out.extend_from_slice(row);
        }
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use helenus_vectors::Similarity;

    use super::*;

    #[test]
    fn the_nearest_rows_stay_and_no_others_are_kept() {
        let mut nearest = NearestRows {
            target: Target::new(Similarity::Euclidean, vec![0.0]),
            wanted: 3,
            rows: Vec::new(),
        };
        assert_eq!(nearest.worst(), None);
        for number in 0..=255_u8 {
            nearest.add(f32::from(number.wrapping_mul(37) / 2), vec![number]);
            assert!(nearest.rows.len() < 6);
        }
        assert_eq!(nearest.worst(), Some(126.0));
        let mut out = Vec::new();
        assert_eq!(nearest.write_sorted(&mut out), 3);
        let mut expected: Vec<u8> = (0..=255).collect();
        expected.sort_by_key(|number| std::cmp::Reverse(number.wrapping_mul(37) / 2));
        assert_eq!(out, expected[..3]);
    }
}
