//! The operating system's file system. Only this file accesses it.
//!
//! [`DirectDisk`] performs each call on the calling thread; background threads use it. [`ThreadedDisk`] is for the
//! shard's thread: it hands each call to an I/O thread of its own, in order, and completes the caller's future from
//! there, so that a slow `fdatasync` never holds up the shard.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place that does file I/O"
)]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::disk::{
    CompleteFile, DirectoryEntry, Disk, DiskError, DiskFile, DiskFuture, DiskLock, DiskRoom, RENAME, SYNC,
    WRITE,
};
use super::priority::{LOW_NICENESS, lower_priority};
use super::read_pool::ReadPool;

/// The blocking calls themselves, shared by both variants.
mod calls {
    use super::{
        Arc, Bytes, CompleteFile, DirectoryEntry, DiskLock, DiskRoom, File, FileExt, FileLock, OpenOptions,
        Path, ReadPool, RealCompleteFile, TryLockError, fs, io,
    };
    use rustix::fs::{FallocateFlags, fallocate, statvfs};
    use rustix::io::Errno;
    use std::os::unix::fs::MetadataExt;

    /// Where a file system cannot reserve room, zeros are written in pieces of this size.
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

    pub fn create_directory(path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    pub fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    pub fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).open(path)
    }

    pub fn sync_directory(path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    pub fn list(path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // The engine's own names are UTF-8.
            if let Ok(name) = entry.file_name().into_string() {
                let kind = entry.file_type()?;
                // An operator may have put a directory elsewhere. A link that leads nowhere is none.
                let leads_to_directory = || fs::metadata(entry.path()).is_ok_and(|found| found.is_dir());
                let is_directory = kind.is_dir() || (kind.is_symlink() && leads_to_directory());
                entries.push(DirectoryEntry { name, is_directory });
            }
        }
        entries.sort();
        Ok(entries)
    }

    pub fn length(path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    pub fn read(path: &Path) -> io::Result<Bytes> {
        fs::read(path).map(Bytes::from)
    }

    pub fn open_complete(path: &Path, reads: Option<ReadPool>) -> io::Result<Arc<dyn CompleteFile>> {
        let file = Arc::new(File::open(path)?);
        let length = file.metadata()?.len();
        Ok(Arc::new(RealCompleteFile { file, length, path: path.to_path_buf(), reads }))
    }

    pub fn lock(path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(FileLock { _file: file })),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub fn file_system(path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.dev())
    }

    pub fn room(path: &Path) -> io::Result<DiskRoom> {
        let statistics = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(statistics.f_frsize);
        Ok(DiskRoom { free_bytes: bytes(statistics.f_bavail), total_bytes: bytes(statistics.f_blocks) })
    }

    pub fn reserve(file: &File, length: u64) -> io::Result<()> {
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, length) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return fill(file, length),
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Writes zeros behind the end of a file until it has this length.
    pub fn fill(file: &File, length: u64) -> io::Result<()> {
        let mut end = file.metadata()?.len();
        while end < length {
            let piece = ZEROS.len().min(usize::try_from(length - end).unwrap_or(usize::MAX));
            file.write_all_at(&ZEROS[..piece], end)?;
            end += piece as u64;
        }
        Ok(())
    }

    pub fn write_at(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    /// The inner result is that of the sync.
    pub fn write_and_sync_at(file: &File, offset: u64, data: &[u8]) -> io::Result<io::Result<()>> {
        file.write_all_at(data, offset)?;
        Ok(file.sync_data())
    }
}

struct RealCompleteFile {
    file: Arc<File>,
    length: u64,
    path: PathBuf,
    /// The threads that carry out reads; `None`: the calling thread.
    reads: Option<ReadPool>,
}

impl CompleteFile for RealCompleteFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.file
            .read_exact_at(buffer, offset)
            .map_err(|error| DiskError::new("read a part of", &self.path, error))
    }

    fn read_later(self: Arc<Self>, offset: u64, length: usize) -> DiskFuture<'static, Box<[u8]>> {
        let Some(reads) = &self.reads else {
            let mut bytes = vec![0; length].into_boxed_slice();
            let outcome = self.read_at(offset, &mut bytes).map(|()| bytes);
            return Box::pin(std::future::ready(outcome));
        };
        let read = reads.read(Arc::clone(&self.file), offset, length);
        Box::pin(
            async move { read.await.map_err(|error| DiskError::new("read a part of", &self.path, error)) },
        )
    }
}

