//! The search for the low mark of a partition, in its rows in clustering order.

use helenus_engine::{DecodeError, Deletion, Purpose, RowRef, key, merge_rows};
use helenus_query::schema::options::{Cap, Standing};

/// A deletion of everything from a position on, up to the last regular row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub start: Vec<u8>,
    /// Microseconds.
    pub timestamp: i64,
}

/// The rows of a partition that were seen, the first ones of it.
pub(super) struct MarkSearch {
    cap: Cap,
    now_seconds: u32,
    /// Rows that the partition keeps.
    kept: u64,
    newest_evicted: Option<i64>,
    /// The newest timestamps of the first and of the last one that was taken.
    evicted_ends: Option<(i64, i64)>,
    /// Behind the last row that the cap lets the partition keep; `None`: it has fewer.
    end: Option<Vec<u8>>,
    /// As `end` and their timestamps, for the caps of before.
    earlier_ends: Vec<Mark>,
    /// Whether a cap of before has evicted something that is still there.
    is_cut: bool,
}

impl MarkSearch {
    pub fn new(cap: Cap, now_seconds: u32) -> Self {
        Self {
            cap,
            now_seconds,
            kept: 0,
            newest_evicted: None,
            evicted_ends: None,
            end: None,
            earlier_ends: Vec::new(),
            is_cut: false,
        }
    }

    /// Rows that the partition may keep besides those that were taken.
    pub fn wanted_rows(&self) -> u64 {
        u64::from(self.cap.rows).saturating_sub(self.kept).max(1)
    }

    /// Behind the last row that the cap lets the partition keep; `None`: it has fewer.
    pub fn end(&self) -> Option<&[u8]> {
        self.end.as_deref()
    }

    /// Takes a row from behind the end.
    pub fn evicted(&mut self, row: RowRef<'_>) -> Result<(), DecodeError> {
        let Some(newest) = row.validate()?.newest() else { return Ok(()) };
        self.newest_evicted = self.newest_evicted.max(Some(newest));
        let first = self.evicted_ends.map_or(newest, |(first, _)| first);
        self.evicted_ends = Some((first, newest));
        Ok(())
    }

    /// Whether the evicted rows get older from one to the next, as far as they were taken.
    pub fn is_newest_evicted_first(&self) -> bool {
        self.evicted_ends.is_some_and(|(first, last)| first > last && Some(first) == self.newest_evicted)
    }

    /// Takes the next row, before the end. False if that is behind it now.
    pub fn row(&mut self, position: &[u8], row: RowRef<'_>) -> Result<bool, DecodeError> {
        match self.cap.standing(self.kept) {
            Standing::Evicted => return Ok(false),
            Standing::Since(timestamp) => {
                self.is_cut |= row.validate()?.oldest().is_some_and(|oldest| oldest <= timestamp);
                let shadow = Deletion { timestamp, local_deletion_time: 0 };
                let purpose = Purpose::Read { now_seconds: self.now_seconds };
                if !merge_rows(&[row], Some(shadow), purpose, 0, &mut Vec::new())?.is_written {
                    return Ok(true);
                }
            }
            Standing::Whole => {}
        }
        self.kept += 1;
        let behind = || key::behind(position);
        let reached = self.cap.earlier.iter().filter(|earlier| u64::from(earlier.rows) == self.kept);
        self.earlier_ends.extend(reached.map(|it| Mark { start: behind(), timestamp: it.until_micros }));
        if self.kept == u64::from(self.cap.rows) {
            self.end = Some(behind());
        }
        Ok(self.end.is_none())
    }

    /// The marks that a change needs which removes rows at this timestamp: what is evicted before it stays evicted. What the same change
    /// writes is not.
    pub fn before_removal(self, removed_at: i64) -> Vec<Mark> {
        let timestamp = self.newest_evicted.unwrap_or(i64::MIN).max(removed_at.saturating_sub(1));
        let mut marks = self.earlier_ends;
        marks.extend(self.end.map(|start| Mark { start, timestamp }));
        marks
    }

    /// The marks under which compaction can drop what was seen to be evicted. None, if nothing was.
    pub fn of_evicted(self) -> Vec<Mark> {
        let mut marks = if self.is_cut { self.earlier_ends } else { Vec::new() };
        if let (Some(start), Some(timestamp)) = (self.end, self.newest_evicted) {
            marks.push(Mark { start, timestamp });
        }
        marks
    }
}

#[cfg(test)]
mod tests;
