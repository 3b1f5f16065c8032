//! The operations of operators over HTTP, executed on the shards of a running node.

mod checks;
mod cluster;
mod compactions;
mod controls;
mod denylist;
mod encryption;
mod feeds;
pub mod guardrails;
mod indexes;
mod local_work;
mod logins;
mod partition_key;
mod repairs;
mod request_logs;
mod roles;
mod storage;
mod top_partitions;
mod view_builds;
pub mod views;

use crate::cluster::liveness::LivenessMonitor;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use futures::future::{BoxFuture, FutureExt, LocalBoxFuture};
use helenus_admin::encryption_keys::EncryptionKeysReport;
use helenus_admin::reports::uploads::{DownloadReport, RemovalReport, UploadReport, UploadsReport};
use helenus_admin::reports::{
    Check, CheckProgress, CheckedFile, ClusterDescription, ClusterSnapshots, ClusterStatus,
    CompactionsReport, FailedCompaction, NodeReport, RepairReport, RepairsReport, ReplayReport, RequestLog,
    RestoredTable, RingReport, SnapshotReport, StreamingReport, TableReport, UnknownTableReport,
};
use helenus_engine::compaction::Granularity;
use helenus_engine::shard::{CompactionReport, CompactionStatistics, WriteWaits};
use helenus_engine::{TableId, TableStatistics};
use helenus_execution::coordinator::repair::history::RepairHistory;
use helenus_execution::coordinator::table_rate_limits::TableRateLimits;
use helenus_observe::prometheus::{DiskGauges, EngineGauges, NEVER, RefusedRequests, render};
use helenus_observe::{
    Admin, AdminError, Administrator, Claim, DownloadRequest, LoginError, RepairRequest, ReplayRequest,
    RestoreRequest, SnapshotOperation, UploadRequest,
};
use helenus_projector::reports as views_reports;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::selection::TableSelection;
use helenus_ring::member::TransitionPhase;
use uuid::Uuid;

use self::cluster::Sizes;
use crate::cluster::confirmation;
use crate::cluster::import::ImportRequest;
use crate::cluster::member_snapshots;
use crate::cluster::membership::{self, Consent, MembershipError};
use crate::cluster::uploads;
use crate::session::encryption::Certificates;
use crate::session::request_logs::RequestLogs;
use crate::streaming;
use crate::streaming::cleanup::CleanupError;
use helenus_execution::shard::context::{NodeShared, ShardContext, run_on};
use helenus_execution::shard::disk_status::{DiskStatus, DiskUsage};
use helenus_execution::shard::status_table::ServingState;

/// The node as the HTTP server calls it.
pub struct NodeAdmin {
    node: Arc<NodeShared>,
}

impl NodeAdmin {
    pub fn new(node: Arc<NodeShared>) -> Self {
        Self { node }
    }

