//! A cursor over a table's rows in key order, in both directions.
//!
//! A forward step decodes the next entry. Entries can only be decoded forwards from a restart. So backwards, a whole restart
//! interval is decoded once, and its entries are returned from the end. Both directions cost about the same.
//!
//! A cursor for the heads of partitions moves forwards through blocks of which only those are unpacked. Where it comes to rows that are
//! left out, it loads the whole block.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::block::{BlockView, EntryOffset, EntryRef, SearchResult};
use super::cache::{BlockCache, BlockKind, BlockPart, BlockReading, Direction, ReadPattern};
use super::error::TableError;
use super::heads::{BlockData, may_be_in_gap};
use super::index::{BlockHandle, BlockPosition};
use super::index_walk::{LeafAtHand, LeavesOfRead};
use super::reader::TableReader;
use crate::invariant::broken;
use crate::row::RowRef;

struct LoadedBlock {
    place: BlockPosition,
    target: BlockHandle,
    data: BlockData,
}

/// An entry of the interval that is read backwards. `key` is a range of `TableCursor::interval_keys`.
struct Step {
    key_offset: usize,
    key: Range<usize>,
    /// Offsets in the block's body.
    row: Range<usize>,
    end: EntryOffset,
}

/// The reusable allocations of a cursor.
#[derive(Default)]
pub struct TableCursorBuffers {
    key: Vec<u8>,
    interval: Vec<Step>,
    interval_keys: Vec<u8>,
}

/// A cursor over a table. It is on a row, or on none: before the first seek, behind either end, and after an error.
pub struct TableCursor {
    table: Arc<TableReader>,
    cache: Option<Rc<BlockCache>>,
    pattern: ReadPattern,
    last_leaf: Option<LeafAtHand>,
    block: Option<LoadedBlock>,
    /// On a row: the offset of its key, the end of its entry, and the row's offsets in the block's body.
    key_offset: usize,
    entry_end: EntryOffset,
    row: Range<usize>,
    base: i64,
    key: Vec<u8>,
    on_row: bool,
    /// The entries before the current one in its restart interval, if they have been decoded.
    interval: Vec<Step>,
    interval_keys: Vec<u8>,
}

impl TableCursor {
    /// A cursor on no row. Without a cache each block is unpacked when the cursor enters it, as compaction wants it.
    pub fn new(table: Arc<TableReader>, cache: Option<Rc<BlockCache>>) -> Self {
        Self::with_buffers(table, cache, TableCursorBuffers::default())
    }

    /// As [`TableCursor::new`], with the buffers of a finished cursor.
    pub fn with_buffers(
        table: Arc<TableReader>,
        cache: Option<Rc<BlockCache>>,
        buffers: TableCursorBuffers,
    ) -> Self {
        let TableCursorBuffers { key, mut interval, interval_keys } = buffers;
        interval.clear();
        Self {
            table,
            cache,
            pattern: ReadPattern::Rows,
            last_leaf: None,
            block: None,
            key_offset: 0,
            entry_end: EntryOffset::default(),
            row: 0..0,
            base: 0,
            key,
            on_row: false,
            interval,
            interval_keys,
        }
    }

    /// Returns the buffers. The one for the keys of an interval keeps a capacity of `bytes_max`.
    pub fn into_buffers(self, bytes_max: usize) -> TableCursorBuffers {
        let Self { key, interval, mut interval_keys, .. } = self;
        interval_keys.clear();
        interval_keys.shrink_to(bytes_max);
        TableCursorBuffers { key, interval, interval_keys }
    }

    /// A cursor for a read of this pattern.
    pub fn for_pattern(
        table: Arc<TableReader>,
        cache: Rc<BlockCache>,
        pattern: ReadPattern,
        buffers: TableCursorBuffers,
    ) -> Self {
        Self { pattern, ..Self::with_buffers(table, Some(cache), buffers) }
    }

    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// The table, and how its leaves are read.
    #[inline]
    fn index(&mut self) -> (&Arc<TableReader>, LeavesOfRead<'_>) {
        let Self { table, cache, pattern, last_leaf, .. } = self;
        (table, LeavesOfRead { table, cache: cache.as_deref(), pattern: *pattern, last: last_leaf })
    }

