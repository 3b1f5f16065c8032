//! Where a compaction is cut into subranges, which are merged by jobs of their own.
//!
//! The bounds come from the indexes of the inputs, so that the subranges have about equal bytes.
//!
//! Invariants: bounds ascend. Each lies between two partitions, whatever partitions there are: a partition that is larger than a subrange
//! lies in one that is as large. An output that is cut at tokens never has two parts of one subrange.

use std::sync::Arc;

use super::choice::Split;
use super::merging::KeyRange;
use super::overlap::{part_of, start_of_part};
use crate::key::prefix_length;
use crate::table::TableReader;

/// Separators of an index that are looked at for each subrange.
const SAMPLES_PER_SUBRANGE: u64 = 8;

/// The subranges of a merge, in the order of keys: at least one. `subrange_bytes`: what each has of the input files, about.
pub(crate) fn subranges(inputs: &[Arc<TableReader>], split: &Split, subrange_bytes: u64) -> Vec<KeyRange> {
    let mut bounds = by_bytes(inputs, subrange_bytes);
    if let Split::Parts(parts) = split {
        bounds.extend(starts_of_parts(inputs, *parts));
        bounds.sort_unstable();
        bounds.dedup();
    }
    let mut ranges = Vec::with_capacity(bounds.len() + 1);
    let mut start = Vec::new();
    for bound in bounds {
        ranges.push(KeyRange { start: std::mem::replace(&mut start, bound.clone()), end: Some(bound) });
    }
    ranges.push(KeyRange { start, end: None });
    ranges
}

/// Bounds between which there are about equally many bytes.
fn by_bytes(inputs: &[Arc<TableReader>], subrange_bytes: u64) -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for input in inputs {
        let statistics = input.statistics();
        let Some(blocks) = input.blocks_between(&statistics.min_key, &statistics.max_key) else { continue };
        let wanted = input.file_bytes().saturating_mul(SAMPLES_PER_SUBRANGE) / subrange_bytes.max(1);
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, blocks.len().max(1));
        let separators = input.sample_separators(blocks, count);
        let bytes = input.file_bytes() / (separators.len() as u64 + 1);
        samples.extend(separators.into_iter().map(|separator| (separator, bytes)));
    }
    samples.sort_unstable();
    let first_key =
        inputs.iter().map(|input| input.statistics().min_key.as_slice()).min().unwrap_or_default();
    let mut bounds: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    for (separator, sample_bytes) in samples {
        bytes += sample_bytes;
        let bound = between_partitions(&separator);
        let last = bounds.last().map_or(first_key, Vec::as_slice);
        if bytes >= subrange_bytes && last < bound {
            bounds.push(bound.to_vec());
            bytes = 0;
        }
    }
    bounds
}

/// The greatest bound up to this key that lies between two partitions. `separator`: the beginning of a full key.
fn between_partitions(separator: &[u8]) -> &[u8] {
    // All keys of a partition begin with its prefix, so only a longer bound divides them.
    prefix_length(separator).and_then(|length| separator.get(..length)).unwrap_or(separator)
}

/// The bounds of the parts of the token space that lie between the keys of the inputs.
fn starts_of_parts(inputs: &[Arc<TableReader>], parts: u32) -> impl Iterator<Item = Vec<u8>> {
    let keys = inputs.iter().map(|input| input.statistics());
    let first = keys.clone().map(|it| part_of(parts, &it.min_key)).min().unwrap_or(0);
    let last = keys.map(|it| part_of(parts, &it.max_key)).max().unwrap_or(0);
    (first + 1..=last).map(move |part| start_of_part(parts, part).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::full_key;

    #[test]
    fn a_bound_never_divides_a_partition() {
        let key = full_key(7, b"partition", &[2, 5, 6]).unwrap();
        let prefix_length = key.len() - 3;
        for length in 0..=key.len() {
            assert_eq!(between_partitions(&key[..length]), &key[..length.min(prefix_length)]);
        }
    }

    #[test]
    fn a_part_begins_at_its_first_token() {
        for parts in [1, 2, 3, 4, 7, 1000, u32::MAX] {
            for part in [1, 2, 3, u64::from(parts) / 2, u64::from(parts) - 1] {
                if part == 0 || part >= u64::from(parts) {
                    continue;
                }
                let start = start_of_part(parts, part);
                assert_eq!(part_of(parts, &start), part, "{parts}");
                let before = u64::from_be_bytes(start) - 1;
                assert_eq!(part_of(parts, &before.to_be_bytes()), part - 1, "{parts}");
            }
        }
    }
}
