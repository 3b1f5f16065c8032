//! Packing a block before compression: the structure that its rows have in common is left out.
//!
//! Most rows of a table have the same columns, values of the same lengths, and only live cells. General compressors do not find
//! repeats of two or three bytes between incompressible values. So the packer removes them. A row that has the *shape* of the
//! previous row (the same row flags, cell flags and columns) is written without it, and without the lengths of its values if
//! those are equal as well. Unpacking restores the block's body byte by byte.
//!
//! ```text
//! packed := body length varint | base timestamp i64 | entries
//! entry  := head varint | [suffix length varint] | key suffix | row
//! head   := shared << 3 | same << 2 | mode                          (shared, same: as in a block's body)
//! row    := mode 0 (unchanged):       length varint | bytes
//!           mode 1 (same shape):      numbers | value lengths varints | values
//!           mode 2 (lengths as well): numbers | values
//! numbers := the varints of the row that are neither columns nor lengths, unchanged and in order
//! ```
//!
//! Rows with deletions, or with cells that have a path, are always written unchanged.
//!
//! Restoring rows is most of the work of reading a block. A read of the first rows of each partition therefore passes over the other
//! rows without restoring them ([`unpack_heads`]).

use super::block::{BlockView, EntryOffset, RESTART_INTERVAL, put_rest};
use super::compression::BLOCK_BYTES_MAX;
use super::heads::{BlockData, HeadsBuilder};
use crate::codec::{DecodeError, Reader, put_unsigned};
use crate::row::flags;

const AS_IS: u64 = 0;
const SAME_SHAPE: u64 = 1;
const SAME_LENGTHS: u64 = 2;
const _: () = assert!(SAME_LENGTHS < 1 << 2, "a mode takes two bits of an entry's head");

const MALFORMED: DecodeError = DecodeError::Truncated { what: "a packed block" };

/// The structure of a row without its values and numbers.
#[derive(Debug, Default)]
struct Shape {
    row_flags: u8,
    cells: Vec<CellShape>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellShape {
    flags: u8,
    column: u64,
    /// Varints between column and value.
    numbers: u8,
    value_length: usize,
}

impl CellShape {
    fn has_value(self) -> bool {
        self.flags & flags::CELL_NO_VALUE == 0
    }
}

/// The number of varints of the row's liveness.
fn row_numbers(row_flags: u8) -> u8 {
    match (row_flags & flags::LIVENESS != 0, row_flags & flags::LIVENESS_EXPIRES != 0) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 3,
    }
}

fn cell_numbers(cell_flags: u8) -> u8 {
    let timestamp = u8::from(cell_flags & flags::CELL_SHARES_TIMESTAMP == 0);
    timestamp
        + match cell_flags & flags::CELL_KIND {
            flags::CELL_EXPIRING if cell_flags & flags::CELL_SHARES_EXPIRY == 0 => 2,
            flags::CELL_TOMBSTONE => 1,
            _ => 0,
        }
}

/// Takes a varint and returns its bytes.
#[inline]
fn take_varint<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = rest.iter().position(|byte| *byte < 0x80)? + 1;
    let (varint, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(varint)
}

