//! The newest rows of one table, in memory.
//!
//! Partitions are found by a hash of their token; their rows are sorted inside ([`rows`]). Rows are kept merged:
//! one version per position, encoded with base 0 in a bump arena; large ones have a tail of changes that were not merged
//! yet ([`tails`]). Deletions of ranges are kept beside the rows
//! and not applied to them; readers and the flush do that.
//!
//! The order of partitions, needed for scans over tokens and for the flush, is made when it is asked for.

mod arena;
mod cursor;
mod partitions;
mod point;
mod rows;
mod shared;
mod spans;
mod store;
mod tails;
#[cfg(test)]
mod tests;

pub use self::cursor::{CursorBuffers, MemtableCursor};
pub use self::partitions::PartitionView;
pub use self::point::Held;
pub use self::shared::SharedMemtable;
pub use self::store::Memtable;
pub use self::tails::Tail;
