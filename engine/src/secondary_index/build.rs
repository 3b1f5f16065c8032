//! Writing the index of a table file: its entries, sorted, as rows of a table file.
//!
//! Memory use: [`SORTED_BYTES`] of entries, those of one row, and what a [`TableWriter`] takes. What is more is sorted in parts, which are merged.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry::{PARTITION, put_entry, term_of};
use super::vector_entries::{VectorEntries, vector_of};
use super::{IndexDefinition, Subject, VectorIndex};
use crate::cell::{Cell, CellKind, Liveness};
use crate::invariant::{BrokenInvariant, broken};
use crate::io::{JobContext, RateLimiter};
use crate::key::{KeyRef, REGULAR_START, STATIC_POSITION};
use crate::merge::KWayMerge;
use crate::row::RowRef;
use crate::row_writer::{RowBuilder, RowWriter};
use crate::table::{TableCursor, TableError, TableOptions, TableReader, TableWriter};

/// Bytes of entries that are sorted in memory.
const SORTED_BYTES: usize = 16 << 20;
/// The most parts that are merged at a time.
const MERGED_PARTS_MAX: usize = 32;
/// The version of the encoding of entries.
const ENTRIES_VERSION: u8 = 1;
/// Bytes of rows read between two checks of the rate.
const BYTES_PER_TURN: u64 = 256 << 10;

/// The files of an index are searched by ranges only, so filters would not help.
fn file_options() -> TableOptions {
    TableOptions { block_bytes: 8 << 10, bloom_filter_fp_chance: 1.0, ..TableOptions::default() }
}

/// The index of a file to be written.
#[derive(Debug)]
pub(crate) struct IndexBuild {
    pub reader: Arc<TableReader>,
    pub definition: IndexDefinition,
    /// The file to write. Parts get this name with a suffix.
    pub path: PathBuf,
    /// The rate at which the file is read. `None`: no limit.
    pub limiter: Option<RateLimiter>,
}

impl IndexBuild {
    /// Writes and syncs the index. After a failure nothing is left of it.
    pub async fn run(self, context: JobContext) -> Result<(), TableError> {
        self.run_with(&context, SORTED_BYTES).await
    }

    async fn run_with(self, context: &JobContext, sorted_bytes: usize) -> Result<(), TableError> {
        let path = self.path.clone();
        let mut parts = Parts { path: &path, present: Vec::new(), made: 0 };
        let built = self.write(context, sorted_bytes, &mut parts).await;
        for (_, part) in std::mem::take(&mut parts.present) {
            remove(context, &part).await;
        }
        if built.is_err() {
            remove(context, &path).await;
        }
        built
    }

    async fn write(
        mut self,
        context: &JobContext,
        sorted_bytes: usize,
        parts: &mut Parts<'_>,
    ) -> Result<(), TableError> {
        let vectors = match self.definition.vectors {
            Some(options) => Some(self.divide_vectors(context, options).await?),
            None => None,
        };
        let mut entries = Entries { identity: identity_of(&self.reader), ..Entries::default() };
        if let Some(vectors) = &vectors {
            entries.centroids = vectors.len();
            vectors.for_each_centroid(|term, value| entries.add(term, Subject::Row, &[], value));
        }
        let mut rows = PacedRows::new(&self.reader)?;
        while let Some((key, parsed, row)) = rows.current()? {
            match &vectors {
                None => {
                    let mut add = |subject, term: &[u8]| entries.add(term, subject, key, &[]);
                    self.definition.terms.visit(&parsed, row, &mut add);
                }
                Some(vectors) => {
                    let add = |term: &[u8], value: &[u8]| entries.add(term, Subject::Row, key, value);
                    vectors.of_row(&self.definition, &parsed, row, add)?;
                }
            }
            if entries.bytes.len() >= sorted_bytes {
                entries.write_to(context, &parts.next(0)).await?;
                entries.clear();
                parts.merge_full_tiers(context).await?;
            }
            rows.advance(context, &mut self.limiter).await?;
        }
        if parts.present.is_empty() {
            return entries.write_to(context, &self.path).await;
        }
        entries.write_to(context, &parts.next(0)).await?;
        drop(entries);
        let present: Vec<PathBuf> = parts.present.iter().map(|(_, part)| part.clone()).collect();
        merge(context, &present, &self.path).await
    }

    /// Reads the file's vectors, to divide them into lists.
    async fn divide_vectors(
        &mut self,
        context: &JobContext,
        options: VectorIndex,
    ) -> Result<VectorEntries, TableError> {
        let mut sample = VectorEntries::sample(&options);
        let mut rows = PacedRows::new(&self.reader)?;
        while let Some((_, parsed, row)) = rows.current()? {
            if let Some(vector) = vector_of(&self.definition, &options, &parsed, row) {
                sample.offer(&vector);
            }
            rows.advance(context, &mut self.limiter).await?;
        }
        Ok(VectorEntries::new(options, sample))
    }
}

