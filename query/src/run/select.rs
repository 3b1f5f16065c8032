//! The run of a SELECT: rows are passed in, in the order of the table, and a page of encoded result rows is returned.
//!
//! Invariants:
//! * The run does not depend on the source of rows (this shard, other shards, a virtual table): the reader passes in
//!   every row, reports the end of the source, and obeys the returned [`Flow`].
//! * As in Cassandra, a page that is exactly full has a paging state, even if there turn out to be no more rows, unless the
//!   statement shows that it was the last one: LIMIT is reached, or no partition that it names has more.
//! * The paging state names the last row that the page consumed: reading continues directly behind it.

mod capped;
mod collected_rows;
mod limit;
mod nearest_rows;

use std::rc::Rc;

use cql_lite::types::{codec, json};
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use smallvec::SmallVec;

use self::capped::{CappedRows, Left, Wanted, rest_of};
use self::collected_rows::CollectedRows;
use self::limit::limit_value;
use self::nearest_rows::NearestRows;
use super::evaluate::{BoundFilters, COMPUTED_ROW_BYTES_MAX, RowContext, evaluate, evaluate_within};
use super::keys::partition_keys;
use super::paging::PagingState;
use crate::error::{RequestError, Result};
use crate::functions::AggregateState;
use crate::plan::direct_rows::DirectRows;
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::row_layout::{CellTime, OwnedValues, RowScratch, RowValues, SlotBuffer};
use crate::plan::select::SelectPlan;
use crate::plan::term::Bindings;
use crate::stored_key::SourceRow;

/// Initial capacity for the first row, so that the buffer need not grow value by value.
const FIRST_ROW_BYTES: usize = 512;
/// Rows for which capacity is reserved if there is no LIMIT.
const EXPECTED_ROWS: usize = 32;
/// Most bytes that are reserved at once: a LIMIT may be far above the number of rows.
const EXPECTED_BYTES_MAX: usize = 64 << 10;

/// Most bytes of rows of a table with a cap that are sorted.
const SORTED_BYTES_MAX: usize = 16 << 20;

/// The next action of the reader after a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// No more rows of this partition are wanted.
    SkipPartition,
    /// The page is full; there are more rows behind the paging state.
    PageFull,
    /// The answer is complete.
    Done,
}

/// The rows of a partition that a run wants; it skips the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionHead {
    /// The first row, static or regular.
    OneRow,
    /// The static row and this many regular ones.
    RegularRows(u64),
}

impl PartitionHead {
    /// The number of rows, if so few are wanted that most partitions begin and end their part in one block.
    pub fn short_rows(self) -> Option<u8> {
        const SHORT_ROWS: u8 = 17;
        let rows = match self {
            Self::OneRow => 1,
            Self::RegularRows(rows) => rows.checked_add(1)?,
        };
        u8::try_from(rows).ok().filter(|rows| *rows <= SHORT_ROWS)
    }
}

/// A page of the result.
#[derive(Debug, Default)]
pub struct ResultPage {
    /// `row_count` rows of `[bytes]` cells.
    pub rows: Vec<u8>,
    pub row_count: usize,
    /// The paging state for the next page; `None` after the last.
    pub paging_state: Option<PagingState>,
    /// The work that it took to find the rows.
    pub met: Met,
}

/// What a read has met on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// Deleted and expired rows and cells.
    pub tombstones: u64,
    /// Bytes of keys and rows.
    pub bytes: u64,
}

