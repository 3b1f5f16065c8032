//! The engine tables of a catalog, with the engine options that follow from the options of each table.

use helenus_engine::compaction::{CompactionOptions, DroppedColumns};
use helenus_engine::shard::{TableOptions as EngineTableOptions, TombstoneGc};
use helenus_engine::table::Compression as EngineCompression;
use helenus_engine::{TableId, TableWriterOptions};
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Keyspace, Table, TableKind};
use helenus_query::schema::index_terms;
use helenus_query::schema::options::{CHUNK_LENGTH_BYTES_MAX, Compressor, TombstoneGcMode};

use super::file_handling::FileHandling;
use super::snapshots;

/// The engine's options for a table of the catalog.
pub fn engine_options(
    keyspace: &Keyspace,
    table: &Table,
    handling: &FileHandling,
) -> Result<EngineTableOptions> {
    let options = &table.options;
    let compression = match options.compression.compressor {
        Compressor::None | Compressor::Noop => EngineCompression::None,
        Compressor::Lz4 => EngineCompression::Lz4,
        Compressor::Zstd { level } => EngineCompression::Zstd { level },
        Compressor::Snappy => EngineCompression::Snappy,
        Compressor::Deflate => EngineCompression::Deflate,
    };
    let compaction: CompactionOptions = options.compaction.to_engine()?;
    let dropped_columns = table.dropped_columns.iter().map(|column| (column.id, column.dropped_at_micros));
    Ok(EngineTableOptions {
        gc_grace_seconds: options.gc_grace_seconds,
        tombstone_gc: match options.tombstone_gc(keyspace.replication.replica_count()).mode {
            TombstoneGcMode::Timeout => TombstoneGc::AfterGrace,
            TombstoneGcMode::Repair => TombstoneGc::KnownEverywhere,
            TombstoneGcMode::Immediate => TombstoneGc::Immediate,
            TombstoneGcMode::Disabled => TombstoneGc::Never,
        },
        is_logged: keyspace.durable_writes,
        compaction,
        writer: TableWriterOptions {
            compression,
            // A catalog from before there was a bound may have more.
            block_bytes: options.compression.chunk_length_bytes.min(CHUNK_LENGTH_BYTES_MAX) as usize,
            bloom_filter_fp_chance: options.bloom_filter_fp_chance,
            partition_watch: handling.partition_guard.as_ref().map(|guard| guard.watch(table)),
        },
        dropped_columns: DroppedColumns::new(dropped_columns),
        indexes: index_terms::definitions(table),
        backup_notes: if handling.has_backups { snapshots::backup_notes(keyspace, table)? } else { None },
        ..EngineTableOptions::default()
    })
}

/// The stored tables of a catalog with their engine options.
pub fn engine_tables(
    catalog: &Catalog,
    handling: &FileHandling,
) -> Result<Vec<(TableId, EngineTableOptions)>> {
    let mut tables = Vec::new();
    for keyspace in catalog.keyspaces.values() {
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            tables.push((table.engine_id(), engine_options(keyspace, table, handling)?));
        }
    }
    Ok(tables)
}
