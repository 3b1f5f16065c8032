//! Snapshots: those of operators, those that the node takes by itself before a table is dropped or truncated, and their descriptions.
//!
//! A snapshot contains, beside the files of the table, two of Cassandra's files: `schema.cql`, the statements that create the table again,
//! and `manifest.json`, its description. `schema.json` is the schema with the ids of the columns, for a restore. A snapshot with an expiry
//! is removed by a task some time after it has expired.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::types::time::{format_timestamp, parse_timestamp};
use helenus_config::Config;
use helenus_describe::snapshot_schema;
use helenus_engine::shard::{Attachment, SnapshotEntry};
use helenus_engine::{EngineError, Shard, TableId};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Keyspace, Table};
use helenus_query::schema::ddl::SnapshotSchema;
use helenus_query::schema::system_keyspaces;
use serde::{Deserialize, Serialize};

use super::context::ShardContext;

/// Time between two searches for expired snapshots, as in Cassandra.
const CLEANUP_PAUSE: Duration = Duration::from_mins(1);
const SCHEMA_FILE: &str = "schema.cql";
const DESCRIPTION_FILE: &str = "manifest.json";
pub const CATALOG_FILE: &str = "schema.json";

/// The reason for a snapshot, with which its name begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    Drop,
    Truncate,
}

impl Occasion {
    fn prefix(self) -> &'static str {
        match self {
            Self::Drop => "dropped",
            Self::Truncate => "truncated",
        }
    }
}

/// A snapshot that is to be taken, the same on every shard of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPlan {
    /// The name of the snapshot: that of an operator, or `dropped-<milliseconds>-<table>`.
    pub name: String,
    schema: String,
    description: Description,
    /// The contents of `schema.json`; empty for a table of the system, and in plans that were stored before there was such a file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    catalog: String,
}

/// The description of a snapshot. Times are written as `2015-05-21T11:03:02.000Z`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Description {
    keyspace: String,
    table: String,
    created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// A snapshot of one table on one shard. Fields that its description lacks are empty: snapshots of former versions have no
/// description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSnapshot {
    pub entry: SnapshotEntry,
    pub keyspace: String,
    pub table: String,
    pub created_at: String,
    pub expires_at: String,
    /// The bytes of its files, which the table may still use.
    pub bytes: u64,
}

/// Whether a snapshot precedes the drop or the truncation of a table.
pub fn is_wanted(config: &Config, table: &Table) -> bool {
    config.auto_snapshot && table.options.allow_auto_snapshot && !system_keyspaces::is_system(&table.keyspace)
}

/// The plan of the snapshot that precedes the drop or the truncation of a table; `None` if no snapshot is wanted.
pub fn plan(
    context: &ShardContext,
    keyspace: &Keyspace,
    table: &Table,
    occasion: Occasion,
) -> Result<Option<SnapshotPlan>> {
    let config = &context.node.config;
    let planned = is_wanted(config, table).then(|| {
        let now_millis = context.node.last_snapshot.next_millis(context.clock.now_micros());
        let expires_at = config
            .auto_snapshot_ttl
            .map(|ttl| format_timestamp(now_millis.saturating_add(i64::from(ttl.seconds()) * 1_000)));
        let name = format!("{}-{now_millis}-{}", occasion.prefix(), table.name);
        SnapshotPlan::new(name, keyspace, table, now_millis, expires_at)
    });
    planned.transpose()
}

impl SnapshotPlan {
    fn new(
        name: String,
        keyspace: &Keyspace,
        table: &Table,
        now_millis: i64,
        expires_at: Option<String>,
    ) -> Result<Self> {
        let catalog = if system_keyspaces::is_system(&keyspace.name) {
            String::new()
        } else {
            encode_schema(keyspace, table)?
        };
        Ok(Self {
            name,
            schema: snapshot_schema(keyspace, table),
            description: Description {
                keyspace: keyspace.name.clone(),
                table: table.name.clone(),
                created_at: format_timestamp(now_millis),
                expires_at,
            },
            catalog,
        })
    }

