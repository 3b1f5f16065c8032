//! The terms of indexes: which bytes the engine keeps for a value, so that they compare as the values do.
//!
//! Invariants:
//! * Values that are equal for a filter have the same term, and of two values the greater does not have the smaller term. So a search by terms
//!   finds every row that a filter lets pass; it may find more.
//! * A term has at most [`TERM_BYTES_MAX`] bytes. It is the encoding of its value ([`ordered`]), or the start of it.
//! * A search makes its terms by the same [`TermEncoding`] as the index.
//! * An index whose terms are made in another way than before has another id in the engine ([`engine_id`]).

mod encoding;
mod identity;
mod row_terms;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

#[cfg(doc)]
use cql_lite::types::ordered;
#[cfg(doc)]
use helenus_engine::secondary_index::TERM_BYTES_MAX;
use helenus_engine::secondary_index::{IndexDefinition, IndexId, IndexTerms};

pub use self::encoding::{TermEncoding, encoding_of};
pub use self::identity::engine_id;
use self::row_terms::{RowTerms, RowVectors};
pub use self::text::TextAnalysis;
use super::catalog::Table;
use super::index::Index;

/// The id in the engine of an index of a table. `None`: the table does not have the column.
pub fn id_of(table: &Table, index: &Index) -> Option<IndexId> {
    let column = table.columns.iter().find(|column| column.id == index.column_id)?;
    Some(engine_id(table, column, index, &encoding_of(column, index)?))
}

/// The indexes of a table for the engine. An index of a column that the table does not have (any more) has none.
pub fn definitions(table: &Table) -> Vec<IndexDefinition> {
    let definition = |index: &Arc<Index>| {
        let column = table.columns.iter().find(|column| column.id == index.column_id)?;
        let encoding = encoding_of(column, index)?;
        let id = engine_id(table, column, index, &encoding);
        let vectors = index.vectors(&column.column_type);
        let terms: Arc<dyn IndexTerms> = match vectors {
            Some(_) => Arc::new(RowVectors { column_id: column.id }),
            None => Arc::new(RowTerms::new(table, column, index.part, encoding)),
        };
        Some(IndexDefinition { id, terms, vectors })
    };
    table.indexes.iter().filter_map(definition).collect()
}
