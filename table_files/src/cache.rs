//! The block cache of one shard: unpacked blocks, or the heads of their partitions, by table and offset, bounded in bytes. Parts of filters
//! and leaves of indexes that are not resident ([`super::resident`]) are blocks here as well. What is resident is taken from the capacity.
//!
//! Single-threaded. Eviction gives each block a second chance ("clock"): a hit only sets a flag, so it costs one hash
//! lookup and one reference count.
//!
//! While the disk is off limits ([`BlockCache::without_disk`]), a block that is not here ends the read that needs it with
//! [`super::TableError::NotCached`], and is noted. The caller that fetches noted blocks pins them until the repeated read is
//! done, so that it finds them whatever the capacity is.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use hashbrown::HashMap;

use super::error::TableError;
use super::heads::BlockData;
use super::index::{BlockHandle, BlockPosition};
use super::resident::ResidentParts;
use crate::io::{LendingShare, Lent};

/// The rows of a block that are unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockPart {
    Whole,
    /// The first rows of each partition, at least this many that every reader sees; see [`super::heads`].
    Heads(u8),
}

/// A block, or a part of it, of a table with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    table: u64,
    /// The offset, and above it the number of rows of heads.
    place: u64,
}

impl BlockKey {
    /// The bits of an offset in a file, far more than a file has.
    const OFFSET_BITS: u32 = 56;

    #[inline]
    pub fn new(table: u64, offset: u64, part: BlockPart) -> Self {
        let rows = match part {
            BlockPart::Whole => 0,
            BlockPart::Heads(rows) => u64::from(rows),
        };
        Self { table, place: offset | rows << Self::OFFSET_BITS }
    }
}

/// The source of the blocks of a cache.
pub trait BlockSource {
    /// The number of the table in the cache.
    fn id(&self) -> u64;

    /// Reads a missing block, and up to `count - 1` that its read will need next, without holding up the thread. Together they are
    /// at most `bytes_max` large in the file, unless the first alone is larger. The read begins with the first poll.
    fn fetch<'a>(
        &'a self,
        missing: &'a MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> LocalBoxFuture<'a, Result<FetchedBlocks, TableError>>;
}

/// Blocks that were read for one that was missing.
pub struct FetchedBlocks {
    pub blocks: Vec<(BlockKey, BlockData)>,
    /// The block that the read needs behind them.
    pub next: Option<PlacedBlock>,
}

/// A block and its place in the index.
pub type PlacedBlock = (BlockPosition, BlockHandle);

/// What a block of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Rows, at this place of the index.
    Data(BlockPosition),
    /// A leaf of the index, with its checksum.
    IndexLeaf,
    /// The part of the filter over partitions with this number.
    PartitionFilter(usize),
    /// The part of the filter over rows with this number.
    RowFilter(usize),
}

/// A block that a read needed and that was not in the cache.
#[derive(Clone)]
pub struct MissingBlock {
    pub table: Arc<dyn BlockSource>,
    pub kind: BlockKind,
    pub target: BlockHandle,
    pub reading: BlockReading,
}

impl MissingBlock {
    pub fn key(&self) -> BlockKey {
        BlockKey::new(self.table.id(), self.target.offset, self.reading.part())
    }

    /// Whether it has rows.
    pub fn is_data(&self) -> bool {
        matches!(self.kind, BlockKind::Data(_))
    }
}

/// How a read uses a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockReading {
    /// Where the read goes on from the block.
    pub direction: Direction,
    pub pattern: ReadPattern,
}

impl BlockReading {
    /// A read of one row.
    pub const OF_ONE_ROW: Self = Self { direction: Direction::Nowhere, pattern: ReadPattern::Rows };
    /// A forward read that needs the rows which are not among the heads of a block.
    pub const BEHIND_HEADS: Self = Self { direction: Direction::Forwards, pattern: ReadPattern::Rows };

    /// The rows that are unpacked. Backwards the heads of partitions are their last rows.
    #[inline]
    pub fn part(self) -> BlockPart {
        match (self.direction, self.pattern) {
            (Direction::Forwards, ReadPattern::PartitionHeads { rows }) => BlockPart::Heads(rows.max(1)),
            _ => BlockPart::Whole,
        }
    }
}

/// Which rows of its range a read wants. It decides which blocks are read ahead, and whether they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPattern {
    /// All rows.
    Rows,
    /// All rows of a long range that will not be read again soon: its blocks are not kept in the cache.
    LongRange,
    /// The first `rows` rows of each partition: blocks with other rows of one partition only are passed over, and the other rows of a
    /// block are not unpacked.
    PartitionHeads { rows: u8 },
}

