//! The settings of a node: a TOML file, overridden by `HELENUS_*` variables, overridden by flags.
//!
//! Invariants: an unknown key is an error (with the nearest known one as a suggestion), every value is validated
//! before the node touches the disk, and `helenus node --show-config` prints the settings in force.

mod addresses;
mod admin_port;
mod at_rest;
mod backup_store;
mod data_size;
mod encryption;
mod error;
mod guardrail_change;
mod guardrails;
mod limits;
mod nested;
mod password_policy;
mod period;
mod request_logs;
mod sample;
mod security;
mod setting;
mod settings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::CLUSTER_NAME_BYTES_MAX;
use helenus_internode::link_context::LinkOptions;

pub use self::at_rest::{AtRestMode, EncryptionAtRest, PlainFilesMode};
pub use self::backup_store::BackupStore;
pub use self::data_size::DataSize;
pub use self::encryption::{ClientEncryption, InternodeEncryption};
pub use self::error::ConfigError;
pub use self::guardrail_change::GuardrailError;
pub use self::guardrails::guardrail_settings;
pub use self::limits::ENVELOPE_BYTES;
pub use self::period::Period;
pub use self::sample::sample;
pub use self::security::{
    Authenticator, Authorizer, CidrAuthorizer, CidrAuthorizerMode, NetworkAuthorizer, RoleManager,
};
use self::setting::Alias;
use self::settings::SETTINGS;
pub use self::settings::{
    CommitFailurePolicy, CommitLogMode, Config, DEFAULT_HTTP_PORT, DEFAULT_LOG_FILTER, DiskFailurePolicy,
    LogFormat, STREAM_CHUNK_BYTES_MAX,
};

impl Config {
    /// Limits and timeouts of links to other nodes.
    pub fn link_options(&self) -> LinkOptions {
        LinkOptions {
            frame_bytes_max: self.max_internode_frame_bytes,
            queue_bytes_max: self.max_internode_queue_bytes,
            calls_per_link_max: self.max_internode_calls_per_link,
            requests_per_link_max: self.max_internode_requests_per_link,
            connect_timeout: Duration::from_millis(self.internode_connect_timeout_ms),
            keepalive: Duration::from_millis(self.internode_keepalive_ms),
            reconnect_max: Duration::from_millis(self.internode_reconnect_max_ms),
            source_ip: self
                .internode
                .as_ref()
                .and_then(Endpoint::literal)
                .map(|address| address.ip())
                .filter(|ip| !ip.is_unspecified()),
        }
    }

