//! The instruments of a node: what it does, how long requests take, and the settings that can be changed while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use futures::future::{BoxFuture, FutureExt, LocalBoxFuture};
use helenus_admin::feeds::FeedReport;
use helenus_admin::reports::{
    ActivityReport, CoordinatorLatencies, DeniedPartitionReport, DenylistReport, EndpointReport,
    EndpointsReport, RequestLog, RequestLogReport, RuntimeSettings, StageReport, TableLatencies,
};
use helenus_admin::top_partitions::TopPartition;
use helenus_engine::TableId;
use helenus_execution::coordinator::replica::hints;
use helenus_execution::shard::context::{ShardContext, run_on};
use helenus_observe::metrics::{HistogramSnapshot, Operation, ShardMetrics, TimingsSnapshot};
use helenus_observe::{AdminError, Controls, RequestLogChange, SettingChange};
use helenus_query::schema::catalog::Table;
use helenus_ring::HostId;
use helenus_ring::topology::Topology;

use super::denylist::NamedPartition;
use super::guardrails::PresentGuardrails;
use super::local_work::latency;
use super::{NodeAdmin, denylist, failed, partition_key, request_logs, roles};
use crate::cluster::membership::{self, Consent};
use crate::cluster::recovery::{self, RecoveryError};
use crate::logs;
use crate::session::connection;
use crate::session::latencies::Latencies;
use crate::session::request_logs::RequestLogs;

type OfOperations = [HistogramSnapshot; Operation::ALL.len()];
type TimingsOfOperations = [TimingsSnapshot; Operation::ALL.len()];

fn latencies(of_operations: &OfOperations) -> CoordinatorLatencies {
    let of = |operation: Operation| latency(&of_operations[operation as usize]);
    CoordinatorLatencies {
        read: of(Operation::Read),
        scan: of(Operation::Scan),
        write: of(Operation::Write),
        conditional: of(Operation::Conditional),
    }
}

/// The member with this host id, or with this address for other nodes or for clients; the port may be missing.
fn member_named(topology: &Topology, name: &str) -> Result<HostId, AdminError> {
    let unknown =
        || AdminError::Unknown(format!("'{name}' is neither the host id nor an address of a member"));
    if let Ok(host_id) = name.parse::<HostId>() {
        return topology.member(&host_id).map(|member| member.host_id).ok_or_else(unknown);
    }
    let (socket, address) = (name.parse::<SocketAddr>().ok(), name.parse::<IpAddr>().ok());
    let is_named = |known: SocketAddr| socket == Some(known) || address == Some(known.ip());
    let mut named = topology
        .members
        .values()
        .filter(|member| is_named(member.internode_address) || is_named(member.native_address));
    match (named.next(), named.next()) {
        (Some(member), None) => Ok(member.host_id),
        (Some(_), Some(_)) => {
            Err(AdminError::Unknown(format!("several members have the address {name}: name the host id")))
        }
        (None, _) => Err(unknown()),
    }
}

impl NodeAdmin {
    /// What clients have asked of each table, over all shards.
    pub(super) async fn timings_by_table(
        &self,
    ) -> Result<BTreeMap<TableId, TimingsOfOperations>, AdminError> {
        let shards = self
            .on_every_shard(|context| Box::pin(async move { Ok(Latencies::of_tables(&context)) }))
            .await?;
        let mut tables: BTreeMap<TableId, TimingsOfOperations> = BTreeMap::new();
        for (id, of_shard) in shards.into_iter().flatten() {
            let known = tables.entry(id).or_default();
            known.iter_mut().zip(&of_shard).for_each(|(known, more)| known.add(more));
        }
        Ok(tables)
    }

    /// Ordered by keyspace and table. Tables without requests are left out unless a table is named.
    pub(super) async fn table_latency_reports(
        &self,
        keyspace: Option<&str>,
        table: Option<&str>,
    ) -> Result<Vec<TableLatencies>, AdminError> {
        let targets = self.targets(keyspace, table).await?;
        let mut known = self.timings_by_table().await?;
        let mut report = |target: &Table| {
            let of_operations = known.remove(&target.engine_id());
            (of_operations.is_some() || table.is_some()).then(|| TableLatencies {
                keyspace: target.keyspace.clone(),
                table: target.name.clone(),
                latencies: latencies(&of_operations.unwrap_or_default().map(|timings| timings.durations)),
            })
        };
        let mut reports: Vec<TableLatencies> = targets.iter().filter_map(|target| report(target)).collect();
        reports.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
        Ok(reports)
    }

