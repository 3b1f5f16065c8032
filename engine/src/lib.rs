//! The storage engine of one shard: rows of cells with timestamps, kept by partition and position.
//!
//! It knows bytes, tokens and timestamps only. The meaning of a column is the caller's business. A [`Shard`] lives on one
//! thread (a tokio `LocalSet`) and owns a directory. It survives `kill -9` at any moment: every write whose durability it
//! has acknowledged is there after a restart.
//!
//! # Using it without a server
//!
//! `examples/embedded.rs` is a complete program. In short:
//!
//! 1. Make an [`io::Environment`]: a disk, background threads, a clock, randomness. [`io::ThreadedDisk`],
//!    [`io::BackgroundPool`], [`io::RealClock`] and [`io::SystemRandom`] are the real ones; [`io::SimulatedDisk`],
//!    [`io::InlineBackground`], [`io::ManualClock`] and [`io::SeededRandom`] make a test deterministic.
//! 2. [`Shard::open`] it and [`Shard::create_table`] every table (also after a restart: the shard remembers its tables,
//!    but not their options).
//! 3. To write, collect the changes to one partition in a [`MutationBuilder`] and one
//!    [`RowBuilder`] per row. Wait for [`Shard::admit`], call [`Shard::apply`], and acknowledge when [`Shard::durable`]
//!    resolves. A mutation becomes visible and durable as a whole.
//! 4. To read, open a [`Scan`] over a half-open range of full keys ([`key`]) and call [`Scan::next`] until it returns
//!    [`Step::End`], or [`Step::Exhausted`] when the [`Budget`] is spent. [`Scan::resume_bound`] is the start of the next
//!    page. [`Shard::look_up`] reads one row by its key and costs less. None of these calls is async, and neither is
//!    `apply`: a read and a write that depends on it are atomic if nothing is awaited between them (a critical section).
//!
//! # Inside
//!
//! | module | concept |
//! |---|---|
//! | [`key`] `cell` `row` `row_writer` [`mutation`] [`counter`] | the stored data and its encoding; in a crate of their own, `helenus_rows` |
//! | `range_tombstone` | deletions of ranges of positions; in the same crate |
//! | `reconcile` | merging versions of a row; in the same crate |
//! | [`commit_log`] | every mutation on disk before it is acknowledged; in a crate of its own, `helenus_commit_log` |
//! | [`secondary_index`] | which rows may have a term |
//! | `memtable` | the newest rows, by partition |
//! | [`table`] | immutable sorted files; in a crate of their own, `helenus_table_files` |
//! | [`read`] | the bounded merge of all of these |
//! | [`compaction`] | choosing files, and merging them |
//! | [`shard`] | the owner of all of these |
//! | [`io`] | disk, clock, randomness, threads: everything that comes from outside; a crate of its own |
//! | `merge` | the k-way merge of scans, compactions and answers of replicas; in the crate [`io`] |
//! | `invariant` | what a defect in the engine's own state does |
//!
//! A module uses only modules before it in this order: `manifest`, `error`, `secondary_index`, `memtable`,
//!, `compaction`, `read`, `shard`. Files within a module have no circles either.

pub mod compaction;
pub mod error;
mod manifest;
mod memtable;
pub mod read;
pub mod secondary_index;
pub mod shard;

use helenus_io::{codec, invariant, merge};
use helenus_rows::{cell, partition_watch, prefetch, range_tombstone, reconcile, row, row_writer};

pub use helenus_commit_log as commit_log;
pub use helenus_io as io;
pub use helenus_rows::{counter, key, mutation};
pub use helenus_table_files as table;

pub use cell::{Cell, CellKind, Deletion, Expiry, Liveness};
pub use codec::DecodeError;
pub use commit_log::LogPosition;
pub use error::EngineError;
pub use invariant::BrokenInvariant;
pub use mutation::{Mutation, MutationBuilder, MutationRef, Operation, TableId, ValidMutation};
pub use partition_watch::{FilePartitions, PartitionWatch, WrittenPartition};
pub use read::{Budget, RowView, Scan, ScanRequest, Step, VersionLimit, VersionScanRequest, Versions};
pub use reconcile::{Purpose, merge_rows};
pub use row::RowRef;
pub use row_writer::{RowBuilder, RowWriter, transcode};
pub use shard::{Dropped, Load, Lookup, RowRequest, Shard, ShardOptions, TableOptions, TableStatistics};
pub use table::TableOptions as TableWriterOptions;