    /// Reads and checks a TOML file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text, path)
    }

    /// Parses TOML; `path` is for messages.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let parse_error =
            |error: toml::de::Error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() };
        let mut table: toml::Table = text.parse().map_err(parse_error)?;
        let is_flattened = nested::flatten(&mut table).map_err(|error| error.of_file(path))?;
        let is_renamed = rename_aliases(&mut table, path)? || is_flattened;
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        for key in table.keys() {
            if !known.contains(&key.as_str()) {
                let suggestion =
                    nearest(key, &known).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key: key.clone(), suggestion });
            }
        }
        // The text names the line of an error, so it is preferred.
        if is_renamed { table.try_into() } else { toml::from_str(text) }.map_err(parse_error)
    }

    /// Refuses authorizers of roles where there are no logins.
    fn check_authorizers(&self) -> Result<(), ConfigError> {
        let (authorizer, network, cidr) = (self.authorizer, self.network_authorizer, self.cidr_authorizer);
        let chosen = [
            (authorizer == Authorizer::AllowAllAuthorizer, "authorizer", authorizer.name()),
            (network == NetworkAuthorizer::AllowAllNetworkAuthorizer, "network_authorizer", network.name()),
            (cidr == CidrAuthorizer::AllowAllCIDRAuthorizer, "cidr_authorizer", cidr.name()),
        ];
        for (allows_all, key, name) in chosen {
            if !allows_all && !self.authenticator.requires_login() {
                let message = format!("{} can't be used with {name}", self.authenticator.name());
                return Err(ConfigError::Value { key, message });
            }
        }
        Ok(())
    }

    /// Checks what types cannot express: ranges, and relations between settings.
    pub fn validate(&self) -> Result<(), ConfigError> {
        fn check(valid: bool, key: &'static str, message: &str) -> Result<(), ConfigError> {
            if valid { Ok(()) } else { Err(ConfigError::Value { key, message: message.to_owned() }) }
        }
        if let Some((key, message)) = self.out_of_range() {
            return Err(ConfigError::Value { key, message });
        }
        check(
            (10..=self.liveness_probe_period_ms / 2).contains(&self.liveness_probe_timeout_ms),
            "liveness_probe_timeout_ms",
            "must be from 10 to half of liveness_probe_period_ms",
        )?;
        check(
            (self.liveness_probe_period_ms..=600_000).contains(&self.liveness_suspicion_ms),
            "liveness_suspicion_ms",
            "must be from liveness_probe_period_ms to 600000",
        )?;
        check(!self.data_dir.as_os_str().is_empty(), "data_dir", "must not be empty")?;
        let is_named = |directory: &PathBuf| !directory.as_os_str().is_empty();
        check(
            self.data_dirs.iter().all(is_named)
                && self.data_dirs.iter().collect::<std::collections::BTreeSet<_>>().len()
                    == self.data_dirs.len(),
            "data_dirs",
            "must be different directories",
        )?;
        let directories = [
            ("commit_log_dir", &self.commit_log_dir),
            ("commit_log_archive_dir", &self.commit_log_archive_dir),
        ];
        for (key, directory) in directories {
            check(directory.as_ref().is_none_or(is_named), key, "must not be empty")?;
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.log_filter) {
            return Err(ConfigError::Value {
                key: "log_filter",
                message: format!("is not a valid log filter: {error}"),
            });
        }
        check(!self.cluster_name.is_empty(), "cluster_name", "must not be empty")?;
        check(!self.data_center.is_empty(), "data_center", "must not be empty")?;
        check(!self.rack.is_empty(), "rack", "must not be empty")?;
        self.check_authorizers()?;
        check(self.commit_log_sync_period_ms > 0, "commit_log_sync_period_ms", "must be above 0")?;
        check(
            self.commit_log_total_bytes >= 4 * self.commit_log_segment_bytes,
            "commit_log_total_bytes",
            "must hold at least four segments",
        )?;
        self.check_mutation_size()?;
        for (key, problem) in [
            ("client_encryption", self.client_encryption.problem()),
            ("internode_encryption", self.internode_encryption.problem()),
            ("admin_encryption", self.admin_encryption.problem()),
            ("encryption_at_rest", self.encryption_at_rest.problem()),
        ] {
            check(problem.is_none(), key, problem.unwrap_or_default())?;
        }
        if let Some(message) = self.backup_store.problem() {
            return Err(ConfigError::Value { key: "backup_store", message });
        }
        self.check_admin_port()?;
        self.check_password_policy()?;
        self.guardrails()?;
        self.audit_log()?;
        self.full_query_log()?;
        for (key, threshold) in [
            ("data_disk_usage_percentage_warn_threshold", self.data_disk_usage_percentage_warn_threshold),
            ("data_disk_usage_percentage_fail_threshold", self.data_disk_usage_percentage_fail_threshold),
        ] {
            check(threshold == -1 || (1..=100).contains(&threshold), key, "must be from 1 to 100, or -1")?;
        }
        check(
            self.data_disk_usage_percentage_fail_threshold == -1
                || self.data_disk_usage_percentage_warn_threshold
                    <= self.data_disk_usage_percentage_fail_threshold,
            "data_disk_usage_percentage_fail_threshold",
            "must not be below data_disk_usage_percentage_warn_threshold",
        )?;
        check(
            self.disk_failure_policy != DiskFailurePolicy::Ignore,
            "disk_failure_policy",
            "'ignore' is not supported: a request that meets an error of the disk always fails with it; \
             'best_effort' serves everything else",
        )?;
        check(
            self.commit_failure_policy != CommitFailurePolicy::Ignore,
            "commit_failure_policy",
            "'ignore' is not supported: writes that are not in the commit log would be acknowledged and lost; \
             'stop_commit' refuses them and answers reads",
        )?;
        check(
            self.batch_size_fail_threshold_bytes >= self.batch_size_warn_threshold_bytes,
            "batch_size_fail_threshold_bytes",
            "must not be below batch_size_warn_threshold_bytes",
        )?;
        check(
            self.tombstone_failure_threshold == 0
                || self.tombstone_failure_threshold >= self.tombstone_warn_threshold,
            "tombstone_failure_threshold",
            "must not be below tombstone_warn_threshold",
        )?;
        for (key, warn, fail) in [
            (
                "coordinator_read_size_fail_threshold",
                self.coordinator_read_size_warn_threshold,
                self.coordinator_read_size_fail_threshold,
            ),
            (
                "local_read_size_fail_threshold",
                self.local_read_size_warn_threshold,
                self.local_read_size_fail_threshold,
            ),
        ] {
            let is_ordered = warn.zip(fail).is_none_or(|(DataSize(warn), DataSize(fail))| fail >= warn);
            check(is_ordered, key, "must not be below the threshold of the warning")?;
        }
        check(
            self.cluster_name.len() <= CLUSTER_NAME_BYTES_MAX,
            "cluster_name",
            "must not be longer than 256 bytes",
        )?;
        self.check_addresses()?;
        check(
            self.seeds.is_empty() || self.internode.is_some(),
            "seeds",
            "a node with seeds needs `internode`, the address for its neighbours",
        )?;
        check(
            self.replace.is_none() || !self.seeds.is_empty(),
            "replace",
            "a node that takes the place of another one needs `seeds`, by which it finds the cluster",
        )?;
        check(
            self.replace.is_some() || !self.replace_accept_loss,
            "replace_accept_loss",
            "is about `replace`, which is not set",
        )?;
        check(
            self.seeds.iter().all(|seed| !seed.is_unspecified() && seed.port() != 0),
            "seeds",
            "each must be a host name or address, and a port, that this node can reach",
        )?;
        Ok(())
    }
}

