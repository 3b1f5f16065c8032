//! Reports for operators: JSON over HTTP, which the `helenus admin` commands read.

pub mod uploads;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::uploads::{RemovalReport, UploadReport};

/// One table, summed over the shards of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableReport {
    pub keyspace: String,
    pub table: String,
    /// Table files (SSTables).
    pub file_count: u64,
    /// Of the files and their indexes.
    pub disk_bytes: u64,
    /// Indexes that files lack; a file without two of them counts twice.
    #[serde(default)]
    pub missing_indexes: u64,
    pub memtable_bytes: u64,
    /// Filters and indexes by key of the files, on the disk.
    #[serde(default)]
    pub filter_index_bytes: u64,
    /// Memory of filters, indexes by key and range tombstones of the files, without the cache of blocks.
    #[serde(default)]
    pub resident_bytes: u64,
    /// Rows in all memtables and files; each version of a row counts.
    pub row_versions: u64,
    /// Partitions in all memtables and files; a partition in several of them counts in each.
    pub partition_versions: u64,
    pub tombstones: u64,
    /// Files of which at least a part cannot be read.
    #[serde(default)]
    pub damaged_files: u64,
    /// Shards on which a compaction of the table is due, or waits after a failure.
    #[serde(default)]
    pub pending_compactions: u64,
    /// Compactions that have failed and will be tried again.
    #[serde(default)]
    pub failed_compactions: Vec<FailedCompaction>,
    #[serde(default)]
    pub local: LocalWorkReport,
}

/// What a node has read and written of its own rows of a table since its start, also for coordinators on other nodes. Durations are of the
/// work, without what it waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalWorkReport {
    /// Reads within one partition.
    pub read: LatencyReport,
    /// Reads of wider ranges.
    pub scan: LatencyReport,
    pub write: LatencyReport,
    pub rows_per_read: CountReport,
    /// Deleted and expired rows and cells.
    pub tombstones_per_read: CountReport,
}

impl LocalWorkReport {
    /// How often rows were read, and for how many microseconds in all.
    pub fn reads(&self) -> (u64, u64) {
        (self.read.count + self.scan.count, self.read.sum_us + self.scan.sum_us)
    }
}

/// Numbers of something. Quantiles are upper bounds, known to within a half.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountReport {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// A compaction that has failed and will be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCompaction {
    pub shard: usize,
    /// The file that causes it. It is left alone until then; `None`: the compactions of the whole table wait.
    pub file: Option<String>,
    pub reason: String,
    pub attempts: u32,
    pub retry_in_seconds: u64,
}

/// The treatment of damaged files by a verification or scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    Verify,
    Scrub {
        /// Rows that cannot be read are given up.
        skips_corrupted: bool,
    },
}

/// The result for a file that is or was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckedFileState {
    /// It stays as it is.
    Damaged,
    /// It can be read again and is in use.
    Mended,
    /// The readable rows are in a new file.
    Salvaged,
    /// All its rows were given up.
    GivenUp,
}

/// A file that a verification or scrub has found damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedFile {
    pub shard: usize,
    /// Keyspace and table, or the id of a table of the node's own.
    pub table: String,
    pub path: String,
    pub state: CheckedFileState,
    /// Why it cannot be read; empty if it can.
    pub reason: String,
    /// Of a salvaged file: the rows that were kept, and the blocks that were lost.
    pub kept_rows: u64,
    pub lost_blocks: u64,
}

/// The last verification or scrub of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckProgress {
    pub shard: usize,
    pub is_running: bool,
    pub files: u64,
    pub files_done: u64,
    pub bytes: u64,
    pub bytes_done: u64,
    /// Damaged files found so far.
    pub found: Vec<CheckedFile>,
}

/// A table that the schema does not name, summed over the shards of a node. It is kept and not served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownTableReport {
    /// As the names of its directories: 32 hexadecimal digits.
    pub id: String,
    pub file_count: u64,
    pub disk_bytes: u64,
    pub memtable_bytes: u64,
    pub row_versions: u64,
}

/// A snapshot of one table, summed over the shards of a node. What is not known about an operator's snapshot is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    pub name: String,
    pub table_id: String,
    pub keyspace: String,
    pub table: String,
    pub created_at: String,
    pub expires_at: String,
    /// The bytes of its files. The table may still use some of them.
    pub disk_bytes: u64,
}

