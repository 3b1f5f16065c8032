//! The disk of a simulated node: the engine's simulated file system with time: calls take a while, and a slow disk
//! takes long.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::io::{
    CompleteFile, DirectoryEntry, Disk, DiskError, DiskFile, DiskFuture, DiskLock, DiskRoom, SimulatedDisk,
    SplitMix64,
};

use crate::trace::{Event, Trace};

/// The latency of a node's disk.
pub struct Pace {
    /// Longest duration of a sync, in microseconds; the shortest is a fifth of it.
    sync_micros_max: AtomicU64,
    random: Mutex<SplitMix64>,
}

impl Pace {
    const USUAL_SYNC_MICROS: u64 = 4_000;

    pub fn new(seed: u64) -> Self {
        Self {
            sync_micros_max: AtomicU64::new(Self::USUAL_SYNC_MICROS),
            random: Mutex::new(SplitMix64::new(seed)),
        }
    }

    /// Makes every sync take up to this long; `None`: the usual time.
    pub fn set_slow(&self, sync_max: Option<Duration>) {
        let micros = sync_max.map_or(Self::USUAL_SYNC_MICROS, |duration| duration.as_micros() as u64);
        self.sync_micros_max.store(micros, Ordering::Relaxed);
    }

    /// A read of a part of a file takes as long as the syncs of a disk whose longest is a sixteenth of this one's.
    async fn read(&self) {
        self.pause(self.sync_micros_max.load(Ordering::Relaxed) / 16).await;
    }

    async fn sync(&self) {
        self.pause(self.sync_micros_max.load(Ordering::Relaxed)).await;
    }

    /// Sleeps for a random time: up to 1.2 times `max` microseconds.
    async fn pause(&self, max: u64) {
        let micros = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            max / 5 + random.below(max)
        };
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}

/// A [`SimulatedDisk`] whose calls take time and are recorded in the trace.
#[derive(Clone)]
pub struct PacedDisk {
    node: usize,
    disk: SimulatedDisk,
    pace: Arc<Pace>,
    trace: Arc<Trace>,
}

impl PacedDisk {
    pub fn new(node: usize, disk: SimulatedDisk, pace: Arc<Pace>, trace: Arc<Trace>) -> Self {
        Self { node, disk, pace, trace }
    }

    fn note(&self, operation: &'static str, contents: &[u8]) {
        self.trace.record(Event::Disk { node: self.node, operation, bytes: contents.len() }, contents);
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(PacedFile { disk: self.clone(), file })
    }
}

impl Disk for PacedDisk {
    fn beside(&self, _: &str) -> Result<Arc<dyn Disk>, DiskError> {
        Ok(Arc::new(self.clone()))
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.disk.create_directory(path)
    }

    fn create<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        self.note("create", &[]);
        Box::pin(async move { Ok(self.file(self.disk.create(path).await?)) })
    }

    fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        self.note("open", &[]);
        Box::pin(async move { Ok(self.file(self.disk.open(path).await?)) })
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.note("sync directory", &[]);
        Box::pin(async move {
            self.pace.sync().await;
            self.disk.sync_directory(path).await
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskFuture<'a, ()> {
        self.note("rename", &[]);
        self.disk.rename(from, to)
    }

    fn remove<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.note("remove", &[]);
        self.disk.remove(path)
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.note("remove directory", &[]);
        self.disk.remove_directory(path)
    }

    fn hard_link<'a>(&'a self, existing: &'a Path, new: &'a Path) -> DiskFuture<'a, ()> {
        self.note("hard link", &[]);
        self.disk.hard_link(existing, new)
    }

    fn list<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Vec<DirectoryEntry>> {
        self.disk.list(path)
    }

    fn length<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        self.disk.length(path)
    }

    fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes> {
        self.note("read", &[]);
        self.disk.read(path)
    }

    fn open_complete<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn CompleteFile>> {
        self.note("open to read", &[]);
        Box::pin(async move {
            let file = self.disk.open_complete(path).await?;
            Ok(Arc::new(PacedCompleteFile { disk: self.clone(), file }) as Arc<dyn CompleteFile>)
        })
    }

    fn lock<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn room<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, DiskRoom> {
        self.disk.room(path)
    }

    fn file_system<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        self.disk.file_system(path)
    }
}

/// Its reads take time when they do not hold up the thread.
struct PacedCompleteFile {
    disk: PacedDisk,
    file: Arc<dyn CompleteFile>,
}

impl CompleteFile for PacedCompleteFile {
    fn length(&self) -> u64 {
        self.file.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_at(offset, buffer)
    }

    fn read_later(self: Arc<Self>, offset: u64, length: usize) -> DiskFuture<'static, Box<[u8]>> {
        Box::pin(async move {
            self.disk.note("read a part", &offset.to_le_bytes());
            self.disk.pace.read().await;
            Arc::clone(&self.file).read_later(offset, length).await
        })
    }
}

struct PacedFile {
    disk: PacedDisk,
    file: Arc<dyn DiskFile>,
}

impl DiskFile for PacedFile {
    fn write_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        self.disk.note("write", &data);
        self.file.write_at(offset, data)
    }

    fn sync_data(&self) -> DiskFuture<'_, ()> {
        self.disk.note("sync", &[]);
        Box::pin(async move {
            self.disk.pace.sync().await;
            self.file.sync_data().await
        })
    }

    fn reserve(&self, length: u64) -> DiskFuture<'_, ()> {
        self.disk.note("reserve", &[]);
        self.file.reserve(length)
    }

    fn write_and_sync_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        Box::pin(async move {
            self.write_at(offset, data).await?;
            self.sync_data().await
        })
    }
}
