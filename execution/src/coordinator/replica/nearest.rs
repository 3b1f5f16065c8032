//! Searches for the nearest vectors on replicas.
//!
//! As many replicas search each range as the level asks for. A replica compares the vectors that it has: a row counts with the vector and the other
//! columns that this replica knows. The coordinator reads what they name at the level.
//!
//! Invariant: where several replicas search, they do so by the restrictions on the key only. The writes of a row may have reached different replicas, so
//! that the one with its vector does not have its other columns; but the vector has the key with it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, try_join_all};
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::error::Result;
use helenus_query::plan::nearest::BoundNearest;
use helenus_ring::HostId;
use helenus_ring::member::Member;

use super::failures::read_failure;
use super::message::{ReplicaRequest, ReplicaResponse};
use super::nearest_answer::{NearestAnswer, NearestRequest};
use super::ranges::nearest_first;
use super::read::{LevelGroup, RangeRead, level_group};
use super::search::{Searched, search_replicas};
use super::{epoch, search_answer};
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;
use helenus_ring::consistency::RequiredReplicas;

/// The rows that replicas have found.
#[derive(Debug, Default)]
pub struct Found {
    /// The full keys.
    pub keys: Vec<Vec<u8>>,
    /// No row that was not found is nearer than this, as far as the replicas know. `None`: they know no more rows.
    pub bound: Option<f32>,
    /// A replica has named fewer rows than were wanted, because its answer would have been too large.
    pub is_cut: bool,
}

impl Found {
    fn add(&mut self, answer: NearestAnswer, wanted: usize) {
        if answer.has_more {
            self.is_cut |= answer.rows.len() < wanted;
            let last = answer.rows.last().map_or(f32::INFINITY, |(similarity, _)| *similarity);
            self.bound = Some(self.bound.map_or(last, |bound| bound.max(last)));
        }
        self.keys.extend(answer.rows.into_iter().map(|(_, key)| key));
    }
}

/// Ranges that the same replicas search.
struct Part {
    demand: RequiredReplicas,
    members: Vec<Arc<Member>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Finds the nearest rows of ranges at the level of a read, `wanted` or fewer of each replica. The bounds of `read` do not count.
pub async fn find_nearest(
    context: &Rc<ShardContext>,
    read: &RangeRead<'_>,
    ranges: &[(Vec<u8>, Vec<u8>)],
    search: &BoundNearest,
    wanted: usize,
) -> Result<Found> {
    loop {
        let (epoch, parts) = parts_of(context, read, ranges)?;
        let request = |part: &Part| {
            let is_alone = part.demand.required() == 1 || context.has_bug(PlantedBug::SearchTornRows);
            let search = if is_alone { search.by_all(wanted) } else { search.by_keys(wanted) };
            NearestRequest {
                epoch,
                table_id: read.table.id.as_u128(),
                ranges: part.ranges.clone(),
                index: u128::from_be_bytes(search.index.0),
                target: search.target,
                restrictions: search.restrictions.iter().map(search_answer::encode).collect(),
                rows_max: u32::try_from(search.wanted).unwrap_or(u32::MAX),
                now_seconds: read.now_seconds,
                patience_ms: read.deadline.saturating_sub(context.clock.monotonic()).as_millis() as u64,
            }
        };
        let searches = parts.iter().map(|part| {
            let request = request(part);
            async move {
                let members = nearest_first(context, part.members.clone());
                let ask = |member: Arc<Member>| ask_replica(context, read, member, request.clone());
                search_replicas(context, read, &part.demand, members, ask).await
            }
        });
        let (mut found, mut stale) = (Found::default(), None);
        for searched in try_join_all(searches).await? {
            match searched {
                Searched::Found(answers) => answers.into_iter().for_each(|answer| found.add(answer, wanted)),
                Searched::Stale { epoch } => stale = Some(epoch),
            }
        }
        let Some(epoch) = stale else { return Ok(found) };
        let left = read.deadline.saturating_sub(context.clock.monotonic());
        if left.is_zero() || !epoch::catch_up(context, epoch, left).await {
            let demand = parts.first().map(|part| &part.demand);
            return match demand {
                Some(demand) => Err(read_failure(read.consistency, demand, &[], &[], false)),
                None => Ok(found),
            };
        }
    }
}

/// The ranges by the replicas that have them, all of one epoch.
fn parts_of(
    context: &ShardContext,
    read: &RangeRead<'_>,
    ranges: &[(Vec<u8>, Vec<u8>)],
) -> Result<(u64, Vec<Part>)> {
    let mut parts: BTreeMap<Vec<HostId>, Part> = BTreeMap::new();
    let mut of_epoch = 0;
    for (start, end) in ranges {
        let mut start = start.clone();
        while start < *end {
            let rest = RangeRead { start: start.clone(), end: end.clone(), ..read.clone() };
            let LevelGroup { epoch, group } = level_group(context, &rest)?;
            of_epoch = epoch;
            let mut hosts: Vec<HostId> = group.members.iter().map(|member| member.host_id).collect();
            hosts.sort_unstable();
            let part = parts.entry(hosts).or_insert_with(|| Part {
                demand: group.demand,
                members: group.members.into_vec(),
                ranges: Vec::new(),
            });
            let part_end = group.end.min(end.clone());
            part.ranges.push((start, part_end.clone()));
            start = part_end;
        }
    }
    Ok((of_epoch, parts.into_values().collect()))
}

fn ask_replica(
    context: &Rc<ShardContext>,
    read: &RangeRead<'_>,
    member: Arc<Member>,
    request: NearestRequest,
) -> LocalBoxFuture<'static, (Arc<Member>, Result<NearestAnswer, PeerError>)> {
    let left: Duration = read.deadline.saturating_sub(context.clock.monotonic());
    let context = Rc::clone(context);
    Box::pin(async move {
        let asked = ReplicaRequest::Nearest(request.clone());
        let malformed = |reason: &str| {
            PeerError::from(CallError::Malformed {
                address: member.internode_address,
                reason: reason.to_owned(),
            })
        };
        let answer = match context.ask(&member, context.index as u16, &asked, left).await {
            Ok(ReplicaResponse::Nearest(answer)) => match answer.defect(&request) {
                None => Ok(answer),
                Some(defect) => Err(malformed(defect)),
            },
            Ok(_) => Err(malformed("not the answer to a search for the nearest")),
            Err(error) => Err(error),
        };
        (member, answer)
    })
}
