//! How similar two vectors are, as in Cassandra: 1 is equal.
//!
//! Sums have several lanes, so that the compiler uses vector instructions, in an order that does not depend on the machine.

use std::iter::Sum;
use std::ops::AddAssign;

use thiserror::Error;

/// Partial sums of one loop.
const LANES: usize = 16;

/// The greatest absolute value of a component of a vector that an index takes: sums of squares stay finite.
pub const COMPONENT_MAX: f32 = 1e17;

/// A measure of similarity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Similarity {
    /// `(1 + cos) / 2`
    Cosine,
    /// `1 / (1 + distance²)`
    Euclidean,
    /// `(1 + dot product) / 2`
    DotProduct,
}

/// Why no index can hold or look for a vector.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum UnusableVector {
    #[error("non-finite value at vector[{position}]={value}")]
    NotFinite { position: usize, value: f32 },
    #[error("Out-of-bounds value at vector[{position}]={value}")]
    OutOfBounds { position: usize, value: f32 },
    #[error("Zero vectors cannot be indexed or queried with cosine similarity")]
    Zero,
}

/// The components of a vector, which are big-endian floats.
pub fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_be_bytes(*chunk))
}

/// As [`floats`]. `None`: the vector does not have this dimension.
pub fn floats_of(bytes: &[u8], dimension: usize) -> Option<Vec<f32>> {
    (bytes.len() == dimension * size_of::<f32>()).then(|| floats(bytes).collect())
}

/// The sum of the parts of all pairs of components.
pub(crate) fn sum_of<A: Copy, B: Copy, S: Copy + Default + AddAssign + Sum>(
    a: &[A],
    b: &[B],
    part: impl Fn(A, B) -> S,
) -> S {
    let mut sums = [S::default(); LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += part(*a, *b);
        }
    }
    let mut sum: S = sums.into_iter().sum();
    sum += a_rest.iter().zip(b_rest).map(|(a, b)| part(*a, *b)).sum();
    sum
}

/// The dot product of two vectors of the same dimension.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

/// As [`dot`], of vectors of any length: squares of floats neither overflow nor vanish.
fn wide_dot(a: &[f32], b: &[f32]) -> f64 {
    sum_of(a, b, |a, b| f64::from(a) * f64::from(b))
}

/// The length of a vector.
pub(crate) fn length(vector: &[f32]) -> f64 {
    wide_dot(vector, vector).sqrt()
}

/// The cosine similarity of vectors with these lengths. `None`: one is a vector of zeros.
pub(crate) fn cosine((a, a_length): (&[f32], f64), (b, b_length): (&[f32], f64)) -> Option<f32> {
    let lengths = a_length * b_length;
    (lengths != 0.0).then(|| f64::midpoint(1.0, wide_dot(a, b) / lengths) as f32)
}

/// The differences of the components of two vectors of the same dimension.
pub(crate) fn difference(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The square of the distance of two vectors of the same dimension.
pub fn square_distance(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| (a - b) * (a - b))
}

impl Similarity {
    /// The similarity of two vectors of the same dimension. `None`: it is not defined, for a vector of zeros.
    pub fn of(self, a: &[f32], b: &[f32]) -> Option<f32> {
        Some(match self {
            Self::Cosine => return cosine((a, length(a)), (b, length(b))),
            Self::Euclidean => 1.0 / (1.0 + square_distance(a, b)),
            Self::DotProduct => f32::midpoint(1.0, dot(a, b)),
        })
    }

    /// Whether an index with this measure takes a vector.
    pub fn check(self, vector: &[f32]) -> Result<(), UnusableVector> {
        for (position, &value) in vector.iter().enumerate() {
            if !value.is_finite() {
                return Err(UnusableVector::NotFinite { position, value });
            }
            if value.abs() > COMPONENT_MAX {
                return Err(UnusableVector::OutOfBounds { position, value });
            }
        }
        if self == Self::Cosine && length(vector) == 0.0 {
            return Err(UnusableVector::Zero);
        }
        Ok(())
    }

    /// A vector as the lists compare it: for the cosine only its direction counts.
    pub(crate) fn prepare(self, vector: &mut [f32]) {
        if self == Self::Cosine {
            let length = length(vector);
            if length > 0.0 {
                for component in vector {
                    *component = (f64::from(*component) / length) as f32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarities_are_those_of_cassandra() {
        let (x, y) = ([1.0, 0.0, 0.0], [0.0, 2.0, 0.0]);
        assert_eq!(Similarity::Cosine.of(&x, &y), Some(0.5));
        assert_eq!(Similarity::Cosine.of(&x, &x), Some(1.0));
        assert_eq!(Similarity::Cosine.of(&x, &[0.0; 3]), None);
        assert_eq!(Similarity::Euclidean.of(&x, &y), Some(1.0 / 6.0));
        assert_eq!(Similarity::DotProduct.of(&[1.0, 2.0], &[3.0, 4.0]), Some(6.0));
        let long: Vec<f32> = (0..37).map(|number| number as f32).collect();
        let expected: f32 = (0..37).map(|number| (number * number) as f32).sum();
        assert!((dot(&long, &long) - expected).abs() < 1e-3);
    }

    #[test]
    fn the_cosine_of_long_and_of_short_vectors_is_that_of_their_directions() {
        for length in [1e-45, 1e-25, 1e-12, 1e10, 1e17, 1e38] {
            let cosine = |b: &[f32]| Similarity::Cosine.of(&[length, 0.0], b);
            assert_eq!(cosine(&[length, 0.0]), Some(1.0), "{length}");
            assert_eq!(cosine(&[0.0, 1.0]), Some(0.5), "{length}");
            assert_eq!(cosine(&[-length, 0.0]), Some(0.0), "{length}");
            Similarity::Cosine.check(&[length.min(COMPONENT_MAX), 0.0]).unwrap();
        }
    }

    #[test]
    fn an_index_refuses_vectors_that_it_could_not_find() {
        assert_eq!(Similarity::Cosine.check(&[0.0, 0.0]), Err(UnusableVector::Zero));
        Similarity::Euclidean.check(&[0.0, 0.0]).unwrap();
        let error = Similarity::Euclidean.check(&[1.0, f32::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "non-finite value at vector[1]=NaN");
        let error = Similarity::DotProduct.check(&[f32::NEG_INFINITY]).unwrap_err();
        assert!(matches!(error, UnusableVector::NotFinite { position: 0, .. }));
        let error = Similarity::DotProduct.check(&[2e17]).unwrap_err();
        assert!(matches!(error, UnusableVector::OutOfBounds { position: 0, .. }));
    }
}
