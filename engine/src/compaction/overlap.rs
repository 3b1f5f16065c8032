//! Tables that overlap: which of them a key has to be looked for in, and the part of the token space that each covers.

use std::collections::BTreeSet;

use super::choice::TableSummary;

/// The least part of the token space that counts as a range. Narrower tables (a single partition) count as if they covered
/// all of it: to cut them at tokens makes no sense.
const LEAST_SPAN: f64 = 1.0 / (1_u64 << 48) as f64;

/// Indexes of tables that all have a point in common.
pub(crate) type Section = BTreeSet<usize>;

/// How far the tables around a section take part in its compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapInclusion {
    /// Only the tables of the section.
    None,
    /// And those of the sections that share a table with it.
    Single,
    /// And those of all sections that are reached through shared tables.
    #[default]
    Transitive,
}

/// The position of a key in the token space, from 0 to 2^64 - 1.
fn place_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (target, byte) in bytes.iter_mut().zip(key) {
        *target = *byte;
    }
    u64::from_be_bytes(bytes)
}

/// The part of the token space between the first and the last key, from 0 to 1.
fn width(first_key: &[u8], last_key: &[u8]) -> f64 {
    place_of(last_key).saturating_sub(place_of(first_key)) as f64 / (u64::MAX as f64 + 1.0)
}

/// The part of the token space that tables between these keys count for, above 0 and at most 1.
pub(crate) fn span(first_key: &[u8], last_key: &[u8]) -> f64 {
    let width = width(first_key, last_key);
    if width < LEAST_SPAN { 1.0 } else { width }
}

/// The share of a table's tokens that none of the others covers.
pub(crate) fn free_share<'a>(table: &TableSummary, others: impl Iterator<Item = &'a TableSummary>) -> f64 {
    let mut covered: Vec<(&[u8], &[u8])> = others
        .map(|other| {
            let first = other.first_key.as_slice().max(&table.first_key);
            (first, other.last_key.as_slice().min(&table.last_key))
        })
        .collect();
    let whole = width(&table.first_key, &table.last_key);
    if covered.is_empty() {
        return 1.0;
    }
    if whole < LEAST_SPAN {
        return 0.0;
    }
    covered.sort_unstable();
    let mut free = whole;
    let mut end: &[u8] = &[];
    for (first, last) in covered {
        free -= width(first.max(end), last);
        end = end.max(last);
    }
    (free / whole).clamp(0.0, 1.0)
}

/// The number of the part that a key lies in, when the token space is cut into parts of equal length.
pub(crate) fn part_of(parts: u32, key: &[u8]) -> u64 {
    ((u128::from(place_of(key)) * u128::from(parts)) >> 64) as u64
}

/// The least key that lies in a part, which must not be the first one.
pub(crate) fn start_of_part(parts: u32, part: u64) -> [u8; 8] {
    let place = (u128::from(part) << 64).div_ceil(u128::from(parts.max(1)));
    (place as u64).to_be_bytes()
}

/// The maximal sections, by key: each is contained in no other one, and no table skips a section between two of its own.
pub(crate) fn sections(tables: &[&TableSummary]) -> Vec<Section> {
    let mut by_first_key: Vec<usize> = (0..tables.len()).collect();
    by_first_key.sort_by_key(|&index| tables.get(index).map(|table| (&table.first_key, table.generation)));
    let mut sections = Vec::new();
    let mut open = Section::new();
    for index in by_first_key {
        let Some(table) = tables.get(index) else { continue };
        let ended = |open: &usize| tables.get(*open).is_some_and(|open| open.last_key < table.first_key);
        if open.iter().any(ended) {
            sections.push(open.clone());
            open.retain(|index| !ended(index));
        }
        open.insert(index);
    }
    if !open.is_empty() {
        sections.push(open);
    }
    sections
}

/// The most tables that have a point in common.
pub(crate) fn most_overlapping(tables: &[&TableSummary]) -> usize {
    let mut first_keys: Vec<&[u8]> = tables.iter().map(|table| table.first_key.as_slice()).collect();
    let mut last_keys: Vec<&[u8]> = tables.iter().map(|table| table.last_key.as_slice()).collect();
    first_keys.sort_unstable();
    last_keys.sort_unstable();
    let (mut most, mut ended) = (0, 0);
    for (begun, first_key) in first_keys.iter().enumerate() {
        while last_keys.get(ended).is_some_and(|last_key| last_key < first_key) {
            ended += 1;
        }
        most = most.max(begun + 1 - ended);
    }
    most
}

