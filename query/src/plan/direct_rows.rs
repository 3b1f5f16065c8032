//! Result rows that are written directly from stored rows, for the usual statements: only columns are selected, each
//! with a single value.
//!
//! Such a row needs no slots ([`crate::plan::row_layout::RowLayout`]) for filters, functions or groups: its cells are
//! searched once and copied, and its clustering values are decoded directly into the result.
//!
//! Invariant: for every row that a statement can have written, the bytes equal those written through slots.

use cql_lite::types::{CqlType, codec};

use super::selection::Fetched;
use crate::error::Result;
use crate::schema::catalog::{ColumnKind, Table};
use crate::stored_key::{SourceRow, decode_clustering, decode_present_clustering, key_component};

/// Marks a column id that is not selected.
const NOT_SELECTED: u8 = u8::MAX;

/// Most selected cells of a row: they are kept in an array of fixed size while the row is written.
const CELLS_MAX: u8 = 16;

/// The conversion of regular rows to result rows, computed once for each plan. Cells of dropped columns are not selected.
#[derive(Debug)]
pub struct DirectRows {
    /// In the order of the result columns.
    parts: Vec<Part>,
    /// The index among the selected cells, by column id.
    cell_of_column: Vec<u8>,
    /// The selected columns that were dropped and added again: the index among the selected cells, and the timestamp (microseconds)
    /// up to which the column's cells are hidden.
    added_again: Vec<(u8, i64)>,
    /// For each clustering column up to the last selected one: its type, and whether it is descending.
    clustering: Vec<(CqlType, bool)>,
    partition_key_count: usize,
}

/// The origin of a value of the result.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A component of the partition key.
    PartitionKey(usize),
    /// A component of the position. These indexes ascend.
    Clustering(usize),
    /// A selected cell.
    Cell(usize),
}

impl DirectRows {
    /// Creates the conversion; `None` if the rows of the statement cannot be written directly. `slots`: the selected
    /// ones among those fetched.
    pub fn new(table: &Table, fetched: &Fetched, slots: &[usize]) -> Option<Self> {
        // Counters must be summed.
        if table.is_counter {
            return None;
        }
        let mut added_again = Vec::new();
        let mut cell_of_column = vec![NOT_SELECTED; table.next_column_id as usize];
        let (mut cell_count, mut clustering_count) = (0, 0);
        let mut parts = Vec::with_capacity(slots.len());
        for &slot in slots {
            let column = &table.columns[fetched.columns[slot]];
            parts.push(match column.kind {
                ColumnKind::PartitionKey { position } => Part::PartitionKey(position),
                // Each is decoded once, in order.
                ColumnKind::Clustering { position, .. } if position >= clustering_count => {
                    clustering_count = position + 1;
                    Part::Clustering(position)
                }
                ColumnKind::Regular if !column.column_type.is_multi_cell() => {
                    let cell = &mut cell_of_column[column.id as usize];
                    if *cell == NOT_SELECTED {
                        if cell_count == CELLS_MAX {
                            return None;
                        }
                        *cell = cell_count;
                        added_again.extend(table.hidden_until(column.id).map(|until| (cell_count, until)));
                        cell_count += 1;
                    }
                    Part::Cell(usize::from(*cell))
                }
                ColumnKind::Clustering { .. } | ColumnKind::Regular | ColumnKind::Static => return None,
            });
        }
        let clustering = table.clustering_key().iter().take(clustering_count);
        Some(Self {
            parts,
            cell_of_column,
            added_again,
            clustering: clustering
                .map(|column| (column.column_type.clone(), column.is_descending()))
                .collect(),
            partition_key_count: table.partition_key_count,
        })
    }

    /// Takes out the cells from before the drop of columns that were added again.
    #[cold]
    fn hide_old_cells(&self, source: &SourceRow<'_>, cells: &mut [Option<&[u8]>]) {
        for cell in source.row.cells() {
            let number = self.cell_of_column.get(cell.column as usize).copied().unwrap_or(NOT_SELECTED);
            let is_old = |(selected, until): &(u8, i64)| *selected == number && cell.timestamp <= *until;
            if self.added_again.iter().any(is_old)
                && let Some(value) = cells.get_mut(usize::from(number))
            {
                *value = None;
            }
        }
    }

    /// Appends the result row of a regular row.
    pub fn write(&self, source: &SourceRow<'_>, now_seconds: u32, out: &mut Vec<u8>) -> Result<()> {
        let mut cells: [Option<&[u8]>; CELLS_MAX as usize] = [None; CELLS_MAX as usize];
        for cell in source.row.cells() {
            // Columns that were added or dropped since the plan was made are not selected.
            let number = self.cell_of_column.get(cell.column as usize).copied().unwrap_or(NOT_SELECTED);
            if let Some(value) = cells.get_mut(usize::from(number))
                && cell.is_live(now_seconds)
            {
                *value = Some(cell.value);
            }
        }
        if !self.added_again.is_empty() {
            self.hide_old_cells(source, &mut cells);
        }
        // A position is its tag and its components.
        let mut rest = source.position.get(1..).unwrap_or_default();
        let mut decoded = 0;
        for part in &self.parts {
            match *part {
                Part::PartitionKey(component) => {
                    let value = key_component(source.partition_key, self.partition_key_count, component)?;
                    codec::write_element(value, out);
                }
                Part::Clustering(component) => {
                    for (value_type, descending) in &self.clustering[decoded..component] {
                        let length = out.len();
                        decode_clustering(value_type, &mut rest, *descending, out)?;
                        out.truncate(length);
                    }
                    decoded = component + 1;
                    if rest.is_empty() {
                        codec::write_field(None, out);
                        continue;
                    }
                    let (value_type, descending) = &self.clustering[component];
                    let mut outcome = Ok(());
                    codec::write_element_with(out, |out| {
                        outcome = decode_present_clustering(value_type, &mut rest, *descending, out);
                    });
                    outcome?;
                }
                Part::Cell(number) => codec::write_field(cells[number], out),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
