//! Walks through the index of an open table: which block a key belongs to, and which block comes next.
//!
//! Leaves that are not in memory are read one by one; a walk says where from ([`Leaves`]).

use std::ops::Range;
use std::sync::Arc;

use super::cache::{BlockCache, BlockKind, BlockReading, Direction, PlacedBlock, ReadPattern};
use super::error::TableError;
use super::heads::BlockData;
use super::index::{BlockHandle, BlockPosition, LEAF_CHECKSUM_BYTES, LEAF_ENTRIES_MAX, Node, Separator};
use super::reader::TableReader;

/// Where a walk has leaves from that are not in memory.
pub(super) trait Leaves {
    /// The bytes of the leaf with this number. `leaf`: its place in the file, with its checksum.
    fn leaf(&mut self, number: usize, leaf: BlockHandle) -> Result<&[u8], TableError>;
}

/// A leaf that is at hand, and its number.
pub(super) type LeafAtHand = (usize, BlockData);

/// The leaves of a read: from its cache, else from the disk. The last one stays at hand, because the next step mostly needs it again.
pub(super) struct LeavesOfRead<'r> {
    pub table: &'r Arc<TableReader>,
    pub cache: Option<&'r BlockCache>,
    pub pattern: ReadPattern,
    pub last: &'r mut Option<LeafAtHand>,
}

impl Leaves for LeavesOfRead<'_> {
    #[cold]
    fn leaf(&mut self, number: usize, leaf: BlockHandle) -> Result<&[u8], TableError> {
        let leaf = match self.last.take() {
            Some(last) if last.0 == number => last,
            _ => {
                let reading = BlockReading { direction: Direction::Nowhere, pattern: self.pattern };
                (number, self.table.block(self.cache, BlockKind::IndexLeaf, leaf, reading)?)
            }
        };
        let (_, data) = self.last.insert(leaf);
        Ok(data.body())
    }
}

impl TableReader {
    fn malformed_index(&self) -> TableError {
        self.damaged(self.footer.index_leaves.offset, "the index is malformed")
    }

