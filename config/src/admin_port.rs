//! Where administration over HTTP is served, and what an address needs that others reach.
//!
//! Invariant: no node that starts serves administration without TLS and logins at an address that is not a loopback address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use helenus_tls::policy::{ClientCertificates, Mode};

use crate::error::ConfigError;
use crate::settings::{Config, DEFAULT_HTTP_PORT};

impl Config {
    /// The address of the port for administration. Nodes at several loopback addresses of a machine have one each, unless a port is configured.
    pub fn http_address(&self) -> SocketAddr {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match (self.http_listen, self.http_port, self.listen.ip()) {
            (Some(address), ..) => address,
            (None, Some(port), _) => SocketAddr::new(local, port),
            (None, None, ip) if ip.is_loopback() => SocketAddr::new(ip, DEFAULT_HTTP_PORT),
            (None, None, _) => SocketAddr::new(local, DEFAULT_HTTP_PORT),
        }
    }

    /// Refuses an address of administration that others reach without TLS and logins.
    pub(crate) fn check_admin_port(&self) -> Result<(), ConfigError> {
        let Some(address) = self.http_listen else { return Ok(()) };
        let refused = |message: String| Err(ConfigError::Value { key: "http_listen", message });
        if self.http_port.is_some() {
            return refused("has a port of its own: `http_port` must not be set beside it".to_owned());
        }
        if address.ip().is_loopback() {
            return Ok(());
        }
        let encryption = &self.admin_encryption;
        if encryption.mode != Mode::Required || !self.authenticator.requires_login() {
            return refused(format!(
                "{} is no loopback address: administration over the network needs `admin_encryption` with mode \"required\" and an `authenticator` \
                 that asks for logins, such as PasswordAuthenticator",
                address.ip()
            ));
        }
        if !self.authenticator.takes_passwords() && encryption.client_certificates == ClientCertificates::None
        {
            return refused(format!(
                "nobody could log in: {} takes certificates, which `client_certificates` of `admin_encryption` does not ask for",
                self.authenticator.name()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PASSWORDS: &str = "authenticator = 'PasswordAuthenticator'";
    const CERTIFICATES: &str = "authenticator = 'MutualTlsAuthenticator'";

    fn tls(mode: &str) -> String {
        format!(
            "[admin_encryption]\nmode = '{mode}'\ncertificate = 'n.pem'\nkey = 'n.key'\nauthorities = 'a.pem'"
        )
    }

    fn refusal(lines: &[&str]) -> Option<String> {
        let config = Config::from_toml(&lines.join("\n"), Path::new("x.toml")).unwrap();
        config.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn an_address_that_others_reach_needs_tls_and_logins() {
        for address in ["10.0.0.1:9180", "0.0.0.0:9180", "[::]:9180", "[fd00::1]:9180"] {
            let listen = format!("http_listen = '{address}'");
            for further in [
                vec![],
                vec![PASSWORDS],
                vec![PASSWORDS, &tls("off")],
                vec![PASSWORDS, &tls("optional")],
                vec![&tls("required")],
            ] {
                let error = refusal(&[&[listen.as_str()], further.as_slice()].concat()).unwrap();
                assert!(error.starts_with("setting 'http_listen': "), "{error}");
                assert!(error.contains("`admin_encryption`") && error.contains("`authenticator`"), "{error}");
            }
            assert_eq!(refusal(&[&listen, PASSWORDS, &tls("required")]), None);
        }
    }

    #[test]
    fn who_logs_in_with_certificates_is_asked_for_one() {
        let listen = "http_listen = '10.0.0.1:9180'";
        let error = refusal(&[listen, CERTIFICATES, &tls("required")]).unwrap();
        assert!(error.contains("nobody could log in: MutualTlsAuthenticator"), "{error}");
        let asks = tls("required") + "\nclient_certificates = 'required'";
        assert_eq!(refusal(&[listen, CERTIFICATES, &asks]), None);
    }

    #[test]
    fn a_loopback_address_needs_nothing() {
        for address in ["127.0.0.1:9180", "127.0.0.9:1", "[::1]:0"] {
            assert_eq!(refusal(&[&format!("http_listen = '{address}'")]), None);
        }
        let error = refusal(&["http_listen = '127.0.0.1:9180'", "http_port = 9180"]).unwrap();
        assert!(error.contains("`http_port` must not be set"), "{error}");
        let error = refusal(&["[admin_encryption]", "mode = 'optional'"]).unwrap();
        assert!(error.starts_with("setting 'admin_encryption': needs `certificate`"), "{error}");
    }

    #[test]
    fn nodes_on_several_loopback_addresses_have_a_port_each() {
        let address = |listen: &str, http_port| {
            let config = Config { listen: listen.parse().unwrap(), http_port, ..Config::default() };
            config.http_address().to_string()
        };
        assert_eq!(address("127.0.0.1:9042", None), "127.0.0.1:9180");
        assert_eq!(address("127.0.0.2:9042", None), "127.0.0.2:9180");
        assert_eq!(address("[::1]:9042", None), "[::1]:9180");
        assert_eq!(address("10.0.0.1:9042", None), "127.0.0.1:9180");
        assert_eq!(address("0.0.0.0:9042", None), "127.0.0.1:9180");
        assert_eq!(address("127.0.0.2:9042", Some(9181)), "127.0.0.1:9181");
        let listen = Some("10.0.0.1:9443".parse().unwrap());
        assert_eq!(
            Config { http_listen: listen, ..Config::default() }.http_address().to_string(),
            "10.0.0.1:9443"
        );
    }
}
