//! Reads that need blocks from the disk, without a wait of the shard's thread.
//!
//! 1. A read is attempted without the disk ([`Shard::attempt`]). If all its blocks are in the cache, that is all.
//! 2. Otherwise it ends at the first block that is missing in each source, and everything it did is discarded.
//! 3. The missing blocks are fetched beside other requests of the shard, with more and more of the following ones each time, and are
//!    held. Then the read is attempted again. Behind the blocks of a long read, the disk reads the next ones meanwhile.
//!
//! So a read sees one state of its table, that of its last attempt, however many blocks came from the disk. Invariant: the repeated read
//! finds what was fetched for it, so each attempt gets further than the one before; the number of attempts is at most that of the
//! blocks of the read.

use std::collections::VecDeque;
use std::rc::Rc;

use futures::FutureExt;
use futures::future::try_join_all;

use super::fetches::Fetch;
use super::state::Shard;
use crate::error::EngineError;
use crate::table::{BlockCache, BlockKey, BlockKind, BlockPart, MissingBlock, ReadPattern, TableError};

/// The most blocks that one fetch reads. A long read always fetches this many. Other reads fetch one block in their first
/// attempt, four times as many in each later one, and this many from the fourth attempt on.
const FETCHED_BLOCKS_MAX: usize = 64;
/// The most bytes of the file that one fetch reads, unless its first block alone is larger.
const FETCHED_BYTES_MAX: u64 = 1 << 20;

/// How many blocks the disk reads behind those of a fetch that has read the most. Fewer than that: when the read comes there, they are
/// unpacked at once, and what was read shall still be in the processor's caches.
const AHEAD_BLOCKS: usize = 32;
/// The most sources whose blocks are read ahead at a time.
const AHEAD_SOURCES_MAX: usize = 8;

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
    /// Fetches that nothing waits for yet, the oldest first.
    ahead: VecDeque<JoinedFetch<'s>>,
    /// How far the read had come at the last fetch from each table file.
    progress_at_fetch: Vec<(u64, ReadProgress)>,
}

/// How far a read has come that goes on where it stopped.
#[derive(Debug, Clone, Copy)]
pub struct ReadProgress {
    /// Whether it has got any further since the last fetch.
    pub has_moved: bool,
    /// The rows that it has, and the number with which it ends.
    pub rows: usize,
    pub rows_max: usize,
    /// The bytes that it has used of its budget, and all of that: it ends as well when they are used.
    pub bytes: u64,
    pub bytes_max: u64,
}

impl ReadProgress {
    /// Whether the read gets as much further before it ends as it has since `before`.
    fn goes_on_as_far(&self, before: &Self) -> bool {
        let rows_gained = self.rows.saturating_sub(before.rows);
        let bytes_gained = self.bytes.saturating_sub(before.bytes);
        self.rows.saturating_add(rows_gained) < self.rows_max
            && self.bytes.saturating_add(bytes_gained) < self.bytes_max
    }
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

    /// What the next fetch reads after one that has read `self`. Parts of filters and of the index do not count: the read has not come to its
    /// first block then.
    fn after(self, missing: &[MissingBlock]) -> Self {
        let data = || missing.iter().filter(|block| block.is_data());
        let needs_heads = |block: &MissingBlock| block.reading.part() != BlockPart::Whole;
        let grown =
            |count: usize, is_read: bool| if is_read { (count * 4).min(FETCHED_BLOCKS_MAX) } else { count };
        Self {
            heads: grown(self.heads, data().any(needs_heads)),
            whole: grown(self.whole, !data().all(needs_heads)),
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
        ColdRead {
            shard: self,
            next_blocks: NextBlocks::default(),
            held: Vec::new(),
            held_bytes: 0,
            ahead: VecDeque::new(),
            progress_at_fetch: Vec::new(),
        }
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

    /// A fetch of the blocks of one run, which another read may have begun.
    fn fetch_block(&self, missing: MissingBlock, blocks: usize) -> JoinedFetch<'_> {
        let key = missing.key();
        let mut fetches = self.fetches.borrow_mut();
        let fetch = fetches.entry(key).or_insert_with(|| {
            let fetch = async move {
                let fetched = missing.table.fetch(&missing, blocks, FETCHED_BYTES_MAX).await;
                fetched.map(Rc::new)
            };
            fetch.boxed_local().shared()
        });
        JoinedFetch { shard: self, key, fetch: fetch.clone() }
    }
}

/// A fetch that a read waits for or will wait for. When it is dropped, further reads cannot join: a fetch that no read waits for would
/// keep its file.
struct JoinedFetch<'s> {
    shard: &'s Shard,
    key: BlockKey,
    fetch: Fetch,
}

