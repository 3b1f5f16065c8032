//! Searches by indexes on replicas: the keys of rows that may be found.
//!
//! As many replicas search as the level asks for, and the union of what they find is read at the level. So a row that an acknowledged write has
//! made part of the result is found, whichever replica has it; and what one replica finds that others know better is left out when the row is read.
//!
//! Invariant: where several replicas search, they do so by the same restrictions, of which one at most is on cells. The columns of a row may have reached
//! different replicas, so that none of them finds it by all restrictions; but the level has a replica that has the column of the one, and with it the key of
//! the row. A replica that answers alone searches by all restrictions: what it does not have, a read of it would not return either.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use helenus_engine::secondary_index::IndexSearch;
use helenus_engine::shard::FoundKeys;
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::error::{FailureReason, Result};
use helenus_query::plan::index_search::BoundSearch;
use helenus_ring::member::Member;
use helenus_ring::metadata::CASSANDRA_5_SCHEMAS;

use super::epoch;
use super::failures::{failure_reason, read_failure};
use super::latency::rings;
use super::message::{ReplicaRequest, ReplicaResponse};
use super::ranges::nearest_first;
use super::read::{LevelGroup, RangeRead, level_group, read_timeout};
use super::search_answer::{SearchAnswer, SearchRequest, encode, join};
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;
use crate::shard::{receipt, trace};
use helenus_ring::consistency::RequiredReplicas;

/// The share of the timeout after which another replica is asked.
const SPECULATED_AFTER: u32 = 4;

/// The answer of a replica that was asked.
type Asking<A> = LocalBoxFuture<'static, (Arc<Member>, Result<A, PeerError>)>;

/// Finds the first keys of a range at the level of a read, at least one if there is any. A part may be shorter than asked for; its `resume` shows
/// whether there may be more.
pub async fn find_range_part(
    context: &Rc<ShardContext>,
    read: &RangeRead<'_>,
    search: &BoundSearch,
    keys_max: usize,
) -> Result<FoundKeys> {
    loop {
        let LevelGroup { epoch, group } = level_group(context, read)?;
        let demand = &group.demand;
        let searches = possible_searches(context, demand, search);
        let search = context.shard.cheapest_search(read.table.engine_id(), searches)?;
        let mut restrictions = search.restrictions.iter().map(encode);
        let Some(restriction) = restrictions.next() else {
            unreachable!("a search has restrictions");
        };
        let request = SearchRequest {
            epoch,
            table_id: read.table.id.as_u128(),
            start: read.start.clone(),
            end: group.end.clone(),
            restriction,
            keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX),
            patience_ms: read.deadline.saturating_sub(context.clock.monotonic()).as_millis() as u64,
        };
        let request = match restrictions.collect::<Vec<_>>() {
            others if others.is_empty() => ReplicaRequest::Search(request),
            others => ReplicaRequest::SearchTogether { search: request, others },
        };
        let members = nearest_first(context, group.members.into_vec());
        let range = (read.start.as_slice(), group.end.as_slice());
        let ask = |member: Arc<Member>| -> Asking<FoundKeys> {
            let left = read.deadline.saturating_sub(context.clock.monotonic());
            let (context, request) = (Rc::clone(context), request.clone());
            let (start, end) = (range.0.to_vec(), range.1.to_vec());
            Box::pin(async move {
                let found = ask_replica(&context, &member, request, (&start, &end), left).await;
                (member, found)
            })
        };
        match search_replicas(context, read, demand, members, ask).await? {
            Searched::Found(parts) => {
                receipt::count_range(u64::from(demand.required()));
                let mut found = join(parts);
                if found.resume.is_none() && group.end < read.end {
                    found.resume = Some(group.end);
                }
                return Ok(found);
            }
            Searched::Stale { epoch } => {
                let left = read.deadline.saturating_sub(context.clock.monotonic());
                if left.is_zero() || !epoch::catch_up(context, epoch, left).await {
                    return Err(read_failure(read.consistency, demand, &[], &[], false));
                }
            }
        }
    }
}

