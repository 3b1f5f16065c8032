//! The state of a simulated disk: files with their durable contents, names with the journal of their changes, and the effect of a
//! crash on both.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::corruption::{BadMedium, Persistence, ReadCorruption, flip};
use super::fault::{CrashStyle, ERRNO_IO, ERRNO_NO_SPACE, Fault, SECTOR_BYTES};
use crate::random::SplitMix64;

#[derive(Debug, Clone)]
pub(super) struct PendingWrite {
    pub(super) number: u64,
    pub(super) offset: usize,
    pub(super) data: Bytes,
}

impl PendingWrite {
    fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + other.data.len() && other.offset < self.offset + self.data.len()
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct Inode {
    pub(super) durable: Vec<u8>,
    /// The contents that readers see.
    pub(super) current: Vec<u8>,
    pub(super) pending: Vec<PendingWrite>,
    /// The length that was reserved and is not durable; 0 if there is none.
    pub(super) reserved: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Directory,
    File(u64),
}

pub(super) type Names = BTreeMap<PathBuf, Entry>;

#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Add(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn touches(&self, directory: &Path) -> bool {
        let inside = |path: &Path| path.parent() == Some(directory);
        match self {
            Self::Add(path, _) | Self::Remove(path) => inside(path),
            Self::Rename(from, to) => inside(from) || inside(to),
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            Self::Remove(path) => {
                for name in within(names, path) {
                    names.remove(&name);
                }
            }
            Self::Rename(from, to) => {
                for name in within(names, from) {
                    let Some(entry) = names.remove(&name) else { continue };
                    let rest = name.strip_prefix(from).unwrap_or(Path::new(""));
                    let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    names.insert(target, entry);
                }
            }
        }
    }
}

/// A name and all names below it. They are adjacent, because paths are ordered by their components.
fn within(names: &Names, path: &Path) -> Vec<PathBuf> {
    let from = (Bound::Included(path), Bound::Unbounded);
    names
        .range::<Path, _>(from)
        .map(|(name, _)| name)
        .take_while(|name| name.starts_with(path))
        .cloned()
        .collect()
}

#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    pub(super) durable_names: Names,
    pub(super) names: Names,
    pub(super) journal: Vec<NameChange>,
    pub(super) locks: BTreeSet<PathBuf>,
    /// The number of calls so far, which is the number of the next call.
    pub(super) operations: u64,
    pub(super) next_write: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    /// The number of restarts so far. Files and locks of an earlier life are invalid.
    pub(super) life: u64,
    pub(super) faults: BTreeMap<u64, Fault>,
    pub(super) capacity_bytes: u64,
    pub(super) random: SplitMix64,
    pub(super) read_corruption: Option<ReadCorruption>,
    pub(super) corruption_random: SplitMix64,
    pub(super) corrupt_reads: u64,
    pub(super) overlapping_writes: u64,
    pub(super) written_bytes: u64,
    /// Files that cannot be read.
    pub(super) bad_medium: Option<BadMedium>,
    pub(super) part_reads: u64,
}

/// Locks the state of a disk.
pub(super) fn lock(state: &Mutex<DiskState>) -> MutexGuard<'_, DiskState> {
    // The state is consistent between statements. Panicking here would hide the message of the first panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

pub(super) fn crashed() -> io::Error {
    io::Error::other("the simulated machine has crashed")
}

fn overlay(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    if let Some(target) = bytes.get_mut(offset..end) {
        target.copy_from_slice(data);
    }
}

/// The parts of a write, split at sector boundaries.
pub(super) fn sectors(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut position = offset;
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = SECTOR_BYTES - position % SECTOR_BYTES;
        let (piece, after) = rest.split_at(room.min(rest.len()));
        let start = position;
        position += piece.len();
        rest = after;
        Some((start, piece))
    })
}

impl DiskState {
    pub(super) fn run<T>(
        &mut self,
        call: impl FnOnce(&mut Self, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.crashed {
            return Err(crashed());
        }
        let number = self.operations;
        self.operations += 1;
        let fault = self.faults.remove(&number);
        if self.crash_at == Some(number) {
            // The call was in progress: its effects are un-synced, and its success is not reported. A sync in progress leaves its data
            // un-synced too, so the crash style decides about it.
            self.crashed = true;
            let _: io::Result<T> = call(self, Some(Fault::Error).filter(|_| fault.is_some()));
            return Err(crashed());
        }
        call(self, fault)
    }

    pub(super) fn simple_fault(fault: Option<Fault>) -> io::Result<()> {
        match fault {
            None => Ok(()),
            Some(Fault::NoSpace) => Err(errno(ERRNO_NO_SPACE)),
            Some(Fault::Error | Fault::ShortWrite) => Err(errno(ERRNO_IO)),
        }
    }

    pub(super) fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.journal.push(change);
    }

