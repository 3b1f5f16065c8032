//! Unpacked blocks in memory, and those of which only the heads of partitions are unpacked.
//!
//! ```text
//! whole block    := body                          (see `block`)
//! heads of block := body | gaps x u32             little endian
//! ```
//!
//! A read that skips from partition to partition needs the first rows of each, and restoring the others would be most of its work. The
//! body of heads has the rows that are kept; a gap is the offset in its keys at which rows are left out. Gaps ascend strictly.
//!
//! Invariants:
//! * The rows that are left out at a gap are of the partition of the row before it.
//! * Of each partition the first rows in the block are kept, until there are as many as were asked for that every reader sees if no
//!   other source shadows them.

use std::ops::Deref;
use std::rc::Rc;

use super::block::{BlockBuilder, RESTART_INTERVAL};
use crate::key;

/// A verified, unpacked block or the heads of it. The bytes are stored next to the reference counts, which costs one copy. It saves
/// each reader a dependent memory access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockData {
    bytes: Rc<[u8]>,
    /// At most the length of `bytes`.
    body_bytes: usize,
}

impl BlockData {
    /// A block with this body.
    pub fn whole(body: &[u8]) -> Self {
        Self { bytes: body.into(), body_bytes: body.len() }
    }

    /// What it counts in a cache. The memory of map and clock counts as well: otherwise small blocks would hardly count.
    pub fn weight_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 128;
        self.bytes.len() + OVERHEAD_BYTES
    }

    #[inline]
    pub fn body(&self) -> &[u8] {
        self.bytes.split_at(self.body_bytes).0
    }

    /// Whether no rows of the block are left out.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.body_bytes == self.bytes.len()
    }

    /// Whether rows are left out before the entry at this offset in the keys.
    #[inline]
    pub fn has_gap_at(&self, key_offset: usize) -> bool {
        let (gaps, _) = self.bytes.split_at(self.body_bytes).1.as_chunks::<4>();
        gaps.binary_search_by_key(&key_offset, |gap| u32::from_le_bytes(*gap) as usize).is_ok()
    }
}

/// All bytes: those of the body, and the gaps.
impl Deref for BlockData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether rows that are left out at a gap may have the key `target` or a later one, if the row before the gap has a smaller key.
pub(super) fn may_be_in_gap(target: &[u8]) -> bool {
    // Before and behind all rows of its partition, `target` is also behind all rows of the partition of the row before.
    let position = key::prefix_length(target).and_then(|length| target.get(length..));
    position.is_some_and(|position| !position.is_empty() && !position.starts_with(key::PARTITION_END))
}

/// The capacity for the heads of a block of usual size.
const KEYS_BYTES: usize = 1 << 10;
const ROWS_BYTES: usize = 4 << 10;

/// Chooses the rows of the heads of a block.
pub(super) struct HeadsBuilder {
    block: BlockBuilder,
    rows_per_partition: u8,
    /// The key of the current entry. If its row is left out, only its partition prefix is up to date.
    key: Vec<u8>,
    key_length: usize,
    /// The length of its partition prefix; 0 if it has none.
    prefix_length: usize,
    /// The rows of its partition that were kept and that every reader sees.
    rows_seen: u8,
    gaps: Vec<u8>,
    last_gap: Option<usize>,
    /// Bytes of all keys that were kept, with what each shares with the one before.
    expanded_key_bytes: usize,
}

impl HeadsBuilder {
    /// Keeps at least `rows_per_partition` rows of each partition that every reader sees.
    pub fn new(rows_per_partition: u8) -> Self {
        Self {
            block: BlockBuilder::with_capacity(KEYS_BYTES, ROWS_BYTES),
            rows_per_partition,
            key: Vec::new(),
            key_length: 0,
            prefix_length: 0,
            rows_seen: 0,
            gaps: Vec::new(),
            last_gap: None,
            expanded_key_bytes: 0,
        }
    }

