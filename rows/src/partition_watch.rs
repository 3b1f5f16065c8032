//! Whoever looks for large partitions sees those of each file while it is written.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// What a file gets of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenPartition<'a> {
    /// What the full keys of its rows begin with.
    pub prefix: &'a [u8],
    /// Bytes of keys, rows and range tombstones, before prefixes are shared and blocks compressed.
    pub bytes: u64,
    /// Deleted cells, row deletions, column deletions and range tombstones.
    pub tombstones: u64,
}

/// Looks at the partitions of files. It is asked by the threads of background jobs, which it must not hold up.
pub trait PartitionWatch: Debug + Send + Sync {
    /// Begins with a file, which has this path until it is complete.
    fn begin(&self, path: &Path) -> Box<dyn FilePartitions>;
}

/// Looks at the partitions of one file.
pub trait FilePartitions: Send {
    fn look_at(&mut self, partition: &WrittenPartition<'_>);

    /// The file has no more partitions. Not called for a file that is given up.
    fn end(&mut self) {}
}

/// Measures the partitions of a file. What belongs to one partition must be added without another one between.
pub struct PartitionMeasure {
    partitions: Box<dyn FilePartitions>,
    prefix: Vec<u8>,
    bytes: u64,
    tombstones: u64,
}

impl PartitionMeasure {
    /// Begins with a file, which has this path until it is complete.
    pub fn new(watch: &Arc<dyn PartitionWatch>, path: &Path) -> Self {
        Self { partitions: watch.begin(path), prefix: Vec::new(), bytes: 0, tombstones: 0 }
    }

    /// Adds a row or range tombstone of the partition with this prefix.
    pub fn add(&mut self, prefix: &[u8], bytes: u64, tombstones: u64) {
        if self.prefix != prefix {
            self.end_partition();
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
        }
        self.bytes += bytes;
        self.tombstones += tombstones;
    }

    fn end_partition(&mut self) {
        let (bytes, tombstones) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.tombstones));
        if bytes > 0 {
            self.partitions.look_at(&WrittenPartition { prefix: &self.prefix, bytes, tombstones });
        }
    }

    /// The file has no more.
    pub fn end(mut self) {
        self.end_partition();
        self.partitions.end();
    }
}