/// A row with its full key, as bytes and parsed.
type KeyedRow<'a> = (&'a [u8], KeyRef<'a>, RowRef<'a>);

/// The rows of a file, read at the pace of a build.
struct PacedRows {
    cursor: TableCursor,
    /// Bytes read since the last check of the rate.
    fresh_bytes: u64,
}

impl PacedRows {
    fn new(reader: &Arc<TableReader>) -> Result<Self, TableError> {
        let mut cursor = TableCursor::new(Arc::clone(reader), None);
        cursor.seek_first()?;
        Ok(Self { cursor, fresh_bytes: 0 })
    }

    /// The current row with its full key.
    fn current(&self) -> Result<Option<KeyedRow<'_>>, TableError> {
        let Some((key, row)) = self.cursor.current() else { return Ok(None) };
        let parsed = KeyRef::parse(key).map_err(|_| TableError::InvalidKey)?;
        Ok(Some((key, parsed, row)))
    }

    async fn advance(
        &mut self,
        context: &JobContext,
        limiter: &mut Option<RateLimiter>,
    ) -> Result<(), TableError> {
        if let Some((key, row)) = self.cursor.current() {
            self.fresh_bytes += (key.len() + row.bytes.len()) as u64;
        }
        if self.fresh_bytes >= BYTES_PER_TURN {
            if let Some(limiter) = limiter {
                limiter.spend(self.fresh_bytes, &*context.clock).await;
            }
            self.fresh_bytes = 0;
        }
        self.cursor.next()?;
        Ok(())
    }
}

/// The sorted parts of an index that is being built. Parts of one tier are merged into one of the next, so each entry is written once a tier, and
/// there are never many parts.
struct Parts<'p> {
    path: &'p Path,
    /// Those whose files may be there, each with its tier, the highest first.
    present: Vec<(u32, PathBuf)>,
    made: usize,
}

impl Parts<'_> {
    /// The path of a new part.
    fn next(&mut self, tier: u32) -> PathBuf {
        let mut path = self.path.to_owned().into_os_string();
        path.push(format!(".{}", self.made));
        self.made += 1;
        let path = PathBuf::from(path);
        self.present.push((tier, path.clone()));
        path
    }

    async fn merge_full_tiers(&mut self, context: &JobContext) -> Result<(), TableError> {
        while let Some(&(tier, _)) = self.present.last() {
            let first = self.present.partition_point(|(of, _)| *of > tier);
            let merged: Vec<PathBuf> =
                self.present.iter().skip(first).map(|(_, part)| part.clone()).collect();
            if merged.len() < MERGED_PARTS_MAX {
                break;
            }
            let output = self.next(tier + 1);
            merge(context, &merged, &output).await?;
            for part in &merged {
                context.disk.remove(part).await?;
            }
            self.present.truncate(first);
            self.present.push((tier + 1, output));
        }
        Ok(())
    }
}

/// Removes a file of a build, if it is there. What cannot be removed is found by the next attempt or start.
async fn remove(context: &JobContext, path: &Path) {
    match context.disk.remove(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a part of an index could not be removed");
        }
        _ => {}
    }
}

/// What an index file says of the table file that it is of: the version of entries, and the length and the checksum of that file.
fn identity_of(reader: &TableReader) -> Vec<u8> {
    let mut identity = vec![ENTRIES_VERSION];
    identity.extend_from_slice(&reader.file_bytes().to_le_bytes());
    identity.extend_from_slice(&reader.checksum().to_le_bytes());
    identity
}

/// What an index file has.
#[derive(Debug, Clone)]
pub(crate) struct IndexContent {
    /// The smallest term; `None` without entries, and of vectors.
    pub first_term: Option<Vec<u8>>,
    /// The entries that are centroids of lists of vectors.
    pub centroids: u32,
}

