//! Looking up one row by its full key, without a scan. If a single version decides, it is read in place, in its memtable or in a
//! block of a file, without a copy.

use std::cell::{OnceCell, Ref};
use std::rc::Rc;

use smallvec::SmallVec;

use super::state::Shard;
use super::table_state::LiveFile;
use crate::error::EngineError;
use crate::key::KeyRef;
use crate::memtable::{Held, Memtable};
use crate::mutation::TableId;
use crate::read::RowView;
use crate::row::RowRef;
use crate::table::{KeyHash, TableRow};

/// Files whose filters are prefetched. More are rarely read.
const FILTERS_AHEAD: usize = 8;

/// The request of a lookup.
#[derive(Debug, Clone, Copy)]
pub struct RowRequest<'a> {
    pub table: TableId,
    /// The full key.
    pub key: &'a [u8],
    /// The projected columns, as in [`Shard::scan_columns`]; `None`: all columns.
    pub columns: Option<&'a [u32]>,
    /// Seconds since the epoch; decides what has expired.
    pub now_seconds: u32,
}

/// The result of [`Shard::look_up`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<R> {
    /// The row exists. The result of its reader.
    Row(R),
    Absent,
    /// Versions or deletions must be merged; a scan of this key does that.
    Unmerged,
}

/// The place of a version of the row.
enum Version<'a> {
    InMemtable(RowRef<'a>),
    InFile(TableRow),
}

/// The only version found so far. It contains no deletions or expiries.
struct OnlyVersion<'a> {
    version: Version<'a>,
    /// [`RowRef::complete_since`], computed when the first older source is reached.
    complete_since: OnceCell<Option<i64>>,
}

impl<'a> OnlyVersion<'a> {
    fn new(version: Version<'a>) -> Self {
        Self { version, complete_since: OnceCell::new() }
    }

    #[inline]
    fn row(&self) -> RowRef<'_> {
        match &self.version {
            Version::InMemtable(row) => *row,
            Version::InFile(row) => row.row(),
        }
    }

    /// Whether a source whose newest timestamp is `newest` cannot change what a reader of these columns sees.
    #[inline]
    fn is_all_since(&self, newest: Option<i64>, columns: Option<&[u32]>) -> bool {
        let complete_since = || columns.and_then(|columns| self.row().complete_since(columns));
        self.complete_since.get_or_init(complete_since).is_some_and(|since| Some(since) > newest)
    }
}

impl Shard {
    /// Looks up one row, from the newest source to the oldest, and passes it to `read`, which must not change the shard.
    #[inline]
    pub fn look_up<R>(
        &self,
        request: &RowRequest<'_>,
        read: impl FnOnce(RowView<'_>) -> R,
    ) -> Result<Lookup<R>, EngineError> {
        let found = self.find_row(request, read);
        self.watch.check()?;
        if let Err(error) = &found {
            self.disk_failures.note(error);
        }
        found
    }

    #[inline]
    fn find_row<R>(
        &self,
        request: &RowRequest<'_>,
        read: impl FnOnce(RowView<'_>) -> R,
    ) -> Result<Lookup<R>, EngineError> {
        let RowRequest { table: id, key, columns, now_seconds } = *request;
        let parsed = KeyRef::parse(key).map_err(|reason| EngineError::Row { table: id, reason })?;
        let tables = self.tables.borrow();
        let table = tables.get(&id).ok_or(EngineError::UnknownTable(id))?;
        let hash = KeyHash::of(key);
        table.check_key_readable(key)?;
        let files = table.files.borrow();
        let (active, frozen) = (table.active.borrow(), table.frozen.borrow());
        let memtables: SmallVec<[Ref<'_, Memtable>; 4]> = std::iter::once(active.borrow())
            .chain(frozen.iter().rev().map(|frozen| frozen.memtable.borrow()))
            .collect();
        let mut found: Option<OnlyVersion<'_>> = None;
        for memtable in &memtables {
            if found.as_ref().is_some_and(|found| found.is_all_since(memtable.max_timestamp(), columns)) {
                continue;
            }
            match memtable.row(&parsed) {
                Held::Nothing => {}
                Held::Row(row) if found.is_none() && row.is_plain() => {
                    found = Some(OnlyVersion::new(Version::InMemtable(row)));
                }
                Held::Row(_) | Held::Unmerged => return Ok(Lookup::Unmerged),
            }
        }
        if found.is_none() {
            let likely = files.iter().filter(|file| file.reader.statistics().may_contain(key));
            likely.take(FILTERS_AHEAD).for_each(|file| file.reader.prefetch_filter(hash));
        }
        for (number, file) in files.iter().enumerate() {
            let reader = &file.reader;
            let newest = Some(reader.statistics().max_timestamp);
            if found.as_ref().is_some_and(|found| found.is_all_since(newest, columns))
                || !reader.statistics().may_contain(key)
            {
                continue;
            }
            self.count_read(0, 1);
            let may_contain = reader.may_contain_partition(Some(&self.block_cache), hash);
            if may_contain.is_err() {
                self.note_missing_filters(files.get(number + 1..).unwrap_or_default(), key, hash);
            }
            if !may_contain? {
                continue;
            }
            self.count_read(1, 0);
            if reader.range_tombstones().covering(key).is_some() {
                return Ok(Lookup::Unmerged);
            }
            if !reader.may_contain_row(Some(&self.block_cache), hash)? {
                continue;
            }
            let Some(row) = reader.get(Some(&self.block_cache), key)? else { continue };
            if found.is_some() || !row.row().is_plain() {
                return Ok(Lookup::Unmerged);
            }
            found = Some(OnlyVersion::new(Version::InFile(row)));
        }
        let Some(found) = &found else { return Ok(Lookup::Absent) };
        let row = found.row();
        if row.is_empty() {
            return Ok(Lookup::Absent);
        }
        let KeyRef { token, partition_key, position } = parsed;
        Ok(Lookup::Row(read(RowView { key, token, partition_key, position, row, now_seconds })))
    }

    /// Has the parts of the filters of further files noted that are not in memory, so that all of them are fetched at once.
    #[cold]
    fn note_missing_filters(&self, files: &[Rc<LiveFile>], key: &[u8], hash: KeyHash) {
        let likely = files.iter().filter(|file| file.reader.statistics().may_contain(key));
        for file in likely {
            // The lookup is repeated, and meets errors itself.
            let _ = file.reader.may_contain_partition(Some(&self.block_cache), hash);
        }
    }
}