/// The purpose of a setting in one sentence: the help of its flag.
pub fn summary(key: &str) -> String {
    SETTINGS.iter().find(|setting| setting.key == key).map_or_else(String::new, setting::Setting::summary)
}

/// Renames settings that are given under Cassandra's names, and converts their units. Returns whether there were any.
fn rename_aliases(table: &mut toml::Table, path: &Path) -> Result<bool, ConfigError> {
    let refused = |alias: &str, message: &str| ConfigError::Parse {
        path: path.to_owned(),
        message: format!("'{alias}': {message}"),
    };
    let mut is_renamed = false;
    for setting in SETTINGS {
        let Some(alias) = setting.cassandra else { continue };
        let Some(value) = table.remove(alias.name()) else { continue };
        is_renamed = true;
        let value = match (alias, value) {
            (Alias::Same(_), value) => value,
            (Alias::Scaled(name, scale), toml::Value::Integer(number)) => {
                let scaled = i64::try_from(scale).ok().and_then(|scale| number.checked_mul(scale));
                scaled.ok_or_else(|| refused(name, "too large"))?.into()
            }
            (Alias::Port(name), toml::Value::Integer(port)) => {
                let port = u16::try_from(port).map_err(|_| refused(name, "a port is from 0 to 65535"))?;
                SocketAddr::new(Config::default().listen.ip(), port).to_string().into()
            }
            (Alias::Size(name), value) => {
                let bytes = value.as_str().and_then(setting::size_bytes);
                let bytes = bytes.and_then(|bytes| i64::try_from(bytes).ok());
                bytes
                    .ok_or_else(|| refused(name, "a size with the unit B, KiB, MiB or GiB is expected"))?
                    .into()
            }
            (Alias::Milliseconds(name), value) => {
                let number = value.as_str().and_then(setting::milliseconds);
                let number = number.and_then(|number| i64::try_from(number).ok());
                number
                    .ok_or_else(|| refused(name, "a number with the unit d, h, m, s or ms is expected"))?
                    .into()
            }
            (Alias::Scaled(name, _) | Alias::Port(name), _) => {
                return Err(refused(name, "a number is expected"));
            }
        };
        if table.insert(setting.key.to_owned(), value).is_some() {
            return Err(ConfigError::Twice { path: path.to_owned(), alias: alias.name(), key: setting.key });
        }
    }
    Ok(is_renamed)
}

