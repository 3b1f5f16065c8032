//! Instruments and settings over HTTP.

use std::collections::BTreeMap;

use helenus_admin::feeds::FeedReport;
use helenus_admin::reports::{
    ActivityReport, CoordinatorLatencies, DeniedPartitionReport, DenylistReport, EndpointsReport, RequestLog,
    RequestLogReport, RuntimeSettings, TableLatencies,
};
use helenus_admin::top_partitions::TopPartition;

use super::*;
use crate::controls::{Controls, RequestLogChange, SettingChange};

impl Controls for Node {
    fn endpoints(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<EndpointsReport, AdminError>> {
        let noted = self.note_call(&format!("endpoints of {key} of"), Some(&keyspace), Some(&table));
        ready(noted.map(|()| EndpointsReport { token: "-7".to_owned(), endpoints: Vec::new() })).boxed()
    }

    fn change_denylist(
        &self,
        keyspace: String,
        table: String,
        key: String,
        denies: bool,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>> {
        let noted = self.note_call(&format!("deny {key} ({denies}) of"), Some(&keyspace), Some(&table));
        ready(noted.map(|()| denied(keyspace, table, key, denies))).boxed()
    }

    fn denied_partition(
        &self,
        keyspace: String,
        table: String,
        key: String,
    ) -> BoxFuture<'_, Result<DeniedPartitionReport, AdminError>> {
        let noted = self.note_call(&format!("is {key} denied of"), Some(&keyspace), Some(&table));
        ready(noted.map(|()| denied(keyspace, table, key, true))).boxed()
    }

    fn denylist(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<DenylistReport, AdminError>> {
        let noted = self.note_call("denied of", keyspace.as_deref(), table.as_deref());
        ready(noted.map(|()| DenylistReport::default())).boxed()
    }

    fn activity(&self) -> BoxFuture<'_, Result<ActivityReport, AdminError>> {
        ready(Ok(ActivityReport::default())).boxed()
    }

    fn latencies(&self) -> BoxFuture<'_, Result<CoordinatorLatencies, AdminError>> {
        ready(Ok(CoordinatorLatencies::default())).boxed()
    }

    fn top_partitions(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        period: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TopPartition>, AdminError>> {
        let period = period.as_deref().unwrap_or("all times");
        let noted =
            self.note_call(&format!("top partitions of {period} of"), keyspace.as_deref(), table.as_deref());
        ready(noted.map(|()| Vec::new())).boxed()
    }

    fn feeds(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<FeedReport>, AdminError>> {
        let noted = self.note_call("feeds of", keyspace.as_deref(), table.as_deref());
        ready(noted.map(|()| Vec::new())).boxed()
    }

    fn view_build_status(
        &self,
        keyspace: String,
        view: String,
    ) -> BoxFuture<'_, Result<BTreeMap<String, String>, AdminError>> {
        let noted = self.note_call("builds of", Some(&keyspace), Some(&view));
        ready(noted.map(|()| BTreeMap::new())).boxed()
    }

    fn table_latencies(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> BoxFuture<'_, Result<Vec<TableLatencies>, AdminError>> {
        let noted = self.note_call("latencies of", keyspace.as_deref(), table.as_deref());
        ready(noted.map(|()| Vec::new())).boxed()
    }

    fn settings(&self) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>> {
        ready(Ok(RuntimeSettings::default())).boxed()
    }

    fn change_setting(&self, change: SettingChange) -> BoxFuture<'_, Result<RuntimeSettings, AdminError>> {
        self.calls.lock().unwrap().push(format!("{change:?}"));
        self.settings()
    }

