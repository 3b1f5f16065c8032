//! Batches of rows on their way between shards: merged rows with their full keys, in the order of the table.

use std::sync::Arc;
use std::time::Duration;

use helenus_engine::key::{KeyRef, PARTITION_END, STATIC_POSITION};
use helenus_engine::read::{Budget, RowView, Scan, ScanRequest, Step};
use helenus_engine::secondary_index::{IndexId, IndexSearch};
use helenus_engine::shard::{Attempt, ReadProgress};
use helenus_engine::{RowRef, TableId, transcode};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::row_filters::RowFilters;
use helenus_query::run::select::{Met, PartitionHead};
use helenus_query::stored_key::SourceRow;

use super::OwnedRequest;
use super::found_ranges::{FOUND_KEYS_MAX, FoundRange, FoundRanges};
use super::index_file_guard;
use super::local_work::LocalWork;
use crate::shard::context::ShardContext;
use crate::shard::receipt::{self, RowMeter};
use crate::shard::trace;

/// A request to a shard for the rows of a range of full keys.
#[allow(clippy::struct_excessive_bools, reason = "independent wishes of a reader")]
#[derive(Debug, Clone)]
pub struct RowBatchRequest {
    pub table: TableId,
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    pub reversed: bool,
    pub now_seconds: u32,
    pub max_rows: usize,
    pub max_bytes: usize,
    pub max_tombstones: u64,
    /// The columns whose values are needed, ordered by id, see [`helenus_engine::Shard::scan_columns`]; `None`: all.
    pub columns: Option<Vec<u32>>,
    /// Rows are sent empty.
    pub keys_only: bool,
    /// The rows of each partition that are read; `None`: all.
    pub head: Option<PartitionHead>,
    /// The request whose [`RowFilters`] regular rows must pass; `None`: all are wanted.
    pub filtered_by: Option<Arc<OwnedRequest<SelectPlan>>>,
    /// Only rows that these indexes find are read. Not for reversed reads.
    pub search: Option<Arc<IndexSearch>>,
    /// The static row of a partition comes before the first found row of it.
    pub reads_static: bool,
    /// The longest time for a search.
    pub patience: Duration,
    /// Blocks that are read from the disk are not kept in memory.
    pub bypasses_cache: bool,
}

/// A row with its full key. The encoding has base 0.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow<'a> {
    pub key: &'a [u8],
    pub row: &'a [u8],
}

/// The rows of one response, which are taken one after the other. All lie in one buffer.
#[derive(Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    /// Where the key and the encoding of each row end.
    ends: Vec<(usize, usize)>,
    /// The number of the first row that was not taken.
    next: usize,
    /// The new start (or, reversed, end) of the unread rest of the range; `None` when the range is complete.
    pub resume: Option<Vec<u8>>,
    /// What was met where the rows were read.
    pub met: Met,
}

impl RowBatch {
    /// The batch before the first of a range that begins here.
    pub fn before(start: Vec<u8>) -> Self {
        Self { resume: Some(start), ..Self::default() }
    }

    fn push(&mut self, key: &[u8], row: RowRef<'_>) -> Result<()> {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        transcode(row, 0, &mut self.bytes).map_err(|error| RequestError::Server(error.to_string()))?;
        self.ends.push((key_end, self.bytes.len()));
        Ok(())
    }

    /// The first row that was not taken.
    pub fn first(&self) -> Option<BatchRow<'_>> {
        let (key_end, row_end) = *self.ends.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some(BatchRow { key: &self.bytes[start..key_end], row: &self.bytes[key_end..row_end] })
    }

    /// Takes the first row.
    pub fn take_first(&mut self) {
        self.next += 1;
    }

    /// The number of rows that were not taken.
    pub fn rows_left(&self) -> usize {
        self.ends.len().saturating_sub(self.next)
    }

    /// Whether all rows were taken.
    pub fn is_empty(&self) -> bool {
        self.rows_left() == 0
    }
}

impl BatchRow<'_> {
    /// The row as input for a SELECT.
    pub fn source(&self) -> Result<SourceRow<'_>> {
        let key = KeyRef::parse(self.key).map_err(|error| RequestError::Server(error.to_string()))?;
        Ok(SourceRow {
            partition_key: key.partition_key,
            position: key.position,
            row: RowRef::new(self.row, 0),
        })
    }
}