/// The direction in which a read passes through the blocks of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It needs this block alone.
    Nowhere,
    Forwards,
    Backwards,
}

/// Both fields of a [`BlockKey`] are numbers that differ in few bits. One multiplication spreads them.
#[derive(Default)]
struct BlockKeyHasher(u64);

impl Hasher for BlockKeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9E37_79B9_7F4A_7C15) * 0xA076_1D64_78BD_642F;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

/// A cached block. It is stored in the map itself, because a dependent memory access costs as much as the search.
struct CachedBlock {
    data: BlockData,
    /// Its place on the clock.
    place: usize,
}

/// A place on the clock: the data that eviction needs of a block.
struct Mark {
    key: BlockKey,
    referenced: Cell<bool>,
}

#[derive(Default)]
struct CacheState {
    by_key: HashMap<BlockKey, CachedBlock, BuildHasherDefault<BlockKeyHasher>>,
    clock: Vec<Option<Mark>>,
    free_places: Vec<usize>,
    used_bytes: usize,
    hand: usize,
}

/// Hits and misses since the start, and the current contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatistics {
    pub hits: u64,
    pub misses: u64,
    pub used_bytes: usize,
    pub blocks: usize,
}

/// A cache of block bodies shared by the tables of one shard.
pub struct BlockCache {
    share: LendingShare,
    resident: ResidentParts,
    state: RefCell<CacheState>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// Misses of blocks that were held for the read.
    held: Cell<u64>,
    /// Whether reads may wait for the disk.
    may_read_disk: Cell<bool>,
    missing: RefCell<Vec<MissingBlock>>,
    /// Blocks that are held for a read, with the number of reads that hold them.
    pinned: RefCell<HashMap<BlockKey, (BlockData, usize), BuildHasherDefault<BlockKeyHasher>>>,
}

impl BlockCache {
    /// An empty cache of a capacity of its own. With a capacity of 0 it stores nothing.
    pub fn new(capacity_bytes: usize) -> Self {
        let share = LendingShare::new(capacity_bytes as u64, 1, Lent::default());
        Self::with_share(share, ResidentParts::new(0))
    }

    /// An empty cache whose capacity is a share of that of all shards, less what is resident.
    pub fn with_share(share: LendingShare, resident: ResidentParts) -> Self {
        Self {
            share,
            resident,
            state: RefCell::default(),
            hits: Cell::new(0),
            misses: Cell::new(0),
            held: Cell::new(0),
            may_read_disk: Cell::new(true),
            missing: RefCell::default(),
            pinned: RefCell::default(),
        }
    }

    /// Runs `read` without the disk. Returns its result, and the blocks that it needed and did not find.
    pub fn without_disk<T>(&self, read: impl FnOnce() -> T) -> (T, Vec<MissingBlock>) {
        let before = self.may_read_disk.replace(false);
        let result = read();
        self.may_read_disk.set(before);
        (result, self.missing.take())
    }

    /// Whether a block that is not here may be read from the disk. If not, it is noted as missing.
    pub(super) fn may_read_disk(&self, missing: impl FnOnce() -> MissingBlock) -> bool {
        let may = self.may_read_disk.get();
        if !may {
            self.missing.borrow_mut().push(missing());
        }
        may
    }

    /// Holds a block until [`BlockCache::unpin`].
    pub fn pin(&self, key: BlockKey, data: &BlockData) {
        let mut pinned = self.pinned.borrow_mut();
        pinned.entry(key).or_insert_with(|| (data.clone(), 0)).1 += 1;
    }

    /// Ends one [`BlockCache::pin`].
    pub fn unpin(&self, key: BlockKey) {
        let mut pinned = self.pinned.borrow_mut();
        if let Some((_, reads)) = pinned.get_mut(&key) {
            *reads -= 1;
            if *reads == 0 {
                pinned.remove(&key);
            }
        }
    }

    #[cold]
    fn pinned(&self, key: BlockKey) -> Option<BlockData> {
        self.pinned.borrow().get(&key).map(|(data, _)| data.clone())
    }

    /// Whether a part of a block, or the whole of it, is here.
    pub fn has(&self, missing: &MissingBlock) -> bool {
        let whole = BlockKey::new(missing.table.id(), missing.target.offset, BlockPart::Whole);
        let state = self.state.borrow();
        [missing.key(), whole].iter().any(|key| state.by_key.contains_key(key))
    }

