//! Secondary indexes: which rows of a table may have a term.
//!
//! The engine does not know what a term is. The caller hands in how the terms of a row are found ([`IndexTerms`]). Terms compare as bytes.
//!
//! Invariants:
//! * An index may say too much, never too little: every visible row has all of its terms in the index of a memtable or file that has a version
//!   of it. Whether a row still has the term is for the reader of the row to decide.
//! * What an index says is derived from memtables and files, and from nothing else. It can be built again at any time.

pub mod entry;

use std::fmt::{self, Debug, Display, Formatter};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use helenus_vectors::Similarity;

use crate::key::KeyRef;
use crate::row::RowRef;

pub use self::entry::TERM_BYTES_MAX;

/// The id of an index, unique among those that its table ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexId(pub [u8; 16]);

impl Display for IndexId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl IndexId {
    /// The inverse of the text that an id is displayed as.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
        (id.to_string() == text).then_some(id)
    }
}

/// What has a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The row.
    Row,
    /// Every row of the partition: the term comes from the partition key or from the static row.
    Partition,
}

/// How the terms of a row are found.
pub trait IndexTerms: Debug + Send + Sync {
    /// Calls `visit` with each term of a row, or of a part of a row (a mutation's). Each cell has its terms, and so has each key; none depends on two
    /// of them. A cell that cannot be read has none.
    fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8]));
}

/// An index of a table.
#[derive(Debug, Clone)]
pub struct IndexDefinition {
    pub id: IndexId,
    pub terms: Arc<dyn IndexTerms>,
    /// The terms are vectors of rows, whole, and the index finds those that are nearest to one. `None`: it finds terms.
    pub vectors: Option<VectorIndex>,
}

/// How an index compares vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorIndex {
    pub dimension: usize,
    pub similarity: Similarity,
    /// A search reads more of the index, so that it misses fewer rows.
    pub prefers_recall: bool,
}

/// The terms that a search accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermRange {
    /// Any of these.
    OneOf(Vec<Vec<u8>>),
    Between {
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    },
}

impl TermRange {
    /// Whether a term is accepted.
    pub fn accepts(&self, term: &[u8]) -> bool {
        match self {
            Self::OneOf(terms) => terms.iter().any(|accepted| accepted == term),
            Self::Between { lower, upper } => {
                let range = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                RangeBounds::<[u8]>::contains(&range, term)
            }
        }
    }
}

/// A restriction that an index decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRestriction {
    pub index: IndexId,
    pub terms: TermRange,
}

/// A search of the rows whose vectors are nearest to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestSearch {
    /// An index of vectors.
    pub index: IndexId,
    /// A vector: big-endian floats.
    pub target: Vec<u8>,
    /// The rows have an accepted term of each of these. There may be none.
    pub restrictions: Vec<IndexRestriction>,
    /// The rows that are wanted.
    pub wanted: usize,
}

/// A search of rows by indexes: rows that have an accepted term of every restriction, which are one or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSearch {
    pub restrictions: Vec<IndexRestriction>,
}
