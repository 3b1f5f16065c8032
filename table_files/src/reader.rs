//! Reading a table.
//!
//! A reader is immutable and may be shared by threads; block caches belong to one thread and are handed in. Everything but the data
//! blocks is loaded into memory when the table is opened. Invariant: no byte is used before the checksum over it was found right
//! after it came from the disk.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{LocalBoxFuture, try_join_all};
use smallvec::SmallVec;

use super::block::{BlockView, SearchResult};
use super::cache::{
    BlockCache, BlockKey, BlockPart, BlockReading, BlockSource, Direction, FetchedBlocks, MissingBlock,
    PlacedBlock, ReadPattern,
};
use super::error::TableError;
use super::filter::{Filter, KeyHash};
use super::format::{
    FOOTER_BYTES, Footer, FooterError, POSITIONS_SINCE_VERSION, Section, VERSION, checksum_matches,
    read_block,
};
use super::heads::BlockData;
use super::index::{BlockHandle, BlockPosition, LEAF_ENTRIES_MAX, Node, Separator};
use super::range_tombstones::RangeTombstones;
use super::statistics::TableStatistics;
use crate::invariant::broken;
use crate::io::{CompleteFile, Disk, DiskError};
use crate::key;
use crate::row::RowRef;

/// An open table.
pub struct TableReader {
    id: u64,
    path: PathBuf,
    file: Arc<dyn CompleteFile>,
    footer: Footer,
    statistics: TableStatistics,
    partition_filter: Option<Filter>,
    /// `None` without filters, and where every partition has one row: then the partition filter has the same information.
    row_filter: Option<Filter>,
    index_root: Box<[u8]>,
    index_leaves: Box<[u8]>,
    range_tombstones: Box<[u8]>,
}

impl fmt::Debug for TableReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TableReader").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A row that [`TableReader::get`] found. It keeps its block alive.
pub struct TableRow {
    block: BlockData,
    start: usize,
    end: usize,
    base: i64,
}

impl TableRow {
    #[inline]
    pub fn row(&self) -> RowRef<'_> {
        let Some(bytes) = self.block.get(self.start..self.end) else {
            broken!("a row that was found lies in its block");
            return RowRef::new(&[], self.base);
        };
        RowRef::new(bytes, self.base)
    }
}

impl TableReader {
    /// Whether the file is of the version that a writer would give it now.
    pub fn is_of_present_version(&self) -> bool {
        self.footer.version == VERSION
    }

    /// The version of the file.
    pub fn version(&self) -> u32 {
        self.footer.version
    }

    /// Opens a table. `id` must be unique among the tables that share a block cache.
    pub async fn open_file(disk: &dyn Disk, path: &Path, id: u64) -> Result<Arc<Self>, TableError> {
        Self::open(disk.open_complete(path).await?, path, id).map(Arc::new)
    }

    /// Opens a table, and loads and checks all of it except the data blocks. `path` is for error messages.
    pub fn open(file: Arc<dyn CompleteFile>, path: &Path, id: u64) -> Result<Self, TableError> {
        let length = file.length();
        let tail_bytes = length.min(FOOTER_BYTES as u64);
        let tail = read_part(&*file, path, length - tail_bytes, tail_bytes)?;
        let footer = Footer::read(&tail, length).map_err(|error| match error {
            FooterError::Damaged(reason) => TableError::damaged(path, length, reason),
            FooterError::Version(version) => {
                TableError::UnsupportedVersion { path: path.to_path_buf(), version, newest: VERSION }
            }
        })?;
        let load = |section: &Section| load_section(&*file, path, section);
        let malformed = |section: &Section, reason| TableError::damaged(path, section.offset, reason);
        let filter = |section: &Section| {
            let bytes = load(section)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let filter = Filter::read(&bytes).ok_or_else(|| malformed(section, "a filter is malformed"))?;
            Ok::<_, TableError>(Some(filter))
        };
        let statistics = load(&footer.statistics)?;
        let statistics = TableStatistics::read(&statistics, footer.version >= POSITIONS_SINCE_VERSION)
            .map_err(|_| malformed(&footer.statistics, "the statistics are malformed"))?;
        let range_tombstones = load(&footer.range_tombstones)?;
        if RangeTombstones::new(&range_tombstones).is_none_or(|range_tombstones| !range_tombstones.is_valid())
        {
            return Err(malformed(&footer.range_tombstones, "the range tombstones are malformed"));
        }
        let partition_filter = filter(&footer.partition_filter)?;
        let row_filter = filter(&footer.row_filter)?;
        let (index_root, index_leaves) = (load(&footer.index_root)?, load(&footer.index_leaves)?);
        Ok(Self {
            id,
            path: path.to_path_buf(),
            footer,
            statistics,
            partition_filter,
            row_filter,
            index_root,
            index_leaves,
            range_tombstones,
            file,
        })
    }