/// What each member did for an operation on the snapshots of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSnapshots {
    /// The name of the snapshot, if the operation is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sorted by address.
    pub members: Vec<MemberSnapshots>,
}

/// What a member did for an operation on its snapshots. Members send it to each other as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSnapshots {
    pub host_id: String,
    /// Address for other nodes, with the port.
    pub address: String,
    /// The reason why the operation was not carried out, or not to its end.
    pub error: Option<String>,
    /// The snapshots that were taken or listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SnapshotReport>,
    /// The tables that were restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<RestoredTable>,
    /// What was uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploaded: Option<UploadReport>,
    /// What was removed from the store of uploads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovalReport>,
}

/// The compactions of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionsReport {
    /// Tables on shards on which a compaction is due, or waits after a failure.
    pub pending: u64,
    pub compactions: Vec<RunningCompactionReport>,
    /// The limit for the writes of all compactions together. `None`: no limit.
    pub bytes_per_second: Option<u64>,
    /// The tables whose strategy an operator keeps from choosing compactions.
    pub disabled_tables: Vec<String>,
}

/// A compaction that is under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCompactionReport {
    pub shard: usize,
    /// As nodetool names it.
    pub kind: String,
    /// `keyspace.table`, or the id of a table without a name.
    pub table: String,
    /// Bytes of keys and rows, before compression, that were read, and of all inputs.
    pub read_bytes: u64,
    pub total_bytes: u64,
    pub seconds: u64,
}

/// A table that got rows from a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredTable {
    pub keyspace: String,
    pub table: String,
    /// The files that it got, and their bytes. 0: it has all of them.
    pub file_count: u64,
    pub disk_bytes: u64,
    /// Rows were left out whose tokens the node does not own any more.
    #[serde(default)]
    pub has_moved_rows: bool,
}

/// What was written of archived commit logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Segments that were read.
    pub segment_count: u64,
    /// The tables that got writes.
    pub tables: Vec<ReplayedTable>,
    /// Ids of tables whose writes are in the logs, and which this node does not know.
    pub unknown_tables: Vec<String>,
}

/// A table that got writes from archived commit logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedTable {
    pub keyspace: String,
    pub table: String,
    /// Mutations of the logs. Each replica has logged its own.
    pub mutation_count: u64,
}

/// A member as seen by the node that was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    pub host_id: String,
    /// Address for other nodes, with the port.
    pub address: String,
    /// Address for clients, with the port.
    pub native_address: String,
    pub data_center: String,
    pub rack: String,
    /// Whether the member answers.
    pub is_up: bool,
    /// `normal`, `joining` or `leaving`.
    pub state: String,
    /// How far the member is in serving clients; `None` before it has announced it.
    pub serving: Option<String>,
    pub token_count: usize,
    /// The part of the ring that the member is a replica of, from 0 to 1.
    pub owns: f64,
    /// Bytes on disk; `None` before the member has announced it.
    pub data_bytes: Option<u64>,
    pub schema_version: Option<String>,
    pub release_version: String,
}

/// All members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub cluster_name: String,
    /// The keyspace of `owns`. `None`: primary ownership, as with one replica.
    pub keyspace: Option<String>,
    /// Sorted by data center and address.
    pub members: Vec<MemberReport>,
}

/// A token with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReport {
    /// As text: as a JSON number it would lose digits.
    pub token: String,
    pub host_id: String,
    pub address: String,
    pub data_center: String,
    pub rack: String,
    pub is_up: bool,
    pub state: String,
    /// The addresses of the replicas of the range that ends at the token, for the requested keyspace.
    pub replicas: Vec<String>,
}

/// All tokens in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingReport {
    pub keyspace: Option<String>,
    pub tokens: Vec<TokenReport>,
}

/// The node that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub host_id: String,
    pub cluster_name: String,
    pub data_center: String,
    pub rack: String,
    pub address: String,
    pub native_address: String,
    pub state: String,
    pub serving: String,
    pub version: String,
    pub shard_count: usize,
    pub token_count: usize,
    pub started_at_seconds: i64,
    pub uptime_seconds: i64,
    pub connections: i64,
    pub data_bytes: u64,
    pub memtable_bytes: u64,
    pub commit_log_bytes: u64,
    pub schema_version: String,
}

