//! The storage engine of one shard: rows of cells with timestamps, kept by partition and position.
//!
//! It knows bytes, tokens and timestamps only; what a column means is the caller's business. A [`Shard`] lives on
//! one thread (a tokio `LocalSet`), owns a directory, and survives `kill -9` at any moment with every write whose
//! durability it has acknowledged.
//!
//! # Using it without a server
//!
//! `examples/embedded.rs` is a complete program. In short:
//!
//! 1. Make an [`io::Environment`]: a disk, background threads, a clock. [`io::ThreadedDisk`],
//!    [`io::BackgroundPool`] and [`io::RealClock`] are the real ones; [`io::SimulatedDisk`],
//!    [`io::InlineBackground`] and [`io::ManualClock`] make a test deterministic.
//! 2. [`Shard::open`] it and [`Shard::create_table`] every table (also after a restart: tables are remembered,
//!    their options are not).
//! 3. To write, collect the changes to one partition in a [`MutationBuilder`] with a [`RowBuilder`] a row, wait for
//!    [`Shard::admit`], [`Shard::apply`] it, and acknowledge when [`Shard::durable`] resolves. All of a mutation
//!    becomes visible and durable, or nothing.
//! 4. To read, open a [`Scan`] over a half-open range of full keys ([`key`]) and call [`Scan::next`] until it says
//!    [`Step::End`], or [`Step::Exhausted`] when the [`Budget`] is spent; [`Scan::resume_bound`] is where the next
//!    page goes on. [`Shard::look_up`] is the short way to one row. Neither they nor `apply` are async: a read and a write
//!    that depends on it, in one turn, are atomic.
//!
//! # Inside
//!
//! | module | concept |
//! |---|---|
//! | [`key`] [`cell`] [`row`] [`row_writer`] [`mutation`] [`counter`] [`span`] | what is stored, and its one encoding |
//! | [`reconcile`] | how versions of a row become one |
//! | [`commit_log`] | every mutation on disk before it is acknowledged |
//! | [`memtable`] | the newest rows, by partition |
//! | [`table`] | immutable sorted files |
//! | [`read`] | the bounded merge of all of these |
//! | [`compaction`] | which files to merge, and the merge |
//! | [`shard`] | the owner that joins them |
//! | [`io`] | disk, clock, randomness, threads: everything from outside |

pub mod cell;
pub mod codec;
pub mod commit_log;
pub mod compaction;
pub mod counter;
pub mod error;
mod invariant;
pub mod io;
pub mod key;
mod manifest;
pub mod memtable;
mod merge;
pub mod mutation;
mod prefetch;
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
pub use invariant::BrokenInvariant;
pub use mutation::{Mutation, MutationBuilder, MutationRef, Operation, TableId, ValidMutation};
pub use read::{Budget, RowView, Scan, ScanRequest, Step, VersionLimit, VersionScanRequest, Versions};
pub use row::RowRef;
pub use row_writer::{RowBuilder, RowWriter, transcode};
pub use shard::{Dropped, Load, Lookup, RowRequest, Shard, ShardOptions, TableOptions, TableStatistics};
pub use table::TableOptions as TableWriterOptions;