    fn request_log(&self, _log: RequestLog) -> BoxFuture<'_, Result<RequestLogReport, AdminError>> {
        ready(Ok(RequestLogReport::default())).boxed()
    }

    fn change_request_log(
        &self,
        log: RequestLog,
        change: RequestLogChange,
    ) -> BoxFuture<'_, Result<RequestLogReport, AdminError>> {
        self.calls.lock().unwrap().push(format!("{log:?}: {change:?}"));
        self.request_log(log)
    }

    fn truncate_hints(&self, member: Option<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("truncate hints of {member:?} in"), None, None)).boxed()
    }

    fn recover_metadata(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>> {
        ready(self.note_call("recover metadata of", None, None).map(|()| vec!["7".to_owned()])).boxed()
    }

    fn update_cidr_group(
        &self,
        group: String,
        networks: Vec<String>,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        assert_eq!((group.as_str(), networks.len()), ("office", 2));
        Box::pin(std::future::ready(Ok(())))
    }

    fn drop_cidr_group(&self, group: String) -> BoxFuture<'_, Result<(), AdminError>> {
        assert_eq!(group, "office");
        Box::pin(std::future::ready(Ok(())))
    }

    fn cidr_groups(&self) -> BoxFuture<'_, Result<BTreeMap<String, Vec<String>>, AdminError>> {
        let groups = BTreeMap::from([("office".to_owned(), vec!["10.0.0.0/8".to_owned()])]);
        Box::pin(std::future::ready(Ok(groups)))
    }

    fn guardrails(&self) -> BoxFuture<'_, Result<BTreeMap<String, serde_json::Value>, AdminError>> {
        let guardrails = [
            ("tables_warn_threshold", json!(5)),
            ("tables_fail_threshold", json!(-1)),
            ("ddl_enabled", json!(true)),
        ];
        let guardrails = guardrails.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Box::pin(std::future::ready(Ok(guardrails)))
    }

    fn change_guardrail(&self, name: String, values: Vec<String>) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("guardrail {name} {values:?} in"), None, None)).boxed()
    }

    fn role_statements(&self) -> BoxFuture<'_, Result<Vec<String>, AdminError>> {
        Box::pin(std::future::ready(Ok(vec!["CREATE ROLE IF NOT EXISTS anna".to_owned()])))
    }

    fn create_superuser(
        &self,
        name: String,
        password: String,
        resets: bool,
    ) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("superuser {name} {password} {resets} in"), None, None)).boxed()
    }

    fn assassinate(&self, member: String) -> BoxFuture<'_, Result<(), AdminError>> {
        ready(self.note_call(&format!("assassinate {member} in"), None, None)).boxed()
    }
}

fn denied(keyspace: String, table: String, key: String, is_denied: bool) -> DeniedPartitionReport {
    DeniedPartitionReport { keyspace, table, key, is_denied, is_obeyed: true }
}

#[tokio::test]
async fn partitions_are_denied_and_allowed_again() {
    let (node, server) = start();
    let partition = "keyspace=shop&table=orders&key=a%3A7";
    for (change, is_denied) in [("add", true), ("remove", false)] {
        let path = format!("/admin/denylist/{change}?{partition}");
        assert_eq!(ask(&server, "GET", &path).await.status, 405);
        assert_eq!(ask(&server, "POST", &path).await.json()["is_denied"], json!(is_denied));
    }
    let checked = ask(&server, "GET", &format!("/admin/denylist/check?{partition}")).await;
    assert_eq!(
        checked.json(),
        json!({ "keyspace": "shop", "table": "orders", "key": "a:7", "is_denied": true, "is_obeyed": true })
    );
    let list = ask(&server, "GET", "/admin/denylist?keyspace=shop").await;
    assert_eq!(list.json(), json!({ "partitions": [], "is_obeyed": false }));
    assert_eq!(ask(&server, "GET", "/admin/denylist?table=orders").await.status, 400);
    assert_eq!(ask(&server, "POST", "/admin/denylist/add?keyspace=shop&table=orders").await.status, 400);
    assert_eq!(
        *node.calls.lock().unwrap(),
        [
            "deny a:7 (true) of shop.orders",
            "deny a:7 (false) of shop.orders",
            "is a:7 denied of shop.orders",
            "denied of shop.*",
        ]
    );
}

