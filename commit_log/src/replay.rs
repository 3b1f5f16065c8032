//! Reading the log after a start, and opening it for appending.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::error::CommitLogError;
use super::format::open_segment;
use super::layout::Layout;
use super::log::{CommitLog, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, Start};
use super::options::CommitLogOptions;
use super::position::LogPosition;
use super::reading::{SegmentRead, SegmentReader};
use super::segments::{Files, LogDirectory, Role, file_path};
use helenus_io::{Clock, Disk, RandomSource};

/// The environment of a log.
#[derive(Clone)]
pub struct LogEnvironment {
    pub disk: Arc<dyn Disk>,
    pub clock: Rc<dyn Clock>,
    pub random: Rc<dyn RandomSource>,
}

/// A segment without groups.
struct EmptySegment {
    number: u64,
    /// Of the whole file as it was read.
    crc32: u32,
    read: SegmentRead,
}

/// A log that is being read. Take all records with [`Replay::next`], then call [`Replay::finish`].
pub struct Replay {
    environment: LogEnvironment,
    directory: PathBuf,
    options: CommitLogOptions,
    has_headers: bool,
    spares: Vec<u64>,
    highest_number: u64,
    /// The segment that was read last.
    previous: Option<u64>,
    to_read: VecDeque<u64>,
    with_groups: VecDeque<u64>,
    without_groups: Vec<EmptySegment>,
    reader: SegmentReader,
    ready: VecDeque<(LogPosition, Bytes)>,
}

impl CommitLog {
    /// Starts reading the log in `directory`, which is created if missing. [`Replay`] describes the next steps.
    ///
    /// `needed_from` is what [`CommitLog::lowest_needed`] returned for the newest manifest: this segment and all later ones must be
    /// there. 0: the manifest does not say.
    pub async fn open(
        environment: LogEnvironment,
        directory: &Path,
        options: CommitLogOptions,
        needed_from: u64,
    ) -> Result<Replay, CommitLogError> {
        Replay::open(environment, directory, options, needed_from).await
    }
}

/// Segments before those that are needed, of which one has groups: the records of the others may never have been written. It is read for
/// the number of the next group. There may be many more, which wait for the archive, and whose records are not needed.
fn unwritten_segments_max(options: &CommitLogOptions) -> u64 {
    // A segment is at least half full.
    4 + 2 * options.unwritten_bytes_max as u64 / options.segment_bytes.max(SEGMENT_BYTES_MIN)
}

