//! A data block: consecutive rows, their keys prefix-compressed.
//!
//! ```text
//! body    := keys | rows | restarts x (key offset u32 | row offset u32) | base timestamp i64
//!            | length of the keys u32 | number of restarts u32                                         little endian
//! key     := head varint | [suffix length varint] | row length varint | key suffix
//! head    := shared << 1 | same
//! ```
//!
//! `shared` is the length of the common prefix with the previous key. If `same` is set, the key is as long as the previous one, and
//! the suffix length is left out. Every 16th key is a *restart*: it shares nothing and carries its suffix length, so that a
//! reader can start there. A binary search over the restarts finds the interval of a key. Keys and rows are stored separately,
//! so that a search touches few cache lines however large the rows are. Rows are encoded relative to the base timestamp.

use std::cmp::Ordering;
use std::ops::Range;

use crate::codec::{DecodeError, put_unsigned};
use crate::invariant::broken;
use crate::prefetch::{LINE_BYTES, prefetch};
use crate::row::RowRef;
use crate::row_writer::transcode;

/// Entries from one restart to the next.
pub const RESTART_INTERVAL: usize = 16;

const TRAILER_BYTES: usize = 16;
const RESTART_BYTES: usize = 8;

/// The start of an entry: its offsets in the keys and in the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryOffset {
    pub key: usize,
    pub row: usize,
}

/// Builds the body of a block. It is reused for the next block.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    keys: Vec<u8>,
    rows: Vec<u8>,
    restarts: Vec<EntryOffset>,
    entries: usize,
    /// Where the next row begins.
    row_start: usize,
    base: i64,
    last_key: Vec<u8>,
}

/// Completes a body: appends all other parts to `keys`.
pub(super) fn put_rest(keys: &mut Vec<u8>, rows: &[u8], restarts: &[EntryOffset], base: [u8; 8]) {
    let keys_length = keys.len() as u32;
    keys.reserve(rows.len() + restarts.len() * RESTART_BYTES + TRAILER_BYTES);
    keys.extend_from_slice(rows);
    for restart in restarts {
        keys.extend_from_slice(&(restart.key as u32).to_le_bytes());
        keys.extend_from_slice(&(restart.row as u32).to_le_bytes());
    }
    keys.extend_from_slice(&base);
    keys.extend_from_slice(&keys_length.to_le_bytes());
    keys.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
}

/// The length of the common prefix of two keys.
#[inline]
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut common = 0;
    for (left, right) in left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if difference != 0 {
            return common + difference.trailing_zeros() as usize / 8;
        }
        common += 8;
    }
    let rest = left.iter().skip(common).zip(right.iter().skip(common));
    common + rest.take_while(|(left, right)| left == right).count()
}

