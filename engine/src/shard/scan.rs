//! Opening scans: choosing the sources of a table for a range of keys.

use std::rc::Rc;
use std::sync::Arc;

use super::state::Shard;
use super::table_state::{TableState, shared_prefix_length};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key;
use crate::memtable::MemtableCursor;
use crate::read::{Bounds, BufferPool, Reach, Scan, ScanRequest, Source, TableSource, TableSourceBuffers};
use crate::table::{KeyHash, ReadPattern, TableCursor, TableError, TableReader};

/// What a read does where a file that could not be opened may hold some of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// It fails.
    Refused,
    /// It goes without the file.
    LeftOut,
}

/// A range, and its properties.
struct Opening<'r> {
    bounds: Bounds<'r>,
    /// For a range within one partition: the hash of its start and the length of the partition prefix.
    partition: Option<(KeyHash, usize)>,
    /// The range is exactly the row at its start.
    is_row: bool,
    pattern: ReadPattern,
}

/// The versions of one row found so far. They decide which older sources are needed.
struct FoundVersions<'r> {
    /// The projected columns.
    wanted: &'r [u32],
    start: &'r [u8],
    /// Data that is older than this is not needed, unless `expires` is set.
    complete_since: Option<i64>,
    /// A liveness that expires was found. If it wins the merge, the row's existence depends on the cells of all sources, also of
    /// columns that are not projected.
    expires: bool,
}

impl FoundVersions<'_> {
    fn add(&mut self, source: &Source) {
        if source.key(self.start).is_none() {
            return;
        }
        let row = source.row();
        self.complete_since = self.complete_since.max(row.complete_since(self.wanted));
        self.expires |= row.liveness().is_some_and(|liveness| liveness.expiry.is_some());
    }
}

