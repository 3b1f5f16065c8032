//! Incremental backups: every file that a flush makes is linked into `backups/<table id>` of the directory that it lies in, with the
//! table's notes beside it. Together with a snapshot of before they have all rows that are in files.
//!
//! Invariants:
//! * A file of a flush is in the backups before the manifest names it. Before a table's options are known, after a start, it is linked into
//!   `backups/<table id>.recovered`, and goes to its place when they are.
//! * The shard never reads, counts or removes what is in the backups. They belong to the operator, and whole directories may
//!   disappear.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::attachment::Attachment;
use super::files::discard_file;
use super::names::{Name, file_name};
use super::remains::list;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::invariant::{BrokenInvariant, broken};
use crate::io::{Disk, DiskError, Environment};
use crate::manifest::FileId;

/// The suffix of a note that is being written.
const TEMPORARY_SUFFIX: &str = ".tmp";
/// The suffix of the directory of files whose table is not known yet.
const RECOVERED_SUFFIX: &str = ".recovered";
/// More than the number of any file of a shard.
const FREE_NUMBERS: u64 = 1 << 40;

/// The directory of the backups of the table whose files lie in this directory, and the directory of backups that were made
/// before the table's options were known.
fn backups_beside(tables: &Path) -> Option<(PathBuf, PathBuf)> {
    let all = tables.parent()?.parent()?.join("backups");
    let id = tables.file_name()?.to_str()?;
    Some((all.join(id), all.join([id, RECOVERED_SUFFIX].concat())))
}

/// Links a complete file of a table into its backups, if the table has any. Returns the link: it must go if the file is not installed.
pub(super) async fn back_up(
    environment: &Environment,
    table: &TableState,
    id: FileId,
    keeps_backups: bool,
) -> Result<Option<PathBuf>, EngineError> {
    if !keeps_backups {
        return Ok(None);
    }
    let beside = backups_beside(table.directory(id.directory));
    let (backups, recovered) = beside.ok_or_else(no_directory)?;
    let disk = &*environment.disk;
    let directory = if table.is_configured.get() {
        let Some(notes) = table.options.borrow().backup_notes.clone() else { return Ok(None) };
        prepare(disk, &backups, &notes).await?;
        place_recovered(disk, &recovered, &backups).await?;
        backups
    } else {
        make(disk, &recovered).await?;
        recovered
    };
    let link = link(disk, &table.path(id), &directory, id.generation).await?;
    disk.sync_directory(&directory).await?;
    Ok(Some(link))
}

#[cold]
fn no_directory() -> BrokenInvariant {
    broken!("a table's directory is named after it, below the tables of one of the shard's directories")
}

/// Makes a directory of backups, durably.
async fn make(disk: &dyn Disk, directory: &Path) -> Result<(), DiskError> {
    disk.create_directory(directory).await?;
    for above in directory.ancestors().skip(1).take(2) {
        disk.sync_directory(above).await?;
    }
    Ok(())
}

/// Makes the directory of a table's backups with its notes, unless it exists with equal notes.
async fn prepare(disk: &dyn Disk, directory: &Path, notes: &Arc<[Attachment]>) -> Result<(), DiskError> {
    let present: BTreeSet<String> =
        list(disk, directory).await?.into_iter().map(|entry| entry.name).collect();
    if present.is_empty() {
        make(disk, directory).await?;
    }
    for note in notes.iter() {
        let path = directory.join(&note.name);
        if present.contains(&note.name) && disk.read(&path).await? == note.contents {
            continue;
        }
        let temporary_name = [&note.name, TEMPORARY_SUFFIX].concat();
        let temporary = directory.join(&temporary_name);
        if present.contains(&temporary_name) {
            disk.remove(&temporary).await?;
        }
        disk.create(&temporary).await?.write_and_sync_at(0, note.contents.clone()).await?;
        disk.rename(&temporary, &path).await?;
    }
    Ok(())
}

/// Takes files that were made before the table's options were known to their place.
async fn place_recovered(disk: &dyn Disk, recovered: &Path, backups: &Path) -> Result<(), DiskError> {
    let waiting = list(disk, recovered).await?;
    if waiting.is_empty() {
        return Ok(());
    }
    for entry in waiting {
        if let Some(Name::File(generation)) = Name::parse(&entry.name) {
            link(disk, &recovered.join(&entry.name), backups, generation).await?;
        }
    }
    disk.sync_directory(backups).await?;
    disk.remove_directory(recovered).await
}

/// Links a file under its number. The number may be taken after a crash during a flush, or after an older state of the data
/// directory was put back. The link then gets a number that no file of a shard has.
async fn link(disk: &dyn Disk, path: &Path, directory: &Path, generation: u64) -> Result<PathBuf, DiskError> {
    let mut number = generation;
    loop {
        let link = directory.join(file_name(number));
        match disk.hard_link(path, &link).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += FREE_NUMBERS,
            linked => return linked.map(|()| link),
        }
    }
}

impl Shard {
    /// Removes the link of a file that is not installed.
    pub(super) async fn discard_backup(&self, link: Option<&Path>) {
        if let Some(link) = link {
            discard_file(&self.environment, link).await;
        }
    }

    /// Takes the files that were made before the table's options were known to its backups, or lets them go if it has none. What fails is
    /// done at the next flush.
    pub(super) async fn place_recovered_backups(&self, table: &TableState) {
        if !self.options.keeps_backups {
            return;
        }
        let disk = &*self.environment.disk;
        for directory in &table.directories {
            let Some((backups, recovered)) = backups_beside(directory) else {
                no_directory();
                continue;
            };
            let notes = table.options.borrow().backup_notes.clone();
            let placed = async {
                if list(disk, &recovered).await?.is_empty() {
                    return Ok(());
                }
                let Some(notes) = notes else { return disk.remove_directory(&recovered).await };
                prepare(disk, &backups, &notes).await?;
                place_recovered(disk, &recovered, &backups).await
            };
            if let Err(error) = placed.await {
                tracing::warn!(table = %table.id, %error, "recovered files are not in the backups yet; the next flush adds them");
            }
        }
    }
}
