//! What is wrong with files of certificates and keys, and with peers.

use std::io;
use std::path::PathBuf;

/// The reason why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: the {what} cannot be read: {source}")]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{path}: there is no {what} in PEM in it")]
    Missing { what: &'static str, path: PathBuf },
    #[error("{path}: the {what} is malformed: {reason}")]
    Malformed { what: &'static str, path: PathBuf, reason: String },
    #[error("{key}: the key does not belong to the certificate in {certificate}")]
    KeyMismatch { key: PathBuf, certificate: PathBuf },
    #[error("{path}: the {what} has expired (valid until {until})")]
    Expired { what: &'static str, path: PathBuf, until: String },
    #[error("{path}: the {what} is not valid yet (valid from {from})")]
    NotYetValid { what: &'static str, path: PathBuf, from: String },
    #[error("{path}: the key cannot be used: {reason}")]
    Key { path: PathBuf, reason: String },
    #[error("{path}: {reason}")]
    Refused { path: PathBuf, reason: String },
    #[error("{path}: it cannot be written: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path}: it is there already, and is not overwritten")]
    Exists { path: PathBuf },
    #[error("the certificate cannot be made: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("'{0}' cannot be named in a certificate")]
    Name(String),
}
