//! The circumstances in which statements change rows: the moment, and the rows as they are.

use helenus_engine::RowRef;

use crate::error::Result;
use crate::schema::catalog::Table;
use crate::stored_key::PartitionKey;

/// The moment at which statements are carried out.
#[derive(Debug, Clone, Copy)]
pub struct WriteMoment {
    /// Microseconds; for statements without a timestamp of their own.
    pub timestamp: i64,
    pub now_seconds: u32,
    /// Microseconds now: orders what lists are given.
    pub now_micros: i64,
    /// `now_micros` is unique and orders the changes of the partition by itself (transactions of a cluster).
    pub is_exact: bool,
    /// The identity under which this node counts.
    pub counter_id: [u8; 16],
}

/// Rows as they are now; only the owner of a partition can tell.
pub trait ExistingRows {
    /// The live content of a row in its encoding with base 0.
    fn row(&self, table: &Table, key: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The first regular row of a partition that `is_there` accepts: its position and content.
    fn first_row(
        &self,
        table: &Table,
        key: &PartitionKey,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>>;
}
