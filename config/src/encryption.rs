//! The tables of settings about TLS.

use std::path::PathBuf;

use helenus_tls::files::Files;
use helenus_tls::policy::{ClientCertificates, Mode};
use serde::{Deserialize, Serialize};

/// TLS for clients, or for those who administer over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientEncryption {
    pub mode: Mode,
    /// The node's certificate, and after it those between it and its authority, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Of the certificates of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<PathBuf>,
    /// Lists of revoked certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocations: Option<PathBuf>,
    pub client_certificates: ClientCertificates,
}

/// TLS between nodes. Both sides show certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InternodeEncryption {
    pub mode: Mode,
    /// The node's certificate, and after it those between it and its authority, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Of the certificates of other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<PathBuf>,
    /// Lists of revoked certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocations: Option<PathBuf>,
}

impl ClientEncryption {
    /// An example of every part.
    pub(crate) fn example() -> Self {
        Self {
            mode: Mode::Required,
            certificate: Some(PathBuf::from("node.pem")),
            key: Some(PathBuf::from("node.key")),
            authorities: Some(PathBuf::from("authority.pem")),
            revocations: None,
            client_certificates: ClientCertificates::Optional,
        }
    }

    /// The files; `None`: TLS is off.
    pub fn files(&self) -> Option<Files> {
        let present = (self.mode, &self.certificate, &self.key, &self.authorities, &self.revocations);
        files(present)
    }

    /// What is missing.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.mode == Mode::Off {
            return None;
        }
        let asks = self.client_certificates != ClientCertificates::None;
        missing(self.certificate.is_some(), self.key.is_some(), !asks || self.authorities.is_some()).or_else(|| {
            (self.revocations.is_some() && !asks)
                .then_some("`revocations` are of the certificates of clients, which `client_certificates` does not ask for")
        })
    }
}

impl InternodeEncryption {
    /// An example of every part.
    pub(crate) fn example() -> Self {
        Self {
            mode: Mode::Required,
            certificate: Some(PathBuf::from("node.pem")),
            key: Some(PathBuf::from("node.key")),
            authorities: Some(PathBuf::from("authority.pem")),
            revocations: None,
        }
    }

    /// The files; `None`: TLS is off.
    pub fn files(&self) -> Option<Files> {
        files((self.mode, &self.certificate, &self.key, &self.authorities, &self.revocations))
    }

    /// What is missing.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.mode == Mode::Off {
            return None;
        }
        missing(self.certificate.is_some(), self.key.is_some(), self.authorities.is_some())
    }
}

type Parts<'a> = (Mode, &'a Option<PathBuf>, &'a Option<PathBuf>, &'a Option<PathBuf>, &'a Option<PathBuf>);

fn files((mode, certificate, key, authorities, revocations): Parts<'_>) -> Option<Files> {
    if mode == Mode::Off {
        return None;
    }
    Some(Files {
        certificate: certificate.clone()?,
        key: key.clone()?,
        authorities: authorities.clone(),
        revocations: revocations.clone(),
    })
}

fn missing(has_certificate: bool, has_key: bool, has_authorities: bool) -> Option<&'static str> {
    match (has_certificate, has_key, has_authorities) {
        (false, ..) => Some("needs `certificate`, unless `mode` is \"off\""),
        (_, false, _) => Some("needs `key`, the private key of its certificate"),
        (.., false) => Some("needs `authorities`, whose certificates are accepted"),
        _ => None,
    }
}
