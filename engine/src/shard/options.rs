//! Settings of a shard and of a table, and the statistics of a table.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::attachment::Attachment;
use super::quarantine::Quarantine;
use super::write_pressure::BacklogLimits;
use crate::commit_log::CommitLogOptions;
use crate::compaction::{CompactionOptions, DroppedColumns};
use crate::io::{DiskReserve, Lent, RateLimiter, ReserveSize};
use crate::mutation::WRITE_BYTES_MAX;
use crate::secondary_index::IndexDefinition;
use crate::table::TableOptions as FileOptions;

/// What the shards of a node use together. Shards of different nodes, or of one that is opened again, have different ones.
#[derive(Debug, Clone, Default)]
pub struct CommonResources {
    /// What is lent of the memory in which memtables grow before they are flushed.
    pub memtables_until_flush: Lent,
    /// What is lent of the memory of memtables.
    pub memtables: Lent,
    /// What is lent of the room for the commit log.
    pub commit_log: Lent,
    /// What is lent of the memory of block caches.
    pub block_cache: Lent,
    /// The rate of compactions. A shard that is opened sets it.
    pub compaction_rate: RateLimiter,
}

/// Settings of a shard. Budgets and rates are those of all shards of the node together.
#[derive(Debug, Clone)]
pub struct ShardOptions {
    /// The shard's own directory. It is created if missing.
    pub directory: PathBuf,
    /// The directories that new table files are written to; each file goes where the most space is free. Empty: the shard's own.
    pub table_directories: Vec<PathBuf>,
    /// The directory of the commit log. `None`: `commit-log` in the shard's own.
    pub commit_log_directory: Option<PathBuf>,
    /// The place to which a start moves files that the shard does not know.
    pub quarantine: Quarantine,
    /// The shards of the node, this one among them.
    pub shards_of_node: usize,
    /// What they lend each other.
    pub common: CommonResources,
    /// Memory for memtables. Flushing starts at half of it. Writers wait when it is used up.
    pub memtable_bytes_max: usize,
    /// A row in a memtable does not grow beyond this size by further changes: the memtable is frozen, and the row gets another version
    /// in the next one. At most [`WRITE_BYTES_MAX`].
    pub row_version_bytes_max: usize,
    pub commit_log: CommitLogOptions,
    /// Room for the log's files. When it is used up, the memtable with the oldest record is flushed.
    pub commit_log_bytes_max: u64,
    /// Memory for unpacked blocks of table files, and for their filters and indexes. Those stay in memory while they take at most half of it;
    /// the others are read in parts, which are blocks then.
    pub block_cache_bytes: usize,
    /// The rate limit of compaction. `None`: no limit.
    pub compaction_bytes_per_second: Option<u64>,
    /// Bytes of inputs, before compression, from which on a compaction is a large one: it takes several seconds, and small ones run beside
    /// it. Those are at most a quarter as large.
    pub large_compaction_bytes: u64,
    /// Bytes of inputs, before compression, from which on a compaction has several threads, where the node has threads for parts of long jobs.
    /// `None`: none has.
    pub shared_compaction_bytes: Option<u64>,
    /// Bytes of the input files that a thread merges at a time then, about. A few such pieces are in memory for each thread.
    pub compaction_subrange_bytes: u64,
    /// When writes are slowed because compactions are behind.
    pub backlog: BacklogLimits,
    /// How long [`Shard::close`](super::Shard::close) begins flushes of what the commit log has.
    pub close_flush_max: Duration,
    /// Whether files of flushes are linked into `backups`, for tables that have [`TableOptions::backup_notes`].
    pub keeps_backups: bool,
    /// The room on the disk. All shards of a node on the same disk share one.
    pub reserve: Arc<DiskReserve>,
}

impl ShardOptions {
    /// The memory of a shard in which filters and indexes of its table files stay: half of its even part of that for blocks.
    pub(super) fn resident_bytes_max(&self) -> u64 {
        self.block_cache_bytes as u64 / self.shards_of_node.max(1) as u64 / 2
    }