impl Met {
    /// Adds what another part of the read has met.
    pub fn add(&mut self, other: Self) {
        self.tombstones = self.tombstones.saturating_add(other.tombstones);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Limits of a page.
#[derive(Debug, Clone, Copy)]
pub struct PageBounds {
    /// Rows; `None`: the answer has no pages.
    pub rows: Option<usize>,
    /// The page ends with the row that reaches this size. An answer without pages that goes on behind it is refused.
    pub bytes: usize,
}

/// A defect of the program: rows of a partition are taken or ended before it has begun.
#[cold]
fn no_partition() -> RequestError {
    debug_assert!(false, "a partition with static content has a key");
    RequestError::Server("the rows of a partition came without its key".to_owned())
}

/// A partition key, copied at the start of the partition. Most keys are short.
type KeyBytes = SmallVec<[u8; 32]>;

/// The state of the partition that is being read.
#[derive(Default)]
struct PartitionState {
    key: Option<KeyBytes>,
    statics: Option<(OwnedValues, Vec<Vec<CellTime>>)>,
    /// Regular rows seen, also on earlier pages.
    has_rows: bool,
    /// Result rows of the partition on all pages.
    result_rows: u64,
    /// No more rows of the partition are wanted, whatever the source still returns.
    is_done: bool,
}

struct Group {
    key: Vec<Option<Vec<u8>>>,
    first: OwnedValues,
    times: Vec<Vec<CellTime>>,
    states: Vec<AggregateState>,
}

/// The run of a SELECT for one page; see the module.
pub struct SelectRun<'p> {
    plan: &'p SelectPlan,
    bindings: Bindings<'p>,
    filters: BoundFilters<'p>,
    now_seconds: u32,
    bounds: PageBounds,
    limit: Option<u64>,
    per_partition_limit: Option<u64>,
    /// Result rows on the pages before.
    rows_before: u64,
    out: Vec<u8>,
    row_count: usize,
    collected: CollectedRows,
    /// The result rows, if they are the nearest to a vector.
    nearest: Option<NearestRows>,
    partition: PartitionState,
    /// If the table has a cap.
    capped: Option<Box<CappedRows<'p>>>,
    group: Option<Group>,
    /// The last row consumed, or left out by a filter, once the page may end with it.
    last: Option<(Vec<u8>, Vec<u8>)>,
    /// The row `last` itself has not been read.
    resumes_at_last: bool,
    scratch: RowScratch,
    json_names: Option<Rc<Vec<String>>>,
    met: Met,
}

impl<'p> SelectRun<'p> {
    /// Creates a run for one page; `paging_state` is the end of the previous page.
    pub fn new(
        plan: &'p SelectPlan,
        bindings: Bindings<'p>,
        now_seconds: u32,
        bounds: PageBounds,
        paging_state: Option<&PagingState>,
    ) -> Result<Self> {
        let filters = BoundFilters::bind(&plan.restrictions.filters, &plan.table, &plan.fetched, &bindings)?;
        let limit = limit_value(plan.limit.as_ref(), "limit", &bindings)?;
        let per_partition_limit =
            limit_value(plan.per_partition_limit.as_ref(), "per partition limit", &bindings)?;
        if !plan.result_order.is_empty() && bounds.rows.is_some() && plan.restrictions.has_partition_in() {
            return Err(RequestError::invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove the ORDER BY or the IN and sort client side, or disable paging for this query",
            ));
        }
        let nearest = NearestRows::of(plan, &bindings, limit)?;
        let mut partition = PartitionState::default();
        let mut remaining = limit;
        if let Some(paging_state) = paging_state {
            remaining = limit.map(|limit| limit.saturating_sub(paging_state.result_rows));
            partition.key = Some(KeyBytes::from_slice(&paging_state.partition_key));
            partition.has_rows = paging_state.has_rows;
            partition.result_rows = paging_state.partition_result_rows;
        }
        let capped = CappedRows::of(plan, &bindings, paging_state)?.map(Box::new);
        let is_in_table_order = plan.result_order.is_empty() && nearest.is_none();
        let bounds = if is_in_table_order { bounds } else { PageBounds { rows: None, bytes: usize::MAX } };
        let json_names = plan.json.then(|| {
            Rc::new(
                plan.selection
                    .columns
                    .iter()
                    .map(|column| serde_json::Value::String(json::json_name(&column.name)).to_string())
                    .collect::<Vec<_>>(),
            )
        });
        Ok(Self {
            plan,
            bindings,
            filters,
            now_seconds,
            bounds,
            limit: remaining,
            per_partition_limit,
            rows_before: paging_state.map_or(0, |paging_state| paging_state.result_rows),
            out: Vec::with_capacity(FIRST_ROW_BYTES),
            row_count: 0,
            collected: CollectedRows::default(),
            nearest,
            partition,
            capped,
            group: None,
            last: None,
            resumes_at_last: false,
            scratch: RowScratch::default(),
            json_names,
            met: Met::default(),
        })
    }

