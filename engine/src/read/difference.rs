//! What one version of a row or of a partition's spans lacks in comparison with the merge of several: what read repair
//! sends.

use crate::cell::{Cell, Deletion};
use crate::codec::DecodeError;
use crate::row::RowRef;
use crate::row_writer::RowWriter;
use crate::span::{Span, SpanSet};

/// Appends (base 0) the parts of `merged` that `own` does not have; false when there are none. `merged` has taken `own` in.
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

/// The parts of the `merged` spans that `own` covers less strongly or not at all.
pub(super) fn missing_spans(merged: &[Span], own: &SpanSet) -> Vec<Span> {
    let mut missing: Vec<Span> = Vec::new();
    let mut push = |start: &[u8], end: &[u8], deletion: Deletion| {
        if start >= end {
            return;
        }
        match missing.last_mut() {
            Some(last) if *last.end == *start && last.deletion == deletion => last.end = end.into(),
            _ => missing.push(Span { start: start.into(), end: end.into(), deletion }),
        }
    };
    for span in merged {
        let (mut at, end): (&[u8], &[u8]) = (&span.start, &span.end);
        let own = own.as_slice();
        let first = own.partition_point(|own| *own.end <= *at);
        for own in own.iter().skip(first).take_while(|own| *own.start < *end) {
            push(at, end.min(&own.start), span.deletion);
            at = at.max(&own.start);
            let to = end.min(&own.end);
            if own.deletion != span.deletion {
                push(at, to, span.deletion);
            }
            at = to;
        }
        push(at, end, span.deletion);
    }
    missing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(spans: &[(u8, u8, i64)]) -> SpanSet {
        let mut set = SpanSet::default();
        for &(start, end, timestamp) in spans {
            set.add(&[start], &[end], Deletion { timestamp, local_deletion_time: 0 });
        }
        set
    }

    proptest! {
        #[test]
        fn what_is_missing_completes_the_own_spans(
            own in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..8),
            other in proptest::collection::vec((0..20_u8, 0..20_u8, 0..5_i64), 0..8),
        ) {
            let mut completed = set(&own);
            let merged = set(&[own, other].concat());
            let missing = missing_spans(merged.as_slice(), &completed);
            for span in &missing {
                for position in span.start[0]..span.end[0] {
                    prop_assert_ne!(completed.covering(&[position]), Some(span.deletion));
                }
            }
            for span in &missing {
                completed.add(&span.start, &span.end, span.deletion);
            }
            for position in 0..20_u8 {
                prop_assert_eq!(completed.covering(&[position]), merged.covering(&[position]));
            }
        }
    }
}