    pub(super) fn damaged(&self, offset: u64, reason: &'static str) -> TableError {
        TableError::damaged(&self.path, offset, reason)
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.footer.file_bytes
    }

    /// A checksum of what the file contains.
    pub fn checksum(&self) -> u64 {
        let Footer { index_leaves, statistics, .. } = &self.footer;
        u64::from(index_leaves.crc32) << 32 | u64::from(statistics.crc32)
    }

    pub fn statistics(&self) -> &TableStatistics {
        &self.statistics
    }

    /// Memory of the loaded parts.
    pub fn memory_bytes(&self) -> usize {
        let filters = [&self.partition_filter, &self.row_filter].into_iter().flatten();
        let sections = [&self.index_root, &self.index_leaves, &self.range_tombstones];
        filters.map(Filter::memory_bytes).sum::<usize>()
            + sections.into_iter().map(|section| section.len()).sum::<usize>()
    }

    /// Prefetches the data that [`TableReader::may_contain_partition`] will read.
    #[inline]
    pub fn prefetch_filter(&self, hash: KeyHash) {
        if let Some(filter) = &self.partition_filter {
            filter.prefetch(hash.partition);
        }
    }

    /// False only if the table has neither rows nor range tombstones of the partition.
    #[inline]
    pub fn may_contain_partition(&self, hash: KeyHash) -> bool {
        self.partition_filter.as_ref().is_none_or(|filter| filter.may_contain(hash.partition))
    }

    /// False only if the table has no row with exactly this key. Its range tombstones may still cover the key.
    #[inline]
    pub fn may_contain_row(&self, hash: KeyHash) -> bool {
        match &self.row_filter {
            Some(filter) => filter.may_contain(hash.row),
            None => self.may_contain_partition(hash),
        }
    }

