//! Maps requests to the operations of the node, and their results to responses.
//!
//! Invariants:
//! * Nothing that a client sends is ignored: an unknown path, method, parameter or body is refused, and the answer
//!   (JSON) names it.
//! * Calls of `Admin` are well formed: no empty names, no table without its keyspace, and snapshot names that are
//!   safe as directory names.
//! * A web page in a browser on the same machine cannot administer the node: POST with an `Origin` is refused.

use std::path::PathBuf;

use bytes::Bytes;
use cql_lite::frame::Consistency;
use cql_lite::types::time::parse_write_time;
use futures::future::BoxFuture;
use helenus_admin::reports::{Check, ReplayReport, RestoredTable};
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::admin::{Admin, AdminError, ReplayRequest};
use super::prometheus;

/// Longest name of a snapshot.
const SNAPSHOT_NAME_BYTES_MAX: usize = 128;

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
    Snapshot,
    Restore,
    Import,
    Replay,
    ArchiveLog,
    ClearSnapshot,
    ListSnapshots,
    UnknownTables,
    Verify,
    Scrub,
    CheckProgress,
    Drain,
    Decommission,
    RemoveNode,
    AbortJoin,
    Cleanup,
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
            "/admin/snapshot" => Self::Snapshot,
            "/admin/restore" => Self::Restore,
            "/admin/import" => Self::Import,
            "/admin/replay" => Self::Replay,
            "/admin/archivelog" => Self::ArchiveLog,
            "/admin/clear_snapshot" => Self::ClearSnapshot,
            "/admin/listsnapshots" => Self::ListSnapshots,
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
                | Self::UnknownTables
                | Self::CheckProgress
                | Self::Streams
        )
    }

    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Metrics
            | Self::Health
            | Self::Version
            | Self::NodeInfo
            | Self::DescribeCluster
            | Self::Compactions
            | Self::ListSnapshots
            | Self::UnknownTables
            | Self::CheckProgress
            | Self::Streams
            | Self::ArchiveLog
            | Self::Drain => &[],
            Self::TableStatistics | Self::ClusterStatus | Self::Ring | Self::Cleanup => &["keyspace"],
            Self::Decommission => &["force"],
            Self::RemoveNode | Self::AbortJoin => &["host_id"],
            Self::SetCompactionThroughput => &["mebibytes_per_second"],
            Self::UpgradeFiles => &["keyspace", "table", "all"],
            Self::Flush
            | Self::Compact
            | Self::Verify
            | Self::StopCompactions
            | Self::EnableAutoCompaction
            | Self::DisableAutoCompaction => &["keyspace", "table"],
            Self::Scrub => &["keyspace", "table", "skip_corrupted"],
            Self::Snapshot => &["keyspace", "table", "name"],
            Self::Restore => &["keyspace", "table", "name", "into"],
            Self::Import => &["keyspace", "table", "directory", "into", "consistency"],
            Self::Replay => {
                &["keyspace", "table", "directory", "name", "into", "since", "until", "consistency"]
            }
            Self::ClearSnapshot => &["name"],
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
    #[error("{0}")]
    Parameter(String),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::UnknownPath(_) => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::WebPage => StatusCode::FORBIDDEN,
            Self::Parameter(_) | Self::Admin(AdminError::Unknown(_)) => StatusCode::BAD_REQUEST,
            Self::Admin(AdminError::Failed(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn answer(&self) -> HttpResponse {
        let mut answer = json_answer(self.status(), &json!({ "error": self.to_string() }));
        if let Self::Method { allowed, .. } = self {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        answer
    }
}

/// Answers one request.
pub(super) async fn answer<B: Body>(admin: &dyn Admin, request: &Request<B>) -> HttpResponse {
    match carry_out(admin, request).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(),
    }
}

async fn carry_out<B: Body>(admin: &dyn Admin, request: &Request<B>) -> Result<HttpResponse, Refusal> {
    let path = request.uri().path();
    let route = Route::of(path).ok_or_else(|| Refusal::UnknownPath(path.to_owned()))?;
    check_method(route, request)?;
    if !request.body().is_end_stream() {
        return Err(Refusal::Parameter("a body is not expected; parameters belong in the query".to_owned()));
    }
    let mut parameters = Parameters::parse(request.uri().query().unwrap_or_default(), route.parameters())?;
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
            operate(request.uri(), admin.flush(keyspace, table)).await?
        }
        Route::Compact => {
            let (keyspace, table) = parameters.scope()?;
            operate(request.uri(), admin.compact(keyspace, table)).await?
        }
        Route::Compactions => report(&admin.compactions().await?)?,
        Route::StopCompactions => {
            let (keyspace, table) = parameters.scope()?;
            operate(request.uri(), admin.stop_compactions(keyspace, table)).await?
        }
        Route::SetCompactionThroughput => {
            let rate = parameters.rate()?;
            operate(request.uri(), admin.set_compaction_rate(rate)).await?
        }
        Route::EnableAutoCompaction | Route::DisableAutoCompaction => {
            let (keyspace, table) = parameters.scope()?;
            let is_enabled = route == Route::EnableAutoCompaction;
            operate(request.uri(), admin.set_auto_compaction(keyspace, table, is_enabled)).await?
        }
        Route::UpgradeFiles => {
            let (keyspace, table) = parameters.scope()?;
            let all = parameters.flag("all")?;
            operate(request.uri(), admin.upgrade_files(keyspace, table, all)).await?
        }
        Route::Snapshot => {
            let (keyspace, table) = parameters.scope()?;
            let name = parameters.snapshot_name()?;
            operate(request.uri(), admin.snapshot(keyspace, table, name)).await?
        }
        Route::Restore => {
            let (keyspace, table) = parameters.scope()?;
            let (name, into) = (parameters.snapshot_name()?, parameters.take("into"));
            restore(request.uri(), admin.restore(name, keyspace, table, into)).await?
        }
        Route::Import => {
            let (keyspace, table) = parameters.scope()?;
            let (directory, into) = (parameters.directory()?, parameters.take("into"));
            let level = parameters.write_level()?;
            restore(request.uri(), admin.import(directory, keyspace, table, into, level)).await?
        }
        Route::Replay => {
            let replay = parameters.replay()?;
            let mut replayed = ReplayReport::default();
            let operation = async {
                replayed = admin.replay(replay).await?;
                Ok(())
            };
            operate(request.uri(), Box::pin(operation)).await?;
            report(&replayed)?
        }
        Route::ArchiveLog => operate(request.uri(), admin.archive_log()).await?,
        Route::ClearSnapshot => {
            let name = parameters.snapshot_name()?;
            operate(request.uri(), admin.clear_snapshot(name)).await?
        }
        Route::ListSnapshots => {
            json_answer(StatusCode::OK, &json!({ "snapshots": admin.snapshots().await? }))
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
            let mut files = Vec::new();
            let scrubbed = async {
                files = admin.check_files(keyspace, table, check).await?;
                Ok(())
            };
            operate(request.uri(), Box::pin(scrubbed)).await?;
            json_answer(StatusCode::OK, &json!({ "files": files }))
        }
        Route::CheckProgress => {
            json_answer(StatusCode::OK, &json!({ "shards": admin.check_progress().await? }))
        }
        Route::Drain => operate(request.uri(), admin.drain()).await?,
        Route::Streams => report(&admin.streams().await?)?,
        Route::Decommission => {
            let force = parameters.flag("force")?;
            operate(request.uri(), admin.decommission(force)).await?
        }
        Route::RemoveNode => {
            let host_id = parameters.host_id()?;
            operate(request.uri(), admin.remove_node(host_id)).await?
        }
        Route::AbortJoin => {
            let host_id = parameters.host_id()?;
            operate(request.uri(), admin.abort_join(host_id)).await?
        }
        Route::Cleanup => operate(request.uri(), admin.cleanup(parameters.take("keyspace"))).await?,
    })
}

