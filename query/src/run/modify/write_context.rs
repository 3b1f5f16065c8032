//! The context in which statements change rows: the write context, and the existing rows.

use helenus_engine::RowRef;

use crate::error::Result;
use crate::run::keys::Slice;
use crate::schema::catalog::Table;
use crate::stored_key::PartitionKey;

/// The context in which statements are executed: times and identity.
#[derive(Debug, Clone, Copy)]
pub struct WriteContext {
    /// In microseconds; for statements without a timestamp of their own.
    pub timestamp: i64,
    pub now_seconds: u32,
    /// The present time in microseconds: orders the elements added to lists.
    pub now_micros: i64,
    /// Whether `now_micros` is unique and orders the changes of the partition by itself (transactions of a cluster).
    pub is_exact: bool,
    /// The identity of this node in counters.
    pub counter_id: [u8; 16],
    /// Most bytes of the changes of one partition.
    pub mutation_bytes_max: usize,
}

/// The existing rows; only the owning shard of a partition can read them.
pub trait ExistingRows {
    /// The live content of a row, encoded with base 0.
    fn row(&self, table: &Table, key: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The first regular rows of a slice of a partition that `is_there` accepts, at most `rows_max`: their positions and contents.
    fn rows_of(
        &self,
        table: &Table,
        key: &PartitionKey,
        slice: &Slice,
        rows_max: usize,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
}
