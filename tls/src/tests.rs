//! Files wrong in each way, and handshakes of peers wrong in each way.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::{self, Holder, Kind};
use crate::encryption::Encryption;
use crate::error::TlsError;
use crate::files::Files;
use crate::material::Use;
use crate::policy::ClientCertificates;
use crate::stream::{self, Stream};
use crate::verifier::{ServerVerifier, ShownBy};

const DAY_SECONDS: i64 = 24 * 60 * 60;
const IDENTITY: &str = "spiffe://shop/alice";

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// An authority in a directory, with the certificate of a node.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self::of("test")
    }

    fn of(authority: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        authority::init(place.path(), authority, now(), 30).unwrap();
        place.issue("node", now(), 10);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn issue(&self, name: &str, now_seconds: i64, days: i64) -> Files {
        let holder = Holder {
            name: name.to_owned(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            identity: Some(IDENTITY.to_owned()),
            kind: Kind::Node,
            ..Holder::default()
        };
        authority::issue(self.path(), &holder, now_seconds, days).unwrap();
        self.files(name)
    }

    fn files(&self, name: &str) -> Files {
        Files {
            certificate: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}.key")),
            authorities: Some(self.file("authority.pem")),
            revocations: None,
        }
    }

    fn nodes(&self, name: &str) -> Encryption {
        Encryption::open(self.files(name), Use::Nodes, now()).unwrap()
    }
}

