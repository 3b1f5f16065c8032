//! The rows of tables that the node computes at each read: `system`, `system_distributed`, `system_schema`, `system_views`,
//! `system_virtual_schema`.
//!
//! Invariants:
//! * A row has one value for each column, in the order of [`Table::columns`], in wire encoding.
//! * Rows are sorted by the values of the partition key, then of the clustering key.
//! * Columns that drivers require are never null (the docs of [`NodeInformation`] and [`Peer`] list them).
//! * Values that change while the node runs are in [`NodeState`], which is collected for each read.

mod indexes;
mod node;
mod row;
mod schema_tables;
mod state;

use self::row::RowWriter;
pub use self::state::{
    CQL_VERSION, ConnectedClient, IndexState, NATIVE_PROTOCOL_VERSION, NodeInformation, NodeState,
    PARTITIONER, Peer, RELEASE_VERSION, RangeKind, RepairedRange, Row, SNITCH, SizeEstimate,
};
use super::catalog::{Catalog, Table};
use super::system_keyspaces::{
    SYSTEM, SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA,
};

/// The rows of a virtual table. Empty for a table that the node does not compute.
pub fn rows(table: &Table, catalog: &Catalog, node: &NodeInformation, state: &NodeState) -> Vec<Row> {
    let mut writer = RowWriter::new(table);
    match (table.keyspace.as_str(), table.name.as_str()) {
        (SYSTEM, "IndexInfo") => indexes::built(&mut writer, catalog, state),
        (SYSTEM, "local") => node::local(&mut writer, catalog, node, state),
        (SYSTEM, "peers") => node::peers(&mut writer, state),
        (SYSTEM, "peers_v2") => node::peers_v2(&mut writer, state),
        (SYSTEM, "size_estimates") => node::size_estimates(&mut writer, catalog, state),
        (SYSTEM, "table_estimates") => node::table_estimates(&mut writer, catalog, state),
        (SYSTEM_DISTRIBUTED, "repair_history") => node::repair_history(&mut writer, state),
        (SYSTEM_SCHEMA, "aggregates") => schema_tables::aggregates(&mut writer, catalog),
        (SYSTEM_SCHEMA, "functions") => schema_tables::functions(&mut writer, catalog),
        (SYSTEM_SCHEMA, "keyspaces") => schema_tables::keyspaces(&mut writer, catalog),
        (SYSTEM_SCHEMA, "tables") => schema_tables::tables(&mut writer, catalog),
        (SYSTEM_SCHEMA, "columns") => schema_tables::columns(&mut writer, catalog, false),
        (SYSTEM_SCHEMA, "dropped_columns") => schema_tables::dropped_columns(&mut writer, catalog),
        (SYSTEM_SCHEMA, "indexes") => schema_tables::indexes(&mut writer, catalog),
        (SYSTEM_SCHEMA, "types") => schema_tables::types(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "keyspaces") => schema_tables::virtual_keyspaces(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "tables") => schema_tables::virtual_tables(&mut writer, catalog),
        (SYSTEM_VIRTUAL_SCHEMA, "columns") => schema_tables::columns(&mut writer, catalog, true),
        (SYSTEM_VIEWS, "clients") => node::clients(&mut writer, state),
        (SYSTEM_VIEWS, "sai_column_indexes") => indexes::column_indexes(&mut writer, catalog, state),
        (SYSTEM_VIEWS, "sai_sstable_index_segments") => indexes::segments(&mut writer, catalog, state),
        (SYSTEM_VIEWS, "sai_sstable_indexes") => indexes::file_indexes(&mut writer, catalog, state),
        (SYSTEM_VIEWS, "settings") => node::settings(&mut writer, node),
        // Tables that are defined and have no rows.
        _ => {}
    }
    writer.finish()
}

#[cfg(test)]
mod tests;