#[inline]
fn take_number(rest: &mut &[u8]) -> Option<u64> {
    match **rest {
        [first @ ..0x80, ref after @ ..] => {
            *rest = after;
            return Some(u64::from(first));
        }
        [first, second @ ..0x80, ref after @ ..] => {
            *rest = after;
            return Some(u64::from(first & 0x7F) | u64::from(second) << 7);
        }
        _ => {}
    }
    let mut reader = Reader::new(rest);
    let value = reader.unsigned("a number").ok()?;
    *rest = reader.rest();
    Some(value)
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// Splits rows into shape, numbers and values. The buffers are reused from row to row.
#[derive(Debug, Default)]
struct Splitter {
    shape: Shape,
    numbers: Vec<u8>,
    values: Vec<u8>,
}

impl Splitter {
    /// `None` if the row has parts that are not in shapes.
    fn split(&mut self, row: &[u8]) -> Option<()> {
        self.shape.cells.clear();
        self.numbers.clear();
        self.values.clear();
        let (row_flags, mut rest) = row.split_first()?;
        if row_flags & (flags::DELETION | flags::COLUMN_DELETIONS) != 0 {
            return None;
        }
        self.shape.row_flags = *row_flags;
        for _ in 0..row_numbers(*row_flags) {
            self.numbers.extend_from_slice(take_varint(&mut rest)?);
        }
        while let Some((cell_flags, after)) = rest.split_first() {
            rest = after;
            if cell_flags & flags::CELL_PATH != 0 {
                return None;
            }
            let column = take_number(&mut rest)?;
            let numbers = cell_numbers(*cell_flags);
            for _ in 0..numbers {
                self.numbers.extend_from_slice(take_varint(&mut rest)?);
            }
            let mut cell = CellShape { flags: *cell_flags, column, numbers, value_length: 0 };
            if cell.has_value() {
                cell.value_length = usize::try_from(take_number(&mut rest)?).ok()?;
                self.values.extend_from_slice(take(&mut rest, cell.value_length)?);
            }
            self.shape.cells.push(cell);
        }
        Some(())
    }
}

impl Shape {
    /// The mode of a row of shape `other` after a row of this shape.
    fn mode(&self, other: &Self) -> u64 {
        let same_structure = self.row_flags == other.row_flags
            && self.cells.len() == other.cells.len()
            && self
                .cells
                .iter()
                .zip(&other.cells)
                .all(|(left, right)| (left.flags, left.column) == (right.flags, right.column));
        if !same_structure {
            AS_IS
        } else if self.cells == other.cells {
            SAME_LENGTHS
        } else {
            SAME_SHAPE
        }
    }
}

/// Appends the packed form of a block's body to `out`; false if the bytes are not a block's body.
pub fn pack(body: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(view) = BlockView::new(body) else { return false };
    put_unsigned(out, body.len() as u64);
    out.extend_from_slice(&view.base().to_le_bytes());
    let mut previous = Splitter::default();
    let mut current = Splitter::default();
    let mut previous_has_shape = false;
    let mut place = EntryOffset::default();
    let mut key_length = 0;
    let mut number = 0_usize;
    while place.key < view.end() {
        let Some(entry) = view.entry(place, key_length) else { return false };
        let row = view.row(entry.row.clone()).bytes;
        let has_shape = current.split(row).is_some();
        let mode = if has_shape && previous_has_shape { previous.shape.mode(&current.shape) } else { AS_IS };
        let same = !number.is_multiple_of(RESTART_INTERVAL) && entry.key_length() == key_length;
        put_unsigned(out, (entry.shared as u64) << 3 | u64::from(same) << 2 | mode);
        if !same {
            put_unsigned(out, entry.suffix.len() as u64);
        }
        out.extend_from_slice(view.suffix(&entry));
        if mode == AS_IS {
            put_unsigned(out, row.len() as u64);
            out.extend_from_slice(row);
        } else {
            out.extend_from_slice(&current.numbers);
            if mode == SAME_SHAPE {
                for cell in current.shape.cells.iter().filter(|cell| cell.has_value()) {
                    put_unsigned(out, cell.value_length as u64);
                }
            }
            out.extend_from_slice(&current.values);
        }
        key_length = entry.key_length();
        place = entry.end();
        std::mem::swap(&mut previous, &mut current);
        previous_has_shape = has_shape;
        number += 1;
    }
    true
}

fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

impl Shape {
    /// Bytes of a row of this shape besides its numbers.
    fn fixed_length(&self) -> usize {
        let cell_length = |cell: &CellShape| {
            let value = if cell.has_value() {
                varint_length(cell.value_length as u64) + cell.value_length
            } else {
                0
            };
            1 + varint_length(cell.column) + value
        };
        1 + self.cells.iter().map(cell_length).sum::<usize>()
    }

    fn number_count(&self) -> usize {
        let of_cells: usize = self.cells.iter().map(|cell| usize::from(cell.numbers)).sum();
        usize::from(row_numbers(self.row_flags)) + of_cells
    }

    fn read_lengths(&mut self, rest: &mut &[u8]) -> Option<()> {
        for cell in self.cells.iter_mut().filter(|cell| cell.has_value()) {
            // No value is longer than a block, so sums of lengths cannot overflow.
            cell.value_length =
                usize::try_from(take_number(rest)?).ok().filter(|length| *length <= BLOCK_BYTES_MAX)?;
        }
        Some(())
    }

    /// Appends a row of this shape.
    fn put_row(&self, mut numbers: &[u8], rest: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
        out.push(self.row_flags);
        for _ in 0..row_numbers(self.row_flags) {
            out.extend_from_slice(take_varint(&mut numbers)?);
        }
        for cell in &self.cells {
            out.push(cell.flags);
            put_unsigned(out, cell.column);
            for _ in 0..cell.numbers {
                out.extend_from_slice(take_varint(&mut numbers)?);
            }
            if cell.has_value() {
                put_unsigned(out, cell.value_length as u64);
                out.extend_from_slice(take(rest, cell.value_length)?);
            }
        }
        Some(())
    }
}

/// The key of a packed entry, and how its row is written.
struct PackedKey<'a> {
    shared: usize,
    same: u64,
    suffix: &'a [u8],
    mode: u64,
}

