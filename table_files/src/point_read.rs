//! Reading one row of a table by its key.

use std::sync::Arc;

use super::block::{BlockView, SearchResult};
use super::cache::{BlockCache, BlockKind, BlockReading, ReadPattern};
use super::error::TableError;
use super::heads::BlockData;
use super::index_walk::LeavesOfRead;
use super::reader::TableReader;
use crate::invariant::broken;
use crate::row::RowRef;

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
    /// The row with exactly this key. Check the filter first.
    #[inline]
    pub fn get(
        self: &Arc<Self>,
        cache: Option<&BlockCache>,
        key: &[u8],
    ) -> Result<Option<TableRow>, TableError> {
        let mut leaves = LeavesOfRead { table: self, cache, pattern: ReadPattern::Rows, last: &mut None };
        let Some((place, target)) = self.find(&mut leaves, key)? else { return Ok(None) };
        let block = self.block(cache, BlockKind::Data(place), target, BlockReading::OF_ONE_ROW)?;
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
}