impl Shard {
    /// Opens a scan over a range of full keys. It holds no lock; see [`Scan`].
    pub fn scan(&self, request: &ScanRequest<'_>) -> Result<Scan<'_>, EngineError> {
        self.open_scan(request, None, ReadPattern::Rows)
    }

    /// A projected scan: as [`Shard::scan`], for a reader that needs only these (simple) columns, ordered by id, and the existence of
    /// rows. Versions that cannot change this are not read. So other columns of the returned rows may be missing, outdated or
    /// deleted. For a range of one row, sources are opened from the newest to the oldest, as long as they can contribute;
    /// [`Shard::look_up`] is faster for such a range.
    pub fn scan_columns<'s>(
        &'s self,
        request: &ScanRequest<'_>,
        columns: &'s [u32],
    ) -> Result<Scan<'s>, EngineError> {
        self.open_scan(request, Some(columns), ReadPattern::Rows)
    }

    /// As [`Shard::scan`] (or, with `columns`, [`Shard::scan_columns`]), for a reader that mostly skips all but the first `rows` rows of
    /// a partition ([`Scan::skip_partition`]). The other rows are neither read ahead of it nor unpacked before it comes to them.
    pub fn scan_heads<'s>(
        &'s self,
        request: &ScanRequest<'_>,
        columns: Option<&'s [u32]>,
        rows: u8,
    ) -> Result<Scan<'s>, EngineError> {
        self.open_scan(request, columns, ReadPattern::PartitionHeads { rows })
    }

    /// As [`Shard::scan`] (or, with `columns`, [`Shard::scan_columns`]), for a reader whose blocks are not wanted again: those that are read from
    /// the disk are not kept in the cache.
    pub fn scan_past_cache<'s>(
        &'s self,
        request: &ScanRequest<'_>,
        columns: Option<&'s [u32]>,
    ) -> Result<Scan<'s>, EngineError> {
        self.open_scan(request, columns, ReadPattern::LongRange)
    }

    /// `wanted`: see [`Shard::scan_columns`].
    #[inline]
    pub(super) fn open_scan<'s>(
        &'s self,
        request: &ScanRequest<'_>,
        wanted: Option<&'s [u32]>,
        pattern: ReadPattern,
    ) -> Result<Scan<'s>, EngineError> {
        self.open_scan_with(request, wanted, pattern, Unopened::Refused)
    }

    /// As [`Shard::open_scan`]. `unopened`: files that could not be opened.
    #[inline]
    pub(super) fn open_scan_with<'s>(
        &'s self,
        request: &ScanRequest<'_>,
        wanted: Option<&'s [u32]>,
        pattern: ReadPattern,
        unopened: Unopened,
    ) -> Result<Scan<'s>, EngineError> {
        self.watch.check()?;
        let tables = self.tables.borrow();
        let table = tables.get(&request.table).ok_or(EngineError::UnknownTable(request.table))?;
        if unopened == Unopened::Refused {
            table.check_readable(request.start, request.end)?;
        }
        let mut pool = self.scan_buffers.borrow_mut();
        let mut buffers = pool.take_scan();
        let ScanRequest { start, end, reversed, .. } = *request;
        let prefix_length = shared_prefix_length(start, end);
        let is_row = key::is_one_key(start, end);
        if start < end {
            table.for_each_memtable(|memtable| {
                let spare = pool.take_memtable_cursor();
                let memtable = Rc::clone(memtable);
                let cursor = MemtableCursor::new(memtable, start, end, prefix_length, reversed, spare);
                buffers.sources.push(Source::Memtable(cursor));
            });
            let bounds = Bounds { start, end, reversed };
            let partition = prefix_length.map(|length| (KeyHash::of(start), length));
            let opening = Opening { bounds, partition, is_row, pattern };
            let memtable_count = buffers.sources.len();
            let leaves_out = wanted.filter(|_| is_row);
            let mut open = |leaves_out: Option<&[u32]>| {
                buffers.sources.truncate(memtable_count);
                self.open_files(table, &opening, leaves_out, &mut buffers.sources, &mut pool)
                    .inspect_err(|error| self.disk_failures.note(error))
            };
            if !open(leaves_out)? {
                open(None)?;
            }
        }
        drop(pool);
        Ok(Scan::new(&self.scan_buffers, &self.watch, &self.disk_failures, buffers, request, wanted))
    }

    /// Adds the files of a scan to `sources`, behind the memtables. With `wanted` (a projected read of one row) files that cannot
    /// contribute are left out. False if a file was left out that is needed after all.
    #[inline]
    fn open_files(
        &self,
        table: &TableState,
        opening: &Opening<'_>,
        wanted: Option<&[u32]>,
        sources: &mut Vec<Source>,
        pool: &mut BufferPool,
    ) -> Result<bool, EngineError> {
        let start = opening.bounds.start;
        let mut found =
            wanted.map(|wanted| FoundVersions { wanted, start, complete_since: None, expires: false });
        if let Some(found) = &mut found {
            for source in sources.iter() {
                found.add(source);
            }
        }
        let mut has_left_out = false;
        let mut not_cached = None;
        for file in table.files.borrow().iter() {
            let since = found.as_ref().and_then(|found| found.complete_since.filter(|_| !found.expires));
            if since.is_some_and(|since| since > file.reader.statistics().max_timestamp) {
                has_left_out = true;
                continue;
            }
            match self.open_source(&file.reader, opening, pool) {
                Ok(None) => {}
                Ok(Some(source)) => {
                    if let Some(found) = &mut found {
                        found.add(&source);
                    }
                    sources.push(source);
                }
                // The other files note what they miss, so that all of it is fetched at once.
                Err(error @ EngineError::Table(TableError::NotCached { .. })) => not_cached = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = not_cached {
            return Err(error);
        }
        Ok(!(has_left_out && found.is_some_and(|found| found.expires)))
    }

    /// The source for one file of a scan; `None` if the file has no data for the range.
    #[inline]
    fn open_source(
        &self,
        reader: &Arc<TableReader>,
        opening: &Opening<'_>,
        pool: &mut BufferPool,
    ) -> Result<Option<Source>, EngineError> {
        let Opening { bounds, partition, is_row, pattern } = *opening;
        let statistics = reader.statistics();
        if !statistics.may_overlap(bounds.start, bounds.end) {
            return Ok(None);
        }
        self.count_read(0, u64::from(partition.is_some()));
        let cache = Some(&*self.block_cache);
        if let Some((hash, _)) = partition
            && !reader.may_contain_partition(cache, hash)?
        {
            return Ok(None);
        }
        self.count_read(1, 0);
        let reach = partition.map_or(Reach::Whole, |(_, prefix_length)| {
            Reach::of(statistics.positions.as_ref(), bounds, prefix_length)
        });
        let has_rows = reach != Reach::Nothing;
        if let Some((hash, _)) = partition.filter(|_| is_row || !has_rows) {
            let row = if has_rows && reader.may_contain_row(cache, hash)? {
                reader.get(cache, bounds.start)?
            } else {
                None
            };
            if row.is_none() && !reader.range_tombstones().overlap(bounds.start, bounds.end) {
                return Ok(None);
            }
            return Ok(Some(Source::Point { row, table: Arc::clone(reader) }));
        }
        let TableSourceBuffers { cursor: spare, bound } = pool.take_table_source();
        let cache = Rc::clone(&self.block_cache);
        let cursor = TableCursor::for_pattern(Arc::clone(reader), cache, pattern, spare);
        Ok(Some(Source::Table(match (reach, partition) {
            (Reach::From(position), Some((_, prefix_length))) => {
                let Some(prefix) = bounds.start.get(..prefix_length) else {
                    return Err(
                        broken!("the bounds of a range within a partition begin with its prefix").into()
                    );
                };
                TableSource::waiting(cursor, bound, prefix, position)
            }
            _ => TableSource::open(cursor, bound, bounds)?,
        })))
    }
}
