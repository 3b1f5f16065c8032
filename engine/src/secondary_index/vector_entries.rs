//! The entries of an index of vectors in a file: the vectors, quantised, by the list that each belongs to.
//!
//! ```text
//! centroid := the entry of the term (0 u8 | number of the list u32) and of an empty key; value: the centroid, a big-endian f32 a component
//! vector   := the entry of the term (1 u8 | number of the list u32) and of the row's full key; value: its difference to the centroid, quantised
//! ```
//!
//! The value is cell 0 of the row of the entry. So the centroids come first, in the order of their lists, and behind them the lists, each in one
//! piece.

use helenus_vectors::quantised::quantise;
use helenus_vectors::{Clusters, Sample, floats_of};

use super::entry::start_of_term;
use super::{IndexDefinition, VectorIndex};
use crate::invariant::{BrokenInvariant, broken};
use crate::key::KeyRef;
use crate::row::RowRef;

/// The first bytes of the terms of centroids and of vectors.
const CENTROIDS: u8 = 0;
const VECTORS: u8 = 1;

/// A term of an index of vectors.
fn term(kind: u8, list: u32) -> [u8; 5] {
    let [a, b, c, d] = list.to_be_bytes();
    [kind, a, b, c, d]
}

/// What the entry of the centroid of a list begins with. That of the first list is a bound in front of all centroids.
pub fn centroid_start(list: u32) -> Vec<u8> {
    start_of_term(&term(CENTROIDS, list))
}

/// The list of a centroid with this term. `None`: it is not the term of a centroid.
pub fn list_of_centroid(term: &[u8]) -> Option<u32> {
    match term {
        [CENTROIDS, list @ ..] => Some(u32::from_be_bytes(list.try_into().ok()?)),
        _ => None,
    }
}

/// What all entries of vectors of a list begin with.
pub fn list_start(list: u32) -> Vec<u8> {
    start_of_term(&term(VECTORS, list))
}

/// The vector of a row. `None`: it has none.
pub(super) fn vector_of(
    definition: &IndexDefinition,
    options: &VectorIndex,
    key: &KeyRef<'_>,
    row: RowRef<'_>,
) -> Option<Vec<f32>> {
    let mut vector = None;
    definition.terms.visit(key, row, &mut |_, term| vector = floats_of(term, options.dimension));
    // A row may have one that the index does not take, from before it was created.
    vector.filter(|vector| options.similarity.check(vector).is_ok())
}

/// The lists for a file's vectors.
pub(super) struct VectorEntries {
    options: VectorIndex,
    clusters: Clusters,
}

impl VectorEntries {
    pub fn new(options: VectorIndex, sample: Sample) -> Self {
        Self { options, clusters: sample.into_clusters() }
    }

    pub fn sample(options: &VectorIndex) -> Sample {
        Sample::new(options.similarity, options.dimension)
    }

    /// The number of lists.
    pub fn len(&self) -> u32 {
        self.clusters.len() as u32
    }

    /// Calls `add` with the term and the value of each centroid.
    pub fn for_each_centroid(&self, mut add: impl FnMut(&[u8], &[u8])) {
        let mut value = Vec::new();
        for (list, centroid) in (0_u32..).zip(self.clusters.centroids()) {
            value.clear();
            value.extend(centroid.iter().flat_map(|component| component.to_be_bytes()));
            add(&term(CENTROIDS, list), &value);
        }
    }

    /// Calls `add` with the term and the value of the vector of a row, if it has one.
    pub fn of_row(
        &self,
        definition: &IndexDefinition,
        key: &KeyRef<'_>,
        row: RowRef<'_>,
        add: impl FnOnce(&[u8], &[u8]),
    ) -> Result<(), BrokenInvariant> {
        let Some(vector) = vector_of(definition, &self.options, key, row) else { return Ok(()) };
        let place = self.clusters.place_of(&vector);
        let (list, difference) = place.ok_or_else(|| broken!("a file with a vector has a list for it"))?;
        let mut value = Vec::new();
        quantise(&difference, &mut value);
        add(&term(VECTORS, list as u32), &value);
        Ok(())
    }
}