    /// The defaults for a shard in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let (memtable_bytes_max, commit_log) = (256 << 20, CommitLogOptions::default());
        // The memtables fit into files, and the log gets its next segment.
        let reserve = memtable_bytes_max as u64 + commit_log.segment_bytes;
        Self {
            quarantine: Quarantine::within(&directory),
            directory,
            table_directories: Vec::new(),
            commit_log_directory: None,
            shards_of_node: 1,
            common: CommonResources::default(),
            memtable_bytes_max,
            row_version_bytes_max: WRITE_BYTES_MAX,
            commit_log,
            commit_log_bytes_max: 1 << 30,
            block_cache_bytes: 64 << 20,
            compaction_bytes_per_second: Some(64 << 20),
            large_compaction_bytes: 256 << 20,
            shared_compaction_bytes: Some(256 << 20),
            compaction_subrange_bytes: 4 << 20,
            backlog: BacklogLimits::default(),
            close_flush_max: Duration::from_secs(10),
            keeps_backups: false,
            reserve: DiskReserve::new(ReserveSize::AtMostATenth(reserve)),
        }
    }
}

/// When compaction may purge the deletions of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TombstoneGc {
    /// After the grace period.
    AfterGrace,
    /// At once.
    Immediate,
    Never,
    /// After the grace period, those from before the time up to which all replicas are known to have them ([`Shard::set_known_everywhere`]).
    ///
    /// [`Shard::set_known_everywhere`]: super::Shard::set_known_everywhere
    KnownEverywhere,
}

/// Settings of a table.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// The grace period: compaction may purge what has expired after it, and deletions as `tombstone_gc` says.
    pub gc_grace_seconds: u32,
    pub tombstone_gc: TombstoneGc,
    /// False: writes skip the commit log, and are lost in a crash unless they were flushed.
    pub is_logged: bool,
    pub compaction: CompactionOptions,
    /// Block size, compression and filters of new files.
    pub writer: FileOptions,
    /// Columns whose old cells are garbage.
    pub dropped_columns: DroppedColumns,
    /// Every row is written once and later removed once, by the deletion of the row; both in one mutation each. Then a removal needs
    /// no tombstone where it meets what it removes, in memory or in a compaction. A removal that comes before its row takes effect
    /// if the row comes within `gc_grace_seconds`. A row that is written again, after a removal of the same position, may come back.
    pub writes_once: bool,
    /// The files beside the table's incremental backups. `None`: the table has no backups. See [`ShardOptions::keeps_backups`].
    pub backup_notes: Option<Arc<[Attachment]>>,
    pub indexes: Vec<IndexDefinition>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            gc_grace_seconds: 864_000,
            tombstone_gc: TombstoneGc::AfterGrace,
            is_logged: true,
            compaction: CompactionOptions::default(),
            writer: FileOptions::default(),
            dropped_columns: DroppedColumns::default(),
            writes_once: false,
            backup_notes: None,
            indexes: Vec::new(),
        }
    }
}

/// Statistics of a table on one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStatistics {
    pub file_count: usize,
    /// Bytes of the files without their indexes.
    pub disk_bytes: u64,
    /// Bytes of the files' indexes.
    pub index_bytes: u64,
    /// Bytes of the filters in all files, and of their indexes by key.
    pub filter_bytes: u64,
    pub key_index_bytes: u64,
    /// Memory of these two, and of range tombstones, as far as they stay in memory.
    pub resident_bytes: u64,
    /// Indexes that files lack; a file without two of them counts twice.
    pub missing_indexes: usize,
    pub memtable_bytes: usize,
    /// Rows in all memtables and files. Each version of a row counts.
    pub row_versions: u64,
    /// Partitions in all memtables and files. A partition counts once in each of them.
    pub partition_versions: u64,
    pub tombstones: u64,
    /// Files of which at least a part cannot be read.
    pub damaged_files: usize,
    /// The largest file, the largest partition in a file before compression, and the most time between two timestamps of a file.
    pub max_file_bytes: u64,
    pub max_partition_bytes: u64,
    pub max_file_micros: i64,
    /// Microseconds, as the next; `None` if the table is empty.
    pub min_timestamp: Option<i64>,
    pub max_timestamp: Option<i64>,
}
