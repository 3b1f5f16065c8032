//! The merge of several replicas' answers about the same range: the visible rows, and the data that each replica lacks. It is a
//! pure function.
//!
//! Invariants:
//! * Every answer is what one replica has of the same request. An answer that stopped early contains no information about the
//!   range behind its bound. So the merge ends at the first bound of any answer, and rows behind it are left for the next read.
//!   Missing information is never taken for absence of data.
//! * A replica to which its missing data is written equals the merge.

mod difference;

use std::ops::Range;

use smallvec::SmallVec;
use thiserror::Error;

use self::difference::{missing_parts, missing_range_tombstones};
use crate::codec::DecodeError;
use crate::invariant::{BrokenInvariant, broken};
use crate::key::{self, PartitionKeyTooLong};
use crate::merge::KWayMerge;
use crate::mutation::{Mutation, MutationBuilder, MutationRef, Operation};
use crate::range_tombstone::{RangeTombstone, RangeTombstoneRef, RangeTombstoneSet};
use crate::reconcile::{MERGED_ROW_BYTES_MAX, Purpose, is_passthrough, merge_rows_within};
use crate::row::RowRef;

/// The answer of one replica.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaAnswer<'a> {
    /// As `partitions` of the versions that the engine reads.
    pub partitions: &'a [Mutation],
    pub resume: Option<&'a [u8]>,
}

/// The visible rows, in the order of the read.
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

/// A visible row.
#[derive(Debug, Clone, Copy)]
pub struct SeenRowRef<'a> {
    /// The partition prefix of its key.
    pub prefix: &'a [u8],
    pub position: &'a [u8],
    /// Encoded with base 0.
    pub row: RowRef<'a>,
}

impl<'a> SeenRowRef<'a> {
    pub fn partition_key(&self) -> &'a [u8] {
        &self.prefix[key::PREFIX_OVERHEAD_BYTES..]
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
        let part = |range: &Range<usize>| &self.bytes[range.clone()];
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

/// The result of a merge.
#[derive(Debug, Clone, Default)]
pub struct Reconciled {
    pub rows: SeenRows,
    /// For each answer, the data that its replica lacks: one mutation per partition.
    pub lacking: Vec<Vec<Mutation>>,
    /// As `resume` of the versions that the engine reads.
    pub resume: Option<Vec<u8>>,
}

/// Why answers could not be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReconcileError {
    /// An answer cannot be decoded, or is not in order.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The replicas' versions of a row are too large together.
    #[error(
        "the replicas' versions of a row merge to more than {limit} bytes; its key has {key_bytes} bytes"
    )]
    RowTooLarge { key_bytes: usize, limit: usize },
    #[error(transparent)]
    BrokenInvariant(#[from] BrokenInvariant),
}

/// Merges the answers to one request, whose `reversed` and `now_seconds` are given.
pub fn reconcile_answers(
    answers: &[ReplicaAnswer<'_>],
    reversed: bool,
    now_seconds: u32,
) -> Result<Reconciled, ReconcileError> {
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
        prefix_bytes: 0,
        merged: Vec::new(),
        seen: Vec::new(),
        out: Reconciled {
            rows: SeenRows::default(),
            lacking: vec![Vec::new(); answers.len()],
            resume: resume.map(<[u8]>::to_vec),
        },
    };
    let mut partitions = KWayMerge::new(reversed);
    while partitions.next(&sources, PartitionSource::prefix)? {
        let (prefix, parts) = take_partition(&mut sources, partitions.current())?;
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
            let prefix = key::full_key(view.token, view.partition_key, &[]).map_err(too_long)?;
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

    fn take(&mut self) -> Option<&(Vec<u8>, MutationRef<'a>)> {
        let taken = self.partitions.get(self.next)?;
        self.next += 1;
        Some(taken)
    }
}

/// Each answer's part of a partition.
type PartsOf<'a> = SmallVec<[Option<MutationRef<'a>>; 4]>;

