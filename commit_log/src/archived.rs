//! Reading the copies of segments in an archive, one after the other.
//!
//! Invariant: every copy is whole, and each continues the one before. What is damaged, missing or there twice is an error that names the
//! file: a part of the log would give a state that never was.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::archive::{ArchivedLog, ArchivedSegment};
use super::error::CommitLogError;
use super::options::DamagePolicy;
use super::position::LogPosition;
use super::reading::SegmentReader;

/// Reads an archived log.
pub struct ArchiveReader {
    directory: PathBuf,
    segments: SegmentReader,
}

impl ArchiveReader {
    /// A reader of a log whose segments have all numbers from the first to the last.
    pub fn new(log: &ArchivedLog) -> Result<Self, CommitLogError> {
        for pair in log.segments.windows(2) {
            let [left, right] = pair else { continue };
            if left.number == right.number {
                let path = |segment: &ArchivedSegment| log.directory.join(segment.file_name());
                return Err(CommitLogError::Ambiguous { left: path(left), right: path(right) });
            }
            if left.number + 1 != right.number {
                let missing = format!("segment-{:016x}-*.log", left.number + 1);
                return Err(CommitLogError::Missing { path: log.directory.join(missing) });
            }
        }
        Ok(Self {
            directory: log.directory.clone(),
            segments: SegmentReader::new(DamagePolicy::Refuse, true),
        })
    }

    pub fn path(&self, segment: &ArchivedSegment) -> PathBuf {
        self.directory.join(segment.file_name())
    }

    /// The records of the next segment, whose file is `bytes`, in order.
    pub fn read(
        &mut self,
        segment: &ArchivedSegment,
        bytes: &Bytes,
    ) -> Result<Vec<(LogPosition, Bytes)>, CommitLogError> {
        let path: &Path = &self.path(segment);
        if crc32fast::hash(bytes) != segment.crc32 {
            self.segments.damaged(path, 0, "its checksum is not that of its name")?;
        }
        let mut records = Vec::new();
        self.segments.read(path, bytes, segment.number, &mut records)?;
        Ok(records)
    }
}
