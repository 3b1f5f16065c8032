//! Failed compactions: kept by table or by file, tried again after a pause that doubles, and reported.
//!
//! A damaged input is the file's own trouble: the file is left alone, and the others of its table are compacted without it. Any other
//! failure (a full disk, an error while writing) concerns all compactions of the table.

use std::time::Duration;

use super::names::file_name;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::mutation::TableId;
use crate::table::TableError;

/// The pause after the first failure, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// The last failure of a table or file, and when the compaction is tried again.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    attempts: u32,
    /// On the monotonic clock.
    retry_at: Duration,
    reason: String,
}

impl Failure {
    fn after(before: Option<&Self>, reason: String, now: Duration) -> Self {
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let doubled = FIRST_PAUSE.saturating_mul(1 << (attempts - 1).min(16));
        Self { attempts, retry_at: now + doubled.min(LONGEST_PAUSE), reason }
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.retry_at
    }
}

/// What a failure is kept with.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let mut failure = None;
        let mut pauses = Vec::new();
        for _ in 0..14 {
            let next = Failure::after(failure.as_ref(), "full".to_owned(), Duration::from_secs(100));
            pauses.push(next.retry_at.as_secs() - 100);
            failure = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
    }
}