    /// A part of a block, or the whole of it.
    #[inline]
    pub(super) fn get(&self, table: u64, offset: u64, part: BlockPart) -> Option<BlockData> {
        let whole = BlockKey::new(table, offset, BlockPart::Whole);
        let state = self.state.borrow();
        let slot = match part {
            BlockPart::Whole => state.by_key.get(&whole),
            BlockPart::Heads(_) => {
                let heads = BlockKey::new(table, offset, part);
                state.by_key.get(&heads).or_else(|| state.by_key.get(&whole))
            }
        };
        if let Some(slot) = slot {
            // No later instruction depends on this load, so the processor does not wait for it.
            if let Some(Some(mark)) = state.clock.get(slot.place) {
                mark.referenced.set(true);
            }
            self.hits.set(self.hits.get() + 1);
            Some(slot.data.clone())
        } else {
            self.misses.set(self.misses.get() + 1);
            let pinned = self.pinned(BlockKey::new(table, offset, part)).or_else(|| self.pinned(whole));
            self.held.set(self.held.get() + u64::from(pinned.is_some()));
            pinned
        }
    }

    /// Since the start: looks for a block that found it in memory, and those that did not.
    #[inline]
    pub fn looks(&self) -> (u64, u64) {
        (self.hits.get() + self.held.get(), self.misses.get() - self.held.get())
    }

    pub fn insert(&self, key: BlockKey, data: BlockData) {
        let weight = data.weight_bytes();
        let capacity = self.capacity_bytes();
        if weight > capacity {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.remove(key);
        state.make_room(capacity - weight);
        let place = state.free_places.pop().unwrap_or(state.clock.len());
        let mark = Some(Mark { key, referenced: Cell::new(false) });
        match state.clock.get_mut(place) {
            Some(free) => *free = mark,
            None => state.clock.push(mark),
        }
        state.by_key.insert(key, CachedBlock { data, place });
        state.used_bytes += weight;
        self.note_use(&state);
    }

    fn note_use(&self, state: &CacheState) {
        self.share.use_bytes(state.used_bytes as u64 + self.resident.budgeted_bytes());
    }

    /// Removes the blocks of a table.
    pub fn remove_table(&self, table: u64) {
        let mut state = self.state.borrow_mut();
        for place in 0..state.clock.len() {
            if let Some(Some(Mark { key, .. })) = state.clock.get(place)
                && key.table == table
            {
                let key = *key;
                state.remove(key);
            }
        }
    }

    fn capacity_bytes(&self) -> usize {
        let capacity = self.share.bound_bytes().saturating_sub(self.resident.budgeted_bytes());
        usize::try_from(capacity).unwrap_or(usize::MAX)
    }

    /// Evicts blocks beyond the capacity, which has become smaller if other shards have borrowed of it, or if more is resident.
    pub fn give_back(&self) {
        let mut state = self.state.borrow_mut();
        state.make_room(self.capacity_bytes());
        self.note_use(&state);
    }

    /// The memory for parts that stay in memory.
    pub fn resident(&self) -> &ResidentParts {
        &self.resident
    }

    pub fn statistics(&self) -> CacheStatistics {
        let state = self.state.borrow();
        CacheStatistics {
            hits: self.hits.get(),
            misses: self.misses.get(),
            used_bytes: state.used_bytes,
            blocks: state.by_key.len(),
        }
    }
}

impl CacheState {
    fn remove(&mut self, key: BlockKey) {
        if let Some(slot) = self.by_key.remove(&key) {
            self.used_bytes -= slot.data.weight_bytes();
            if let Some(mark) = self.clock.get_mut(slot.place) {
                *mark = None;
            }
            self.free_places.push(slot.place);
        }
    }

