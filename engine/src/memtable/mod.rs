//! The newest rows of one table, in memory.
//!
//! Partitions are found by a hash of their token. The rows of a partition are sorted ([`rows`]). Rows are kept merged: one
//! version per position, encoded with base 0 in a bump arena. A large row has a tail of changes that are not merged with it yet
//! ([`tails`]). Range tombstones are kept beside the rows and are not applied to them; readers and the flush apply them.
//!
//! Scans over tokens and the flush need the partitions in key order. The order is built on demand.

mod arena;
mod cursor;
mod index_rows;
mod partitions;
mod point;
mod range_tombstones;
mod rows;
mod shared;
#[cfg(test)]
mod split_tests;
mod store;
mod tails;
#[cfg(test)]
mod tests;

pub(crate) use self::cursor::{CursorBuffers, MemtableCursor};
pub(crate) use self::index_rows::Place;
pub(crate) use self::point::Held;
pub(crate) use self::shared::SharedMemtable;
pub(crate) use self::store::{INDEX_BYTES_MAX, Memtable};
pub(crate) use self::tails::Tail;
