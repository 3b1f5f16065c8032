//! Statements about the schema: one at a time on the first shard, acknowledged when every shard has the result.
//!
//! Order of a change: tables are created or altered in every shard's engine, the catalog is made durable, every shard takes it
//! over, then tables are dropped from the engines. A crash in between leaves at most engine tables that the catalog does
//! not name; they are dropped at the next start.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::{SchemaChange, SchemaChangeKind, SchemaTarget};
use cql_lite::syntax::ast::{self, Statement};
use helenus_engine::TableId;
use helenus_engine::TableWriterOptions;
use helenus_engine::compaction::CompactionOptions;
use helenus_engine::shard::TableOptions as EngineTableOptions;
use helenus_engine::table::Compression as EngineCompression;
use uuid::Uuid;

use super::replica::truncate::truncate_everywhere;
use super::transaction::write_cell;
use super::{Outcome, RequestOptions};
use crate::error::{RequestError, Result};
use crate::plan::selection::ResultColumn;
use crate::run::select::ResultPage;
use crate::schema::catalog::{Catalog, Table, TableKind};
use crate::schema::ddl::{self, ChangeTarget, ChangeType, DdlContext, SchemaChangeEvent, TableAction};
use crate::schema::describe::{ClusterFacts, describe as describe_catalog};
use crate::schema::options::Compressor;
use crate::shard_thread::{CatalogView, ShardContext};

/// The settings that the engine has of a table.
pub fn engine_options(table: &Table, is_logged: bool) -> Result<EngineTableOptions> {
    let options = &table.options;
    let compression = match options.compression.compressor {
        Compressor::None | Compressor::Noop => EngineCompression::None,
        Compressor::Lz4 => EngineCompression::Lz4,
        Compressor::Zstd { level } => EngineCompression::Zstd { level },
    };
    let compaction: CompactionOptions = options.compaction.to_engine()?;
    Ok(EngineTableOptions {
        gc_grace_seconds: options.gc_grace_seconds,
        is_logged,
        compaction,
        writer: TableWriterOptions {
            compression,
            block_bytes: options.compression.chunk_length_bytes as usize,
            bloom_filter_fp_chance: options.bloom_filter_fp_chance,
        },
    })
}

/// The stored tables of a catalog with their engine settings.
pub fn engine_tables(catalog: &Catalog) -> Result<Vec<(TableId, EngineTableOptions)>> {
    let mut tables = Vec::new();
    for keyspace in catalog.keyspaces.values() {
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            tables.push((TableId(*table.id.as_bytes()), engine_options(table, keyspace.durable_writes)?));
        }
    }
    Ok(tables)
}

fn ddl_context(context: &ShardContext) -> DdlContext {
    DdlContext {
        now_micros: context.next_timestamp(),
        new_table_id: context.time_uuid(),
        new_version: context.random_uuid(),
        data_centers: BTreeMap::from([(context.node.config.data_center.clone(), 1)]),
    }
}

/// What the client should be warned of before a change is carried out.
pub fn warnings(context: &ShardContext, statement: &Statement, keyspace: Option<&str>) -> Vec<String> {
    ddl::execute(&context.catalog(), statement, keyspace, &ddl_context(context))
        .map(|change| change.warnings)
        .unwrap_or_default()
}

/// Carries out CREATE, ALTER and DROP.
pub async fn change(
    context: Rc<ShardContext>,
    statement: Statement,
    keyspace: Option<Arc<str>>,
) -> Result<Outcome> {
    context.run_on(0, move |context| Box::pin(change_here(context, statement, keyspace))).await?
}