#[tokio::test]
async fn settings_are_shown_and_changed_one_at_a_time() {
    let (node, server) = start();
    let shown = ask(&server, "GET", "/admin/settings").await;
    assert_eq!(shown.json()["trace_probability"], json!(0.0));
    for query in [
        "stream_throughput_bytes_per_second=0",
        "hinted_handoff_throttle_bytes_per_second=65536",
        "trace_probability=0.25",
        "native_transport=false",
        "hinted_handoff=true",
        "hint_delivery=false",
        "partition_denylist_enabled=true",
        "denylist_max_keys_total=7",
        "log_level=debug&log_target=helenus::session",
        "log_level=reset",
    ] {
        assert_eq!(ask(&server, "POST", &format!("/admin/settings?{query}")).await.status, 200, "{query}");
    }
    assert_eq!(
        *node.calls.lock().unwrap(),
        [
            "StreamThroughput(0)",
            "HintedHandoffThrottle(65536)",
            "TraceProbability(0.25)",
            "NativeTransport(false)",
            "HintedHandoff(true)",
            "HintDelivery(false)",
            "Denylist(Enabled(true))",
            "Denylist(KeysMax(7))",
            "LogLevel { target: Some(\"helenus::session\"), level: \"debug\" }",
            "LogLevel { target: None, level: \"reset\" }",
        ]
    );
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let (node, server) = start();
    for (query, error) in [
        ("", "one parameter of these is expected"),
        ("native_transport=true&hinted_handoff=true", "one parameter of these is expected"),
        ("denylist_reads_enabled=no", "parameter 'denylist_reads_enabled': 'no' is neither true nor false"),
        ("denylist_max_keys_total=0", "parameter 'denylist_max_keys_total': '0' is no number from 1 on"),
        ("trace_probability=1.5", "parameter 'trace_probability' must be from 0 to 1"),
        ("trace_probability=NaN", "parameter 'trace_probability' must be from 0 to 1"),
        ("stream_throughput_bytes_per_second=-1", "'-1' is no number that fits"),
        ("hinted_handoff_throttle_bytes_per_second=1024", "must be 0 or at least 65536"),
        ("native_transport=off", "parameter 'native_transport' is 'off', not true or false"),
        ("hint_delivery=true&log_target=x", "parameter 'log_target' needs parameter 'log_level'"),
    ] {
        let reply = ask(&server, "POST", &format!("/admin/settings?{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.error().contains(error), "{query}: {}", reply.error());
    }
    let reply = ask(&server, "GET", "/admin/settings?native_transport=true").await;
    assert_eq!((reply.status, reply.error().as_str()), (400, "parameter 'native_transport' needs POST"));
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn instruments_are_read_and_hints_given_up() {
    let (node, server) = start();
    let endpoints = ask(&server, "GET", "/admin/getendpoints?keyspace=shop&table=orders&key=a%3A7").await;
    assert_eq!(endpoints.json(), json!({ "token": "-7", "endpoints": [] }));
    let missing = ask(&server, "GET", "/admin/getendpoints?keyspace=shop&table=orders").await;
    assert_eq!((missing.status, missing.error().as_str()), (400, "parameter 'key' is missing"));
    assert_eq!(ask(&server, "GET", "/admin/tpstats").await.json(), json!({ "stages": [], "dropped": {} }));
    assert_eq!(ask(&server, "GET", "/admin/proxyhistograms").await.json()["read"]["count"], json!(0));
    let tables = ask(&server, "GET", "/admin/tablehistograms?keyspace=shop").await;
    assert_eq!(tables.json(), json!({ "tables": [] }));
    let partitions = ask(&server, "GET", "/admin/toppartitions?keyspace=shop&period=hours").await;
    assert_eq!(partitions.json(), json!({ "partitions": [] }));
    let feeds = ask(&server, "GET", "/admin/feeds?keyspace=shop").await;
    assert_eq!(feeds.json(), json!({ "feeds": [] }));
    let builds = ask(&server, "GET", "/admin/viewbuildstatus?keyspace=shop&view=orders").await;
    assert_eq!(builds.json(), json!({ "members": {} }));
    let missing = ask(&server, "GET", "/admin/viewbuildstatus?keyspace=shop").await;
    assert_eq!((missing.status, missing.error().as_str()), (400, "parameter 'view' is missing"));
    for target in ["truncatehints", "truncatehints?member=127.0.0.2", "assassinate?member=127.0.0.2"] {
        assert_eq!(ask(&server, "POST", &format!("/admin/{target}")).await.status, 200);
    }
    assert_eq!(ask(&server, "POST", "/admin/assassinate").await.status, 400);
    let recovered = ask(&server, "POST", "/admin/recovermetadata").await;
    assert_eq!(recovered.json(), json!({ "down": ["7"] }));
    assert_eq!(
        *node.calls.lock().unwrap(),
        [
            "endpoints of a:7 of shop.orders",
            "latencies of shop.*",
            "top partitions of hours of shop.*",
            "feeds of shop.*",
            "builds of shop.orders",
            "truncate hints of None in *.*",
            "truncate hints of Some(\"127.0.0.2\") in *.*",
            "assassinate 127.0.0.2 in *.*",
            "recover metadata of *.*",
        ]
    );
}

#[tokio::test]
async fn guardrails_are_shown_and_changed_by_name() {
    let (node, server) = start();
    let of = async |query: &str| ask(&server, "GET", &format!("/admin/guardrails{query}")).await;
    let all = json!({ "ddl_enabled": true, "tables_fail_threshold": -1, "tables_warn_threshold": 5 });
    assert_eq!(of("").await.json(), json!({ "guardrails": all }));
    let both = json!({ "tables_fail_threshold": -1, "tables_warn_threshold": 5 });
    assert_eq!(of("?name=tables_threshold").await.json(), json!({ "guardrails": both }));
    let one = json!({ "tables_warn_threshold": 5 });
    assert_eq!(of("?name=tables_warn_threshold").await.json(), json!({ "guardrails": one }));
    for name in ["tables", "non_sense", "_threshold"] {
        let refused = of(&format!("?name={name}")).await;
        assert_eq!(refused.json(), json!({ "error": format!("Guardrail {name} not found.") }));
    }
    assert_eq!(ask(&server, "PUT", "/admin/guardrails").await.status, 405);
    assert_eq!(of("?name=tables_threshold&values=1").await.status, 400);
    let change = async |query: &str| ask(&server, "POST", &format!("/admin/guardrails{query}")).await;
    assert_eq!(change("?name=tables_threshold&values=20,10").await.json(), json!({ "guardrails": both }));
    assert_eq!(change("?name=ddl_enabled").await.status, 200);
    let expected = ["guardrail tables_threshold [\"20\", \"10\"] in *.*", "guardrail ddl_enabled [] in *.*"];
    assert_eq!(*node.calls.lock().unwrap(), expected);
    assert_eq!(change("?values=1").await.status, 400);
}

#[tokio::test]
async fn logs_of_requests_are_enabled_with_options_and_disabled_without() {
    let (node, server) = start();
    assert_eq!(ask(&server, "GET", "/admin/auditlog").await.json()["enabled"], json!(false));
    for target in [
        "auditlog?enabled=true&included_users=a%2Cb&block=true",
        "auditlog?enabled=false",
        "fullquerylog?enabled=true&path=%2Fq",
        "fullquerylog?reset=true",
    ] {
        assert_eq!(ask(&server, "POST", &format!("/admin/{target}")).await.status, 200, "{target}");
    }
    for target in
        ["auditlog", "auditlog?block=true", "auditlog?enabled=false&block=true", "auditlog?reset=true"]
    {
        assert_eq!(ask(&server, "POST", &format!("/admin/{target}")).await.status, 400, "{target}");
    }
    assert_eq!(ask(&server, "GET", "/admin/auditlog?enabled=true").await.status, 400);
    assert_eq!(
        *node.calls.lock().unwrap(),
        [
            "Audit: Enable({\"block\": \"true\", \"included_users\": \"a,b\"})",
            "Audit: Disable",
            "FullQuery: Enable({\"path\": \"/q\"})",
            "FullQuery: Reset",
        ]
    );
}