    /// The range tombstones.
    #[inline]
    pub fn range_tombstones(&self) -> RangeTombstones<'_> {
        let Some(range_tombstones) = RangeTombstones::new(&self.range_tombstones) else {
            broken!("the range tombstones of an open table can be read");
            return RangeTombstones::default();
        };
        range_tombstones
    }

    /// The row with exactly this key. Check the filter first.
    #[inline]
    pub fn get(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        key: &[u8],
    ) -> Result<Option<TableRow>, TableError> {
        let Some((place, target)) = self.find(key)? else { return Ok(None) };
        let block = self.block(cache, place, target, BlockReading::OF_ONE_ROW)?;
        let view = BlockView::new(block.body()).ok_or_else(|| self.malformed_block(target))?;
        view.prefetch_keys();
        let found = view.search(key).map_err(|_| self.malformed_block(target))?;
        let (base, rows_start) = (view.base(), view.rows_start());
        Ok(match found {
            SearchResult::Exact { entry, .. } => Some(TableRow {
                start: rows_start + entry.row.start,
                end: rows_start + entry.row.end,
                base,
                block,
            }),
            SearchResult::Greater { .. } | SearchResult::End => None,
        })
    }

    pub(super) fn malformed_block(&self, target: BlockHandle) -> TableError {
        self.damaged(target.offset, "a block is malformed")
    }

    fn malformed_index(&self) -> TableError {
        self.damaged(self.footer.index_leaves.offset, "the index is malformed")
    }

    #[inline]
    fn root(&self) -> Option<Node<'_>> {
        Node::new(&self.index_root)
    }

    #[inline]
    fn leaf(&self, leaf: usize) -> Option<Node<'_>> {
        let target = self.root()?.target(leaf)?;
        // The root has offsets in the file.
        let start = usize::try_from(target.offset.checked_sub(self.footer.index_leaves.offset)?).ok()?;
        Node::new(self.index_leaves.get(start..start.checked_add(target.length as usize)?)?)
    }

    /// The block that contains `key`, if any block does. `None` if the table has no blocks.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<(BlockPosition, BlockHandle)>, TableError> {
        let look = || {
            let root = self.root()?;
            if root.len() == 0 {
                return Some(None);
            }
            let leaf = root.floor(key)?;
            let node = self.leaf(leaf)?;
            let entry = node.floor(key)?;
            Some(Some((BlockPosition { leaf, entry }, node.target(entry)?)))
        };
        look().ok_or_else(|| self.malformed_index())
    }

    /// The number of a block, counted as if all leaves were full.
    fn block_number(&self, key: &[u8]) -> Option<usize> {
        let (place, _) = self.find(key).ok().flatten()?;
        Some(place.leaf * LEAF_ENTRIES_MAX + place.entry)
    }

    /// From the block of one full key up to that of another, for estimates. `None`: nothing lies between them.
    pub fn blocks_between(&self, start: &[u8], end: &[u8]) -> Option<Range<usize>> {
        Some(self.block_number(start)?..self.block_number(end)?)
    }

    /// About how many rows lie in [`TableReader::blocks_between`].
    pub fn estimate_rows(&self, blocks: &Range<usize>) -> u64 {
        let Some(root) = self.root() else { return 0 };
        let last_leaf = root.len().checked_sub(1).and_then(|last| self.leaf(last));
        let all = root.len().saturating_sub(1) * LEAF_ENTRIES_MAX + last_leaf.map_or(0, |leaf| leaf.len());
        let rows_per_block = self.statistics.rows / (all as u64).max(1);
        // A range within one block may have any part of it.
        (blocks.len() as u64 * rows_per_block).max(rows_per_block / 2)
    }

    /// The separators before some of [`TableReader::blocks_between`] two full keys, ascending: each is greater than every key of the blocks before it, and at most
    /// the first key of its own.
    pub fn sample_separators(&self, blocks: Range<usize>, count: usize) -> Vec<Separator> {
        let step = blocks.len() / count.max(1) + 1;
        let separator =
            |block: usize| self.leaf(block / LEAF_ENTRIES_MAX)?.separator(block % LEAF_ENTRIES_MAX);
        (blocks.start + 1..=blocks.end).step_by(step).filter_map(separator).collect()
    }

    /// The block after a place; for `None` the first block.
    pub(super) fn block_after(
        &self,
        place: Option<BlockPosition>,
    ) -> Result<Option<(BlockPosition, BlockHandle)>, TableError> {
        let look = || {
            let root = self.root()?;
            let (mut leaf, mut entry) = place.map_or((0, 0), |place| (place.leaf, place.entry + 1));
            if root.len() == 0 {
                return Some(None);
            }
            let mut node = self.leaf(leaf)?;
            if entry >= node.len() {
                (leaf, entry) = (leaf + 1, 0);
                if leaf >= root.len() {
                    return Some(None);
                }
                node = self.leaf(leaf)?;
            }
            Some(Some((BlockPosition { leaf, entry }, node.target(entry)?)))
        };
        look().ok_or_else(|| self.malformed_index())
    }

    /// The block before a place; for `None` the last block.
    pub(super) fn block_before(
        &self,
        place: Option<BlockPosition>,
    ) -> Result<Option<(BlockPosition, BlockHandle)>, TableError> {
        let look = || {
            let root = self.root()?;
            let place = match place {
                Some(BlockPosition { leaf, entry }) if entry > 0 => BlockPosition { leaf, entry: entry - 1 },
                other => {
                    let end = other.map_or(root.len(), |place| place.leaf);
                    let Some(leaf) = end.checked_sub(1) else { return Some(None) };
                    BlockPosition { leaf, entry: self.leaf(leaf)?.len().checked_sub(1)? }
                }
            };
            Some(Some((place, self.leaf(place.leaf)?.target(place.entry)?)))
        };
        look().ok_or_else(|| self.malformed_index())
    }

    /// Whether `key` belongs into the block at `place`. It must not be before the start of that block.
    pub(super) fn is_within(&self, place: BlockPosition, key: &[u8]) -> bool {
        self.leaf(place.leaf)
            .filter(|node| place.entry + 1 < node.len())
            .and_then(|node| node.is_after(place.entry + 1, key))
            .unwrap_or(false)
    }

    /// A block's body from the cache; else it is read, checked and unpacked. It may be only the part that the reading needs.
    #[inline]
    pub(super) fn block(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        place: BlockPosition,
        target: BlockHandle,
        reading: BlockReading,
    ) -> Result<BlockData, TableError> {
        if let Some(data) = cache.and_then(|cache| cache.get(self.id, target.offset, reading.part())) {
            return Ok(data);
        }
        self.load_block(cache, place, target, reading)
    }

    #[cold]
    fn load_block(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        place: BlockPosition,
        target: BlockHandle,
        reading: BlockReading,
    ) -> Result<BlockData, TableError> {
        let missing = || MissingBlock { table: Arc::clone(self) as _, place, target, reading };
        if cache.is_some_and(|cache| !cache.may_read_disk(missing)) {
            return Err(TableError::NotCached { path: self.path.clone(), offset: target.offset });
        }
        self.check_place(target)?;
        let bytes = read_part(&*self.file, &self.path, target.offset, u64::from(target.length))?;
        let (key, data) = self.unpack(target, reading.part(), &bytes, &mut Vec::new())?;
        if let Some(cache) = cache.filter(|_| reading.pattern != ReadPattern::LongRange) {
            cache.insert(key, data.clone());
        }
        Ok(data)
    }

    fn check_place(&self, target: BlockHandle) -> Result<(), TableError> {
        let end = target.offset.checked_add(u64::from(target.length));
        if end.is_some_and(|end| end <= self.footer.data_bytes) {
            Ok(())
        } else {
            Err(self.damaged(target.offset, "the index points outside the data"))
        }
    }

    /// Checks and unpacks a part of a block as it is stored. Returns it with its key in a cache. `scratch` is a buffer for reuse.
    fn unpack(
        &self,
        target: BlockHandle,
        part: BlockPart,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(BlockKey, BlockData), TableError> {
        let data = read_block(bytes, part, scratch).map_err(|reason| self.damaged(target.offset, reason))?;
        // Also where nothing was left out.
        let part = if data.is_whole() { BlockPart::Whole } else { part };
        Ok((BlockKey::new(self.id, target.offset, part), data))
    }

    /// The next block in the direction of a read that it needs for sure if it goes on.
    fn block_ahead(
        &self,
        place: BlockPosition,
        reading: BlockReading,
    ) -> Result<Option<(BlockPosition, BlockHandle)>, TableError> {
        let next = match reading.direction {
            Direction::Nowhere => None,
            Direction::Forwards => self.block_after(Some(place))?,
            Direction::Backwards => self.block_before(Some(place))?,
        };
        if !matches!(reading.pattern, ReadPattern::PartitionHeads { .. }) {
            return Ok(next);
        }
        // The later one of the two blocks begins within a partition: the read skips to the block where that ends, or backwards begins.
        let later =
            if reading.direction == Direction::Forwards { next.map(|(place, _)| place) } else { Some(place) };
        let Some(mut bound) = later.and_then(|later| self.partition_across(later)).filter(|_| next.is_some())
        else {
            return Ok(next);
        };
        if reading.direction == Direction::Forwards {
            bound.extend_from_slice(key::PARTITION_END);
        }
        self.find(&bound)
    }

    /// The prefix of the partition that the block at `place` goes on with: the last row of the block before is of it as well.
    fn partition_across(&self, place: BlockPosition) -> Option<SmallVec<[u8; 64]>> {
        let mut separator = self.leaf(place.leaf)?.separator(place.entry)?;
        // A separator is the first key of its block, cut behind what that shares with the key before it.
        let prefix_length = key::prefix_length(&separator).filter(|length| *length < separator.len())?;
        separator.truncate(prefix_length);
        Some(separator)
    }

    /// The block at `place` and up to `count - 1` blocks that the read needs next, together at most `bytes_max`, unless the first
    /// alone is larger. In the order of the file. Also the block that comes behind them. The run ends before a block that cannot be
    /// found: the read may not need it, and meets the damage itself if it does.
    fn run_of_blocks(
        &self,
        missing: &MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> Result<(Vec<BlockHandle>, Option<PlacedBlock>), TableError> {
        self.check_place(missing.target)?;
        let mut run = vec![missing.target];
        let mut place = missing.place;
        let mut bytes = u64::from(missing.target.length);
        let next = loop {
            let next = self.block_ahead(place, missing.reading).ok().flatten();
            let next = next.filter(|(_, target)| self.check_place(*target).is_ok());
            let Some((next_place, target)) = next else { break None };
            bytes += u64::from(target.length);
            if run.len() >= count || bytes > bytes_max {
                break next;
            }
            run.push(target);
            place = next_place;
        };
        if missing.reading.direction == Direction::Backwards {
            run.reverse();
        }
        Ok((run, next))
    }

    /// Reads the run of a missing block. Blocks ahead that cannot be read are left out: the read may not need them.
    async fn fetch_run(
        &self,
        missing: &MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> Result<FetchedBlocks, TableError> {
        let (mut run, mut next) = self.run_of_blocks(missing, count, bytes_max)?;
        let read = match self.read_run(&run).await {
            Err(_) if run.len() > 1 => {
                (run, next) = (vec![missing.target], None);
                self.read_run(&run).await?
            }
            read => read?,
        };
        let mut blocks = Vec::with_capacity(run.len());
        let mut scratch = Vec::new();
        for (start, bytes) in read {
            let end = start + bytes.len() as u64;
            let inside = run.iter().filter(|target| (start..end).contains(&target.offset));
            for &target in inside {
                let from = (target.offset - start) as usize;
                let Some(stored) = bytes.get(from..from + target.length as usize) else {
                    return Err(broken!("adjacent blocks lie in the bytes that were read").into());
                };
                match self.unpack(target, missing.reading.part(), stored, &mut scratch) {
                    Ok(block) => blocks.push(block),
                    Err(error) if target == missing.target => return Err(error),
                    Err(_) => {}
                }
            }
        }
        Ok(FetchedBlocks { blocks, next })
    }

    /// Reads blocks as they are stored, adjacent ones in one piece. Returns the offset and the bytes of each piece.
    async fn read_run(&self, run: &[BlockHandle]) -> Result<Vec<(u64, Box<[u8]>)>, TableError> {
        let pieces = run.chunk_by(|before, after| before.offset + u64::from(before.length) == after.offset);
        let reads =
            pieces.filter_map(|piece| piece.first().zip(piece.last())).map(|(first, last)| async move {
                let length = last.offset + u64::from(last.length) - first.offset;
                let bytes = Arc::clone(&self.file).read_later(first.offset, length as usize).await;
                let bytes = bytes.map_err(|error| cut_short(error, &self.path, first.offset))?;
                Ok::<_, TableError>((first.offset, bytes))
            });
        try_join_all(reads).await
    }
}

impl BlockSource for TableReader {
    fn id(&self) -> u64 {
        self.id
    }

    fn fetch<'a>(
        &'a self,
        missing: &'a MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> LocalBoxFuture<'a, Result<FetchedBlocks, TableError>> {
        Box::pin(self.fetch_run(missing, count, bytes_max))
    }
}

/// Reads a part of the file. A file that has been cut short is damaged.
fn read_part(
    file: &dyn CompleteFile,
    path: &Path,
    offset: u64,
    length: u64,
) -> Result<Box<[u8]>, TableError> {
    let end = offset.checked_add(length).filter(|end| *end <= file.length());
    let Some((_, length)) = end.zip(usize::try_from(length).ok()) else {
        return Err(TableError::damaged(path, offset, "a part of the table lies outside the file"));
    };
    let mut bytes = vec![0; length].into_boxed_slice();
    file.read_at(offset, &mut bytes).map_err(|error| cut_short(error, path, offset))?;
    Ok(bytes)
}

/// The error of a failed read. A file that ends before is damaged.
fn cut_short(error: DiskError, path: &Path, offset: u64) -> TableError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => TableError::damaged(path, offset, "the file ends before"),
        _ => error.into(),
    }
}

fn load_section(file: &dyn CompleteFile, path: &Path, section: &Section) -> Result<Box<[u8]>, TableError> {
    let bytes = read_part(file, path, section.offset, section.length)?;
    if checksum_matches(&bytes, section.crc32) {
        Ok(bytes)
    } else {
        Err(TableError::damaged(path, section.offset, "the checksum of a section is wrong"))
    }
}
