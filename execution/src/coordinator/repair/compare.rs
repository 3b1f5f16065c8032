//! Compares ranges of a table among replicas, and makes them equal: parts that differ are divided until they are small.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{StreamExt, TryStreamExt};
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_ring::HostId;
use helenus_ring::member::Member;

use super::digests::{DigestRequest, Division, PARTS_MAX, PartDigest};
use super::message::{RepairRequest, RepairResponse};
use super::reconcile::reconcile;
use super::runs::{Cancelled, RepairRun};
use crate::shard::context::ShardContext;

/// A part of at most this size, on every replica, is not divided any more.
const LEAF_BYTES: u64 = 16 << 10;
/// The same for a part of which a replica has nothing: all of it has to be sent anyway.
const MISSING_LEAF_BYTES: u64 = 1 << 20;
/// Size of the parts of the first comparison.
pub const FIRST_PART_BYTES: u64 = 256 << 10;
/// Most parts into which a part that differs is divided at once.
const DIVIDED_PARTS_MAX: u64 = 256;
/// Small parts that are made equal at a time.
const LEAVES_AT_A_TIME: usize = 4;
/// Longest time for an answer of a replica that is alive.
const ANSWER_DEADLINE: Duration = Duration::from_hours(1);
/// How often a coordinator that waits looks whether the replica is still alive, and the repair still wanted.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why ranges were not repaired.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RangeError {
    /// Ownership has changed since the repair of the ranges began: they are repaired among their present replicas.
    #[error("the ring has changed")]
    RingChanged,
    #[error("the table was dropped")]
    TableDropped,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// Some replicas are down.
    #[error("replicas are down: {}", list(.0))]
    ReplicasDown(Vec<HostId>),
    #[error("replica {host_id}: {reason}")]
    Replica { host_id: HostId, reason: String },
}

fn list(ids: &[HostId]) -> String {
    ids.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}

impl RangeError {
    /// What the failure of a request to a replica means.
    pub fn of_peer(member: &Member, error: PeerError) -> Self {
        match error {
            PeerError::Failed(Failure::StaleRing { .. }) => Self::RingChanged,
            other => Self::Replica { host_id: member.host_id, reason: other.to_string() },
        }
    }
}

/// Ranges of a table with the same replicas.
#[derive(Debug, Clone)]
pub struct Batch {
    pub epoch: u64,
    pub table: TableId,
    /// First and last token of each range.
    pub ranges: Vec<(i64, i64)>,
    /// The number of parts into which each is divided for the first comparison.
    pub parts: u32,
    /// The replicas that take part.
    pub members: Vec<Arc<Member>>,
    pub now_seconds: u32,
}

/// Makes the replicas of a batch equal.
pub async fn repair_batch(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
) -> Result<(), RangeError> {
    let mut leaves = Vec::new();
    let mut level = VecDeque::from([(batch.ranges.clone(), batch.parts)]);
    while let Some((ranges, parts)) = level.pop_front() {
        let digests = digests_of_all(context, run, batch, &ranges, parts).await?;
        let differing = differing_parts(&ranges, parts, &digests);
        let mut to_divide = Vec::new();
        let mut largest = 0;
        for part in differing {
            run.note_difference();
            let leaf_bytes = if part.is_missing { MISSING_LEAF_BYTES } else { LEAF_BYTES };
            if part.bytes <= leaf_bytes || part.tokens.0 == part.tokens.1 {
                leaves.push(part.tokens);
            } else {
                largest = largest.max(part.bytes);
                to_divide.push(part.tokens);
            }
        }
        let parts = (largest / LEAF_BYTES).next_power_of_two().clamp(2, DIVIDED_PARTS_MAX) as u32;
        for some in to_divide.chunks(PARTS_MAX / parts as usize) {
            level.push_back((some.to_vec(), parts));
        }
    }
    let repairs = leaves.into_iter().map(|tokens| reconcile(context, run, batch, tokens));
    futures::stream::iter(repairs).buffer_unordered(LEAVES_AT_A_TIME).try_collect::<()>().await
}