    /// The schema in both forms, and the description.
    fn attachments(&self) -> serde_json::Result<Vec<Attachment>> {
        let description = serde_json::to_string_pretty(&self.description)?;
        let files = [
            (SCHEMA_FILE, self.schema.clone()),
            (DESCRIPTION_FILE, description),
            (CATALOG_FILE, self.catalog.clone()),
        ];
        let present = files.into_iter().filter(|(_, contents)| !contents.is_empty());
        Ok(present.map(|(name, text)| attachment(name, text)).collect())
    }

    fn failure(&self, context: &ShardContext, error: &dyn std::fmt::Display) -> RequestError {
        RequestError::Server(format!(
            "snapshot {} of table {}.{} failed on shard {}: {error}",
            self.name, self.description.keyspace, self.description.table, context.index
        ))
    }
}

/// Empties a table on this shard after the snapshot of the plan was taken. Rows that were written since are in the snapshot too.
pub async fn truncate(context: &ShardContext, table: TableId, plan: &SnapshotPlan) -> Result<()> {
    let attachments = plan.attachments().map_err(|error| plan.failure(context, &error))?;
    let truncated = context.shard.truncate_into_snapshot(table, &plan.name, &attachments).await;
    truncated.map_err(|error| plan.failure(context, &error))
}

/// Takes a snapshot of a table on this shard. A table without rows gets none.
pub async fn take(context: &ShardContext, table: TableId, plan: &SnapshotPlan) -> Result<()> {
    let attachments = plan.attachments().map_err(|error| plan.failure(context, &error))?;
    let taken = context.shard.snapshot_rows(table, &plan.name, &attachments).await;
    if let Some(path) = taken.map_err(|error| plan.failure(context, &error))? {
        context.metrics.auto_snapshots.increment();
        tracing::info!(shard = context.index, path = %path.display(), "snapshot taken");
    }
    Ok(())
}

/// Takes the snapshot of a table on this shard that an operator asked for, even if the table is empty.
pub async fn take_named(context: &ShardContext, id: TableId, name: String) -> Result<()> {
    let plan = {
        let view = context.catalog_view();
        let table = view.table(id).ok_or(EngineError::UnknownTable(id))?;
        let keyspace = view.catalog.keyspace(&table.keyspace).ok_or(EngineError::UnknownTable(id))?;
        let now_millis = context.clock.now_micros().div_euclid(1_000);
        SnapshotPlan::new(name, keyspace, table, now_millis, None)?
    };
    let attachments = plan.attachments().map_err(|error| plan.failure(context, &error))?;
    Ok(context.shard.snapshot(id, &plan.name, &attachments).await.map(drop)?)
}

/// The files beside the incremental backups of a table; `None` for a table of the system, which has no backups.
pub fn backup_notes(keyspace: &Keyspace, table: &Table) -> Result<Option<Arc<[Attachment]>>> {
    if system_keyspaces::is_system(&keyspace.name) {
        return Ok(None);
    }
    let statements = attachment(SCHEMA_FILE, snapshot_schema(keyspace, table));
    Ok(Some([statements, attachment(CATALOG_FILE, encode_schema(keyspace, table)?)].into()))
}

fn attachment(name: &str, text: String) -> Attachment {
    Attachment { name: name.to_owned(), contents: Bytes::from(text) }
}

fn encode_schema(keyspace: &Keyspace, table: &Table) -> Result<String> {
    SnapshotSchema::of(keyspace, table).encode().map_err(|error| {
        RequestError::Server(format!("the schema of {} cannot be written: {error}", table.full_name()))
    })
}

/// The tables that have a snapshot of this name on this shard, with their schemas. `None`: the snapshot has none.
pub async fn schemas(context: &ShardContext, name: &str) -> Result<Vec<(TableId, Option<SnapshotSchema>)>> {
    let mut schemas = Vec::new();
    for entry in context.shard.list_snapshots().await?.into_iter().filter(|entry| entry.name == name) {
        let schema = match context.shard.snapshot_attachment(&entry, CATALOG_FILE).await? {
            None => None,
            Some(bytes) => Some(decode_schema(&entry.path.join(CATALOG_FILE), &bytes)?),
        };
        schemas.push((entry.table, schema));
    }
    Ok(schemas)
}

