//! One complete set of certificates, key and authorities, made into what connections are opened with.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use webpki::{BorrowedCertRevocationList, CertRevocationList};

use crate::error::TlsError;
use crate::files::{self, Files};
use crate::policy::ClientCertificates;
use crate::verifier::{NodeVerifier, ServerVerifier, ShownBy};

/// The connections for which certificates are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Clients connect.
    Clients(ClientCertificates),
    /// Nodes connect to each other. Both show certificates.
    Nodes,
}

/// One complete set of files.
pub struct Material {
    pub server: Arc<ServerConfig>,
    /// For connections that this side makes; only between nodes.
    pub client: Option<Arc<ClientConfig>>,
    /// What checks the certificates of nodes.
    pub(crate) verifier: Option<Arc<ServerVerifier>>,
    /// When the first certificate of the chain expires, in seconds since the Unix epoch.
    pub expires_seconds: i64,
    /// Counts the sets since the start.
    pub number: u64,
}

/// Loads the files.
pub(crate) fn load(files: &Files, purpose: Use, number: u64, now_seconds: i64) -> Result<Material, TlsError> {
    let provider = Arc::new(default_provider());
    let (chain, expires_seconds) = files::chain(&files.certificate, now_seconds)?;
    let certified = certify(&files.certificate, &files.key, &provider, chain)?;
    let authorities = match &files.authorities {
        Some(path) => files::authorities(path, now_seconds)?,
        None => Vec::new(),
    };
    let lists = files.revocations.as_deref().map_or_else(|| Ok(Vec::new()), files::revocations)?;
    let refused = |path: &Path, reason: String| TlsError::Refused { path: path.to_owned(), reason };
    let authorities_path = files.authorities.as_deref().unwrap_or(&files.certificate);
    let asks = match purpose {
        Use::Clients(ClientCertificates::None) => None,
        Use::Clients(ClientCertificates::Optional) => Some(false),
        Use::Clients(ClientCertificates::Required) | Use::Nodes => Some(true),
    };
    let verifier = match purpose {
        Use::Clients(_) => None,
        Use::Nodes => Some(
            ServerVerifier::new(&provider, &authorities, owned(files, &lists)?, ShownBy::Node)
                .map_err(|reason| refused(authorities_path, reason))?,
        ),
    };
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| refused(&files.certificate, error.to_string()))?;
    let builder = match asks {
        None => builder.with_no_client_auth(),
        Some(is_required) => {
            let roots = roots(authorities_path, &authorities)?;
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .with_crls(lists.iter().cloned())
                .allow_unknown_revocation_status();
            let clients = if is_required { clients } else { clients.allow_unauthenticated() };
            let clients = clients.build().map_err(|error| refused(authorities_path, error.to_string()))?;
            let verifier: Arc<dyn ClientCertVerifier> = match &verifier {
                Some(nodes) => Arc::new(NodeVerifier { clients, nodes: nodes.clone() }),
                None => clients,
            };
            builder.with_client_cert_verifier(verifier)
        }
    };
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified.clone()));
    let mut server = builder.with_cert_resolver(resolver.clone());
    if asks.is_some() {
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
    }
    let client = match &verifier {
        None => None,
        Some(verifier) => {
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| refused(&files.certificate, error.to_string()))?;
            let builder = builder.dangerous().with_custom_certificate_verifier(verifier.clone());
            let mut client = builder.with_client_cert_resolver(resolver);
            client.resumption = rustls::client::Resumption::disabled();
            client.enable_sni = false;
            Some(Arc::new(client))
        }
    };
    Ok(Material { server: Arc::new(server), client, verifier, expires_seconds, number })
}

/// The name that the certificate of a host must have: its address, or a DNS name.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).ok()
}

/// The seconds since the epoch by the machine's clock, for the validity of certificates. A clock that is before the epoch counts as at it:
/// no certificate is valid then.
pub fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// What a program connects to nodes with. `own`: its certificate and its key; `checks_name`: whether the certificate of the node must
/// name the host to which the connection is made.
pub fn for_program(
    authorities: &Path,
    own: Option<(&Path, &Path)>,
    checks_name: bool,
    now_seconds: i64,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let refused = |path: &Path, reason: String| TlsError::Refused { path: path.to_owned(), reason };
    let trusted = files::authorities(authorities, now_seconds)?;
    let verifier = ServerVerifier::new(&provider, &trusted, Vec::new(), ShownBy::Server { checks_name })
        .map_err(|reason| refused(authorities, reason))?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(authorities, error.to_string()))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let Some((certificate, key)) = own else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let (chain, _) = files::chain(certificate, now_seconds)?;
    let certified = certify(certificate, key, &provider, chain)?;
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    Ok(Arc::new(builder.with_client_cert_resolver(resolver)))
}

fn certify(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
    chain: Vec<CertificateDer<'static>>,
) -> Result<CertifiedKey, TlsError> {
    CertifiedKey::from_der(chain, files::key(key)?, provider).map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            TlsError::KeyMismatch { key: key.to_owned(), certificate: certificate.to_owned() }
        }
        error => TlsError::Key { path: key.to_owned(), reason: error.to_string() },
    })
}

fn roots(path: &Path, authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| TlsError::Malformed {
            what: "certificate of an authority",
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn owned(
    files: &Files,
    lists: &[CertificateRevocationListDer<'static>],
) -> Result<Vec<CertRevocationList<'static>>, TlsError> {
    let parse = |list: &CertificateRevocationListDer<'static>| {
        BorrowedCertRevocationList::from_der(list)
            .and_then(|list| list.to_owned())
            .map(CertRevocationList::Owned)
    };
    let malformed = |error: webpki::Error| TlsError::Malformed {
        what: "list of revoked certificates",
        path: files.revocations.clone().unwrap_or_default(),
        reason: error.to_string(),
    };
    lists.iter().map(parse).collect::<Result<_, _>>().map_err(malformed)
}