    /// Notes what the source has met since it was asked last.
    #[inline]
    pub fn note_met(&mut self, met: Met) {
        self.met.add(met);
    }

    /// What was met so far.
    pub fn met(&self) -> Met {
        self.met
    }

    /// Bytes of the rows that the page has so far.
    pub fn answer_bytes(&self) -> usize {
        self.out.len()
    }

    /// The rows that are wanted of those that are nearest to a vector, and the least similarity among them, if there are as many so far.
    pub fn nearest(&mut self) -> Option<(usize, Option<f32>)> {
        self.nearest.as_mut().map(|nearest| (nearest.wanted(), nearest.worst()))
    }

    /// Whether the LIMIT is used up, so that no more rows are returned.
    pub fn is_exhausted(&self) -> bool {
        self.limit == Some(0)
    }

    /// Consumes a row.
    pub fn row(&mut self, source: &SourceRow<'_>) -> Result<Flow> {
        if self.partition.key.as_deref() != Some(source.partition_key) {
            match self.end_partition()? {
                Flow::Continue => {}
                flow => return Ok(flow),
            }
            // A group ends with its partition at the latest.
            if !self.plan.group_by.is_empty() {
                if self.end_group()? == Flow::Done {
                    return Ok(Flow::Done);
                }
                if self.is_page_full() {
                    return Ok(Flow::PageFull);
                }
            }
            let key = self.partition.key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(source.partition_key);
            self.partition.statics = None;
            self.partition.has_rows = false;
            self.partition.result_rows = 0;
            self.partition.is_done = false;
            if let Some(capped) = &mut self.capped {
                capped.begin_partition();
            }
        }
        if self.partition.is_done
            || self.per_partition_limit.is_some_and(|limit| self.partition.result_rows >= limit)
        {
            return Ok(Flow::SkipPartition);
        }
        let flow = self.row_of_partition(source)?;
        self.partition.is_done = flow == Flow::SkipPartition;
        Ok(flow)
    }

    fn row_of_partition(&mut self, source: &SourceRow<'_>) -> Result<Flow> {
        if !self.plan.layout.is_there(source.row, self.now_seconds) {
            return Ok(Flow::Continue);
        }
        if source.position == STATIC_POSITION {
            if !self.plan.distinct {
                self.set_statics(source.row)?;
                return Ok(Flow::Continue);
            }
            if !self.reads_keys_only() {
                self.set_statics(source.row)?;
            }
            let flow = self.take(source, None)?;
            return Ok(if flow == Flow::Continue { Flow::SkipPartition } else { flow });
        }
        if self.capped.is_some() {
            return self.row_of_capped(source);
        }
        self.regular_row(source)
    }

    /// As [`Self::regular_row`], if the row is one of those that the partition keeps, and is wanted.
    #[inline(never)]
    fn row_of_capped(&mut self, source: &SourceRow<'_>) -> Result<Flow> {
        let Some(capped) = &mut self.capped else { return self.regular_row(source) };
        let mut rest = Vec::new();
        let source = match capped.left_of(source, self.now_seconds, &mut rest)? {
            Left::Whole => *source,
            Left::Rest => rest_of(source, &rest),
            Left::Nothing => return Ok(Flow::Continue),
            Left::NothingFromHere => return Ok(Flow::SkipPartition),
        };
        if !self.plan.layout.is_there(source.row, self.now_seconds) {
            return Ok(Flow::Continue);
        }
        let wanted = capped.count(&source);
        let is_last = capped.left() == 0;
        let flow = match wanted {
            Wanted::Yes => self.regular_row(&source)?,
            Wanted::No => Flow::Continue,
            Wanted::NoMore => Flow::SkipPartition,
        };
        // What is behind it may be many rows that are gone, but not from the files yet.
        Ok(if is_last && flow == Flow::Continue { Flow::SkipPartition } else { flow })
    }

    #[inline]
    fn regular_row(&mut self, source: &SourceRow<'_>) -> Result<Flow> {
        self.partition.has_rows = true;
        let plan = self.plan;
        if let Some(rows) = &plan.direct_rows {
            return self.take_directly(source, rows);
        }
        let flow = self.take(source, Some(source.row))?;
        Ok(if self.plan.distinct && flow == Flow::Continue { Flow::SkipPartition } else { flow })
    }

