//! The archive of a log: a directory with a copy of each complete segment, for a restore to a point in time. It belongs to the operator,
//! who may take files away.
//!
//! A copy is called `segment-<n>-<crc32>.log`: 16 hex digits for the number, 8 for the CRC-32 (IEEE) of the whole file.
//!
//! Invariants:
//! * A copy has its name only when it is whole and durable. Before, it is called `segment-<n>.tmp`.
//! * A copy is never changed or replaced. Another segment of the same number, of an older state of the data directory, has another
//!   checksum and so another name.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};

use super::signal::Signal;
use crate::io::{Disk, DiskError, yield_now};

/// A copy is written in pieces of this size. Each is synced, so that a group of the log never waits long for the disk.
const PIECE_BYTES: usize = 1 << 20;

/// The copy of a segment in an archive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivedSegment {
    pub number: u64,
    /// Of the whole file.
    pub crc32: u32,
}

impl ArchivedSegment {
    pub fn file_name(&self) -> String {
        format!("segment-{:016x}-{:08x}.log", self.number, self.crc32)
    }

    /// The inverse of [`Self::file_name`]. `None`: the file is no copy of a segment.
    pub fn parse(name: &str) -> Option<Self> {
        let (number, crc32) = name.strip_prefix("segment-")?.strip_suffix(".log")?.split_once('-')?;
        let parsed = Self {
            number: u64::from_str_radix(number, 16).ok()?,
            crc32: u32::from_str_radix(crc32, 16).ok()?,
        };
        (parsed.file_name() == name).then_some(parsed)
    }
}

/// How far the archive of a log is.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// Segments up to this number have their copies.
    pub done_to: Cell<u64>,
    /// The failure of the last attempt.
    pub failure: RefCell<Option<DiskError>>,
    /// Attempts that have ended.
    pub attempts: Cell<u64>,
    /// The number of attempts when an operator last asked for one.
    pub asked_at: Cell<u64>,
    /// There may be a segment to copy.
    pub wanted: Signal,
    /// An attempt has ended.
    pub changed: Signal,
}

/// Copies a segment, durably, unless its copy is there.
pub(super) async fn copy(
    disk: &dyn Disk,
    segment: &Path,
    number: u64,
    archive: &Path,
) -> Result<(), DiskError> {
    let bytes = disk.read(segment).await?;
    let mut hasher = crc32fast::Hasher::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        hasher.update(piece);
        yield_now().await;
    }
    let name = ArchivedSegment { number, crc32: hasher.finalize() }.file_name();
    make_directory(disk, archive).await?;
    let temporary_name = format!("segment-{number:016x}.tmp");
    let present = disk.list(archive).await?;
    let is_present = |name: &str| present.iter().any(|entry| entry.name == name);
    if is_present(&name) {
        // The attempt that renamed it may not have synced the directory.
        return disk.sync_directory(archive).await;
    }
    let temporary = archive.join(&temporary_name);
    if is_present(&temporary_name) {
        disk.remove(&temporary).await?;
    }
    let file = disk.create(&temporary).await?;
    for offset in (0..bytes.len()).step_by(PIECE_BYTES) {
        let piece = bytes.slice(offset..bytes.len().min(offset + PIECE_BYTES));
        file.write_and_sync_at(offset as u64, piece).await?;
    }
    disk.rename(&temporary, &archive.join(name)).await?;
    disk.sync_directory(archive).await
}

/// Makes the directory of an archive, durably.
async fn make_directory(disk: &dyn Disk, archive: &Path) -> Result<(), DiskError> {
    match disk.list(archive).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        listed => return listed.map(drop),
    }
    disk.create_directory(archive).await?;
    // Those of the node and of the shard may be new.
    for above in archive.ancestors().skip(1).take(3).filter(|path| !path.as_os_str().is_empty()) {
        disk.sync_directory(above).await?;
    }
    Ok(())
}

/// Where the copies of a log lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedLog {
    pub directory: PathBuf,
    /// By number.
    pub segments: Vec<ArchivedSegment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let segment = ArchivedSegment { number: 0x1F, crc32: 0xAB };
        assert_eq!(segment.file_name(), "segment-000000000000001f-000000ab.log");
        assert_eq!(ArchivedSegment::parse(&segment.file_name()), Some(segment));
        for other in
            ["segment-000000000000001f.log", "segment-1f-ab.log", "spare-000000000000001f-000000ab.log"]
        {
            assert_eq!(ArchivedSegment::parse(other), None, "{other}");
        }
    }
}
