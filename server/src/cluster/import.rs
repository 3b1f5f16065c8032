//! Imports table files from elsewhere: copies of snapshots and backups of any node, with any number of shards. Rows and deletions
//! are written to their present replicas, with their original timestamps.
//!
//! Invariant: an import that ends without an error has written all of its files at its consistency level. One that fails can be repeated:
//! a write that is repeated changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use helenus_admin::reports::RestoredTable;
use helenus_engine::key::token_bounds;
use helenus_engine::read::{AddressBuf, RowPart, TRANSFER_TURN_BYTES, VersionScanRequest, Versions};
use helenus_engine::shard::ImportSource;
use helenus_engine::{EngineError, TableId};
use helenus_query::error::RequestError;
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::ddl::SnapshotSchema;

use super::restore::{RestoreError, build_views_again, is_of_system, is_wanted};
use crate::cluster::schema;
use helenus_execution::coordinator::write::write_all;
use helenus_execution::shard::context::{ShardContext, share_among_shards};
use helenus_execution::shard::snapshots;

/// Turns whose writes are under way at a time, for each file.
const TURNS_IN_FLIGHT: usize = 8;
/// Attempts to write what was not acknowledged in time, and the pause between them.
const ATTEMPTS: usize = 4;
const WRITE_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A request to import table files.
#[derive(Debug, Clone)]
pub struct ImportRequest {
    /// The directory, of this machine, at or below which the files lie.
    pub directory: PathBuf,
    /// Only tables of this keyspace.
    pub keyspace: Option<String>,
    /// Only this table of it.
    pub table: Option<String>,
    /// The name of the table that gets the rows; see [`helenus_observe::RestoreRequest`].
    pub into: Option<String>,
    pub consistency: Consistency,
}

/// The files of one table, and the schemas that were found with them.
struct Source {
    files: Vec<PathBuf>,
    newest: SnapshotSchema,
    older: Vec<SnapshotSchema>,
}

/// Imports all files at and below a directory. Call on the first shard.
pub async fn import(
    context: &Rc<ShardContext>,
    request: ImportRequest,
) -> Result<Vec<RestoredTable>, RestoreError> {
    let sources = sources(context, &request).await?;
    if request.into.is_some() && sources.len() > 1 {
        return Err(RestoreError::SeveralTables(sources.len()));
    }
    let mut imported = Vec::new();
    for Source { files, newest, older } in sources {
        let (keyspace, own_name) = (newest.table().keyspace.clone(), newest.table().name.clone());
        let name = request.into.clone().unwrap_or(own_name);
        for schema in &older {
            newest.check_takes(schema)?;
        }
        schema::make_place(context, &newest, &name).await?;
        let Some(table) = context.catalog().table(&keyspace, &name).cloned() else {
            let missing = format!("the table {keyspace}.{name} was dropped meanwhile");
            return Err(RequestError::Invalid(missing).into());
        };
        let file_count = files.len() as u64;
        let disk_bytes = import_files(context, &table, files, request.consistency).await?;
        build_views_again(context, table.engine_id()).await?;
        let directory = request.directory.display();
        tracing::info!(%directory, keyspace, table = name, files = file_count, bytes = disk_bytes, "imported");
        imported.push(RestoredTable { keyspace, table: name, file_count, disk_bytes, has_moved_rows: false });
    }
    Ok(imported)
}

/// The wanted tables.
async fn sources(context: &Rc<ShardContext>, request: &ImportRequest) -> Result<Vec<Source>, RestoreError> {
    let found = context.shard.find_imports(&request.directory).await.map_err(RequestError::from)?;
    if found.is_empty() {
        return Err(RestoreError::NothingToImport(request.directory.clone()));
    }
    let mut by_table: BTreeMap<TableId, (Vec<PathBuf>, Vec<SnapshotSchema>)> = BTreeMap::new();
    let mut unknown = None;
    for directory in found {
        let schema = schema_beside(context, &directory.path, &directory.others).await?;
        let own_id = schema.as_ref().map(|schema| schema.table().engine_id());
        let Some(id) = directory.table.or(own_id) else {
            unknown = Some(RestoreError::UnknownFiles(directory.path));
            continue;
        };
        let (files, schemas) = by_table.entry(id).or_default();
        files.extend(directory.files);
        schemas.extend(schema);
    }
    let mut wanted = Vec::new();
    for (id, (files, mut schemas)) in by_table {
        schemas.sort_by_key(SnapshotSchema::age);
        let Some(newest) = schemas.pop() else {
            if !is_of_system(context, id) {
                unknown = Some(RestoreError::NoSchema { table: id });
            }
            continue;
        };
        if is_wanted(&newest, request.keyspace.as_ref(), request.table.as_ref()) {
            wanted.push(Source { files, newest, older: schemas });
        }
    }
    // Files of an unknown table may belong to the request. A table that was named and found is complete.
    if let Some(error) = unknown.filter(|_| wanted.is_empty() || request.table.is_none()) {
        return Err(error);
    }
    if wanted.is_empty() {
        return Err(RestoreError::NothingToImport(request.directory.clone()));
    }
    Ok(wanted)
}

