//! Maps requests to the operations of the node, and their results to responses.
//!
//! Invariants:
//! * Nothing that a client sends is ignored: an unknown path, method, parameter or body is refused, and the answer
//!   (JSON) names it.
//! * Calls of `Admin` are well formed: no empty names, no table without its keyspace, and snapshot names that are
//!   safe as directory names.
//! * A web page in a browser on the same machine cannot administer the node: POST with an `Origin` is refused.
//! * An address serves no more than its [`Access`] allows. Where roles are asked, a request has no effect before its login, and nothing but
//!   that is said of it. A password is in the body of a request, and in no line of the log.

mod parameters;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use helenus_admin::reports::{Check, RequestLog};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Notify;

use self::parameters::{AUDIT_LOG, FULL_QUERY_LOG, ParameterError, Parameters, SETTINGS};
use super::access::Access;
use super::admin::{Admin, SnapshotOperation};
use super::error::AdminError;
use super::login::{self, Claim, LoginError};
use super::prometheus;

/// The longest password.
const PASSWORD_BYTES_MAX: usize = 4 << 10;
/// How a client is asked to log in.
const CHALLENGE: &str = "Basic realm=\"helenus\", charset=\"UTF-8\"";
/// Time limit for a password to arrive.
const PASSWORD_TIMEOUT: Duration = Duration::from_secs(10);

/// A response with its whole body.
pub(super) type HttpResponse = Response<Full<Bytes>>;

