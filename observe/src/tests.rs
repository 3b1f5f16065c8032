//! The HTTP server as its clients see it: with a fake node and a real socket.

mod access;
mod controls;
mod roles;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cql_lite::frame::Consistency;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use helenus_admin::encryption_keys::EncryptionKeysReport;
use helenus_admin::reports::uploads::{DownloadReport, RemovalReport, UploadReport, UploadsReport};
use helenus_admin::reports::{
    Check, CheckProgress, CheckedFile, CheckedFileState, ClusterDescription, ClusterSnapshots, ClusterStatus,
    CompactionsReport, LocalWorkReport, NodeReport, RepairReport, RepairsReport, ReplayReport, ReplayedTable,
    RestoredTable, RingReport, SnapshotReport, StreamingReport, TableReport, TokenReport, UnknownTableReport,
};
use helenus_engine::compaction::Granularity;
use helenus_query::schema::selection::TableSelection;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use uuid::Uuid;

use super::http::HEAD_BYTES_MAX;
use super::prometheus::render;
use super::*;
use crate::metrics::ShardMetrics;

/// A node with one table, `shop.orders`, that records the operations called.
#[derive(Default)]
struct Node {
    calls: Mutex<Vec<String>>,
    snapshots: Mutex<BTreeSet<String>>,
    illness: Mutex<Option<String>>,
    remark: Mutex<Option<String>>,
    drain_begun: Notify,
    drain_may_end: Notify,
    handshake_failed: Notify,
}

impl Node {
    fn note_call(
        &self,
        operation: &str,
        keyspace: Option<&str>,
        table: Option<&str>,
    ) -> Result<(), AdminError> {
        if let Some(keyspace) = keyspace.filter(|keyspace| *keyspace != "shop") {
            return Err(AdminError::Unknown(format!("no such keyspace: {keyspace}")));
        }
        if let Some(table) = table.filter(|table| *table != "orders") {
            return Err(AdminError::Unknown(format!("no such table: shop.{table}")));
        }
        let (keyspace, table) = (keyspace.unwrap_or("*"), table.unwrap_or("*"));
        self.calls.lock().unwrap().push(format!("{operation} {keyspace}.{table}"));
        Ok(())
    }
}

