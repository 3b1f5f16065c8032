//! Reading the log after a start. Replay distinguishes a torn end from damage; `mod` argues why it can.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tracing::warn;

use super::error::CommitLogError;
use super::format::{self, GROUP_ALIGNMENT, GROUP_HEADER_BYTES, GroupHeader, RECORD_HEADER_BYTES};
use super::log::{CommitLog, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Start};
use super::options::{CommitLogOptions, DamagePolicy};
use super::position::LogPosition;
use super::segments::{Files, Role, file_path, list};
use crate::io::{Clock, Disk};

/// A complete group in a segment.
#[derive(Debug, Clone, Copy)]
struct CompleteGroup {
    offset: usize,
    header: GroupHeader,
}

impl CompleteGroup {
    fn end(&self) -> usize {
        self.offset + format::align(GROUP_HEADER_BYTES + self.header.payload_length as usize)
    }
}

fn group_at(bytes: &[u8], offset: usize, segment: u64) -> Option<CompleteGroup> {
    let header = format::open(bytes.get(offset..)?, segment)?;
    Some(CompleteGroup { offset, header })
}

/// The first complete group at or behind `offset`.
fn find_group(bytes: &[u8], offset: usize, segment: u64) -> Option<CompleteGroup> {
    (offset..bytes.len()).step_by(GROUP_ALIGNMENT).find_map(|offset| group_at(bytes, offset, segment))
}

/// Whether `later` proves that the unreadable group `expected` was durable.
fn is_witness(later: &GroupHeader, expected: Option<u64>) -> bool {
    later.durable_sequence > expected.unwrap_or(later.segment_first_sequence)
}

/// The records of a payload with their offsets in it; `None` if their lengths or their number do not match the payload.
fn records(payload: &Bytes, count: u32) -> Option<Vec<(usize, Bytes)>> {
    let mut records = Vec::new();
    let mut offset = 0;
    while offset < payload.len() {
        let length = payload.get(offset..)?.first_chunk::<RECORD_HEADER_BYTES>().copied()?;
        let start = offset + RECORD_HEADER_BYTES;
        let end = start.checked_add(u32::from_le_bytes(length) as usize)?;
        if end > payload.len() {
            return None;
        }
        records.push((offset, payload.slice(start..end)));
        offset = end;
    }
    (records.len() == count as usize).then_some(records)
}

/// Reads the records of a single segment, as replay would if the log had no other. Never panics, whatever the bytes.
pub fn read_segment(bytes: &Bytes, segment: u64) -> Result<Vec<(LogPosition, Bytes)>, CommitLogError> {
    let mut progress = Progress { expected: None, damage: DamagePolicy::Refuse, stopped_at: None };
    let mut read = Vec::new();
    progress.read(Path::new("segment"), bytes, segment, &mut read)?;
    Ok(read)
}

/// How far the log has been read.
struct Progress {
    /// The number of the next group; unknown before the first one.
    expected: Option<u64>,
    damage: DamagePolicy,
    /// Where reading stopped: the end of the log, unless a later segment continues it.
    stopped_at: Option<Stop>,
}

/// The end of the last segment that has groups.
struct Stop {
    path: PathBuf,
    offset: u64,
    /// The whole file as it was read. The checksums of the groups before `offset` were checked.
    bytes: Bytes,
}

/// A segment without groups.
struct EmptySegment {
    number: u64,
    /// Of the whole file as it was read.
    crc32: u32,
}

impl Progress {
    fn damaged(&self, path: &Path, offset: u64, reason: &'static str) -> Result<(), CommitLogError> {
        match self.damage {
            DamagePolicy::Refuse => Err(CommitLogError::Damaged { path: path.to_path_buf(), offset, reason }),
            DamagePolicy::Skip => {
                warn!(path = %path.display(), offset, reason, "skipping a damaged place in the commit log");
                Ok(())
            }
        }
    }

    fn unstable(&self, path: &Path) -> Result<(), CommitLogError> {
        match self.damage {
            DamagePolicy::Refuse => Err(CommitLogError::Unstable { path: path.to_path_buf() }),
            DamagePolicy::Skip => {
                warn!(path = %path.display(), "two reads of the end of the commit log differ");
                Ok(())
            }
        }
    }

