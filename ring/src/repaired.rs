//! When the tokens of a table were last repaired, and how that is stored:
//!
//! ```text
//! version (u8, 1) | segments: first token, last token (i64), begin of the repair (i64, microseconds), little endian
//! ```
//!
//! Invariant: the segments are sorted and disjoint. Tokens in none of them were never repaired.

use std::ops::RangeInclusive;

use crate::intervals::difference;

const VERSION: u8 = 1;
const SEGMENT_BYTES: usize = 24;

/// Tokens that were repaired at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    first: i64,
    last: i64,
    began_micros: i64,
}

impl Segment {
    fn tokens(&self) -> RangeInclusive<i64> {
        self.first..=self.last
    }
}

/// When the tokens of one table were repaired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Notes a repair of these sorted, disjoint intervals. Where a later one is known, that stays.
    pub fn note(&mut self, repaired: &[RangeInclusive<i64>], began_micros: i64) {
        let later: Vec<_> =
            self.0.iter().filter(|known| known.began_micros >= began_micros).map(Segment::tokens).collect();
        let new = difference(repaired, &later);
        let mut all: Vec<Segment> = Vec::with_capacity(self.0.len() + new.len());
        for known in &self.0 {
            let left = difference(&[known.tokens()], &new);
            all.extend(left.iter().map(|tokens| Segment {
                first: *tokens.start(),
                last: *tokens.end(),
                began_micros: known.began_micros,
            }));
        }
        all.extend(new.iter().map(|tokens| Segment {
            first: *tokens.start(),
            last: *tokens.end(),
            began_micros,
        }));
        all.sort_unstable_by_key(|segment| segment.first);
        self.0.clear();
        for segment in all {
            match self.0.last_mut() {
                Some(last)
                    if last.began_micros == segment.began_micros
                        && last.last.checked_add(1) == Some(segment.first) =>
                {
                    last.last = segment.last;
                }
                _ => self.0.push(segment),
            }
        }
    }

    /// The tokens among these whose last repair began before this time, or that were never repaired.
    pub fn due(&self, tokens: &[RangeInclusive<i64>], before_micros: i64) -> Vec<RangeInclusive<i64>> {
        let recent: Vec<_> =
            self.0.iter().filter(|known| known.began_micros >= before_micros).map(Segment::tokens).collect();
        difference(tokens, &recent)
    }

    /// When the oldest of the last repairs of these tokens began; `None` if some were never repaired.
    pub fn oldest(&self, tokens: &[RangeInclusive<i64>]) -> Option<i64> {
        let known: Vec<_> = self.0.iter().map(Segment::tokens).collect();
        if !difference(tokens, &known).is_empty() {
            return None;
        }
        self.oldest_known(tokens)
    }

    /// As [`Self::oldest`], of those that were repaired; `None`: there are none.
    pub fn oldest_known(&self, tokens: &[RangeInclusive<i64>]) -> Option<i64> {
        let meets = |segment: &&Segment| {
            let begun = tokens.partition_point(|interval| *interval.start() <= segment.last);
            begun > 0 && *tokens[begun - 1].end() >= segment.first
        };
        self.0.iter().filter(meets).map(|segment| segment.began_micros).min()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.0.len() * SEGMENT_BYTES);
        out.push(VERSION);
        for segment in &self.0 {
            for number in [segment.first, segment.last, segment.began_micros] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out
    }

    /// `None`: another version, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else { return None };
        let (segments, rest) = rest.as_chunks::<SEGMENT_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let decoded = segments.iter().map(|bytes| {
            let (numbers, _) = bytes.as_chunks::<8>();
            let [first, last, began_micros] =
                [0, 1, 2].map(|index: usize| i64::from_le_bytes(numbers[index]));
            Segment { first, last, began_micros }
        });
        let decoded: Vec<Segment> = decoded.collect();
        let is_sorted = decoded.windows(2).all(|pair| pair[0].last < pair[1].first);
        (is_sorted && decoded.iter().all(|segment| segment.first <= segment.last)).then_some(Self(decoded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_repair_replaces_an_earlier_one_and_is_not_replaced_by_it() {
        let mut segments = Segments::default();
        assert_eq!(segments.oldest(&[0..=9]), None);
        segments.note(&[0..=99], 10);
        segments.note(&[20..=29, 200..=299], 20);
        segments.note(&[10..=24], 5);
        assert_eq!(segments.oldest(&[0..=99]), Some(10));
        assert_eq!(segments.oldest(&[20..=29, 210..=220]), Some(20));
        assert_eq!(segments.oldest(&[90..=100]), None);
        assert_eq!(
            (segments.oldest_known(&[90..=100]), segments.oldest_known(&[100..=199])),
            (Some(10), None)
        );
        assert_eq!(segments.due(&[0..=299], 20), [0..=19, 30..=199]);
        assert_eq!(segments.due(&[0..=299], 10), [100..=199]);
        assert_eq!(Segments::decode(&segments.encode()), Some(segments));
    }

    #[test]
    fn neighbours_of_one_time_are_one_segment() {
        let mut segments = Segments::default();
        segments.note(&[i64::MIN + 1..=-1], 7);
        segments.note(&[0..=i64::MAX], 7);
        assert_eq!(segments.0.len(), 1);
        segments.note(&[i64::MIN + 1..=i64::MAX], 8);
        assert_eq!(segments.oldest(&[i64::MIN + 1..=i64::MAX]), Some(8));
    }

    #[test]
    fn damaged_histories_are_refused() {
        let mut segments = Segments::default();
        segments.note(&[0..=9], 1);
        segments.note(&[20..=29], 2);
        let bytes = segments.encode();
        assert_eq!(Segments::decode(&[]), None);
        assert_eq!(Segments::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Segments::decode(&[&[2], &bytes[1..]].concat()), None);
        let reversed = [&bytes[..1], &bytes[1 + SEGMENT_BYTES..], &bytes[1..=SEGMENT_BYTES]].concat();
        assert_eq!(Segments::decode(&reversed), None);
    }
}
