//! The filters of a SELECT that a regular row decides alone. A reader of rows on another thread applies them, so that rows which the
//! run would leave out do not travel.
//!
//! Invariant: a row that does not pass would be left out by [`SelectRun`](super::select::SelectRun) as well. So the run may see
//! fewer rows than the table has, and its result is the same. It applies all filters again.

use helenus_engine::key::STATIC_POSITION;

use super::evaluate::BoundFilters;
use crate::error::Result;
use crate::plan::restrictions::Filter;
use crate::plan::row_layout::{RowScratch, SlotBuffer};
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;
use crate::schema::catalog::ColumnKind;
use crate::stored_key::SourceRow;

/// The filters with their values.
pub struct RowFilters<'p> {
    plan: &'p SelectPlan,
    filters: BoundFilters<'p>,
    now_seconds: u32,
    scratch: RowScratch,
}

impl<'p> RowFilters<'p> {
    /// Whether a plan has such filters.
    pub fn are_in(plan: &SelectPlan) -> bool {
        // Rows that do not pass count for the cap of a table.
        plan.table.options.cap.is_none()
            && plan.restrictions.filters.iter().any(|filter| is_of_row(plan, filter))
    }

    /// Binds the filters of a plan.
    pub fn new(plan: &'p SelectPlan, bindings: &Bindings<'p>, now_seconds: u32) -> Result<Self> {
        let filters = plan.restrictions.filters.iter().filter(|filter| is_of_row(plan, filter));
        let filters = BoundFilters::bind(filters, &plan.table, &plan.fetched, bindings)?;
        Ok(Self { plan, filters, now_seconds, scratch: RowScratch::default() })
    }

    /// Whether a row passes. Static rows always do: they are read for the rows of their partition.
    pub fn pass(&mut self, source: &SourceRow<'_>) -> Result<bool> {
        if source.position == STATIC_POSITION {
            return Ok(true);
        }
        let mut slots = SlotBuffer::default();
        let SourceRow { partition_key, position, row } = *source;
        let (now_seconds, scratch) = (self.now_seconds, &mut self.scratch);
        let layout = &self.plan.layout;
        let values =
            layout.read(partition_key, position, Some(row), None, now_seconds, &mut slots, scratch)?;
        self.filters.accept(&values)
    }
}

/// Whether a filter reads no static column (values of those are not in the row itself), and compares with the same values here as in the
/// run.
fn is_of_row(plan: &SelectPlan, filter: &Filter) -> bool {
    filter.is_pure()
        && filter.subject.columns().iter().all(|&index| plan.table.columns[index].kind != ColumnKind::Static)
}
