//! Checks of the addresses that others are told.

use helenus_internode::endpoint::{Endpoint, Host};

use crate::error::ConfigError;
use crate::settings::Config;

impl Config {
    /// Checks that clients and other nodes can be told an address, as Cassandra does: a wildcard address is none.
    pub(crate) fn check_addresses(&self) -> Result<(), ConfigError> {
        fn check(valid: bool, key: &'static str, message: &str) -> Result<(), ConfigError> {
            if valid { Ok(()) } else { Err(ConfigError::Value { key, message: message.to_owned() }) }
        }
        let is_told = |host: &Option<Host>| host.is_some();
        for (key, host) in [
            ("broadcast_rpc_address", &self.broadcast_rpc_address),
            ("broadcast_address", &self.broadcast_address),
        ] {
            let is_usable = host.as_ref().is_none_or(|host| !host.is_unspecified());
            check(
                is_usable,
                key,
                "must be an address by which others reach this node, not a wildcard address",
            )?;
        }
        check(
            !is_told(&self.broadcast_address) || self.internode.is_some(),
            "broadcast_address",
            "is about `internode`, which is not set",
        )?;
        let has_wildcard = self.internode.as_ref().is_some_and(Endpoint::is_unspecified);
        check(
            !has_wildcard || is_told(&self.broadcast_address),
            "internode",
            "must be an address by which other nodes reach this one, not a wildcard address, unless \
             `broadcast_address` is set",
        )?;
        check(
            !self.listen.ip().is_unspecified()
                || is_told(&self.broadcast_rpc_address)
                || self.internode.is_some(),
            "listen",
            "is a wildcard address, and clients need one by which they reach this node: set `broadcast_rpc_address` to it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<String> {
        let config = Config::from_toml(text, std::path::Path::new("x.toml")).unwrap();
        config.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn a_wildcard_address_needs_one_that_others_are_told() {
        for listen in ["0.0.0.0:9042", "[::]:9042"] {
            let refused = refusal(&format!("listen = '{listen}'")).unwrap();
            assert!(refused.starts_with("setting 'listen': is a wildcard address"), "{refused}");
            for told in [
                "broadcast_rpc_address = '10.0.0.1'",
                "broadcast_rpc_address = 'db-1'",
                "internode = 'db-1:7000'",
            ] {
                assert_eq!(refusal(&format!("listen = '{listen}'\n{told}")), None);
            }
            let wildcard = format!("listen = '{listen}'\nbroadcast_rpc_address = '::'");
            assert!(
                refusal(&wildcard)
                    .unwrap()
                    .starts_with("setting 'broadcast_rpc_address': must be an address")
            );
        }
        for internode in ["0.0.0.0:7000", "[::]:7000"] {
            let refused = refusal(&format!("internode = '{internode}'")).unwrap();
            assert!(refused.starts_with("setting 'internode': must be an address"), "{refused}");
            assert_eq!(refusal(&format!("internode = '{internode}'\nbroadcast_address = 'fd00::1'")), None);
        }
        let alone = refusal("broadcast_address = '10.0.0.1'").unwrap();
        assert_eq!(alone, "setting 'broadcast_address': is about `internode`, which is not set");
    }
}
