//! The one encoding of a row, and the zero-copy view of it.
//!
//! ```text
//! row    := flags u8 | [liveness] | [deletion] | [column deletions] | cells up to the end
//! liveness         := timestamp | [ttl, expires at]                     LIVENESS, LIVENESS_EXPIRES
//! deletion         := timestamp | local deletion time                   DELETION
//! column deletions := count (> 0) | count x (column | timestamp | local deletion time)    COLUMN_DELETIONS
//! cell   := flags u8 | column | [path] | [timestamp] | [ttl, expires at] | [local deletion time] | [value]
//! ```
//!
//! Timestamps are zigzag varints relative to the base of the container. Other numbers are varints. Path and value carry their
//! length. A cell can share the timestamp (and the expiry) of the row's liveness, or, without liveness, of the first cell; it
//! then carries a flag instead. Cells are ordered by (column, path), column deletions by column; neither has duplicates.
//! `MORTAL` is set exactly if some part of the row can be invisible to a reader: an expiry or a tombstone.
//!
//! Reading damaged bytes never panics: the view ends early. Bytes from outside are checked with [`RowRef::validate`] first.

use crate::cell::{Address, Cell, CellKind, Deletion, Expiry, Liveness, TimestampRange};
use crate::codec::{DecodeError, Reader};

/// The bits of the first byte of a row (without a prefix) and of a cell (`CELL_`).
pub mod flags {
    pub const LIVENESS: u8 = 1;
    pub const LIVENESS_EXPIRES: u8 = 1 << 1;
    pub const DELETION: u8 = 1 << 2;
    pub const COLUMN_DELETIONS: u8 = 1 << 3;
    pub const MORTAL: u8 = 1 << 4;
    pub const COUNTER: u8 = 1 << 5;
    pub const KNOWN: u8 = (1 << 6) - 1;

    pub const CELL_KIND: u8 = 0b11;
    pub const CELL_LIVE: u8 = 0;
    pub const CELL_EXPIRING: u8 = 1;
    pub const CELL_TOMBSTONE: u8 = 2;
    pub const CELL_COUNTER: u8 = 3;
    pub const CELL_SHARES_TIMESTAMP: u8 = 1 << 2;
    pub const CELL_SHARES_EXPIRY: u8 = 1 << 3;
    pub const CELL_PATH: u8 = 1 << 4;
    pub const CELL_NO_VALUE: u8 = 1 << 5;
    pub const CELL_KNOWN: u8 = (1 << 6) - 1;
    /// The flags of most cells: live, and written together with their row. Encoder and decoder have a fast path for them.
    pub const CELL_SIMPLE: u8 = CELL_LIVE | CELL_SHARES_TIMESTAMP;
}

/// A view of an encoded row. It is cheap to copy and decodes on access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef<'a> {
    pub bytes: &'a [u8],
    /// Microseconds; timestamps in `bytes` are relative to it.
    pub base: i64,
}

/// The parts of a row that precede its cells, and the cells.
#[derive(Debug, Clone, Copy)]
pub struct RowHead<'a> {
    pub liveness: Option<Liveness>,
    pub deletion: Option<Deletion>,
    pub column_deletions: ColumnDeletions<'a>,
    pub cells: Cells<'a>,
}