/// The known name that was most likely intended, if any is near enough.
pub fn nearest<'a, N: AsRef<str>>(name: &str, known: &'a [N]) -> Option<&'a N> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate.as_ref()), candidate))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use helenus_ring::HostId;

    use super::*;

    #[test]
    fn cassandras_names_are_taken_and_their_units_converted() {
        let parse = |text| Config::from_toml(text, Path::new("x.toml"));
        let config = parse(
            "native_transport_port = 9043\ncommitlog_segment_size_in_mb = 16\nread_request_timeout_in_ms = 7\n\
             commitlog_sync = \"periodic\"",
        )
        .unwrap();
        let expected = Config {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9043),
            commit_log_segment_bytes: 16 << 20,
            read_request_timeout_ms: 7,
            commit_log: CommitLogMode::Periodic,
            ..Config::default()
        };
        assert_eq!(config, expected);
        for (text, message) in [
            ("native_transport_port = 70000", "x.toml: 'native_transport_port': a port is from 0 to 65535"),
            (
                "commitlog_segment_size_in_mb = \"a\"",
                "x.toml: 'commitlog_segment_size_in_mb': a number is expected",
            ),
            (
                "commitlog_sync = \"batch\"\ncommit_log = \"group\"",
                "x.toml: 'commitlog_sync' is Cassandra's name of 'commit_log', which is set too",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn ranges_are_told_in_their_units() {
        let refused = |config: Config| config.validate().unwrap_err().to_string();
        for (config, message) in [
            (
                Config { commit_log_segment_bytes: 1, ..Config::default() },
                "setting 'commit_log_segment_bytes': must be from 1 MiB to 1 GiB",
            ),
            (
                Config { cas_contention_timeout_ms: 0, ..Config::default() },
                "setting 'cas_contention_timeout_ms': must be from 1 to 3600000 (an hour)",
            ),
            (
                Config { hinted_handoff_throttle_bytes_per_second: 1, ..Config::default() },
                "setting 'hinted_handoff_throttle_bytes_per_second': must be 0 or at least 64 KiB",
            ),
            (
                Config { max_page_tombstones: 1, ..Config::default() },
                "setting 'max_page_tombstones': must be at least 1000",
            ),
        ] {
            assert_eq!(refused(config), message);
        }
        Config { hinted_handoff_throttle_bytes_per_second: 0, ..Config::default() }.validate().unwrap();
    }

    #[test]
    fn policies_and_thresholds_of_disks_have_cassandras_names() {
        let parse = |text: &str| Config::from_toml(text, Path::new("x.toml"));
        let config = parse(
            "disk_failure_policy = \"stop_paranoid\"\ncommit_failure_policy = \"die\"\n\
             data_disk_usage_percentage_warn_threshold = 70\ndata_disk_usage_percentage_fail_threshold = 90\n\
             data_disk_usage_max_disk_size = \"10GiB\"",
        )
        .unwrap();
        config.validate().unwrap();
        assert_eq!(config.disk_failure_policy, DiskFailurePolicy::StopParanoid);
        assert_eq!(config.commit_failure_policy, CommitFailurePolicy::Die);
        assert_eq!(config.data_disk_usage_max_disk_size_bytes, Some(10 << 30));
        for (text, expected) in [
            (
                "disk_failure_policy = \"ignore\"",
                "setting 'disk_failure_policy': 'ignore' is not supported: ",
            ),
            (
                "commit_failure_policy = \"ignore\"",
                "setting 'commit_failure_policy': 'ignore' is not supported: ",
            ),
            (
                "data_disk_usage_percentage_warn_threshold = 0",
                "setting 'data_disk_usage_percentage_warn_threshold': must be from 1 to 100, or -1",
            ),
            (
                "data_disk_usage_percentage_warn_threshold = 95\ndata_disk_usage_percentage_fail_threshold = 90",
                "setting 'data_disk_usage_percentage_fail_threshold': must not be below",
            ),
        ] {
            let error = parse(text).unwrap().validate().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for size in ["\"10\"", "\"10 PiB\"", "\"-1B\"", "7"] {
            let text = format!("data_disk_usage_max_disk_size = {size}");
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("a size with the unit"), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest_setting() {
        let error = Config::from_toml("memtable_byte = 3", Path::new("x.toml")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.toml: unknown setting 'memtable_byte'; did you mean 'memtable_bytes'?"
        );
    }

    #[test]
    fn a_serialised_configuration_parses_to_an_equal_one() {
        let config = Config { shards: Some(3), commit_log: CommitLogMode::Periodic, ..Config::default() };
        let text = toml::to_string(&config).unwrap();
        assert_eq!(Config::from_toml(&text, Path::new("x.toml")).unwrap(), config);
        config.validate().unwrap();
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let config = Config { shards: Some(0), ..Config::default() };
        assert_eq!(config.validate().unwrap_err().to_string(), "setting 'shards': must be from 1 to 256");
        let config = Config { log_filter: "info,helenus=loud".to_owned(), ..Config::default() };
        let error_text = config.validate().unwrap_err().to_string();
        assert!(error_text.starts_with("setting 'log_filter': is not a valid log filter: "), "{error_text}");
        let config = Config { data_dir: PathBuf::new(), ..Config::default() };
        assert_eq!(config.validate().unwrap_err().to_string(), "setting 'data_dir': must not be empty");
    }

    #[test]
    fn a_node_with_seeds_needs_an_address_for_them() {
        let seeds = vec!["10.0.0.1:7000".parse().unwrap()];
        let config = Config { seeds, ..Config::default() };
        assert!(config.validate().unwrap_err().to_string().starts_with("setting 'seeds': a node with seeds"));
        let config = Config { internode: Some("10.0.0.2:0".parse().unwrap()), ..config };
        config.validate().unwrap();
        let config = Config { internode: Some("0.0.0.0:7000".parse().unwrap()), ..config };
        assert!(config.validate().unwrap_err().to_string().starts_with("setting 'internode': must be"));
        let config = Config { replace: Some(HostId::from_u128(1)), ..Config::default() };
        assert!(
            config.validate().unwrap_err().to_string().starts_with("setting 'replace': a node that takes")
        );
    }
}
