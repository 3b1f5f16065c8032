//! A mutation, taken apart by rows and deletions. A batch may change a row several times: its parts are merged, as a replica merges them.

use std::collections::BTreeMap;

use helenus_io::codec::DecodeError;

use helenus_query::error::{RequestError, Result};
use helenus_rows::cell::{Deletion, stronger};

use helenus_rows::mutation::{MutationRef, Operation};
use helenus_rows::row::RowRef;
use helenus_rows::row_writer::RowBuilder;

use crate::bounds::is_partition;

/// The parts of a mutation.
#[derive(Debug, Default)]
pub struct Parts<'m> {
    /// The changed rows by their positions.
    pub rows: BTreeMap<&'m [u8], ChangedRow<'m>>,
    pub ranges: Vec<DeletedRange<'m>>,
    pub partition: Option<Deletion>,
}

/// The deletion of `[start, end)`.
#[derive(Debug, Clone, Copy)]
pub struct DeletedRange<'m> {
    pub start: &'m [u8],
    pub end: &'m [u8],
    pub deletion: Deletion,
}

/// The changes of one row: as they stand in the mutation, or merged. Timestamps have base 0.
#[derive(Debug)]
pub enum ChangedRow<'m> {
    Once(RowRef<'m>),
    Merged(Vec<u8>),
}

impl ChangedRow<'_> {
    pub fn view(&self) -> RowRef<'_> {
        match self {
            Self::Once(row) => *row,
            Self::Merged(bytes) => RowRef::new(bytes, 0),
        }
    }
}

impl<'m> Parts<'m> {
    pub fn of(mutation: &MutationRef<'m>) -> Result<Self> {
        let mut parts = Self::default();
        for operation in mutation.operations() {
            match operation.map_err(malformed)? {
                Operation::Row { position, row } => {
                    let changed = match parts.rows.remove(position) {
                        None => ChangedRow::Once(row),
                        Some(earlier) => ChangedRow::Merged(merged(earlier.view(), row)?),
                    };
                    parts.rows.insert(position, changed);
                }
                Operation::RangeTombstone { start, end, deletion } if is_partition(start, end) => {
                    parts.partition = stronger(parts.partition, Some(deletion));
                }
                Operation::RangeTombstone { start, end, deletion } => {
                    parts.ranges.push(DeletedRange { start, end, deletion });
                }
            }
        }
        Ok(parts)
    }

    /// The strongest deletion of the mutation that reaches a row from outside.
    pub fn shadow(&self, position: &[u8]) -> Option<Deletion> {
        let reaching = self.ranges.iter().filter(|range| (range.start..range.end).contains(&position));
        reaching.fold(self.partition, |strongest, range| stronger(strongest, Some(range.deletion)))
    }
}

/// The changes of both. Unlike a reader, it keeps what a deletion among them shadows: that was written too.
fn merged(earlier: RowRef<'_>, later: RowRef<'_>) -> Result<Vec<u8>> {
    let mut row = RowBuilder::new();
    for part in [earlier, later] {
        let head = part.head().map_err(malformed)?;
        if let Some(liveness) = head.liveness {
            row.set_liveness(liveness);
        }
        if let Some(deletion) = head.deletion {
            row.set_deletion(deletion);
        }
        for (column, deletion) in head.column_deletions {
            row.delete_column(column, deletion);
        }
        for cell in head.cells {
            row.cell(cell);
        }
    }
    Ok(row.to_bytes())
}

pub(crate) fn malformed(error: DecodeError) -> RequestError {
    RequestError::Server(format!("a mutation is malformed: {error}"))
}
