//! `helenus node --secure`: logins, permissions and TLS, with certificates that the node makes itself.
//!
//! The certificates are in `certificates` beside the data directory: those of an own authority, unless there is one already, and one for
//! the host id and the addresses of this node. Nodes that are to be a cluster need the same authority, so its files are copied to them
//! before they start.
//!
//! Invariants:
//! * What the settings say about logins, permissions and TLS stays as it is; the rest is turned on.
//! * No file is replaced: who loses one of them removes the other as well.
//! * A certificate is made when the host id is stored, and its file is named after it: a node with another data directory gets its own.
//!   One without a host id, of an earlier version, stays in use.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use helenus_config::{Authenticator, Authorizer, Config};
use helenus_ring::HostId;
use helenus_tls::authority::{self, Holder, Kind};
use helenus_tls::error::TlsError;
use helenus_tls::material;
use helenus_tls::policy::Mode;

const AUTHORITY: &str = "authority";
const AUTHORITY_NAME: &str = "Helenus authority";
const AUTHORITY_DAYS: i64 = 3_650;
const NODE_DAYS: i64 = 365;

/// Stands for the host id in names of files until it is known.
const UNKNOWN_HOST_ID: &str = "HOST_ID";

/// What `--secure` has turned on.
pub struct Secured {
    /// The instructions for the operator: how to connect.
    pub told: String,
    /// Those that the node has to make; `None`: it has some.
    pub certificates: Option<OwnCertificates>,
}

/// Certificates that a node makes itself when it knows its host id.
pub struct OwnCertificates {
    directory: PathBuf,
    /// The first one names its files.
    addresses: Vec<IpAddr>,
}

/// Turns logins, permissions and TLS on. Makes no file.
pub fn secure(config: &mut Config) -> Secured {
    let directory = directory(&config.data_dir);
    if config.authenticator == Authenticator::AllowAllAuthenticator {
        config.authenticator = Authenticator::PasswordAuthenticator;
    }
    config.authorizer = Authorizer::CassandraAuthorizer;
    let mut certificates = None;
    let modes =
        [config.client_encryption.mode, config.internode_encryption.mode, config.admin_encryption.mode];
    if modes.contains(&Mode::Off) {
        let own = OwnCertificates { directory: directory.clone(), addresses: addresses(config) };
        let has_one = own.file(&own.name_by_address(), "pem").exists();
        let name = if has_one { own.name_by_address() } else { own.name(UNKNOWN_HOST_ID) };
        let (certificate, key) = (own.file(&name, "pem"), own.file(&name, "key"));
        let authorities = Some(own.file(AUTHORITY, "pem"));
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
        certificates = (!has_one).then_some(own);
    }
    Secured { told: told(config, &directory), certificates }
}

impl OwnCertificates {
    /// Makes those that are missing, and sets their names in the settings that [`secure`] has changed.
    pub fn make(&self, config: &mut Config, host_id: HostId) -> Result<(), TlsError> {
        let name = self.name(&host_id.to_string());
        let now_seconds = material::now_seconds();
        if !self.file(AUTHORITY, "pem").exists() {
            authority::init(&self.directory, AUTHORITY_NAME, now_seconds, AUTHORITY_DAYS)?;
        }
        let (certificate, key) = (self.file(&name, "pem"), self.file(&name, "key"));
        if !certificate.exists() {
            let holder = Holder {
                name,
                host_id: Some(host_id.to_string()),
                dns: vec!["localhost".to_owned()],
                addresses: self.addresses.clone(),
                identity: None,
                kind: Kind::Node,
            };
            authority::issue(&self.directory, &holder, now_seconds, NODE_DAYS)?;
        }
        let unknown = Some(self.file(&self.name(UNKNOWN_HOST_ID), "pem"));
        let (clients, administration) = (&mut config.client_encryption, &mut config.admin_encryption);
        let nodes = &mut config.internode_encryption;
        for (present, present_key) in [
            (&mut clients.certificate, &mut clients.key),
            (&mut administration.certificate, &mut administration.key),
            (&mut nodes.certificate, &mut nodes.key),
        ] {
            if *present == unknown {
                (*present, *present_key) = (Some(certificate.clone()), Some(key.clone()));
            }
        }
        Ok(())
    }

    fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("{name}.{ending}"))
    }

    fn name_by_address(&self) -> String {
        format!("node-{}", self.addresses[0]).replace(':', "_")
    }

    fn name(&self, host_id: &str) -> String {
        format!("{}-{host_id}", self.name_by_address())
    }
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.parent().unwrap_or(Path::new("")).join("certificates")
}

/// The addresses by which clients and other nodes reach this node. There is at least one, and the first one names its files.
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
    use helenus_tls::files::chain;
    use helenus_tls::names::Names;

    use super::*;

    /// Starts a node, as far as its certificates are concerned.
    fn start(config: &Config, host_id: u128) -> Config {
        let mut config = config.clone();
        let secured = secure(&mut config);
        config.validate().unwrap();
        if let Some(certificates) = secured.certificates {
            certificates.make(&mut config, HostId::from_u128(host_id)).unwrap();
        }
        config
    }

    fn names(certificate: Option<&PathBuf>) -> Names {
        let now_seconds = material::now_seconds();
        Names::of(&chain(certificate.unwrap(), now_seconds).unwrap().0[0]).unwrap()
    }

    #[test]
    fn a_node_makes_its_certificates_once_and_leaves_what_is_set() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let told = secure(&mut config.clone()).told;
        assert!(told.contains("create-superuser NAME") && told.contains("--ssl"), "{told}");
        assert!(!directory.path().join("certificates").exists());
        let first = start(&config, 1);
        assert_eq!(first.authenticator, Authenticator::PasswordAuthenticator);
        assert_eq!(first.authorizer, Authorizer::CassandraAuthorizer);
        first.validate().unwrap();
        let certificate = first.client_encryption.certificate.clone().unwrap();
        let bytes = std::fs::read(&certificate).unwrap();
        let mut again = config;
        again.client_encryption = first.client_encryption.clone();
        again.client_encryption.mode = Mode::Optional;
        let again = start(&again, 1);
        assert_eq!(again.client_encryption.mode, Mode::Optional);
        assert_eq!(again.internode_encryption, first.internode_encryption);
        assert_eq!(std::fs::read(&certificate).unwrap(), bytes);
        assert_eq!(again.admin_encryption, first.admin_encryption);
    }

    #[test]
    fn a_certificate_names_the_host_id_of_its_node() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let (first, other) = (start(&config, 1), start(&config, 2));
        for (config, host_id) in [(&first, 1), (&other, 2)] {
            let names = names(config.internode_encryption.certificate.as_ref());
            assert_eq!(names.host_ids().collect::<Vec<_>>(), [HostId::from_u128(host_id).to_string()]);
            assert!(names.addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        }
        assert_eq!(first.client_encryption.authorities, other.client_encryption.authorities);
    }

    #[test]
    fn a_certificate_of_an_earlier_version_stays_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let certificates = directory.path().join("certificates");
        let old = certificates.join("node-127.0.0.1.pem");
        start(&config, 1);
        let holder = Holder { name: "node-127.0.0.1".to_owned(), ..Holder::default() };
        authority::issue(&certificates, &holder, 0, NODE_DAYS).unwrap();
        let config = start(&config, 1);
        assert_eq!(config.internode_encryption.certificate, Some(old.clone()));
        assert_eq!(config.client_encryption.key, Some(old.with_extension("key")));
    }

    #[test]
    fn administration_is_encrypted_where_others_reach_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().join("data"), ..Config::default() };
        let mode = |http_listen: Option<&str>| {
            let http_listen = http_listen.map(|address| address.parse().unwrap());
            let mut config = Config { http_listen, ..config.clone() };
            secure(&mut config);
            config.validate().unwrap();
            config.admin_encryption.mode
        };
        assert_eq!(mode(None), Mode::Optional);
        assert_eq!(mode(Some("127.0.0.1:9443")), Mode::Optional);
        assert_eq!(mode(Some("10.0.0.1:9443")), Mode::Required);
    }
}
