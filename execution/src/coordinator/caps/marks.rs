//! The search for the low mark of a partition, in its rows in clustering order.

use helenus_engine::io::whole_seconds;
use helenus_engine::key::REGULAR_END;
use helenus_engine::{DecodeError, Deletion, Purpose, RowRef, key, merge_rows};
use helenus_query::schema::options::{Cap, Standing};

/// A deletion of everything from a position up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    /// Microseconds.
    pub timestamp: i64,
}

impl Mark {
    /// The deletion of the rest of a partition's regular rows.
    fn from(start: Vec<u8>, timestamp: i64) -> Self {
        Self { start, end: REGULAR_END.to_vec(), timestamp }
    }
}

/// An evicted row.
struct Evicted {
    position: Vec<u8>,
    /// Microseconds.
    newest: i64,
}

/// The rows of a partition that were seen, the first ones of it.
pub(super) struct MarkSearch {
    cap: Cap,
    /// When the search began.
    now_micros: i64,
    /// Rows that the partition keeps.
    kept: u64,
    /// Those that were taken.
    evicted: Vec<Evicted>,
    /// Behind the last row that the cap lets the partition keep; `None`: it has fewer.
    end: Option<Vec<u8>>,
    /// As `end` and their timestamps, for the caps of before.
    earlier_ends: Vec<Mark>,
    /// Whether a cap of before has evicted something that is still there.
    is_cut: bool,
}

impl MarkSearch {
    pub fn new(cap: Cap, now_micros: i64) -> Self {
        Self {
            cap,
            now_micros,
            kept: 0,
            evicted: Vec::new(),
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

    pub fn now_seconds(&self) -> u32 {
        whole_seconds(self.now_micros)
    }

    /// Takes a row from behind the end.
    pub fn evicted(&mut self, position: &[u8], row: RowRef<'_>) -> Result<(), DecodeError> {
        let is_known = self.evicted.iter().any(|row| row.position == position);
        if let Some(newest) = row.validate()?.newest().filter(|_| !is_known) {
            self.evicted.push(Evicted { position: position.to_vec(), newest });
        }
        Ok(())
    }

    /// Whether the evicted rows get older from one to the next, as far as they were taken.
    pub fn is_newest_evicted_first(&self) -> bool {
        let newest = self.evicted.iter().map(|row| row.newest).max();
        match self.evicted.as_slice() {
            [first, .., last] => first.newest > last.newest && Some(first.newest) == newest,
            _ => false,
        }
    }

    /// Takes the next row, before the end. False if that is behind it now.
    pub fn row(&mut self, position: &[u8], row: RowRef<'_>) -> Result<bool, DecodeError> {
        match self.cap.standing(self.kept) {
            Standing::Evicted => return Ok(false),
            Standing::Since(timestamp) => {
                self.is_cut |= row.validate()?.oldest().is_some_and(|oldest| oldest <= timestamp);
                let shadow = Deletion { timestamp, local_deletion_time: 0 };
                let purpose = Purpose::Read { now_seconds: self.now_seconds() };
                if !merge_rows(&[row], Some(shadow), purpose, 0, &mut Vec::new())?.is_written {
                    return Ok(true);
                }
            }
            Standing::Whole => {}
        }
        self.kept += 1;
        let behind = || key::behind(position);
        let reached = self.cap.earlier.iter().filter(|earlier| u64::from(earlier.rows) == self.kept);
        self.earlier_ends.extend(reached.map(|it| Mark::from(behind(), it.until_micros)));
        if self.kept == u64::from(self.cap.rows) {
            self.end = Some(behind());
        }
        Ok(self.end.is_none())
    }

    /// The marks that a change needs which removes rows at this timestamp: what is evicted before it stays evicted. What the same change
    /// writes is not, if it `has_new_rows`.
    pub fn before_removal(self, removed_at: i64, has_new_rows: bool) -> Vec<Mark> {
        let newest = self.newest_evicted().filter(|_| !has_new_rows).unwrap_or(i64::MIN);
        let timestamp = newest.max(removed_at.saturating_sub(1)).min(self.now_micros);
        let mut marks = self.earlier_ends;
        marks.extend(self.end.map(|start| Mark::from(start, timestamp)));
        marks.extend(newer_rows(self.evicted, timestamp));
        marks
    }

    /// The marks under which compaction can drop what was seen to be evicted. None, if nothing was.
    pub fn of_evicted(self) -> Vec<Mark> {
        let newest = self.newest_evicted();
        let mut marks = if self.is_cut { self.earlier_ends } else { Vec::new() };
        if let (Some(start), Some(timestamp)) = (self.end, newest) {
            marks.push(Mark::from(start, timestamp));
        }
        marks.extend(newer_rows(self.evicted, newest.unwrap_or(i64::MIN)));
        marks
    }

    /// The newest timestamp of the evicted rows, of those that do not lie in the future.
    fn newest_evicted(&self) -> Option<i64> {
        self.evicted.iter().map(|row| row.newest).filter(|newest| *newest <= self.now_micros).max()
    }
}

/// The deletions of those of the evicted rows that a mark with this timestamp does not delete: each at its own, so that no other row is in them.
fn newer_rows(evicted: Vec<Evicted>, timestamp: i64) -> impl Iterator<Item = Mark> {
    let newer = evicted.into_iter().filter(move |row| row.newest > timestamp);
    newer.map(|Evicted { position, newest }| Mark {
        end: key::behind(&position),
        start: position,
        timestamp: newest,
    })
}

#[cfg(test)]
mod tests;