impl<'a> RowRef<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8], base: i64) -> Self {
        Self { bytes, base }
    }

    #[inline]
    fn flags(self) -> u8 {
        self.bytes.first().copied().unwrap_or(0)
    }

    /// Whether every part of the row is visible to every reader, unless a deletion outside the row shadows it: the row has no
    /// deletions, no expiries and no tombstones.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.flags() & (flags::DELETION | flags::COLUMN_DELETIONS | flags::MORTAL) == 0
    }

    /// Whether the row holds counter cells.
    #[inline]
    pub fn has_counters(self) -> bool {
        self.flags() & flags::COUNTER != 0
    }

    /// Whether the row has neither liveness nor deletions nor cells.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bytes.len() <= 1
    }

    /// The liveness's timestamp and the cells, for a row that has nothing but cells and a liveness without expiry. Most rows
    /// are such, and this is the fast path for them.
    #[inline]
    pub fn simple_parts(self) -> Option<(Option<i64>, Cells<'a>)> {
        const OTHERS: u8 = flags::LIVENESS_EXPIRES | flags::DELETION | flags::COLUMN_DELETIONS;
        let (&flags, rest) = self.bytes.split_first()?;
        if flags & OTHERS != 0 {
            return None;
        }
        let mut reader = Reader::new(rest);
        let timestamp =
            if flags & flags::LIVENESS == 0 { None } else { Some(self.timestamp(&mut reader).ok()?) };
        let shared = timestamp.map(|timestamp| Shared { timestamp, expiry: None });
        Some((timestamp, Cells { reader, base: self.base, shared }))
    }

    /// The oldest timestamp (microseconds) among the row's liveness and its cells of the columns `wanted` (ordered by id).
    /// `None` unless the row has all of these, and none of them is a counter or belongs to a collection.
    ///
    /// Versions that are older cannot change what a reader of these columns sees. Nor can they change whether the row exists,
    /// unless a newer version has a liveness that expires.
    pub fn complete_since(self, wanted: &[u32]) -> Option<i64> {
        let (liveness, cells) = if let Some(parts) = self.simple_parts() {
            parts
        } else {
            let head = self.head().ok()?;
            let liveness = head.liveness.filter(|liveness| liveness.expiry.is_none());
            (liveness.map(|liveness| liveness.timestamp), head.cells)
        };
        let mut least = liveness?;
        let mut wanted = wanted.iter().copied();
        let mut next = wanted.next();
        for cell in cells {
            let Some(column) = next else { break };
            if cell.column == column {
                if !cell.path.is_empty() || matches!(cell.kind, CellKind::Counter) {
                    return None;
                }
                least = least.min(cell.timestamp);
                next = wanted.next();
            } else if cell.column > column {
                return None;
            }
        }
        next.is_none().then_some(least)
    }

    /// Decodes all parts before the cells. Each of the accessors below decodes them again.
    #[inline]
    pub fn head(self) -> Result<RowHead<'a>, DecodeError> {
        let mut reader = Reader::new(self.bytes);
        let flags = reader.byte("a row")?;
        let mut head = RowHead {
            liveness: None,
            deletion: None,
            column_deletions: ColumnDeletions { reader: Reader::new(&[]), base: self.base, left: 0 },
            cells: Cells { reader, base: self.base, shared: None },
        };
        if flags & flags::LIVENESS != 0 {
            let timestamp = self.timestamp(&mut reader)?;
            let expiry =
                if flags & flags::LIVENESS_EXPIRES == 0 { None } else { Some(read_expiry(&mut reader)?) };
            head.liveness = Some(Liveness { timestamp, expiry });
            head.cells.shared = Some(Shared { timestamp, expiry });
        }
        if flags & flags::DELETION != 0 {
            head.deletion = Some(read_deletion(&mut reader, self.base)?);
        }
        if flags & flags::COLUMN_DELETIONS != 0 {
            let count = reader.unsigned32("a row's column deletions")?;
            head.column_deletions = ColumnDeletions { reader, base: self.base, left: count };
            for _ in 0..count {
                reader.unsigned32("a column deletion")?;
                read_deletion(&mut reader, self.base)?;
            }
        }
        head.cells.reader = reader;
        Ok(head)
    }

    #[inline]
    fn timestamp(self, reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
        Ok(self.base.wrapping_add(reader.signed("a row's timestamp")?))
    }

    #[inline]
    pub fn liveness(self) -> Option<Liveness> {
        self.head().ok().and_then(|head| head.liveness)
    }

    #[inline]
    pub fn deletion(self) -> Option<Deletion> {
        self.head().ok().and_then(|head| head.deletion)
    }

    /// The deletions of whole collections, ordered by column.
    #[inline]
    pub fn column_deletions(self) -> ColumnDeletions<'a> {
        self.head().map_or(ColumnDeletions { reader: Reader::new(&[]), base: self.base, left: 0 }, |head| {
            head.column_deletions
        })
    }

    /// The cells, ordered by (column, path).
    #[inline]
    pub fn cells(self) -> Cells<'a> {
        match self.simple_parts() {
            Some((_, cells)) => cells,
            None => self.cells_behind_head(),
        }
    }

    /// As [`RowRef::cells`], for any row. It is separate, so that the fast path is inlined.
    #[inline(never)]
    fn cells_behind_head(self) -> Cells<'a> {
        self.head()
            .map_or(Cells { reader: Reader::new(&[]), base: self.base, shared: None }, |head| head.cells)
    }

    /// Whether the row is visible at `now_seconds` (it has a liveness or a live cell), and the number of its dead parts
    /// (deletions, tombstones, expired data). The row must be merged: its own deletions shadow nothing in it.
    pub fn visibility(self, now_seconds: u32) -> (bool, u32) {
        if self.is_plain() {
            return (!self.is_empty(), 0);
        }
        let Ok(head) = self.head() else { return (false, 0) };
        let is_dead = |liveness: &Liveness| liveness.is_expired(now_seconds);
        let mut is_live = head.liveness.is_some_and(|liveness| !is_dead(&liveness));
        let mut dead = u32::from(head.liveness.as_ref().is_some_and(is_dead))
            + u32::from(head.deletion.is_some())
            + head.column_deletions.count() as u32;
        for cell in head.cells {
            if cell.is_live(now_seconds) {
                is_live = true;
            } else {
                dead += 1;
            }
        }
        (is_live, dead)
    }

    /// Checks that the bytes are a well-formed row, to the last byte. For bytes from outside. Returns the range of the row's
    /// timestamps.
    pub fn validate(self) -> Result<TimestampRange, DecodeError> {
        let flags = self.flags();
        if flags & !flags::KNOWN != 0
            || flags & (flags::LIVENESS | flags::LIVENESS_EXPIRES) == flags::LIVENESS_EXPIRES
        {
            return Err(DecodeError::Invalid { what: "row flags", value: u64::from(flags) });
        }
        let head = self.head()?;
        let mut timestamps = TimestampRange::EMPTY;
        if let Some(liveness) = head.liveness {
            timestamps.include(liveness.timestamp);
        }
        if let Some(deletion) = head.deletion {
            timestamps.include(deletion.timestamp);
        }
        if flags & flags::COLUMN_DELETIONS != 0 && head.column_deletions.left == 0 {
            return Err(DecodeError::Invalid { what: "count of column deletions", value: 0 });
        }
        let mut previous = None;
        for (column, deletion) in head.column_deletions {
            if previous.is_some_and(|previous| previous >= column) {
                return Err(DecodeError::Disorder { what: "a row's column deletions" });
            }
            previous = Some(column);
            timestamps.include(deletion.timestamp);
        }
        let mut mortal = flags & flags::LIVENESS_EXPIRES != 0;
        let mut counter = false;
        let mut cells = head.cells;
        let mut previous: Option<Address<'_>> = None;
        while !cells.reader.is_empty() {
            let cell = match cells.decode_simple() {
                Some(cell) => cell,
                None => cells.decode()?,
            };
            if previous.is_some_and(|previous| previous >= cell.address()) {
                return Err(DecodeError::Disorder { what: "a row's cells" });
            }
            previous = Some(cell.address());
            timestamps.include(cell.timestamp);
            mortal |= matches!(cell.kind, CellKind::Expiring(_) | CellKind::Tombstone { .. });
            counter |= cell.kind == CellKind::Counter;
        }
        if mortal != (flags & flags::MORTAL != 0) || counter != (flags & flags::COUNTER != 0) {
            return Err(DecodeError::Invalid { what: "row flags", value: u64::from(flags) });
        }
        Ok(timestamps)
    }
}

