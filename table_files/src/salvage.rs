//! Copying what can still be read of a damaged table: the blocks that are whole, and all range tombstones.
//!
//! The range tombstones and the root of the index were checked when the table was opened. A block that cannot be read, or whose rows are
//! malformed or out of order, is left out as a whole; and so are the blocks of a leaf of the index that cannot be read. Filters are not
//! needed.

use std::ops::Range;
use std::sync::Arc;

use super::block::{BlockView, EntryOffset};
use super::cache::{BlockKind, BlockReading, ReadPattern};
use super::error::TableError;
use super::heads::BlockData;
use super::index::{BlockHandle, BlockPosition};
use super::index_walk::LeavesOfRead;
use super::range_tombstones::StoredRangeTombstone;
use super::reader::TableReader;
use super::writer::TableWriter;
use crate::io::yield_now;
use crate::row::RowRef;

/// The result of a salvage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub rows: u64,
    /// Why blocks were left out, in the order of the file.
    pub lost_blocks: Vec<String>,
}

/// The rows of a block.
struct BlockRows {
    data: BlockData,
    base: i64,
    /// The keys, and the offsets of the rows in the block.
    rows: Vec<(Vec<u8>, Range<usize>)>,
}

/// Copies a table into a writer. Errors are those of the writer alone.
pub async fn salvage(table: &Arc<TableReader>, writer: &mut TableWriter) -> Result<Salvaged, TableError> {
    let range_tombstones = table.range_tombstones();
    for number in 0..range_tombstones.len() {
        let Some(StoredRangeTombstone { prefix, start, end, deletion }) = range_tombstones.get(number) else {
            break;
        };
        let full = |position: &[u8]| [prefix, position].concat();
        writer.add_range_tombstone(&full(start), &full(end), deletion)?;
    }
    let mut salvaged = Salvaged::default();
    let mut last_key = Vec::new();
    for leaf in 0..table.leaf_count()? {
        let targets = match targets_of(table, leaf) {
            Ok(targets) => targets,
            Err(error) => {
                salvaged.lost_blocks.push(format!("{error}; all blocks of this leaf of the index are lost"));
                continue;
            }
        };
        for (entry, target) in targets.into_iter().enumerate() {
            match rows_of(table, BlockPosition { leaf, entry }, target, &last_key) {
                Ok(block) => {
                    for (key, row) in &block.rows {
                        let Some(bytes) = block.data.get(row.clone()) else { continue };
                        writer.add(key, RowRef::new(bytes, block.base)).await?;
                        salvaged.rows += 1;
                    }
                    if let Some((key, _)) = block.rows.into_iter().next_back() {
                        last_key = key;
                    }
                }
                Err(error) => salvaged.lost_blocks.push(error.to_string()),
            }
            yield_now().await;
        }
    }
    Ok(salvaged)
}

/// The blocks of a leaf of the index.
fn targets_of(table: &Arc<TableReader>, leaf: usize) -> Result<Vec<BlockHandle>, TableError> {
    let mut last = None;
    let mut leaves = LeavesOfRead { table, cache: None, pattern: ReadPattern::LongRange, last: &mut last };
    let node = table.leaf(&mut leaves, leaf)?;
    Ok((0..node.len()).filter_map(|entry| node.target(entry)).collect())
}

/// Reads a block and checks all of its rows, which must come behind `last_key`.
fn rows_of(
    table: &Arc<TableReader>,
    place: BlockPosition,
    target: BlockHandle,
    last_key: &[u8],
) -> Result<BlockRows, TableError> {
    let malformed = || table.malformed_block(target);
    let data = table.block(None, BlockKind::Data(place), target, BlockReading::OF_ONE_ROW)?;
    let view = BlockView::new(data.body()).ok_or_else(malformed)?;
    let (base, rows_start, end) = (view.base(), view.rows_start(), view.end());
    let mut rows: Vec<(Vec<u8>, Range<usize>)> = Vec::new();
    let mut offset = EntryOffset::default();
    let mut key = Vec::new();
    while offset.key < end {
        let entry = view.entry(offset, key.len()).ok_or_else(malformed)?;
        key.truncate(entry.shared);
        key.extend_from_slice(view.suffix(&entry));
        let row = rows_start + entry.row.start..rows_start + entry.row.end;
        let is_whole = data.get(row.clone()).is_some_and(|bytes| RowRef::new(bytes, base).validate().is_ok());
        let follows = rows.last().map_or(last_key, |(before, _)| before.as_slice()) < key.as_slice();
        if !is_whole || !follows {
            return Err(malformed());
        }
        rows.push((key.clone(), row));
        offset = entry.end();
    }
    Ok(BlockRows { data: data.clone(), base, rows })
}