/// The schema in a file with these contents.
pub fn decode_schema(path: &Path, contents: &[u8]) -> Result<SnapshotSchema> {
    SnapshotSchema::decode(contents)
        .map_err(|error| RequestError::Server(format!("{} cannot be read: {error}", path.display())))
}

async fn description(shard: &Shard, entry: &SnapshotEntry) -> Result<Option<Description>> {
    let Some(bytes) = shard.snapshot_attachment(entry, DESCRIPTION_FILE).await? else { return Ok(None) };
    match serde_json::from_slice(&bytes) {
        Ok(description) => Ok(Some(description)),
        Err(error) => {
            tracing::warn!(path = %entry.path.display(), %error, "the description of a snapshot cannot be read");
            Ok(None)
        }
    }
}

/// The snapshots of this shard.
pub async fn list(context: &ShardContext) -> Result<Vec<ListedSnapshot>> {
    let mut listed = Vec::new();
    for entry in context.shard.list_snapshots().await? {
        let bytes = context.shard.snapshot_bytes(&entry).await?;
        let description = description(&context.shard, &entry).await?;
        let text = |get: fn(&Description) -> &str| description.as_ref().map_or("", get).to_owned();
        listed.push(ListedSnapshot {
            keyspace: text(|description| &description.keyspace),
            table: text(|description| &description.table),
            created_at: text(|description| &description.created_at),
            expires_at: text(|description| description.expires_at.as_deref().unwrap_or_default()),
            entry,
            bytes,
        });
    }
    Ok(listed)
}

/// The times of expiry of the snapshots that are known, in milliseconds since the epoch. A snapshot never changes.
#[derive(Debug, Default)]
struct Expiries(BTreeMap<SnapshotEntry, Option<i64>>);

impl Expiries {
    /// Removes the snapshots that have expired.
    async fn remove_expired(&mut self, context: &ShardContext) -> Result<()> {
        let present: BTreeSet<SnapshotEntry> = context.shard.list_snapshots().await?.into_iter().collect();
        self.0.retain(|entry, _| present.contains(entry));
        for entry in present {
            if let Entry::Vacant(place) = self.0.entry(entry) {
                let described = description(&context.shard, place.key()).await?;
                let expires_at = described.and_then(|known| known.expires_at);
                place.insert(expires_at.and_then(|text| parse_timestamp(&text).ok()));
            }
        }
        let now_millis = context.clock.now_micros().div_euclid(1_000);
        let is_over = |expiry: &Option<i64>| expiry.is_some_and(|millis| millis <= now_millis);
        let expired: Vec<SnapshotEntry> =
            self.0.iter().filter(|(_, expiry)| is_over(expiry)).map(|(entry, _)| entry.clone()).collect();
        for entry in expired {
            let of_name = self.0.iter().filter(|(other, _)| other.name == entry.name);
            if of_name.map(|(_, expiry)| expiry).all(is_over) {
                context.shard.clear_snapshot(&entry.name).await?;
            } else {
                context.shard.clear_table_snapshot(&entry).await?;
            }
            context.metrics.snapshots_expired.increment();
            tracing::info!(shard = context.index, path = %entry.path.display(), "snapshot has expired and was removed");
        }
        Ok(())
    }
}

/// Starts the task that removes expired snapshots of this shard.
pub fn start(context: &Rc<ShardContext>) {
    let expiries = tokio::sync::Mutex::new(Expiries::default());
    context.repeat(CLEANUP_PAUSE, async move |context: &Rc<ShardContext>| {
        if let Err(error) = expiries.lock().await.remove_expired(context).await {
            tracing::warn!(%error, "expired snapshots could not be removed; it will be tried again");
        }
    });
}
