//! The merge of what several replicas answered about the same range: what a reader sees, and what each replica lacks.
//! Pure: answers in, values out.
//!
//! Invariants:
//! * Every answer is [`super::Versions`] of the same request. An answer that stopped early says nothing about what lies behind its
//!   bound, so the merge ends at the nearest bound of all: rows beyond it are left for the next read. Nobody's silence
//!   is taken for absence.
//! * Written to the replica that gave an answer, what the answer lacks makes it equal to the merge.

use std::ops::Range;

use smallvec::SmallVec;

use super::difference::{missing_parts, missing_spans};
use crate::codec::DecodeError;
use crate::key::{self, KeyRef};
use crate::mutation::{Mutation, MutationBuilder, MutationRef, Operation};
use crate::reconcile::{Purpose, is_passthrough, merge_rows};
use crate::row::RowRef;
use crate::span::{Span, SpanSet};

/// What one replica said.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// In the order of the read, as in [`super::Versions`].
    pub partitions: &'a [Mutation],
    pub resume: Option<&'a [u8]>,
}

/// The rows that a reader sees, in the order of the read.
#[derive(Debug, Clone, Default)]
pub struct SeenRows {
    bytes: Vec<u8>,
    rows: Vec<SeenRow>,
}

#[derive(Debug, Clone)]
struct SeenRow {
    prefix: Range<usize>,
    position: Range<usize>,
    row: Range<usize>,
}

/// A row that a reader sees.
#[derive(Debug, Clone, Copy)]
pub struct SeenRowRef<'a> {
    /// The partition prefix of its key.
    pub prefix: &'a [u8],
    pub position: &'a [u8],
    /// Base 0.
    pub row: RowRef<'a>,
}

impl<'a> SeenRowRef<'a> {
    pub fn partition_key(&self) -> &'a [u8] {
        self.prefix.get(key::PREFIX_OVERHEAD_BYTES..).unwrap_or_default()
    }
}