#[inline]
fn read_expiry(reader: &mut Reader<'_>) -> Result<Expiry, DecodeError> {
    Ok(Expiry { ttl: reader.unsigned32("a TTL")?, expires_at: reader.unsigned32("a time of expiry")? })
}

#[inline]
fn read_deletion(reader: &mut Reader<'_>, base: i64) -> Result<Deletion, DecodeError> {
    Ok(Deletion {
        timestamp: base.wrapping_add(reader.signed("a deletion")?),
        local_deletion_time: reader.unsigned32("a deletion")?,
    })
}

/// The deletions of a row's collections: (column, deletion), ordered by column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnDeletions<'a> {
    reader: Reader<'a>,
    base: i64,
    left: u32,
}

#[allow(clippy::copy_iterator, reason = "a copy is another reading position in the same bytes")]
impl Iterator for ColumnDeletions<'_> {
    type Item = (u32, Deletion);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let column = self.reader.unsigned32("a column deletion").ok()?;
        Some((column, read_deletion(&mut self.reader, self.base).ok()?))
    }
}

/// The timestamp and expiry that a cell's flags can refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    pub timestamp: i64,
    pub expiry: Option<Expiry>,
}

/// The cells of a row in order.
#[derive(Debug, Clone, Copy)]
pub struct Cells<'a> {
    reader: Reader<'a>,
    base: i64,
    shared: Option<Shared>,
}

