//! Snapshots: hard links to the files of a table. Table files never change.

use std::path::PathBuf;
use std::rc::Rc;

use super::state::Shard;
use super::table_state::file_name;
use crate::error::EngineError;
use crate::mutation::TableId;

impl Shard {
    /// Flushes the table and links its files into `snapshots/<name>/<table id>` of the shard's directory, which
    /// is returned. The name must be a plain file name, and this table must not have a snapshot of that name.
    pub async fn snapshot(&self, id: TableId, name: &str) -> Result<PathBuf, EngineError> {
        let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
        if !is_plain {
            return Err(EngineError::SnapshotName(name.to_owned()));
        }
        self.flush(id).await?;
        let table = self.table(id)?;
        let disk = &self.environment.disk;
        let all = self.directory.join("snapshots");
        let named = all.join(name);
        let target = named.join(id.to_string());
        disk.create_directory(&named).await?;
        if disk.list(&named).await?.iter().any(|entry| entry.name == id.to_string()) {
            return Err(EngineError::SnapshotExists(name.to_owned()));
        }
        disk.create_directory(&target).await?;
        // While the lock is held no file of the table can be removed.
        let manifest = self.manifest.lock().await;
        let files: Vec<_> = table.files.borrow().iter().map(Rc::clone).collect();
        for file in &files {
            let link = target.join(file_name(file.place.generation));
            disk.hard_link(&table.path(file.place.generation), &link).await?;
        }
        drop(manifest);
        for directory in [&target, &named, &all, &self.directory] {
            disk.sync_directory(directory).await?;
        }
        Ok(target)
    }

    /// Removes the snapshot of every table that has this name.
    pub async fn clear_snapshot(&self, name: &str) -> Result<(), EngineError> {
        let all = self.directory.join("snapshots");
        let disk = &self.environment.disk;
        let is_there = match disk.list(&all).await {
            Ok(entries) => entries.iter().any(|entry| entry.name == name && entry.is_directory),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if is_there {
            disk.remove_directory(&all.join(name)).await?;
            disk.sync_directory(&all).await?;
        }
        Ok(())
    }
}