    pub(super) async fn activity_report(&self) -> Result<ActivityReport, AdminError> {
        let shards = self
            .on_every_shard(|context| {
                Box::pin(async move {
                    let shard = &context.shard;
                    let due = shard.table_ids().into_iter().filter_map(|id| shard.compaction_report(id).ok());
                    Ok(OfShard {
                        requests_under_way: connection::requests_under_way(&context),
                        running_compactions: shard.running_compactions().len() as u64,
                        due_compactions: due.filter(|report| report.is_pending).count() as u64,
                        merges: shard.compaction_statistics().merges,
                        refused_writes: shard.write_waits().refused,
                    })
                })
            })
            .await?;
        let metrics =
            |count: fn(&ShardMetrics) -> u64| self.node.metrics.iter().map(|shard| count(shard)).sum();
        let stage = |name: &str, active: u64, pending: u64, completed: u64| StageReport {
            name: name.to_owned(),
            active,
            pending,
            completed,
        };
        let sum = |of: fn(&OfShard) -> u64| shards.iter().map(of).sum();
        let requests: u64 = metrics(|shard| shard.requests.get());
        let under_way = sum(|shard| shard.requests_under_way);
        let dropped = [
            ("HINT", metrics(|shard| shard.hints_dropped.get())),
            ("INTERNODE_CALL", metrics(|shard| shard.internode.timeouts.get())),
            ("INTERNODE_REQUEST", metrics(|shard| shard.internode.dropped.get())),
            ("MUTATION", sum(|shard| shard.refused_writes) + self.node.reserve.refused_writes()),
        ];
        Ok(ActivityReport {
            stages: vec![
                stage("Native-Transport-Requests", under_way, 0, requests.saturating_sub(under_way)),
                stage("ReadStage", 0, 0, metrics(|shard| shard.reads.get())),
                stage("MutationStage", 0, 0, metrics(|shard| shard.writes.get())),
                stage("InternodeRequests", 0, 0, metrics(|shard| shard.internode.requests.get())),
                stage(
                    "CompactionExecutor",
                    sum(|shard| shard.running_compactions),
                    sum(|shard| shard.due_compactions),
                    sum(|shard| shard.merges),
                ),
                stage("HintsDispatcher", 0, 0, metrics(|shard| shard.hints_replayed.get())),
                stage("ReadRepairStage", 0, 0, metrics(|shard| shard.read_repairs.get())),
                stage("AntiEntropyStage", 0, 0, metrics(|shard| shard.repair_mutations.get())),
            ],
            dropped: dropped.map(|(kind, count)| (kind.to_owned(), count)).into(),
        })
    }

    fn runtime_settings(&self) -> RuntimeSettings {
        let settings = &self.node.settings;
        RuntimeSettings {
            stream_throughput_bytes_per_second: settings.streams.bytes_per_second().unwrap_or(0),
            hinted_handoff_throttle_bytes_per_second: settings.hint_bytes_per_second(),
            trace_probability: settings.trace_probability(),
            native_transport: *settings.accepts_clients().borrow(),
            hinted_handoff: settings.keeps_hints(),
            hint_delivery: settings.delivers_hints(),
            log_filter: logs::filter().unwrap_or_default(),
            ..denylist::settings(&self.node)
        }
    }

    async fn change(&self, change: SettingChange) -> Result<RuntimeSettings, AdminError> {
        let settings = &self.node.settings;
        match change {
            SettingChange::StreamThroughput(rate) => settings.streams.set((rate > 0).then_some(rate)),
            SettingChange::HintedHandoffThrottle(rate) => settings.set_hint_bytes_per_second(rate),
            SettingChange::TraceProbability(probability) => settings.set_trace_probability(probability),
            SettingChange::NativeTransport(accepts) => settings.set_accepts_clients(accepts),
            SettingChange::HintedHandoff(keeps) => {
                self.on_first_shard(move |context| {
                    context.node.settings.set_keeps_hints(keeps, context.clock.monotonic());
                    Ok(())
                })
                .await?;
            }
            SettingChange::HintDelivery(delivers) => settings.set_delivers_hints(delivers),
            SettingChange::Denylist(change) => denylist::change_setting(&self.node, change),
            SettingChange::LogLevel { target, level } => logs::set_level(target.as_deref(), &level)
                .map_err(|error| AdminError::Unknown(error.to_string()))?,
        }
        Ok(self.runtime_settings())
    }

    async fn member(&self, name: String) -> Result<HostId, AdminError> {
        self.on_first_shard(move |context| member_named(&context.cluster_view().topology, &name)).await
    }
}

/// What one shard does.
struct OfShard {
    requests_under_way: u64,
    running_compactions: u64,
    due_compactions: u64,
    merges: u64,
    refused_writes: u64,
}

/// The replicas of a partition of a table.
fn endpoints(context: &ShardContext, table: &Table, key: &str) -> Result<EndpointsReport, AdminError> {
    let view = context.cluster_view();
    let placement = view
        .placement(&table.keyspace)
        .ok_or_else(|| AdminError::Unknown(format!("keyspace '{}' is local to each node", table.keyspace)))?;
    let token = partition_key::parse(context, table, key)?.token;
    let endpoints = placement
        .replicas(token)
        .read
        .iter()
        .map(|member| EndpointReport {
            host_id: member.host_id.to_string(),
            address: member.internode_address.to_string(),
            is_up: view.is_alive(&member.host_id),
        })
        .collect();
    Ok(EndpointsReport { token: token.to_string(), endpoints })
}

