//! Reads that need blocks from the disk, without a wait of the shard's thread.
//!
//! 1. A read is attempted without the disk ([`Shard::attempt`]). If all its blocks are in the cache, that is all.
//! 2. Otherwise it ends at the first block that is missing in each source, and everything it did is discarded.
//! 3. The missing blocks are fetched beside other requests of the shard, with more and more of the following ones each time, and are
//!    held. Then the read is attempted again.
//!
//! So a read sees one state of its table, that of its last attempt, however many blocks came from the disk. Invariant: the repeated read
//! finds what was fetched for it, so each attempt gets further than the one before; the number of attempts is at most that of the
//! blocks of the read.

use futures::FutureExt;
use futures::future::try_join_all;

use super::fetches::Blocks;
use super::state::Shard;
use crate::error::EngineError;
use crate::table::{BlockCache, BlockKey, BlockPart, MissingBlock, ReadPattern, TableError};

/// The most blocks that one fetch reads. A long read always fetches this many. Other reads fetch one block in their first
/// attempt, four times as many in each later one, and this many from the fourth attempt on.
const FETCHED_BLOCKS_MAX: usize = 64;
/// The most bytes of the file that one fetch reads, unless its first block alone is larger.
const FETCHED_BYTES_MAX: u64 = 1 << 20;

/// The most bytes of blocks that are held for a read that goes on where it stopped.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The result of [`Shard::attempt`].
pub enum Attempt<T> {
    Done(T),
    /// The read needs these blocks first.
    Missing(MissingBlocks),
}

/// Blocks to pass to [`ColdRead::fetch`].
pub struct MissingBlocks(Vec<MissingBlock>);

/// A read that is repeated until its blocks are there. It holds the blocks that were fetched for it.
pub struct ColdRead<'s> {
    shard: &'s Shard,
    next_blocks: NextBlocks,
    held: Vec<BlockKey>,
    held_bytes: usize,
}

/// How many blocks the next fetch for a missing block reads: of the heads of blocks and of whole blocks, because few whole ones are
/// needed by a read of heads.
#[derive(Clone, Copy)]
struct NextBlocks {
    heads: usize,
    whole: usize,
}

impl Default for NextBlocks {
    fn default() -> Self {
        Self { heads: 1, whole: 1 }
    }
}

impl NextBlocks {
    fn of(self, missing: &MissingBlock) -> usize {
        match missing.reading.part() {
            _ if missing.reading.pattern == ReadPattern::LongRange => FETCHED_BLOCKS_MAX,
            BlockPart::Heads(_) => self.heads,
            BlockPart::Whole => self.whole,
        }
    }

    /// What the next fetch reads after one that has read `self`.
    fn after(self, missing: &[MissingBlock]) -> Self {
        let needs_heads = |block: &MissingBlock| block.reading.part() != BlockPart::Whole;
        let grown =
            |count: usize, is_read: bool| if is_read { (count * 4).min(FETCHED_BLOCKS_MAX) } else { count };
        Self {
            heads: grown(self.heads, missing.iter().any(needs_heads)),
            whole: grown(self.whole, !missing.iter().all(needs_heads)),
        }
    }
}

impl Shard {
    /// Runs a read without the disk. When blocks are missing, its result is discarded, so its result must be its only effect.
    #[inline]
    pub fn attempt<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<Attempt<T>, E> {
        let (result, missing) = self.block_cache.without_disk(read);
        if missing.is_empty() {
            result.map(Attempt::Done)
        } else {
            Ok(Attempt::Missing(MissingBlocks(missing)))
        }
    }