/// A part whose digests differ.
struct Differing {
    /// First and last token.
    tokens: (i64, i64),
    /// The most that a replica has of it.
    bytes: u64,
    /// Whether a replica has nothing of it.
    is_missing: bool,
}

/// The parts whose digests are not the same on all replicas.
fn differing_parts(ranges: &[(i64, i64)], parts: u32, digests: &[Vec<PartDigest>]) -> Vec<Differing> {
    let Some((first, others)) = digests.split_first() else { return Vec::new() };
    let mut differing = Vec::new();
    for (index, digest) in first.iter().enumerate() {
        if others.iter().all(|other| other.get(index) == Some(digest)) {
            continue;
        }
        let part = (index % parts as usize) as u32;
        let range = ranges[index / parts as usize];
        let tokens = Division::new(range, parts).and_then(|division| division.tokens_of(part));
        // A part without tokens has no rows, and the same digest everywhere.
        let Some(tokens) = tokens else { continue };
        let sizes = digests.iter().filter_map(|of_one| of_one.get(index)).map(|digest| digest.bytes);
        let is_missing = sizes.clone().any(|bytes| bytes == 0);
        let bytes = sizes.max().unwrap_or(0);
        differing.push(Differing { tokens: (*tokens.start(), *tokens.end()), bytes, is_missing });
    }
    differing
}

/// The digests of each replica.
async fn digests_of_all(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    ranges: &[(i64, i64)],
    parts: u32,
) -> Result<Vec<Vec<PartDigest>>, RangeError> {
    let request = RepairRequest::Digests(DigestRequest {
        epoch: batch.epoch,
        table_id: u128::from_be_bytes(batch.table.0),
        ranges: ranges.to_vec(),
        parts,
        now_seconds: batch.now_seconds,
    });
    let count = ranges.len() * parts as usize;
    let asked = batch.members.iter().map(|member| {
        let request = &request;
        async move {
            match ask(context, run, member, request).await? {
                RepairResponse::Digests(digests) if digests.len() == count => Ok(digests),
                _ => Err(RangeError::Replica {
                    host_id: member.host_id,
                    reason: "the answer does not have the digests that were asked for".to_owned(),
                }),
            }
        }
    });
    let digests = futures::future::try_join_all(asked).await?;
    run.note_compared(digests.iter().flatten().map(|digest| digest.bytes).sum());
    Ok(digests)
}

async fn ask(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Member,
    request: &RepairRequest,
) -> Result<RepairResponse, RangeError> {
    let asked = context.ask(member, context.index as u16, request, ANSWER_DEADLINE);
    let answer = while_alive(context, run, member, Box::pin(asked)).await?;
    answer.map_err(|error| RangeError::of_peer(member, error))
}

/// Waits for a replica as long as it is alive and the repair is wanted.
pub async fn while_alive<T>(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Member,
    mut answer: LocalBoxFuture<'_, T>,
) -> Result<T, RangeError> {
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            () = context.clock.sleep(LOOK_AGAIN) => {
                run.check(&context.node)?;
                if !context.cluster_view().is_alive(&member.host_id) {
                    return Err(RangeError::ReplicasDown(vec![member.host_id]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(sums: &[(u128, u64)]) -> Vec<PartDigest> {
        sums.iter().map(|&(sum, bytes)| PartDigest { sum, bytes }).collect()
    }

    #[test]
    fn parts_differ_where_any_replica_differs() {
        let ranges = [(0, 9), (100, 100)];
        let answers = [
            digests(&[(1, 10), (2, 20), (3, 30), (0, 0)]),
            digests(&[(1, 10), (2, 20), (3, 30), (0, 0)]),
            digests(&[(1, 10), (9, 90), (4, 30), (0, 0)]),
        ];
        let found = differing_parts(&ranges, 2, &answers);
        let found: Vec<_> = found.iter().map(|part| (part.tokens, part.bytes)).collect();
        assert_eq!(found, [((5, 9), 90), ((100, 100), 30)]);
        assert!(differing_parts(&ranges, 2, &answers[..2]).is_empty());
    }
}
