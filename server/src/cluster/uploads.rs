//! Snapshots of this node in the store that the settings name: they are uploaded, downloaded and removed there.
//!
//! Invariants:
//! * A node carries out one operation that changes the store, or takes from it, at a time. So no file goes that an upload of the same node is about
//!   to name.
//! * No thread of a shard waits for the store or for a file of an operation: each has a thread of its own, which ends with it or when the node
//!   stops.
#![allow(
    clippy::disallowed_methods,
    reason = "files and the store are reached by a thread beside those of shards; simulated nodes have no store"
)]

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cql_lite::types::time::format_timestamp;
use futures::future::LocalBoxFuture;
use helenus_admin::reports::uploads::{
    DownloadReport, ListedUpload, RemovalReport, StoreProgress, UploadReport, UploadedTable, UploadsReport,
};
use helenus_backup_store::download::{DownloadOrder, download as download_files};
use helenus_backup_store::upload::{LocalPart, UploadOrder, upload as upload_files};
use helenus_backup_store::{Count, Progress, StoreError, StoreOptions, Transfer, open, uploads};
use helenus_engine::io::{RateLimiter, RealClock};
use helenus_execution::shard::context::{NodeShared, ShardContext, from_every_shard};
use helenus_execution::shard::snapshots;
use helenus_observe::prometheus::BackupStoreCounts;
use helenus_observe::{DownloadRequest, UploadRequest};
use helenus_query::error::RequestError;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// How long a thread that ends waits for calls of the disk that hang.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The reason why an operation on the store was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("there is no store of backups: the `address` of [backup_store] is not set")]
    NoStore,
    #[error(
        "the {operation} of {snapshot} is under way: a node carries out one operation on the store of backups at a time"
    )]
    Busy { operation: &'static str, snapshot: String },
    #[error("there is no snapshot '{0}' of such a table on this node")]
    UnknownSnapshot(String),
    #[error("{0} is a member of the cluster: ask it to remove its own uploads")]
    Member(Uuid),
    #[error("the node is stopping")]
    Stopping,
    #[error("the thread of the operation has ended before it")]
    Ended,
    #[error("the thread of the operation cannot be started: {0}")]
    Thread(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl UploadError {
    /// Whether what was asked for is not there.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::NoStore
                | Self::UnknownSnapshot(_)
                | Self::Member(_)
                | Self::Store(StoreError::UnknownUpload { .. })
        )
    }
}

/// An operation that is under way.
#[derive(Debug, Clone)]
struct Running {
    operation: &'static str,
    snapshot: String,
    progress: Progress,
}

/// What a node does with the store, and has done since its start.
#[derive(Debug, Default)]
pub struct StoreWork(Arc<State>);

#[derive(Debug, Default)]
struct State {
    running: Mutex<Option<Running>>,
    uploaded_bytes: Count,
    downloaded_bytes: Count,
    failed_operations: Count,
}

