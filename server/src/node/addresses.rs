//! The addresses of a node: those that it binds, and those that clients and other nodes are told.
//!
//! Invariant: a wildcard address is never advertised to clients or members.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use helenus_config::Config;
use helenus_internode::endpoint::Host;

use crate::node::error::StartError;

/// The addresses of a node.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// Clients are told it.
    pub native: SocketAddr,
    pub shard_aware_port: u16,
    /// Other nodes are told it; `None`: the node has no neighbours.
    pub internode: Option<SocketAddr>,
    /// The bound address for other nodes, if it is not a wildcard address.
    pub listen: Option<IpAddr>,
}

impl Addresses {
    /// The addresses of a node that has bound these ports.
    pub fn of_bound(
        config: &Config,
        native: SocketAddr,
        shard_aware_port: u16,
        internode: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let specified = |ip: IpAddr| (!ip.is_unspecified()).then_some(ip);
        let resolve = |setting, host: &Option<Host>| match host {
            Some(host) => resolve_host(setting, host).map(Some),
            None => Ok(None),
        };
        let listen = internode.and_then(|bound| specified(bound.ip()));
        let for_nodes = resolve("broadcast_address", &config.broadcast_address)?.or(listen);
        let told = match resolve("broadcast_rpc_address", &config.broadcast_rpc_address)?
            .or(specified(native.ip()))
            .or(for_nodes)
        {
            Some(ip) => SocketAddr::new(ip, native.port()),
            None => {
                return Err(StartError::Address {
                    setting: "listen",
                    name: native.to_string(),
                    message:
                        "it is a wildcard address, and clients need one by which they reach this node: set \
                              `broadcast_rpc_address` to it"
                            .to_owned(),
                });
            }
        };
        let internode = match internode {
            None => None,
            Some(bound) => match for_nodes {
                Some(ip) => Some(SocketAddr::new(ip, bound.port())),
                None => {
                    return Err(StartError::Address {
                        setting: "internode",
                        name: bound.to_string(),
                        message: "it is a wildcard address: set `broadcast_address` to one by which other nodes reach \
                                  this one"
                            .to_owned(),
                    });
                }
            },
        };
        Ok(Self { native: told, shard_aware_port, internode, listen })
    }
}

/// The address to bind for other nodes. The setting may be a host name.
pub fn resolve_internode(config: &Config) -> Result<Option<SocketAddr>, StartError> {
    let Some(endpoint) = &config.internode else { return Ok(None) };
    if let Some(address) = endpoint.literal() {
        return Ok(Some(address));
    }
    let refuse = |message: String| refusal("internode", endpoint, message);
    let found = endpoint.host_and_port().to_socket_addrs().map_err(|error| refuse(error.to_string()))?;
    usable(found).map(Some).ok_or_else(|| refuse(NO_ADDRESS.to_owned()))
}

const NO_ADDRESS: &str = "it has no address that others can reach";

fn refusal(setting: &'static str, name: &impl ToString, message: String) -> StartError {
    StartError::Address { setting, name: name.to_string(), message }
}

fn usable(mut found: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    found.find(|address| !address.ip().is_unspecified())
}

fn resolve_host(setting: &'static str, host: &Host) -> Result<IpAddr, StartError> {
    let refuse = |message: String| refusal(setting, host, message);
    let found = (host.as_str(), 0).to_socket_addrs().map_err(|error| refuse(error.to_string()))?;
    usable(found).map(|address| address.ip()).ok_or_else(|| refuse(NO_ADDRESS.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(
        settings: &str,
        native: &str,
        internode: Option<&str>,
    ) -> Result<(String, Option<String>), String> {
        let config = Config::from_toml(settings, std::path::Path::new("x.toml")).unwrap();
        let internode = internode.map(|address| address.parse().unwrap());
        Addresses::of_bound(&config, native.parse().unwrap(), 19042, internode)
            .map(|told| (told.native.to_string(), told.internode.map(|address| address.to_string())))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn others_are_told_the_broadcast_addresses_with_the_bound_ports() {
        let both = "broadcast_rpc_address = '192.0.2.1'\nbroadcast_address = '2001:db8::1'";
        for (settings, native, internode, expected) in [
            ("", "127.0.0.2:9043", None, ("127.0.0.2:9043", None)),
            ("", "[::1]:9042", Some("[fd00::1]:7000"), ("[::1]:9042", Some("[fd00::1]:7000"))),
            ("", "0.0.0.0:9042", Some("10.0.0.1:7000"), ("10.0.0.1:9042", Some("10.0.0.1:7000"))),
            (both, "0.0.0.0:9042", Some("[::]:7001"), ("192.0.2.1:9042", Some("[2001:db8::1]:7001"))),
            (both, "10.0.0.1:9042", Some("10.0.0.1:7000"), ("192.0.2.1:9042", Some("[2001:db8::1]:7000"))),
            (
                "broadcast_address = '10.0.0.7'",
                "[::]:9042",
                Some("0.0.0.0:7000"),
                ("10.0.0.7:9042", Some("10.0.0.7:7000")),
            ),
        ] {
            let expected = (expected.0.to_owned(), expected.1.map(str::to_owned));
            assert_eq!(told(settings, native, internode), Ok(expected));
        }
    }

    #[test]
    fn a_wildcard_address_is_told_to_nobody() {
        let refused = told("", "0.0.0.0:9042", None).unwrap_err();
        assert!(
            refused.contains("(setting 'listen')") && refused.contains("`broadcast_rpc_address`"),
            "{refused}"
        );
        let refused = told("", "127.0.0.1:9042", Some("[::]:7000")).unwrap_err();
        assert!(
            refused.contains("(setting 'internode')") && refused.contains("`broadcast_address`"),
            "{refused}"
        );
    }
}
