//! The rows of one partition in order of their positions: none, one inline, or sorted chunks.
//!
//! A chunk holds at most [`CHUNK_ENTRIES`] entries and is never empty. An entry contains the first bytes of its position as a
//! number, which decides most comparisons without access to the arena. A full chunk is split in the middle. Appending to or
//! prepending before a full chunk starts a new chunk instead, so that rows in time order fill their chunks.

use std::cmp::Ordering;

use super::arena::Arena;
use crate::invariant::broken;
use crate::key::REGULAR_TAG;
use crate::prefetch::prefetch_bytes;

pub(super) const CHUNK_ENTRIES: usize = 256;
/// Chunks whose rows are counted to estimate a rank.
const RANK_SAMPLES: usize = 64;
const _: () =
    assert!(CHUNK_ENTRIES >= 2 && CHUNK_ENTRIES.is_multiple_of(2), "a full chunk is split in the middle");

/// How many rows ahead of a walk memory is prefetched. Processing that many rows takes longer than loading one.
pub(super) const ROWS_AHEAD: u32 = 4;

/// One row. Its position and its bytes are adjacent in the arena.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    head: u64,
    chunk: u32,
    offset: u32,
    position_length: u32,
    row_length: u32,
    row_capacity: u32,
    /// The number of the row's tail plus one; 0: no tail.
    tail: u32,
}

impl Entry {
    /// The number of the row's tail.
    #[inline]
    pub fn tail(&self) -> Option<usize> {
        (self.tail as usize).checked_sub(1)
    }

    pub fn set_tail(&mut self, number: usize) {
        self.tail = number as u32 + 1;
    }

    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.row_length as usize
    }

    pub fn store(arena: &mut Arena, position: &[u8], row: &[u8]) -> Self {
        let location = arena.put([position, row]);
        Self {
            head: head_of(position),
            chunk: location.chunk,
            offset: location.offset,
            position_length: position.len() as u32,
            row_length: row.len() as u32,
            row_capacity: row.len() as u32,
            tail: 0,
        }
    }

    #[inline]
    pub fn position<'a>(&self, arena: &'a Arena) -> &'a [u8] {
        arena.slice(self.chunk, self.offset, self.position_length)
    }

    #[inline]
    pub fn row<'a>(&self, arena: &'a Arena) -> &'a [u8] {
        arena.slice(self.chunk, self.offset + self.position_length, self.row_length)
    }

    /// Replaces the row, in place if it fits.
    pub fn rewrite(&mut self, arena: &mut Arena, position: &[u8], row: &[u8]) {
        let length = row.len() as u32;
        if length <= self.row_capacity {
            arena.slice_mut(self.chunk, self.offset + self.position_length, length).copy_from_slice(row);
            self.row_length = length;
        } else {
            *self = Self { tail: self.tail, ..Self::store(arena, position, row) };
        }
    }

    #[inline]
    fn compare(&self, arena: &Arena, head: u64, position: &[u8]) -> Ordering {
        self.head.cmp(&head).then_with(|| self.position(arena).cmp(position))
    }
}

/// A number whose order agrees with the byte order of positions and bounds, except for ties.
#[inline]
fn head_of(position: &[u8]) -> u64 {
    let Some((&tag, clustering)) = position.split_first() else { return 0 };
    match tag.cmp(&REGULAR_TAG) {
        Ordering::Less => 0,
        Ordering::Greater => u64::MAX,
        Ordering::Equal => match clustering.first_chunk::<8>() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => clustering
                .iter()
                .enumerate()
                .fold(0, |head, (index, &byte)| head | u64::from(byte) << (56 - 8 * index)),
        },
    }
}

/// The index of a row in its partition. Indexes are ordered as the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct RowIndex {
    pub chunk: u32,
    pub entry: u32,
}

#[derive(Debug, Default)]
pub(super) enum Rows {
    #[default]
    Empty,
    One(Entry),
    Many(Vec<Chunk>),
}

#[derive(Debug)]
pub(super) struct Chunk {
    first_head: u64,
    entries: Vec<Entry>,
}

impl Chunk {
    fn of(entries: Vec<Entry>) -> Self {
        Self { first_head: entries.first().map_or(0, |entry| entry.head), entries }
    }
}

impl Rows {
    fn chunk(&self, index: u32) -> &[Entry] {
        match self {
            Self::One(entry) if index == 0 => std::slice::from_ref(entry),
            Self::Empty | Self::One(_) => &[],
            Self::Many(chunks) => chunks.get(index as usize).map_or(&[], |chunk| &chunk.entries),
        }
    }

