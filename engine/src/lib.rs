//! The storage engine of one shard: rows of cells with timestamps, kept by partition and position.
//!
//! It knows bytes, tokens and timestamps only.

pub mod cell;
pub mod codec;
pub mod commit_log;
pub mod compaction;
pub mod counter;
pub mod error;
pub mod io;
pub mod key;
pub mod memtable;
pub mod mutation;
pub mod read;
pub mod reconcile;
pub mod row;
pub mod row_writer;
pub mod shard;
pub mod span;
pub mod table;

pub use cell::{Cell, CellKind, Deletion, Expiry, Liveness};
pub use codec::DecodeError;
pub use commit_log::LogPosition;
pub use error::EngineError;
pub use mutation::{Mutation, MutationBuilder, MutationRef, Operation, TableId};
pub use read::{Budget, RowView, Scan, ScanRequest, Step};
pub use row::RowRef;
pub use row_writer::{RowBuilder, RowWriter, transcode};
pub use shard::{Shard, ShardOptions, TableOptions, TableStatistics};