/// The agreed state of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDescription {
    pub cluster_name: String,
    pub partitioner: String,
    pub snitch: String,
    /// Whether replicas are ordered by their latencies too.
    #[serde(default)]
    pub dynamic_snitch: bool,
    /// Versions of the schema with the addresses of the members that have applied them; one version when all agree.
    pub schema_versions: BTreeMap<String, Vec<String>>,
    /// Members that do not answer.
    pub unreachable: Vec<String>,
    /// Members that own tokens, by data center.
    pub data_centers: BTreeMap<String, u32>,
    pub topology_version: u64,
    pub topology_epoch: u64,
    /// Features up to this version may be in use.
    pub feature_level: u16,
    /// Ids of members that have left for good.
    pub removed: Vec<String>,
    /// The replication of each keyspace.
    pub keyspaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// The present state of a transfer to this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferProgress {
    /// The member that joins or leaves; nil: the replication of keyspaces changes.
    pub member: Uuid,
    pub epoch: u64,
    pub peers: Vec<PeerProgress>,
    pub bytes: u64,
    pub estimated_bytes: u64,
    pub percent: f64,
    /// The average in this run of the node.
    pub bytes_per_second: u64,
    /// `None`: unknown yet.
    pub seconds_left: Option<u64>,
    pub is_done: bool,
    /// The reason why the transfer waits, if it does.
    pub waiting_for: Option<String>,
}

/// The part of a transfer that comes from one member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerProgress {
    pub peer: Uuid,
    pub bytes: u64,
    pub estimated_bytes: u64,
    /// Number of stream tasks: tables on shards of the peer.
    pub units: usize,
    pub units_done: usize,
}

/// The report for operators.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamingReport {
    /// The state of this node in the ring: `STARTING`, `JOINING`, `NORMAL`, `LEAVING`, `DRAINING`, `DRAINED` or
    /// `REMOVED`.
    pub mode: String,
    pub receiving: Option<TransferProgress>,
    /// Bytes sent to each member since the start of the node.
    pub sent_bytes: BTreeMap<Uuid, u64>,
    /// The members that may still have data of ranges that they have given up. Until it is removed no other member leaves by which they
    /// would gain ranges.
    #[serde(default)]
    pub uncleaned: Vec<Uuid>,
    /// The members that must hear of the present step before a transition goes on.
    #[serde(default)]
    pub waits_for: Vec<Uuid>,
    /// The keyspaces whose replication changes, or is to change, and how far that is.
    #[serde(default)]
    pub replication_changes: BTreeMap<String, String>,
}

/// A repair that a node carries out or has carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairReport {
    /// Unique on the node since its start.
    pub id: u64,
    /// All keyspaces without one.
    pub keyspace: Option<String>,
    /// All tables of it without any.
    pub tables: Vec<String>,
    /// Which ranges, in words.
    pub ranges: String,
    /// The data centers whose replicas take part; all without any.
    pub data_centers: Vec<String>,
    /// Whether the node repairs because it is time to.
    pub is_automatic: bool,
    /// `running`, `done`, `incomplete` or `cancelled`.
    pub state: String,
    pub began_at: String,
    /// `None`: it is under way.
    pub ended_at: Option<String>,
    pub percent: f64,
    pub seconds_left: Option<u64>,
    /// The table that is being repaired.
    pub current: String,
    pub differing_parts: u64,
    /// Bytes of rows that the replicas together have read for comparisons.
    pub compared_bytes: u64,
    /// Bytes of rows that other nodes have sent to this one.
    pub received_bytes: u64,
    /// Bytes of rows that this node has sent to replicas that lacked them.
    pub sent_bytes: u64,
    pub written_mutations: u64,
    /// The first reasons why ranges were not repaired, and the number of all.
    pub failures: Vec<String>,
    pub failure_count: u64,
}

/// How old the repair of a table's ranges on a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairedTable {
    pub keyspace: String,
    pub table: String,
    /// When the oldest of the last repairs of its ranges on this node began; `None`: some were never repaired.
    pub repaired_at: Option<String>,
    pub age_seconds: Option<u64>,
    /// Seconds since then, or since the node first saw the table.
    #[serde(default)]
    pub unrepaired_seconds: u64,
    /// After how many seconds the schedule repairs a range again.
    pub interval_seconds: u64,
    /// After how many seconds deletions may be purged.
    #[serde(default)]
    pub grace_seconds: u64,
    /// Whether an operator should look: the schedule should have repaired it long ago.
    #[serde(default)]
    pub is_late: bool,
}

