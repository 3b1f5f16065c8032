//! Reading *versions*: the answer of a replica to a coordinator, and the data that is streamed when ranges change owners. Rows are
//! merged, but tombstones, expired cells and all deletions stay in.
//!
//! Invariants:
//! * Equal contents give equal bytes, whatever flushes and compactions happened. Rows are merged and encoded with base 0.
//!   Shadowed data is left out. Range tombstones are disjoint, sorted, united and cut to the range that was read. Expired cells
//!   have no value. Deletions past their grace period are left out unless the request keeps them, as compaction may have purged
//!   them already.
//! * The place where a read stops depends on these contents only, unless the limit of scanned bytes stops it. Limits are checked
//!   before each row and each range tombstone. The place of the next one is where another read continues.
//! * A read makes progress: it ends behind its start.
//! * A read of parts takes a large row in several reads. The parts are versions of the row.
//! * A read looks only at range tombstones that it reaches, and those that are hidden by stronger ones count as scanned. So the
//!   cost of reading a part of a partition follows from the contents of that part, not from the number of range tombstones in the
//!   partition.

use super::range_tombstone_sources::{RangeTombstoneSearch, RangeTombstoneSource, SourceCursor, cut};
use super::request::{Budget, ScanRequest};
use super::scan::Scan;
use super::source::Bounds;
use crate::cell::{AddressBuf, Deletion};
use crate::codec::DecodeError;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::key::{self, KeyRef};
use crate::mutation::{Mutation, MutationBuilder, TableId};
use crate::range_tombstone::{RangeTombstone, Union, Walked};
use crate::reconcile::{Purpose, RowPart, renewed};
use crate::row::RowRef;

/// Bytes that count for a partition and for a range tombstone besides their keys.
const OVERHEAD_BYTES: u64 = 16;

/// The limits at which a read of versions stops. Static rows do not count as live rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLimit {
    /// Visible rows.
    pub live_rows: u64,
    /// Bytes of the answer.
    pub bytes: u64,
    /// Deleted and expired rows and cells, and range tombstones, in the answer.
    pub tombstones: u64,
    /// Bytes of rows and of bounds of range tombstones read. All versions count, also those that the answer leaves out.
    pub scanned_bytes: u64,
}

impl VersionLimit {
    /// No limit, for ranges that are known to be small.
    pub const UNLIMITED: Self =
        Self { live_rows: u64::MAX, bytes: u64::MAX, tombstones: u64::MAX, scanned_bytes: u64::MAX };
}

/// What a read of versions returns of deletions that compaction may have purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purgeable {
    /// They are returned, and the values of expired cells. The bytes then depend on which of them compaction has purged.
    Kept,
    /// They are left out.
    LeftOut,
    /// All that are past their grace period are left out, whatever else the table waits for before it purges them
    /// ([`crate::shard::TombstoneGc`]). So replicas that wait for different things have equal bytes.
    LeftOutAfterGrace,
}

/// The request of a read of versions.
#[derive(Debug, Clone, Copy)]
pub struct VersionScanRequest<'a> {
    pub table: TableId,
    /// The first full key (or any prefix of one).
    pub start: &'a [u8],
    /// Behind the last full key.
    pub end: &'a [u8],
    /// Whether rows are returned from the last to the first.
    pub reversed: bool,
    /// Seconds since the epoch; decides what has expired and what is past its grace period.
    pub now_seconds: u32,
    pub purgeable: Purgeable,
    /// Part of a long forward read whose data will not be read again soon: it does not use the block cache, and reads ahead.
    pub is_long: bool,
    /// Reads a row that is too large for one part in several parts, one per read, forwards only. The value is where the read
    /// begins in the row at `start`, if the row still exists. `None`: such a row is [`EngineError::RowTooLarge`] once it cannot
    /// be read as a whole.
    pub part: Option<RowPart<'a>>,
    pub limit: VersionLimit,
}

/// The versions of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// One mutation per partition with any content, in the order of the read. Its operations are the rows in the order of the read,
    /// then the range tombstones ordered by position.
    pub partitions: Vec<Mutation>,
    /// The bound with which another read continues: the new start, or for a reversed read the new end. `None` at the end of the
    /// range.
    pub resume: Option<Vec<u8>>,
    /// Where the next part of the row at `resume` begins, if the read stopped inside it.
    pub resume_inside: Option<AddressBuf>,
    /// The number of visible rows, without static rows.
    pub live_rows: u64,
    pub tombstones: u64,
    /// Size of the contents in bytes.
    pub bytes: u64,
}

/// A read of versions in progress. It runs in one critical section.
pub(crate) struct VersionScan<'r, 's> {
    request: &'r VersionScanRequest<'r>,
    scan: Scan<'s>,
    range_tombstones: Vec<RangeTombstoneSource>,
    purpose: Purpose,
    /// The prefix of the partition, if the range lies within one.
    only: Option<&'r [u8]>,
    has_row: bool,
    has_scanned: bool,
    scanned_bytes: u64,
    has_events: bool,
    /// Where the next part of the merged row begins.
    next_part: Option<AddressBuf>,
    out: Versions,
}

