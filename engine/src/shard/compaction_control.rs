//! What operators do about compactions at run time: see what is under way, stop it, keep a table from being compacted, change the
//! rate, bring files to the present format, free what deletions keep from readers. None of it outlives the process.

use std::rc::Rc;
use std::sync::Arc;

use super::compact::{Busy, Rewrite};
use super::running_compactions::{CompactionKind, RunningCompaction};
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::Change;
use crate::compaction::{GarbageSources, Granularity, LeftOut, Merge, Split};
use crate::error::EngineError;
use crate::io::RateLimiter;
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

    /// The bytes a second that compactions of all shards of the node may write together.
    pub fn compaction_rate(&self) -> &RateLimiter {
        &self.options.common.compaction_rate
    }

    /// Rewrites the files of a table that are of a former format, or all of them. Returns the number of files. Files that a compaction is
    /// reading are left out: it writes the present format.
    pub async fn upgrade_files(&self, id: TableId, all: bool) -> Result<usize, EngineError> {
        self.check_open()?;
        let table = self.table(id)?;
        let files = table.files.borrow().clone();
        let wanted = files.iter().filter(|file| all || !file.reader.is_of_present_version());
        let rewrite = |_: &Rc<LiveFile>| Some(LeftOut::default());
        self.rewrite_each(&table, generations(wanted), CompactionKind::Upgrade, rewrite).await
    }

    /// Flushes a table, and rewrites each of its files without what other files shadow. Returns the number of files that were rewritten: a
    /// file of which nothing can go stays as it is, and so does one that a compaction is reading. The oldest come first: what
    /// shadowed them may be purged when its own file is rewritten.
    pub async fn collect_garbage(&self, id: TableId, granularity: Granularity) -> Result<usize, EngineError> {
        self.flush(id).await?;
        let table = self.table(id)?;
        let mut files = table.files.borrow().clone();
        files.sort_by_key(|file| (file.reader.statistics().max_timestamp, file.place.generation));
        let left_out = |file: &Rc<LiveFile>| {
            let files = table.files.borrow();
            // What is wrong with a file is found out by those who verify it.
            let others = files
                .iter()
                .filter(|other| !Rc::ptr_eq(other, file) && other.damage.borrow().is_none())
                // A compaction under way may have decided already that its deletions shadow nothing any more.
                .filter(|other| !other.is_busy.get())
                .map(|other| Arc::clone(&other.reader));
            let garbage = GarbageSources::of(&file.reader, others, granularity);
            let can_shrink = !garbage.is_empty() || self.has_own_garbage(&table, file);
            (can_shrink && file.damage.borrow().is_none()).then(|| LeftOut { garbage, ..LeftOut::default() })
        };
        let generations = generations(files.iter());
        self.rewrite_each(&table, generations, CompactionKind::GarbageCollection, left_out).await
    }

    /// Whether any rewrite of the file may leave something out.
    fn has_own_garbage(&self, table: &TableState, file: &LiveFile) -> bool {
        let now_seconds = self.environment.clock.now_seconds();
        !table.options.borrow().dropped_columns.is_empty()
            || table.droppable_ratio(file.reader.statistics(), now_seconds) > 0.0
    }

    /// Rewrites files of a table one after the other, without what `left_out` says when their turn comes; `None`: the file stays as it is.
    /// Files that have gone by then, or that a compaction is reading, are passed over.
    async fn rewrite_each(
        &self,
        table: &TableState,
        generations: Vec<u64>,
        kind: CompactionKind,
        left_out: impl Fn(&Rc<LiveFile>) -> Option<LeftOut>,
    ) -> Result<usize, EngineError> {
        let mut rewritten = 0;
        for generation in generations {
            self.check_open()?;
            let found = table.files.borrow().iter().find(|file| file.place.generation == generation).cloned();
            let Some(file) = found.filter(|file| !file.is_busy.get()) else { continue };
            let Some(left_out) = left_out(&file) else { continue };
            let merge =
                Merge { inputs: vec![generation], output_level: file.place.level, split: Split::Never };
            let purpose = Rewrite { left_out, ..Rewrite::of(kind) };
            let outcome = self.rewrite(table, &merge, Busy::new(vec![file]), purpose).await;
            self.look_at_backlog(table, Change::Other);
            rewritten += usize::from(outcome?);
        }
        Ok(rewritten)
    }
}

fn generations<'a>(files: impl Iterator<Item = &'a Rc<LiveFile>>) -> Vec<u64> {
    files.map(|file| file.place.generation).collect()
}
