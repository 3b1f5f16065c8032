//! A replica's part in a search by indexes: the keys that its shards find.
//!
//! Invariant: an answer has all keys up to where it ends. Joined answers end where the first of them does.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, try_join_all};
use helenus_engine::TableId;
use helenus_engine::secondary_index::{IndexId, IndexRestriction, IndexSearch, TermRange};
use helenus_engine::shard::FoundKeys;
use helenus_internode::byte_string;
use helenus_internode::service::Failure;
use serde::{Deserialize, Serialize};

use super::answer::token_of;
use super::epoch;
use crate::coordinator::index_file_guard;
use crate::shard::context::ShardContext;
use crate::shard::trace;

/// Most bytes of keys in the answer of a replica, but for the first key.
const ANSWER_BYTES: usize = 1 << 20;

/// A request to search in a range of full keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchRequest {
    pub epoch: u64,
    pub table_id: u128,
    #[serde(with = "byte_string")]
    pub start: Vec<u8>,
    #[serde(with = "byte_string")]
    pub end: Vec<u8>,
    pub restriction: SearchRestriction,
    /// Most keys of the answer.
    pub keys_max: u32,
    /// The time that the coordinator waits.
    pub patience_ms: u64,
}

/// A restriction of a search: the id of an index, and the terms that are accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchRestriction {
    index: u128,
    terms: SearchTerms,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum SearchTerms {
    OneOf(Vec<Vec<u8>>),
    Between { lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>> },
}

/// The keys that a replica has found, ascending, and where it has stopped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchAnswer {
    pub keys: Vec<Vec<u8>>,
    pub resume: Option<Vec<u8>>,
}

pub fn encode(restriction: &IndexRestriction) -> SearchRestriction {
    SearchRestriction {
        index: u128::from_be_bytes(restriction.index.0),
        terms: match restriction.terms.clone() {
            TermRange::OneOf(terms) => SearchTerms::OneOf(terms),
            TermRange::Between { lower, upper } => SearchTerms::Between { lower, upper },
        },
    }
}

pub fn decode(restriction: SearchRestriction) -> IndexRestriction {
    let terms = match restriction.terms {
        SearchTerms::OneOf(terms) => TermRange::OneOf(terms),
        SearchTerms::Between { lower, upper } => TermRange::Between { lower, upper },
    };
    IndexRestriction { index: IndexId(restriction.index.to_be_bytes()), terms }
}

/// Executes a search on this node, by the restriction of the request and others together.
pub async fn receive(
    context: &Rc<ShardContext>,
    request: SearchRequest,
    others: Vec<SearchRestriction>,
) -> Result<SearchAnswer, Failure> {
    let wait = Duration::from_millis(context.node.config.read_request_timeout_ms);
    epoch::fence(context, request.epoch, wait).await?;
    let keys_max = request.keys_max as usize;
    let shards = match token_of(&request.start, &request.end) {
        Some(token) => {
            let shard = context.node.shard_of(token);
            shard..shard + 1
        }
        None => 0..context.node.shard_count(),
    };
    let restrictions = [request.restriction.clone()].into_iter().chain(others).map(decode).collect();
    let search = Arc::new(IndexSearch { restrictions });
    let searches = shards.map(|shard| search_on(context, shard, request.clone(), Arc::clone(&search)));
    let mut found = join(try_join_all(searches).await?);
    trace::note(context, || format!("Found {} keys by indexes", found.keys.len()));
    let mut bytes = 0;
    let fits = |(number, key): &(usize, &Vec<u8>)| {
        bytes += key.len();
        *number < keys_max && (*number == 0 || bytes <= ANSWER_BYTES)
    };
    let kept = found.keys.iter().enumerate().take_while(fits).count();
    if let Some(next) = found.keys.get(kept) {
        found.resume = Some(next.clone());
        found.keys.truncate(kept);
    }
    Ok(SearchAnswer { keys: found.keys, resume: found.resume })
}

async fn search_on(
    context: &Rc<ShardContext>,
    shard: usize,
    request: SearchRequest,
    search: Arc<IndexSearch>,
) -> Result<FoundKeys, Failure> {
    let search = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, Result<FoundKeys, Failure>> {
        Box::pin(async move {
            let SearchRequest { epoch, table_id, start, end, keys_max, patience_ms, .. } = request;
            let until = context.clock.monotonic() + Duration::from_millis(patience_ms);
            let table = TableId(table_id.to_be_bytes());
            let indexes: Vec<IndexId> = search.restrictions.iter().map(|it| it.index).collect();
            index_file_guard::check(&context, table, &indexes, (&start, &end))
                .map_err(|refusal| refusal.for_peer(&context))?;
            let found =
                context.shard.find_keys(table, &search, &start, &end, keys_max as usize, until).await?;
            // Ownership may have changed since the search began.
            epoch::refuse_stale(&context, epoch)?;
            Ok(found)
        })
    };
    context.run_on(shard, search).await.map_err(|error| Failure::Internal(error.to_string()))?
}

/// The union of what was found, up to the first position at which one of the searches stopped.
pub fn join(parts: Vec<FoundKeys>) -> FoundKeys {
    let resume = parts.iter().filter_map(|part| part.resume.clone()).min();
    let keys: BTreeSet<Vec<u8>> = parts.into_iter().flat_map(|part| part.keys).collect();
    let is_known = |key: &Vec<u8>| resume.as_ref().is_none_or(|resume| key < resume);
    FoundKeys { keys: keys.into_iter().filter(is_known).collect(), resume }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_answers_end_where_the_first_of_them_does() {
        let found = |keys: &[u8], resume: Option<u8>| FoundKeys {
            keys: keys.iter().map(|key| vec![*key]).collect(),
            resume: resume.map(|resume| vec![resume]),
        };
        let joined = |parts: &[FoundKeys]| join(parts.to_vec());
        assert_eq!(joined(&[found(&[1, 5], None), found(&[2, 5, 9], None)]), found(&[1, 2, 5, 9], None));
        assert_eq!(
            joined(&[found(&[1, 5], Some(6)), found(&[2, 7, 9], Some(10))]),
            found(&[1, 2, 5], Some(6))
        );
        assert_eq!(joined(&[found(&[], Some(3)), found(&[4], None)]), found(&[], Some(3)));
    }
}
