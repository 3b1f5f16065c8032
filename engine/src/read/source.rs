//! One input of a scan: a memtable, a table file, or one row of a file; walked in the scan's direction.

use std::sync::Arc;

use crate::cell::Deletion;
use crate::memtable::MemtableCursor;
use crate::row::RowRef;
use crate::table::{TableCursor, TableCursorBuffers, TableError, TableReader, TableRow};

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

/// A table cursor that keeps to a range.
pub(crate) struct TableSource {
    cursor: TableCursor,
    is_inside: bool,
}

impl TableSource {
    /// On the first row of the range in its direction.
    pub fn new(cursor: TableCursor, bounds: Bounds<'_>) -> Result<Self, TableError> {
        let mut source = Self { cursor, is_inside: false };
        source.seek(bounds)?;
        Ok(source)
    }

    /// As [`TableCursor::into_buffers`].
    pub fn into_buffers(self, bytes_max: usize) -> TableCursorBuffers {
        self.cursor.into_buffers(bytes_max)
    }

    fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
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
        self.is_inside = false;
        self.is_inside = found?
            && if bounds.reversed {
                self.cursor.key() >= bounds.start
            } else {
                self.cursor.key() < bounds.end
            };
        Ok(())
    }
}

impl Source {
    /// The full key of the present row. `start` is that of the scan.
    #[inline]
    pub fn key<'a>(&'a self, start: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Table(source) => source.is_inside.then(|| source.cursor.key()),
            Self::Point { row, .. } => row.is_some().then_some(start),
        }
    }

    #[inline]
    pub fn row(&self) -> RowRef<'_> {
        match self {
            Self::Memtable(cursor) => cursor.row(),
            Self::Table(source) => source.cursor.row(),
            Self::Point { row, .. } => row.as_ref().map_or(RowRef::new(&[], 0), TableRow::row),
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

    #[inline]
    pub fn advance(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        match self {
            Self::Memtable(cursor) => cursor.advance(bounds.start, bounds.end),
            Self::Table(source) => source.advance(bounds)?,
            Self::Point { row, .. } => *row = None,
        }
        Ok(())
    }

    /// Goes on at a narrowed range.
    pub fn seek(&mut self, bounds: Bounds<'_>) -> Result<(), TableError> {
        match self {
            Self::Memtable(cursor) => cursor.seek(bounds.start, bounds.end),
            Self::Table(source) => source.seek(bounds)?,
            Self::Point { row, .. } => *row = None,
        }
        Ok(())
    }

    /// The span deletion of this source that covers a full key.
    #[inline]
    pub fn covering(&self, key: &[u8], prefix_length: usize) -> Option<Deletion> {
        match self {
            Self::Memtable(cursor) => cursor.covering(key, prefix_length),
            Self::Table(source) => source.cursor.table().spans().covering(key),
            Self::Point { table, .. } => table.spans().covering(key),
        }
    }
}
