//! Reading a table back after it was written.

use std::sync::Arc;

use super::cursor::TableCursor;
use super::error::TableError;
use super::filter::KeyHash;
use super::reader::TableReader;
use super::statistics::TableStatistics;
use crate::key;

/// Rows after which other tasks run.
const ROWS_PER_TURN: u64 = 1024;

/// Reads a whole table: every block is checked and unpacked, every row decoded. Keys must ascend, every row must be found by the
/// filters, and the counts must be `written`, those with which the table was written. Otherwise the table is damaged. Now and then
/// `pause` gets the bytes of the rows since it was called last; it lets other tasks run.
pub async fn verify(
    table: &Arc<TableReader>,
    written: &TableStatistics,
    mut pause: impl AsyncFnMut(u64),
) -> Result<(), TableError> {
    let damaged = |reason| Err(table.damaged(0, reason));
    if table.statistics() != written {
        return damaged("the statistics are not those that were written");
    }
    let mut cursor = TableCursor::new(Arc::clone(table), None);
    let (mut rows, mut cells, mut partitions, mut unpaced_bytes) = (0, 0, 0, 0);
    let mut previous = Vec::new();
    let mut prefix = Vec::new();
    let mut is_there = cursor.seek_first()?;
    while is_there {
        let row_key = cursor.key();
        if rows > 0 && row_key <= previous.as_slice() {
            return damaged("the keys do not ascend");
        }
        if !written.may_contain(row_key) || !table.may_contain_row(KeyHash::of(row_key)) {
            return damaged("a key is not found by the bounds and filters");
        }
        if rows == 0 || !row_key.starts_with(&prefix) {
            let Some(length) = key::prefix_length(row_key) else { return damaged("a key is malformed") };
            prefix.clear();
            let Some(row_prefix) = row_key.get(..length) else { return damaged("a key is malformed") };
            prefix.extend_from_slice(row_prefix);
            partitions += 1;
        }
        previous.clear();
        previous.extend_from_slice(row_key);
        let Ok(head) = cursor.row().head() else { return damaged("a row is malformed") };
        let row_bytes = row_key.len() + cursor.row().bytes.len();
        cells += head.cells.count() as u64;
        rows += 1;
        is_there = cursor.next()?;
        unpaced_bytes += row_bytes as u64;
        if rows % ROWS_PER_TURN == 0 {
            pause(std::mem::take(&mut unpaced_bytes)).await;
        }
    }
    if (rows, cells, partitions) != (written.rows, written.cells, written.partitions) {
        return damaged("it does not hold as many rows, cells and partitions as were written");
    }
    pause(unpaced_bytes).await;
    Ok(())
}