/// Takes the key of an entry behind one whose key is this long.
#[inline]
fn take_key<'a>(rest: &mut &'a [u8], key_length: usize) -> Option<PackedKey<'a>> {
    let head = take_number(rest)?;
    let (shared, same, mode) = (usize::try_from(head >> 3).ok()?, head >> 2 & 1, head & 3);
    let suffix_length =
        if same == 1 { key_length.checked_sub(shared)? } else { usize::try_from(take_number(rest)?).ok()? };
    Some(PackedKey { shared, same, suffix: take(rest, suffix_length)?, mode })
}

/// Takes the length of the body, and its base timestamp.
fn take_header(rest: &mut &[u8]) -> Option<(usize, [u8; 8])> {
    let body_length = usize::try_from(take_number(rest)?).ok().filter(|length| *length <= BLOCK_BYTES_MAX)?;
    let (base, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some((body_length, *base))
}

/// The shape that the next packed row may have. It is found only when one has it.
#[derive(Default)]
struct LazyShape<'a> {
    splitter: Splitter,
    /// The last row that was written unchanged, if the shape is not that of it yet.
    row: Option<&'a [u8]>,
    numbers: usize,
    /// Bytes of all values of a row, and of a row besides its numbers.
    value_bytes: usize,
    fixed_bytes: usize,
}

impl LazyShape<'_> {
    /// Brings the shape up to date.
    #[inline]
    fn settle(&mut self) {
        let Some(row) = self.row.take() else { return };
        if self.splitter.split(row).is_none() {
            self.splitter.shape = Shape::default();
        }
        self.numbers = self.splitter.shape.number_count();
        self.measure();
    }

    /// Reads the lengths of the values of the next row.
    fn read_lengths(&mut self, rest: &mut &[u8]) -> Option<()> {
        self.splitter.shape.read_lengths(rest)?;
        self.measure();
        Some(())
    }

    fn measure(&mut self) {
        let shape = &self.splitter.shape;
        let with_values = shape.cells.iter().filter(|cell| cell.has_value());
        self.value_bytes = with_values.map(|cell| cell.value_length).sum();
        self.fixed_bytes = shape.fixed_length();
    }
}

