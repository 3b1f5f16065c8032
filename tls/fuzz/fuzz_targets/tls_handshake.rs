//! Whatever a peer sends instead of a handshake: an error or a connection, never a panic, and no memory beyond what is allowed before a
//! handshake is complete. An input is either sent as it is, or says where the bytes of a real handshake are changed, cut or repeated.
#![no_main]

use std::io::Cursor;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use helenus_tls::authority::{Holder, Kind, init, issue};
use helenus_tls::encryption::Encryption;
use helenus_tls::files::Files;
use helenus_tls::material::{Material, Use};
use helenus_tls::policy::ClientCertificates;
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

/// Flights of a complete handshake, and some more.
const FLIGHTS: usize = 8;

struct Sides {
    nodes: Arc<Material>,
    clients: Vec<Arc<Material>>,
}

static SIDES: LazyLock<Sides> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let authority = init(directory.path(), "authority", now_seconds, 10).unwrap();
    let holder = Holder {
        name: "node".to_owned(),
        addresses: vec!["127.0.0.1".parse().unwrap()],
        kind: Kind::Node,
        ..Holder::default()
    };
    let issued = issue(directory.path(), &holder, now_seconds, 10).unwrap();
    let open = |purpose| {
        let files = Files {
            certificate: issued.certificate.clone(),
            key: issued.key.clone(),
            authorities: Some(authority.certificate.clone()),
            revocations: None,
        };
        Encryption::open(files, purpose, now_seconds).unwrap().material()
    };
    let asked = [ClientCertificates::None, ClientCertificates::Optional, ClientCertificates::Required];
    Sides { nodes: open(Use::Nodes), clients: asked.map(|asked| open(Use::Clients(asked))).to_vec() }
});

/// Gives bytes to one side, and returns whether it goes on.
fn take(side: &mut Connection, bytes: &[u8]) -> bool {
    let mut rest = Cursor::new(bytes);
    while (rest.position() as usize) < bytes.len() {
        match side.read_tls(&mut rest) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        if side.process_new_packets().is_err() {
            return false;
        }
    }
    true
}

fn sent(side: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while side.wants_write() && side.write_tls(&mut bytes).is_ok() {}
    bytes
}

/// A handshake whose flights are changed: each by four bytes of `edits` (what is done, and where).
fn shake_hands(server: &Arc<Material>, edits: &[u8]) {
    let config = SIDES.nodes.client.clone().unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut sides = [
        Connection::Client(ClientConnection::new(config, name).unwrap()),
        Connection::Server(ServerConnection::new(server.server.clone()).unwrap()),
    ];
    let mut edits = edits.chunks_exact(4);
    for flight in 0..FLIGHTS {
        let mut bytes = sent(&mut sides[flight % 2]);
        if let (Some(edit), false) = (edits.next(), bytes.is_empty()) {
            let place = usize::from(u16::from_be_bytes([edit[1], edit[2]])) % bytes.len();
            match edit[0] % 5 {
                0 => {}
                1 => bytes[place] ^= edit[3],
                2 => bytes.truncate(place),
                3 => bytes.extend_from_within(place..),
                _ => bytes.insert(place, edit[3]),
            }
        }
        if !take(&mut sides[(flight + 1) % 2], &bytes) {
            return;
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    let servers = &SIDES.clients;
    let server = servers.get(usize::from(*kind >> 1) % (servers.len() + 1)).unwrap_or(&SIDES.nodes);
    if kind & 1 == 0 {
        take(&mut Connection::Server(ServerConnection::new(server.server.clone()).unwrap()), rest);
    } else {
        shake_hands(server, rest);
    }
});
