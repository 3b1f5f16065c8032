//! Sorted tables on disk (SSTables): immutable files of rows in key order, and of range tombstones.
//!
//! A [`TableWriter`] receives rows in ascending order and writes the file front to back. A [`TableReader`] reads the finished
//! file. It loads footer, statistics, range tombstones and the root of the index and verifies their checksums when the table is opened,
//! and does the same with each data block when it is read. Filters and leaves of the index are loaded when the table is opened, as far as
//! [`ResidentParts`] has memory for them, and are otherwise read in parts like data blocks. No byte is used before it was verified. Damage is an error that names file
//! and offset, never data. `docs/formats.md` describes the layout. The encoders are in `format` and in the modules named after
//! the sections.
//!
//! The storage engine hands this crate on as its module `table`. Nothing here knows which files a shard has.
//!
//! A point read goes through row filter, index root, index leaf, block cache and restart search, without an allocation.

mod block;
mod cache;
mod compression;
mod cursor;
mod error;
mod fetch;
mod filter;
mod filter_parts;
mod format;
mod heads;
mod index;
mod index_walk;
mod options;
mod packing;
mod piece;
mod point_read;
mod range_tombstone_cursor;
mod range_tombstones;
mod reader;
mod resident;
mod rows_encoder;
mod salvage;
mod statistics;
mod table_file;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use block::{BlockView, EntryOffset};
pub use cache::{BlockCache, BlockKey, BlockKind, BlockPart, FetchedBlocks, MissingBlock, ReadPattern};
pub use compression::Compression;
pub use cursor::{TableCursor, TableCursorBuffers};
pub use error::TableError;
pub use filter::{Filter, KeyHash, build as build_filter};
pub use options::TableOptions;
pub use packing::unpack as unpack_block;
pub use piece::{PieceBuilder, TablePiece};
pub use point_read::TableRow;
pub use range_tombstone_cursor::RangeTombstoneCursor;
pub use reader::TableReader;
pub use resident::ResidentParts;
pub use rows_encoder::ROW_BYTES_MAX;
pub use salvage::{Salvaged, salvage};
pub use statistics::{Positions, TableStatistics};
pub use verify::{Counted, verify, verify_between};
pub use writer::{TableWriter, WrittenTable};

use helenus_io as io;
use helenus_io::{codec, invariant};
use helenus_rows::{cell, key, partition_watch, prefetch, range_tombstone, row, row_writer};
