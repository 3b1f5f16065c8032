//! Links with TLS: whose certificates make one, and the modes of the two sides.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use helenus_tls::authority::{self, Holder};
use helenus_tls::encryption::Encryption;
use helenus_tls::files::Files;
use helenus_tls::material::Use;
use helenus_tls::policy::Mode;
use tempfile::TempDir;

use super::*;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        authority::init(place.0.path(), "test", now(), 30).unwrap();
        place
    }

    /// The certificate of a node that names a host id, or else an address.
    fn certificate(&self, name: &str, host_id: Option<u128>, address: &str) -> Arc<Encryption> {
        let holder = Holder {
            name: name.to_owned(),
            host_id: host_id.map(|id| Uuid::from_u128(id).to_string()),
            addresses: vec![address.parse::<IpAddr>().unwrap()],
            ..Holder::default()
        };
        let issued = authority::issue(self.0.path(), &holder, now(), 10).unwrap();
        let files = Files {
            certificate: issued.certificate,
            key: issued.key,
            authorities: Some(self.0.path().join("authority.pem")),
            revocations: None,
        };
        Arc::new(Encryption::open(files, Use::Nodes, now()).unwrap())
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// What comes of a request of node 2 to node 1, and whether it went over an encrypted link.
async fn call(
    server: Option<LinkEncryption>,
    client: Option<LinkEncryption>,
) -> (Result<Bytes, CallError>, bool) {
    let node = Node::start_with(local(1), options(), None, server).await;
    let metrics = Arc::new(InternodeMetrics::default());
    let clock = Rc::new(RealClock::new());
    let transport = TcpTransport::new(Arc::new(local(2)), options(), client, clock, 7, metrics.clone());
    let answer = transport.call(node.shard(1), data("hello"), LONG).await;
    let is_encrypted = metrics.encrypted_links.get() > 0;
    node.stop().await;
    (answer, is_encrypted)
}

#[test]
fn links_are_encrypted_as_the_modes_of_both_sides_say() {
    run(async {
        let place = Place::new();
        let (one, two) =
            (place.certificate("one", Some(1), "10.0.0.1"), place.certificate("two", None, "127.0.0.1"));
        let [off, optional, required] = [Mode::Off, Mode::Optional, Mode::Required];
        for (server, client, expected) in [
            (off, off, Some(false)),
            (off, optional, Some(false)),
            (off, required, None),
            (optional, off, Some(false)),
            (optional, optional, Some(true)),
            (optional, required, Some(true)),
            (required, off, None),
            (required, optional, Some(true)),
            (required, required, Some(true)),
        ] {
            let (answer, is_encrypted) =
                call(LinkEncryption::new(server, one.clone()), LinkEncryption::new(client, two.clone()))
                    .await;
            let made = answer.is_ok().then_some(is_encrypted);
            assert_eq!(made, expected, "{server:?} {client:?}: {answer:?}");
        }
    });
}

#[test]
fn who_has_another_nodes_certificate_or_a_foreign_one_gets_no_link() {
    run(async {
        let (place, foreign) = (Place::new(), Place::new());
        let required = |encryption| LinkEncryption::new(Mode::Required, encryption);
        let one = place.certificate("one", Some(1), "127.0.0.1");
        let other = place.certificate("three", Some(3), "127.0.0.1");
        let elsewhere = place.certificate("elsewhere", None, "10.0.0.1");
        let stranger = foreign.certificate("two", Some(2), "127.0.0.1");
        for wrong in [other, elsewhere, stranger] {
            for (server, client) in [(one.clone(), wrong.clone()), (wrong.clone(), one.clone())] {
                let (answer, _) = call(required(server), required(client)).await;
                assert!(answer.is_err(), "{answer:?}");
            }
        }
        let (answer, _) = call(required(one.clone()), None).await;
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("links must be encrypted"), "{error}");
    });
}

#[test]
fn large_requests_and_many_at_once_go_over_an_encrypted_link() {
    run(async {
        let place = Place::new();
        let one = LinkEncryption::new(Mode::Required, place.certificate("one", Some(1), "127.0.0.1"));
        let two = LinkEncryption::new(Mode::Required, place.certificate("two", Some(2), "127.0.0.1"));
        let node = Node::start_with(local(1), options(), None, one).await;
        let clock = Rc::new(RealClock::new());
        let metrics = Arc::new(InternodeMetrics::default());
        let transport = TcpTransport::new(Arc::new(local(2)), options(), two, clock, 7, metrics);
        let payload =
            |number: usize| vec![number as u8; if number.is_multiple_of(10) { 3 << 20 } else { 100 }];
        let calls = (0..100).map(|number| transport.call(node.shard(1), data(payload(number)), LONG));
        for (number, answer) in join_all(calls).await.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), payload(number));
        }
        node.stop().await;
    });
}
