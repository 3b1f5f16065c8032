//! An own authority in a directory, for those who have none: its key, its certificate, and certificates for nodes and clients.
//!
//! | file | what |
//! |---|---|
//! | `authority.pem` | certificate of the authority: `authorities` in the settings |
//! | `authority.key` | its key; whoever has it makes certificates that every node accepts |
//! | `NAME.pem`, `NAME.key` | certificate and key of a node or client |
//!
//! Invariants: keys are readable by their owner only, and no file is overwritten.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::error::TlsError;

const AUTHORITY: &str = "authority";
/// Clocks of machines differ: certificates are valid from this time before they were made.
const CLOCK_DIFFERENCE: Duration = Duration::hours(1);

/// Whom a certificate is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The name of its files.
    pub name: String,
    /// Of a node, as text.
    pub host_id: Option<String>,
    pub dns: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// Of a client: `spiffe://DOMAIN/NAME`.
    pub identity: Option<String>,
    pub kind: Kind,
}

/// What a certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// By nodes: for clients, and for each other.
    #[default]
    Node,
    /// By clients.
    Client,
}

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

fn paths(directory: &Path, name: &str) -> Issued {
    Issued { certificate: directory.join(format!("{name}.pem")), key: directory.join(format!("{name}.key")) }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn valid_for(params: &mut CertificateParams, now_seconds: i64, days: i64) {
    let now = OffsetDateTime::from_unix_timestamp(now_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    params.not_before = now - CLOCK_DIFFERENCE;
    params.not_after = now + Duration::days(days);
}

/// Makes an authority in a directory, which is made if it is missing.
pub fn init(directory: &Path, name: &str, now_seconds: i64, days: i64) -> Result<Issued, TlsError> {
    let files = paths(directory, AUTHORITY);
    std::fs::create_dir_all(directory)
        .map_err(|source| TlsError::Write { path: directory.to_owned(), source })?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid_for(&mut params, now_seconds, days);
    let certificate = params.self_signed(&key)?;
    write(&files, &certificate.pem(), &key)?;
    Ok(files)
}

/// Makes a certificate of the authority in a directory.
pub fn issue(directory: &Path, holder: &Holder, now_seconds: i64, days: i64) -> Result<Issued, TlsError> {
    let name = &holder.name;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.starts_with('.') || name == AUTHORITY || !name.bytes().all(is_plain) {
        return Err(TlsError::Name(name.clone()));
    }
    let authority = paths(directory, AUTHORITY);
    let read = |what: &'static str, path: &Path| {
        std::fs::read_to_string(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
    };
    let malformed = |what: &'static str, path: &Path, error: rcgen::Error| TlsError::Malformed {
        what,
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let key = KeyPair::from_pem(&read("key of the authority", &authority.key)?)
        .map_err(|error| malformed("key of the authority", &authority.key, error))?;
    let text = read("certificate of the authority", &authority.certificate)?;
    let issuer = Issuer::from_ca_cert_pem(&text, key)
        .map_err(|error| malformed("certificate of the authority", &authority.certificate, error))?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = named(name);
    params.subject_alt_names = alternatives(holder)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match holder.kind {
        Kind::Node => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Kind::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, now_seconds, days);
    let own = KeyPair::generate()?;
    let certificate = params.signed_by(&own, &issuer)?;
    let files = paths(directory, name);
    write(&files, &certificate.pem(), &own)?;
    Ok(files)
}

fn alternatives(holder: &Holder) -> Result<Vec<SanType>, TlsError> {
    let text = |text: &str| text.to_owned().try_into().map_err(|_| TlsError::Name(text.to_owned()));
    let mut names = Vec::new();
    if let Some(host_id) = &holder.host_id {
        names.push(SanType::URI(text(&format!("urn:uuid:{host_id}"))?));
    }
    if let Some(identity) = &holder.identity {
        if !identity.starts_with("spiffe://") {
            return Err(TlsError::Name(identity.clone()));
        }
        names.push(SanType::URI(text(identity)?));
    }
    for name in &holder.dns {
        names.push(SanType::DnsName(text(name)?));
    }
    names.extend(holder.addresses.iter().copied().map(SanType::IpAddress));
    Ok(names)
}

/// Writes a certificate and its key; neither if either is there already.
fn write(files: &Issued, certificate: &str, key: &KeyPair) -> Result<(), TlsError> {
    for path in [&files.key, &files.certificate] {
        if path.exists() {
            return Err(TlsError::Exists { path: path.clone() });
        }
    }
    create(&files.key, &key.serialize_pem(), 0o600)?;
    create(&files.certificate, certificate, 0o644)
}

fn create(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let failed = |source| TlsError::Write { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}