    #[inline]
    pub fn get(&self, index: RowIndex) -> Option<&Entry> {
        self.chunk(index.chunk).get(index.entry as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, index: RowIndex) -> Option<&mut Entry> {
        match self {
            Self::Empty => None,
            Self::One(entry) => (index == RowIndex::default()).then_some(entry),
            Self::Many(chunks) => chunks.get_mut(index.chunk as usize)?.entries.get_mut(index.entry as usize),
        }
    }

    /// The next index, which may be behind the last row.
    #[inline]
    pub fn after(&self, index: RowIndex) -> RowIndex {
        if index.entry as usize + 1 < self.chunk(index.chunk).len() {
            RowIndex { chunk: index.chunk, entry: index.entry + 1 }
        } else {
            RowIndex { chunk: index.chunk + 1, entry: 0 }
        }
    }

    /// The index before `index`; `index` itself may be behind the last row.
    #[inline]
    pub fn before(&self, index: RowIndex) -> Option<RowIndex> {
        if index.entry > 0 {
            return Some(RowIndex { chunk: index.chunk, entry: index.entry - 1 });
        }
        let chunk = index.chunk.checked_sub(1)?;
        let entry = self.chunk(chunk).len().checked_sub(1)? as u32;
        Some(RowIndex { chunk, entry })
    }

    /// Prefetches the row that is `distance` rows behind (`reversed`: before) `index`, if it is in the same chunk.
    #[inline]
    pub fn prefetch(&self, arena: &Arena, index: RowIndex, distance: u32, reversed: bool) {
        let place =
            if reversed { index.entry.checked_sub(distance) } else { index.entry.checked_add(distance) };
        if let Some(entry) = place.and_then(|place| self.chunk(index.chunk).get(place as usize)) {
            prefetch_bytes(arena.slice(entry.chunk, entry.offset, entry.position_length + entry.row_length));
        }
    }

    /// About how many rows lie before an index.
    pub fn rank(&self, index: RowIndex) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(_) => u64::from(index != RowIndex::default()),
            Self::Many(chunks) => {
                // Chunks are half full or more, but for few.
                let before = chunks.get(..index.chunk as usize).unwrap_or(chunks);
                let sampled = before.iter().step_by(before.len() / RANK_SAMPLES + 1);
                let (count, sum) =
                    sampled.fold((0, 0), |(count, sum), chunk| (count + 1, sum + chunk.entries.len()));
                (sum * before.len() / count.max(1)) as u64 + u64::from(index.entry)
            }
        }
    }

    /// The index of the last row.
    pub fn last(&self) -> Option<RowIndex> {
        let chunks = match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Many(chunks) => chunks.len(),
        };
        self.before(RowIndex { chunk: chunks as u32, entry: 0 })
    }

    /// The index of the row with `position`; as an error, the index at which to insert it.
    #[inline]
    pub fn find(&self, arena: &Arena, position: &[u8]) -> Result<RowIndex, RowIndex> {
        let head = head_of(position);
        match self {
            Self::Empty => Err(RowIndex::default()),
            Self::One(entry) => match entry.compare(arena, head, position) {
                Ordering::Equal => Ok(RowIndex::default()),
                Ordering::Less => Err(RowIndex { chunk: 0, entry: 1 }),
                Ordering::Greater => Err(RowIndex::default()),
            },
            // A fast path for the start of a partition, and for rows that are written newest first.
            Self::Many(chunks) if chunks.first().is_some_and(|first| head < first.first_head) => {
                Err(RowIndex::default())
            }
            Self::Many(chunks) => {
                // The last chunk whose first entry is not behind the position.
                let chunk = chunks
                    .partition_point(|chunk| match chunk.first_head.cmp(&head) {
                        Ordering::Less => true,
                        Ordering::Greater => false,
                        Ordering::Equal => {
                            chunk.entries.first().is_some_and(|entry| entry.position(arena) <= position)
                        }
                    })
                    .saturating_sub(1);
                let Some(Chunk { entries, .. }) = chunks.get(chunk) else {
                    broken!("a partition of many rows has chunks");
                    return Err(RowIndex::default());
                };
                let place = |entry: usize| RowIndex { chunk: chunk as u32, entry: entry as u32 };
                if entries.last().is_some_and(|last| last.compare(arena, head, position).is_lt()) {
                    return Err(place(entries.len()));
                }
                entries
                    .binary_search_by(|entry| entry.compare(arena, head, position))
                    .map(place)
                    .map_err(place)
            }
        }
    }

    /// The index of the first row at or behind `bound`; it may be behind the last row.
    #[inline]
    pub fn lower_bound(&self, arena: &Arena, bound: &[u8]) -> RowIndex {
        let index = match self.find(arena, bound) {
            Ok(index) | Err(index) => index,
        };
        if index.entry as usize >= self.chunk(index.chunk).len() && index.entry > 0 {
            RowIndex { chunk: index.chunk + 1, entry: 0 }
        } else {
            index
        }
    }

    /// Inserts an entry at the index that [`Rows::find`] returned for its position.
    pub fn insert(&mut self, index: RowIndex, entry: Entry) {
        match self {
            Self::Empty => *self = Self::One(entry),
            Self::One(present) => {
                let entries = if index.entry == 0 { vec![entry, *present] } else { vec![*present, entry] };
                *self = Self::Many(vec![Chunk::of(entries)]);
            }
            Self::Many(chunks) => insert_into(chunks, index, entry),
        }
    }
}