async fn change_here(
    context: Rc<ShardContext>,
    statement: Statement,
    keyspace: Option<Arc<str>>,
) -> Result<Outcome> {
    // One change at a time: each starts from the catalog that the one before has made.
    let _turn = context.schema_turn.lock().await;
    let change = ddl::execute(&context.catalog(), &statement, keyspace.as_deref(), &ddl_context(&context))?;
    let Some(effect) = change.effect else { return Ok(Outcome::Void) };
    let mut changed: Vec<Arc<Table>> = Vec::new();
    let mut dropped: Vec<Uuid> = Vec::new();
    for action in change.table_actions {
        match action {
            TableAction::Create(table) | TableAction::Alter(table) => changed.push(table),
            TableAction::Drop(id) => dropped.push(id),
        }
    }
    let catalog = change.catalog;
    let mut prepared = Vec::with_capacity(changed.len());
    for table in &changed {
        let is_logged = catalog.keyspace(&table.keyspace).is_none_or(|keyspace| keyspace.durable_writes);
        prepared.push((TableId(*table.id.as_bytes()), engine_options(table, is_logged)?));
    }
    if let Statement::AlterKeyspace(_) = &statement {
        // durable_writes decides whether the tables' writes are logged.
        prepared = engine_tables(&catalog)?;
    }
    on_every_shard(&context, move |context| {
        let prepared = prepared.clone();
        Box::pin(async move {
            for (id, options) in prepared {
                if context.shard.table_ids().contains(&id) {
                    context.shard.alter_table(id, options)?;
                } else {
                    context.shard.create_table(id, options).await?;
                }
            }
            Ok(())
        })
    })
    .await?;
    context.node.store_catalog(&catalog).await?;
    let view = CatalogView { generation: context.catalog_view().generation + 1, catalog };
    on_every_shard(&context, move |context| {
        let view = view.clone();
        Box::pin(async move {
            context.install(view);
            Ok(())
        })
    })
    .await?;
    if !dropped.is_empty() {
        on_every_shard(&context, move |context| {
            let dropped = dropped.clone();
            Box::pin(async move {
                for id in dropped {
                    context.shard.drop_table(TableId(*id.as_bytes())).await?;
                }
                Ok(())
            })
        })
        .await?;
    }
    let change = protocol_change(effect);
    // Nobody may be listening.
    let _ = context.node.events.send(cql_lite::frame::Event::SchemaChange(change.clone()));
    Ok(Outcome::SchemaChange(change))
}

/// Has a job done on all shards of the node, on all of them at the same time.
pub async fn on_every_shard(
    context: &Rc<ShardContext>,
    job: impl Fn(Rc<ShardContext>) -> futures::future::LocalBoxFuture<'static, Result<()>>
    + Clone
    + Send
    + 'static,
) -> Result<()> {
    let jobs = (0..context.node.shard_count()).map(|shard| {
        let job = job.clone();
        async move { context.run_on(shard, move |context| job(context)).await? }
    });
    futures::future::try_join_all(jobs).await?;
    Ok(())
}

fn protocol_change(effect: SchemaChangeEvent) -> SchemaChange {
    let SchemaChangeEvent { change_type, target, keyspace, name, arguments } = effect;
    SchemaChange {
        kind: match change_type {
            ChangeType::Created => SchemaChangeKind::Created,
            ChangeType::Updated => SchemaChangeKind::Updated,
            ChangeType::Dropped => SchemaChangeKind::Dropped,
        },
        keyspace,
        target: match target {
            ChangeTarget::Keyspace => SchemaTarget::Keyspace,
            ChangeTarget::Table => SchemaTarget::Table { name },
            ChangeTarget::Type => SchemaTarget::Type { name },
            ChangeTarget::Function => SchemaTarget::Function { name, argument_types: arguments },
            ChangeTarget::Aggregate => SchemaTarget::Aggregate { name, argument_types: arguments },
        },
    }
}

/// Empties a table on every shard of every node.
pub async fn truncate(context: Rc<ShardContext>, table: Arc<Table>) -> Result<Outcome> {
    let id = TableId(*table.id.as_bytes());
    if !context.cluster_view().is_single && context.cluster_view().placement(&table.keyspace).is_some() {
        truncate_everywhere(&context, id).await?;
        return Ok(Outcome::Void);
    }
    on_every_shard(&context, move |context| {
        Box::pin(async move {
            context
                .shard
                .truncate(id)
                .await
                .map_err(|error| RequestError::Truncate(format!("Error during truncate: {error}")))
        })
    })
    .await?;
    Ok(Outcome::Void)
}

/// Answers DESCRIBE.
pub fn describe(
    context: &ShardContext,
    statement: &ast::Describe,
    keyspace: Option<&str>,
    _options: &RequestOptions,
) -> Result<Outcome> {
    let ownership: BTreeMap<String, Vec<String>> = context
        .node
        .information
        .tokens
        .iter()
        .map(|token| (token.to_string(), vec![context.node.information.rpc_address.to_string()]))
        .collect();
    let facts = ClusterFacts {
        name: &context.node.config.cluster_name,
        partitioner: "Murmur3Partitioner",
        snitch: "SimpleSnitch",
        range_ownership: &ownership,
    };
    let description = describe_catalog(&context.catalog(), keyspace, facts, statement)?;
    let mut page = ResultPage { row_count: description.rows.len(), ..ResultPage::default() };
    for row in &description.rows {
        for (value, (_, column_type)) in row.iter().zip(&description.columns) {
            write_cell(&mut page.rows, Some(&value.encode(column_type)));
        }
    }
    let columns = description
        .columns
        .into_iter()
        .map(|(name, column_type)| ResultColumn { name: name.to_owned(), column_type })
        .collect();
    Ok(Outcome::OwnRows { keyspace: "system".to_owned(), table: "describe".to_owned(), columns, page })
}
