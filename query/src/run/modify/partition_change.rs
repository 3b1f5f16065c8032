//! The changes of one partition of one table under construction, and the limit for their size.
//!
//! The limit is checked while they grow, so that a short statement with very large changes (a value for each of 65,535 rows) is
//! refused before it takes memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::types::literal;
use helenus_engine::MutationBuilder;

use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;
use crate::stored_key::{PartitionKey, key_components};

/// The longest key in an error, in bytes.
const SHOWN_KEY_BYTES: usize = 1_024;

pub(super) struct PartitionChange {
    pub(super) table: Arc<Table>,
    pub(super) key: PartitionKey,
    pub(super) builder: MutationBuilder,
    /// Sums of counter updates by position and column id.
    pub(super) counters: BTreeMap<(Vec<u8>, u32), i64>,
}

impl PartitionChange {
    /// An empty set of changes, with capacity for `expected_bytes`.
    pub(super) fn new(table: &Arc<Table>, key: PartitionKey, expected_bytes: usize) -> Result<Self> {
        let id = table.engine_id();
        let builder = MutationBuilder::with_capacity(id, key.token, &key.bytes, expected_bytes)
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        Ok(Self { table: table.clone(), key, builder, counters: BTreeMap::new() })
    }

    /// Refuses changes of more than `limit` bytes.
    #[inline]
    pub(super) fn check_size(&self, limit: usize) -> Result<()> {
        if self.builder.size_bytes() > limit { Err(self.oversized(limit)) } else { Ok(()) }
    }

    #[cold]
    fn oversized(&self, limit: usize) -> RequestError {
        let Self { table, builder, .. } = self;
        self.shown_key().map_or_else(
            |malformed| malformed,
            |key| {
                RequestError::invalid(format!(
                    "Rejected an oversized mutation ({}/{limit}) for keyspace: {}. Top keys are: {}.{key}",
                    builder.size_bytes(),
                    table.keyspace,
                    table.name,
                ))
            },
        )
    }

    /// The values of the partition key as text.
    fn shown_key(&self) -> Result<String> {
        let columns = self.table.partition_key();
        let components = key_components(&self.key.bytes, columns.len())?;
        let shown = columns.iter().zip(components).map(|(column, range)| {
            let bytes = &self.key.bytes[range];
            literal::to_text(&column.column_type, bytes.get(..SHOWN_KEY_BYTES).unwrap_or(bytes))
        });
        Ok(shown.collect::<Vec<_>>().join(":"))
    }
}