    /// Whether the cursor is on a row.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.on_row
    }

    /// The full key of the current row; empty if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.on_row { &self.key } else { &[] }
    }

    /// The current row; an empty one if there is none.
    #[inline]
    pub fn row(&self) -> RowRef<'_> {
        let block = self.block.as_ref().filter(|_| self.on_row);
        let bytes = block.and_then(|block| block.data.get(self.row.clone()));
        if bytes.is_none() && self.on_row {
            broken!("the row of a cursor lies in its block");
        }
        RowRef::new(bytes.unwrap_or_default(), self.base)
    }

    /// Key and row, if the cursor is on one.
    #[inline]
    pub fn current(&self) -> Option<(&[u8], RowRef<'_>)> {
        self.on_row.then(|| (self.key.as_slice(), self.row()))
    }

    /// Moves to the first row with a key greater than or equal to `key`. Returns whether there is one.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool, TableError> {
        let place = self.block.as_ref().map(|block| block.place);
        let within = match place.filter(|_| self.on_row && key >= self.key.as_slice()) {
            Some(place) => {
                let (table, mut leaves) = self.index();
                table.is_within(&mut leaves, place, key)?
            }
            None => false,
        };
        if !within {
            let (table, mut leaves) = self.index();
            let Some((place, target)) = table.find(&mut leaves, key)? else { return Ok(self.leave()) };
            self.enter(place, target, Direction::Forwards)?;
        }
        self.search(key)
    }

    /// Moves to the first row of the current block with a key greater than or equal to `key`, which must not be before the block.
    fn search(&mut self, key: &[u8]) -> Result<bool, TableError> {
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let view = view(&self.table, block)?;
        self.interval.clear();
        let found = view.search(key).map_err(|_| self.table.malformed_block(block.target))?;
        let gap = match &found {
            SearchResult::Exact { .. } => None,
            SearchResult::Greater { place, .. } => Some(place.key),
            SearchResult::End => Some(view.end()),
        };
        if gap.is_some_and(|gap| block.data.has_gap_at(gap)) && may_be_in_gap(key) {
            self.load_whole()?;
            return self.search(key);
        }
        match found {
            SearchResult::Exact { place, entry } | SearchResult::Greater { place, entry } => {
                let rows_start = view.rows_start();
                self.key.clear();
                let Some(shared) = key.get(..entry.shared) else {
                    return Err(
                        broken!("an entry that was found shares no more with the key than that has").into()
                    );
                };
                self.key.extend_from_slice(shared);
                self.key.extend_from_slice(view.suffix(&entry));
                self.stand_on(place.key, &entry, rows_start);
                Ok(true)
            }
            SearchResult::End => self.next_block(),
        }
    }

    /// Moves to the last row with a key less than `key`. Returns whether there is one.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool, TableError> {
        let (table, mut leaves) = self.index();
        let Some((place, target)) = table.find(&mut leaves, key)? else { return Ok(self.leave()) };
        self.enter(place, target, Direction::Backwards)?;
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let view = view(&self.table, block)?;
        let end = view.key_offset_of(key).map_err(|_| self.table.malformed_block(block.target))?;
        self.interval.clear();
        self.step_back_from(end)
    }

    /// Moves to the first row.
    pub fn seek_first(&mut self) -> Result<bool, TableError> {
        self.block = None;
        self.next_block()
    }

    /// Moves to the last row.
    pub fn seek_last(&mut self) -> Result<bool, TableError> {
        self.block = None;
        self.interval.clear();
        self.previous_block()
    }

    /// Moves to the next row. Returns whether there is one.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "a step can fail and lends its row; no iterator can say that"
    )]
    pub fn next(&mut self) -> Result<bool, TableError> {
        if !self.on_row {
            return Ok(false);
        }
        self.interval.clear();
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let view = view(&self.table, block)?;
        if block.data.has_gap_at(self.entry_end.key) {
            return self.next_in_gap();
        }
        if self.entry_end.key >= view.end() {
            return self.next_block();
        }
        let entry = view
            .entry(self.entry_end, self.key.len())
            .ok_or_else(|| self.table.malformed_block(block.target))?;
        let rows_start = view.rows_start();
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(view.suffix(&entry));
        self.stand_on(self.entry_end.key, &entry, rows_start);
        Ok(true)
    }

    /// Moves to the previous row. Returns whether there is one.
    #[inline]
    pub fn prev(&mut self) -> Result<bool, TableError> {
        if !self.on_row {
            return Ok(false);
        }
        if self.interval.is_empty() {
            if self.block.as_ref().is_some_and(|block| !block.data.is_whole()) {
                let key = std::mem::take(&mut self.key);
                // Also if the search meets a leaf of the index that is not in memory.
                self.on_row = false;
                return self.seek_before(&key);
            }
            return self.step_back_from(self.key_offset);
        }
        Ok(self.take_step())
    }

    /// Moves to the row behind the current one, which is left out of the heads of the block.
    #[cold]
    fn next_in_gap(&mut self) -> Result<bool, TableError> {
        let mut behind = std::mem::take(&mut self.key);
        behind.push(0);
        self.load_whole()?;
        self.search(&behind)
    }

    /// Loads the current block as a whole. The cursor is on no row then.
    #[cold]
    fn load_whole(&mut self) -> Result<(), TableError> {
        self.on_row = false;
        // After an error the cursor has no block.
        let Some(block) = self.block.take() else { return Err(no_block()) };
        self.load(block.place, block.target, BlockReading::BEHIND_HEADS)
    }

    fn load(
        &mut self,
        place: BlockPosition,
        target: BlockHandle,
        reading: BlockReading,
    ) -> Result<(), TableError> {
        let data = self.table.block(self.cache.as_deref(), BlockKind::Data(place), target, reading)?;
        self.block = Some(LoadedBlock { place, target, data });
        Ok(())
    }

    #[inline]
    fn stand_on(&mut self, key_offset: usize, entry: &EntryRef, rows_start: usize) {
        self.key_offset = key_offset;
        self.entry_end = entry.end();
        self.row = rows_start + entry.row.start..rows_start + entry.row.end;
        self.on_row = true;
    }

    fn leave(&mut self) -> bool {
        self.on_row = false;
        self.interval.clear();
        false
    }

    fn enter(
        &mut self,
        place: BlockPosition,
        target: BlockHandle,
        direction: Direction,
    ) -> Result<(), TableError> {
        self.on_row = false;
        let reading = BlockReading { direction, pattern: self.pattern };
        let is_loaded = self.block.as_ref().is_some_and(|block| {
            block.place == place && (block.data.is_whole() || reading.part() != BlockPart::Whole)
        });
        if !is_loaded {
            // After an error the cursor is on no row.
            self.block = None;
            self.load(place, target, reading)?;
        }
        if let Some(block) = &self.block {
            self.base = view(&self.table, block)?.base();
        }
        Ok(())
    }

    /// Moves to the first row of the block after the current one, or of the first block.
    fn next_block(&mut self) -> Result<bool, TableError> {
        self.interval.clear();
        let place = self.block.as_ref().map(|block| block.place);
        let (table, mut leaves) = self.index();
        let Some((place, target)) = table.block_after(&mut leaves, place)? else { return Ok(self.leave()) };
        self.enter(place, target, Direction::Forwards)?;
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let view = view(&self.table, block)?;
        let entry =
            view.entry(EntryOffset::default(), 0).ok_or_else(|| self.table.malformed_block(block.target))?;
        let rows_start = view.rows_start();
        self.key.clear();
        self.key.extend_from_slice(view.suffix(&entry));
        self.stand_on(0, &entry, rows_start);
        Ok(true)
    }

    /// Moves to the last row of the block before the current one, or of the last block.
    fn previous_block(&mut self) -> Result<bool, TableError> {
        let place = self.block.as_ref().map(|block| block.place);
        let (table, mut leaves) = self.index();
        let Some((place, target)) = table.block_before(&mut leaves, place)? else { return Ok(self.leave()) };
        self.enter(place, target, Direction::Backwards)?;
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let end = view(&self.table, block)?.end();
        self.step_back_from(end)
    }

    /// Moves to the last entry of the current block whose key begins before `end`, decoding its interval up to there.
    fn step_back_from(&mut self, end: usize) -> Result<bool, TableError> {
        let Some(block) = self.block.as_ref() else { return Err(no_block()) };
        let view = view(&self.table, block)?;
        let Some(interval) = view.interval_before(end) else { return self.previous_block() };
        self.interval.clear();
        self.interval_keys.clear();
        let rows_start = view.rows_start();
        let mut place = view.restart(interval);
        let mut previous = 0..0;
        while place.key < end {
            let entry =
                view.entry(place, previous.len()).ok_or_else(|| self.table.malformed_block(block.target))?;
            let start = self.interval_keys.len();
            self.interval_keys.extend_from_within(previous.start..previous.start + entry.shared);
            self.interval_keys.extend_from_slice(view.suffix(&entry));
            previous = start..self.interval_keys.len();
            self.interval.push(Step {
                key_offset: place.key,
                key: previous.clone(),
                row: rows_start + entry.row.start..rows_start + entry.row.end,
                end: entry.end(),
            });
            place = entry.end();
        }
        if self.interval.is_empty() {
            return self.previous_block();
        }
        Ok(self.take_step())
    }

    fn take_step(&mut self) -> bool {
        let step = self.interval.pop();
        let key = step.as_ref().and_then(|step| self.interval_keys.get(step.key.clone()));
        let (Some(step), Some(key)) = (&step, key) else {
            broken!("a step backwards is one of the interval's");
            return self.leave();
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.key_offset = step.key_offset;
        self.entry_end = step.end;
        self.row = step.row.clone();
        self.on_row = true;
        true
    }
}

#[cold]
fn no_block() -> TableError {
    broken!("a cursor that moves within a block has one").into()
}

#[inline]
fn view<'a>(table: &TableReader, block: &'a LoadedBlock) -> Result<BlockView<'a>, TableError> {
    BlockView::new(block.data.body()).ok_or_else(|| table.malformed_block(block.target))
}
