//! Reports on the store of uploaded snapshots.

use serde::{Deserialize, Serialize};

/// What a node has uploaded of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadReport {
    pub table_count: u64,
    pub file_count: u64,
    pub bytes: u64,
    /// Those of them that were not in the store before.
    pub new_file_count: u64,
    pub new_bytes: u64,
}

/// What was removed from the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalReport {
    pub object_count: u64,
    pub bytes: u64,
}

/// What was downloaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadReport {
    /// On the machine of the node.
    pub directory: String,
    /// The ids of the hosts whose parts these are.
    pub hosts: Vec<String>,
    pub file_count: u64,
    pub bytes: u64,
    /// Those of them that were not in the directory before.
    pub new_file_count: u64,
    pub new_bytes: u64,
}

/// The uploads that are in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadsReport {
    /// The address of the store.
    pub store: String,
    /// By host and snapshot.
    pub uploads: Vec<ListedUpload>,
    /// What the node that was asked does with the store now.
    pub under_way: Option<StoreProgress>,
}

/// A host's upload of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedUpload {
    pub host_id: String,
    pub snapshot: String,
    pub uploaded_at: String,
    pub tables: Vec<UploadedTable>,
    /// Why its tables are not known.
    pub error: Option<String>,
}

/// A table of an upload. What the snapshot of a former version does not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadedTable {
    pub keyspace: String,
    pub table: String,
    pub table_id: String,
    /// When the snapshot was taken.
    pub created_at: String,
    pub file_count: u64,
    pub bytes: u64,
}

/// How far an operation on the store is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreProgress {
    /// `upload`, `download` or `removal`.
    pub operation: String,
    pub snapshot: String,
    pub file_count: u64,
    pub files_done: u64,
    pub bytes: u64,
    pub bytes_done: u64,
}
