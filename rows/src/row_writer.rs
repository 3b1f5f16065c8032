//! Writing rows: [`RowWriter`] for parts that come in order, [`RowBuilder`] for parts in any order.

use std::ops::Range;

use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness, stronger};
use crate::codec::{DecodeError, put_bytes, put_signed, put_unsigned};
use crate::counter;
use crate::row::{RowRef, Shared, flags};

/// Appends one row to a buffer. The parts must come in order: liveness, deletion, column deletions by column,
/// cells by (column, path), without duplicates.
#[derive(Debug)]
pub struct RowWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    base: i64,
    flags: u8,
    shared: Option<Shared>,
}

impl<'o> RowWriter<'o> {
    /// Starts a row at the end of `out` and writes the parts before its cells.
    #[inline]
    pub fn begin(
        out: &'o mut Vec<u8>,
        base: i64,
        liveness: Option<Liveness>,
        deletion: Option<Deletion>,
        column_deletions: &[(u32, Deletion)],
    ) -> Self {
        let start = out.len();
        out.push(0);
        let mut writer = Self { out, start, base, flags: 0, shared: None };
        if let Some(liveness) = liveness {
            writer.flags |= flags::LIVENESS;
            writer.put_timestamp(liveness.timestamp);
            if let Some(expiry) = liveness.expiry {
                writer.flags |= flags::LIVENESS_EXPIRES | flags::MORTAL;
                writer.put_expiry(expiry);
            }
            writer.shared = Some(Shared { timestamp: liveness.timestamp, expiry: liveness.expiry });
        }
        if let Some(deletion) = deletion {
            writer.flags |= flags::DELETION;
            writer.put_deletion(deletion);
        }
        if !column_deletions.is_empty() {
            writer.flags |= flags::COLUMN_DELETIONS;
            put_unsigned(writer.out, column_deletions.len() as u64);
            for &(column, deletion) in column_deletions {
                put_unsigned(writer.out, u64::from(column));
                writer.put_deletion(deletion);
            }
        }
        writer
    }

    #[inline]
    fn put_timestamp(&mut self, timestamp: i64) {
        put_signed(self.out, timestamp.wrapping_sub(self.base));
    }

    #[inline]
    fn put_expiry(&mut self, expiry: Expiry) {
        put_unsigned(self.out, u64::from(expiry.ttl));
        put_unsigned(self.out, u64::from(expiry.expires_at));
    }

    #[inline]
    fn put_deletion(&mut self, deletion: Deletion) {
        self.put_timestamp(deletion.timestamp);
        put_unsigned(self.out, u64::from(deletion.local_deletion_time));
    }

    /// Appends a cell.
    #[inline]
    pub fn cell(&mut self, cell: &Cell<'_>) {
        if !self.try_simple_cell(cell) {
            self.any_cell(cell);
        }
    }

    /// Appends the cell if it has the most frequent form: live, written together with its row, and short.
    #[inline]
    fn try_simple_cell(&mut self, cell: &Cell<'_>) -> bool {
        let is_shared = self.shared.as_ref().is_some_and(|shared| shared.timestamp == cell.timestamp);
        let (Ok(column @ 0..0x80), Ok(length @ 1..0x80)) =
            (u8::try_from(cell.column), u8::try_from(cell.value.len()))
        else {
            return false;
        };
        if !is_shared || cell.kind != CellKind::Live || !cell.path.is_empty() {
            return false;
        }
        let head = [flags::CELL_SIMPLE, column, length];
        self.out.reserve(head.len() + cell.value.len());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(cell.value);
        true
    }