    #[inline]
    fn root(&self) -> Result<Node<'_>, TableError> {
        Node::new(&self.index_root).ok_or_else(|| self.malformed_index())
    }

    /// The number of leaves.
    pub(super) fn leaf_count(&self) -> Result<usize, TableError> {
        Ok(self.root()?.len())
    }

    /// A leaf in the memory of the table. `leaf`: its place in the file.
    #[inline]
    fn resident_leaf<'a>(&self, leaves: &'a [u8], leaf: BlockHandle) -> Option<&'a [u8]> {
        let start = usize::try_from(leaf.offset.checked_sub(self.footer.index_leaves.offset)?).ok()?;
        leaves.get(start..start.checked_add(leaf.length as usize)?)
    }

    /// A leaf of the index.
    #[inline]
    pub(super) fn leaf<'a>(
        &'a self,
        leaves: &'a mut impl Leaves,
        number: usize,
    ) -> Result<Node<'a>, TableError> {
        let Some(target) = self.root()?.target(number) else { return Err(self.malformed_index()) };
        let bytes = match &self.index_leaves {
            Some(resident) => self.resident_leaf(resident, target),
            None => Some(self.leaf_in_file(leaves, number, target)?),
        };
        bytes.and_then(Node::new).ok_or_else(|| self.malformed_index())
    }

    #[cold]
    fn leaf_in_file<'a>(
        &self,
        leaves: &'a mut impl Leaves,
        number: usize,
        node: BlockHandle,
    ) -> Result<&'a [u8], TableError> {
        let length = node.length.checked_add(LEAF_CHECKSUM_BYTES as u32);
        let leaf =
            length.map(|length| BlockHandle { length, ..node }).ok_or_else(|| self.malformed_index())?;
        leaves.leaf(number, leaf)
    }

    /// The block that contains `key`, if any block does. `None` if the table has no blocks.
    #[inline]
    pub(super) fn find(
        &self,
        leaves: &mut impl Leaves,
        key: &[u8],
    ) -> Result<Option<PlacedBlock>, TableError> {
        let root = self.root()?;
        if root.len() == 0 {
            return Ok(None);
        }
        let Some(leaf) = root.floor(key) else { return Err(self.malformed_index()) };
        let node = self.leaf(leaves, leaf)?;
        let found =
            node.floor(key).and_then(|entry| Some((BlockPosition { leaf, entry }, node.target(entry)?)));
        found.map(Some).ok_or_else(|| self.malformed_index())
    }

    /// The block after a place; for `None` the first block.
    pub(super) fn block_after(
        &self,
        leaves: &mut impl Leaves,
        place: Option<BlockPosition>,
    ) -> Result<Option<PlacedBlock>, TableError> {
        let leaf_count = self.leaf_count()?;
        let mut next = place.map_or(BlockPosition { leaf: 0, entry: 0 }, |place| BlockPosition {
            entry: place.entry + 1,
            ..place
        });
        if leaf_count == 0 {
            return Ok(None);
        }
        if next.entry >= self.leaf(leaves, next.leaf)?.len() {
            next = BlockPosition { leaf: next.leaf + 1, entry: 0 };
            if next.leaf >= leaf_count {
                return Ok(None);
            }
        }
        let target = self.leaf(leaves, next.leaf)?.target(next.entry);
        target.map(|target| Some((next, target))).ok_or_else(|| self.malformed_index())
    }

    /// The block before a place; for `None` the last block.
    pub(super) fn block_before(
        &self,
        leaves: &mut impl Leaves,
        place: Option<BlockPosition>,
    ) -> Result<Option<PlacedBlock>, TableError> {
        let before = match place {
            Some(BlockPosition { leaf, entry }) if entry > 0 => BlockPosition { leaf, entry: entry - 1 },
            other => {
                let end = match other {
                    Some(place) => place.leaf,
                    None => self.leaf_count()?,
                };
                let Some(leaf) = end.checked_sub(1) else { return Ok(None) };
                let last = self.leaf(leaves, leaf)?.len().checked_sub(1);
                BlockPosition { leaf, entry: last.ok_or_else(|| self.malformed_index())? }
            }
        };
        let target = self.leaf(leaves, before.leaf)?.target(before.entry);
        target.map(|target| Some((before, target))).ok_or_else(|| self.malformed_index())
    }

    /// Whether `key` belongs into the block at `place`. It must not be before the start of that block.
    pub(super) fn is_within(
        &self,
        leaves: &mut impl Leaves,
        place: BlockPosition,
        key: &[u8],
    ) -> Result<bool, TableError> {
        let node = self.leaf(leaves, place.leaf)?;
        let is_last = place.entry + 1 >= node.len();
        Ok(!is_last && node.is_after(place.entry + 1, key).unwrap_or(false))
    }

    /// Leaves for estimates, which read what they need on the calling thread.
    fn estimated<'r>(self: &'r Arc<Self>, last: &'r mut Option<LeafAtHand>) -> LeavesOfRead<'r> {
        LeavesOfRead { table: self, cache: None, pattern: ReadPattern::Rows, last }
    }

    /// The number of a block, counted as if all leaves were full.
    fn block_number(self: &Arc<Self>, key: &[u8]) -> Option<usize> {
        let (place, _) = self.find(&mut self.estimated(&mut None), key).ok().flatten()?;
        Some(place.leaf * LEAF_ENTRIES_MAX + place.entry)
    }

    /// From the block of one full key up to that of another, for estimates. `None`: nothing lies between them.
    pub fn blocks_between(self: &Arc<Self>, start: &[u8], end: &[u8]) -> Option<Range<usize>> {
        Some(self.block_number(start)?..self.block_number(end)?)
    }

    /// About how many rows lie in [`TableReader::blocks_between`].
    pub fn estimate_rows(self: &Arc<Self>, blocks: &Range<usize>) -> u64 {
        let Some(last_leaf) = self.leaf_count().ok().and_then(|count| count.checked_sub(1)) else { return 0 };
        let last_blocks = self.leaf(&mut self.estimated(&mut None), last_leaf).map_or(0, |leaf| leaf.len());
        let all = last_leaf * LEAF_ENTRIES_MAX + last_blocks;
        let rows_per_block = self.statistics().rows / (all as u64).max(1);
        // A range within one block may have any part of it.
        (blocks.len() as u64 * rows_per_block).max(rows_per_block / 2)
    }

    /// The separators before some of [`TableReader::blocks_between`] two full keys, ascending: each is greater than every key of the blocks before it, and at most
    /// the first key of its own.
    pub fn sample_separators(self: &Arc<Self>, blocks: Range<usize>, count: usize) -> Vec<Separator> {
        let step = blocks.len() / count.max(1) + 1;
        let mut last = None;
        let mut leaves = self.estimated(&mut last);
        let separator = |block: usize| {
            self.leaf(&mut leaves, block / LEAF_ENTRIES_MAX).ok()?.separator(block % LEAF_ENTRIES_MAX)
        };
        (blocks.start + 1..=blocks.end).step_by(step).filter_map(separator).collect()
    }
}