    /// Problems of a node that serves, for its operator.
    fn remark(&self) -> Option<String> {
        let DiskStatus { usage, is_reserve_reached } = self.node.disks.own();
        if self.node.reserve.is_reached() {
            return Some(format!("the disk is full, writes are refused: {}", self.node.reserve.reason()));
        }
        if is_reserve_reached {
            return Some("the disk is full: the commit log waits for room, writes are refused".to_owned());
        }
        match usage {
            DiskUsage::Full => Some(
                "the disk is full, writes are refused: data_disk_usage_percentage_fail_threshold is exceeded"
                    .to_owned(),
            ),
            DiskUsage::Stuffed => Some(
                "the disk is filling up: data_disk_usage_percentage_warn_threshold is exceeded".to_owned(),
            ),
            DiskUsage::Spacious => match RepairHistory::of(&self.node).late_tables() {
                0 => None,
                count => Some(format!(
                    "ranges of {count} tables have not been repaired for long: `helenus admin repair --status` says what they wait for"
                )),
            },
        }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>, AdminError> {
        run_on(&self.node.links[0], |context| Box::pin(async move { context.catalog() }))
            .await
            .map_err(|error| failed(&error))
    }

    /// The selected tables; all stored ones if no names are given.
    async fn targets(
        &self,
        keyspace: Option<&str>,
        table: Option<&str>,
    ) -> Result<Vec<Arc<Table>>, AdminError> {
        let selected = TableSelection::of(keyspace, table).tables(&*self.catalog().await?);
        selected.map_err(|error| AdminError::Unknown(error.to_string()))
    }

    /// The ids of the selected tables; `None` without a keyspace: all, the node's own too.
    async fn selected(
        &self,
        keyspace: Option<&str>,
        table: Option<&str>,
    ) -> Result<Option<Vec<TableId>>, AdminError> {
        if keyspace.is_none() {
            return Ok(None);
        }
        let targets = self.targets(keyspace, table).await?;
        Ok(Some(targets.into_iter().map(|target| target.engine_id()).collect()))
    }

    /// Runs a job on every shard concurrently.
    async fn on_every_shard<T: Send + 'static>(
        &self,
        job: impl Fn(Rc<ShardContext>) -> LocalBoxFuture<'static, Result<T>> + Clone + Send + 'static,
    ) -> Result<Vec<T>, AdminError> {
        let jobs = self.node.links.iter().map(|link| {
            let job = job.clone();
            async move { run_on(link, move |context| job(context)).await? }
        });
        futures::future::try_join_all(jobs).await.map_err(|error| failed(&error))
    }

    async fn for_each_table(
        &self,
        targets: Vec<Arc<Table>>,
        work: impl Fn(Rc<ShardContext>, TableId) -> LocalBoxFuture<'static, Result<()>> + Clone + Send + 'static,
    ) -> Result<(), AdminError> {
        self.on_every_shard(move |context| {
            let (targets, work) = (targets.clone(), work.clone());
            Box::pin(async move {
                for target in targets {
                    work(context.clone(), target.engine_id()).await?;
                }
                Ok(())
            })
        })
        .await?;
        Ok(())
    }

    /// Runs a query on the first shard.
    async fn on_first_shard<T: Send + 'static>(
        &self,
        look: impl FnOnce(&ShardContext) -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, AdminError> {
        run_on(&self.node.links[0], move |context| Box::pin(async move { look(&context) }))
            .await
            .map_err(|error| failed(&error))?
    }

