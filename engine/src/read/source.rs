//! One input of a scan: a memtable, a table file, or one row of a file; walked in the scan's direction.

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

/// A cursor over one input.
#[allow(clippy::large_enum_variant, reason = "a scan has few, in a vector that the next scan takes over")]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Table(TableSource),
    /// The one row at the start of the range, or only the spans of the file.
    Point {
        row: Option<TableRow>,
        table: Arc<TableReader>,
    },
}

/// A table cursor that keeps to a range, and does not look at the file before the scan has come to where its rows may begin.
pub(crate) struct TableSource {
    cursor: TableCursor,
    state: State,
    /// No row of the range comes before this full key in the direction of the scan; of a source that waits.
    bound: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not opened yet.
    Waiting,
    /// On a row of the range.
    Inside,
    /// There are no more rows.
    Outside,
}

/// What a table source allocates, reusable.
#[derive(Default)]
pub(crate) struct TableSourceBuffers {
    pub cursor: TableCursorBuffers,
    pub bound: Vec<u8>,
}

/// Where the rows of a file lie in a range within one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach<'a> {
    /// Nowhere.
    Nothing,
    /// Perhaps from where the scan begins.
    Whole,
    /// Not before this position in the direction of the scan.
    From(&'a [u8]),
}

impl<'a> Reach<'a> {
    /// By what the statistics say of positions. `prefix_length`: that of the partition prefix, which both bounds share.
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
    /// One on the first row of the range in its direction. `bound` is a buffer.
    pub fn open(cursor: TableCursor, bound: Vec<u8>, bounds: Bounds<'_>) -> Result<Self, TableError> {
        let mut source = Self { cursor, state: State::Outside, bound };
        source.seek(bounds)?;
        Ok(source)
    }

    /// One whose rows, in the direction of the scan, do not come before `position` in the partition of this prefix. `bound` is a buffer.
    pub fn waiting(cursor: TableCursor, mut bound: Vec<u8>, prefix: &[u8], position: &[u8]) -> Self {
        bound.clear();
        bound.extend_from_slice(prefix);
        bound.extend_from_slice(position);
        Self { cursor, state: State::Waiting, bound }
    }

    /// Gives the buffers back; each keeps room for `bytes_max`.
    pub fn into_buffers(self, bytes_max: usize) -> TableSourceBuffers {
        let Self { cursor, mut bound, .. } = self;
        bound.clear();
        bound.shrink_to(bytes_max);
        TableSourceBuffers { cursor: cursor.into_buffers(bytes_max), bound }
    }

    fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        if bounds.start >= bounds.end {
            self.state = State::Outside;
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
        // After an error the source has nothing more.
        self.state = State::Outside;
        let is_inside = found?
            && if bounds.reversed {
                self.cursor.key() >= bounds.start
            } else {
                self.cursor.key() < bounds.end
            };
        if is_inside {
            self.state = State::Inside;
        }
        Ok(())
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self.state {
            State::Waiting => Some(&self.bound),
            State::Inside => Some(self.cursor.key()),
            State::Outside => None,
        }
    }
}

impl Source {
    /// The full key of the present row; of a source that waits, one that its rows do not lie before. `start` is that of the scan.
    #[inline]
    pub fn key<'a>(&'a self, start: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Table(source) => source.key(),
            Self::Point { row, .. } => row.is_some().then_some(start),
        }
    }

    /// Whether the source waits to be opened with [`Source::seek`], and is on no row yet.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Table(source) if source.state == State::Waiting)
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

    /// Microseconds: nothing in the source is newer. `None`: there is nothing.
    #[inline]
    pub fn max_timestamp(&self) -> Option<i64> {
        match self {
            Self::Memtable(cursor) => cursor.max_timestamp(),
            Self::Table(source) => Some(source.cursor.table().statistics().max_timestamp),
            Self::Point { table, .. } => Some(table.statistics().max_timestamp),
        }
    }

    /// Whether there were changes since the source was last moved.
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

    /// Goes on at a narrowed range, or begins.
    pub fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        match self {
            Self::Memtable(cursor) => cursor.seek(bounds.start, bounds.end),
            Self::Table(source) => source.seek(bounds)?,
            Self::Point { row, .. } => *row = None,
        }
        Ok(())
    }

    /// Whether any key may be covered by a span deletion of this source. So it stays, except in a memtable that changes.
    #[inline]
    pub fn has_spans(&self) -> bool {
        match self {
            Self::Memtable(cursor) => cursor.has_spans(),
            Self::Table(source) => !source.cursor.table().spans().is_empty(),
            Self::Point { table, .. } => !table.spans().is_empty(),
        }
    }

    /// The span deletion of this source that covers a full key.
    #[inline]
    pub fn covering(&self, key: &[u8]) -> Option<Deletion> {
        match self {
            Self::Memtable(cursor) => cursor.covering(key),
            Self::Table(source) => source.cursor.table().spans().covering(key),
            Self::Point { table, .. } => table.spans().covering(key),
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
