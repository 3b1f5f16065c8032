//! Reading one segment after the other. It distinguishes a torn end from damage; `mod` argues why it can.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::warn;

use super::error::CommitLogError;
use super::format::{self, GROUP_ALIGNMENT, GroupHeader, RECORD_HEADER_BYTES};
use super::layout::Layout;
use super::options::DamagePolicy;
use super::position::LogPosition;

/// A segment's file as it was read.
#[derive(Clone, Copy)]
struct SegmentBytes<'a> {
    path: &'a Path,
    bytes: &'a Bytes,
    segment: u64,
    layout: Layout,
}

/// A complete group in a segment.
#[derive(Debug, Clone, Copy)]
struct CompleteGroup {
    offset: usize,
    /// Where its payload begins.
    payload: usize,
    header: GroupHeader,
}

impl CompleteGroup {
    fn payload_end(&self) -> usize {
        self.payload + self.header.payload_length as usize
    }

    fn end(&self) -> usize {
        self.offset + format::align(self.payload_end() - self.offset)
    }
}

impl SegmentBytes<'_> {
    fn group_at(&self, offset: usize) -> Option<CompleteGroup> {
        let header = self.layout.open_group(self.bytes.get(offset..)?, self.segment)?;
        Some(CompleteGroup { offset, payload: offset + self.layout.group_header_bytes(), header })
    }

    /// The first complete group at or behind `offset`.
    fn find_group(&self, offset: usize) -> Option<CompleteGroup> {
        (offset..self.bytes.len()).step_by(GROUP_ALIGNMENT).find_map(|offset| self.group_at(offset))
    }
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
    let mut reader = SegmentReader::new(DamagePolicy::Refuse, false);
    let mut read = Vec::new();
    reader.read(Path::new("segment"), bytes, segment, &mut read)?;
    Ok(read)
}

/// Reads the segments of a log one after the other, and keeps how far it has come.
pub(super) struct SegmentReader {
    /// The number of the next group; unknown before the first one.
    pub expected: Option<u64>,
    damage: DamagePolicy,
    /// Whether segments without a header are damaged, unless they begin with a group of version 1.
    has_headers: bool,
    /// Where reading stopped: the end of the log, unless a later segment continues it.
    pub stopped_at: Option<Stop>,
}

/// The end of the last segment that has groups.
pub(super) struct Stop {
    pub path: PathBuf,
    pub offset: u64,
    /// The whole file as it was read. The checksums of the groups before `offset` were checked.
    pub bytes: Bytes,
}

/// The findings in a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentRead {
    /// Whether it has any group of the log.
    pub has_groups: bool,
    /// `None`: the segment is damaged in whole.
    pub layout: Option<Layout>,
    /// Whether its file contains no complete group of its life, not even one behind the end of the log.
    pub is_blank: bool,
}

impl SegmentReader {
    pub fn new(damage: DamagePolicy, has_headers: bool) -> Self {
        Self { expected: None, damage, has_headers, stopped_at: None }
    }

    pub fn damaged(&self, path: &Path, offset: u64, reason: &'static str) -> Result<(), CommitLogError> {
        match self.damage {
            DamagePolicy::Refuse => Err(CommitLogError::Damaged { path: path.to_path_buf(), offset, reason }),
            DamagePolicy::Skip => {
                warn!(path = %path.display(), offset, reason, "skipping a damaged part of the commit log");
                Ok(())
            }
        }
    }

    pub fn missing(&self, path: &Path) -> Result<(), CommitLogError> {
        match self.damage {
            DamagePolicy::Refuse => Err(CommitLogError::Missing { path: path.to_path_buf() }),
            DamagePolicy::Skip => {
                warn!(path = %path.display(), "going on without a missing file of the commit log");
                Ok(())
            }
        }
    }

    pub fn unstable(&self, path: &Path) -> Result<(), CommitLogError> {
        match self.damage {
            DamagePolicy::Refuse => Err(CommitLogError::Unstable { path: path.to_path_buf() }),
            DamagePolicy::Skip => {
                warn!(path = %path.display(), "two reads of the end of the commit log differ");
                Ok(())
            }
        }
    }

