//! What a node does with the files of all tables, whatever their options are.

use std::sync::Arc;

use super::partition_guard::PartitionGuard;

/// What the node does with the files of all tables.
#[derive(Debug, Clone, Default)]
pub struct FileHandling {
    /// Tables of users keep incremental backups.
    pub has_backups: bool,
    /// Looks at the sizes of partitions. `None`: nobody does.
    pub partition_guard: Option<Arc<PartitionGuard>>,
}