    /// Appends the segment's records to `out`. Returns whether the segment has any group of the log.
    fn read(
        &mut self,
        path: &Path,
        bytes: &Bytes,
        segment: u64,
        out: &mut impl Extend<(LogPosition, Bytes)>,
    ) -> Result<bool, CommitLogError> {
        let mut offset = 0;
        let mut any = false;
        loop {
            let next = group_at(bytes, offset, segment)
                .filter(|group| self.expected.is_none_or(|expected| group.header.sequence == expected));
            let group = match next {
                Some(group) => group,
                None => match self.after_gap(path, bytes, segment, offset, any)? {
                    Some(group) => group,
                    None => break,
                },
            };
            let start = group.offset + GROUP_HEADER_BYTES;
            let payload = bytes.slice(start..start + group.header.payload_length as usize);
            match records(&payload, group.header.records) {
                Some(records) => out.extend(records.into_iter().map(|(offset, record)| {
                    (LogPosition { segment, offset: (start + offset) as u64 }, record)
                })),
                None => self.damaged(path, group.offset as u64, "the lengths of its records do not fit")?,
            }
            // The greatest possible number is the result of damage that the checksum does not detect. No group follows it.
            self.expected = Some(group.header.sequence.saturating_add(1));
            offset = group.end();
            any = true;
        }
        if any {
            self.stopped_at =
                Some(Stop { path: path.to_path_buf(), offset: offset as u64, bytes: bytes.clone() });
        }
        Ok(any)
    }

    /// Handles a place without the expected group: `None` at the end of the segment, else damage and the group to continue with.
    fn after_gap(
        &self,
        path: &Path,
        bytes: &Bytes,
        segment: u64,
        offset: usize,
        any: bool,
    ) -> Result<Option<CompleteGroup>, CommitLogError> {
        let mut later = find_group(bytes, offset, segment);
        if !any
            && let (Some(found), Some(stop)) = (later, &self.stopped_at)
            && Some(found.header.segment_first_sequence) != self.expected
        {
            // A segment is begun only after the log before it was synced. But this one does not continue where reading stopped.
            self.damaged(&stop.path, stop.offset, "groups are missing before the next segment")?;
            return Ok(later);
        }
        while let Some(group) = later {
            if is_witness(&group.header, self.expected) {
                self.damaged(path, offset as u64, "an unreadable group is followed by later ones")?;
                return Ok(Some(group));
            }
            later = find_group(bytes, group.end(), segment);
        }
        Ok(None)
    }
}

/// A log that is being read. Take all records with [`Replay::next`], then call [`Replay::finish`].
pub struct Replay {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    options: CommitLogOptions,
    clock: Rc<dyn Clock>,
    spares: Vec<u64>,
    highest_number: u64,
    to_read: VecDeque<u64>,
    with_groups: VecDeque<u64>,
    without_groups: Vec<EmptySegment>,
    progress: Progress,
    ready: VecDeque<(LogPosition, Bytes)>,
}

impl CommitLog {
    /// Starts reading the log in `directory`, which is created if missing. [`Replay`] describes the next steps.
    pub async fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: CommitLogOptions,
        clock: Rc<dyn Clock>,
    ) -> Result<Replay, CommitLogError> {
        Replay::open(disk, directory, options, clock).await
    }
}

