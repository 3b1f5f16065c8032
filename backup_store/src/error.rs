//! What is wrong with a store of backups, or with what lies there. Every error names the object or the file.

use std::path::PathBuf;

/// The reason why an operation on a store was not carried out, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the address of the backup store, '{address}', cannot be used: {reason}")]
    Address { address: String, reason: &'static str },
    #[error("the file {path} with the secret access key cannot be used: {reason}")]
    Secret { path: PathBuf, reason: String },
    #[error("the backup store {store} cannot be used: {reason}")]
    Unusable { store: String, reason: String },
    #[error("cannot {action} the object {object} of the backup store {store}: {reason}")]
    Object { action: &'static str, object: String, store: String, reason: String },
    #[error("the object {object} is not in the backup store {store}")]
    Missing { object: String, store: String },
    #[error("the object {object} of the backup store {store} is damaged: {reason}")]
    Damaged { object: String, store: String, reason: String },
    #[error(
        "the object {object} of the backup store {store} is of a newer program: its version is {version}"
    )]
    Newer { object: String, store: String, version: u32 },
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} has changed while it was read: two reads of it differ")]
    Changed { path: PathBuf },
    #[error(
        "the snapshot '{snapshot}' has not all files of a table any more that it had when it was uploaded ({missing} for one): the upload is left as it is"
    )]
    Shrunk { snapshot: String, missing: String },
    #[error(
        "the snapshot '{snapshot}' has no files of the table {table} below {path}: it may have been removed meanwhile"
    )]
    NoFiles { snapshot: String, table: String, path: PathBuf },
    #[error("{path} is there with other contents; download into an empty directory")]
    Occupied { path: PathBuf },
    #[error("there is no upload of a snapshot '{snapshot}' {of} in the backup store {store}")]
    UnknownUpload { snapshot: String, of: String, store: String },
}
