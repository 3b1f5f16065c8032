//! Incremental backups: every file that a flush makes is linked into `backups/<table id>` of the directory that it lies in, with the
//! table's notes beside it. Together with a snapshot of before they have all rows that are in files.
//!
//! Invariants:
//! * A file of a flush is in the backups before the manifest names it. One that is made before the table's options are known, after a
//!   start, follows when they are.
//! * The shard never reads, counts or removes what is in the backups: that is the operator's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::names::file_name;
use super::remains::list;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::io::{Disk, DiskError, Environment};
use crate::manifest::FileId;

/// The suffix of a note that is being written.
const TEMPORARY_SUFFIX: &str = ".tmp";
/// More than the number of any file of a shard.
const FREE_NUMBERS: u64 = 1 << 40;

/// The backups of the table whose files lie in this directory.
fn backups_beside(tables: &Path) -> Option<PathBuf> {
    Some(tables.parent()?.parent()?.join("backups").join(tables.file_name()?))
}

/// Links a complete file of a table into its backups, if the table has any.
pub(super) async fn back_up(
    environment: &Environment,
    table: &TableState,
    id: FileId,
) -> Result<(), EngineError> {
    if !table.is_configured.get() {
        table.recovered.borrow_mut().push(id);
        return Ok(());
    }
    let Some(notes) = table.options.borrow().backup_notes.clone() else { return Ok(()) };
    let Some(directory) = backups_beside(table.directory(id.directory)) else { return Ok(()) };
    let disk = &*environment.disk;
    let is_noted = table.noted.borrow().get(&id.directory).is_some_and(|known| Arc::ptr_eq(known, &notes));
    if !is_noted {
        disk.create_directory(&directory).await?;
        for note in notes.iter() {
            let path = directory.join(&note.name);
            let temporary = directory.join([&note.name, TEMPORARY_SUFFIX].concat());
            if list(disk, &directory).await?.iter().any(|entry| directory.join(&entry.name) == temporary) {
                disk.remove(&temporary).await?;
            }
            disk.create(&temporary).await?.write_and_sync_at(0, note.contents.clone()).await?;
            disk.rename(&temporary, &path).await?;
        }
    }
    link(disk, &table.path(id), &directory, id.generation).await?;
    disk.sync_directory(&directory).await?;
    if !is_noted {
        for above in directory.ancestors().skip(1).take(2) {
            disk.sync_directory(above).await?;
        }
        table.noted.borrow_mut().insert(id.directory, notes);
    }
    Ok(())
}

/// Links a file under its number. That may be taken where a crash has cut off a flush, or an older state of the data directory was put
/// back: then it gets one that no file of a shard has.
async fn link(disk: &dyn Disk, path: &Path, directory: &Path, generation: u64) -> Result<(), DiskError> {
    let mut number = generation;
    loop {
        match disk.hard_link(path, &directory.join(file_name(number))).await {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += FREE_NUMBERS,
            linked => return linked,
        }
    }
}

impl Shard {
    /// Links the files that the recovery has made of a table into its backups.
    pub(super) async fn back_up_recovered(&self, table: &TableState) -> Result<(), EngineError> {
        let recovered = table.recovered.take();
        for (done, id) in recovered.iter().enumerate() {
            if let Err(error) = back_up(&self.environment, table, *id).await {
                table.recovered.borrow_mut().extend(&recovered[done..]);
                return Err(error);
            }
        }
        Ok(())
    }
}