impl Admin for Node {
    fn log_in(&self, claim: Claim) -> BoxFuture<'_, Result<Administrator, LoginError>> {
        ready(roles::log_in(&claim)).boxed()
    }

    fn note_failed_handshake(&self) {
        self.handshake_failed.notify_one();
    }

    fn health(&self) -> Result<Option<String>, String> {
        let remark = self.remark.lock().unwrap().clone();
        self.illness.lock().unwrap().clone().map_or(Ok(remark), Err)
    }

    fn metrics_text(&self) -> BoxFuture<'_, String> {
        let shard = Arc::new(ShardMetrics::default());
        shard.requests.add(3);
        ready(render(&[shard], &EngineGauges::default())).boxed()
    }

    fn flush(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call("flush", keyspace.as_deref(), table.as_deref())).boxed()
    }

    fn compact(&self, _: Option<String>, _: Option<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(Err(AdminError::Failed("no space left on device".to_owned()))).boxed()
    }

    fn new_snapshot_name(&self) -> BoxFuture<'_, Result<String, AdminError>> {
        ready(Ok("1700000000000".to_owned())).boxed()
    }

    fn snapshot(&self, name: String, tables: TableSelection) -> BoxFuture<'_, Result<(), AdminError>> {
        let result = self.note_call(&format!("snapshot of {tables:?}"), None, None);
        self.snapshots.lock().unwrap().insert(name);
        ready(result).boxed()
    }

    fn compactions(&self) -> BoxFuture<'_, Result<CompactionsReport, AdminError>> {
        let report = CompactionsReport { pending: 7, ..CompactionsReport::default() };
        ready(self.note_call("compactions", None, None).map(|()| report)).boxed()
    }

    fn stop_compactions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call("stop", keyspace.as_deref(), table.as_deref())).boxed()
    }

    fn set_compaction_rate(&self, bytes_per_second: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("rate {bytes_per_second:?}"), None, None)).boxed()
    }

    fn set_auto_compaction(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        is_enabled: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("auto {is_enabled}"), keyspace.as_deref(), table.as_deref())).boxed()
    }

    fn upgrade_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        all: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("upgrade {all}"), keyspace.as_deref(), table.as_deref())).boxed()
    }

    fn collect_garbage(
        &self,
        keyspace: Option<String>,
        tables: Vec<String>,
        granularity: Granularity,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        let call = format!("garbage {granularity:?} {}", tables.join(" "));
        ready(self.note_call(&call, keyspace.as_deref(), None)).boxed()
    }

    fn rebuild_indexes(
        &self,
        keyspace: String,
        table: String,
        indexes: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        let call = format!("rebuild {}", indexes.join(" "));
        ready(self.note_call(&call, Some(&keyspace), Some(&table))).boxed()
    }

    fn restore(&self, request: RestoreRequest) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>> {
        let RestoreRequest { name, keyspace, table, into } = request;
        let restored = self
            .note_call("restore", keyspace.as_deref(), table.as_deref())
            .map(|()| vec![RestoredTable { table: into.unwrap_or(name), ..RestoredTable::default() }]);
        ready(restored).boxed()
    }

    fn import(
        &self,
        directory: PathBuf,
        keyspace: Option<String>,
        table: Option<String>,
        _: Option<String>,
        consistency: Consistency,
    ) -> BoxFuture<'_, Result<Vec<RestoredTable>, AdminError>> {
        let imported = self.note_call("import", keyspace.as_deref(), table.as_deref()).map(|()| {
            let table = format!("{} at {}", directory.display(), consistency.name());
            vec![RestoredTable { table, ..RestoredTable::default() }]
        });
        ready(imported).boxed()
    }

    fn replay(&self, request: ReplayRequest) -> BoxFuture<'_, Result<ReplayReport, AdminError>> {
        let replayed =
            self.note_call("replay", request.keyspace.as_deref(), request.table.as_deref()).map(|()| {
                let table = format!(
                    "{} of {} to {} at {}",
                    request.snapshot.as_deref().unwrap_or("no snapshot"),
                    request.timestamps.start(),
                    request.timestamps.end(),
                    request.consistency.name()
                );
                ReplayReport {
                    tables: vec![ReplayedTable { table, ..ReplayedTable::default() }],
                    ..ReplayReport::default()
                }
            });
        ready(replayed).boxed()
    }

    fn reload_certificates(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call("reload certificates", None, None)).boxed()
    }

    fn archive_log(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call("archive log", None, None)).boxed()
    }

    fn clear_snapshot(&self, name: String) -> BoxFuture<'_, Result<(), AdminError>> {
        let was_there = self.snapshots.lock().unwrap().remove(&name);
        let result =
            if was_there { Ok(()) } else { Err(AdminError::Unknown(format!("no such snapshot: {name}"))) };
        ready(result).boxed()
    }

    fn drain(&self) -> BoxFuture<'_, Result<(), AdminError>> {
        async {
            self.drain_begun.notify_one();
            self.drain_may_end.notified().await;
            Ok(())
        }
        .boxed()
    }

    fn decommission(&self, force: bool, _accepts_old_data: bool) -> BoxFuture<'_, Result<(), AdminError>> {
        let result = if force { Ok(()) } else { Err(AdminError::Failed("too few members".to_owned())) };
        ready(result).boxed()
    }

    fn remove_nodes(
        &self,
        host_ids: Vec<uuid::Uuid>,
        _accepts_old_data: bool,
        _accepts_loss: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        let names = host_ids.iter().map(uuid::Uuid::to_string).collect::<Vec<_>>().join(" and ");
        ready(Err(AdminError::Unknown(format!("Host ID {names} not found.")))).boxed()
    }

    fn abort_join(&self, host_id: uuid::Uuid) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(Err(AdminError::Unknown(format!("Host ID {host_id} not found.")))).boxed()
    }

    fn cleanup(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call("cleanup", keyspace.as_deref(), None)).boxed()
    }

    fn repair(&self, request: RepairRequest) -> BoxFuture<'_, Result<RepairReport, AdminError>> {
        ready(Err(AdminError::Failed(format!("{request:?}")))).boxed()
    }

    fn rebuild(
        &self,
        data_center: String,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<RepairReport, AdminError>> {
        ready(Err(AdminError::Failed(format!("rebuild from {data_center}: {keyspace:?}")))).boxed()
    }

    fn repairs(&self) -> BoxFuture<'_, Result<RepairsReport, AdminError>> {
        let report = RepairsReport {
            is_automatic: true,
            waits_for: Vec::new(),
            away_too_long: Vec::new(),
            repairs: Vec::new(),
            tables: Vec::new(),
        };
        ready(Ok(report)).boxed()
    }

    fn cancel_repair(&self, id: Option<u64>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(Err(AdminError::Unknown(format!("cancel {id:?}")))).boxed()
    }

    fn encryption_keys(&self) -> BoxFuture<'_, Result<EncryptionKeysReport, AdminError>> {
        let report =
            EncryptionKeysReport { keys: vec!["2026-11".to_owned()], ..EncryptionKeysReport::default() };
        ready(Ok(report)).boxed()
    }

    fn streams(&self) -> BoxFuture<'_, Result<StreamingReport, AdminError>> {
        ready(Ok(StreamingReport::default())).boxed()
    }

    fn upload(&self, request: UploadRequest) -> BoxFuture<'_, Result<UploadReport, AdminError>> {
        let UploadRequest { name, keyspace, table } = request;
        let called = self.note_call(&format!("upload {name}"), keyspace.as_deref(), table.as_deref());
        ready(called.map(|()| UploadReport { file_count: 3, ..UploadReport::default() })).boxed()
    }

    fn uploads(&self, cluster_name: Option<String>) -> BoxFuture<'_, Result<UploadsReport, AdminError>> {
        let store = cluster_name.unwrap_or_else(|| "own".to_owned());
        ready(Ok(UploadsReport { store, ..UploadsReport::default() })).boxed()
    }

    fn download(&self, request: DownloadRequest) -> BoxFuture<'_, Result<DownloadReport, AdminError>> {
        let DownloadRequest { name, keyspace, table, directory, host_id, cluster_name } = request;
        let called = self.note_call(&format!("download {name}"), keyspace.as_deref(), table.as_deref());
        let hosts = vec![format!("{host_id:?} of {cluster_name:?}")];
        let directory = directory.display().to_string();
        ready(called.map(|()| DownloadReport { hosts, directory, ..DownloadReport::default() })).boxed()
    }

    fn remove_upload(
        &self,
        name: String,
        host_id: Option<Uuid>,
    ) -> BoxFuture<'_, Result<RemovalReport, AdminError>> {
        let called = self.note_call(&format!("remove {name} of {host_id:?}"), None, None);
        ready(called.map(|()| RemovalReport::default())).boxed()
    }

    fn cluster_snapshots(
        &self,
        operation: SnapshotOperation,
    ) -> BoxFuture<'_, Result<ClusterSnapshots, AdminError>> {
        let report = ClusterSnapshots { name: Some(format!("{operation:?}")), ..ClusterSnapshots::default() };
        ready(Ok(report)).boxed()
    }

    fn snapshots(&self) -> BoxFuture<'_, Result<Vec<SnapshotReport>, AdminError>> {
        let report = SnapshotReport { name: "dropped-1-orders".to_owned(), ..SnapshotReport::default() };
        ready(self.note_call("snapshots", None, None).map(|()| vec![report])).boxed()
    }

    fn check_files(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        check: Check,
    ) -> BoxFuture<'_, Result<Vec<CheckedFile>, AdminError>> {
        let file = CheckedFile {
            shard: 1,
            table: "shop.orders".to_owned(),
            path: "1-data.sst".to_owned(),
            state: CheckedFileState::Damaged,
            reason: "a block is malformed".to_owned(),
            kept_rows: 0,
            lost_blocks: 0,
        };
        let name = match check {
            Check::Verify => "verify",
            Check::Scrub { skips_corrupted: false } => "scrub",
            Check::Scrub { skips_corrupted: true } => "scrub and skip",
        };
        ready(self.note_call(name, keyspace.as_deref(), table.as_deref()).map(|()| vec![file])).boxed()
    }

    fn check_progress(&self) -> BoxFuture<'_, Result<Vec<CheckProgress>, AdminError>> {
        ready(self.note_call("checks", None, None).map(|()| Vec::new())).boxed()
    }

    fn unknown_tables(&self) -> BoxFuture<'_, Result<Vec<UnknownTableReport>, AdminError>> {
        let report = UnknownTableReport { disk_bytes: 77, ..UnknownTableReport::default() };
        ready(self.note_call("unknown tables", None, None).map(|()| vec![report])).boxed()
    }

    fn table_statistics(
        &self,
        keyspace: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableReport>, AdminError>> {
        let report = TableReport {
            keyspace: "shop".to_owned(),
            table: "orders".to_owned(),
            file_count: 2,
            disk_bytes: 8192,
            ..TableReport::default()
        };
        ready(self.note_call("statistics", keyspace.as_deref(), None).map(|()| vec![report])).boxed()
    }

    fn cluster_status(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<ClusterStatus, AdminError>> {
        let status =
            ClusterStatus { cluster_name: "c".to_owned(), keyspace: keyspace.clone(), members: Vec::new() };
        ready(self.note_call("status", keyspace.as_deref(), None).map(|()| status)).boxed()
    }

    fn ring(&self, keyspace: Option<String>) -> BoxFuture<'_, Result<RingReport, AdminError>> {
        let token = TokenReport {
            token: i64::MAX.to_string(),
            host_id: "h".to_owned(),
            address: "127.0.0.1:7000".to_owned(),
            data_center: "d".to_owned(),
            rack: "r".to_owned(),
            is_up: true,
            state: "normal".to_owned(),
            replicas: Vec::new(),
        };
        ready(Ok(RingReport { keyspace, tokens: vec![token] })).boxed()
    }

    fn node_info(&self) -> BoxFuture<'_, Result<NodeReport, AdminError>> {
        ready(Err(AdminError::Failed("no such thing".to_owned()))).boxed()
    }

    fn describe_cluster(&self) -> BoxFuture<'_, Result<ClusterDescription, AdminError>> {
        ready(Err(AdminError::Failed("no such thing".to_owned()))).boxed()
    }
}

