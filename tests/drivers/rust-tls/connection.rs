//! How the suite connects: with TLS, and with a login. The server's certificate must be of the authority whose file `CQL_AUTHORITY` names.

use std::env;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use scylla::client::session_builder::SessionBuilder;

pub fn secured(builder: SessionBuilder) -> SessionBuilder {
    let variable = |name| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(variable("CQL_AUTHORITY")).unwrap() {
        authorities.add(certificate.unwrap()).unwrap();
    }
    let tls = ClientConfig::builder().with_root_certificates(authorities).with_no_client_auth();
    builder.user(variable("CQL_USER"), variable("CQL_PASSWORD")).tls_context(Some(Arc::new(tls)))
}
