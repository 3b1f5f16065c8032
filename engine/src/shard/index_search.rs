//! Searching by indexes: the keys of rows and partitions that may have accepted terms, in key order.
//!
//! One restriction, the one with the fewest entries as far as is known, is looked up; whether a row fulfils the others is for its reader to
//! decide. Memtables and files are walked side by side in the order of their entries. Of each term only the entries within the wanted keys
//! are visited: the walk jumps to the first of them, and from the last one to the next term.
//!
//! A search over many terms visits them all before it knows the first keys. It keeps the least ones, as many as are asked for. It does so over several
//! turns, in each of which it goes on behind the last entry of the one before, so that other requests of the shard are not held up. All turns walk
//! the memtables and files that there were at the first: they keep the terms that rows had then, whatever is flushed or merged.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::index_files::path_of_useless;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::yield_now;
use crate::key::{self, REGULAR_END, STATIC_POSITION};
use crate::memtable::{Place, SharedMemtable};
use crate::merge::KWayMerge;
use crate::mutation::TableId;
use crate::secondary_index::entry::{self, PARTITION, end_of_term, start_of_term};
use crate::secondary_index::{IndexId, IndexRestriction, IndexSearch, TermRange};
use crate::table::{ReadPattern, TableCursor, TableCursorBuffers, TableError, TableReader};

/// The work of one turn: an entry that is visited is one.
const WORK_PER_TURN: usize = 8_192;
/// A source that moves to another place.
const WORK_OF_SEEK: usize = 8;
/// The most bytes of found keys, but for the first.
const FOUND_BYTES_MAX: usize = 4 << 20;

/// A search over many terms is broad if it finds more entries than this, and one row of this many.
const BROAD_ENTRIES_MIN: u64 = 50_000;
const BROAD_SHARE: u64 = 16;

/// What a search is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchWorth {
    /// No index of it is complete.
    Incomplete,
    /// The range of terms matches so much of the table that a scan in key order is cheaper.
    Broad,
    Narrow,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundKeys {
    /// Full keys, ascending: of rows, and (with the position of the static row) of partitions, of which any row may be meant.
    pub keys: Vec<Vec<u8>>,
    /// Where the search goes on; `None`: these are all.
    pub resume: Option<Vec<u8>>,
}

/// A cursor over the entries of an index in one memtable or file.
enum EntrySource {
    Memtable { memtable: Rc<SharedMemtable>, index: IndexId, current: Option<(Place, Vec<u8>)> },
    File { cursor: TableCursor, key: Vec<u8> },
}

impl EntrySource {
    fn seek(&mut self, bound: &[u8]) -> Result<(), TableError> {
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
        Ok(())
    }

    fn advance(&mut self) -> Result<(), TableError> {
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

    /// The error for an entry that cannot be read.
    #[cold]
    fn malformed(&self) -> EngineError {
        match self {
            Self::Memtable { .. } => broken!("an index of a memtable has entries of a term and a key").into(),
            Self::File { cursor, .. } => {
                TableError::damaged(cursor.table().path(), 0, "an entry of an index is malformed").into()
            }
        }
    }

    fn entry(&self) -> Option<&[u8]> {
        match self {
            Self::Memtable { current, .. } => current.as_ref().map(|(_, entry)| entry.as_slice()),
            // No entry is that short: it is malformed.
            Self::File { cursor, .. } => {
                cursor.is_valid().then(|| cursor.key().get(PARTITION.len()..).unwrap_or_default())
            }
        }
    }
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

/// The state of a search between its turns.
struct Walk<'r> {
    index: IndexId,
    /// The half-open ranges of entries to visit, in order.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of the range that is visited, and where it goes on.
    range: usize,
    at: Vec<u8>,
    /// The full keys that are wanted.
    start: &'r [u8],
    end: &'r [u8],
    /// The key of the partition of `start`, if that lies within the partition.
    start_partition: Option<Vec<u8>>,
    keys_max: usize,
    found: BTreeSet<Vec<u8>>,
    found_bytes: usize,
    /// The least key that was found and given up for want of room: all that come behind it are found again.
    next: Option<Vec<u8>>,
}

impl<'r> Walk<'r> {
    fn new(
        restriction: &IndexRestriction,
        ranges: Vec<(Vec<u8>, Vec<u8>)>,
        (start, end): (&'r [u8], &'r [u8]),
        keys_max: usize,
    ) -> Self {
        let parts = key::prefix_length(start).and_then(|length| start.split_at_checked(length));
        let is_within = |position: &[u8]| STATIC_POSITION < position && position < REGULAR_END;
        let start_partition = parts
            .filter(|(_, position)| is_within(position))
            .map(|(prefix, _)| [prefix, STATIC_POSITION].concat());
        Self {
            index: restriction.index,
            at: ranges.first().map(|(first, _)| first.clone()).unwrap_or_default(),
            ranges,
            range: 0,
            start,
            end,
            start_partition,
            keys_max: keys_max.max(1),
            found: BTreeSet::new(),
            found_bytes: 0,
            next: None,
        }
    }

