//! Columns that were dropped from a table: their old cells are left out when files are rewritten.
//!
//! A cell that is newer than the drop stays. It is seen again if the column is added again.

use crate::cell::Deletion;
use crate::codec::DecodeError;
use crate::row::{RowHead, RowRef};
use crate::row_writer::RowWriter;

/// Dropped columns, each with the timestamp of its drop in microseconds: cells up to and including that time are garbage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedColumns {
    /// In ascending order of the columns.
    columns: Vec<(u32, i64)>,
}

impl DroppedColumns {
    /// The columns, in any order. A column that comes twice counts with its last drop.
    pub fn new(columns: impl IntoIterator<Item = (u32, i64)>) -> Self {
        let mut columns: Vec<_> = columns.into_iter().collect();
        columns.sort_unstable_by(|left, right| right.cmp(left));
        columns.dedup_by_key(|(column, _)| *column);
        columns.reverse();
        Self { columns }
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    fn drops(&self, column: u32, timestamp: i64) -> bool {
        self.columns
            .binary_search_by_key(&column, |(dropped, _)| *dropped)
            .ok()
            .and_then(|index| self.columns.get(index))
            .is_some_and(|(_, dropped_at)| timestamp <= *dropped_at)
    }

    /// Whether a row contains anything of a dropped column.
    pub fn touch(&self, row: RowRef<'_>) -> bool {
        !self.columns.is_empty()
            && (row.cells().any(|cell| self.drops(cell.column, cell.timestamp))
                || row.column_deletions().any(|(column, deletion)| self.drops(column, deletion.timestamp)))
    }

    /// Appends the row without what it contains of dropped columns, with the same base. False if nothing is left; then nothing is
    /// appended.
    pub fn write_rest(&self, row: RowRef<'_>, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
        let RowHead { liveness, deletion, column_deletions, cells } = row.head()?;
        let columns: Vec<(u32, Deletion)> =
            column_deletions.filter(|(column, deletion)| !self.drops(*column, deletion.timestamp)).collect();
        let mut writer = RowWriter::begin(out, row.base, liveness, deletion, &columns);
        for cell in cells.filter(|cell| !self.drops(cell.column, cell.timestamp)) {
            writer.cell(&cell);
        }
        Ok(writer.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, CellKind, Liveness};
    use crate::row_writer::RowBuilder;

    #[test]
    fn old_cells_of_dropped_columns_are_left_out() {
        let dropped = DroppedColumns::new([(3, 10), (1, 5), (3, 7)]);
        let cell =
            |column, timestamp| Cell { column, path: &[], timestamp, kind: CellKind::Live, value: b"v" };
        let mut builder = RowBuilder::new();
        builder.set_liveness(Liveness { timestamp: 1, expiry: None });
        builder.delete_column(3, Deletion { timestamp: 9, local_deletion_time: 1 });
        builder.cell(cell(1, 6)).cell(cell(2, 1)).cell(cell(3, 10)).cell(cell(4, 1));
        let bytes = builder.to_bytes();
        let row = RowRef::new(&bytes, 0);
        assert!(dropped.touch(row));
        let mut out = Vec::new();
        assert!(dropped.write_rest(row, &mut out).unwrap());
        let rest = RowRef::new(&out, 0);
        assert!(!dropped.touch(rest) && rest.liveness().is_some());
        assert_eq!(rest.column_deletions().count(), 0);
        assert_eq!(rest.cells().map(|cell| cell.column).collect::<Vec<_>>(), [1, 2, 4]);

        let bytes = RowBuilder::new().cell(cell(1, 5)).to_bytes();
        out.clear();
        assert!(!dropped.write_rest(RowRef::new(&bytes, 0), &mut out).unwrap());
        assert!(out.is_empty());
    }
}
