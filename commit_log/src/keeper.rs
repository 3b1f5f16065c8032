//! The part of the log's task that keeps its files: one segment is prepared ahead of the writer, and released segments leave the
//! log, oldest first. While the disk is full, both wait and try again.

use std::time::Duration;

use futures::future::select;

use super::error::CommitLogError;
use super::log::CommitLog;
use super::room::Shortage;
use super::segments::Files;
use helenus_io::DiskError;

/// Pause before the disk is tried again.
const DISK_RETRY_PAUSE: Duration = Duration::from_secs(1);

impl CommitLog {
    /// Waits before the next attempt. The wait ends early when `has_changed` holds, which `segment_wanted` announces. Fails if
    /// the log is being closed and further attempts are pointless.
    pub(super) async fn wait_for_room(
        &self,
        shortage: Shortage,
        error: DiskError,
        has_changed: impl Fn() -> bool,
    ) -> Result<(), CommitLogError> {
        let noted = self.room.note_shortage(shortage, error, self.is_closing());
        // Writers that wait for the log are refused.
        self.space.notify();
        noted?;
        self.pause_for_room(has_changed).await;
        Ok(())
    }

    /// Waits before the next attempt. The wait ends early when `has_changed` holds.
    async fn pause_for_room(&self, has_changed: impl Fn() -> bool) {
        let was_closing = self.is_closing();
        let ended = self.segment_wanted.wait(|| has_changed() || self.is_closing() != was_closing);
        select(std::pin::pin!(ended), self.clock.sleep(DISK_RETRY_PAUSE)).await;
    }

    /// An attempt has succeeded.
    pub(super) fn found_room(&self, shortage: Shortage) {
        if self.room.end_shortage(shortage) {
            self.space.notify();
        }
    }

    /// The oldest segment, if it is released. One with durable groups stays: the numbers of groups would begin anew after a crash, and
    /// those in the archive would have no successors.
    fn unneeded_segment(&self) -> Option<u64> {
        let state = self.state.borrow();
        let oldest = *state.live.front()?;
        let has_successor = || state.live.iter().skip(1).any(|segment| self.has_durable_groups(*segment));
        (oldest < state.needed_from && self.is_archived(oldest) && has_successor()).then_some(oldest)
    }

    fn needs_segment(&self) -> bool {
        !self.all_written.get() && self.state.borrow().prepared.is_none()
    }

    /// How many files are kept for reuse.
    fn spares_max(&self) -> usize {
        let most = self.options.spare_segments_max;
        if self.room.is_scarce.get() { most.min(1) } else { most }
    }

    /// Keeps the files until everything is written and every released segment has left the log.
    pub(super) async fn keep_segments(&self, mut files: Files) -> Result<(), CommitLogError> {
        let mut next = self.first_new;
        loop {
            let has_too_many_spares = || files.spares.len() > self.spares_max();
            self.segment_wanted
                .wait(|| {
                    self.all_written.get()
                        || self.needs_segment()
                        || self.unneeded_segment().is_some()
                        || has_too_many_spares()
                })
                .await;
            if self.all_written.get() && self.unneeded_segment().is_none() {
                return Ok(());
            }
            files.spares_max = self.spares_max();
            let mut shortage = None;
            if self.needs_segment() {
                let is_first = next == self.first_new;
                let hurry = || is_first || self.writer_waits.get() || self.is_closing();
                match files.prepare(next, hurry).await {
                    Ok(prepared) => {
                        next += 1;
                        let mut state = self.state.borrow_mut();
                        state.newest = state.newest.max(prepared.number);
                        state.prepared = Some(prepared);
                        drop(state);
                        self.found_room(Shortage::Segment);
                        self.segment_ready.notify();
                    }
                    Err(error) if error.is_full() => shortage = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            let mut has_retired = false;
            if let Some(oldest) = self.unneeded_segment() {
                match files.retire(oldest).await {
                    Ok(()) => {
                        self.state.borrow_mut().live.pop_front();
                        has_retired = true;
                    }
                    Err(error) if error.is_full() => {
                        tracing::warn!(%error, "a released segment of the commit log could not be removed");
                        self.pause_for_room(|| false).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if files.spares.len() > files.spares_max {
                files.give_up_spares().await?;
            }
            // The next segment may reuse a file that has just left the log.
            if let Some(error) = shortage.filter(|_| !has_retired) {
                let has_changed = || self.all_written.get() || self.unneeded_segment().is_some();
                self.wait_for_room(Shortage::Segment, error, has_changed).await?;
            }
        }
    }
}