/// As [`unpack`], with the first rows of each partition alone: at least `rows` of them that every reader sees. All rows if the heads
/// would take more memory than those.
pub fn unpack_heads(packed: &[u8], rows: u8) -> Result<BlockData, DecodeError> {
    unpack_heads_of(packed, rows).ok_or(MALFORMED)
}

fn unpack_heads_of(packed: &[u8], rows: u8) -> Option<BlockData> {
    let mut rest = packed;
    let (body_length, base) = take_header(&mut rest)?;
    let mut heads = HeadsBuilder::new(rows);
    let mut shape = LazyShape::default();
    // Of all rows, also those that are left out.
    let mut row_bytes = 0_usize;
    while !rest.is_empty() {
        let PackedKey { shared, suffix, mode, .. } = take_key(&mut rest, heads.key_length())?;
        let is_in_head = heads.move_to(shared, suffix)?;
        if mode == AS_IS {
            let length = usize::try_from(take_number(&mut rest)?).ok()?;
            let row = take(&mut rest, length)?;
            row_bytes = row_bytes.checked_add(length).filter(|bytes| *bytes <= body_length)?;
            if is_in_head {
                heads.rows().extend_from_slice(row);
            }
            shape.row = Some(row);
        } else {
            shape.settle();
            let numbers_start = rest;
            for _ in 0..shape.numbers {
                take_varint(&mut rest)?;
            }
            let numbers = numbers_start.get(..numbers_start.len() - rest.len())?;
            if mode == SAME_SHAPE {
                shape.read_lengths(&mut rest)?;
            }
            // A row without values takes no bytes of the input, and work nonetheless.
            let length = shape.fixed_bytes + numbers.len();
            row_bytes = row_bytes.checked_add(length).filter(|bytes| *bytes <= body_length)?;
            let mut values = take(&mut rest, shape.value_bytes)?;
            if is_in_head {
                shape.splitter.shape.put_row(numbers, &mut values, heads.rows())?;
            }
        }
        if is_in_head {
            heads.end_row();
            if heads.exceeds(body_length) {
                return unpack_body(packed).map(|body| BlockData::whole(&body));
            }
        }
    }
    Some(heads.finish(i64::from_le_bytes(base)))
}

/// Restores a block's body. Never panics, whatever the bytes.
pub fn unpack(packed: &[u8]) -> Result<Vec<u8>, DecodeError> {
    unpack_body(packed).ok_or(MALFORMED)
}

