//! Rows about secondary indexes: how far they are built on the node, and the index of each table file.
//!
//! All kinds of indexes are shown, because all are built alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_engine::shard::IndexFileStatus;

use super::row::RowWriter;
use super::state::{IndexState, NodeState};
use crate::schema::catalog::{Catalog, Column, Table, TableKind};
use crate::schema::index::Index;
use crate::schema::index_terms::{TermEncoding, encoding_of, id_of};

/// An index with its table, its column and its state.
struct Described<'a> {
    table: &'a Table,
    index: &'a Index,
    column: &'a Column,
    /// `None`: the table was just created or dropped.
    state: Option<&'a IndexState>,
}

/// All indexes in the order of keyspaces and names.
fn described<'a>(catalog: &'a Catalog, state: &'a NodeState) -> Vec<Described<'a>> {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let stored = tables.map(Arc::as_ref).filter(|table| table.kind == TableKind::Stored);
    let mut described: Vec<_> = stored
        .flat_map(|table| table.indexes.iter().map(move |index| (table, index.as_ref())))
        .filter_map(|(table, index)| {
            let column = table.columns.iter().find(|column| column.id == index.column_id)?;
            let id = id_of(table, index)?;
            Some(Described { table, index, column, state: state.indexes.get(&(table.id, id)) })
        })
        .collect();
    described.sort_by_key(|described| (&described.table.keyspace, &described.index.name));
    described
}

impl Described<'_> {
    /// In the order of their paths, which are the names of the files.
    fn files(&self) -> Vec<(String, &IndexFileStatus)> {
        let files = self.state.map(|state| state.files.as_slice()).unwrap_or_default();
        let mut files: Vec<_> =
            files.iter().map(|file| (file.path.to_string_lossy().into_owned(), file)).collect();
        files.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        files
    }
}

/// `system_views.sai_column_indexes`.
pub fn column_indexes(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for described in described(catalog, state) {
        let Described { table, index, column, state } = described;
        let encoding = encoding_of(column, index);
        let analysis = encoding.as_ref().and_then(TermEncoding::analysis);
        writer
            .row()
            .set("keyspace_name", table.keyspace.as_str())
            .set("index_name", index.name.as_str())
            .set("analyzer", analysis.map_or_else(|| "NoOpAnalyzer{}".to_owned(), |it| it.to_string()))
            .set("column_name", column.name.as_str())
            .set("is_building", state.is_some_and(|state| state.is_building))
            .set("is_queryable", state.is_some_and(|state| state.is_complete))
            .set("is_string", encoding.is_some_and(|encoding| encoding.is_literal()))
            .set("table_name", table.name.as_str());
    }
}

/// `system_views.sai_sstable_indexes`.
pub fn file_indexes(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for described in described(catalog, state) {
        for (path, file) in described.files() {
            writer
                .row()
                .set("keyspace_name", described.table.keyspace.as_str())
                .set("index_name", described.index.name.as_str())
                .set("sstable_name", path)
                .set("cell_count", file.entries as i64)
                .set("column_name", described.column.name.as_str())
                .set("end_token", file.tokens.1.to_string())
                // The version of the file's own format; Cassandra has letters there.
                .set("format_version", file.format_version.to_string())
                // Entries have keys, no numbers of rows: these are the bounds of all rows of the file.
                .set("max_row_id", last_row_id(file))
                .set("min_row_id", 0_i64)
                .set("per_column_disk_size", file.disk_bytes as i64)
                // Indexes of a file share nothing.
                .set("per_table_disk_size", 0_i64)
                .set("start_token", file.tokens.0.to_string())
                .set("table_name", described.table.name.as_str());
        }
    }
}

/// `system_views.sai_sstable_index_segments`: one segment for each index of a file that has entries.
pub fn segments(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for described in described(catalog, state) {
        let encoding = encoding_of(described.column, described.index);
        for (path, file) in described.files() {
            if file.entries == 0 {
                continue;
            }
            let (first, last) = file.terms.as_ref().map(|(first, last)| (first, last)).unzip();
            let term = |term: Option<&Vec<u8>>| Some(encoding.as_ref()?.text_of(term?));
            // An index is one file with one component, which begins with its first byte.
            let parts = [("Length", file.disk_bytes), ("Offset", 0)];
            let parts = parts.map(|(name, value)| (name.to_owned(), value.to_string()));
            let components = BTreeMap::from([("Entries".to_owned(), BTreeMap::from(parts))]);
            writer
                .row()
                .set("keyspace_name", described.table.keyspace.as_str())
                .set("index_name", described.index.name.as_str())
                .set("sstable_name", path)
                .set("segment_row_id_offset", 0_i64)
                .set("cell_count", file.entries as i64)
                .set("column_name", described.column.name.as_str())
                .set("component_metadata", &components)
                .set("end_token", file.tokens.1.to_string())
                // As in `sai_sstable_indexes`.
                .set("max_sstable_row_id", last_row_id(file))
                .set("max_term", term(last))
                .set("min_sstable_row_id", 0_i64)
                .set("min_term", term(first))
                .set("start_token", file.tokens.0.to_string())
                .set("table_name", described.table.name.as_str());
        }
    }
}

fn last_row_id(file: &IndexFileStatus) -> i64 {
    file.rows.saturating_sub(1) as i64
}

/// `system."IndexInfo"`: the indexes that are built. Its `table_name` is that of a keyspace, as in Cassandra.
pub fn built(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for described in described(catalog, state) {
        if described.state.is_some_and(|state| state.is_complete) {
            writer
                .row()
                .set("table_name", described.table.keyspace.as_str())
                .set("index_name", described.index.name.as_str())
                // Cassandra writes an empty value, which is all that there is beside the key.
                .set("value", &[] as &[u8]);
        }
    }
}
