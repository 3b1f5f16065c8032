//! The difference between one version and the merge of several, for rows and for the range tombstones of a partition. Read repair
//! sends it.

use crate::cell::{Cell, Deletion};
use crate::codec::DecodeError;
use crate::range_tombstone::{RangeTombstone, RangeTombstoneRef};
use crate::row::RowRef;
use crate::row_writer::RowWriter;

/// Appends the parts of `merged` that `own` lacks (base 0); false if there are none. `own` is one of the merged versions.
pub(super) fn missing_parts(
    merged: RowRef<'_>,
    own: Option<RowRef<'_>>,
    out: &mut Vec<u8>,
) -> Result<bool, DecodeError> {
    let merged = merged.head()?;
    let own = own.map(RowRef::head).transpose()?;
    let liveness = merged.liveness.filter(|it| own.is_none_or(|own| own.liveness.as_ref() != Some(it)));
    let deletion = merged.deletion.filter(|it| own.is_none_or(|own| own.deletion.as_ref() != Some(it)));
    let own_columns: Vec<(u32, Deletion)> = own.map_or_else(Vec::new, |own| own.column_deletions.collect());
    let columns: Vec<_> = merged.column_deletions.filter(|it| !own_columns.contains(it)).collect();
    let mut writer = RowWriter::begin(out, 0, liveness, deletion, &columns);
    let mut own_cells = own.map(|own| own.cells).into_iter().flatten();
    let mut own_cell: Option<Cell<'_>> = own_cells.next();
    for cell in merged.cells {
        while own_cell.is_some_and(|own| own.address() < cell.address()) {
            own_cell = own_cells.next();
        }
        if own_cell != Some(cell) {
            writer.cell(&cell);
        }
    }
    Ok(writer.finish())
}

/// The parts of the `merged` range tombstones that `own` lacks or covers with a weaker deletion.
pub(super) fn missing_range_tombstones(
    merged: &[RangeTombstoneRef<'_>],
    own: &[RangeTombstoneRef<'_>],
) -> Vec<RangeTombstone> {
    let mut missing: Vec<RangeTombstone> = Vec::new();
    let mut push = |start: &[u8], end: &[u8], deletion: Deletion| {
        if start >= end {
            return;
        }
        match missing.last_mut() {
            Some(last) if *last.end == *start && last.deletion == deletion => last.end = end.into(),
            _ => missing.push(RangeTombstone { start: start.into(), end: end.into(), deletion }),
        }
    };
    // Both are in order: what of `own` lies before a range tombstone lies before all later ones.
    let mut rest = own;
    for range_tombstone in merged {
        let (mut at, end) = (range_tombstone.start, range_tombstone.end);
        while let Some((_, after)) = rest.split_first().filter(|(first, _)| first.end <= at) {
            rest = after;
        }
        for own in rest.iter().take_while(|own| own.start < end) {
            push(at, end.min(own.start), range_tombstone.deletion);
            at = at.max(own.start);
            let to = end.min(own.end);
            if own.deletion != range_tombstone.deletion {
                push(at, to, range_tombstone.deletion);
            }
            at = to;
        }
        push(at, end, range_tombstone.deletion);
    }
    missing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::range_tombstone::RangeTombstoneSet;

    fn set(range_tombstones: &[(u8, u8, i64)]) -> RangeTombstoneSet {
        let mut set = RangeTombstoneSet::default();
        for &(start, end, timestamp) in range_tombstones {
            set.add(&[start], &[end], Deletion { timestamp, local_deletion_time: 0 });
        }
        set
    }

    proptest! {
        #[test]
        fn what_is_missing_completes_the_own_range_tombstones(
            own in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..8),
            other in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..8),
        ) {
            let mut completed = set(&own);
            let merged = set(&[own, other].concat());
            let all = |set: &RangeTombstoneSet| set.iter().map(RangeTombstoneRef::detach).collect::<Vec<_>>();
            let (all_merged, all_own) = (all(&merged), all(&completed));
            let missing = missing_range_tombstones(
                &all_merged.iter().map(RangeTombstone::view).collect::<Vec<_>>(),
                &all_own.iter().map(RangeTombstone::view).collect::<Vec<_>>(),
            );
            for range_tombstone in &missing {
                for position in range_tombstone.start[0]..range_tombstone.end[0] {
                    prop_assert_ne!(completed.covering(&[position]), Some(range_tombstone.deletion));
                }
            }
            for range_tombstone in &missing {
                completed.add(&range_tombstone.start, &range_tombstone.end, range_tombstone.deletion);
            }
            for position in 0..20_u8 {
                prop_assert_eq!(completed.covering(&[position]), merged.covering(&[position]));
            }
        }
    }
}