/// Neighbouring sections that are compacted together: those of at least `threshold` tables, with what is included around them.
pub(crate) fn buckets(
    sections: &[Section],
    threshold: usize,
    inclusion: OverlapInclusion,
) -> Vec<Vec<&Section>> {
    let mut buckets = Vec::new();
    let mut free_from = 0;
    for (index, section) in sections.iter().enumerate() {
        if section.len() < threshold || index < free_from {
            continue;
        }
        let (mut start, mut end) = (index, index + 1);
        if inclusion != OverlapInclusion::None {
            let mut reached = section.clone();
            let mut takes = |next: &Section| {
                let meets = !next.is_disjoint(&reached);
                if meets && inclusion == OverlapInclusion::Transitive {
                    reached.extend(next);
                }
                meets
            };
            while start > free_from && sections.get(start - 1).is_some_and(&mut takes) {
                start -= 1;
            }
            while sections.get(end).is_some_and(&mut takes) {
                end += 1;
            }
        }
        free_from = end;
        buckets.push(sections.get(start..end).unwrap_or_default().iter().collect());
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(ranges: &[(u8, u8)]) -> Vec<TableSummary> {
        let table = |(generation, (first, last)): (usize, &(u8, u8))| TableSummary {
            generation: generation as u64,
            first_key: vec![*first],
            last_key: vec![*last],
            ..TableSummary::default()
        };
        ranges.iter().enumerate().map(table).collect()
    }

    fn sections_of(ranges: &[(u8, u8)]) -> Vec<Vec<usize>> {
        let tables = tables(ranges);
        let found = sections(&tables.iter().collect::<Vec<_>>());
        found.into_iter().map(|section| section.into_iter().collect()).collect()
    }

    #[test]
    fn sections_are_maximal() {
        // A[0, 3], B[2, 7], C[6, 9], D[1, 8]
        assert_eq!(sections_of(&[(0, 3), (2, 7), (6, 9), (1, 8)]), [vec![0, 1, 3], vec![1, 2, 3]]);
        assert_eq!(sections_of(&[(5, 6), (0, 3)]), [vec![1], vec![0]]);
        assert!(sections_of(&[]).is_empty());
    }

    #[test]
    fn the_most_that_overlap_are_the_largest_section() {
        for ranges in [
            &[(0, 3), (2, 7), (6, 9), (1, 8)][..],
            &[(5, 6), (0, 3)],
            &[(0, 9), (0, 9), (9, 9), (3, 4)],
            &[(7, 7)],
            &[],
        ] {
            let largest = sections_of(ranges).iter().map(Vec::len).max().unwrap_or(0);
            let tables = tables(ranges);
            assert_eq!(most_overlapping(&tables.iter().collect::<Vec<_>>()), largest, "{ranges:?}");
        }
    }

    #[test]
    fn inclusion_reaches_as_far_as_it_says() {
        // AB, BC, CD
        let tables = tables(&[(0, 5), (2, 9), (6, 12), (10, 12)]);
        let sections = sections(&tables.iter().collect::<Vec<_>>());
        let sizes = |inclusion| buckets(&sections, 2, inclusion).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(OverlapInclusion::None), [1, 1, 1]);
        assert_eq!(sizes(OverlapInclusion::Single), [2, 1]);
        assert_eq!(sizes(OverlapInclusion::Transitive), [3]);
        assert!(buckets(&sections, 3, OverlapInclusion::Transitive).is_empty());
    }

    #[test]
    fn the_token_space_is_cut_into_equal_parts() {
        let parts: Vec<u64> = [0, 63, 64, 127, 128, 255].iter().map(|&byte| part_of(4, &[byte])).collect();
        assert_eq!(parts, [0, 0, 1, 1, 2, 3]);
        assert_eq!(part_of(1, &[255; 9]), 0);
        assert_eq!(part_of(3, &[255; 9]), 2);
        assert!((span(&[0], &[128]) - 0.5).abs() < 1e-9);
        assert!((span(&[7; 20], &[7; 20]) - 1.0).abs() < 1e-9);
    }
}