/// A server and its address.
struct Server {
    address: SocketAddr,
    http: HttpServer,
}

impl Server {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn stop(self) {
        self.http.stop();
    }
}

fn start() -> (Arc<Node>, Server) {
    start_with(Access::Port)
}

fn start_with(access: Access) -> (Arc<Node>, Server) {
    let node = Arc::new(Node::default());
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let http = serve(listener, access, node.clone()).unwrap();
    (node, Server { address, http })
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Sends bytes and reads until the server closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_reply(stream).await
}

async fn read_reply(mut stream: TcpStream) -> Reply {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Reply::read(&text)
}

async fn ask(server: &Server, method: &str, target: &str) -> Reply {
    exchange(server.address(), format!("{method} {target} HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes()).await
}

#[tokio::test]
async fn metrics_are_text_for_prometheus() {
    let (_, server) = start();
    let reply = ask(&server, "GET", "/metrics").await;
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("content-type: text/plain; version=0.0.4"), "{}", reply.head);
    assert!(reply.body.contains("helenus_requests_total{shard=\"0\"} 3\n"), "{}", reply.body);
}

#[tokio::test]
async fn head_answers_without_a_body() {
    let (_, server) = start();
    let reply = ask(&server, "HEAD", "/health").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}

#[tokio::test]
async fn health_shows_why_a_node_is_down() {
    let (node, server) = start();
    let up = ask(&server, "GET", "/health").await;
    assert_eq!((up.status, up.json()), (200, json!({ "status": "up" })));
    *node.remark.lock().unwrap() = Some("the disk is full".to_owned());
    let full = ask(&server, "GET", "/health").await;
    assert_eq!((full.status, full.json()), (200, json!({ "status": "up", "remark": "the disk is full" })));
    *node.illness.lock().unwrap() = Some("the disk has failed".to_owned());
    let down = ask(&server, "GET", "/health").await;
    assert_eq!(
        (down.status, down.json()),
        (503, json!({ "status": "down", "reason": "the disk has failed" }))
    );
}

#[tokio::test]
async fn the_version_is_the_programs() {
    let (_, server) = start();
    let reply = ask(&server, "GET", "/version").await;
    assert_eq!(reply.json(), json!({ "name": "helenus", "version": env!("CARGO_PKG_VERSION") }));
}

#[tokio::test]
async fn flush_reaches_all_keyspaces_one_keyspace_or_one_table() {
    let (node, server) = start();
    for query in ["", "?keyspace=shop", "?keyspace=shop&table=orders"] {
        let reply = ask(&server, "POST", &format!("/admin/flush{query}")).await;
        assert_eq!((reply.status, reply.json()), (200, json!({ "status": "done" })));
    }
    assert_eq!(*node.calls.lock().unwrap(), ["flush *.*", "flush shop.*", "flush shop.orders"]);
}

#[tokio::test]
async fn unknown_things_are_named() {
    let (node, server) = start();
    for (target, error) in [
        ("/admin/flush?keyspace=shopp", "no such keyspace: shopp"),
        ("/admin/flush?keyspace=shop&table=order", "no such table: shop.order"),
        ("/admin/clear_snapshot?name=old", "no such snapshot: old"),
        ("/admin/flush?keyspcae=shop", "unknown parameter 'keyspcae'; known here: keyspace, table"),
        ("/admin/flush?table=orders", "parameter 'table' needs parameter 'keyspace'"),
        ("/admin/drain?now", "unknown parameter 'now'; known here: none"),
        ("/admin/clear_snapshot?cluster=true", "parameter 'name' is missing"),
        ("/admin/snapshot?cluster=all", "parameter 'cluster' is 'all', not true or false"),
    ] {
        let reply = ask(&server, "POST", target).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, error), "{target}");
    }
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn reports_on_the_cluster_are_json() {
    let (node, server) = start();
    let status = ask(&server, "GET", "/admin/status?keyspace=shop").await;
    assert_eq!(status.json(), json!({ "cluster_name": "c", "keyspace": "shop", "members": [] }));
    assert_eq!(*node.calls.lock().unwrap(), ["status shop.*"]);
    // A token is text: as a number it would lose digits in many parsers.
    let ring = ask(&server, "GET", "/admin/ring").await;
    assert_eq!(ring.json()["tokens"][0]["token"], "9223372036854775807");
    assert_eq!(ask(&server, "GET", "/admin/info").await.status, 500);
    let keys = ask(&server, "GET", "/admin/encryption_keys").await;
    assert_eq!(keys.json()["keys"], json!(["2026-11"]));
    assert_eq!(ask(&server, "POST", "/admin/encryption_keys").await.status, 405);
    assert_eq!(ask(&server, "POST", "/admin/status").await.status, 405);
    assert_eq!(ask(&server, "GET", "/admin/describecluster?x=1").await.status, 400);
}

