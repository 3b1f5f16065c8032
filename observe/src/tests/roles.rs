//! Ports whose clients log in, with and without TLS.

use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use helenus_tls::authority::{self, Holder, Kind};
use helenus_tls::encryption::Encryption;
use helenus_tls::files::Files;
use helenus_tls::material::{Use, for_program};
use helenus_tls::policy::{ClientCertificates, Mode};
use helenus_tls::stream;
use tempfile::TempDir;

use super::access::ROUTES;
use super::*;
use crate::http::LOGIN_SLOTS;

const IDENTITY: &str = "spiffe://shop/root";
const ON_NETWORK: Access = Access::Roles { opens_health: false };
const ON_LOOPBACK: Access = Access::Roles { opens_health: true };

/// The roles of the fake node: `anna`, a superuser with a password and a certificate; `ben`, an ordinary role; `carl`, who is refused from
/// this address.
pub(super) fn log_in(claim: &Claim) -> Result<Administrator, LoginError> {
    assert!(claim.peer.ip().is_loopback());
    if claim.identity.as_deref() == Some(IDENTITY) {
        return Ok(Administrator { role: "anna".to_owned(), is_superuser: true });
    }
    let shown = claim.credentials.as_ref().map(|shown| (shown.role.as_str(), shown.password.as_str()));
    match shown {
        Some((role @ ("anna" | "ben"), "secret")) => {
            Ok(Administrator { role: role.to_owned(), is_superuser: role == "anna" })
        }
        Some(("carl", _)) => Err(LoginError::Forbidden("You do not have access".to_owned())),
        Some(("dora", _)) => Err(LoginError::Unavailable("try again later".to_owned())),
        _ => Err(LoginError::Refused("wrong".to_owned())),
    }
}

/// The header with a name and a password.
pub(super) fn login(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(credentials))
}

fn request(credentials: &str, method: &str, target: &str) -> String {
    let login = if credentials.is_empty() { String::new() } else { login(credentials) };
    format!("{method} {target} HTTP/1.1\r\nHost: node\r\n{login}\r\n")
}

pub(super) async fn ask_as(server: &Server, credentials: &str, method: &str, target: &str) -> Reply {
    exchange(server.address(), request(credentials, method, target).as_bytes()).await
}

