//! Reads certificates, keys and lists of revoked certificates from PEM files.
//!
//! Every error names the file and what is wrong with it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::error::TlsError;
use crate::names::{Names, date};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

const CERTIFICATE: &str = "certificate";
const AUTHORITY: &str = "certificate of an authority";
const KEY: &str = "private key";
const REVOCATIONS: &str = "list of revoked certificates";

/// Where the files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and after it those between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The certificates of the authorities whose certificates are accepted.
    pub authorities: Option<PathBuf>,
    /// Lists of certificates that are not accepted any more.
    pub revocations: Option<PathBuf>,
}

/// What distinguishes a file from the one that had its name before.
pub(crate) type Stamp = (Option<SystemTime>, u64, u64);

impl Files {
    pub(crate) fn stamps(&self) -> Vec<Option<Stamp>> {
        let paths =
            [Some(&self.certificate), Some(&self.key), self.authorities.as_ref(), self.revocations.as_ref()];
        paths.into_iter().flatten().map(|path| stamp(path)).collect()
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((metadata.modified().ok(), metadata.len(), number))
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { what, path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        let reason = format!("it has {length} bytes, above the limit of {FILE_BYTES_MAX}");
        return Err(TlsError::Malformed { what, path: path.to_owned(), reason });
    }
    std::fs::read(path).map_err(failed)
}

/// All objects of a kind in a file; at least one.
fn objects<T: PemObject>(what: &'static str, path: &Path) -> Result<Vec<T>, TlsError> {
    let text = read(what, path)?;
    let malformed =
        |error: PemError| TlsError::Malformed { what, path: path.to_owned(), reason: error.to_string() };
    let found = T::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(malformed)?;
    if found.is_empty() {
        return Err(TlsError::Missing { what, path: path.to_owned() });
    }
    Ok(found)
}

fn names(what: &'static str, path: &Path, certificate: &CertificateDer<'_>) -> Result<Names, TlsError> {
    Names::of(certificate).map_err(|reason| TlsError::Malformed { what, path: path.to_owned(), reason })
}

/// A chain of certificates that is valid now, and the time at which the first of them expires.
pub fn chain(path: &Path, now_seconds: i64) -> Result<(Vec<CertificateDer<'static>>, i64), TlsError> {
    let chain: Vec<CertificateDer<'static>> = objects(CERTIFICATE, path)?;
    let mut expires_seconds = i64::MAX;
    for certificate in &chain {
        let names = names(CERTIFICATE, path, certificate)?;
        if names.not_after_seconds < now_seconds {
            let until = date(names.not_after_seconds);
            return Err(TlsError::Expired { what: CERTIFICATE, path: path.to_owned(), until });
        }
        if names.not_before_seconds > now_seconds {
            let from = date(names.not_before_seconds);
            return Err(TlsError::NotYetValid { what: CERTIFICATE, path: path.to_owned(), from });
        }
        expires_seconds = expires_seconds.min(names.not_after_seconds);
    }
    Ok((chain, expires_seconds))
}

pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(KEY, path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound => TlsError::Missing { what: KEY, path: path.to_owned() },
        error => TlsError::Malformed { what: KEY, path: path.to_owned(), reason: error.to_string() },
    })
}

/// The authorities that have not expired; at least one. Files of authorities keep old ones beside new ones while certificates are changed.
pub fn authorities(path: &Path, now_seconds: i64) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut valid = Vec::new();
    let mut expired = None;
    for certificate in objects::<CertificateDer<'static>>(AUTHORITY, path)? {
        let until = names(AUTHORITY, path, &certificate)?.not_after_seconds;
        if until < now_seconds {
            expired = Some(date(until));
        } else {
            valid.push(certificate);
        }
    }
    match expired {
        Some(until) if valid.is_empty() => {
            Err(TlsError::Expired { what: AUTHORITY, path: path.to_owned(), until })
        }
        _ => Ok(valid),
    }
}

pub fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    objects(REVOCATIONS, path)
}
