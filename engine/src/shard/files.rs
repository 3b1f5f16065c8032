//! The names of table files, and how files come and go.
//!
//! An output of a flush or compaction is written under a temporary name. When it is complete and synced it gets its own name in
//! addition (a hard link), and the directory is synced. Then the manifest names it, and the temporary name is removed. A file that the
//! manifest stops naming is listed there as obsolete until it is gone. So a start can classify what it finds:
//!
//! | `<n>-data.sst` | `<n>-data.sst.tmp` | the manifest | meaning |
//! |---|---|---|---|
//! | is there | | names it | in use |
//! | is there | is there | names it | in use; the temporary name is removed |
//! | | is there | does not name it | not finished: removed |
//! | is there | is there | does not name it | finished, but not installed: removed |
//! | is there | | lists it as obsolete | removed |
//! | is there | | does not know it | unknown: moved to the quarantine |
//!
//! Where a file system has no hard links the output is renamed. A crash just before the manifest names it then leaves a file of the last kind.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::directories::{Directories, table_directory};
use super::table_state::TableState;
use crate::error::EngineError;
use crate::io::{DiskError, Environment, JobKind, run_in_background};
use crate::key::decode_token;
use crate::manifest::{FileId, ManifestFile, TokenSpan};
use crate::mutation::TableId;
use crate::table::TableReader;

/// The entry of a complete file in the manifest.
pub(super) fn entry_of(id: FileId, level: u32, created_seconds: u32, reader: &TableReader) -> ManifestFile {
    let FileId { generation, directory } = id;
    let statistics = reader.statistics();
    let token = |key: &[u8]| key.first_chunk().map(|bytes| decode_token(*bytes));
    let tokens = token(&statistics.min_key)
        .and_then(|first| Some(TokenSpan { first, last: token(&statistics.max_key)? }));
    ManifestFile { generation, level, created_seconds, directory, tokens }
}

/// Opens a file that was just written. Its filters and indexes are read and checked on another thread, because those of a large one take
/// long. The file itself is of the shard's disk, whose reads do not hold up the shard's thread later.
pub(super) async fn open_aside(
    environment: &Environment,
    table: &TableState,
    id: FileId,
) -> Result<Arc<TableReader>, EngineError> {
    let (path, resident) = (table.path(id), table.resident.clone());
    let file = environment.disk.open_complete(&path).await?;
    let opened = run_in_background(&*environment.background, JobKind::Soon, move |_| {
        Box::pin(async move { TableReader::open_within(file, &path, id.generation, &resident) })
    });
    Ok(Arc::new(opened.await??))
}

/// Gives a complete, synced output its own name. The name is durable when the table's directory is synced.
pub(super) async fn give_name(
    environment: &Environment,
    table: &TableState,
    id: FileId,
) -> Result<(), DiskError> {
    let (temporary, path) = (table.temporary_path(id), table.path(id));
    match environment.disk.hard_link(&temporary, &path).await {
        Err(error) if has_no_links(error.kind()) => environment.disk.rename(&temporary, &path).await,
        linked => linked,
    }
}

/// Whether an error says that the file system has no hard links. A name that is taken is another error: a rename would replace an
/// unknown file.
fn has_no_links(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied | io::ErrorKind::TooManyLinks)
}

/// Removes the temporary name of an output that is installed, or both names of one that is not needed.
pub(super) async fn discard_output(
    environment: &Environment,
    table: &TableState,
    id: FileId,
    is_installed: bool,
) {
    // The temporary name goes last, and only if the other one is gone: it marks that one as not installed.
    if is_installed || discard_file(environment, &table.path(id)).await {
        discard_file(environment, &table.temporary_path(id)).await;
    }
}

/// Removes a file that the manifest does not name. Returns whether it is gone. If not, it stays until the next start; nothing depends
/// on its removal.
pub(super) async fn discard_file(environment: &Environment, path: &Path) -> bool {
    was_removed(environment.disk.remove(path).await, path)
}

/// Removes the directories of a table that the manifest does not name, as [`discard_file`] does.
pub(super) async fn discard_table_directories(
    environment: &Environment,
    directories: &Directories,
    id: TableId,
) -> bool {
    let mut are_gone = true;
    for root in directories.roots() {
        let directory = table_directory(root, id);
        are_gone &= was_removed(environment.disk.remove_directory(&directory).await, &directory);
    }
    are_gone
}

pub(super) fn was_removed(outcome: Result<(), DiskError>, path: &Path) -> bool {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "an unneeded file could not be removed");
            false
        }
        _ => true,
    }
}
