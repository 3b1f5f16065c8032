//! The rows on which the conditions of a transaction are checked.

use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::condition::Conditions;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::row_layout::{OwnedValues, RowLayout, RowScratch, SlotBuffer};
use helenus_query::plan::selection::Fetched;
use helenus_query::run::condition::CurrentRow;
use helenus_query::run::keys::{Slice, positions};
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use crate::coordinator::bound_statement::BoundStatement;

/// Whether a statement names one row, and not only the static content of a partition.
pub(super) fn names_its_row(plan: &ModifyPlan) -> bool {
    !plan.clustering.is_empty() || plan.table.clustering_key_count == 0
}

/// Whether the conditions of a statement are about the row that it names, and not only about static columns.
pub(super) fn is_about_its_row(plan: &ModifyPlan, conditions: &Conditions) -> bool {
    names_its_row(plan)
        && match conditions {
            Conditions::Exists | Conditions::NotExists => true,
            Conditions::Columns(list) => {
                list.iter().any(|condition| !plan.table.columns[condition.column].is_static())
            }
        }
}

/// The rows of a partition, with values by index in [`Table::columns`].
pub(super) struct PartitionRows<'r> {
    pub(super) table: &'r Table,
    key: &'r PartitionKey,
    rows: &'r dyn ExistingRows,
    layout: RowLayout,
    pub(super) now_seconds: u32,
}

impl<'r> PartitionRows<'r> {
    pub(super) fn new(
        table: &'r Table,
        key: &'r PartitionKey,
        rows: &'r dyn ExistingRows,
        now_seconds: u32,
    ) -> Self {
        let mut fetched = Fetched::default();
        for index in 0..table.columns.len() {
            fetched.slot(index);
        }
        Self { table, key, rows, layout: RowLayout::new(table, &fetched), now_seconds }
    }

    /// The content of a row, if it exists for readers.
    pub(super) fn row(&self, position: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.rows.row(self.table, self.key, position)?;
        Ok(row.filter(|row| self.layout.is_there(RowRef::new(row, 0), self.now_seconds)))
    }

    /// The first regular row: its position and content.
    pub(super) fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.first_of(&[Slice::all_rows()])
    }

    /// The first regular row of slices: its position and content.
    pub(super) fn first_of(&self, slices: &[Slice]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let is_there = |row: RowRef<'_>| self.layout.is_there(row, self.now_seconds);
        for slice in slices {
            let mut first = self.rows.rows_of(self.table, self.key, slice, 1, &is_there)?;
            if first.is_empty() {
                continue;
            }
            return Ok(first.pop());
        }
        Ok(None)
    }

    /// The values of the static columns and of the partition key. `None`: there is no static content.
    pub(super) fn statics(&self) -> Result<Option<OwnedValues>> {
        let row = if self.table.has_static_columns() { self.row(STATIC_POSITION)? } else { None };
        row.map(|row| self.read(STATIC_POSITION, Some(&row), None)).transpose()
    }

    /// The values of a row, with those of the static columns.
    pub(super) fn values(
        &self,
        position: &[u8],
        row: Option<&[u8]>,
        statics: Option<&OwnedValues>,
    ) -> Result<OwnedValues> {
        match statics {
            Some(statics) => self.read(position, row, Some(statics)),
            None => self.read(position, row, Some(&vec![None; self.table.columns.len()])),
        }
    }

    fn read(
        &self,
        position: &[u8],
        row: Option<&[u8]>,
        statics: Option<&OwnedValues>,
    ) -> Result<OwnedValues> {
        let (mut slots, mut scratch) = (SlotBuffer::default(), RowScratch::default());
        let row = row.map(|bytes| RowRef::new(bytes, 0));
        let statics = statics.map(|values| (values, [].as_slice()));
        let (key, now_seconds) = (&self.key.bytes, self.now_seconds);
        let values = self.layout.read(key, position, row, statics, now_seconds, &mut slots, &mut scratch)?;
        Ok(values.to_owned_values())
    }
}

/// The row on which the conditions of a statement are checked: the one that it names, or the first one with the static content.
pub(super) fn current_row(
    statement: &BoundStatement,
    rows: &dyn ExistingRows,
    now_seconds: u32,
) -> Result<CurrentRow> {
    let (plan, values) = (statement.plan(), statement.borrow());
    let Some(key) = statement.keys.first() else {
        return Err(RequestError::invalid("A condition needs a partition"));
    };
    let partition = PartitionRows::new(&plan.table, key, rows, now_seconds);
    let names_row = names_its_row(plan);
    let (position, regular) = if names_row {
        let position = positions(&plan.clustering, &plan.table, &values.bindings())?.into_iter().next();
        let regular = match &position {
            Some(position) => partition.row(position)?,
            None => None,
        };
        (position, regular)
    } else {
        partition.first()?.unzip()
    };
    let statics = partition.statics()?;
    let position = position.as_deref().unwrap_or(STATIC_POSITION);
    Ok(CurrentRow {
        exists: names_row && regular.is_some(),
        has_statics: statics.is_some(),
        values: partition.values(position, regular.as_deref(), statics.as_ref())?,
    })
}
