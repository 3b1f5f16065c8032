//! The partitions of a replica with transactions whose outcome is open.

use std::rc::Rc;

use helenus_engine::TableId;
use helenus_engine::key::token_bounds;
use helenus_query::error::{RequestError, Result};

use super::store;
use crate::shard::context::{ShardContext, from_every_shard};

/// Rows that are read in one turn.
const PART_ROWS: usize = 256;
/// Most partitions in one answer.
pub const ANSWER_PARTITIONS_MAX: usize = 1_024;

/// The partitions of a table on this node with open transactions of before that time: the first ones, none only if there are none. The ranges
/// of tokens are sorted and disjoint.
pub async fn open(
    context: &Rc<ShardContext>,
    table: TableId,
    ranges: Vec<(i64, i64)>,
    before_micros: i64,
) -> Result<Vec<(i64, Vec<u8>)>> {
    let of_shards = from_every_shard(context, move |context| {
        let ranges = ranges.clone();
        Box::pin(async move { open_of_shard(&context, table, &ranges, before_micros).await })
    });
    Ok(of_shards.await?.into_iter().flatten().collect())
}

/// The partitions of a table in these sorted, disjoint ranges of tokens whose state on this shard has something open that was begun before
/// that time: the first ones, none only if there are none.
async fn open_of_shard(
    context: &ShardContext,
    table: TableId,
    ranges: &[(i64, i64)],
    before_micros: i64,
) -> Result<Vec<(i64, Vec<u8>)>> {
    let failed = |error: store::StoreError| RequestError::Server(error.to_string());
    let mut found = Vec::new();
    let (Some((first, _)), Some((_, last))) = (ranges.first(), ranges.last()) else { return Ok(found) };
    if !store::has_state(&context.shard) {
        return Ok(found);
    }
    let mut next = Some(token_bounds(&(*first..=*last)).0);
    while let Some(start) = next {
        let read = || store::load_part(&context.shard, &start, PART_ROWS);
        let part = context.shard.read_cold(read).await.map_err(failed)?;
        let last_token = part.states.last().map(|(name, _)| name.token);
        let is_behind = last_token.is_some_and(|token| token > *last);
        for (name, registers) in part.states {
            let range = ranges.partition_point(|range| range.1 < name.token);
            let is_asked_for = ranges.get(range).is_some_and(|range| range.0 <= name.token);
            if is_asked_for && name.table_id == table.0 && registers.is_open_before(before_micros) {
                found.push((name.token, name.key));
            }
        }
        if is_behind || found.len() >= ANSWER_PARTITIONS_MAX {
            break;
        }
        // What lies between the ranges is passed over.
        let behind = ranges.partition_point(|range| last_token.is_some_and(|token| range.1 < token));
        let next_range = ranges.get(behind).map(|(first, last)| token_bounds(&(*first..=*last)).0);
        next = part.resume.zip(next_range).map(|(resume, next_range)| resume.max(next_range));
        tokio::task::yield_now().await;
    }
    Ok(found)
}
