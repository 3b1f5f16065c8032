//! The vector that a search looks for.

use crate::quantised::{Quantised, quantise};
use crate::similarity::{Similarity, cosine, difference, dot, floats_of, length, sum_of};

/// The vector that a search looks for, with what all comparisons need of it.
#[derive(Debug, Clone)]
pub struct Target {
    similarity: Similarity,
    vector: Vec<f32>,
    length: f64,
    /// The vector as lists compare it.
    prepared: Vec<f32>,
}

impl Target {
    pub fn new(similarity: Similarity, vector: Vec<f32>) -> Self {
        let mut prepared = vector.clone();
        similarity.prepare(&mut prepared);
        Self { similarity, length: length(&vector), prepared, vector }
    }

    pub fn dimension(&self) -> usize {
        self.vector.len()
    }

    /// The similarity to a vector in bytes. `None`: it has another dimension, or no index takes it.
    pub fn similarity_to(&self, bytes: &[u8]) -> Option<f32> {
        let vector = floats_of(bytes, self.dimension())?;
        self.similarity.check(&vector).ok()?;
        let similarity = match self.similarity {
            Similarity::Cosine => cosine((&self.vector, self.length), (&vector, length(&vector))),
            Similarity::Euclidean | Similarity::DotProduct => self.similarity.of(&self.vector, &vector),
        };
        similarity.filter(|similarity| !similarity.is_nan())
    }

    /// The similarity to the centroid of a list, which has the dimension of the target.
    pub fn similarity_to_centroid(&self, centroid: &[f32]) -> f32 {
        // Vectors of all directions may have a mean of zeros.
        self.similarity.of(&self.prepared, centroid).unwrap_or(0.0)
    }

    /// The target as the vectors of the list with this centroid are compared with it.
    pub fn in_list(&self, centroid: Vec<f32>) -> ListTarget {
        let (vector, of_centroid) = match self.similarity {
            Similarity::Euclidean => (difference(&self.prepared, &centroid), 0.0),
            Similarity::Cosine | Similarity::DotProduct => {
                (self.prepared.clone(), dot(&self.prepared, &centroid))
            }
        };
        let sum = vector.iter().sum();
        ListTarget { similarity: self.similarity, centroid, vector, sum, of_centroid }
    }
}

/// A target for the vectors of one list.
#[derive(Debug, Clone)]
pub struct ListTarget {
    similarity: Similarity,
    centroid: Vec<f32>,
    /// Of distances: the difference of the target to the centroid. Of products: the target.
    vector: Vec<f32>,
    /// The sum of its components.
    sum: f32,
    /// The product of the target and the centroid.
    of_centroid: f32,
}

impl ListTarget {
    /// The similarity to a vector of the list, about.
    pub fn estimate(&self, quantised: &Quantised<'_>) -> f32 {
        match self.similarity {
            Similarity::Euclidean => 1.0 / (1.0 + self.square_distance(quantised)),
            Similarity::Cosine | Similarity::DotProduct => {
                f32::midpoint(1.0, self.of_centroid + self.product(quantised))
            }
        }
    }

    /// The estimate that the list would have of a vector in bytes. `None`: it has another dimension, or no index takes it.
    pub fn estimate_of(&self, bytes: &[u8]) -> Option<f32> {
        let mut vector = floats_of(bytes, self.centroid.len())?;
        self.similarity.check(&vector).ok()?;
        self.similarity.prepare(&mut vector);
        let mut quantised = Vec::new();
        quantise(&difference(&vector, &self.centroid), &mut quantised);
        Some(self.estimate(&Quantised::parse(&quantised, self.centroid.len())?))
    }

    fn square_distance(&self, quantised: &Quantised<'_>) -> f32 {
        sum_of(&self.vector, quantised.codes, |component, code| {
            let difference = (component - quantised.lowest) - f32::from(code) * quantised.step;
            difference * difference
        })
    }

    fn product(&self, quantised: &Quantised<'_>) -> f32 {
        let of_codes = sum_of(&self.vector, quantised.codes, |component, code| component * f32::from(code));
        quantised.lowest * self.sum + quantised.step * of_codes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::similarity::dot;

    fn bytes_of(vector: &[f32]) -> Vec<u8> {
        vector.iter().flat_map(|component| component.to_be_bytes()).collect()
    }

    #[test]
    fn a_vector_that_no_index_takes_has_no_similarity() {
        for similarity in [Similarity::Cosine, Similarity::Euclidean, Similarity::DotProduct] {
            let target = Target::new(similarity, vec![1.0, 2.0]);
            for component in [f32::NAN, f32::INFINITY, 2e17] {
                assert_eq!(target.similarity_to(&bytes_of(&[1.0, component])), None, "{similarity:?}");
            }
            let zeros = target.similarity_to(&bytes_of(&[0.0, 0.0]));
            assert_eq!(zeros.is_none(), similarity == Similarity::Cosine);
        }
    }

    #[test]
    fn estimates_of_cosines_do_not_depend_on_the_lengths() {
        for length in [1e-40, 1e-25, 1e-12, 1.0, 1e10, 1e17_f32] {
            let target = Target::new(Similarity::Cosine, vec![length, length, 0.0]);
            for vector in [[length, length, 0.0], [0.0, length, length], [1.0, 1.0, 1.0]] {
                let estimate = target.in_list(vec![0.1, 0.2, 0.3]).estimate_of(&bytes_of(&vector)).unwrap();
                let exact = target.similarity_to(&bytes_of(&vector)).unwrap();
                assert!((estimate - exact).abs() < 0.02, "{length} {vector:?}: {estimate} {exact}");
            }
        }
    }

    proptest! {
        #[test]
        fn estimates_are_near_the_similarity(
            (a, b, centroid) in (1_usize..100).prop_flat_map(|dimension| {
                let vector = || prop::collection::vec(-1.0_f32..1.0, dimension);
                (vector(), vector(), vector())
            })
        ) {
            for similarity in [Similarity::Cosine, Similarity::Euclidean, Similarity::DotProduct] {
                let target = Target::new(similarity, a.clone());
                let bytes = bytes_of(&b);
                let long_enough = dot(&a, &a) > 0.1 && dot(&b, &b) > 0.1;
                let estimate = target.in_list(centroid.clone()).estimate_of(&bytes);
                let both = estimate.zip(target.similarity_to(&bytes));
                if let Some((estimate, exact)) = both.filter(|_| long_enough) {
                    let bound = 0.02 * (b.len() as f32).sqrt();
                    prop_assert!((estimate - exact).abs() < bound, "{similarity:?} {estimate} {exact}");
                }
            }
        }
    }
}
