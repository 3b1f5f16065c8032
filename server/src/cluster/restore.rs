//! Restores tables from the snapshots of this node: creates missing parts of their schema through the metadata log, and lets each
//! shard put the files of its part into use.
//!
//! Invariants:
//! * Each shard gets all files of its part of a table or none. What one shard has got stays when another fails; restoring again is
//!   harmless, because rows that are there twice are merged.
//! * No rows stay of tokens that this node does not own now: they would come back with the tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use helenus_admin::reports::RestoredTable;
use helenus_engine::TableId;
use helenus_engine::shard::Restored;
use helenus_observe::RestoreRequest;
use helenus_query::error::RequestError;
use helenus_query::schema::ddl::SnapshotSchema;
use helenus_query::schema::system_keyspaces;

use crate::cluster::{schema, views};
use crate::streaming::cleanup::{CleanupError, clean_table};
use helenus_execution::coordinator::repair::purging;
use helenus_execution::shard::context::{ShardContext, from_every_shard};
use helenus_execution::shard::snapshots;

/// The reason why a restore was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("there is no snapshot '{0}' of such a table on this node")]
    UnknownSnapshot(String),
    #[error("there are no table files of such a table at or below {0} on this machine")]
    NothingToImport(PathBuf),
    #[error(
        "the table of the files in {0} is unknown: the directory is not named after a table, and has no schema.json"
    )]
    UnknownFiles(PathBuf),
    #[error("there are no archived segments of a commit log at or below {0} on this machine")]
    NothingToReplay(PathBuf),
    #[error(
        "there is no such table, and no schema of it in the snapshot that was named or at or below the directory: name a snapshot that was \
         taken before it was dropped"
    )]
    NoTarget,
    #[error(
        "the logs have no such writes of that table, but some of tables that this node does not know ({}): if it was dropped since, name a \
         snapshot that was taken before", list(.0)
    )]
    NothingOfTable(Vec<TableId>),
    #[error("there are {0} tables: name the one that goes into another table")]
    SeveralTables(usize),
    #[error(
        "the schema of table {table} is not with its files: put the schema.json of a snapshot of the same table beside them, one that was taken before any of its columns were dropped or after all changes"
    )]
    NoSchema { table: TableId },
    #[error("Node is involved in cluster membership changes. Not safe to restore.")]
    RingIsChanging,
    #[error(
        "members have changed meanwhile, and rows may lie where they do not belong: import the snapshot's directory, and run cleanup when that is done"
    )]
    RingHasChanged,
    #[error("the rows are restored, but view {name} cannot be created: {error}")]
    View { name: String, error: Box<RequestError> },
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(
        "the rows are restored, but those of tokens that this node does not own could not be removed, run cleanup: {0}"
    )]
    Cleanup(CleanupError),
}

fn list(tables: &[TableId]) -> String {
    tables.iter().map(TableId::to_string).collect::<Vec<_>>().join(", ")
}

/// Restores tables from a snapshot of this node. Call on the first shard.
pub async fn restore(
    context: &Rc<ShardContext>,
    request: RestoreRequest,
) -> Result<Vec<RestoredTable>, RestoreError> {
    check_ring(context)?;
    let epoch = context.cluster_view().topology.epoch;
    let schemas = schemas(context, &request.name, request.keyspace.as_ref(), request.table.as_ref()).await?;
    check_count(schemas.len(), &request)?;
    let mut restored = Vec::new();
    for (id, schema) in schemas {
        let (keyspace, own_name) = (schema.table().keyspace.clone(), schema.table().name.clone());
        let name = request.into.clone().unwrap_or(own_name);
        schema::make_place(context, &schema, &name).await?;
        let Some(target) = context.catalog().table(&keyspace, &name).map(|table| table.engine_id()) else {
            let missing = format!("the table {keyspace}.{name} was dropped meanwhile");
            return Err(RequestError::Invalid(missing).into());
        };
        let Restored { files, bytes } = restore_table(context, &request.name, id, target).await?;
        // A member that has streamed meanwhile may lack rows that would be removed here.
        if context.cluster_view().topology.epoch != epoch {
            return Err(RestoreError::RingHasChanged);
        }
        let cleaned_files = clean(context, &keyspace, target).await?;
        build_views_again(context, target).await?;
        tracing::info!(
            snapshot = request.name,
            keyspace,
            table = name,
            files,
            bytes,
            cleaned_files,
            "snapshot restored"
        );
        restored.push(RestoredTable {
            keyspace,
            table: name,
            file_count: files as u64,
            disk_bytes: bytes,
            has_moved_rows: files > 0 && cleaned_files > 0,
        });
    }
    if request.into.is_none() {
        create_views_again(context, &request).await?;
    }
    Ok(restored)
}

/// Creates the views of the restored tables that are missing. All are tried; the error names the first that cannot be created.
async fn create_views_again(
    context: &Rc<ShardContext>,
    request: &RestoreRequest,
) -> Result<(), RestoreError> {
    let mut outcome = Ok(());
    for view in view_schemas(context, request).await? {
        let created = views::create_again(context, &view).await.map_err(|error| {
            let name = view.table().full_name();
            RestoreError::View { name, error: Box::new(error) }
        });
        outcome = outcome.and(created);
    }
    outcome
}

/// Has the views that are computed of a table built again, as rows have come.
pub(super) async fn build_views_again(
    context: &Rc<ShardContext>,
    table: TableId,
) -> Result<(), RequestError> {
    let table = context.catalog_view().table(table).cloned();
    // Without it, it was dropped meanwhile.
    if let Some(table) = table {
        views::build_all_again(context, &table).await?;
    }
    Ok(())
}

