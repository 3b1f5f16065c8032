//! Rows before and after a mutation.
//!
//! There are images of the rows that are named: those that are inserted, updated or deleted each by its key. As in ScyllaDB, deletions of
//! ranges and partitions have none, but a partition of a table without clustering columns is its row. A row that was not there has no image
//! of before, one that is deleted none of after.

use std::collections::{BTreeMap, BTreeSet};

use helenus_query::error::Result;
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_rows::key::{REGULAR_START, STATIC_POSITION};
use helenus_rows::reconcile::{Purpose, merge_rows};
use helenus_rows::row::RowRef;

use crate::layout::{LogLayout, LoggedColumn};
use crate::parts::{Parts, malformed};
use crate::values::elements_value;

/// A row that a mutation names.
#[derive(Debug)]
pub struct NamedRow<'m> {
    pub position: &'m [u8],
    /// The changed columns; `None`: all, because the row is deleted.
    pub columns: Option<BTreeSet<u32>>,
    /// Whether anything but a deletion names it.
    is_written: bool,
    /// The content of before with base 0.
    before: Option<Vec<u8>>,
}

/// The rows that a mutation names, in the order of their positions, with their contents of before.
pub fn named_rows<'m>(
    parts: &'m Parts<'_>,
    table: &Table,
    key: &PartitionKey,
    existing: &dyn ExistingRows,
) -> Result<Vec<NamedRow<'m>>> {
    let mut named: BTreeMap<&'m [u8], (Option<BTreeSet<u32>>, bool)> = BTreeMap::new();
    for (position, row) in &parts.rows {
        let head = row.view().head().map_err(malformed)?;
        let mut columns: BTreeSet<u32> = head.cells.map(|cell| cell.column).collect();
        columns.extend(head.column_deletions.map(|(column, _)| column));
        let is_written = head.liveness.is_some() || !columns.is_empty();
        named.insert(position, (head.deletion.is_none().then_some(columns), is_written));
    }
    if parts.partition.is_some() && table.clustering_key_count == 0 && !table.is_static_compact() {
        named.entry(REGULAR_START).or_default().0 = None;
    }
    let rows = named.into_iter().map(|(position, (columns, is_written))| {
        let before = existing.row(table, key, position)?;
        Ok(NamedRow { position, columns, is_written, before })
    });
    rows.collect()
}

/// A column of an image. `None`: it is null.
pub type ImageColumn<'l> = (&'l LoggedColumn, Option<Vec<u8>>);

impl NamedRow<'_> {
    /// Its columns before the mutation: those that are changed, or all. `None`: it was not there.
    pub fn before<'l>(
        &self,
        layout: &'l LogLayout,
        all: bool,
        now_seconds: u32,
    ) -> Result<Option<Vec<ImageColumn<'l>>>> {
        let Some(row) = self.before.as_deref().map(|bytes| RowRef::new(bytes, 0)) else { return Ok(None) };
        let is_wanted = |column: &LoggedColumn| {
            all || self.columns.as_ref().is_none_or(|columns| columns.contains(&column.id))
        };
        self.columns_of(layout, row, &is_wanted, now_seconds).map(Some)
    }

    /// Its columns after the mutation. `None`: it is not there any more.
    pub fn after<'l>(
        &self,
        layout: &'l LogLayout,
        parts: &Parts<'_>,
        now_seconds: u32,
    ) -> Result<Option<Vec<ImageColumn<'l>>>> {
        let changes = parts.rows.get(self.position);
        let versions = self.before.as_deref().map(|bytes| RowRef::new(bytes, 0));
        let versions: Vec<RowRef<'_>> = versions.into_iter().chain(changes.map(|row| row.view())).collect();
        let mut merged = Vec::new();
        let shadow = parts.shadow(self.position);
        let purpose = Purpose::Read { now_seconds };
        let is_there = merge_rows(&versions, shadow, purpose, 0, &mut merged).map_err(malformed)?.is_written;
        let is_deleted = self.columns.is_none() || shadow.is_some();
        if !is_there && (is_deleted || !self.is_written) {
            return Ok(None);
        }
        // A row whose last column was set to null is shown by its key.
        self.columns_of(layout, RowRef::new(&merged, 0), &|_| true, now_seconds).map(Some)
    }

    fn columns_of<'l>(
        &self,
        layout: &'l LogLayout,
        row: RowRef<'_>,
        is_wanted: &dyn Fn(&LoggedColumn) -> bool,
        now_seconds: u32,
    ) -> Result<Vec<ImageColumn<'l>>> {
        let is_static = self.position == STATIC_POSITION;
        let mut cells = row.cells().peekable();
        let mut image = Vec::new();
        for column in layout.columns.iter().filter(|column| column.is_static == is_static) {
            while cells.next_if(|cell| cell.column < column.id).is_some() {}
            let (mut value, mut elements) = (None, Vec::new());
            while let Some(cell) = cells.next_if(|cell| cell.column == column.id) {
                let is_hidden = column.hidden_until.is_some_and(|until| cell.timestamp <= until);
                if is_hidden || !cell.is_live(now_seconds) {
                    continue;
                }
                value = Some(cell.value.to_vec());
                elements.push((cell.path, cell.value));
            }
            if column.column_type.is_multi_cell() && !elements.is_empty() {
                value = Some(elements_value(&column.column_type, &elements)?);
            }
            if is_wanted(column) {
                image.push((column, value));
            }
        }
        Ok(image)
    }
}
