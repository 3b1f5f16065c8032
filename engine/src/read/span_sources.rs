//! The span deletions of all sources of a scan, partition by partition, for readers that want them as such.

use std::rc::Rc;
use std::sync::Arc;

use super::source::Bounds;
use crate::invariant::broken;
use crate::key;
use crate::memtable::SharedMemtable;
use crate::span::{Span, SpanSet};
use crate::table::TableReader;

/// One source that has spans.
pub(crate) enum SpanSource {
    Memtable(Rc<SharedMemtable>),
    Table(Arc<TableReader>),
}

/// Where the search for the next partition with spans stands.
#[derive(Clone, Copy)]
pub(crate) struct SpanSearch<'a> {
    pub bounds: Bounds<'a>,
    /// The prefix of the partition finished last.
    pub done: Option<&'a [u8]>,
    /// The prefix of a partition that comes anyhow: nothing at it or behind it is looked for.
    pub known: Option<&'a [u8]>,
}

impl SpanSearch<'_> {
    /// Whether keys of the partition lie in the range.
    fn overlaps(&self, prefix: &[u8]) -> bool {
        let Bounds { start, end, .. } = self.bounds;
        prefix < end && (prefix >= start || start.starts_with(prefix))
    }

    fn is_wanted(&self, prefix: &[u8]) -> bool {
        let comes_first = |known: &[u8]| if self.bounds.reversed { prefix > known } else { prefix < known };
        self.overlaps(prefix) && self.known.is_none_or(comes_first)
    }

    /// Forwards: whether the partition lies before what is left to search.
    fn is_passed(&self, prefix: &[u8]) -> bool {
        let start = self.bounds.start;
        self.done.map_or(prefix < start && !start.starts_with(prefix), |done| prefix <= done)
    }

    /// Backwards: whether the partition lies in what is left to search.
    fn is_left(&self, prefix: &[u8]) -> bool {
        prefix < self.done.unwrap_or(self.bounds.end)
    }
}

fn prefix_of(key: &[u8]) -> Option<&[u8]> {
    key.get(..key::prefix_length(key)?)
}

impl SpanSource {
    /// The next partition, in the direction of the scan, that has spans here.
    pub fn next_partition(&self, search: &SpanSearch<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Memtable(memtable) => memtable.read(|memtable| {
                let is_wanted = |prefix: &[u8]| search.is_wanted(prefix);
                let found = if search.bounds.reversed {
                    memtable.previous_with_spans(|prefix| search.is_left(prefix), is_wanted)
                } else {
                    memtable.next_with_spans(|prefix| search.is_passed(prefix), is_wanted)
                };
                found.map(<[u8]>::to_vec)
            }),
            Self::Table(table) => {
                let spans = table.spans();
                let found = if search.bounds.reversed {
                    let bound = search.done.unwrap_or(search.bounds.end);
                    let after = spans.first_ending_after(bound);
                    match spans.get(after) {
                        Some(span) if span.start < bound => Some(span),
                        _ => spans.get(after.checked_sub(1)?),
                    }
                } else {
                    let after = match search.done {
                        Some(done) => spans.first_ending_after(&[done, key::PARTITION_END].concat()),
                        None => spans.first_ending_after(search.bounds.start),
                    };
                    spans.get(after)
                };
                let prefix = prefix_of(found?.start);
                if prefix.is_none() {
                    broken!("the span deletions of an open table have whole prefixes");
                }
                let prefix = prefix?;
                search.is_wanted(prefix).then(|| prefix.to_vec())
            }
        }
    }

    /// Adds what covers positions `[low, high)` of a partition.
    pub fn collect(&self, prefix: &[u8], low: &[u8], high: &[u8], into: &mut SpanSet) {
        match self {
            Self::Memtable(memtable) => memtable.read(|memtable| {
                let spans = memtable.spans_of(prefix);
                let first = spans.partition_point(|span| *span.end <= *low);
                let overlapping = spans.iter().skip(first).take_while(|span| *span.start < *high);
                overlapping.for_each(|span| into.add(&span.start, &span.end, span.deletion));
            }),
            Self::Table(table) => {
                let (start, end) = ([prefix, low].concat(), [prefix, high].concat());
                let spans = table.spans();
                let first = spans.first_ending_after(&start);
                let overlapping = (first..spans.len())
                    .map_while(|index| spans.get(index))
                    .take_while(|span| span.start < end.as_slice());
                for span in overlapping {
                    let (Some(start), Some(end)) =
                        (span.start.strip_prefix(prefix), span.end.strip_prefix(prefix))
                    else {
                        broken!("a span deletion that overlaps a partition lies within it");
                        return;
                    };
                    into.add(start, end, span.deletion);
                }
            }
        }
    }
}

/// The spans cut to positions `[low, high)`; neighbours with the same deletion become one, so that equal coverage gives
/// equal spans.
pub(crate) fn cut<'a>(spans: impl IntoIterator<Item = &'a Span>, low: &[u8], high: &[u8]) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::new();
    for span in spans {
        let start = low.max(&span.start);
        let end = high.min(&span.end);
        if start >= end {
            continue;
        }
        match out.last_mut() {
            Some(last) if *last.end == *start && last.deletion == span.deletion => last.end = end.into(),
            _ => out.push(Span { start: start.into(), end: end.into(), deletion: span.deletion }),
        }
    }
    out
}