/// The operating system releases the lock when the file is closed.
struct FileLock {
    _file: File,
}

impl DiskLock for FileLock {}

/// The executor of a blocking call: the calling thread, or an I/O thread.
trait Executor: Clone + Send + Sync + 'static {
    fn execute<T, F>(&self, operation: &'static str, path: PathBuf, call: F) -> DiskFuture<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> io::Result<T> + Send + 'static;

    /// The threads that read parts of complete files; `None`: the thread that asks for them.
    fn reads(&self) -> Option<ReadPool>;

    /// Another executor of this kind, which waits for nothing here.
    fn beside(&self, name: &str) -> io::Result<Self>;
}

#[derive(Debug, Clone, Copy, Default)]
struct CallingThread;

impl Executor for CallingThread {
    fn execute<T, F>(&self, operation: &'static str, path: PathBuf, call: F) -> DiskFuture<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
    {
        Box::pin(async move { call(&path).map_err(|error| DiskError::new(operation, &path, error)) })
    }

    fn reads(&self) -> Option<ReadPool> {
        None
    }

    fn beside(&self, _: &str) -> io::Result<Self> {
        Ok(*self)
    }
}

type Call = Box<dyn FnOnce() + Send>;

#[derive(Debug, Clone)]
struct IoThread {
    calls: Sender<Call>,
    reads: ReadPool,
}

impl IoThread {
    fn start(name: &str, reads: ReadPool, niceness: Option<i32>) -> io::Result<Self> {
        let (calls, queue) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Some(niceness) = niceness {
                lower_priority(niceness);
            }
            run_calls(&queue);
        })?;
        Ok(Self { calls, reads })
    }
}

impl Executor for IoThread {
    fn execute<T, F>(&self, operation: &'static str, path: PathBuf, call: F) -> DiskFuture<'static, T>
    where
        T: Send + 'static,
        F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        let thread_path = path.clone();
        let sent = self.calls.send(Box::new(move || {
            // If the caller was dropped, the result is not needed. The call was still made.
            drop(answer.send(call(&thread_path)));
        }));
        Box::pin(async move {
            let stopped = || io::Error::new(io::ErrorKind::BrokenPipe, "the I/O thread has stopped");
            let outcome = match sent {
                Ok(()) => result.await.unwrap_or_else(|_| Err(stopped())),
                Err(_) => Err(stopped()),
            };
            outcome.map_err(|error| DiskError::new(operation, &path, error))
        })
    }

    fn reads(&self) -> Option<ReadPool> {
        Some(self.reads.clone())
    }

    fn beside(&self, name: &str) -> io::Result<Self> {
        // What waits for nothing here is what no request waits for.
        Self::start(name, self.reads.clone(), Some(LOW_NICENESS))
    }
}

fn run_calls(calls: &Receiver<Call>) {
    while let Ok(call) = calls.recv() {
        call();
    }
}

/// Disk calls that block the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectDisk {
    executor: CallingThread,
}

impl DirectDisk {
    pub fn new() -> Self {
        Self::default()
    }
}

/// Disk calls that one I/O thread performs in order. Only reads of parts of complete files have threads of their own. Clones
/// share the threads. The I/O thread stops when the last clone and the last file opened through it are dropped.
#[derive(Debug, Clone)]
pub struct ThreadedDisk {
    executor: IoThread,
}

impl ThreadedDisk {
    /// Starts the I/O thread under the given name (shown in `top -H`).
    pub fn start(name: &str, reads: ReadPool) -> io::Result<Self> {
        Ok(Self { executor: IoThread::start(name, reads, None)? })
    }
}

/// A real file whose calls go through `E`.
struct RealFile<E> {
    file: Arc<File>,
    path: PathBuf,
    executor: E,
}

