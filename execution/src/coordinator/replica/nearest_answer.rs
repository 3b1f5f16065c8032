//! A replica's part in a search for the nearest vectors: the rows that its shards find.

use std::rc::Rc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, try_join_all};
use helenus_engine::TableId;
use helenus_engine::secondary_index::{IndexId, NearestSearch};
use helenus_engine::shard::NearestRows;
use helenus_internode::byte_string;
use helenus_internode::service::Failure;
use helenus_vectors::Nearest;
use serde::{Deserialize, Serialize};

use super::answer::token_of;
use super::epoch;
use super::search_answer::{self, SearchRestriction};
use crate::shard::context::ShardContext;
use crate::shard::trace;

/// A request to search in ranges of full keys, which ascend.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NearestRequest {
    pub epoch: u64,
    pub table_id: u128,
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    pub index: u128,
    /// A vector: big-endian floats.
    #[serde(with = "byte_string")]
    pub target: Vec<u8>,
    pub restrictions: Vec<SearchRestriction>,
    pub rows_max: u32,
    pub now_seconds: u32,
    /// The time that the coordinator waits.
    pub patience_ms: u64,
}

/// The rows that a replica has found, the nearest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NearestAnswer {
    /// The similarity and the full key of each.
    pub rows: Vec<(f32, Vec<u8>)>,
    /// It may have more, none of which is nearer.
    pub has_more: bool,
}

/// Executes a search on this node.
pub async fn receive(context: &Rc<ShardContext>, request: NearestRequest) -> Result<NearestAnswer, Failure> {
    let wait = Duration::from_millis(context.node.config.read_request_timeout_ms);
    epoch::fence(context, request.epoch, wait).await?;
    let rows_max = request.rows_max as usize;
    let searches = (0..context.node.shard_count()).filter_map(|shard| {
        let is_of_shard = |(start, end): &(Vec<u8>, Vec<u8>)| {
            token_of(start, end).is_none_or(|token| context.node.shard_of(token) == shard)
        };
        let ranges: Vec<_> = request.ranges.iter().filter(|range| is_of_shard(range)).cloned().collect();
        (!ranges.is_empty()).then(|| search_on(context, shard, NearestRequest { ranges, ..request.clone() }))
    });
    let (mut nearest, mut has_more) = (Nearest::new(rows_max), false);
    for found in try_join_all(searches).await? {
        has_more |= found.has_more;
        for (similarity, key) in found.rows {
            nearest.offer(similarity, key);
        }
    }
    has_more |= nearest.has_left_out();
    trace::note(context, || format!("Found the nearest {} rows by an index", nearest.len()));
    Ok(NearestAnswer { rows: nearest.into_sorted(), has_more })
}

async fn search_on(
    context: &Rc<ShardContext>,
    shard: usize,
    request: NearestRequest,
) -> Result<NearestRows, Failure> {
    let search = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, Result<NearestRows, Failure>> {
        Box::pin(async move {
            let until = context.clock.monotonic() + Duration::from_millis(request.patience_ms);
            let table = TableId(request.table_id.to_be_bytes());
            let search = NearestSearch {
                index: IndexId(request.index.to_be_bytes()),
                target: request.target,
                restrictions: request.restrictions.into_iter().map(search_answer::decode).collect(),
                wanted: request.rows_max as usize,
            };
            let (ranges, now_seconds) = (&request.ranges, request.now_seconds);
            let found = context.shard.find_nearest(table, &search, ranges, now_seconds, until).await?;
            // Ownership may have changed since the search began.
            epoch::refuse_stale(&context, request.epoch)?;
            Ok(found)
        })
    };
    context.run_on(shard, search).await.map_err(|error| Failure::Internal(error.to_string()))?
}
