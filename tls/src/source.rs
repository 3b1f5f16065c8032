//! Where clients come from, for shares that are fair.

use std::net::{IpAddr, Ipv6Addr};

/// Addresses that share one part of what clients may take: one of IPv4, or a network of 64 bits of IPv6, of which whoever has one address
/// has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_source() {
        let source = |address: &str| Source::of(address.parse().unwrap());
        assert_eq!(source("fd00::1:2"), source("fd00::9:9:9:9"));
        assert_ne!(source("fd00:0:0:1::1"), source("fd00::1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    }
}