impl<E: Executor> DiskFile for RealFile<E> {
    fn write_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        let file = Arc::clone(&self.file);
        self.executor.execute(WRITE, self.path.clone(), move |_| calls::write_at(&file, offset, &data))
    }

    fn sync_data(&self) -> DiskFuture<'_, ()> {
        let file = Arc::clone(&self.file);
        self.executor.execute(SYNC, self.path.clone(), move |_| file.sync_data())
    }

    fn reserve(&self, length: u64) -> DiskFuture<'_, ()> {
        let file = Arc::clone(&self.file);
        self.executor.execute("reserve", self.path.clone(), move |_| calls::reserve(&file, length))
    }

    fn write_and_sync_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        let file = Arc::clone(&self.file);
        let written = self
            .executor
            .execute(WRITE, self.path.clone(), move |_| calls::write_and_sync_at(&file, offset, &data));
        Box::pin(async move { written.await?.map_err(|error| DiskError::new(SYNC, &self.path, error)) })
    }
}

fn open_with<'a, E: Executor>(
    executor: &E,
    operation: &'static str,
    path: &Path,
    call: fn(&Path) -> io::Result<File>,
) -> DiskFuture<'a, Arc<dyn DiskFile>> {
    let opened = executor.execute(operation, path.to_path_buf(), call);
    let executor = executor.clone();
    let path = path.to_path_buf();
    Box::pin(async move {
        let file = Arc::new(opened.await?);
        Ok(Arc::new(RealFile { file, path, executor }) as Arc<dyn DiskFile>)
    })
}

macro_rules! implement_disk {
    ($disk:ty) => {
        impl Disk for $disk {
            fn beside(&self, name: &str) -> Result<Arc<dyn Disk>, DiskError> {
                let started = self.executor.beside(name);
                let executor =
                    started.map_err(|error| DiskError::new("start a thread for", Path::new(name), error))?;
                Ok(Arc::new(Self { executor }))
            }

            fn create_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
                self.executor.execute("create directory", path.to_path_buf(), calls::create_directory)
            }

            fn create<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
                open_with(&self.executor, "create", path, calls::create)
            }

            fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
                open_with(&self.executor, "open", path, calls::open)
            }

            fn sync_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
                self.executor.execute("sync directory", path.to_path_buf(), calls::sync_directory)
            }

            fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskFuture<'a, ()> {
                let to = to.to_path_buf();
                self.executor.execute(RENAME, from.to_path_buf(), move |from| fs::rename(from, to))
            }

            fn remove<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
                self.executor.execute("remove", path.to_path_buf(), |path| fs::remove_file(path))
            }

            fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
                self.executor.execute("remove directory", path.to_path_buf(), |path| fs::remove_dir_all(path))
            }

            fn hard_link<'a>(&'a self, existing: &'a Path, new: &'a Path) -> DiskFuture<'a, ()> {
                let new = new.to_path_buf();
                self.executor.execute("hard link", existing.to_path_buf(), move |existing| {
                    fs::hard_link(existing, new)
                })
            }

            fn list<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Vec<DirectoryEntry>> {
                self.executor.execute("list", path.to_path_buf(), calls::list)
            }

            fn length<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
                self.executor.execute("length of", path.to_path_buf(), calls::length)
            }

            fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes> {
                self.executor.execute("read", path.to_path_buf(), calls::read)
            }

            fn open_complete<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn CompleteFile>> {
                let reads = self.executor.reads();
                self.executor.execute("open", path.to_path_buf(), |path| calls::open_complete(path, reads))
            }

            fn lock<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Box<dyn DiskLock>> {
                self.executor.execute("lock", path.to_path_buf(), calls::lock)
            }

            fn room<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, DiskRoom> {
                self.executor.execute("room on", path.to_path_buf(), calls::room)
            }

            fn file_system<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
                self.executor.execute("file system of", path.to_path_buf(), calls::file_system)
            }
        }
    };
}

