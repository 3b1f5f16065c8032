//! A SELECT that is ready for execution: its ranges of keys and the rows that it consumes.

use helenus_engine::key;
use helenus_engine::key::STATIC_POSITION;
use helenus_query::error::Result;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::paging::PagingState;
use helenus_query::run::select::{Flow, PageBounds, SelectRun};

use super::Request;
use super::denylist;
use super::key_ranges::ranges;
use crate::coordinator::key_ranges::{KeyRange, KeyRanges};
use crate::shard::context::ShardContext;

/// First byte of the position of a static row.
const STATIC_TAG: u8 = STATIC_POSITION[0];

/// Most rows in one batch from another shard.
pub const BLOCK_ROWS: usize = 5_000;

/// How reading a range ended.
pub enum RangeEnd {
    /// All rows of the range were consumed.
    Complete,
    /// The page is full, or the answer is complete.
    Finished(bool),
    /// The work budget of the turn is spent. Holds the unread rest of the range.
    BudgetSpent(KeyRange),
}

/// A SELECT with its ranges of keys.
pub struct PreparedRead {
    pub ranges: KeyRanges,
    pub paging_state: Option<PagingState>,
    pub bounds: PageBounds,
    pub now_seconds: u32,
}

impl PreparedRead {
    /// Computes the ranges that a SELECT reads. Fails if that is denied.
    pub fn new(context: &ShardContext, request: &Request<'_, SelectPlan>) -> Result<Self> {
        let options = request.options;
        let paging_state = options
            .paging_state
            .as_deref()
            .map(|state| PagingState::decode(state, request.statement.fingerprint, &request.plan().table))
            .transpose()?;
        let ranges = ranges(context, request.plan(), &request.bindings(), paging_state.as_ref())?;
        denylist::check_read(context, request.plan(), &ranges)?;
        let config = &context.node.config;
        let bytes = if options.page_rows.is_some() { config.max_page_bytes } else { config.max_answer_bytes };
        Ok(Self {
            ranges,
            paging_state,
            bounds: PageBounds { rows: options.page_rows, bytes },
            now_seconds: options.now_seconds.unwrap_or_else(|| request.call.now_seconds()),
        })
    }

    /// The run that makes the page of the rows read.
    pub fn run<'r>(&self, request: &'r Request<'_, SelectPlan>) -> Result<SelectRun<'r>> {
        let paging_state = self.paging_state.as_ref();
        SelectRun::new(request.plan(), request.bindings(), self.now_seconds, self.bounds, paging_state)
    }
}

/// Ends the page of a run early, so that the next one continues with the unread rest of a range. Returns whether there are more rows;
/// `None` if the bound of the rest names no row: then the page cannot end here.
pub fn end_early(run: &mut SelectRun<'_>, left: &KeyRange) -> Result<Option<bool>> {
    // The end of a reversed range is the key of the next row followed by a zero byte.
    let next = if left.reversed { left.end.strip_suffix(&[0]) } else { Some(left.start.as_slice()) };
    let Some(Ok(bound)) = next.map(key::KeyRef::parse) else { return Ok(None) };
    // The bound of a range tombstone may lie before every row.
    if !matches!(bound.position.first(), Some(&(key::REGULAR_TAG | STATIC_TAG))) {
        return Ok(None);
    }
    if run.is_on_earlier_page(bound.partition_key, bound.position) {
        return Ok(None);
    }
    let flow = run.passed_up_to(bound.partition_key, bound.position)?;
    Ok(Some(flow != Flow::Done))
}
