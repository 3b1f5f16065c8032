//! Secondary indexes of tables, as they are declared.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::Identifier;
use cql_lite::types::CqlType;
use helenus_engine::secondary_index::VectorIndex;
use helenus_vectors::Similarity;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The option with the class of a custom index, as Cassandra shows it to clients.
pub const CLASS_NAME: &str = "class_name";
/// The option with the target of an index, as Cassandra shows it to clients.
pub const TARGET: &str = "target";

/// Options of indexes on vectors.
pub const SIMILARITY_FUNCTION: &str = "similarity_function";
pub const OPTIMIZE_FOR: &str = "optimize_for";

/// The values of [`SIMILARITY_FUNCTION`].
pub const SIMILARITY_FUNCTIONS: [(&str, Similarity); 3] = [
    ("EUCLIDEAN", Similarity::Euclidean),
    ("DOT_PRODUCT", Similarity::DotProduct),
    ("COSINE", Similarity::Cosine),
];

/// The measure with a name of [`SIMILARITY_FUNCTIONS`].
pub fn similarity_named(name: &str) -> Option<Similarity> {
    let mut named = SIMILARITY_FUNCTIONS.into_iter();
    named.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, similarity)| similarity)
}

/// Whether a value of [`OPTIMIZE_FOR`] asks for recall. `None`: it is no value of it.
pub fn prefers_recall(value: &str) -> Option<bool> {
    match value.to_uppercase().as_str() {
        "LATENCY" => Some(false),
        "RECALL" => Some(true),
        _ => None,
    }
}

/// A secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Unique in the keyspace.
    pub name: String,
    /// Unique among the indexes that its table ever has. A table that is restored from a snapshot has those of the old one.
    pub id: Uuid,
    pub kind: IndexKind,
    /// The id of the column (`Column::id`).
    pub column_id: u32,
    pub part: IndexedPart,
    /// The options as they were written. If the kind is a custom one, [`CLASS_NAME`] is the class as it was written after USING.
    pub options: BTreeMap<String, String>,
}

/// The statement that has made an index, which decides what clients see of it. All are the same for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexKind {
    /// `CREATE INDEX` without USING: Cassandra's old indexes.
    Legacy,
    /// `USING 'sai'` or `'StorageAttachedIndex'`.
    StorageAttached,
    /// `USING 'org.apache.cassandra.index.sasi.SASIIndex'`.
    Sasi,
}

/// What of a column is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexedPart {
    /// The value of a column that is no multi-cell collection, or one component of the key.
    Value,
    /// The elements of a list or set, or the values of a map.
    Values,
    /// The keys of a map.
    Keys,
    /// The pairs of a map.
    Entries,
    /// A frozen collection as a whole.
    Full,
}

impl IndexedPart {
    /// The name in a target of CQL; empty for a value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "",
            Self::Values => "values",
            Self::Keys => "keys",
            Self::Entries => "entries",
            Self::Full => "full",
        }
    }

    /// The target of an index on this part of a column, as CQL.
    pub fn target(self, column: &str) -> String {
        let column = Identifier::quoted(column);
        match self {
            Self::Value => column.to_string(),
            part => format!("{}({column})", part.name()),
        }
    }

    /// The types of what is indexed of a column of this type: one, or of an entry the key's and the value's.
    pub fn types(self, column_type: &CqlType) -> Vec<&CqlType> {
        match (self, column_type) {
            (Self::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => vec![element],
            (Self::Values, CqlType::Map { value, .. }) => vec![value],
            (Self::Keys, CqlType::Map { key, .. }) => vec![key],
            (Self::Entries, CqlType::Map { key, value, .. }) => vec![key, value],
            (_, whole) => vec![whole],
        }
    }
}

impl Index {
    /// How the index compares vectors. `None`: its column, which has this type, has none.
    pub fn vectors(&self, column_type: &CqlType) -> Option<VectorIndex> {
        let (CqlType::Vector { dimension, .. }, IndexedPart::Value) = (column_type, self.part) else {
            return None;
        };
        let similarity = self.options.get(SIMILARITY_FUNCTION).and_then(|name| similarity_named(name));
        let prefers_recall = self.options.get(OPTIMIZE_FOR).and_then(|value| prefers_recall(value));
        Some(VectorIndex {
            dimension: *dimension,
            similarity: similarity.unwrap_or(Similarity::Cosine),
            prefers_recall: prefers_recall.unwrap_or(false),
        })
    }

    /// Whether the index decides LIKE on its column, which has this type.
    pub fn decides_like(&self, column_type: &CqlType) -> bool {
        let is_text = matches!(column_type, CqlType::Text | CqlType::Ascii);
        self.kind == IndexKind::Sasi && self.part == IndexedPart::Value && is_text
    }

    /// Whether an index of kind SASI is for the parts of texts, too. Then it does not decide equality or ranges.
    pub fn finds_parts_of_texts(&self) -> bool {
        let mode = self.options.get("mode");
        self.kind == IndexKind::Sasi && mode.is_some_and(|mode| mode.eq_ignore_ascii_case("contains"))
    }

    /// Whether clients see an index with a class.
    pub fn is_custom(&self) -> bool {
        self.kind != IndexKind::Legacy
    }

    /// The kind in `system_schema.indexes.kind`.
    pub fn kind_name(&self) -> &'static str {
        if self.is_custom() { "CUSTOM" } else { "COMPOSITES" }
    }
}