impl Drop for JoinedFetch<'_> {
    fn drop(&mut self) {
        self.shard.fetches.borrow_mut().remove(&self.key);
    }
}

impl<'s> ColdRead<'s> {
    /// Fetches blocks and holds them until the read is dropped.
    pub async fn fetch(&mut self, missing: MissingBlocks) -> Result<(), EngineError> {
        self.fetch_runs(missing, None).await
    }

    async fn fetch_runs(
        &mut self,
        missing: MissingBlocks,
        progress: Option<ReadProgress>,
    ) -> Result<(), EngineError> {
        let mut missing = missing.0;
        missing.sort_by_key(MissingBlock::key);
        missing.dedup_by_key(|block| block.key());
        let next_blocks = self.next_blocks;
        self.next_blocks = next_blocks.after(&missing);
        let cache: &BlockCache = &self.shard.block_cache;
        let fetches = missing.into_iter().map(|block| {
            let count = next_blocks.of(&block);
            let joined = self.begun(&block).unwrap_or_else(|| self.shard.fetch_block(block.clone(), count));
            async move { Ok::<_, TableError>((block, count, joined.fetch.clone().await?)) }
        });
        let fetches: Vec<_> = fetches.collect();
        for (block, count, fetched) in try_join_all(fetches).await? {
            let is_long = block.reading.pattern == ReadPattern::LongRange;
            for (key, data) in &fetched.blocks {
                if !is_long {
                    cache.insert(*key, data.clone());
                }
                cache.pin(*key, data);
                self.held.push(*key);
                self.held_bytes += data.weight_bytes();
            }
            let progress = progress.filter(|_| block.is_data());
            let comes_behind = progress.is_some_and(|progress| self.comes_behind(&block, progress));
            if let Some((place, target)) = fetched.next
                && comes_behind
                && count == FETCHED_BLOCKS_MAX
            {
                self.begin(MissingBlock { kind: BlockKind::Data(place), target, ..block });
            }
        }
        Ok(())
    }

    /// Whether a read is likely to need the blocks behind those of this fetch: before it ends it gets as much further as it has since
    /// the last fetch from the same file.
    fn comes_behind(&mut self, missing: &MissingBlock, progress: ReadProgress) -> bool {
        let table = missing.table.id();
        let Some((_, before)) = self.progress_at_fetch.iter_mut().find(|(of, _)| *of == table) else {
            self.progress_at_fetch.push((table, progress));
            return false;
        };
        progress.goes_on_as_far(&std::mem::replace(before, progress))
    }

    /// Takes the fetch that has begun for a block.
    fn begun(&mut self, missing: &MissingBlock) -> Option<JoinedFetch<'s>> {
        let key = missing.key();
        let index = self.ahead.iter().position(|joined| joined.key == key)?;
        self.ahead.remove(index)
    }

    /// Begins to fetch a block that is likely to be missing next, and those behind it.
    fn begin(&mut self, missing: MissingBlock) {
        if self.shard.block_cache.has(&missing) || self.ahead.iter().any(|joined| joined.key == missing.key())
        {
            return;
        }
        if self.ahead.len() >= AHEAD_SOURCES_MAX {
            self.ahead.pop_front();
        }
        let joined = self.shard.fetch_block(missing, AHEAD_BLOCKS);
        // The first poll sends the read to the disk. What comes of it is for the read that misses the block.
        let _ = joined.fetch.clone().now_or_never();
        self.ahead.push_back(joined);
    }

    /// As [`ColdRead::fetch`], for a read that goes on where it stopped instead of beginning again. If it has moved since the last
    /// fetch, blocks are given up when too much is held: the read needs few of them again.
    pub async fn fetch_ahead(
        &mut self,
        missing: MissingBlocks,
        progress: ReadProgress,
    ) -> Result<(), EngineError> {
        if progress.has_moved && self.held_bytes > HELD_BYTES_MAX {
            self.release();
        }
        self.fetch_runs(missing, Some(progress)).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_behind_are_wanted_while_neither_the_rows_nor_the_bytes_end_before_them() {
        let at = |rows, bytes| ReadProgress { has_moved: true, rows, rows_max: 100, bytes, bytes_max: 1_000 };
        assert!(at(40, 400).goes_on_as_far(&at(0, 0)));
        assert!(!at(50, 400).goes_on_as_far(&at(0, 0)));
        assert!(!at(40, 500).goes_on_as_far(&at(0, 0)));
        assert!(at(50, 500).goes_on_as_far(&at(30, 300)));
        // A read of any number of rows ends with its bytes alone.
        let unlimited = |bytes| ReadProgress { rows_max: usize::MAX, ..at(0, bytes) };
        assert!(unlimited(400).goes_on_as_far(&unlimited(0)));
        assert!(!unlimited(900).goes_on_as_far(&unlimited(0)));
    }
}
