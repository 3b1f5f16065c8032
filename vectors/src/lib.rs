//! The search for the nearest vectors: pure functions without I/O, time or chance.
//!
//! The vectors of a file are divided into lists ([`clusters`]): those of a list lie near one centroid. A search reads the lists whose centroids are
//! nearest to its target, and estimates the similarity of each vector in them from a [`quantised`] form, a quarter as large as the vector. The
//! best candidates ([`nearest`]) are then compared exactly ([`similarity`]), which needs the vectors themselves: those are in the rows.
//!
//! Invariants:
//! * Equal vectors in equal order make equal lists, on all machines: sums are taken in a fixed order, and choices come from a fixed seed.
//! * The work and the memory for a sample of vectors are bounded, however many vectors there are.
//! * A search that reads all lists misses no vector.
//!
//! Why lists and not a graph: `docs/decisions/0021-lists-of-vectors.md`.

pub mod clusters;
pub mod nearest;
pub mod quantised;
pub mod similarity;
pub mod target;

pub use clusters::{Clusters, Sample, lists_to_read};
pub use nearest::Nearest;
pub use quantised::Quantised;
pub use similarity::{Similarity, UnusableVector, floats, floats_of};
pub use target::{ListTarget, Target};