    /// Sets the static row of the partition in which the run continues.
    pub fn set_statics(&mut self, row: RowRef<'_>) -> Result<()> {
        let key = self.partition.key.take().ok_or_else(no_partition)?;
        let statics = {
            let mut slots = SlotBuffer::default();
            let (now_seconds, scratch) = (self.now_seconds, &mut self.scratch);
            let values = self.plan.layout.read(
                &key,
                STATIC_POSITION,
                Some(row),
                None,
                now_seconds,
                &mut slots,
                scratch,
            )?;
            (values.to_owned_values(), values.times.to_vec())
        };
        self.partition.key = Some(key);
        self.partition.statics = Some(statics);
        Ok(())
    }

    /// Reports that the source has no more rows. Returns the last page.
    pub fn finish(mut self) -> Result<ResultPage> {
        match self.end_partition()? {
            Flow::PageFull => return self.page(true),
            Flow::Done => return self.page(false),
            Flow::Continue | Flow::SkipPartition => {}
        }
        match self.end_group()? {
            Flow::PageFull => return self.page(true),
            Flow::Continue | Flow::SkipPartition | Flow::Done => {}
        }
        if self.plan.is_grouped()
            && self.plan.group_by.is_empty()
            && self.row_count == 0
            && self.collected.is_empty()
        {
            self.emit_empty_aggregate()?;
        }
        let more = self.may_have_more()?;
        self.page(more)
    }

    /// Whether a page behind which there are no more rows has a paging state.
    fn may_have_more(&self) -> Result<bool> {
        let is_full = self.bounds.rows.is_some_and(|rows| self.row_count >= rows);
        let is_one_row = self.plan.is_grouped() && self.plan.group_by.is_empty();
        if !is_full || is_one_row || self.is_exhausted() {
            return Ok(false);
        }
        let (PartitionRestriction::Keys(keys), Some((partition_key, position))) =
            (&self.plan.restrictions.partition, &self.last)
        else {
            return Ok(true);
        };
        let has_no_more = self.plan.distinct
            || self.plan.table.clustering_key_count == 0
            || position == STATIC_POSITION
            || self.per_partition_limit.is_some_and(|limit| self.partition.result_rows >= limit);
        let keys = partition_keys(keys, &self.plan.table, &self.bindings)?;
        Ok(!has_no_more || keys.last().is_some_and(|last| last.bytes != *partition_key))
    }

    /// Returns the page so far. `more`: reading was cut off (page full or work budget spent).
    pub fn page(mut self, more: bool) -> Result<ResultPage> {
        if let Some(nearest) = &mut self.nearest {
            let row_count = nearest.write_sorted(&mut self.out);
            return Ok(ResultPage { rows: self.out, row_count, paging_state: None, met: self.met });
        }
        if !self.plan.result_order.is_empty() {
            let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
            let row_count = self.collected.write_sorted(self.plan, limit, &mut self.out);
            return Ok(ResultPage { rows: self.out, row_count, paging_state: None, met: self.met });
        }
        if more && self.bounds.rows.is_none() && self.out.len() >= self.bounds.bytes {
            let limit = self.bounds.bytes;
            return Err(RequestError::invalid(format!(
                "The answer has more than {limit} bytes, the most without pages: ask for pages"
            )));
        }
        let paging_state = match (more, self.last.take()) {
            (true, Some((partition_key, position))) => {
                // If a later partition has begun, the partition of the last row has no more rows.
                let is_current = self.partition.key.as_deref() == Some(&*partition_key);
                Some(PagingState {
                    partition_key,
                    position,
                    result_rows: self.rows_before + self.row_count as u64,
                    partition_result_rows: if is_current { self.partition.result_rows } else { u64::MAX },
                    has_rows: !is_current || self.partition.has_rows,
                    is_unread: self.resumes_at_last,
                })
            }
            _ => None,
        };
        Ok(ResultPage { rows: self.out, row_count: self.row_count, paging_state, met: self.met })
    }

    /// Whether the pages before have come further than this row, so that the page cannot end with it: a partition of a table with a cap is
    /// read from its first row on for each page.
    pub fn is_on_earlier_page(&self, partition_key: &[u8], position: &[u8]) -> bool {
        self.capped.as_ref().is_some_and(|capped| capped.is_on_earlier_page(partition_key, position))
    }

