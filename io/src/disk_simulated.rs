//! An in-memory file system that loses as much as the contract of `disk` allows. It is deterministic from a seed.
//!
//! * Each file has its durable contents and the writes since. Directory operations are in one journal. `sync_directory` commits
//!   the journal up to the last operation on that directory.
//! * A crash keeps some of the un-synced data, depending on its [`CrashStyle`]: sectors of 512 bytes for data, a prefix of the
//!   journal for names. After a crash every call fails until [`SimulatedDisk::restart`].
//! * With [`ReadCorruption`] some reads return flipped bits.
//! * Every call has a number. A test runs a history once to count the calls, and then once for each number with a crash or a
//!   [`Fault`] planted there.
//! * Each call first yields to the executor zero to two times (drawn from the seed), so that tasks interleave.

mod at_rest;
mod complete_file;
mod corruption;
mod fault;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use self::complete_file::SimulatedCompleteFile;
use self::corruption::BadMedium;
use self::state::{DiskState, Entry, Inode, NameChange, Names, crashed};
use super::disk::{
    CompleteFile, DirectoryEntry, Disk, DiskError, DiskFile, DiskFuture, DiskLock, DiskRoom, RENAME, SYNC,
    WRITE,
};
use super::random::SplitMix64;
use super::yield_now::yield_now;

pub use self::corruption::{Persistence, ReadCorruption};
pub use self::fault::{CrashStyle, Fault};

/// Files by path, with their contents.
pub type FileContents = BTreeMap<PathBuf, Vec<u8>>;

/// A simulated file system; clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    is_of_jobs: bool,
}

impl SimulatedDisk {
    /// An empty file system. `seed` decides how calls interleave and where short writes stop.
    pub fn new(seed: u64) -> Self {
        let root: Names = [(PathBuf::from("/"), Entry::Directory), (PathBuf::new(), Entry::Directory)].into();
        Self {
            state: Arc::new(Mutex::new(DiskState {
                inodes: BTreeMap::new(),
                next_inode: 1,
                durable_names: root.clone(),
                names: root,
                journal: Vec::new(),
                locks: BTreeSet::new(),
                operations: 0,
                next_write: 0,
                crash_at: None,
                crashed: false,
                life: 0,
                faults: BTreeMap::new(),
                capacity_bytes: u64::MAX,
                random: SplitMix64::new(seed),
                read_corruption: None,
                // A generator of its own: the interleaving of calls does not depend on the option.
                corruption_random: SplitMix64::new(!seed),
                corrupt_reads: 0,
                overlapping_writes: 0,
                written_bytes: 0,
                bad_medium: None,
                part_reads: 0,
            })),
            is_of_jobs: false,
        }
    }

    /// The same file system, for background jobs. A file that a job has opened would hold up whoever reads it with
    /// [`CompleteFile::read_later`] (its disk has no threads for reads), so that is an error.
    #[must_use]
    pub fn of_jobs(&self) -> Self {
        Self { is_of_jobs: true, ..self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        state::lock(&self.state)
    }

    /// The number of calls made so far, reads included.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Crashes in the middle of the call with this number.
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// Crashes now.
    pub fn crash(&self) {
        self.state().crashed = true;
    }

    /// True after a crash, until the restart.
    pub fn is_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Plants a fault at the call with this number.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.state().faults.insert(operation, fault);
    }

    /// Removes planted faults that did not happen yet.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Makes some reads return flipped bits from now on. `None` ends that.
    pub fn set_read_corruption(&self, corruption: Option<ReadCorruption>) {
        self.state().read_corruption = corruption;
    }

    /// The number of reads so far of parts of complete files.
    pub fn part_reads(&self) -> u64 {
        self.state().part_reads
    }

    /// The number of reads so far that returned flipped bits.
    pub fn corrupt_reads(&self) -> u64 {
        self.state().corrupt_reads
    }

    /// Makes every read of files whose path contains this text fail with EIO from now on. `None` ends that.
    pub fn set_bad_medium(&self, path_contains: Option<&str>) {
        self.state().bad_medium = path_contains.map(|text| BadMedium { path_contains: text.to_owned() });
    }

    /// The number of writes so far to a range that an earlier write covers in part and that was not synced in between. In a crash
    /// of the style [`CrashStyle::Unordered`] either write may end up on the disk.
    pub fn overlapping_writes(&self) -> u64 {
        self.state().overlapping_writes
    }

