//! `helenus admin certificates`: an own authority in a directory. No node is asked.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use helenus_tls::authority::{self, Holder, Issued, Kind};
use helenus_tls::error::TlsError;
use helenus_tls::material::now_seconds;
use uuid::Uuid;

const AUTHORITY_DAYS: i64 = 3_650;
const DAYS: i64 = 365;
const DAYS_MAX: i64 = 36_500;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CertificatesCommand {
    /// Makes an authority: authority.pem, which goes to every node and client, and authority.key, which goes nowhere.
    Init {
        /// The directory, made if it is missing.
        directory: PathBuf,
        /// The name of the authority.
        #[arg(long, default_value = "Helenus authority")]
        name: String,
        /// How long it is valid.
        #[arg(long, default_value_t = AUTHORITY_DAYS, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX))]
        days: i64,
    },
    /// Makes a certificate and a key of a node or client: NAME.pem and NAME.key.
    Issue {
        /// The directory of the authority.
        directory: PathBuf,
        /// The name of the files, and the common name of the certificate.
        name: String,
        /// Of a node: its host id. Other nodes accept the certificate from this node alone.
        #[arg(long)]
        host_id: Option<Uuid>,
        /// Of a node: a DNS name by which clients and other nodes reach it. Any number.
        #[arg(long)]
        dns: Vec<String>,
        /// Of a node: an address of it. Any number.
        #[arg(long = "address")]
        addresses: Vec<IpAddr>,
        /// For a client, not a node.
        #[arg(long, conflicts_with_all = ["host_id", "dns", "addresses"])]
        client: bool,
        /// Of a client: `spiffe://DOMAIN/NAME`, which ADD IDENTITY maps to a role.
        #[arg(long, requires = "client")]
        identity: Option<String>,
        /// How long it is valid.
        #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX))]
        days: i64,
    },
}

/// The reason why no certificate was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificatesError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(
        "a certificate of a node names its host id, a DNS name or an address; one of a client is made with --client"
    )]
    Nameless,
}

impl CertificatesCommand {
    /// Carries it out, and returns what is printed.
    pub(crate) fn carry_out(&self) -> Result<String, CertificatesError> {
        let now_seconds = now_seconds();
        match self {
            Self::Init { directory, name, days } => {
                let files = authority::init(directory, name, now_seconds, *days)?;
                Ok(told(&files, "authority"))
            }
            Self::Issue { directory, name, host_id, dns, addresses, client, identity, days } => {
                if !client && host_id.is_none() && dns.is_empty() && addresses.is_empty() {
                    return Err(CertificatesError::Nameless);
                }
                let holder = Holder {
                    name: name.clone(),
                    host_id: host_id.map(|host_id| host_id.to_string()),
                    dns: dns.clone(),
                    addresses: addresses.clone(),
                    identity: identity.clone(),
                    kind: if *client { Kind::Client } else { Kind::Node },
                };
                let files = authority::issue(directory, &holder, now_seconds, *days)?;
                Ok(told(&files, if *client { "client" } else { "node" }))
            }
        }
    }
}

fn told(files: &Issued, what: &str) -> String {
    let mut text = String::new();
    let mut line = |name: &str, path: &Path| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} of the {what}: {}", path.display());
    };
    line("certificate", &files.certificate);
    line("key", &files.key);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse_any;

    #[test]
    fn an_authority_makes_certificates_for_nodes_and_clients() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let carry_out = |words: &[&str]| {
            let words: Vec<&str> = ["certificates"].iter().chain(words).copied().collect();
            match parse_any(&words).unwrap() {
                crate::command::Command::Certificates(command) => command.carry_out(),
                crate::command::Command::OfNode(_) => unreachable!("it is a command of certificates"),
            }
        };
        assert!(carry_out(&["init", path]).unwrap().contains("authority.pem"));
        assert!(carry_out(&["init", path]).unwrap_err().to_string().contains("is there already"));
        assert!(carry_out(&["issue", path, "n1", "--address", "127.0.0.1"]).unwrap().contains("n1.key"));
        carry_out(&["issue", path, "alice", "--client", "--identity", "spiffe://shop/alice"]).unwrap();
        assert!(matches!(carry_out(&["issue", path, "n2"]), Err(CertificatesError::Nameless)));
        let error = carry_out(&["issue", path, "../n3", "--dns", "db"]).unwrap_err();
        assert_eq!(error.to_string(), "'../n3' cannot be named in a certificate");
    }
}
