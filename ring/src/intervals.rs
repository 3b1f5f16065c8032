//! Token ranges as intervals of tokens and as ranges of keys.

use std::ops::RangeInclusive;

use crate::placement::TokenRange;

/// The smallest token that data can have.
const FIRST_TOKEN: i64 = i64::MIN + 1;

/// The tokens of the ranges as sorted, disjoint intervals. Ranges are `(start, end]` and may wrap around. The one
/// token that data never has is left out.
pub fn intervals(ranges: &[TokenRange]) -> Vec<RangeInclusive<i64>> {
    let mut all: Vec<RangeInclusive<i64>> = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        if range.start < range.end {
            all.push(range.start + 1..=range.end);
            continue;
        }
        if let Some(first) = range.start.checked_add(1) {
            all.push(first..=i64::MAX);
        }
        if range.end > i64::MIN {
            all.push(FIRST_TOKEN..=range.end);
        }
    }
    joined(all)
}

/// Sorts intervals and joins those that touch.
fn joined(mut all: Vec<RangeInclusive<i64>>) -> Vec<RangeInclusive<i64>> {
    all.sort_by_key(|interval| *interval.start());
    let mut joined: Vec<RangeInclusive<i64>> = Vec::with_capacity(all.len());
    for interval in all {
        match joined.last_mut() {
            Some(last) if last.end().checked_add(1).is_none_or(|next| *interval.start() <= next) => {
                *last = *last.start()..=*last.end().max(interval.end());
            }
            _ => joined.push(interval),
        }
    }
    joined
}

/// Converts sorted, disjoint intervals to ranges.
pub fn ranges(intervals: &[RangeInclusive<i64>]) -> Vec<TokenRange> {
    let range = |interval: &RangeInclusive<i64>| TokenRange {
        start: interval.start().saturating_sub(1),
        end: *interval.end(),
    };
    intervals.iter().map(range).collect()
}

/// The tokens of either list.
pub fn union(one: &[RangeInclusive<i64>], other: &[RangeInclusive<i64>]) -> Vec<RangeInclusive<i64>> {
    joined(one.iter().chain(other).cloned().collect())
}

/// The tokens of `from` that are not among `taken`; both sorted and disjoint.
pub fn difference(from: &[RangeInclusive<i64>], taken: &[RangeInclusive<i64>]) -> Vec<RangeInclusive<i64>> {
    let kept = complement(taken);
    let mut left = Vec::new();
    let mut first = 0;
    for interval in from {
        first += kept[first..].partition_point(|kept| kept.end() < interval.start());
        let meeting = kept[first..].iter().take_while(|kept| kept.start() <= interval.end());
        left.extend(
            meeting.map(|kept| *kept.start().max(interval.start())..=*kept.end().min(interval.end())),
        );
    }
    left
}

/// What of sorted, disjoint intervals is in this one.
pub fn overlaps(intervals: &[RangeInclusive<i64>], within: &RangeInclusive<i64>) -> Vec<RangeInclusive<i64>> {
    let first = intervals.partition_point(|interval| interval.end() < within.start());
    let meeting = intervals[first..]
        .iter()
        .take_while(|interval| interval.start() <= within.end())
        .map(|interval| *interval.start().max(within.start())..=*interval.end().min(within.end()));
    meeting.collect()
}

/// The tokens before this one.
pub fn before(intervals: &[RangeInclusive<i64>], token: i64) -> Vec<RangeInclusive<i64>> {
    let begun = intervals.iter().filter(|interval| *interval.start() < token);
    begun.map(|interval| *interval.start()..=(*interval.end()).min(token - 1)).collect()
}

/// Every token of data outside of these sorted, disjoint intervals.
pub fn complement(intervals: &[RangeInclusive<i64>]) -> Vec<RangeInclusive<i64>> {
    let mut left = Vec::with_capacity(intervals.len() + 1);
    let mut next = Some(FIRST_TOKEN);
    for interval in intervals {
        let Some(start) = next else { break };
        if start < *interval.start() {
            left.push(start..=*interval.start() - 1);
        }
        next = interval.end().checked_add(1);
    }
    left.extend(next.map(|start| start..=i64::MAX));
    left
}

