//! A source of a scan: a memtable, a table file, or one row of a file. It is read in the scan's direction.

use std::sync::Arc;

use crate::cell::Deletion;
use crate::invariant::broken;
use crate::key::STATIC_POSITION;
use crate::memtable::MemtableCursor;
use crate::row::RowRef;
use crate::table::{Positions, TableCursor, TableCursorBuffers, TableError, TableReader, TableRow};

/// The half-open range of full keys of a scan, and its direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub start: &'a [u8],
    pub end: &'a [u8],
    pub reversed: bool,
}

/// A cursor over one source.
#[allow(clippy::large_enum_variant, reason = "a scan has few, in a vector that the next scan takes over")]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Table(TableSource),
    /// The row at the start of the range, if the file has it, and the range tombstones of the file.
    Point {
        row: Option<TableRow>,
        table: Arc<TableReader>,
    },
}

/// A table cursor that is limited to a range. It does not read the file before the scan reaches the first possible row.
pub(crate) struct TableSource {
    cursor: TableCursor,
    state: SourceState,
    /// For a waiting source: no row of the range comes before this full key in the scan's direction.
    bound: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceState {
    /// Not opened yet.
    Waiting,
    /// On a row of the range.
    Inside,
    /// Behind the last row of the range.
    Outside,
}

/// The reusable allocations of a table source.
#[derive(Default)]
pub(crate) struct TableSourceBuffers {
    pub cursor: TableCursorBuffers,
    pub bound: Vec<u8>,
}

/// The part of a range within one partition in which a file may have rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach<'a> {
    /// None of it.
    Nothing,
    /// Perhaps all of it.
    Whole,
    /// From this position on, in the scan's direction.
    From(&'a [u8]),
}

impl<'a> Reach<'a> {
    /// Derived from the file's statistics. `prefix_length` is the length of the common partition prefix of both bounds.
    pub fn of(positions: Option<&'a Positions>, bounds: Bounds<'_>, prefix_length: usize) -> Self {
        let Some(Positions { has_static, first, last }) = positions else { return Self::Whole };
        let (Some(low), Some(high)) = (bounds.start.get(prefix_length..), bounds.end.get(prefix_length..))
        else {
            broken!("the bounds of a range within a partition begin with its prefix");
            return Self::Whole;
        };
        if *has_static && low <= STATIC_POSITION && STATIC_POSITION < high {
            return Self::Whole;
        }
        let (first, last) = (first.as_slice(), last.as_slice());
        if first.is_empty() || first >= high || last < low {
            return Self::Nothing;
        }
        match bounds.reversed {
            false if low < first => Self::From(first),
            true if last < high => Self::From(last),
            _ => Self::Whole,
        }
    }
}

impl TableSource {
    /// A source on the first row of the range in the scan's direction. `bound` is a buffer for reuse.
    pub fn open(cursor: TableCursor, bound: Vec<u8>, bounds: Bounds<'_>) -> Result<Self, TableError> {
        let mut source = Self { cursor, state: SourceState::Outside, bound };
        source.seek(bounds)?;
        Ok(source)
    }

    /// A waiting source, which has no rows before `position` in the scan's direction. `prefix` is the partition prefix, `bound` a
    /// buffer for reuse.
    pub fn waiting(cursor: TableCursor, mut bound: Vec<u8>, prefix: &[u8], position: &[u8]) -> Self {
        bound.clear();
        bound.extend_from_slice(prefix);
        bound.extend_from_slice(position);
        Self { cursor, state: SourceState::Waiting, bound }
    }

    /// Returns the buffers. Each keeps a capacity of `bytes_max`.
    pub fn into_buffers(self, bytes_max: usize) -> TableSourceBuffers {
        let Self { cursor, mut bound, .. } = self;
        bound.clear();
        bound.shrink_to(bytes_max);
        TableSourceBuffers { cursor: cursor.into_buffers(bytes_max), bound }
    }

    fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        if bounds.start >= bounds.end {
            self.state = SourceState::Outside;
            return Ok(());
        }
        let found = if bounds.reversed {
            self.cursor.seek_before(bounds.end)
        } else {
            self.cursor.seek(bounds.start)
        };
        self.settle(found, bounds)
    }

    #[inline]
    fn advance(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        let found = if bounds.reversed { self.cursor.prev() } else { self.cursor.next() };
        self.settle(found, bounds)
    }

