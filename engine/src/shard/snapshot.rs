//! Snapshots: hard links to the files of a table, which never change, and files that the caller adds.
//!
//! Invariants:
//! * `snapshots/<name>/<table id>` of the shard's own directory is a complete, durable snapshot. It is filled under a temporary name,
//!   which the next start removes.
//! * A file of another directory is linked there, below the same names: a link does not leave its file system. Those directories come
//!   before the shard's own and go before it, but while they do the shard's own has its temporary name. The next start removes what has
//!   that name, in all directories, and quarantines what the shard's own directory does not know.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::attachment::Attachment;
use super::names::file_name;
use super::remains::{SNAPSHOT_TEMPORARY_SUFFIX, SNAPSHOTS, list};
use super::state::Shard;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::DirectoryEntry;
use crate::manifest::{ManifestFile, TokenSpan};
use crate::mutation::TableId;

/// A snapshot of one table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotEntry {
    pub name: String,
    pub table: TableId,
    /// The directory of its files.
    pub path: PathBuf,
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

impl Shard {
    /// Flushes the table and links its files into `snapshots/<name>/<table id>` of the directory that they lie in. That of the shard's own
    /// directory is returned; it also has the attachments. The name must be a plain file name, and this table must not have a snapshot of
    /// that name.
    pub async fn snapshot(
        &self,
        id: TableId,
        name: &str,
        attachments: &[Attachment],
    ) -> Result<PathBuf, EngineError> {
        self.check_snapshot(id, name).await?;
        // A snapshot without some of the rows would be taken for a whole one.
        self.table(id)?.check_spans(TokenSpan { first: i64::MIN, last: i64::MAX })?;
        self.flush(id).await?;
        self.link_files(id, name, attachments).await
    }

    /// As [`Shard::snapshot`], with damaged files as they are. An empty table gets no snapshot, and the result is `None`. A snapshot of that name that
    /// exists already is kept, and its path is the result: after a crash the same snapshot can be asked for again.
    pub async fn snapshot_rows(
        &self,
        id: TableId,
        name: &str,
        attachments: &[Attachment],
    ) -> Result<Option<PathBuf>, EngineError> {
        match self.check_snapshot(id, name).await {
            Ok(()) => {}
            Err(EngineError::SnapshotExists(_)) => return Ok(Some(self.snapshot_path(id, name))),
            Err(error) => return Err(error),
        }
        self.flush(id).await?;
        if self.table(id)?.files.borrow().is_empty() && !self.table(id)?.has_damage() {
            return Ok(None);
        }
        self.link_files(id, name, attachments).await.map(Some)
    }

    fn snapshots(&self) -> PathBuf {
        self.directory.join(SNAPSHOTS)
    }

    /// The directories of all snapshots, that of the shard's own directory first.
    pub(super) fn snapshot_roots(&self) -> impl DoubleEndedIterator<Item = PathBuf> {
        self.directories.roots().iter().map(|root| root.join(SNAPSHOTS))
    }

    fn snapshot_path(&self, id: TableId, name: &str) -> PathBuf {
        self.snapshots().join(name).join(id.to_string())
    }

    async fn check_snapshot(&self, id: TableId, name: &str) -> Result<(), EngineError> {
        if !is_plain(name) {
            return Err(EngineError::SnapshotName(name.to_owned()));
        }
        let present = list(&*self.environment.disk, &self.snapshots().join(name)).await?;
        if present.iter().any(|entry| entry.name == id.to_string()) {
            return Err(EngineError::SnapshotExists(name.to_owned()));
        }
        Ok(())
    }

