//! A replica's part in a search for the nearest vectors: the rows that its shards find.
//!
//! Invariant: an answer has the nearest rows of the replica, up to limits of their number and bytes. It says so if it knows more.

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
use crate::coordinator::index_file_guard;
use crate::shard::context::ShardContext;
use crate::shard::trace;

/// Most rows of an answer, whatever was asked for.
pub const ROWS_MAX: usize = 65_536;
/// Most bytes of keys in an answer, but for the first key.
const ANSWER_BYTES: usize = 4 << 20;

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

impl NearestAnswer {
    /// Leaves out the rows that are furthest away until it is not too large.
    fn cut(&mut self, bytes_max: usize) {
        let mut bytes = 0;
        let fits = |(number, (_, key)): &(usize, &(f32, Vec<u8>))| {
            bytes += key.len();
            *number == 0 || bytes <= bytes_max
        };
        let kept = self.rows.iter().enumerate().take_while(fits).count();
        self.has_more |= kept < self.rows.len();
        self.rows.truncate(kept);
    }

    /// What is wrong with the answer to a request, if anything.
    pub fn defect(&self, request: &NearestRequest) -> Option<&'static str> {
        if self.rows.len() > request.rows_max as usize {
            return Some("more rows than were asked for");
        }
        if !self.rows.is_sorted_by(|(nearer, _), (further, _)| nearer.total_cmp(further).is_ge()) {
            return Some("rows that are not in the order of their similarities");
        }
        let is_asked_for = |key: &Vec<u8>| {
            let behind = request.ranges.partition_point(|(start, _)| start <= key);
            behind.checked_sub(1).is_some_and(|last| *key < request.ranges[last].1)
        };
        let are_asked_for = self.rows.iter().all(|(_, key)| is_asked_for(key));
        (!are_asked_for).then_some("rows outside of what was asked for")
    }
}

/// Executes a search on this node.
pub async fn receive(context: &Rc<ShardContext>, request: NearestRequest) -> Result<NearestAnswer, Failure> {
    let wait = Duration::from_millis(context.node.config.read_request_timeout_ms);
    epoch::fence(context, request.epoch, wait).await?;
    let rows_max = (request.rows_max as usize).min(ROWS_MAX);
    let request = NearestRequest { rows_max: rows_max as u32, ..request };
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
    let mut answer = NearestAnswer { rows: nearest.into_sorted(), has_more };
    answer.cut(ANSWER_BYTES);
    Ok(answer)
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
            // All rows of parts of partitions are compared, without an index.
            let asks_index = ranges.iter().any(|(start, end)| token_of(start, end).is_none());
            if let (true, Some((start, _)), Some((_, end))) = (asks_index, ranges.first(), ranges.last()) {
                let restricted = search.restrictions.iter().map(|it| it.index);
                let indexes: Vec<IndexId> = std::iter::once(search.index).chain(restricted).collect();
                index_file_guard::check(&context, table, &indexes, (start, end))
                    .map_err(|refusal| refusal.for_peer(&context))?;
            }
            let found = context.shard.find_nearest(table, &search, ranges, now_seconds, until).await?;
            // Ownership may have changed since the search began.
            epoch::refuse_stale(&context, request.epoch)?;
            Ok(found)
        })
    };
    context.run_on(shard, search).await.map_err(|error| Failure::Internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: &[(f32, &[u8])]) -> NearestAnswer {
        let rows = rows.iter().map(|(similarity, key)| (*similarity, key.to_vec())).collect();
        NearestAnswer { rows, has_more: false }
    }

    #[test]
    fn an_answer_that_is_too_large_keeps_the_nearest_rows_and_says_that_there_are_more() {
        let whole = answer(&[(0.9, b"aaaa"), (0.5, b"bb"), (0.4, b"cc")]);
        for (bytes_max, kept, has_more) in [(8, 3, false), (7, 2, true), (5, 1, true), (1, 1, true)] {
            let mut cut = whole.clone();
            cut.cut(bytes_max);
            assert_eq!((&cut.rows[..], cut.has_more), (&whole.rows[..kept], has_more), "{bytes_max}");
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_the_request_is_seen() {
        let range = |start: &[u8], end: &[u8]| (start.to_vec(), end.to_vec());
        let request = NearestRequest {
            epoch: 1,
            table_id: 1,
            ranges: vec![range(b"b", b"d"), range(b"f", b"h")],
            index: 1,
            target: Vec::new(),
            restrictions: Vec::new(),
            rows_max: 3,
            now_seconds: 0,
            patience_ms: 1,
        };
        let has_defect = |rows: &[(f32, &[u8])]| answer(rows).defect(&request).is_some();
        assert!(!has_defect(&[]));
        assert!(!has_defect(&[(0.5, b"g"), (0.5, b"b"), (0.25, b"f")]));
        assert!(has_defect(&[(0.5, b"g"), (0.5, b"b"), (0.25, b"f"), (0.1, b"c")]));
        assert!(has_defect(&[(0.5, b"g"), (0.75, b"b")]));
        for outside in [b"a", b"d", b"e", b"h", b"i"] {
            assert!(has_defect(&[(0.5, outside)]), "{outside:?}");
        }
    }
}