/// Reads a batch of rows from the shard of this thread. Where blocks must come from the disk, the read goes on behind the rows that
/// it has when they are there.
pub async fn read_row_batch(context: &ShardContext, request: RowBatchRequest) -> Result<RowBatch> {
    let filtered_by = request.filtered_by.clone();
    let filtered_by = filtered_by.as_deref().map(|select| (select, select.values.borrow()));
    let filters = filtered_by.as_ref().map(|(select, values)| {
        let bindings = Bindings { values, call: &select.call };
        RowFilters::new(&select.statement.plan, &bindings, request.now_seconds)
    });
    let search = request.search.clone();
    let mut reader = BatchReader {
        bytes_left: request.max_bytes as u64,
        tombstones_left: request.max_tombstones,
        request,
        filters: filters.transpose()?,
        batch: RowBatch::default(),
        rows_read: 0,
        partition: Vec::new(),
        regular_rows: 0,
    };
    match search {
        None => reader.read_cold(context).await?,
        Some(search) => reader.read_found(context, &search).await?,
    }
    Ok(reader.batch)
}

/// A batch that is being read.
struct BatchReader<'p> {
    /// Its range begins (or, reversed, ends) behind the rows that were read.
    request: RowBatchRequest,
    filters: Option<RowFilters<'p>>,
    bytes_left: u64,
    tombstones_left: u64,
    batch: RowBatch,
    /// Also those that are not in the batch.
    rows_read: usize,
    /// The prefix of the partition of the last row, and the regular rows of that which were read. Kept only if they are limited.
    partition: Vec<u8>,
    regular_rows: u64,
}

