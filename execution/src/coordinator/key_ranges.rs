//! Translates the restrictions of a SELECT into ranges of full keys, starting behind the paging state if there is
//! one.

use helenus_engine::key::{self, PARTITION_END, REGULAR_END, REGULAR_START, STATIC_POSITION};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::restrictions::{PartitionRestriction, TokenBound, TokenRange};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::{Bindings, Bound};
use helenus_query::run::keys::{Slice, clustering_slices, only_row_key, partition_keys, required};
use helenus_query::run::paging::PagingState;
use helenus_query::stored_key::PartitionKey;
use smallvec::{SmallVec, smallvec};

use crate::shard::context::ShardContext;

/// A range of full keys to read, in the direction of the statement.
#[derive(Debug, Clone)]
pub struct KeyRange {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    pub reversed: bool,
    /// The shard that owns all of the range; `None`: the range is spread over all shards.
    pub owner: Option<usize>,
}

impl KeyRange {
    /// Whether the range has the static row of a partition and nothing else.
    pub fn is_static_row(&self) -> bool {
        key::prefix_length(&self.start).is_some_and(|length| {
            let (prefix, position) = self.start.split_at(length);
            position == STATIC_POSITION && self.end.strip_prefix(prefix) == Some(REGULAR_START)
        })
    }
}

/// The ranges of one statement, in its direction. Mostly there is one.
pub type KeyRanges = SmallVec<[KeyRange; 1]>;

/// The ranges to read, in order, starting behind the paging state if there is one.
pub fn ranges(
    context: &ShardContext,
    plan: &SelectPlan,
    bindings: &Bindings<'_>,
    paging_state: Option<&PagingState>,
) -> Result<KeyRanges> {
    match &plan.restrictions.partition {
        PartitionRestriction::Keys(keys) => {
            if let Some(row) = only_row(context, plan, bindings, paging_state)? {
                return Ok(smallvec![row]);
            }
            let mut keys = partition_keys(keys, &plan.table, bindings)?;
            if let Some(tokens) = &plan.restrictions.key_tokens {
                let bounds = token_bounds(tokens, bindings)?;
                keys.retain(|key| {
                    bounds.as_ref().is_some_and(|(start, end)| {
                        let token = key::encode_token(key.token);
                        *start.as_slice() <= token[..] && token[..] < *end.as_slice()
                    })
                });
            }
            let slices = if is_capped(plan) {
                vec![Slice::all_rows()]
            } else {
                clustering_slices(&plan.restrictions.clustering, &plan.table, bindings)?
            };
            let mut ranges = KeyRanges::with_capacity(keys.len() * slices.len());
            // The partitions are in the order of their key values: those before the paging state's partition are
            // complete.
            let mut paging_state = paging_state;
            let first = paging_state
                .map_or(Some(0), |paging_state| {
                    keys.iter().position(|key| key.bytes == paging_state.partition_key)
                })
                .ok_or_else(|| RequestError::Protocol("Invalid value for the paging state".to_owned()))?;
            for key in keys.iter().skip(first) {
                partition_ranges(context, plan, key, &slices, paging_state.take(), &mut ranges)?;
            }
            Ok(ranges)
        }
        PartitionRestriction::Range(tokens) => {
            let Some((mut start, end)) = token_bounds(tokens, bindings)? else {
                return Ok(KeyRanges::new());
            };
            let mut ranges = KeyRanges::new();
            if let Some(paging_state) = paging_state {
                let key = PartitionKey::of(plan.table.partitioner(), paging_state.partition_key.clone());
                let owner = Some(context.node.shard_of(key.token));
                let static_row = full_key(&key, STATIC_POSITION)?;
                // The state of another statement may lie outside of these tokens.
                let is_within = start <= static_row && static_row < end;
                if is_complete(plan, paging_state) {
                    start = start.max(full_key(&key, PARTITION_END)?);
                } else {
                    if plan.reads_static && paging_state.position != STATIC_POSITION && is_within {
                        ranges.push(KeyRange {
                            start: static_row,
                            end: full_key(&key, REGULAR_START)?,
                            reversed: false,
                            owner,
                        });
                    }
                    let mut next = full_key(&key, &paging_state.position)?;
                    if is_capped(plan) {
                        // Where the page has ended before the static row, that is still to be read.
                        next = next.min(full_key(&key, REGULAR_START)?);
                    } else if !paging_state.is_unread {
                        next.push(0);
                    }
                    start = start.max(next);
                }
            }
            if start < end {
                ranges.push(KeyRange { start, end, reversed: false, owner: None });
            }
            Ok(ranges)
        }
    }
}

/// Whether partitions are read from their first row on, whichever of their rows are wanted: the run counts them for the table's cap.
fn is_capped(plan: &SelectPlan) -> bool {
    plan.table.options.cap.is_some()
}

