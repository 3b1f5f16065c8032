//! Creating, altering and dropping tables. All operations are durable when they return, and idempotent.

use std::io;
use std::rc::Rc;

use super::files::discard_table_directories;
use super::leftovers::{DirectoryState, DroppedTable};
use super::options::TableOptions;
use super::state::Shard;
use super::table_state::TableState;
use super::write_pressure::Change;
use crate::error::EngineError;
use crate::manifest::{Manifest, ManifestEdit, ManifestTable};
use crate::mutation::TableId;

/// A table that is being dropped. It comes back if the drop fails, or is given up.
struct Withheld<'s> {
    shard: &'s Shard,
    table: Option<Rc<TableState>>,
}

impl Withheld<'_> {
    /// The drop has taken effect.
    fn take(mut self) -> Option<Rc<TableState>> {
        self.table.take()
    }
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            let shard = self.shard;
            // A look meanwhile has not found it.
            shard.candidates.add(table.id);
            shard.tables.borrow_mut().insert(table.id, table);
            shard.signals.want_compaction();
            shard.signals.flush_wanted.notify_one();
        }
    }
}

impl Shard {
    /// Creates a table, or changes the options of an existing one. Call it for every table after each start: a shard remembers its
    /// tables, but not their options.
    pub async fn create_table(&self, id: TableId, options: TableOptions) -> Result<(), EngineError> {
        self.create_tables(&[(id, options)]).await
    }

    /// As [`Shard::create_table`] for many tables with one edit of the manifest.
    pub async fn create_tables(&self, tables: &[(TableId, TableOptions)]) -> Result<(), EngineError> {
        let mut manifest = self.manifest.lock().await;
        self.check_open()?;
        let mut edit = ManifestEdit::default();
        let mut created = Vec::new();
        for (id, options) in tables {
            if edit.has_table(&manifest, *id) {
                continue;
            }
            let table =
                TableState::new(&self.directories, self.block_cache.resident(), *id, options.clone(), true);
            self.forget_dropped_table(&manifest, &mut edit, &table).await?;
            for directory in &table.directories {
                self.environment.disk.create_directory(directory).await?;
            }
            // Older records of this id belong to an earlier table that was dropped.
            let flushed_to = self.log.end_position();
            table.logged_since.set(Some(flushed_to));
            created.push(table);
            edit.add_table(*id, ManifestTable::new(flushed_to));
        }
        if !created.is_empty() {
            self.directories.sync(&self.environment.disk).await?;
            self.leftovers.note_directories_synced();
            self.edit_manifest(&mut manifest, edit, &[]).await?;
            let mut present = self.tables.borrow_mut();
            for table in created {
                self.leftovers.forget_dropped(table.id);
                present.insert(table.id, Rc::new(table));
            }
        }
        drop(manifest);
        let mut has_files = false;
        for (id, options) in tables {
            let table = self.table(*id)?;
            table.configure(options.clone());
            self.adopt_indexes(&table);
            has_files |= !table.files.borrow().is_empty();
            self.look_at_backlog(&table, Change::Other);
            self.place_recovered_backups(&table).await;
        }
        if has_files {
            self.signals.want_compaction();
        }
        Ok(())
    }

    /// Removes what an earlier table with this id has left, so that its files are not taken for the new table's.
    async fn forget_dropped_table(
        &self,
        manifest: &Manifest,
        edit: &mut ManifestEdit,
        table: &TableState,
    ) -> Result<(), EngineError> {
        if !manifest.dropped.contains(&table.id) {
            return Ok(());
        }
        for directory in &table.directories {
            match self.environment.disk.remove_directory(directory).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        edit.forget_dropped(table.id);
        Ok(())
    }

    /// Changes the options of a table.
    pub fn alter_table(&self, id: TableId, options: TableOptions) -> Result<(), EngineError> {
        let table = self.table(id)?;
        table.configure(options);
        self.adopt_indexes(&table);
        self.look_at_backlog(&table, Change::Other);
        self.signals.want_compaction();
        Ok(())
    }

    /// Sets the time before which all replicas are known to have the table's tombstones, in seconds since the epoch. Compaction keeps younger ones
    /// if the table's `tombstone_gc` is [`super::TombstoneGc::KnownEverywhere`]. The shard does not store it: after a start it is 0.
    pub fn set_known_everywhere(&self, id: TableId, before_seconds: u32) -> Result<(), EngineError> {
        let table = self.table(id)?;
        if table.known_everywhere_seconds.replace(before_seconds) != before_seconds {
            self.look_at_backlog(&table, Change::Other);
            self.signals.want_compaction();
        }
        Ok(())
    }

    /// Drops a table and its data. A table that does not exist is not an error. Reads and writes do not find the table from the first
    /// poll on, unless the drop fails.
    pub async fn drop_table(&self, id: TableId) -> Result<(), EngineError> {
        let mut manifest = self.manifest.lock().await;
        let Some(flushed_to) = manifest.tables.get(&id).map(|table| table.flushed_to) else { return Ok(()) };
        let mut edit = ManifestEdit::default();
        edit.drop_table(id);
        let withheld = Withheld { shard: self, table: self.tables.borrow_mut().remove(&id) };
        self.edit_manifest(&mut manifest, edit, &[]).await?;
        let mut is_logged = true;
        if let Some(table) = withheld.take() {
            is_logged = table.logged_since.get() != Some(flushed_to) || !table.has_empty_memtables();
            self.release_memtables(&table, usize::MAX);
            self.retire_files(table.files.take().iter());
        }
        self.sum_up_backlogs();
        self.signals.indexes_built.notify_waiters();
        self.discard_log();
        self.leftovers.forget_files(id);
        let is_removed = discard_table_directories(&self.environment, &self.directories, id).await;
        self.leftovers.note_dropped(
            id,
            DroppedTable {
                logged_below: if is_logged { self.log.end_position().segment + 1 } else { 0 },
                directory: if is_removed { DirectoryState::Removed } else { DirectoryState::Present },
            },
        );
        Ok(())
    }
}
