//! Waiting for room on the disk.
//!
//! A full disk is no failure of the log: nothing is lost while the log waits. What was appended stays in memory, nothing new is
//! acknowledged, and ordinary writes are refused. The log tries again every second.
//!
//! * The next segment cannot be prepared: the log still writes into the present one, for the few records that must not wait.
//! * A group cannot be written, although room was reserved for it. Its bytes are written again, at the same place. A failed *sync* is
//!   another matter: it may have lost what was written, so the log fails.

use std::cell::{Cell, RefCell};

use super::error::CommitLogError;
use helenus_io::DiskError;

/// Attempts before a log that is being closed gives up.
const ATTEMPTS_OF_CLOSING: u32 = 3;

/// The operation for which the log has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Segment = 1,
    Group = 2,
}

/// Whether the log has room.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// A bit for each present [`Shortage`].
    shortages: Cell<u8>,
    error: RefCell<Option<DiskError>>,
    attempts_of_closing: Cell<u32>,
    /// Files for reuse are given up.
    pub is_scarce: Cell<bool>,
}

impl Room {
    #[inline]
    pub fn is_short(&self) -> bool {
        self.shortages.get() != 0
    }

    /// The error of the last attempt while the log waits.
    pub fn error(&self) -> Option<CommitLogError> {
        self.error.borrow().clone().map(CommitLogError::NoRoom)
    }

    /// An attempt has failed. Returns an error if the log is being closed and further attempts are pointless.
    pub fn note_shortage(
        &self,
        shortage: Shortage,
        error: DiskError,
        is_closing: bool,
    ) -> Result<(), CommitLogError> {
        if !self.is_short() {
            tracing::warn!(%error, "the commit log waits for room on the disk");
        }
        self.shortages.set(self.shortages.get() | shortage as u8);
        self.error.replace(Some(error.clone()));
        if is_closing {
            self.attempts_of_closing.set(self.attempts_of_closing.get() + 1);
            if self.attempts_of_closing.get() >= ATTEMPTS_OF_CLOSING {
                return Err(CommitLogError::NoRoom(error));
            }
        }
        Ok(())
    }

    /// An attempt has succeeded. Returns whether that was the last shortage.
    pub fn end_shortage(&self, shortage: Shortage) -> bool {
        if self.shortages.get() & shortage as u8 == 0 {
            return false;
        }
        self.shortages.set(self.shortages.get() & !(shortage as u8));
        if self.is_short() {
            return false;
        }
        tracing::info!("the commit log has room on the disk again");
        self.error.replace(None);
        true
    }
}