/// Whether a page has ended with all of its last partition: with the row of the partition's static content, which comes where the partition has no
/// other rows, or with the only row of DISTINCT.
fn is_complete(plan: &SelectPlan, paging_state: &PagingState) -> bool {
    !paging_state.is_unread && (plan.distinct || paging_state.position == STATIC_POSITION)
}

/// The range of the only row that the SELECT can return.
fn only_row(
    context: &ShardContext,
    plan: &SelectPlan,
    bindings: &Bindings<'_>,
    paging_state: Option<&PagingState>,
) -> Result<Option<KeyRange>> {
    if paging_state.is_some()
        || plan.reads_static
        || plan.distinct
        || plan.restrictions.key_tokens.is_some()
        || is_capped(plan)
    {
        return Ok(None);
    }
    let Some((token, start)) = only_row_key(&plan.restrictions, &plan.table, bindings)? else {
        return Ok(None);
    };
    let owner = Some(context.node.shard_of(token));
    Ok(Some(KeyRange { end: key::behind(&start), start, reversed: plan.reversed, owner }))
}

fn full_key(key: &PartitionKey, position: &[u8]) -> Result<Vec<u8>> {
    key::full_key(key.token, &key.bytes, position).map_err(|error| RequestError::invalid(error.to_string()))
}

fn partition_ranges(
    context: &ShardContext,
    plan: &SelectPlan,
    key: &PartitionKey,
    slices: &[Slice],
    paging_state: Option<&PagingState>,
    ranges: &mut KeyRanges,
) -> Result<()> {
    let owner = Some(context.node.shard_of(key.token));
    if paging_state.is_some_and(|paging_state| is_complete(plan, paging_state)) {
        return Ok(());
    }
    let whole = matches!(slices, [slice] if *slice == Slice::all_rows());
    if plan.reads_static && whole && !plan.reversed && paging_state.is_none() {
        ranges.push(KeyRange {
            start: full_key(key, STATIC_POSITION)?,
            end: full_key(key, REGULAR_END)?,
            reversed: false,
            owner,
        });
        return Ok(());
    }
    if plan.reads_static {
        ranges.push(KeyRange {
            start: full_key(key, STATIC_POSITION)?,
            end: full_key(key, REGULAR_START)?,
            reversed: false,
            owner,
        });
    }
    let mut add = |slice: &Slice| -> Result<()> {
        let (mut start, mut end) = (slice.start.clone(), slice.end.clone());
        if let Some(paging_state) = paging_state.filter(|_| !is_capped(plan)) {
            let mut at = paging_state.position.clone();
            if plan.reversed == paging_state.is_unread {
                at.push(0);
            }
            if plan.reversed {
                end = end.min(at);
            } else {
                start = start.max(at);
            }
        }
        if start < end {
            ranges.push(KeyRange {
                start: full_key(key, &start)?,
                end: full_key(key, &end)?,
                reversed: plan.reversed,
                owner,
            });
        }
        Ok(())
    };
    // A row that is named exactly is read exactly, so that filters on rows apply.
    let exact = |slice: &Slice| Slice { start: slice.start.clone(), end: key::behind(&slice.start) };
    let names_rows = plan.names_rows() && !is_capped(plan);
    let ordered: Box<dyn Iterator<Item = &Slice>> =
        if plan.reversed { Box::new(slices.iter().rev()) } else { Box::new(slices.iter()) };
    for slice in ordered {
        if names_rows { add(&exact(slice))? } else { add(slice)? }
    }
    Ok(())
}

/// The full keys between two tokens; `None` if there is no token between them.
fn token_bounds(tokens: &TokenRange, bindings: &Bindings<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let token = |bound: &TokenBound| -> Result<i64> {
        if bound.token.evaluate(bindings)? == Bound::Null {
            return Err(RequestError::invalid("Invalid null token value"));
        }
        let bytes = required(&bound.token, "partition key token", bindings)?;
        bytes
            .as_ref()
            .try_into()
            .map(i64::from_be_bytes)
            .map_err(|_| RequestError::invalid("Invalid token: it is not a bigint"))
    };
    let start = match &tokens.lower {
        None => Vec::new(),
        Some(bound) => {
            let value = token(bound)?;
            match if bound.inclusive { Some(value) } else { value.checked_add(1) } {
                Some(first) => key::encode_token(first).to_vec(),
                None => return Ok(None),
            }
        }
    };
    let unbounded = vec![0xFF; 9];
    let end = match &tokens.upper {
        None => unbounded,
        Some(bound) => {
            let value = token(bound)?;
            // The smallest token as an end means the end of the ring.
            if value == i64::MIN {
                unbounded
            } else {
                match if bound.inclusive { value.checked_add(1) } else { Some(value) } {
                    Some(behind) => key::encode_token(behind).to_vec(),
                    None => unbounded,
                }
            }
        }
    };
    Ok((start < end).then_some((start, end)))
}