    /// The sum of the lengths of all writes so far.
    pub fn written_bytes(&self) -> u64 {
        self.state().written_bytes
    }

    /// The sum of the lengths of all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// Limits [`Self::used_bytes`]; writes beyond it fail with ENOSPC.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Restarts the machine, after a crash if it was running. `style` and `seed` decide which un-synced data survives. Planted crashes
    /// and faults that did not happen are removed.
    pub fn restart(&self, style: CrashStyle, seed: u64) {
        self.state().restart(style, seed);
    }

    /// Flips one bit of a file at rest. False if there is no such byte.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        self.edit_at_rest(path, |bytes| {
            let Some(byte) = bytes.get_mut((bit / 8) as usize) else { return false };
            *byte ^= 1 << (bit % 8);
            true
        })
    }

    /// Overwrites a part of a file at rest (damage, a misdirected write). False if it does not lie inside the file.
    pub fn overwrite(&self, path: &Path, offset: usize, data: &[u8]) -> bool {
        self.edit_at_rest(path, |bytes| match bytes.get_mut(offset..offset + data.len()) {
            Some(target) => {
                target.copy_from_slice(data);
                true
            }
            None => false,
        })
    }

    /// Cuts a file at rest to `length` bytes. False if it is not longer than that.
    pub fn truncate(&self, path: &Path, length: usize) -> bool {
        self.edit_at_rest(path, |bytes| {
            let shorter = length < bytes.len();
            bytes.truncate(length);
            shorter
        })
    }

    /// Applies `edit` to both the durable and the visible contents. Pending writes count as durable.
    fn edit_at_rest(&self, path: &Path, edit: impl Fn(&mut Vec<u8>) -> bool) -> bool {
        let mut state = self.state();
        let Some(Entry::File(number)) = state.names.get(path).copied() else { return false };
        let Some(inode) = state.inodes.get_mut(&number) else { return false };
        let edited = edit(&mut inode.current);
        inode.durable = inode.current.clone();
        inode.pending.clear();
        inode.reserved = 0;
        edited
    }

    /// Numbers a call, lets other tasks run, and either fails it or runs `call` on the state.
    fn perform<'a, T: 'a>(
        &self,
        operation: &'static str,
        path: &Path,
        call: impl FnOnce(&mut DiskState, Option<Fault>) -> io::Result<T> + 'a,
    ) -> DiskFuture<'a, T> {
        let disk = self.clone();
        let path = path.to_path_buf();
        Box::pin(async move {
            let yields = disk.state().random.below(3);
            for _ in 0..yields {
                yield_now().await;
            }
            let mut state = disk.state();
            state.run(call).map_err(|error| DiskError::new(operation, &path, error))
        })
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    inode: u64,
    path: PathBuf,
    life: u64,
}

impl SimulatedFile {
    fn perform<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        call: impl FnOnce(&mut DiskState, Option<Fault>) -> io::Result<T> + 'a,
    ) -> DiskFuture<'a, T> {
        let life = self.life;
        self.disk.perform(operation, &self.path, move |state, fault| {
            if state.life == life { call(state, fault) } else { Err(crashed()) }
        })
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        self.perform(WRITE, move |state, fault| state.write(self.inode, offset, &data, fault))
    }

    fn sync_data(&self) -> DiskFuture<'_, ()> {
        self.perform(SYNC, move |state, fault| state.sync(self.inode, fault))
    }

    fn reserve(&self, length: u64) -> DiskFuture<'_, ()> {
        self.perform("reserve", move |state, fault| state.reserve(self.inode, length, fault))
    }

    fn write_and_sync_at(&self, offset: u64, data: Bytes) -> DiskFuture<'_, ()> {
        Box::pin(async move {
            self.write_at(offset, data).await?;
            self.sync_data().await
        })
    }
}

struct SimulatedLock {
    disk: SimulatedDisk,
    path: PathBuf,
    life: u64,
}

impl DiskLock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

