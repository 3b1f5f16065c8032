//! Removing files that the manifest no longer names.

use std::io;
use std::path::Path;

use super::directories::{Directories, table_directory};
use crate::io::Environment;
use crate::mutation::TableId;

/// Removes a file that the manifest does not name. If that fails, the file stays until the next start; nothing depends on its
/// removal.
pub(super) async fn discard_file(environment: &Environment, path: &Path) {
    match environment.disk.remove(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "an unused table file could not be removed");
        }
        _ => {}
    }
}

/// Removes the directories of a table that the manifest does not name, as [`discard_file`] does.
pub(super) async fn discard_table_directories(
    environment: &Environment,
    directories: &Directories,
    id: TableId,
) {
    for root in directories.roots() {
        match environment.disk.remove_directory(&table_directory(root, id)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the directory of a dropped table could not be removed");
            }
            _ => {}
        }
    }
}
