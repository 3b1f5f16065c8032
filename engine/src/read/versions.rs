//! Reading *versions*: what a replica answers to a coordinator, and what travels when data changes owners. Rows are
//! merged, but tombstones, expired cells and deletions of rows, columns and spans stay in.
//!
//! Invariants:
//! * Equal contents give equal bytes, whatever flushes and compactions happened: rows are merged and encoded with base
//!   0, what deletions shadow is left out, spans are disjoint, sorted, coalesced and cut to the range that was read, expired
//!   cells have no value, and (unless asked for) deletions past their grace period are left out, as compaction
//!   may have done already.
//! * Where reading stops depends on this content only, except when the bound of scanned bytes ends it: the limits are looked
//!   at before each row and span, and the next one's place is where another read goes on.
//! * A read makes progress: it ends behind where it began.

use super::request::{Budget, ScanRequest};
use super::scan::Scan;
use super::source::Bounds;
use super::span_sources::{SpanSearch, SpanSource, cut};
use crate::codec::DecodeError;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key::{self, KeyRef};
use crate::mutation::{Mutation, MutationBuilder, TableId};
use crate::reconcile::Purpose;
use crate::row::RowRef;
use crate::span::{Span, SpanSet};

/// Bytes that a partition and a span count for besides their keys.
const OVERHEAD_BYTES: u64 = 16;

/// Where a read of versions stops. Static rows are not counted as live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLimit {
    /// Rows that a reader sees.
    pub live_rows: u64,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Deleted and expired rows, cells and spans in the answer.
    pub tombstones: u64,
    /// Bytes of rows read, all versions counted, also of those that the answer leaves out.
    pub scanned_bytes: u64,
}

impl VersionLimit {
    /// No limit at all: for ranges that are known to be small.
    pub const UNLIMITED: Self =
        Self { live_rows: u64::MAX, bytes: u64::MAX, tombstones: u64::MAX, scanned_bytes: u64::MAX };
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct VersionScanRequest<'a> {
    pub table: TableId,
    /// The first full key (or any prefix of one).
    pub start: &'a [u8],
    /// Behind the last full key.
    pub end: &'a [u8],
    /// From the last row to the first.
    pub reversed: bool,
    /// Seconds since the epoch; decides what has expired and what is past its grace period.
    pub now_seconds: u32,
    /// Deletions past their grace period are wanted too, and the values of expired cells. The bytes then depend on what
    /// compaction has forgotten.
    pub keeps_purgeable: bool,
    /// A turn of a long read forwards, of which nothing is soon wanted again: it leaves the block cache alone and reads ahead.
    pub is_long: bool,
    pub limit: VersionLimit,
}

/// The versions of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// One for each partition that has anything, in the order of the read. Its operations: rows in the order of the read,
    /// then spans by position.
    pub partitions: Vec<Mutation>,
    /// Where another read goes on: the new start, or reversed the new end. `None` when the range is done.
    pub resume: Option<Vec<u8>>,
    /// Rows among them that a reader sees, static ones not counted.
    pub live_rows: u64,
    pub tombstones: u64,
    /// Size of the content.
    pub bytes: u64,
}

/// A read of versions under way; all of it in one turn.
pub(crate) struct VersionScan<'r, 's> {
    request: &'r VersionScanRequest<'r>,
    scan: Scan<'s>,
    spans: Vec<SpanSource>,
    purpose: Purpose,
    /// The prefix of the partition that all of the range lies in.
    only: Option<&'r [u8]>,
    has_row: bool,
    has_scanned: bool,
    scanned_bytes: u64,
    has_events: bool,
    out: Versions,
}