    fn any_cell(&mut self, cell: &Cell<'_>) {
        let expiry = match cell.kind {
            CellKind::Expiring(expiry) => Some(expiry),
            _ => None,
        };
        let mut flags = match cell.kind {
            CellKind::Live => flags::CELL_LIVE,
            CellKind::Expiring(_) => flags::CELL_EXPIRING,
            CellKind::Tombstone { .. } => flags::CELL_TOMBSTONE,
            CellKind::Counter => flags::CELL_COUNTER,
        };
        match cell.kind {
            CellKind::Live => {}
            CellKind::Expiring(_) | CellKind::Tombstone { .. } => self.flags |= flags::MORTAL,
            CellKind::Counter => self.flags |= flags::COUNTER,
        }
        if !cell.path.is_empty() {
            flags |= flags::CELL_PATH;
        }
        if cell.value.is_empty() {
            flags |= flags::CELL_NO_VALUE;
        }
        if let Some(shared) = self.shared {
            if shared.timestamp == cell.timestamp {
                flags |= flags::CELL_SHARES_TIMESTAMP;
            }
            if expiry.is_some() && shared.expiry == expiry {
                flags |= flags::CELL_SHARES_EXPIRY;
            }
        } else {
            self.shared = Some(Shared { timestamp: cell.timestamp, expiry });
        }
        self.out.push(flags);
        put_unsigned(self.out, u64::from(cell.column));
        if !cell.path.is_empty() {
            put_bytes(self.out, cell.path);
        }
        if flags & flags::CELL_SHARES_TIMESTAMP == 0 {
            self.put_timestamp(cell.timestamp);
        }
        match cell.kind {
            CellKind::Expiring(expiry) if flags & flags::CELL_SHARES_EXPIRY == 0 => self.put_expiry(expiry),
            CellKind::Tombstone { local_deletion_time } => {
                put_unsigned(self.out, u64::from(local_deletion_time));
            }
            _ => {}
        }
        if !cell.value.is_empty() {
            put_bytes(self.out, cell.value);
        }
    }

    /// Bytes of the row so far.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether the row has any part yet.
    #[inline]
    pub(crate) fn has_parts(&self) -> bool {
        self.size_bytes() > 1
    }

    /// Completes the row. False if the row has no parts; then nothing stays in the buffer.
    #[inline]
    pub fn finish(self) -> bool {
        if self.out.len() == self.start + 1 {
            self.out.truncate(self.start);
            return false;
        }
        self.out[self.start] = self.flags;
        true
    }
}

/// Appends `row` to `out` with its timestamps relative to `new_base`.
pub fn transcode(row: RowRef<'_>, new_base: i64, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    if row.base == new_base {
        out.extend_from_slice(row.bytes);
        return Ok(());
    }
    let head = row.head()?;
    let column_deletions: Vec<_> = head.column_deletions.collect();
    let mut writer = RowWriter::begin(out, new_base, head.liveness, head.deletion, &column_deletions);
    for cell in head.cells {
        writer.cell(&cell);
    }
    writer.finish();
    Ok(())
}

#[derive(Debug, Clone)]
struct PendingCell {
    column: u32,
    path: Range<usize>,
    timestamp: i64,
    kind: CellKind,
    value: Range<usize>,
}

impl PendingCell {
    #[inline]
    fn view<'a>(&self, data: &'a [u8]) -> Cell<'a> {
        let part = |range: &Range<usize>| &data[range.clone()];
        Cell {
            column: self.column,
            path: part(&self.path),
            timestamp: self.timestamp,
            kind: self.kind,
            value: part(&self.value),
        }
    }
}

/// Collects the parts of a row in any order. Parts that are added twice are reconciled. [`RowBuilder::clear`] keeps the buffers
/// for the next row.
#[derive(Debug, Clone, Default)]
pub struct RowBuilder {
    liveness: Option<Liveness>,
    deletion: Option<Deletion>,
    column_deletions: Vec<(u32, Deletion)>,
    cells: Vec<PendingCell>,
    data: Vec<u8>,
    disordered: bool,
}