/// Refuses a restore while rows change owners.
pub(super) fn check_ring(context: &ShardContext) -> Result<(), RestoreError> {
    let is_changing = !context.cluster_view().topology.is_settled();
    if is_changing { Err(RestoreError::RingIsChanging) } else { Ok(()) }
}

/// Refuses to restore several tables into one.
pub(super) fn check_count(tables: usize, request: &RestoreRequest) -> Result<(), RestoreError> {
    if request.into.is_some() && tables > 1 { Err(RestoreError::SeveralTables(tables)) } else { Ok(()) }
}

/// The schemas of the wanted tables, by the ids that they had.
pub(super) async fn schemas(
    context: &Rc<ShardContext>,
    name: &str,
    keyspace: Option<&String>,
    table: Option<&String>,
) -> Result<BTreeMap<TableId, SnapshotSchema>, RestoreError> {
    let mut schemas = BTreeMap::new();
    let mut unknown = None;
    for (id, schema) in kept_schemas(context, name).await? {
        match schema {
            Some(schema) if is_wanted(&schema, keyspace, table) => {
                schemas.insert(id, schema);
            }
            Some(_) => {}
            None if is_of_system(context, id) => {}
            None => unknown = Some(id),
        }
    }
    // Without a schema it is unknown whether the request includes the files. With a schema, a table that was named has been
    // found.
    if let Some(table) = unknown.filter(|_| schemas.is_empty() || table.is_none()) {
        return Err(RestoreError::NoSchema { table });
    }
    if schemas.is_empty() {
        return Err(RestoreError::UnknownSnapshot(name.to_owned()));
    }
    Ok(schemas)
}

/// What the snapshot of a name has on this node: by the ids of the tables, their schemas as far as they were kept.
async fn kept_schemas(
    context: &Rc<ShardContext>,
    name: &str,
) -> Result<BTreeMap<TableId, Option<SnapshotSchema>>, RestoreError> {
    let name = name.to_owned();
    let of_shards = from_every_shard(context, move |context| {
        let name = name.clone();
        Box::pin(async move { snapshots::schemas(&context, &name).await })
    });
    let mut kept: BTreeMap<TableId, Option<SnapshotSchema>> = BTreeMap::new();
    for (id, schema) in of_shards.await?.into_iter().flatten() {
        let known = kept.entry(id).or_default();
        *known = known.take().or(schema);
    }
    Ok(kept)
}

/// The views of the wanted tables that are in the snapshot.
async fn view_schemas(
    context: &Rc<ShardContext>,
    request: &RestoreRequest,
) -> Result<Vec<SnapshotSchema>, RestoreError> {
    let is_wanted = |schema: &SnapshotSchema| {
        let known = schema.table();
        let is_of_table =
            |name: &String| known.view.as_ref().is_some_and(|view| view.statement.from.name.as_str() == name);
        known.view.is_some()
            && request.keyspace.as_ref().is_none_or(|name| *name == known.keyspace)
            && request.table.as_ref().is_none_or(is_of_table)
    };
    let kept = kept_schemas(context, &request.name).await?;
    Ok(kept.into_values().flatten().filter(is_wanted).collect())
}

/// Whether a schema is one of the request. Views, and what is kept beside them, are computed again: they are only found by their names.
pub(super) fn is_wanted(schema: &SnapshotSchema, keyspace: Option<&String>, table: Option<&String>) -> bool {
    let known = schema.table();
    let is_of_keyspace = keyspace.is_none_or(|name| *name == known.keyspace);
    is_of_keyspace && table.map_or(!schema.is_of_views(), |name| *name == known.name)
}

/// Whether the id is that of a table of the system, which a snapshot of everything has too.
pub(super) fn is_of_system(context: &ShardContext, id: TableId) -> bool {
    let view = context.catalog_view();
    view.table(id).is_some_and(|table| system_keyspaces::is_system(&table.keyspace))
}

async fn restore_table(
    context: &Rc<ShardContext>,
    name: &str,
    from: TableId,
    into: TableId,
) -> Result<Restored, RequestError> {
    // The deletions of the snapshot were repaired with other rows than those that come back now.
    purging::forget(context, into).await?;
    let name = name.to_owned();
    let of_shards = from_every_shard(context, move |context| {
        let name = name.clone();
        Box::pin(async move {
            let entries = context.shard.list_snapshots().await?;
            match entries.iter().find(|entry| entry.name == name && entry.table == from) {
                Some(entry) => Ok(context.shard.restore_snapshot(entry, into).await?),
                // The table was empty here.
                None => Ok(Restored::default()),
            }
        })
    });
    Ok(of_shards.await?.into_iter().fold(Restored::default(), |left, right| Restored {
        files: left.files + right.files,
        bytes: left.bytes + right.bytes,
    }))
}

/// Removes the rows of tokens that this node does not own. Returns the number of files that had any.
async fn clean(context: &Rc<ShardContext>, keyspace: &str, table: TableId) -> Result<usize, RestoreError> {
    let jobs = (0..context.node.shard_count()).map(|shard| {
        let keyspace = keyspace.to_owned();
        context.run_on(shard, move |context| {
            Box::pin(async move { clean_table(&context, &keyspace, table).await })
        })
    });
    let mut files = 0;
    for cleaned in futures::future::join_all(jobs).await {
        files += cleaned?.map_err(RestoreError::Cleanup)?;
    }
    Ok(files)
}