fn width(interval: &RangeInclusive<i64>) -> f64 {
    (i128::from(*interval.end()) - i128::from(*interval.start()) + 1) as f64
}

/// The share of the tokens of `all`, from 0 to 1, that is in its subset `part`.
pub fn share(part: &[RangeInclusive<i64>], all: &[RangeInclusive<i64>]) -> f64 {
    let total: f64 = all.iter().map(width).sum();
    if total > 0.0 { part.iter().map(width).sum::<f64>() / total } else { 1.0 }
}

/// The share of the ring, from 0 to 1, that is in these intervals.
pub fn share_of_ring(intervals: &[RangeInclusive<i64>]) -> f64 {
    intervals.iter().map(width).sum::<f64>() / 2_f64.powi(64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_hold_the_same_tokens_and_their_complement_the_others(
            bounds in prop::collection::vec((-20_i64..20, -20_i64..20), 0..5),
            extremes in any::<bool>(),
        ) {
            let stretch = |bound: i64| match bound {
                -20 if extremes => i64::MIN,
                19 if extremes => i64::MAX,
                other => other,
            };
            let ranges: Vec<_> = bounds
                .into_iter()
                .map(|(start, end)| TokenRange { start: stretch(start), end: stretch(end) })
                .collect();
            let inside = intervals(&ranges);
            let outside = complement(&inside);
            for token in (-25..25).chain([i64::MIN + 1, i64::MAX - 1, i64::MAX]) {
                let expected = ranges.iter().any(|range| range.contains(token));
                prop_assert_eq!(inside.iter().any(|interval| interval.contains(&token)), expected);
                prop_assert_eq!(outside.iter().any(|interval| interval.contains(&token)), !expected);
            }
            prop_assert!(!inside.iter().chain(&outside).any(|interval| interval.contains(&i64::MIN)));
            prop_assert!(inside.windows(2).all(|pair| pair[0].end() < pair[1].start()));
        }
    }

    proptest! {
        #[test]
        fn unions_and_differences_have_the_expected_tokens(
            one in prop::collection::vec((-20_i64..20, -20_i64..20), 0..5),
            other in prop::collection::vec((-20_i64..20, -20_i64..20), 0..5),
            limit in -22_i64..22,
        ) {
            let of = |bounds: Vec<(i64, i64)>| {
                let ranges: Vec<_> =
                    bounds.into_iter().map(|(start, end)| TokenRange { start, end }).collect();
                intervals(&ranges)
            };
            let (one, other) = (of(one), of(other));
            let holds = |intervals: &[RangeInclusive<i64>], token: i64| {
                intervals.iter().any(|interval| interval.contains(&token))
            };
            let (both, left) = (union(&one, &other), difference(&one, &other));
            let passed = before(&one, limit);
            for token in (-25..25).chain([i64::MIN + 1, i64::MAX]) {
                prop_assert_eq!(holds(&both, token), holds(&one, token) || holds(&other, token));
                prop_assert_eq!(holds(&left, token), holds(&one, token) && !holds(&other, token));
                prop_assert_eq!(holds(&passed, token), holds(&one, token) && token < limit);
            }
            for within in &other {
                let expected = difference(&one, &difference(&one, std::slice::from_ref(within)));
                prop_assert_eq!(overlaps(&one, within), expected);
            }
            prop_assert_eq!(intervals(&ranges(&one)), one);
        }
    }

    #[test]
    fn shares_grow_with_the_token() {
        let intervals = [0..=9, 20..=29];
        let shares = [-5, 0, 5, 15, 25, 40].map(|token| share(&before(&intervals, token), &intervals));
        let expected = [0.0, 0.0, 0.25, 0.5, 0.75, 1.0];
        assert!(
            shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1e-9),
            "{shares:?}"
        );
        assert!((share_of_ring(&[i64::MIN..=-1]) - 0.5).abs() < 1e-9);
    }
}
