//! Networks that clients come from, as `CIDR` notation has them: `10.1.0.0/16`, `fd00::/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The addresses that begin with the same bits.
///
/// Invariant: the bits of `address` after the prefix are zero, and the prefix is at most as long as the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a valid CIDR string")]
pub struct NetworkError(String);

impl Network {
    /// The address with the bits after the prefix set to zero.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        // A client of IPv4 on a socket of IPv6.
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && first_bits(address, self.prefix_bits) == self.address
    }
}

fn first_bits(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let parsed = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix_bits: u8 = prefix.parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            (prefix_bits <= longest).then(|| Self { address: first_bits(address, prefix_bits), prefix_bits })
        };
        parsed().ok_or_else(|| NetworkError(text.to_owned()))
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let network: Network = "10.1.2.3/16".parse().unwrap();
        assert_eq!(network.to_string(), "10.1.0.0/16");
        let has = |address: &str| network.contains(address.parse().unwrap());
        assert!(has("10.1.255.255") && has("::ffff:10.1.0.1"));
        assert!(!has("10.2.0.0") && !has("fd00::1"));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("192.168.1.1".parse().unwrap()) && !all.contains("::1".parse().unwrap()));
        let one: Network = "fd00::7/128".parse().unwrap();
        assert!(one.contains("fd00::7".parse().unwrap()) && !one.contains("fd00::8".parse().unwrap()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "x/8", "10.0.0/8"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
