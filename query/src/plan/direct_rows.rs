//! Rows written straight into an answer, as most statements want them: nothing but columns, each held as one value.
//!
//! Such a row needs no slots ([`crate::plan::row_layout::RowLayout`]) that filters, functions or groups could look at: its cells are found
//! once and copied, its clustering values are decoded where they are to stand.
//!
//! Invariant: for every row that a statement can have written, the bytes are those that the way through slots writes.

use cql_lite::types::{CqlType, codec};

use super::selection::Fetched;
use crate::error::Result;
use crate::schema::catalog::{ColumnKind, Table};
use crate::stored_key::{SourceRow, decode_clustering, key_component};

/// Marks a column id that is not selected.
const NOT_SELECTED: u8 = u8::MAX;

/// Most cells that are selected of a row: they are kept in a place of fixed size while it is written.
const CELLS_MAX: u8 = 16;

/// How regular rows become result rows: worked out once a plan.
#[derive(Debug)]
pub struct DirectRows {
    /// In the order of the result.
    parts: Vec<Part>,
    /// Column id to the number among the selected cells.
    cell_of_column: Vec<u8>,
    /// Type and whether descending, of the clustering columns up to the last that is selected.
    clustering: Vec<(CqlType, bool)>,
    partition_key_count: usize,
}

/// Where a value of the result comes from.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A component of the partition key.
    PartitionKey(usize),
    /// A component of the position; these ascend.
    Clustering(usize),
    /// A selected cell.
    Cell(usize),
}

impl DirectRows {
    /// `None` where rows cannot be written so. `slots`: what is selected, of what is fetched.
    pub fn new(table: &Table, fetched: &Fetched, slots: &[usize]) -> Option<Self> {
        // Counters are summed up, and cells of dropped columns may be left in rows.
        if table.is_counter || !table.dropped_columns.is_empty() {
            return None;
        }
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
            clustering: clustering
                .map(|column| (column.column_type.clone(), column.is_descending()))
                .collect(),
            partition_key_count: table.partition_key_count,
        })
    }

    /// Appends the result row of a regular row.
    pub fn write(&self, source: &SourceRow<'_>, now_seconds: u32, out: &mut Vec<u8>) -> Result<()> {
        let mut cells: [Option<&[u8]>; CELLS_MAX as usize] = [None; CELLS_MAX as usize];
        for cell in source.row.cells() {
            let number = self.cell_of_column.get(cell.column as usize).copied().unwrap_or(NOT_SELECTED);
            if let Some(value) = cells.get_mut(usize::from(number))
                && cell.is_live(now_seconds)
            {
                *value = Some(cell.value);
            }
        }
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
                    let (value_type, descending) = &self.clustering[component];
                    let mut outcome = Ok(());
                    codec::write_element_with(out, |out| {
                        outcome = decode_clustering(value_type, &mut rest, *descending, out);
                    });
                    outcome?;
                    decoded = component + 1;
                }
                Part::Cell(number) => codec::write_field(cells[number], out),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
