//! The files of a node outside of its shards: the lock of the data directory, the small files, and encryption at rest. The only place
//! outside of the engine that accesses the disk directly.
#![allow(clippy::disallowed_methods, reason = "the files that a start needs before it has a disk to hand on")]

pub mod at_rest;
pub mod small_files;
mod table_scope;

use std::io;
use std::path::Path;

/// Makes a directory with its parents.
pub fn create_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Reserves a data directory for one process: locked until it is dropped or the process ends.
pub struct DirectoryLock {
    _file: std::fs::File,
}

impl DirectoryLock {
    /// Locks a directory. The error has the kind `WouldBlock` if another process has locked it.
    pub fn acquire(directory: &Path) -> io::Result<Self> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("the data directory {} is used by another process", directory.display()),
            )),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}
