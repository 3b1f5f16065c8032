//! The part of the log's task that copies complete segments to the archive, in their order.
//!
//! Invariants:
//! * A segment is copied when no group of it will be written any more, and leaves the log only after its copy is durable.
//! * A failure keeps nobody from writing. The segments stay in the log, and the copy is tried again.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;

use super::archive;
use super::error::CommitLogError;
use super::log::CommitLog;
use super::segments::{Role, file_path};
use crate::io::Disk;

/// Pause before a copy that failed is tried again.
const COPY_RETRY_PAUSE: Duration = Duration::from_secs(10);

impl CommitLog {
    /// Copies segments until everything is written and every complete segment has its copy.
    pub(super) async fn keep_archive(&self, disk: Arc<dyn Disk>, log: PathBuf) -> Result<(), CommitLogError> {
        let Some(directory) = self.options.archive_directory.clone() else { return Ok(()) };
        loop {
            let next = || self.next_to_archive();
            self.archive.wanted.wait(|| self.all_written.get() || next().is_some()).await;
            let Some(number) = next() else { return Ok(()) };
            let segment = file_path(&log, Role::Segment, number);
            let copied = archive::copy(&*disk, &segment, number, &directory).await;
            self.archive.attempts.set(self.archive.attempts.get() + 1);
            let failure = copied.err();
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
            let has_failed = failure.is_some();
            self.archive.failure.replace(failure);
            self.archive.changed.notify();
            if has_failed {
                if self.all_written.get() {
                    return Ok(());
                }
                let attempts = self.archive.attempts.get();
                let is_asked = || self.all_written.get() || self.archive.asked_at.get() == attempts;
                let asked = self.archive.wanted.wait(is_asked);
                select(std::pin::pin!(asked), self.clock.sleep(COPY_RETRY_PAUSE)).await;
            }
        }
    }

    /// Ends the segment that is written to, and returns when all segments have their copies. Without an archive it does nothing. An error
    /// says why a segment could not be copied; it stays in the log.
    pub async fn archive_all(self: &Rc<Self>) -> Result<(), CommitLogError> {
        if self.options.archive_directory.is_none() {
            return Ok(());
        }
        if let Some(last) = self.end_segment()? {
            self.work.notify();
            self.on_disk(last).await?;
        }
        let attempts = self.archive.attempts.get();
        self.archive.asked_at.set(attempts);
        self.archive.wanted.notify();
        let has_failed = || self.archive.attempts.get() > attempts && self.archive.failure.borrow().is_some();
        let is_over = || self.next_to_archive().is_none() || has_failed() || self.failure().is_some();
        self.archive.changed.wait(is_over).await;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        match &*self.archive.failure.borrow() {
            Some(error) if self.next_to_archive().is_some() => Err(error.clone().into()),
            _ => Ok(()),
        }
    }

    /// Segments that wait for their copies, that which is being written not counted.
    pub fn unarchived_segments(&self) -> usize {
        match self.options.archive_directory {
            Some(_) => self.complete_segments_after(self.archive.done_to.get()).count(),
            None => 0,
        }
    }

    /// Whether a segment may leave the log, as far as the archive is concerned.
    pub(super) fn is_archived(&self, number: u64) -> bool {
        self.options.archive_directory.is_none() || number <= self.archive.done_to.get()
    }

    fn next_to_archive(&self) -> Option<u64> {
        self.complete_segments_after(self.archive.done_to.get()).next()
    }
}
