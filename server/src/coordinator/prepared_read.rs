//! A SELECT that is ready to be carried out: its ranges of keys and the rows it takes in.

use helenus_engine::key;
use helenus_engine::key::STATIC_POSITION;
use helenus_query::error::Result;
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::paging::Cursor;
use helenus_query::run::select::{PageBounds, SelectRun};
use helenus_query::statement::Statement;

use super::key_ranges::ranges;
use crate::coordinator::key_ranges::{KeyRange, KeyRanges};
use crate::shard::context::ShardContext;

/// First byte of the position of a static row.
const STATIC_TAG: u8 = STATIC_POSITION[0];

/// Rows of a block from another shard.
pub const BLOCK_ROWS: usize = 5_000;

/// How reading a range ended.
pub enum RangeEnd {
    /// All rows were taken in.
    Complete,
    /// The page is full or the answer complete.
    Finished(bool),
    /// The turn is over; the range left to read.
    Turn(KeyRange),
}

/// A SELECT with its ranges found.
pub struct Prepared {
    pub ranges: KeyRanges,
    pub cursor: Option<Cursor>,
    pub bounds: PageBounds,
    pub now_seconds: u32,
}

/// Finds what a SELECT reads.
pub fn prepare(
    context: &ShardContext,
    statement: &Statement,
    plan: &SelectPlan,
    bindings: &Bindings<'_>,
    options: &super::RequestOptions,
) -> Result<Prepared> {
    let cursor = options
        .paging_state
        .as_deref()
        .map(|state| Cursor::decode(state, statement.fingerprint))
        .transpose()?;
    let ranges = ranges(context, plan, bindings, cursor.as_ref())?;
    let bytes = if options.page_rows.is_some() { context.node.config.max_page_bytes } else { usize::MAX };
    Ok(Prepared {
        ranges,
        cursor,
        bounds: PageBounds { rows: options.page_rows, bytes },
        now_seconds: options.now_seconds.unwrap_or_else(|| bindings.call.now_seconds()),
    })
}

/// Tells the run how far reading came, so that the cursor leads on from there. False where the bound names no row.
pub fn mark_passed(run: &mut SelectRun<'_>, left: &KeyRange) -> bool {
    // The end of a reversed range is the next row's key and a zero.
    let next = if left.reversed { left.end.strip_suffix(&[0]) } else { Some(left.start.as_slice()) };
    let Some(Ok(bound)) = next.map(key::KeyRef::parse) else { return false };
    // The bound of a deletion may lie before every row.
    if !matches!(bound.position.first(), Some(&(key::REGULAR_TAG | STATIC_TAG))) {
        return false;
    }
    run.passed_up_to(bound.partition_key, bound.position);
    true
}