/// Checks that an index is of this table file, and returns what it has. Reads the first block of the index.
pub(crate) fn check_index(index: &Arc<TableReader>, table: &TableReader) -> Result<IndexContent, TableError> {
    let damaged = |reason| TableError::damaged(index.path(), 0, reason);
    let key = [&PARTITION, STATIC_POSITION].concat();
    let row = index.get(None, &key)?;
    let cell = |column| {
        let mut cells = row.as_ref()?.row().cells();
        cells.find(|cell| cell.column == column).map(|cell| cell.value.to_vec())
    };
    if cell(0).as_deref() != Some(&identity_of(table)) {
        return Err(damaged("the index is of another file, or of another version"));
    }
    if let Some(centroids) = cell(1) {
        let centroids = centroids.try_into().map_err(|_| damaged("the number of lists is malformed"))?;
        return Ok(IndexContent { first_term: None, centroids: u32::from_be_bytes(centroids) });
    }
    let mut cursor = TableCursor::new(Arc::clone(index), None);
    if !cursor.seek(&[&PARTITION, REGULAR_START].concat())? {
        return Ok(IndexContent { first_term: None, centroids: 0 });
    }
    let term = cursor.key().get(PARTITION.len()..).and_then(term_of);
    let term = term.ok_or_else(|| damaged("an entry of an index is malformed"))?;
    Ok(IndexContent { first_term: Some(term), centroids: 0 })
}

/// Entries that are collected to be sorted.
#[derive(Default)]
struct Entries {
    /// See [`identity_of`].
    identity: Vec<u8>,
    /// The entries of centroids, all together.
    centroids: u32,
    /// Each entry, and behind it its value.
    bytes: Vec<u8>,
    /// Where each entry and its value end.
    ends: Vec<(usize, usize)>,
    /// The number of the last entry of a partition: the next rows mostly have the same.
    last_of_partition: Option<usize>,
}

impl Entries {
    fn add(&mut self, term: &[u8], subject: Subject, full_key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        put_entry(&mut self.bytes, term, subject, full_key);
        if subject == Subject::Partition {
            let before = self.last_of_partition.and_then(|number| self.get(number));
            if before.is_some_and(|(before, _)| Some(before) == self.bytes.get(start..)) {
                self.bytes.truncate(start);
                return;
            }
            self.last_of_partition = Some(self.ends.len());
        }
        let entry_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((entry_end, self.bytes.len()));
    }

    /// An entry and its value.
    fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let before = number.checked_sub(1).map_or(Some((0, 0)), |before| self.ends.get(before).copied());
        let (start, (entry_end, end)) = (before?.1, *self.ends.get(number)?);
        Some((self.bytes.get(start..entry_end)?, self.bytes.get(entry_end..end)?))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.last_of_partition = None;
    }

    async fn write_to(&self, context: &JobContext, path: &Path) -> Result<(), TableError> {
        let mut sorted = (0..self.ends.len())
            .map(|number| self.get(number).ok_or_else(|| broken!("each entry of a build has its bytes")))
            .collect::<Result<Vec<_>, _>>()?;
        sorted.sort_unstable();
        sorted.dedup();
        let mut writer = EntryWriter::create(context, path).await?;
        writer.add_identity(&self.identity, self.centroids).await?;
        for (entry, value) in sorted {
            writer.add(entry, value).await?;
        }
        writer.finish().await
    }
}

/// Writes entries in ascending order.
struct EntryWriter {
    writer: TableWriter,
    key: Vec<u8>,
    /// The row of every entry without a value, which says nothing.
    row: Vec<u8>,
    /// The row of an entry with a value.
    value_row: Vec<u8>,
}

impl EntryWriter {
    async fn create(context: &JobContext, path: &Path) -> Result<Self, TableError> {
        let writer = TableWriter::create(&*context.disk, path, file_options()).await?;
        let mut row = Vec::new();
        RowWriter::begin(&mut row, 0, Some(Liveness { timestamp: 0, expiry: None }), None, &[]).finish();
        Ok(Self { writer, key: PARTITION.to_vec(), row, value_row: Vec::new() })
    }

    /// The first row: that of the static position, which no entry has.
    async fn add_identity(&mut self, identity: &[u8], centroids: u32) -> Result<(), TableError> {
        let mut row = RowBuilder::new();
        let cell = |column, value| Cell { column, path: &[], timestamp: 0, kind: CellKind::Live, value };
        row.cell(cell(0, identity));
        let centroids = (centroids > 0).then(|| centroids.to_be_bytes());
        if let Some(centroids) = &centroids {
            row.cell(cell(1, centroids));
        }
        let mut bytes = Vec::new();
        row.write_to(0, &mut bytes);
        let key = [&PARTITION, STATIC_POSITION].concat();
        self.writer.add(&key, RowRef::new(&bytes, 0)).await
    }

    async fn add(&mut self, entry: &[u8], value: &[u8]) -> Result<(), TableError> {
        self.key.truncate(PARTITION.len());
        self.key.extend_from_slice(entry);
        let row = if value.is_empty() {
            &self.row
        } else {
            self.value_row.clear();
            put_value(value, &mut self.value_row);
            &self.value_row
        };
        self.writer.add(&self.key, RowRef::new(row, 0)).await
    }

