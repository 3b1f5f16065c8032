//! Which node to connect to, as whom, and how long to wait for it.

use std::path::PathBuf;
use std::time::Duration;

/// The target of a connection, and how to connect.
#[derive(Debug, Clone)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub username: Option<String>,
    pub password: Option<String>,
    pub keyspace: Option<String>,
    pub connect_timeout: Duration,
    /// A node that refuses connections is taken for one that is starting, until the time to connect is over.
    pub awaits_start: bool,
    pub request_timeout: Duration,
    /// `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
}

/// The files for TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificates of the authorities that vouch for nodes.
    pub authorities: PathBuf,
    /// The certificate of the user, with its key.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Whether the certificate of the node must name the host.
    pub checks_name: bool,
}

/// `host:port`, with brackets around an IPv6 address.
pub fn format_address(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ipv6_get_brackets() {
        assert_eq!(format_address("localhost", 9042), "localhost:9042");
        assert_eq!(format_address("::1", 9042), "[::1]:9042");
    }
}