#[tokio::test]
async fn a_failed_operation_shows_the_reason() {
    let (_, server) = start();
    let reply = ask(&server, "POST", "/admin/compact").await;
    assert_eq!((reply.status, reply.error().as_str()), (500, "no space left on device"));
}

#[tokio::test]
async fn compactions_are_shown_and_changed() {
    let (node, server) = start();
    let shown = ask(&server, "GET", "/admin/compactionstats").await;
    assert!(shown.status == 200 && shown.body.contains("\"pending\":7"), "{}", shown.body);
    for path in [
        "/admin/stop?keyspace=shop",
        "/admin/setcompactionthroughput?mebibytes_per_second=16",
        "/admin/setcompactionthroughput?mebibytes_per_second=0",
        "/admin/disableautocompaction?keyspace=shop&table=orders",
        "/admin/enableautocompaction",
        "/admin/upgradesstables?all=true",
        "/admin/garbagecollect",
        "/admin/garbagecollect?keyspace=shop&tables=orders%2Citems&granularity=cell",
        "/admin/rebuild_index?keyspace=shop&table=orders&indexes=a%2Cb",
    ] {
        assert_eq!(ask(&server, "POST", path).await.status, 200, "{path}");
    }
    let expected = [
        "compactions *.*",
        "stop shop.*",
        "rate Some(16777216) *.*",
        "rate None *.*",
        "auto false shop.orders",
        "auto true *.*",
        "upgrade true *.*",
        "garbage Row  *.*",
        "garbage Cell orders items shop.*",
        "rebuild a b shop.orders",
    ];
    assert_eq!(*node.calls.lock().unwrap(), expected);
    for rate in
        ["", "?mebibytes_per_second=fast", "?mebibytes_per_second=-1", "?mebibytes_per_second=9999999"]
    {
        let refused = ask(&server, "POST", &format!("/admin/setcompactionthroughput{rate}")).await;
        assert_eq!(refused.status, 400, "{rate}");
    }
    for parameters in ["tables=orders", "keyspace=shop&tables=orders,", "granularity=file"] {
        let refused = ask(&server, "POST", &format!("/admin/garbagecollect?{parameters}")).await;
        assert_eq!(refused.status, 400, "{parameters}");
    }
    for parameters in ["keyspace=shop&table=orders", "keyspace=shop&table=orders&indexes=a,"] {
        let refused = ask(&server, "POST", &format!("/admin/rebuild_index?{parameters}")).await;
        assert_eq!(refused.status, 400, "{parameters}");
    }
}

