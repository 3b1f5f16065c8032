//! Sorted tables on disk (SSTables): immutable files of rows in key order, and of span deletions.
//!
//! A [`TableWriter`] is fed rows in ascending order and writes the file front to back; a [`TableReader`] works on a
//! mapping of the finished file. Everything that decides where to look (footer, index, filters, spans, statistics) is
//! checked against its checksum when the table is opened, each data block when it is read: damage is an error that names
//! file and offset, never data. `docs/formats.md` describes the layout, the encoders stand in `format` and the modules
//! named after the sections.
//!
//! A point read goes row filter, index root, index leaf, block cache, restart search: no allocation on the way.

mod block;
mod cache;
mod compression;
mod cursor;
mod error;
mod filter;
mod format;
mod index;
mod packing;
mod reader;
mod spans;
mod statistics;
#[cfg(test)]
mod tests;
mod writer;

pub use block::{BlockBuilder, BlockView, EntryRef, Found, Place};
pub use cache::{BlockCache, CacheStatistics};
pub use compression::Compression;
pub use cursor::{TableCursor, TableCursorBuffers};
pub use error::TableError;
pub use filter::KeyHash;
pub use packing::unpack as unpack_block;
pub use reader::{TableReader, TableRow};
pub use spans::{SpanRef, Spans};
pub use statistics::{Positions, TableStatistics};
pub use writer::{TableOptions, TableWriter};