    /// Runs a change of the members as a job of the first shard, so that it continues even if the client disconnects.
    fn change_members(
        &self,
        job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, Result<(), MembershipError>>
        + Send
        + 'static,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let outcome = run_on(&self.node.links[0], job).await.map_err(|error| failed(&error))?;
            outcome.map_err(|error| match error {
                MembershipError::UnknownMember { .. } => AdminError::Unknown(error.to_string()),
                other => AdminError::Failed(other.to_string()),
            })
        }
        .boxed()
    }

    async fn sizes(&self) -> Result<Sizes, AdminError> {
        let shards = self
            .on_every_shard(|context| {
                Box::pin(async move {
                    let tables = context.shard.table_ids().into_iter();
                    let statistics = tables.filter_map(|id| context.shard.statistics(id).ok());
                    Ok(Sizes {
                        data_bytes: statistics
                            .map(|statistics| statistics.disk_bytes + statistics.index_bytes)
                            .sum(),
                        memtable_bytes: context.shard.memtable_bytes() as u64,
                        commit_log_bytes: context.shard.commit_log_bytes(),
                    })
                })
            })
            .await?;
        Ok(shards.into_iter().fold(Sizes::default(), Sizes::plus))
    }

    async fn reports(&self, keyspace: Option<&str>) -> Result<Vec<TableReport>, AdminError> {
        let targets = self.targets(keyspace, None).await?;
        let ids: Vec<TableId> = targets.iter().map(|target| target.engine_id()).collect();
        let shards = self
            .on_every_shard(move |context| {
                let ids = ids.clone();
                Box::pin(async move {
                    ids.into_iter()
                        .map(|id| Ok((context.shard.statistics(id)?, context.shard.compaction_report(id)?)))
                        .collect::<Result<Vec<(TableStatistics, CompactionReport)>>>()
                })
            })
            .await?;
        let mut reports: BTreeMap<(String, String), TableReport> = BTreeMap::new();
        for (shard, statistics) in shards.into_iter().enumerate() {
            for (target, (numbers, compactions)) in targets.iter().zip(statistics) {
                let report =
                    reports.entry((target.keyspace.clone(), target.name.clone())).or_insert_with(|| {
                        TableReport {
                            keyspace: target.keyspace.clone(),
                            table: target.name.clone(),
                            ..TableReport::default()
                        }
                    });
                report.file_count += numbers.file_count as u64;
                report.disk_bytes += numbers.disk_bytes + numbers.index_bytes;
                report.missing_indexes += numbers.missing_indexes as u64;
                report.memtable_bytes += numbers.memtable_bytes as u64;
                report.filter_index_bytes += numbers.filter_bytes + numbers.key_index_bytes;
                report.resident_bytes += numbers.resident_bytes;
                report.row_versions += numbers.row_versions;
                report.partition_versions += numbers.partition_versions;
                report.tombstones += numbers.tombstones;
                report.damaged_files += numbers.damaged_files as u64;
                report.pending_compactions += u64::from(compactions.is_pending);
                report.failed_compactions.extend(compactions.failures.into_iter().map(|failure| {
                    FailedCompaction {
                        shard,
                        file: failure.file,
                        reason: failure.reason,
                        attempts: failure.attempts,
                        retry_in_seconds: failure.retry_in.as_secs(),
                    }
                }));
            }
        }
        let local =
            self.on_every_shard(|context| Box::pin(async move { Ok(local_work::of_shard(&context)) }));
        let local = local_work::by_table(local.await?);
        for target in &targets {
            let known = reports.get_mut(&(target.keyspace.clone(), target.name.clone()));
            if let (Some(report), Some(local)) = (known, local.get(&target.engine_id())) {
                report.local = local.report();
            }
        }
        Ok(reports.into_values().collect())
    }
}

/// Present values of one shard.
struct ShardGauges {
    memtable_bytes: u64,
    commit_log_bytes: u64,
    log_lacks_room: bool,
    unarchived_log_segments: u64,
    compactions: CompactionStatistics,
    write_waits: WriteWaits,
    backlog_files: u64,
    counted_backlog_files: u64,
}

/// The counts of all shards together.
fn total(shards: impl Iterator<Item = CompactionStatistics>) -> CompactionStatistics {
    shards.fold(CompactionStatistics::default(), |left, right| CompactionStatistics {
        merges: left.merges + right.merges,
        failed: left.failed + right.failed,
        dropped_files: left.dropped_files + right.dropped_files,
        moved_files: left.moved_files + right.moved_files,
        input_bytes: left.input_bytes + right.input_bytes,
        output_bytes: left.output_bytes + right.output_bytes,
        duration: left.duration + right.duration,
        verification: left.verification + right.verification,
        large_rows: left.large_rows + right.large_rows,
    })
}

