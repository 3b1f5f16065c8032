//! The table of all settings. From it follow the type [`Config`], the defaults, the checks of ranges, Cassandra's names, the texts of
//! flags, and `helenus.toml` (a test compares them).
//!
//! Its rows are in files by what they are about. Each of these is a macro that adds its rows to those before it, and hands all to the next one;
//! the last one, `settings`, makes them into the table.

#[macro_use]
mod clients;
#[macro_use]
mod files_and_logs;
#[macro_use]
mod guardrails;
#[macro_use]
mod node;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use helenus_internode::endpoint::{Endpoint, Host};
use helenus_internode::link_context::LinkOptions;
use helenus_ring::HostId;
use helenus_ring::allocation::{DEFAULT_REPLICATION_FACTOR, DEFAULT_TOKENS, TOKENS_MAX};
use helenus_roles::password_policy::PasswordPolicy;
use serde::{Deserialize, Serialize};

use crate::at_rest::EncryptionAtRest;
use crate::backup_store::BackupStore;
use crate::data_size::DataSize;
use crate::encryption::{ClientEncryption, InternodeEncryption};
use crate::period::Period;
use crate::security::{
    Authenticator, Authorizer, CidrAuthorizer, CidrAuthorizerMode, NetworkAuthorizer, RoleManager,
};
use crate::setting::{Alias, Amount, GIB, KIB, MIB, Range, Setting, Unit};

/// The most bytes of one chunk of a stream.
pub const STREAM_CHUNK_BYTES_MAX: u32 = 512 << 10;

/// The port of administration over HTTP, unless configured.
pub const DEFAULT_HTTP_PORT: u16 = 9180;

/// What is logged, unless configured. Messages of the Raft library at `info` are for its developers; at `warn` it logs leaders
/// and votes, and every message that a dead member does not answer.
pub const DEFAULT_LOG_FILTER: &str = "info,openraft=warn,openraft::core::heartbeat=error,\
     openraft::replication=error,openraft::engine::handler::replication_handler=error";

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CommitLogMode {
    /// After `fdatasync`; writes that arrive meanwhile share the next one.
    Group,
    /// At once; the log is synced every `commit_log_sync_period_ms`. Cassandra's default.
    Periodic,
    /// After an `fdatasync` that starts at once.
    Batch,
}

/// What the node does when a shard cannot write its commit log any more. Cassandra's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitFailurePolicy {
    Die,
    Stop,
    StopCommit,
    /// Cassandra's, refused here.
    Ignore,
}

/// What the node does when a file of data cannot be read or written, or is damaged. Cassandra's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFailurePolicy {
    Die,
    Stop,
    StopParanoid,
    BestEffort,
    /// Cassandra's, refused here.
    Ignore,
}

/// How logs are written to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// `KEY: TYPE = DEFAULT`, then what else is known of the setting, in this order.
macro_rules! settings {
    ([] $(
        section $section:literal $($about:literal)?;
        $(
            $(#[doc = $text:literal])+
            $key:ident: $type:ty = $default:expr
            $(, unit $unit:ident)?
            $(, range $range:expr)?
            $(, cassandra $alias:expr)?
            $(, flags $flags:literal)?
            $(, example $example:expr)?;
        )+
    )+) => {
        /// Every setting of a node.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            $($(
                $(#[doc = $text])+
                pub $key: $type,
            )+)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($($key: $default,)+)+ }
            }
        }

        /// The settings in the order of `helenus.toml`.
        pub const SETTINGS: &[Setting] = &[$($(
            Setting {
                section: $section,
                key: stringify!($key),
                text: &[$($text),+],
                unit: optional!($(Unit::$unit)?),
                range: optional!($($range)?),
                cassandra: optional!($($alias)?),
                flags: optional!($($flags)?),
            },
        )+)+];

        /// The text below the head of a section of `helenus.toml`.
        pub const SECTIONS: &[(&str, Option<&str>)] = &[$(($section, optional!($($about)?)),)+];

        impl Config {
            /// The defaults, with an example where a setting has none.
            pub fn examples() -> Self {
                Self { $($($($key: $example,)?)+)+ ..Self::default() }
            }

            /// Numbers out of their ranges: the key, and what the number must be.
            pub fn out_of_range(&self) -> Option<(&'static str, String)> {
                // Those with a range only.
                let numbers = [$($($({ const _: Range = $range; (stringify!($key), self.$key.amount()) },)?)+)+];
                for setting in SETTINGS {
                    let number = numbers.iter().find(|(key, _)| *key == setting.key);
                    if let (Some(range), Some((key, Some(number)))) = (setting.range, number)
                        && !range.contains(*number)
                    {
                        return Some((key, format!("must be {}", range.describe(setting.unit))));
                    }
                }
                None
            }
        }
    };
}
node_settings! { [clients_settings guardrails_settings files_and_logs_settings settings] }
