//! `helenus node --secure`: logins, permissions and TLS, with certificates that the node makes itself.
//!
//! The certificates are in `certificates` beside the data directory: those of an own authority, unless there is one already, and one for
//! the addresses of this node. Nodes that are to be a cluster need the same authority, so its files are copied to them before they
//! start.
//!
//! Invariants:
//! * What the settings say about logins, permissions and TLS stays as it is; the rest is turned on.
//! * No file is replaced: who loses one of them removes the other as well.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use helenus_config::{Authenticator, Authorizer, Config};
use helenus_tls::authority::{self, Holder, Kind};
use helenus_tls::error::TlsError;
use helenus_tls::policy::Mode;

const AUTHORITY: &str = "authority";
const AUTHORITY_NAME: &str = "Helenus authority";
const AUTHORITY_DAYS: i64 = 3_650;
const NODE_DAYS: i64 = 365;

/// Turns logins, permissions and TLS on. Returns what the operator is told: how to connect.
pub fn secure(config: &mut Config) -> Result<String, TlsError> {
    let directory = directory(&config.data_dir);
    if config.authenticator == Authenticator::AllowAllAuthenticator {
        config.authenticator = Authenticator::PasswordAuthenticator;
    }
    config.authorizer = Authorizer::CassandraAuthorizer;
    let modes =
        [config.client_encryption.mode, config.internode_encryption.mode, config.admin_encryption.mode];
    if modes.contains(&Mode::Off) {
        let addresses = addresses(config);
        let name = format!("node-{}", addresses[0]).replace(':', "_");
        let now_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let file = |name: &str, ending: &str| directory.join(format!("{name}.{ending}"));
        if !file(AUTHORITY, "pem").exists() {
            authority::init(&directory, AUTHORITY_NAME, now_seconds, AUTHORITY_DAYS)?;
        }
        let (certificate, key) = (file(&name, "pem"), file(&name, "key"));
        if !certificate.exists() {
            let holder = Holder {
                name,
                host_id: None,
                dns: vec!["localhost".to_owned()],
                addresses,
                identity: None,
                kind: Kind::Node,
            };
            authority::issue(&directory, &holder, now_seconds, NODE_DAYS)?;
        }
        let authorities = Some(file(AUTHORITY, "pem"));
        if config.client_encryption.mode == Mode::Off {
            config.client_encryption.mode = Mode::Required;
            config.client_encryption.certificate = Some(certificate.clone());
            config.client_encryption.key = Some(key.clone());
            config.client_encryption.authorities.clone_from(&authorities);
        }
        if config.admin_encryption.mode == Mode::Off {
            // Programs of the machine, a Prometheus for example, need no TLS at a loopback address.
            let is_local = config.http_address().ip().is_loopback();
            config.admin_encryption.mode = if is_local { Mode::Optional } else { Mode::Required };
            config.admin_encryption.certificate = Some(certificate.clone());
            config.admin_encryption.key = Some(key.clone());
            config.admin_encryption.authorities.clone_from(&authorities);
        }
        if config.internode_encryption.mode == Mode::Off {
            config.internode_encryption.mode = Mode::Required;
            config.internode_encryption.certificate = Some(certificate);
            config.internode_encryption.key = Some(key);
            config.internode_encryption.authorities = authorities;
        }
    }
    Ok(told(config, &directory))
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.parent().unwrap_or(Path::new("")).join("certificates")
}

/// The addresses by which clients and other nodes reach this node. The first one names its files.
fn addresses(config: &Config) -> Vec<IpAddr> {
    let named = [config.broadcast_rpc_address.as_ref(), config.broadcast_address.as_ref()];
    let told = named.into_iter().flatten().filter_map(|host| host.to_string().parse::<IpAddr>().ok());
    let internode = config.internode.iter().filter_map(|endpoint| {
        let text = endpoint.to_string();
        text.rsplit_once(':').and_then(|(host, _)| host.trim_matches(['[', ']']).parse::<IpAddr>().ok())
    });
    let mut addresses: Vec<IpAddr> = vec![config.listen.ip()];
    addresses.extend(told.chain(internode));
    addresses.push(config.http_address().ip());
    addresses.retain(|address| !address.is_unspecified());
    addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    let mut seen = Vec::new();
    addresses.retain(|address| {
        let is_new = !seen.contains(address);
        seen.push(*address);
        is_new
    });
    addresses
}

fn told(config: &Config, directory: &Path) -> String {
    let (host, port) = (addresses(config)[0], config.listen.port());
    let authority = directory.join(format!("{AUTHORITY}.pem"));
    let (data_dir, authority) = (config.data_dir.display(), authority.display());
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "Clients log in, and speak TLS with certificates of {authority}. To make the first superuser, and to connect:\n  \
         helenus admin --data-dir {data_dir} create-superuser NAME\n  \
         helenus shell {host} {port} --ssl --authorities {authority} -u NAME\n  \
         SSL_CERTFILE={authority} cqlsh --ssl {host} {port} -u NAME\n\
         Other nodes of the cluster need {AUTHORITY}.pem and {AUTHORITY}.key of {} beside their data directories before they start with --secure.\n",
        directory.display(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_makes_its_certificates_once_and_leaves_what_is_set() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let mut first = config.clone();
        let told = secure(&mut first).unwrap();
        assert!(told.contains("create-superuser NAME") && told.contains("--ssl"), "{told}");
        assert_eq!(first.authenticator, Authenticator::PasswordAuthenticator);
        assert_eq!(first.authorizer, Authorizer::CassandraAuthorizer);
        first.validate().unwrap();
        let certificate = first.client_encryption.certificate.clone().unwrap();
        let bytes = std::fs::read(&certificate).unwrap();
        let mut again = config;
        again.client_encryption = first.client_encryption.clone();
        again.client_encryption.mode = Mode::Optional;
        secure(&mut again).unwrap();
        assert_eq!(again.client_encryption.mode, Mode::Optional);
        assert_eq!(again.internode_encryption, first.internode_encryption);
        assert_eq!(std::fs::read(&certificate).unwrap(), bytes);
        assert_eq!(again.admin_encryption, first.admin_encryption);
    }

    #[test]
    fn administration_is_encrypted_where_others_reach_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let mode = |http_listen: Option<&str>| {
            let http_listen = http_listen.map(|address| address.parse().unwrap());
            let mut config = Config { http_listen, ..config.clone() };
            secure(&mut config).unwrap();
            config.validate().unwrap();
            config.admin_encryption.mode
        };
        assert_eq!(mode(None), Mode::Optional);
        assert_eq!(mode(Some("127.0.0.1:9443")), Mode::Optional);
        assert_eq!(mode(Some("10.0.0.1:9443")), Mode::Required);
    }
}
