//! The vector that a search looks for.

use crate::quantised::Quantised;
use crate::similarity::{Similarity, dot, floats_of};

/// Partial sums of one loop.
const LANES: usize = 16;

/// The vector that a search looks for, with what all comparisons need of it.
#[derive(Debug, Clone)]
pub struct Target {
    similarity: Similarity,
    vector: Vec<f32>,
    sum: f32,
    square: f32,
}

impl Target {
    pub fn new(similarity: Similarity, vector: Vec<f32>) -> Self {
        Self { similarity, sum: vector.iter().sum(), square: dot(&vector, &vector), vector }
    }

    pub fn dimension(&self) -> usize {
        self.vector.len()
    }

    /// The similarity to a vector in bytes. `None`: it has another dimension, or there is no similarity.
    pub fn similarity_to(&self, bytes: &[u8]) -> Option<f32> {
        let similarity = self.similarity.of(&self.vector, &floats_of(bytes, self.dimension())?);
        similarity.filter(|similarity| !similarity.is_nan())
    }

    /// The similarity to a quantised vector, about.
    pub fn estimate(&self, quantised: &Quantised<'_>) -> f32 {
        let product = self.product(quantised);
        match self.similarity {
            Similarity::Cosine => {
                let norms = (self.square * quantised.square).sqrt();
                if norms > 0.0 { f32::midpoint(1.0, product / norms) } else { 0.0 }
            }
            Similarity::Euclidean => {
                let square = self.square + quantised.square - 2.0 * product;
                1.0 / (1.0 + square.max(0.0))
            }
            Similarity::DotProduct => f32::midpoint(1.0, product),
        }
    }

    fn product(&self, quantised: &Quantised<'_>) -> f32 {
        let mut sums = [0.0; LANES];
        let (vector, vector_rest) = self.vector.as_chunks::<LANES>();
        let (codes, codes_rest) = quantised.codes.as_chunks::<LANES>();
        for (vector, codes) in vector.iter().zip(codes) {
            for ((sum, component), code) in sums.iter_mut().zip(vector).zip(codes) {
                *sum += component * f32::from(*code);
            }
        }
        let rest: f32 =
            vector_rest.iter().zip(codes_rest).map(|(component, code)| component * f32::from(*code)).sum();
        quantised.lowest * self.sum + quantised.step * (sums.iter().sum::<f32>() + rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::quantised::quantise;

    proptest! {
        #[test]
        fn estimates_are_near_the_similarity(
            (a, b) in (1_usize..100).prop_flat_map(|dimension| {
                let vector = || prop::collection::vec(-1.0_f32..1.0, dimension);
                (vector(), vector())
            })
        ) {
            for similarity in [Similarity::Cosine, Similarity::Euclidean, Similarity::DotProduct] {
                let target = Target::new(similarity, a.clone());
                let mut bytes = Vec::new();
                quantise(&b, &mut bytes);
                let estimate = target.estimate(&Quantised::parse(&bytes, b.len()).unwrap());
                let bytes: Vec<u8> = b.iter().flat_map(|component| component.to_be_bytes()).collect();
                let long_enough = dot(&a, &a) > 0.1 && dot(&b, &b) > 0.1;
                if let Some(exact) = target.similarity_to(&bytes).filter(|_| long_enough) {
                    let bound = 0.02 * (b.len() as f32).sqrt();
                    prop_assert!((estimate - exact).abs() < bound, "{similarity:?} {estimate} {exact}");
                }
            }
        }
    }
}
