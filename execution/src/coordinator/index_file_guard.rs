//! The guardrail of the files of indexes that a search asks on a shard. Each replica goes by its own settings, whoever searches, as in
//! Cassandra. A search of too many is refused before it reads anything; one of many is logged and counted.
//!
//! DIFFERS: Cassandra counts the files of a node and warns the client as well.

use helenus_engine::secondary_index::IndexId;
use helenus_engine::{EngineError, TableId};
use helenus_internode::service::Failure;
use helenus_query::error::RequestError;
use helenus_query::schema::index::Index;
use helenus_query::schema::index_terms;
use helenus_ring::metadata::SECURITY;

use crate::shard::context::ShardContext;

/// Why a search is not begun.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    TooManyFiles(String),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooManyFiles(message) => Self::TooManyIndexFiles(message),
            Refusal::Engine(error) => error.into(),
        }
    }
}

impl Refusal {
    /// The refusal for the node that has asked. Members below the feature level do not know one of their own for it.
    pub fn for_peer(self, context: &ShardContext) -> Failure {
        match self {
            Self::TooManyFiles(_) if context.cluster_view().topology.feature_level >= SECURITY => {
                Failure::TooManyIndexFiles
            }
            Self::TooManyFiles(message) => Failure::Internal(message),
            Self::Engine(error) => error.into(),
        }
    }
}

/// Checks a search of a table by these indexes, from the start of the first range to the end of the last one.
pub fn check(
    context: &ShardContext,
    table: TableId,
    indexes: &[IndexId],
    range: (&[u8], &[u8]),
) -> Result<(), Refusal> {
    let guardrails = context.guardrails();
    let guardrail = &guardrails.sai_sstable_indexes_per_query;
    if !guardrail.is_set() {
        return Ok(());
    }
    let count = context.shard.index_file_count(table, indexes, range)? as u64;
    if !guardrail.is_violated(count) {
        return Ok(());
    }
    let mut warnings = Vec::new();
    let what = names(context, table, indexes);
    let checked = context.guard(&mut warnings, |warnings| guardrail.guard(count, &what, warnings));
    if let Some(warning) = warnings.first()
        && context.replication().index_file_warnings.is_due(context.clock.monotonic())
    {
        tracing::warn!("{warning}");
    }
    checked.map_err(|error| Refusal::TooManyFiles(error.to_string()))
}

/// The names of indexes, with the table.
fn names(context: &ShardContext, table: TableId, indexes: &[IndexId]) -> String {
    let view = context.catalog_view();
    let Some(definition) = view.table(table) else { return table.to_string() };
    let is_searched =
        |index: &Index| index_terms::id_of(definition, index).is_some_and(|id| indexes.contains(&id));
    let named = definition.indexes.iter().filter(|index| is_searched(index));
    let names: Vec<&str> = named.map(|index| index.name.as_str()).collect();
    format!("{} of table {}.{}", names.join(", "), definition.keyspace, definition.name)
}