impl BlockBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder with room for this many bytes of keys and of rows.
    pub(super) fn with_capacity(keys: usize, rows: usize) -> Self {
        Self { keys: Vec::with_capacity(keys), rows: Vec::with_capacity(rows), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Current size of the body in bytes.
    pub fn size_bytes(&self) -> usize {
        self.keys.len() + self.rows.len() + self.restarts.len() * RESTART_BYTES + TRAILER_BYTES
    }

    /// The last key.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Takes note of the last key of rows that were encoded elsewhere.
    pub(super) fn set_last_key(&mut self, key: &[u8]) {
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Appends a row. Keys must ascend. The `base` of the first row becomes the base of the block; it should be near the
    /// timestamps of the other rows.
    pub fn add(&mut self, key: &[u8], row: RowRef<'_>, base: i64) -> Result<(), DecodeError> {
        if self.is_empty() {
            self.base = base;
        }
        transcode(row, self.base, &mut self.rows)?;
        self.end_row(key);
        Ok(())
    }

    /// The base of the block, for one whose rows are appended to [`BlockBuilder::rows`].
    pub(super) fn set_base(&mut self, base: i64) {
        self.base = base;
    }

    /// The rows, to which the next one is appended relative to the base of the block.
    pub(super) fn rows(&mut self) -> &mut Vec<u8> {
        &mut self.rows
    }

    /// The end of the entries.
    pub(super) fn end(&self) -> EntryOffset {
        EntryOffset { key: self.keys.len(), row: self.row_start }
    }

    /// Ends the row that was appended to the rows, and returns it. Keys must ascend.
    pub(super) fn end_row(&mut self, key: &[u8]) -> RowRef<'_> {
        let place = self.end();
        let restart = self.entries.is_multiple_of(RESTART_INTERVAL);
        let shared = if restart { 0 } else { common_prefix(&self.last_key, key) };
        let suffix = &key[shared..];
        let same = !restart && key.len() == self.last_key.len();
        if restart {
            self.restarts.push(place);
        }
        put_unsigned(&mut self.keys, (shared as u64) << 1 | u64::from(same));
        if !same {
            put_unsigned(&mut self.keys, suffix.len() as u64);
        }
        put_unsigned(&mut self.keys, (self.rows.len() - place.row) as u64);
        self.keys.extend_from_slice(suffix);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
        self.entries += 1;
        self.row_start = self.rows.len();
        RowRef::new(&self.rows[place.row..], self.base)
    }

    /// Completes the body and passes it to `use_body`. Afterwards the builder is empty except for the last key.
    pub fn finish<T>(&mut self, use_body: impl FnOnce(&[u8]) -> T) -> T {
        put_rest(&mut self.keys, &self.rows, &self.restarts, self.base.to_le_bytes());
        let result = use_body(&self.keys);
        self.keys.clear();
        self.rows.clear();
        self.restarts.clear();
        self.entries = 0;
        self.row_start = 0;
        result
    }
}

/// The place of an entry and its parts in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRef {
    /// Length of the common prefix with the previous key.
    pub shared: usize,
    /// Offsets in the keys.
    pub suffix: Range<usize>,
    /// Offsets in the rows.
    pub row: Range<usize>,
}

impl EntryRef {
    pub fn key_length(&self) -> usize {
        self.shared + self.suffix.len()
    }

    /// The start of the next entry.
    pub fn end(&self) -> EntryOffset {
        EntryOffset { key: self.suffix.end, row: self.row.end }
    }
}

/// A view of a block's body. It never panics, whatever the bytes; `None` and `Err` mean that they are not a block.
#[derive(Debug, Clone, Copy)]
pub struct BlockView<'a> {
    keys: &'a [u8],
    rows: &'a [u8],
    restarts: &'a [[u8; RESTART_BYTES]],
    base: i64,
}

/// The result of searching for a key in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchResult {
    /// The entry at `place` has the key.
    Exact { place: EntryOffset, entry: EntryRef },
    /// The entry at `place` is the first with a larger key.
    Greater { place: EntryOffset, entry: EntryRef },
    /// All keys of the block are smaller.
    End,
}

/// The head of an entry, and the offset of its key suffix (`end`).
#[derive(Debug, PartialEq, Eq)]
struct Lengths {
    shared: usize,
    suffix_length: usize,
    row_length: usize,
    end: usize,
}

const MALFORMED: DecodeError = DecodeError::Truncated { what: "a block" };

#[inline]
fn varint(bytes: &[u8], offset: &mut usize) -> Option<usize> {
    let first = *bytes.get(*offset)?;
    *offset += 1;
    if first < 0x80 {
        return Some(usize::from(first));
    }
    let mut value = usize::from(first & 0x7F);
    let mut shift = 7;
    loop {
        let byte = *bytes.get(*offset)?;
        *offset += 1;
        value |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
        // Lengths fit 32 bits. Longer varints are damage.
        if shift > 28 {
            return None;
        }
    }
}

