//! Cleanup: files are rewritten without the tokens that this shard does not own any more.
//!
//! Each file is rewritten alone, by a compaction with one input and the same level, so the change of the manifest is the
//! moment at which it has happened; a crash before it leaves the old file, a crash after it the new one.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use super::compact::Busy;
use super::state::Shard;
use crate::compaction::{Choice, DroppedRanges};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::{JobKind, run_in_background};
use crate::mutation::TableId;

/// What [`Shard::drop_ranges`] has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files that held some of the tokens and were rewritten or removed.
    pub rewritten_files: usize,
    /// Files that a compaction was reading: they, or what it makes of them, still have to be looked at.
    pub busy_files: usize,
}

impl Shard {
    /// Removes the tokens in `ranges` from the files that the table has in the turn in which the returned future is polled
    /// first. What is in memory, or written later, stays: call [`Shard::flush`] before. To be called again as long as
    /// [`Dropped::busy_files`] is not 0.
    pub async fn drop_ranges(
        &self,
        id: TableId,
        ranges: &[RangeInclusive<i64>],
    ) -> Result<Dropped, EngineError> {
        self.check_open()?;
        let table = self.table(id)?;
        let dropped = DroppedRanges::new(ranges);
        let mut outcome = Dropped::default();
        if dropped.is_empty() {
            return Ok(outcome);
        }
        let (busy, idle): (Vec<_>, Vec<_>) =
            table.files.borrow().iter().cloned().partition(|file| file.is_busy.get());
        outcome.busy_files = busy.len();
        // All are taken now: those that wait for their turn must not be merged with what is written meanwhile.
        let taken: Vec<Busy> = idle.into_iter().map(|file| Busy::new(vec![file])).collect();
        for busy in taken {
            let [file] = busy.files.as_slice() else {
                return Err(broken!("a file that is cleaned up is taken alone").into());
            };
            let file = Rc::clone(file);
            let (looked, reader) = (dropped.clone(), Arc::clone(&file.reader));
            let is_touched = run_in_background(&*self.environment.background, JobKind::Long, move |_| {
                Box::pin(async move { looked.touch(&reader) })
            })
            .await??;
            if !is_touched {
                continue;
            }
            let choice = Choice {
                inputs: vec![file.place.generation],
                output_level: file.place.level,
                max_output_bytes: None,
            };
            self.rewrite(&table, &choice, busy, dropped.clone()).await?;
            outcome.rewritten_files += 1;
        }
        Ok(outcome)
    }
}