#[tokio::test]
async fn who_has_not_logged_in_gets_nothing() {
    let (node, server) = start_with(ON_NETWORK);
    for path in ROUTES.into_iter().chain(["/metrics", "/health", "/admin/unknown", "/"]) {
        for (credentials, reason) in
            [("", "a login is needed"), ("anna:wrong", "wrong"), ("anna", "malformed")]
        {
            for method in ["GET", "POST"] {
                let reply = ask_as(&server, credentials, method, path).await;
                assert_eq!(reply.status, 401, "{method} {path} as '{credentials}'");
                assert!(reply.error().contains(reason), "{}", reply.body);
                assert!(reply.head.contains("www-authenticate: basic realm=\"helenus\""), "{}", reply.head);
            }
        }
    }
    let reply = ask_as(&server, "carl:secret", "POST", "/admin/flush").await;
    assert_eq!((reply.status, reply.error().as_str()), (403, "You do not have access"));
    let reply = ask_as(&server, "dora:secret", "POST", "/admin/flush").await;
    assert_eq!((reply.status, reply.error().as_str()), (503, "try again later"));
    assert!(node.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn at_a_loopback_address_metrics_and_health_are_open() {
    let (_, server) = start_with(ON_LOOPBACK);
    for path in ["/metrics", "/health", "/version"] {
        assert_eq!(ask(&server, "GET", path).await.status, 200, "{path}");
        assert_eq!(ask(&server, "POST", path).await.status, 405, "{path}");
    }
    for path in ROUTES.into_iter().filter(|path| *path != "/version") {
        assert_eq!(ask(&server, "GET", path).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn who_is_no_superuser_reads_and_changes_nothing() {
    let (node, server) = start_with(ON_NETWORK);
    for path in
        ["/metrics", "/health", "/version", "/admin/compactionstats", "/admin/settings", "/admin/ring"]
    {
        assert_eq!(ask_as(&server, "ben:secret", "GET", path).await.status, 200, "{path}");
    }
    node.calls.lock().unwrap().clear();
    let kept = [
        "/admin/cidrgroups",
        "/admin/roles",
        "/admin/auditlog",
        "/admin/fullquerylog",
        "/admin/denylist",
        "/admin/denylist/check",
        "/admin/encryption_keys",
        "/admin/toppartitions",
        // Each request makes the store of uploads answer.
        "/admin/listuploads",
    ];
    let reading = kept.into_iter().map(|path| ("GET", path));
    for (method, path) in ROUTES.into_iter().map(|path| ("POST", path)).chain(reading) {
        let reply = ask_as(&server, "ben:secret", method, path).await;
        assert_eq!(
            (reply.status, reply.error()),
            (403, format!("{path} is for superusers, which ben is not"))
        );
    }
    // The other members are asked for superusers only.
    for query in ["cluster=true", "cluster=%74rue"] {
        let reply = ask_as(&server, "ben:secret", "GET", &format!("/admin/listsnapshots?{query}")).await;
        assert_eq!(
            (reply.status, reply.error().as_str()),
            (403, "/admin/listsnapshots is for superusers, which ben is not")
        );
    }
    assert!(node.calls.lock().unwrap().is_empty());
    assert_eq!(ask_as(&server, "ben:secret", "GET", "/admin/listsnapshots?cluster=false").await.status, 200);
    assert_eq!(ask_as(&server, "anna:secret", "GET", "/admin/listsnapshots?cluster=true").await.status, 200);
    node.calls.lock().unwrap().clear();
    assert_eq!(ask_as(&server, "anna:secret", "POST", "/admin/flush").await.status, 200);
    assert_eq!(ask_as(&server, "anna:secret", "GET", "/admin/unknown").await.status, 404);
    let page = request("anna:secret", "POST", "/admin/flush").replace("Host:", "Origin: http://x\r\nHost:");
    assert_eq!(exchange(server.address(), page.as_bytes()).await.status, 403);
    assert_eq!(*node.calls.lock().unwrap(), ["flush *.*"]);
}

/// An authority, a node's certificate and that of an administrator.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        authority::init(directory.path(), "test", now_seconds(), 9).unwrap();
        let made = Self(directory);
        made.issue("node", None);
        made.issue("root", Some(IDENTITY));
        made
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn issue(&self, name: &str, identity: Option<&str>) {
        let holder = Holder {
            name: name.to_owned(),
            addresses: if identity.is_none() { vec![IpAddr::V4(Ipv4Addr::LOCALHOST)] } else { Vec::new() },
            identity: identity.map(str::to_owned),
            kind: if identity.is_none() { Kind::Node } else { Kind::Client },
            ..Holder::default()
        };
        authority::issue(self.path(), &holder, now_seconds(), 9).unwrap();
    }

    fn serve(&self, mode: Mode, asked: ClientCertificates) -> (Arc<Node>, Server, Arc<Encryption>) {
        let file = |name: &str| self.path().join(name);
        let files = Files {
            certificate: file("node.pem"),
            key: file("node.key"),
            authorities: Some(file("authority.pem")),
            revocations: None,
        };
        let encryption = Arc::new(Encryption::open(files, Use::Clients(asked), now_seconds()).unwrap());
        let node = Arc::new(Node::default());
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::Tls(listener, mode, encryption.clone());
        let http = serve(listener, ON_NETWORK, node.clone()).unwrap();
        (node, Server { address, http }, encryption)
    }

    /// Sends a request with TLS, `own` the name of the client's certificate. `None`: the server is not trusted, or ends the connection.
    async fn ask(&self, server: &Server, own: Option<&str>, request: &str) -> Option<Reply> {
        let file = |name: &str, ending: &str| self.path().join(format!("{name}.{ending}"));
        let own = own.map(|name| (file(name, "pem"), file(name, "key")));
        let own = own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let config = for_program(&file("authority", "pem"), own, true, now_seconds()).unwrap();
        let socket = TcpStream::connect(server.address()).await.unwrap();
        let mut stream = stream::connect_to(socket, config, server.address().ip().into()).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        (!text.is_empty()).then(|| Reply::read(&text))
    }
}

fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[tokio::test]
async fn a_port_with_tls_serves_those_who_log_in() {
    let certificates = Certificates::new();
    let (node, server, _) = certificates.serve(Mode::Required, ClientCertificates::Optional);
    let flush = |credentials| request(credentials, "POST", "/admin/flush");
    let status =
        async |own, credentials| certificates.ask(&server, own, &flush(credentials)).await.unwrap().status;
    assert_eq!(status(None, "").await, 401);
    assert_eq!(status(None, "anna:wrong").await, 401);
    assert_eq!(status(None, "ben:secret").await, 403);
    assert!(node.calls.lock().unwrap().is_empty());
    assert_eq!(status(None, "anna:secret").await, 200);
    assert_eq!(status(Some("root"), "").await, 200);
    assert_eq!(node.calls.lock().unwrap().len(), 2);
    // Neither is one that another authority vouches for, on either side.
    let other = Certificates::new();
    assert!(other.ask(&server, None, &flush("anna:secret")).await.is_none());
    node.handshake_failed.notified().await;
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(flush("anna:secret").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // It may be reset.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    assert_eq!(node.calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn who_shows_no_certificate_is_not_served_where_one_is_required() {
    let certificates = Certificates::new();
    let (node, server, _) = certificates.serve(Mode::Required, ClientCertificates::Required);
    let flush = request("anna:secret", "POST", "/admin/flush");
    assert!(certificates.ask(&server, None, &flush).await.is_none());
    assert!(node.calls.lock().unwrap().is_empty());
    assert_eq!(certificates.ask(&server, Some("root"), &flush).await.unwrap().status, 200);
}

#[tokio::test]
async fn with_optional_tls_plain_requests_are_served_too() {
    let certificates = Certificates::new();
    let (_, server, _) = certificates.serve(Mode::Optional, ClientCertificates::None);
    let flush = request("anna:secret", "POST", "/admin/flush");
    assert_eq!(exchange(server.address(), flush.as_bytes()).await.status, 200);
    assert_eq!(certificates.ask(&server, None, &flush).await.unwrap().status, 200);
}

#[tokio::test]
async fn the_next_connection_gets_a_certificate_that_was_loaded_again() {
    let (first, second) = (Certificates::new(), Certificates::new());
    let (_, server, encryption) = first.serve(Mode::Required, ClientCertificates::None);
    let health = request("ben:secret", "GET", "/health");
    assert!(first.ask(&server, None, &health).await.is_some());
    assert!(second.ask(&server, None, &health).await.is_none());
    for name in ["node.pem", "node.key"] {
        std::fs::copy(second.path().join(name), first.path().join(name)).unwrap();
    }
    encryption.reload(now_seconds()).unwrap();
    assert!(first.ask(&server, None, &health).await.is_none());
    assert_eq!(second.ask(&server, None, &health).await.unwrap().status, 200);
}

#[tokio::test]
async fn those_who_do_not_log_in_give_way_to_those_who_do() {
    let certificates = Certificates::new();
    let (_, server, _) = certificates.serve(Mode::Required, ClientCertificates::None);
    let mut silent = Vec::new();
    for number in 0..3 * LOGIN_SLOTS {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // The beginning of a handshake, or nothing.
        if number % 2 == 0 {
            stream.write_all(&[0x16, 3, 1]).await.unwrap();
        }
        silent.push(stream);
    }
    let flush = request("anna:secret", "POST", "/admin/flush");
    assert_eq!(certificates.ask(&server, None, &flush).await.unwrap().status, 200);
    let mut ended = Vec::new();
    // It may be reset.
    let _ = silent[0].read_to_end(&mut ended).await;
    assert!(ended.is_empty());
}

#[tokio::test]
async fn an_operation_of_one_who_has_logged_in_does_not_give_way() {
    let (node, server) = start_with(ON_NETWORK);
    let mut draining = TcpStream::connect(server.address()).await.unwrap();
    draining.write_all(request("anna:secret", "POST", "/admin/drain").as_bytes()).await.unwrap();
    node.drain_begun.notified().await;
    let mut silent = Vec::new();
    for _ in 0..2 * LOGIN_SLOTS {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
    }
    assert_eq!(ask_as(&server, "ben:secret", "GET", "/health").await.status, 200);
    node.drain_may_end.notify_one();
    assert_eq!(read_reply(draining).await.status, 200);
}
