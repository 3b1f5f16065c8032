//! The terms of a row in an index.

use cql_lite::types::{CqlType, ordered};
use helenus_engine::key::{KeyRef, REGULAR_TAG};
use helenus_engine::secondary_index::{IndexTerms, Subject, TERM_BYTES_MAX};
use helenus_engine::{Cell, CellKind, RowRef};

use super::encoding::TermEncoding;
use crate::schema::catalog::{Column, ColumnKind, Table};
use crate::schema::index::IndexedPart;
use crate::stored_key::key_component;

/// Finds the terms of rows in one index.
#[derive(Debug)]
pub(super) struct RowTerms {
    source: Source,
    encoding: TermEncoding,
}

/// Where the indexed values are.
#[derive(Debug)]
enum Source {
    PartitionKey {
        position: usize,
        /// The number of components that the key has.
        count: usize,
    },
    /// The last of these clustering columns, each with `true` for descending.
    Clustering(Vec<(CqlType, bool)>),
    Cells {
        column_id: u32,
        subject: Subject,
        part: CellPart,
    },
}

/// What of a cell is indexed.
#[derive(Debug)]
enum CellPart {
    Value,
    /// The path: a value of this type in byte-comparable form.
    Path(CqlType),
    /// The path, and behind it the value.
    Entry,
}

impl RowTerms {
    pub(super) fn new(table: &Table, column: &Column, indexed: IndexedPart, encoding: TermEncoding) -> Self {
        let cells = |subject| Source::Cells {
            column_id: column.id,
            subject,
            part: match (&column.column_type, indexed) {
                (CqlType::Set { element: path, .. }, IndexedPart::Values)
                | (CqlType::Map { key: path, .. }, IndexedPart::Keys) => CellPart::Path((**path).clone()),
                (_, IndexedPart::Entries) => CellPart::Entry,
                _ => CellPart::Value,
            },
        };
        let source = match column.kind {
            ColumnKind::PartitionKey { position } => {
                Source::PartitionKey { position, count: table.partition_key_count }
            }
            ColumnKind::Clustering { position, .. } => {
                let columns = table.clustering_key()[..=position].iter();
                Source::Clustering(columns.map(|c| (c.column_type.clone(), c.is_descending())).collect())
            }
            ColumnKind::Static => cells(Subject::Partition),
            ColumnKind::Regular => cells(Subject::Row),
        };
        Self { source, encoding }
    }

    /// The term of a cell. `None`: it has none, or cannot be read.
    fn cell_term(&self, part: &CellPart, cell: &Cell<'_>) -> Option<Vec<u8>> {
        match part {
            CellPart::Value => self.encoding.term(cell.value).ok(),
            CellPart::Path(path_type) if self.encoding.analysis().is_some() => {
                let (mut rest, mut value) = (cell.path, Vec::new());
                ordered::decode(path_type, &mut rest, false, &mut value).ok()?;
                self.encoding.term(&value).ok()
            }
            // Cells have their paths in the form of terms.
            CellPart::Path(_) => Some(cell.path[..cell.path.len().min(TERM_BYTES_MAX)].to_vec()),
            CellPart::Entry => {
                let mut term = cell.path.to_vec();
                self.encoding.put_term(cell.value, &mut term).ok()?;
                Some(term)
            }
        }
    }
}

impl IndexTerms for RowTerms {
    fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        match &self.source {
            Source::PartitionKey { position, count } => {
                if !has_content(row) {
                    return;
                }
                let component = key_component(key.partition_key, *count, *position);
                if let Some(term) = component.ok().and_then(|value| self.encoding.term(value).ok()) {
                    visit(Subject::Partition, &term);
                }
            }
            Source::Clustering(columns) => {
                let [REGULAR_TAG, rest @ ..] = key.position else { return };
                if !has_content(row) {
                    return;
                }
                if let Some(term) =
                    last_value(columns, rest).and_then(|value| self.encoding.term(&value).ok())
                {
                    visit(Subject::Row, &term);
                }
            }
            Source::Cells { column_id, subject, part } => {
                for cell in row.cells().filter(|cell| cell.column == *column_id) {
                    if matches!(cell.kind, CellKind::Tombstone { .. } | CellKind::Counter) {
                        continue;
                    }
                    if let Some(term) = self.cell_term(part, &cell) {
                        visit(*subject, &term);
                    }
                }
            }
        }
    }
}

/// Finds the vector of a row: the value of a regular column, whole.
#[derive(Debug)]
pub(super) struct RowVectors {
    pub column_id: u32,
}

impl IndexTerms for RowVectors {
    fn visit(&self, _: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        for cell in row.cells().filter(|cell| cell.column == self.column_id) {
            if matches!(cell.kind, CellKind::Live | CellKind::Expiring(_)) {
                visit(Subject::Row, cell.value);
            }
        }
    }
}

/// Whether a version of a row has something that makes the row visible. One with deletions alone has not.
fn has_content(row: RowRef<'_>) -> bool {
    row.liveness().is_some() || row.cells().any(|cell| !matches!(cell.kind, CellKind::Tombstone { .. }))
}

/// The value of the last of the clustering columns. `None`: the position cannot be read.
fn last_value(columns: &[(CqlType, bool)], mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for (column_type, descending) in columns {
        value.clear();
        ordered::decode(column_type, &mut rest, *descending, &mut value).ok()?;
    }
    Some(value)
}
