//! What operators do about compactions at run time: see what is under way, stop it, keep a table from being compacted, change the
//! rate, bring files to the present format. None of it outlives the process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::compact::Busy;
use super::state::Shard;
use crate::compaction::{DroppedRanges, Merge, Progress, Split};
use crate::error::EngineError;
use crate::mutation::TableId;

/// What a compaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionKind {
    /// The strategy chose it, or an operator asked for one.
    Compaction,
    /// Tokens that the shard has lost are removed.
    Cleanup,
    /// A file is rewritten in the present format.
    Upgrade,
}

/// A compaction that is under way.
#[derive(Debug, Clone)]
pub struct RunningCompaction {
    pub table: TableId,
    pub kind: CompactionKind,
    pub progress: Arc<Progress>,
    /// On the monotonic clock.
    pub begun: Duration,
}

/// The compactions of a shard that are under way, and the tables that are left alone.
#[derive(Debug, Default)]
pub(super) struct CompactionControl {
    running: Rc<RefCell<BTreeMap<u64, RunningCompaction>>>,
    next: Cell<u64>,
}

/// An entry of the list of compactions under way, until it is dropped.
pub(super) struct Listed {
    running: Rc<RefCell<BTreeMap<u64, RunningCompaction>>>,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.running.borrow_mut().remove(&self.number);
    }
}

impl CompactionControl {
    pub fn list(&self, running: RunningCompaction) -> Listed {
        let number = self.next.replace(self.next.get() + 1);
        self.running.borrow_mut().insert(number, running);
        Listed { running: Rc::clone(&self.running), number }
    }

    /// Whether a compaction of at least this many bytes is under way.
    pub fn has_large(&self, bytes: u64) -> bool {
        self.running.borrow().values().any(|running| running.progress.total_bytes() >= bytes)
    }
}

impl Shard {
    /// The compactions that are under way, in the order in which they began.
    pub fn running_compactions(&self) -> Vec<RunningCompaction> {
        self.compaction_control.running.borrow().values().cloned().collect()
    }

    /// Stops the compactions under way, of one table or of all. They end soon, and their inputs stay. Those that the strategy chose are
    /// chosen again after a while. Returns their number.
    pub fn stop_compactions(&self, table: Option<TableId>) -> usize {
        let running = self.compaction_control.running.borrow();
        let stopped = running.values().filter(|running| table.is_none_or(|id| id == running.table));
        stopped.inspect(|running| running.progress.stop()).count()
    }

    /// Whether the strategy of a table chooses compactions. True after each start.
    pub fn set_auto_compaction(&self, id: TableId, is_enabled: bool) -> Result<(), EngineError> {
        self.table(id)?.is_auto_compacted.set(is_enabled);
        self.signals.want_compaction();
        Ok(())
    }

    pub fn has_auto_compaction(&self, id: TableId) -> Result<bool, EngineError> {
        Ok(self.table(id)?.is_auto_compacted.get())
    }

    /// The bytes a second that compactions of this shard may write together. `None`: no limit.
    pub fn set_compaction_rate(&self, bytes_per_second: Option<u64>) {
        self.compaction_limiter.set(bytes_per_second);
    }

    pub fn compaction_rate(&self) -> Option<u64> {
        self.compaction_limiter.bytes_per_second()
    }

    /// Rewrites the files of a table that are of a former format, or all of them. Returns the number of files. Files that a compaction is
    /// reading are left out: it writes the present format.
    pub async fn upgrade_files(&self, id: TableId, all: bool) -> Result<usize, EngineError> {
        self.check_open()?;
        let table = self.table(id)?;
        let is_wanted = |file: &super::table_state::LiveFile| {
            !file.is_busy.get() && (all || !file.reader.is_of_present_version())
        };
        let files: Vec<_> = table
            .files
            .borrow()
            .iter()
            .filter(|file| is_wanted(file))
            .map(|file| file.place.generation)
            .collect();
        let mut rewritten = 0;
        for generation in files {
            // The file may have gone or been chosen meanwhile.
            let found = table.files.borrow().iter().find(|file| file.place.generation == generation).cloned();
            let Some(file) = found.filter(|file| !file.is_busy.get()) else { continue };
            let merge =
                Merge { inputs: vec![generation], output_level: file.place.level, split: Split::Never };
            let busy = Busy::new(vec![file]);
            self.rewrite(&table, &merge, busy, DroppedRanges::default(), CompactionKind::Upgrade).await?;
            rewritten += 1;
        }
        Ok(rewritten)
    }
}
