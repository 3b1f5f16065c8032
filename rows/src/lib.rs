//! What a shard stores, and its encoding: the addresses of rows, their parts, rows, and the changes to a partition.
//!
//! It is the lowest layer of the storage engine, whose crate hands on what its users need. The commit log, the memtable, the table
//! files and the messages between nodes all have rows in the one encoding of [`row`]. Nothing here reads a clock or a disk, and bytes
//! from outside never make it panic.
//!
//! | module | concept |
//! |---|---|
//! | [`key`] | the address of a row: one byte string |
//! | [`cell`] | the parts of a row, and which of two versions of a part wins |
//! | [`counter`] | the value of a counter cell |
//! | [`row`] [`row_writer`] | the encoding of a row, read and written |
//! | [`reconcile`] | merging versions of a row |
//! | [`reconcile_answers`] | merging the versions of a range that several replicas have |
//! | [`range_tombstone`] | deletions of ranges of positions |
//! | [`dropped_columns`] | the cells of a row that a reader does not see any more |
//! | [`mutation`] | the changes to one partition |
//! | [`secondary_index`] | the terms by which rows are found, and the entries of an index |
//! | [`mod@prefetch`] | hints to the processor for those who walk over rows |

pub mod cell;
pub mod counter;
pub mod dropped_columns;
pub mod key;
pub mod mutation;
pub mod partition_watch;
pub mod prefetch;
pub mod range_tombstone;
pub mod reconcile;
pub mod reconcile_answers;
pub mod row;
pub mod row_writer;
pub mod secondary_index;

use helenus_io::{codec, invariant, merge};