impl<'a> BlockView<'a> {
    /// Splits the body into its parts.
    #[inline]
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let (rest, count) = body.split_last_chunk::<4>()?;
        let (rest, keys_length) = rest.split_last_chunk::<4>()?;
        let (rest, base) = rest.split_last_chunk::<8>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let data_length = rest.len().checked_sub(count.checked_mul(RESTART_BYTES)?)?;
        let (data, restarts) = rest.split_at(data_length);
        let (keys, rows) = data.split_at_checked(u32::from_le_bytes(*keys_length) as usize)?;
        let (restarts, _) = restarts.as_chunks::<RESTART_BYTES>();
        Some(Self { keys, rows, restarts, base: i64::from_le_bytes(*base) })
    }

    /// Microseconds; rows are relative to it.
    #[inline]
    pub fn base(&self) -> i64 {
        self.base
    }

    /// Prefetches the keys, which a search accesses at random.
    #[inline]
    pub fn prefetch_keys(&self) {
        const LINES_MAX: usize = 24;
        self.keys.chunks(LINE_BYTES).take(LINES_MAX).for_each(prefetch);
    }

    /// The end of the keys.
    #[inline]
    pub fn end(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    fn restart_place(bytes: [u8; RESTART_BYTES]) -> EntryOffset {
        let both = u64::from_le_bytes(bytes);
        EntryOffset { key: both as u32 as usize, row: (both >> 32) as usize }
    }

    /// The start of a restart interval; the end of the entries if there is no such interval.
    #[inline]
    pub fn restart(&self, index: usize) -> EntryOffset {
        let end = EntryOffset { key: self.keys.len(), row: self.rows.len() };
        self.restarts.get(index).map_or(end, |bytes| Self::restart_place(*bytes))
    }

    /// The last interval whose keys begin before `key_offset`.
    pub fn interval_before(&self, key_offset: usize) -> Option<usize> {
        self.restarts.partition_point(|bytes| Self::restart_place(*bytes).key < key_offset).checked_sub(1)
    }

    /// Decodes the head of the entry at `offset` in the keys.
    fn lengths(&self, mut offset: usize, previous_key_length: usize) -> Option<Lengths> {
        let head = varint(self.keys, &mut offset)?;
        let shared = head >> 1;
        let suffix_length = match head & 1 {
            0 => varint(self.keys, &mut offset)?,
            _ => previous_key_length.checked_sub(shared)?,
        };
        let row_length = varint(self.keys, &mut offset)?;
        Some(Lengths { shared, suffix_length, row_length, end: offset })
    }

    /// As [`BlockView::lengths`], for the most frequent form only: fewer than 64 shared bytes, a suffix length of less than 128 if
    /// it is stored, a row shorter than 16 KiB, and a head that does not lie in the last bytes of the keys.
    #[inline]
    fn short_lengths(&self, offset: usize, previous_key_length: usize) -> Option<Lengths> {
        let bytes = u32::from_le_bytes(*self.keys.get(offset..)?.first_chunk::<4>()?);
        let head = (bytes & 0xFF) as usize;
        let shared = head >> 1;
        let (suffix_length, rest, mut end) = if head & 1 == 0 {
            ((bytes >> 8 & 0xFF) as usize, bytes >> 16, offset + 3)
        } else {
            (previous_key_length.checked_sub(shared)?, bytes >> 8, offset + 2)
        };
        let mut row_length = (rest & 0x7F) as usize;
        if rest & 0x80 != 0 {
            row_length |= ((rest >> 8 & 0x7F) as usize) << 7;
            end += 1;
        }
        // `lengths` handles a continued head or suffix length, and a row length of three bytes.
        let is_short = head < 0x80 && (head & 1 == 1 || suffix_length < 0x80) && rest & 0x8080 != 0x8080;
        is_short.then_some(Lengths { shared, suffix_length, row_length, end })
    }

    /// The entry at `place`, given the length of the previous key.
    #[inline]
    pub fn entry(&self, place: EntryOffset, previous_key_length: usize) -> Option<EntryRef> {
        let Lengths { shared, suffix_length, row_length, end: offset } =
            match self.short_lengths(place.key, previous_key_length) {
                Some(lengths) => lengths,
                None => self.lengths(place.key, previous_key_length)?,
            };
        if shared > previous_key_length {
            return None;
        }
        let suffix_end = offset.checked_add(suffix_length)?;
        let row_end = place.row.checked_add(row_length)?;
        (suffix_end <= self.keys.len() && row_end <= self.rows.len()).then_some(EntryRef {
            shared,
            suffix: offset..suffix_end,
            row: place.row..row_end,
        })
    }

    /// The suffix of an entry's key.
    #[inline]
    pub fn suffix(&self, entry: &EntryRef) -> &'a [u8] {
        let Some(suffix) = self.keys.get(entry.suffix.clone()) else {
            broken!("an entry lies in its block");
            return &[];
        };
        suffix
    }

    /// The row at these offsets in the rows.
    #[inline]
    pub fn row(&self, range: Range<usize>) -> RowRef<'a> {
        let row = self.rows.get(range).unwrap_or_else(|| {
            broken!("a row lies in its block");
            &[]
        });
        RowRef::new(row, self.base)
    }

    /// The offset of the rows in the body.
    #[inline]
    pub fn rows_start(&self) -> usize {
        self.keys.len()
    }

    /// The last restart whose key is less than or equal to `target`; 0 if there is none.
    #[inline]
    fn restart_for(&self, target: &[u8]) -> Option<usize> {
        let mut low = 0;
        let mut high = self.restarts.len();
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            let entry = self.entry(self.restart(middle), 0)?;
            if self.suffix(&entry) <= target {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// Searches for `target`. The bytes that the entry found shares with its previous key are also a prefix of `target`. So its key is
    /// that prefix of `target`, followed by its suffix.
    ///
    /// Only bytes behind the common prefix of `target` and the previous key are compared.
    #[inline]
    pub fn search(&self, target: &[u8]) -> Result<SearchResult, DecodeError> {
        let mut place = self.restart(self.restart_for(target).ok_or(MALFORMED)?);
        // The previous key is smaller than `target`. Its length, and the length of its common prefix with `target`:
        let mut previous_length = 0;
        let mut matched = 0;
        while place.key < self.keys.len() {
            let entry = self.entry(place, previous_length).ok_or(MALFORMED)?;
            if entry.shared < matched {
                // The key differs from the previous one within the common prefix with the target, so it is larger than both.
                return Ok(SearchResult::Greater { place, entry });
            }
            if entry.shared == matched {
                let Some(rest) = target.get(matched..) else {
                    broken!("no more of a key matches than there is");
                    return Err(MALFORMED);
                };
                let suffix = self.suffix(&entry);
                let common = common_prefix(suffix, rest);
                match suffix.get(common).cmp(&rest.get(common)) {
                    Ordering::Equal => return Ok(SearchResult::Exact { place, entry }),
                    Ordering::Greater => return Ok(SearchResult::Greater { place, entry }),
                    Ordering::Less => matched += common,
                }
            }
            previous_length = entry.key_length();
            place = entry.end();
        }
        Ok(SearchResult::End)
    }

    /// The offset of the first key greater than or equal to `target`; the end of the keys if there is none.
    pub fn key_offset_of(&self, target: &[u8]) -> Result<usize, DecodeError> {
        Ok(match self.search(target)? {
            SearchResult::Exact { place, .. } | SearchResult::Greater { place, .. } => place.key,
            SearchResult::End => self.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, CellKind, Liveness};
    use crate::io::SplitMix64;
    use crate::row_writer::RowBuilder;

    fn row(timestamp: i64, value: &[u8]) -> Vec<u8> {
        let mut builder = RowBuilder::new();
        builder.set_liveness(Liveness { timestamp, expiry: None });
        builder.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
        builder.to_bytes()
    }

    fn build(keys: &[&[u8]]) -> Vec<u8> {
        let mut builder = BlockBuilder::new();
        for (number, key) in keys.iter().enumerate() {
            let bytes = row(1000 + number as i64, key);
            builder.add(key, RowRef::new(&bytes, 0), 1000).unwrap();
        }
        let expected = builder.size_bytes();
        let body = builder.finish(<[u8]>::to_vec);
        assert_eq!(body.len(), expected);
        body
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            &[0, 3, 8, b'a', b'b', b'c'][..],
            // Two bytes shared, a key of the same length.
            &[2 << 1 | 1, 8, b'd'],
            &[1, 0, 0b100, 1, 3, b'a', b'b', b'c'],
            &[1, 2, 0b100, 1, 3, b'a', b'b', b'd'],
            &[0, 0, 0, 0, 0, 0, 0, 0],
            &[0xE8, 3, 0, 0, 0, 0, 0, 0],
            &[9, 0, 0, 0, 1, 0, 0, 0],
        ]
        .concat();
        let body = build(&[b"abc", b"abd"]);
        assert_eq!(body, expected);
    }

    #[test]
    fn the_short_way_to_the_lengths_of_an_entry_agrees_with_the_long_one() {
        let mut random = SplitMix64::new(1);
        let mut short = 0;
        for _ in 0..100_000 {
            // Bytes of varints: every other one is the last of its number.
            let keys: Vec<u8> =
                (0..3 + random.below(6)).map(|_| random.next_u64() as u8 >> random.below(2)).collect();
            let view = BlockView { keys: &keys, rows: &[], restarts: &[], base: 0 };
            let previous_key_length = random.below(80) as usize;
            if let Some(lengths) = view.short_lengths(0, previous_key_length) {
                assert_eq!(Some(lengths), view.lengths(0, previous_key_length), "{keys:?}");
                short += 1;
            }
        }
        assert!(short > 10_000, "{short}");
    }

    #[test]
    fn every_key_is_found_and_neighbours_are_told_apart() {
        let keys: Vec<Vec<u8>> = (0..100_u32)
            .map(|number| format!("prefix{:04}{}", number * 2, "x".repeat(number as usize % 3)).into())
            .collect();
        let body = build(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let view = BlockView::new(&body).unwrap();
        for (number, key) in keys.iter().enumerate() {
            let SearchResult::Exact { entry, .. } = view.search(key).unwrap() else { panic!("{key:?}") };
            let row = view.row(entry.row);
            assert_eq!(row.liveness().unwrap().timestamp, 1000 + number as i64);
            assert_eq!(row.cells().next().unwrap().value, key);
            let mut before = key.clone();
            *before.last_mut().unwrap() -= 1;
            let Ok(SearchResult::Greater { entry, .. }) = view.search(&before) else { panic!("{before:?}") };
            assert_eq!([&before[..entry.shared], view.suffix(&entry)].concat(), *key);
        }
        assert_eq!(view.search(b"prefiy"), Ok(SearchResult::End));
        assert!(matches!(
            view.search(b""),
            Ok(SearchResult::Greater { place: EntryOffset { key: 0, row: 0 }, .. })
        ));
    }

    #[test]
    fn damaged_bodies_never_panic() {
        let body = build(&[b"abc", b"abd", b"abde", b"b"]);
        for index in 0..body.len() {
            for value in [0, 1, 2, 0x7F, 0x80, 0xFF] {
                let mut damaged = body.clone();
                damaged[index] = value;
                if let Some(view) = BlockView::new(&damaged) {
                    drop(view.search(b"abd"));
                    view.interval_before(usize::MAX);
                }
            }
        }
        for length in 0..body.len() {
            if let Some(view) = BlockView::new(&body[..length]) {
                drop(view.search(b"abd"));
            }
        }
    }
}
