//! The settings of a node: a TOML file, overridden by `HELENUS_*` variables, overridden by flags.
//!
//! Invariants: an unknown key is an error (with the nearest known one as a suggestion), every value is validated
//! before the node touches the disk, and `helenus node --show-config` prints the settings in force.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::CLUSTER_NAME_BYTES_MAX;
use helenus_internode::link_context::LinkOptions;
use helenus_ring::allocation::{DEFAULT_REPLICATION_FACTOR, DEFAULT_TOKENS, TOKENS_MAX};
use serde::{Deserialize, Serialize};

/// Largest allowed `stream_piece_bytes`, in bytes.
pub const STREAM_PIECE_BYTES_MAX: u32 = 512 << 10;

/// The default log filter. At `info` the Raft library writes for its developers. At `warn` it reports leaders and
/// votes, and every message that a dead member does not answer.
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

/// The format of logs on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// Every setting of a node. Field docs are the documentation of the TOML keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Directory of all data. Locked against a second process.
    pub data_dir: PathBuf,
    /// Address and port for CQL clients. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Port on which a client's source port chooses the shard. 0 picks a free one; absent: `listen` port + 10000
    /// (19042 beside 9042), or a free one where `listen` has port 0.
    pub shard_aware_port: Option<u16>,
    /// Number of shards (threads); absent: one for each core.
    pub shards: Option<usize>,
    /// Loopback port of metrics, health and administration; 0 picks a free one.
    pub http_port: u16,
    /// Whether the HTTP port is served at all.
    pub http_enabled: bool,
    pub commit_log: CommitLogMode,
    /// Longest time between two `fdatasync` of a `periodic` commit log.
    pub commit_log_sync_period_ms: u64,
    /// Size of one commit-log segment. A mutation may be half as large.
    pub commit_log_segment_bytes: u64,
    /// Size of the whole commit log of the node above which the oldest memtables are flushed.
    pub commit_log_total_bytes: u64,
    /// Memory for the memtables of the node.
    pub memtable_bytes: u64,
    /// Memory for uncompressed table blocks of the node.
    pub block_cache_bytes: u64,
    /// Bytes per second that compactions of the node may write; 0: no limit.
    pub compaction_bytes_per_second: u64,
    /// Timeout for the replicas of a read within one partition.
    pub read_request_timeout_ms: u64,
    /// Timeout for the replicas of each part of a read of several partitions.
    pub range_request_timeout_ms: u64,
    /// Timeout for the replicas of a write.
    pub write_request_timeout_ms: u64,
    /// Timeout for writes of counters and of lists by index, which a replica begins with a read.
    pub counter_write_request_timeout_ms: u64,
    /// Timeout of TRUNCATE for all nodes.
    pub truncate_request_timeout_ms: u64,
    /// Time for which lightweight transactions and SERIAL reads try to outbid others.
    pub cas_contention_timeout_ms: u64,
    /// Time for which a partition's transactions must have been idle before replicas forget their state.
    pub transaction_state_idle_seconds: u64,
    /// Bytes of mutations in flight to replicas, over the whole node, above which further writes are refused.
    pub max_write_bytes_in_flight: u64,
    /// Whether hints are stored for replicas that missed a write.
    pub hinted_handoff_enabled: bool,
    /// Longest time that a replica may be down and still get hints. A hint is kept for at most 9/10 of
    /// `gc_grace_seconds`.
    pub max_hint_window_ms: u64,
    /// Most bytes of hints that the node keeps for one other node.
    pub max_hints_bytes: u64,
    /// Bytes per second of hints that the node sends to one other node; 0: no limit.
    pub hinted_handoff_throttle_bytes_per_second: u64,
    /// Bytes per second that the node streams when it gains ranges; 0: no limit.
    pub stream_throughput_bytes_per_second: u64,
    /// Size of a chunk of such a stream. A chunk is encoded, written, read, checked and decoded as a whole, each in
    /// one turn, so the requests of clients wait for it; and the allocator requests larger blocks from the system
    /// each time.
    pub stream_piece_bytes: u32,
    /// Number of tokens of a new node: from 1 to 256. More tokens make shares more even and joining slower.
    pub num_tokens: usize,
    /// The replication factor for which the tokens of a new node are chosen: shares of keyspaces with this factor are
    /// even.
    pub allocate_tokens_for_replication_factor: usize,
    /// In each period, every node probes one other node.
    pub liveness_probe_period_ms: u64,
    /// Time that a probed node may take to answer before others are asked to probe it.
    pub liveness_probe_timeout_ms: u64,
    /// Time for which a node that does not answer is only suspected; then it is down. So only longer pauses of a node
    /// are noticed.
    pub liveness_suspicion_ms: u64,
    pub cluster_name: String,
    pub data_center: String,
    pub rack: String,
    /// Address and port for other nodes, to which it is announced: not a wildcard address. Port 0 picks a free one;
    /// absent: this node has no neighbours.
    pub internode: Option<Endpoint>,
    /// Internode addresses of nodes through which the cluster is found. Empty, or only this node's own: it founds a
    /// cluster.
    pub seeds: Vec<Endpoint>,
    /// Largest message of another node. Above it the link is closed.
    pub max_internode_frame_bytes: u32,
    /// Bytes that may wait to be written to one link. Above it requests fail as overloaded.
    pub max_internode_queue_bytes: usize,
    /// Requests that may wait for answers on one link. Above it further ones fail as overloaded.
    pub max_internode_calls_per_link: usize,
    /// Requests of one link that are executed concurrently. Meanwhile no more are read from it.
    pub max_internode_requests_per_link: usize,
    /// Timeout for connecting a link, handshake included.
    pub internode_connect_timeout_ms: u64,
    /// Silence of another node after which it is probed; after twice that its link is closed.
    pub internode_keepalive_ms: u64,
    /// Longest pause between attempts to reach a node.
    pub internode_reconnect_max_ms: u64,
    /// `PlainText` login as in Cassandra is not supported yet: only `AllowAllAuthenticator`.
    pub authenticator: String,
    /// Largest request frame. Above it: an error; the frame is skipped as it arrives.
    pub max_frame_bytes: u32,
    /// Largest statement text.
    pub max_statement_bytes: usize,
    /// Most statements in a batch.
    pub max_batch_statements: usize,
    /// Bytes of the changes of a batch of several partitions above which the client gets a warning.
    pub batch_size_warn_threshold_bytes: usize,
    /// Bytes of the changes of a batch of several partitions above which the batch is refused.
    pub batch_size_fail_threshold_bytes: usize,
    /// Partitions of an unlogged batch above which the client gets a warning.
    pub unlogged_batch_across_partitions_warn_threshold: usize,
    /// Most concurrent connections.
    pub max_connections: usize,
    /// Most requests of one connection in flight; reading stops meanwhile.
    pub max_requests_per_connection: usize,
    /// Rows of a page if the client gives no page size; 0: no paging.
    pub default_page_rows: u32,
    /// Bytes that a page may hold before it ends early with a paging state.
    pub max_page_bytes: usize,
    /// Tombstones that a page may pass before it ends early with a paging state.
    pub max_page_tombstones: usize,
    pub log_format: LogFormat,
    /// A `tracing` filter; [`DEFAULT_LOG_FILTER`] by default.
    pub log_filter: String,
}