impl SeenRows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = SeenRowRef<'_>> {
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        self.rows.iter().map(move |row| SeenRowRef {
            prefix: part(&row.prefix),
            position: part(&row.position),
            row: RowRef::new(part(&row.row), 0),
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// What a merge came to.
#[derive(Debug, Clone, Default)]
pub struct Reconciled {
    pub rows: SeenRows,
    /// For each answer, in their order, what its replica lacks: one mutation a partition.
    pub lacking: Vec<Vec<Mutation>>,
    /// Where another read goes on, as in [`super::Versions`].
    pub resume: Option<Vec<u8>>,
}

/// Merges the answers. `reversed` and `now_seconds` are those of the request.
pub fn reconcile_answers(
    answers: &[Answer<'_>],
    reversed: bool,
    now_seconds: u32,
) -> Result<Reconciled, DecodeError> {
    let bounds = answers.iter().filter_map(|answer| answer.resume);
    let resume = if reversed { bounds.max() } else { bounds.min() };
    let mut sources = Vec::with_capacity(answers.len());
    for answer in answers {
        sources.push(PartitionSource::new(answer.partitions, reversed)?);
    }
    let mut merge = Merge {
        reversed,
        now_seconds,
        bound: resume,
        merged: Vec::new(),
        seen: Vec::new(),
        out: Reconciled {
            rows: SeenRows::default(),
            lacking: vec![Vec::new(); answers.len()],
            resume: resume.map(<[u8]>::to_vec),
        },
    };
    loop {
        let heads = sources.iter().filter_map(PartitionSource::prefix);
        let next = if reversed { heads.max() } else { heads.min() };
        let Some(prefix) = next.map(<[u8]>::to_vec) else { break };
        let parts: SmallVec<[Option<MutationRef<'_>>; 4]> =
            sources.iter_mut().map(|source| source.take(&prefix)).collect();
        if !merge.partition(&prefix, &parts)? {
            break;
        }
    }
    Ok(merge.out)
}

/// The partitions of one answer.
struct PartitionSource<'a> {
    partitions: Vec<(Vec<u8>, MutationRef<'a>)>,
    next: usize,
}

impl<'a> PartitionSource<'a> {
    fn new(mutations: &'a [Mutation], reversed: bool) -> Result<Self, DecodeError> {
        let mut partitions: Vec<(Vec<u8>, MutationRef<'a>)> = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let view = mutation.view()?;
            let prefix = key::full_key(view.token, view.partition_key, &[])
                .map_err(|_| DecodeError::Overflow { what: "a partition key" })?;
            if let Some((last, _)) = partitions.last() {
                let is_in_order = if reversed { prefix < *last } else { prefix > *last };
                if !is_in_order {
                    return Err(DecodeError::Disorder { what: "the partitions of an answer" });
                }
            }
            partitions.push((prefix, view));
        }
        Ok(Self { partitions, next: 0 })
    }

    fn prefix(&self) -> Option<&[u8]> {
        self.partitions.get(self.next).map(|(prefix, _)| prefix.as_slice())
    }

    fn take(&mut self, prefix: &[u8]) -> Option<MutationRef<'a>> {
        let (own, view) = self.partitions.get(self.next)?;
        if own != prefix {
            return None;
        }
        self.next += 1;
        Some(*view)
    }
}

/// One answer's part of a partition.
#[derive(Default)]
struct Part<'a> {
    rows: Vec<(&'a [u8], RowRef<'a>)>,
    next: usize,
    spans: SpanSet,
}

impl<'a> Part<'a> {
    /// Decodes what lies in positions `[low, high)`.
    fn new(
        mutation: Option<MutationRef<'a>>,
        low: &[u8],
        high: &[u8],
        reversed: bool,
    ) -> Result<Self, DecodeError> {
        let mut part = Self::default();
        let mut last: Option<&[u8]> = None;
        for operation in mutation.into_iter().flat_map(|mutation| mutation.operations()) {
            match operation? {
                Operation::Row { position, row } => {
                    let is_in_order =
                        last.is_none_or(|last| if reversed { position < last } else { position > last });
                    if !is_in_order {
                        return Err(DecodeError::Disorder { what: "the rows of an answer" });
                    }
                    last = Some(position);
                    if low <= position && position < high {
                        part.rows.push((position, row));
                    }
                }
                Operation::Span { start, end, deletion } => {
                    part.spans.add(start.max(low), end.min(high), deletion);
                }
            }
        }
        Ok(part)
    }

    fn position(&self) -> Option<&'a [u8]> {
        self.rows.get(self.next).map(|row| row.0)
    }

    fn take(&mut self, position: &[u8]) -> Option<RowRef<'a>> {
        let (own, row) = *self.rows.get(self.next)?;
        if own != position {
            return None;
        }
        self.next += 1;
        Some(row)
    }
}

struct Merge<'b> {
    reversed: bool,
    now_seconds: u32,
    bound: Option<&'b [u8]>,
    merged: Vec<u8>,
    seen: Vec<u8>,
    out: Reconciled,
}