/// Takes the next partition from the `current` sources. Returns its prefix and the part of each source.
fn take_partition<'a>(
    sources: &mut [PartitionSource<'a>],
    current: &[u32],
) -> Result<(Vec<u8>, PartsOf<'a>), BrokenInvariant> {
    let mut parts: PartsOf<'a> = SmallVec::from_elem(None, sources.len());
    let mut partition = None;
    for &index in current {
        let index = index as usize;
        let taken = sources.get_mut(index).and_then(PartitionSource::take);
        let (Some((prefix, view)), Some(part)) = (taken, parts.get_mut(index)) else {
            return Err(broken!("the current sources of a merge have a partition"));
        };
        *part = Some(*view);
        partition.get_or_insert_with(|| prefix.clone());
    }
    let partition = partition.ok_or_else(|| broken!("the current sources of a merge have a partition"))?;
    Ok((partition, parts))
}

/// One answer's part of a partition.
#[derive(Default)]
struct Part<'a> {
    rows: Vec<(&'a [u8], RowRef<'a>)>,
    next: usize,
    range_tombstones: RangeTombstoneSet,
}

impl<'a> Part<'a> {
    /// Decodes the rows and range tombstones in positions `[low, high)`.
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
                Operation::RangeTombstone { start, end, deletion } => {
                    part.range_tombstones.add(start.max(low), end.min(high), deletion);
                }
            }
        }
        Ok(part)
    }

    fn position(&self) -> Option<&'a [u8]> {
        self.rows.get(self.next).map(|row| row.0)
    }

    fn take(&mut self) -> Option<(&'a [u8], RowRef<'a>)> {
        let taken = *self.rows.get(self.next)?;
        self.next += 1;
        Some(taken)
    }
}

/// Each answer's version of a row.
type RowVersions<'a> = SmallVec<[Option<RowRef<'a>>; 4]>;

/// Takes the next row from the `current` parts. Returns its position and the version of each part.
fn take_row<'a>(
    parts: &mut [Part<'a>],
    current: &[u32],
) -> Result<(&'a [u8], RowVersions<'a>), BrokenInvariant> {
    let mut versions = SmallVec::from_elem(None, parts.len());
    let mut position: &[u8] = &[];
    for &index in current {
        let index = index as usize;
        let taken = parts.get_mut(index).and_then(Part::take);
        let (Some((own, row)), Some(version)) = (taken, versions.get_mut(index)) else {
            return Err(broken!("the current sources of a merge have a row"));
        };
        *version = Some(row);
        position = own;
    }
    Ok((position, versions))
}

struct Merge<'b> {
    reversed: bool,
    now_seconds: u32,
    bound: Option<&'b [u8]>,
    /// Length of the prefix of the current partition.
    prefix_bytes: usize,
    merged: Vec<u8>,
    seen: Vec<u8>,
    out: Reconciled,
}

