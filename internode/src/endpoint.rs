//! The address of a node in the settings: a host name or an IP address, and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host name or an IP address with a port: `db-1.example:7000`, `10.0.0.1:7000`, `[fd00::1]:7000`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

/// A text that is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not HOST:PORT, with a host name or an address (IPv6 in brackets)")]
pub struct NoEndpoint(String);

impl Endpoint {
    /// The host in the form for [`std::net::ToSocketAddrs`], and the port.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if the host is an IP address and not a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }

    /// Whether it is a wildcard address, which other nodes cannot connect to.
    pub fn is_unspecified(&self) -> bool {
        self.literal().is_some_and(|address| address.ip().is_unspecified())
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let refuse = || NoEndpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let is_name = !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            // Otherwise a mistyped address would be looked up as a name.
            && host.bytes().any(|byte| byte.is_ascii_alphabetic());
        if !is_name {
            return Err(refuse());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| refuse())? })
    }
}

impl TryFrom<String> for Endpoint {
    type Error = NoEndpoint;

    fn try_from(text: String) -> Result<Self, NoEndpoint> {
        text.parse()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.literal() {
            Some(address) => write!(formatter, "{address}"),
            None => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read_and_written() {
        for text in ["db-1.example:7000", "10.0.0.1:7000", "[fd00::1]:7000", "localhost:1"] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.literal(), text.parse().ok());
        }
    }

    #[test]
    fn invalid_endpoints_are_refused_by_name() {
        for text in [
            "",
            "localhost",
            "localhost:",
            ":7000",
            "localhost:70000",
            "10.0.0:7000",
            "a b:7000",
            "fd00::1:7000",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }
}
