//! What operators do about compactions at run time: see what is under way, stop it, keep a table from being compacted, change the
//! rate, bring files to the present format. None of it outlives the process.

use super::compact::{Busy, Rewrite};
use super::running_compactions::{CompactionKind, RunningCompaction};
use super::state::Shard;
use super::table_state::LiveFile;
use super::write_pressure::Change;
use crate::compaction::{Merge, Split};
use crate::error::EngineError;
use crate::mutation::TableId;

impl Shard {
    /// The compactions that are under way, in the order in which they began.
    pub fn running_compactions(&self) -> Vec<RunningCompaction> {
        self.running_compactions.all()
    }

    /// Stops the compactions under way, of one table or of all. They end soon, and their inputs stay. Those that the strategy chose are
    /// chosen again after a while. Returns their number.
    pub fn stop_compactions(&self, table: Option<TableId>) -> usize {
        let running = self.running_compactions.all().into_iter();
        let stopped = running.filter(|running| table.is_none_or(|id| id == running.table));
        stopped.inspect(|running| running.progress.stop()).count()
    }

    /// Whether the strategy of a table chooses compactions. True after each start.
    pub fn set_auto_compaction(&self, id: TableId, is_enabled: bool) -> Result<(), EngineError> {
        let table = self.table(id)?;
        table.is_auto_compacted.set(is_enabled);
        self.look_at_backlog(&table, Change::Other);
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
        let is_wanted =
            |file: &LiveFile| !file.is_busy.get() && (all || !file.reader.is_of_present_version());
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
            self.rewrite(&table, &merge, busy, Rewrite::of(CompactionKind::Upgrade)).await?;
            rewritten += 1;
        }
        Ok(rewritten)
    }
}
