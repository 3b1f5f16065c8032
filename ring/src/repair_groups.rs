//! What a repair compares together: tokens with the same replicas, and as many of them as are compared at once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::intervals::{intervals, overlaps, share_of_ring};
use crate::member::{HostId, Member};
use crate::placement::Placement;

/// Most ranges that are compared at once …
const BATCH_RANGES_MAX: usize = 512;
/// … and about as many bytes on each replica.
const BATCH_BYTES: f64 = (32 << 20) as f64;

/// Tokens with the same replicas.
pub struct Group {
    /// Those that are to take part.
    pub members: Vec<Arc<Member>>,
    pub tokens: Vec<RangeInclusive<i64>>,
}

/// What is left, by the replicas; and the tokens that are changing hands.
pub fn grouped(
    placement: &Placement,
    left: &[RangeInclusive<i64>],
    takes_part: impl Fn(&Member) -> bool,
) -> (VecDeque<Group>, Vec<RangeInclusive<i64>>) {
    let mut groups: BTreeMap<Vec<HostId>, Group> = BTreeMap::new();
    let mut moving = Vec::new();
    for (range, replicas) in placement.ranges() {
        let found = intervals(&[range]).into_iter().flat_map(|interval| overlaps(left, &interval));
        let found: Vec<_> = found.collect();
        if found.is_empty() || replicas.read.is_empty() {
            continue;
        }
        if !replicas.pending.is_empty() || replicas.other.is_some() {
            moving.extend(found);
            continue;
        }
        let mut members: Vec<_> = replicas.read.iter().filter(|member| takes_part(member)).cloned().collect();
        members.sort_by_key(|member| member.host_id);
        let ids = members.iter().map(|member| member.host_id).collect();
        let group = groups.entry(ids).or_insert_with(|| Group { members, tokens: Vec::new() });
        group.tokens.extend(found);
    }
    moving.sort_unstable_by_key(|interval| *interval.start());
    for group in groups.values_mut() {
        // The range of the smallest token wraps around the ring.
        group.tokens.sort_unstable_by_key(|interval| *interval.start());
    }
    (groups.into_values().collect(), moving)
}

/// As much of these intervals, from the start, as is compared at once, at least something; and the rest.
pub fn fitting(
    all: Vec<RangeInclusive<i64>>,
    ring_bytes: f64,
) -> (Vec<RangeInclusive<i64>>, Vec<RangeInclusive<i64>>) {
    let mut room = BATCH_BYTES;
    let (mut taken, mut rest) = (Vec::new(), Vec::new());
    for interval in all {
        let bytes = share_of_ring(std::slice::from_ref(&interval)) * ring_bytes;
        if !rest.is_empty() || taken.len() >= BATCH_RANGES_MAX {
            rest.push(interval);
        } else if bytes <= room {
            room -= bytes;
            taken.push(interval);
        } else if taken.is_empty() {
            let (start, end) = (i128::from(*interval.start()), i128::from(*interval.end()));
            // At least one token, and at least a thousandth, so that a repair makes progress whatever the sizes are.
            let part = (room / bytes).clamp(1e-3, 1.0);
            let last = (start + ((end - start) as f64 * part) as i128).min(end);
            taken.push(*interval.start()..=last as i64);
            if last < end {
                rest.push((last + 1) as i64..=*interval.end());
            }
        } else {
            rest.push(interval);
        }
    }
    (taken, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::{difference, union};

    #[test]
    fn a_batch_takes_what_fits_and_at_least_something() {
        let ring = vec![i64::MIN + 1..=i64::MAX];
        assert_eq!(fitting(ring.clone(), BATCH_BYTES / 2.0), (ring.clone(), Vec::new()));
        let (taken, rest) = fitting(ring.clone(), BATCH_BYTES * 4.0);
        assert!((share_of_ring(&taken) - 0.25).abs() < 1e-6, "{taken:?}");
        assert_eq!(union(&taken, &rest), ring);
        let many: Vec<_> = (0..1_000).map(|token| 2 * token..=2 * token).collect();
        let (taken, rest) = fitting(many.clone(), 1.0);
        assert_eq!((taken.len(), rest.len()), (BATCH_RANGES_MAX, 1_000 - BATCH_RANGES_MAX));
        let (taken, rest) = fitting(vec![5..=5, 9..=9], f64::MAX);
        assert_eq!((taken, rest), (vec![5..=5], vec![9..=9]));
        let mut left = ring;
        let mut rounds = 0;
        while !left.is_empty() && rounds < 100 {
            let (taken, rest) = fitting(left.clone(), 1e30);
            assert!(!taken.is_empty());
            assert_eq!(difference(&left, &taken), rest);
            left = rest;
            rounds += 1;
        }
    }
}