    async fn link_files(
        &self,
        id: TableId,
        name: &str,
        attachments: &[Attachment],
    ) -> Result<PathBuf, EngineError> {
        let table = self.table(id)?;
        let disk = &self.environment.disk;
        let named: Vec<PathBuf> = self.snapshot_roots().map(|all| all.join(name)).collect();
        let temporary: Vec<PathBuf> = named.iter().map(|named| named.join(temporary_name(id))).collect();
        for (number, (named, temporary)) in named.iter().zip(&temporary).enumerate() {
            self.remove_incomplete(named, id).await?;
            if number > 0 {
                // The files of an attempt that failed before the last step.
                self.remove_from(named, id.to_string()).await?;
            }
            disk.create_directory(temporary).await?;
        }
        for attachment in attachments {
            let path = self.snapshots().join(name).join(temporary_name(id)).join(&attachment.name);
            let file = disk.create(&path).await?;
            file.write_and_sync_at(0, attachment.contents.clone()).await?;
        }
        // While the lock is held no file of the table can be removed.
        let manifest = self.manifest.lock().await;
        let files: Vec<ManifestFile> = table.files.borrow().iter().map(|file| file.place).collect();
        let damaged: Vec<ManifestFile> = table.damaged.borrow().iter().map(|file| file.place).collect();
        for place in files.iter().chain(&damaged) {
            let Some(temporary) = temporary.get(place.directory as usize) else {
                return Err(broken!("a file's directory is one of the shard's").into());
            };
            let (path, link) = (table.path(place.id()), temporary.join(file_name(place.generation)));
            match disk.hard_link(&path, &link).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound && damaged.contains(place) => {
                    tracing::warn!(path = %path.display(), name, "a missing file is not in the snapshot");
                }
                linked => linked?,
            }
        }
        drop(manifest);
        if let ([own, _, ..], Some(temporary)) = (named.as_slice(), temporary.first()) {
            // Its temporary name is there before another part has its last one: see the invariants.
            for directory in std::iter::once(temporary.as_path()).chain(own.ancestors().take(3)) {
                disk.sync_directory(directory).await?;
            }
        }
        for (named, temporary) in named.iter().zip(&temporary).rev() {
            disk.sync_directory(temporary).await?;
            disk.rename(temporary, &named.join(id.to_string())).await?;
            // Up to the directory of the shard.
            for directory in named.ancestors().take(3) {
                disk.sync_directory(directory).await?;
            }
        }
        Ok(self.snapshot_path(id, name))
    }

    /// All snapshots, by name and table.
    pub async fn list_snapshots(&self) -> Result<Vec<SnapshotEntry>, EngineError> {
        let disk = &*self.environment.disk;
        let all = self.snapshots();
        let mut found = Vec::new();
        for named in list(disk, &all).await?.into_iter().filter(|named| named.is_directory) {
            let path = all.join(&named.name);
            for entry in list(disk, &path).await?.into_iter().filter(|entry| entry.is_directory) {
                if let Some(table) = TableId::parse(&entry.name) {
                    found.push(SnapshotEntry {
                        name: named.name.clone(),
                        table,
                        path: path.join(&entry.name),
                    });
                }
            }
        }
        Ok(found)
    }

    /// The directories of a snapshot's files, that of the shard's own directory first. Some may not be there.
    pub fn snapshot_directories(&self, entry: &SnapshotEntry) -> Vec<PathBuf> {
        self.snapshot_roots().map(|all| all.join(&entry.name).join(entry.table.to_string())).collect()
    }

    /// The bytes of a snapshot's files. Its table may still use some of them.
    pub async fn snapshot_bytes(&self, entry: &SnapshotEntry) -> Result<u64, EngineError> {
        let disk = &*self.environment.disk;
        let mut bytes = 0;
        for path in self.snapshot_directories(entry) {
            for file in list(disk, &path).await?.into_iter().filter(|file| !file.is_directory) {
                bytes += disk.length(&path.join(&file.name)).await?;
            }
        }
        Ok(bytes)
    }

    /// Reads an attachment of a snapshot; `None` if it has no file of that name.
    pub async fn snapshot_attachment(
        &self,
        entry: &SnapshotEntry,
        name: &str,
    ) -> Result<Option<Bytes>, EngineError> {
        let disk = &*self.environment.disk;
        if list(disk, &entry.path).await?.iter().any(|file| file.name == name) {
            return Ok(Some(disk.read(&entry.path.join(name)).await?));
        }
        Ok(None)
    }

    /// Removes the snapshot of every table that has this name.
    pub async fn clear_snapshot(&self, name: &str) -> Result<(), EngineError> {
        let disk = &self.environment.disk;
        let is_there = |entry: &DirectoryEntry| entry.name == name && entry.is_directory;
        let mut present = Vec::new();
        for all in self.snapshot_roots() {
            if !list(&**disk, &all).await?.iter().any(is_there) {
                continue;
            }
            let named = all.join(name);
            for entry in list(&**disk, &named).await? {
                if let Some(table) = TableId::parse(&entry.name) {
                    self.make_incomplete(&named, table).await?;
                }
            }
            present.push((all, named));
        }
        // The shard's own directory last: it says that the others are to go.
        for (all, named) in present.iter().rev() {
            disk.remove_directory(named).await?;
            disk.sync_directory(all).await?;
        }
        Ok(())
    }

    /// Removes the snapshot of one table. The directory of the name stays, if only until the next start.
    pub async fn clear_table_snapshot(&self, entry: &SnapshotEntry) -> Result<(), EngineError> {
        let disk = &self.environment.disk;
        let mut present = Vec::new();
        for named in self.snapshot_roots().map(|all| all.join(&entry.name)) {
            if list(&**disk, &named).await?.iter().any(|found| found.name == entry.table.to_string()) {
                let temporary = self.make_incomplete(&named, entry.table).await?;
                present.push((named, temporary));
            }
        }
        for (named, temporary) in present.iter().rev() {
            disk.remove_directory(temporary).await?;
            disk.sync_directory(named).await?;
        }
        Ok(())
    }

    /// Gives a snapshot the name of an incomplete one: a crash while it is removed must not leave a part of it as a whole.
    async fn make_incomplete(&self, named: &Path, table: TableId) -> Result<PathBuf, EngineError> {
        let disk = &self.environment.disk;
        let temporary = named.join(temporary_name(table));
        self.remove_incomplete(named, table).await?;
        disk.rename(&named.join(table.to_string()), &temporary).await?;
        disk.sync_directory(named).await?;
        Ok(temporary)
    }

    /// Removes what an attempt that failed has left.
    async fn remove_incomplete(&self, named: &Path, table: TableId) -> Result<(), EngineError> {
        self.remove_from(named, temporary_name(table)).await
    }

    async fn remove_from(&self, named: &Path, name: String) -> Result<(), EngineError> {
        let disk = &self.environment.disk;
        if list(&**disk, named).await?.iter().any(|entry| entry.name == name) {
            disk.remove_directory(&named.join(name)).await?;
        }
        Ok(())
    }
}

fn temporary_name(table: TableId) -> String {
    format!("{table}{SNAPSHOT_TEMPORARY_SUFFIX}")
}