/// The repairs of a node, and how old those of its tables are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairsReport {
    /// Whether the node repairs by itself.
    pub is_automatic: bool,
    /// Members that are down: their ranges are not repaired.
    pub waits_for: Vec<Uuid>,
    /// Members that were away for longer than `gc_grace_seconds` of a table: their ranges of it are repaired only by command.
    pub away_too_long: Vec<Uuid>,
    /// Those under way and the last ones, the oldest first.
    pub repairs: Vec<RepairReport>,
    pub tables: Vec<RepairedTable>,
}

/// A replica of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    pub host_id: String,
    /// Address for other nodes, with the port.
    pub address: String,
    pub is_up: bool,
}

/// The replicas of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsReport {
    /// As text: as a JSON number it would lose digits.
    pub token: String,
    pub endpoints: Vec<EndpointReport>,
}

/// A partition of a table, and whether it is denied to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedPartitionReport {
    pub keyspace: String,
    pub table: String,
    /// The partition key in hexadecimal, as `system_distributed.partition_denylist` has it.
    pub key: String,
    pub is_denied: bool,
    /// Whether the settings of the node have the list obeyed.
    pub is_obeyed: bool,
}

/// The partitions that are denied to clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenylistReport {
    /// By keyspace and table, in the order of their tokens.
    pub partitions: Vec<DeniedPartitionReport>,
    /// Whether the settings of the node have the list obeyed.
    pub is_obeyed: bool,
}

/// Work of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// As nodetool names it, where it has such work.
    pub name: String,
    /// Under way now.
    pub active: u64,
    /// Waiting now.
    pub pending: u64,
    /// Since the start.
    pub completed: u64,
}

/// What a node does, and what it has given up since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityReport {
    pub stages: Vec<StageReport>,
    /// By kind, in nodetool's words where it has them.
    pub dropped: BTreeMap<String, u64>,
}

/// Durations, in microseconds. Quantiles are upper bounds, known to within a half; 0 where there are no durations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    pub count: u64,
    pub sum_us: u64,
    pub p50_us: u64,
    pub p75_us: u64,
    pub p95_us: u64,
    pub p98_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// The durations of the requests of clients that a node has coordinated since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorLatencies {
    /// Reads of named partitions.
    pub read: LatencyReport,
    /// Reads of ranges.
    pub scan: LatencyReport,
    pub write: LatencyReport,
    /// Writes with conditions.
    pub conditional: LatencyReport,
}

/// The durations of requests to a table, since the start of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableLatencies {
    pub keyspace: String,
    pub table: String,
    pub latencies: CoordinatorLatencies,
}

/// Settings that an operator can change while the node runs, until its next start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a node")]
pub struct RuntimeSettings {
    /// 0: no limit.
    pub stream_throughput_bytes_per_second: u64,
    /// 0: no limit.
    pub hinted_handoff_throttle_bytes_per_second: u64,
    /// The part of requests that are traced, from 0 to 1.
    pub trace_probability: f64,
    /// Whether clients are accepted.
    pub native_transport: bool,
    /// Whether hints are kept for replicas that miss writes.
    pub hinted_handoff: bool,
    /// Whether hints are delivered.
    pub hint_delivery: bool,
    /// What the node makes of the partition denylist, with the names of its settings.
    pub partition_denylist_enabled: bool,
    pub denylist_writes_enabled: bool,
    pub denylist_reads_enabled: bool,
    pub denylist_range_reads_enabled: bool,
    pub denylist_max_keys_per_table: u64,
    pub denylist_max_keys_total: u64,
    /// Which lines are logged: directives of `tracing-subscriber`, separated by commas.
    pub log_filter: String,
}

/// A log of what clients ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestLog {
    /// Who did what.
    Audit,
    /// Every request with its values.
    FullQuery,
}

/// A log of what clients ask: its options, and what became of its records since the start of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLogReport {
    pub enabled: bool,
    /// With Cassandra's names, in its order.
    pub options: Vec<(String, String)>,
    pub written: u64,
    /// Neither written nor to be written: the queue was full, or the disk refused them.
    pub dropped: u64,
    /// Failed attempts to write.
    pub write_errors: u64,
}
