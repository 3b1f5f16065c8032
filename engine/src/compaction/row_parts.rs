//! A row that is larger than a file takes is cut into parts, which are versions of the row: readers merge them.
//!
//! Such a row grew cell by cell, over many files. Its parts go into files of their own, which no strategy chooses again while
//! the process runs: a merge of them would only give the same parts.

use crate::codec::DecodeError;
use crate::row::{RowHead, RowRef};
use crate::row_writer::RowWriter;

/// Cuts a row into parts of at most about `bytes_max`, with the same base. The first part has all but the further cells. A part
/// is larger only if one of its cells is.
pub(super) fn cut(row: RowRef<'_>, bytes_max: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
    let RowHead { liveness, deletion, column_deletions, cells } = row.head()?;
    let columns: Vec<_> = column_deletions.collect();
    let mut cells = cells.peekable();
    let mut parts = Vec::new();
    let mut is_first = true;
    while is_first || cells.peek().is_some() {
        let mut part = Vec::new();
        let mut writer = if is_first {
            RowWriter::begin(&mut part, row.base, liveness, deletion, &columns)
        } else {
            RowWriter::begin(&mut part, row.base, None, None, &[])
        };
        is_first = false;
        let mut bytes = 0;
        while let Some(cell) =
            cells.next_if(|cell| bytes == 0 || bytes + cell.encoded_bytes_max() <= bytes_max)
        {
            bytes += cell.encoded_bytes_max();
            writer.cell(&cell);
        }
        if writer.finish() {
            parts.push(part);
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, CellKind, Deletion, Liveness};
    use crate::reconcile::{Purpose, merge_rows};
    use crate::row_writer::RowBuilder;

    #[test]
    fn the_parts_of_a_row_merge_to_the_row() {
        let mut builder = RowBuilder::new();
        builder.set_liveness(Liveness { timestamp: 1, expiry: None });
        builder.delete_column(1, Deletion { timestamp: 1, local_deletion_time: 1 });
        for path in 0..100_u8 {
            let value = vec![path; 1 + usize::from(path) * 10];
            builder.cell(Cell {
                column: 1,
                path: &[path],
                timestamp: 2 + i64::from(path),
                kind: CellKind::Live,
                value: &value,
            });
        }
        let whole = builder.to_bytes();
        let parts = cut(RowRef::new(&whole, 0), 2000).unwrap();
        assert!(parts.len() > 20 && parts.iter().all(|part| part.len() <= 2000));
        let versions: Vec<_> = parts.iter().map(|part| RowRef::new(part, 0)).collect();
        let mut merged = Vec::new();
        merge_rows(&versions, None, Purpose::Keep, 0, &mut merged).unwrap();
        assert_eq!(merged, whole);
        assert_eq!(cut(RowRef::new(&whole, 0), usize::MAX).unwrap(), [whole]);
    }
}