#[tokio::test]
async fn rows_come_back_from_snapshots_and_directories() {
    let (_node, server) = start();
    for (path, expected) in [
        ("/admin/restore?name=before&into=other", "other"),
        ("/admin/import?directory=/backup/monday&consistency=quorum", "/backup/monday at QUORUM"),
        ("/admin/import?directory=/backup", "/backup at ALL"),
        (
            "/admin/replay?directory=/b&since=7&until=1970-01-01T00:00:01.000002Z&name=x&consistency=quorum",
            "x of 8 to 1000002 at QUORUM",
        ),
        (
            "/admin/replay?directory=/b&keyspace=shop",
            "no snapshot of -9223372036854775808 to 9223372036854775807 at ALL",
        ),
        ("/admin/archivelog", ""),
        ("/admin/reloadssl", ""),
    ] {
        let answer = ask(&server, "POST", path).await;
        assert!(answer.status == 200 && answer.body.contains(expected), "{path}: {}", answer.body);
    }
    for (path, expected) in [
        ("/admin/restore?into=other", "parameter 'name' is missing"),
        ("/admin/import?directory=backup", "must be an absolute path"),
        ("/admin/import", "must be an absolute path"),
        ("/admin/import?directory=/b&consistency=serial", "no consistency level of writes: serial"),
        ("/admin/import?directory=/b&table=t", "needs parameter 'keyspace'"),
        ("/admin/replay?directory=/b&since=7&until=7", "'since' must be before 'until'"),
        ("/admin/replay?directory=/b&until=noon", "neither a number of microseconds nor a time: noon"),
        ("/admin/replay?directory=/b&name=.x", "parameter 'name' must be"),
        ("/admin/replay?until=1", "must be an absolute path"),
    ] {
        let answer = ask(&server, "POST", path).await;
        assert!(answer.status == 400 && answer.body.contains(expected), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_snapshot_is_made_and_cleared() {
    let (node, server) = start();
    let made = ask(&server, "POST", "/admin/snapshot?keyspace=shop&table=orders&name=before").await;
    assert_eq!(made.status, 200);
    assert!(node.snapshots.lock().unwrap().contains("before"));
    assert_eq!(ask(&server, "POST", "/admin/clear_snapshot?name=before").await.status, 200);
    assert!(node.snapshots.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_snapshot_without_a_name_gets_one() {
    let (node, server) = start();
    let made = ask(&server, "POST", "/admin/snapshot?tables=shop.orders").await;
    assert_eq!((made.status, made.json()), (200, json!({ "status": "done", "name": "1700000000000" })));
    assert!(node.snapshots.lock().unwrap().contains("1700000000000"));
}

#[tokio::test]
async fn operations_on_snapshots_go_to_all_members() {
    let (node, server) = start();
    for (method, path, expected) in [
        ("POST", "snapshot?name=n&keyspace=a,b", r#"Take { name: "n", tables: Keyspaces(["a", "b"]) }"#),
        ("POST", "snapshot?", r#"Take { name: "1700000000000", tables: All }"#),
        ("GET", "listsnapshots?", "List"),
        ("POST", "clear_snapshot?name=n", r#"Clear { name: "n" }"#),
        (
            "POST",
            "restore?name=n&keyspace=a&table=t&into=u",
            r#"Restore(RestoreRequest { name: "n", keyspace: Some("a"), table: Some("t"), into: Some("u") })"#,
        ),
        (
            "POST",
            "upload?name=n&keyspace=a",
            r#"Upload(UploadRequest { name: "n", keyspace: Some("a"), table: None })"#,
        ),
        ("POST", "removeupload?name=n", r#"RemoveUpload { name: "n" }"#),
    ] {
        let answer = ask(&server, method, &format!("/admin/{path}&cluster=true")).await;
        assert_eq!((answer.status, answer.json()), (200, json!({ "name": expected, "members": [] })));
    }
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn snapshots_are_uploaded_and_downloaded() {
    let (node, server) = start();
    let uploaded = ask(&server, "POST", "/admin/upload?name=n&keyspace=shop&table=orders").await;
    assert_eq!((uploaded.status, uploaded.json()["file_count"].as_u64()), (200, Some(3)));
    assert_eq!(ask(&server, "GET", "/admin/listuploads").await.json()["store"], "own");
    assert_eq!(ask(&server, "GET", "/admin/listuploads?cluster_name=c").await.json()["store"], "c");
    let host_id = "7f3c1c5e-0000-4000-8000-000000000001";
    let path = format!("/admin/download?name=n&directory=/b&host_id={host_id}&cluster_name=c");
    let downloaded = ask(&server, "POST", &path).await.json();
    assert_eq!(downloaded["directory"], "/b");
    assert_eq!(downloaded["hosts"][0], format!("Some({host_id}) of Some(\"c\")"));
    assert_eq!(ask(&server, "POST", "/admin/removeupload?name=n").await.status, 200);
    let calls = ["upload n shop.orders", "download n *.*", "remove n of None *.*"];
    assert_eq!(*node.calls.lock().unwrap(), calls);
    for (path, expected) in [
        ("upload", "parameter 'name' is missing"),
        ("upload?name=..", "parameter 'name' must be"),
        ("download?name=n&directory=b", "must be an absolute path"),
        ("download?name=n&directory=/b&host_id=x", "'x' is no UUID"),
        ("removeupload", "parameter 'name' is missing"),
        (&format!("removeupload?name=n&cluster=true&host_id={host_id}"), "'cluster' excludes 'host_id'"),
    ] {
        let answer = ask(&server, "POST", &format!("/admin/{path}")).await;
        assert!(answer.status == 400 && answer.body.contains(expected), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn files_are_verified_and_scrubbed() {
    let (node, server) = start();
    let reply = ask(&server, "POST", "/admin/verify?keyspace=shop&table=orders").await;
    let file = json!({
        "shard": 1, "table": "shop.orders", "path": "1-data.sst", "state": "damaged", "reason": "a block is malformed",
        "kept_rows": 0, "lost_blocks": 0,
    });
    assert_eq!((reply.status, reply.json()), (200, json!({ "files": [file] })));
    assert_eq!(ask(&server, "POST", "/admin/scrub").await.status, 200);
    assert_eq!(ask(&server, "POST", "/admin/scrub?skip_corrupted=true&keyspace=shop").await.status, 200);
    assert_eq!(ask(&server, "POST", "/admin/scrub?skip_corrupted=yes").await.status, 400);
    assert_eq!(ask(&server, "POST", "/admin/verify?table=orders").await.status, 400);
    let progress = ask(&server, "GET", "/admin/checks").await;
    assert_eq!((progress.status, progress.json()), (200, json!({ "shards": [] })));
    let calls = ["verify shop.orders", "scrub *.*", "scrub and skip shop.*", "checks *.*"];
    assert_eq!(*node.calls.lock().unwrap(), calls);
}

#[tokio::test]
async fn statistics_of_tables_are_json() {
    let (_, server) = start();
    let reply = ask(&server, "GET", "/admin/tablestats?keyspace=shop").await;
    let table = json!({
        "keyspace": "shop", "table": "orders", "file_count": 2, "disk_bytes": 8192, "memtable_bytes": 0,
        "filter_index_bytes": 0, "resident_bytes": 0, "row_versions": 0, "partition_versions": 0, "tombstones": 0,
        "damaged_files": 0, "missing_indexes": 0, "pending_compactions": 0, "failed_compactions": [],
        "local": LocalWorkReport::default(),
    });
    assert_eq!((reply.status, reply.json()), (200, json!({ "tables": [table] })));
    assert_eq!(ask(&server, "GET", "/admin/tablestats?keyspace=x").await.status, 400);
}

#[tokio::test]
async fn an_unknown_path_or_method_is_refused() {
    let (node, server) = start();
    let unknown = ask(&server, "POST", "/admin/explode").await;
    assert_eq!((unknown.status, unknown.error().as_str()), (404, "no such path: /admin/explode"));
    let get = ask(&server, "GET", "/admin/flush").await;
    assert_eq!((get.status, get.error().as_str()), (405, "/admin/flush takes POST, not GET"));
    assert!(get.head.contains("allow: post"), "{}", get.head);
    assert_eq!(ask(&server, "POST", "/metrics").await.status, 405);
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_web_page_cannot_administer() {
    let (node, server) = start();
    let request = b"POST /admin/flush HTTP/1.1\r\nHost: node\r\nOrigin: http://elsewhere\r\n\r\n";
    assert_eq!(exchange(server.address(), request).await.status, 403);
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_body_is_refused() {
    let (node, server) = start();
    let request = b"POST /admin/flush HTTP/1.1\r\nHost: node\r\nContent-Length: 13\r\n\r\nkeyspace=shop";
    let reply = exchange(server.address(), request).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error().starts_with("a body is not expected"), "{}", reply.body);
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn huge_heads_are_refused() {
    let (_, server) = start();
    let filling = "x".repeat(4 * HEAD_BYTES_MAX);
    let header = format!("GET /health HTTP/1.1\r\nHost: node\r\nFilling: {filling}\r\n\r\n");
    assert_eq!(exchange(server.address(), header.as_bytes()).await.status, 431);
    let many = format!("GET /health HTTP/1.1\r\nHost: node\r\n{}\r\n", "A: b\r\n".repeat(200));
    assert_eq!(exchange(server.address(), many.as_bytes()).await.status, 431);
    assert_eq!(ask(&server, "GET", "/health").await.status, 200);
}

#[tokio::test]
async fn bytes_that_are_not_http_are_refused() {
    let (_, server) = start();
    assert_eq!(exchange(server.address(), b"\x04\x00\x00\x00\x05\x00\x00\x00\x00\r\n\r\n").await.status, 400);
    assert_eq!(ask(&server, "GET", "/health").await.status, 200);
}

#[tokio::test]
async fn a_slow_operation_does_not_delay_others() {
    let (node, server) = start();
    let mut draining = TcpStream::connect(server.address()).await.unwrap();
    draining.write_all(b"POST /admin/drain HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    node.drain_begun.notified().await;
    assert_eq!(ask(&server, "GET", "/health").await.status, 200);
    node.drain_may_end.notify_one();
    assert_eq!(read_reply(draining).await.status, 200);
}

#[tokio::test]
async fn a_stop_waits_for_an_answer_in_progress() {
    let (node, server) = start();
    let address = server.address();
    let mut draining = TcpStream::connect(address).await.unwrap();
    draining.write_all(b"POST /admin/drain HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    node.drain_begun.notified().await;
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    node.drain_may_end.notify_one();
    assert_eq!(read_reply(draining).await.status, 200);
    stopping.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stop_closes_idle_connections() {
    let (_, server) = start();
    let mut idle = TcpStream::connect(server.address()).await.unwrap();
    // The second request is served after the first connection was accepted.
    assert_eq!(ask(&server, "GET", "/health").await.status, 200);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}