impl Replay {
    async fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: CommitLogOptions,
        clock: Rc<dyn Clock>,
    ) -> Result<Self, CommitLogError> {
        disk.create_directory(directory).await?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            disk.sync_directory(parent).await?;
        }
        // A process that died may have left name changes that are not durable. The names that are visible now must stay.
        disk.sync_directory(directory).await?;
        let (segments, spares) = list(&*disk, directory).await?;
        let highest_number = segments.iter().chain(&spares).copied().max().unwrap_or(0);
        let damage = options.damage;
        Ok(Self {
            disk,
            directory: directory.to_path_buf(),
            options,
            clock,
            spares,
            highest_number,
            to_read: segments.into(),
            with_groups: VecDeque::new(),
            without_groups: Vec::new(),
            progress: Progress { expected: None, damage, stopped_at: None },
            ready: VecDeque::new(),
        })
    }

    /// The next record in append order, with the position that `append` returned for it.
    pub async fn next(&mut self) -> Result<Option<(LogPosition, Bytes)>, CommitLogError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            let Some(segment) = self.to_read.pop_front() else { return Ok(None) };
            let path = file_path(&self.directory, Role::Segment, segment);
            let bytes = self.disk.read(&path).await?;
            if self.progress.read(&path, &bytes, segment, &mut self.ready)? {
                if let Some(empty) = self.without_groups.pop() {
                    let path = file_path(&self.directory, Role::Segment, empty.number);
                    self.progress.damaged(&path, 0, "a segment without groups precedes one that has some")?;
                    // The segment is skipped. It keeps its place in the log and is released in order.
                    self.with_groups.push_back(empty.number);
                    self.with_groups.extend(self.without_groups.drain(..).map(|empty| empty.number));
                    self.with_groups.make_contiguous().sort_unstable();
                }
                self.with_groups.push_back(segment);
            } else {
                self.without_groups.push(EmptySegment { number: segment, crc32: crc32fast::hash(&bytes) });
            }
        }
    }

    /// Reads the files again that no later segment vouches for. A bit that only one read flips must not pass for the torn end of the
    /// log: the groups behind it would be lost.
    async fn confirm_end(&self) -> Result<(), CommitLogError> {
        if let Some(stop) = &self.progress.stopped_at
            && self.disk.read(&stop.path).await? != stop.bytes
        {
            self.progress.unstable(&stop.path)?;
        }
        for empty in &self.without_groups {
            let path = file_path(&self.directory, Role::Segment, empty.number);
            if crc32fast::hash(&self.disk.read(&path).await?) != empty.crc32 {
                self.progress.unstable(&path)?;
            }
        }
        Ok(())
    }

    /// Reads the remaining records, makes all that was read durable, and opens the log for appending in a new segment.
    pub async fn finish(mut self) -> Result<Rc<CommitLog>, CommitLogError> {
        while self.next().await?.is_some() {}
        self.confirm_end().await?;
        // Replayed records may have been written but not synced before the process died. After a failed sync they may be clean in
        // the page cache without being on the disk, and another sync would have no effect. So they are written again, as they were
        // when their checksums were checked.
        if let Some(stop) = self.progress.stopped_at.take() {
            let file = self.disk.open(&stop.path).await?;
            let end = stop.bytes.len().min(stop.offset as usize);
            file.write_and_sync_at(0, stop.bytes.slice(..end)).await?;
        }
        let mut files = Files {
            disk: self.disk,
            directory: self.directory,
            spares: self.spares,
            spares_max: self.options.spare_segments_max,
            segment_bytes: self.options.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        };
        for empty in self.without_groups.into_iter().rev() {
            files.retire(empty.number).await?;
        }
        files.discard_misfits().await?;
        let start = Start {
            live: self.with_groups,
            first_new: self.highest_number.saturating_add(1),
            next_sequence: self.progress.expected.unwrap_or(1),
        };
        Ok(CommitLog::start(files, self.options, self.clock, start))
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{GroupHeader, seal};
    use super::*;

    /// Found by fuzzing: a group with the greatest sequence number.
    #[test]
    fn a_group_with_the_greatest_number_is_read_without_overflow() {
        let record = [3, 0, 0, 0, b'a', b'b', b'c'];
        let mut group = vec![0; GROUP_HEADER_BYTES];
        group.extend_from_slice(&record);
        let header = GroupHeader {
            payload_length: record.len() as u32,
            records: 1,
            segment: 1,
            sequence: u64::MAX,
            durable_sequence: 0,
            segment_first_sequence: u64::MAX,
        };
        seal(&mut group, &header).unwrap();
        let read = read_segment(&Bytes::from(group), 1).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].1[..], *b"abc");
    }
}