/// The schema that lies beside table files or archived logs.
pub(super) async fn schema_beside(
    context: &ShardContext,
    path: &Path,
    files: &[String],
) -> Result<Option<SnapshotSchema>, RequestError> {
    if files.iter().all(|name| name != snapshots::CATALOG_FILE) {
        return Ok(None);
    }
    let path = path.join(snapshots::CATALOG_FILE);
    let bytes = context.shard.read_beside_import(&path).await?;
    snapshots::decode_schema(&path, &bytes).map(Some)
}

/// Writes all rows of the files, which the shards share. Returns their bytes.
async fn import_files(
    context: &Rc<ShardContext>,
    table: &Arc<Table>,
    files: Vec<PathBuf>,
    consistency: Consistency,
) -> Result<u64, RequestError> {
    let table = Arc::clone(table);
    let imported = share_among_shards(context, files, move |context, path| {
        let table = Arc::clone(&table);
        Box::pin(async move { import_file(&context, &table, &path, consistency).await })
    });
    Ok(imported.await?.into_iter().sum())
}

async fn import_file(
    context: &Rc<ShardContext>,
    table: &Arc<Table>,
    path: &Path,
    consistency: Consistency,
) -> Result<u64, RequestError> {
    let file = context.shard.open_import(path).await?;
    let unreadable =
        |error| RequestError::from(EngineError::ImportFile { path: path.to_owned(), error: Box::new(error) });
    write_rows(context, table, &file, consistency, unreadable).await?;
    Ok(file.bytes())
}

/// Writes all rows of a source to the replicas that have them now. `unreadable`: the error for what cannot be read.
pub(super) async fn write_rows(
    context: &Rc<ShardContext>,
    table: &Arc<Table>,
    source: &ImportSource,
    consistency: Consistency,
    unreadable: impl Fn(EngineError) -> RequestError,
) -> Result<(), RequestError> {
    let (mut next, end) = token_bounds(&(i64::MIN..=i64::MAX));
    let mut inside: Option<AddressBuf> = None;
    let mut writes = FuturesUnordered::new();
    loop {
        let Versions { partitions, resume, resume_inside, .. } =
            read_turn(context, table, source, (&next, inside.as_ref()), &end).await.map_err(&unreadable)?;
        let changes: Result<Vec<PartitionMutation>, RequestError> = partitions
            .into_iter()
            .map(|mutation| {
                let token = mutation.view().map_err(EngineError::Mutation)?.token;
                Ok(PartitionMutation { token, table: Arc::clone(table), mutation })
            })
            .collect();
        writes.push(write_turn(context, changes?, consistency));
        while writes.len() >= TURNS_IN_FLIGHT {
            writes.next().await.transpose()?;
        }
        let Some(resume) = resume else { break };
        (next, inside) = (resume, resume_inside);
    }
    while let Some(written) = writes.next().await {
        written?;
    }
    Ok(())
}

async fn read_turn(
    context: &ShardContext,
    table: &Table,
    source: &ImportSource,
    (start, inside): (&[u8], Option<&AddressBuf>),
    end: &[u8],
) -> Result<Versions, EngineError> {
    let part = RowPart {
        from: inside.map(AddressBuf::view),
        bytes_max: context.node.config.mutation_bytes_max() / 2,
    };
    let now_seconds = context.now_seconds();
    let id = table.engine_id();
    let request =
        VersionScanRequest::of_transfer(id, (start, end), now_seconds, Some(part), TRANSFER_TURN_BYTES);
    context.shard.read_cold(|| context.shard.scan_import(source, &request)).await
}

/// Writes mutations, again if they were not acknowledged in time or there was no room for them.
async fn write_turn(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
    consistency: Consistency,
) -> Result<(), RequestError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        context.shard.admit().await?;
        match write_all(context, changes.clone(), consistency, WriteType::Simple).await {
            Err(RequestError::WriteTimeout { .. } | RequestError::Overloaded(_)) if attempt < ATTEMPTS => {
                context.clock.sleep(WRITE_RETRY_PAUSE).await;
            }
            written => return written,
        }
    }
}
