//! A range of tokens in parts of equal width, as replicas compare them.

use std::ops::RangeInclusive;

/// A range of tokens, divided into parts of equal width.
#[derive(Debug, Clone, Copy)]
pub struct Division {
    first: i64,
    width: u128,
    parts: u32,
}

impl Division {
    /// Whether a range has tokens and is divided into parts.
    pub fn is_possible((first, last): (i64, i64), parts: u32) -> bool {
        first <= last && parts > 0
    }

    /// A range with tokens, divided into at least one part.
    pub fn new(range: (i64, i64), parts: u32) -> Self {
        assert!(Self::is_possible(range, parts), "{range:?} cannot be divided into {parts} parts");
        let width = range.1.abs_diff(range.0);
        Self { first: range.0, width: u128::from(width) + 1, parts }
    }

    /// The part of a token of the range.
    pub fn part_of(&self, token: i64) -> Option<usize> {
        let distance = u128::try_from(i128::from(token) - i128::from(self.first)).ok()?;
        (distance < self.width).then(|| (distance * u128::from(self.parts) / self.width) as usize)
    }

    /// The tokens of a part; `None` if it has none, because the range has fewer tokens than parts.
    pub fn tokens_of(&self, part: u32) -> Option<RangeInclusive<i64>> {
        let bound = |part: u32| (u128::from(part) * self.width).div_ceil(u128::from(self.parts));
        let token = |distance: u128| (i128::from(self.first) + distance as i128) as i64;
        let (start, end) = (bound(part), bound(part + 1));
        (start < end).then(|| token(start)..=token(end - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_division_are_the_range() {
        let ranges = [(0, 0), (-3, 5), (0, 1), (i64::MIN + 1, i64::MAX), (i64::MAX - 2, i64::MAX)];
        for range in ranges {
            for parts in [1, 2, 3, 7, 16, 16_384] {
                let division = Division::new(range, parts);
                let mut next = i128::from(range.0);
                for part in 0..parts {
                    let Some(tokens) = division.tokens_of(part) else { continue };
                    assert_eq!(i128::from(*tokens.start()), next);
                    for token in [*tokens.start(), *tokens.end()] {
                        assert_eq!(division.part_of(token), Some(part as usize), "{range:?} {parts}");
                    }
                    next = i128::from(*tokens.end()) + 1;
                }
                assert_eq!(next, i128::from(range.1) + 1);
            }
        }
        assert!(!Division::is_possible((1, 0), 1) && !Division::is_possible((0, 0), 0));
        assert_eq!(Division::new((0, 9), 2).part_of(10), None);
    }
}