fn refused(files: Files) -> TlsError {
    Encryption::open(files, Use::Nodes, now()).err().unwrap()
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_name() {
    let place = Place::new();
    let good = place.files("node");
    let absent = place.file("absent.pem");
    let error = refused(Files { certificate: absent.clone(), ..good.clone() });
    assert!(matches!(&error, TlsError::Read { path, .. } if *path == absent), "{error}");
    let error = refused(Files { certificate: good.key.clone(), ..good.clone() });
    assert!(
        matches!(&error, TlsError::Missing { what: "certificate", path } if *path == good.key),
        "{error}"
    );
    let error = refused(Files { key: good.certificate.clone(), ..good.clone() });
    assert!(matches!(&error, TlsError::Missing { what: "private key", .. }), "{error}");
    let other = place.issue("other", now(), 10);
    let error = refused(Files { key: other.key.clone(), ..good.clone() });
    assert!(matches!(&error, TlsError::KeyMismatch { key, .. } if *key == other.key), "{error}");
    let old = place.issue("old", now() - 20 * DAY_SECONDS, 10);
    let error = refused(old.clone());
    assert!(matches!(&error, TlsError::Expired { path, .. } if *path == old.certificate), "{error}");
    assert!(error.to_string().contains("old.pem: the certificate has expired (valid until 2"), "{error}");
    let future = place.issue("future", now() + 20 * DAY_SECONDS, 10);
    assert!(matches!(refused(future), TlsError::NotYetValid { .. }));
    let garbage = place.file("garbage.pem");
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for files in [
        Files { certificate: garbage.clone(), ..good.clone() },
        Files { authorities: Some(garbage.clone()), ..good.clone() },
        Files { revocations: Some(garbage.clone()), ..good.clone() },
    ] {
        let error = refused(files);
        assert!(error.to_string().starts_with(&garbage.display().to_string()), "{error}");
    }
    Encryption::open(good, Use::Nodes, now()).unwrap();
}

#[cfg(unix)]
#[test]
fn keys_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    for name in ["authority.key", "node.key"] {
        let mode = std::fs::metadata(place.file(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn changed_files_are_loaded_and_broken_ones_leave_the_former() {
    let place = Place::new();
    let encryption = place.nodes("node");
    assert!(!encryption.reload_if_changed(now()).unwrap());
    let first = encryption.material();
    let next = place.issue("next", now(), 20);
    std::fs::rename(&next.certificate, place.file("node.pem")).unwrap();
    assert!(matches!(encryption.reload_if_changed(now()), Err(TlsError::KeyMismatch { .. })));
    assert!(!encryption.reload_if_changed(now()).unwrap(), "it is told once");
    assert_eq!(encryption.material().number, first.number);
    std::fs::rename(&next.key, place.file("node.key")).unwrap();
    assert!(encryption.reload_if_changed(now()).unwrap());
    let second = encryption.material();
    assert!(second.number > first.number && second.expires_seconds > first.expires_seconds);
    std::fs::remove_file(place.file("node.pem")).unwrap();
    assert!(matches!(encryption.reload_if_changed(now()), Err(TlsError::Read { .. })));
    assert_eq!(encryption.material().number, second.number);
}

#[test]
fn an_expiry_is_told_when_each_threshold_is_passed() {
    let place = Place::new();
    let encryption = place.nodes("node");
    let day = |days: i64| now() + days * DAY_SECONDS;
    assert_eq!(encryption.take_expiry_hint(day(-40)), None);
    assert!(encryption.take_expiry_hint(day(0)).is_some(), "30 days before");
    assert_eq!(encryption.take_expiry_hint(day(1)), None);
    assert!(encryption.take_expiry_hint(day(4)).is_some(), "7 days before");
    assert!(encryption.take_expiry_hint(day(9) + 60).is_some(), "1 day before");
    assert!(encryption.take_expiry_hint(day(11)).unwrap() < 0);
    assert_eq!(encryption.take_expiry_hint(day(12)), None);
}

/// Both ends of a connection, each with the outcome of its handshake and of the first exchange.
async fn meet(
    server: &Encryption,
    client: &Encryption,
) -> (std::io::Result<Stream>, std::io::Result<Stream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (server, client) = (server.material(), client.material());
    let serve = async {
        let mut stream = stream::accept(accepted, &server).await?;
        stream.write_all(b"ready").await?;
        stream.flush().await?;
        Ok(stream)
    };
    let connect = async {
        let mut stream = stream::connect(socket, &client).await?;
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).await?;
        Ok(stream)
    };
    tokio::join!(serve, connect)
}

#[tokio::test(flavor = "current_thread")]
async fn peers_with_certificates_of_the_authority_meet() {
    let place = Place::new();
    place.issue("other", now(), 5);
    let (server, client) = meet(&place.nodes("node"), &place.nodes("other")).await;
    let (server, client) = (server.unwrap(), client.unwrap());
    let names = server.peer_names().unwrap();
    assert_eq!(names.identity(), Some(IDENTITY));
    assert_eq!(names.common_name.as_deref(), Some("other"));
    assert_eq!(client.peer_names().unwrap().common_name.as_deref(), Some("node"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_foreign_an_expired_and_a_revoked_certificate_are_refused_by_either_side() {
    let (place, foreign) = (Place::new(), Place::of("foreign"));
    let good = place.nodes("node");
    let (server, client) = meet(&good, &foreign.nodes("node")).await;
    assert!(server.is_err() && client.is_err());
    // One side trusts both authorities: the other one refuses it.
    let both = std::fs::read_to_string(place.file("authority.pem")).unwrap()
        + &std::fs::read_to_string(foreign.file("authority.pem")).unwrap();
    std::fs::write(foreign.file("authority.pem"), both).unwrap();
    let trusting = foreign.nodes("node");
    let (server, client) = meet(&good, &trusting).await;
    assert!(server.unwrap_err().to_string().contains("UnknownIssuer") && client.is_err());
    let (server, client) = meet(&trusting, &good).await;
    assert!(client.unwrap_err().to_string().contains("UnknownIssuer") && server.is_err());
    // It was valid when it was loaded.
    let past = now() - 20 * DAY_SECONDS;
    let expired = Encryption::open(place.issue("expired", past, 10), Use::Nodes, past).unwrap();
    let (server, client) = meet(&good, &expired).await;
    assert!(server.unwrap_err().to_string().contains("xpired") && client.is_err());
    let (server, client) = meet(&expired, &good).await;
    assert!(client.unwrap_err().to_string().contains("xpired") && server.is_err());

    place.issue("revoked", now(), 5);
    let revoked = place.nodes("revoked");
    let (server, client) = meet(&good, &revoked).await;
    let (server, client) = (server.unwrap(), client.unwrap());
    let path = place.file("revocations.pem");
    std::fs::write(&path, revocation_of(&place, "revoked")).unwrap();
    let strict = Files { revocations: Some(path.clone()), ..place.files("node") };
    let strict = Encryption::open(strict, Use::Nodes, now()).unwrap();
    let (refusing, _) = meet(&strict, &revoked).await;
    assert!(refusing.unwrap_err().to_string().contains("Revoked"));
    let (_, refusing) = meet(&revoked, &strict).await;
    assert!(refusing.unwrap_err().to_string().contains("Revoked"));
    // Connections that were made before end once the list is known.
    assert_eq!(good.objection(&server, now()), None);
    strict.reload(now()).unwrap();
    for connection in [server, client] {
        let objection = strict.objection(&connection, now());
        let is_of_the_revoked = connection.peer_names().unwrap().common_name.as_deref() == Some("revoked");
        assert_eq!(objection.is_some(), is_of_the_revoked, "{objection:?}");
        let objection = strict.objection(&connection, now() + 30 * DAY_SECONDS).unwrap();
        assert!(objection.contains("valid until"), "{objection}");
    }
}

/// A certificate of a client opens no link between nodes, whichever side connects, although it names the address of the other side.
#[tokio::test(flavor = "current_thread")]
async fn a_certificate_that_is_for_clients_alone_is_refused_between_nodes() {
    let place = Place::new();
    let holder = Holder {
        name: "client".to_owned(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        kind: Kind::Client,
        ..Holder::default()
    };
    authority::issue(place.path(), &holder, now(), 10).unwrap();
    let (node, client) = (place.nodes("node"), place.nodes("client"));
    let (accepting, connecting) = meet(&node, &client).await;
    let refusal = accepting.unwrap_err().to_string();
    assert!(refusal.contains("RequiredEkuNotFound"), "{refusal}");
    assert!(connecting.is_err());
    let (accepting, connecting) = meet(&client, &node).await;
    let refusal = connecting.unwrap_err().to_string();
    assert!(accepting.is_err() && refusal.contains("RequiredEkuNotFound"), "{refusal}");
}

/// A list of the authority with one certificate.
fn revocation_of(place: &Place, name: &str) -> String {
    use rcgen::{
        CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
    };
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use x509_parser::prelude::{FromDer, X509Certificate};
    let certificate = CertificateDer::from_pem_file(place.file(&format!("{name}.pem"))).unwrap();
    let (_, parsed) = X509Certificate::from_der(&certificate).unwrap();
    let time = |days: i64| time::OffsetDateTime::from_unix_timestamp(now() + days * DAY_SECONDS).unwrap();
    let key = KeyPair::from_pem(&std::fs::read_to_string(place.file("authority.key")).unwrap()).unwrap();
    let text = std::fs::read_to_string(place.file("authority.pem")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&text, key).unwrap();
    let params = CertificateRevocationListParams {
        this_update: time(-1),
        next_update: time(5),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from_slice(parsed.raw_serial()),
            revocation_time: time(-1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(&issuer).unwrap().pem().unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_certificate_is_asked_for_as_the_settings_say() {
    let place = Place::new();
    let anonymous = {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let roots = crate::files::authorities(&place.file("authority.pem"), now()).unwrap();
        let shown_by = ShownBy::Server { checks_name: true };
        let verifier = ServerVerifier::new(&provider, &roots, Vec::new(), shown_by).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    };
    let anonymous = std::sync::Arc::new(anonymous);
    for (asked, is_served) in [
        (ClientCertificates::None, true),
        (ClientCertificates::Optional, true),
        (ClientCertificates::Required, false),
    ] {
        let server = Encryption::open(place.files("node"), Use::Clients(asked), now()).unwrap().material();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let connecting = stream::connect_to(socket, anonymous.clone(), address.ip().into());
        let (server, _client) = tokio::join!(stream::accept(accepted, &server), connecting);
        assert_eq!(server.is_ok(), is_served, "{asked:?}");
        assert!(server.is_err() || server.unwrap().peer_names().is_none());
    }
}

/// Many bytes go both ways at once, through sockets that take a part of them only.
#[tokio::test(flavor = "current_thread")]
async fn bytes_arrive_in_order_whatever_the_socket_takes() {
    const BYTES: usize = 6 << 20;
    let byte = |at: usize| (at * 31 / 7) as u8;
    let place = Place::new();
    let nodes = place.nodes("node");
    let (server, client) = meet(&nodes, &nodes).await;
    let exchange = async |stream: Stream| {
        let sent: Vec<u8> = (0..BYTES).map(byte).collect();
        let (mut written, mut received, mut largest) = (0, 0, 0);
        let mut input = BytesMut::new();
        while written < BYTES || received < BYTES || stream.has_unsent() {
            if written < BYTES {
                match stream.try_write(&sent[written..(written + 300_000).min(BYTES)]) {
                    Ok(count) => written += count,
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            match stream.try_read_buf(&mut input) {
                Ok(count) => {
                    assert!(count > 0, "the other side is there");
                    assert!(input.iter().enumerate().all(|(at, found)| *found == byte(received + at)));
                    received += count;
                    largest = largest.max(input.len());
                    input.clear();
                    continue;
                }
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            let is_written = written == BYTES && !stream.has_unsent();
            let interest = match (received < BYTES, is_written) {
                (true, true) => Interest::READABLE,
                (true, false) => Interest::READABLE | Interest::WRITABLE,
                (false, _) => Interest::WRITABLE,
            };
            if received < BYTES || !is_written {
                stream.ready(interest).await.unwrap();
            }
        }
        assert!(largest <= 64 << 10, "{largest}");
        stream
    };
    let (server, client) = tokio::join!(exchange(server.unwrap()), exchange(client.unwrap()));
    server.close();
    let mut input = BytesMut::new();
    client.ready(Interest::READABLE).await.unwrap();
    assert_eq!(client.try_read_buf(&mut input).unwrap(), 0);
    drop(client);
}

#[tokio::test(flavor = "current_thread")]
async fn a_stream_goes_to_another_runtime_with_what_it_has_read() {
    let place = Place::new();
    let nodes = place.nodes("node");
    let (server, client) = meet(&nodes, &nodes).await;
    let (mut server, mut client) = (server.unwrap(), client.unwrap());
    server.write_all(b"one two").await.unwrap();
    server.flush().await.unwrap();
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes).await.unwrap();
    let mut client = client.detach().unwrap().attach().unwrap();
    let mut rest = [0; 3];
    client.read_exact(&mut rest).await.unwrap();
    assert_eq!((&bytes, &rest), (b"one ", b"two"));
    assert_eq!(client.peer_names().unwrap().common_name.as_deref(), Some("node"));
}

#[tokio::test(flavor = "current_thread")]
async fn garbage_and_half_handshakes_end_with_an_error() {
    let place = Place::new();
    let server = place.nodes("node").material();
    let record = |length: usize| {
        // A record of a handshake: a ClientHello that announces the most bytes.
        let mut bytes = vec![0x16, 3, 1, (length >> 8) as u8, length as u8];
        bytes.extend_from_slice(&[1, 0, 0xff, 0xff]);
        bytes.resize(5 + length, 0);
        bytes
    };
    for sent in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0x16; 300],
        vec![0xff; 70_000],
        record(16_000)[..9_000].to_vec(),
        (0..6).flat_map(|_| record(16_000)).collect(),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let length = sent.len();
        let sending = async {
            // It may be refused before it has sent everything.
            let _ = socket.write_all(&sent).await;
            let _ = socket.shutdown().await;
        };
        let accepting = tokio::time::timeout(Duration::from_secs(20), stream::accept(accepted, &server));
        let (accepted, ()) = tokio::join!(accepting, sending);
        assert!(accepted.unwrap().is_err(), "{length} bytes");
    }
}
