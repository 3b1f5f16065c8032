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

/// What a part of a table holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub rows: u64,
    pub cells: u64,
    pub partitions: u64,
}

impl Counted {
    /// Adds another part of the table, which holds other partitions.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.cells += other.cells;
        self.partitions += other.partitions;
    }

    /// Compares the parts of a whole table with what was written. Otherwise the table is damaged.
    pub fn check(&self, table: &TableReader, written: &TableStatistics) -> Result<(), TableError> {
        if table.statistics() != written {
            return Err(table.damaged(0, "the statistics are not those that were written"));
        }
        if (self.rows, self.cells, self.partitions) != (written.rows, written.cells, written.partitions) {
            return Err(
                table.damaged(0, "it does not hold as many rows, cells and partitions as were written")
            );
        }
        Ok(())
    }
}

/// Reads a whole table: every block is checked and unpacked, every row decoded. Keys must ascend, every row must be found by the
/// filters, and the counts must be `written`, those with which the table was written. Otherwise the table is damaged. Now and then
/// `pause` gets the bytes of the rows since it was called last; it lets other tasks run.
pub async fn verify(
    table: &Arc<TableReader>,
    written: &TableStatistics,
    pause: impl AsyncFnMut(u64),
) -> Result<(), TableError> {
    table.check_filters().await?;
    verify_between(table, &[], None, pause).await?.check(table, written)
}

/// Reads the part of a table with the full keys `[start, end)`, which begins and ends between partitions, as [`verify`] does. The parts
/// together must be what was written: see [`Counted::check`].
pub async fn verify_between(
    table: &Arc<TableReader>,
    start: &[u8],
    end: Option<&[u8]>,
    mut pause: impl AsyncFnMut(u64),
) -> Result<Counted, TableError> {
    let damaged = |reason| Err(table.damaged(0, reason));
    let written = table.statistics();
    let mut cursor = TableCursor::new(Arc::clone(table), None);
    let (mut rows, mut cells, mut partitions, mut unpaced_bytes) = (0, 0, 0, 0);
    let mut previous = Vec::new();
    let mut prefix = Vec::new();
    let mut is_there = if start.is_empty() { cursor.seek_first()? } else { cursor.seek(start)? };
    while is_there {
        let row_key = cursor.key();
        if end.is_some_and(|end| row_key >= end) {
            break;
        }
        if rows > 0 && row_key <= previous.as_slice() {
            return damaged("the keys do not ascend");
        }
        if !written.may_contain(row_key) || !table.may_contain_row(None, KeyHash::of(row_key))? {
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
    pause(unpaced_bytes).await;
    Ok(Counted { rows, cells, partitions })
}