    /// The least key that can be wanted.
    fn floor(&self) -> &[u8] {
        self.start_partition.as_deref().unwrap_or(self.start)
    }

    /// Keeps a key if it is among the least.
    fn keep(&mut self, key: &[u8]) {
        if self.found.insert(key.to_vec()) {
            self.found_bytes += key.len();
        }
        while self.found.len() > self.keys_max || (self.found_bytes > FOUND_BYTES_MAX && self.found.len() > 1)
        {
            let Some(last) = self.found.pop_last() else { return };
            self.found_bytes -= last.len();
            self.next = Some(last);
        }
    }

    /// Visits entries for one turn. Stops at an error, from where the next turn goes on.
    fn turn(&mut self, sources: &mut [EntrySource]) -> Result<ControlFlow<()>, EngineError> {
        let mut merge = KWayMerge::new(false);
        seek_all(sources, &self.at, |_| true)?;
        let mut work = 0;
        while work < WORK_PER_TURN {
            work += 1;
            let Some((_, range_end)) = self.ranges.get(self.range) else { return Ok(ControlFlow::Break(())) };
            let has_entry = merge.select(sources.iter().map(EntrySource::entry));
            let first = merge.first().and_then(|first| sources.get(first));
            let entry = first.and_then(EntrySource::entry);
            let Some(entry) = entry.filter(|entry| has_entry && *entry < range_end.as_slice()) else {
                self.range += 1;
                let Some((start, _)) = self.ranges.get(self.range) else { return Ok(ControlFlow::Break(())) };
                self.at.clone_from(start);
                work += sources.len() * WORK_OF_SEEK;
                seek_all(sources, &self.at, |_| true)?;
                continue;
            };
            let parts =
                entry::split(entry).and_then(|(term, key)| Some((term, key, key::prefix_length(key)?)));
            let Some((term, key, prefix_length)) = parts else {
                let no_source = || broken!("an entry comes from a source").into();
                return Err(first.map_or_else(no_source, EntrySource::malformed));
            };
            let is_partition = key.get(prefix_length..) == Some(STATIC_POSITION);
            let floor = if is_partition { self.floor() } else { self.start };
            // What was given up, and everything behind it, is for the next search.
            let ceiling = self.next.as_deref().unwrap_or(self.end);
            if key < floor || key >= ceiling {
                // To the wanted keys of the term, or behind it.
                self.at = if key >= ceiling {
                    end_of_term(term)
                } else if key < self.floor() {
                    [term, self.floor()].concat()
                } else {
                    [term, self.start].concat()
                };
                work += sources.len() * WORK_OF_SEEK;
                let at = self.at.as_slice();
                seek_all(sources, at, |source| source.entry().is_some_and(|entry| entry < at))?;
                continue;
            }
            self.at.clear();
            self.at.extend_from_slice(entry);
            self.at.push(0);
            let key = key.to_vec();
            self.keep(&key);
            for &current in merge.current() {
                if let Some(source) = sources.get_mut(current as usize) {
                    source.advance()?;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn finish(self) -> FoundKeys {
        FoundKeys { keys: self.found.into_iter().collect(), resume: self.next }
    }
}

/// Moves those sources to a bound that are chosen. All are asked also after a miss, so that what they miss is fetched at once.
fn seek_all(
    sources: &mut [EntrySource],
    bound: &[u8],
    is_chosen: impl Fn(&EntrySource) -> bool,
) -> Result<(), EngineError> {
    let mut outcome = Ok(());
    for source in sources.iter_mut() {
        if !is_chosen(source) {
            continue;
        }
        match source.seek(bound) {
            Ok(()) => {}
            Err(error @ TableError::NotCached { .. }) => outcome = Err(error),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(outcome?)
}

/// The ranges of entries that a restriction accepts, ascending and without overlaps.
fn entry_ranges(terms: &TermRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    match terms {
        TermRange::OneOf(terms) => {
            let starts: BTreeSet<_> = terms.iter().map(|term| start_of_term(term)).collect();
            starts.into_iter().map(|start| (start.clone(), end_of_term(&start))).collect()
        }
        TermRange::Between { lower, upper } => {
            let (start, end) = entry::between(lower, upper);
            if start < end { vec![(start, end)] } else { Vec::new() }
        }
    }
}

impl TableState {
    /// About how many entries of an index lie in these ranges.
    fn estimate_entries(&self, index: IndexId, ranges: &[(Vec<u8>, Vec<u8>)]) -> u64 {
        let mut sum = 0;
        self.for_each_memtable(|memtable| {
            memtable.read(|memtable| {
                sum += ranges
                    .iter()
                    .map(|(start, end)| memtable.estimate_of_index(index, start, end))
                    .sum::<u64>();
            });
        });
        for reader in self.files.borrow().iter().filter_map(|file| file.index(index)) {
            for (start, end) in ranges {
                let [start, end] = [start, end].map(|bound| [&PARTITION, bound.as_slice()].concat());
                sum += reader.estimate_rows(&start, &end);
            }
        }
        sum
    }

    /// The restriction that finds the fewest keys, as far as is known, among those whose index is complete. `None`: no index is.
    fn narrowest<'s>(&self, search: &'s IndexSearch) -> Option<&'s IndexRestriction> {
        let complete = search.restrictions.iter().filter(|it| self.is_index_complete(it.index));
        complete.min_by_key(|restriction| {
            self.estimate_entries(restriction.index, &entry_ranges(&restriction.terms))
        })
    }

    /// The memtables and files of an index, as they are now.
    fn index_view(&self, index: IndexId) -> IndexView {
        let mut memtables = Vec::new();
        self.for_each_memtable(|memtable| memtables.push(Rc::clone(memtable)));
        let files = self.files.borrow();
        IndexView { index, memtables, files: files.iter().filter_map(|file| file.index(index)).collect() }
    }
}

/// The memtables and files that a search walks.
struct IndexView {
    index: IndexId,
    memtables: Vec<Rc<SharedMemtable>>,
    files: Vec<Arc<TableReader>>,
}

impl IndexView {
    /// The file of the index that has to be made again because of this error.
    fn file_of(&self, error: &TableError) -> Option<&Arc<TableReader>> {
        let path = path_of_useless(error)?;
        self.files.iter().find(|reader| reader.path() == path)
    }

    fn sources(&self, shard: &Shard) -> Vec<EntrySource> {
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

impl Shard {
    /// What a search is worth, judged by the rows of this shard.
    pub fn judge_search(&self, table: TableId, search: &IndexSearch) -> Result<SearchWorth, EngineError> {
        let table = self.table(table)?;
        let Some(narrowest) = table.narrowest(search) else { return Ok(SearchWorth::Incomplete) };
        if matches!(narrowest.terms, TermRange::OneOf(_)) {
            return Ok(SearchWorth::Narrow);
        }
        let found = table.estimate_entries(narrowest.index, &entry_ranges(&narrowest.terms));
        let rows = table.statistics().row_versions;
        let is_broad = found > BROAD_ENTRIES_MIN && found.saturating_mul(BROAD_SHARE) > rows;
        Ok(if is_broad { SearchWorth::Broad } else { SearchWorth::Narrow })
    }

    /// The restriction of a search that finds the fewest keys, judged by the rows of this shard; any, if no index is complete here.
    pub fn narrowest_restriction(
        &self,
        table: TableId,
        search: &IndexSearch,
    ) -> Result<Option<IndexRestriction>, EngineError> {
        let table = self.table(table)?;
        Ok(table.narrowest(search).or_else(|| search.restrictions.first()).cloned())
    }

    /// The keys within `[start, end)` of rows and partitions that may have accepted terms: the first `keys_max` in key order. What is found is a
    /// candidate; see [`FoundKeys`]. [`EngineError::IndexIncomplete`]: no index is built yet, or one is being made again. Ends with
    /// [`EngineError::SearchTooLong`] if it takes longer than `until`, on the monotonic clock.
    pub async fn find_keys(
        &self,
        id: TableId,
        search: &IndexSearch,
        start: &[u8],
        end: &[u8],
        keys_max: usize,
        until: Duration,
    ) -> Result<FoundKeys, EngineError> {
        let table = self.table(id)?;
        self.watch.check()?;
        if start >= end {
            return Ok(FoundKeys::default());
        }
        let Some(restriction) = table.narrowest(search) else {
            return Err(EngineError::IndexIncomplete { table: id });
        };
        let mut walk = Walk::new(restriction, entry_ranges(&restriction.terms), (start, end), keys_max);
        // All turns see these: a row whose term changes meanwhile is found by the one that it had, or by the new one.
        let view = table.index_view(walk.index);
        loop {
            let turn = || {
                self.check_open()?;
                // Rows of a file that cannot be read would not be missed.
                table.check_readable(start, end)?;
                walk.turn(&mut view.sources(self))
            };
            match self.read_cold(turn).await {
                Ok(ControlFlow::Break(())) => return Ok(walk.finish()),
                Ok(ControlFlow::Continue(())) => {}
                Err(EngineError::Table(error)) => {
                    let Some(reader) = view.file_of(&error) else { return Err(error.into()) };
                    self.give_up_index(&table, reader, &error).await;
                    return Err(EngineError::IndexIncomplete { table: id });
                }
                Err(error) => return Err(error),
            }
            if self.environment.clock.monotonic() >= until {
                return Err(EngineError::SearchTooLong { table: id });
            }
            yield_now().await;
        }
    }
}