impl Default for Config {
    fn default() -> Self {
        let links = LinkOptions::default();
        Self {
            data_dir: PathBuf::from("helenus-data"),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9042),
            shard_aware_port: None,
            shards: None,
            http_port: 9180,
            http_enabled: true,
            commit_log: CommitLogMode::Group,
            commit_log_sync_period_ms: 10_000,
            commit_log_segment_bytes: 32 << 20,
            commit_log_total_bytes: 2 << 30,
            memtable_bytes: 256 << 20,
            block_cache_bytes: 256 << 20,
            compaction_bytes_per_second: 64 << 20,
            read_request_timeout_ms: 5_000,
            range_request_timeout_ms: 10_000,
            write_request_timeout_ms: 2_000,
            counter_write_request_timeout_ms: 5_000,
            truncate_request_timeout_ms: 60_000,
            cas_contention_timeout_ms: 1_800,
            transaction_state_idle_seconds: 3_600,
            max_write_bytes_in_flight: 256 << 20,
            hinted_handoff_enabled: true,
            max_hint_window_ms: 3 * 60 * 60 * 1_000,
            max_hints_bytes: 1 << 30,
            hinted_handoff_throttle_bytes_per_second: 16 << 20,
            stream_throughput_bytes_per_second: 100 << 20,
            stream_piece_bytes: 128 << 10,
            num_tokens: DEFAULT_TOKENS,
            allocate_tokens_for_replication_factor: DEFAULT_REPLICATION_FACTOR,
            liveness_probe_period_ms: 1_000,
            liveness_probe_timeout_ms: 450,
            liveness_suspicion_ms: 4_000,
            cluster_name: "helenus".to_owned(),
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            internode: None,
            seeds: Vec::new(),
            max_internode_frame_bytes: links.frame_bytes_max,
            max_internode_queue_bytes: links.queue_bytes_max,
            max_internode_calls_per_link: links.calls_per_link_max,
            max_internode_requests_per_link: links.requests_per_link_max,
            internode_connect_timeout_ms: links.connect_timeout.as_millis() as u64,
            internode_keepalive_ms: links.keepalive.as_millis() as u64,
            internode_reconnect_max_ms: links.reconnect_max.as_millis() as u64,
            authenticator: "AllowAllAuthenticator".to_owned(),
            max_frame_bytes: 256 << 20,
            max_statement_bytes: 16 << 20,
            max_batch_statements: 65_535,
            batch_size_warn_threshold_bytes: 5 << 10,
            batch_size_fail_threshold_bytes: 50 << 10,
            unlogged_batch_across_partitions_warn_threshold: 10,
            max_connections: 10_000,
            max_requests_per_connection: 256,
            default_page_rows: 0,
            max_page_bytes: 8 << 20,
            max_page_tombstones: 100_000,
            log_format: LogFormat::Text,
            log_filter: DEFAULT_LOG_FILTER.to_owned(),
        }
    }
}

