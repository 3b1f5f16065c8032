//! The archive of a log: a directory with a copy of each complete segment, for a restore to a point in time. It belongs to the operator,
//! who may take files away.
//!
//! A copy is called `segment-<n>-<crc32>.log`: 16 hex digits for the number, 8 for the CRC-32 (IEEE) of the whole file.
//!
//! Invariants:
//! * A copy has its name only when it is whole and durable. Before, it is called `segment-<n>.tmp`.
//! * A whole copy is never changed or replaced. One that was cut since is replaced by a whole one of the same contents. Another segment of the same number, of an older state of the data directory, has another
//!   checksum and so another name.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use crc32fast::Hasher;

use super::options::ArchiveOptions;
use helenus_io::Signal;
use helenus_io::{CompleteFile, Disk, DiskError};

/// A copy is read and written in pieces of this size. Each is synced, so that a group of the log never waits long for the disk.
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

/// Makes the directory of a log's copies, durably. The archive's root must be there.
pub(super) async fn make_directory(disk: &dyn Disk, options: &ArchiveOptions) -> Result<PathBuf, DiskError> {
    disk.list(&options.root).await?;
    let directory = options.root.join(&options.below);
    disk.create_directory(&directory).await?;
    // An earlier process may have made them, and not durably.
    for above in directory.ancestors().skip(1).take(options.below.components().count()) {
        disk.sync_directory(above).await?;
    }
    Ok(directory)
}

/// Copies a segment, durably, unless its copy is there. What fails leaves nothing behind.
pub(super) async fn copy(
    disk: &dyn Disk,
    segment: &Path,
    number: u64,
    directory: &Path,
) -> Result<(), DiskError> {
    let source = disk.open_complete(segment).await?;
    let mut hasher = Hasher::new();
    for offset in (0..source.length()).step_by(PIECE_BYTES) {
        hasher.update(&piece(&source, offset).await?);
    }
    let crc32 = hasher.finalize();
    let copy = directory.join(ArchivedSegment { number, crc32 }.file_name());
    match disk.length(&copy).await {
        // The attempt that renamed it may not have synced the directory.
        Ok(length) if length == source.length() => return disk.sync_directory(directory).await,
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let temporary = directory.join(format!("segment-{number:016x}.tmp"));
    let written = async {
        write(disk, &source, crc32, segment, &temporary).await?;
        disk.rename(&temporary, &copy).await
    };
    if let Err(error) = written.await {
        // Its room may be needed.
        let _ = disk.remove(&temporary).await;
        return Err(error);
    }
    disk.sync_directory(directory).await
}

async fn piece(source: &Arc<dyn CompleteFile>, offset: u64) -> Result<Bytes, DiskError> {
    let length = (source.length() - offset).min(PIECE_BYTES as u64) as usize;
    Ok(Bytes::from(Arc::clone(source).read_later(offset, length).await?))
}

/// Writes a copy. A read may return flipped bits, and the log's own checksums are not looked at here: so what is written must have the
/// checksum that was read before.
async fn write(
    disk: &dyn Disk,
    source: &Arc<dyn CompleteFile>,
    crc32: u32,
    segment: &Path,
    temporary: &Path,
) -> Result<(), DiskError> {
    match disk.remove(temporary).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(temporary).await?;
    let mut hasher = Hasher::new();
    for offset in (0..source.length()).step_by(PIECE_BYTES) {
        let piece = piece(source, offset).await?;
        hasher.update(&piece);
        file.write_and_sync_at(offset, piece).await?;
    }
    if hasher.finalize() != crc32 {
        let differs = io::Error::new(io::ErrorKind::InvalidData, "two reads of it differ");
        return Err(DiskError::new("copy", segment, differs));
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
