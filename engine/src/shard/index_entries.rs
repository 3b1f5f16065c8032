//! Cursors over the entries of one index, in all memtables and files of a table.

use std::rc::Rc;
use std::sync::Arc;

use super::index_files::path_of_useless;
use super::search_cost::WORK_OF_SEEK;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key::{self, REGULAR_END, STATIC_POSITION, static_row_of};
use crate::memtable::{Place, SharedMemtable};
use crate::secondary_index::IndexId;
use crate::secondary_index::entry::PARTITION;
use crate::table::{ReadPattern, TableCursor, TableCursorBuffers, TableError, TableReader};

/// A cursor over the entries of an index in one memtable or file.
pub(super) enum EntrySource {
    Memtable { memtable: Rc<SharedMemtable>, index: IndexId, current: Option<(Place, Vec<u8>)> },
    File { cursor: TableCursor, key: Vec<u8> },
}

impl EntrySource {
    /// Moves to the first entry at or behind a bound. Returns the work.
    pub fn seek(&mut self, bound: &[u8]) -> Result<u64, TableError> {
        match self {
            Self::Memtable { memtable, index, current } => {
                let memtable = memtable.borrow();
                take_entry(current, memtable.seek_index(*index, bound));
            }
            Self::File { cursor, key } => {
                key.clear();
                key.extend_from_slice(&PARTITION);
                key.extend_from_slice(bound);
                cursor.seek(key)?;
            }
        }
        Ok(WORK_OF_SEEK)
    }

    pub fn advance(&mut self) -> Result<(), TableError> {
        match self {
            Self::Memtable { memtable, index, current } => {
                let Some((place, _)) = current else { return Ok(()) };
                let place = *place;
                let memtable = memtable.borrow();
                take_entry(current, memtable.next_of_index(*index, place));
            }
            Self::File { cursor, .. } => {
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Moves on to the first entry at or behind a bound. Mostly that is the next one. Returns the work.
    pub fn go_to(&mut self, bound: &[u8]) -> Result<u64, TableError> {
        self.advance()?;
        if self.entry().is_none_or(|entry| entry >= bound) {
            return Ok(1);
        }
        self.seek(bound)
    }

    /// The error for an entry that cannot be read.
    #[cold]
    pub fn malformed(&self) -> EngineError {
        match self {
            Self::Memtable { .. } => broken!("an index of a memtable has entries of a term and a key").into(),
            Self::File { cursor, .. } => {
                TableError::damaged(cursor.table().path(), 0, "an entry of an index is malformed").into()
            }
        }
    }

    pub fn entry(&self) -> Option<&[u8]> {
        match self {
            Self::Memtable { current, .. } => current.as_ref().map(|(_, entry)| entry.as_slice()),
            // No entry is that short: it is malformed.
            Self::File { cursor, .. } => {
                cursor.is_valid().then(|| cursor.key().get(PARTITION.len()..).unwrap_or_default())
            }
        }
    }
}

/// The prefix of the partition that a bound of full keys lies within: from its static row on, and not behind its last row.
pub(super) fn partition_of(bound: &[u8]) -> Option<&[u8]> {
    let (prefix, position) = bound.split_at_checked(key::prefix_length(bound)?)?;
    (STATIC_POSITION <= position && position < REGULAR_END).then_some(prefix)
}

/// The key of the static row of the partition that a bound of full keys lies within.
pub(super) fn static_row_around(bound: &[u8]) -> Option<Vec<u8>> {
    partition_of(bound).and_then(static_row_of)
}

/// Copies an entry of a memtable into the buffer of the one before.
fn take_entry(current: &mut Option<(Place, Vec<u8>)>, found: Option<(Place, &[u8])>) {
    let mut buffer = current.take().map(|(_, buffer)| buffer).unwrap_or_default();
    if let Some((place, entry)) = found {
        buffer.clear();
        buffer.extend_from_slice(entry);
        *current = Some((place, buffer));
    }
}

/// Has several sources move, all of them also after a miss, so that what they miss is fetched at once. Returns the work.
pub(super) fn move_all<T>(
    sources: &mut [T],
    mut go: impl FnMut(&mut T) -> Result<u64, TableError>,
) -> Result<u64, TableError> {
    let (mut work, mut missed) = (0, None);
    for source in sources {
        match go(source) {
            Ok(done) => work += done,
            Err(error @ TableError::NotCached { .. }) => missed = Some(error),
            Err(error) => return Err(error),
        }
    }
    missed.map_or(Ok(work), Err)
}

impl TableState {
    /// The number of memtables and files that an [`IndexView`] has now.
    pub(super) fn index_source_count(&self, index: IndexId) -> usize {
        let mut memtables = 0;
        self.for_each_memtable(|_| memtables += 1);
        memtables + self.files.borrow().iter().filter(|file| file.index(index).is_some()).count()
    }

    /// The memtables and files of an index, as they are now.
    pub(super) fn index_view(&self, index: IndexId) -> IndexView {
        let mut memtables = Vec::new();
        self.for_each_memtable(|memtable| memtables.push(Rc::clone(memtable)));
        let files = self.files.borrow();
        IndexView { index, memtables, files: files.iter().filter_map(|file| file.index(index)).collect() }
    }
}

/// The memtables and files of an index that a search walks.
pub(super) struct IndexView {
    index: IndexId,
    memtables: Vec<Rc<SharedMemtable>>,
    files: Vec<Arc<TableReader>>,
}

impl IndexView {
    pub fn source_count(&self) -> usize {
        self.memtables.len() + self.files.len()
    }

    /// The file of the index that has to be made again because of this error.
    pub fn file_of(&self, error: &TableError) -> Option<&Arc<TableReader>> {
        let path = path_of_useless(error)?;
        self.files.iter().find(|reader| reader.path() == path)
    }

    /// A cursor for each of them.
    pub fn sources(&self, shard: &Shard) -> Vec<EntrySource> {
        let index = self.index;
        let memtables = self.memtables.iter().map(|memtable| EntrySource::Memtable {
            memtable: Rc::clone(memtable),
            index,
            current: None,
        });
        let cursor = |reader: &Arc<TableReader>| {
            let cache = Rc::clone(&shard.block_cache);
            let spare = TableCursorBuffers::default();
            TableCursor::for_pattern(Arc::clone(reader), cache, ReadPattern::Rows, spare)
        };
        let files =
            self.files.iter().map(|reader| EntrySource::File { cursor: cursor(reader), key: Vec::new() });
        memtables.chain(files).collect()
    }
}