impl BatchReader<'_> {
    /// Reads the range. Where blocks must come from the disk, it goes on behind the rows that it has when they are there.
    async fn read_cold(&mut self, context: &ShardContext) -> Result<()> {
        let bytes_max = self.request.max_bytes as u64;
        let mut cold = None;
        loop {
            let rows_before = self.rows_read;
            match context.shard.attempt(|| self.read(context))? {
                Attempt::Done(()) => return Ok(()),
                Attempt::Missing(missing) => {
                    let progress = ReadProgress {
                        has_moved: self.rows_read > rows_before,
                        rows: self.batch.ends.len(),
                        rows_max: self.request.max_rows,
                        bytes: bytes_max.saturating_sub(self.bytes_left),
                        bytes_max,
                    };
                    let cold = cold.get_or_insert_with(|| context.shard.cold_read());
                    cold.fetch_ahead(missing, progress).await?;
                }
            }
        }
    }

    /// Reads the rows that a search finds in the range.
    async fn read_found(&mut self, context: &ShardContext, search: &IndexSearch) -> Result<()> {
        let RowBatchRequest { table, mut start, end, reads_static, max_rows, .. } = self.request.clone();
        let mut keys_max = max_rows.clamp(1, FOUND_KEYS_MAX);
        let until = context.clock.monotonic() + self.request.patience;
        let mut ranges = FoundRanges::new(reads_static);
        let indexes: Vec<IndexId> = search.restrictions.iter().map(|it| it.index).collect();
        index_file_guard::check(context, table, &indexes, (&start, &end))?;
        loop {
            let found = context.shard.find_keys(table, search, &start, &end, keys_max, until).await?;
            // Where few of the rows that are found pass the filters, more are looked for at a time.
            keys_max = (keys_max * 4).min(FOUND_KEYS_MAX);
            trace::note(context, || format!("Found {} keys by indexes", found.keys.len()));
            for (number, key) in found.keys.iter().enumerate() {
                let FoundRange { static_row, rows } = ranges.of(key, &start, &end)?;
                for (start, end) in static_row.into_iter().chain([rows]) {
                    self.batch.resume = None;
                    (self.request.start, self.request.end) = (start, end);
                    // A static row alone may have spent the budget.
                    self.bytes_left = self.bytes_left.max(1);
                    self.tombstones_left = self.tombstones_left.max(1);
                    self.read_cold(context).await?;
                }
                if self.batch.resume.is_some() {
                    return Ok(());
                }
                if self.is_spent() {
                    self.batch.resume = found.keys.get(number + 1).cloned().or(found.resume);
                    return Ok(());
                }
            }
            match found.resume {
                Some(resume) => start = resume,
                None => return Ok(()),
            }
            tokio::task::yield_now().await;
        }
    }

    fn is_spent(&self) -> bool {
        self.batch.ends.len() >= self.request.max_rows || self.bytes_left == 0 || self.tombstones_left == 0
    }

    fn read(&mut self, context: &ShardContext) -> Result<()> {
        let RowBatchRequest { table, start, end, reversed, now_seconds, columns, .. } = self.request.clone();
        let request = ScanRequest {
            table,
            start: &start,
            end: &end,
            reversed,
            now_seconds,
            budget: Budget { bytes: self.bytes_left, tombstones: self.tombstones_left },
        };
        let head_rows = self.request.head.and_then(PartitionHead::short_rows);
        let mut scan = match (head_rows, columns.as_deref()) {
            (_, columns) if self.request.bypasses_cache => {
                context.shard.scan_past_cache(&request, columns)?
            }
            (Some(rows), columns) => context.shard.scan_heads(&request, columns, rows)?,
            (None, Some(columns)) => context.shard.scan_columns(&request, columns)?,
            (None, None) => context.shard.scan(&request)?,
        };
        let (started, rows_before) = (context.clock.monotonic(), self.rows_read);
        let mut used = Budget { bytes: 0, tombstones: 0 };
        let outcome = self.take_rows(&mut scan, &mut used);
        if outcome.is_ok() {
            let met = ((self.rows_read - rows_before) as u64, used.tombstones);
            LocalWork::note_read(context, table, (&start, &end), started, met);
        }
        receipt::count_tombstones(used.tombstones);
        self.batch.met.add(Met { tombstones: used.tombstones, bytes: used.bytes });
        self.bytes_left = self.bytes_left.saturating_sub(used.bytes);
        self.tombstones_left = self.tombstones_left.saturating_sub(used.tombstones);
        outcome
    }

    /// `used`: the work up to the last row. What a read does behind it is done again if blocks are missing.
    fn take_rows(&mut self, scan: &mut Scan<'_>, used: &mut Budget) -> Result<()> {
        let mut meter = RowMeter::begin();
        loop {
            match scan.next()? {
                Step::Row(view) => {
                    self.rows_read += 1;
                    let RowView { partition_key, position, row, .. } = view;
                    meter.add(partition_key, position, row, self.request.columns.as_deref());
                    if self.is_wanted(&view)? {
                        let row = if self.request.keys_only { RowRef::new(&[], 0) } else { view.row };
                        self.batch.push(view.key, row)?;
                    }
                    let is_partition_done = self.pass(&view);
                    *used = scan.used();
                    if is_partition_done {
                        scan.skip_partition()?;
                    }
                    if self.batch.ends.len() >= self.request.max_rows {
                        self.batch.resume = scan.resume_bound()?;
                        return Ok(());
                    }
                }
                Step::Exhausted => {
                    *used = scan.used();
                    self.batch.resume = scan.resume_bound()?;
                    return Ok(());
                }
                Step::End => {
                    // Rows that are deleted are work, too.
                    *used = scan.used();
                    return Ok(());
                }
            }
        }
    }

    fn is_wanted(&mut self, view: &RowView<'_>) -> Result<bool> {
        let Some(filters) = &mut self.filters else { return Ok(true) };
        let RowView { partition_key, position, row, .. } = *view;
        filters.pass(&SourceRow { partition_key, position, row })
    }

    /// Moves the range behind a row. True if no more rows of its partition are wanted; then the range is behind those.
    fn pass(&mut self, view: &RowView<'_>) -> bool {
        let (prefix, position) = view.key.split_at(view.key.len() - view.position.len());
        let is_done = match self.request.head {
            None => false,
            Some(PartitionHead::OneRow) => true,
            Some(PartitionHead::RegularRows(rows)) => {
                if self.partition != prefix {
                    self.partition.clear();
                    self.partition.extend_from_slice(prefix);
                    self.regular_rows = 0;
                }
                self.regular_rows += u64::from(position != STATIC_POSITION);
                self.regular_rows >= rows
            }
        };
        let RowBatchRequest { start, end, reversed, .. } = &mut self.request;
        let bound = if *reversed { end } else { start };
        bound.clear();
        bound.extend_from_slice(if is_done { prefix } else { view.key });
        if !*reversed {
            // Behind the row or the partition, in the direction of the read.
            bound.extend_from_slice(if is_done { PARTITION_END } else { &[0] });
        }
        is_done
    }
}
