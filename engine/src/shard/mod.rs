//! One shard: the owner that joins commit log, memtables, table files, compaction and reads.
//!
//! A shard belongs to one thread. Its methods take `&self`; writes, reads and their combination within one turn
//! are not async, so nothing can come in between. Everything that waits (durability, back-pressure, flush,
//! compaction, schema) is.
//!
//! # Invariants
//!
//! * A mutation is in the commit log before it is in a memtable, and in both within one turn: readers and
//!   replay see all of it or nothing. What was loaded past the log ([`Shard::load`]) is only in the memtable.
//! * A table's manifest entry says which files hold it and up to which log position they contain everything.
//!   Files are complete and synced before the manifest names them; they are removed only after the manifest
//!   has stopped naming them.
//! * Log segments are given up only when no memtable needs them, and a memtable is given up only when the
//!   manifest names its file.
//! * After a failed write or sync of the log, or a replacement of the manifest with an unknown outcome, the
//!   shard refuses every further write.

mod cleanup;
mod compact;
mod files;
mod flush;
mod look_up;
mod open;
mod options;
mod scan;
mod schema;
mod snapshot;
mod state;
mod table_state;
mod tasks;
#[cfg(test)]
mod tests;
mod versions;
mod write;

pub use self::cleanup::Dropped;
pub use self::look_up::{Lookup, RowRequest};
pub use self::options::{ShardOptions, TableOptions, TableStatistics};
pub use self::state::Shard;
pub use self::write::Load;
pub use crate::manifest::ManifestError;
