//! The address of a node in the settings: a host name or an IP address, with or without a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host name or an IP address: `db-1.example`, `10.0.0.1`, `fd00::1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(String);

/// A text that is not a [`Host`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither a host name nor an address")]
pub struct NoHost(String);

impl Host {
    /// In the form for [`std::net::ToSocketAddrs`].
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, if it is one and not a name.
    pub fn literal(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// Whether it is a wildcard address, which nobody can connect to.
    pub fn is_unspecified(&self) -> bool {
        self.literal().is_some_and(|address| address.is_unspecified())
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self(address.to_string())
    }
}

impl FromStr for Host {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let is_name = !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            // Otherwise a mistyped address would be looked up as a name.
            && text.bytes().any(|byte| byte.is_ascii_alphabetic());
        if is_name { Ok(Self(text.to_owned())) } else { Err(NoHost(text.to_owned())) }
    }
}

impl TryFrom<String> for Host {
    type Error = NoHost;

    fn try_from(text: String) -> Result<Self, NoHost> {
        text.parse()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.0
    }
}

/// A host name or an IP address with a port: `db-1.example:7000`, `10.0.0.1:7000`, `[fd00::1]:7000`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    /// Without the brackets of an IPv6 address.
    host: Host,
    port: u16,
}

/// A text that is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not HOST:PORT, with a host name or an address (IPv6 in brackets)")]
pub struct NoEndpoint(String);

impl Endpoint {
    /// The host in the form for [`std::net::ToSocketAddrs`], and the port.
    pub fn host_and_port(&self) -> (&str, u16) {
        (self.host.as_str(), self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if the host is an IP address and not a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.literal()?, self.port))
    }

    /// Whether it is a wildcard address, which other nodes cannot connect to.
    pub fn is_unspecified(&self) -> bool {
        self.host.is_unspecified()
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().into(), port: address.port() }
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
        let host: Host = host.parse().map_err(|_| refuse())?;
        // With a port an address of IPv6 has brackets.
        if host.literal().is_some_and(|address| address.is_ipv6()) {
            return Err(refuse());
        }
        Ok(Self { host, port: port.parse().map_err(|_| refuse())? })
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
    fn hosts_are_names_or_addresses_without_a_port() {
        for text in ["db-1.example", "10.0.0.1", "fd00::1", "localhost"] {
            let host: Host = text.parse().unwrap();
            assert_eq!((host.to_string().as_str(), host.literal()), (text, text.parse().ok()));
        }
        for text in ["", "10.0.0", "db-1:7000", "10.0.0.1:7000", "[fd00::1]", "a b"] {
            let error = text.parse::<Host>().unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
        assert!("0.0.0.0".parse::<Host>().unwrap().is_unspecified());
        assert!("::".parse::<Host>().unwrap().is_unspecified());
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
