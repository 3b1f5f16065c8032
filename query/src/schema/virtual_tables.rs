//! The rows of tables that the node computes at each read: `system`, `system_auth`, `system_distributed`, `system_schema`, `system_views`,
//! `system_virtual_schema`. Here are those that follow from the schema, the cluster and the clients; reports of a node about
//! itself ([`is_report`]) are written by an upper layer, with the same [`RowWriter`].
//!
//! Invariants:
//! * A row has one value for each column, in the order of [`Table::columns`], in wire encoding.
//! * Rows are sorted by the values of the partition key, then of the clustering key.
//! * Columns that drivers require are never null (the docs of [`NodeInformation`] and [`Peer`] list them).
//! * Values that change while the node runs are in [`NodeState`], which is collected for each read.

mod feeds;
mod indexes;
mod node;
mod row;
mod schema_tables;
mod state;

pub use self::row::{IntoWire, RowFields, RowWriter};
pub use self::state::{
    CQL_VERSION, ConnectedClient, FeedGeneration, IndexState, NATIVE_PROTOCOL_VERSION, NodeInformation,
    NodeState, PARTITIONER, Peer, RELEASE_VERSION, RangeKind, RepairedRange, Row, SNITCH, SizeEstimate,
};
use super::catalog::{Catalog, Table};
use super::system_keyspaces::{
    SYSTEM, SYSTEM_AUTH, SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA,
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
        (SYSTEM_DISTRIBUTED, "cdc_generation_timestamps") => feeds::generations(&mut writer, state),
        (SYSTEM_DISTRIBUTED, "cdc_streams_descriptions_v2") => feeds::streams(&mut writer, state),
        (SYSTEM_DISTRIBUTED, "repair_history") => node::repair_history(&mut writer, state),
        (SYSTEM_SCHEMA, "aggregates") => schema_tables::aggregates(&mut writer, catalog),
        (SYSTEM_SCHEMA, "functions") => schema_tables::functions(&mut writer, catalog),
        (SYSTEM_SCHEMA, "keyspaces") => schema_tables::keyspaces(&mut writer, catalog),
        (SYSTEM_SCHEMA, "tables") => schema_tables::tables(&mut writer, catalog),
        (SYSTEM_SCHEMA, "views") => schema_tables::views(&mut writer, catalog),
        (SYSTEM_SCHEMA, "scylla_tables") => feeds::scylla_tables(&mut writer, catalog),
        (SYSTEM_SCHEMA, "columns") => schema_tables::columns(&mut writer, catalog, false),
        (SYSTEM_SCHEMA, "column_masks") => schema_tables::column_masks(&mut writer, catalog),
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
        // Tables that are defined and have no rows.
        _ => {}
    }
    writer.finish()
}

/// Whether the rows of a virtual table are a report of the node about itself, or of what it remembers.
pub fn is_report(table: &Table) -> bool {
    match table.keyspace.as_str() {
        SYSTEM_VIEWS => table.name != "clients" && !table.name.starts_with("sai_"),
        SYSTEM => ["built_views", "compaction_history", "prepared_statements"].contains(&table.name.as_str()),
        SYSTEM_DISTRIBUTED => ["parent_repair_history", "partition_denylist", "view_build_status"]
            .contains(&table.name.as_str()),
        SYSTEM_AUTH => true,
        _ => false,
    }
}

/// Whether clients can change the node by a change of the table's rows.
pub fn is_writable(table: &Table) -> bool {
    (table.keyspace.as_str(), table.name.as_str()) == (SYSTEM_VIEWS, "settings") || is_denylist(table)
}

/// Whether the table has the partition denylist: clients change that by a change of its rows.
pub fn is_denylist(table: &Table) -> bool {
    (table.keyspace.as_str(), table.name.as_str()) == (SYSTEM_DISTRIBUTED, "partition_denylist")
}

/// Whether a filter on a virtual table needs ALLOW FILTERING, as on tables with rows of their own.
pub fn asks_for_filtering(table: &Table) -> bool {
    (table.keyspace.as_str(), table.name.as_str()) == (SYSTEM_VIEWS, "system_logs")
}

/// Whether clients can have the node forget the table's rows.
pub fn is_truncatable(table: &Table) -> bool {
    table.keyspace == SYSTEM_VIEWS && ["slow_queries", "system_logs"].contains(&table.name.as_str())
}

#[cfg(test)]
mod tests;