implement_disk!(DirectDisk);
implement_disk!(ThreadedDisk);

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    fn exercise(disk: &dyn Disk) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("a/b");
        block_on(async {
            disk.create_directory(&root).await.unwrap();
            let path = root.join("file");
            let file = disk.create(&path).await.unwrap();
            file.write_and_sync_at(3, Bytes::from_static(b"def")).await.unwrap();
            file.write_at(0, Bytes::from_static(b"abc")).await.unwrap();
            file.sync_data().await.unwrap();
            assert_eq!(disk.create(&path).await.err().unwrap().kind(), io::ErrorKind::AlreadyExists);
            disk.hard_link(&path, &root.join("link")).await.unwrap();
            disk.rename(&path, &root.join("renamed")).await.unwrap();
            disk.sync_directory(&root).await.unwrap();
            let names: Vec<_> = disk.list(&root).await.unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, ["link", "renamed"]);
            assert_eq!(disk.length(&root.join("link")).await.unwrap(), 6);
            assert_eq!(disk.read(&root.join("link")).await.unwrap(), &b"abcdef"[..]);
            let complete = disk.open_complete(&root.join("renamed")).await.unwrap();
            disk.remove(&root.join("renamed")).await.unwrap();
            assert_eq!(complete.length(), 6);
            assert_eq!(*Arc::clone(&complete).read_later(1, 2).await.unwrap(), *b"bc");
            let behind = Arc::clone(&complete).read_later(5, 2).await.unwrap_err();
            assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
            let mut part = [0; 3];
            complete.read_at(2, &mut part).unwrap();
            assert_eq!(part, *b"cde", "a file that was removed can still be read");
            assert_eq!(complete.read_at(4, &mut part).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(disk.length(&path).await.err().unwrap().kind(), io::ErrorKind::NotFound);
            let lock = disk.lock(&root.join("lock")).await.unwrap();
            assert_eq!(disk.lock(&root.join("lock")).await.err().unwrap().kind(), io::ErrorKind::WouldBlock);
            drop(lock);
            disk.lock(&root.join("lock")).await.unwrap();
            let below = root.join("below");
            disk.create_directory(&below).await.unwrap();
            assert_eq!(disk.file_system(&root).await.unwrap(), disk.file_system(&below).await.unwrap());
            #[cfg(target_os = "linux")]
            assert_ne!(
                disk.file_system(&root).await.unwrap(),
                disk.file_system(Path::new("/proc")).await.unwrap()
            );
            let room = disk.room(&root).await.unwrap();
            assert!(room.free_bytes > 0 && room.free_bytes <= room.total_bytes);
            let reserved = disk.create(&root.join("reserved")).await.unwrap();
            reserved.write_at(0, Bytes::from_static(b"abc")).await.unwrap();
            reserved.reserve(100_000).await.unwrap();
            reserved.reserve(10).await.unwrap();
            let contents = disk.read(&root.join("reserved")).await.unwrap();
            assert!(contents.len() == 100_000 && contents.starts_with(b"abc\0"));
            disk.remove_directory(&root).await.unwrap();
        });
    }

    #[test]
    fn where_no_room_can_be_reserved_zeros_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"abc").unwrap();
        calls::fill(&calls::open(&path).unwrap(), 200_001).unwrap();
        let contents = fs::read(&path).unwrap();
        assert!(contents.len() == 200_001 && contents.starts_with(b"abc\0") && contents.ends_with(&[0]));
    }

    #[test]
    fn direct_calls_do_what_they_say() {
        exercise(&DirectDisk::new());
    }

    #[test]
    fn calls_through_the_io_thread_do_what_they_say() {
        exercise(&ThreadedDisk::start("io-test", ReadPool::start(2).unwrap()).unwrap());
    }

    #[test]
    fn a_call_that_hangs_holds_up_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, file) = (directory.path().join("pipe"), directory.path().join("file"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(&file, b"abc").unwrap();
        let disk = ThreadedDisk::start("disk", ReadPool::start(1).unwrap()).unwrap();
        let other = disk.beside("other").unwrap();
        // A pipe is opened when its other end is.
        let mut hanging = other.read(&pipe);
        assert!(futures::FutureExt::now_or_never(&mut hanging).is_none());
        assert_eq!(block_on(disk.length(&file)).unwrap(), 3);
        fs::write(&pipe, b"end").unwrap();
        assert_eq!(block_on(hanging).unwrap(), &b"end"[..]);
    }
}
