//! Replays archived commit logs: what was written to tables up to a time goes to the replicas that have the rows now, with the timestamps
//! that it had. On top of a snapshot of before, that is a restore to a point in time.
//!
//! Invariants:
//! * All logs are read once before anything is written: what is missing, damaged or there twice is an error, and nothing is written.
//! * A replay that ends without an error has written all that was selected at its consistency level. One that fails can be repeated: a write
//!   that is repeated changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use helenus_admin::reports::{ReplayReport, ReplayedTable};
use helenus_engine::TableId;
use helenus_engine::commit_log::ArchivedLog;
use helenus_engine::shard::LogSelection;
use helenus_observe::ReplayRequest;
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::ddl::SnapshotSchema;
use helenus_query::schema::system_keyspaces;

use super::import::{schema_beside, write_rows};
use super::restore::{self, RestoreError, is_wanted};
use crate::cluster::schema;
use helenus_execution::shard::context::{ShardContext, from_every_shard, share_among_shards};

/// The tables that get the writes, by the ids in the logs.
type Targets = BTreeMap<TableId, Arc<Table>>;

/// What was read of a log, and written if it has a target.
#[derive(Debug, Default)]
struct Replayed {
    segment_count: u64,
    mutations: BTreeMap<TableId, u64>,
    others: BTreeSet<TableId>,
}

impl Replayed {
    fn add(&mut self, other: Self) {
        self.segment_count += other.segment_count;
        for (table, count) in other.mutations {
            *self.mutations.entry(table).or_default() += count;
        }
        self.others.extend(other.others);
    }
}

/// Ends the present segments of the commit log of every shard and waits for their copies in the archive. Call on the first shard.
pub async fn archive_log(context: &Rc<ShardContext>) -> Result<(), RequestError> {
    if context.node.config.commit_log_archive_dir.is_none() {
        let reason = "the commit log is not archived: commit_log_archive_dir is not set";
        return Err(RequestError::Invalid(reason.to_owned()));
    }
    let archived =
        from_every_shard(context, |context| Box::pin(async move { Ok(context.shard.archive_log().await?) }));
    archived.await.map(drop)
}

/// Replays all logs at and below a directory. Call on the first shard.
pub async fn replay(
    context: &Rc<ShardContext>,
    request: ReplayRequest,
) -> Result<ReplayReport, RestoreError> {
    let found = context.shard.find_archived_logs(&request.directory).await.map_err(RequestError::from)?;
    if found.is_empty() {
        return Err(RestoreError::NothingToReplay(request.directory));
    }
    // Before anything is written or created.
    for log in &found {
        context.shard.open_archived_log(log).map_err(RequestError::from)?;
    }
    let schemas = wanted_schemas(context, &request).await?;
    let ids: BTreeSet<TableId> = schemas.iter().map(|schema| schema.table().engine_id()).collect();
    let present = read_logs(context, &found, &request, &ids, None).await?;
    let unknown: Vec<TableId> = present.others.into_iter().filter(|id| !is_known(context, *id)).collect();
    let has_none = ids.iter().all(|id| !present.mutations.contains_key(id));
    if request.table.is_some() && has_none && !unknown.is_empty() {
        return Err(RestoreError::NothingOfTable(unknown));
    }
    let targets = Arc::new(targets(context, &request, schemas).await?);
    let replayed = read_logs(context, &found, &request, &ids, Some(&targets)).await?;
    let written: BTreeSet<TableId> = targets.values().map(|table| table.engine_id()).collect();
    for table in written {
        restore::build_views_again(context, table).await?;
    }
    let ReplayRequest { directory, timestamps, .. } = &request;
    let mut by_name: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (id, count) in &replayed.mutations {
        let table = &targets[id];
        *by_name.entry((table.keyspace.clone(), table.name.clone())).or_default() += count;
    }
    let report = |((keyspace, table), mutation_count)| {
        tracing::info!(directory = %directory.display(), ?timestamps, keyspace, table, mutation_count, "replayed");
        ReplayedTable { keyspace, table, mutation_count }
    };
    let tables = by_name.into_iter().map(report).collect();
    Ok(ReplayReport {
        segment_count: replayed.segment_count,
        tables,
        unknown_tables: unknown.iter().map(TableId::to_string).collect(),
    })
}

/// Whether the node knows a table, also one of its own.
fn is_known(context: &ShardContext, id: TableId) -> bool {
    context.catalog_view().table(id).is_some() || context.node.private_tables.contains(&id)
}