/// The reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {message}")]
    Parse { path: PathBuf, message: String },
    #[error("{path}: unknown setting '{key}'{suggestion}")]
    UnknownKey { path: PathBuf, key: String, suggestion: String },
    #[error("setting '{key}': {message}")]
    Value { key: &'static str, message: String },
}

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
            source_ip: self.internode.as_ref().and_then(Endpoint::literal).map(|address| address.ip()),
        }
    }

    /// Reads and checks a TOML file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = crate::files::read_text(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text, path)
    }

    /// Parses TOML; `path` is for messages.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let parse_error =
            |error: toml::de::Error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() };
        let table: toml::Table = text.parse().map_err(parse_error)?;
        let known = Self::known_keys();
        for key in table.keys() {
            if !known.contains(key) {
                let suggestion =
                    nearest(key, &known).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key: key.clone(), suggestion });
            }
        }
        toml::from_str(text).map_err(parse_error)
    }

    fn known_keys() -> Vec<String> {
        // Optional settings are absent from a serialised default, so they get a value first.
        let all = Self {
            shard_aware_port: Some(0),
            shards: Some(1),
            internode: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7000).into()),
            ..Self::default()
        };
        toml::Table::try_from(all).map_or_else(|_| Vec::new(), |table| table.keys().cloned().collect())
    }

    /// Checks the ranges and combinations that types do not express.
    pub fn validate(&self) -> Result<(), ConfigError> {
        fn check(valid: bool, key: &'static str, message: &str) -> Result<(), ConfigError> {
            if valid { Ok(()) } else { Err(ConfigError::Value { key, message: message.to_owned() }) }
        }
        check(self.shards.is_none_or(|n| (1..=256).contains(&n)), "shards", "must be from 1 to 256")?;
        check((1..=TOKENS_MAX).contains(&self.num_tokens), "num_tokens", "must be from 1 to 256")?;
        check(
            (1..=100).contains(&self.allocate_tokens_for_replication_factor),
            "allocate_tokens_for_replication_factor",
            "must be from 1 to 100",
        )?;
        check(
            (100..=60_000).contains(&self.liveness_probe_period_ms),
            "liveness_probe_period_ms",
            "must be from 100 to 60000",
        )?;
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
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.log_filter) {
            return Err(ConfigError::Value {
                key: "log_filter",
                message: format!("is not a valid log filter: {error}"),
            });
        }
        check(!self.cluster_name.is_empty(), "cluster_name", "must not be empty")?;
        check(!self.data_center.is_empty(), "data_center", "must not be empty")?;
        check(!self.rack.is_empty(), "rack", "must not be empty")?;
        check(
            self.authenticator == "AllowAllAuthenticator",
            "authenticator",
            "only AllowAllAuthenticator is supported",
        )?;
        check(self.commit_log_sync_period_ms > 0, "commit_log_sync_period_ms", "must be above 0")?;
        check(
            (1 << 20..=1 << 30).contains(&self.commit_log_segment_bytes),
            "commit_log_segment_bytes",
            "must be from 1 MiB to 1 GiB",
        )?;
        check(
            self.commit_log_total_bytes >= 4 * self.commit_log_segment_bytes,
            "commit_log_total_bytes",
            "must hold at least four segments",
        )?;
        check(self.memtable_bytes >= 8 << 20, "memtable_bytes", "must be at least 8 MiB")?;
        check(self.block_cache_bytes >= 1 << 20, "block_cache_bytes", "must be at least 1 MiB")?;
        let timeout = 1..=3_600_000;
        let timeout_range = "must be from 1 to 3600000 (an hour)";
        check(timeout.contains(&self.read_request_timeout_ms), "read_request_timeout_ms", timeout_range)?;
        check(timeout.contains(&self.range_request_timeout_ms), "range_request_timeout_ms", timeout_range)?;
        check(timeout.contains(&self.write_request_timeout_ms), "write_request_timeout_ms", timeout_range)?;
        check(
            timeout.contains(&self.counter_write_request_timeout_ms),
            "counter_write_request_timeout_ms",
            timeout_range,
        )?;
        check(
            timeout.contains(&self.truncate_request_timeout_ms),
            "truncate_request_timeout_ms",
            timeout_range,
        )?;
        check(timeout.contains(&self.cas_contention_timeout_ms), "cas_contention_timeout_ms", timeout_range)?;
        check(
            (60..=31_536_000).contains(&self.transaction_state_idle_seconds),
            "transaction_state_idle_seconds",
            "must be from 60 to 31536000 (a year)",
        )?;
        check(
            self.max_write_bytes_in_flight >= 1 << 20,
            "max_write_bytes_in_flight",
            "must be at least 1 MiB",
        )?;
        check(
            (1..=30 * 24 * 3_600_000).contains(&self.max_hint_window_ms),
            "max_hint_window_ms",
            "must be from 1 to 2592000000 (30 days)",
        )?;
        check(self.max_hints_bytes >= 1 << 20, "max_hints_bytes", "must be at least 1 MiB")?;
        check(
            self.hinted_handoff_throttle_bytes_per_second == 0
                || self.hinted_handoff_throttle_bytes_per_second >= 64 << 10,
            "hinted_handoff_throttle_bytes_per_second",
            "must be 0 or at least 64 KiB",
        )?;
        check(
            (4 << 10..=STREAM_PIECE_BYTES_MAX).contains(&self.stream_piece_bytes),
            "stream_piece_bytes",
            "must be from 4 KiB to 512 KiB",
        )?;
        check(self.max_frame_bytes >= 64 << 10, "max_frame_bytes", "must be at least 64 KiB")?;
        check(self.max_statement_bytes >= 1 << 10, "max_statement_bytes", "must be at least 1 KiB")?;
        check(self.max_batch_statements >= 1, "max_batch_statements", "must be at least 1")?;
        check(
            self.batch_size_fail_threshold_bytes >= self.batch_size_warn_threshold_bytes,
            "batch_size_fail_threshold_bytes",
            "must not be below batch_size_warn_threshold_bytes",
        )?;
        check(self.max_connections >= 1, "max_connections", "must be at least 1")?;
        check(self.max_requests_per_connection >= 1, "max_requests_per_connection", "must be at least 1")?;
        check(self.max_page_bytes >= 64 << 10, "max_page_bytes", "must be at least 64 KiB")?;
        check(self.max_page_tombstones >= 1_000, "max_page_tombstones", "must be at least 1000")?;
        check(
            self.cluster_name.len() <= CLUSTER_NAME_BYTES_MAX,
            "cluster_name",
            "must not be longer than 256 bytes",
        )?;
        check(
            self.internode.as_ref().is_none_or(|endpoint| !endpoint.is_unspecified()),
            "internode",
            "must be an address by which other nodes reach this one, not a wildcard address",
        )?;
        check(
            self.seeds.is_empty() || self.internode.is_some(),
            "seeds",
            "a node with seeds needs `internode`, the address for its neighbours",
        )?;
        check(
            self.seeds.iter().all(|seed| !seed.is_unspecified() && seed.port() != 0),
            "seeds",
            "each must be a host name or address, and a port, that this node can reach",
        )?;
        check(
            self.max_internode_frame_bytes >= 1 << 20,
            "max_internode_frame_bytes",
            "must be at least 1 MiB",
        )?;
        check(
            self.max_internode_queue_bytes >= 1 << 20,
            "max_internode_queue_bytes",
            "must be at least 1 MiB",
        )?;
        check(self.max_internode_calls_per_link >= 1, "max_internode_calls_per_link", "must be at least 1")?;
        check(
            self.max_internode_requests_per_link >= 1,
            "max_internode_requests_per_link",
            "must be at least 1",
        )?;
        check(
            self.internode_connect_timeout_ms >= 10,
            "internode_connect_timeout_ms",
            "must be at least 10",
        )?;
        check(self.internode_keepalive_ms >= 100, "internode_keepalive_ms", "must be at least 100")?;
        check(self.internode_reconnect_max_ms >= 50, "internode_reconnect_max_ms", "must be at least 50")?;
        Ok(())
    }
}

/// The known name that is nearest to a misspelt one, if any is near enough.
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
    use super::*;

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
        let told = config.validate().unwrap_err().to_string();
        assert!(told.starts_with("setting 'log_filter': is not a valid log filter: "), "{told}");
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
    }
}
