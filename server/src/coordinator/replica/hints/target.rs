//! What a shard keeps in memory about the hints for one member: how many bytes, and from where on they lie.
//!
//! Invariant: no hint lies before the cursor, in whatever order hints are written and delivered.

use std::cell::{Cell as Flag, RefCell};
use std::rc::Rc;

/// The hints for one member.
#[derive(Default)]
pub(super) struct Target {
    /// Counted: of hints that are there or on their way. Now and then more: one that is written while the start counts is counted
    /// twice, and one whose writer is given up may be counted and not there.
    pub(super) bytes: Flag<u64>,
    pub(super) is_delivering: Flag<bool>,
    /// Before it there are none.
    pub(super) cursor: RefCell<Vec<u8>>,
    /// The first that was written since the last chunk was read.
    first_written: RefCell<Option<Vec<u8>>>,
    /// Hints that are counted and may not be written yet.
    pub(super) writing: Flag<usize>,
}

/// A hint on its way: it is counted before it is written.
pub(super) struct Writing(Rc<Target>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.set(self.0.writing.get() - 1);
    }
}

impl Target {
    pub(super) fn begin_writing(self: &Rc<Self>) -> Writing {
        self.writing.set(self.writing.get() + 1);
        Writing(self.clone())
    }

    /// A hint comes to lie at this position; in the turn in which it is written. It may lie before others: it was kept by who has
    /// left, or the clock has been set back since the last run.
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

    /// Where the next chunk begins.
    pub(super) fn begin_chunk(&self) -> Vec<u8> {
        self.first_written.take();
        self.cursor.borrow().clone()
    }

    /// What was read up to there is delivered.
    pub(super) fn move_cursor(&self, position: Vec<u8>) {
        *self.cursor.borrow_mut() = match self.first_written.take() {
            Some(first) => first.min(position),
            None => position,
        };
    }
}
