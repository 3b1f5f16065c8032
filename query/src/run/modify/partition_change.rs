//! The changes of one partition of one table under construction.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_engine::MutationBuilder;

use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;
use crate::stored_key::PartitionKey;

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
}