impl Disk for SimulatedDisk {
    fn beside(&self, _: &str) -> Result<Arc<dyn Disk>, DiskError> {
        Ok(Arc::new(self.clone()))
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.perform("create directory", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let ancestors: Vec<_> = path.ancestors().collect();
            for directory in ancestors.into_iter().rev() {
                match state.names.get(directory) {
                    Some(Entry::Directory) => {}
                    Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                    None => state.change_names(NameChange::Add(directory.to_path_buf(), Entry::Directory)),
                }
            }
            Ok(())
        })
    }

    fn create<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        let disk = self.clone();
        self.perform("create", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            state.require_parent(path)?;
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = state.next_inode;
            state.next_inode += 1;
            state.inodes.insert(inode, Inode::default());
            state.change_names(NameChange::Add(path.to_path_buf(), Entry::File(inode)));
            let life = state.life;
            Ok(Arc::new(SimulatedFile { disk, inode, path: path.to_path_buf(), life }) as Arc<dyn DiskFile>)
        })
    }

    fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        let disk = self.clone();
        self.perform("open", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let inode = state.file_number(path)?;
            let life = state.life;
            Ok(Arc::new(SimulatedFile { disk, inode, path: path.to_path_buf(), life }) as Arc<dyn DiskFile>)
        })
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.perform("sync directory", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            match state.names.get(path) {
                Some(Entry::Directory) => {
                    state.sync_names(path);
                    Ok(())
                }
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskFuture<'a, ()> {
        self.perform(RENAME, from, move |state, fault| {
            DiskState::simple_fault(fault)?;
            if !state.names.contains_key(from) {
                return Err(io::ErrorKind::NotFound.into());
            }
            state.require_parent(to)?;
            state.change_names(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.perform("remove", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            state.file_number(path)?;
            state.change_names(NameChange::Remove(path.to_path_buf()));
            Ok(())
        })
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.perform("remove directory", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            match state.names.get(path) {
                Some(Entry::Directory) => {
                    state.change_names(NameChange::Remove(path.to_path_buf()));
                    Ok(())
                }
                Some(Entry::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
                None => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }

    fn hard_link<'a>(&'a self, existing: &'a Path, new: &'a Path) -> DiskFuture<'a, ()> {
        self.perform("hard link", existing, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let inode = state.file_number(existing)?;
            state.require_parent(new)?;
            if state.names.contains_key(new) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.change_names(NameChange::Add(new.to_path_buf(), Entry::File(inode)));
            Ok(())
        })
    }

    fn list<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Vec<DirectoryEntry>> {
        self.perform("list", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            if state.names.get(path) != Some(&Entry::Directory) {
                return Err(io::ErrorKind::NotFound.into());
            }
            // Names below a directory are adjacent, because paths are ordered by their components.
            let below = (Bound::Excluded(path), Bound::Unbounded);
            let below = state.names.range::<Path, _>(below).take_while(|(name, _)| name.starts_with(path));
            Ok(below
                .filter(|(name, _)| name.parent() == Some(path))
                .filter_map(|(name, entry)| {
                    let name = name.file_name()?.to_str()?.to_owned();
                    Some(DirectoryEntry { name, is_directory: *entry == Entry::Directory })
                })
                .collect())
        })
    }

    fn length<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        self.perform("length of", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let inode = state.file_number(path)?;
            Ok(state.inode(inode)?.current.len() as u64)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes> {
        self.perform("read", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            Ok(Bytes::from(state.contents(path)?))
        })
    }

    fn open_complete<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn CompleteFile>> {
        let (shared, is_of_job) = (Arc::clone(&self.state), self.is_of_jobs);
        self.perform("open", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let inode = state.file_number(path)?;
            let length = state.inode(inode)?.current.len() as u64;
            let (path, life) = (path.to_path_buf(), state.life);
            Ok(Arc::new(SimulatedCompleteFile { state: shared, inode, length, path, life, is_of_job })
                as Arc<dyn CompleteFile>)
        })
    }

    fn lock<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Box<dyn DiskLock>> {
        let disk = self.clone();
        let locked = self.perform("lock", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            state.require_parent(path)?;
            if !state.locks.insert(path.to_path_buf()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(state.life)
        });
        // The lock is made outside of the call: if the disk crashes in it, the lock is dropped, which needs the state.
        Box::pin(async move {
            let life = locked.await?;
            Ok(Box::new(SimulatedLock { disk, path: path.to_path_buf(), life }) as Box<dyn DiskLock>)
        })
    }

    fn room<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, DiskRoom> {
        self.perform("room on", path, move |state, fault| {
            DiskState::simple_fault(fault)?;
            let total_bytes = state.capacity_bytes;
            Ok(DiskRoom { free_bytes: total_bytes.saturating_sub(state.used_bytes()), total_bytes })
        })
    }

    /// All of it is one file system.
    fn file_system<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        self.perform("file system of", path, move |_, fault| {
            DiskState::simple_fault(fault)?;
            Ok(0)
        })
    }
}