impl<'a> Cells<'a> {
    /// The next cell, if it has the most frequent form: live, written together with its row, and short.
    #[inline]
    fn decode_simple(&mut self) -> Option<Cell<'a>> {
        let timestamp = self.shared.as_ref()?.timestamp;
        let (&[flags, column, length], rest) = self.reader.rest().split_first_chunk::<3>()?;
        if flags != flags::CELL_SIMPLE || (column | length) >= 0x80 {
            return None;
        }
        let (value, rest) = rest.split_at_checked(usize::from(length))?;
        self.reader = Reader::new(rest);
        Some(Cell { column: u32::from(column), path: &[], timestamp, kind: CellKind::Live, value })
    }

    fn decode(&mut self) -> Result<Cell<'a>, DecodeError> {
        const UNSHARED: DecodeError = DecodeError::Invalid { what: "reference of a cell", value: 0 };
        let reader = &mut self.reader;
        let flags = reader.byte("a cell")?;
        if flags & !flags::CELL_KNOWN != 0 {
            return Err(DecodeError::Invalid { what: "cell flags", value: u64::from(flags) });
        }
        let column = reader.unsigned32("a cell's column")?;
        let path = if flags & flags::CELL_PATH == 0 { &[] } else { reader.bytes("a cell's path")? };
        let timestamp = if flags & flags::CELL_SHARES_TIMESTAMP == 0 {
            self.base.wrapping_add(reader.signed("a cell's timestamp")?)
        } else {
            self.shared.ok_or(UNSHARED)?.timestamp
        };
        let mut own_expiry = None;
        let kind = match flags & flags::CELL_KIND {
            flags::CELL_LIVE => CellKind::Live,
            flags::CELL_EXPIRING => {
                let expiry = if flags & flags::CELL_SHARES_EXPIRY == 0 {
                    read_expiry(reader)?
                } else {
                    self.shared.and_then(|shared| shared.expiry).ok_or(UNSHARED)?
                };
                own_expiry = Some(expiry);
                CellKind::Expiring(expiry)
            }
            flags::CELL_TOMBSTONE => {
                CellKind::Tombstone { local_deletion_time: reader.unsigned32("a cell's time of deletion")? }
            }
            _ => CellKind::Counter,
        };
        let value = if flags & flags::CELL_NO_VALUE == 0 { reader.bytes("a cell's value")? } else { &[] };
        if self.shared.is_none() {
            self.shared = Some(Shared { timestamp, expiry: own_expiry });
        }
        Ok(Cell { column, path, timestamp, kind, value })
    }
}

#[allow(clippy::copy_iterator, reason = "a copy is another reading position in the same bytes")]
impl<'a> Iterator for Cells<'a> {
    type Item = Cell<'a>;

    #[inline]
    fn next(&mut self) -> Option<Cell<'a>> {
        if let Some(cell) = self.decode_simple() {
            return Some(cell);
        }
        if self.reader.is_empty() {
            return None;
        }
        self.decode().ok()
    }
}