impl Replay {
    async fn open(
        environment: LogEnvironment,
        directory: &Path,
        options: CommitLogOptions,
        needed_from: u64,
    ) -> Result<Self, CommitLogError> {
        let disk = &environment.disk;
        disk.create_directory(directory).await?;
        if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            disk.sync_directory(parent).await?;
        }
        // A process that died may have left name changes that are not durable. The names that are visible now must stay.
        disk.sync_directory(directory).await?;
        let LogDirectory { segments, spares, has_headers } = LogDirectory::read(&**disk, directory).await?;
        let reader = SegmentReader::new(options.damage, has_headers);
        if needed_from > 0 && !segments.contains(&needed_from) {
            reader.missing(&file_path(directory, Role::Segment, needed_from))?;
        }
        let read_from = if segments.contains(&needed_from) {
            needed_from.saturating_sub(unwritten_segments_max(&options))
        } else {
            0
        };
        let (released, to_read): (Vec<u64>, Vec<u64>) =
            segments.iter().partition(|segment| **segment < read_from);
        let highest_number = segments.iter().chain(&spares).copied().max().unwrap_or(0);
        Ok(Self {
            environment,
            directory: directory.to_path_buf(),
            options,
            has_headers,
            spares,
            highest_number,
            previous: None,
            to_read: to_read.into(),
            with_groups: released.into(),
            without_groups: Vec::new(),
            reader,
            ready: VecDeque::new(),
        })
    }

    fn path(&self, segment: u64) -> PathBuf {
        file_path(&self.directory, Role::Segment, segment)
    }

    /// The next record in append order, with the position that `append` returned for it.
    pub async fn next(&mut self) -> Result<Option<(LogPosition, Bytes)>, CommitLogError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            let Some(segment) = self.to_read.pop_front() else { return Ok(None) };
            let path = self.path(segment);
            let bytes = self.environment.disk.read(&path).await?;
            let before = self.previous.replace(segment);
            if let Some(before) = before.filter(|before| before + 1 != segment)
                && open_segment(&bytes).is_some()
            {
                // Version 1 left numbers out.
                self.reader.missing(&self.path(before + 1))?;
            }
            let read = self.reader.read(&path, &bytes, segment, &mut self.ready)?;
            if read.has_groups {
                self.take_empty_segments()?;
                self.with_groups.push_back(segment);
            } else {
                self.without_groups.push(EmptySegment {
                    number: segment,
                    crc32: crc32fast::hash(&bytes),
                    read,
                });
            }
        }
    }

    /// The segments without groups that were read so far are followed by one that has some: they are damaged.
    fn take_empty_segments(&mut self) -> Result<(), CommitLogError> {
        if let Some(empty) = self.without_groups.last() {
            let path = self.path(empty.number);
            self.reader.damaged(&path, 0, "a segment without groups precedes one that has some")?;
            // They are skipped. They keep their places in the log and are released in order.
            self.with_groups.extend(self.without_groups.drain(..).map(|empty| empty.number));
        }
        Ok(())
    }

    /// Reads the files again that no later segment confirms. A bit that only one read flips must not pass for the torn end of the
    /// log: the groups behind it would be lost.
    async fn confirm_end(&self) -> Result<(), CommitLogError> {
        let disk = &self.environment.disk;
        if let Some(stop) = &self.reader.stopped_at
            && disk.read(&stop.path).await? != stop.bytes
        {
            self.reader.unstable(&stop.path)?;
        }
        for empty in &self.without_groups {
            let path = self.path(empty.number);
            if crc32fast::hash(&disk.read(&path).await?) != empty.crc32 {
                self.reader.unstable(&path)?;
            }
        }
        Ok(())
    }

    /// Reads the remaining records, makes all that was read durable, and opens the log for appending behind it.
    pub async fn finish(mut self) -> Result<Rc<CommitLog>, CommitLogError> {
        while self.next().await?.is_some() {}
        self.confirm_end().await?;
        // Replayed records may have been written but not synced before the process died. After a failed sync they may be clean in
        // the page cache without being on the disk, and another sync would have no effect. So they are written again, as they were
        // when their checksums were checked.
        if let Some(stop) = self.reader.stopped_at.take() {
            let file = self.environment.disk.open(&stop.path).await?;
            let end = stop.bytes.len().min(stop.offset as usize);
            file.write_and_sync_at(0, stop.bytes.slice(..end)).await?;
        }
        let mut files = Files {
            disk: self.environment.disk,
            random: self.environment.random,
            directory: self.directory,
            spares: self.spares,
            spares_max: self.options.spare_segments_max,
            segment_bytes: self.options.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            has_headers: self.has_headers,
            begun: BTreeMap::new(),
            leaving: None,
        };
        // Segments of version 1 without groups leave the log, newest first. Segments of version 2 without groups stay, because a
        // segment exists until it is released. If such a segment has no complete group at all, the log writes to it. Otherwise it
        // is replaced when its turn comes: its groups are behind the end of the log, and would continue the log once it has grown
        // up to them.
        let is_version_1 = |empty: &EmptySegment| empty.read.layout == Some(Layout::Version1);
        for empty in self.without_groups.iter().rev().filter(|empty| is_version_1(empty)) {
            files.retire(empty.number).await?;
        }
        let mut kept = self.without_groups.iter().filter(|empty| !is_version_1(empty)).peekable();
        let first_new = match (kept.peek(), self.with_groups.back()) {
            (Some(empty), _) => empty.number,
            (None, Some(last)) => last.saturating_add(1),
            (None, None) => self.highest_number.saturating_add(1),
        };
        let mut newest = self.with_groups.back().copied().unwrap_or(0);
        for empty in kept {
            newest = empty.number;
            if let (Some(Layout::Version2 { salt }), true) = (empty.read.layout, empty.read.is_blank) {
                files.begun.insert(empty.number, salt);
            }
        }
        files.discard_misfits().await?;
        let start = Start {
            live: self.with_groups,
            newest,
            first_new,
            next_sequence: self.reader.expected.unwrap_or(1),
        };
        Ok(CommitLog::start(files, self.options, self.environment.clock, start))
    }
}
