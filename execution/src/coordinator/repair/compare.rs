//! Compares ranges of a table among replicas, and makes them equal: parts that differ are divided until they are small.

use std::collections::VecDeque;
use std::rc::Rc;

use futures::StreamExt;
use helenus_ring::division::Division;

use super::batch::{Batch, RangeError, ask};
use super::digests::{DigestRequest, PARTS_MAX, PartDigest};
use super::message::{RepairRequest, RepairResponse};
use super::reconcile::reconcile;
use super::runs::RepairRun;
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
/// Tokens, first and last, that were not repaired, and the reason.
pub type Failed = ((i64, i64), RangeError);

/// Ranges that are to be compared, each in this number of parts.
#[derive(Debug, PartialEq, Eq)]
struct Comparison {
    ranges: Vec<(i64, i64)>,
    parts: u32,
}

/// Makes the replicas of a batch equal. What a replica cannot read or write does not hold up the rest: it is returned.
pub async fn repair_batch(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
) -> Result<Vec<Failed>, RangeError> {
    let mut failed = Vec::new();
    let mut left = VecDeque::from([Comparison { ranges: batch.ranges.clone(), parts: batch.parts }]);
    while let Some(mut comparison) = left.pop_front() {
        let digests = match digests_of_all(context, run, batch, &comparison).await {
            Ok(digests) => digests,
            Err(error @ RangeError::Replica { .. }) => {
                // One of the ranges cannot be read: the others are compared without it.
                let half = comparison.ranges.split_off(comparison.ranges.len() / 2);
                if comparison.ranges.is_empty() {
                    failed.extend(half.into_iter().map(|range| (range, error.clone())));
                } else {
                    let parts = comparison.parts;
                    left.extend([comparison, Comparison { ranges: half, parts }]);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let known = digests.iter().map(Vec::len).min().unwrap_or(0);
        left.extend(behind(&comparison, known));
        let mut leaves = Vec::new();
        let mut to_divide = Vec::new();
        let mut largest = 0;
        for part in differing_parts(&comparison, &digests, known) {
            run.note_difference();
            if part.is_leaf() {
                leaves.push(part.tokens);
            } else {
                largest = largest.max(part.bytes);
                to_divide.push(part.tokens);
            }
        }
        let parts = (largest / LEAF_BYTES).next_power_of_two().clamp(2, DIVIDED_PARTS_MAX) as u32;
        for some in to_divide.chunks(PARTS_MAX / parts as usize) {
            left.push_back(Comparison { ranges: some.to_vec(), parts });
        }
        let repairs = leaves.into_iter().map(|tokens| async move {
            let repaired = reconcile(context, run, batch, tokens).await;
            (tokens, repaired)
        });
        let mut repairs = futures::stream::iter(repairs).buffer_unordered(LEAVES_AT_A_TIME);
        while let Some((tokens, repaired)) = repairs.next().await {
            match repaired {
                Ok(()) => {}
                Err(error @ RangeError::Replica { .. }) => failed.push((tokens, error)),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(failed)
}

/// What is left of a comparison whose first parts are known.
fn behind(comparison: &Comparison, known: usize) -> Vec<Comparison> {
    let Comparison { ranges, parts } = comparison;
    let (whole, part) = (known / *parts as usize, (known % *parts as usize) as u32);
    let Some(&range) = ranges.get(whole) else { return Vec::new() };
    if part == 0 {
        return vec![Comparison { ranges: ranges[whole..].to_vec(), parts: *parts }];
    }
    let mut left = Vec::new();
    let division = Division::new(range, *parts);
    let first = (part..*parts).find_map(|part| division.tokens_of(part));
    if let Some(first) = first {
        left.push(Comparison { ranges: vec![(*first.start(), range.1)], parts: parts - part });
    }
    if whole + 1 < ranges.len() {
        left.push(Comparison { ranges: ranges[whole + 1..].to_vec(), parts: *parts });
    }
    left
}

/// A part whose digests differ.
struct Differing {
    /// First and last token.
    tokens: (i64, i64),
    /// The most that a replica has of it.
    bytes: u64,
    /// The most tokens with partitions that a replica has in it.
    token_count: u64,
    /// Whether a replica has nothing of it.
    is_missing: bool,
}

impl Differing {
    /// Whether it is not divided any more.
    fn is_leaf(&self) -> bool {
        let leaf_bytes = if self.is_missing { MISSING_LEAF_BYTES } else { LEAF_BYTES };
        self.bytes <= leaf_bytes || self.token_count <= 1 || self.tokens.0 == self.tokens.1
    }
}

/// Those of the first `known` parts whose digests are not the same on all replicas.
fn differing_parts(comparison: &Comparison, digests: &[Vec<PartDigest>], known: usize) -> Vec<Differing> {
    let Comparison { ranges, parts } = comparison;
    let mut differing = Vec::new();
    for index in 0..known {
        let mut of_part = digests.iter().map(|of_replica| of_replica[index]);
        let Some(first) = of_part.next() else { continue };
        if of_part.clone().all(|other| other == first) {
            continue;
        }
        let range = ranges[index / *parts as usize];
        let part = (index % *parts as usize) as u32;
        // A part without tokens has no rows, whatever a replica says.
        let Some(tokens) = Division::new(range, *parts).tokens_of(part) else { continue };
        let mut found = Differing {
            tokens: (*tokens.start(), *tokens.end()),
            bytes: first.bytes,
            token_count: first.tokens,
            is_missing: first.bytes == 0,
        };
        for other in of_part {
            found.bytes = found.bytes.max(other.bytes);
            found.token_count = found.token_count.max(other.tokens);
            found.is_missing |= other.bytes == 0;
        }
        differing.push(found);
    }
    differing
}

/// The digests of each replica: of the first parts, at least one.
async fn digests_of_all(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    batch: &Batch,
    comparison: &Comparison,
) -> Result<Vec<Vec<PartDigest>>, RangeError> {
    let request = DigestRequest {
        epoch: batch.epoch,
        table_id: u128::from_be_bytes(batch.table.0),
        ranges: comparison.ranges.clone(),
        parts: comparison.parts,
        now_seconds: batch.now_seconds,
    };
    let count = comparison.ranges.len() * comparison.parts as usize;
    let asked = batch.members.iter().map(|member| {
        let request = &request;
        async move {
            let request = if batch.mends(member) {
                RepairRequest::DigestsAroundDamage(request.clone())
            } else {
                RepairRequest::Digests(request.clone())
            };
            match ask(context, run, member, &request).await? {
                RepairResponse::Digests(digests) if (1..=count).contains(&digests.len()) => Ok(digests),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(sums: &[(u128, u64, u64)]) -> Vec<PartDigest> {
        sums.iter().map(|&(sum, bytes, tokens)| PartDigest { sum, bytes, tokens }).collect()
    }

    #[test]
    fn parts_differ_where_any_replica_differs() {
        let comparison = Comparison { ranges: vec![(0, 9), (100, 100)], parts: 2 };
        let answers = [
            digests(&[(1, 10, 1), (2, 20, 1), (3, 30, 1), (0, 0, 0)]),
            digests(&[(1, 10, 1), (2, 20, 1), (3, 30, 1), (0, 0, 0)]),
            digests(&[(1, 10, 1), (9, 90, 3), (4, 30, 1), (0, 0, 0)]),
        ];
        let found = differing_parts(&comparison, &answers, 4);
        let found: Vec<_> = found.iter().map(|part| (part.tokens, part.bytes, part.token_count)).collect();
        assert_eq!(found, [((5, 9), 90, 3), ((100, 100), 30, 1)]);
        assert_eq!(differing_parts(&comparison, &answers, 2).len(), 1);
        assert!(differing_parts(&comparison, &answers[..2], 4).is_empty());
    }

    #[test]
    fn small_parts_and_single_partitions_are_not_divided() {
        let part =
            |bytes, token_count, is_missing| Differing { tokens: (0, 99), bytes, token_count, is_missing };
        assert!(part(LEAF_BYTES, 50, false).is_leaf());
        assert!(!part(LEAF_BYTES + 1, 50, false).is_leaf());
        assert!(part(LEAF_BYTES + 1, 50, true).is_leaf());
        assert!(part(1 << 40, 1, false).is_leaf());
        assert!(!part(1 << 40, 2, true).is_leaf());
    }

    #[test]
    fn a_comparison_goes_on_behind_what_is_known() {
        let comparison = Comparison { ranges: vec![(0, 9), (20, 29), (40, 49)], parts: 5 };
        assert!(behind(&comparison, 15).is_empty());
        assert_eq!(behind(&comparison, 5), [Comparison { ranges: vec![(20, 29), (40, 49)], parts: 5 }]);
        assert_eq!(
            behind(&comparison, 7),
            [
                Comparison { ranges: vec![(24, 29)], parts: 3 },
                Comparison { ranges: vec![(40, 49)], parts: 5 },
            ]
        );
        assert_eq!(behind(&comparison, 14), [Comparison { ranges: vec![(48, 49)], parts: 1 }]);
    }
}