impl State {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // It is consistent even after a panic of another thread.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of the operation that is under way.
struct Turn(Arc<State>);

impl Turn {
    fn begin(state: &Arc<State>, running: Running) -> Result<Self, UploadError> {
        let mut place = state.running();
        if let Some(Running { operation, snapshot, .. }) = &*place {
            return Err(UploadError::Busy { operation, snapshot: snapshot.clone() });
        }
        *place = Some(running);
        Ok(Self(Arc::clone(state)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.running() = None;
    }
}

/// What was moved since the start of a node, for its metrics.
pub fn counts(node: &NodeShared) -> BackupStoreCounts {
    let state = &node.layers.get::<StoreWork>().0;
    BackupStoreCounts {
        uploaded_bytes: state.uploaded_bytes.get(),
        downloaded_bytes: state.downloaded_bytes.get(),
        failed_operations: state.failed_operations.get(),
    }
}

/// What an operation does; it runs on a thread of its own.
type Work<T> = Box<dyn for<'a> FnOnce(&'a Transfer<'a>) -> LocalBoxFuture<'a, Result<T, StoreError>> + Send>;

/// A thread for one operation.
struct Operation<T> {
    options: StoreOptions,
    bytes_per_second: Option<u64>,
    parallel: usize,
    progress: Progress,
    stopping: watch::Receiver<bool>,
    work: Work<T>,
}

impl<T: Send + 'static> Operation<T> {
    fn new(context: &ShardContext, progress: Progress, work: Work<T>) -> Result<Self, UploadError> {
        let settings = &context.node.config.backup_store;
        Ok(Self {
            options: settings.options().ok_or(UploadError::NoStore)?,
            bytes_per_second: settings.bytes_per_second(),
            parallel: settings.parallel_transfers,
            progress,
            stopping: context.node.stopping.subscribe(),
            work,
        })
    }

    /// Carries it out on a thread, which keeps the turn until it has ended.
    async fn on_own_thread(self, turn: Option<Turn>) -> Result<T, UploadError> {
        let (sender, ended) = oneshot::channel();
        std::thread::Builder::new().name("backup-store".to_owned()).spawn(move || {
            let outcome = self.run();
            drop(turn);
            // Nobody waits any more while the node stops.
            let _ = sender.send(outcome);
        })?;
        ended.await.map_err(|_| UploadError::Ended)?
    }

    fn run(self) -> Result<T, UploadError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let Self { options, bytes_per_second, parallel, progress, mut stopping, work } = self;
        let outcome = runtime.block_on(async {
            let store = open(&options)?;
            let limiter = RateLimiter::new(bytes_per_second);
            let transfer = Transfer { store: &*store, clock: &RealClock::new(), limiter, parallel, progress };
            tokio::select! {
                biased;
                _ = stopping.wait_for(|is_stopping| *is_stopping) => Err(UploadError::Stopping),
                done = work(&transfer) => Ok(done?),
            }
        });
        runtime.shutdown_timeout(END_PATIENCE);
        outcome
    }
}

/// Carries out an operation that changes the store or takes from it.
async fn in_turn<T: Send + 'static>(
    context: &ShardContext,
    operation: &'static str,
    snapshot: String,
    bytes_moved: impl Fn(&State) -> Count,
    work: Work<T>,
) -> Result<T, UploadError> {
    let state = &context.node.layers.get::<StoreWork>().0;
    let progress = Progress { bytes_moved: bytes_moved(state), ..Progress::default() };
    let started = Operation::new(context, progress.clone(), work)?;
    let turn = Turn::begin(state, Running { operation, snapshot, progress })?;
    let outcome = started.on_own_thread(Some(turn)).await;
    if outcome.is_err() {
        state.failed_operations.add(1);
    }
    outcome
}

/// Uploads this node's part of a snapshot. Call on the first shard.
pub async fn upload(context: &Rc<ShardContext>, request: UploadRequest) -> Result<UploadReport, UploadError> {
    if context.node.config.backup_store.options().is_none() {
        return Err(UploadError::NoStore);
    }
    let name = request.name.clone();
    let parts = parts(context, request).await?;
    if parts.is_empty() {
        return Err(UploadError::UnknownSnapshot(name));
    }
    let order = UploadOrder {
        cluster: context.node.config.cluster_name.clone(),
        host_id: context.node.host_id.to_string(),
        snapshot: name.clone(),
        uploaded_at: format_timestamp(context.clock.now_micros().div_euclid(1_000)),
        parts,
    };
    let work: Work<_> = Box::new(|transfer| Box::pin(upload_files(transfer, order)));
    let uploaded =
        in_turn(context, "upload", name.clone(), |state| state.uploaded_bytes.clone(), work).await?;
    tracing::info!(snapshot = name, ?uploaded, "snapshot uploaded");
    Ok(UploadReport {
        table_count: uploaded.tables,
        file_count: uploaded.files,
        bytes: uploaded.bytes,
        new_file_count: uploaded.new_files,
        new_bytes: uploaded.new_bytes,
    })
}

/// What the shards have of the wanted tables of a snapshot.
async fn parts(context: &Rc<ShardContext>, request: UploadRequest) -> Result<Vec<LocalPart>, RequestError> {
    let of_shards = from_every_shard(context, move |context| {
        let UploadRequest { name, keyspace, table } = request.clone();
        Box::pin(async move {
            let listed = snapshots::list(&context).await?.into_iter();
            let wanted = listed.filter(|found| {
                found.entry.name == name
                    && keyspace.as_ref().is_none_or(|keyspace| found.keyspace == *keyspace)
                    && table.as_ref().is_none_or(|table| found.table == *table)
            });
            let part = |found: snapshots::ListedSnapshot| LocalPart {
                id: found.entry.table.to_string(),
                directories: context.shard.snapshot_directories(&found.entry),
                keyspace: found.keyspace,
                table: found.table,
                shard: context.index,
                created_at: found.created_at,
            };
            Ok(wanted.map(part).collect::<Vec<_>>())
        })
    });
    let mut parts: Vec<LocalPart> = of_shards.await?.into_iter().flatten().collect();
    parts.sort();
    Ok(parts)
}

