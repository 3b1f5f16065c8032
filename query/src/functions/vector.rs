//! Similarity of vectors of floats, from 0 to 1 (the dot product of vectors whose length is not one may be outside).

use super::failure::{CallResult, Failure};

/// A measure of similarity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Similarity {
    /// `(1 + cos) / 2`
    Cosine,
    /// `1 / (1 + distance²)`
    Euclidean,
    /// `(1 + dot product) / 2`
    DotProduct,
}

/// The functions by name.
pub(super) const SIMILARITIES: [(&str, Similarity); 3] = [
    ("similarity_cosine", Similarity::Cosine),
    ("similarity_euclidean", Similarity::Euclidean),
    ("similarity_dot_product", Similarity::DotProduct),
];

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_be_bytes(*chunk))
}

/// The similarity of two vectors of floats, as a float.
pub(super) fn similarity(similarity: Similarity, function: &str, left: &[u8], right: &[u8]) -> CallResult {
    if left.len() != right.len() {
        return Err(Failure::Invalid("All arguments must have the same vector dimensions".to_owned()));
    }
    let dot = |a: &[u8], b: &[u8]| floats(a).zip(floats(b)).map(|(x, y)| x * y).sum::<f32>();
    let result = match similarity {
        Similarity::Cosine => {
            let norms = dot(left, left) * dot(right, right);
            if norms == 0.0 {
                return Err(Failure::Invalid(format!(
                    "Function {function} doesn't support all-zero vectors."
                )));
            }
            f32::midpoint(1.0, dot(left, right) / norms.sqrt())
        }
        Similarity::Euclidean => {
            let square: f32 = floats(left).zip(floats(right)).map(|(x, y)| (x - y) * (x - y)).sum();
            1.0 / (1.0 + square)
        }
        Similarity::DotProduct => f32::midpoint(1.0, dot(left, right)),
    };
    Ok(Some(result.to_be_bytes().to_vec()))
}