impl Merge<'_> {
    /// The positions of the partition that lie before the bound; `None` if there are none.
    fn extent(&self, prefix: &[u8]) -> Option<(&[u8], &[u8])> {
        let all = (&[][..], key::PARTITION_END);
        let Some(bound) = self.bound else { return Some(all) };
        match bound.strip_prefix(prefix) {
            Some(position) if self.reversed => Some((position, key::PARTITION_END)),
            Some(position) => Some((&[], position)),
            None => (if self.reversed { prefix > bound } else { prefix < bound }).then_some(all),
        }
    }

    /// Merges a partition; false if it lies behind the bound.
    fn partition(
        &mut self,
        prefix: &[u8],
        mutations: &[Option<MutationRef<'_>>],
    ) -> Result<bool, ReconcileError> {
        self.prefix_bytes = prefix.len();
        let Some((low, high)) = self.extent(prefix) else { return Ok(false) };
        let mut parts: SmallVec<[Part<'_>; 4]> = SmallVec::new();
        for mutation in mutations {
            parts.push(Part::new(*mutation, low, high, self.reversed)?);
        }
        let mut range_tombstones = RangeTombstoneSet::default();
        for RangeTombstoneRef { start, end, deletion } in
            parts.iter().flat_map(|part| part.range_tombstones.iter())
        {
            range_tombstones.add(start, end, deletion);
        }
        let mut repairs = Repairs::new(mutations)?;
        let mut prefix_in_rows: Option<Range<usize>> = None;
        let mut rows = KWayMerge::new(self.reversed);
        while rows.next(&parts, Part::position)? {
            let (position, versions) = take_row(&mut parts, rows.current())?;
            self.row(position, &versions, &range_tombstones, &mut repairs)?;
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
            let all: Vec<RangeTombstoneRef<'_>> = range_tombstones.iter().collect();
            for (index, part) in parts.iter().enumerate() {
                let own: Vec<RangeTombstoneRef<'_>> = part.range_tombstones.iter().collect();
                for RangeTombstone { start, end, deletion } in missing_range_tombstones(&all, &own) {
                    repairs.of(index)?.delete_range(&start, &end, deletion);
                }
            }
        }
        for (lacking, repair) in self.out.lacking.iter_mut().zip(repairs.builders) {
            lacking.extend(repair.map(MutationBuilder::build));
        }
        Ok(true)
    }

    /// Merges the versions of a row. Afterwards `seen` holds the visible row; it is empty if the row is not visible.
    fn row(
        &mut self,
        position: &[u8],
        versions: &[Option<RowRef<'_>>],
        range_tombstones: &RangeTombstoneSet,
        repairs: &mut Repairs<'_>,
    ) -> Result<(), ReconcileError> {
        self.seen.clear();
        self.merged.clear();
        let shadow = range_tombstones.covering(position);
        let present: SmallVec<[RowRef<'_>; 4]> = versions.iter().copied().flatten().collect();
        let are_equal = present.len() == versions.len()
            && present.windows(2).all(|pair| matches!(pair, [left, right] if left == right));
        // Each answer has applied its own range tombstones to its rows. Those of another answer may be newer.
        let merged = match present.as_slice() {
            [first, ..] if are_equal && shadow.is_none() => *first,
            present => {
                let merged = merge_rows_within(present, shadow, Purpose::Keep, 0, &mut self.merged)?;
                if !merged.ok_or_else(|| self.row_too_large(position))?.is_written {
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
            let seen = merge_rows_within(&[merged], None, purpose, 0, &mut self.seen)?;
            seen.ok_or_else(|| self.row_too_large(position))?;
        }
        Ok(())
    }

    #[cold]
    fn row_too_large(&self, position: &[u8]) -> ReconcileError {
        let key_bytes = self.prefix_bytes + position.len();
        ReconcileError::RowTooLarge { key_bytes, limit: MERGED_ROW_BYTES_MAX }
    }
}

/// The data of a partition that each answer lacks.
struct Repairs<'a> {
    /// The part of any answer: all have the same table, token and partition key.
    partition: MutationRef<'a>,
    builders: SmallVec<[Option<MutationBuilder>; 4]>,
}

impl<'a> Repairs<'a> {
    fn new(mutations: &[Option<MutationRef<'a>>]) -> Result<Self, BrokenInvariant> {
        let Some(&partition) = mutations.iter().flatten().next() else {
            return Err(broken!("a partition that is merged is in one of the answers"));
        };
        Ok(Self { partition, builders: mutations.iter().map(|_| None).collect() })
    }

    fn of(&mut self, index: usize) -> Result<&mut MutationBuilder, ReconcileError> {
        let MutationRef { table, token, partition_key, .. } = self.partition;
        let Some(slot) = self.builders.get_mut(index) else {
            return Err(broken!("there is a repair for each answer").into());
        };
        let builder = match slot.take() {
            Some(builder) => builder,
            None => MutationBuilder::new(table, token, partition_key).map_err(too_long)?,
        };
        Ok(slot.insert(builder))
    }
}

fn too_long(_: PartitionKeyTooLong) -> DecodeError {
    DecodeError::Overflow { what: "a partition key" }
}
