//! Truncation: a table loses its rows and stays.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use futures::lock::MutexGuard;

use super::attachment::Attachment;
use super::edit::Edited;
use super::names::file_name;
use super::remains::list;
use super::state::Shard;
use super::table_state::TableState;
use super::write_pressure::Change;
use crate::commit_log::LogPosition;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::manifest::{ManifestEdit, StoredManifest};
use crate::mutation::TableId;

/// The contents of memtables that are removed together with the files.
struct Discarded {
    /// The rows written before this position.
    before: LogPosition,
    /// The number of frozen memtables, which have all of them.
    memtables: usize,
}

impl Shard {
    /// Removes all rows that were written before this call.
    pub async fn truncate(&self, id: TableId) -> Result<(), EngineError> {
        let manifest = self.manifest.lock().await;
        let table = self.table(id)?;
        let before = self.log.end_position();
        self.freeze(&table, before);
        let memtables = table.frozen.borrow().len();
        self.remove_rows(manifest, &table, Some(Discarded { before, memtables })).await
    }

    /// Removes the rows of a table that has a snapshot `name`, and adds to the snapshot what was written after it was taken: nothing is
    /// removed that is in no snapshot. Rows that are written while this runs stay. A table that was empty then gets the snapshot now,
    /// with the attachments.
    pub async fn truncate_into_snapshot(
        &self,
        id: TableId,
        name: &str,
        attachments: &[Attachment],
    ) -> Result<(), EngineError> {
        self.snapshot_rows(id, name, attachments).await?;
        self.flush(id).await?;
        // While the lock is held the files stay what they are.
        let manifest = self.manifest.lock().await;
        let table = self.table(id)?;
        self.add_to_snapshot(&table, name).await?;
        self.remove_rows(manifest, &table, None).await
    }

    /// Links into a snapshot the files that it does not have. None if the table has no files: then it may have no snapshot.
    async fn add_to_snapshot(&self, table: &TableState, name: &str) -> Result<(), EngineError> {
        let disk = &*self.environment.disk;
        let directories: Vec<_> =
            self.snapshot_roots().map(|all| all.join(name).join(table.id.to_string())).collect();
        let mut present = BTreeSet::new();
        for (number, directory) in directories.iter().enumerate() {
            present.extend(list(disk, directory).await?.into_iter().map(|entry| (number, entry.name)));
        }
        let files: Vec<_> = table.files.borrow().iter().map(|file| (file.place, false)).collect();
        let damaged: Vec<_> = table.damaged.borrow().iter().map(|file| (file.place, true)).collect();
        let mut changed = BTreeSet::new();
        for (place, is_damaged) in files.into_iter().chain(damaged) {
            let (number, name) = (place.directory as usize, file_name(place.generation));
            let Some(directory) = directories.get(number) else {
                return Err(broken!("a file's directory is one of the shard's").into());
            };
            if present.contains(&(number, name.clone())) {
                continue;
            }
            match disk.hard_link(&table.path(place.id()), &directory.join(name)).await {
                Err(error) if is_damaged && error.kind() == io::ErrorKind::NotFound => {}
                linked => {
                    linked?;
                    changed.insert(directory);
                }
            }
        }
        for directory in changed {
            disk.sync_directory(directory).await?;
        }
        Ok(())
    }

    /// Removes all files of a table, and what `discarded` names.
    async fn remove_rows(
        &self,
        mut manifest: MutexGuard<'_, StoredManifest>,
        table: &Rc<TableState>,
        discarded: Option<Discarded>,
    ) -> Result<(), EngineError> {
        let mut edit = ManifestEdit::default();
        let Some(entry) = edit.table(&manifest, table.id) else {
            return Err(EngineError::UnknownTable(table.id));
        };
        let memtables = discarded.as_ref().map_or(0, |discarded| discarded.memtables);
        if let Some(discarded) = discarded {
            entry.flushed_to = discarded.before;
        }
        entry.obsolete.extend(entry.files.drain(..).map(|file| file.id()));
        let edited = Edited { table: table.id, released_memtables: memtables };
        self.edit_manifest(&mut manifest, edit, &[edited]).await?;
        // Only the memtables from before the position was taken: writes went on meanwhile.
        self.release_memtables(table, memtables);
        let files = table.files.take();
        let damaged = table.damaged.take();
        self.look_at_backlog(table, Change::Other);
        drop(manifest);
        self.discard_log();
        self.retire_files(files.iter());
        let places = files.iter().map(|file| file.place).chain(damaged.iter().map(|file| file.place));
        self.remove_obsolete_files(table, places.map(|place| place.id())).await;
        Ok(())
    }
}
