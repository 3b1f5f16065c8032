//! Which address serves what.

use std::os::unix::net::UnixListener;

use super::*;

fn superuser(password: &str) -> String {
    let head = "POST /admin/create_superuser?name=anna HTTP/1.1\r\nHost: node\r\nContent-Length: ";
    format!("{head}{}\r\n\r\n{password}", password.len())
}

#[tokio::test]
async fn an_address_for_monitoring_serves_metrics_and_health_alone() {
    let (node, server) = start_with(Access::Monitoring);
    for path in ["/metrics", "/health"] {
        assert_eq!(ask(&server, "GET", path).await.status, 200);
        assert_eq!(ask(&server, "POST", path).await.status, 405);
    }
    for path in ROUTES {
        for method in ["GET", "POST", "HEAD", "PUT"] {
            let reply = ask(&server, method, path).await;
            assert_eq!(reply.status, 403, "{method} {path}");
            if method != "HEAD" {
                assert!(reply.error().contains("is not served at this address"), "{}", reply.body);
            }
        }
    }
    assert_eq!(ask(&server, "GET", "/admin").await.status, 404);
    assert_eq!(exchange(server.address(), superuser("secret").as_bytes()).await.status, 403);
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn superusers_are_made_and_hashes_shown_over_the_socket_only() {
    for access in [Access::Port, Access::Roles { opens_health: true }, Access::Roles { opens_health: false }]
    {
        let (node, server) = start_with(access);
        let request = superuser("secret").replace("Host:", &format!("{}Host:", roles::login("anna:secret")));
        let reply = exchange(server.address(), request.as_bytes()).await;
        assert_eq!(
            (reply.status, reply.error().as_str()),
            (403, "/admin/create_superuser is served on the node's Unix socket only")
        );
        assert!(node.calls.lock().unwrap().is_empty());
        let reply = roles::ask_as(&server, "anna:secret", "GET", "/admin/roles").await;
        assert_eq!(
            (reply.status, reply.error().as_str()),
            (403, "/admin/roles is served on the node's Unix socket only")
        );
    }
    let (node, server) = start_with(Access::Socket);
    assert_eq!(
        ask(&server, "GET", "/admin/roles").await.json()["statements"][0],
        "CREATE ROLE IF NOT EXISTS anna"
    );
    assert_eq!(exchange(server.address(), superuser("sé cret").as_bytes()).await.status, 200);
    assert_eq!(*node.calls.lock().unwrap(), ["superuser anna sé cret false in *.*"]);
    for wrong in ["", &"x".repeat(5_000)] {
        let reply = exchange(server.address(), superuser(wrong).as_bytes()).await;
        assert_eq!(reply.status, 400);
        assert!(reply.error().starts_with("the body must be the password"), "{}", reply.body);
    }
    let nameless = "POST /admin/create_superuser HTTP/1.1\r\nHost: node\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(exchange(server.address(), nameless.as_bytes()).await.status, 400);
    assert_eq!(node.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_unix_socket_serves_everything() {
    let node = Arc::new(Node::default());
    let path = std::env::temp_dir().join(format!("helenus-observe-{}.sock", std::process::id()));
    // Left by a process of the same number.
    let _ = std::fs::remove_file(&path);
    let server = serve(UnixListener::bind(&path).unwrap(), Access::Socket, node.clone()).unwrap();
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"POST /admin/flush HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert_eq!(*node.calls.lock().unwrap(), ["flush *.*"]);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// All paths but those of metrics and health.
pub(super) const ROUTES: [&str; 58] = [
    "/version",
    "/admin/tablestats",
    "/admin/status",
    "/admin/ring",
    "/admin/info",
    "/admin/describecluster",
    "/admin/flush",
    "/admin/compact",
    "/admin/compactionstats",
    "/admin/stop",
    "/admin/setcompactionthroughput",
    "/admin/enableautocompaction",
    "/admin/disableautocompaction",
    "/admin/upgradesstables",
    "/admin/garbagecollect",
    "/admin/rebuild_index",
    "/admin/snapshot",
    "/admin/restore",
    "/admin/import",
    "/admin/replay",
    "/admin/archivelog",
    "/admin/clear_snapshot",
    "/admin/listsnapshots",
    "/admin/upload",
    "/admin/listuploads",
    "/admin/download",
    "/admin/removeupload",
    "/admin/encryption_keys",
    "/admin/unknowntables",
    "/admin/verify",
    "/admin/scrub",
    "/admin/checks",
    "/admin/drain",
    "/admin/netstats",
    "/admin/decommission",
    "/admin/removenode",
    "/admin/abortjoin",
    "/admin/cleanup",
    "/admin/repair",
    "/admin/rebuild",
    "/admin/repairs",
    "/admin/cancelrepair",
    "/admin/getendpoints",
    "/admin/tpstats",
    "/admin/proxyhistograms",
    "/admin/tablehistograms",
    "/admin/toppartitions",
    "/admin/feeds",
    "/admin/viewbuildstatus",
    "/admin/settings",
    "/admin/truncatehints",
    "/admin/assassinate",
    "/admin/recovermetadata",
    "/admin/create_superuser",
    "/admin/denylist",
    "/admin/denylist/add",
    "/admin/denylist/remove",
    "/admin/denylist/check",
];