    /// Appends the segment's records to `out`.
    pub fn read(
        &mut self,
        path: &Path,
        bytes: &Bytes,
        segment: u64,
        out: &mut impl Extend<(LogPosition, Bytes)>,
    ) -> Result<SegmentRead, CommitLogError> {
        let layout = match Layout::of(bytes, segment, self.has_headers) {
            Ok(layout) => Some(layout),
            Err(misfit) => {
                self.damaged(path, misfit.offset, misfit.reason)?;
                misfit.layout
            }
        };
        let Some(layout) = layout else {
            return Ok(SegmentRead { has_groups: false, layout: None, is_blank: false });
        };
        let file = SegmentBytes { path, bytes, segment, layout };
        let mut offset = layout.first_group();
        let mut has_groups = false;
        loop {
            let next = file
                .group_at(offset)
                .filter(|group| self.expected.is_none_or(|expected| group.header.sequence == expected));
            let group = match next {
                Some(group) => group,
                None => match self.after_gap(file, offset, has_groups)? {
                    Some(group) => group,
                    None => break,
                },
            };
            let payload = bytes.slice(group.payload..group.payload_end());
            match records(&payload, group.header.records) {
                Some(records) => out.extend(records.into_iter().map(|(offset, record)| {
                    (LogPosition { segment, offset: (group.payload + offset) as u64 }, record)
                })),
                None => self.damaged(path, group.offset as u64, "the lengths of its records do not fit")?,
            }
            // The greatest possible number is the result of damage that the checksum does not detect. No group follows it.
            self.expected = Some(group.header.sequence.saturating_add(1));
            offset = group.end();
            has_groups = true;
        }
        if has_groups {
            self.stopped_at =
                Some(Stop { path: path.to_path_buf(), offset: offset as u64, bytes: bytes.clone() });
        }
        let is_blank = !has_groups && file.find_group(layout.first_group()).is_none();
        Ok(SegmentRead { has_groups, layout: Some(layout), is_blank })
    }

    /// Handles a place without the expected group: `None` at the end of the segment, else damage and the group to continue with.
    fn after_gap(
        &self,
        file: SegmentBytes<'_>,
        offset: usize,
        has_groups: bool,
    ) -> Result<Option<CompleteGroup>, CommitLogError> {
        let mut later = file.find_group(offset);
        if !has_groups
            && let (Some(found), Some(stop)) = (later, &self.stopped_at)
            && Some(found.header.segment_first_sequence) != self.expected
        {
            // A segment is begun only after the log before it was synced. But this one does not continue where reading stopped.
            self.damaged(&stop.path, stop.offset, "groups are missing before the next segment")?;
            return Ok(later);
        }
        while let Some(group) = later {
            if is_witness(&group.header, self.expected) {
                self.damaged(file.path, offset as u64, "an unreadable group is followed by later ones")?;
                return Ok(Some(group));
            }
            later = file.find_group(group.end());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{GROUP_HEADER_BYTES, Salt, SegmentHeader, seal, segment_header};
    use super::super::version_1;
    use super::*;

    /// Found by fuzzing: a group with the greatest sequence number.
    #[test]
    fn a_group_with_the_greatest_number_is_read_without_overflow() {
        let record = [3, 0, 0, 0, b'a', b'b', b'c'];
        let header = GroupHeader {
            payload_length: record.len() as u32,
            records: 1,
            segment: 1,
            sequence: u64::MAX,
            durable_sequence: 0,
            segment_first_sequence: u64::MAX,
        };
        let old = version_1::sealed(&header, &record);
        let salt = Salt(7);
        let mut new = segment_header(&SegmentHeader { segment: 1, salt, length: 0 });
        let mut group = vec![0; GROUP_HEADER_BYTES];
        group.extend_from_slice(&record);
        seal(&mut group, &header, salt).unwrap();
        new.extend_from_slice(&group);
        for bytes in [old, new] {
            let read = read_segment(&Bytes::from(bytes), 1).unwrap();
            assert_eq!(read.len(), 1);
            assert_eq!(read[0].1[..], *b"abc");
        }
    }
}