/// The searches of which each finds at the level what it should. Members below the feature level know one restriction only.
pub fn possible_searches(
    context: &ShardContext,
    demand: &RequiredReplicas,
    search: &BoundSearch,
) -> Vec<IndexSearch> {
    if context.cluster_view().topology.feature_level < CASSANDRA_5_SCHEMAS {
        search.by_each()
    } else if demand.required() == 1 || context.has_bug(PlantedBug::SearchTornRows) {
        vec![search.by_all()]
    } else {
        search.whole_at_one_replica()
    }
}

/// The answers of replicas that search.
pub enum Searched<A> {
    Found(Vec<A>),
    /// One of them knows a newer epoch.
    Stale {
        epoch: u64,
    },
}

/// Has as many replicas search as the level needs. `members`: those that have the rows, in the order in which they are asked.
pub async fn search_replicas<A>(
    context: &Rc<ShardContext>,
    read: &RangeRead<'_>,
    demand: &RequiredReplicas,
    members: Vec<Arc<Member>>,
    ask: impl Fn(Arc<Member>) -> Asking<A>,
) -> Result<Searched<A>> {
    let (chosen, spares) = demand.choose(members);
    let mut spares = VecDeque::from(spares);
    let mut asked = FuturesUnordered::new();
    let mut open = chosen.clone();
    asked.extend(chosen.into_iter().map(&ask));
    // Searches take longer than reads of rows, so those say nothing about them.
    let mut alarm = Some(context.clock.sleep(read_timeout(context, read) / SPECULATED_AFTER));
    let mut failures: Vec<(Arc<Member>, FailureReason)> = Vec::new();
    let (mut found, mut answered): (Vec<A>, Vec<Arc<Member>>) = (Vec::new(), Vec::new());
    let is_enough = |answered: &[Arc<Member>]| {
        let is_one = context.has_bug(PlantedBug::SearchOneReplica) && !answered.is_empty();
        is_one || demand.is_met(answered.iter().map(|member| &**member))
    };
    while !is_enough(&answered) {
        // Some levels need replicas of certain data centers: spares are asked until those under way would do.
        while !demand.is_met(answered.iter().chain(&open).map(|member| &**member)) {
            let Some(spare) = spares.pop_front() else {
                return Err(read_failure(read.consistency, demand, &answered, &failures, false));
            };
            open.push(spare.clone());
            asked.push(ask(spare));
        }
        let rings = rings(alarm.as_mut().filter(|_| !spares.is_empty()));
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                // More answers are needed, and no request is under way.
                None => return Err(read_failure(read.consistency, demand, &answered, &failures, false)),
                Some((member, Ok(part))) => {
                    open.retain(|other| other.host_id != member.host_id);
                    found.push(part);
                    answered.push(member);
                }
                Some((_, Err(PeerError::Failed(Failure::StaleRing { epoch })))) => {
                    return Ok(Searched::Stale { epoch });
                }
                Some((member, Err(error))) => {
                    tracing::debug!(node = %member.host_id, %error, "a replica has not answered a search");
                    open.retain(|other| other.host_id != member.host_id);
                    failures.push((member, failure_reason(&error)));
                }
            },
            () = rings => {
                alarm = None;
                context.metrics.speculative_reads.increment();
                trace::note(context, || "The replicas are slow: another one searches".to_owned());
                if let Some(spare) = spares.pop_front() {
                    open.push(spare.clone());
                    asked.push(ask(spare));
                }
            }
        }
    }
    Ok(Searched::Found(found))
}

async fn ask_replica(
    context: &Rc<ShardContext>,
    member: &Member,
    request: ReplicaRequest,
    (start, end): (&[u8], &[u8]),
    left: Duration,
) -> Result<FoundKeys, PeerError> {
    let malformed = |reason: &str| {
        PeerError::from(CallError::Malformed { address: member.internode_address, reason: reason.to_owned() })
    };
    match context.ask(member, context.index as u16, &request, left).await? {
        ReplicaResponse::Found(SearchAnswer { keys, resume }) => {
            let is_inside = |bound: &Vec<u8>| start < bound.as_slice() && bound.as_slice() < end;
            if !resume.as_ref().is_none_or(is_inside) || !keys.is_sorted() {
                return Err(malformed("keys out of order, or outside of what was asked for"));
            }
            Ok(FoundKeys { keys, resume })
        }
        _ => Err(malformed("not the answer to a search")),
    }
}
