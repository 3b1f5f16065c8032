//! The directory of a shard before it is opened: whether there is a shard, and making a new one.
//!
//! Invariant: a directory gets a new, empty manifest only if it has nothing of a shard. A manifest is written first of all, so a shard
//! that was ever opened has one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::remains::list;
use super::state::Shard;
use crate::error::EngineError;
use crate::io::{Disk, DiskError};
use crate::manifest::{Manifest, ManifestError, ManifestFiles};

/// The contents of a directory, as far as they belong to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardDirectory {
    /// Nothing: it does not exist, or holds only what an interrupted creation has left.
    Nothing,
    /// A shard that was made and never opened.
    Unused,
    /// A shard.
    Shard,
    /// Files of a shard, but neither copy of its manifest.
    WithoutManifest,
}

impl Shard {
    /// Looks at a directory, without changing it.
    pub async fn look_at(disk: &Arc<dyn Disk>, directory: &Path) -> Result<ShardDirectory, DiskError> {
        let is_used = holds_data(&**disk, directory).await?;
        Ok(match (ManifestFiles::exists(&**disk, directory).await?, is_used) {
            (false, false) => ShardDirectory::Nothing,
            (false, true) => ShardDirectory::WithoutManifest,
            (true, false) => ShardDirectory::Unused,
            (true, true) => ShardDirectory::Shard,
        })
    }

    /// Makes a new, empty shard in a directory, durably; nothing happens if there is a shard. A directory that holds files of a shard
    /// without a manifest is refused.
    pub async fn create(disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), EngineError> {
        make_directories(disk, directory).await?;
        // Another process must not make a second manifest meanwhile.
        let _lock = disk.lock(&directory.join("lock")).await?;
        match Self::look_at(disk, directory).await? {
            ShardDirectory::Nothing => {}
            ShardDirectory::Unused | ShardDirectory::Shard => return Ok(()),
            ShardDirectory::WithoutManifest => {
                return Err(ManifestError::Missing { path: ManifestFiles::path(directory) }.into());
            }
        }
        let manifest = Manifest { sequence: 1, ..Manifest::new() };
        let written = ManifestFiles::new(directory).write(&**disk, &manifest).await;
        written.map_err(|error| ManifestError::Disk(error.into_disk_error()))?;
        Ok(())
    }
}

/// Makes the directories of a shard, durably.
pub(super) async fn make_directories(disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), DiskError> {
    disk.create_directory(&directory.join("tables")).await?;
    disk.sync_directory(directory).await?;
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => disk.sync_directory(parent).await,
        _ => Ok(()),
    }
}

/// Whether a directory exists and is not empty.
pub(super) async fn has_entries(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    Ok(!list(disk, path).await?.is_empty())
}

/// Whether a directory holds anything that a shard writes after its first manifest.
async fn holds_data(disk: &dyn Disk, directory: &Path) -> Result<bool, DiskError> {
    for part in ["tables", "snapshots", "quarantine"] {
        if has_entries(disk, &directory.join(part)).await? {
            return Ok(true);
        }
    }
    if ManifestFiles::has_changes(disk, directory).await? {
        return Ok(true);
    }
    let log = directory.join("commit-log");
    for file in list(disk, &log).await? {
        // A segment that was prepared and never used consists of zeros.
        let path: PathBuf = log.join(&file.name);
        if file.is_directory || disk.read(&path).await?.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}
