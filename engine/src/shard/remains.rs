//! What a start finds in a shard's directory beside the files in use, and what becomes of it.
//!
//! Invariants:
//! * Only what is known to be useless is removed: temporary files, files that the manifest lists as obsolete, directories of tables
//!   that it lists as dropped, empty directories.
//! * Everything else that the manifest does not name is moved to the quarantine. If that fails, the start fails.
//! * Nothing is removed or moved before the shard has been recovered: a start that refuses has changed nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::directories::Directories;
use super::files::was_removed;
use super::names::Name;
use super::quarantine::Quarantine;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::{DirectoryEntry, Disk, DiskError};
use crate::manifest::{FileId, Manifest, ManifestTable};
use crate::mutation::TableId;

/// The directory of all snapshots, below the directory of a shard.
pub(super) const SNAPSHOTS: &str = "snapshots";
/// The suffix of a snapshot's directory that is being filled.
pub(super) const SNAPSHOT_TEMPORARY_SUFFIX: &str = ".tmp";

/// The findings of a start.
#[derive(Debug, Default)]
pub(super) struct Remains {
    useless_files: Vec<PathBuf>,
    useless_directories: Vec<PathBuf>,
    /// With the number of the directory that they lie in.
    unknown: Vec<(usize, PathBuf)>,
    /// Tables with files of indexes.
    pub indexed: BTreeSet<TableId>,
    /// The highest generation of any file, known or not.
    pub highest_generation: u64,
}

impl Remains {
    /// Looks through the directories of a shard. Changes nothing.
    pub async fn find(
        disk: &dyn Disk,
        directories: &Directories,
        manifest: &Manifest,
    ) -> Result<Self, DiskError> {
        let mut remains = Self::default();
        for (number, root) in directories.roots().iter().enumerate() {
            remains.find_tables(disk, number, &root.join("tables"), manifest).await?;
        }
        remains.find_snapshots(disk, directories).await?;
        Ok(remains)
    }

    async fn find_tables(
        &mut self,
        disk: &dyn Disk,
        number: usize,
        root: &Path,
        manifest: &Manifest,
    ) -> Result<(), DiskError> {
        for entry in list(disk, root).await? {
            let path = root.join(&entry.name);
            let id = TableId::parse(&entry.name);
            let table = id.and_then(|id| manifest.tables.get(&id));
            let is_dropped = id.is_some_and(|id| manifest.dropped.contains(&id));
            if !entry.is_directory {
                self.unknown.push((number, path));
            } else if let (Some(id), Some(table)) = (id, table) {
                let entries = list(disk, &path).await?;
                self.sort_files(id, table, number, &path, &entries);
            } else if is_dropped || list(disk, &path).await?.is_empty() {
                self.useless_directories.push(path);
            } else {
                self.unknown.push((number, path));
            }
        }
        Ok(())
    }

    fn sort_files(
        &mut self,
        id: TableId,
        table: &ManifestTable,
        number: usize,
        directory: &Path,
        entries: &[DirectoryEntry],
    ) {
        let names: Vec<Option<Name>> =
            entries.iter().map(|entry| Name::parse(&entry.name).filter(|_| !entry.is_directory)).collect();
        for (entry, name) in entries.iter().zip(&names) {
            self.highest_generation = self.highest_generation.max(name.map_or(0, Name::generation));
            let is_useless = match name {
                Some(Name::File(generation)) => {
                    let id = FileId { generation: *generation, directory: number as u32 };
                    if table.files.iter().any(|file| file.id() == id) {
                        continue;
                    }
                    table.obsolete.contains(&id) || names.contains(&Some(Name::Temporary(*generation)))
                }
                // Derived from the file in use, and looked through when the indexes of the table are known.
                Some(Name::Index { generation, .. })
                    if table
                        .files
                        .iter()
                        .any(|file| file.generation == *generation && file.directory as usize == number) =>
                {
                    self.indexed.insert(id);
                    continue;
                }
                Some(Name::Temporary(_) | Name::Index { .. } | Name::TemporaryIndex(_)) => true,
                None => false,
            };
            let path = directory.join(&entry.name);
            if is_useless {
                self.useless_files.push(path);
            } else {
                self.unknown.push((number, path));
            }
        }
        // The temporary name marks the other one, so it stands behind it.
        self.useless_files.sort();
    }

    /// Finds snapshots that a crash has interrupted. The part of a snapshot in the shard's own directory is completed and removed
    /// last, and has its temporary name until then. A part in another directory without one in the shard's own is not removed:
    /// the own part may be what was lost.
    async fn find_snapshots(&mut self, disk: &dyn Disk, directories: &Directories) -> Result<(), DiskError> {
        let mut known = BTreeSet::new();
        let mut cut_off = BTreeSet::new();
        for (number, root) in directories.roots().iter().enumerate() {
            let all = root.join(SNAPSHOTS);
            for named in list(disk, &all).await?.into_iter().filter(|named| named.is_directory) {
                let path = all.join(&named.name);
                let entries = list(disk, &path).await?;
                if entries.is_empty() {
                    self.useless_directories.push(path);
                    continue;
                }
                for entry in entries {
                    if !entry.is_directory {
                        continue;
                    }
                    let part = path.join(&entry.name);
                    let (table, is_temporary) = match entry.name.strip_suffix(SNAPSHOT_TEMPORARY_SUFFIX) {
                        Some(table) => (table.to_owned(), true),
                        None => (entry.name, false),
                    };
                    let snapshot = (named.name.clone(), table);
                    if is_temporary || cut_off.contains(&snapshot) {
                        self.useless_directories.push(part);
                        if number == 0 {
                            cut_off.insert(snapshot);
                        }
                    } else if number == 0 {
                        known.insert(snapshot);
                    } else if !known.contains(&snapshot) {
                        self.unknown.push((number, part));
                    }
                }
            }
        }
        Ok(())
    }

    /// Unknown files and directories.
    pub fn unknown_paths(&self) -> impl Iterator<Item = &Path> {
        self.unknown.iter().map(|(_, path)| path.as_path())
    }

    /// Moves what is unknown to the quarantine of its directory and removes what is useless, durably. Returns what could not be removed.
    /// `now_millis`: since the epoch.
    pub async fn clear(
        self,
        disk: &dyn Disk,
        quarantines: &[Quarantine],
        now_millis: i64,
    ) -> Result<BTreeSet<PathBuf>, EngineError> {
        for (number, path) in &self.unknown {
            let Some(quarantine) = quarantines.get(*number) else {
                return Err(broken!("a path was found in one of the shard's directories").into());
            };
            quarantine.take(disk, path, now_millis, "the manifest does not know it").await?;
        }
        let mut kept = BTreeSet::new();
        let mut changed = BTreeSet::new();
        for path in self.useless_files {
            if kept.contains(&path.with_extension("")) {
                // The temporary name of a file that could not be removed: the next start must find both.
                continue;
            }
            let is_gone = was_removed(disk.remove(&path).await, &path);
            changed.extend(path.parent().map(Path::to_path_buf));
            if !is_gone {
                kept.insert(path);
            }
        }
        for path in self.useless_directories {
            let is_gone = was_removed(disk.remove_directory(&path).await, &path);
            changed.extend(path.parent().map(Path::to_path_buf));
            if !is_gone {
                kept.insert(path);
            }
        }
        for directory in changed {
            disk.sync_directory(&directory).await?;
        }
        Ok(kept)
    }
}

/// The names in a directory; none if it does not exist.
pub(super) async fn list(disk: &dyn Disk, path: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
    match disk.list(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}
