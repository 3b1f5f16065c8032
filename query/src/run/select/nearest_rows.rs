//! Result rows in the order of their similarity to a vector: they are kept until all have been read, and then sorted.

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

    /// Keeps an encoded row.
    pub fn add(&mut self, similarity: f32, row: Vec<u8>) {
        self.rows.push((similarity, row));
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
