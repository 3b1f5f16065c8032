//! The command line of the shell.

use std::path::PathBuf;

/// Seconds to wait for a connection.
pub const DEFAULT_CONNECT_TIMEOUT: u64 = 5;

/// Options of `helenus shell`.
#[derive(Debug, Clone, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
pub struct Args {
    /// Name or address of the node that everything is sent to
    #[arg(default_value = "127.0.0.1", env = "HELENUS_HOST")]
    pub host: String,
    /// Port of the native protocol
    #[arg(default_value_t = 9042, env = "HELENUS_PORT")]
    pub port: u16,
    /// Run these statements and exit
    #[arg(short, long, value_name = "STATEMENTS")]
    pub execute: Option<String>,
    /// Run the statements of this file and exit
    #[arg(short, long, value_name = "FILE", conflicts_with = "execute")]
    pub file: Option<PathBuf>,
    /// Start in this keyspace
    #[arg(short, long)]
    pub keyspace: Option<String>,
    /// Authenticate as this user
    #[arg(short, long, env = "HELENUS_USERNAME")]
    pub username: Option<String>,
    /// Password of the user; asked for if a user is given without one
    #[arg(short, long, env = "HELENUS_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Encrypt connections with TLS
    #[arg(long, env = "HELENUS_SSL", value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::SetTrue, requires = "authorities")]
    pub ssl: bool,
    /// PEM file with the authorities that vouch for nodes
    #[arg(long, value_name = "FILE", env = "SSL_CERTFILE")]
    pub authorities: Option<PathBuf>,
    /// PEM file with a certificate of the user, where nodes ask for one
    #[arg(long, value_name = "FILE", env = "HELENUS_CERTIFICATE", requires_all = ["ssl", "key"])]
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", env = "HELENUS_KEY", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Accept a certificate of the authorities for any name, as cqlsh does
    #[arg(long, requires = "ssl")]
    pub any_name: bool,
    /// Print rows as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Print no colours, even on a terminal
    #[arg(long)]
    pub no_color: bool,
    /// Seconds to wait for a connection, also while it is refused: the node may be starting; 0: not if it is refused
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_CONNECT_TIMEOUT)]
    pub connect_timeout: u64,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub request_timeout: u64,
}
