//! The manifest: the tables of a shard, the files of each table, the log position up to which those files contain the commit log,
//! and what earlier changes may have left behind on the disk and in the log.
//!
//! It is kept as a whole in `manifest`, and what has changed since in `manifest.changes-<number>`: so an edit costs what it changes, and
//! not what the shard has. Both are kept in two copies. A flush, compaction, truncation or drop takes effect when its change is in both
//! copies of the changes, or the manifest is replaced as a whole. `contents` has the manifest in memory, `format` its encoding, `change` an
//! edit and its encoding, `stored` the files.
//!
//! Invariants:
//! * A file that the manifest names is complete and synced.
//! * What a change makes useless is listed by the same change: files as obsolete, tables as dropped. An entry leaves its list when
//!   it is gone from the disk, durably, and (a table) from the needed part of the log. So whatever is found and is neither named nor
//!   listed is unknown, and nothing unknown is ever deleted.
//! * The log is released only up to [`Manifest::log_needed_from`].
//! * A change is applied in memory as it is encoded, and as a start applies it.

mod change;
mod contents;
mod error;
mod format;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use change::ManifestEdit;
pub(crate) use contents::{FileId, Manifest, ManifestFile, ManifestTable, TokenSpan};
pub use error::ManifestError;
pub(crate) use stored::{EditError, Loaded, ManifestFiles, StoredManifest};