    async fn finish(self) -> Result<(), TableError> {
        self.writer.finish().await.map(|_| ())
    }
}

/// Appends the row of an entry with a value.
fn put_value(value: &[u8], out: &mut Vec<u8>) {
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 0, path: &[], timestamp: 0, kind: CellKind::Live, value });
    row.write_to(0, out);
}

#[cold]
fn no_part() -> BrokenInvariant {
    broken!("an entry comes from a part")
}

/// Merges sorted parts.
async fn merge(context: &JobContext, parts: &[PathBuf], path: &Path) -> Result<(), TableError> {
    let mut cursors = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let reader = TableReader::open_file(&*context.disk, part, number as u64).await?;
        let mut cursor = TableCursor::new(reader, None);
        cursor.seek_first()?;
        cursors.push(cursor);
    }
    let mut writer = EntryWriter::create(context, path).await?;
    let mut merge = KWayMerge::new(false);
    loop {
        let keys = cursors.iter().map(|cursor| cursor.is_valid().then(|| cursor.key()));
        if !merge.select(keys) {
            break;
        }
        let first = merge.first().and_then(|first| cursors.get(first)).ok_or_else(no_part)?;
        writer.writer.add(first.key(), first.row()).await?;
        for &current in merge.current() {
            cursors.get_mut(current as usize).ok_or_else(no_part)?.next()?;
        }
    }
    writer.finish().await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use super::super::{IndexId, IndexTerms};
    use super::*;
    use crate::io::{ManualClock, SimulatedDisk};
    use crate::key::full_key;

    #[derive(Debug)]
    struct Cells;

    impl IndexTerms for Cells {
        fn visit(&self, _: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
            for cell in row.cells() {
                visit(Subject::Row, cell.value);
                visit(Subject::Partition, &cell.value[..1]);
            }
        }
    }

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn table(context: &JobContext, path: &Path, rows: u32) -> Arc<TableReader> {
        let mut writer = TableWriter::create(&*context.disk, path, file_options()).await.unwrap();
        for number in 0..rows {
            let value = [(number % 7) as u8, (number % 251) as u8];
            let mut row = RowBuilder::new();
            row.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Live, value: &value });
            let key = full_key(i64::from(number / 10), &[7], &[&[2], &number.to_be_bytes()[..]].concat());
            writer.add(&key.unwrap(), RowRef::new(&row.to_bytes(), 0)).await.unwrap();
        }
        writer.finish().await.unwrap();
        TableReader::open_file(&*context.disk, path, 1).await.unwrap()
    }

    async fn entries(context: &JobContext, path: &Path, of: &TableReader) -> Vec<Vec<u8>> {
        let reader = TableReader::open_file(&*context.disk, path, 2).await.unwrap();
        check_index(&reader, of).unwrap();
        let mut cursor = TableCursor::new(reader, None);
        cursor.seek_first().unwrap();
        let mut entries = Vec::new();
        while cursor.is_valid() {
            entries.push(cursor.key().to_vec());
            cursor.next().unwrap();
        }
        entries
    }

    #[test]
    fn an_index_that_is_sorted_in_many_parts_is_the_same_and_nothing_else_is_left() {
        let disk = SimulatedDisk::new(1);
        let context = JobContext { disk: Arc::new(disk.clone()), clock: Rc::new(ManualClock::new(1)) };
        run(async {
            context.disk.create_directory(Path::new("t")).await.unwrap();
            let reader = table(&context, Path::new("t/table"), 2_000).await;
            let build = |path: &str| IndexBuild {
                reader: Arc::clone(&reader),
                definition: IndexDefinition { id: IndexId([1; 16]), terms: Arc::new(Cells), vectors: None },
                path: PathBuf::from(path),
                limiter: None,
            };
            build("t/whole").run_with(&context, usize::MAX).await.unwrap();
            // More parts than are merged at a time.
            build("t/parts").run_with(&context, 1_000).await.unwrap();
            let whole = entries(&context, Path::new("t/whole"), &reader).await;
            assert_eq!(whole, entries(&context, Path::new("t/parts"), &reader).await);
            assert!(whole.len() > 2_000 && whole.is_sorted());
            // The output is there already: the build fails at its end.
            build("t/parts").run_with(&context, 1_000).await.unwrap_err();
            let names: BTreeSet<_> = disk.files().into_keys().collect();
            assert_eq!(names, ["t/table", "t/whole"].map(PathBuf::from).into());
            let other = table(&context, Path::new("t/other"), 1_999).await;
            let index = TableReader::open_file(&*context.disk, Path::new("t/whole"), 3).await.unwrap();
            check_index(&index, &other).unwrap_err();
        });
    }
}