    /// Begins a read that [`Shard::attempt`] could not finish.
    pub fn cold_read(&self) -> ColdRead<'_> {
        ColdRead { shard: self, next_blocks: NextBlocks::default(), held: Vec::new(), held_bytes: 0 }
    }

    /// Fetches all blocks that a read needs and holds them as long as the result lives. For work that reads and writes in one turn.
    pub async fn warm<T, E: From<EngineError>>(
        &self,
        mut read: impl FnMut() -> Result<T, E>,
    ) -> Result<ColdRead<'_>, E> {
        let mut cold = self.cold_read();
        while let Attempt::Missing(missing) = self.attempt(&mut read)? {
            cold.fetch(missing).await?;
        }
        Ok(cold)
    }

    /// Attempts a read until all its blocks are there. The result of `read` must be its only effect. There is no wait between its
    /// last call and the return.
    pub async fn read_cold<T, E: From<EngineError>>(
        &self,
        mut read: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut cold = match self.attempt(&mut read)? {
            Attempt::Done(result) => return Ok(result),
            Attempt::Missing(missing) => {
                let mut cold = self.cold_read();
                cold.fetch(missing).await?;
                cold
            }
        };
        loop {
            match self.attempt(&mut read)? {
                Attempt::Done(result) => return Ok(result),
                Attempt::Missing(missing) => cold.fetch(missing).await?,
            }
        }
    }

    /// Reads the blocks of one run, or joins another read that does so.
    async fn fetch_block(&self, missing: MissingBlock, blocks: usize) -> Result<Blocks, TableError> {
        let key = missing.key();
        let fetch = {
            let mut fetches = self.fetches.borrow_mut();
            let fetch = fetches.entry(key).or_insert_with(|| {
                let fetch = async move {
                    let fetched = missing.table.fetch(&missing, blocks, FETCHED_BYTES_MAX).await;
                    fetched.map(Blocks::from)
                };
                fetch.boxed_local().shared()
            });
            fetch.clone()
        };
        // Also when the read is given up: a fetch that no read waits for would keep its file.
        let _end = EndOfFetch { shard: self, key };
        fetch.await
    }
}

/// Ends a fetch for reads that have not joined it yet.
struct EndOfFetch<'s> {
    shard: &'s Shard,
    key: BlockKey,
}

impl Drop for EndOfFetch<'_> {
    fn drop(&mut self) {
        self.shard.fetches.borrow_mut().remove(&self.key);
    }
}

impl ColdRead<'_> {
    /// Fetches blocks and holds them until the read is dropped.
    pub async fn fetch(&mut self, missing: MissingBlocks) -> Result<(), EngineError> {
        let mut missing = missing.0;
        missing.sort_by_key(MissingBlock::key);
        missing.dedup_by_key(|block| block.key());
        let next_blocks = self.next_blocks;
        self.next_blocks = next_blocks.after(&missing);
        let shard = self.shard;
        let cache: &BlockCache = &shard.block_cache;
        let fetches = missing.into_iter().map(|block| async move {
            let is_long = block.reading.pattern == ReadPattern::LongRange;
            let count = next_blocks.of(&block);
            Ok::<_, TableError>((is_long, shard.fetch_block(block, count).await?))
        });
        let fetched = try_join_all(fetches).await?;
        for (is_long, blocks) in fetched {
            for (key, data) in blocks.iter() {
                if !is_long {
                    cache.insert(*key, data.clone());
                }
                cache.pin(*key, data);
                self.held.push(*key);
                self.held_bytes += data.len();
            }
        }
        Ok(())
    }

    /// As [`ColdRead::fetch`], for a read that goes on where it stopped instead of beginning again. If it `has_progressed` since the last
    /// fetch, blocks are given up when too much is held: the read needs few of them again.
    pub async fn fetch_ahead(
        &mut self,
        missing: MissingBlocks,
        has_progressed: bool,
    ) -> Result<(), EngineError> {
        if has_progressed && self.held_bytes > HELD_BYTES_MAX {
            self.release();
        }
        self.fetch(missing).await
    }

    fn release(&mut self) {
        for key in self.held.drain(..) {
            self.shard.block_cache.unpin(key);
        }
        self.held_bytes = 0;
    }
}

impl Drop for ColdRead<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