/// The partition at hand.
struct Partition {
    prefix: Vec<u8>,
    /// Covers rows.
    shadows: SpanSet,
    /// What the answer shows of it.
    shown: Vec<Span>,
    /// How many of `shown` were passed, from the side where the read began.
    passed: usize,
    builder: Option<MutationBuilder>,
    token: i64,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl<'r, 's> VersionScan<'r, 's> {
    /// `scan` covers the same range; `only` is the prefix of the partition that the range lies in, if it is one.
    pub fn new(
        request: &'r VersionScanRequest<'r>,
        scan: Scan<'s>,
        spans: Vec<SpanSource>,
        purpose: Purpose,
        only: Option<&'r [u8]>,
    ) -> Self {
        Self {
            request,
            scan,
            spans,
            purpose,
            only,
            has_row: false,
            has_scanned: false,
            scanned_bytes: 0,
            has_events: false,
            out: Versions::default(),
        }
    }

    pub fn run(mut self) -> Result<Versions, EngineError> {
        if self.request.start >= self.request.end {
            return Ok(self.out);
        }
        self.has_row = self.scan.step()?;
        let mut done: Option<Vec<u8>> = None;
        while let Some(prefix) = self.next_partition(done.as_deref())? {
            let mut partition = self.enter(prefix)?;
            let stop = self.read_partition(&mut partition)?;
            self.finish_partition(&mut partition, stop.as_deref())?;
            if let Some(position) = stop {
                self.out.resume = Some([partition.prefix.as_slice(), &position].concat());
                break;
            }
            done = Some(partition.prefix);
        }
        Ok(self.out)
    }

    fn invalid(&self, reason: DecodeError) -> EngineError {
        EngineError::Row { table: self.request.table, reason }
    }

    fn bounds(&self) -> Bounds<'r> {
        let VersionScanRequest { start, end, reversed, .. } = *self.request;
        Bounds { start, end, reversed }
    }

