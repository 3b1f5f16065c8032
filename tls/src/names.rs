//! Whom a certificate names, and how long it is valid.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The scheme of a SPIFFE identity.
const SPIFFE: &str = "spiffe";
/// What a host id begins with in a URI.
const URN_UUID: &str = "urn:uuid:";
/// The length of a host id as text.
const UUID_CHARACTERS: usize = 36;

/// The names and the times of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub common_name: Option<String>,
    pub uris: Vec<String>,
    /// In lower case.
    pub dns: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// In seconds since the Unix epoch.
    pub not_before_seconds: i64,
    /// In seconds since the Unix epoch.
    pub not_after_seconds: i64,
}

impl Names {
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
        let common_name = parsed.subject().iter_common_name().next();
        let mut names = Self {
            common_name: common_name.and_then(|name| name.as_str().ok()).map(str::to_owned),
            not_before_seconds: parsed.validity().not_before.timestamp(),
            not_after_seconds: parsed.validity().not_after.timestamp(),
            ..Self::default()
        };
        let alternatives = parsed.subject_alternative_name().map_err(|error| error.to_string())?;
        for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Ok(names)
    }

    /// The identity of a client, which may be mapped to a role: the first SPIFFE URI, as with Cassandra's `SpiffeCertificateValidator`.
    pub fn identity(&self) -> Option<&str> {
        self.uris.iter().map(String::as_str).find(|uri| uri.starts_with(SPIFFE))
    }

    /// The host ids that it names: as `urn:uuid:...`, or as a DNS name. In lower case.
    pub fn host_ids(&self) -> impl Iterator<Item = String> {
        let uris = self.uris.iter().filter_map(|uri| {
            let head = uri.get(..URN_UUID.len())?;
            head.eq_ignore_ascii_case(URN_UUID).then(|| uri[URN_UUID.len()..].to_ascii_lowercase())
        });
        uris.chain(self.dns.iter().filter(|name| is_host_id(name)).cloned())
    }

    /// The DNS names of machines.
    pub fn machines(&self) -> impl Iterator<Item = &str> {
        self.dns.iter().filter(|name| !is_host_id(name) && !name.contains('*')).map(String::as_str)
    }
}

fn is_host_id(name: &str) -> bool {
    name.len() == UUID_CHARACTERS
        && name.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// A time for people.
pub fn date(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ids_are_told_from_names_of_machines() {
        let id = "00112233-4455-6677-8899-aabbccddeeff";
        let names = Names {
            uris: vec![format!("URN:uuid:{}", id.to_ascii_uppercase()), "spiffe://a/b".to_owned()],
            dns: vec![id.replace('0', "1"), "db-1.example".to_owned(), "*.example".to_owned()],
            ..Names::default()
        };
        assert_eq!(names.host_ids().collect::<Vec<_>>(), [id.to_owned(), id.replace('0', "1")]);
        assert_eq!(names.machines().collect::<Vec<_>>(), ["db-1.example"]);
        assert_eq!(names.identity(), Some("spiffe://a/b"));
    }

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
    }
}
