//! The node that a replay asks: its address, the role that logs in there, and TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helenus_tls::error::TlsError;
use helenus_tls::material;
use helenus_tls::stream::{self, Stream};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

/// The port of the native protocol.
const PORT: u16 = 9042;

/// Where and how requests are replayed.
#[derive(Clone)]
pub(crate) struct Target {
    /// Host and port.
    pub address: String,
    /// Name and password.
    pub credentials: Option<(String, String)>,
    pub connections: usize,
    /// `None`: connections are plain.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Files for TLS, and whether the certificate of the node must name its host.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct TlsArguments {
    /// Encrypts connections with TLS.
    #[arg(long, requires = "authorities")]
    ssl: bool,
    /// PEM file with the authorities that vouch for nodes.
    #[arg(long, value_name = "FILE", env = "SSL_CERTFILE")]
    authorities: Option<PathBuf>,
    /// PEM file with a certificate that is shown to the node.
    #[arg(long, value_name = "FILE", requires_all = ["ssl", "key"])]
    certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Accepts a certificate of the authorities for any name.
    #[arg(long, requires = "ssl")]
    any_name: bool,
}

impl TlsArguments {
    /// What connections are made with; `None`: they are plain.
    pub fn load(&self) -> Result<Option<Arc<ClientConfig>>, TlsError> {
        let Some(authorities) = self.authorities.as_deref().filter(|_| self.ssl) else { return Ok(None) };
        let own = self.certificate.as_deref().zip(self.key.as_deref());
        let own: Option<(&Path, &Path)> = own;
        material::for_program(authorities, own, !self.any_name, material::now_seconds()).map(Some)
    }
}

/// Host and port of a node that is named with or without a port.
pub(crate) fn address(named: &str) -> String {
    let has_port = named.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    match named {
        named if has_port => named.to_owned(),
        named if named.contains(':') && !named.starts_with('[') => format!("[{named}]:{PORT}"),
        named => format!("{named}:{PORT}"),
    }
}

impl Target {
    /// Makes a connection.
    pub async fn connect(&self) -> io::Result<Stream> {
        let socket = TcpStream::connect(&self.address).await?;
        socket.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        stream::connect_to(socket, config.clone(), name).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_with_or_without_a_port() {
        for (named, expected) in [
            ("db", "db:9042"),
            ("db:1", "db:1"),
            ("127.0.0.1", "127.0.0.1:9042"),
            ("::1", "[::1]:9042"),
            ("[::1]", "[::1]:9042"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(address(named), expected);
        }
    }
}