/// The current partition.
struct Partition {
    prefix: Vec<u8>,
    /// The range tombstones of all sources.
    walk: Union<SourceCursor>,
    /// The next one that the answer contains.
    next: Option<Walked>,
    /// Those that the read has taken, in its order.
    taken: Vec<RangeTombstone>,
    builder: Option<MutationBuilder>,
    token: i64,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl<'r, 's> VersionScan<'r, 's> {
    /// `scan` reads the same range. `only` is the prefix of the partition, if the range lies within one.
    pub fn new(
        request: &'r VersionScanRequest<'r>,
        scan: Scan<'s>,
        range_tombstones: Vec<RangeTombstoneSource>,
        purpose: Purpose,
        only: Option<&'r [u8]>,
    ) -> Self {
        debug_assert!(request.part.is_none() || !request.reversed, "rows are read in parts forwards only");
        Self {
            request,
            scan,
            range_tombstones,
            purpose,
            only,
            has_row: false,
            has_scanned: false,
            scanned_bytes: 0,
            has_events: false,
            next_part: None,
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
        let search = RangeTombstoneSearch { bounds: self.bounds(), done, known: of_row };
        let of_range_tombstones =
            self.range_tombstones.iter().filter_map(|source| source.next_partition(&search));
        let of_range_tombstones =
            if self.request.reversed { of_range_tombstones.max() } else { of_range_tombstones.min() };
        // The search ended before the row's partition.
        Ok(of_range_tombstones.or_else(|| of_row.map(<[u8]>::to_vec)))
    }

    fn enter(&mut self, prefix: Vec<u8>) -> Result<Partition, EngineError> {
        let KeyRef { token, .. } = KeyRef::parse(&prefix).map_err(|reason| self.invalid(reason))?;
        let Bounds { start, end, .. } = self.bounds();
        let low = start.strip_prefix(prefix.as_slice()).unwrap_or_default().to_vec();
        let high = end.strip_prefix(prefix.as_slice()).unwrap_or(key::PARTITION_END).to_vec();
        let reversed = self.request.reversed;
        let cursor = |source: &RangeTombstoneSource| source.cursor(&prefix, &low, &high, reversed);
        let walk = Union::new(self.range_tombstones.iter().map(cursor).collect(), &low, &high, reversed);
        let mut partition =
            Partition { prefix, walk, next: None, taken: Vec::new(), builder: None, token, low, high };
        self.walk_on(&mut partition);
        Ok(partition)
    }

    /// Finds the next range tombstone that the answer contains.
    fn walk_on(&mut self, partition: &mut Partition) {
        if self.range_tombstones.is_empty() {
            return;
        }
        let is_kept = |deletion: Deletion| match self.purpose {
            Purpose::Compact(purge) => !purge.forgets(deletion),
            Purpose::Keep | Purpose::Renew { .. } | Purpose::Read { .. } => true,
        };
        let budget_bytes = self.request.limit.scanned_bytes.saturating_sub(self.scanned_bytes);
        let walked_bytes = partition.walk.walked_bytes();
        partition.next = partition.walk.next(budget_bytes, is_kept);
        self.scanned_bytes += partition.walk.walked_bytes() - walked_bytes;
    }

    /// Reads rows and range tombstones. Returns the bound at which a limit stopped the read, if one did.
    fn read_partition(&mut self, partition: &mut Partition) -> Result<Option<Vec<u8>>, EngineError> {
        let reversed = self.request.reversed;
        let mut merged = Vec::new();
        let mut next_row = NextRow::Unknown;
        loop {
            if matches!(next_row, NextRow::Unknown) {
                next_row = self.find_row(partition, &mut merged)?;
            }
            let edge = partition.next.as_ref().map(|next| next.edge(reversed));
            let edge_before_row = match (edge, next_row.position()) {
                (None, None) => return Ok(None),
                (edge, None) => edge,
                (None, Some(_)) => None,
                (Some(edge), Some(position)) if reversed => (edge > position).then_some(edge),
                (Some(edge), Some(position)) => (edge <= position).then_some(edge),
            };
            if let Some(bound) = edge_before_row {
                let bound = bound.to_vec();
                let is_spent = self.is_spent() && self.has_events && self.is_progress(partition, &bound);
                match partition.next.take() {
                    Some(Walked::RangeTombstone(found)) if !is_spent => {
                        self.has_events = true;
                        self.out.tombstones += 1;
                        self.out.bytes += found.view().key_bytes() + OVERHEAD_BYTES;
                        partition.taken.push(found);
                        self.walk_on(partition);
                    }
                    // A walk that pauses has made progress.
                    Some(_) => return Ok(Some(bound)),
                    None => return Err(broken!("a walk that is first has a next range tombstone").into()),
                }
                continue;
            }
            let is_unread = matches!(next_row, NextRow::Unread(_));
            let Some(position) = next_row.take() else {
                return Err(broken!("a read of versions takes a row or a range tombstone").into());
            };
            let bound = behind(&position, reversed);
            let is_spent = is_unread || (self.is_spent() && self.has_events);
            if is_spent && self.is_progress(partition, &bound) {
                return Ok(Some(bound));
            }
            if is_unread {
                // At least one row is read.
                self.has_scanned = false;
                continue;
            }
            self.has_events = true;
            self.take_row(partition, &position, &merged)?;
            if self.out.resume_inside.is_some() {
                return Ok(Some(position));
            }
            self.has_row = self.scan.step()?;
        }
    }

    /// Merges the next row of the partition that the answer contains.
    fn find_row(&mut self, partition: &Partition, merged: &mut Vec<u8>) -> Result<NextRow, EngineError> {
        while self.has_row {
            let Some(key) = self.scan.key() else { break };
            let Some(at) = key.strip_prefix(&*partition.prefix) else { break };
            if self.has_scanned && self.scanned_bytes >= self.request.limit.scanned_bytes {
                return Ok(NextRow::Unread(at.to_vec()));
            }
            self.has_scanned = true;
            let shadow = self.range_tombstones.iter().filter_map(|source| source.covering(key)).max();
            merged.clear();
            let inside =
                |part: RowPart<'r>| RowPart { from: part.from.filter(|_| key == self.request.start), ..part };
            let part = self.request.part.map(inside);
            let outcome = self.scan.merge_versions(shadow, self.purpose, part, merged)?;
            self.scanned_bytes += outcome.scanned_bytes;
            if outcome.is_written {
                self.next_part = outcome.next;
                return Ok(NextRow::Merged(at.to_vec()));
            }
            self.has_row = self.scan.step()?;
        }
        Ok(NextRow::None)
    }

    fn is_spent(&self) -> bool {
        let limit = &self.request.limit;
        self.out.live_rows >= limit.live_rows
            || self.out.bytes >= limit.bytes
            || self.out.tombstones >= limit.tombstones
    }

    /// Whether a read that stops at this position has made progress.
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
        self.out.resume_inside = self.next_part.take();
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

    /// Writes the range tombstones of the part that was read, and finishes the partition's mutation.
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
        if self.request.reversed {
            partition.taken.reverse();
        }
        let range_tombstones = cut(&partition.taken, low, high);
        if !range_tombstones.is_empty() {
            let purpose = self.purpose;
            let builder = self.builder(partition)?;
            for range_tombstone in &range_tombstones {
                let deletion = match purpose {
                    Purpose::Renew { now_seconds } => renewed(range_tombstone.deletion, now_seconds),
                    _ => range_tombstone.deletion,
                };
                builder.delete_range(&range_tombstone.start, &range_tombstone.end, deletion);
            }
        }
        self.out.partitions.extend(partition.builder.take().map(MutationBuilder::build));
        Ok(())
    }
}

/// The bound of a read that stops before the row at `position`.
fn behind(position: &[u8], reversed: bool) -> Vec<u8> {
    let mut bound = position.to_vec();
    if reversed {
        // The end is exclusive: the least position greater than it.
        bound.push(0);
    }
    bound
}

/// The next row of a partition that the answer contains.
enum NextRow {
    Unknown,
    None,
    /// It is merged.
    Merged(Vec<u8>),
    /// The limit of scanned bytes was reached before the row at this position was looked at.
    Unread(Vec<u8>),
}

impl NextRow {
    fn position(&self) -> Option<&[u8]> {
        match self {
            Self::Merged(position) | Self::Unread(position) => Some(position),
            Self::Unknown | Self::None => None,
        }
    }

    /// Its position; another row is looked for then.
    fn take(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(self, Self::Unknown) {
            Self::Merged(position) | Self::Unread(position) => Some(position),
            Self::Unknown | Self::None => None,
        }
    }
}

/// Bytes that a transfer reads in one turn, so that other requests can run.
pub const TRANSFER_TURN_BYTES: u64 = 64 << 10;

impl<'a> VersionScanRequest<'a> {
    /// One turn of a transfer of everything that a table has from `start` to `end`, up to about `bytes`, to a receiver that has
    /// none of it.
    pub fn of_transfer(
        table: TableId,
        (start, end): (&'a [u8], &'a [u8]),
        now_seconds: u32,
        part: Option<RowPart<'a>>,
        bytes: u64,
    ) -> Self {
        let limit = VersionLimit { bytes, scanned_bytes: 4 * TRANSFER_TURN_BYTES, ..VersionLimit::UNLIMITED };
        Self {
            table,
            start,
            end,
            reversed: false,
            now_seconds,
            purgeable: Purgeable::Kept,
            is_long: true,
            part,
            limit,
        }
    }
}

impl VersionScanRequest<'_> {
    /// The request of the scan that reads the rows.
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
