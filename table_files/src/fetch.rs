//! Fetching what a read needs and did not find in the cache, without holding up the thread: the missing block, and data blocks that the
//! read needs next.

use futures::future::{LocalBoxFuture, try_join_all};
use smallvec::SmallVec;

use super::cache::{
    BlockKey, BlockKind, BlockPart, BlockReading, BlockSource, Direction, FetchedBlocks, MissingBlock,
    PlacedBlock, ReadPattern,
};
use super::error::TableError;
use super::heads::BlockData;
use super::index::{BlockHandle, BlockPosition};
use super::index_walk::Leaves;
use super::reader::TableReader;
use crate::invariant::broken;
use crate::key;

/// The leaves of a fetch. Those that a walk lacks are read, and the walk is repeated.
struct LeavesOfFetch<'r> {
    table: &'r TableReader,
    at_hand: SmallVec<[(usize, BlockData); 2]>,
    /// The leaf that the last walk lacked.
    wanted: Option<(usize, BlockHandle)>,
}

impl Leaves for LeavesOfFetch<'_> {
    fn leaf(&mut self, number: usize, leaf: BlockHandle) -> Result<&[u8], TableError> {
        if let Some((_, data)) = self.at_hand.iter().find(|(at, _)| *at == number) {
            return Ok(data.body());
        }
        self.wanted = Some((number, leaf));
        Err(TableError::NotCached { path: self.table.path().to_path_buf(), offset: leaf.offset })
    }
}

/// Blocks to read at once, in the order of the file, and the one that comes behind them.
type Run = (Vec<BlockHandle>, Option<PlacedBlock>);

impl TableReader {
    /// The next block in the direction of a read that it needs for sure if it goes on.
    fn block_ahead(
        &self,
        leaves: &mut impl Leaves,
        place: BlockPosition,
        reading: BlockReading,
    ) -> Result<Option<PlacedBlock>, TableError> {
        let next = match reading.direction {
            Direction::Nowhere => None,
            Direction::Forwards => self.block_after(leaves, Some(place))?,
            Direction::Backwards => self.block_before(leaves, Some(place))?,
        };
        if !matches!(reading.pattern, ReadPattern::PartitionHeads { .. }) {
            return Ok(next);
        }
        // The later one of the two blocks begins within a partition: the read skips to the block where that ends, or backwards begins.
        let later =
            if reading.direction == Direction::Forwards { next.map(|(place, _)| place) } else { Some(place) };
        let Some(later) = later.filter(|_| next.is_some()) else { return Ok(next) };
        let Some(mut bound) = self.partition_across(leaves, later)? else { return Ok(next) };
        if reading.direction == Direction::Forwards {
            bound.extend_from_slice(key::PARTITION_END);
        }
        self.find(leaves, &bound)
    }

    /// The prefix of the partition that the block at `place` goes on with: the last row of the block before is of it as well.
    fn partition_across(
        &self,
        leaves: &mut impl Leaves,
        place: BlockPosition,
    ) -> Result<Option<SmallVec<[u8; 64]>>, TableError> {
        let Some(mut separator) = self.leaf(leaves, place.leaf)?.separator(place.entry) else {
            return Ok(None);
        };
        // A separator is the first key of its block, cut behind what that shares with the key before it.
        let prefix_length = key::prefix_length(&separator).filter(|length| *length < separator.len());
        Ok(prefix_length.map(|length| {
            separator.truncate(length);
            separator
        }))
    }

    /// The data block at `place` and up to `count - 1` blocks that the read needs next, together at most `bytes_max`, unless the first
    /// alone is larger. The run ends before a block that cannot be found: the read may not need it, and meets the damage itself if it
    /// does.
    fn run_of_blocks(
        &self,
        leaves: &mut LeavesOfFetch<'_>,
        (missing, place): (&MissingBlock, BlockPosition),
        count: usize,
        bytes_max: u64,
    ) -> Run {
        if count <= 1 {
            return (vec![missing.target], None);
        }
        let mut run = vec![missing.target];
        let mut place = place;
        let mut bytes = u64::from(missing.target.length);
        let next = loop {
            let next = self.block_ahead(leaves, place, missing.reading).ok().flatten();
            let next =
                next.filter(|(place, target)| self.check_place(BlockKind::Data(*place), *target).is_ok());
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
        (run, next)
    }

    /// As [`TableReader::run_of_blocks`]. Leaves of the index that it needs and that are not in memory are read.
    async fn run_with_leaves(
        &self,
        missing: (&MissingBlock, BlockPosition),
        count: usize,
        bytes_max: u64,
    ) -> Run {
        let mut leaves = LeavesOfFetch { table: self, at_hand: SmallVec::new(), wanted: None };
        loop {
            let run = self.run_of_blocks(&mut leaves, missing, count, bytes_max);
            let Some((number, target)) = leaves.wanted.take() else { return run };
            match self.fetch_one(BlockKind::IndexLeaf, target, BlockPart::Whole).await {
                Ok((_, data)) => leaves.at_hand.push((number, data)),
                Err(_) => return run,
            }
        }
    }

    /// Reads one block.
    async fn fetch_one(
        &self,
        kind: BlockKind,
        target: BlockHandle,
        part: BlockPart,
    ) -> Result<(BlockKey, BlockData), TableError> {
        self.check_place(kind, target)?;
        let bytes = self.file.read_later(target.offset, target.length as usize).await?;
        self.unpack(kind, target, part, &bytes, &mut Vec::new())
    }

    async fn fetch_missing(
        &self,
        missing: &MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> Result<FetchedBlocks, TableError> {
        if let BlockKind::Data(place) = missing.kind {
            return self.fetch_run(missing, place, count, bytes_max).await;
        }
        let block = self.fetch_one(missing.kind, missing.target, missing.reading.part()).await?;
        Ok(FetchedBlocks { blocks: vec![block], next: None })
    }

    /// Reads the run of a missing block. Blocks ahead that cannot be read are left out: the read may not need them.
    async fn fetch_run(
        &self,
        missing: &MissingBlock,
        place: BlockPosition,
        count: usize,
        bytes_max: u64,
    ) -> Result<FetchedBlocks, TableError> {
        self.check_place(missing.kind, missing.target)?;
        let (mut run, mut next) = self.run_with_leaves((missing, place), count, bytes_max).await;
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
                match self.unpack(missing.kind, target, missing.reading.part(), stored, &mut scratch) {
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
                let bytes = self.file.read_later(first.offset, length as usize).await?;
                Ok::<_, TableError>((first.offset, bytes))
            });
        try_join_all(reads).await
    }
}

impl BlockSource for TableReader {
    fn id(&self) -> u64 {
        TableReader::id(self)
    }

    fn fetch<'a>(
        &'a self,
        missing: &'a MissingBlock,
        count: usize,
        bytes_max: u64,
    ) -> LocalBoxFuture<'a, Result<FetchedBlocks, TableError>> {
        Box::pin(self.fetch_missing(missing, count, bytes_max))
    }
}
