//! The interface to the disk.
//!
//! Recovery relies on this contract, which the simulated disk exploits as far as it allows:
//! * written bytes are durable only after `sync_data` of the file has succeeded; before that any subset of the
//!   512-byte sectors may survive a crash, and where un-synced writes overlap, any of them may be the one that survives;
//! * a created, renamed, linked or removed name is durable only after `sync_directory` of its directory;
//! * directory operations that are not yet durable survive a crash as a prefix of the order in which they were made
//!   (journalled file systems do this);
//! * a read may return flipped bits, once or for good: what is read is checked by its reader;
//! * a failed `sync_data` may have lost the dirty data for good: a later success must not be trusted;
//! * a failed write has lost nothing: the same bytes may be written again at the same place, e.g. when a full disk has room again;
//! * what was reserved (`reserve`) does not fail for want of space. On a copy-on-write file system it may fail nevertheless.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use thiserror::Error;

/// A failed disk call: the operation, the file, and the cause.
#[derive(Debug, Clone, Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct DiskError {
    pub operation: &'static str,
    pub path: PathBuf,
    pub source: Arc<io::Error>,
}

impl DiskError {
    pub fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_path_buf(), source: Arc::new(source) }
    }

    /// The kind of the underlying error, e.g. `NotFound` or `StorageFull`.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the call failed because the disk is full or a quota is used up. It may succeed when there is room again.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the medium could not be read or written.
    pub fn is_of_medium(&self) -> bool {
        self.source.raw_os_error().is_some_and(|number| MEDIUM_ERRORS.contains(&number))
    }

    /// Whether the sync of a file failed: dirty data may be lost.
    pub fn is_sync(&self) -> bool {
        self.operation == SYNC
    }
}

/// The system's numbers of errors of the medium, as Linux has them: EIO, ENODATA (a critical error of the medium, from the block layer),
/// EBADMSG and EUCLEAN (a checksum or a structure of the file system is wrong).
const MEDIUM_ERRORS: [i32; 4] = [5, 61, 74, 117];
/// The operation of a failed sync of a file, in [`DiskError`].
pub(super) const SYNC: &str = "sync";
/// The operation of a failed write, in [`DiskError`].
pub(super) const WRITE: &str = "write";
/// The operation of a failed renaming, in [`DiskError`].
pub(super) const RENAME: &str = "rename";

/// The room on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// The size of the file system.
    pub total_bytes: u64,
}

/// The future of a disk call. It runs on the calling thread's executor and need not be `Send`.
pub type DiskFuture<'a, T> = LocalBoxFuture<'a, Result<T, DiskError>>;

/// A complete file that is read in parts, by any thread. It stays readable after its name was removed. Nothing of it is mapped: an
/// error of the medium, or a file that another program has cut short, is an error of this one read.
pub trait CompleteFile: Send + Sync {
    /// Bytes of the file when it was opened.
    fn length(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on, on the calling thread. Error `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Reads `length` bytes from `offset` on. A file of a disk does so without holding up the calling thread.
    fn read_later(self: Arc<Self>, offset: u64, length: usize) -> DiskFuture<'static, Box<[u8]>> {
        let mut bytes = vec![0; length].into_boxed_slice();
        let outcome = self.read_at(offset, &mut bytes).map(|()| bytes);
        Box::pin(std::future::ready(outcome))
    }
}

/// An exclusive lock against other processes, released on drop.
pub trait DiskLock: Send + Sync {}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    pub name: String,
    pub is_directory: bool,
}

/// A file system. Paths are used as given; callers keep to their own directory.
pub trait Disk: Send + Sync {
    /// The same files, through threads of their own where calls have threads: what takes long there holds up nothing here. `name` is shown
    /// with the threads.
    fn beside(&self, name: &str) -> Result<Arc<dyn Disk>, DiskError>;

    /// Creates a directory and its missing ancestors. An existing directory is not an error.
    fn create_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()>;

    /// Creates a new file for writing. Error `AlreadyExists` if the name is taken.
    fn create<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>>;

    /// Opens an existing file for writing, and keeps its contents.
    fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>>;

    /// Makes the names in a directory durable.
    fn sync_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()>;

    /// Renames a file or directory, replacing a file that has the new name.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskFuture<'a, ()>;

    /// Removes the name of a file.
    fn remove<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()>;

    /// Removes a directory and its contents.
    fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()>;

    /// Gives an existing file a second name. Error `AlreadyExists` if the name is taken.
    fn hard_link<'a>(&'a self, existing: &'a Path, new: &'a Path) -> DiskFuture<'a, ()>;

    /// The names in a directory, sorted.
    fn list<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Vec<DirectoryEntry>>;

    /// The length of a file in bytes. Error `NotFound` if there is none.
    fn length<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64>;

    /// The whole contents of a file.
    fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes>;

    /// Opens a complete file, which must never be written again, to read parts of it.
    fn open_complete<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn CompleteFile>>;

    /// Locks `path` (created if missing) against other processes. Error `WouldBlock` if it is taken.
    fn lock<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Box<dyn DiskLock>>;

    /// The room on the file system of `path`, which exists.
    fn room<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, DiskRoom>;

    /// The number of the file system of `path`, which exists. Directories of one number share their room.
    fn file_system<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64>;
}

/// An open file. Offsets and lengths in bytes.
pub trait DiskFile: Send + Sync {
    /// Writes all of `data` at `offset`, growing the file if needed. On an error any part may have been written.
    fn write_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()>;

    /// Makes everything written to this file durable, with the length needed to read it back.
    fn sync_data(&self) -> DiskFuture<'_, ()>;

    /// Takes room on the disk, so that later writes to the first `length` bytes of the file do not fail for want of it. A shorter
    /// file grows to `length`; its new bytes are zero.
    fn reserve(&self, length: u64) -> DiskFuture<'_, ()>;

    /// `write_at`, then `sync_data`, in one request to the I/O thread. The error says which of them failed.
    fn write_and_sync_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()>;
}