    #[inline]
    fn settle(&mut self, found: Result<bool, TableError>, bounds: Bounds<'_>) -> Result<(), TableError> {
        // After an error the source has no more rows.
        self.state = SourceState::Outside;
        let is_inside = found?
            && if bounds.reversed {
                self.cursor.key() >= bounds.start
            } else {
                self.cursor.key() < bounds.end
            };
        if is_inside {
            self.state = SourceState::Inside;
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self.state {
            SourceState::Waiting => Some(&self.bound),
            SourceState::Inside => Some(self.cursor.key()),
            SourceState::Outside => None,
        }
    }
}

impl Source {
    /// The full key of the current row; for a waiting source, a lower bound of its keys in the scan's direction. `start` is the
    /// start of the scan.
    #[inline]
    pub fn key<'a>(&'a self, start: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Table(source) => source.key(),
            Self::Point { row, .. } => row.is_some().then_some(start),
        }
    }

    /// Whether the source is waiting: it is opened with [`Source::seek`] and is on no row before.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Table(source) if source.state == SourceState::Waiting)
    }

    #[inline]
    pub fn row(&self) -> RowRef<'_> {
        match self {
            Self::Memtable(cursor) => cursor.row(),
            Self::Table(source) => source.cursor.row(),
            Self::Point { row, .. } => row.as_ref().map_or_else(
                || {
                    broken!("a source that is asked for its row has one");
                    RowRef::new(&[], 0)
                },
                TableRow::row,
            ),
        }
    }

    /// The newest timestamp in the source (microseconds); `None` if it is empty.
    #[inline]
    pub fn max_timestamp(&self) -> Option<i64> {
        match self {
            Self::Memtable(cursor) => cursor.max_timestamp(),
            Self::Table(source) => Some(source.cursor.table().statistics().max_timestamp),
            Self::Point { table, .. } => Some(table.statistics().max_timestamp),
        }
    }

    /// Whether the source has changed since it last moved.
    #[inline]
    pub fn is_stale(&self) -> bool {
        match self {
            Self::Memtable(cursor) => cursor.is_stale(),
            Self::Table(_) | Self::Point { .. } => false,
        }
    }

    #[inline]
    pub fn advance(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        match self {
            Self::Memtable(cursor) => cursor.advance(bounds.start, bounds.end),
            Self::Table(source) => source.advance(bounds)?,
            Self::Point { row, .. } => *row = None,
        }
        Ok(())
    }

    /// Moves to the first row of a narrowed range. Opens a waiting source.
    pub fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        match self {
            Self::Memtable(cursor) => cursor.seek(bounds.start, bounds.end),
            Self::Table(source) => source.seek(bounds)?,
            Self::Point { row, .. } => *row = None,
        }
        Ok(())
    }

    /// Whether the source has range tombstones. This changes only in a memtable that is written to.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        match self {
            Self::Memtable(cursor) => cursor.has_range_tombstones(),
            Self::Table(source) => !source.cursor.table().range_tombstones().is_empty(),
            Self::Point { table, .. } => !table.range_tombstones().is_empty(),
        }
    }

    /// The range tombstone of this source that covers a full key.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        match self {
            Self::Memtable(cursor) => cursor.covering(key),
            Self::Table(source) => source.cursor.table().range_tombstones().covering(key),
            Self::Point { table, .. } => table.range_tombstones().covering(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_left_out_or_waits_by_where_its_rows_lie() {
        let reach = |positions: &Positions, start: &[u8], end: &[u8], reversed| {
            let (start, end) = ([b"prefix", start].concat(), [b"prefix", end].concat());
            match Reach::of(Some(positions), Bounds { start: &start, end: &end, reversed }, 6) {
                Reach::Nothing => "nothing".to_owned(),
                Reach::Whole => "whole".to_owned(),
                Reach::From(position) => format!("from {position:?}"),
            }
        };
        let regular = Positions { has_static: false, first: vec![2, 5], last: vec![2, 7] };
        let both = |start, end| [false, true].map(|reversed| reach(&regular, start, end, reversed));
        assert_eq!(both(&[0], &[0xFF]), ["from [2, 5]", "from [2, 7]"]);
        assert_eq!(both(&[2, 5], &[2, 7]), ["whole"; 2], "the end is no part of the range");
        assert_eq!(both(&[2, 5], &[2, 7, 0]), ["whole", "from [2, 7]"]);
        assert_eq!(both(&[2, 4], &[2, 6]), ["from [2, 5]", "whole"]);
        assert_eq!(both(&[2, 6], &[2, 9]), ["whole", "from [2, 7]"]);
        assert_eq!(both(&[2, 7], &[2, 7, 0]), ["whole", "from [2, 7]"]);
        assert_eq!(both(&[0], &[2, 5]), ["nothing"; 2]);
        assert_eq!(both(&[2, 7, 0], &[0xFF]), ["nothing"; 2]);

        let with_static = Positions { has_static: true, ..regular.clone() };
        assert_eq!(reach(&with_static, &[0], &[0xFF], false), "whole");
        assert_eq!(reach(&with_static, &[1], &[1, 0], true), "whole");
        assert_eq!(reach(&with_static, &[2], &[3], false), "from [2, 5]");
        let only_static = Positions { has_static: true, ..Positions::default() };
        assert_eq!(reach(&only_static, &[2], &[3], false), "nothing");
        assert_eq!(reach(&only_static, &[0], &[3], false), "whole");
        let bounds = Bounds { start: b"prefix\x02", end: b"prefix\x03", reversed: false };
        assert_eq!(Reach::of(None, bounds, 6), Reach::Whole, "a file of version 1");
    }
}