/// The schemas of the tables whose writes are wanted.
async fn wanted_schemas(
    context: &Rc<ShardContext>,
    request: &ReplayRequest,
) -> Result<Vec<SnapshotSchema>, RestoreError> {
    let mut schemas = known_schemas(context, request).await?;
    schemas.retain(|schema| is_wanted(schema, request.keyspace.as_ref(), request.table.as_ref()));
    if schemas.is_empty() { Err(RestoreError::NoTarget) } else { Ok(schemas) }
}

/// The tables that are to get the writes. Those that are missing are created.
async fn targets(
    context: &Rc<ShardContext>,
    request: &ReplayRequest,
    schemas: Vec<SnapshotSchema>,
) -> Result<Targets, RestoreError> {
    let mut by_name: BTreeMap<(String, String), Vec<SnapshotSchema>> = BTreeMap::new();
    for schema in schemas {
        let name = (schema.table().keyspace.clone(), schema.table().name.clone());
        by_name.entry(name).or_default().push(schema);
    }
    if request.into.is_some() && by_name.len() > 1 {
        return Err(RestoreError::SeveralTables(by_name.len()));
    }
    let mut targets = Targets::new();
    for ((keyspace, own_name), mut schemas) in by_name {
        let name = request.into.clone().unwrap_or(own_name);
        schemas.sort_by_key(SnapshotSchema::age);
        let Some(newest) = schemas.last() else { unreachable!("a name is that of a schema") };
        for schema in &schemas {
            newest.check_takes(schema)?;
        }
        schema::make_place(context, newest, &name).await?;
        let Some(table) = context.catalog().table(&keyspace, &name).cloned() else {
            let missing = format!("the table {keyspace}.{name} was dropped meanwhile");
            return Err(RequestError::Invalid(missing).into());
        };
        targets.extend(schemas.iter().map(|schema| (schema.table().engine_id(), Arc::clone(&table))));
    }
    Ok(targets)
}

/// The schemas of the tables that exist, of the snapshot that was named, and of those at and below the directory.
async fn known_schemas(
    context: &Rc<ShardContext>,
    request: &ReplayRequest,
) -> Result<Vec<SnapshotSchema>, RestoreError> {
    let mut schemas = Vec::new();
    let catalog = context.catalog();
    for keyspace in catalog.keyspaces.values().filter(|keyspace| !system_keyspaces::is_system(&keyspace.name))
    {
        schemas.extend(keyspace.tables.values().map(|table| SnapshotSchema::of(keyspace, table)));
    }
    if let Some(snapshot) = &request.snapshot {
        let of_snapshot =
            restore::schemas(context, snapshot, request.keyspace.as_ref(), request.table.as_ref()).await?;
        schemas.extend(of_snapshot.into_values());
    }
    let below = context.shard.files_below(&request.directory).await.map_err(RequestError::from)?;
    for (path, files) in below {
        schemas.extend(schema_beside(context, &path, &files).await?);
    }
    Ok(schemas)
}

/// Reads logs, which the shards share, and writes the records of these tables to their targets. Without targets they are counted alone.
async fn read_logs(
    context: &Rc<ShardContext>,
    logs: &[ArchivedLog],
    request: &ReplayRequest,
    tables: &BTreeSet<TableId>,
    targets: Option<&Arc<Targets>>,
) -> Result<Replayed, RequestError> {
    let selection = LogSelection {
        tables: tables.clone(),
        timestamps: request.timestamps.clone(),
        only_counts: targets.is_none(),
    };
    let (consistency, targets) = (request.consistency, targets.cloned());
    let of_logs = share_among_shards(context, logs.to_vec(), move |context, log| {
        let (selection, targets) = (selection.clone(), targets.clone());
        Box::pin(async move { read_log(&context, &log, &selection, targets.as_deref(), consistency).await })
    });
    let mut all = Replayed::default();
    of_logs.await?.into_iter().for_each(|replayed| all.add(replayed));
    Ok(all)
}

async fn read_log(
    context: &Rc<ShardContext>,
    log: &ArchivedLog,
    selection: &LogSelection,
    targets: Option<&Targets>,
    consistency: Consistency,
) -> Result<Replayed, RequestError> {
    let mut replayed = Replayed::default();
    let mut reading = context.shard.open_archived_log(log)?;
    while let Some(part) = context.shard.next_of_log(&mut reading, selection).await? {
        replayed.add(Replayed {
            segment_count: u64::from(part.ends_segment),
            mutations: part.mutation_counts,
            others: part.others,
        });
        let Some(targets) = targets else { continue };
        for (id, source) in part.sources {
            write_rows(context, &targets[&id], &source, consistency, RequestError::from).await?;
        }
    }
    Ok(replayed)
}
