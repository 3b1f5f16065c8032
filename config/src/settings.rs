//! The table of all settings. From it follow the type [`Config`], the defaults, the checks of ranges, Cassandra's names, the texts of
//! flags, and `helenus.toml` (a test compares them).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use helenus_internode::endpoint::{Endpoint, Host};
use helenus_internode::link_context::LinkOptions;
use helenus_ring::HostId;
use helenus_ring::allocation::{DEFAULT_REPLICATION_FACTOR, DEFAULT_TOKENS, TOKENS_MAX};
use helenus_roles::password_policy::PasswordPolicy;
use serde::{Deserialize, Serialize};

use crate::at_rest::EncryptionAtRest;
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
    ($(
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

settings! {
    section "Where";
    /// The directory of all data, made if missing. A second process cannot open it.
    data_dir: PathBuf = PathBuf::from("helenus-data"),
        flags "--data-dir, HELENUS_DATA_DIR";
    /// Directories for table files, made if missing, each on a disk of its own. A file goes where the most space is free. Default: in
    /// `data_dir`, which holds everything else in any case. Files stay where they are until a compaction rewrites them, so a
    /// directory that is left out is still needed until it is empty; a node that does not find one with files does not start.
    data_dirs: Vec<PathBuf> = Vec::new(),
        cassandra Alias::Same("data_file_directories");
    /// A directory for the commit log, made if missing, on another disk than `data_dir` for example. Default: in `data_dir`. To
    /// change it, stop the node and move `shard-N/commit-log` to `shard-N` in the new directory; a node that does not find its
    /// log does not start.
    commit_log_dir: Option<PathBuf> = None,
        cassandra Alias::Same("commitlog_directory"),
        example Some(PathBuf::from("helenus-commit-log"));
    /// Address and port for CQL clients. Port 0 picks a free one (the node prints it). Drivers are told this address unless
    /// `broadcast_rpc_address` is set. 0.0.0.0 or `[::]` (all addresses of the machine) need `broadcast_rpc_address`, or an address in
    /// `internode` or `broadcast_address` that clients reach too.
    listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9042),
        cassandra Alias::Port("native_transport_port"),
        flags "--listen, HELENUS_LISTEN";
    /// Address, or host name, by which clients reach this node, where it is not that of `listen`. Drivers get it in `system.local`,
    /// `system.peers` and events, with the port of `listen`. A name is looked up at the start.
    broadcast_rpc_address: Option<Host> = None,
        flags "--broadcast-rpc-address, HELENUS_BROADCAST_RPC_ADDRESS",
        example Some(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    /// Port, on the same address, on which the source port of a client chooses the shard that serves it (shard-aware drivers
    /// learn it from the node). 0 picks a free one. Default: the port of `listen` plus 10000; a free one if that is not a port
    /// or `listen` has port 0.
    shard_aware_port: Option<u16> = None,
        flags "--shard-aware-port, HELENUS_SHARD_AWARE_PORT",
        example Some(19042);
    /// Shards, each a thread with its part of the data. Default: one a core, decided when the data directory is
    /// made; later starts take the number from there and refuse another.
    shards: Option<usize> = None,
        range Range::from_to(1, 256),
        flags "--shards, HELENUS_SHARDS",
        example Some(2);
    /// Port for metrics, health and administration over HTTP, on 127.0.0.1 only. Port 0 picks a free one (logged at start). Default: 9180,
    /// on the address of `listen` where that is a loopback address; if it is taken, the node starts without it and says so.
    http_port: Option<u16> = None,
        flags "--http-port, HELENUS_HTTP_PORT",
        example Some(DEFAULT_HTTP_PORT);
    /// Address and port for the same in place of `http_port`. One that is not a loopback address needs `admin_encryption` with mode "required",
    /// and an `authenticator` that asks for logins: who administers over the network uses TLS and logs in as a role. Default: `http_port`.
    http_listen: Option<SocketAddr> = None,
        flags "--http-listen, HELENUS_HTTP_LISTEN",
        example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_HTTP_PORT));
    /// Whether that port is served.
    http_enabled: bool = true,
        flags "--no-http, HELENUS_NO_HTTP=true";
    /// The Unix socket for administration, which only the user of the node may use. Default: `helenus.sock` in `data_dir`, where
    /// `helenus admin` finds it; if it cannot be made there, the node starts without it and says so. Empty: none.
    admin_socket: Option<PathBuf> = None,
        flags "--admin-socket, HELENUS_ADMIN_SOCKET",
        example Some(PathBuf::from("/run/helenus/helenus.sock"));
    /// Address and port for a Prometheus on another machine: metrics and health over HTTP, and nothing else. Everybody who reaches it may
    /// read them. Default: none.
    metrics_listen: Option<SocketAddr> = None,
        flags "--metrics-listen, HELENUS_METRICS_LISTEN",
        example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9181));

    section "Durability";
    /// When a write is acknowledged.
    /// * "group": when it is on disk (`fdatasync`); writes that arrive meanwhile share the next sync.
    /// * "batch": when it is on disk; a sync starts at once for each.
    /// * "periodic": at once; the log is synced every `commit_log_sync_period_ms`. A killed process loses nothing that the
    ///   operating system has; a machine that loses power loses up to that period.
    commit_log: CommitLogMode = CommitLogMode::Group,
        cassandra Alias::Same("commitlog_sync"),
        flags "--commit-log, HELENUS_COMMIT_LOG";
    /// How long a "periodic" commit log may go without a sync. Above 0.
    commit_log_sync_period_ms: u64 = 10_000,
        unit Milliseconds,
        cassandra Alias::Same("commitlog_sync_period_in_ms");
    /// Size of one commit-log segment. Above 64 MiB `max_mutation_size` must be set.
    commit_log_segment_bytes: u64 = 32 << 20,
        unit Bytes,
        range Range::from_to(MIB, GIB),
        cassandra Alias::Scaled("commitlog_segment_size_in_mb", MIB);
    /// The largest mutation: all changes of one statement or batch to one partition. Default: half a commit-log segment, less 128 KiB
    /// for what hints and transactions store with it. At most 32640KiB. Larger ones are refused ("Rejected an oversized mutation").
    max_mutation_size: Option<DataSize> = None,
        unit Bytes,
        range Range::at_least(16 * KIB),
        example Some(DataSize(8 << 20));
    /// Size of the commit log of all shards above which the oldest memtables are flushed, so that segments become free. At
    /// least four segments.
    commit_log_total_bytes: u64 = 2 << 30,
        unit Bytes,
        cassandra Alias::Scaled("commitlog_total_space_in_mb", MIB);

    section "Full and failing disks";
    /// Room on the disk that is kept free for what must go on when the disk is full: flushes, the metadata log, transactions that have
    /// begun. While less is free, writes are refused. 0: none. Default: `memtable_bytes` and one commit-log segment a shard, but at
    /// most a tenth of the disk.
    disk_reserve_bytes: Option<u64> = None,
        unit Bytes,
        example Some(512 << 20);
    /// Share of the disk, in percent, that the data may take before clients are warned. From 1 to 100; -1: no warning. The disk is
    /// what the data takes and what is free; memtables count as data. Measured every 30 seconds.
    data_disk_usage_percentage_warn_threshold: i32 = -1,
        cassandra Alias::Same("data_disk_usage_percentage_warn_threshold");
    /// Share above which writes are refused, by every node that coordinates a write for this one. From 1 to 100; -1: no limit.
    /// Not below the threshold of the warning.
    data_disk_usage_percentage_fail_threshold: i32 = -1,
        cassandra Alias::Same("data_disk_usage_percentage_fail_threshold");
    /// Size of the disk for these two shares, if it is less than what the data takes and what is free. Not more than the disk has.
    data_disk_usage_max_disk_size_bytes: Option<u64> = None,
        unit Bytes,
        range Range::at_least(1),
        cassandra Alias::Size("data_disk_usage_max_disk_size"),
        example Some(100 << 30);
    /// What the node does when a file of data cannot be read or written, or is damaged. The request or the compaction that meets
    /// it fails, whatever the policy.
    /// * `"best_effort"`: everything else goes on. A damaged range answers with an error, never with fewer rows.
    /// * `"stop"`: after an I/O error the node serves nothing more until it is restarted; damage of a file is as for `"best_effort"`.
    /// * `"stop_paranoid"`: so too when a file is damaged.
    /// * `"die"`: the process ends, in both cases.
    ///
    /// Cassandra's `"ignore"` is refused. Cassandra's default is `"stop"`.
    disk_failure_policy: DiskFailurePolicy = DiskFailurePolicy::BestEffort,
        cassandra Alias::Same("disk_failure_policy");
    /// What the node does when a write or sync of the commit log has failed. No write is accepted any more, whatever the policy.
    /// A full disk is no such failure: the node waits for room.
    /// * `"stop"`: a member of a cluster serves nothing more until it is restarted. A node that is alone goes on answering reads.
    /// * `"stop_commit"`: reads are answered, also in a cluster.
    /// * `"die"`: the process ends.
    ///
    /// Cassandra's `"ignore"` is refused.
    commit_failure_policy: CommitFailurePolicy = CommitFailurePolicy::Stop,
        cassandra Alias::Same("commit_failure_policy");
    section "Snapshots";
    /// Whether a snapshot of a table is taken before DROP TABLE, DROP KEYSPACE and TRUNCATE. It is named `dropped-` or `truncated-`, the time
    /// in milliseconds and the table, and keeps the disk space of the table's files until it is removed (`helenus admin clearsnapshot`).
    /// A table whose option `allow_auto_snapshot` is false, and an empty one, get none.
    auto_snapshot: bool = true;
    /// How long such a snapshot is kept, as a number with a unit: "30d", "12h", "90m", "60s". Default: until it is removed.
    auto_snapshot_ttl: Option<Period> = None,
        example Some(Period::from_days(30));
    /// Whether every file that a flush makes of a user's table is linked into `backups/<table id>` of the directory that it lies in. The node never
    /// removes anything there: copy the files away and remove them, for example after each snapshot.
    incremental_backups: bool = false;
    /// Whether a node removes the data of ranges that it has given up by itself, after a member has joined, or was to leave and stays. Until
    /// it has done so it gains no ranges, and members that would give it some cannot leave, because deleted rows would come back. Without it
    /// run `helenus admin cleanup` on each member.
    cleanup_after_transition: bool = true;
    /// A directory for copies of the commit log's segments, for restores to a point in time (`helenus admin replay`): each complete segment
    /// goes to `<host id>/shard-N` there. The directory must be there: a disk that is not mounted is not written to. The node never changes or
    /// removes a copy. While copies fail, segments stay in the log.
    commit_log_archive_dir: Option<PathBuf> = None,
        example Some(PathBuf::from("helenus-commit-log-archive"));

    section "Memory and background work" "Each is for the node as a whole; every shard gets an equal part.";
    /// Memory for memtables. Flushing begins at half of it; writes wait when all of it is used.
    memtable_bytes: u64 = 256 << 20,
        unit Bytes,
        range Range::at_least(8 * MIB),
        flags "--memtable-bytes, HELENUS_MEMTABLE_BYTES";
    /// Memory for uncompressed blocks of tables.
    block_cache_bytes: u64 = 256 << 20,
        unit Bytes,
        range Range::at_least(MIB),
        flags "--block-cache-bytes, HELENUS_BLOCK_CACHE_BYTES";
    /// Bytes a second that compactions may write. 0: no bound.
    compaction_bytes_per_second: u64 = 64 << 20,
        unit BytesPerSecond,
        cassandra Alias::Scaled("compaction_throughput_mb_per_sec", MIB);
    /// Bytes a second that a node fetches from others when it takes ranges over (it joins, or another one leaves). 0: no bound.
    stream_throughput_bytes_per_second: u64 = 100 << 20,
        unit BytesPerSecond;
    /// What it asks for at a time then. A chunk is encoded, written, read, checked and decoded as a whole, each in one turn, so
    /// the requests of clients wait behind it; and the allocator asks the system for larger blocks anew each time.
    stream_chunk_bytes: u32 = 128 << 10,
        unit Bytes,
        range Range::from_to(4 * KIB, STREAM_CHUNK_BYTES_MAX as u64);
    /// Whether the nodes repair their ranges by themselves: each range at least once in half of its table's `gc_grace_seconds`, and soon after
    /// a replica has missed writes for which no hints were kept.
    automatic_repair: bool = true;
    /// Bytes of rows a second that a node reads for the comparisons of repairs. 0: no bound.
    repair_throughput_bytes_per_second: u64 = 32 << 20,
        unit BytesPerSecond;

    section "Reads from several nodes";
    /// How long a coordinator waits for the replicas of a read within one partition.
    read_request_timeout_ms: u64 = 5_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("read_request_timeout_in_ms");
    /// The same for each part of a read of several partitions.
    range_request_timeout_ms: u64 = 10_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("range_request_timeout_in_ms");

    section "Writes to several nodes";
    /// How long a coordinator waits for the replicas of a write; then the client gets a timeout.
    write_request_timeout_ms: u64 = 2_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("write_request_timeout_in_ms");
    /// The same for what a replica begins with a read: counters, lists changed by index or value.
    counter_write_request_timeout_ms: u64 = 5_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("counter_write_request_timeout_in_ms");
    /// How long TRUNCATE waits for all nodes.
    truncate_request_timeout_ms: u64 = 60_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("truncate_request_timeout_in_ms");
    /// How long lightweight transactions and SERIAL reads try to outbid others.
    cas_contention_timeout_ms: u64 = 1_800,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour"),
        cassandra Alias::Same("cas_contention_timeout_in_ms");
    /// How long the transactions of a partition must have rested before replicas forget their state. Clocks of nodes must not
    /// be further apart than this.
    transaction_state_idle_seconds: u64 = 3_600,
        unit Seconds,
        range Range::from_to(60, 31_536_000).that_is("a year");
    /// Bytes of mutations on their way to replicas, over all shards, above which further writes are answered with OVERLOADED.
    /// A single write is never too large for it.
    max_write_bytes_in_flight: u64 = 256 << 20,
        unit Bytes,
        range Range::at_least(MIB);
    /// Whether a write that a replica missed (it was down or did not answer in time) is kept as a hint and sent when the replica
    /// is back.
    hinted_handoff_enabled: bool = true;
    /// How long a replica may be away and writes still be kept for it; after that it needs a repair.
    /// A hint is given up when nine tenths of its table's `gc_grace_seconds` have passed.
    max_hint_window_ms: u64 = 3 * 60 * 60 * 1_000,
        unit Milliseconds,
        range Range::from_to(1, 2_592_000_000).that_is("30 days"),
        cassandra Alias::Same("max_hint_window_in_ms");
    /// Bytes of hints that this node keeps for one other node. What is over it needs a repair.
    max_hints_bytes: u64 = 1 << 30,
        unit Bytes,
        range Range::at_least(MIB);
    /// Bytes a second of hints that this node sends to one other node. 0: no bound.
    hinted_handoff_throttle_bytes_per_second: u64 = 16 << 20,
        unit BytesPerSecond,
        range Range::at_least(64 * KIB).or_zero(),
        cassandra Alias::Scaled("hinted_handoff_throttle_in_kb", KIB);

    section "Neighbours";
    /// Host name or address, and port, for other nodes. They get the address (that of a name is looked up at the start) unless
    /// `broadcast_address` is set, so it must be one by which they reach this node, not 0.0.0.0 or `[::]`. Port 0 picks a free one (logged
    /// at start). Default: none, and the node has no neighbours.
    internode: Option<Endpoint> = None,
        flags "--internode, HELENUS_INTERNODE",
        example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7000).into());
    /// Address, or host name, by which other nodes reach this one, where it is not that of `internode`. They connect to it with the port
    /// of `internode`, which may then be a wildcard address. A name is looked up at the start.
    broadcast_address: Option<Host> = None,
        flags "--broadcast-address, HELENUS_BROADCAST_ADDRESS",
        example Some(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    /// Internode addresses (HOST:PORT) of nodes by which the cluster is found; names are looked up before each attempt.
    /// None, or only this node's own: it starts a cluster, or goes on with the one that it belongs to. On the command line separated
    /// by commas.
    seeds: Vec<Endpoint> = Vec::new(),
        flags "--seeds, HELENUS_SEEDS";
    /// Host id of a dead member whose place a node with an empty data directory takes: it gets the member's tokens, needs its data center
    /// and rack, and may have its address. When it has joined so, this is ignored.
    replace: Option<HostId> = None,
        flags "--replace, HELENUS_REPLACE",
        example Some(HostId::from_u128(0x7b0f_6c5e_58a1_4a3e_9d1c_2f1d_3a0c_5b77));
    /// Whether it does so even if that member had the only copy of some rows, which are lost then. Not without `replace`.
    replace_accept_loss: bool = false,
        flags "--accept-loss, HELENUS_REPLACE_ACCEPT_LOSS=true";
    /// Largest message of another node. Above it the link is closed.
    max_internode_frame_bytes: u32 = LinkOptions::default().frame_bytes_max,
        unit Bytes,
        range Range::at_least(MIB);
    /// Bytes that may wait to be written to one link, which goes from a shard of this node to a shard of another. Above: requests
    /// fail as overloaded. A single message may be larger.
    max_internode_queue_bytes: usize = LinkOptions::default().queue_bytes_max,
        unit Bytes,
        range Range::at_least(MIB);
    /// Requests that may wait for answers on one link. Above: further ones fail as overloaded.
    max_internode_calls_per_link: usize = LinkOptions::default().calls_per_link_max,
        range Range::at_least(1);
    /// Requests of one link that are carried out at a time; meanwhile no more are read from it.
    max_internode_requests_per_link: usize = LinkOptions::default().requests_per_link_max,
        range Range::at_least(1);
    /// Within which a link must be made, handshake included.
    internode_connect_timeout_ms: u64 = LinkOptions::default().connect_timeout.as_millis() as u64,
        unit Milliseconds,
        range Range::at_least(10);
    /// Silence of another node after which it is asked for a sign; after twice as long the link is closed.
    internode_keepalive_ms: u64 = LinkOptions::default().keepalive.as_millis() as u64,
        unit Milliseconds,
        range Range::at_least(100);
    /// The longest pause between attempts to reach a node. The first is 50 ms, each further one twice as long.
    internode_reconnect_max_ms: u64 = LinkOptions::default().reconnect_max.as_millis() as u64,
        unit Milliseconds,
        range Range::at_least(50);

    section "Ring and liveness";
    /// Places in the ring of a node that is new; kept afterwards. More make shares more even and joining slower.
    num_tokens: usize = DEFAULT_TOKENS,
        range Range::from_to(1, TOKENS_MAX as u64);
    /// The replication factor that the tokens of a new node are chosen for: shares of keyspaces that have it are even.
    allocate_tokens_for_replication_factor: usize = DEFAULT_REPLICATION_FACTOR,
        range Range::from_to(1, 100),
        cassandra Alias::Same("allocate_tokens_for_local_replication_factor");
    /// Every node probes one other in each such period. The same on all nodes.
    liveness_probe_period_ms: u64 = 1_000,
        unit Milliseconds,
        range Range::from_to(100, 60_000);
    /// How long a probed node may take to answer before others are asked to probe it. From 10 to half of `liveness_probe_period_ms`.
    liveness_probe_timeout_ms: u64 = 450,
        unit Milliseconds;
    /// How long a node that does not answer is only suspected; then it is down. With these settings a killed node is down for all
    /// after 5 to 8 seconds, and one that pauses for less than 4 is never. From `liveness_probe_period_ms` to 600000.
    liveness_suspicion_ms: u64 = 4_000,
        unit Milliseconds;

    section "Names that clients are shown";
    /// Name of the cluster. Not empty, at most 256 bytes. Nodes of another name are refused.
    cluster_name: String = "helenus".to_owned(),
        flags "--cluster-name, HELENUS_CLUSTER_NAME";
    /// Name of the data center of the node: that in `NetworkTopologyStrategy`, and what drivers call "local". Not empty.
    data_center: String = "datacenter1".to_owned(),
        flags "--data-center, HELENUS_DATA_CENTER";
    /// Name of the rack of the node. Not empty.
    rack: String = "rack1".to_owned(),
        flags "--rack, HELENUS_RACK";

    section "Roles and logins" "Names of classes are Cassandra's, with or without their package.";
    /// How clients log in.
    /// * `"AllowAllAuthenticator"`: not at all; everybody is in.
    /// * `"PasswordAuthenticator"`: with the name of a role and its password.
    /// * `"MutualTlsAuthenticator"`: with a certificate whose identity belongs to a role (`ADD IDENTITY`).
    /// * `"MutualTlsWithPasswordFallbackAuthenticator"`: with such a certificate, or without one with a password.
    authenticator: Authenticator = Authenticator::AllowAllAuthenticator;
    /// Whether statements need permissions: `"AllowAllAuthorizer"` (none) or `"CassandraAuthorizer"` (those that were granted to the
    /// role of the client; needs an authenticator that asks for a login).
    authorizer: Authorizer = Authorizer::AllowAllAuthorizer;
    /// Where roles are kept. They are a part of the cluster's metadata, so that every node has them; there is no other choice.
    role_manager: RoleManager = RoleManager::CassandraRoleManager;
    /// Whether roles are bound to data centers: `"AllowAllNetworkAuthorizer"` (no) or `"CassandraNetworkAuthorizer"` (to those of
    /// `ACCESS TO DATACENTERS`; needs an authenticator that asks for a login).
    network_authorizer: NetworkAuthorizer = NetworkAuthorizer::AllowAllNetworkAuthorizer;
    /// Whether roles are bound to addresses of clients: `"AllowAllCIDRAuthorizer"` (no) or `"CassandraCIDRAuthorizer"` (to those of
    /// the groups of `ACCESS FROM CIDRS`; needs an authenticator that asks for a login).
    cidr_authorizer: CidrAuthorizer = CidrAuthorizer::AllowAllCIDRAuthorizer;
    /// What becomes of a login from an address that the role may not come from: `"MONITOR"` (it is logged) or `"ENFORCE"` (it is refused).
    cidr_authorizer_mode: CidrAuthorizerMode = CidrAuthorizerMode::Monitor;
    /// Whether superusers are bound to addresses as well.
    cidr_checks_for_superusers: bool = true;
    /// How long a verified password is remembered, as a keyed digest, so that further connections of the same client cost no hash. A
    /// change of the password is seen at once in any case. 0: never.
    credentials_validity_ms: u64 = 2_000,
        unit Milliseconds,
        range Range::from_to(1, 3_600_000).that_is("an hour").or_zero(),
        cassandra Alias::Milliseconds("credentials_validity");
    /// A node that could not confirm for this long that it knows the newest roles refuses its clients, until it can: so what was revoked is revoked
    /// everywhere within this time, also on nodes that are cut off from the others. 0: it goes on with the roles that it knows. Only with an
    /// authenticator that asks for a login.
    unconfirmed_roles_limit_ms: u64 = 600_000,
        unit Milliseconds,
        range Range::from_to(10_000, 2_592_000_000).that_is("30 days").or_zero();
    /// How long a client may take to log in; then its connection is closed. Only with an authenticator that asks for a login.
    login_timeout_ms: u64 = 15_000,
        unit Milliseconds,
        range Range::from_to(100, 3_600_000).that_is("an hour");
    /// Most connections that have not logged in yet. For one more, the oldest one of the address that has the most of them is closed.
    /// Default: a quarter of `max_connections`. Only with an authenticator that asks for a login.
    max_connections_before_login: Option<usize> = None,
        range Range::at_least(1),
        example Some(1_000);

    section "Limits for clients" "Over a limit the client gets an error; the node goes on.";
    /// Largest request frame. Above it: an error; the frame is skipped as it arrives.
    max_frame_bytes: u32 = 256 << 20,
        unit Bytes,
        range Range::at_least(64 * KIB),
        cassandra Alias::Scaled("native_transport_max_frame_size_in_mb", MIB);
    /// Longest text of a statement.
    max_statement_bytes: usize = 16 << 20,
        unit Bytes,
        range Range::at_least(KIB);
    /// Most statements of a BATCH message.
    max_batch_statements: usize = 65_535,
        range Range::at_least(1);
    /// Bytes of the changes of a batch of several partitions above which its client gets a warning. Where rows must be read first
    /// (counters, lists changed by index or value) the bytes of the bound values count. A batch of one partition is bounded by
    /// `max_mutation_size` alone.
    batch_size_warn_threshold_bytes: usize = 5 << 10,
        unit Bytes,
        cassandra Alias::Scaled("batch_size_warn_threshold_in_kb", KIB);
    /// Such bytes above which the batch is refused ("Batch too large"). Not below `batch_size_warn_threshold_bytes`.
    batch_size_fail_threshold_bytes: usize = 50 << 10,
        unit Bytes,
        cassandra Alias::Scaled("batch_size_fail_threshold_in_kb", KIB);
    /// Partitions of a batch that is not logged above which its client gets a warning.
    unlogged_batch_across_partitions_warn_threshold: usize = 10;
    /// Most connections at a time; further ones are closed at once.
    max_connections: usize = 10_000,
        range Range::at_least(1),
        cassandra Alias::Same("native_transport_max_concurrent_connections");
    /// Most requests of one connection that are carried out at a time; meanwhile no more are read from it.
    max_requests_per_connection: usize = 256,
        range Range::at_least(1);
    /// Requests a second that each role may make of this node; as many may come at once. Clients that have not logged in count as one
    /// role. More are refused: with `RATE_LIMIT_ERROR` for clients that have negotiated it, else OVERLOADED. 0: no limit.
    role_requests_per_second_max: u64 = 0,
        range Range::from_to(1, 1_000_000_000).or_zero();
    /// While roles want more than a shard has, each gets the same time of its thread, or as much as its shares say (`OPTIONS` of a role).
    /// Clients that have not logged in have no share.
    fair_shares_enabled: bool = true;
    /// A request that takes longer is counted, and logged (a few a second on each shard) with its statement without values. 0: none.
    slow_query_log_timeout_ms: u64 = 500,
        unit Milliseconds,
        cassandra Alias::Same("slow_query_log_timeout_in_ms");
    /// Reads or writes of one partition a second, on the average of five minutes and on the shard that has it, above which the partition's key is
    /// logged as a warning. 0: none is.
    hot_partition_warn_requests_per_second: u64 = 10_000;
    /// Rows of a page for clients that name no page size. 0: such a client gets its whole answer at once, whatever its size.
    default_page_rows: u32 = 0;
    /// A page ends early, with a cursor for the next, when it has this many bytes ...
    max_page_bytes: usize = 8 << 20,
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// ... or when this many tombstones were passed for it.
    max_page_tombstones: usize = 100_000,
        range Range::at_least(1_000);
    /// Whether ALTER TABLE may drop COMPACT STORAGE.
    drop_compact_storage_enabled: bool = false;

    section "Partition denylist" "Partitions that clients may not use (`helenus admin denylist`). All nodes have one list, and each coordinator obeys it or not.";
    /// Whether requests of clients for partitions of the list are refused.
    partition_denylist_enabled: bool = false;
    /// Of these, writes: also batches, counters and transactions with one such partition.
    denylist_writes_enabled: bool = true;
    /// Of these, reads that name one such partition.
    denylist_reads_enabled: bool = true;
    /// Of these, reads of ranges of tokens that have one such partition; also by an index, and of a whole table.
    denylist_range_reads_enabled: bool = true;
    /// Most partitions of one table that the node puts on the list.
    denylist_max_keys_per_table: u64 = 1_000,
        range Range::at_least(1);
    /// Most partitions of all tables that the node puts on the list.
    denylist_max_keys_total: u64 = 10_000,
        range Range::at_least(1);

    section "Guardrails" "What operators of a cluster may set for its clients, with Cassandra's names. -1 turns a number off, and so does no size.";
    /// Keyspaces, apart from those of the system, above which CREATE KEYSPACE brings a warning.
    keyspaces_warn_threshold: i64 = -1;
    /// The same for an error.
    keyspaces_fail_threshold: i64 = -1;
    /// Tables of all keyspaces, apart from those of the system, above which CREATE TABLE brings a warning.
    tables_warn_threshold: i64 = -1;
    /// The same for an error.
    tables_fail_threshold: i64 = -1;
    /// Columns of one table above which CREATE TABLE and ALTER TABLE ADD bring a warning.
    columns_per_table_warn_threshold: i64 = -1;
    /// The same for an error.
    columns_per_table_fail_threshold: i64 = -1;
    /// Indexes of one table above which CREATE INDEX brings a warning.
    secondary_indexes_per_table_warn_threshold: i64 = -1;
    /// The same for an error.
    secondary_indexes_per_table_fail_threshold: i64 = -1;
    /// Fields of one user-defined type above which CREATE TYPE and ALTER TYPE bring a warning.
    fields_per_udt_warn_threshold: i64 = -1;
    /// The same for an error.
    fields_per_udt_fail_threshold: i64 = -1;
    /// Dimensions of a vector above which a column or field of that type brings a warning.
    vector_dimensions_warn_threshold: i64 = -1;
    /// The same for an error.
    vector_dimensions_fail_threshold: i64 = -1;
    /// Replication factor of a keyspace below which CREATE and ALTER KEYSPACE bring a warning.
    minimum_replication_factor_warn_threshold: i64 = -1;
    /// The same for an error.
    minimum_replication_factor_fail_threshold: i64 = -1;
    /// Replication factor of a keyspace above which CREATE and ALTER KEYSPACE bring a warning.
    maximum_replication_factor_warn_threshold: i64 = -1;
    /// The same for an error.
    maximum_replication_factor_fail_threshold: i64 = -1;
    /// Rows of a page above which a SELECT brings a warning.
    page_size_warn_threshold: i64 = -1;
    /// The same for an error.
    page_size_fail_threshold: i64 = -1;
    /// Partition keys that an IN names above which a SELECT brings a warning.
    partition_keys_in_select_warn_threshold: i64 = -1;
    /// The same for an error.
    partition_keys_in_select_fail_threshold: i64 = -1;
    /// Combinations of the values of several IN above which a SELECT brings a warning.
    in_select_cartesian_product_warn_threshold: i64 = -1;
    /// The same for an error.
    in_select_cartesian_product_fail_threshold: i64 = -1;
    /// Bytes of one value (of a collection: of one element) above which a write brings a warning.
    column_value_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(256 << 10));
    /// The same for an error.
    column_value_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of a partition, before compression, above which a file that gets it (from a flush or compaction) is logged as a warning.
    partition_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(100 << 20));
    /// The same for an error in the log. Nothing is refused.
    partition_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 30));
    /// Tombstones of a partition above which a file that gets them is logged as a warning.
    partition_tombstones_warn_threshold: i64 = -1;
    /// The same for an error in the log. Nothing is refused.
    partition_tombstones_fail_threshold: i64 = -1;
    /// Bytes of the collection that a statement writes above which it brings a warning.
    collection_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 20));
    /// The same for an error.
    collection_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of a value of type ascii above which a write brings a warning. Cassandra 6's.
    column_ascii_value_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(256 << 10));
    /// The same for an error.
    column_ascii_value_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of a value of type blob above which a write brings a warning. Cassandra 6's.
    column_blob_value_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(256 << 10));
    /// The same for an error.
    column_blob_value_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of a value of type text (or varchar, which is the same) above which a write brings a warning. Cassandra 6's.
    column_text_value_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(256 << 10));
    /// The same for an error.
    column_text_value_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of a value of type varchar (or text, which is the same) above which a write brings a warning. Cassandra 6's.
    column_varchar_value_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(256 << 10));
    /// The same for an error.
    column_varchar_value_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of the map that a statement writes above which it brings a warning. Cassandra 6's.
    collection_map_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 20));
    /// The same for an error.
    collection_map_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of the set that a statement writes above which it brings a warning. Cassandra 6's.
    collection_set_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 20));
    /// The same for an error.
    collection_set_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Bytes of the list that a statement writes above which it brings a warning. Cassandra 6's.
    collection_list_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 20));
    /// The same for an error.
    collection_list_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 20));
    /// Files of indexes that a search asks on one shard above which the replica logs a warning.
    sai_sstable_indexes_per_query_warn_threshold: i64 = 32;
    /// The same for an error: the replica does not answer the search.
    sai_sstable_indexes_per_query_fail_threshold: i64 = -1;
    /// Bytes of a value, or of an element, in a column with a storage-attached index above which a write brings a warning.
    sai_string_term_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 10));
    /// The same for an error.
    sai_string_term_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 10));
    /// Bytes of a frozen collection, tuple or user-defined type with a storage-attached index above which a write brings a warning.
    sai_frozen_term_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(1 << 10));
    /// The same for an error.
    sai_frozen_term_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(8 << 10));
    /// Bytes of a vector with a storage-attached index above which a write brings a warning.
    sai_vector_term_size_warn_threshold: Option<DataSize> = None,
        example Some(DataSize(16 << 10));
    /// The same for an error.
    sai_vector_term_size_fail_threshold: Option<DataSize> = None,
        example Some(DataSize(32 << 10));
    /// How far in the future the timestamp of a statement (USING TIMESTAMP) may be; further, it brings a warning.
    maximum_timestamp_warn_threshold: Option<Period> = None,
        example Some(Period::from_days(1));
    /// The same for an error.
    maximum_timestamp_fail_threshold: Option<Period> = None,
        example Some(Period::from_days(2));
    /// How far in the past the timestamp of a statement (USING TIMESTAMP) may be; further, it brings a warning.
    minimum_timestamp_warn_threshold: Option<Period> = None,
        example Some(Period::from_days(1));
    /// The same for an error.
    minimum_timestamp_fail_threshold: Option<Period> = None,
        example Some(Period::from_days(30));
    /// Items of the collection that a statement writes above which it brings a warning.
    items_per_collection_warn_threshold: i64 = -1;
    /// The same for an error.
    items_per_collection_fail_threshold: i64 = -1;
    /// Whether statements may give timestamps (USING TIMESTAMP).
    user_timestamps_enabled: bool = true;
    /// Whether SELECT may have GROUP BY.
    group_by_enabled: bool = true;
    /// Whether SELECT may have ALLOW FILTERING.
    allow_filtering_enabled: bool = true;
    /// Whether elements of lists may be set by index, or removed by index or value, which reads before it writes.
    read_before_write_list_operations_enabled: bool = true;
    /// Whether ALTER TABLE may add, drop and rename columns.
    alter_table_enabled: bool = true;
    /// Whether statements may change the schema at all.
    ddl_enabled: bool = true;
    /// Whether DROP TABLE and TRUNCATE are allowed.
    drop_truncate_table_enabled: bool = true;
    /// Whether DROP KEYSPACE is allowed.
    drop_keyspace_enabled: bool = true;
    /// Whether CREATE INDEX is allowed.
    secondary_indexes_enabled: bool = true;
    /// Whether statements may turn the compression of a table off.
    uncompressed_tables_enabled: bool = true;
    /// Whether CREATE TABLE may have COMPACT STORAGE.
    compact_tables_enabled: bool = true;
    /// Whether columns and fields may be vectors.
    vector_type_enabled: bool = true;
    /// Whether SELECT may find rows by an index without naming their partitions.
    non_partition_restricted_index_query_enabled: bool = true;
    /// Whether SELECT may filter by several columns that are not of the key where it puts the answers of several replicas together.
    intersect_filtering_query_enabled: bool = true;
    /// Whether that brings a warning where it is allowed. Cassandra's default is true: there such a SELECT may miss rows. Here it does not.
    intersect_filtering_query_warned: bool = false;
    /// Whether keyspaces may have `SimpleStrategy`.
    simplestrategy_enabled: bool = true;
    /// Whether a table with `TimeWindowCompactionStrategy` may have a `default_time_to_live` of 0.
    zero_ttl_on_twcs_enabled: bool = true;
    /// Whether that brings a warning where it is allowed.
    zero_ttl_on_twcs_warned: bool = true;
    /// Properties of tables (compaction, `gc_grace_seconds`, ...) that bring a warning where CREATE or ALTER TABLE sets them.
    table_properties_warned: Vec<String> = Vec::new();
    /// Properties of tables that are left out, with a warning.
    table_properties_ignored: Vec<String> = Vec::new();
    /// Properties of tables that are refused.
    table_properties_disallowed: Vec<String> = Vec::new();
    /// Consistency levels that bring a warning in reads.
    read_consistency_levels_warned: Vec<String> = Vec::new();
    /// Consistency levels that are refused in reads.
    read_consistency_levels_disallowed: Vec<String> = Vec::new();
    /// Consistency levels that bring a warning in writes.
    write_consistency_levels_warned: Vec<String> = Vec::new();
    /// Consistency levels that are refused in writes.
    write_consistency_levels_disallowed: Vec<String> = Vec::new();

    section "Encryption of connections" "Tables: write them as [client_encryption], [internode_encryption] and [admin_encryption] at the end of the file. docs/security.md has the steps.";
    /// TLS for clients.
    /// * `mode`: "off"; "optional": on one port with clients that do not use it; "required": other clients are refused.
    /// * `certificate`, `key`: PEM files of the node. They are read again when they change; files that cannot be used are logged and
    ///   leave the former ones in use.
    /// * `client_certificates`: "none", "optional" or "required"; `authorities` vouch for them, and `revocations` (a PEM file of CRLs) withdraw some.
    ///
    /// Cassandra's table, `client_encryption_options`, names files of other formats (JKS, PKCS 12), which are not read.
    client_encryption: ClientEncryption = ClientEncryption::default(),
        example ClientEncryption::example();
    /// TLS between nodes, with the same keys; both sides always show certificates. A certificate names the node's host id
    /// (`urn:uuid:...` as a URI, or as a DNS name), or its address or a DNS name that is looked up to it. With "optional" a node accepts
    /// both and uses TLS with every node that does: it is the step between "off" and "required" of a running cluster.
    internode_encryption: InternodeEncryption = InternodeEncryption::default(),
        example InternodeEncryption::example();
    /// TLS of the port for metrics, health and administration (`http_port`, `http_listen`), with the same keys as for clients. With "optional",
    /// on loopback addresses only, plain HTTP is served too. The Unix socket and `metrics_listen` have no TLS.
    admin_encryption: ClientEncryption = ClientEncryption::default(),
        example ClientEncryption::example();

    section "Encryption of files" "A table: write it as [encryption_at_rest] at the end of the file. docs/security.md has the steps.";
    /// Encryption of the files of the node with AES-256-GCM: tables, indexes, commit log, hints, metadata, snapshots.
    /// * `mode`: "off"; "all": new files are encrypted, and older ones when they are written again; "tables": so are all but those of tables without
    ///   the option `encryption = {'enabled': 'true'}`. With "off" and keys the encrypted ones are read.
    /// * `key_file` or `key_command` (its output) has the master keys, one a line: a name and 32 bytes in base64. The last one is used for new
    ///   files. They are read at the start and by `helenus admin reloadssl`.
    /// * `key_command_timeout_ms`: a command that takes longer is ended, and is an error.
    /// * `plain_files`: "accept"; "refuse": a file that is not encrypted, and would be if it were made now, is an error that names it, so that nobody
    ///   puts one in the place of an encrypted one. `helenus encrypt` encrypts all that are left while the node is stopped.
    encryption_at_rest: EncryptionAtRest = EncryptionAtRest::default(),
        example EncryptionAtRest::example();

    section "Passwords" "A table: write it as [password_policy] at the end of the file.";
    /// What new passwords of roles must be like, with Cassandra's names. Passwords are refused below the bounds that end with `_fail`, and accepted
    /// with a warning below those that end with `_warn`. Hashed passwords are not looked at.
    /// * `validator_class_name`: `"CassandraPasswordValidator"`; without it every password is accepted.
    /// * `generator_class_name`: `"CassandraPasswordGenerator"`, for `GENERATED PASSWORD`; without it that is refused.
    /// * `characteristic_…`: a password must have enough upper-case and lower-case letters, digits and other characters, of more of these four
    ///   kinds than this.
    /// * `illegal_sequence_length`: parts of alphabets, digits or rows of keys are refused from this length on.
    /// * `dictionary`: a file of passwords that are refused, one a line, at most 64 MiB, read at the start.
    /// * `detailed_messages`: whether errors and warnings list the violated rules for every role, or for superusers only.
    password_policy: PasswordPolicy = PasswordPolicy::default(),
        example PasswordPolicy::example();

    section "User-defined functions";
    /// Whether CREATE FUNCTION is allowed, and functions are called. They are written in Lua and run in a sandbox.
    user_defined_functions_enabled: bool = false;

    section "Masks of columns";
    /// Whether columns of tables may be given masks (`MASKED WITH`). With permissions enforced, clients without UNMASK see the masks; else every client
    /// sees what is masked.
    dynamic_data_masking_enabled: bool = false;

    section "Audit log" "Who did what, and from where. Cassandra's table [audit_logging_options] is taken too, with its names, which have no audit_logging_ before them.";
    /// Whether the node records what clients do from its start on. `helenus nodetool enableauditlog` begins it later.
    audit_logging_enabled: bool = false;
    /// Form and place of the entries.
    /// * `"FileAuditLogger"`: lines of Cassandra's text in files.
    /// * `"JsonFileAuditLogger"`: a line of JSON for each entry in files.
    /// * `"ProcessLogAuditLogger"`: Cassandra's text in the log of the node, with the target `helenus::audit`.
    audit_logging_logger: String = "FileAuditLogger".to_owned();
    /// The directory of the files, made if missing. Default: `audit` in `data_dir`.
    audit_logging_logs_dir: Option<PathBuf> = None,
        example Some(PathBuf::from("helenus-audit"));
    /// Keyspaces whose entries are recorded; none: all.
    audit_logging_included_keyspaces: Vec<String> = Vec::new();
    /// Keyspaces whose entries are not recorded.
    audit_logging_excluded_keyspaces: Vec<String> =
        ["system", "system_schema", "system_virtual_schema"].map(str::to_owned).into();
    /// Categories that are recorded (QUERY, DML, DDL, DCL, AUTH, PREPARE, ERROR, OTHER); none: all.
    audit_logging_included_categories: Vec<String> = Vec::new();
    /// Categories that are not recorded.
    audit_logging_excluded_categories: Vec<String> = Vec::new();
    /// Roles whose entries are recorded ("anonymous": clients that have not logged in); none: all.
    audit_logging_included_users: Vec<String> = Vec::new();
    /// Roles whose entries are not recorded.
    audit_logging_excluded_users: Vec<String> = Vec::new();
    /// Whether the values that a client has bound stand behind the text of a statement.
    audit_logging_bound_values: bool = false;
    /// Whether requests wait while `audit_logging_max_queue_weight` is reached because the disk is slow. Otherwise the requests go on, and
    /// entries are dropped and counted. Cassandra's default is true.
    audit_logging_block: bool = false;
    /// Bytes of entries that may wait to be written.
    audit_logging_max_queue_weight: DataSize = DataSize(32 << 20),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// Bytes of a file after which the next one begins.
    audit_logging_max_file_size: DataSize = DataSize(64 << 20),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// Bytes of all files above which the oldest is removed.
    audit_logging_max_log_size: DataSize = DataSize(16 << 30),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// Files that are kept; 0: as many as `audit_logging_max_log_size` has room for.
    audit_logging_max_files: usize = 0;
    /// How often a new file begins at the latest: "MINUTELY", "HOURLY" or "DAILY".
    audit_logging_roll_cycle: String = "HOURLY".to_owned();

    section "Full query log" "Every request with its values, for `helenus replay`. Cassandra's table [full_query_logging_options] is taken too.";
    /// Whether the node records requests from its start on. `helenus nodetool enablefullquerylog` begins it later.
    full_query_logging_enabled: bool = false;
    /// The directory of the files, made if missing. Default: `full_query_log` in `data_dir`.
    full_query_logging_log_dir: Option<PathBuf> = None,
        example Some(PathBuf::from("helenus-queries"));
    /// As `audit_logging_block`.
    full_query_logging_block: bool = false;
    /// Bytes of records that may wait to be written.
    full_query_logging_max_queue_weight: DataSize = DataSize(32 << 20),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// Bytes of a file after which the next one begins.
    full_query_logging_max_file_size: DataSize = DataSize(256 << 20),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// Bytes of all files above which the oldest is removed.
    full_query_logging_max_log_size: DataSize = DataSize(16 << 30),
        unit Bytes,
        range Range::at_least(64 * KIB);
    /// How often a new file begins at the latest: "MINUTELY", "HOURLY" or "DAILY".
    full_query_logging_roll_cycle: String = "HOURLY".to_owned();

    section "Logs";
    /// Form of the logs on standard error: "text" or "json".
    log_format: LogFormat = LogFormat::Text,
        flags "--log-format, HELENUS_LOG_FORMAT";
    /// What is logged, as a `tracing` filter: "warn", "info,openraft=warn,helenus=debug", ...
    log_filter: String = DEFAULT_LOG_FILTER.to_owned(),
        flags "--log-filter, HELENUS_LOG";
}