    /// Evicts blocks until at most `limit` bytes are held.
    fn make_room(&mut self, limit: usize) {
        while self.used_bytes > limit && !self.clock.is_empty() {
            self.hand = if self.hand + 1 < self.clock.len() { self.hand + 1 } else { 0 };
            if let Some(Some(Mark { key, referenced })) = self.clock.get(self.hand)
                && !referenced.take()
            {
                let key = *key;
                self.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(length: usize) -> BlockData {
        BlockData::whole(&vec![7; length])
    }

    fn whole(table: u64, offset: u64) -> BlockKey {
        BlockKey::new(table, offset, BlockPart::Whole)
    }

    fn get(cache: &BlockCache, table: u64, offset: u64) -> Option<BlockData> {
        cache.get(table, offset, BlockPart::Whole)
    }

    #[test]
    fn a_block_that_is_used_outlives_those_that_are_not() {
        let cache = BlockCache::new(10 * 1128);
        for offset in 0..1000 {
            cache.insert(whole(1, offset), block(1000));
            assert!(get(&cache, 1, 0).is_some(), "offset {offset}");
            assert!(cache.statistics().used_bytes <= 10 * 1128);
        }
        assert_eq!(cache.statistics().blocks, 10);
        assert!(get(&cache, 1, 500).is_none());
    }

    #[test]
    fn a_pinned_block_is_there_whatever_the_capacity_is() {
        let cache = BlockCache::new(0);
        let data = block(1000);
        cache.insert(whole(1, 0), data.clone());
        assert!(get(&cache, 1, 0).is_none());
        cache.pin(whole(1, 0), &data);
        cache.pin(whole(1, 0), &data);
        cache.unpin(whole(1, 0));
        assert!(get(&cache, 1, 0).is_some(), "another read still needs it");
        cache.unpin(whole(1, 0));
        assert!(get(&cache, 1, 0).is_none());
    }

    #[test]
    fn tables_are_kept_apart_and_removed_whole() {
        let cache = BlockCache::new(1 << 20);
        cache.insert(whole(1, 0), block(1));
        cache.insert(whole(2, 0), block(2));
        cache.insert(whole(2, 0), block(3));
        assert_eq!(get(&cache, 2, 0).unwrap().len(), 3);
        cache.remove_table(2);
        assert!(get(&cache, 2, 0).is_none());
        assert_eq!(get(&cache, 1, 0).unwrap().len(), 1);
    }

    #[test]
    fn a_cache_borrows_what_others_leave_and_gives_it_back() {
        let (lent, budget) = (Lent::default(), 1 << 20);
        let cache =
            || BlockCache::with_share(LendingShare::new(budget, 2, lent.clone()), ResidentParts::new(0));
        let (busy, late) = (cache(), cache());
        let fill =
            |cache: &BlockCache| (0..2000).for_each(|offset| cache.insert(whole(1, offset), block(1000)));
        fill(&busy);
        let alone = busy.statistics().used_bytes;
        assert!(alone > budget as usize / 2, "{alone}");
        for _ in 0..20 {
            fill(&late);
            busy.give_back();
        }
        let (busy, late) = (busy.statistics().used_bytes, late.statistics().used_bytes);
        assert!(busy < alone && late > budget as usize / 3 && busy > budget as usize / 3, "{busy} {late}");
        assert!(busy + late <= budget as usize);
    }

    #[test]
    fn what_is_resident_is_taken_from_the_capacity() {
        let resident = ResidentParts::new(6_000);
        let share = LendingShare::new(10 * 1128, 1, Lent::default());
        let cache = BlockCache::with_share(share, resident.clone());
        let fill = || (0..20).for_each(|offset| cache.insert(whole(1, offset), block(1000)));
        fill();
        assert_eq!(cache.statistics().blocks, 10);
        let mut reservation = resident.reserve();
        assert!(reservation.grow(2 * 1128));
        cache.give_back();
        assert_eq!(cache.statistics().blocks, 8);
        reservation.take(1 << 20);
        fill();
        assert_eq!(cache.statistics().blocks, 4, "what is beyond the limit is not taken");
        drop(reservation);
        fill();
        assert_eq!(cache.statistics().blocks, 10);
    }

    #[test]
    fn a_whole_block_serves_for_its_heads_and_heads_do_not_for_a_whole_block() {
        let cache = BlockCache::new(1 << 20);
        let heads = BlockPart::Heads(2);
        cache.insert(BlockKey::new(1, 0, heads), block(10));
        assert_eq!(cache.get(1, 0, heads).unwrap().len(), 10);
        assert!(cache.get(1, 0, BlockPart::Heads(1)).is_none());
        assert!(cache.get(1, 0, BlockPart::Whole).is_none());
        cache.insert(whole(1, 0), block(100));
        assert_eq!(cache.get(1, 0, heads).unwrap().len(), 10);
        assert_eq!(cache.get(1, 0, BlockPart::Heads(1)).unwrap().len(), 100);
        cache.remove_table(1);
        assert!(cache.get(1, 0, heads).is_none());
        cache.pin(whole(1, 0), &block(100));
        assert_eq!(cache.get(1, 0, heads).unwrap().len(), 100);
    }
}