/// The uploads of all hosts of a cluster, and what this node does with the store now. Call on the first shard.
pub async fn list(
    context: &Rc<ShardContext>,
    cluster_name: Option<String>,
) -> Result<UploadsReport, UploadError> {
    let cluster = cluster_name.unwrap_or_else(|| context.node.config.cluster_name.clone());
    let work: Work<_> = Box::new(|transfer| Box::pin(async move { uploads::list(transfer, &cluster).await }));
    let listing = Operation::new(context, Progress::default(), work)?;
    let store = listing.options.address.clone();
    let uploads = listing.on_own_thread(None).await?.into_iter().map(listed).collect();
    let running = context.node.layers.get::<StoreWork>().0.running().clone();
    let under_way = running.map(|Running { operation, snapshot, progress }| StoreProgress {
        operation: operation.to_owned(),
        snapshot,
        file_count: progress.files.get(),
        files_done: progress.files_done.get(),
        bytes: progress.bytes.get(),
        bytes_done: progress.bytes_done.get(),
    });
    Ok(UploadsReport { store, uploads, under_way })
}

fn listed(upload: uploads::ListedUpload) -> ListedUpload {
    let uploads::ListedUpload { host_id, snapshot, tables } = upload;
    let (uploaded_at, tables, error) = match tables {
        Ok((uploaded_at, tables)) => (uploaded_at, tables, None),
        Err(error) => (String::new(), Vec::new(), Some(error.to_string())),
    };
    let table = |table: uploads::ListedTable| UploadedTable {
        keyspace: table.keyspace,
        table: table.name,
        table_id: table.id,
        created_at: table.created_at,
        file_count: table.files,
        bytes: table.bytes,
    };
    ListedUpload { host_id, snapshot, uploaded_at, tables: tables.into_iter().map(table).collect(), error }
}

/// Downloads an uploaded snapshot into a directory. Call on the first shard.
pub async fn download(
    context: &Rc<ShardContext>,
    request: DownloadRequest,
) -> Result<DownloadReport, UploadError> {
    let DownloadRequest { name, keyspace, table, directory, host_id, cluster_name } = request;
    let order = DownloadOrder {
        cluster: cluster_name.unwrap_or_else(|| context.node.config.cluster_name.clone()),
        snapshot: name.clone(),
        host_id: host_id.map(|host_id| host_id.to_string()),
        keyspace,
        table,
        into: PathBuf::clone(&directory),
    };
    let work: Work<_> = Box::new(|transfer| Box::pin(download_files(transfer, order)));
    let downloaded =
        in_turn(context, "download", name.clone(), |state| state.downloaded_bytes.clone(), work).await?;
    tracing::info!(snapshot = name, directory = %directory.display(), ?downloaded, "snapshot downloaded");
    Ok(DownloadReport {
        directory: directory.display().to_string(),
        hosts: downloaded.hosts,
        file_count: downloaded.files,
        bytes: downloaded.bytes,
        new_file_count: downloaded.new_files,
        new_bytes: downloaded.new_bytes,
    })
}

/// Removes the upload of a snapshot by this node, or by a former member. Call on the first shard.
pub async fn remove(
    context: &Rc<ShardContext>,
    name: String,
    host_id: Option<Uuid>,
) -> Result<RemovalReport, UploadError> {
    let own = context.node.host_id;
    let host_id = host_id.unwrap_or(own);
    if host_id != own && context.cluster().topology.members.contains_key(&host_id) {
        return Err(UploadError::Member(host_id));
    }
    let (cluster, snapshot) = (context.node.config.cluster_name.clone(), name.clone());
    let work: Work<_> = Box::new(move |transfer| {
        Box::pin(async move { uploads::remove(transfer, &cluster, &host_id.to_string(), &snapshot).await })
    });
    let removed = in_turn(context, "removal", name.clone(), |_| Count::default(), work).await?;
    tracing::info!(snapshot = name, %host_id, ?removed, "upload removed");
    Ok(RemovalReport { object_count: removed.objects, bytes: removed.bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(snapshot: &str) -> Running {
        Running { operation: "upload", snapshot: snapshot.to_owned(), progress: Progress::default() }
    }

    #[test]
    fn one_operation_is_under_way_at_a_time() {
        let work = StoreWork::default();
        let turn = Turn::begin(&work.0, running("monday")).unwrap();
        let busy = Turn::begin(&work.0, running("tuesday")).err().unwrap().to_string();
        assert!(busy.starts_with("the upload of monday is under way"), "{busy}");
        drop(turn);
        Turn::begin(&work.0, running("tuesday")).unwrap();
        assert!(work.0.running().is_none());
    }
}