impl Rows {
    /// Removes the entry at the index of an existing row.
    pub fn remove(&mut self, index: RowIndex) {
        let Self::Many(chunks) = self else {
            *self = Self::Empty;
            return;
        };
        let at = index.entry as usize;
        let Some(chunk) = chunks.get_mut(index.chunk as usize).filter(|chunk| at < chunk.entries.len())
        else {
            broken!("the place of a row that is removed has an entry");
            return;
        };
        chunk.entries.remove(at);
        match chunk.entries.first() {
            Some(first) => chunk.first_head = first.head,
            None => {
                chunks.remove(index.chunk as usize);
            }
        }
        if chunks.is_empty() {
            *self = Self::Empty;
        }
    }
}

fn insert_into(chunks: &mut Vec<Chunk>, index: RowIndex, entry: Entry) {
    let chunk_index = index.chunk as usize;
    let at = index.entry as usize;
    let Some(chunk) = chunks.get_mut(chunk_index) else {
        chunks.push(Chunk::of(vec![entry]));
        return;
    };
    if chunk.entries.len() < CHUNK_ENTRIES {
        chunk.entries.insert(at.min(chunk.entries.len()), entry);
        if at == 0 {
            chunk.first_head = entry.head;
        }
    } else if at >= CHUNK_ENTRIES {
        chunks.insert(chunk_index + 1, Chunk::of(vec![entry]));
    } else if at == 0 {
        chunks.insert(chunk_index, Chunk::of(vec![entry]));
    } else {
        let mut upper = chunk.entries.split_off(CHUNK_ENTRIES / 2);
        if at <= CHUNK_ENTRIES / 2 {
            chunk.entries.insert(at, entry);
        } else {
            upper.insert(at - CHUNK_ENTRIES / 2, entry);
        }
        chunks.insert(chunk_index + 1, Chunk::of(upper));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::io::SplitMix64;

    fn check(positions: impl Iterator<Item = Vec<u8>>) -> usize {
        let mut arena = Arena::default();
        let mut rows = Rows::default();
        let mut expected = BTreeSet::new();
        for position in positions {
            match rows.find(&arena, &position) {
                Ok(index) => {
                    assert!(expected.contains(&position));
                    assert_eq!(rows.get(index).unwrap().position(&arena), position);
                }
                Err(index) => {
                    assert!(expected.insert(position.clone()));
                    let entry = Entry::store(&mut arena, &position, b"row");
                    rows.insert(index, entry);
                }
            }
        }
        let mut index = rows.lower_bound(&arena, &[]);
        let mut seen = Vec::new();
        while let Some(entry) = rows.get(index) {
            seen.push(entry.position(&arena).to_vec());
            index = rows.after(index);
        }
        assert!(seen.iter().eq(expected.iter()));
        let mut backwards = Vec::new();
        while let Some(before) = rows.before(index) {
            index = before;
            backwards.push(rows.get(index).unwrap().position(&arena).to_vec());
        }
        assert!(backwards.iter().eq(expected.iter().rev()));
        for bound in &expected {
            let index = rows.lower_bound(&arena, bound);
            assert_eq!(rows.get(index).unwrap().position(&arena), bound);
        }
        match &rows {
            Rows::Many(chunks) => chunks.len(),
            _ => 0,
        }
    }

    fn position(number: u64) -> Vec<u8> {
        let mut bytes = vec![REGULAR_TAG, 7, 7];
        bytes.extend(number.to_be_bytes());
        bytes
    }

    #[test]
    fn rows_stay_in_order_whatever_the_order_of_insertion() {
        let mut random = SplitMix64::new(1);
        check((0..20_000).map(|_| position(random.next_u64() % 15_000)));
        check([vec![1], vec![2], vec![2, 9], vec![1]].into_iter());
    }

    #[test]
    fn removed_rows_are_gone_and_the_others_stay_in_order() {
        let mut random = SplitMix64::new(7);
        let mut arena = Arena::default();
        let mut rows = Rows::default();
        let mut expected = BTreeSet::new();
        for _ in 0..20_000 {
            let position = position(random.below(600));
            match rows.find(&arena, &position) {
                Ok(index) => {
                    rows.remove(index);
                    assert!(expected.remove(&position));
                }
                Err(index) => {
                    rows.insert(index, Entry::store(&mut arena, &position, b"row"));
                    assert!(expected.insert(position));
                }
            }
        }
        let mut seen = Vec::new();
        let mut index = rows.lower_bound(&arena, &[]);
        while let Some(entry) = rows.get(index) {
            seen.push(entry.position(&arena).to_vec());
            index = rows.after(index);
        }
        assert!(seen.len() > 200 && seen.iter().eq(expected.iter()));
        for position in expected {
            rows.remove(rows.find(&arena, &position).unwrap());
        }
        assert!(matches!(rows, Rows::Empty));
    }

    #[test]
    fn chunks_of_sequential_rows_are_full() {
        assert_eq!(check((0..2560).map(position)), 10);
        assert_eq!(check((0..2560).rev().map(position)), 10);
    }
}
