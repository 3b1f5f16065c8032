//! What is expected of a table, by the statistics of this node's files and memtables.

use std::rc::Rc;

use helenus_engine::TableStatistics;
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Table, TableKind};

use super::steps::Steps;
use crate::shard::context::{ShardContext, from_every_shard};

/// Bytes of the largest partition above which it is warned of, as Cassandra does.
const LARGE_PARTITION_BYTES: u64 = 100 << 20;
/// Deletions of a table above which they are warned of, if they are many beside its rows.
const TOMBSTONES_MIN: u64 = 1_000;

/// The statistics of a table on this node, of all shards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    rows_here: u64,
    partitions_here: u64,
    bytes_here: u64,
    pub files: u64,
    tombstones: u64,
    max_partition_bytes: u64,
    /// The part of the ring that this node has, from 0 to 1.
    share: f64,
}

impl Expected {
    pub async fn of(context: &Rc<ShardContext>, table: &Table) -> Result<Self> {
        let mut expected = Self { share: 1.0, ..Self::default() };
        if table.kind == TableKind::Virtual {
            return Ok(expected);
        }
        let id = table.engine_id();
        let of_shard = move |context: Rc<ShardContext>| -> futures::future::LocalBoxFuture<'static, _> {
            Box::pin(async move { Ok(context.shard.statistics(id)?) })
        };
        for statistics in from_every_shard(context, of_shard).await? {
            expected.add(&statistics);
        }
        let view = context.cluster_view();
        if let Some(placement) = view.placement(&table.keyspace) {
            expected.share = placement.ownership().get(&context.node.host_id).copied().unwrap_or(0.0);
        }
        Ok(expected)
    }

    fn add(&mut self, shard: &TableStatistics) {
        self.rows_here += shard.row_versions;
        self.partitions_here += shard.partition_versions;
        self.bytes_here += shard.disk_bytes + shard.memtable_bytes as u64;
        self.files += shard.file_count as u64;
        self.tombstones += shard.tombstones;
        self.max_partition_bytes = self.max_partition_bytes.max(shard.max_partition_bytes);
    }

    /// The rows of the table on all nodes; `None`: this node has none and knows nothing.
    pub fn rows(&self) -> Option<u64> {
        let is_known = self.rows_here > 0 && self.share > 0.0;
        is_known.then(|| (self.rows_here as f64 / self.share).round() as u64)
    }

    /// The rows of a partition, at least one.
    pub fn rows_of_partition(&self) -> Option<u64> {
        (self.partitions_here > 0).then(|| self.rows_here.div_ceil(self.partitions_here).max(1))
    }

    /// The bytes of rows.
    pub fn bytes(&self, rows: u64) -> u64 {
        self.bytes_here.checked_div(self.rows_here).unwrap_or(0).saturating_mul(rows)
    }

    /// Warns of what the table has that makes reads of it expensive.
    pub fn warn(&self, table: &Table, steps: &mut Steps) {
        if self.tombstones >= TOMBSTONES_MIN && self.tombstones > self.rows_here / 4 {
            steps.warn(
                table.full_name(),
                format!(
                    "tombstones: {} deletions are kept beside {} rows, and reads pass them; delete partitions instead of rows, use \
                     TimeWindowCompactionStrategy for data that expires, or lower gc_grace_seconds and repair more often",
                    self.tombstones, self.rows_here
                ),
            );
        }
        if self.max_partition_bytes >= LARGE_PARTITION_BYTES {
            steps.warn(
                table.full_name(),
                format!(
                    "unbounded partition: the largest one has {} MiB; add a column to the partition key, for example a day",
                    self.max_partition_bytes >> 20
                ),
            );
        }
    }
}