fn unpack_body(packed: &[u8]) -> Option<Vec<u8>> {
    let mut rest = packed;
    let (body_length, base) = take_header(&mut rest)?;
    let mut keys = Vec::with_capacity(body_length);
    let mut rows = Vec::with_capacity(body_length);
    let mut restarts: Vec<EntryOffset> = Vec::new();
    let mut template = Splitter::default();
    let mut key_length = 0_usize;
    let mut number = 0_usize;
    while !rest.is_empty() {
        if number.is_multiple_of(RESTART_INTERVAL) {
            restarts.push(EntryOffset { key: keys.len(), row: rows.len() });
        }
        number += 1;
        let PackedKey { shared, same, suffix, mode } = take_key(&mut rest, key_length)?;
        key_length = shared.checked_add(suffix.len())?;
        put_unsigned(&mut keys, (shared as u64) << 1 | same);
        if same == 0 {
            put_unsigned(&mut keys, suffix.len() as u64);
        }
        let row_start = rows.len();
        if mode == AS_IS {
            let length = usize::try_from(take_number(&mut rest)?).ok()?;
            let row = take(&mut rest, length)?;
            rows.extend_from_slice(row);
            if template.split(row).is_none() {
                template.shape = Shape::default();
            }
        } else {
            let numbers_start = rest;
            for _ in 0..template.shape.number_count() {
                take_varint(&mut rest)?;
            }
            let numbers = numbers_start.get(..numbers_start.len() - rest.len())?;
            if mode == SAME_SHAPE {
                template.shape.read_lengths(&mut rest)?;
            }
            if rows.len() + template.shape.fixed_length() + numbers.len() > body_length {
                return None;
            }
            template.shape.put_row(numbers, &mut rest, &mut rows)?;
        }
        put_unsigned(&mut keys, (rows.len() - row_start) as u64);
        keys.extend_from_slice(suffix);
        if keys.len() + rows.len() > body_length {
            return None;
        }
    }
    put_rest(&mut keys, &rows, &restarts, base);
    (keys.len() == body_length).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockBuilder;
    use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness};
    use crate::io::SplitMix64;
    use crate::row::RowRef;
    use crate::row_writer::RowBuilder;

    /// A block of rows of all kinds. Many have the same shape.
    fn block(seed: u64, rows: usize) -> Vec<u8> {
        let mut random = SplitMix64::new(seed);
        let mut builder = BlockBuilder::new();
        for number in 0..rows {
            let mut row = RowBuilder::new();
            let expiry = Some(Expiry { ttl: 60, expires_at: 5000 }).filter(|_| random.chance(1, 5));
            let timestamp = 1000 + random.below(300) as i64;
            if random.chance(9, 10) {
                row.set_liveness(Liveness { timestamp, expiry });
            }
            if random.chance(1, 12) {
                row.set_deletion(Deletion { timestamp: 4, local_deletion_time: 9 });
            }
            for column in 0..3 + u32::from(random.chance(1, 8)) {
                let kind = match random.below(12) {
                    0 => CellKind::Tombstone { local_deletion_time: 7 },
                    1 => CellKind::Expiring(Expiry { ttl: 1, expires_at: 2 }),
                    _ => expiry.map_or(CellKind::Live, CellKind::Expiring),
                };
                let value =
                    vec![number as u8; if random.chance(1, 4) { random.below(300) as usize } else { 7 }];
                let path: &[u8] = if random.chance(1, 30) { b"path" } else { b"" };
                let timestamp = timestamp + i64::from(random.chance(1, 10));
                row.cell(Cell { column: column * 70, path, timestamp, kind, value: &value });
            }
            let bytes = row.to_bytes();
            let key = format!("key{:03}{}", number, "y".repeat(random.below(2) as usize));
            builder.add(key.as_bytes(), RowRef::new(&bytes, 0), 1000).unwrap();
        }
        builder.finish(<[u8]>::to_vec)
    }

    #[test]
    fn unpacking_restores_every_byte() {
        for seed in 0..200 {
            let body = block(seed, seed as usize % 60);
            let mut packed = Vec::new();
            assert!(pack(&body, &mut packed));
            assert_eq!(unpack(&packed).unwrap(), body);
        }
    }

    #[test]
    fn golden_bytes() {
        let mut builder = BlockBuilder::new();
        for (key, value) in [("a1", "one"), ("a2", "two"), ("a3", "three")] {
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp: 5, expiry: None });
            row.cell(Cell {
                column: 1,
                path: &[],
                timestamp: 5,
                kind: CellKind::Live,
                value: value.as_bytes(),
            });
            builder.add(key.as_bytes(), RowRef::new(&row.to_bytes(), 0), 5).unwrap();
        }
        let body = builder.finish(<[u8]>::to_vec);
        let mut packed = Vec::new();
        assert!(pack(&body, &mut packed));
        let expected = [
            &[61, 5, 0, 0, 0, 0, 0, 0, 0][..],
            &[0, 2, b'a', b'1', 8, 1, 0, 0b100, 1, 3, b'o', b'n', b'e'],
            &[1 << 3 | 1 << 2 | 2, b'2', 0, b't', b'w', b'o'],
            &[1 << 3 | 1 << 2 | 1, b'3', 0, 5, b't', b'h', b'r', b'e', b'e'],
        ]
        .concat();
        assert_eq!(body.len(), 61);
        assert_eq!(packed, expected);
    }

    #[test]
    fn rows_alike_cost_little_more_than_their_values() {
        let mut builder = BlockBuilder::new();
        for number in 0..100_u64 {
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp: 5, expiry: None });
            for column in 0..5 {
                row.cell(Cell { column, path: &[], timestamp: 5, kind: CellKind::Live, value: &[7; 40] });
            }
            builder.add(&number.to_be_bytes(), RowRef::new(&row.to_bytes(), 0), 5).unwrap();
        }
        let mut packed = Vec::new();
        assert!(builder.finish(|body| pack(body, &mut packed)));
        assert!(packed.len() < 100 * 204, "{}", packed.len());
    }

    /// A packed block with a body of this length and these entries: what each shares, its key suffix, and its row with the mode.
    fn packed_of(body_length: usize, entries: &[(usize, &[u8], u64, &[u8])]) -> Vec<u8> {
        let mut packed = Vec::new();
        put_unsigned(&mut packed, body_length as u64);
        packed.extend_from_slice(&[0; 8]);
        for (shared, suffix, mode, row) in entries {
            put_unsigned(&mut packed, (*shared as u64) << 3 | mode);
            put_unsigned(&mut packed, suffix.len() as u64);
            packed.extend_from_slice(suffix);
            if *mode == AS_IS {
                put_unsigned(&mut packed, row.len() as u64);
            }
            packed.extend_from_slice(row);
        }
        packed
    }

    #[test]
    fn heads_of_keys_that_share_a_long_one_take_no_more_memory_than_the_whole_block() {
        const ENTRIES: usize = 2_000;
        let long_key = vec![b'k'; 64 << 10];
        let mut entries: Vec<(usize, &[u8], u64, &[u8])> = vec![(0, &long_key, AS_IS, &[])];
        entries.extend([(long_key.len(), &b"end"[..], AS_IS, &[][..])].repeat(ENTRIES - 1));
        // In the body no key is repeated at a restart.
        let keys_bytes: usize = entries
            .iter()
            .map(|(shared, suffix, ..)| {
                varint_length((*shared as u64) << 1) + varint_length(suffix.len() as u64) + 1 + suffix.len()
            })
            .sum();
        let body_length = keys_bytes + ENTRIES.div_ceil(RESTART_INTERVAL) * 8 + 16;
        let packed = packed_of(body_length, &entries);
        let heads = unpack_heads(&packed, 1).unwrap();
        assert!(heads.is_whole());
        assert_eq!(heads.body(), unpack(&packed).unwrap());
        assert!(unpack_heads(&packed_of(1_000, &entries), 1).is_err());
    }

    #[test]
    fn rows_that_are_left_out_are_no_longer_than_the_body() {
        const CELLS: usize = 500;
        let mut row = vec![0];
        for _ in 0..CELLS {
            row.extend_from_slice(&[flags::CELL_NO_VALUE | flags::CELL_SHARES_TIMESTAMP, 1]);
        }
        let key = [&[0; 8][..], &[0, 1, b'p', 2, 7]].concat();
        let mut entries: Vec<(usize, &[u8], u64, &[u8])> = vec![(0, &key, AS_IS, &row)];
        entries.extend([(key.len(), &[][..], SAME_SHAPE, &[][..])].repeat(999));
        let row_bytes = row.len() * entries.len();
        let heads = unpack_heads(&packed_of(row_bytes, &entries), 1).unwrap();
        assert!(!heads.is_whole() && heads.len() < 2 * row.len());
        assert!(unpack_heads(&packed_of(row_bytes - 1, &entries), 1).is_err());
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let mut packed = Vec::new();
        pack(&block(3, 20), &mut packed);
        for index in 0..packed.len() {
            for value in [0, 1, 2, 3, 0x7F, 0x80, 0xFF] {
                let mut damaged = packed.clone();
                damaged[index] = value;
                drop(unpack(&damaged));
            }
            drop(unpack(&packed[..index]));
        }
    }
}
