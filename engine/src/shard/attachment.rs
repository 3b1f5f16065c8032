//! Files that lie beside table files in snapshots and backups.

use bytes::Bytes;

/// A file that a snapshot, or the backups of a table, contain beside those of the table.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// A plain file name, different from those of table files.
    pub name: String,
    pub contents: Bytes,
}
