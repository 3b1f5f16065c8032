//! Reads ranges of rows of other shards, and of all of them.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, try_join_all};
use helenus_engine::key::PARTITION_END;
use helenus_engine::secondary_index::IndexSearch;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::row_filters::RowFilters;
use helenus_query::run::select::{Flow, SelectRun};

use super::own_shard::{end_after, prefix, turn_bytes};
use crate::coordinator::key_ranges::KeyRange;
use crate::coordinator::prepared_read::{BLOCK_ROWS, RangeEnd};
use crate::coordinator::row_batch::{RowBatch, RowBatchRequest, read_row_batch};
use crate::coordinator::shard_rows::share_of;
use crate::coordinator::{OwnedRequest, Request};
use crate::shard::context::ShardContext;

/// How often all shards are asked for rows before other requests of this one can run.
const ROUNDS_MAX: usize = 8;

/// A SELECT that reads rows of other shards.
pub struct SpreadRead<'r> {
    pub context: &'r Rc<ShardContext>,
    pub plan: &'r SelectPlan,
    pub now_seconds: u32,
    /// The request again, for other threads, if they can leave out rows by its filters.
    filtered_by: Option<Arc<OwnedRequest<SelectPlan>>>,
    /// Only rows that these indexes find are read.
    search: Option<Arc<IndexSearch>>,
    /// Until when shards may search. `None`: each part has a deadline of its own, by the settings.
    deadline: Option<Duration>,
}

impl<'r> SpreadRead<'r> {
    pub fn new(
        context: &'r Rc<ShardContext>,
        request: &'r Request<'r, SelectPlan>,
        now_seconds: u32,
        search: Option<Arc<IndexSearch>>,
        deadline: Option<Duration>,
    ) -> Self {
        let plan = request.plan();
        let filtered_by = RowFilters::are_in(plan).then(|| Arc::new(request.to_owned()));
        Self { context, plan, now_seconds, filtered_by, search, deadline }
    }

    /// The most rows that are wanted before shards are asked again. What indexes find passes the filters, mostly.
    fn wanted_rows(&self, run: &SelectRun<'_>) -> usize {
        if self.search.is_some() { run.wanted_result_rows() } else { run.wanted_rows() }
    }

    /// How long a shard may search.
    fn patience(&self) -> Duration {
        let by_settings = || Duration::from_millis(self.context.node.config.range_request_timeout_ms);
        let left = |deadline: Duration| deadline.saturating_sub(self.context.clock.monotonic());
        self.deadline.map_or_else(by_settings, left)
    }

    fn batch_request(&self, run: &SelectRun<'_>, range: &KeyRange, rows: usize) -> RowBatchRequest {
        RowBatchRequest {
            table: self.plan.table.engine_id(),
            start: range.start.clone(),
            end: range.end.clone(),
            reversed: range.reversed,
            now_seconds: self.now_seconds,
            max_rows: rows,
            max_bytes: turn_bytes(self.context) as usize,
            max_tombstones: self.context.node.config.max_page_tombstones as u64,
            columns: run.simple_columns().map(<[u32]>::to_vec),
            keys_only: run.reads_keys_only(),
            head: run.partition_head(),
            filtered_by: self.filtered_by.clone(),
            search: self.search.clone(),
            reads_static: self.plan.reads_static,
            patience: self.patience(),
            bypasses_cache: self.plan.bypasses_cache,
        }
    }

    async fn fetch(&self, shard: usize, request: RowBatchRequest) -> Result<RowBatch> {
        if shard == self.context.index {
            return read_row_batch(self.context, request).await;
        }
        let read = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, _> {
            Box::pin(async move { read_row_batch(&context, request).await })
        };
        self.context.run_on(shard, read).await?
    }

    /// Reads a batch of a range of one other shard.
    pub async fn of_shard(&self, run: &mut SelectRun<'_>, range: KeyRange, owner: usize) -> Result<RangeEnd> {
        let request = self.batch_request(run, &range, self.wanted_rows(run).min(BLOCK_ROWS));
        let mut batch = self.fetch(owner, request).await?;
        run.note_met(batch.met);
        let mut skip = Vec::new();
        let mut functions = self.context.function_turn(self.plan);
        while let Some(row) = batch.first() {
            let flow = run.row(&row.source()?)?;
            if let Some(end) = end_after(flow) {
                return Ok(end);
            }
            skip.clear();
            if flow == Flow::SkipPartition {
                skip.extend_from_slice(partition_of(row.key)?);
            }
            batch.take_first();
            if functions.is_over() {
                tokio::task::yield_now().await;
            }
        }
        let rest = batch.resume.map(|bound| behind_skipped(bound, &skip, range.reversed));
        Ok(match rest {
            None => RangeEnd::Complete,
            Some(bound) if range.reversed => RangeEnd::BudgetSpent(KeyRange { end: bound, ..range }),
            Some(bound) => RangeEnd::BudgetSpent(KeyRange { start: bound, ..range }),
        })
    }

