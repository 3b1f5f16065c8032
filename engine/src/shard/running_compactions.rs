//! The list of a shard's compactions that are under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::CompactionProgress;
use crate::io::JobKind;
use crate::mutation::TableId;

/// The purpose of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionKind {
    /// The strategy chose it, or an operator asked for one.
    Compaction,
    /// Tokens that the shard has lost are removed.
    Cleanup,
    /// A file is rewritten in the present format.
    Upgrade,
    /// A file is rewritten without what other files shadow.
    GarbageCollection,
    /// An index of a file is made.
    IndexBuild,
    Scrub,
}

/// A compaction that is under way.
#[derive(Debug, Clone)]
pub struct RunningCompaction {
    pub table: TableId,
    pub kind: CompactionKind,
    pub progress: Arc<CompactionProgress>,
    /// The threads that it has, or waits for.
    pub job: JobKind,
    /// On the monotonic clock.
    pub begun: Duration,
}

/// The compactions of a shard that are under way.
#[derive(Debug, Default)]
pub(super) struct RunningCompactions {
    by_number: Rc<RefCell<BTreeMap<u64, RunningCompaction>>>,
    next: Cell<u64>,
}

/// An entry of the list of compactions under way, until it is dropped.
pub(super) struct Listed {
    by_number: Rc<RefCell<BTreeMap<u64, RunningCompaction>>>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.by_number.borrow_mut().remove(&self.number);
    }
}

impl RunningCompactions {
    pub fn list(&self, running: RunningCompaction) -> Listed {
        let number = self.next.replace(self.next.get() + 1);
        self.by_number.borrow_mut().insert(number, running);
        Listed { by_number: Rc::clone(&self.by_number), number }
    }

    /// All, in the order in which they began.
    pub fn all(&self) -> Vec<RunningCompaction> {
        self.by_number.borrow().values().cloned().collect()
    }

    /// Whether a compaction of at least this many bytes has the threads for long work, or waits for them.
    pub fn has_large(&self, bytes: u64) -> bool {
        let is_large = |running: &RunningCompaction| {
            running.job == JobKind::Long && running.progress.total_bytes() >= bytes
        };
        self.by_number.borrow().values().any(is_large)
    }
}