/// Loads the files of all certificates. Fails with what is wrong with them.
#[allow(
    clippy::disallowed_methods,
    reason = "the files of certificates are read beside the thread of the shard; simulated nodes have none"
)]
async fn reload_certificates(context: Rc<ShardContext>) -> Result<(), String> {
    let mut problems = Vec::new();
    for (purpose, encryption) in Certificates::of(&context).all() {
        let (encryption, now_seconds) = (encryption.clone(), i64::from(context.now_seconds()));
        let reloaded = tokio::task::spawn_blocking(move || encryption.reload(now_seconds)).await;
        match reloaded
            .map_err(|error| error.to_string())
            .and_then(|loaded| loaded.map_err(|it| it.to_string()))
        {
            Ok(()) => tracing::info!(purpose, "certificates were loaded again"),
            Err(error) => problems.push(format!("certificates for {purpose}: {error}")),
        }
    }
    if let Err(error) = encryption::reload(&context).await {
        problems.push(format!("master keys of files: {error}"));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// By the use of the certificates.
fn seconds_until_expiry(context: &ShardContext) -> Vec<(&'static str, i64)> {
    let now_seconds = i64::from(context.now_seconds());
    let certificates = Certificates::of(context);
    certificates.all().map(|(purpose, all)| (purpose, all.seconds_until_expiry(now_seconds))).collect()
}

/// What rate limits of tables have refused.
fn refused_requests(context: &ShardContext) -> Vec<RefusedRequests> {
    context.node.layers.get::<TableRateLimits>().refused(&context.catalog_view())
}

fn failed(error: &RequestError) -> AdminError {
    AdminError::Failed(error.to_string())
}

impl Admin for NodeAdmin {
    fn log_in(&self, claim: Claim) -> BoxFuture<'_, Result<Administrator, LoginError>> {
        logins::log_in(&self.node, claim).boxed()
    }

    fn health(&self) -> Result<Option<String>, String> {
        if *self.node.stopping.borrow() {
            return Err("the node is stopping".to_owned());
        }
        let state = self.node.status.state();
        if state != ServingState::Serving {
            return Err(format!("the node is {}", state.name().to_lowercase()));
        }
        if !*self.node.settings.accepts_clients().borrow() {
            return Err("clients are not accepted: an operator has turned that off".to_owned());
        }
        if self.node.links.iter().any(tokio::sync::mpsc::Sender::is_closed) {
            return Err("a shard has ended".to_owned());
        }
        if confirmation::is_refusing(&self.node) {
            return Err(
                "clients are refused: the node cannot confirm that it knows the newest roles".to_owned()
            );
        }
        Ok(self.remark())
    }

    fn note_failed_handshake(&self) {
        if let Some(first) = self.node.metrics.first() {
            first.failed_admin_handshakes.increment();
        }
    }

    fn metrics_text(&self) -> BoxFuture<'_, String> {
        async move {
            // A shard that does not answer is stopping: its gauges end at 0, and the counters are shown all the same.
            let shards = self
                .on_every_shard(|context| {
                    Box::pin(async move {
                        let shard = &context.shard;
                        Ok(ShardGauges {
                            memtable_bytes: shard.memtable_bytes() as u64,
                            commit_log_bytes: shard.commit_log_bytes(),
                            log_lacks_room: shard.log_lacks_room(),
                            unarchived_log_segments: shard.unarchived_log_segments() as u64,
                            compactions: shard.compaction_statistics(),
                            write_waits: shard.write_waits(),
                            backlog_files: shard.compaction_backlog() as u64,
                            counted_backlog_files: shard.counted_backlog() as u64,
                        })
                    })
                })
                .await
                .unwrap_or_default();
            let unknown = self.unknown_table_reports().await.unwrap_or_default();
            let reserve = &self.node.reserve;
            let logs = RequestLogs::of(&self.node);
            let certificates = self.on_first_shard(|context| Ok(seconds_until_expiry(context))).await;
            let roles_age = self.on_first_shard(|context| Ok(confirmation::age(context))).await;
            let age_ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(NEVER);
            let gauges = EngineGauges {
                request_logs: vec![
                    ("audit", logs.report(RequestLog::Audit)),
                    ("full_query", logs.report(RequestLog::FullQuery)),
                ],
                backup_store: uploads::counts(&self.node),
                memtable_bytes: shards.iter().map(|shard| shard.memtable_bytes).sum(),
                commit_log_bytes: shards.iter().map(|shard| shard.commit_log_bytes).sum(),
                unarchived_log_segments: shards.iter().map(|shard| shard.unarchived_log_segments).sum(),
                commit_logs_without_room: shards.iter().filter(|shard| shard.log_lacks_room).count() as u64,
                disk: reserve.room().map(|room| DiskGauges {
                    free_bytes: room.free_bytes,
                    total_bytes: room.total_bytes,
                    reserve_bytes: reserve.bytes(),
                    is_reserve_reached: reserve.is_reached(),
                }),
                refused_writes: reserve.refused_writes(),
                compactions: total(shards.iter().map(|shard| shard.compactions)),
                write_waits: shards.iter().map(|shard| shard.write_waits).sum(),
                compaction_backlog_files: shards.iter().map(|shard| shard.backlog_files).max().unwrap_or(0),
                counted_backlog_files: shards
                    .iter()
                    .map(|shard| shard.counted_backlog_files)
                    .max()
                    .unwrap_or(0),
                unknown_tables: unknown.len() as u64,
                certificates: certificates.unwrap_or_default(),
                roles_confirmed_ms: roles_age.unwrap_or_default().map(age_ms),
                tables: self.reports(None).await.unwrap_or_default(),
                repairs: self.repaired_tables().await.unwrap_or_default(),
                view_lag_ms: self
                    .on_every_shard(|context| {
                        Box::pin(std::future::ready(Ok(views_reports::longest_lag_ms(&context))))
                    })
                    .await
                    .unwrap_or_default()
                    .into_iter()
                    .flatten()
                    .max(),
                latencies: self.table_latency_reports(None, None).await.unwrap_or_default(),
                rate_limited: self
                    .on_first_shard(|context| Ok(refused_requests(context)))
                    .await
                    .unwrap_or_default(),
            };
            render(&self.node.metrics, &gauges)
        }
        .boxed()
    }

    fn flush(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let targets = self.targets(keyspace.as_deref(), table.as_deref()).await?;
            self.for_each_table(targets, |context, id| {
                Box::pin(async move { Ok(context.shard.flush(id).await?) })
            })
            .await
        }
        .boxed()
    }

    fn compact(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let targets = self.targets(keyspace.as_deref(), table.as_deref()).await?;
            self.for_each_table(targets, |context, id| {
                Box::pin(async move {
                    context.shard.flush(id).await?;
                    Ok(context.shard.compact(id).await?)
                })
            })
            .await
        }
        .boxed()
    }

    fn compactions(&self) -> BoxFuture<'_, Result<CompactionsReport, AdminError>> {
        self.compactions_report().boxed()
    }

    fn stop_compactions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        self.stop_running(keyspace, table).boxed()
    }

    fn set_compaction_rate(&self, bytes_per_second: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>> {
        self.node.common.compaction_rate.set(bytes_per_second);
        async { Ok(()) }.boxed()
    }

    fn set_auto_compaction(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        is_enabled: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        self.set_auto(keyspace, table, is_enabled).boxed()
    }

    fn upgrade_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        all: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        self.upgrade(keyspace, table, all).boxed()
    }

    fn collect_garbage(
        &self,
        keyspace: Option<String>,
        tables: Vec<String>,
        granularity: Granularity,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        self.collect(keyspace, tables, granularity).boxed()
    }

    fn rebuild_indexes(
        &self,
        keyspace: String,
        table: String,
        indexes: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        self.rebuild(keyspace, table, indexes).boxed()
    }

    fn new_snapshot_name(&self) -> BoxFuture<'_, Result<String, AdminError>> {
        self.on_first_shard(|context| {
            Ok(context.node.last_snapshot.next_millis(context.clock.now_micros()).to_string())
        })
        .boxed()
    }

    fn snapshot(&self, name: String, tables: TableSelection) -> BoxFuture<'_, Result<(), AdminError>> {
        self.back_up(|context| Box::pin(async move { member_snapshots::take(&context, name, &tables).await }))
            .boxed()
    }

    fn cluster_snapshots(
        &self,
        operation: SnapshotOperation,
    ) -> BoxFuture<'_, Result<ClusterSnapshots, AdminError>> {
        self.back_up(|context| {
            Box::pin(async move { member_snapshots::everywhere(&context, operation).await })
        })
        .boxed()
    }

    fn restore(&self, request: RestoreRequest) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>> {
        self.restore_snapshot(request).boxed()
    }

    fn import(
        &self,
        directory: PathBuf,
        keyspace: Option<String>,
        table: Option<String>,
        into: Option<String>,
        consistency: Consistency,
    ) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>> {
        self.import_files(ImportRequest { directory, keyspace, table, into, consistency }).boxed()
    }

    fn replay(&self, request: ReplayRequest) -> BoxFuture<'_, Result<ReplayReport, AdminError>> {
        self.replay_logs(request).boxed()
    }

    fn upload(&self, request: UploadRequest) -> BoxFuture<'_, Result<UploadReport, AdminError>> {
        self.back_up(|context| Box::pin(async move { Ok(uploads::upload(&context, request).await?) })).boxed()
    }

    fn uploads(&self, cluster_name: Option<String>) -> BoxFuture<'_, Result<UploadsReport, AdminError>> {
        self.back_up(|context| Box::pin(async move { Ok(uploads::list(&context, cluster_name).await?) }))
            .boxed()
    }

    fn download(&self, request: DownloadRequest) -> BoxFuture<'_, Result<DownloadReport, AdminError>> {
        self.back_up(|context| Box::pin(async move { Ok(uploads::download(&context, request).await?) }))
            .boxed()
    }

    fn remove_upload(
        &self,
        name: String,
        host_id: Option<Uuid>,
    ) -> BoxFuture<'_, Result<RemovalReport, AdminError>> {
        self.back_up(move |context| {
            Box::pin(async move { Ok(uploads::remove(&context, name, host_id).await?) })
        })
        .boxed()
    }

    fn reload_certificates(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let reloaded =
                run_on(&self.node.links[0], |context| Box::pin(reload_certificates(context))).await;
            reloaded.map_err(|error| failed(&error))?.map_err(AdminError::Failed)
        }
        .boxed()
    }

    fn encryption_keys(&self) -> BoxFuture<'_, Result<EncryptionKeysReport, AdminError>> {
        async move {
            let looked = run_on(&self.node.links[0], |context| Box::pin(encryption::report(context))).await;
            looked.map_err(|error| failed(&error))?.map_err(AdminError::Failed)
        }
        .boxed()
    }

    fn archive_log(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        self.archive_logs().boxed()
    }

    fn clear_snapshot(&self, name: String) -> BoxFuture<'_, Result<(), AdminError>> {
        self.back_up(|context| Box::pin(async move { member_snapshots::clear(&context, name).await })).boxed()
    }

    fn drain(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            // A job of the first shard, so that it completes even if the client disconnects.
            run_on(&self.node.links[0], |context| Box::pin(drain(context)))
                .await
                .and_then(|drained| drained)
                .map_err(|error| failed(&error))
        }
        .boxed()
    }

    fn decommission(&self, force: bool, accepts_old_data: bool) -> BoxFuture<'_, Result<(), AdminError>> {
        self.change_members(move |context| {
            Box::pin(async move { membership::decommission(&context, force, accepts_old_data).await })
        })
    }

    fn remove_nodes(
        &self,
        host_ids: Vec<Uuid>,
        accepts_old_data: bool,
        accepts_loss: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        let consent = Consent { to_old_data: accepts_old_data, to_loss: accepts_loss };
        let host_ids = host_ids.into_iter().collect();
        self.change_members(move |context| {
            Box::pin(async move { membership::removenode(&context, &host_ids, consent).await })
        })
    }

    fn abort_join(&self, host_id: Uuid) -> BoxFuture<'_, Result<(), AdminError>> {
        self.change_members(move |context| {
            Box::pin(async move { membership::abort_join(&context, host_id).await })
        })
    }

    fn cleanup(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        let job = move |context| -> LocalBoxFuture<'static, Result<usize, CleanupError>> {
            Box::pin(async move { membership::clean_up(&context, keyspace).await })
        };
        async move {
            let outcome = run_on(&self.node.links[0], job).await.map_err(|error| failed(&error))?;
            outcome.map(|_| ()).map_err(|error| match error {
                CleanupError::UnknownKeyspace(_) => AdminError::Unknown(error.to_string()),
                other => AdminError::Failed(other.to_string()),
            })
        }
        .boxed()
    }

    fn repair(&self, request: RepairRequest) -> BoxFuture<'_, Result<RepairReport, AdminError>> {
        self.repair_ranges(request).boxed()
    }

    fn rebuild(
        &self,
        data_center: String,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<RepairReport, AdminError>> {
        self.rebuild_from(data_center, keyspace).boxed()
    }

    fn repairs(&self) -> BoxFuture<'_, Result<RepairsReport, AdminError>> {
        self.repairs_report().boxed()
    }

    fn cancel_repair(&self, id: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>> {
        std::future::ready(self.cancel_repairs(id)).boxed()
    }

    fn streams(&self) -> BoxFuture<'_, Result<StreamingReport, AdminError>> {
        self.on_first_shard(|context| {
            let (uncleaned, waits_for) = (membership::uncleaned(context), membership::waited_for(context));
            let changes = &context.cluster_view().topology.replication_changes;
            let replication_changes = changes
                .iter()
                .map(|(keyspace, change)| {
                    let step = match change.phase {
                        None => "waits for its turn",
                        Some(TransitionPhase::WriteBoth) => "rows are streamed to the new replicas",
                        Some(TransitionPhase::ReadNew) => "the new replicas are read",
                    };
                    (keyspace.clone(), step.to_owned())
                })
                .collect();
            let progress = streaming::progress(context);
            Ok(StreamingReport { uncleaned, waits_for, replication_changes, ..progress })
        })
        .boxed()
    }

    fn table_statistics(
        &self,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableReport>, AdminError>> {
        async move { self.reports(keyspace.as_deref()).await }.boxed()
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotReport>, AdminError>> {
        self.back_up(|context| Box::pin(async move { member_snapshots::list_all(&context).await })).boxed()
    }

    fn check_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        check: Check,
    ) -> BoxFuture<'_, Result<Vec<CheckedFile>, AdminError>> {
        self.check(keyspace, table, check).boxed()
    }

    fn check_progress(&self) -> BoxFuture<'_, Result<Vec<CheckProgress>, AdminError>> {
        self.progress_of_checks().boxed()
    }

    fn unknown_tables(&self) -> BoxFuture<'_, Result<Vec<UnknownTableReport>, AdminError>> {
        self.unknown_table_reports().boxed()
    }

    fn cluster_status(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<ClusterStatus, AdminError>> {
        async move {
            let sizes = self.sizes().await?;
            self.on_first_shard(move |context| {
                cluster::status(context, keyspace.as_deref(), sizes.data_bytes)
            })
            .await
        }
        .boxed()
    }

    fn ring(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<RingReport, AdminError>> {
        self.on_first_shard(move |context| cluster::ring(context, keyspace.as_deref())).boxed()
    }

    fn node_info(&self) -> BoxFuture<'_, Result<NodeReport, AdminError>> {
        async move {
            let sizes = self.sizes().await?;
            self.on_first_shard(move |context| Ok(cluster::node(context, &sizes))).await
        }
        .boxed()
    }

    fn describe_cluster(&self) -> BoxFuture<'_, Result<ClusterDescription, AdminError>> {
        self.on_first_shard(|context| Ok(cluster::description(context))).boxed()
    }
}

/// Stops accepting clients and requests of other nodes, and flushes every table of every shard.
async fn drain(context: Rc<ShardContext>) -> Result<()> {
    context.node.status.set_state(ServingState::Draining);
    LivenessMonitor::of(&context).leave(&context);
    for shard in 0..context.node.shard_count() {
        context
            .run_on(shard, |context| {
                Box::pin(async move {
                    for id in context.shard.table_ids() {
                        context.shard.flush(id).await?;
                    }
                    Ok::<(), RequestError>(())
                })
            })
            .await??;
    }
    context.node.status.set_state(ServingState::Drained);
    tracing::info!("DRAINED");
    Ok(())
}
