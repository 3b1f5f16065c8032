//! The report on a shard's compactions for operators: counts, what is due, and what fails and why.

use std::time::Duration;

use super::compaction_counters::{CompactionStatistics, EndedCompaction};
use super::compaction_failures::Failure;
use super::names::file_name;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::mutation::TableId;
use crate::table::TableError;

/// Whether a failure is kept with its table or with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Table,
    Files,
}

/// A failure of a table's compactions, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionFailure {
    /// The file that causes it; `None`: the table as a whole.
    pub file: Option<String>,
    pub attempts: u32,
    pub reason: String,
    /// Time until the next attempt.
    pub retry_in: Duration,
}

/// The compactions of a table, for operators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionReport {
    /// Whether a compaction is due now, or waits after a failure.
    pub is_pending: bool,
    pub failures: Vec<CompactionFailure>,
}

impl TableState {
    /// Keeps the failure of a compaction of these inputs.
    pub fn note_failure(&self, inputs: &[u64], error: &EngineError, now: Duration) -> Subject {
        let damaged = match error {
            EngineError::Table(TableError::Damaged { path, .. }) => Some(path),
            EngineError::Disk(error) | EngineError::Table(TableError::Disk(error))
                if error.is_of_medium() =>
            {
                Some(&error.path)
            }
            _ => None,
        };
        let is_too_large = matches!(error, EngineError::Table(TableError::RowTooLarge { .. }));
        let mut is_kept = false;
        for file in self.files.borrow().iter() {
            let is_input = inputs.contains(&file.place.generation);
            if is_input && (is_too_large || damaged.is_some_and(|path| path == file.reader.path())) {
                let failure = Failure::after(file.failure.borrow().as_ref(), error.to_string(), now);
                file.failure.replace(Some(failure));
                is_kept = true;
            }
        }
        if is_kept {
            return Subject::Files;
        }
        let failure = Failure::after(self.failure.borrow().as_ref(), error.to_string(), now);
        self.failure.replace(Some(failure));
        Subject::Table
    }

    /// The next time, on the monotonic clock, at which a compaction that has failed is tried again.
    pub fn next_retry(&self, now: Duration) -> Option<Duration> {
        let of_table = self.failure.borrow().as_ref().map(|failure| failure.retry_at);
        let files = self.files.borrow();
        let of_files = files.iter().filter_map(|file| Some(file.failure.borrow().as_ref()?.retry_at));
        of_table.into_iter().chain(of_files).filter(|retry| *retry > now).min()
    }
}

impl Shard {
    /// Counts of all compactions since the shard was opened.
    pub fn compaction_statistics(&self) -> CompactionStatistics {
        self.compaction_counters.counts.get()
    }

    /// The last compactions of all tables, the newest first.
    pub fn ended_compactions(&self) -> Vec<EndedCompaction> {
        self.compaction_counters.ended.borrow().clone()
    }

    /// Whether compactions of a table are due, and why some fail.
    pub fn compaction_report(&self, id: TableId) -> Result<CompactionReport, EngineError> {
        let table = self.table(id)?;
        let now = self.environment.clock.monotonic();
        let shown = |failure: &Failure, file: Option<String>| CompactionFailure {
            file,
            attempts: failure.attempts,
            reason: failure.reason.clone(),
            retry_in: failure.retry_at.saturating_sub(now),
        };
        let mut failures: Vec<_> =
            table.failure.borrow().iter().map(|failure| shown(failure, None)).collect();
        for file in table.files.borrow().iter() {
            let name = file_name(file.place.generation);
            failures.extend(file.failure.borrow().iter().map(|failure| shown(failure, Some(name.clone()))));
        }
        let is_pending = !failures.is_empty() || self.choice_of(&table).is_some();
        Ok(CompactionReport { is_pending, failures })
    }
}
