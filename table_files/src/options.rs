//! How a table is written.

use std::sync::Arc;

use super::compression::Compression;
use crate::partition_watch::PartitionWatch;

/// How a table is laid out, and who looks at its partitions.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub compression: Compression,
    /// The size at which blocks are closed, uncompressed.
    pub block_bytes: usize,
    /// The intended rate of false positives of the filters. 1 or more: no filters.
    pub bloom_filter_fp_chance: f64,
    pub partition_watch: Option<Arc<dyn PartitionWatch>>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            block_bytes: 16 << 10,
            bloom_filter_fp_chance: 0.01,
            partition_watch: None,
        }
    }
}