/// The meaning of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Metrics,
    Health,
    Version,
    TableStatistics,
    ClusterStatus,
    Ring,
    NodeInfo,
    DescribeCluster,
    Streams,
    Flush,
    Compact,
    Compactions,
    StopCompactions,
    SetCompactionThroughput,
    EnableAutoCompaction,
    DisableAutoCompaction,
    UpgradeFiles,
    CollectGarbage,
    RebuildIndexes,
    Snapshot,
    Restore,
    Import,
    Replay,
    ArchiveLog,
    ReloadCertificates,
    EncryptionKeys,
    ClearSnapshot,
    ListSnapshots,
    Upload,
    ListUploads,
    Download,
    RemoveUpload,
    UnknownTables,
    Verify,
    Scrub,
    CheckProgress,
    Drain,
    Decommission,
    RemoveNode,
    AbortJoin,
    Cleanup,
    Repair,
    Rebuild,
    Repairs,
    CancelRepair,
    Endpoints,
    Activity,
    Latencies,
    TableLatencies,
    TopPartitions,
    Feeds,
    ViewBuildStatus,
    Settings,
    RequestLog(RequestLog),
    TruncateHints,
    Assassinate,
    RecoverMetadata,
    CreateSuperuser,
    UpdateCidrGroup,
    DropCidrGroup,
    CidrGroups,
    Guardrails,
    RoleStatements,
    Denylist,
    DenylistAdd,
    DenylistRemove,
    DenylistCheck,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/health" => Self::Health,
            "/version" => Self::Version,
            "/admin/tablestats" => Self::TableStatistics,
            "/admin/status" => Self::ClusterStatus,
            "/admin/ring" => Self::Ring,
            "/admin/info" => Self::NodeInfo,
            "/admin/describecluster" => Self::DescribeCluster,
            "/admin/flush" => Self::Flush,
            "/admin/compact" => Self::Compact,
            "/admin/compactionstats" => Self::Compactions,
            "/admin/stop" => Self::StopCompactions,
            "/admin/setcompactionthroughput" => Self::SetCompactionThroughput,
            "/admin/enableautocompaction" => Self::EnableAutoCompaction,
            "/admin/disableautocompaction" => Self::DisableAutoCompaction,
            "/admin/upgradesstables" => Self::UpgradeFiles,
            "/admin/garbagecollect" => Self::CollectGarbage,
            "/admin/rebuild_index" => Self::RebuildIndexes,
            "/admin/snapshot" => Self::Snapshot,
            "/admin/restore" => Self::Restore,
            "/admin/import" => Self::Import,
            "/admin/replay" => Self::Replay,
            "/admin/archivelog" => Self::ArchiveLog,
            "/admin/reloadssl" => Self::ReloadCertificates,
            "/admin/encryption_keys" => Self::EncryptionKeys,
            "/admin/clear_snapshot" => Self::ClearSnapshot,
            "/admin/listsnapshots" => Self::ListSnapshots,
            "/admin/upload" => Self::Upload,
            "/admin/listuploads" => Self::ListUploads,
            "/admin/download" => Self::Download,
            "/admin/removeupload" => Self::RemoveUpload,
            "/admin/unknowntables" => Self::UnknownTables,
            "/admin/verify" => Self::Verify,
            "/admin/scrub" => Self::Scrub,
            "/admin/checks" => Self::CheckProgress,
            "/admin/drain" => Self::Drain,
            "/admin/netstats" => Self::Streams,
            "/admin/decommission" => Self::Decommission,
            "/admin/removenode" => Self::RemoveNode,
            "/admin/abortjoin" => Self::AbortJoin,
            "/admin/cleanup" => Self::Cleanup,
            "/admin/repair" => Self::Repair,
            "/admin/rebuild" => Self::Rebuild,
            "/admin/repairs" => Self::Repairs,
            "/admin/cancelrepair" => Self::CancelRepair,
            "/admin/getendpoints" => Self::Endpoints,
            "/admin/tpstats" => Self::Activity,
            "/admin/proxyhistograms" => Self::Latencies,
            "/admin/tablehistograms" => Self::TableLatencies,
            "/admin/toppartitions" => Self::TopPartitions,
            "/admin/feeds" => Self::Feeds,
            "/admin/viewbuildstatus" => Self::ViewBuildStatus,
            "/admin/settings" => Self::Settings,
            "/admin/guardrails" => Self::Guardrails,
            "/admin/auditlog" => Self::RequestLog(RequestLog::Audit),
            "/admin/fullquerylog" => Self::RequestLog(RequestLog::FullQuery),
            "/admin/truncatehints" => Self::TruncateHints,
            "/admin/assassinate" => Self::Assassinate,
            "/admin/recovermetadata" => Self::RecoverMetadata,
            "/admin/create_superuser" => Self::CreateSuperuser,
            "/admin/updatecidrgroup" => Self::UpdateCidrGroup,
            "/admin/dropcidrgroup" => Self::DropCidrGroup,
            "/admin/cidrgroups" => Self::CidrGroups,
            "/admin/roles" => Self::RoleStatements,
            "/admin/denylist" => Self::Denylist,
            "/admin/denylist/add" => Self::DenylistAdd,
            "/admin/denylist/remove" => Self::DenylistRemove,
            "/admin/denylist/check" => Self::DenylistCheck,
            _ => return None,
        })
    }

    fn only_reads(self) -> bool {
        matches!(
            self,
            Self::Metrics
                | Self::Health
                | Self::Version
                | Self::TableStatistics
                | Self::ClusterStatus
                | Self::Ring
                | Self::NodeInfo
                | Self::DescribeCluster
                | Self::Compactions
                | Self::ListSnapshots
                | Self::ListUploads
                | Self::EncryptionKeys
                | Self::UnknownTables
                | Self::CheckProgress
                | Self::Streams
                | Self::Repairs
                | Self::Endpoints
                | Self::Activity
                | Self::Latencies
                | Self::TableLatencies
                | Self::TopPartitions
                | Self::Feeds
                | Self::ViewBuildStatus
                | Self::CidrGroups
                | Self::RoleStatements
                | Self::Denylist
                | Self::DenylistCheck
        )
    }

    /// Whether it tells of roles, of who is watched, or of keys: what tables of the system and the settings keep from others too.
    fn tells_what_is_kept(self) -> bool {
        matches!(
            self,
            Self::CidrGroups
                | Self::RoleStatements
                | Self::RequestLog(_)
                | Self::EncryptionKeys
                | Self::Denylist
                | Self::DenylistCheck
                | Self::TopPartitions
        )
    }

    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Guardrails => &["name", "values"],
            Self::CidrGroups
            | Self::RoleStatements
            | Self::Metrics
            | Self::Health
            | Self::Version
            | Self::NodeInfo
            | Self::DescribeCluster
            | Self::Compactions
            | Self::UnknownTables
            | Self::EncryptionKeys
            | Self::CheckProgress
            | Self::Streams
            | Self::Repairs
            | Self::Activity
            | Self::Latencies
            | Self::RecoverMetadata
            | Self::ArchiveLog
            | Self::ReloadCertificates
            | Self::Drain => &[],
            Self::TableStatistics | Self::ClusterStatus | Self::Ring | Self::Cleanup => &["keyspace"],
            Self::Decommission => &["force", "accept_old_data"],
            Self::RemoveNode => &["host_id", "accept_old_data", "accept_loss"],
            Self::AbortJoin => &["host_id"],
            Self::SetCompactionThroughput => &["mebibytes_per_second"],
            Self::UpgradeFiles => &["keyspace", "table", "all"],
            Self::CollectGarbage => &["keyspace", "tables", "granularity"],
            Self::RebuildIndexes => &["keyspace", "table", "indexes"],
            Self::Flush
            | Self::Compact
            | Self::Verify
            | Self::StopCompactions
            | Self::EnableAutoCompaction
            | Self::DisableAutoCompaction
            | Self::TableLatencies
            | Self::Feeds
            | Self::Denylist => &["keyspace", "table"],
            Self::ViewBuildStatus => &["keyspace", "view"],
            Self::Scrub => &["keyspace", "table", "skip_corrupted"],
            Self::TopPartitions => &["keyspace", "table", "period"],
            Self::Snapshot => &["keyspace", "table", "tables", "name", "cluster"],
            Self::Restore => &["keyspace", "table", "name", "into", "cluster"],
            Self::Import => &["keyspace", "table", "directory", "into", "consistency"],
            Self::Replay => {
                &["keyspace", "table", "directory", "name", "into", "since", "until", "consistency"]
            }
            Self::ClearSnapshot => &["name", "cluster"],
            Self::ListSnapshots => &["cluster"],
            Self::Upload => &["keyspace", "table", "name", "cluster"],
            Self::ListUploads => &["cluster_name"],
            Self::Download => &["keyspace", "table", "name", "directory", "host_id", "cluster_name"],
            Self::RemoveUpload => &["name", "host_id", "cluster"],
            Self::Repair => &[
                "keyspace",
                "tables",
                "ranges",
                "start_token",
                "end_token",
                "data_centers",
                "local",
                "force",
            ],
            Self::Rebuild => &["data_center", "keyspace"],
            Self::CancelRepair => &["id"],
            Self::Endpoints | Self::DenylistAdd | Self::DenylistRemove | Self::DenylistCheck => {
                &["keyspace", "table", "key"]
            }
            Self::Settings => SETTINGS,
            Self::RequestLog(RequestLog::Audit) => AUDIT_LOG,
            Self::RequestLog(RequestLog::FullQuery) => FULL_QUERY_LOG,
            Self::TruncateHints | Self::Assassinate => &["member"],
            Self::CreateSuperuser => &["name", "reset"],
            Self::UpdateCidrGroup => &["group", "networks"],
            Self::DropCidrGroup => &["group"],
        }
    }
}

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("no such path: {0}")]
    UnknownPath(String),
    #[error("{path} takes {allowed}, not {method}")]
    Method { path: String, method: String, allowed: &'static str },
    #[error("administration is not open to web pages")]
    WebPage,
    #[error("{0} is served on the node's Unix socket only")]
    SocketOnly(String),
    #[error("{path} is for superusers, which {role} is not")]
    NotSuperuser { path: String, role: String },
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("{0} is not served at this address: only /metrics and /health are")]
    MonitoringOnly(String),
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("a body is not expected; parameters belong in the query")]
    Body,
    #[error("the body must be the password: from 1 to {PASSWORD_BYTES_MAX} bytes of UTF-8")]
    Password,
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::UnknownPath(_) => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::WebPage
            | Self::SocketOnly(_)
            | Self::NotSuperuser { .. }
            | Self::Login(LoginError::Forbidden(_))
            | Self::MonitoringOnly(_) => StatusCode::FORBIDDEN,
            Self::Login(LoginError::Missing | LoginError::Malformed | LoginError::Refused(_)) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Login(LoginError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Parameter(_) | Self::Body | Self::Password | Self::Admin(AdminError::Unknown(_)) => {
                StatusCode::BAD_REQUEST
            }
            Self::Admin(AdminError::Failed(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn answer(&self) -> HttpResponse {
        let mut answer = json_answer(self.status(), &json!({ "error": self.to_string() }));
        if let Self::Method { allowed, .. } = self {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if answer.status() == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        answer
    }
}

/// The other side of a connection.
#[derive(Debug, Default)]
pub(super) struct Caller {
    /// `None`: it came over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The identity that its certificate names.
    pub identity: Option<String>,
    /// Notified when it has logged in.
    pub logged_in: Notify,
}

/// Answers one request.
pub(super) async fn answer(
    admin: &dyn Admin,
    access: Access,
    caller: &Caller,
    request: Request<Incoming>,
) -> HttpResponse {
    match carry_out(admin, access, caller, request).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(),
    }
}

async fn carry_out(
    admin: &dyn Admin,
    access: Access,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<HttpResponse, Refusal> {
    let path = request.uri().path();
    let route = Route::of(path);
    if let Access::Roles { opens_health } = access
        && !(opens_health && matches!(route, Some(Route::Metrics | Route::Health | Route::Version)))
    {
        check_role(admin, caller, route, &request).await?;
    }
    let route = route.ok_or_else(|| Refusal::UnknownPath(path.to_owned()))?;
    check_access(access, route, &request)?;
    check_method(route, &request)?;
    if route != Route::CreateSuperuser && !request.body().is_end_stream() {
        return Err(Refusal::Body);
    }
    let (head, body) = request.into_parts();
    let (uri, method) = (&head.uri, head.method);
    let mut parameters = Parameters::parse(uri.query().unwrap_or_default(), route.parameters())?;
    Ok(match route {
        Route::Metrics => text_answer(prometheus::CONTENT_TYPE, admin.metrics_text().await),
        Route::Health => match admin.health() {
            Ok(None) => json_answer(StatusCode::OK, &json!({ "status": "up" })),
            Ok(Some(remark)) => json_answer(StatusCode::OK, &json!({ "status": "up", "remark": remark })),
            Err(reason) => {
                let body = json!({ "status": "down", "reason": reason });
                json_answer(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        },
        Route::Version => {
            json_answer(StatusCode::OK, &json!({ "name": "helenus", "version": env!("CARGO_PKG_VERSION") }))
        }
        Route::TableStatistics => {
            let reports = admin.table_statistics(parameters.take("keyspace")).await?;
            json_answer(StatusCode::OK, &json!({ "tables": reports }))
        }
        Route::ClusterStatus => report(&admin.cluster_status(parameters.take("keyspace")).await?)?,
        Route::Ring => report(&admin.ring(parameters.take("keyspace")).await?)?,
        Route::NodeInfo => report(&admin.node_info().await?)?,
        Route::DescribeCluster => report(&admin.describe_cluster().await?)?,
        Route::Flush => {
            let (keyspace, table) = parameters.scope()?;
            operate(uri, admin.flush(keyspace, table)).await?
        }
        Route::Compact => {
            let (keyspace, table) = parameters.scope()?;
            operate(uri, admin.compact(keyspace, table)).await?
        }
        Route::Compactions => report(&admin.compactions().await?)?,
        Route::StopCompactions => {
            let (keyspace, table) = parameters.scope()?;
            operate(uri, admin.stop_compactions(keyspace, table)).await?
        }
        Route::SetCompactionThroughput => {
            let rate = parameters.rate()?;
            operate(uri, admin.set_compaction_rate(rate)).await?
        }
        Route::EnableAutoCompaction | Route::DisableAutoCompaction => {
            let (keyspace, table) = parameters.scope()?;
            let is_enabled = route == Route::EnableAutoCompaction;
            operate(uri, admin.set_auto_compaction(keyspace, table, is_enabled)).await?
        }
        Route::UpgradeFiles => {
            let (keyspace, table) = parameters.scope()?;
            let all = parameters.flag("all")?;
            operate(uri, admin.upgrade_files(keyspace, table, all)).await?
        }
        Route::CollectGarbage => {
            let (keyspace, tables) = parameters.tables()?;
            let granularity = parameters.granularity()?;
            operate(uri, admin.collect_garbage(keyspace, tables, granularity)).await?
        }
        Route::RebuildIndexes => {
            let mut needed = |name| parameters.needed(name);
            let (keyspace, table) = (needed("keyspace")?, needed("table")?);
            let indexes = parameters.needed_list("indexes")?;
            operate(uri, admin.rebuild_indexes(keyspace, table, indexes)).await?
        }
        Route::Snapshot => {
            let tables = parameters.selection()?;
            let name = match parameters.given_snapshot_name()? {
                Some(name) => name,
                None => admin.new_snapshot_name().await?,
            };
            if parameters.flag("cluster")? {
                report(
                    &logged(uri, admin.cluster_snapshots(SnapshotOperation::Take { name, tables })).await?,
                )?
            } else {
                logged(uri, admin.snapshot(name.clone(), tables)).await?;
                json_answer(StatusCode::OK, &json!({ "status": "done", "name": name }))
            }
        }
        Route::Restore => {
            let request = parameters.restore()?;
            if parameters.flag("cluster")? {
                report(&logged(uri, admin.cluster_snapshots(SnapshotOperation::Restore(request))).await?)?
            } else {
                let tables = logged(uri, admin.restore(request)).await?;
                json_answer(StatusCode::OK, &json!({ "tables": tables }))
            }
        }
        Route::Import => {
            let (keyspace, table) = parameters.scope()?;
            let (directory, into) = (parameters.directory()?, parameters.take("into"));
            let level = parameters.write_level()?;
            let tables = logged(uri, admin.import(directory, keyspace, table, into, level)).await?;
            json_answer(StatusCode::OK, &json!({ "tables": tables }))
        }
        Route::Replay => report(&logged(uri, admin.replay(parameters.replay()?)).await?)?,
        Route::ArchiveLog => operate(uri, admin.archive_log()).await?,
        Route::ReloadCertificates => operate(uri, admin.reload_certificates()).await?,
        Route::ClearSnapshot => {
            let name = parameters.snapshot_name()?;
            if parameters.flag("cluster")? {
                report(&logged(uri, admin.cluster_snapshots(SnapshotOperation::Clear { name })).await?)?
            } else {
                operate(uri, admin.clear_snapshot(name)).await?
            }
        }
        Route::ListSnapshots => {
            if parameters.flag("cluster")? {
                report(&admin.cluster_snapshots(SnapshotOperation::List).await?)?
            } else {
                json_answer(StatusCode::OK, &json!({ "snapshots": admin.snapshots().await? }))
            }
        }
        Route::Upload => {
            let request = parameters.upload()?;
            if parameters.flag("cluster")? {
                report(&logged(uri, admin.cluster_snapshots(SnapshotOperation::Upload(request))).await?)?
            } else {
                report(&logged(uri, admin.upload(request)).await?)?
            }
        }
        Route::ListUploads => {
            report(&admin.uploads(parameters.take("cluster_name").filter(|name| !name.is_empty())).await?)?
        }
        Route::Download => report(&logged(uri, admin.download(parameters.download()?)).await?)?,
        Route::RemoveUpload => {
            let (name, host_id) = (parameters.snapshot_name()?, parameters.given_host_id()?);
            match (parameters.flag("cluster")?, host_id) {
                (false, host_id) => report(&logged(uri, admin.remove_upload(name, host_id)).await?)?,
                (true, None) => {
                    let operation = SnapshotOperation::RemoveUpload { name };
                    report(&logged(uri, admin.cluster_snapshots(operation)).await?)?
                }
                (true, Some(_)) => return Err(parameters::exclusive("cluster", "host_id").into()),
            }
        }
        Route::UnknownTables => {
            json_answer(StatusCode::OK, &json!({ "tables": admin.unknown_tables().await? }))
        }
        Route::Verify => {
            let (keyspace, table) = parameters.scope()?;
            let checked = admin.check_files(keyspace, table, Check::Verify).await;
            json_answer(StatusCode::OK, &json!({ "files": checked? }))
        }
        Route::Scrub => {
            let (keyspace, table) = parameters.scope()?;
            let check = Check::Scrub { skips_corrupted: parameters.flag("skip_corrupted")? };
            let files = logged(uri, admin.check_files(keyspace, table, check)).await?;
            json_answer(StatusCode::OK, &json!({ "files": files }))
        }
        Route::CheckProgress => {
            json_answer(StatusCode::OK, &json!({ "shards": admin.check_progress().await? }))
        }
        Route::Drain => operate(uri, admin.drain()).await?,
        Route::Streams => report(&admin.streams().await?)?,
        Route::EncryptionKeys => report(&admin.encryption_keys().await?)?,
        Route::Decommission => {
            let force = parameters.flag("force")?;
            let accepts_old_data = parameters.flag("accept_old_data")?;
            operate(uri, admin.decommission(force, accepts_old_data)).await?
        }
        Route::RemoveNode => {
            let host_ids = parameters.host_ids()?;
            let accepts_old_data = parameters.flag("accept_old_data")?;
            let accepts_loss = parameters.flag("accept_loss")?;
            operate(uri, admin.remove_nodes(host_ids, accepts_old_data, accepts_loss)).await?
        }
        Route::AbortJoin => {
            let host_id = parameters.host_id()?;
            operate(uri, admin.abort_join(host_id)).await?
        }
        Route::Repair => report(&logged(uri, admin.repair(parameters.repair()?)).await?)?,
        Route::Rebuild => {
            let data_center = parameters.needed("data_center")?;
            report(&logged(uri, admin.rebuild(data_center, parameters.take("keyspace"))).await?)?
        }
        Route::Repairs => report(&admin.repairs().await?)?,
        Route::CancelRepair => operate(uri, admin.cancel_repair(parameters.id()?)).await?,
        Route::Cleanup => operate(uri, admin.cleanup(parameters.take("keyspace"))).await?,
        Route::Endpoints => {
            let (keyspace, table, key) = parameters.partition()?;
            report(&admin.endpoints(keyspace, table, key).await?)?
        }
        Route::DenylistAdd | Route::DenylistRemove => {
            let (keyspace, table, key) = parameters.partition()?;
            let denies = route == Route::DenylistAdd;
            // The log has no keys of the data.
            let uri = Uri::from_static(if denies { "/admin/denylist/add" } else { "/admin/denylist/remove" });
            report(&logged(&uri, admin.change_denylist(keyspace, table, key, denies)).await?)?
        }
        Route::DenylistCheck => {
            let (keyspace, table, key) = parameters.partition()?;
            report(&admin.denied_partition(keyspace, table, key).await?)?
        }
        Route::Denylist => {
            let (keyspace, table) = parameters.scope()?;
            report(&admin.denylist(keyspace, table).await?)?
        }
        Route::Activity => report(&admin.activity().await?)?,
        Route::Latencies => report(&admin.latencies().await?)?,
        Route::TableLatencies => {
            let (keyspace, table) = parameters.scope()?;
            json_answer(StatusCode::OK, &json!({ "tables": admin.table_latencies(keyspace, table).await? }))
        }
        Route::TopPartitions => {
            let period = parameters.take("period");
            let (keyspace, table) = parameters.scope()?;
            let partitions = admin.top_partitions(keyspace, table, period).await?;
            json_answer(StatusCode::OK, &json!({ "partitions": partitions }))
        }
        Route::Feeds => {
            let (keyspace, table) = parameters.scope()?;
            json_answer(StatusCode::OK, &json!({ "feeds": admin.feeds(keyspace, table).await? }))
        }
        Route::ViewBuildStatus => {
            let (keyspace, view) = parameters.view()?;
            json_answer(StatusCode::OK, &json!({ "members": admin.view_build_status(keyspace, view).await? }))
        }
        Route::Settings if method == Method::POST => {
            report(&logged(uri, admin.change_setting(parameters.setting()?)).await?)?
        }
        Route::Settings => {
            parameters.refuse_any()?;
            report(&admin.settings().await?)?
        }
        Route::Guardrails if method == Method::POST => {
            let name = parameters.needed("name")?;
            // Without values: how many a guardrail needs is known where it is changed.
            let values = parameters.take("values").unwrap_or_default();
            let values = values.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect();
            logged(uri, admin.change_guardrail(name.clone(), values)).await?;
            let guardrails = named_guardrails(admin.guardrails().await?, Some(name))?;
            json_answer(StatusCode::OK, &json!({ "guardrails": guardrails }))
        }
        Route::Guardrails => {
            let name = parameters.take("name");
            parameters.refuse_any()?;
            let guardrails = named_guardrails(admin.guardrails().await?, name)?;
            json_answer(StatusCode::OK, &json!({ "guardrails": guardrails }))
        }
        Route::RequestLog(log) if method == Method::POST => {
            let change = parameters.request_log_change()?;
            report(&logged(uri, admin.change_request_log(log, change)).await?)?
        }
        Route::RequestLog(log) => {
            parameters.refuse_any()?;
            report(&admin.request_log(log).await?)?
        }
        Route::TruncateHints => operate(uri, admin.truncate_hints(parameters.take("member"))).await?,
        Route::RecoverMetadata => {
            let down = logged(uri, admin.recover_metadata()).await?;
            json_answer(StatusCode::OK, &json!({ "down": down }))
        }
        Route::Assassinate => operate(uri, admin.assassinate(parameters.needed("member")?)).await?,
        Route::UpdateCidrGroup => {
            let (group, networks) = (parameters.needed("group")?, parameters.needed("networks")?);
            let networks = networks.split(',').map(str::to_owned).collect();
            operate(uri, admin.update_cidr_group(group, networks)).await?
        }
        Route::DropCidrGroup => operate(uri, admin.drop_cidr_group(parameters.needed("group")?)).await?,
        Route::CidrGroups => json_answer(StatusCode::OK, &json!({ "groups": admin.cidr_groups().await? })),
        Route::RoleStatements => {
            json_answer(StatusCode::OK, &json!({ "statements": admin.role_statements().await? }))
        }
        Route::CreateSuperuser => {
            let (name, resets) = (parameters.needed("name")?, parameters.flag("reset")?);
            let password = password(body).await?;
            operate(uri, admin.create_superuser(name, password, resets)).await?
        }
    })
}

/// Logs the client of a request in, and refuses what its role may not ask: who is no superuser reads what the node says of its state.
async fn check_role(
    admin: &dyn Admin,
    caller: &Caller,
    route: Option<Route>,
    request: &Request<Incoming>,
) -> Result<(), Refusal> {
    let peer = caller.peer.ok_or(LoginError::Missing)?;
    let (credentials, identity) = (login::credentials(request.headers())?, caller.identity.clone());
    if credentials.is_none() && identity.is_none() {
        return Err(LoginError::Missing.into());
    }
    let administrator = admin.log_in(Claim { peer, identity, credentials }).await?;
    let (role, uri) = (administrator.role, request.uri());
    let is_for_superusers =
        !reads(request) || route.is_some_and(|route| route.tells_what_is_kept() || asks_others(route, uri));
    if !administrator.is_superuser && is_for_superusers {
        return Err(Refusal::NotSuperuser { path: uri.path().to_owned(), role });
    }
    if administrator.is_superuser {
        // Who is not stays among those whose place may be needed.
        caller.logged_in.notify_one();
    }
    if !reads(request) {
        tracing::info!(role, %peer, path = uri.path(), "administration: asked for by a superuser");
    }
    Ok(())
}

/// Whether a report is put together by all members of the cluster, each of which reads its directories for every request, or by the store of
/// uploads.
fn asks_others(route: Route, uri: &Uri) -> bool {
    // What cannot be read as parameters is refused later, whoever asks.
    let flag = |mut parameters: Parameters| parameters.flag("cluster");
    if route == Route::ListUploads {
        return true;
    }
    route == Route::ListSnapshots
        && Parameters::parse(uri.query().unwrap_or_default(), route.parameters())
            .and_then(flag)
            .unwrap_or(false)
}

fn reads<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// Whether a request is served at an address with this access.
fn check_access<B>(access: Access, route: Route, request: &Request<B>) -> Result<(), Refusal> {
    let path = || request.uri().path().to_owned();
    match access {
        Access::Monitoring if !matches!(route, Route::Metrics | Route::Health) => {
            Err(Refusal::MonitoringOnly(path()))
        }
        Access::Port | Access::Roles { .. }
            if matches!(route, Route::CreateSuperuser | Route::RoleStatements) =>
        {
            Err(Refusal::SocketOnly(path()))
        }
        Access::Socket | Access::Monitoring | Access::Port | Access::Roles { .. } => Ok(()),
    }
}

/// The password that is the body of a request.
#[allow(
    clippy::disallowed_methods,
    reason = "HTTP is served on a thread of its own, beside all that must be repeatable"
)]
async fn password(body: Incoming) -> Result<String, Refusal> {
    let collected = Limited::new(body, PASSWORD_BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(PASSWORD_TIMEOUT, collected).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) | Err(_) => return Err(Refusal::Password),
    };
    let password = String::from_utf8(bytes.into()).map_err(|_| Refusal::Password)?;
    if password.is_empty() { Err(Refusal::Password) } else { Ok(password) }
}

fn check_method<B>(route: Route, request: &Request<B>) -> Result<(), Refusal> {
    let method = request.method();
    let reads = reads(request);
    let (is_allowed, allowed) = if route.only_reads() {
        (reads, "GET, HEAD")
    } else if matches!(route, Route::Settings | Route::Guardrails | Route::RequestLog(_)) {
        (reads || *method == Method::POST, "GET, HEAD, POST")
    } else {
        (*method == Method::POST, "POST")
    };
    if !is_allowed {
        let path = request.uri().path().to_owned();
        return Err(Refusal::Method { path, method: method.to_string(), allowed });
    }
    // A browser sends the origin of a page in every POST, and lets a page send one without asking the server first.
    if *method == Method::POST && request.headers().contains_key(ORIGIN) {
        return Err(Refusal::WebPage);
    }
    Ok(())
}

/// Executes an operation that changes the node, and logs it.
async fn logged<T>(
    uri: &Uri,
    operation: impl Future<Output = Result<T, AdminError>>,
) -> Result<T, AdminError> {
    tracing::info!(%uri, "administration: begun");
    let outcome = operation.await;
    match &outcome {
        Ok(_) => tracing::info!(%uri, "administration: done"),
        Err(error) => tracing::warn!(%uri, %error, "administration: failed"),
    }
    outcome
}

/// As [`logged`], for an operation without a result.
async fn operate(
    uri: &Uri,
    operation: impl Future<Output = Result<(), AdminError>>,
) -> Result<HttpResponse, AdminError> {
    logged(uri, operation).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "status": "done" })))
}

