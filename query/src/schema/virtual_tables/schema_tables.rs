//! The catalog as rows: `system_schema` and `system_virtual_schema`.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::SelectClause;
use cql_lite::types::literal;

use super::row::{RowFields, RowWriter};
use crate::functions::user::type_names;
use crate::schema::catalog::{Catalog, Column, ColumnKind, DroppedColumn, Keyspace, Table};
use crate::schema::index::TARGET;
use crate::schema::options::TableOptions;
use crate::schema::system_keyspaces::SYSTEM;

/// The keyspaces that one of the two schema keyspaces shows.
fn keyspaces_of(catalog: &Catalog, is_virtual: bool) -> impl Iterator<Item = &Keyspace> {
    catalog.keyspaces.values().map(AsRef::as_ref).filter(move |keyspace| keyspace.is_virtual == is_virtual)
}

fn tables_of(catalog: &Catalog, is_virtual: bool) -> impl Iterator<Item = &Table> {
    let tables = keyspaces_of(catalog, is_virtual).flat_map(|keyspace| keyspace.tables.values());
    tables.map(AsRef::as_ref).filter(|table: &&Table| !table.is_hidden())
}

/// `system_schema.keyspaces`.
pub fn keyspaces(writer: &mut RowWriter, catalog: &Catalog) {
    for keyspace in keyspaces_of(catalog, false) {
        writer
            .row()
            .set("keyspace_name", keyspace.name.as_str())
            .set("durable_writes", keyspace.durable_writes)
            .set("replication", keyspace.replication.to_map());
    }
}

/// `system_schema.tables`.
pub fn tables(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, false).filter(|table| table.view.is_none()) {
        // Drivers take a table without `compound`, or with `dense`, for one with COMPACT STORAGE.
        let flags =
            [("compound", table.is_compound()), ("counter", table.is_counter), ("dense", table.is_dense())];
        let flags: Vec<&str> =
            flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect();
        let mut row = writer.row();
        row.set("keyspace_name", table.keyspace.as_str())
            .set("table_name", table.name.as_str())
            .set("flags", flags.as_slice())
            .set("id", table.id);
        options(&mut row, &table.options);
    }
}

/// `system_schema.views`: materialized views and projections.
pub fn views(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, false) {
        let Some(view) = &table.view else { continue };
        let mut row = writer.row();
        row.set("keyspace_name", table.keyspace.as_str())
            .set("view_name", table.name.as_str())
            .set("base_table_id", view.base)
            .set("base_table_name", view.statement.from.name.as_str())
            .set("id", table.id)
            .set("include_all_columns", view.statement.clause == SelectClause::All)
            .set("where_clause", view.where_clause());
        options(&mut row, &table.options);
    }
}

fn options(row: &mut RowFields, options: &TableOptions) {
    row.set("additional_write_policy", options.additional_write_policy.to_string())
        .set("bloom_filter_fp_chance", options.bloom_filter_fp_chance)
        .set("caching", options.caching.to_map())
        .set("cdc", options.feed().is_some())
        .set("comment", options.comment.as_str())
        .set("compaction", options.compaction.to_map())
        .set("compression", options.compression.to_map())
        .set("crc_check_chance", options.crc_check_chance)
        .set("dclocal_read_repair_chance", 0.0)
        .set("default_time_to_live", options.default_time_to_live as i32)
        .set("extensions", &options.extensions)
        .set("gc_grace_seconds", options.gc_grace_seconds as i32)
        .set("max_index_interval", options.max_index_interval as i32)
        .set("memtable_flush_period_in_ms", options.memtable_flush_period_in_ms as i32)
        .set("min_index_interval", options.min_index_interval as i32)
        .set("read_repair", options.read_repair.name())
        .set("read_repair_chance", 0.0)
        .set("speculative_retry", options.speculative_retry.to_string());
    // As in Cassandra, these are null if they have their default.
    if !options.allow_auto_snapshot {
        row.set("allow_auto_snapshot", false);
    }
    if !options.incremental_backups {
        row.set("incremental_backups", false);
    }
    if options.memtable != "default" {
        row.set("memtable", options.memtable.as_str());
    }
}

