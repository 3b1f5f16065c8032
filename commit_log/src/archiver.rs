//! The part of the log's task that copies complete segments to the archive, in their order.
//!
//! Invariants:
//! * A segment is copied when no group of it will be written any more, and leaves the log only after its copy is durable.
//! * A failure, or an archive that is slow or hangs, keeps no record waiting. The segments stay in the log, and the copy is tried again.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use super::archive;
use super::error::CommitLogError;
use super::log::CommitLog;
use super::options::ArchiveOptions;
use super::segments::{Role, file_path};
use helenus_io::Disk;

/// Pause before a copy that failed is tried again.
const COPY_RETRY_PAUSE: Duration = Duration::from_secs(10);

impl CommitLog {
    /// Copies segments until everything is written. What is not copied then, the next process copies.
    pub(super) async fn keep_archive(&self, disk: Arc<dyn Disk>, log: PathBuf) -> Result<(), CommitLogError> {
        let Some(options) = &self.options.archive else { return Ok(()) };
        let ended = self.archive.wanted.wait(|| self.all_written.get());
        let copying = std::pin::pin!(self.copy_segments(options, disk, &log));
        select(std::pin::pin!(ended), copying).await;
        self.archive.changed.notify();
        Ok(())
    }

    async fn copy_segments(&self, options: &ArchiveOptions, disk: Arc<dyn Disk>, log: &Path) {
        // The disk of the copies, and their directory once it is made.
        let mut target = None;
        loop {
            self.archive.wanted.wait(|| self.next_to_archive().is_some()).await;
            let Some(number) = self.next_to_archive() else { continue };
            let segment = file_path(log, Role::Segment, number);
            let copied = async {
                let (disk, directory) = if let Some(target) = &target {
                    target
                } else {
                    // A slow or hanging archive must not hold up the log.
                    let beside = disk.beside("archive")?;
                    let directory = archive::make_directory(&*beside, options).await?;
                    target.insert((beside, directory))
                };
                archive::copy(&**disk, &segment, number, directory).await
            };
            let failure = copied.await.err();
            let has_failed = failure.is_some();
            if let Some(error) = &failure {
                tracing::warn!(
                    %error,
                    segment = %segment.display(),
                    waiting = self.unarchived_segments(),
                    "a segment of the commit log could not be archived; it stays in the log until it is"
                );
            } else {
                self.archive.done_to.set(number);
                self.segment_wanted.notify();
            }
            let attempts = self.archive.attempts.get() + 1;
            self.archive.attempts.set(attempts);
            self.archive.failure.replace(failure);
            self.archive.changed.notify();
            if has_failed {
                let asked = self.archive.wanted.wait(|| self.archive.asked_at.get() == attempts);
                select(std::pin::pin!(asked), self.clock.sleep(COPY_RETRY_PAUSE)).await;
            }
        }
    }

    /// Ends the segment that is written to, and returns when it and all before it have their copies. Without an archive it does nothing. An
    /// error says why a segment could not be copied; it stays in the log.
    pub async fn archive_all(self: &Rc<Self>) -> Result<(), CommitLogError> {
        if self.options.archive.is_none() {
            return Ok(());
        }
        // The present segment may be the last one that there is room for.
        self.check_room()?;
        let last = self.end_segment()?;
        self.work.notify();
        let lacks_room = self.space.wait(|| self.lacks_room());
        if let Either::Left((durable, _)) = select(self.on_disk(last), std::pin::pin!(lacks_room)).await {
            durable?;
        }
        self.check_room()?;
        let attempts = self.archive.attempts.get();
        self.archive.asked_at.set(attempts);
        self.archive.wanted.notify();
        let is_done = || self.next_to_archive().is_none_or(|next| next > last.segment);
        let has_failed = || self.archive.attempts.get() > attempts && self.archive.failure.borrow().is_some();
        let is_over = || self.failure().is_some() || self.all_written.get();
        self.archive.changed.wait(|| is_done() || has_failed() || is_over()).await;
        if is_done() {
            return Ok(());
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let failure = self.archive.failure.borrow().clone();
        Err(failure.map_or(CommitLogError::Closed, CommitLogError::from))
    }

    fn check_room(&self) -> Result<(), CommitLogError> {
        self.room.error().map_or(Ok(()), Err)
    }

    /// Segments that wait for their copies, that which is being written not counted.
    pub fn unarchived_segments(&self) -> usize {
        match self.options.archive {
            Some(_) => self.complete_segments(self.archive.done_to.get(), |segments| segments.count()),
            None => 0,
        }
    }

    /// Whether a segment may leave the log, as far as the archive is concerned.
    pub(super) fn is_archived(&self, number: u64) -> bool {
        self.options.archive.is_none() || number <= self.archive.done_to.get()
    }

    fn next_to_archive(&self) -> Option<u64> {
        self.complete_segments(self.archive.done_to.get(), |segments| segments.next())
    }
}