impl RowBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty row with room for `cells` cells, whose paths and values take `data_bytes` together.
    pub fn with_capacity(cells: usize, data_bytes: usize) -> Self {
        Self { cells: Vec::with_capacity(cells), data: Vec::with_capacity(data_bytes), ..Self::default() }
    }

    /// An estimate of the encoded size, in bytes, that is large enough for most rows.
    #[inline]
    pub(crate) fn expected_bytes(&self) -> usize {
        const HEAD_BYTES: usize = 32;
        const BESIDES_DATA_BYTES: usize = 16;
        HEAD_BYTES + (self.cells.len() + self.column_deletions.len()) * BESIDES_DATA_BYTES + self.data.len()
    }

    /// Discards the row and keeps the buffers.
    pub fn clear(&mut self) {
        self.liveness = None;
        self.deletion = None;
        self.column_deletions.clear();
        self.cells.clear();
        self.data.clear();
        self.disordered = false;
    }

    /// Whether no part has been added.
    pub fn is_empty(&self) -> bool {
        self.liveness.is_none()
            && self.deletion.is_none()
            && self.column_deletions.is_empty()
            && self.cells.is_empty()
    }

    /// Marks that the row exists even without cells.
    pub fn set_liveness(&mut self, liveness: Liveness) -> &mut Self {
        self.liveness = Some(self.liveness.map_or(liveness, |present| present.merge(liveness)));
        self
    }

    /// Deletes the older content of the row.
    pub fn set_deletion(&mut self, deletion: Deletion) -> &mut Self {
        self.deletion = stronger(self.deletion, Some(deletion));
        self
    }

    /// Deletes the older content of a collection column.
    pub fn delete_column(&mut self, column: u32, deletion: Deletion) -> &mut Self {
        match self.column_deletions.binary_search_by_key(&column, |entry| entry.0) {
            Ok(index) => {
                if let Some(entry) = self.column_deletions.get_mut(index) {
                    entry.1 = entry.1.max(deletion);
                }
            }
            Err(index) => self.column_deletions.insert(index, (column, deletion)),
        }
        self
    }

    /// Adds a cell. The value of a tombstone is ignored.
    pub fn cell(&mut self, cell: Cell<'_>) -> &mut Self {
        if let Some(last) = self.cells.last()
            && last.view(&self.data).address() >= cell.address()
        {
            self.disordered = true;
        }
        let path_start = self.data.len();
        self.data.extend_from_slice(cell.path);
        let value_start = self.data.len();
        if !matches!(cell.kind, CellKind::Tombstone { .. }) {
            self.data.extend_from_slice(cell.value);
        }
        self.cells.push(PendingCell {
            column: cell.column,
            path: path_start..value_start,
            timestamp: cell.timestamp,
            kind: cell.kind,
            value: value_start..self.data.len(),
        });
        self
    }

    fn put_in_order(&mut self) {
        let data = &self.data;
        self.cells.sort_by(|left, right| {
            let (left, right) = (left.view(data), right.view(data));
            left.address().cmp(&right.address()).then_with(|| right.compare_versions(&left))
        });
        let mut kept: Vec<PendingCell> = Vec::with_capacity(self.cells.len());
        for cell in std::mem::take(&mut self.cells) {
            let Some(winner) = kept
                .last_mut()
                .filter(|last| last.view(&self.data).address() == cell.view(&self.data).address())
            else {
                kept.push(cell);
                continue;
            };
            if winner.kind == CellKind::Counter && cell.kind == CellKind::Counter {
                let mut merged = Vec::new();
                counter::merge(winner.view(&self.data).value, cell.view(&self.data).value, &mut merged);
                let start = self.data.len();
                self.data.extend_from_slice(&merged);
                winner.value = start..self.data.len();
            }
        }
        self.cells = kept;
        self.disordered = false;
    }

    /// Appends the row to `out` with timestamps relative to `base`. False if the row has no parts.
    pub fn write_to(&mut self, base: i64, out: &mut Vec<u8>) -> bool {
        if self.disordered {
            self.put_in_order();
        }
        let mut writer = RowWriter::begin(out, base, self.liveness, self.deletion, &self.column_deletions);
        for cell in &self.cells {
            writer.cell(&cell.view(&self.data));
        }
        writer.finish()
    }

    /// The row in a new buffer with base 0. Empty if the row has no parts.
    pub fn to_bytes(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.expected_bytes());
        self.write_to(0, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(column: u32, path: &'static [u8], timestamp: i64, value: &'static [u8]) -> Cell<'static> {
        Cell { column, path, timestamp, kind: CellKind::Live, value }
    }

    fn sample() -> RowBuilder {
        let expiry = Expiry { ttl: 60, expires_at: 1_000_060 };
        let mut builder = RowBuilder::new();
        builder
            .set_liveness(Liveness { timestamp: 1_700_000_000_000_000, expiry: Some(expiry) })
            .set_deletion(Deletion { timestamp: 1_699_999_999_999_999, local_deletion_time: 7 })
            .delete_column(5, Deletion { timestamp: 12, local_deletion_time: 8 })
            .cell(live(9, b"", -3, b"nine"))
            .cell(live(5, b"b", 1_700_000_000_000_000, b"five b"))
            .cell(live(5, b"a", 13, b""))
            .cell(Cell {
                column: 2,
                path: b"",
                timestamp: 1_700_000_000_000_000,
                kind: CellKind::Expiring(expiry),
                value: b"two",
            })
            .cell(Cell {
                column: 3,
                path: b"",
                timestamp: 4,
                kind: CellKind::Tombstone { local_deletion_time: 99 },
                value: b"ignored",
            });
        builder
    }

    #[test]
    fn a_row_is_read_as_it_was_built() {
        let bytes = sample().to_bytes();
        let row = RowRef::new(&bytes, 0);
        row.validate().unwrap();
        assert!(!row.is_plain());
        assert_eq!(row.liveness().unwrap().timestamp, 1_700_000_000_000_000);
        assert_eq!(row.deletion().unwrap().local_deletion_time, 7);
        assert_eq!(row.column_deletions().map(|entry| entry.0).collect::<Vec<_>>(), [5]);
        let cells: Vec<_> = row.cells().collect();
        let addresses: Vec<_> = cells.iter().map(|cell| (cell.column, cell.path)).collect();
        assert_eq!(addresses, [(2, &b""[..]), (3, b""), (5, b"a"), (5, b"b"), (9, b"")]);
        assert_eq!(cells[4].value, b"nine");
        assert_eq!(cells[4].timestamp, -3);
        assert_eq!(cells[1].value, b"");
    }

    #[test]
    fn golden_bytes() {
        let mut builder = RowBuilder::new();
        builder
            .set_liveness(Liveness { timestamp: 3, expiry: None })
            .cell(live(1, b"", 3, b"ab"))
            .cell(live(2, b"p", 4, b"c"));
        assert_eq!(builder.to_bytes(), [1, 6, 0b100, 1, 2, b'a', b'b', 0b1_0000, 2, 1, b'p', 8, 1, b'c']);
    }

    #[test]
    fn the_base_changes_bytes_but_not_content() {
        let bytes = sample().to_bytes();
        let row = RowRef::new(&bytes, 0);
        let mut moved = Vec::new();
        transcode(row, 1_700_000_000_000_000, &mut moved).unwrap();
        let moved = RowRef::new(&moved, 1_700_000_000_000_000);
        moved.validate().unwrap();
        assert!(moved.cells().eq(row.cells()));
        assert_eq!(moved.liveness(), row.liveness());
        assert_eq!(moved.deletion(), row.deletion());
        assert!(moved.column_deletions().eq(row.column_deletions()));
    }

    #[test]
    fn duplicates_are_reconciled() {
        let mut builder = RowBuilder::new();
        builder.cell(live(1, b"", 5, b"new")).cell(live(1, b"", 4, b"old")).cell(live(0, b"", 1, b"x"));
        let bytes = builder.to_bytes();
        let values: Vec<_> = RowRef::new(&bytes, 0).cells().map(|cell| cell.value).collect();
        assert_eq!(values, [&b"x"[..], b"new"]);
    }

    #[test]
    fn the_short_way_of_a_cell_writes_what_the_long_one_does() {
        let values: Vec<Vec<u8>> = [0, 1, 127, 128].map(|length| vec![9; length]).to_vec();
        let kinds = [
            CellKind::Live,
            CellKind::Expiring(Expiry { ttl: 1, expires_at: 5 }),
            CellKind::Tombstone { local_deletion_time: 4 },
        ];
        for liveness in [None, Some(Liveness { timestamp: 1, expiry: None })] {
            for (value, kind) in values.iter().flat_map(|value| kinds.map(|kind| (value, kind))) {
                for (column, timestamp, path) in
                    [(1, 1, &b""[..]), (0x7F, 1, b""), (0x80, 1, b""), (1, 2, b""), (1, 1, b"path")]
                {
                    let cell = Cell { column, path, timestamp, kind, value };
                    let later = Cell { column: 0x90, ..cell };
                    let write = |cells: [&Cell<'_>; 2], is_short: bool| {
                        let mut out = Vec::new();
                        let mut writer = RowWriter::begin(&mut out, 0, liveness, None, &[]);
                        for cell in cells {
                            if is_short { writer.cell(cell) } else { writer.any_cell(cell) }
                        }
                        writer.finish();
                        out
                    };
                    let cells = [&cell, &later];
                    assert_eq!(write(cells, true), write(cells, false), "{cell:?}");
                }
            }
        }
    }

    #[test]
    fn damaged_rows_are_errors_and_never_panics() {
        let bytes = sample().to_bytes();
        for cut in 0..bytes.len() {
            let row = RowRef::new(&bytes[..cut], 0);
            row.cells().count();
            row.column_deletions().count();
        }
        for index in 0..bytes.len() {
            for value in 0..=255 {
                let mut damaged = bytes.clone();
                damaged[index] = value;
                let row = RowRef::new(&damaged, 0);
                if let Ok(timestamps) = row.validate() {
                    let newest = row.cells().map(|cell| cell.timestamp).max();
                    assert!(newest <= timestamps.newest(), "{row:?}");
                }
            }
        }
        assert!(RowRef::new(&[], 0).validate().is_err());
        let of_no_column_deletions = [flags::COLUMN_DELETIONS, 0];
        assert!(RowRef::new(&of_no_column_deletions, 0).validate().is_err());
    }
}
