//! Cleanup: rewrites files without the tokens that this shard has lost.
//!
//! Each file is rewritten by a compaction with one input and the same level. It takes effect with the change of the manifest: a
//! crash before leaves the old file, a crash after it the new one.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use super::compact::{Busy, Rewrite};
use super::running_compactions::CompactionKind;
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::Change;
use crate::compaction::{DroppedRanges, LeftOut, Merge, Split};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::{JobKind, run_in_background};
use crate::manifest::TokenSpan;
use crate::mutation::TableId;
use crate::table::TableError;

/// The result of [`Shard::drop_ranges`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files that contained some of the tokens and were rewritten or removed.
    pub rewritten_files: usize,
    /// Files that a compaction was reading, or whose successor was not installed because the table got files from a snapshot. They, or what
    /// takes their place, still have to be cleaned up.
    pub busy_files: usize,
}

impl Shard {
    /// Removes the tokens in `ranges` from the files that the table has when the returned future is first polled. Data in memory, and
    /// data written later, stays: call [`Shard::flush`] before. Call it again while [`Dropped::busy_files`] is not 0.
    pub async fn drop_ranges(
        &self,
        id: TableId,
        ranges: &[RangeInclusive<i64>],
    ) -> Result<Dropped, EngineError> {
        self.drop_all_of(id, ranges, DroppedRanges::new(ranges)).await
    }

    /// As [`Shard::drop_ranges`], only of the rows at these positions of their partitions.
    pub async fn drop_rows_at(
        &self,
        id: TableId,
        ranges: &[RangeInclusive<i64>],
        positions: Vec<Vec<u8>>,
    ) -> Result<Dropped, EngineError> {
        self.drop_all_of(id, ranges, DroppedRanges::new(ranges).only_at(positions)).await
    }

    async fn drop_all_of(
        &self,
        id: TableId,
        ranges: &[RangeInclusive<i64>],
        dropped: DroppedRanges,
    ) -> Result<Dropped, EngineError> {
        self.check_open()?;
        let table = self.table(id)?;
        let mut outcome = Dropped::default();
        if dropped.is_empty() {
            return Ok(outcome);
        }
        // Rows of these ranges in a file that cannot be read would come back with the ranges.
        for range in ranges {
            let tokens = TokenSpan { first: *range.start(), last: *range.end() };
            if table.has_damage() && range.start() <= range.end() {
                table.check_spans(tokens)?;
            }
        }
        let files = table.files.borrow().clone();
        let concerned = files.into_iter().filter(|file| dropped.may_touch(&file.reader));
        let (busy, mut idle): (Vec<_>, Vec<_>) = concerned.partition(|file| file.is_busy.get());
        outcome.busy_files = busy.len();
        // On a disk that is nearly full the small ones may still have room.
        idle.sort_by_key(|file| file.reader.file_bytes());
        let cleaned = self.drop_in_files(&table, idle, dropped).await;
        self.look_at_backlog(&table, Change::Other);
        let cleaned = cleaned?;
        outcome.rewritten_files = cleaned.rewritten_files;
        outcome.busy_files += cleaned.busy_files;
        Ok(outcome)
    }

    /// Cleans up files one after the other. Those that fail do not hold up the others; the first error is returned.
    async fn drop_in_files(
        &self,
        table: &TableState,
        files: Vec<Rc<LiveFile>>,
        dropped: DroppedRanges,
    ) -> Result<Dropped, EngineError> {
        let (mut outcome, mut first_error) = (Dropped::default(), None);
        // All files are marked busy now: none of them may be merged with newer data while it waits.
        let taken: Vec<Busy> = files.into_iter().map(|file| Busy::new(vec![file])).collect();
        for busy in taken {
            self.check_open()?;
            match self.drop_in_file(table, busy, &dropped).await {
                Ok(None) => {}
                Ok(Some(true)) => outcome.rewritten_files += 1,
                Ok(Some(false)) => outcome.busy_files += 1,
                // An operator wants an end of all of it.
                Err(error @ EngineError::Table(TableError::Stopped)) => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(outcome), Err)
    }

    /// Cleans up one file. Returns whether its successor was installed; `None`: it has nothing of the ranges.
    async fn drop_in_file(
        &self,
        table: &TableState,
        busy: Busy,
        dropped: &DroppedRanges,
    ) -> Result<Option<bool>, EngineError> {
        let [file] = busy.files.as_slice() else {
            return Err(broken!("a file that is cleaned up is taken alone").into());
        };
        let file = Rc::clone(file);
        let (looked, reader) = (dropped.clone(), Arc::clone(&file.reader));
        let is_touched = run_in_background(&*self.environment.background, JobKind::Short, move |_| {
            Box::pin(async move { looked.touch(&reader) })
        })
        .await??;
        if !is_touched {
            return Ok(None);
        }
        let merge = Merge {
            inputs: vec![file.place.generation],
            output_level: file.place.level,
            split: Split::Never,
        };
        let left_out = LeftOut { tokens: dropped.clone(), ..LeftOut::default() };
        let purpose = Rewrite { left_out, ..Rewrite::of(CompactionKind::Cleanup) };
        self.rewrite(table, &merge, busy, purpose).await.map(Some)
    }
}