    /// The length of the key of the current entry; 0 before the first.
    pub fn key_length(&self) -> usize {
        self.key_length
    }

    /// Moves to the next entry of the block. True if its row is kept: then it is appended to [`HeadsBuilder::rows`], and
    /// [`HeadsBuilder::end_row`] ends it. `None` if the key before is shorter than what it shares.
    #[inline]
    pub fn move_to(&mut self, shared: usize, suffix: &[u8]) -> Option<bool> {
        if shared > self.key_length {
            return None;
        }
        self.key_length = shared.checked_add(suffix.len())?;
        let is_same_partition = self.prefix_length > 0
            && (shared >= self.prefix_length
                || self.key.get(shared..self.prefix_length).is_some_and(|rest| suffix.starts_with(rest)));
        if is_same_partition && self.rows_seen >= self.rows_per_partition {
            let gap = self.block.end().key;
            if self.last_gap.replace(gap) != Some(gap) {
                self.gaps.extend_from_slice(&(gap as u32).to_le_bytes());
            }
            return Some(false);
        }
        // Within a partition all rows before were kept; across partitions no more than the prefix is shared.
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        if self.key.len() != self.key_length {
            return None;
        }
        if !is_same_partition {
            self.prefix_length = key::prefix_length(&self.key).unwrap_or(0);
            self.rows_seen = 0;
        }
        Some(true)
    }

    /// The rows that are kept, to which the row of the current entry is appended.
    pub fn rows(&mut self) -> &mut Vec<u8> {
        self.block.rows()
    }

    /// Ends the row of the current entry.
    pub fn end_row(&mut self) {
        self.expanded_key_bytes += self.key.len();
        let row = self.block.end_row(&self.key);
        self.rows_seen = self.rows_seen.saturating_add(u8::from(row.is_plain() && !row.is_empty()));
    }

    /// Whether the heads take more memory or work than the whole block with a body of `body_length` bytes. A block whose keys are
    /// long may take a little more: restarts fall on other entries. Hostile bytes may take any multiple: each entry may share a long
    /// key.
    #[inline]
    pub fn exceeds(&self, body_length: usize) -> bool {
        // In a block that a builder wrote, a key is no longer than what was stored since the last restart.
        self.block.size_bytes() > body_length
            || self.expanded_key_bytes > body_length.saturating_mul(RESTART_INTERVAL)
    }