/// The guardrails of this name: of a setting, or of a threshold without its kind. Without a name all.
fn named_guardrails(
    mut guardrails: BTreeMap<String, serde_json::Value>,
    name: Option<String>,
) -> Result<BTreeMap<String, serde_json::Value>, AdminError> {
    let Some(name) = name else { return Ok(guardrails) };
    let of_threshold = |setting: &str, end: &str| {
        setting.strip_suffix(end).is_some_and(|threshold| name.strip_suffix("_threshold") == Some(threshold))
    };
    guardrails.retain(|setting, _| {
        *setting == name
            || ["_warn_threshold", "_fail_threshold"].iter().any(|end| of_threshold(setting, end))
    });
    if guardrails.is_empty() {
        return Err(AdminError::Unknown(format!("Guardrail {name} not found.")));
    }
    Ok(guardrails)
}

fn report(report: &impl Serialize) -> Result<HttpResponse, AdminError> {
    let body = serde_json::to_value(report).map_err(|error| AdminError::Failed(error.to_string()))?;
    Ok(json_answer(StatusCode::OK, &body))
}

fn json_answer(status: StatusCode, body: &serde_json::Value) -> HttpResponse {
    let mut answer = text_answer("application/json", format!("{body}\n"));
    *answer.status_mut() = status;
    answer
}

fn text_answer(content_type: &'static str, body: String) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