    pub(super) fn require_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent().map(|parent| self.names.get(parent)) {
            Some(Some(Entry::Directory)) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn file_number(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Entry::File(number)) => Ok(*number),
            Some(Entry::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The result of a read of a whole file.
    pub(super) fn contents(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let number = self.file_number(path)?;
        let mut bytes = vec![0; self.inode(number)?.current.len()];
        self.read_part(number, path, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a part of a file, whatever its name is now; `path` is the name that it was opened by.
    pub(super) fn read_part(
        &mut self,
        number: u64,
        path: &Path,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if self.bad_medium.as_ref().is_some_and(|bad| bad.concerns(path)) {
            return Err(errno(ERRNO_IO));
        }
        let start = usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let part = self.inode(number)?.current.get(start..start.saturating_add(buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        let Some(corruption) = &self.read_corruption else { return Ok(()) };
        let bits = corruption.draw(path, buffer.len(), &mut self.corruption_random);
        if bits.is_empty() {
            return Ok(());
        }
        flip(buffer, &bits);
        let is_persistent = corruption.persistence == Persistence::Persistent;
        self.corrupt_reads += 1;
        if is_persistent {
            let bits: Vec<u64> = bits.iter().map(|bit| bit + offset * 8).collect();
            let inode = self.inode(number)?;
            flip(&mut inode.current, &bits);
            flip(&mut inode.durable, &bits);
        }
        Ok(())
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let named = self.names.values().filter_map(|entry| match entry {
            Entry::File(number) => Some(*number),
            Entry::Directory => None,
        });
        let used: BTreeSet<u64> = named.collect();
        let lengths = used.into_iter().filter_map(|number| self.inodes.get(&number));
        lengths.map(|inode| inode.current.len() as u64).sum()
    }

    /// The fault of a call that makes files grow by `growth` bytes: the planted one, or a full disk.
    fn growth_fault(&self, growth: u64, planted: Option<Fault>) -> Option<Fault> {
        let is_limited = self.capacity_bytes < u64::MAX && growth > 0;
        match planted {
            None if is_limited && self.used_bytes() + growth > self.capacity_bytes => Some(Fault::NoSpace),
            other => other,
        }
    }

    pub(super) fn reserve(&mut self, inode: u64, length: u64, fault: Option<Fault>) -> io::Result<()> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let present = self.inode(inode)?.current.len();
        let fault = self.growth_fault(length.saturating_sub(present) as u64, fault);
        Self::simple_fault(fault)?;
        let inode = self.inode(inode)?;
        if length > present {
            inode.current.resize(length, 0);
            inode.reserved = length;
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        inode: u64,
        offset: u64,
        data: &Bytes,
        fault: Option<Fault>,
    ) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let length = self.inode(inode)?.current.len();
        let growth = (offset + data.len()).saturating_sub(length) as u64;
        let fault = self.growth_fault(growth, fault);
        let written = match fault {
            None => data.len(),
            Some(Fault::Error) => 0,
            Some(Fault::NoSpace | Fault::ShortWrite) => self.random.below(data.len() as u64 + 1) as usize,
        };
        let number = self.next_write;
        self.next_write += 1;
        let data = data.slice(..written);
        let inode = self.inode(inode)?;
        let write = PendingWrite { number, offset, data };
        let overlaps = inode.pending.iter().any(|earlier| earlier.overlaps(&write));
        overlay(&mut inode.current, offset, &write.data);
        inode.pending.push(write);
        self.overlapping_writes += u64::from(overlaps);
        self.written_bytes += written as u64;
        Self::simple_fault(fault)
    }

    pub(super) fn sync(&mut self, inode: u64, fault: Option<Fault>) -> io::Result<()> {
        let crashing = self.crashed;
        let inode = self.inode(inode)?;
        if fault.is_some() {
            // As on Linux: the pages stay readable but are clean now, so a later sync takes them for written.
            inode.pending.clear();
        } else if !crashing {
            inode.grow_to_reserved();
            for write in inode.pending.drain(..) {
                overlay(&mut inode.durable, write.offset, &write.data);
            }
        }
        Self::simple_fault(fault)
    }

    pub(super) fn sync_names(&mut self, directory: &Path) {
        if self.crashed {
            return;
        }
        let committed =
            self.journal.iter().rposition(|change| change.touches(directory)).map_or(0, |last| last + 1);
        for change in self.journal.drain(..committed) {
            change.apply(&mut self.durable_names);
        }
    }

    pub(super) fn restart(&mut self, style: CrashStyle, seed: u64) {
        self.locks.clear();
        self.crashed = false;
        self.crash_at = None;
        self.faults.clear();
        self.life += 1;
        if style != CrashStyle::KeepAll {
            self.lose_power(style, seed);
        }
    }

    pub(super) fn lose_power(&mut self, style: CrashStyle, seed: u64) {
        let mut random = SplitMix64::new(seed);
        let kept_changes = match style {
            CrashStyle::LoseAll => 0,
            _ => random.below(self.journal.len() as u64 + 1) as usize,
        };
        for change in self.journal.drain(..).take(kept_changes) {
            change.apply(&mut self.durable_names);
        }
        self.names = self.durable_names.clone();

        let oldest = self.inodes.values().flat_map(|inode| &inode.pending).map(|write| write.number).min();
        let oldest = oldest.unwrap_or(self.next_write);
        let cut = oldest + random.below(self.next_write - oldest + 1);
        for inode in self.inodes.values_mut() {
            inode.crash(style, cut, &mut random);
        }
        let reachable: BTreeSet<u64> = self
            .names
            .values()
            .filter_map(|entry| match entry {
                Entry::File(number) => Some(*number),
                Entry::Directory => None,
            })
            .collect();
        self.inodes.retain(|number, _| reachable.contains(number));
    }
}

impl Inode {
    /// Makes the reserved length durable.
    fn grow_to_reserved(&mut self) {
        let length = std::mem::take(&mut self.reserved).max(self.durable.len());
        self.durable.resize(length, 0);
    }

    /// Applies the effect of a crash to un-synced writes. `cut` is the number of the write at which prefixes end.
    pub(super) fn crash(&mut self, style: CrashStyle, cut: u64, random: &mut SplitMix64) {
        if self.reserved > 0 && style != CrashStyle::LoseAll && random.chance(1, 2) {
            self.grow_to_reserved();
        }
        self.reserved = 0;
        if style == CrashStyle::Unordered {
            self.land_in_any_order(random);
        }
        for write in std::mem::take(&mut self.pending) {
            match style {
                CrashStyle::RandomSectors => {
                    for (offset, piece) in sectors(write.offset, &write.data) {
                        if random.chance(1, 2) {
                            overlay(&mut self.durable, offset, piece);
                        }
                    }
                }
                CrashStyle::Prefix | CrashStyle::TornSector if write.number < cut => {
                    overlay(&mut self.durable, write.offset, &write.data);
                }
                CrashStyle::Prefix | CrashStyle::TornSector if write.number == cut => {
                    let pieces = sectors(write.offset, &write.data).count() as u64;
                    let whole = random.below(pieces + 1) as usize;
                    for (index, (offset, piece)) in sectors(write.offset, &write.data).enumerate() {
                        if index < whole {
                            overlay(&mut self.durable, offset, piece);
                        } else if index == whole && style == CrashStyle::TornSector {
                            let part = random.below(piece.len() as u64 + 1) as usize;
                            overlay(&mut self.durable, offset, piece.get(..part).unwrap_or(piece));
                        }
                    }
                }
                CrashStyle::KeepAll
                | CrashStyle::LoseAll
                | CrashStyle::Prefix
                | CrashStyle::TornSector
                | CrashStyle::Unordered => {}
            }
        }
        self.current.clone_from(&self.durable);
    }

    /// Each sector of each un-synced write survives with a chance of 3 in 4. They reach the disk in a random order, so an earlier
    /// write may replace a later one.
    fn land_in_any_order(&mut self, random: &mut SplitMix64) {
        let writes = std::mem::take(&mut self.pending);
        let mut pieces: Vec<_> = writes.iter().flat_map(|write| sectors(write.offset, &write.data)).collect();
        for last in (1..pieces.len()).rev() {
            pieces.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (offset, piece) in pieces {
            if random.chance(3, 4) {
                overlay(&mut self.durable, offset, piece);
            }
        }
    }
}