    /// Records that everything before a row was read, so that the next page begins with that row. Other flows than
    /// [`Flow::Continue`]: the page has ended before.
    pub fn passed_up_to(&mut self, partition_key: &[u8], position: &[u8]) -> Result<Flow> {
        if self.partition.key.as_deref() != Some(partition_key) {
            let flow = self.end_partition()?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
            self.partition = PartitionState { key: Some(partition_key.into()), ..PartitionState::default() };
        }
        self.last = Some((partition_key.to_vec(), position.to_vec()));
        self.resumes_at_last = true;
        Ok(Flow::Continue)
    }

    /// The columns of rows that are read, if each has one cell.
    pub fn simple_columns(&self) -> Option<&'p [u32]> {
        self.plan.layout.simple_columns()
    }

    /// Whether the run reads nothing of rows but their keys: an empty row does for any.
    pub fn reads_keys_only(&self) -> bool {
        self.plan.layout.reads_keys_only()
            && !self.capped.as_ref().is_some_and(|capped| capped.needs_timestamps())
    }

    /// The rows of each partition that the run wants, if that does not depend on what they contain.
    pub fn partition_head(&self) -> Option<PartitionHead> {
        if !self.plan.layout.shows_every_row() {
            return None;
        }
        // Filters of DISTINCT are on columns that all rows of a partition share.
        if self.plan.distinct {
            return Some(PartitionHead::OneRow);
        }
        let takes_every_row = !self.plan.is_grouped() && self.filters.is_empty() && self.capped.is_none();
        self.per_partition_limit.filter(|_| takes_every_row).map(PartitionHead::RegularRows)
    }

    /// The most rows that the reader should request before it asks again.
    pub fn wanted_rows(&self) -> usize {
        let wanted = if self.filters.is_empty() { self.wanted_result_rows() } else { usize::MAX };
        let Some(capped) = &self.capped else { return wanted };
        let wanted = if capped.skips_rows() { usize::MAX } else { wanted };
        match &self.plan.restrictions.partition {
            // More rows of a partition are not there.
            PartitionRestriction::Keys(_) => wanted.min(capped.left().max(1) as usize),
            PartitionRestriction::Range(_) => wanted,
        }
    }

    /// The most rows that pass the filters which the reader should request before it asks again.
    pub fn wanted_result_rows(&self) -> usize {
        if self.plan.is_grouped() || self.nearest.is_some() || self.sorts_capped() {
            return usize::MAX;
        }
        let page = self.bounds.rows.map_or(usize::MAX, |rows| rows - self.row_count.min(rows));
        let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        // One more row shows whether the page is the last.
        page.min(limit).saturating_add(1)
    }

    /// Whether the rows of a table with a cap are sorted: the first ones of the answer are among the last ones that are read.
    fn sorts_capped(&self) -> bool {
        self.capped.is_some() && !self.plan.result_order.is_empty()
    }

    /// Whether a group is open: cutting off the page here would lose it.
    pub fn has_open_group(&self) -> bool {
        self.group.is_some()
    }

    fn take(&mut self, source: &SourceRow<'_>, row: Option<RowRef<'_>>) -> Result<Flow> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let statics = self.partition.statics.take();
        let outcome = self.take_with(source, row, statics.as_ref(), &mut scratch);
        self.scratch = scratch;
        self.partition.statics = statics;
        outcome
    }

    fn take_with(
        &mut self,
        source: &SourceRow<'_>,
        row: Option<RowRef<'_>>,
        statics: Option<&(OwnedValues, Vec<Vec<CellTime>>)>,
        scratch: &mut RowScratch,
    ) -> Result<Flow> {
        let mut slots = SlotBuffer::default();
        let values = self.plan.layout.read(
            source.partition_key,
            source.position,
            row,
            statics.map(|(values, times)| (values, times.as_slice())),
            self.now_seconds,
            &mut slots,
            scratch,
        )?;
        if !self.filters.is_empty() && !self.filters.accept(&values)? {
            self.remember(source);
            return Ok(Flow::Continue);
        }
        if self.plan.is_grouped() {
            return self.group_row(source, &values);
        }
        if let (Some(nearest), Some(plan)) = (&self.nearest, &self.plan.nearest)
            && nearest.similarity(values.get(plan.slot)).is_none()
        {
            return Ok(Flow::Continue);
        }
        if self.is_page_full() {
            return Ok(Flow::PageFull);
        }
        let context = RowContext {
            values: &values,
            aggregates: &[],
            bindings: self.bindings,
            now_seconds: self.now_seconds,
        };
        self.emit(&context)?;
        self.remember(source);
        Ok(self.after_emit())
    }

    fn take_directly(&mut self, source: &SourceRow<'_>, rows: &DirectRows) -> Result<Flow> {
        if self.is_page_full() {
            return Ok(Flow::PageFull);
        }
        self.make_room();
        rows.write(source, self.now_seconds, &mut self.out)?;
        self.row_count += 1;
        self.remember(source);
        Ok(self.after_emit())
    }

    fn is_page_full(&self) -> bool {
        self.bounds.rows.is_some_and(|rows| self.row_count >= rows) || self.out.len() >= self.bounds.bytes
    }

    fn after_emit(&mut self) -> Flow {
        // After a paging state that has left the partition this stays at its limit, also if rows were written behind
        // it since.
        self.partition.result_rows = self.partition.result_rows.saturating_add(1);
        if let Some(limit) = &mut self.limit
            && self.plan.result_order.is_empty()
            && self.nearest.is_none()
        {
            *limit -= 1;
            if *limit == 0 {
                return Flow::Done;
            }
        }
        if self.per_partition_limit.is_some_and(|limit| self.partition.result_rows >= limit) {
            return Flow::SkipPartition;
        }
        Flow::Continue
    }

    /// Remembers the address of a row that was consumed or left out, if the page may end with it.
    #[inline]
    fn remember(&mut self, source: &SourceRow<'_>) {
        // With groups, only the next group shows that the page is full.
        if !self.plan.is_grouped() && !self.is_page_full() {
            return;
        }
        let (key, position) = self.last.get_or_insert_default();
        key.clear();
        key.extend_from_slice(source.partition_key);
        position.clear();
        position.extend_from_slice(source.position);
    }

    /// Ends a partition. A partition with only static content returns one row.
    fn end_partition(&mut self) -> Result<Flow> {
        if self.partition.has_rows || !self.plan.returns_static_only || self.plan.distinct {
            return Ok(Flow::Continue);
        }
        let Some(statics) = self.partition.statics.take() else { return Ok(Flow::Continue) };
        let key = self.partition.key.clone().ok_or_else(no_partition)?;
        let source = SourceRow { partition_key: &key, position: STATIC_POSITION, row: RowRef::new(&[], 0) };
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.take_with(&source, None, Some(&statics), &mut scratch);
        self.scratch = scratch;
        self.partition.statics = Some(statics);
        Ok(match outcome? {
            Flow::SkipPartition => Flow::Continue,
            flow => flow,
        })
    }

    fn group_row(&mut self, source: &SourceRow<'_>, values: &RowValues<'_>) -> Result<Flow> {
        let context =
            RowContext { values, aggregates: &[], bindings: self.bindings, now_seconds: self.now_seconds };
        let mut key = Vec::with_capacity(self.plan.group_by.len());
        for selector in &self.plan.group_by {
            key.push(evaluate(selector, &context)?.map(std::borrow::Cow::into_owned));
        }
        if self.group.as_ref().is_some_and(|group| group.key != key) {
            match self.end_group()? {
                Flow::Continue => {}
                flow => return Ok(flow),
            }
            if self.is_page_full() {
                return Ok(Flow::PageFull);
            }
        }
        if self.group.is_none() {
            let states = self.plan.selection.aggregates.iter().map(|a| a.function.new_state()).collect();
            self.group =
                Some(Group { key, first: values.to_owned_values(), times: values.times.to_vec(), states });
        }
        if let Some(group) = &mut self.group {
            for (aggregate, state) in self.plan.selection.aggregates.iter().zip(&mut group.states) {
                let mut arguments = Vec::with_capacity(aggregate.arguments.len());
                for argument in &aggregate.arguments {
                    arguments.push(evaluate(argument, &context)?);
                }
                let borrowed: Vec<Option<&[u8]>> = arguments.iter().map(Option::as_deref).collect();
                state.add(&borrowed, self.bindings.call)?;
            }
        }
        self.remember(source);
        Ok(Flow::Continue)
    }

    fn end_group(&mut self) -> Result<Flow> {
        let Some(group) = self.group.take() else { return Ok(Flow::Continue) };
        let results = self.results(&group.states)?;
        let mut slots = SlotBuffer::default();
        let values = RowValues::from_owned(&group.first, &group.times, &mut slots);
        let context = RowContext {
            values: &values,
            aggregates: &results,
            bindings: self.bindings,
            now_seconds: self.now_seconds,
        };
        self.emit(&context)?;
        Ok(self.after_emit())
    }

    fn results(&self, states: &[AggregateState]) -> Result<Vec<Option<Vec<u8>>>> {
        states.iter().map(|state| state.result(self.bindings.call)).collect()
    }

    /// Aggregates over no rows still return one row.
    fn emit_empty_aggregate(&mut self) -> Result<()> {
        let states: Vec<AggregateState> =
            self.plan.selection.aggregates.iter().map(|a| a.function.new_state()).collect();
        let results = self.results(&states)?;
        let first: OwnedValues = vec![None; self.plan.fetched.columns.len()];
        let times = vec![Vec::new(); self.plan.fetched.columns.len()];
        let mut slots = SlotBuffer::default();
        let values = RowValues::from_owned(&first, &times, &mut slots);
        let context = RowContext {
            values: &values,
            aggregates: &results,
            bindings: self.bindings,
            now_seconds: self.now_seconds,
        };
        self.emit(&context)
    }

    /// Reserves capacity for the expected number of rows, from the size of the first one.
    #[inline]
    fn make_room(&mut self) {
        if self.row_count != 1 {
            return;
        }
        let limit = self.limit.map_or(EXPECTED_ROWS, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let rows = self.bounds.rows.map_or(limit, |page| limit.min(page));
        self.out.reserve(self.out.len().saturating_mul(rows).min(EXPECTED_BYTES_MAX));
    }

    fn emit(&mut self, context: &RowContext<'_, '_>) -> Result<()> {
        self.make_room();
        if let Some(slots) = &self.plan.plain_slots {
            for &slot in slots {
                codec::write_field(context.values.get(slot), &mut self.out);
            }
            self.row_count += 1;
            return Ok(());
        }
        let mut row = Vec::new();
        let mut bytes_left = COMPUTED_ROW_BYTES_MAX;
        if let Some(names) = &self.json_names {
            let mut cells = Vec::with_capacity(names.len());
            for selector in &self.plan.selection.selectors {
                cells.push(evaluate_within(selector, context, &mut bytes_left)?);
            }
            let mut text = String::from("{");
            for ((name, cell), column) in names.iter().zip(&cells).zip(&self.plan.selection.columns) {
                if text.len() > 1 {
                    text.push_str(", ");
                }
                text.push_str(name);
                text.push_str(": ");
                text.push_str(
                    &json::to_json(&column.column_type, cell.as_deref())
                        .map_err(|error| RequestError::Server(error.to_string()))?,
                );
            }
            text.push('}');
            codec::write_element(text.as_bytes(), &mut row);
        } else {
            for selector in &self.plan.selection.selectors {
                let value = evaluate_within(selector, context, &mut bytes_left)?;
                codec::write_field(value.as_deref(), &mut row);
            }
        }
        self.row_count += 1;
        if let (Some(nearest), Some(plan)) = (&mut self.nearest, &self.plan.nearest) {
            if let Some(similarity) = nearest.similarity(context.values.get(plan.slot)) {
                nearest.add(similarity, row);
            }
        } else if self.plan.result_order.is_empty() {
            self.out.extend_from_slice(&row);
        } else {
            let limit = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
            self.collected.add(self.plan, limit, context.values, row);
            if self.capped.is_some() && self.collected.bytes() > SORTED_BYTES_MAX {
                return Err(RequestError::invalid(format!(
                    "A SELECT in the reverse order of a table with a cap may return at most {SORTED_BYTES_MAX} bytes; select less with a LIMIT, or in the table's order"
                )));
            }
        }
        Ok(())
    }
}
