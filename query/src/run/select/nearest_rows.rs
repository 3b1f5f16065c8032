//! Result rows in the order of their similarity to a vector: the nearest are kept until all have been read.
//!
//! Invariant: no more are kept than a few times as many as are wanted, however many are read.

use helenus_vectors::Target;

use crate::error::Result;
use crate::plan::nearest::NearestPlan;
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;

/// Rows that are kept beyond twice those that are wanted: sorting is worth it for many rows at a time.
const SPARE_ROWS: usize = 64;

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

    /// Keeps an encoded row while it is among the nearest.
    pub fn add(&mut self, similarity: f32, row: Vec<u8>) {
        self.rows.push((similarity, row));
        if self.rows.len() > self.wanted.saturating_mul(2).saturating_add(SPARE_ROWS) {
            self.sort();
            self.rows.truncate(self.wanted);
        }
    }

    /// The least similarity of the result. `None`: there are fewer rows than are wanted.
    pub fn worst(&mut self) -> Option<f32> {
        self.sort();
        self.rows.get(self.wanted.checked_sub(1)?).map(|(similarity, _)| *similarity)
    }

    fn sort(&mut self) {
        self.rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    }

    /// Appends the wanted rows to `out`, the nearest first. Returns their number.
    pub fn write_sorted(&mut self, out: &mut Vec<u8>) -> usize {
        self.sort();
        self.rows.truncate(self.wanted);
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
    fn the_nearest_of_many_rows_are_kept_in_order() {
        let target = Target::new(Similarity::Euclidean, vec![0.0]);
        let mut nearest = NearestRows { target, wanted: 3, rows: Vec::new() };
        // Each number below 1,009 comes once: it has no factor in common with 7.
        for number in (0..1_009_u32).map(|step| step * 7 % 1_009) {
            let vector = (number as f32).to_be_bytes();
            let similarity = nearest.similarity(Some(&vector)).unwrap();
            nearest.add(similarity, number.to_be_bytes().to_vec());
            assert!(nearest.rows.len() <= 2 * 3 + SPARE_ROWS);
        }
        let worst = nearest.worst().unwrap();
        assert_eq!(Some(worst), nearest.similarity(Some(&2_f32.to_be_bytes())));
        let mut written = Vec::new();
        assert_eq!(nearest.write_sorted(&mut written), 3);
        assert_eq!(written, [0_u32, 1, 2].map(u32::to_be_bytes).concat());
    }
}