    fn next_partition(&self, done: Option<&[u8]>) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(only) = self.only {
            return Ok(done.is_none().then(|| only.to_vec()));
        }
        let of_row = match self.scan.key().filter(|_| self.has_row) {
            None => None,
            Some(key) => {
                let prefix = key::prefix_length(key).and_then(|length| key.get(..length));
                Some(prefix.ok_or(self.invalid(DecodeError::Truncated { what: "a row key" }))?)
            }
        };
        let search = SpanSearch { bounds: self.bounds(), done, known: of_row };
        let of_spans = self.spans.iter().filter_map(|source| source.next_partition(&search));
        let of_spans = if self.request.reversed { of_spans.max() } else { of_spans.min() };
        // Searched for only before the row's.
        Ok(of_spans.or_else(|| of_row.map(<[u8]>::to_vec)))
    }

    fn enter(&mut self, prefix: Vec<u8>) -> Result<Partition, EngineError> {
        let KeyRef { token, .. } = KeyRef::parse(&prefix).map_err(|reason| self.invalid(reason))?;
        let Bounds { start, end, .. } = self.bounds();
        let low = start.strip_prefix(prefix.as_slice()).unwrap_or_default().to_vec();
        let high = end.strip_prefix(prefix.as_slice()).unwrap_or(key::PARTITION_END).to_vec();
        let mut shadows = SpanSet::default();
        for source in &self.spans {
            source.collect(&prefix, &low, &high, &mut shadows);
        }
        let kept = shadows.as_slice().iter().filter(|span| match self.purpose {
            Purpose::Compact(purge) => !purge.forgets(span.deletion),
            Purpose::Keep | Purpose::Read { .. } => true,
        });
        let shown = cut(kept, &low, &high);
        Ok(Partition { prefix, shadows, shown, passed: 0, builder: None, token, low, high })
    }

    /// Takes in rows and spans; the position (reversed: behind it) where a limit ended the read.
    fn read_partition(&mut self, partition: &mut Partition) -> Result<Option<Vec<u8>>, EngineError> {
        let reversed = self.request.reversed;
        let mut merged = Vec::new();
        let mut position: Option<Vec<u8>> = None;
        loop {
            while position.is_none() && self.has_row {
                let Some(at) = self.scan.key().and_then(|key| key.strip_prefix(&*partition.prefix)) else {
                    break;
                };
                if self.has_scanned && self.scanned_bytes >= self.request.limit.scanned_bytes {
                    let bound = behind(at, reversed);
                    if self.is_progress(partition, &bound) {
                        return Ok(Some(bound));
                    }
                }
                self.has_scanned = true;
                let shadow = partition.shadows.covering(at);
                merged.clear();
                let outcome = self.scan.merge_versions(shadow, self.purpose, &mut merged)?;
                self.scanned_bytes += outcome.scanned_bytes;
                if outcome.is_written {
                    position = Some(at.to_vec());
                } else {
                    self.has_row = self.scan.step()?;
                }
            }
            let span = partition.next_span(reversed);
            let takes_span = match (span, &position) {
                (None, None) => return Ok(None),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(span), Some(position)) if reversed => *span.end > **position,
                (Some(span), Some(position)) => *span.start <= **position,
            };
            let bound = match (span.filter(|_| takes_span), &position) {
                (Some(span), _) if reversed => span.end.to_vec(),
                (Some(span), _) => span.start.to_vec(),
                (None, Some(position)) => behind(position, reversed),
                (None, None) => return Ok(None),
            };
            if self.is_spent() && self.has_events && self.is_progress(partition, &bound) {
                return Ok(Some(bound));
            }
            self.has_events = true;
            if takes_span {
                self.out.tombstones += 1;
                self.out.bytes += span.map_or(0, Span::key_bytes) + OVERHEAD_BYTES;
                partition.passed += 1;
            } else {
                let Some(position) = position.take() else {
                    return Err(broken!("a read of versions takes a row or a span").into());
                };
                self.take_row(partition, &position, &merged)?;
                self.has_row = self.scan.step()?;
            }
        }
    }

    fn is_spent(&self) -> bool {
        let limit = &self.request.limit;
        self.out.live_rows >= limit.live_rows
            || self.out.bytes >= limit.bytes
            || self.out.tombstones >= limit.tombstones
    }

    /// Whether a read that stops here leaves less than the whole range.
    fn is_progress(&self, partition: &Partition, position: &[u8]) -> bool {
        let bound = [partition.prefix.as_slice(), position].concat();
        if self.request.reversed {
            bound.as_slice() < self.request.end
        } else {
            bound.as_slice() > self.request.start
        }
    }

    fn take_row(
        &mut self,
        partition: &mut Partition,
        position: &[u8],
        row: &[u8],
    ) -> Result<(), EngineError> {
        let (is_live, dead) = RowRef::new(row, 0).visibility(self.request.now_seconds);
        self.out.live_rows += u64::from(is_live && position != key::STATIC_POSITION);
        self.out.tombstones += u64::from(dead);
        self.out.bytes += (position.len() + row.len()) as u64;
        self.builder(partition)?.row_bytes(position, row);
        Ok(())
    }

    fn builder<'p>(&mut self, partition: &'p mut Partition) -> Result<&'p mut MutationBuilder, EngineError> {
        let Partition { builder, prefix, token, .. } = partition;
        let built = if let Some(present) = builder.take() {
            present
        } else {
            self.out.bytes += prefix.len() as u64 + OVERHEAD_BYTES;
            let Some(key) = prefix.get(key::PREFIX_OVERHEAD_BYTES..) else {
                return Err(broken!("a partition that is read has a whole prefix").into());
            };
            MutationBuilder::new(self.request.table, *token, key)
                .map_err(|_| self.invalid(DecodeError::Overflow { what: "a partition key" }))?
        };
        Ok(builder.insert(built))
    }

    /// Writes the spans of what was read and closes the partition's mutation.
    fn finish_partition(
        &mut self,
        partition: &mut Partition,
        stop: Option<&[u8]>,
    ) -> Result<(), EngineError> {
        let (low, high) = match stop {
            Some(bound) if self.request.reversed => (bound, partition.high.as_slice()),
            Some(bound) => (partition.low.as_slice(), bound),
            None => (partition.low.as_slice(), partition.high.as_slice()),
        };
        let spans = cut(&partition.shown, low, high);
        if !spans.is_empty() {
            let builder = self.builder(partition)?;
            for span in &spans {
                builder.delete_span(&span.start, &span.end, span.deletion);
            }
        }
        self.out.partitions.extend(partition.builder.take().map(MutationBuilder::build));
        Ok(())
    }
}

/// The bound of a read that has not taken the row at `position`.
fn behind(position: &[u8], reversed: bool) -> Vec<u8> {
    let mut bound = position.to_vec();
    if reversed {
        // The end is exclusive: the least position behind.
        bound.push(0);
    }
    bound
}

impl Partition {
    fn next_span(&self, reversed: bool) -> Option<&Span> {
        let index = if reversed { self.shown.len().checked_sub(self.passed + 1)? } else { self.passed };
        self.shown.get(index)
    }
}

impl VersionScanRequest<'_> {
    /// What opens the sources of the rows.
    pub(crate) fn scan_request(&self) -> ScanRequest<'_> {
        ScanRequest {
            table: self.table,
            start: self.start,
            end: self.end,
            reversed: self.reversed,
            now_seconds: self.now_seconds,
            budget: Budget::UNLIMITED,
        }
    }
}
