//! The quarantine: what a shard finds and does not know is moved there. Nothing in it is ever removed by the program.
//!
//! A path below the base is kept: `<base>/shard-0/tables/x` becomes `<quarantine>/<time>/shard-0/tables/x`, with the time of the start
//! in milliseconds. Nothing is overwritten: where the name is taken, a number follows the time.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::EngineError;
use crate::io::{Disk, DiskError};

/// Where the quarantine is. It must be on the file system of the shard.
#[derive(Debug, Clone)]
pub struct Quarantine {
    /// Made when it is first needed.
    pub directory: PathBuf,
    /// Contains the shard. Paths in the quarantine are relative to it.
    pub base: PathBuf,
}

impl Quarantine {
    /// The quarantine of a shard without a node: below its own directory.
    pub fn within(shard: &Path) -> Self {
        Self { directory: shard.join("quarantine"), base: shard.to_path_buf() }
    }

    /// Moves a file or directory here, durably. `now_millis`: since the epoch. `reason` is for the log.
    pub(super) async fn take(
        &self,
        disk: &dyn Disk,
        path: &Path,
        now_millis: i64,
        reason: &'static str,
    ) -> Result<PathBuf, EngineError> {
        let failed =
            |source| EngineError::Quarantine { path: path.to_path_buf(), to: self.directory.clone(), source };
        let moved = self.move_here(disk, path, now_millis).await.map_err(failed)?;
        tracing::warn!(path = %path.display(), moved_to = %moved.display(), reason, "quarantined");
        Ok(moved)
    }

    /// Links a file here, durably; it stays where it is too. Nothing happens if there is no file. `now_millis`: since the epoch. `reason`
    /// is for the log.
    pub(super) async fn keep(
        &self,
        disk: &dyn Disk,
        path: &Path,
        now_millis: i64,
        reason: &'static str,
    ) -> Result<(), EngineError> {
        match self.link_here(disk, path, now_millis).await {
            Ok(kept) => {
                tracing::warn!(path = %path.display(), linked_to = %kept.display(), reason, "quarantined");
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => {
                Err(EngineError::Quarantine { path: path.to_path_buf(), to: self.directory.clone(), source })
            }
        }
    }

    async fn move_here(&self, disk: &dyn Disk, path: &Path, now_millis: i64) -> Result<PathBuf, DiskError> {
        let target = self.free_target(disk, path, now_millis).await?;
        self.make_parents(disk, &target).await?;
        disk.rename(path, &target).await?;
        self.sync_parents(disk, &target).await?;
        if let Some(source) = path.parent() {
            disk.sync_directory(source).await?;
        }
        Ok(target)
    }

    async fn link_here(&self, disk: &dyn Disk, path: &Path, now_millis: i64) -> Result<PathBuf, DiskError> {
        let target = self.free_target(disk, path, now_millis).await?;
        self.make_parents(disk, &target).await?;
        disk.hard_link(path, &target).await?;
        self.sync_parents(disk, &target).await?;
        Ok(target)
    }

    async fn make_parents(&self, disk: &dyn Disk, target: &Path) -> Result<(), DiskError> {
        match target.parent() {
            Some(parent) => disk.create_directory(parent).await,
            None => Ok(()),
        }
    }

    /// Makes a name durable, from the top: a name is only found if the names above it are.
    async fn sync_parents(&self, disk: &dyn Disk, target: &Path) -> Result<(), DiskError> {
        let is_inside = |parent: &&Path| parent.starts_with(&self.directory);
        let parents: Vec<&Path> = target.ancestors().skip(1).take_while(is_inside).collect();
        if let Some(above) = self.directory.parent().filter(|above| !above.as_os_str().is_empty()) {
            disk.sync_directory(above).await?;
        }
        for parent in parents.iter().rev() {
            disk.sync_directory(parent).await?;
        }
        Ok(())
    }

    /// A path in the quarantine that does not exist.
    async fn free_target(&self, disk: &dyn Disk, path: &Path, now_millis: i64) -> Result<PathBuf, DiskError> {
        let kept = path.strip_prefix(&self.base).unwrap_or(path);
        let mut number = 1_u32;
        loop {
            let start = if number == 1 { now_millis.to_string() } else { format!("{now_millis}-{number}") };
            let target = self.directory.join(start).join(kept);
            if !is_there(disk, &target).await? {
                return Ok(target);
            }
            number += 1;
        }
    }
}

/// Whether a file or directory exists.
async fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(true) };
    match disk.list(parent).await {
        Ok(entries) => Ok(entries.iter().any(|entry| name == entry.name.as_str())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
