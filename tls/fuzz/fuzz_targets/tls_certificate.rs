//! Whatever a peer shows as its certificate: names or an error, never a panic. An input is the certificate itself, or places in a real one
//! and the bytes that stand there instead.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use helenus_tls::authority::{Holder, Kind, init, issue};
use helenus_tls::names::Names;
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const NOW_SECONDS: i64 = 1_800_000_000;

static CERTIFICATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    real(directory.path())
});

fn real(directory: &Path) -> Vec<u8> {
    init(directory, "authority", NOW_SECONDS, 10).unwrap();
    let holder = Holder {
        name: "node".to_owned(),
        host_id: Some("0e0b6a4e-5a3c-4d0e-9d52-6f9f1e3f0a11".to_owned()),
        dns: vec!["node.example".to_owned()],
        addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        identity: Some("spiffe://example/node".to_owned()),
        kind: Kind::Node,
    };
    let issued = issue(directory, &holder, NOW_SECONDS, 10).unwrap();
    CertificateDer::from_pem_file(issued.certificate).unwrap().to_vec()
}

fn look_at(der: Vec<u8>) {
    if let Ok(names) = Names::of(&CertificateDer::from(der)) {
        let _ = names.identity();
        assert!(names.host_ids().all(|id| id == id.to_ascii_lowercase()));
        assert!(names.machines().all(|name| !name.contains('*')));
    }
}

fuzz_target!(|input: &[u8]| {
    look_at(input.to_vec());
    let mut changed = CERTIFICATE.clone();
    for edit in input.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % changed.len();
        changed[place] = edit[2];
    }
    look_at(changed);
});