    /// Merges the rows of all shards in the order of their keys. When one of them must be asked, so are the others that will be soon.
    /// `work_bytes` grows with what shards may have read.
    pub async fn of_all_shards(
        &self,
        run: &mut SelectRun<'_>,
        range: KeyRange,
        work_bytes: &mut u64,
    ) -> Result<RangeEnd> {
        let shards = self.context.node.shard_count();
        let mut sources: Vec<ShardRows> = (0..shards).map(|_| ShardRows::before(&range)).collect();
        let mut rounds = 0;
        let mut skip = Vec::new();
        let mut functions = self.context.function_turn(self.plan);
        loop {
            for source in &mut sources {
                source.advance();
            }
            let next = sources
                .iter_mut()
                .filter(|source| source.next_key().is_some())
                .min_by(|a, b| a.next_key().cmp(&b.next_key()));
            let Some(source) = next else { return Ok(RangeEnd::Complete) };
            if let Some(row) = source.batch.first() {
                if skip.is_empty() || !row.key.starts_with(&skip) {
                    let flow = run.row(&row.source()?)?;
                    if let Some(end) = end_after(flow) {
                        return Ok(end);
                    }
                    if flow == Flow::SkipPartition {
                        skip.clear();
                        skip.extend_from_slice(partition_of(row.key)?);
                    }
                }
                source.batch.take_first();
                if functions.is_over() {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            // Its shard was asked in every round, so this is behind the start of the range.
            if rounds == ROUNDS_MAX {
                let Some(start) = source.batch.resume.take() else {
                    unreachable!("a source with a lower bound has a row, or says where to go on")
                };
                let start = behind_skipped(start, &skip, false);
                return Ok(RangeEnd::BudgetSpent(KeyRange { start, ..range }));
            }
            rounds += 1;
            let rows = share_of(self.wanted_rows(run), shards, run.partition_head()).min(BLOCK_ROWS);
            let reads: Vec<_> = sources
                .iter_mut()
                .enumerate()
                .filter_map(|(shard, source)| {
                    let start = behind_skipped(source.next_start(rows)?.to_vec(), &skip, false);
                    let request = self.batch_request(run, &KeyRange { start, ..range.clone() }, rows);
                    Some(async move {
                        source.ahead = Some(self.fetch(shard, request).await?);
                        Ok::<_, RequestError>(())
                    })
                })
                .collect();
            *work_bytes += reads.len() as u64 * turn_bytes(self.context);
            try_join_all(reads).await?;
            for ahead in sources.iter_mut().filter_map(|source| source.ahead.as_mut()) {
                run.note_met(mem::take(&mut ahead.met));
            }
        }
    }
}

/// The partition prefix of the key of a row that a shard has sent.
fn partition_of(key: &[u8]) -> Result<&[u8]> {
    prefix(key)
        .ok_or_else(|| RequestError::Server("a row of a shard has a key without a partition".to_owned()))
}

/// A bound of unread rows. If it lies in a partition of which no more rows are wanted, it is behind that.
fn behind_skipped(bound: Vec<u8>, skip: &[u8], reversed: bool) -> Vec<u8> {
    if skip.is_empty() || !bound.starts_with(skip) {
        return bound;
    }
    [skip, if reversed { &[] } else { PARTITION_END }].concat()
}

/// The rows of one shard, in the order of their keys.
struct ShardRows {
    batch: RowBatch,
    /// The rows behind those of the batch, if they were read already.
    ahead: Option<RowBatch>,
}

impl ShardRows {
    /// Nothing of the range has been read.
    fn before(range: &KeyRange) -> Self {
        Self { batch: RowBatch::before(range.start.clone()), ahead: None }
    }

    /// Moves on to what was read ahead, if the batch is empty.
    fn advance(&mut self) {
        if self.batch.is_empty()
            && let Some(ahead) = self.ahead.take()
        {
            self.batch = ahead;
        }
    }

    /// Where reading goes on, if there are more rows and few are left.
    fn next_start(&self, rows: usize) -> Option<&[u8]> {
        let is_low = self.ahead.is_none() && self.batch.rows_left() <= rows / 2;
        self.batch.resume.as_deref().filter(|_| is_low)
    }

    /// A lower bound of the keys that come.
    fn next_key(&self) -> Option<&[u8]> {
        self.batch.first().map(|row| row.key).or(self.batch.resume.as_deref())
    }
}
