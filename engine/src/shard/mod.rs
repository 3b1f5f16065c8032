//! One shard: the owner of commit log, memtables, table files, compaction and reads.
//!
//! A shard belongs to one thread. Its methods take `&self`. Reads and writes are not async. A sequence of them without an `await`
//! is a *critical section*: no other task of the thread runs in between. Operations that wait (durability, back-pressure,
//! flush, compaction, schema) are async.
//!
//! # Invariants
//!
//! * A mutation is appended to the commit log before it is applied to a memtable, both in one critical section. So readers and
//!   replay see all of it or nothing. Data that is loaded past the log ([`Shard::load`]) is only in the memtable.
//! * A table's manifest entry names its files, and the log position up to which they contain all its records. Files are complete
//!   and synced before the manifest names them, and are removed only after it has stopped naming them and lists them as obsolete.
//! * What the manifest does not know is never removed: a start moves it to the quarantine.
//! * Log segments are released only when no memtable needs them. A memtable is released only when the manifest names its file.
//! * After a failed write or sync of the log, or an edit of the manifest with an unknown outcome, the shard refuses all
//!   further writes.
//! * A full disk is no failure. Operations for which there is no room are refused ([`EngineError::NoRoom`](crate::EngineError)) and
//!   change nothing; they succeed when there is room again. Only a failed sync of the log, or of the manifest's directory, is final.
//! * After a broken invariant ([`crate::BrokenInvariant`]) the shard refuses all further reads as well.

mod attachment;
mod backlog;
mod backup;
mod candidates;
mod check;
mod cleanup;
mod cold;
mod collected_keys;
mod compact;
mod compaction_choice;
mod compaction_control;
mod compaction_counters;
mod compaction_failures;
mod compaction_report;
mod damage;
mod damaged_file;
mod directories;
mod directory;
mod edit;
mod examination;
mod examine;
mod fetches;
mod file_index;
mod files;
mod flush;
mod import;
mod index_entries;
mod index_files;
mod index_rebuild;
mod index_report;
mod index_search;
mod leftovers;
mod log_import;
mod look_up;
mod memory;
mod memtable_index;
mod memtables;
mod mended;
mod names;
mod nearest;
mod open;
mod options;
mod ordered_keys;
mod parts_in_memory;
mod quarantine;
mod remains;
mod restore;
mod room;
mod running_compactions;
mod scan;
mod schema;
mod search_cost;
mod search_turn;
mod shared_compaction;
mod snapshot;
mod state;
mod table_state;
mod tasks;
#[cfg(test)]
mod tests;
mod truncate;
mod versions;
mod write;
mod write_pressure;

pub use self::attachment::Attachment;
pub use self::check::DirectoryReport;
pub use self::cleanup::Dropped;
pub use self::cold::{Attempt, ColdRead, MissingBlocks, ReadProgress};
pub use self::compaction_counters::{CompactionStatistics, EndedCompaction};
pub use self::compaction_report::{CompactionFailure, CompactionReport};
pub use self::directory::ShardDirectory;
pub use self::examination::{Examination, ExaminationProgress, FileFinding, FileOutcome};
pub use self::import::{ImportDirectory, ImportSource};
pub use self::index_files::IndexStatus;
pub use self::index_report::IndexFileStatus;
pub use self::index_search::{FoundKeys, SearchWorth};
pub use self::log_import::{LogImport, LogPart, LogSelection};
pub use self::look_up::{Lookup, RowRequest};
pub use self::nearest::NearestRows;
pub use self::options::{CommonResources, ShardOptions, TableOptions, TableStatistics, TombstoneGc};
pub use self::quarantine::Quarantine;
pub use self::restore::Restored;
pub use self::running_compactions::{CompactionKind, RunningCompaction};
pub use self::scan::Unopened;
pub use self::snapshot::SnapshotEntry;
pub use self::state::{ReadWork, Shard};
pub use self::write::Load;
pub use self::write_pressure::{BacklogLimits, WriteWaits};
pub use crate::manifest::ManifestError;
