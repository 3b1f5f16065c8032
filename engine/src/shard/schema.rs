//! Creating, altering, dropping and truncating tables. All operations are durable when they return, and idempotent.

use std::rc::Rc;

use super::files::{discard_file, discard_table_directories};
use super::options::TableOptions;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::manifest::ManifestTable;
use crate::mutation::TableId;

impl Shard {
    /// Creates a table, or changes the options of an existing one. Call it for every table after each start: a shard remembers its
    /// tables, but not their options.
    pub async fn create_table(&self, id: TableId, options: TableOptions) -> Result<(), EngineError> {
        self.create_tables(&[(id, options)]).await
    }

    /// As [`Shard::create_table`] for many tables with one write of the manifest.
    pub async fn create_tables(&self, tables: &[(TableId, TableOptions)]) -> Result<(), EngineError> {
        let mut manifest = self.manifest.lock().await;
        self.check_open()?;
        let mut changed = manifest.clone();
        let mut created = Vec::new();
        for (id, options) in tables {
            if changed.table(*id).is_some() {
                continue;
            }
            let table = TableState::new(&self.directories, *id, options.clone(), true);
            for directory in &table.directories {
                self.environment.disk.create_directory(directory).await?;
            }
            created.push(table);
            // Older records of this id belong to an earlier table that was dropped.
            let flushed_to = self.log.end_position();
            changed.tables.push(ManifestTable { id: *id, flushed_to, files: Vec::new() });
        }
        if !created.is_empty() {
            for root in self.directories.roots() {
                self.environment.disk.sync_directory(&root.join("tables")).await?;
            }
            self.replace_manifest(&mut manifest, changed).await?;
            let mut present = self.tables.borrow_mut();
            for table in created {
                present.insert(table.id, Rc::new(table));
            }
        }
        drop(manifest);
        for (id, options) in tables {
            self.table(*id)?.configure(options.clone());
        }
        self.signals.compaction_wanted.notify_one();
        Ok(())
    }

    /// Changes the options of a table.
    pub fn alter_table(&self, id: TableId, options: TableOptions) -> Result<(), EngineError> {
        self.table(id)?.configure(options);
        self.signals.compaction_wanted.notify_one();
        Ok(())
    }

    /// Drops a table and its data. A table that does not exist is not an error.
    pub async fn drop_table(&self, id: TableId) -> Result<(), EngineError> {
        let mut manifest = self.manifest.lock().await;
        if manifest.table(id).is_none() {
            return Ok(());
        }
        let mut changed = manifest.clone();
        changed.tables.retain(|table| table.id != id);
        self.replace_manifest(&mut manifest, changed).await?;
        let dropped = self.tables.borrow_mut().remove(&id);
        if let Some(table) = dropped {
            self.release_memtables(&table, usize::MAX);
            self.retire_files(table.files.take().iter());
        }
        self.discard_log();
        discard_table_directories(&self.environment, &self.directories, id).await;
        Ok(())
    }

    /// Removes all rows that were written before this call.
    pub async fn truncate(&self, id: TableId) -> Result<(), EngineError> {
        let mut manifest = self.manifest.lock().await;
        let table = self.table(id)?;
        let flushed_to = self.log.end_position();
        table.freeze(flushed_to);
        let memtables = table.frozen.borrow().len();
        let mut changed = manifest.clone();
        let Some(entry) = changed.table(id) else { return Err(EngineError::UnknownTable(id)) };
        entry.flushed_to = flushed_to;
        entry.files.clear();
        self.replace_manifest(&mut manifest, changed).await?;
        // Only the memtables from before the position was taken: writes went on meanwhile.
        self.release_memtables(&table, memtables);
        let files = table.files.take();
        drop(manifest);
        self.discard_log();
        self.retire_files(files.iter());
        for file in files {
            discard_file(&self.environment, &table.path_of(&file.place)).await;
        }
        Ok(())
    }
}