fn check_method<B>(route: Route, request: &Request<B>) -> Result<(), Refusal> {
    let method = request.method();
    let (is_allowed, allowed) = if route.only_reads() {
        (matches!(*method, Method::GET | Method::HEAD), "GET, HEAD")
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
async fn operate(
    uri: &Uri,
    operation: BoxFuture<'_, Result<(), AdminError>>,
) -> Result<HttpResponse, AdminError> {
    tracing::info!(%uri, "administration: begun");
    match operation.await {
        Ok(()) => {
            tracing::info!(%uri, "administration: done");
            Ok(json_answer(StatusCode::OK, &json!({ "status": "done" })))
        }
        Err(error) => {
            tracing::warn!(%uri, %error, "administration: failed");
            Err(error)
        }
    }
}

/// As [`operate`], for an operation that brings rows back.
async fn restore(
    uri: &Uri,
    operation: BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>>,
) -> Result<HttpResponse, AdminError> {
    let mut tables = Vec::new();
    let restored = async {
        tables = operation.await?;
        Ok(())
    };
    operate(uri, Box::pin(restored)).await?;
    Ok(json_answer(StatusCode::OK, &json!({ "tables": tables })))
}

/// The decoded parameters of a query, each at most once.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters(Vec<(&'static str, String)>);

impl Parameters {
    fn parse(query: &str, known: &'static [&'static str]) -> Result<Self, Refusal> {
        let refuse = |message| Err(Refusal::Parameter(message));
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return refuse(format!("unknown parameter '{name}'; known here: {known}"));
            };
            let Ok(value) = percent_decode_str(value).decode_utf8() else {
                return refuse(format!("parameter '{name}' is not UTF-8"));
            };
            // An unset variable in a script must not turn one keyspace into all of them.
            if value.is_empty() {
                return refuse(format!("parameter '{name}' is empty"));
            }
            if parameters.0.iter().any(|(seen, _)| seen == name) {
                return refuse(format!("parameter '{name}' is given twice"));
            }
            parameters.0.push((name, value.into_owned()));
        }
        Ok(parameters)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(candidate, _)| *candidate == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Keyspace and table.
    fn scope(&mut self) -> Result<(Option<String>, Option<String>), Refusal> {
        let (keyspace, table) = (self.take("keyspace"), self.take("table"));
        if keyspace.is_none() && table.is_some() {
            return Err(Refusal::Parameter("parameter 'table' needs parameter 'keyspace'".to_owned()));
        }
        Ok((keyspace, table))
    }

    /// `true` or `false`; `false` when it is not given.
    fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(Refusal::Parameter(format!("parameter '{name}' is '{other}', not true or false")))
            }
        }
    }

    fn host_id(&mut self) -> Result<Uuid, Refusal> {
        let Some(text) = self.take("host_id") else {
            return Err(Refusal::Parameter("parameter 'host_id' is missing".to_owned()));
        };
        text.parse().map_err(|_| Refusal::Parameter(format!("parameter 'host_id': '{text}' is no UUID")))
    }

    /// Bytes a second, given as MiB; 0 is no limit.
    fn rate(&mut self) -> Result<Option<u64>, Refusal> {
        let text = self.take("mebibytes_per_second").unwrap_or_default();
        let mebibytes = text.parse::<u64>().ok().filter(|mebibytes| *mebibytes <= 1 << 20);
        let Some(mebibytes) = mebibytes else {
            let message = "parameter 'mebibytes_per_second' must be a number up to 1048576; 0 is no limit";
            return Err(Refusal::Parameter(message.to_owned()));
        };
        Ok((mebibytes > 0).then_some(mebibytes << 20))
    }

    /// What is to be written of archived commit logs.
    fn replay(&mut self) -> Result<ReplayRequest, Refusal> {
        let (keyspace, table) = self.scope()?;
        let since = self.write_time("since")?.map_or(i64::MIN, |since| since.saturating_add(1));
        let until = self.write_time("until")?.unwrap_or(i64::MAX);
        if since > until {
            return Err(Refusal::Parameter("parameter 'since' must be before 'until'".to_owned()));
        }
        let snapshot = if self.has("name") { Some(self.snapshot_name()?) } else { None };
        Ok(ReplayRequest {
            directory: self.directory()?,
            snapshot,
            keyspace,
            table,
            into: self.take("into"),
            timestamps: since..=until,
            consistency: self.write_level()?,
        })
    }

    /// The time of a write, in microseconds.
    fn write_time(&mut self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.take(name) else { return Ok(None) };
        parse_write_time(&text).map(Some).map_err(|_| {
            Refusal::Parameter(format!(
                "parameter '{name}' is neither a number of microseconds nor a time: {text}"
            ))
        })
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(candidate, _)| *candidate == name)
    }

    /// A directory of this machine.
    fn directory(&mut self) -> Result<PathBuf, Refusal> {
        let directory = self.take("directory").map(PathBuf::from);
        directory.filter(|path| path.is_absolute()).ok_or_else(|| {
            Refusal::Parameter("parameter 'directory' must be an absolute path of this machine".to_owned())
        })
    }

    /// A consistency level of writes; ALL when it is not given.
    fn write_level(&mut self) -> Result<Consistency, Refusal> {
        use Consistency::{All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Three, Two};
        let Some(text) = self.take("consistency") else { return Ok(All) };
        let levels = [All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Three, Two];
        text.parse().ok().filter(|level| levels.contains(level)).ok_or_else(|| {
            Refusal::Parameter(format!("parameter 'consistency' is no consistency level of writes: {text}"))
        })
    }

    /// The name of a snapshot, which becomes the name of a directory.
    fn snapshot_name(&mut self) -> Result<String, Refusal> {
        let Some(name) = self.take("name") else {
            return Err(Refusal::Parameter("parameter 'name' is missing".to_owned()));
        };
        let is_safe = name.len() <= SNAPSHOT_NAME_BYTES_MAX
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !is_safe {
            return Err(Refusal::Parameter(format!(
                "parameter 'name' must be at most {SNAPSHOT_NAME_BYTES_MAX} letters, digits, '_', '-' or '.', \
                 not starting with '.'"
            )));
        }
        Ok(name)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["keyspace", "table", "name"];

    fn refused(query: &str) -> String {
        Parameters::parse(query, KNOWN).unwrap_err().to_string()
    }

    #[test]
    fn parameters_are_decoded() {
        let mut parameters = Parameters::parse("table=Caf%C3%A9&keyspace=a%26b", KNOWN).unwrap();
        assert_eq!(parameters.scope(), Ok((Some("a&b".to_owned()), Some("Café".to_owned()))));
    }

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        assert_eq!(refused("tabel=x"), "unknown parameter 'tabel'; known here: keyspace, table, name");
        assert_eq!(refused("table=x&table=y"), "parameter 'table' is given twice");
        assert_eq!(refused("table=%FF"), "parameter 'table' is not UTF-8");
        assert_eq!(refused("keyspace="), "parameter 'keyspace' is empty");
        assert_eq!(refused("keyspace"), "parameter 'keyspace' is empty");
    }

    #[test]
    fn a_table_needs_its_keyspace() {
        let refusal = Parameters::parse("table=x", KNOWN).unwrap().scope().unwrap_err();
        assert_eq!(refusal.to_string(), "parameter 'table' needs parameter 'keyspace'");
    }

    #[test]
    fn a_snapshot_name_cannot_leave_its_directory() {
        for name in ["..", ".hidden", "a/b", "a%2Fb", "a%00", "a b", &"x".repeat(129)] {
            let mut parameters = Parameters::parse(&format!("name={name}"), KNOWN).unwrap();
            assert!(parameters.snapshot_name().is_err(), "{name}");
        }
        let mut parameters = Parameters::parse("name=before_upgrade-1.2", KNOWN).unwrap();
        assert_eq!(parameters.snapshot_name(), Ok("before_upgrade-1.2".to_owned()));
    }
}