/// `system_schema.columns`, or `system_virtual_schema.columns`.
pub fn columns(writer: &mut RowWriter, catalog: &Catalog, is_virtual: bool) {
    for table in tables_of(catalog, is_virtual) {
        let mut columns: Vec<&Column> = table.columns.iter().chain(table.hidden_columns()).collect();
        columns.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for column in columns {
            let clustering_order = match column.kind {
                ColumnKind::Clustering { descending: true, .. } => "desc",
                ColumnKind::Clustering { descending: false, .. } => "asc",
                _ => "none",
            };
            writer
                .row()
                .set("keyspace_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("column_name", column.name.as_str())
                .set("clustering_order", clustering_order)
                .set("column_name_bytes", column.name.as_bytes())
                .set("kind", column.kind_name())
                .set("position", column.key_position())
                .set("type", column.column_type.to_string());
        }
    }
}

/// `system_schema.column_masks`.
pub fn column_masks(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, false) {
        let mut masked: Vec<_> = table
            .columns
            .iter()
            .filter_map(|column| Some((column.name.as_str(), table.masks.get(&column.id)?)))
            .collect();
        masked.sort_unstable_by_key(|(name, _)| *name);
        for (name, mask) in masked {
            writer
                .row()
                .set("keyspace_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("column_name", name)
                .set("function_argument_nulls", mask.argument_nulls())
                .set("function_argument_types", mask.argument_types())
                .set("function_argument_values", mask.argument_texts())
                .set("function_keyspace", SYSTEM)
                .set("function_name", mask.function_name());
        }
    }
}

/// `system_schema.dropped_columns`: the latest drop of each name.
pub fn dropped_columns(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, false) {
        let by_name: BTreeMap<&str, &DroppedColumn> =
            table.dropped_columns.iter().map(|column| (column.name.as_str(), column)).collect();
        for (name, column) in by_name {
            writer
                .row()
                .set("keyspace_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("column_name", name)
                .set("dropped_time", column.dropped_at_micros.div_euclid(1_000))
                .set("kind", if column.is_static { "static" } else { "regular" })
                .set("type", column.column_type.to_string());
        }
    }
}

/// `system_schema.indexes`.
pub fn indexes(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, false) {
        for index in &table.indexes {
            let mut options = index.options.clone();
            options.insert(TARGET.to_owned(), table.index_target(index));
            writer
                .row()
                .set("keyspace_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("index_name", index.name.as_str())
                .set("kind", index.kind_name())
                .set("options", options);
        }
    }
}

/// `system_schema.types`.
pub fn types(writer: &mut RowWriter, catalog: &Catalog) {
    for keyspace in keyspaces_of(catalog, false) {
        for (name, definition) in &keyspace.types {
            let field_names: Vec<String> = definition.field_names.iter().map(ToString::to_string).collect();
            let field_types: Vec<String> = definition.field_types.iter().map(ToString::to_string).collect();
            writer
                .row()
                .set("keyspace_name", keyspace.name.as_str())
                .set("type_name", name.as_str())
                .set("field_names", field_names)
                .set("field_types", field_types);
        }
    }
}

/// `system_schema.functions`.
pub fn functions(writer: &mut RowWriter, catalog: &Catalog) {
    for keyspace in keyspaces_of(catalog, false) {
        for function in keyspace.user_functions.functions() {
            writer
                .row()
                .set("keyspace_name", keyspace.name.as_str())
                .set("function_name", function.name.as_str())
                .set("argument_types", type_names(&function.argument_types))
                .set("argument_names", function.argument_names.clone())
                .set("body", function.body.as_str())
                .set("called_on_null_input", function.called_on_null_input)
                .set("language", function.language.as_str())
                .set("return_type", function.return_type.to_string());
        }
    }
}

/// `system_schema.aggregates`.
pub fn aggregates(writer: &mut RowWriter, catalog: &Catalog) {
    for keyspace in keyspaces_of(catalog, false) {
        for aggregate in keyspace.user_functions.aggregates() {
            let mut row = writer.row();
            row.set("keyspace_name", keyspace.name.as_str())
                .set("aggregate_name", aggregate.name.as_str())
                .set("argument_types", type_names(&aggregate.argument_types))
                .set("return_type", aggregate.return_type.to_string())
                .set("state_func", aggregate.state_function.as_str())
                .set("state_type", aggregate.state_type.to_string());
            if let Some(function) = &aggregate.final_function {
                row.set("final_func", function.as_str());
            }
            if let Some(condition) = &aggregate.initial_condition {
                row.set("initcond", literal::format(&aggregate.state_type, condition));
            }
        }
    }
}

/// `system_virtual_schema.keyspaces`.
pub fn virtual_keyspaces(writer: &mut RowWriter, catalog: &Catalog) {
    for keyspace in keyspaces_of(catalog, true) {
        writer.row().set("keyspace_name", keyspace.name.as_str());
    }
}

/// `system_virtual_schema.tables`.
pub fn virtual_tables(writer: &mut RowWriter, catalog: &Catalog) {
    for table in tables_of(catalog, true) {
        writer
            .row()
            .set("keyspace_name", table.keyspace.as_str())
            .set("table_name", table.name.as_str())
            .set("comment", table.options.comment.as_str());
    }
}
