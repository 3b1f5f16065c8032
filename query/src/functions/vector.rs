//! Similarity of vectors of floats, from 0 to 1 (the dot product of vectors whose length is not one may be outside).

use helenus_vectors::{Similarity, floats};

use super::failure::{CallResult, Failure};

/// The functions by name.
pub(super) const SIMILARITIES: [(&str, Similarity); 3] = [
    ("similarity_cosine", Similarity::Cosine),
    ("similarity_euclidean", Similarity::Euclidean),
    ("similarity_dot_product", Similarity::DotProduct),
];

/// The similarity of two vectors of floats, as a float.
pub(super) fn similarity(similarity: Similarity, function: &str, left: &[u8], right: &[u8]) -> CallResult {
    if left.len() != right.len() {
        return Err(Failure::Invalid("All arguments must have the same vector dimensions".to_owned()));
    }
    let [left, right] = [left, right].map(|bytes| floats(bytes).collect::<Vec<_>>());
    match similarity.of(&left, &right) {
        Some(similarity) => Ok(Some(similarity.to_be_bytes().to_vec())),
        None => Err(Failure::Invalid(format!("Function {function} doesn't support all-zero vectors."))),
    }
}
