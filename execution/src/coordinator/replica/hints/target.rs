//! The state in memory of the hints for one member: their bytes, and the position of the first one.
//!
//! Invariant: no hint lies before the cursor, in whatever order hints are written and delivered.

use std::cell::{Cell as Flag, RefCell};
use std::rc::Rc;

/// The hints for one member.
#[derive(Default)]
pub(super) struct HintTarget {
    /// Size of the hints that are stored or being written, in bytes. It can be too high: a hint that is written while
    /// the start counts is counted twice, and a hint whose write was abandoned may be counted without being stored.
    pub(super) bytes: Flag<u64>,
    pub(super) is_delivering: Flag<bool>,
    /// Whether an operator waits to give them up: a delivery ends after its chunk.
    pub(super) is_unwanted: Flag<bool>,
    /// There are no hints before this position.
    pub(super) cursor: RefCell<Vec<u8>>,
    /// The lowest position written since the last chunk was read.
    first_written: RefCell<Option<Vec<u8>>>,
    /// Hints that are counted and may not be written yet.
    pub(super) writing: Flag<usize>,
}

/// A hint being written: it is counted before it is written.
pub(super) struct Writing(Rc<HintTarget>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.set(self.0.writing.get() - 1);
    }
}

impl HintTarget {
    pub(super) fn begin_writing(self: &Rc<Self>) -> Writing {
        self.writing.set(self.writing.get() + 1);
        Writing(self.clone())
    }

    /// Records the position of a hint, in the turn in which the hint is written. The position may lie before others:
    /// its mutation was written earlier than theirs, the hint was handed over by a member that left, or the clock has been set back since the last run.
    pub(super) fn note_written(&self, position: &[u8]) {
        let mut cursor = self.cursor.borrow_mut();
        if cursor.as_slice() > position {
            *cursor = position.to_vec();
        }
        let mut first = self.first_written.borrow_mut();
        if first.as_ref().is_none_or(|first| first.as_slice() > position) {
            *first = Some(position.to_vec());
        }
    }

    /// The position at which the next chunk begins.
    pub(super) fn begin_chunk(&self) -> Vec<u8> {
        self.first_written.take();
        self.cursor.borrow().clone()
    }

    /// Records that everything before this position is delivered.
    pub(super) fn move_cursor(&self, position: Vec<u8>) {
        *self.cursor.borrow_mut() = match self.first_written.take() {
            Some(first) => first.min(position),
            None => position,
        };
    }
}