impl Merge<'_> {
    /// The positions of the partition on this side of the bound; `None` when it lies beyond.
    fn extent(&self, prefix: &[u8]) -> Option<(&[u8], &[u8])> {
        let all = (&[][..], key::PARTITION_END);
        let Some(bound) = self.bound else { return Some(all) };
        match bound.strip_prefix(prefix) {
            Some(position) if self.reversed => Some((position, key::PARTITION_END)),
            Some(position) => Some((&[], position)),
            None => (if self.reversed { prefix > bound } else { prefix < bound }).then_some(all),
        }
    }

    /// Merges a partition; false when the bound ends the merge before it.
    fn partition(
        &mut self,
        prefix: &[u8],
        mutations: &[Option<MutationRef<'_>>],
    ) -> Result<bool, DecodeError> {
        let Some((low, high)) = self.extent(prefix) else { return Ok(false) };
        let mut parts: SmallVec<[Part<'_>; 4]> = SmallVec::new();
        for mutation in mutations {
            parts.push(Part::new(*mutation, low, high, self.reversed)?);
        }
        let mut spans = SpanSet::default();
        for span in parts.iter().flat_map(|part| part.spans.as_slice()) {
            spans.add(&span.start, &span.end, span.deletion);
        }
        let mut repairs = Repairs::new(prefix, mutations);
        let mut prefix_in_rows: Option<Range<usize>> = None;
        loop {
            let positions = parts.iter().filter_map(Part::position);
            let next = if self.reversed { positions.max() } else { positions.min() };
            let Some(position) = next else { break };
            let versions: SmallVec<[Option<RowRef<'_>>; 4]> =
                parts.iter_mut().map(|part| part.take(position)).collect();
            self.row(position, &versions, &spans, &mut repairs)?;
            if !self.seen.is_empty() {
                let rows = &mut self.out.rows;
                let prefix = match &prefix_in_rows {
                    Some(range) => range.clone(),
                    None => prefix_in_rows.insert(rows.put(prefix)).clone(),
                };
                let entry = SeenRow { prefix, position: rows.put(position), row: rows.put(&self.seen) };
                rows.rows.push(entry);
            }
        }
        if parts.len() > 1 {
            for (index, part) in parts.iter().enumerate() {
                for Span { start, end, deletion } in missing_spans(spans.as_slice(), &part.spans) {
                    repairs.of(index)?.delete_span(&start, &end, deletion);
                }
            }
        }
        for (lacking, repair) in self.out.lacking.iter_mut().zip(repairs.builders) {
            lacking.extend(repair.map(MutationBuilder::build));
        }
        Ok(true)
    }

    /// Merges the versions of a row; leaves what a reader sees in `seen` (empty: nothing).
    fn row(
        &mut self,
        position: &[u8],
        versions: &[Option<RowRef<'_>>],
        spans: &SpanSet,
        repairs: &mut Repairs,
    ) -> Result<(), DecodeError> {
        self.seen.clear();
        self.merged.clear();
        let shadow = spans.covering(position);
        let present: SmallVec<[RowRef<'_>; 4]> = versions.iter().copied().flatten().collect();
        let are_equal = present.len() == versions.len()
            && present.windows(2).all(|pair| matches!(pair, [left, right] if left == right));
        // One answer has applied its spans to its rows; so has every one of several that agree, but the others' spans
        // may be newer.
        let merged = match present.as_slice() {
            [first, ..] if are_equal && shadow.is_none() => *first,
            present => {
                if !merge_rows(present, shadow, Purpose::Keep, 0, &mut self.merged)?.is_written {
                    return Ok(());
                }
                RowRef::new(&self.merged, 0)
            }
        };
        if !are_equal {
            let mut missing = Vec::new();
            for (index, own) in versions.iter().enumerate() {
                if own.is_some_and(|own| own.bytes == merged.bytes) {
                    continue;
                }
                missing.clear();
                if missing_parts(merged, *own, &mut missing)? {
                    repairs.of(index)?.row_bytes(position, &missing);
                }
            }
        }
        if is_passthrough(merged, None) {
            self.seen.extend_from_slice(merged.bytes);
        } else {
            let purpose = Purpose::Read { now_seconds: self.now_seconds };
            merge_rows(&[merged], None, purpose, 0, &mut self.seen)?;
        }
        Ok(())
    }
}

/// What each answer lacks of a partition.
struct Repairs {
    head: Option<(crate::mutation::TableId, i64)>,
    partition_key: Vec<u8>,
    builders: SmallVec<[Option<MutationBuilder>; 4]>,
}

impl Repairs {
    fn new(prefix: &[u8], mutations: &[Option<MutationRef<'_>>]) -> Self {
        let table = mutations.iter().flatten().next().map(|mutation| mutation.table);
        let key = KeyRef::parse(prefix).ok();
        Self {
            head: table.zip(key.map(|key| key.token)),
            partition_key: key.map_or_else(Vec::new, |key| key.partition_key.to_vec()),
            builders: mutations.iter().map(|_| None).collect(),
        }
    }

    fn of(&mut self, index: usize) -> Result<&mut MutationBuilder, DecodeError> {
        const UNKNOWN: DecodeError = DecodeError::Truncated { what: "an answer" };
        let (table, token) = self.head.ok_or(UNKNOWN)?;
        let slot = self.builders.get_mut(index).ok_or(UNKNOWN)?;
        let builder = match slot.take() {
            Some(builder) => builder,
            None => MutationBuilder::new(table, token, &self.partition_key)
                .map_err(|_| DecodeError::Overflow { what: "a partition key" })?,
        };
        Ok(slot.insert(builder))
    }
}
