//! The node's own small files: configuration, identity, catalog. The only place outside the engine that touches the disk
//! directly.

use std::io::{self, Write};
use std::path::Path;

/// Reads a text file.
pub fn read_text(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// Reads a file; `None` when there is none.
pub fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a directory with its parents.
pub fn create_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Replaces a file as a whole: after a crash it is the old or the new one. Written beside it, synced, renamed, and the
/// directory synced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    match path.parent() {
        Some(directory) => std::fs::File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Keeps a data directory to one process: locked until it is dropped or the process ends.
pub struct DirectoryLock {
    _file: std::fs::File,
}

impl DirectoryLock {
    /// Locks a directory; an error of kind `WouldBlock` when another process has it.
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