impl Controls for NodeAdmin {
    fn endpoints(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<EndpointsReport, AdminError>> {
        self.on_first_shard(move |context| {
            let catalog = context.catalog();
            let table = catalog
                .table(&keyspace, &table)
                .ok_or_else(|| AdminError::Unknown(format!("table '{keyspace}.{table}' does not exist")))?;
            endpoints(context, table, &key)
        })
        .boxed()
    }

    fn change_denylist(
        &self,
        keyspace: String,
        table: String,
        key: String,
        denies: bool,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>> {
        denylist::change(self, NamedPartition { keyspace, table, key }, denies).boxed()
    }

    fn denied_partition(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>> {
        denylist::denied(self, NamedPartition { keyspace, table, key }).boxed()
    }

    fn denylist(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<DenylistReport, AdminError>> {
        denylist::list(self, keyspace, table).boxed()
    }

    fn activity(&self) -> BoxFuture<'_, Result<ActivityReport, AdminError>> {
        self.activity_report().boxed()
    }

    fn latencies(&self) -> BoxFuture<'_, Result<CoordinatorLatencies, AdminError>> {
        let mut all = OfOperations::default();
        for shard in &self.node.metrics {
            for (known, more) in all.iter_mut().zip(&shard.operations) {
                known.add(&more.snapshot());
            }
        }
        std::future::ready(Ok(latencies(&all))).boxed()
    }

    fn table_latencies(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableLatencies>, AdminError>> {
        async move { self.table_latency_reports(keyspace.as_deref(), table.as_deref()).await }.boxed()
    }

    fn top_partitions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        period: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TopPartition>, AdminError>> {
        async move {
            self.top_partition_reports(keyspace.as_deref(), table.as_deref(), period.as_deref()).await
        }
        .boxed()
    }

    fn view_build_status(
        &self,
        keyspace: String,
        view: String,
    ) -> BoxFuture<'_, Result<BTreeMap<String, String>, AdminError>> {
        async move { self.view_build_states(&keyspace, &view).await }.boxed()
    }

    fn feeds(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<FeedReport>, AdminError>> {
        async move { self.feed_reports(keyspace.as_deref(), table.as_deref()).await }.boxed()
    }

    fn settings(&self) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>> {
        std::future::ready(Ok(self.runtime_settings())).boxed()
    }

    fn change_setting(&self, change: SettingChange) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>> {
        self.change(change).boxed()
    }

    fn request_log(&self, log: RequestLog) -> BoxFuture<'_, Result<RequestLogReport, AdminError>> {
        std::future::ready(Ok(RequestLogs::of(&self.node).report(log))).boxed()
    }

    fn change_request_log(
        &self,
        log: RequestLog,
        change: RequestLogChange,
    ) -> BoxFuture<'_, Result<RequestLogReport, AdminError>> {
        std::future::ready(request_logs::change(RequestLogs::of(&self.node), log, change)).boxed()
    }

    fn truncate_hints(&self, member: Option<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let target = match member {
                Some(name) => Some(self.member(name).await?),
                None => None,
            };
            self.on_every_shard(move |context| {
                Box::pin(async move { hints::replay::give_up(&context, target).await })
            })
            .await
            .map(drop)
        }
        .boxed()
    }

    fn recover_metadata(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>> {
        async move {
            let job = |context| -> LocalBoxFuture<'static, Result<Vec<HostId>, RecoveryError>> {
                Box::pin(async move { recovery::recover(&context).await })
            };
            let recovered = run_on(&self.node.links[0], job).await.map_err(|error| failed(&error))?;
            let down = recovered.map_err(|error| AdminError::Failed(error.to_string()))?;
            Ok(down.iter().map(ToString::to_string).collect())
        }
        .boxed()
    }

    fn create_superuser(
        &self,
        name: String,
        password: String,
        resets: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        roles::create_superuser(self, name, password, resets).boxed()
    }

    fn update_cidr_group(
        &self,
        group: String,
        networks: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        roles::update_cidr_group(self, group, networks).boxed()
    }

    fn drop_cidr_group(&self, group: String) -> BoxFuture<'_, Result<(), AdminError>> {
        roles::drop_cidr_group(self, group).boxed()
    }

    fn guardrails(&self) -> BoxFuture<'_, Result<BTreeMap<String, serde_json::Value>, AdminError>> {
        PresentGuardrails::values(self).boxed()
    }

    fn change_guardrail(&self, name: String, values: Vec<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        async move { PresentGuardrails::change(self, &name, &values).await }.boxed()
    }

    fn cidr_groups(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<String>>, AdminError>> {
        roles::cidr_groups(self).boxed()
    }

    fn role_statements(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>> {
        roles::statements(self).boxed()
    }

    fn assassinate(&self, member: String) -> BoxFuture<'_, Result<(), AdminError>> {
        async move {
            let host_ids = BTreeSet::from([self.member(member).await?]);
            let consent = Consent { to_old_data: true, to_loss: true };
            self.change_members(move |context| {
                Box::pin(async move { membership::removenode(&context, &host_ids, consent).await })
            })
            .await
        }
        .boxed()
    }
}
