//! Snapshots: hard links to the files of a table. Table files never change.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::state::Shard;
use super::table_state::file_name;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::mutation::TableId;

impl Shard {
    /// Flushes the table and links its files into `snapshots/<name>/<table id>` of the directory that they lie in. That of the shard's own
    /// directory is returned. The name must be a plain file name, and this table must not have a snapshot of that name.
    pub async fn snapshot(&self, id: TableId, name: &str) -> Result<PathBuf, EngineError> {
        let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
        if !is_plain {
            return Err(EngineError::SnapshotName(name.to_owned()));
        }
        self.flush(id).await?;
        let table = self.table(id)?;
        let disk = &self.environment.disk;
        let named: Vec<PathBuf> =
            self.directories.roots().iter().map(|root| root.join("snapshots").join(name)).collect();
        for named in &named {
            disk.create_directory(named).await?;
            if disk.list(named).await?.iter().any(|entry| entry.name == id.to_string()) {
                return Err(EngineError::SnapshotExists(name.to_owned()));
            }
        }
        let targets: Vec<PathBuf> = named.iter().map(|named| named.join(id.to_string())).collect();
        for target in &targets {
            disk.create_directory(target).await?;
        }
        // While the lock is held no file of the table can be removed.
        let manifest = self.manifest.lock().await;
        let files: Vec<_> = table.files.borrow().iter().map(Rc::clone).collect();
        for file in &files {
            let Some(target) = targets.get(file.place.directory as usize) else {
                return Err(broken!("a file's directory is one of the shard's").into());
            };
            let link = target.join(file_name(file.place.generation));
            disk.hard_link(&table.path_of(&file.place), &link).await?;
        }
        drop(manifest);
        for target in &targets {
            // Up to the directory itself.
            for directory in target.ancestors().take(4) {
                disk.sync_directory(directory).await?;
            }
        }
        Ok(self.directory.join("snapshots").join(name).join(id.to_string()))
    }

    /// Removes the snapshot of every table that has this name.
    pub async fn clear_snapshot(&self, name: &str) -> Result<(), EngineError> {
        for root in self.directories.roots() {
            self.clear_snapshot_in(&root.join("snapshots"), name).await?;
        }
        Ok(())
    }

    async fn clear_snapshot_in(&self, all: &Path, name: &str) -> Result<(), EngineError> {
        let disk = &self.environment.disk;
        let is_there = match disk.list(all).await {
            Ok(entries) => entries.iter().any(|entry| entry.name == name && entry.is_directory),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if is_there {
            disk.remove_directory(&all.join(name)).await?;
            disk.sync_directory(all).await?;
        }
        Ok(())
    }
}
