//! Secondary indexes: which rows of a table may have a term. The words for it are those of [`helenus_rows::secondary_index`].

pub(crate) mod build;
mod vector_entries;

pub(crate) use self::vector_entries::{centroid_start, list_of_centroid, list_start};
pub(crate) use helenus_rows::secondary_index::entry;
pub use helenus_rows::secondary_index::{
    IndexDefinition, IndexId, IndexRestriction, IndexSearch, IndexTerms, NearestSearch, Subject,
    TERM_BYTES_MAX, TermRange, VectorIndex,
};