    /// The heads of a block with this base timestamp.
    pub fn finish(mut self, base: i64) -> BlockData {
        self.block.set_base(base);
        let gaps = self.gaps;
        self.block.finish(|body| BlockData { bytes: [body, &gaps].concat().into(), body_bytes: body.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockView, EntryOffset};
    use crate::cell::{Cell, CellKind, Deletion, Liveness};
    use crate::io::SplitMix64;
    use crate::key::full_key;
    use crate::packing;
    use crate::row::RowRef;
    use crate::row_writer::RowBuilder;

    /// Keys of a block of partitions of random sizes with a random part of dead rows, and whether every reader sees their rows.
    fn block(random: &mut SplitMix64) -> (Vec<u8>, Vec<(Vec<u8>, bool)>) {
        let mut builder = BlockBuilder::new();
        let mut keys = Vec::new();
        let mut row = RowBuilder::new();
        for partition in 0..random.below(6) {
            // A token of its own, or that of the partition before.
            let token = partition as i64 / (1 + random.below(2) as i64);
            let partition_key = [b'a' + partition as u8, b'b'];
            for number in 0..random.below(40) as u8 {
                let is_seen = random.chance(2, 3);
                row.clear();
                row.set_liveness(Liveness { timestamp: 5, expiry: None });
                if !is_seen {
                    row.set_deletion(Deletion { timestamp: 7, local_deletion_time: 7 });
                }
                for column in 0..=random.below(2) as u32 {
                    let value = vec![number; random.below(20) as usize];
                    row.cell(Cell { column, path: &[], timestamp: 5, kind: CellKind::Live, value: &value });
                }
                let position: &[u8] = if number == 0 { key::STATIC_POSITION } else { &[2, number] };
                let key = full_key(token, &partition_key, position).unwrap();
                builder.add(&key, RowRef::new(&row.to_bytes(), 0), 5).unwrap();
                keys.push((key, is_seen));
            }
        }
        (builder.finish(<[u8]>::to_vec), keys)
    }

    /// All rows of a body, with the offsets at which their entries begin.
    fn rows_of(body: &[u8]) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
        let view = BlockView::new(body).unwrap();
        let mut offset = EntryOffset::default();
        let mut key = Vec::new();
        let mut rows = Vec::new();
        while offset.key < view.end() {
            let entry = view.entry(offset, key.len()).unwrap();
            key.truncate(entry.shared);
            key.extend_from_slice(view.suffix(&entry));
            rows.push((offset.key, key.clone(), view.row(entry.row.clone()).bytes.to_vec()));
            offset = entry.end();
        }
        rows
    }

    #[test]
    fn heads_have_the_first_rows_of_each_partition_and_say_where_others_are_left_out() {
        let (mut kept, mut left_out) = (0, 0);
        for seed in 0..500 {
            let mut random = SplitMix64::new(seed);
            let (body, keys) = block(&mut random);
            let rows_per_partition = 1 + random.below(4) as u8;
            let mut packed = Vec::new();
            assert!(packing::pack(&body, &mut packed));
            let heads = packing::unpack_heads(&packed, rows_per_partition).unwrap();
            let all = rows_of(&body);
            let mut found = rows_of(heads.body()).into_iter().peekable();
            let (mut partition, mut seen) = (Vec::new(), 0);
            let end = BlockView::new(heads.body()).unwrap().end();
            let mut gaps = Vec::new();
            for ((_, key, row), (_, is_seen)) in all.iter().zip(&keys) {
                let prefix = &key[..key::prefix_length(key).unwrap()];
                if partition != prefix {
                    partition = prefix.to_vec();
                    seen = 0;
                }
                if seen < rows_per_partition {
                    let (_, found_key, found_row) = found.next().unwrap();
                    assert_eq!((&found_key, &found_row), (key, row), "seed {seed}");
                    seen += u8::from(*is_seen);
                    kept += 1;
                } else {
                    gaps.push(found.peek().map_or(end, |(offset, ..)| *offset));
                    left_out += 1;
                }
            }
            assert!(found.next().is_none());
            for offset in 0..=end {
                assert_eq!(heads.has_gap_at(offset), gaps.contains(&offset), "seed {seed}, offset {offset}");
            }
            assert_eq!(heads.is_whole(), gaps.is_empty());
        }
        assert!(kept > 1_000 && left_out > 1_000, "{kept} rows kept, {left_out} left out");
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let (body, _) = block(&mut SplitMix64::new(11));
        let mut packed = Vec::new();
        assert!(packing::pack(&body, &mut packed));
        for index in 0..packed.len() {
            for value in [0, 1, 2, 3, 0x7F, 0x80, 0xFF] {
                let mut damaged = packed.clone();
                damaged[index] = value;
                drop(packing::unpack_heads(&damaged, 1));
            }
            drop(packing::unpack_heads(&packed[..index], 1));
        }
    }

    #[test]
    fn only_positions_within_a_partition_may_be_in_a_gap() {
        let key = |position: &[u8]| full_key(1, b"key", position).unwrap();
        assert!(may_be_in_gap(&key(key::STATIC_POSITION)));
        assert!(may_be_in_gap(&key(&[2, 7])));
        assert!(!may_be_in_gap(&key(key::PARTITION_END)));
        assert!(!may_be_in_gap(&key(&[])));
        assert!(!may_be_in_gap(&key(&[])[..9]));
        assert!(!may_be_in_gap(&[]));
    }
}
